//! `swait`: blocks until a job's step manager has nothing queued and nothing running, or until named steps are over. It is
//! told so, and asks once.

use super::{
    manager::{self, Around, Way},
    search::{NoWay, Search, Until},
    signals::Signals,
    srun,
    startup::{self, Startup},
    wait_bar::WaitBar,
};
use crate::{
    cluster::{Cluster, ClusterError},
    options::{
        table::Command,
        typed::{OptionError, Typed},
    },
    output::Console,
    query::choices,
};
use garrick_frame::{DoorClient, DoorError};
use garrick_model::{
    env_vars,
    ids::JobId,
    messages::{
        command::{CommandReply, CommandRequest},
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    refusal::Refusal,
    state::{ExitStatus, StepState},
    step_selector::{StepsSelector, WhichSteps},
    view::StepView,
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use std::{env, ffi::OsString, io, os::fd::AsFd as _, time::Instant};

/// Least time between two messages about how far it is, in milliseconds: as often as a person reads.
const PROGRESS_MS: u32 = 200;

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    job: JobId,
    /// Only these steps; empty: all.
    steps: Vec<WhichSteps>,
}

/// The exit code where nobody can say that nothing is left: the run ended or was given up before its step manager said so, the job or
/// step is not there, or nobody answers. Not 1, which says that the time is up.
const NOT_KNOWN: i32 = 2;

/// Runs `swait`; `args` are without the program's name. Returns the exit code: 0 when nothing is left, 1 when the time is up,
/// [`NOT_KNOWN`]; with `--exit-status` that of the worst step.
pub fn main(args: Vec<OsString>) -> i32 {
    run(&args).unwrap_or_else(|code| code)
}

fn run(args: &[OsString]) -> Result<i32, i32> {
    let mut startup = Startup::begin(Command::Swait, args)?;
    let typed = startup.typed(&[])?;
    let console = &startup.console;
    let wanted = wanted(startup.operands(), typed.steps.as_deref(), |name| env::var(name).ok())
        .map_err(|error| startup::tell_option(Command::Swait, console, &error))?;
    let mut wait = Wait::new(&typed, console);
    let mut search = Search::new(Way::new(typed.conf.as_deref(), console, wanted.job), console);
    let mut found = search.begin(wait.until());
    loop {
        let error = match found {
            Ok(door) => match wait.at(door, &wanted.steps, &mut search) {
                Waited::Over(code) => return Ok(code),
                Waited::Lost(error) => ClusterError::Door(error),
            },
            Err(no_way) => return wait.ended(no_way, &wanted),
        };
        // One that was killed comes back, with its queue.
        found = search.again(error, wait.until());
    }
}

/// The job that is named, or whose steps are, or the one around; all of them the same.
fn wanted(
    operands: &[OsString],
    steps: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Wanted, OptionError> {
    let wrong = |text: String| Err(OptionError::Text(text));
    let named: Option<JobId> = match operands {
        [] => None,
        [id] => {
            let text = id.to_string_lossy();
            Some(text.parse().map_err(|_| OptionError::Text(format!("Invalid job id {text}")))?)
        }
        [_, extra, ..] => return wrong(format!("Invalid argument: {}", extra.to_string_lossy())),
    };
    let around = variable(env_vars::SLURM_JOB_ID).filter(|id| !id.is_empty());
    let own_job = Around::read(&variable);
    let mut job = named;
    let mut which = Vec::new();
    for word in choices::outside_brackets(steps.unwrap_or_default()) {
        let invalid = || OptionError::Text(format!("Invalid job step id: {word}"));
        if !word.contains('.') {
            which.push(word.parse().map_err(|_| invalid())?);
            continue;
        }
        let steps: StepsSelector = word.parse().map_err(|_| invalid())?;
        let of = match (steps.task, own_job) {
            (None, _) => steps.job,
            (Some(_), Some(own)) if own.has(&steps) => own.job,
            (Some(_), _) => return wrong(format!("{word}: name a task of a job array by its own job id")),
        };
        if job.is_some_and(|job| job != of) {
            return wrong(format!("{word} is a step of another job: steps of one job can be waited for together"));
        }
        job = Some(of);
        which.push(steps.which);
    }
    let job = match job {
        Some(job) => job,
        None => own(around.as_deref())?,
    };
    Ok(Wanted { job, steps: which })
}

fn own(around: Option<&str>) -> Result<JobId, OptionError> {
    match around {
        Some(id) => id.parse().map_err(|_| OptionError::Text(format!("Invalid SLURM_JOB_ID: {id}"))),
        None => Err(OptionError::Text("no job: name one, or run inside one".to_owned())),
    }
}

/// A job that is over has nothing left. How its steps ended, the controller knows.
fn already_over(typed: &Typed, console: &Console, wanted: &Wanted) -> Result<i32, i32> {
    if wanted.steps.is_empty() && !typed.exit_status {
        return Ok(0);
    }
    let failed = |error| {
        manager::tell(console, wanted.job, &error);
        startup::exit_code(NOT_KNOWN)
    };
    let cluster = Cluster::find(typed.conf.as_deref()).map_err(failed)?;
    let request = CommandRequest::ListSteps { job: Some(wanted.job), ended: true };
    let steps = match cluster.ask(console.program(), &request).map_err(failed)? {
        CommandReply::Steps { steps, .. } => steps,
        _ => Vec::new(),
    };
    let worst = worst_of(&steps, wanted).map_err(|unknown| {
        console.error(unknown);
        startup::exit_code(NOT_KNOWN)
    })?;
    Ok(if typed.exit_status { worst.shell_code() } else { 0 })
}

/// The worst exit of the steps that are wanted; the error names one that there was not.
fn worst_of(steps: &[StepView], wanted: &Wanted) -> Result<ExitStatus, Refusal> {
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
    fn new(typed: &'a Typed, console: &'a Console) -> Self {
        let shows_progress = !typed.quiet && nix::unistd::isatty(io::stderr()).unwrap_or(false);
        Self {
            typed,
            console,
            bar: shows_progress.then(WaitBar::new),
            // A bar is to be gone before the prompt comes back.
            signals: if shows_progress { Signals::block(&[Signal::SIGINT, Signal::SIGTERM]).ok() } else { None },
            deadline: typed.timeout.map(|timeout| Instant::now() + timeout),
        }
    }

    /// What ends it besides the step manager.
    fn until(&self) -> Until<'_> {
        Until { signals: self.signals.as_ref(), deadline: self.deadline }
    }

    fn at(&mut self, mut door: DoorClient, steps: &[WhichSteps], search: &mut Search<'_>) -> Waited {
        let progress_ms = if self.bar.is_some() { PROGRESS_MS } else { 0 };
        let request = CommandToStepMgr::Wait { steps: steps.to_vec(), any: self.typed.any, progress_ms };
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

    /// There is no way to the step manager any more.
    fn ended(mut self, no_way: NoWay, wanted: &Wanted) -> Result<i32, i32> {
        self.bar = None;
        let console = self.console;
        match no_way {
            NoWay::Failed(error) if matches!(error.refusal(), Some(Refusal::AlreadyDone)) => {
                return already_over(self.typed, console, wanted);
            }
            NoWay::Failed(error) => manager::tell(console, wanted.job, &error),
            NoWay::Over(end) => console.error(format_args!("job {}: {end}", wanted.job)),
            NoWay::Interrupted(signal) => return Ok(128 + signal),
            NoWay::TimeUp => return Ok(self.late()),
        }
        Err(startup::exit_code(NOT_KNOWN))
    }

    fn late(&mut self) -> i32 {
        self.bar = None;
        let secs = self.typed.timeout.unwrap_or_default().as_secs_f64();
        self.console.error(format_args!("steps are left after {secs} seconds"));
        1
    }

    /// A message of the step manager; the exit code when it was the last.
    fn take(&mut self, message: StepMgrToCommand) -> Option<i32> {
        match message {
            StepMgrToCommand::Progress(counts) => {
                if let Some(bar) = &mut self.bar {
                    bar.show(&counts);
                }
                None
            }
            StepMgrToCommand::Drained { worst, .. } => {
                Some(if self.typed.exit_status { worst.shell_code() } else { 0 })
            }
            StepMgrToCommand::Refused(refusal) => {
                self.bar = None;
                srun::tell_refusal(self.console, &refusal);
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
    use crate::render::test_views as views;
    use garrick_model::ids::{StepId, StepKey, StepNum};

    fn asked(operands: &[&str], steps: Option<&str>, env: &[(&str, &str)]) -> Result<String, String> {
        let operands: Vec<OsString> = operands.iter().map(OsString::from).collect();
        let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let wanted = wanted(&operands, steps, variable).map_err(|e| e.to_string())?;
        let steps: Vec<String> = wanted.steps.iter().map(ToString::to_string).collect();
        Ok(format!("{}: {}", wanted.job, steps.join(" ")))
    }

    #[test]
    fn the_job_is_named_or_around_or_that_of_the_steps() {
        let inside = [("SLURM_JOB_ID", "5")];
        assert_eq!(asked(&["7"], None, &inside).unwrap(), "7: ");
        assert_eq!(asked(&[], None, &inside).unwrap(), "5: ");
        assert_eq!(asked(&[], Some("7.3"), &inside).unwrap(), "7: 3");
        assert_eq!(asked(&[], None, &[]).unwrap_err(), "no job: name one, or run inside one");
        assert_eq!(asked(&["x"], None, &[]).unwrap_err(), "Invalid job id x");
        assert_eq!(asked(&["7", "8"], None, &[]).unwrap_err(), "Invalid argument: 8");
    }

    #[test]
    fn steps_are_named_with_their_job_or_without() {
        let inside = [("SLURM_JOB_ID", "5"), ("SLURM_ARRAY_JOB_ID", "4"), ("SLURM_ARRAY_TASK_ID", "1")];
        assert_eq!(asked(&[], Some("3,5.7_[1-4],9-12,7_*"), &inside).unwrap(), "5: 3 7_[1-4] [9-12] 7");
        assert_eq!(asked(&[], Some("4_1.3"), &inside).unwrap(), "5: 3");
        assert_eq!(
            asked(&[], Some("4_2.3"), &inside).unwrap_err(),
            "4_2.3: name a task of a job array by its own job id"
        );
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
            over(StepKey::task(2, 5), StepState::Cancelled, 0),
        ];
        let worst = |steps_wanted: &[&str]| {
            let wanted = Wanted { job: JobId(503), steps: steps_wanted.iter().map(|s| s.parse().unwrap()).collect() };
            worst_of(&steps, &wanted).map(ExitStatus::shell_code).map_err(|e| e.to_string())
        };
        assert_eq!((worst(&[]), worst(&["0"]), worst(&["2_5"]), worst(&["batch"])), (Ok(3), Ok(0), Ok(1), Ok(9)));
        assert_eq!(worst(&["0", "4"]), Err("Job step 503.4 not found".to_owned()));
    }
}
