//! `srun`: runs a step in an allocation, or makes an allocation for one step.

use super::{
    allocation::{self, Allocation, Speaker},
    allocation_wait::{self, Waited, Watch},
    batch_script,
    conversation::Behaviour,
    manager, multi_prog, patience, sbatch,
    signals::{STEERING, Signals},
    startup::{self, Startup},
    step_loop::{PatternNames, StepLoop},
    stream_plan::{self, Input, StreamPlan},
    submitter, terminal,
};
use crate::{
    cluster::{Cluster, ClusterError, refusal_details},
    options::{
        export::For,
        job_spec::{self, Checked, Submitter, Work},
        step_spec::{self, StepStreams, StepWork, base_name},
        table::Command,
        typed::{OptionError, Source, Sourced, Typed},
    },
    output::{self, Console},
};
use garrick_frame::{DoorClient, DoorError};
use garrick_model::{
    config::PropagateLimits,
    ids::{ArrayTask, JobId, RequestId, StepId},
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    refusal::Refusal,
    spec::{JobKind, NodeCount, StepSpec},
    view::JobView,
};
use nix::sys::signal::Signal;
use std::{
    env,
    ffi::OsString,
    io,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::Path,
    time::Duration,
};

/// Runs `srun`; `args` are without the program's name. Returns the exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    run(&args).unwrap_or_else(|code| code)
}

fn run(args: &[OsString]) -> Result<i32, i32> {
    let mut startup = Startup::begin(Command::Srun, args)?;
    let mut typed = startup.typed(&[])?;
    let console = &startup.console;
    let wrong = |error: OptionError| startup::tell_option(Command::Srun, console, &error);
    if startup.operands().is_empty() {
        console.fatal("No command given to execute.");
        return Err(startup::exit_code(1));
    }
    let mut work = work(&mut typed, startup.operands(), console)?;
    match typed.jobid {
        Some(Sourced { value: job, .. }) => {
            // Inside a job the site's rules about limits have been applied to what this process has.
            let site = &PropagateLimits::All;
            let submitter = submitter::look(Command::Srun, args, &typed, For::Step, site).map_err(wrong)?;
            resolve(&mut work, &submitter);
            if typed.asynchronous || typed.batch {
                enqueue(&typed, console, job, submitter, work)
            } else {
                inside(&typed, console, job, submitter, work)
            }
        }
        None if typed.asynchronous || typed.batch => {
            console.error(
                "--async and --batch hand a step to a job's step manager: they need a job (--jobid, SLURM_JOB_ID)",
            );
            Err(startup::exit_code(1))
        }
        None => alone(&typed, console, args, work),
    }
}

/// What is to run.
fn work(typed: &mut Typed, operands: &[OsString], console: &Console) -> Result<StepWork, i32> {
    let program = operands[0].clone();
    if typed.batch {
        let script = batch_script::from_file(&program).map_err(|error| {
            error.to_string().lines().for_each(|line| console.error(line));
            startup::exit_code(1)
        })?;
        // A script is one process; what it starts is its own affair.
        typed.ntasks.get_or_insert(Sourced { value: 1, source: Source::CommandLine });
        if typed.ntasks.is_some_and(|n| n.source != Source::CommandLine) {
            typed.ntasks = Some(Sourced { value: 1, source: Source::CommandLine });
        }
        return Ok(StepWork {
            argv: operands[1..].to_vec(),
            script: Some(script.text),
            program,
            ..StepWork::default()
        });
    }
    if !typed.multi_prog {
        return Ok(StepWork { argv: operands.to_vec(), program, ..StepWork::default() });
    }
    let failed = |text: String| {
        console.error(text);
        startup::exit_code(1)
    };
    let shown = program.to_string_lossy().into_owned();
    let text = std::fs::read_to_string(&program)
        .map_err(|e| failed(format!("Unable to read configuration file {shown}: {e}")))?;
    let invalid = |e: multi_prog::MultiProgError| failed(format!("Configuration file {shown} invalid, {e}"));
    let programs = multi_prog::parse(&text).map_err(invalid)?;
    if typed.ntasks.is_none()
        && let Some(value) = multi_prog::task_count(&programs)
    {
        typed.ntasks = Some(Sourced { value, source: Source::CommandLine });
    }
    if let Some(tasks) = typed.ntasks {
        multi_prog::check(&programs, tasks.value).map_err(invalid)?;
    }
    Ok(StepWork { multi_prog: programs, program, ..StepWork::default() })
}

/// A bare program name is looked up in the task's `PATH` on its node. Here only what that cannot find: a program in the
/// working directory, and any program when the task gets no `PATH` (srun(1), "executable path resolution").
fn resolve(work: &mut StepWork, submitter: &Submitter) {
    let Some(name) = work.argv.first().filter(|_| work.script.is_none()).cloned() else { return };
    if name.as_bytes().contains(&b'/') {
        return;
    }
    let travels = submitter.environment.iter().any(|entry| entry.starts_with(b"PATH="));
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join(&name)).find(|file| is_executable(file));
    match found {
        Some(_) if travels => {}
        Some(file) => work.argv[0] = file.into_os_string(),
        None => {
            let here = submitter.work_dir.join(&name);
            if is_executable(&here) {
                work.argv[0] = here.into_os_string();
            }
        }
    }
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// A step of a job that exists.
fn inside(typed: &Typed, console: &Console, job: JobId, submitter: Submitter, work: StepWork) -> Result<i32, i32> {
    let signals = block_signals(console)?;
    let (spec, plan) = attended_spec(typed, console, submitter, work)?;
    let door = reach(typed, console, job)?;
    Ok(converse(typed, console, job, door, spec, &plan, &signals))
}

/// A step that is handed over.
fn enqueue(typed: &Typed, console: &Console, job: JobId, submitter: Submitter, work: StepWork) -> Result<i32, i32> {
    let streams = stream_plan::unattended(typed, &submitter.work_dir);
    let spec = built(typed, console, submitter, work, streams, None)?;
    let mut door = reach(typed, console, job)?;
    let request = CommandToStepMgr::Enqueue { request: RequestId::random(), specs: vec![spec] };
    let mut attempt = 1;
    let steps = loop {
        let answer = ask(&mut door, &request);
        let error = match answer {
            Ok(StepMgrToCommand::Enqueued { steps, warnings }) => {
                warnings.iter().for_each(|line| console.warning(line));
                break steps;
            }
            Ok(StepMgrToCommand::Refused(refusal)) => ClusterError::Refused(refusal),
            Ok(_) => ClusterError::Unexpected("enqueued a step"),
            Err(error) => ClusterError::Door(error),
        };
        match patience::after(&error, attempt, patience::random()) {
            patience::Next::Pause(pause) => {
                if attempt == 1 {
                    console.info(format_args!("{error}; retrying"));
                }
                std::thread::sleep(pause);
                attempt += 1;
                // A refusal ends the conversation; a repeat with the same identity gets the first answer.
                door = reach(typed, console, job)?;
            }
            patience::Next::GiveUp => {
                error.details().iter().for_each(|line| console.error(line));
                console.error(format_args!("Unable to create step for job {job}: {error}"));
                return Err(startup::exit_code(1));
            }
        }
    };
    let written = output::stdout(|out| steps.iter().try_for_each(|step| writeln!(out, "{}", submitted(typed, *step))));
    Ok(output::finish(console, written, 0))
}

fn ask(door: &mut DoorClient, request: &CommandToStepMgr) -> Result<StepMgrToCommand, DoorError> {
    door.send(request)?;
    door.recv()
}

fn submitted(typed: &Typed, step: StepId) -> String {
    if typed.parsable {
        step.to_string()
    } else if typed.batch {
        format!("Submitted batch step {step}")
    } else {
        format!("Submitted step {step}")
    }
}

/// An allocation for one step.
fn alone(typed: &Typed, console: &Console, args: &[OsString], mut work: StepWork) -> Result<i32, i32> {
    let wrong = |error: OptionError| startup::tell_option(Command::Srun, console, &error);
    let cluster = sbatch::find(typed, console)?;
    let submitter =
        submitter::look(Command::Srun, args, typed, For::Job, &cluster.config().propagate_limits).map_err(wrong)?;
    resolve(&mut work, &submitter);
    let job_work = Work {
        kind: JobKind::Allocation,
        default_name: env::var("SLURM_JOB_NAME")
            .ok()
            .filter(|n| !n.is_empty())
            .unwrap_or_else(|| base_name(&work.program)),
        argv: work.argv.clone(),
        script: None,
        command: None,
    };
    // Files of the step are the step's affair.
    let of_job = Typed { input: None, output: None, error: None, ..typed.clone() };
    let Checked { spec, warnings } = job_spec::build(&of_job, submitter.clone(), job_work).map_err(wrong)?;
    if typed.test_only {
        return Ok(sbatch::test_only(Command::Srun, &cluster, console, spec));
    }
    warnings.iter().for_each(|line| console.warning(line));
    let signals = block_signals(console)?;
    let (job, said) =
        sbatch::submit(&cluster, console, spec).map_err(|e| startup::tell_cluster(Command::Srun, console, &e))?;
    said.iter().for_each(|line| console.info(line));
    let mut allocation = Allocation::new(job, Speaker::Srun, typed.immediate_secs.is_some());
    let mut watch = Watch::open(&cluster, console, job);
    let immediate = typed.immediate_secs.map(|secs| Duration::from_secs(u64::from(secs)));
    let view = match allocation_wait::wait(&mut watch, &mut allocation, &signals, immediate) {
        Waited::Ready(view) => view,
        Waited::Over => return Ok(startup::exit_code(1)),
        Waited::Interrupted => {
            let mut say = Vec::new();
            allocation.over(false, &mut say);
            say.iter().for_each(|line| console.info(line));
            return Ok(startup::exit_code(1));
        }
        Waited::Busy => {
            console.error(format_args!("Unable to allocate resources: {}", Refusal::Busy));
            return Ok(startup::immediate_code());
        }
    };
    drop(watch);
    let code = in_own_allocation(&cluster, console, &fitted(typed, &view), &view, submitter, work, &signals)
        .unwrap_or_else(|code| code);
    allocation_wait::finish(&cluster, console, job, code);
    Ok(code)
}

/// The step takes what its allocation has: what was asked for has been decided.
fn fitted(typed: &Typed, view: &JobView) -> Typed {
    let count = u32::try_from(allocation::nodes(view).len()).unwrap_or(u32::MAX);
    let given = |value| Some(Sourced { value, source: Source::CommandLine });
    Typed {
        nodes: Some(Sourced { value: NodeCount { min: count, max: Some(count) }, source: Source::CommandLine }),
        ntasks: typed.ntasks.or_else(|| given(view.tasks.max(count))),
        // Chosen for the allocation already; a name that was not chosen must not be asked for again.
        nodelist: None,
        nodefile: None,
        exclude: None,
        memory: None,
        immediate_secs: None,
        ..typed.clone()
    }
}

fn in_own_allocation(
    cluster: &Cluster,
    console: &Console,
    typed: &Typed,
    view: &JobView,
    submitter: Submitter,
    work: StepWork,
    signals: &Signals,
) -> Result<i32, i32> {
    let job = view.id;
    let (spec, plan) = attended_spec(typed, console, submitter, work)?;
    let place = manager::locate(cluster, console, job);
    let door = place.and_then(|place| manager::reach_at(cluster, console, &place)).map_err(|error| {
        manager::tell(console, job, &error);
        startup::exit_code(1)
    })?;
    Ok(converse(typed, console, job, door, spec, &plan, signals))
}

fn block_signals(console: &Console) -> Result<Signals, i32> {
    let mut signals = STEERING.to_vec();
    signals.push(Signal::SIGWINCH);
    Signals::block(&signals).map_err(|error| {
        console.error(format_args!("Unable to take signals: {error}"));
        startup::exit_code(1)
    })
}

fn attended_spec(
    typed: &Typed,
    console: &Console,
    submitter: Submitter,
    work: StepWork,
) -> Result<(StepSpec, StreamPlan), i32> {
    let plan = stream_plan::attended(typed, &submitter.work_dir);
    let pty = typed.pty.then(|| {
        terminal::size(io::stdin()).or_else(|| terminal::size(io::stdout())).unwrap_or(terminal::DEFAULT_SIZE)
    });
    let spec = built(typed, console, submitter, work, plan.targets.clone(), pty)?;
    Ok((spec, plan))
}

fn built(
    typed: &Typed,
    console: &Console,
    submitter: Submitter,
    work: StepWork,
    streams: StepStreams,
    pty: Option<(u16, u16)>,
) -> Result<StepSpec, i32> {
    let Checked { spec, warnings } = step_spec::build(typed, submitter, work, streams, pty)
        .map_err(|error| startup::tell_option(Command::Srun, console, &error))?;
    warnings.iter().for_each(|line| console.warning(line));
    Ok(spec)
}

fn reach(typed: &Typed, console: &Console, job: JobId) -> Result<DoorClient, i32> {
    manager::reach(typed.conf.as_deref(), console, job).map_err(|error| {
        manager::tell(console, job, &error);
        startup::exit_code(1)
    })
}

/// Launches and stays to the end. Returns the exit code.
fn converse(
    typed: &Typed,
    console: &Console,
    job: JobId,
    mut door: DoorClient,
    spec: StepSpec,
    plan: &StreamPlan,
    signals: &Signals,
) -> i32 {
    // Looking a user up reads files; most steps name none.
    let mut named = [plan.output.pattern(), plan.error.pattern(), plan.input.pattern()].into_iter().flatten();
    let names = PatternNames {
        user: if named.any(|pattern| pattern.contains('u')) { submitter::user_name() } else { String::new() },
        job_name: env::var("SLURM_JOB_NAME").unwrap_or_else(|_| spec.name.clone()),
        array_task: array_task(),
    };
    let launch = CommandToStepMgr::Launch { request: RequestId::random(), spec: Box::new(spec) };
    if let Err(error) = door.send(&launch) {
        let error = ClusterError::Door(error);
        error.details().iter().for_each(|line| console.error(line));
        console.error(format_args!("Unable to create step for job {job}: {error}"));
        return startup::exit_code(1);
    }
    let behaviour = Behaviour {
        job,
        label: typed.label,
        unbuffered: typed.unbuffered,
        output: plan.output.clone(),
        error: plan.error.clone(),
        relays_input: plan.input != Input::None,
        pty: typed.pty,
        disable_status: typed.disable_status,
        quit_on_interrupt: typed.quit_on_interrupt,
        kill_on_bad_exit: typed.kill_on_bad_exit.unwrap_or(false),
    };
    StepLoop::new(door, behaviour, plan, typed.open_mode, &names, signals, console).run()
}

fn array_task() -> Option<ArrayTask> {
    let number = |name: &str| env::var(name).ok()?.parse().ok();
    Some(ArrayTask { array_job: JobId(number("SLURM_ARRAY_JOB_ID")?), index: number("SLURM_ARRAY_TASK_ID")? })
}

/// Says why a step manager declined, for commands without a step of their own.
pub fn tell_refusal(console: &Console, refusal: &Refusal) {
    refusal_details(refusal).iter().for_each(|line| console.error(line));
    console.error(refusal);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::{ids::StepNum, state::JobState};

    #[test]
    fn a_handed_over_step_is_named() {
        let step = StepId::new(JobId(5609), StepNum::Number(0));
        let typed = Typed { asynchronous: true, ..Typed::default() };
        assert_eq!(submitted(&typed, step), "Submitted step 5609.0");
        assert_eq!(submitted(&Typed { batch: true, ..typed.clone() }, step), "Submitted batch step 5609.0");
        assert_eq!(submitted(&Typed { parsable: true, ..typed }, step), "5609.0");
    }

    #[test]
    fn a_program_in_the_working_directory_is_found_there() {
        let dir = env::temp_dir().join(format!("garrick-resolve-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let program = dir.join("garrick-own-program");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let resolved = |name: &str, environment: Vec<serde_bytes::ByteBuf>| {
            let submitter = Submitter { work_dir: dir.clone(), environment, ..Submitter::default() };
            let mut work = StepWork { argv: vec![name.into()], ..StepWork::default() };
            resolve(&mut work, &submitter);
            work.argv[0].clone()
        };
        assert_eq!(resolved("garrick-own-program", vec![]), program);
        assert_eq!(resolved("./sh", vec![]), "./sh");
        assert_eq!(resolved("sh", vec![b"PATH=/bin".to_vec().into()]), "sh");
        assert!(Path::new(&resolved("sh", vec![])).is_absolute());
        assert_eq!(resolved("garrick-nosuch", vec![]), "garrick-nosuch");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_step_of_its_own_allocation_takes_all_of_it() {
        let view = crate::submit::test_views::job_view(7, JobState::Running);
        let fitted = fitted(&Typed { nodelist: Some("n1".to_owned()), ..Typed::default() }, &view);
        assert_eq!(fitted.nodes.unwrap().value, NodeCount { min: 2, max: Some(2) });
        assert_eq!((fitted.ntasks.unwrap().value, fitted.nodelist), (3, None));
    }

    #[test]
    fn a_script_is_one_task_whatever_the_job_has() {
        let path = env::temp_dir().join(format!("garrick-batch-step-{}", std::process::id()));
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        let console = Console::new("srun");
        let mut typed =
            Typed { batch: true, ntasks: Some(Sourced { value: 8, source: Source::Environment }), ..Typed::default() };
        let work = work(&mut typed, &[path.clone().into(), "arg".into()], &console).unwrap();
        assert_eq!(typed.ntasks.unwrap().value, 1);
        assert_eq!((work.argv, work.script), (vec![OsString::from("arg")], Some(b"#!/bin/sh\n".to_vec())));
        assert!(is_executable(Path::new("/bin/sh")));
        std::fs::remove_file(path).unwrap();
    }
}
