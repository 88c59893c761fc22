//! `srun` for a step over several components of a heterogeneous job: `--het-group=0,1`, `srun A : B`, and with a job of its own
//! if it is not inside one. Options for the command as a whole (its streams, `-l`, `-K`, `-W`, ...) are given for the first
//! component.

use crate::{
    options::{
        export::For,
        job_spec::{Checked, Submitter},
        step_spec,
        stream_plan::{self, StreamPlan},
        table::Command,
        typed::{OptionError, Typed},
    },
    output::Console,
    submit::{
        allocation_wait, het,
        job_variables::{self, Surroundings},
        no_step::no_step,
        parts::{Parts, common_number},
        sbatch,
        srun::{self, scripts},
        startup::{self, Startup},
        step_loop::{Managers, StepLoop},
        submitter,
    },
};
use garrick_asking::{
    cluster::{Answer, Cluster, ClusterError},
    manager::Way,
    search::{Search, Until},
    signals::Signals,
};
use garrick_frame::DoorClient;
use garrick_model::{
    ids::{JobId, StepId},
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    refusal::Refusal,
    spec::{OpenMode, StepSpec},
    view::JobView,
};
use serde_bytes::ByteBuf;
use std::{env, ffi::OsString, path::Path, sync::Arc};

/// How often a number is looked for that is free in all components, while other commands take numbers too.
const NUMBER_ATTEMPTS: u32 = 100;

/// A component with a part of the step.
struct Component {
    job: JobId,
    typed: Typed,
    operands: Vec<OsString>,
}

/// Are several components named?
pub fn is_wanted(startup: &Startup) -> bool {
    let named = startup.value_of(0, "het-group").and_then(|text| text.to_str());
    startup.other_components() > 0 || named.is_some_and(|text| het::groups(text).is_ok_and(|groups| groups.len() > 1))
}

/// The job of the one component that `--het-group` names.
pub fn single(text: &str) -> Result<JobId, String> {
    match het::groups(text)?.as_slice() {
        [offset] => het::component(*offset, |name| env::var(name).ok()),
        _ => Err(format!("Invalid --het-group specification: {text}")),
    }
}

/// Runs it. Returns the exit code.
pub fn run(startup: &Startup, args: &[OsString]) -> Result<i32, i32> {
    let first = startup.typed_in(0, 0)?;
    let console = &startup.console;
    let failed = |text: String| {
        console.error(text);
        startup::exit_code(1)
    };
    let unsupported = [
        ("--pty", first.pty),
        ("--mpi", first.mpi.is_some_and(|mpi| !mpi.is_none())),
        ("--bcast", first.bcast.is_wanted()),
        ("--multi-prog", first.multi_prog),
        ("--async", first.asynchronous),
        ("--batch", first.batch),
        ("--from-file", first.from_file.is_some()),
        ("--each", !first.each.is_empty()),
    ];
    if let Some((option, _)) = unsupported.into_iter().find(|(_, given)| *given) {
        return Err(het::not_yet(console, &format!("{option} for a step over several components")));
    }
    if startup.operands_of(0).is_empty() {
        console.fatal("No command given to execute.");
        return Err(startup::exit_code(1));
    }
    let Some(around) = first.jobid.map(|job| job.value) else {
        if startup.other_components() > 0 {
            return alone(startup, args, &first);
        }
        return Err(failed(none_around(startup)));
    };
    if env::var_os("SLURM_HET_SIZE").is_none() {
        let what = "A heterogeneous step (srun A : B) in a job that is not heterogeneous";
        return Err(het::not_yet(console, what));
    }
    let components = components_around(startup, around).map_err(|error| match error {
        Wrong::Said(code) => code,
        Wrong::Text(text) => failed(text),
    })?;
    let submitter = submitter::look(Command::Srun, args, &first, For::Step, None)
        .map_err(|error| startup::tell_option(Command::Srun, console, &error))?;
    let signals = srun::block_signals(&first, console)?;
    let way_to = |job| Way::new(first.conf.as_deref(), console, job);
    step(startup, around, &first, components, &submitter, &way_to, &signals)
}

/// Components of a job that is not there were named.
fn none_around(startup: &Startup) -> String {
    let text = startup.value_of(0, "het-group").and_then(|text| text.to_str()).unwrap_or_default();
    het::groups(text).map_or_else(
        |wrong| wrong,
        |groups| {
            let within = env::var_os("SLURM_HET_SIZE").is_some();
            het::no_component(groups.first().copied().unwrap_or_default(), within)
        },
    )
}

enum Wrong {
    Said(i32),
    Text(String),
}

impl From<String> for Wrong {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The components that are named, in their order: the n-th of the command line is the n-th of the job, unless it says which.
fn components_around(startup: &Startup, leader: JobId) -> Result<Vec<Component>, Wrong> {
    let variable = |name: &str| env::var(name).ok();
    if het::component(0, variable)? != leader {
        return Err(format!("--jobid: job {leader} is not the heterogeneous job around").into());
    }
    let mut placed: Vec<(u32, usize)> = Vec::new();
    for at in 0..=startup.other_components() {
        let named = match startup.value_of(at, "het-group").and_then(|text| text.to_str()) {
            Some(text) => het::groups(text)?,
            None => vec![at as u32],
        };
        placed.extend(named.into_iter().map(|group| (group, at)));
    }
    placed.sort_unstable();
    if let Some(twice) = placed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let group = twice[0].0;
        return Err(format!("--het-group: component {group} is named twice; a step has one part in a component").into());
    }
    let mut components = Vec::new();
    for (group, at) in placed {
        let job = het::component(group, variable)?;
        let typed = startup.typed_in(at, group).map_err(Wrong::Said)?;
        components.push(Component { job, typed, operands: startup.operands_of(at).to_vec() });
    }
    Ok(components)
}

/// What is about the step as a whole was said for the first component.
fn of_whole_step(own: Typed, first: &Typed) -> Typed {
    let mode = if own.open_mode == OpenMode::Default { first.open_mode } else { own.open_mode };
    Typed {
        kill_on_bad_exit: own.kill_on_bad_exit.or(first.kill_on_bad_exit),
        wait_secs: own.wait_secs.or(first.wait_secs),
        time_limit: own.time_limit.or(first.time_limit),
        immediate_secs: own.immediate_secs.or(first.immediate_secs),
        chdir: own.chdir.clone().or_else(|| first.chdir.clone()),
        job_name: own.job_name.clone().or_else(|| first.job_name.clone()),
        verbose: first.verbose,
        // As srun(1) has it for these steps: parts that share a file do not cut each other off.
        open_mode: if mode == OpenMode::Default { OpenMode::Append } else { mode },
        ..own
    }
}

/// Runs the step and stays to the end.
fn step(
    startup: &Startup,
    leader: JobId,
    first: &Typed,
    components: Vec<Component>,
    submitter: &Submitter,
    way_to: &dyn Fn(JobId) -> Way,
    signals: &Signals,
) -> Result<i32, i32> {
    let console = &startup.console;
    let mut whole = of_whole_step(first.clone(), first);
    scripts::of_site(&mut whole, &scripts::of_surrounding_job());
    let plan = stream_plan::attended(first, &submitter.work_dir);
    let mut specs = Vec::new();
    for component in components {
        let job = component.job;
        specs.push((job, spec_of(console, component, first, submitter, &plan)?));
    }
    let jobs: Vec<JobId> = specs.iter().map(|(job, _)| *job).collect();
    let argv = specs.first().map(|(_, spec)| spec.argv.clone()).unwrap_or_default();
    let around = scripts::Around { job: leader, argv: &argv };
    scripts::prolog(&whole, &around, console)?;
    let mut doors = Vec::new();
    for job in &jobs {
        let found = Search::new(way_to(*job), console).begin(Until { signals: Some(signals), deadline: None });
        doors.push(found.map_err(|no_way| no_step(console, *job, no_way))?);
    }
    agree_on_number(&mut doors, &jobs).map_err(|(job, error)| {
        error.details().iter().for_each(|line| console.error(line));
        console.error(format_args!("Unable to create step for job {job}: {error}"));
        startup::exit_code(1)
    })?;
    let name = specs.first().map(|(_, spec)| spec.name.clone()).unwrap_or_default();
    let behaviour = srun::behaviour(&whole, jobs.first().copied().unwrap_or(leader), &plan);
    let names = srun::pattern_names(&plan, &name);
    let managers = Managers { doors, parts: Some(Parts::new(leader, specs)), way_back: None, sent_program: None };
    let all = StepLoop::new(managers, behaviour, &plan, whole.open_mode, &names, signals, console);
    let code = all.telling_filters(startup, leader).run();
    scripts::epilog(&whole, &around, console);
    Ok(code)
}

fn spec_of(
    console: &Console,
    component: Component,
    first: &Typed,
    submitter: &Submitter,
    plan: &StreamPlan,
) -> Result<StepSpec, i32> {
    let mut typed = of_whole_step(component.typed, first);
    let mut work = srun::work(&mut typed, &component.operands, None, console)?;
    srun::resolve(&mut work, submitter);
    let Checked { spec, warnings } = step_spec::build(&typed, submitter.clone(), work, plan.targets.clone(), None)
        .map_err(|error| startup::tell_option(Command::Srun, console, &error))?;
    warnings.iter().for_each(|line| console.warning(line));
    Ok(spec)
}

/// All parts of a step have the same number: the lowest that is free in all their jobs.
fn agree_on_number(doors: &mut [DoorClient], jobs: &[JobId]) -> Result<(), (JobId, ClusterError)> {
    let mut reserved: Vec<StepId> = Vec::new();
    for (door, job) in doors.iter_mut().zip(jobs) {
        reserved.push(reserve(door, 0).map_err(|error| (*job, error))?);
    }
    for _ in 0..NUMBER_ATTEMPTS {
        let Some(Err(highest)) = common_number(&reserved) else { return Ok(()) };
        for ((door, job), step) in doors.iter_mut().zip(jobs).zip(&mut reserved) {
            if step.key().step.number() != Some(highest) {
                *step = reserve(door, highest).map_err(|error| (*job, error))?;
            }
        }
    }
    let job = jobs.first().copied().unwrap_or(JobId(0));
    Err((job, Refusal::Internal("other commands take step numbers faster than this one".to_owned()).into()))
}

fn reserve(door: &mut DoorClient, at_least: u32) -> Answer<StepId> {
    door.send(&CommandToStepMgr::ReserveStep { at_least })?;
    match door.recv()? {
        StepMgrToCommand::Reserved { step } => Ok(step),
        StepMgrToCommand::Refused(refusal) => Err(refusal.into()),
        _ => Err(ClusterError::Unexpected("asked for the number of a step")),
    }
}

/// A heterogeneous job for one step.
fn alone(startup: &Startup, args: &[OsString], first: &Typed) -> Result<i32, i32> {
    let console = &startup.console;
    let wrong = |error: OptionError| startup::tell_option(Command::Srun, console, &error);
    let cluster = startup.cluster(first)?;
    let submitter = submitter::look(Command::Srun, args, first, For::Job, Some(cluster.config())).map_err(wrong)?;
    let operands = startup.operands_of(0);
    let work = srun::allocation_for(&operands[0], operands);
    let of_job = srun::of_job(first).map_err(wrong)?;
    let specs = het::specs(startup, &of_job, &[], submitter.clone(), work)?;
    if first.test_only {
        return Ok(sbatch::test_only(Command::Srun, &cluster, console, specs));
    }
    let signals = srun::block_signals(first, console)?;
    let job = het::submit(startup, &cluster, specs)?;
    allocation_wait::allocated(&cluster, console, job, first, &signals)?;
    let code = in_own_job(startup, &cluster, first, job, submitter, &signals).unwrap_or_else(|code| code);
    allocation_wait::finish(&cluster, console, job, code);
    Ok(code)
}

fn in_own_job(
    startup: &Startup,
    cluster: &Cluster,
    first: &Typed,
    leader: JobId,
    mut submitter: Submitter,
    signals: &Signals,
) -> Result<i32, i32> {
    let console = &startup.console;
    let views =
        het::views(cluster, console, leader).map_err(|error| startup::tell_cluster(Command::Srun, console, &error))?;
    submitter.environment.extend(of_components(cluster, &views, &submitter.work_dir, &submitter.host));
    let mut components = Vec::new();
    for (at, view) in views.iter().enumerate() {
        let typed = if at == 0 { first.clone() } else { startup.typed_other(at - 1, &[])? };
        let operands = startup.operands_of(at).to_vec();
        components.push(Component { job: view.id, typed: srun::fitted(&typed, view), operands });
    }
    let way_to = |job| Way::in_cluster(cluster, console, job);
    let first = views.first().map_or_else(|| first.clone(), |view| srun::fitted(first, view));
    step(startup, leader, &first, components, &submitter, &way_to, signals)
}

/// Variables about the components, for the tasks of all.
fn of_components(cluster: &Cluster, views: &[Arc<JobView>], work_dir: &Path, host: &str) -> Vec<ByteBuf> {
    let around = Surroundings {
        cluster: cluster.name(),
        conf: cluster.conf(),
        work_dir,
        host,
        manager: None,
        manager_is_here: false,
    };
    let entry = |(name, value): (std::borrow::Cow<'static, str>, String)| ByteBuf::from(format!("{name}={value}"));
    job_variables::of_components(views, &around).into_iter().map(entry).collect()
}
