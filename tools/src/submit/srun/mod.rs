//! `srun`: runs a step in an allocation, or makes an allocation for one step.

mod het_step;
mod scripts;

use crate::{
    batch_script::{self, BatchScript},
    executable::{in_path, is_program},
    options::{
        export::For,
        job_spec::{self, Checked, Submitter, Work},
        script_lines::{self, ScriptLine},
        step_spec::{self, StepWork, base_name},
        stream_plan::{self, Input, StreamPlan},
        table::Command,
        typed::{OptionError, Source, Sourced, Typed},
        values,
    },
    output::Console,
    submit::{
        allocation, allocation_wait,
        conversation::Behaviour,
        het,
        launch::Launch,
        light::{self, Begun},
        minibatch::{
            again, combinations, graph,
            list::{self, ListRequest},
            one,
        },
        multi_prog,
        no_step::no_step,
        sbatch,
        sent_program::SentProgram,
        startup::{self, Startup},
        step_loop::{Managers, PatternNames, StepLoop},
        submitter,
        way_back::{self, WayBack},
    },
    telling::no_step_manager,
    waiting::terminal,
};
use garrick_asking::{
    cluster::{ANSWER_TIMEOUT, Cluster, ClusterError},
    manager::Way,
    runs,
    search::{Search, Until},
    signals::{STEERING, Signals},
};
use garrick_frame::DoorClient;
use garrick_model::{
    env_vars, hostlist,
    ids::{ArrayTask, JobId},
    node_sizes::NodeSizes,
    refusal::Refusal,
    spec::{CpuBind, Distribution, JobKind, NodeCount, StepSpec},
    spec_text::counts_per_node,
    view::JobView,
};
use nix::sys::signal::Signal;
use std::{
    env,
    ffi::OsString,
    io,
    os::unix::ffi::OsStrExt as _,
    time::{Duration, Instant},
};

/// Runs `srun`; `args` are without the program's name. Returns the exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    run(&args, light::begun()).unwrap_or_else(|code| code)
}

fn run(args: &[OsString], begun: Option<Begun>) -> Result<i32, i32> {
    let mut startup = Startup::begin(Command::Srun, args)?;
    if het_step::is_wanted(&startup) {
        return het_step::run(&startup, args);
    }
    let script = if startup.gave("batch") { script(&startup)? } else { None };
    let mut typed = startup.typed(script.as_ref().map_or(&[], |(_, lines)| lines))?;
    let console = &startup.console;
    let wrong = |error: OptionError| startup::tell_option(Command::Srun, console, &error);
    find_job(&mut typed, console)?;
    combinations::check(&typed, |option| startup.gave(option), startup.operands().len()).map_err(wrong)?;
    if let Some((which, of)) = &typed.again {
        let Some(Sourced { value: job, .. }) = typed.jobid else { return Err(no_job(console)) };
        return again::run(&typed, *which, of, Way::new(typed.conf.as_deref(), console, job), console);
    }
    if let Some(file) = &typed.graph {
        let Some(Sourced { value: job, .. }) = typed.jobid else {
            console.error("--graph hands steps to a job's step manager: sbatch --graph makes a job for them");
            return Err(startup::exit_code(1));
        };
        let submitter = submitter::look(Command::Srun, args, &typed, For::Step, None).map_err(wrong)?;
        return graph::run(&typed, file, submitter, Way::new(typed.conf.as_deref(), console, job), console);
    }
    if typed.from_file.is_some() {
        return many(&typed, console, args, &[]);
    }
    if startup.operands().is_empty() {
        console.fatal("No command given to execute.");
        return Err(startup::exit_code(1));
    }
    if !typed.each.is_empty() {
        return many(&typed, console, args, startup.operands());
    }
    if typed.dependencies.is_some() {
        console.warning("#SBATCH --dependency is about jobs and is left out; #SRUN --dependency is about steps");
    }
    let mut work = work(&mut typed, startup.operands(), script.map(|(script, _)| script), console)?;
    match typed.jobid {
        Some(Sourced { value: job, .. }) => {
            let submitter = submitter::look(Command::Srun, args, &typed, For::Step, None).map_err(wrong)?;
            resolve(&mut work, &submitter);
            if typed.asynchronous || typed.batch {
                one::run(&typed, submitter, work, Way::new(typed.conf.as_deref(), console, job), console)
            } else {
                inside(&typed, &startup, job, submitter, work, begun)
            }
        }
        None if typed.asynchronous || typed.batch => Err(no_job(console)),
        None => alone(&typed, &startup, args, work),
    }
}

/// The job that is named by one of its runs, or as a component of the heterogeneous job around this process.
fn find_job(typed: &mut Typed, console: &Console) -> Result<(), i32> {
    if let Some(Sourced { value: name, source }) = typed.job_named.take() {
        let job = runs::named(typed.conf.as_deref(), console, &name).map_err(|error| {
            match name.run {
                None => no_step_manager(console, name.job, &error),
                Some(run) => {
                    error.details().iter().for_each(|line| console.error(line));
                    console.error(format_args!("Unable to confirm allocation for job {run}: {error}"));
                }
            }
            startup::exit_code(1)
        })?;
        typed.jobid = Some(Sourced { value: job, source });
    }
    if let Some(group) = &typed.het_group {
        let job = het_step::single(group).map_err(|error| {
            console.error(error);
            startup::exit_code(1)
        })?;
        typed.het_leader = het::component(0, |name| env::var(name).ok()).ok();
        typed.jobid = Some(Sourced { value: job, source: Source::CommandLine });
    }
    Ok(())
}

/// The script of `--batch`, and the options in it. `None`: no script was named.
fn script(startup: &Startup) -> Result<Option<(BatchScript, Vec<ScriptLine>)>, i32> {
    let Some(file) = startup.operands().first() else { return Ok(None) };
    let console = &startup.console;
    let script = batch_script::from_file(file).map_err(|error| {
        error.to_string().lines().for_each(|line| console.error(line));
        startup::exit_code(1)
    })?;
    let head = script_lines::read(&script.text, script_lines::OF_SRUN).map_err(|error| {
        console.error(&error);
        startup::exit_code(255)
    })?;
    if !head.others.is_empty() {
        return Err(het::not_yet(console, "#SBATCH hetjob in the script of a step"));
    }
    Ok(Some((script, head.lines)))
}

fn no_job(console: &Console) -> i32 {
    console.error("--async and --batch hand a step to a job's step manager: they need a job (--jobid, SLURM_JOB_ID)");
    startup::exit_code(1)
}

/// A step for every line of a file, or for every combination of values in a command.
fn many(typed: &Typed, console: &Console, args: &[OsString], command: &[OsString]) -> Result<i32, i32> {
    let Some(Sourced { value: job, .. }) = typed.jobid else { return Err(no_job(console)) };
    let submitter = submitter::look(Command::Srun, args, typed, For::Step, None)
        .map_err(|error| startup::tell_option(Command::Srun, console, &error))?;
    let way = Way::new(typed.conf.as_deref(), console, job);
    let mut work = StepWork { argv: command.to_vec(), ..StepWork::default() };
    resolve(&mut work, &submitter);
    list::run(ListRequest { typed, submitter, command: &work.argv, graph: None, way, console })
}

/// What is to run.
pub(super) fn work(
    typed: &mut Typed,
    operands: &[OsString],
    script: Option<BatchScript>,
    console: &Console,
) -> Result<StepWork, i32> {
    let program = operands[0].clone();
    if let Some(script) = script {
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
        text.lines().for_each(|line| console.error(line));
        startup::exit_code(1)
    };
    let shown = program.to_string_lossy().into_owned();
    let text = std::fs::read_to_string(&program)
        .map_err(|_| failed(format!("Could not open multi_prog config file {shown}")))?;
    let invalid = |e: multi_prog::MultiProgError| failed(e.lines(&shown).join("\n"));
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
pub(super) fn resolve(work: &mut StepWork, submitter: &Submitter) {
    let Some(name) = work.argv.first().filter(|_| work.script.is_none()).cloned() else { return };
    if name.as_bytes().contains(&b'/') {
        return;
    }
    let travels = submitter.environment.iter().any(|entry| entry.starts_with(b"PATH="));
    match in_path(&name) {
        Some(_) if travels => {}
        Some(file) => work.argv[0] = file.into_os_string(),
        None => {
            let here = submitter.work_dir.join(&name);
            if is_program(&here) {
                work.argv[0] = here.into_os_string();
            }
        }
    }
}

/// A step of a job that exists.
fn inside(
    typed: &Typed,
    startup: &Startup,
    job: JobId,
    submitter: Submitter,
    work: StepWork,
    begun: Option<Begun>,
) -> Result<i32, i32> {
    let console = &startup.console;
    let mut typed = typed.clone();
    scripts::of_site(&mut typed, &scripts::of_surrounding_job());
    let typed = &typed;
    let around = env::var("SLURM_JOB_NUM_NODES").ok().and_then(|count| count.parse::<u32>().ok());
    if let (Some(asked), Some(has)) = (typed.nodes.filter(|nodes| nodes.source != Source::Environment), around)
        && typed.jobid.is_some_and(|job| job.source == Source::Environment)
        && asked.value.min > has
    {
        console.error(format_args!("Only allocated {has} nodes asked for {}", asked.value.min));
        return Err(startup::exit_code(1));
    }
    let variables = [env_vars::SLURM_JOB_NODELIST, "SLURM_JOB_CPUS_PER_NODE"].map(|name| env::var(name).ok());
    if let ([Some(nodes), Some(counts)], false) = (&variables, typed.verbose == 0) {
        tell_allocation(console, job, nodes, counts);
    }
    let signals = block_signals(typed, console)?;
    let way = Way::new(typed.conf.as_deref(), console, job);
    let Some((door, request)) = begun.map(Begun::go_on) else {
        let (spec, plan) = attended_spec(typed, console, submitter, work)?;
        return converse(typed, startup, way, spec, &plan, &signals);
    };
    // What there was to say of the options was said.
    let (Checked { spec, .. }, plan) = attended(typed, console, submitter, work)?;
    let launch = Launch::again(request, spec, stream_plan::handed(typed, &plan, terminal::is_terminal));
    let search = Search::new(way, console);
    let asked = AskedFor { launch, door, search, deadline: None, begun: true, sent_program: None };
    Ok(stay(typed, startup, asked, &plan, &signals))
}

/// What of a step's options is about the job that is made for it. Its files are its own affair.
pub(super) fn of_job(typed: &Typed) -> Result<Typed, OptionError> {
    let dependencies = typed.dependency.as_ref().map(|text| values::dependencies(&text.value));
    let dependencies = dependencies.map(|d| d.ok_or(OptionError::Refused(Refusal::Dependency))).transpose()?;
    Ok(Typed { input: None, output: None, error: None, dependencies, ..typed.clone() })
}

/// That job, for a step of that program.
pub(super) fn allocation_for(program: &OsString, argv: &[OsString]) -> Work {
    let named = env::var("SLURM_JOB_NAME").ok().filter(|name| !name.is_empty());
    Work {
        kind: JobKind::Allocation,
        default_name: named.unwrap_or_else(|| base_name(program)),
        argv: argv.to_vec(),
        script: None,
        command: Some(program.to_string_lossy().into_owned()),
    }
}

/// An allocation for one step.
fn alone(typed: &Typed, startup: &Startup, args: &[OsString], mut work: StepWork) -> Result<i32, i32> {
    let console = &startup.console;
    let wrong = |error: OptionError| startup::tell_option(Command::Srun, console, &error);
    let cluster = startup.cluster(typed)?;
    if typed.relative.is_some() {
        console.fatal("--relative option invalid for job allocation request");
        return Err(startup::exit_code(1));
    }
    let listed = typed.nodelist.is_some() || typed.hostfile.is_some();
    if typed.distribution == Some(Distribution::Arbitrary) && !listed && typed.nodes.is_some() {
        console.error("--nodes is incompatible with --distribution=arbitrary");
        return Err(startup::exit_code(1));
    }
    startup::tell_ignored(typed, &cluster, console);
    let submitter = submitter::look(Command::Srun, args, typed, For::Job, Some(cluster.config())).map_err(wrong)?;
    resolve(&mut work, &submitter);
    let job_work = allocation_for(&work.program, &work.argv);
    let of_job = of_job(typed).map_err(wrong)?;
    let Checked { spec, warnings } = job_spec::build(&of_job, submitter.clone(), job_work).map_err(wrong)?;
    if typed.test_only {
        return Ok(sbatch::test_only(Command::Srun, &cluster, console, vec![spec]));
    }
    warnings.iter().for_each(|line| console.warning(line));
    let signals = block_signals(typed, console)?;
    let (job, said) =
        sbatch::submit(&cluster, console, spec).map_err(|e| startup::tell_cluster(Command::Srun, console, &e))?;
    said.iter().for_each(|line| console.info(line));
    console.verbose(format_args!("JobId={job} returned by the controller"));
    let view = allocation_wait::allocated(&cluster, console, job, typed, &signals)?;
    let nodes = hostlist::fold(allocation::nodes(&view));
    console.verbose(format_args!("Nodes {nodes} are ready for job"));
    let cpus = view.allocation.iter().flat_map(|a| &a.nodes).map(|node| node.share.cpus.len());
    tell_allocation(console, job, &nodes, &counts_per_node(cpus));
    let mut typed = fitted(typed, &view);
    scripts::of_site(&mut typed, &cluster.config().of_srun());
    let code =
        in_own_allocation(&cluster, startup, &typed, &view, submitter, work, &signals).unwrap_or_else(|code| code);
    allocation_wait::finish(&cluster, console, job, code);
    Ok(code)
}

/// The step takes what its allocation has: what was asked for has been decided.
pub(super) fn fitted(typed: &Typed, view: &JobView) -> Typed {
    let count = u32::try_from(allocation::nodes(view).len()).unwrap_or(u32::MAX);
    let given = |value| Some(Sourced { value, source: Source::CommandLine });
    Typed {
        nodes: Some(Sourced { value: NodeCount { min: count, max: Some(count) }, source: Source::CommandLine }),
        node_sizes: NodeSizes::default(),
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

/// With `-v`: what there is for the step. `counts` is of the form of `SLURM_JOB_CPUS_PER_NODE`.
fn tell_allocation(console: &Console, job: JobId, nodes: &str, counts: &str) {
    let count = hostlist::expand(nodes).map_or(0, |names| names.len());
    let counted = |part: &str| if part.contains('(') { part.to_owned() } else { format!("{part}(x1)") };
    let counts = counts.split(',').map(counted).collect::<Vec<_>>().join(",");
    console.verbose(format_args!("jobid {job}: nodes({count}):`{nodes}', cpu counts: {counts}"));
}

/// The words of `srun -v` for what tasks are bound to.
const fn cpu_bind_type(bind: &CpuBind) -> &'static str {
    match bind {
        CpuBind::Default => "(null type)",
        CpuBind::None => "none",
        CpuBind::Cores => "cores",
        CpuBind::Threads => "threads",
        CpuBind::Sockets => "sockets",
        CpuBind::Map(_) => "map_cpu",
    }
}

fn in_own_allocation(
    cluster: &Cluster,
    startup: &Startup,
    typed: &Typed,
    view: &JobView,
    submitter: Submitter,
    work: StepWork,
    signals: &Signals,
) -> Result<i32, i32> {
    let console = &startup.console;
    let (spec, plan) = attended_spec(typed, console, submitter, work)?;
    converse(typed, startup, Way::in_cluster(cluster, console, view.id), spec, &plan, signals)
}

pub(super) fn block_signals(typed: &Typed, console: &Console) -> Result<Signals, i32> {
    let mut signals = STEERING.to_vec();
    signals.push(Signal::SIGWINCH);
    Signals::block_but(&signals, &typed.ignored_signals).map_err(|error| {
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
    let (Checked { spec, warnings }, plan) = attended(typed, console, submitter, work)?;
    warnings.iter().for_each(|line| console.warning(line));
    Ok((spec, plan))
}

fn attended(
    typed: &Typed,
    console: &Console,
    submitter: Submitter,
    work: StepWork,
) -> Result<(Checked<StepSpec>, StreamPlan), i32> {
    let plan = stream_plan::attended(typed, &submitter.work_dir);
    let pty = typed.pty.then(|| {
        terminal::size(io::stdin()).or_else(|| terminal::size(io::stdout())).unwrap_or(terminal::DEFAULT_SIZE)
    });
    let checked = step_spec::build(typed, submitter, work, plan.targets.clone(), pty)
        .map_err(|error| startup::tell_option(Command::Srun, console, &error))?;
    Ok((checked, plan))
}

/// Launches and stays to the end. Returns the exit code.
fn converse(
    typed: &Typed,
    startup: &Startup,
    way: Way,
    mut spec: StepSpec,
    plan: &StreamPlan,
    signals: &Signals,
) -> Result<i32, i32> {
    let console = &startup.console;
    let (job, argv) = (way.job(), spec.argv.clone());
    let around = scripts::Around { job, argv: &argv };
    scripts::prolog(typed, &around, console)?;
    console.verbose(format_args!("CpuBindType={}", cpu_bind_type(&typed.cpu_bind)));
    let deadline = typed.immediate_secs.map(|secs| Instant::now() + Duration::from_secs(u64::from(secs)));
    let mut search = Search::new(way.clone(), console);
    let mut door =
        search.begin(Until { signals: Some(signals), deadline }).map_err(|no_way| no_step(console, job, no_way))?;
    let sent_program = SentProgram::prepare(typed, console, way, &mut door, &mut spec)?;
    let launch = Launch::new(spec, stream_plan::handed(typed, plan, terminal::is_terminal));
    match launch.send(&mut door) {
        Ok(()) => {}
        // The loop meets that connection's end, and goes back.
        Err(error) if way_back::is_worth_trying(&error) => {}
        Err(error) => {
            let error = ClusterError::Door(error);
            error.details().iter().for_each(|line| console.error(line));
            console.error(format_args!("Unable to create step for job {job}: {error}"));
            return Err(startup::exit_code(1));
        }
    }
    let code =
        stay(typed, startup, AskedFor { launch, door, search, deadline, begun: false, sent_program }, plan, signals);
    scripts::epilog(typed, &around, console);
    Ok(code)
}

/// A step that was asked for at a step manager's door.
struct AskedFor<'a> {
    launch: Launch,
    door: DoorClient,
    search: Search<'a>,
    deadline: Option<Instant>,
    /// By the light form, which stays only with tasks that write to its own files themselves.
    begun: bool,
    /// What is sent to its nodes first.
    sent_program: Option<SentProgram<'a>>,
}

/// Stays to the end. Returns the exit code.
fn stay(typed: &Typed, startup: &Startup, asked: AskedFor<'_>, plan: &StreamPlan, signals: &Signals) -> i32 {
    let console = &startup.console;
    let AskedFor { launch, door, search, deadline, begun, sent_program } = asked;
    let (job, names) = (search.job(), pattern_names(plan, launch.name()));
    let immediate = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    let behaviour = Behaviour { immediate, may_relay: !begun, ..behaviour(typed, job, plan) };
    // Its number was reserved over this very connection: there is no way back to it.
    let way_back = sent_program.is_none().then(|| WayBack::new(search, launch));
    let managers = Managers { way_back, sent_program, ..Managers::one(door) };
    let all = StepLoop::new(managers, behaviour, plan, typed.open_mode, &names, signals, console)
        .telling_filters(startup, job);
    if begun { all.hearing_first(ANSWER_TIMEOUT).run() } else { all.run() }
}

/// What patterns of `srun`'s own files may name.
pub(super) fn pattern_names(plan: &StreamPlan, step_name: &str) -> PatternNames {
    // Looking a user up reads files; most steps name none.
    let mut named = [plan.output.pattern(), plan.error.pattern(), plan.input.pattern()].into_iter().flatten();
    PatternNames {
        user: if named.any(|pattern| pattern.contains('u')) { submitter::user_name() } else { String::new() },
        job_name: env::var("SLURM_JOB_NAME").unwrap_or_else(|_| step_name.to_owned()),
        array_task: array_task(),
    }
}

/// How it was asked to behave.
pub(super) fn behaviour(typed: &Typed, job: JobId, plan: &StreamPlan) -> Behaviour {
    Behaviour {
        job,
        own_job: typed.jobid.is_none(),
        label: typed.label,
        unbuffered: typed.unbuffered,
        output: plan.output.clone(),
        error: plan.error.clone(),
        relays_input: plan.input != Input::None,
        pty: typed.pty,
        disable_status: typed.disable_status,
        quit_on_interrupt: typed.quit_on_interrupt,
        kill_on_bad_exit: typed.kill_on_bad_exit.unwrap_or(false),
        may_relay: true,
        immediate: None,
    }
}

fn array_task() -> Option<ArrayTask> {
    let number = |name: &str| env::var(name).ok()?.parse().ok();
    Some(ArrayTask { array_job: JobId(number("SLURM_ARRAY_JOB_ID")?), index: number("SLURM_ARRAY_TASK_ID")? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::state::JobState;
    use std::{os::unix::fs::PermissionsExt as _, path::Path};

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
        let view = garrick_render::testing::job_view(7, JobState::Running);
        let fitted = fitted(&Typed { nodelist: Some("n1".to_owned()), ..Typed::default() }, &view);
        assert_eq!(fitted.nodes.unwrap().value, NodeCount { min: 2, max: Some(2) });
        assert_eq!((fitted.ntasks.unwrap().value, fitted.nodelist), (3, None));
    }
}
