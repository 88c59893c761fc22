//! Steps that are handed over, waited for, signalled and watched, as users do it, against a step manager that the test
//! plays.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with other tests")]
use crate::fake_door::{Conversation, FakeCluster, Shown};
use garrick_frame::LinkKind;
use garrick_model::{
    batch::{BatchMembers, GivenNumbers, RetryOn, StepBatch},
    ids::{JobId, RequestId, StepId, StepKey},
    messages::{
        command::{CommandReply, CommandRequest},
        shepherd::Stream,
        step::{AttachedFile, CommandToStepMgr, StepLayout, StepMgrToCommand},
    },
    refusal::Refusal,
    spec::{StepSharing, StreamTarget},
    state::{ExitStatus, Reason, StepState},
    testing::step,
    time::TimeLimit,
    view::{StepCounts, StepView},
};
use serde_bytes::ByteBuf;
use std::{
    io::Write as _,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

const JOB: JobId = JobId(5609);
const DOOR: &str = "run/j5609-n1-x.sock";

fn shown(out: &str, err: &str, code: i32) -> Shown {
    Shown { out: out.to_owned(), err: err.to_owned(), code: Some(code) }
}

/// A job's environment without a cluster.
fn in_job(cluster: &FakeCluster, args: &[&str]) -> Command {
    let mut command = cluster.command(args);
    command
        .env_remove("SLURM_CONF")
        .env("SLURM_JOB_ID", "5609")
        .env("SLURM_NTASKS", "8")
        .env("SLURM_NNODES", "2")
        .env("GARRICK_STEPD_DOOR", cluster.home.join(DOOR));
    command
}

fn run(cluster: &FakeCluster, args: &[&str]) -> Shown {
    Shown::of(in_job(cluster, args).output().unwrap())
}

/// Requests that were accepted, as the test sees them.
type Accepted = mpsc::Receiver<(RequestId, StepBatch)>;

/// A step manager that gives numbers from 1, and declines what is named.
fn accepting(declines: &'static str) -> (FakeCluster, Accepted) {
    let (send, receive) = mpsc::channel();
    let send = Mutex::new(send);
    let next = AtomicU32::new(1);
    let cluster = FakeCluster::dead();
    cluster.serve(DOOR, move |mut door| {
        assert_eq!(door.hello.link, LinkKind::CommandToStepMgr);
        while let Some(message) = door.hear() {
            let CommandToStepMgr::Enqueue { request, batch } = message else { panic!("{message:?}") };
            assert_eq!(batch.check(4_000_000), Ok(()));
            let declined: Vec<(u32, Refusal)> = match &batch.members {
                BatchMembers::Commands(list) => (0..batch.len())
                    .filter(|i| list.argv(*i as usize)[0].as_ref() == declines.as_bytes())
                    .map(|i| (i, Refusal::StepImpossible { detail: "more CPUs than the job has".to_owned() }))
                    .collect(),
                _ => Vec::new(),
            };
            let array = matches!(batch.members, BatchMembers::Array(_));
            let count = batch.len() - declined.len() as u32;
            let first = next.fetch_add(if array { 1 } else { count }, Ordering::Relaxed);
            send.lock().unwrap().send((request, *batch)).unwrap();
            let given = (count > 0).then_some(GivenNumbers { first, count, array });
            door.say(StepMgrToCommand::Enqueued { given, declined, warnings: vec!["said to the user".to_owned()] });
        }
    });
    (cluster, receive)
}

fn argv(batch: &StepBatch, index: usize) -> Vec<String> {
    let BatchMembers::Commands(list) = &batch.members else { panic!("{batch:?}") };
    list.argv(index).into_iter().map(|arg| String::from_utf8(arg.into_vec()).unwrap()).collect()
}

#[test]
fn a_script_describes_its_step() {
    let (cluster, accepted) = accepting("");
    cluster.file(
        "step.sh",
        "#!/bin/sh\n#SBATCH -n 4 --mem=100 -t 5 -W\n#SRUN --retries=2 --retry-on=75\n#SBATCH -o script.out\necho hi\n",
    );
    let told = run(&cluster, &["srun", "--batch", "-o", "mine.out", "step.sh", "a", "b c"]);
    assert_eq!(told, shown("Submitted batch step 5609.1\n", "srun: warning: said to the user\n", 0));
    let (_, batch) = accepted.recv().unwrap();
    let spec = &batch.specs[0];
    assert_eq!((spec.name.as_str(), spec.tasks, spec.nodes), ("step.sh", Some(4), None));
    assert_eq!(spec.argv, [ByteBuf::from("a"), ByteBuf::from("b c")]);
    assert!(spec.script.as_ref().unwrap().starts_with(b"#!/bin/sh\n#SBATCH -n 4"));
    assert_eq!((spec.time_limit, spec.sharing), (Some(TimeLimit::Secs(300)), StepSharing::Exact));
    assert_eq!(spec.retry.as_ref().map(|r| (r.count, r.on.as_slice())), Some((2, &[RetryOn::Codes(75, 75)][..])));
    assert!(matches!(&spec.stdout, StreamTarget::File(path) if path.ends_with("/mine.out")));
    assert_eq!(batch.members, BatchMembers::Each);
    let plain = run(&cluster, &["srun", "-Q", "--batch", "--parsable", "step.sh"]);
    assert_eq!(plain.out, "5609.2\n");
    cluster.file("bad.sh", "#!/bin/sh\n#SRUN --nosuch\n");
    let err = "srun: unrecognized option '--nosuch'\n\
               Try \"srun --help\" for more information\n";
    assert_eq!(run(&cluster, &["srun", "--batch", "bad.sh"]), shown("", err, 255));
}

#[test]
fn an_array_is_one_request_and_one_line() {
    let (cluster, accepted) = accepting("");
    let told = run(&cluster, &["srun", "--async", "--array=0-9999%64", "--mem=0", "./sim", "x"]);
    let err = "srun: warning: step asks for all memory of its nodes: no other step runs beside it\n\
               srun: warning: said to the user\n";
    assert_eq!(told, shown("Submitted step 5609.1\n", err, 0));
    let (_, batch) = accepted.recv().unwrap();
    let BatchMembers::Array(tasks) = &batch.members else { panic!("{batch:?}") };
    assert_eq!((tasks.to_string().as_str(), batch.len(), batch.numbers()), ("0-9999%64", 10_000, 1));
    // Each is one task, whatever the job has.
    assert_eq!((batch.specs[0].tasks, batch.specs[0].nodes), (Some(1), None));
    let wrong = "srun: error: Invalid --array: array \"9-1\": the range \"9-1\" runs backwards\n";
    assert_eq!(run(&cluster, &["srun", "--async", "-a", "9-1", "true"]), shown("", wrong, 255));
    let alone = "srun: error: --array is for steps that are handed over: it needs --async or --batch\n";
    assert_eq!(run(&cluster, &["srun", "-a", "0-9", "true"]), shown("", alone, 255));
}

#[test]
fn a_step_of_its_own_shape_takes_the_jobs_layout_as_any_other() {
    let (cluster, accepted) = accepting("");
    assert_eq!(run(&cluster, &["srun", "-Q", "--async", "true"]).out, "Submitted step 5609.1\n");
    let (_, batch) = accepted.recv().unwrap();
    assert_eq!((batch.specs[0].tasks, batch.specs[0].nodes.map(|n| n.min)), (Some(8), Some(2)));
    // Nobody asked for both nodes, so nothing is said when one is enough.
    let said = "srun: warning: said to the user\n";
    assert_eq!(run(&cluster, &["srun", "--async", "-n1", "true"]), shown("Submitted step 5609.2\n", said, 0));
    let (_, batch) = accepted.recv().unwrap();
    assert_eq!((batch.specs[0].tasks, batch.specs[0].nodes.map(|n| n.min)), (Some(1), Some(1)));
    let both = format!("srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1\n{said}");
    assert_eq!(run(&cluster, &["srun", "--async", "-n1", "-N2", "true"]), shown("Submitted step 5609.3\n", &both, 0));
}

#[test]
fn a_list_is_read_line_by_line() {
    let (cluster, accepted) = accepting("./greedy");
    let list = "# a list\n\n./a 'one two'\n-n2 -o out.%J -- ./b x\nbad 'quote\necho $HOME | wc -c\n./greedy\n--pty sh\n./a 3\n";
    cluster.file("cmds.txt", list);
    let told = run(&cluster, &["srun", "--async", "--from-file", "cmds.txt", "-c2", "--dependency=afterok:7"]);
    let err = "srun: error: cmds.txt:5: quote ' is never closed\n\
               srun: error: cmds.txt:8: --pty cannot be set for one line of a list\n\
               srun: warning: said to the user\n\
               srun: error: cmds.txt:7: more CPUs than the job has: Requested node configuration is not available\n";
    assert_eq!(told, shown("Submitted 4 steps 5609.[1-4]\n", err, 1));
    let (_, batch) = accepted.recv().unwrap();
    assert_eq!(argv(&batch, 0), ["./a", "one two"]);
    assert_eq!(argv(&batch, 1), ["./b", "x"]);
    assert_eq!(argv(&batch, 2), ["/bin/sh", "-c", "echo $HOME | wc -c"]);
    assert_eq!((batch.len(), batch.specs.len()), (5, 2));
    let [first, second] = batch.specs.as_slice() else { panic!("two") };
    assert_eq!((first.tasks, first.cpus_per_task, first.name.as_str()), (Some(1), Some(2), "cmds.txt"));
    assert_eq!((second.tasks, second.cpus_per_task, second.name.as_str()), (Some(2), Some(2), "b"));
    assert!(first.dependency.is_some() && second.dependency.is_some());
    assert!(!first.environment.is_empty() && second.environment.is_empty());
    assert!(matches!(&second.stdout, StreamTarget::File(path) if path.ends_with("/out.%J")));
}

/// `srun` that reads a list from a pipe, and the pipe.
fn list_from_a_pipe(cluster: &FakeCluster) -> (Child, ChildStdin) {
    let mut child = in_job(cluster, &["srun", "--async", "--parsable", "--from-file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

#[test]
fn a_list_from_a_pipe_goes_in_pieces() {
    let (cluster, accepted) = accepting("");
    let (child, mut stdin) = list_from_a_pipe(&cluster);
    // What was written so far goes before the pipe is closed: the next line waits for it.
    stdin.write_all(b"./a 0\n./a 1\n./unfinished").unwrap();
    let (_, first) = accepted.recv().unwrap();
    assert_eq!((first.len(), argv(&first, 1)), (2, vec!["./a".to_owned(), "1".to_owned()]));
    stdin.write_all(b" line\n").unwrap();
    for i in 2..25_000 {
        writeln!(stdin, "./a {i}").unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "5609.[1-25001]\n");
    let rest: Vec<StepBatch> = accepted.try_iter().map(|(_, batch)| batch).collect();
    assert!(rest.iter().all(|batch| batch.len() <= 10_000));
    assert_eq!(rest.iter().map(StepBatch::len).sum::<u32>(), 24_999);
    assert_eq!(argv(&rest[0], 0), ["./unfinished", "line"]);
}

#[test]
fn a_list_that_is_never_quiet_goes_in_pieces_too() {
    let (cluster, accepted) = accepting("");
    let (child, mut stdin) = list_from_a_pipe(&cluster);
    writeln!(stdin, "./a 0").unwrap();
    // Comments fill no request, so it goes because its line has waited.
    let first = loop {
        stdin.write_all(b"# more\n").unwrap();
        match accepted.try_recv() {
            Ok((_, batch)) => break batch,
            Err(mpsc::TryRecvError::Empty) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((first.len(), argv(&first, 0)), (1, vec!["./a".to_owned(), "0".to_owned()]));
    drop(stdin);
    assert_eq!(String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout), "5609.1\n");
}

#[test]
fn warnings_about_a_list_name_the_line_that_they_are_about() {
    let (cluster, accepted) = accepting("");
    let all = "step asks for all memory of its nodes: no other step runs beside it";
    let said = "srun: warning: said to the user\n";
    cluster.file("cmds", "./a\n--mem=0 -- ./b\n-n2 --mem=0 -- ./c\n-n1 -N2 -- ./d\n");
    let err = format!(
        "srun: warning: cmds:2: {all}\n\
         srun: warning: cmds:4: can't run 1 processes on 2 nodes, setting nnodes to 1\n{said}"
    );
    let told = run(&cluster, &["srun", "--async", "--from-file=cmds"]);
    assert_eq!(told, shown("Submitted 4 steps 5609.[1-4]\n", &err, 0));
    // What all lines ask for is no line's own.
    cluster.file("plain", "./a\n-n2 -- ./b\n");
    let told = run(&cluster, &["srun", "--async", "--from-file=plain", "--mem=0"]);
    assert_eq!(told, shown("Submitted 2 steps 5609.[5-6]\n", &format!("srun: warning: {all}\n{said}"), 0));
    assert_eq!(accepted.try_iter().count(), 2);
}

#[test]
fn a_file_and_an_output_pack_exclude_each_other() {
    let (cluster, accepted) = accepting("");
    let refused = |option: &str| {
        let name = option.split_once('=').unwrap().0;
        format!(
            "{option} cannot be used with --output-pack=p: what goes to a file is not in the pack; leave one of them out \
             ({name}=all or an empty --output-pack= undoes one that is set elsewhere)\n"
        )
    };
    let on_the_command_line = format!("srun: error: {}", refused("--output=x.out"));
    let told = run(&cluster, &["srun", "--async", "--output-pack=p", "-o", "x.out", "true"]);
    assert_eq!(told, shown("", &on_the_command_line, 255));
    cluster.file("one", "./a\n");
    let told = run(&cluster, &["srun", "--async", "--output-pack=p", "-o", "x.out", "--from-file=one"]);
    assert_eq!(told, shown("", &on_the_command_line, 255));
    assert!(accepted.try_recv().is_err());
    cluster.file("cmds", "./a\n-e x.err -- ./b\n--output-pack= -o x.out -- ./c\n");
    let told = run(&cluster, &["srun", "--async", "--output-pack=p", "--from-file=cmds"]);
    let refused = refused("--error=x.err");
    let err = format!("srun: error: cmds:2: {refused}srun: warning: said to the user\n");
    assert_eq!(told, shown("Submitted 2 steps 5609.[1-2]\n", &err, 1));
    let (_, batch) = accepted.recv().unwrap();
    assert_eq!((&batch.specs[0].stdout, &batch.specs[0].stderr), (&StreamTarget::Pack, &StreamTarget::Pack));
    assert!(matches!(&batch.specs[1].stdout, StreamTarget::File(path) if path.ends_with("/x.out")));
}

#[test]
fn lists_that_cannot_be_taken_say_why() {
    let (cluster, _accepted) = accepting("");
    let missing = "srun: error: Unable to open nosuch: No such file or directory\n";
    assert_eq!(run(&cluster, &["srun", "--async", "--from-file=nosuch"]), shown("", missing, 1));
    cluster.file("empty", "# nothing\n");
    assert_eq!(run(&cluster, &["srun", "--async", "--from-file=empty"]), shown("Submitted 0 steps\n", "", 0));
    cluster.file("one", "./a\n");
    let other = "srun: error: dependency \"afterok:7.1\": step 7.1 belongs to another job; steps can wait for steps of \
                 their own job only\n";
    assert_eq!(run(&cluster, &["srun", "--async", "--from-file=one", "-d", "afterok:7.1"]), shown("", other, 255));
    let outside = Shown::of(cluster.command(&["srun", "--async", "--from-file=one"]).output().unwrap());
    assert_eq!(outside.code, Some(1));
    assert!(outside.err.contains("they need a job"), "{}", outside.err);
}

#[test]
fn a_busy_step_manager_is_asked_again_with_the_same_identity() {
    let (send, receive) = mpsc::channel();
    let send = Mutex::new(send);
    let cluster = FakeCluster::dead();
    let asked = AtomicU32::new(0);
    cluster.serve(DOOR, move |mut door| {
        while let Some(CommandToStepMgr::Enqueue { request, batch }) = door.hear() {
            send.lock().unwrap().send(request).unwrap();
            match asked.fetch_add(1, Ordering::Relaxed) {
                // Busy leaves the connection open; the third time it breaks without an answer.
                0 | 1 => door.say(StepMgrToCommand::Refused(Refusal::RetryAfter { after: Duration::from_millis(1) })),
                2 => return,
                _ => {
                    let given = Some(GivenNumbers { first: 4, count: batch.len(), array: false });
                    door.say(StepMgrToCommand::Enqueued { given, declined: vec![], warnings: vec![] });
                }
            }
        }
    });
    cluster.file("cmds", "./a\n./b\n");
    let told = run(&cluster, &["srun", "--async", "--from-file=cmds"]);
    let err = "srun: Resource temporarily unavailable, retry after 1 ms; retrying\n";
    assert_eq!(told, shown("Submitted 2 steps 5609.[4-5]\n", err, 0));
    let requests: Vec<RequestId> = receive.try_iter().collect();
    assert!(requests.len() == 4 && requests.iter().all(|r| *r == requests[0]), "{requests:?}");
}

#[test]
fn who_interrupts_is_told_what_was_accepted() {
    let (cluster, accepted) = accepting("");
    let mut child = in_job(&cluster, &["srun", "-Q", "--async", "--from-file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"./a 0\n./a 1\n").unwrap();
    accepted.recv().unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let told = Shown::of(child.wait_with_output().unwrap());
    drop(stdin);
    let err = "srun: warning: said to the user\n\
               srun: error: stdin:3: interrupted by signal 2; lines from here on were not handed over\n";
    assert_eq!(told, shown("Submitted 2 steps 5609.[1-2]\n", err, 130));
}

#[test]
fn interrupts_reach_commands_wherever_the_tests_were_started() {
    garrick_testing::interrupts::passes_in_the_background("minibatch::who_interrupts_is_told_what_was_accepted");
}

#[test]
fn a_job_that_ends_in_the_middle_ends_the_list() {
    let cluster = FakeCluster::dead();
    cluster.serve(DOOR, |mut door| {
        while let Some(CommandToStepMgr::Enqueue { batch, .. }) = door.hear() {
            if argv(&batch, 0) == ["./a"] {
                let given = Some(GivenNumbers { first: 1, count: batch.len(), array: false });
                door.say(StepMgrToCommand::Enqueued { given, declined: vec![], warnings: vec![] });
            } else {
                door.say(StepMgrToCommand::Refused(Refusal::AlreadyDone));
            }
        }
    });
    let mut list = "./a\n".repeat(10_000);
    list.push_str("./b\n./c\n");
    cluster.file("cmds", &list);
    let err = "srun: error: cmds:10001: Job/step already completing or completed; lines from here on were not handed \
               over\n";
    let told = run(&cluster, &["srun", "--async", "--from-file=cmds"]);
    assert_eq!(told, shown("Submitted 10000 steps 5609.[1-10000]\n", err, 1));
}

#[test]
fn new_options_stand_in_the_help() {
    let cluster = FakeCluster::dead();
    let help = cluster.run(&["srun", "--help"]).out;
    for option in
        ["  -a, --array=indexes", "--from-file=file|-", "--retry-on=list", "--output-pack=file", "--step-priority=n"]
    {
        assert!(help.contains(option), "{option}\n{help}");
    }
    assert!(cluster.run(&["swait", "--help"]).out.contains("  -s, --step=list"));
    assert!(cluster.run(&["sattach", "-h"]).out.starts_with("Usage: sattach [OPTIONS] JOB.STEP\n"));
}

/// Answers one `Wait` so, and hands it to the test.
fn waiting(
    answer: impl Fn(&mut Conversation) + Send + Sync + 'static,
) -> (FakeCluster, mpsc::Receiver<CommandToStepMgr>) {
    let (send, receive) = mpsc::channel();
    let send = Mutex::new(send);
    let cluster = FakeCluster::dead();
    cluster.serve(DOOR, move |mut door| {
        if let Some(wait @ CommandToStepMgr::Wait { .. }) = door.hear() {
            send.lock().unwrap().send(wait).unwrap();
            answer(&mut door);
        }
    });
    (cluster, receive)
}

fn drained(code: u8) -> StepMgrToCommand {
    let worst = ExitStatus { code, signal: None };
    StepMgrToCommand::Drained { job: JOB, counts: StepCounts::default(), worst }
}

#[test]
fn swait_waits_for_named_steps_and_takes_the_worst_code() {
    let (cluster, heard) = waiting(|door| door.say(drained(3)));
    let steps = ["3", "7_[1-4]", "[9-12]"].map(|text| text.parse().unwrap()).to_vec();
    assert_eq!(run(&cluster, &["swait", "--step=3,5609.7_[1-4],9-12", "--any"]), shown("", "", 0));
    assert_eq!(
        heard.recv().unwrap(),
        CommandToStepMgr::Wait { steps, any: true, progress_ms: 0, groups: false, stay: false }
    );
    assert_eq!(run(&cluster, &["swait", "--exit-status"]), shown("", "", 3));
    assert_eq!(
        heard.recv().unwrap(),
        CommandToStepMgr::Wait { steps: vec![], any: false, progress_ms: 0, groups: false, stay: false }
    );
}

#[test]
fn swait_names_a_step_that_there_is_not() {
    let unknown = || StepMgrToCommand::Refused(Refusal::InvalidStep("5609.99".to_owned()));
    let (cluster, _heard) = waiting(move |door| door.say(unknown()));
    let err = "swait: error: Job step 5609.99 not found\n";
    assert_eq!(run(&cluster, &["swait", "--step=99"]), shown("", err, 2));
}

#[test]
fn swait_takes_fractions_of_seconds() {
    // It hears nothing until it goes away.
    let (cluster, _heard) = waiting(|door| assert!(door.hear::<CommandToStepMgr>().is_none()));
    let late = |secs: &str| shown("", &format!("swait: error: timed out after {secs} seconds\n"), 1);
    assert_eq!(run(&cluster, &["swait", "--timeout=0.05"]), late("0.05"));
    assert_eq!(run(&cluster, &["swait", "--timeout=0:0.1"]), late("0.1"));
    assert_eq!(run(&cluster, &["swait", "--timeout=1.x"]).code, Some(2));
}

#[test]
fn no_time_at_all_is_no_limit() {
    let (cluster, heard) = waiting(|door| door.say(drained(0)));
    assert_eq!(run(&cluster, &["swait", "--timeout=0"]), shown("", "", 0));
    assert_eq!(heard.try_iter().count(), 1);
}

/// 1 is for the time that is up.
#[test]
fn wrong_use_of_swait_ends_with_2() {
    let cluster = FakeCluster::dead();
    let hint = "swait: Try \"swait --help\" for more information\n";
    for (args, said) in [
        (vec!["--bogus"], format!("swait: unrecognized option '--bogus'\n{hint}")),
        (vec!["-x"], format!("swait: invalid option -- 'x'\n{hint}")),
        (vec!["--timeout"], format!("swait: option '--timeout' requires an argument\n{hint}")),
        (vec!["-Q", "-v"], "swait: error: --verbose (-v) and --quiet (-Q) are mutually exclusive\n".to_owned()),
        (vec!["794.0"], "swait: error: 794.0: swait operates on a job, not a step\n".to_owned()),
        (vec!["abc"], "swait: error: abc: cannot parse job id\n".to_owned()),
    ] {
        let args: Vec<&str> = std::iter::once("swait").chain(args).collect();
        assert_eq!(run(&cluster, &args), shown("", &said, 2), "{args:?}");
    }
}

#[test]
fn swait_survives_a_step_manager_that_is_started_again() {
    let times = AtomicU32::new(0);
    let (cluster, heard) = waiting(move |door| {
        if times.fetch_add(1, Ordering::Relaxed) > 0 {
            door.say(drained(0));
        }
    });
    assert_eq!(run(&cluster, &["swait"]), shown("", "", 0));
    assert_eq!(heard.try_iter().count(), 2);
}

#[test]
fn scancel_in_a_job_needs_its_step_manager_only() {
    let (send, receive) = mpsc::channel();
    let send = Mutex::new(send);
    let cluster = FakeCluster::dead();
    cluster.serve(DOOR, move |mut door| {
        let Some(CommandToStepMgr::SignalSteps { steps, pending_only, signal }) = door.hear() else { return };
        let names: Vec<String> = steps.iter().map(ToString::to_string).collect();
        let answer = |name: &str| match name {
            "9" => Err(Refusal::InvalidStep("5609.9".to_owned())),
            "8" => Err(Refusal::AlreadyDone),
            _ => Ok(3),
        };
        door.say(StepMgrToCommand::PerStep(names.iter().map(|n| answer(n)).collect()));
        send.lock().unwrap().send((names.join(" "), pending_only, signal)).unwrap();
    });
    let names = ["scancel", "5609.7", "5609.7_[10-20]", "5609.[3-5]", "5609.*"];
    assert_eq!(run(&cluster, &names), shown("", "", 0));
    assert_eq!(receive.recv().unwrap(), ("7 7_[10-20] [3-5] *".to_owned(), false, None));
    let told = run(&cluster, &["scancel", "-s", "USR1", "5609.8,5609.9,5609.7"]);
    assert_eq!(told, shown("", "scancel: error: Job step 5609.9 not found\n", 1));
    assert_eq!(receive.recv().unwrap(), ("8 9 7".to_owned(), false, Some(10)));
    assert_eq!(run(&cluster, &["scancel", "--state=PENDING", "5609.*"]), shown("", "", 0));
    assert_eq!(receive.recv().unwrap(), ("*".to_owned(), true, None));
}

#[test]
fn scancel_goes_to_the_controller_for_steps_of_other_jobs() {
    let (send, receive) = mpsc::channel();
    let send = Mutex::new(send);
    let cluster = FakeCluster::with_controller(move |mut door| {
        if let Some(CommandRequest::Cancel(cancel)) = door.hear() {
            let named: Vec<String> = cancel.steps.iter().map(ToString::to_string).collect();
            send.lock().unwrap().send((named.join(" "), cancel.pending_steps_only)).unwrap();
            door.say(CommandReply::Done);
        }
    });
    assert_eq!(cluster.run(&["scancel", "-t", "PD", "77.3", "78.7_[1-4]"]), shown("", "", 0));
    assert_eq!(receive.recv().unwrap(), ("77.3 78.7_[1-4]".to_owned(), true));
}

fn view(id: &str, state: StepState, waiting: Option<&str>) -> StepView {
    let waits = state == StepState::Pending;
    StepView {
        name: "sim".to_owned(),
        state,
        reason: if waits { Reason::Resources } else { Reason::None },
        uid: 0,
        nodelist: if waits { String::new() } else { "n1".to_owned() },
        waiting: waiting.map(|w| w.parse().unwrap()),
        ..step(id.parse().unwrap())
    }
}

#[test]
fn steps_of_the_own_job_are_shown_without_a_controller() {
    let cluster = FakeCluster::dead();
    cluster.serve(DOOR, |mut door| {
        if let Some(CommandToStepMgr::List) = door.hear() {
            let running = view("5609.7_2", StepState::Running, None);
            let waiting = view("5609.7_3", StepState::Pending, Some("7_[3-9999%64]"));
            door.say(StepMgrToCommand::Steps(vec![running, waiting]));
        }
    });
    let asked = |args: &[&str]| {
        let mut command = in_job(&cluster, args);
        Shown::of(command.env("SLURM_CONF", cluster.home.join("etc/slurm.conf")).output().unwrap())
    };
    let alone = "warning: Unable to contact slurm controller (connect failure): these are the steps of job 5609 alone, \
                 from its step manager\n";
    let told = asked(&["squeue", "-s", "-h", "-o", "%i %T %R"]);
    let out = "5609.7_2 RUNNING n1\n5609.7_[3-9999%64] PENDING (Resources)\n";
    assert_eq!(told, shown(out, &format!("squeue: {alone}"), 0));
    let told = asked(&["scontrol", "-o", "show", "step", "5609.7_5"]);
    assert_eq!((told.err, told.code), (format!("scontrol: {alone}"), Some(0)));
    assert!(
        told.out.starts_with("StepId=5609.7_5 UserId=0 ") && told.out.ends_with("Reason=Resources Dependency=(null)\n")
    );
    let both = asked(&["scontrol", "-o", "show", "step", "5609.7"]).out;
    assert_eq!(both.lines().count(), 2, "{both}");
    let missing = asked(&["scontrol", "show", "step", "5609.8"]);
    assert_eq!((missing.out.as_str(), missing.code), ("Job step 5609.8 not found\n", Some(1)));
    // Of another job nobody here knows anything.
    assert_eq!(asked(&["squeue", "-s", "-j", "7"]).code, Some(1));
}

fn attach(cluster: &FakeCluster, files: Vec<AttachedFile>, play: impl Fn(&mut Conversation) + Send + Sync + 'static) {
    cluster.serve(DOOR, move |mut door| {
        let Some(CommandToStepMgr::Attach { step }) = door.hear() else { return };
        if step != StepId::of(JOB, StepKey::number(3)) {
            door.say(StepMgrToCommand::Refused(Refusal::InvalidStep(step.to_string())));
            return;
        }
        let layout = StepLayout { nodes: vec!["n1".to_owned()], ranks: vec![vec![0, 1]], handed: [false; 3] };
        door.say(StepMgrToCommand::Attached { layout, files: files.clone(), input: false, pty: false });
        play(&mut door);
    });
}

fn finish(door: &mut Conversation, code: u8) {
    let state = if code == 0 { StepState::Completed } else { StepState::Failed };
    door.say(StepMgrToCommand::Finished { exit: ExitStatus { code, signal: None }, state });
}

#[test]
fn sattach_shows_what_is_relayed() {
    let cluster = FakeCluster::dead();
    attach(&cluster, vec![], |door| {
        let say = |rank, stream, text: &str| StepMgrToCommand::Output { rank, stream, data: ByteBuf::from(text) };
        door.say(say(1, Stream::Stdout, "one\n"));
        door.say(say(0, Stream::Stderr, "zero\n"));
        finish(door, 7);
    });
    assert_eq!(run(&cluster, &["sattach", "5609.3"]), shown("one\n", "zero\n", 1));
    assert_eq!(run(&cluster, &["sattach", "-l", "--error-filter=1", "5609.3"]), shown("1: one\n", "", 1));
    let layout = "Job step layout:\n  2 tasks, 1 nodes (n1)\n\n  Node 0 (n1), 2 task(s): 0 1\n";
    assert_eq!(run(&cluster, &["sattach", "--layout", "5609.3"]), shown(layout, "", 0));
    let err = "sattach: error: Unable to attach to step 5609.4: Job step 5609.4 not found\n";
    assert_eq!(run(&cluster, &["sattach", "5609.4"]), shown("", err, 1));
}

#[test]
fn sattach_follows_files_to_their_end() {
    let cluster = FakeCluster::dead();
    let path = cluster.file("out.0", "before\n");
    let file = |rank, path: &std::path::Path| AttachedFile {
        rank,
        node: "n1".to_owned(),
        stream: Stream::Stdout,
        path: path.to_str().unwrap().to_owned(),
        pack: false,
    };
    let later = cluster.home.join("out.1");
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let grown = Arc::new((path.clone(), later.clone()));
    attach(&cluster, vec![file(0, &path), file(1, &later)], move |door| {
        // Not before the command has shown what was there.
        wait.lock().unwrap().recv().unwrap();
        std::fs::OpenOptions::new().append(true).open(&grown.0).unwrap().write_all(b"after\n").unwrap();
        std::fs::write(&grown.1, "new\n").unwrap();
        finish(door, 0);
    });
    let mut child =
        in_job(&cluster, &["sattach", "-l", "5609.3"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    assert_eq!(&first, b"0: before\n");
    go.send(()).unwrap();
    let told = Shown::of(child.wait_with_output().unwrap());
    let mut lines: Vec<&str> = told.out.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines, told.err.as_str(), told.code), (vec!["0: after", "1: new"], "", Some(0)));
}

fn list(batch: &StepBatch) -> &garrick_model::batch::CommandList {
    let BatchMembers::Commands(list) = &batch.members else { panic!("{batch:?}") };
    list
}

/// What the step manager of these tests says of each request.
const SAID: &str = "srun: warning: said to the user\n";

#[test]
fn every_combination_of_values_is_a_step() {
    let (cluster, accepted) = accepting("");
    let each = ["srun", "-Q", "--async", "--each", "seed=1..150", "--each", "size=small,large one", "--each=001..100"];
    let told = run(&cluster, &[&each[..], &["--", "./sim", "--seed={seed}", "{size}", "{3}"]].concat());
    assert_eq!(told, shown("Submitted 30000 steps 5609.[1-30000]\n", SAID, 0));
    let batches: Vec<StepBatch> = (0..3).map(|_| accepted.recv().unwrap().1).collect();
    assert_eq!(batches.iter().map(StepBatch::len).collect::<Vec<_>>(), [10_000, 10_000, 10_000]);
    assert_eq!(argv(&batches[0], 0), ["./sim", "--seed=1", "small", "001"]);
    assert_eq!(argv(&batches[0], 199), ["./sim", "--seed=1", "large one", "100"]);
    assert_eq!(argv(&batches[2], 9_999), ["./sim", "--seed=150", "large one", "100"]);
    assert_eq!(list(&batches[1]).values(0), Some("seed=51 size=small 3=001"));
    assert_eq!((batches[0].specs.len(), batches[0].specs[0].tasks), (1, Some(1)));
    assert_eq!(batches[0].specs[0].name, "sim");
}

#[test]
fn nothing_is_handed_over_where_names_and_values_do_not_fit() {
    let (cluster, accepted) = accepting("");
    cluster.file("three.txt", "a\nb\nc\n");
    cluster.file("t.csv", "seed,size\n1,2\n3\n");
    for (args, err, code) in [
        (
            &["--each", "seed=1..3", "./x", "{sed}"] as &[&str],
            "{sed} is none of the parameters ({seed}); {{sed}} stands for itself",
            255,
        ),
        (
            &["--each", "a=1..2", "--each", "b=@three.txt", "--zip", "./x", "{a}{b}"],
            "--zip needs equally many values: a has 2, b has 3",
            255,
        ),
        (&["--each-csv=t.csv", "./x", "{seed}"], "t.csv:3: 1 fields, and the first line names 2", 255),
        (&["--each", "a=@none.txt", "./x", "{a}"], "Unable to read none.txt: No such file or directory", 1),
        (&["--each", "a=1..2"], "No command given to execute.", 1),
    ] {
        let told = run(&cluster, &[&["srun", "--async"], args].concat());
        let word = if args.len() == 2 { "fatal" } else { "error" };
        assert_eq!(told, shown("", &format!("srun: {word}: {err}\n"), code));
    }
    assert!(accepted.try_recv().is_err());
}

#[test]
fn rows_of_a_table_are_steps_with_files_of_their_own() {
    let (cluster, accepted) = accepting("");
    cluster.file("t.csv", "seed,file name\n1,\"a b.dat\"\n\n2,c.dat\n");
    let each = ["--each-csv=t.csv", "-J", "s{1}", "-o", "{seed}.out", "./x", "{file name}"];
    let told = run(&cluster, &[&["srun", "-Q", "--async"], &each[..]].concat());
    assert_eq!(told, shown("Submitted 2 steps 5609.[1-2]\n", SAID, 0));
    let (_, batch) = accepted.recv().unwrap();
    assert_eq!((argv(&batch, 0), argv(&batch, 1)), (words(&["./x", "a b.dat"]), words(&["./x", "c.dat"])));
    assert_eq!((list(&batch).line(0), list(&batch).line(1)), (Some(2), Some(4)));
    assert_eq!(list(&batch).values(0), Some("seed=1 file name=a b.dat"));
    assert_eq!(batch.specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["s1", "s2"]);
    let output =
        |spec: &garrick_model::spec::StepSpec| matches!(&spec.stdout, StreamTarget::File(f) if f.ends_with("/2.out"));
    assert_eq!(batch.specs.iter().map(output).collect::<Vec<_>>(), [false, true]);
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn objects_of_a_file_are_steps_and_bad_ones_are_named() {
    let (cluster, accepted) = accepting("");
    let lines = [
        r#"{"command": ["./x", "a b"], "name": "first", "environment": {"A": "1 2", "B": 3}}"#,
        "",
        r#"{"cmd": "./x"}"#,
        r#"{"command": "cd y && ./x", "options": ["-n2"], "input": "in.txt"}"#,
        r#"{"command": "./x", "options": "--pty"}"#,
    ];
    cluster.file("tasks.jsonl", &lines.join("\n"));
    let told = run(&cluster, &["srun", "-Q", "--async", "--from-file=tasks.jsonl"]);
    let err = "srun: error: tasks.jsonl:3: unknown field `cmd`, expected one of `command`, `options`, `environment`, \
               `input`, `name` (column 6)\n\
               srun: error: tasks.jsonl:5: --pty cannot be set for one line of a list\n\
               srun: warning: said to the user\n";
    assert_eq!(told, shown("Submitted 2 steps 5609.[1-2]\n", err, 1));
    let (_, batch) = accepted.recv().unwrap();
    assert_eq!(argv(&batch, 0), ["./x", "a b"]);
    assert_eq!(argv(&batch, 1), ["/bin/sh", "-c", "cd y && ./x"]);
    let all = list(&batch);
    assert_eq!((all.line(0), all.line(1), all.name(0), all.name(1)), (Some(1), Some(4), Some("first"), None));
    assert_eq!(all.environment(0).collect::<Vec<_>>(), [ByteBuf::from("A=1 2"), ByteBuf::from("B=3")]);
    assert!(matches!(&batch.specs[1].stdin, StreamTarget::File(file) if file.ends_with("/in.txt")));
    assert_eq!(batch.specs[1].tasks, Some(2));
    // What the file is does not have to be told by its name.
    cluster.file("tasks", "{\"command\": \"./x\"}\n");
    let told = run(&cluster, &["srun", "-Q", "--async", "--from-file=tasks", "--format=jsonl"]);
    assert_eq!(told.out, "Submitted step 5609.3\n");
}

#[test]
fn later_lines_wait_for_labels_of_earlier_ones() {
    let (cluster, accepted) = accepting("./impossible");
    let lines = [
        "--label prepare ./a 1",
        "--label prepare ./a 2",
        "./b",
        "--label work -n2 --dependency=afterok:@prepare -- ./c",
        "-d afterany:@work,after:@prepare ./d",
        "-d afterok:@later ./e",
        "--label later ./f",
        "--label own -d afterok:@own ./g",
        "--label gone ./impossible",
        "-d after:@gone ./h",
        "-d after:@own ./i",
        "--label='a b' ./j",
    ];
    cluster.file("cmds.txt", &lines.join("\n"));
    let told = run(&cluster, &["srun", "--async", "--from-file=cmds.txt"]);
    let err = "srun: warning: said to the user\n\
               srun: error: cmds.txt:6: no line before this one is labelled \"later\"\n\
               srun: error: cmds.txt:8: no line before this one is labelled \"own\"\n\
               srun: error: cmds.txt:9: Requested node configuration is not available: more CPUs than the job has\n\
               srun: error: cmds.txt:10: line 9, which is labelled \"gone\", is not a step\n\
               srun: error: cmds.txt:11: line 8, which is labelled \"own\", is not a step\n\
               srun: error: cmds.txt:12: \"a b\" is no label (letters, digits, _ and -)\n";
    let shown_err: Vec<&str> = told.err.lines().filter(|line| !line.contains("cmds.txt:9")).collect();
    let want: Vec<&str> = err.lines().filter(|line| !line.contains("cmds.txt:9")).collect();
    assert_eq!((shown_err, told.code), (want, Some(1)));
    assert!(told.err.contains("cmds.txt:9: "), "{}", told.err);
    assert_eq!(told.out, "Submitted 6 steps 5609.[1-6]\n");
    let batches: Vec<StepBatch> = accepted.try_iter().map(|(_, batch)| batch).collect();
    let programs =
        |batch: &StepBatch| (0..batch.len() as usize).map(|at| argv(batch, at)[0].clone()).collect::<Vec<_>>();
    assert_eq!(
        batches.iter().map(programs).collect::<Vec<_>>(),
        [vec!["./a", "./a", "./b"], vec!["./c"], vec!["./d", "./f", "./impossible"],]
    );
    let waits = |batch: &StepBatch| batch.specs[0].dependency.as_ref().map(ToString::to_string);
    assert_eq!(waits(&batches[0]), None);
    assert_eq!(waits(&batches[1]).as_deref(), Some("afterok:[1-2]"));
    assert_eq!(waits(&batches[2]).as_deref(), Some("afterany:4,after:[1-2]"));
    assert_eq!((batches[0].specs.len(), list(&batches[0]).name(1)), (2, Some("prepare")));
}
