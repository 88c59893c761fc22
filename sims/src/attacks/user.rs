//! Attacks of an ordinary user: with commands, and with requests, sockets and files that no command makes.

use super::{
    Attack, Fallible, Seen, Who,
    attacker::{
        ASK_STEP_MANAGER, CROWD, Caught, HUGE_FRAME, POSE_AS_STEPD, SQUAT, TRACE, TUNNEL, Traced, first_line, rest,
    },
    scene::{ALICE, BOB, CTL, N1, ROOT, SECRETS, STRANGER, Scene, said},
};
use crate::{faults::site::Site, minibatch::processes};
use garrick_model::{
    config::LogLevel,
    ids::{JobId, RequestId},
    messages::{
        command::{
            Caller, CancelRequest, CommandReply, CommandRequest, JobAction, JobChange, JobFilter, JobSelector,
            NodeChange, NodeStateChange,
        },
        step::{CommandToStepMgr, StepMgrToCommand},
        stepd::{NodeToStepd, StepdReport, StepdToNode},
    },
    spec::JobSpec,
    state::{ExitStatus, JobState, Reason},
    step_selector::WhichSteps,
    time::Timestamp,
};
use serde_bytes::ByteBuf;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    sync::Arc,
};

const fn of_user(tries: &'static str, run: fn(&mut Scene) -> Fallible<Seen>) -> Attack {
    Attack { who: Who::User, tries, run, long: false }
}

/// All of them.
pub const ATTACKS: &[Attack] = &[
    of_user("read her script and environment: journals, spool, logs, keys, /proc, scontrol write batch_script", read),
    of_user("scancel, scancel -s, hold, release, requeue, suspend, update and top of her jobs", control),
    of_user("srun --jobid and sattach of her job; her name at her step manager's door (OnBehalfOf)", attach),
    of_user("update, hold and cancel tasks 0-4294967295 of her array", whole_range),
    of_user("100,000 selectors of 0-4294967295 in one request", many_selectors),
    of_user("drain a node: names of 200 KiB, NUL and newlines in names, variables and paths", drain_by_name),
    of_user("escape sequences and forged lines in names, into the administrator's terminal and logs", terminal),
    of_user("a script of 6 MiB, a frame of 4 GiB", oversize),
    of_user("400 connections that stop in the middle of their greeting", half_greetings),
    of_user("a socket of his where commands look for the controller's door", squat),
    of_user("a folder of his as her GARRICK_HOME; his jobs on the cluster that is hers alone", own_cluster),
    of_user("symlinks in the state folder that a start by root gives to SlurmUser", symlinks),
    of_user("trace launchers of his own jobs, list their descriptors, open their memory", trace),
    of_user("a relay of the node's daemon to an address of his choice", tunnel),
    of_user(
        "what slurmd has, from a task: capabilities, groups, descriptors, keyring, variables, oom_score_adj",
        inherit,
    ),
    of_user("an administrator's requests: drain, shutdown, tokens, certificates, priority of his own job", administer),
    of_user("pose as her job's stepd at the node's door and report its end", pose_as_stepd),
];

/// A request is refused, or refused for all that it named.
pub(super) fn is_refused(reply: &Result<CommandReply, String>) -> bool {
    match reply {
        Ok(CommandReply::Refused(_)) | Err(_) => true,
        Ok(CommandReply::PerJob(outcomes)) => outcomes.iter().all(|(_, outcome)| outcome.is_err()),
        Ok(_) => false,
    }
}

pub(super) fn id(job: &str) -> Fallible<JobId> {
    Ok(JobId(job.parse()?))
}

pub(super) fn selector(job: &str) -> Fallible<JobSelector> {
    Ok(JobSelector { job: id(job)?, tasks: None, het: None, run: None })
}

/// A batch job as a command would ask for it.
pub(super) fn spec(name: &str, script: &str) -> Fallible<JobSpec> {
    let mut spec: JobSpec = serde_json::from_value(serde_json::json!({
        "kind": "Batch", "name": name, "work_dir": "/tmp", "tasks": 1, "stdout": "/dev/null", "nodelist": ["n1"],
    }))?;
    spec.script = Some(Arc::new(ByteBuf::from(script)));
    spec.environment = Arc::new(vec![ByteBuf::from("PATH=/usr/bin:/bin")]);
    Ok(spec)
}

pub(super) fn submission(spec: JobSpec) -> CommandRequest {
    CommandRequest::SubmitJob { request: RequestId::random(), spec: Box::new(spec) }
}

fn read(scene: &mut Scene) -> Fallible<Seen> {
    let home = &scene.site.home;
    let secret = format!("{}|{}", SECRETS[0], SECRETS[1]);
    let places = |host: usize| {
        let name = &scene.site.hosts[host].name;
        let mut places = vec![home.join("kept"), home.join(format!("{name}.log")), home.join("slurm.key")];
        places.push(if host == CTL { home.join("state") } else { home.join(format!("spool-{name}")) });
        places.extend(["/run/garrick", "/run/garrick-daemon"].map(PathBuf::from));
        places.into_iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let mut broken = Vec::new();
    for host in [CTL, N1] {
        let places = places(host);
        let mut args = vec!["-rlsaE", "-D", "skip", &secret];
        args.extend(places.iter().map(String::as_str));
        if scene.run(ROOT, host, "/usr/bin/grep", &args)?.out.is_empty() {
            return Err("root finds no secret where one has to be".into());
        }
        broken.extend(scene.run(BOB, host, "/usr/bin/grep", &args)?.out.lines().map(ToOwned::to_owned));
        // The keys have to be there for root, and closed to him.
        let key = home.join("slurm.key");
        let key = key.to_string_lossy();
        scene.run(ROOT, host, "/usr/bin/cat", &[&key])?.ok("reading the key")?;
        if scene.run(BOB, host, "/usr/bin/cat", &[&key])?.code == 0 {
            broken.push(format!("he reads {key}"));
        }
    }
    let look = format!("cat /proc/[0-9]*/environ 2>/dev/null | grep -ac {}", SECRETS[1]);
    let look = |uid| scene.run(uid, N1, "/bin/sh", &["-c", &look]);
    scene.until("her task has begun, with the secret in its environment", |_| Ok(look(ROOT)?.out.trim() != "0"))?;
    if look(BOB)?.out.trim() != "0" {
        broken.push("/proc shows him her environment".to_owned());
    }
    let write = |uid| scene.run(uid, CTL, "scontrol", &["write", "batch_script", &scene.job, "-"]);
    if !write(ALICE)?.ok("scontrol write batch_script")?.out.contains(SECRETS[0]) {
        return Err("she does not get her own script".into());
    }
    let written = write(BOB)?;
    if written.out.contains(SECRETS[0]) {
        broken.push("scontrol gives him her script".to_owned());
    }
    Ok(Seen::of(&broken, format!("nothing found; scontrol: {}", written.last_line())))
}

fn control(scene: &mut Scene) -> Fallible<Seen> {
    let (job, array) = (scene.job.clone(), scene.array.clone());
    let before = scene.hers()?;
    let lines = [
        format!("scancel {job}"),
        format!("scancel {array}"),
        format!("scancel -s KILL {job}"),
        format!("scancel -b -s STOP {job}"),
        format!("scancel -f -s TERM {job}"),
        "scancel -u games".to_owned(),
        "scancel -w n1".to_owned(),
        format!("scontrol hold {array}"),
        format!("scontrol release {array}"),
        format!("scontrol requeue {job}"),
        format!("scontrol requeuehold {job}"),
        format!("scontrol suspend {job}"),
        format!("scontrol top {array}"),
        format!("scontrol update JobId={job} TimeLimit=1"),
        format!("scontrol update JobId={array} Partition=main Comment=his"),
    ];
    for line in &lines {
        let mut words = line.split(' ');
        let program = words.next().ok_or("an empty line")?;
        let words: Vec<&str> = words.collect();
        for host in [CTL, N1] {
            scene.run(BOB, host, program, &words)?;
        }
    }
    let mut broken = Vec::new();
    if scene.hers()? != before {
        broken.push(format!("her jobs were {before}, and are {}", scene.hers()?));
    }
    if scene.state(&job)? != "RUNNING" {
        broken.push("her job does not run any more".to_owned());
    }
    let update = format!("JobId={array}");
    scene.run(ALICE, CTL, "scontrol", &["update", &update, "Comment=hers"])?.ok("scontrol update")?;
    scene.run(ALICE, CTL, "scancel", &["-s", "CONT", &job])?.ok("scancel -s")?;
    if scene.hers()? == before {
        return Err("her own update changes nothing".into());
    }
    Ok(Seen::of(&broken, format!("{} commands from two hosts changed nothing", lines.len())))
}

fn attach(scene: &mut Scene) -> Fallible<Seen> {
    let job = scene.job.clone();
    let mut broken = Vec::new();
    let marker = scene.folder("bob").join("was-here");
    let touch = marker.to_string_lossy().into_owned();
    for host in [CTL, N1] {
        scene.run(BOB, host, "srun", &["--jobid", &job, "--overlap", "touch", &touch])?;
        let batch = format!("{job}.batch");
        let attached = scene.run(BOB, host, "sattach", &[&batch])?;
        if attached.code == 0 {
            broken.push(format!("sattach from host {host} works"));
        }
    }
    let mut inside = scene.command(BOB, N1, "srun", &["--overlap", "touch", &touch]);
    inside.env("SLURM_JOB_ID", &job).env("SLURM_JOBID", &job);
    said(inside)?;
    if marker.exists() {
        broken.push("a step of his ran".to_owned());
    }
    let place = scene.ask(ALICE, CTL, &[CommandRequest::LocateStepManager { job: id(&job)? }])?;
    let Some(Ok(CommandReply::StepManager(place))) = place.into_iter().next() else {
        return Err("she is not told where her step manager is".into());
    };
    let caller = Caller { uid: ALICE, gid: ALICE, pid: 1, host: "n1".to_owned() };
    let all = CommandToStepMgr::SignalSteps { steps: vec![WhichSteps::All], pending_only: false, signal: None };
    let talk = |uid: u32, messages: &[CommandToStepMgr]| -> Fallible<Vec<Result<StepMgrToCommand, String>>> {
        scene.attacker(uid, N1, &[ASK_STEP_MANAGER, &place.door], &serde_json::to_vec(messages)?)
    };
    for messages in
        [vec![CommandToStepMgr::OnBehalfOf(caller), CommandToStepMgr::List], vec![CommandToStepMgr::List], vec![all]]
    {
        for answer in talk(BOB, &messages)? {
            if !matches!(answer, Err(_) | Ok(StepMgrToCommand::Refused(_))) {
                broken.push(format!("her step manager answers him: {answer:?}"));
            }
        }
    }
    if !matches!(talk(ALICE, &[CommandToStepMgr::List])?.as_slice(), [Ok(StepMgrToCommand::Steps(_))]) {
        return Err("her step manager does not answer her".into());
    }
    let own = scene.run(ALICE, CTL, "srun", &["--jobid", &job, "--overlap", "id", "-u"])?.ok("srun --jobid")?;
    // A line of each task.
    if own.out.is_empty() || own.out.lines().any(|line| line != ALICE.to_string()) {
        return Err(format!("her own step did not run as her: {own:?}").into());
    }
    Ok(Seen::of(&broken, "no step, no output, no answer"))
}

fn whole_range(scene: &mut Scene) -> Fallible<Seen> {
    let before = scene.hers()?;
    let range = |job: &str| -> Fallible<Vec<JobSelector>> {
        Ok(vec![JobSelector { tasks: Some(vec![(0, u32::MAX, 1)]), ..selector(job)? }])
    };
    let change = |comment: &str| Box::new(JobChange { comment: Some(comment.to_owned()), ..JobChange::default() });
    let mut requests = Vec::new();
    for job in [&scene.array, &scene.job] {
        requests.push(CommandRequest::UpdateJob { jobs: range(job)?, change: change("his") });
        for action in [JobAction::Hold, JobAction::Release, JobAction::Requeue, JobAction::Top] {
            requests.push(CommandRequest::ControlJob { jobs: range(job)?, action });
        }
        requests.push(CommandRequest::Cancel(CancelRequest { jobs: range(job)?, ..CancelRequest::default() }));
    }
    let filter = JobFilter { uid: Some(ALICE), ..JobFilter::default() };
    requests.push(CommandRequest::Cancel(CancelRequest { filter, ..CancelRequest::default() }));
    let replies = scene.ask(BOB, CTL, &requests)?;
    let mut broken: Vec<String> =
        replies.iter().filter(|reply| !is_refused(reply)).map(|reply| format!("{reply:?}")).collect();
    if scene.hers()? != before {
        broken.push("her jobs are not what they were".to_owned());
    }
    let own = CommandRequest::UpdateJob { jobs: range(&scene.array)?, change: change("range") };
    let own = scene.ask(ALICE, CTL, &[own])?;
    if own.iter().any(is_refused) || !scene.hers()?.contains("Comment=range") {
        return Err(format!("the same of her own changes nothing: {own:?}").into());
    }
    Ok(Seen::of(&broken, format!("{} requests refused", replies.len())))
}

/// Memory that a daemon may have grown by, and is still none that grew with a request: buffers of a frame, and what the
/// allocator keeps. In MiB.
const GROWTH: u64 = 192;

pub(super) fn resident_mib(scene: &Scene, host: usize) -> Fallible<u64> {
    Ok(processes::memory(scene.daemon(host)?)?.resident >> 20)
}

/// The daemon is the same process, has not grown much, and serves.
pub(super) fn unshaken(scene: &mut Scene, pid: u32, before: u64, broken: &mut Vec<String>) -> Fallible<()> {
    if scene.supervised(CTL).has_ended() {
        broken.push("the controller ended".to_owned());
        let host = &scene.site.hosts[CTL];
        scene.site.daemons[CTL].start(host)?;
        return Ok(());
    }
    let after = resident_mib(scene, CTL)?;
    if scene.daemon(CTL)? != pid || after > before + GROWTH {
        broken.push(format!("the controller grew from {before} MiB to {after} MiB"));
    }
    scene.works(ALICE)
}

fn many_selectors(scene: &mut Scene) -> Fallible<Seen> {
    let job = scene.submit(BOB, CTL, &["-H", "--array=0-9", "--wrap", "true"])?;
    let (pid, memory) = (scene.daemon(CTL)?, resident_mib(scene, CTL)?);
    let many = vec![JobSelector { tasks: Some(vec![(0, u32::MAX, 1)]), ..selector(&job)? }; 100_000];
    let change = Box::new(JobChange { comment: Some("his".to_owned()), ..JobChange::default() });
    let wide = JobSelector { tasks: Some(vec![(0, u32::MAX, 1); 100_000]), ..selector(&job)? };
    let requests = [
        CommandRequest::UpdateJob { jobs: many.clone(), change: change.clone() },
        CommandRequest::UpdateJob { jobs: vec![wide.clone()], change },
        CommandRequest::ControlJob { jobs: many.clone(), action: JobAction::Hold },
        CommandRequest::list_jobs(many),
        CommandRequest::list_jobs(vec![wide]),
        CommandRequest::NameNodes(vec!["n[1-4294967295]".to_owned(); 1_000]),
        CommandRequest::NameNodes(vec!["n[1-99999][1-99999]".to_owned()]),
    ];
    let replies = scene.ask(BOB, CTL, &requests)?;
    let mut broken = Vec::new();
    unshaken(scene, pid, memory, &mut broken)?;
    let own = CommandRequest::ControlJob { jobs: vec![selector(&job)?], action: JobAction::Release };
    if scene.ask(BOB, CTL, &[own])?.iter().any(is_refused) {
        return Err("a single selector does not work".into());
    }
    scene.run(BOB, CTL, "scancel", &[&job])?.ok("scancel")?;
    let refused = replies.iter().filter(|reply| is_refused(reply)).count();
    Ok(Seen::of(&broken, format!("{refused} of {} refused, the controller serves on", replies.len())))
}

fn drain_by_name(scene: &mut Scene) -> Fallible<Seen> {
    let script = "#!/bin/sh\nexit 0\n";
    let long = "x".repeat(200 << 10);
    let with = |change: &dyn Fn(&mut JobSpec)| -> Fallible<CommandRequest> {
        let mut spec = spec("his", script)?;
        change(&mut spec);
        Ok(submission(spec))
    };
    let environment = |entry: &str| {
        let entry = ByteBuf::from(entry);
        move |spec: &mut JobSpec| spec.environment = Arc::new(vec![entry.clone(), ByteBuf::from("PATH=/usr/bin:/bin")])
    };
    let requests = [
        with(&|spec| spec.name.clone_from(&long))?,
        with(&|spec| spec.name = "a\0b".to_owned())?,
        with(&|spec| spec.name = "a\nSLURM_JOB_UID=0".to_owned())?,
        with(&|spec| spec.comment = Some(long.clone()))?,
        with(&|spec| spec.account = Some(long.clone()))?,
        with(&|spec| spec.account = Some("a\0b".to_owned()))?,
        with(&|spec| spec.work_dir = "/tmp\0/etc".to_owned())?,
        with(&|spec| spec.work_dir = format!("/{long}"))?,
        with(&|spec| spec.stdout = Some("/dev/null\0x".to_owned()))?,
        with(&|spec| spec.stdin = Some(long.clone()))?,
        with(&|spec| spec.argv = vec![ByteBuf::from("a\0b")])?,
        with(&|spec| spec.argv = vec![ByteBuf::from(long.as_str())])?,
        with(&|spec| spec.submit_line.clone_from(&long))?,
        with(&|spec| spec.submit_host.clone_from(&long))?,
        with(&environment("A\0B=1"))?,
        with(&environment(&format!("LONG={long}")))?,
        with(&environment("no equals sign"))?,
    ];
    let replies = scene.ask(BOB, CTL, &requests)?;
    let accepted: Vec<String> = replies
        .iter()
        .filter_map(|reply| match reply {
            Ok(CommandReply::Submitted { job, .. }) => Some(job.to_string()),
            _ => None,
        })
        .collect();
    let mut ends = Vec::new();
    for job in &accepted {
        scene.until(&format!("job {job} is over"), |scene| {
            Ok(!["PENDING", "RUNNING", "COMPLETING", "CONFIGURING"].contains(&scene.state(job)?.as_str()))
        })?;
        ends.push(scene.state(job)?);
    }
    let nodes = scene.nodes()?;
    let mut broken = Vec::new();
    if nodes.contains("drain") || nodes.contains("down") {
        broken.push(format!("{nodes} after {ends:?}"));
        scene.run(ROOT, CTL, "scontrol", &["update", "nodename=n1", "state=resume"])?;
    }
    let sane = scene.submit(BOB, CTL, &["-w", "n1", "--wrap", "true"])?;
    scene.until("his honest job is done", |scene| Ok(scene.state(&sane)? == "COMPLETED"))?;
    let refused = replies.len() - accepted.len();
    Ok(Seen::of(&broken, format!("{refused} refused, {} ran and ended; {nodes}", accepted.len())))
}

fn terminal(scene: &mut Scene) -> Fallible<Seen> {
    let nasty = "\u{1b}]0;owned\u{7}\u{1b}[2J\nforged-line error: root\r\u{9b}31mend";
    let with = |change: &dyn Fn(&mut JobSpec)| -> Fallible<CommandRequest> {
        let mut spec = spec("his", "#!/bin/sh\nexit 0\n")?;
        spec.hold = true;
        change(&mut spec);
        Ok(submission(spec))
    };
    let nasty_text = || nasty.to_owned();
    let requests = [
        with(&|spec| spec.name = nasty_text())?,
        with(&|spec| spec.comment = Some(nasty_text()))?,
        with(&|spec| spec.work_dir = format!("/{nasty}"))?,
        with(&|spec| spec.stdout = Some(format!("/tmp/{nasty}")))?,
        with(&|spec| spec.submit_line = nasty_text())?,
        with(&|spec| spec.submit_host = nasty_text())?,
        with(&|spec| spec.command = Some(nasty_text()))?,
        with(&|spec| spec.account = Some(nasty_text()))?,
        with(&|spec| spec.wckey = Some(nasty_text()))?,
        with(&|spec| spec.partitions = vec![nasty_text()])?,
        with(&|spec| spec.licenses = Some(nasty_text()))?,
        with(&|spec| spec.constraint = Some(nasty_text()))?,
        CommandRequest::DeleteReservation { name: nasty_text() },
        CommandRequest::UpdatePartition { partition: nasty_text(), fields: vec![(nasty_text(), nasty_text())] },
        CommandRequest::CreatePartition { partition: nasty_text(), fields: vec![(nasty_text(), nasty_text())] },
        CommandRequest::DeletePartition { partition: nasty_text() },
        CommandRequest::UpdateNode { nodes: vec![nasty_text()], change: NodeChange::default() },
        CommandRequest::Trace { prefixes: vec![nasty_text()], follow: false },
    ];
    let replies = scene.ask(BOB, CTL, &requests)?;
    let mut shown = String::new();
    for args in [
        &["-h", "-u", "nobody", "-o", "%i %j %k %a %Z %o %w"][..],
        &["-h", "-u", "nobody", "-O", "name:80,comment:80,workdir:80,stdout:80,command:80,account:80"],
        &["-l"],
    ] {
        let said = scene.run(ROOT, CTL, "squeue", args)?.ok("squeue")?;
        shown += &said.out;
    }
    shown += &scene.shown(&["job"])?;
    let plain = scene.run(ROOT, CTL, "scontrol", &["show", "job"])?.ok("scontrol show job")?;
    shown += &plain.out;
    let mut broken = Vec::new();
    let logs = format!("{}{}", scene.log(CTL), scene.log(N1));
    for (what, text) in [("the administrator's terminal", &shown), ("a log", &logs)] {
        let control = |c: char| c.is_control() && c != '\n' && c != '\t';
        // The logs of these daemons are coloured by nobody: no escape is theirs.
        if text.contains(control) {
            let line = text.lines().find(|line| line.contains(control)).unwrap_or_default();
            broken.push(format!("{what} gets {:?}", line.escape_debug().to_string()));
        }
        if text.lines().any(|line| line.starts_with("forged-line")) {
            broken.push(format!("{what} gets a forged line"));
        }
    }
    let accepted = replies.iter().filter(|reply| matches!(reply, Ok(CommandReply::Submitted { .. }))).count();
    if accepted > 0 && !shown.contains("owned") {
        return Err("what he wrote is not shown at all".into());
    }
    scene.run(BOB, CTL, "scancel", &["-u", "nobody"])?.ok("scancel")?;
    Ok(Seen::of(&broken, format!("{accepted} of {} taken, shown without control characters", replies.len())))
}

fn oversize(scene: &mut Scene) -> Fallible<Seen> {
    let (pid, memory) = (scene.daemon(CTL)?, resident_mib(scene, CTL)?);
    let script = format!("#!/bin/sh\n# {}\n", "x".repeat(6 << 20));
    let replies = scene.ask(BOB, CTL, &[submission(spec("large", &script)?)])?;
    let mut broken = Vec::new();
    if !replies.iter().all(is_refused) {
        broken.push(format!("a script of 6 MiB is taken: {replies:?}"));
    }
    let door = scene.door(CTL)?.to_string_lossy().into_owned();
    let sent: usize = scene.attacker(BOB, CTL, &[HUGE_FRAME, &door], b"")?;
    unshaken(scene, pid, memory, &mut broken)?;
    let small = scene.ask(BOB, CTL, &[submission(spec("small", "#!/bin/sh\nexit 0\n")?)])?;
    if small.iter().any(is_refused) {
        return Err(format!("a small script is not taken: {small:?}").into());
    }
    Ok(Seen::of(&broken, format!("refused; {} KiB of the frame were taken, and no memory", sent >> 10)))
}

fn half_greetings(scene: &mut Scene) -> Fallible<Seen> {
    let door = |host: usize| -> Fallible<String> { Ok(scene.door(host)?.to_string_lossy().into_owned()) };
    let mut crowds = Vec::new();
    for host in [CTL, N1] {
        crowds.push(scene.start_attacker(BOB, host, &[CROWD, &door(host)?, "400"])?);
    }
    let mut held = Vec::new();
    for crowd in &mut crowds {
        held.push(first_line(crowd)?.parse::<u64>()?);
    }
    let mut broken = Vec::new();
    for host in [CTL, N1] {
        let asked = scene.run(ALICE, host, "squeue", &["-h"])?;
        let submitted = scene.run(ALICE, host, "sbatch", &["-H", "-o", "/dev/null", "--wrap", "true"])?;
        if asked.code != 0 || submitted.code != 0 {
            broken.push(format!("she is not served: {} {}", asked.last_line(), submitted.last_line()));
        }
    }
    for crowd in crowds {
        rest(crowd)?;
    }
    scene.run(BOB, CTL, "squeue", &["-h"])?.ok("his own squeue afterwards")?;
    Ok(Seen::of(&broken, format!("{held:?} connections at two doors, and she is served")))
}

fn squat(scene: &mut Scene) -> Fallible<Seen> {
    let config = &scene.config;
    let places: Vec<String> = config
        .run_dirs(ALICE, Some(1), None)
        .into_iter()
        .chain([Path::new(&format!("/tmp/garrick-{BOB}")).join(config.cluster_id())])
        .flat_map(|folder| [folder.join("ctl.sock"), folder.join("n1.sock")])
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> = std::iter::once(SQUAT).chain(places.iter().map(String::as_str)).collect();
    let caught = |asks: &[u32]| -> Fallible<(u64, Caught)> {
        let mut squatter = scene.start_attacker(BOB, STRANGER, &words)?;
        let planted: u64 = first_line(&mut squatter)?.parse()?;
        for uid in asks {
            scene.run(*uid, STRANGER, "sbatch", &["--export=ALL,TOLD=secret", "--wrap", "true"])?;
        }
        let caught = serde_json::from_str(&rest(squatter)?)?;
        for place in &places {
            // Those that were not his are not his to remove.
            if fs::symlink_metadata(place).is_ok_and(|found| found.uid() == BOB) {
                fs::remove_file(place)?;
            }
        }
        Ok((planted, caught))
    };
    let (planted, hers) = caught(&[ALICE, ROOT])?;
    let (_, own) = caught(&[BOB])?;
    for place in &places {
        // With its folder, where that is empty and his.
        if let Some(folder) = Path::new(place).parent()
            && fs::metadata(folder).is_ok_and(|found| found.uid() == BOB)
        {
            let _ = fs::remove_dir(folder);
            let _ = folder.parent().map(fs::remove_dir);
        }
    }
    if planted < 4 || own.bytes == 0 {
        return Err(format!("{planted} sockets were planted, and his own command said {} bytes", own.bytes).into());
    }
    if hers.bytes > 0 {
        return Ok(Seen::Broken(format!("her command said {} bytes to his socket", hers.bytes)));
    }
    Ok(Seen::Held(format!("{} connections of her and root, nothing said over them", hers.connections)))
}

fn own_cluster(scene: &mut Scene) -> Fallible<Seen> {
    let (his, hers) = (scene.folder("bob").join("prepared"), scene.folder("alice").join("own"));
    fs::create_dir(&his)?;
    fs::set_permissions(&his, fs::Permissions::from_mode(0o777))?;
    chown(&his, Some(BOB), Some(BOB))?;
    let link = scene.site.home.join("bob").join("link");
    symlink(&his, &link)?;
    let as_user = |uid: u32, home: &Path, program: &str, args: &[&str]| {
        let mut command = scene.command(uid, STRANGER, program, args);
        command.env_remove("SLURM_CONF").env("GARRICK_HOME", home);
        said(command)
    };
    let up = ["up", "--nodes", "1", "--cpus", "2", "--memory", "500"];
    let mut broken = Vec::new();
    for home in [&his, &link] {
        let refused = as_user(ALICE, home, "garrick", &up)?;
        if refused.code == 0 {
            broken.push(format!("her cluster started in {}", home.display()));
            as_user(ALICE, home, "garrick", &["down"])?;
        }
    }
    as_user(ALICE, &hers, "garrick", &up)?.ok("garrick up in a folder of her own")?;
    let ran = as_user(ALICE, &hers, "srun", &["id", "-u"])?;
    let marker = scene.folder("bob").join("ran-as-her");
    let touch = marker.to_string_lossy().into_owned();
    for uid in [BOB, ROOT] {
        for (program, args) in [
            ("srun", &["touch", touch.as_str()][..]),
            ("sbatch", &["--wait", "-o", "/dev/null", "--wrap", "true"]),
            ("salloc", &["-n1", "true"]),
        ] {
            if as_user(uid, &hers, program, args)?.code == 0 {
                broken.push(format!("{program} of uid {uid} is served"));
            }
        }
    }
    let down = as_user(ALICE, &hers, "garrick", &["down"])?;
    if marker.exists() {
        broken.push("a command of his ran".to_owned());
    }
    if ran.ok("srun on her own cluster")?.out.trim() != ALICE.to_string() {
        return Err("her own cluster does not run her job as her".into());
    }
    down.ok("garrick down")?;
    Ok(Seen::of(&broken, "refused; her own folder and her own job work"))
}

fn symlinks(scene: &mut Scene) -> Fallible<Seen> {
    let target = scene.site.home.join("of-root");
    let folder = scene.site.home.join("folder-of-root");
    fs::create_dir(&folder)?;
    for file in [target.clone(), folder.join("inside")] {
        fs::write(&file, "root's")?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    }
    let state = scene.sees(CTL, &scene.site.home.join("state"));
    let slurm_uid = fs::metadata(&state)?.uid();
    symlink(&target, state.join("planted"))?;
    symlink(&target, state.join("snapshot.999999"))?;
    symlink(&folder, state.join("planted-folder"))?;
    for link in ["planted", "snapshot.999999", "planted-folder"] {
        std::os::unix::fs::lchown(state.join(link), Some(slurm_uid), Some(slurm_uid))?;
    }
    // What an earlier controller of root's left.
    let left = state.join("left-by-root");
    fs::write(&left, "")?;
    scene.supervised(CTL).kill();
    scene.until("the controller has ended", |_| Ok(true))?;
    while !scene.supervised(CTL).has_ended() {
        std::thread::yield_now();
    }
    // Not a snapshot: the controller would refuse to start with it, rightly.
    fs::remove_file(state.join("snapshot.999999"))?;
    let host = &scene.site.hosts[CTL];
    scene.site.daemons[CTL].start(host)?;
    scene.until("the nodes are back", |scene| {
        let nodes = scene.nodes().unwrap_or_default();
        Ok(nodes.matches('=').count() == 3 && !nodes.contains('*') && !nodes.contains("down"))
    })?;
    let mut broken = Vec::new();
    for file in [&target, &folder, &folder.join("inside")] {
        let found = fs::symlink_metadata(file)?;
        if found.uid() != 0 {
            broken.push(format!("{} belongs to uid {} now", file.display(), found.uid()));
        }
    }
    if fs::metadata(&left)?.uid() != slurm_uid {
        return Err("what root left was not given to SlurmUser".into());
    }
    scene.works(ALICE)?;
    Ok(Seen::of(&broken, "their targets are root's still; a plain file of root's was handed over"))
}

fn trace(scene: &mut Scene) -> Fallible<Seen> {
    let mut tracer = scene.start_attacker(BOB, N1, &[TRACE])?;
    let mut out = BufReader::new(tracer.stdout.take().ok_or("no standard output")?);
    let mut line = String::new();
    out.read_line(&mut line)?;
    for _ in 0..8 {
        scene.works(BOB)?;
    }
    drop(tracer.stdin.take());
    let found: Traced = serde_json::from_reader(&mut out)?;
    tracer.wait()?;
    if found.seen == 0 || !found.own_child {
        return Err(format!("nothing to trace, or nothing can be traced here: {found:?}").into());
    }
    Ok(Seen::of(&found.worked, format!("{} launchers, {} attempts, none worked", found.seen, found.attempts)))
}

fn tunnel(scene: &mut Scene) -> Fallible<Seen> {
    let listener = scene.on_network(STRANGER, || {
        let socket = std::net::UdpSocket::bind((Site::address(STRANGER), 6818)).map_err(|e| e.to_string())?;
        socket.set_nonblocking(true).map_err(|e| e.to_string())?;
        Ok(socket)
    })?;
    let address = format!("{}:6818", Site::address(STRANGER));
    let mut said = Vec::new();
    for host in [CTL, N1] {
        let door = scene.door(host)?.to_string_lossy().into_owned();
        for node in ["elsewhere", "n2", "n1", ""] {
            let answer: String = scene.attacker(BOB, host, &[TUNNEL, &door, &address, node, &scene.job], b"")?;
            said.push(answer);
        }
    }
    let mut broken = Vec::new();
    if listener.recv_from(&mut [0; 2000]).is_ok() {
        broken.push("a daemon dialled his address".to_owned());
    }
    let own = ["--jobid", &scene.job, "--overlap", "id", "-u"];
    scene.run(ALICE, 2, "srun", &own)?.ok("srun --jobid from another node, which is relayed")?;
    Ok(Seen::of(&broken, format!("nobody knocked there; {}", said.first().map_or("", String::as_str))))
}

fn inherit(scene: &mut Scene) -> Fallible<Seen> {
    let slurmd = scene.daemon(N1)?;
    // Not every container lets root do that.
    let score = format!("/proc/{slurmd}/oom_score_adj");
    let lowered = fs::write(&score, "-500").is_ok();
    // No pipe behind `ls`: the shell would hold an end of it for a moment, and `ls` may see it.
    let look = "cat /proc/self/status /proc/self/oom_score_adj; cat /proc/keys 2>/dev/null | sed 's/^/key /'; \
                env | sed 's/^/env /'; ls -l /proc/$$/fd";
    let ran = scene.run(BOB, CTL, "srun", &["-w", "n1", "-n1", "--export=NONE", "sh", "-c", look]);
    if lowered {
        fs::write(&score, "0")?;
    }
    let text = ran?.ok("srun")?.out;
    let mut broken = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let bad = match words.as_slice() {
            ["CapInh:" | "CapPrm:" | "CapEff:" | "CapAmb:", set] => !set.trim_matches('0').is_empty(),
            ["Uid:" | "Gid:", ids @ ..] => ids.iter().any(|one| *one != BOB.to_string()),
            ["Groups:", groups @ ..] => groups.contains(&"0"),
            ["key", key @ ..] => key.get(5) == Some(&"0") && key.get(7) == Some(&"keyring"),
            ["env", variable, ..] => variable.starts_with("GARRICK_LOG="),
            [.., number, "->", what] => {
                number.parse::<u32>().is_ok_and(|number| number > 2) && !what.starts_with("/proc")
            }
            [number] => number.parse::<i32>().is_ok_and(|score| score < 0),
            _ => false,
        };
        if bad {
            broken.push(line.to_owned());
        }
    }
    if !text.contains("CapEff:") || !text.contains(" -> ") || !text.contains("env ") {
        return Err(format!("the task did not say what it has: {text}").into());
    }
    let daemon = fs::read_to_string(format!("/proc/{slurmd}/environ"))?;
    let capable = fs::read_to_string(format!("/proc/{slurmd}/status"))?;
    if !daemon.contains("GARRICK_LOG=") || capable.contains("CapEff:\t0000000000000000") {
        return Err("slurmd itself has nothing to inherit".into());
    }
    let but = if lowered { "" } else { ", but for oom_score_adj: this machine lets nobody lower it" };
    Ok(Seen::of(&broken, format!("none of it; slurmd has all of it{but}")))
}

fn administer(scene: &mut Scene) -> Fallible<Seen> {
    let job = scene.submit(BOB, CTL, &["-H", "--wrap", "true"])?;
    let nodes = scene.nodes()?;
    let partition = scene.shown(&["partition"])?;
    let drain =
        NodeChange { state: Some(NodeStateChange::Drain), reason: Some("his".to_owned()), ..NodeChange::default() };
    let of_own = |change: JobChange| -> Fallible<CommandRequest> {
        Ok(CommandRequest::UpdateJob { jobs: vec![selector(&job)?], change: Box::new(change) })
    };
    let requests = [
        CommandRequest::UpdateNode { nodes: vec!["n2".to_owned()], change: drain },
        CommandRequest::UpdatePartition {
            partition: "main".to_owned(),
            fields: vec![("State".to_owned(), "DOWN".to_owned())],
        },
        CommandRequest::CreatePartition { partition: "his".to_owned(), fields: Vec::new() },
        CommandRequest::DeletePartition { partition: "main".to_owned() },
        CommandRequest::CreateNodes { names: "x1".to_owned(), line: "CPUs=1".to_owned() },
        CommandRequest::DeleteNodes { nodes: vec!["ALL".to_owned()] },
        CommandRequest::Reconfigure,
        CommandRequest::SetLogLevel(LogLevel::QUIET),
        CommandRequest::Shutdown { controller_only: false },
        CommandRequest::ListCerts,
        CommandRequest::RevokeCerts { nodes: vec!["n1".to_owned()] },
        CommandRequest::RenewCerts { nodes: Vec::new() },
        CommandRequest::CreateJoinToken { lifetime_secs: 60, node: None },
        CommandRequest::DeleteReservation { name: "none".to_owned() },
        of_own(JobChange { priority: Some(u32::MAX), ..JobChange::default() })?,
        of_own(JobChange { nice: Some(-1000), ..JobChange::default() })?,
        of_own(JobChange { site_factor: Some(1000), ..JobChange::default() })?,
        of_own(JobChange { admin_comment: Some("his".to_owned()), ..JobChange::default() })?,
        submission(JobSpec { nice: -1000, hold: true, ..spec("his", "#!/bin/sh\n")? }),
    ];
    let mut broken = Vec::new();
    for host in [CTL, N1] {
        for (request, reply) in requests.iter().zip(scene.ask(BOB, host, &requests)?) {
            if !is_refused(&reply) {
                broken.push(format!("{request:?}: {reply:?}"));
            }
        }
    }
    if scene.nodes()? != nodes || scene.shown(&["partition"])? != partition {
        broken.push("nodes or partitions are not what they were".to_owned());
    }
    let modest = of_own(JobChange { nice: Some(10), ..JobChange::default() })?;
    if scene.ask(BOB, CTL, &[modest])?.iter().any(is_refused) {
        return Err("he may not lower his own job".into());
    }
    let update = ["update", "nodename=n2", "comment=by-root"];
    scene.run(ROOT, CTL, "scontrol", &update)?.ok("scontrol update of root")?;
    if !scene.shown(&["node", "n2"])?.contains("by-root") {
        return Err("root's update changes nothing".into());
    }
    scene.run(BOB, CTL, "scancel", &[&job])?.ok("scancel")?;
    Ok(Seen::of(&broken, format!("{} requests at two doors refused", requests.len())))
}

fn pose_as_stepd(scene: &mut Scene) -> Fallible<Seen> {
    let shown = scene.ask(ALICE, CTL, &[CommandRequest::list_jobs(vec![selector(&scene.job)?])])?;
    let Some(Ok(CommandReply::Jobs { jobs, .. })) = shown.into_iter().next() else {
        return Err("her job is not listed".into());
    };
    let view = jobs.first().ok_or("her job is not listed")?;
    let hello = StepdToNode::Hello {
        job: view.id,
        sluid: view.sluid,
        pid: 1,
        door: "/tmp/his.sock".to_owned(),
        batch_host: true,
    };
    let end = StepdReport::Ended {
        state: JobState::Completed,
        reason: Reason::None,
        exit: ExitStatus::default(),
        derived: ExitStatus::default(),
        at: Timestamp::now(),
        lost: Vec::new(),
        cause: None,
    };
    let report = StepdToNode::Report { seq: 1_000_000, report: end };
    let mut broken = Vec::new();
    let door = scene.door(N1)?.to_string_lossy().into_owned();
    let messages = serde_json::to_vec(&[hello, report])?;
    let mut refused = String::new();
    for uid in [BOB, ALICE] {
        let answers: Vec<Result<NodeToStepd, String>> = scene.attacker(uid, N1, &[POSE_AS_STEPD, &door], &messages)?;
        for answer in answers {
            match answer {
                Ok(answer) => broken.push(format!("the node answers uid {uid}: {answer:?}")),
                Err(why) => refused = why,
            }
        }
    }
    if scene.state(&scene.job)? != "RUNNING" {
        broken.push("her job does not run any more".to_owned());
    }
    // The real one reports: a job that ends is seen to end.
    let job = scene.submit(ALICE, CTL, &["-w", "n1", "--wrap", "true"])?;
    scene.until("an honest end is reported", |scene| Ok(scene.state(&job)? == "COMPLETED"))?;
    Ok(Seen::of(&broken, refused))
}
