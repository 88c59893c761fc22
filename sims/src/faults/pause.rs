//! The controller is stopped for a minute during thousands of steps: all finish without it, and all are reported afterwards.

use super::{FaultsError, population, report::Report, run::Stage, witness::Witness, work::JobPlan};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Steps of all jobs together.
    pub steps: u32,
    /// Nodes; there is a job for each.
    pub nodes: u32,
    /// How long the controller stands still.
    pub length: Duration,
}

impl Default for Pause {
    fn default() -> Self {
        Self { steps: 10_000, nodes: 4, length: Duration::from_secs(60) }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(600);

/// Steps that began and that ended while the controller stood still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meanwhile {
    /// Ended before it was stopped.
    pub before: usize,
    /// Ended when it went on.
    pub after: usize,
}

/// Carries it out.
pub fn run(pause: Pause) -> Result<(Report, Meanwhile), FaultsError> {
    let mut meanwhile = Meanwhile::default();
    let report = Stage::perform(1, pause.nodes, |stage| {
        meanwhile = act(stage, pause)?;
        Ok(())
    })?;
    Ok((report, meanwhile))
}

fn act(stage: &mut Stage, pause: Pause) -> Result<Meanwhile, FaultsError> {
    let each = pause.steps / pause.nodes;
    for serial in 1..=pause.nodes {
        let (list, blocking) = (each / 2, 4);
        let array = each - list - blocking;
        stage.submit(JobPlan {
            serial,
            nodes: 1,
            blocking,
            list,
            array,
            wide: 0,
            lasts: false,
            requeue: false,
            cancel: false,
        })?;
    }
    wait(stage, "the jobs are accepted", |stage| Ok(stage.clients.acknowledged.len() == pause.nodes as usize))?;
    wait(stage, "a tenth of the steps is over", |stage| Ok(over(stage)? > pause.steps as usize / 10))?;
    let controller = stage.site.daemons.first().and_then(super::daemon::Daemon::pid);
    let controller = controller.ok_or_else(|| FaultsError::Other("the controller does not run".to_owned()))?;
    population::signal(controller, Signal::SIGSTOP);
    let (before, until) = (over(stage)?, Instant::now() + pause.length);
    // Nobody asks the controller for anything: who asks a stopped process waits.
    while Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
    }
    let after = over(stage)?;
    population::signal(controller, Signal::SIGCONT);
    wait(stage, "all steps are over", |stage| Ok(over(stage)? >= pause.steps as usize))?;
    Ok(Meanwhile { before, after })
}

/// Steps that announced their end.
fn over(stage: &Stage) -> Result<usize, FaultsError> {
    let witness = Witness::read(&stage.works.witness)?;
    Ok(witness.steps.values().filter(|s| s.tasks.values().all(|t| !t.codes.is_empty())).count())
}

fn wait(
    stage: &mut Stage,
    what: &str,
    mut holds: impl FnMut(&Stage) -> Result<bool, FaultsError>,
) -> Result<(), FaultsError> {
    let began = Instant::now();
    while !holds(stage)? {
        if began.elapsed() > PATIENCE {
            return Err(FaultsError::Other(format!("still waiting: {what}")));
        }
        let until = Instant::now() + LOOK_EVERY;
        while Instant::now() < until {
            stage.tick(Instant::now())?;
        }
    }
    Ok(())
}
