//! `swait`: blocks until a job's step manager has nothing queued and nothing running.

use super::{
    manager, srun,
    startup::{self, Startup},
};
use crate::{
    options::{
        table::Command,
        typed::{OptionError, Typed},
    },
    output::{self, Console},
};
use garrick_frame::DoorClient;
use garrick_model::{
    ids::JobId,
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    refusal::Refusal,
    view::StepCounts,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{
    env,
    ffi::OsString,
    io,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

/// Least time between two progress lines, in milliseconds: as often as a person reads.
const PROGRESS_MS: u32 = 200;

/// Runs `swait`; `args` are without the program's name. Returns the exit code: 0 when nothing is left, 1 when the time is up
/// or the step manager cannot be asked.
pub fn main(args: Vec<OsString>) -> i32 {
    run(&args).unwrap_or_else(|code| code)
}

fn run(args: &[OsString]) -> Result<i32, i32> {
    let mut startup = Startup::begin(Command::Swait, args)?;
    let typed = startup.typed(&[])?;
    let console = &startup.console;
    let job = job(startup.operands(), env::var("SLURM_JOB_ID").ok().as_deref())
        .map_err(|error| startup::tell_option(Command::Swait, console, &error))?;
    let door = match manager::reach(typed.conf.as_deref(), console, job) {
        Ok(door) => door,
        // A job that is over has nothing left.
        Err(error) if matches!(error.refusal(), Some(Refusal::AlreadyDone)) => return Ok(0),
        Err(error) => {
            manager::tell(console, job, &error);
            return Err(startup::exit_code(1));
        }
    };
    Ok(wait(&typed, console, door))
}

fn job(operands: &[OsString], around: Option<&str>) -> Result<JobId, OptionError> {
    match operands {
        [] => match around {
            Some(id) => id.parse().map_err(|_| OptionError::Text(format!("Invalid SLURM_JOB_ID: {id}"))),
            None => Err(OptionError::Text("no job: name one, or run inside one".to_owned())),
        },
        [id] => {
            let text = id.to_string_lossy();
            text.parse().map_err(|_| OptionError::Text(format!("Invalid job id {text}")))
        }
        [_, extra, ..] => Err(OptionError::Text(format!("Invalid argument: {}", extra.to_string_lossy()))),
    }
}

fn wait(typed: &Typed, console: &Console, mut door: DoorClient) -> i32 {
    let shows_progress = !typed.quiet && nix::unistd::isatty(io::stderr()).unwrap_or(false);
    let request =
        CommandToStepMgr::Wait { steps: Vec::new(), progress_ms: if shows_progress { PROGRESS_MS } else { 0 } };
    if let Err(error) = door.send(&request) {
        console.error(error);
        return startup::exit_code(1);
    }
    let deadline = typed.timeout_secs.map(|secs| Instant::now() + Duration::from_secs(u64::from(secs)));
    loop {
        match door.try_next::<StepMgrToCommand>() {
            Ok(Some(StepMgrToCommand::Progress(counts))) => {
                if shows_progress {
                    output::stderr(format!("\r{}\x1b[K", progress_line(&counts)).as_bytes());
                }
                continue;
            }
            Ok(Some(StepMgrToCommand::Drained { counts, .. })) => {
                if shows_progress {
                    output::stderr(format!("\r{}\x1b[K\n", progress_line(&counts)).as_bytes());
                }
                return 0;
            }
            Ok(Some(StepMgrToCommand::Refused(refusal))) => {
                srun::tell_refusal(console, &refusal);
                return startup::exit_code(1);
            }
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(error) => {
                end_progress(shows_progress);
                console.error(format_args!("Lost contact with the step manager: {error}"));
                return startup::exit_code(1);
            }
        }
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    end_progress(shows_progress);
                    console.error(format_args!("steps are left after {} seconds", typed.timeout_secs.unwrap_or(0)));
                    return 1;
                }
                PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
            }
        };
        // Whatever woke it, the door and the time are looked at.
        let _ = poll(&mut [PollFd::new(door.as_fd(), PollFlags::POLLIN)], timeout);
    }
}

fn end_progress(shows_progress: bool) {
    if shows_progress {
        output::stderr(b"\n");
    }
}

/// `3 queued, 2 running, 10 done, 1 failed`
fn progress_line(counts: &StepCounts) -> String {
    format!("{} queued, {} running, {} done, {} failed", counts.queued, counts.running, counts.done, counts.failed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_job_is_named_or_around() {
        assert_eq!(job(&["7".into()], Some("5")).unwrap(), JobId(7));
        assert_eq!(job(&[], Some("5")).unwrap(), JobId(5));
        assert_eq!(job(&[], None).unwrap_err().to_string(), "no job: name one, or run inside one");
        assert_eq!(job(&["x".into()], None).unwrap_err().to_string(), "Invalid job id x");
        assert!(job(&["7".into(), "8".into()], None).is_err());
    }

    #[test]
    fn progress_counts_every_kind() {
        let counts = StepCounts { queued: 3, running: 2, done: 10, failed: 1 };
        assert_eq!(progress_line(&counts), "3 queued, 2 running, 10 done, 1 failed");
    }
}
