//! `scontrol show step`.

use super::{Record, or_null};
use crate::render::{amounts, clock::Clock, words};
use garrick_model::{
    state::StepState,
    view::{JobView, StepView},
};

/// The record of a step. `job` is its job, where it is known, for the ids of array tasks.
pub fn record(step: &StepView, job: Option<&JobView>, clock: &Clock) -> Record {
    let mut r = Record::default();
    r.line(format!(
        "StepId={} UserId={} StartTime={} TimeLimit={}",
        amounts::step_id(step, job),
        step.uid,
        clock.at_or(step.start_time, "Unknown"),
        step.time_limit.scontrol_text()
    ));
    r.line(format!(
        "State={} Partition={} NodeList={}",
        words::step_state(step.state),
        step.partition,
        or_null(Some(&step.nodelist))
    ));
    r.line(format!("Nodes={} CPUs={} Tasks={} Name={} Network=(null)", step.nodes, step.cpus, step.tasks, step.name));
    match step.state {
        StepState::Pending => r.line("TRES=(null)"),
        _ => r.line(format!("TRES=cpu={},node={}", step.cpus, step.nodes)),
    }
    r.line("ResvPorts=(null)");
    r.line("CPUFreqReq=Default Dist=Unknown");
    if let Some((host, pid)) = &step.srun {
        r.line(format!("SrunHost:Pid={host}:{pid}"));
    }
    r
}
