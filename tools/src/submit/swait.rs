//! `swait`: blocks until a job's step manager has nothing queued and nothing running, or until named steps are over. It asks
//! once, and the step manager sends the answer when that is so.

use super::{
    no_step::tell_refusal,
    startup::{self, Startup},
};
use crate::{
    options::{table::Command, typed::Typed},
    output::Console,
    query::choices,
    telling::no_step_manager,
    waiting::wait_bar::{Standing, WaitBar},
};
use garrick_asking::{
    cluster::{Cluster, ClusterError},
    ended_steps,
    manager::{Around, Way},
    patience,
    search::{NoWay, Search, Until},
    signals::Signals,
};
use garrick_frame::{DoorClient, DoorError};
use garrick_model::{
    env_vars,
    ids::{ArrayTask, JobId, Sluid},
    messages::{
        command::{CommandReply, CommandRequest, JobSelector},
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    refusal::Refusal,
    state::{ExitStatus, StepState},
    step_selector::WhichSteps,
    view::{JobView, StepView},
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use std::{env, ffi::OsString, io, os::fd::AsFd as _, sync::Arc, time::Instant};

/// Least time between two messages about how far it is, in milliseconds: as often as a person reads.
const PROGRESS_MS: u32 = 200;

/// A job as it was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Job(JobId),
    Task(ArrayTask),
    Run(Sluid),
}

/// What is waited for, as it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    /// One or more.
    jobs: Vec<Named>,
    /// Only these steps, of the one job; empty: all.
    steps: Vec<WhichSteps>,
}

/// Steps of a job that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    job: JobId,
    steps: Vec<WhichSteps>,
}

/// The exit code of wrong use, and where nobody can say that nothing is left: the run ended or was given up before its step manager
/// said so, the job does not run yet, the job or step is not there, or nobody answers. Not 1, which says that the time is up.
const NOT_KNOWN: i32 = 2;

/// Runs `swait`; `args` are without the program's name. Returns the exit code: 0 when nothing is left, 1 when the time is up,
/// [`NOT_KNOWN`]; with `--exit-status` that of the worst step.
pub fn main(args: Vec<OsString>) -> i32 {
    run(&args).unwrap_or_else(|code| code)
}

fn run(args: &[OsString]) -> Result<i32, i32> {
    let mut startup = Startup::begin(Command::Swait, args)?;
    let mut typed = startup.typed(&[])?;
    let console = &startup.console;
    let said = |text: String| {
        console.error(text);
        startup::exit_code(NOT_KNOWN)
    };
    if typed.quiet && typed.verbose > 0 {
        return Err(said("--verbose (-v) and --quiet (-Q) are mutually exclusive".to_owned()));
    }
    // As in Slurm, no time at all is no limit.
    typed.timeout = typed.timeout.filter(|timeout| !timeout.is_zero());
    let wanted = wanted(startup.operands(), typed.steps.as_deref(), |name| env::var(name).ok()).map_err(said)?;
    if typed.any && wanted.jobs.len() > 1 {
        return Err(said("--any: name one job".to_owned()));
    }
    // Before any of them is waited for: what is wrong is said at once.
    let jobs: Vec<JobId> =
        wanted.jobs.iter().map(|named| there(*named, &typed, console).map_err(said)).collect::<Result<_, i32>>()?;
    let deadline = typed.timeout.map(|timeout| Instant::now() + timeout);
    let mut worst = 0;
    for job in jobs {
        let code = wait_for(&Target { job, steps: wanted.steps.clone() }, &typed, console, deadline)?;
        if code != 0 && !typed.exit_status {
            return Ok(code);
        }
        worst = worst.max(code);
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(worst.max(code));
        }
    }
    Ok(worst)
}

/// Waits until these steps of a job are over. Returns 0 then; another code where that is not known.
pub fn wait_for_end(job: JobId, steps: Vec<WhichSteps>, typed: &Typed, console: &Console) -> Result<i32, i32> {
    let typed = Typed { exit_status: false, any: false, ..typed.clone() };
    wait_for(&Target { job, steps }, &typed, console, None)
}

/// The exit code of the worst of these steps of a job, which are over.
pub fn worst_of_steps(job: JobId, steps: Vec<WhichSteps>, typed: &Typed, console: &Console) -> Result<i32, i32> {
    let typed = Typed { exit_status: true, any: false, ..typed.clone() };
    wait_for(&Target { job, steps }, &typed, console, None)
}

fn wait_for(target: &Target, typed: &Typed, console: &Console, deadline: Option<Instant>) -> Result<i32, i32> {
    let mut wait = Wait::new(target.job, typed, console, deadline);
    let mut search = Search::new(Way::new(typed.conf.as_deref(), console, target.job), console);
    let mut found = search.begin(wait.until());
    loop {
        let error = match found {
            Ok(door) => match wait.at(door, &target.steps, &mut search) {
                Waited::Over(code) => return Ok(code),
                Waited::Lost(error) => {
                    // What is said meanwhile is not to stand behind a bar.
                    wait.bar.iter().for_each(WaitBar::clear);
                    ClusterError::Door(error)
                }
            },
            Err(no_way) => return wait.ended(no_way, target),
        };
        // One that was killed comes back, with its queue.
        found = search.again(error, wait.until());
    }
}

/// The jobs that are named, or the one whose steps are, or the one around.
fn wanted(
    operands: &[OsString],
    steps: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Wanted, String> {
    let mut jobs: Vec<Named> = Vec::new();
    for operand in operands {
        for word in choices::outside_brackets(&operand.to_string_lossy()) {
            let job = named(word)?;
            if !jobs.contains(&job) {
                jobs.push(job);
            }
        }
    }
    let mut which = Vec::new();
    for word in choices::outside_brackets(steps.unwrap_or_default()) {
        let invalid = || format!("Invalid job step id: {word}");
        let Some((job, step)) = word.split_once('.') else {
            which.push(word.parse().map_err(|_| invalid())?);
            continue;
        };
        let of = named(job).map_err(|_| invalid())?;
        which.push(step.parse().map_err(|_| invalid())?);
        match jobs.as_slice() {
            [] => jobs.push(own_as(of, &variable)),
            [job] if *job == of || *job == own_as(of, &variable) => {}
            _ => return Err(format!("{word} is a step of another job: steps of one job can be waited for together")),
        }
    }
    if jobs.len() > 1 && !which.is_empty() {
        return Err("--step: name one job".to_owned());
    }
    if jobs.is_empty() {
        jobs.push(around(&variable)?);
    }
    Ok(Wanted { jobs, steps: which })
}

/// A word that is to name one job.
fn named(word: &str) -> Result<Named, String> {
    if word.contains('.') {
        return Err(format!("{word}: swait operates on a job, not a step"));
    }
    if word.contains('+') {
        return Err(format!("{word}: het-job offsets are not supported"));
    }
    if word.contains('_') && word.contains(['[', '*', '-']) {
        return Err(format!("{word}: array-task ranges are not supported, pass one task offset"));
    }
    let job = word.parse().map(Named::Job).or_else(|_| word.parse().map(Named::Task));
    job.or_else(|_| word.parse().map(Named::Run)).map_err(|_| format!("{word}: cannot parse job id"))
}

/// A task of a job array by its own id, where it is the one around: nobody has to be asked for that.
fn own_as(named: Named, variable: impl Fn(&str) -> Option<String>) -> Named {
    match (named, Around::read(variable)) {
        (Named::Task(task), Some(own)) if own.task == Some(task) => Named::Job(own.job),
        _ => named,
    }
}

/// The job around: by its run, as in Slurm, unless its step manager is named too and nobody has to be asked.
fn around(variable: &impl Fn(&str) -> Option<String>) -> Result<Named, String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let job = set(env_vars::SLURM_JOB_ID);
    let run = set(env_vars::SLURM_JOB_SLUID);
    let inside = set(env_vars::GARRICK_STEPD_DOOR).is_some() && job.is_some();
    let text = if inside { job } else { run.or(job) };
    named(&text.ok_or("no job id given and SLURM_JOB_SLUID/SLURM_JOB_ID are not set")?)
}

/// The job that is meant, where it runs or did. The one around has its step manager named: nobody is asked about it.
fn there(named: Named, typed: &Typed, console: &Console) -> Result<JobId, String> {
    let (name, selector) = match named {
        Named::Job(job) if Way::new(typed.conf.as_deref(), console, job).is_promised() => return Ok(job),
        Named::Job(job) => (format!("JobId={job}"), JobSelector::from(job)),
        Named::Task(task) => {
            let tasks = Some(vec![(task.index, task.index, 1)]);
            (format!("JobId={task}"), JobSelector { tasks, ..task.array_job.into() })
        }
        Named::Run(run) => (format!("SLUID={run}"), JobSelector::from(run)),
    };
    let ask = |selector: &JobSelector| {
        let request = CommandRequest::list_jobs(vec![selector.clone()]);
        match patience::ask(&Cluster::find(typed.conf.as_deref())?, console, &request)? {
            CommandReply::Jobs { jobs, .. } => Ok(jobs),
            _ => Err(ClusterError::Unexpected("asked for a job")),
        }
    };
    let unknown = |error: &ClusterError| matches!(error.refusal(), Some(Refusal::InvalidJobId));
    let jobs = match (ask(&selector), named) {
        (Ok(jobs), _) => jobs,
        (Err(error), Named::Task(task)) if unknown(&error) => {
            return Err(match ask(&task.array_job.into()) {
                Ok(jobs) if jobs.iter().all(|job| job.spec.array.is_none()) => {
                    format!("JobId={}: not an array job", task.array_job)
                }
                _ => format!("array task {task}: not found"),
            });
        }
        (Err(error), _) => return Err(format!("cannot load {name}: {error}")),
    };
    let meant = |job: &&Arc<JobView>| match named {
        Named::Job(id) => job.id == id,
        Named::Task(task) => job.array_task == Some(task) || job.array_pending.is_some(),
        Named::Run(run) => job.sluid == run,
    };
    match jobs.iter().find(meant) {
        Some(job) if job.state.waits() => {
            Err(format!("{name} is still pending; swait does not wait for jobs to start"))
        }
        Some(job) => Ok(job.id),
        None => Err(format!("cannot load {name}: {}", Refusal::InvalidJobId)),
    }
}

/// A job that is over has nothing left. How its steps ended, the controller knows.
fn already_over(typed: &Typed, console: &Console, wanted: &Target) -> Result<i32, i32> {
    if wanted.steps.is_empty() && !typed.exit_status {
        return Ok(0);
    }
    let failed = |error| {
        no_step_manager(console, wanted.job, &error);
        startup::exit_code(NOT_KNOWN)
    };
    let cluster = Cluster::find(typed.conf.as_deref()).map_err(failed)?;
    let request = CommandRequest::ListSteps { job: Some(wanted.job), ended: true };
    let mut steps = match cluster.ask(console.program(), &request).map_err(failed)? {
        CommandReply::Steps { steps, .. } => steps,
        _ => Vec::new(),
    };
    let jobs = match cluster.ask(console.program(), &CommandRequest::list_jobs(vec![wanted.job.into()])) {
        Ok(CommandReply::Jobs { jobs, .. }) => jobs,
        _ => Vec::new(),
    };
    if let Some(missing) = ended_steps::complete(&cluster, console, &mut steps, jobs.iter()).first() {
        console.error(format_args!("not all steps that are over are known: {missing}"));
        return Err(startup::exit_code(NOT_KNOWN));
    }
    let worst = worst_of(&steps, wanted).map_err(|unknown| {
        console.error(unknown);
        startup::exit_code(NOT_KNOWN)
    })?;
    Ok(if typed.exit_status { worst.shell_code() } else { 0 })
}

/// The worst exit of the steps that are wanted; the error names one that there was not.
fn worst_of(steps: &[StepView], wanted: &Target) -> Result<ExitStatus, Refusal> {
    let numbered = |s: &&StepView| s.id.step.number().is_some();
    let of = |step: &StepView| step.waiting.clone().unwrap_or_else(|| WhichSteps::one(step.id.key()));
    for which in &wanted.steps {
        if !steps.iter().any(|step| of(step).and(which).is_some()) {
            return Err(Refusal::InvalidStep(format!("{}.{which}", wanted.job)));
        }
    }
    let meant =
        |s: &&StepView| wanted.steps.is_empty() && numbered(s) || wanted.steps.iter().any(|w| of(s).and(w).is_some());
    let exit = |s: &StepView| match s.state {
        StepState::Completed => ExitStatus::SUCCESS,
        // As its step manager counts: whatever signal ended its tasks.
        StepState::Cancelled => ExitStatus { code: 1, signal: None },
        // What never ran has no exit status of its own.
        _ if s.exit == ExitStatus::SUCCESS => ExitStatus { code: 1, signal: None },
        _ => s.exit,
    };
    Ok(steps.iter().filter(meant).map(exit).max_by_key(|e| e.shell_code()).unwrap_or(ExitStatus::SUCCESS))
}

/// What waiting at a door came to.
enum Waited {
    /// Over, with this exit code.
    Over(i32),
    /// The connection broke.
    Lost(DoorError),
}

/// A wait, which may outlive a connection.
struct Wait<'a> {
    typed: &'a Typed,
    console: &'a Console,
    bar: Option<WaitBar>,
    signals: Option<Signals>,
    deadline: Option<Instant>,
}

impl<'a> Wait<'a> {
    fn new(job: JobId, typed: &'a Typed, console: &'a Console, deadline: Option<Instant>) -> Self {
        let shows_progress = !typed.quiet && nix::unistd::isatty(io::stderr()).unwrap_or(false);
        Self {
            typed,
            console,
            bar: shows_progress.then(|| WaitBar::new(job)),
            // A bar is to be gone before the prompt comes back.
            signals: if shows_progress { Signals::block(&[Signal::SIGINT, Signal::SIGTERM]).ok() } else { None },
            deadline,
        }
    }

    /// What ends it besides the step manager.
    fn until(&self) -> Until<'_> {
        Until { signals: self.signals.as_ref(), deadline: self.deadline }
    }

    fn at(&mut self, mut door: DoorClient, steps: &[WhichSteps], search: &mut Search<'_>) -> Waited {
        let progress_ms = if self.bar.is_some() { PROGRESS_MS } else { 0 };
        let (steps, any, groups) = (steps.to_vec(), self.typed.any, self.bar.is_some());
        let request = CommandToStepMgr::Wait { steps, any, progress_ms, groups, stay: false };
        if let Err(error) = door.send(&request) {
            return Waited::Lost(error);
        }
        loop {
            match door.try_next::<StepMgrToCommand>() {
                Ok(Some(message)) => {
                    search.heard();
                    if let Some(code) = self.take(message) {
                        return Waited::Over(code);
                    }
                    continue;
                }
                Ok(None) => {}
                Err(error) => return Waited::Lost(error),
            }
            let fd = PollFd::new(door.as_fd(), PollFlags::POLLIN);
            if let Some(code) = self.poll(fd) {
                return Waited::Over(code);
            }
        }
    }

    /// The step manager can no longer be reached.
    fn ended(mut self, no_way: NoWay, wanted: &Target) -> Result<i32, i32> {
        self.bar = None;
        let console = self.console;
        match no_way {
            NoWay::Failed(error) if matches!(error.refusal(), Some(Refusal::AlreadyDone)) => {
                return already_over(self.typed, console, wanted);
            }
            NoWay::Failed(error) => no_step_manager(console, wanted.job, &error),
            NoWay::Over(end) => console.error(format_args!("job {}: {end}", wanted.job)),
            NoWay::Interrupted(signal) => return Ok(128 + signal),
            NoWay::TimeUp => return Ok(self.late()),
        }
        Err(startup::exit_code(NOT_KNOWN))
    }

    fn late(&mut self) -> i32 {
        self.bar = None;
        let secs = self.typed.timeout.unwrap_or_default().as_secs_f64();
        self.console.error(format_args!("timed out after {secs} seconds"));
        1
    }

    fn show(&mut self, standing: &Standing) {
        if let Some(bar) = &mut self.bar {
            bar.show(standing);
        }
    }

    /// A message of the step manager; the exit code when it was the last.
    fn take(&mut self, message: StepMgrToCommand) -> Option<i32> {
        match message {
            StepMgrToCommand::Progress(counts) => {
                self.show(&counts.into());
                None
            }
            StepMgrToCommand::Groups { counts, groups, left_out, rest } => {
                self.show(&Standing { counts, groups, left_out, rest });
                None
            }
            StepMgrToCommand::Drained { worst, .. } => {
                Some(if self.typed.exit_status { worst.shell_code() } else { 0 })
            }
            StepMgrToCommand::Refused(refusal) => {
                self.bar = None;
                tell_refusal(self.console, &refusal);
                Some(startup::exit_code(NOT_KNOWN))
            }
            _ => None,
        }
    }

    /// Waits until the door has something; the exit code when a signal or the time ends it all.
    fn poll(&mut self, door: PollFd<'_>) -> Option<i32> {
        if let Some(signal) = self.signals.as_ref().and_then(Signals::next) {
            return Some(128 + signal);
        }
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Some(self.late());
        }
        let timeout = match left {
            None => PollTimeout::NONE,
            Some(left) => PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX),
        };
        let mut fds = vec![door];
        fds.extend(self.signals.as_ref().map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)));
        // Whatever woke it, the door and the time are looked at.
        let _ = poll(&mut fds, timeout);
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::ids::{StepId, StepKey, StepNum};
    use garrick_render::testing as views;

    fn asked(operands: &[&str], steps: Option<&str>, env: &[(&str, &str)]) -> Result<String, String> {
        let operands: Vec<OsString> = operands.iter().map(OsString::from).collect();
        let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let wanted = wanted(&operands, steps, variable)?;
        let jobs: Vec<String> = wanted
            .jobs
            .iter()
            .map(|named| match named {
                Named::Job(job) => job.to_string(),
                Named::Task(task) => task.to_string(),
                Named::Run(run) => run.to_string(),
            })
            .collect();
        let steps: Vec<String> = wanted.steps.iter().map(ToString::to_string).collect();
        Ok(format!("{}: {}", jobs.join(" "), steps.join(" ")))
    }

    #[test]
    fn the_jobs_are_named_or_around_or_that_of_the_steps() {
        let inside = [("SLURM_JOB_ID", "5")];
        assert_eq!(asked(&["7"], None, &inside).unwrap(), "7: ");
        assert_eq!(asked(&[], None, &inside).unwrap(), "5: ");
        assert_eq!(asked(&[], Some("7.3"), &inside).unwrap(), "7: 3");
        assert_eq!(asked(&["7", "9_0,8", "sbtsm83td4k700"], None, &[]).unwrap(), "7 9_0 8 sBTSM83TD4K700: ");
        let run = ("SLURM_JOB_SLUID", "sBTSM83TD4K700");
        assert_eq!(asked(&[], None, &[run, inside[0]]).unwrap(), "sBTSM83TD4K700: ");
        assert_eq!(asked(&[], None, &[run, inside[0], ("GARRICK_STEPD_DOOR", "/x.sock")]).unwrap(), "5: ");
    }

    #[test]
    fn what_names_no_job_is_refused_in_slurms_words() {
        for (word, said) in [
            ("abc", "abc: cannot parse job id"),
            ("0", "0: cannot parse job id"),
            ("s123", "s123: cannot parse job id"),
            ("794.0", "794.0: swait operates on a job, not a step"),
            ("796_[1-2]", "796_[1-2]: array-task ranges are not supported, pass one task offset"),
            ("797+1", "797+1: het-job offsets are not supported"),
        ] {
            assert_eq!(asked(&[word], None, &[]).unwrap_err(), said);
        }
        let none = "no job id given and SLURM_JOB_SLUID/SLURM_JOB_ID are not set";
        assert_eq!(asked(&[], None, &[]).unwrap_err(), none);
        for name in ["SLURM_JOB_ID", "SLURM_JOB_SLUID"] {
            assert_eq!(asked(&[], None, &[(name, "xyz")]).unwrap_err(), "xyz: cannot parse job id");
        }
        assert_eq!(asked(&["7", "8"], Some("3"), &[]).unwrap_err(), "--step: name one job");
    }

    #[test]
    fn steps_are_named_with_their_job_or_without() {
        let inside = [("SLURM_JOB_ID", "5"), ("SLURM_ARRAY_JOB_ID", "4"), ("SLURM_ARRAY_TASK_ID", "1")];
        assert_eq!(asked(&[], Some("3,5.7_[1-4],9-12,7_*"), &inside).unwrap(), "5: 3 7_[1-4] [9-12] 7");
        assert_eq!(asked(&[], Some("4_1.3"), &inside).unwrap(), "5: 3");
        assert_eq!(asked(&[], Some("4_2.3"), &inside).unwrap(), "4_2: 3");
        assert_eq!(
            asked(&["5"], Some("6.1"), &[]).unwrap_err(),
            "6.1 is a step of another job: steps of one job can be waited for together"
        );
        assert_eq!(asked(&["5"], Some("x"), &[]).unwrap_err(), "Invalid job step id: x");
    }

    #[test]
    fn the_worst_of_a_job_that_is_over_is_what_its_steps_made_of_it() {
        let over = |key: StepKey, state, code| StepView {
            id: StepId::of(JobId(503), key),
            state,
            exit: ExitStatus { code, signal: None },
            ..views::step(StepNum::Number(0), "x", "n1")
        };
        let steps = [
            over(StepKey::BATCH, StepState::Failed, 9),
            over(StepKey::number(0), StepState::Completed, 0),
            over(StepKey::number(1), StepState::Failed, 3),
            StepView {
                exit: ExitStatus { code: 0, signal: Some(15) },
                ..over(StepKey::task(2, 5), StepState::Cancelled, 0)
            },
        ];
        let worst = |steps_wanted: &[&str]| {
            let wanted = Target { job: JobId(503), steps: steps_wanted.iter().map(|s| s.parse().unwrap()).collect() };
            worst_of(&steps, &wanted).map(ExitStatus::shell_code).map_err(|e| e.to_string())
        };
        assert_eq!((worst(&[]), worst(&["0"]), worst(&["2_5"]), worst(&["batch"])), (Ok(3), Ok(0), Ok(1), Ok(9)));
        assert_eq!(worst(&["0", "4"]), Err("Job step 503.4 not found".to_owned()));
    }
}
