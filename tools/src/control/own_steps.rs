//! Signals steps of the job around a command through its own step manager, without the controller.

use crate::{output::Console, telling::Tell as _};
use garrick_asking::{
    cluster::ClusterError,
    manager::{Around, Way},
    search::Search,
};
use garrick_model::{
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    refusal::Refusal,
    step_selector::StepsSelector,
};

/// Signals or ends those steps that are of the job around this process, and takes them out: what is left is for the
/// controller. Returns the exit code.
pub fn signal(steps: &mut Vec<StepsSelector>, pending_only: bool, signal: Option<i32>, console: &Console) -> i32 {
    let Some(own) = Around::read(|name| std::env::var(name).ok()) else { return 0 };
    let (mine, others): (Vec<_>, Vec<_>) = steps.iter().cloned().partition(|step| own.has(step));
    if mine.is_empty() {
        return 0;
    }
    let message = CommandToStepMgr::SignalSteps {
        steps: mine.iter().map(|step| step.which.clone()).collect(),
        pending_only,
        signal: signal.filter(|s| *s != libc::SIGKILL),
    };
    // No step manager is named that could be asked.
    let Some(way) = Way::of_own_job(console, own.job) else { return 0 };
    let results = match Search::new(way, console).ask(&message) {
        Ok(StepMgrToCommand::PerStep(results)) => results,
        Ok(StepMgrToCommand::Refused(refusal)) => {
            *steps = others;
            return ClusterError::from(refusal).tell_as(console);
        }
        Ok(_) => {
            *steps = others;
            return ClusterError::Unexpected("signalled steps").tell_as(console);
        }
        // The step manager is gone: the controller may know why.
        Err(_) => return 0,
    };
    *steps = others;
    mine.iter().for_each(|step| say(signal, step, console));
    mine.iter().zip(&results).map(|(step, result)| tell(step, result, console)).max().unwrap_or(0)
}

/// Tells what came of a step's name. What is over already is no error: it does not run.
fn tell(step: &StepsSelector, result: &Result<u32, Refusal>, console: &Console) -> i32 {
    match result {
        Ok(reached) => console.verbose(format_args!("{step}: {reached} steps")),
        Err(refusal @ Refusal::AlreadyDone) => {
            console.verbose(format_args!("Kill job error on job step id {step}: {refusal}"));
        }
        Err(refusal @ Refusal::InvalidStep(_)) => {
            console.error(refusal);
            return 1;
        }
        Err(refusal) => {
            console.error(format_args!("Kill job error on job step id {step}: {refusal}"));
            return 1;
        }
    }
    0
}

/// What is about to be done.
pub fn say(signal: Option<i32>, step: &StepsSelector, console: &Console) {
    let what = signal.map_or_else(|| "Terminating".to_owned(), |s| format!("Signal {s} to"));
    console.verbose(format_args!("{what} step {step}"));
}
