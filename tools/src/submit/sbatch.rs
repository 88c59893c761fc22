//! `sbatch`: submits a batch script.

use super::{
    het,
    startup::{self, Startup},
    submitter,
};
use crate::{
    batch_script::{self, BatchScript},
    graph::{self, GraphText, resume::Completed},
    options::{
        export::For,
        job_spec::Work,
        script_lines::{self, ScriptLine},
        table::Command,
        typed::{OptionError, Typed},
    },
    output::{self, Console},
};
use garrick_asking::{
    accounts::{self, User},
    cluster::{Answer, Cluster, ClusterError},
    patience,
};
use garrick_model::{
    ids::JobId,
    messages::command::{CommandReply, CommandRequest, JobMilestone, JobSelector},
    refusal::Refusal,
    spec::{JobKind, JobSpec},
    state::JobState,
    time::{Timestamp, system_zone},
    view::JobView,
};
use jiff::tz::TimeZone;
use std::{ffi::OsString, path::Path, sync::Arc, time::Duration};

/// Pause before a lost controller is asked again about a job that is waited for.
const WAIT_PAUSE: Duration = Duration::from_secs(2);

/// Runs `sbatch`; `args` are without the program's name. Returns the exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    run(&args).unwrap_or_else(|code| code)
}

/// Options that a batch script cannot have.
fn no_graph(typed: &Typed, console: &Console) -> Result<(), i32> {
    let wrong = match (typed.graph.is_some(), typed.resume_from.is_some()) {
        (true, _) => "--graph is for the command line: no script is a graph",
        (false, true) => "--resume-from is for graphs: it needs --graph",
        (false, false) => return Ok(()),
    };
    console.error(wrong);
    Err(startup::exit_code(1))
}

fn run(args: &[OsString]) -> Result<i32, i32> {
    let mut startup = Startup::begin(Command::Sbatch, args)?;
    // Lists of what there is need no script, and a wrong option is told of before a script is looked for.
    startup.looked_at()?;
    let source = source(&startup)?;
    let head = match &source {
        Source::Graph(text) => graph::script::head(text),
        Source::Script(script) => script_lines::read(&script.text, script_lines::OF_SBATCH),
    };
    let head = head.map_err(|error| {
        startup.console.error(&error);
        startup::exit_code(255)
    })?;
    let mut typed = startup.typed(&head.lines)?;
    // About the command itself, behind whichever component they stand.
    typed.parsable |= startup.gave("parsable");
    typed.wait |= startup.gave("wait");
    typed.test_only |= startup.gave("test-only");
    let console = &startup.console;
    let script = match source {
        Source::Script(script) => no_graph(&typed, console).map(|()| script)?,
        Source::Graph(text) => match of_graph(&startup, &text, &head.lines, &typed)? {
            Some(script) => script,
            None => return Ok(0),
        },
    };
    if head.has_pbs {
        console.warning("#PBS lines are not supported yet and have no effect");
    }
    let wrong = |error: OptionError| startup::tell_option(Command::Sbatch, console, &error);
    let cluster = startup.cluster(&typed)?;
    startup::tell_ignored(&typed, &cluster, console);
    let submitter = submitter::look(Command::Sbatch, args, &typed, For::Job, Some(cluster.config())).map_err(wrong)?;
    let operands = startup.operands();
    let work = Work {
        kind: JobKind::Batch,
        default_name: script.name,
        argv: operands.get(1..).unwrap_or_default().to_vec(),
        script: Some(script.text),
        command: script.path,
    };
    let specs = het::specs(&startup, &typed, &head.others, submitter, work)?;
    become_user(&typed).map_err(wrong)?;
    if typed.test_only {
        return Ok(test_only(Command::Sbatch, &cluster, console, specs));
    }
    let job = het::submit(&startup, &cluster, specs)?;
    startup.tell_filters(job, None);
    let named = !typed.clusters.is_empty();
    let written = match (typed.parsable, typed.quiet) {
        (true, _) if named => output::print_line(format_args!("{job};{}", cluster.name())),
        (true, _) => output::print_line(job),
        (false, true) => Ok(()),
        (false, false) if named => {
            output::print_line(format_args!("Submitted batch job {job} on cluster {}", cluster.name()))
        }
        (false, false) => output::print_line(format_args!("Submitted batch job {job}")),
    };
    let code = output::finish(console, written, 0);
    Ok(if typed.wait && code == 0 { wait(&cluster, console, job) } else { code })
}

/// What the job is made of.
enum Source {
    Script(BatchScript),
    Graph(GraphText),
}

/// The script that hands a graph over; `None`: all of it completed before, as was said.
fn of_graph(
    startup: &Startup,
    text: &GraphText,
    head: &[ScriptLine],
    typed: &Typed,
) -> Result<Option<BatchScript>, i32> {
    let console = &startup.console;
    let wrong = |error: String| {
        error.lines().for_each(|line| console.error(line));
        startup::exit_code(1)
    };
    graph::script::check_head(head).map_err(|error| wrong(format!("{}: {error}", text.file)))?;
    if typed.array.is_some() {
        return Err(wrong("--array cannot be used with --graph".to_owned()));
    }
    let dir = typed.chdir.as_ref().map_or_else(graph::here, |own| graph::here().join(own));
    let read = text.graph(&dir).map_err(|error| wrong(error.to_string()))?;
    let behind = || startup.value("resume-from").map(|jobs| jobs.to_string_lossy().into_owned());
    let resume = typed.resume_from.clone().or_else(behind);
    if let Some(jobs) = &resume {
        let left = Completed::read(jobs, typed.conf.as_deref(), console)?.left(&read);
        left.say(&read, jobs, console);
        if left.is_nothing() {
            return Ok(None);
        }
    }
    graph::script::of(text, resume.as_deref()).map(Some).map_err(|error| wrong(error.to_string()))
}

fn source(startup: &Startup) -> Result<Source, i32> {
    let console = &startup.console;
    let file = startup.operands().first();
    if let Some(graph) = startup.value("graph") {
        if let Some(other) = ["wrap", "array"].into_iter().find(|other| startup.gave(other)) {
            console.error(format_args!("--{other} cannot be used with --graph"));
            return Err(startup::exit_code(1));
        }
        if file.is_some() {
            console.error("--graph has the commands: no script can be given on the command line");
            return Err(startup::exit_code(1));
        }
        return GraphText::read(Path::new(graph)).map(Source::Graph).map_err(|error| {
            console.error(&error);
            startup::exit_code(1)
        });
    }
    let script = match (startup.value("wrap"), file) {
        (Some(_), Some(_)) => {
            console.error("Script arguments not permitted with --wrap option");
            return Err(startup::exit_code(1));
        }
        (Some(command), None) => Ok(batch_script::wrapped(command.clone())),
        (None, Some(file)) => batch_script::from_file(file),
        (None, None) => batch_script::from_stdin(),
    };
    script.map(Source::Script).map_err(|error| {
        error.to_string().lines().for_each(|line| console.error(line));
        startup::exit_code(1)
    })
}

/// Submits a job; a lost reply is asked for again with the same identity. Returns what the controller has to say, too.
pub fn submit(cluster: &Cluster, console: &Console, spec: JobSpec) -> Answer<(JobId, Vec<String>)> {
    het::ask_for(cluster, console, vec![spec])
}

/// `--test-only` of any of the commands. Returns the exit code.
pub fn test_only(command: Command, cluster: &Cluster, console: &Console, mut specs: Vec<JobSpec>) -> i32 {
    // When it would start is asked of what it needs, whether it is held or not.
    specs.iter_mut().for_each(|spec| spec.hold = false);
    let request = match specs.len() {
        1 => CommandRequest::TestJob { spec: Box::new(specs.remove(0)) },
        _ => CommandRequest::TestHetJob { specs },
    };
    match patience::ask(cluster, console, &request).map(|reply| said_first(console, reply)) {
        Ok(CommandReply::WouldStart { job, at, cpus, nodes, partition }) => {
            console.line(would_start_line(job, at, cpus, &nodes, &partition, &system_zone()));
            0
        }
        Ok(_) => startup::tell_cluster(command, console, &ClusterError::Unexpected("tested a job")),
        Err(error) => {
            error.details().iter().for_each(|line| console.error(line));
            output::stderr(format!("allocation failure: {error}\n").as_bytes());
            startup::exit_code(1)
        }
    }
}

/// The answer itself, after what the site's own checks have to say.
fn said_first(console: &Console, reply: CommandReply) -> CommandReply {
    match reply {
        CommandReply::Said { lines, reply } => {
            lines.iter().for_each(|line| console.info(line));
            *reply
        }
        reply => reply,
    }
}

/// The stray `a` is Slurm's.
fn would_start_line(job: JobId, at: Timestamp, cpus: u32, nodes: &str, partition: &str, zone: &TimeZone) -> String {
    format!(
        "Job {job} to start at {} a using {cpus} processors on nodes {nodes} in partition {partition}",
        at.text(zone)
    )
}

/// Waits until the job (all of an array) is over. Returns its exit code.
fn wait(cluster: &Cluster, console: &Console, job: JobId) -> i32 {
    let mut worst = 0;
    let mut waited_for = job;
    loop {
        match wait_once(cluster, console, waited_for) {
            Ok(view) => worst = worst.max(job_code(&view)),
            Err(error) if error.is_passing() => {
                std::thread::sleep(patience::jittered(WAIT_PAUSE, patience::random()));
                continue;
            }
            // Over for so long that it is forgotten.
            Err(ClusterError::Refused(Refusal::InvalidJobId)) if waited_for != job => {}
            Err(error) => {
                console.error(format_args!("Unable to wait for job {waited_for}: {error}"));
                return startup::exit_code(1);
            }
        }
        let all = CommandRequest::list_jobs(vec![JobSelector { job, tasks: None, het: None, run: None }]);
        let tasks = match patience::ask(cluster, console, &all) {
            Ok(CommandReply::Jobs { jobs, .. }) => jobs,
            _ => return worst,
        };
        worst = tasks.iter().filter(|view| is_over(view)).map(|view| job_code(view)).max().unwrap_or(0).max(worst);
        match tasks.iter().find(|view| !is_over(view)) {
            Some(view) => waited_for = view.id,
            None => return worst,
        }
    }
}

fn wait_once(cluster: &Cluster, console: &Console, job: JobId) -> Answer<Arc<JobView>> {
    let mut daemon = cluster.connect(console.program())?;
    daemon.send(&CommandRequest::WaitJob { job, until: JobMilestone::Ended })?;
    daemon.set_timeout(None)?;
    match daemon.recv()? {
        CommandReply::Job(view) => Ok(view),
        _ => Err(ClusterError::Unexpected("waited for a job")),
    }
}

/// The job is over, though its nodes may still be cleaned.
pub fn is_over(view: &JobView) -> bool {
    !view.state.works() && !view.state.waits()
}

/// The exit code that stands for a job: its script's; 1 when a signal or something else than the script ended it.
fn job_code(view: &JobView) -> i32 {
    let state = view.ending.filter(|_| view.state == JobState::Completing).unwrap_or(view.state);
    match (state, view.exit.signal, view.exit.code) {
        (_, Some(_), _) => 1,
        (JobState::Completed | JobState::Completing, None, code) => i32::from(code),
        (_, None, 0) => 1,
        (_, None, code) => i32::from(code),
    }
}

/// `--uid` and `--gid`: root becomes the other user before it talks to a daemon, so that the kernel says that it is.
fn become_user(typed: &Typed) -> Result<(), OptionError> {
    use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
    if typed.uid.is_none() && typed.gid.is_none() {
        return Ok(());
    }
    if !Uid::effective().is_root() {
        let name = if typed.uid.is_some() { "--uid" } else { "--gid" };
        return Err(OptionError::Text(format!("{name} only permitted by root user")));
    }
    let user = typed.uid.as_deref().map(User::by_number_or_name);
    let user = match user {
        None => None,
        Some(Some(user)) => Some(user),
        Some(None) => return Err(OptionError::Invalid { name: "uid" }),
    };
    let gid = match typed.gid.as_deref() {
        None => None,
        Some(text) => match text.parse() {
            Ok(gid) => Some(gid),
            Err(_) => Some(accounts::gid_of(text).ok_or(OptionError::Invalid { name: "gid" })?),
        },
    };
    let failed = |errno: nix::errno::Errno| OptionError::Text(format!("Unable to become that user: {errno}"));
    if let Some(gid) = gid.or(user.as_ref().map(|u| u.gid)) {
        setgid(Gid::from_raw(gid)).map_err(failed)?;
    }
    if let Some(user) = user {
        let primary = gid.unwrap_or(user.gid);
        let groups: Vec<Gid> = user.groups(primary).into_iter().map(Gid::from_raw).collect();
        setgroups(&groups).map_err(failed)?;
        setuid(Uid::from_raw(user.uid)).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::state::ExitStatus;
    use garrick_render::testing::job_view;

    fn ended(state: JobState, code: u8, signal: Option<u8>) -> JobView {
        JobView { exit: ExitStatus { code, signal }, ..job_view(5, state) }
    }

    #[test]
    fn test_only_is_worded_as_slurm_words_it() {
        let line = would_start_line(JobId(532), Timestamp::from_secs(1_795_257_077), 1, "n1", "debug", &TimeZone::UTC);
        let want = "Job 532 to start at 2026-11-21T10:31:17 a using 1 processors on nodes n1 in partition debug";
        assert_eq!(line, want);
    }

    #[test]
    fn a_waited_for_job_gives_its_scripts_exit_code() {
        assert_eq!(job_code(&ended(JobState::Completed, 0, None)), 0);
        assert_eq!(job_code(&ended(JobState::Failed, 7, None)), 7);
        let completing = JobView { ending: Some(JobState::Failed), ..ended(JobState::Completing, 7, None) };
        assert_eq!(job_code(&completing), 7);
    }

    #[test]
    fn a_job_that_did_not_end_by_itself_gives_one() {
        assert_eq!(job_code(&ended(JobState::Cancelled, 0, Some(15))), 1);
        assert_eq!(job_code(&ended(JobState::Timeout, 0, None)), 1);
        let completing = JobView { ending: Some(JobState::NodeFail), ..ended(JobState::Completing, 0, None) };
        assert_eq!(job_code(&completing), 1);
    }

    #[test]
    fn a_completing_job_is_over() {
        assert!(is_over(&job_view(5, JobState::Completing)));
        assert!(!is_over(&job_view(5, JobState::Suspended)));
    }

    #[test]
    fn another_user_is_for_root_only() {
        if nix::unistd::Uid::effective().is_root() {
            eprintln!("skipped: runs as root");
            return;
        }
        let typed = Typed { uid: Some("0".to_owned()), ..Typed::default() };
        assert_eq!(become_user(&typed).unwrap_err().to_string(), "--uid only permitted by root user");
    }
}
