//! `scontrol show step`.

use super::{Record, or_null};
use crate::{amounts, clock::Clock, step_lines::StepLine, words};
use garrick_model::{
    ids::StepNum,
    state::{Reason, StepState},
};

/// The record of a step, or of waiting steps that differ in nothing but their number.
pub fn record(line: &StepLine<'_>, task_list: Option<usize>, clock: &Clock) -> Record {
    let step = line.view;
    let mut r = Record::default();
    r.line(format!(
        "StepId={} UserId={} StartTime={} TimeLimit={}",
        line.id_text(task_list),
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
    // A batch script has its job's resources, not some of its own (seen in 26.05.3).
    let batch = step.id.step == StepNum::Batch;
    let cpus = if batch { 0 } else { step.cpus };
    r.line(format!("Nodes={} CPUs={cpus} Tasks={} Name={} Network=(null)", step.nodes, step.tasks, step.name));
    match step.state {
        _ if batch => r.line("TRES=(null)"),
        StepState::Pending => r.line("TRES=(null)"),
        _ => r.line(format!("TRES={}", amounts::step_tres(step))),
    }
    r.line("ResvPorts=(null)");
    r.line(if batch { "CPUFreqReq=Default" } else { "CPUFreqReq=Default Dist=Unknown" });
    r.line_if("TresPerStep", amounts::step_gres(&step.gres).as_deref());
    match &step.srun {
        Some((host, pid)) => r.line(format!("SrunHost:Pid={host}:{pid}")),
        None if batch => r.line("SrunHost:Pid=(null):0"),
        None => {}
    }
    // What Slurm's record does not have comes last.
    let told = step.state == StepState::Pending || step.reason != Reason::None;
    if told && (step.reason != Reason::None || !step.dependency.is_empty()) {
        r.line(format!("Reason={} Dependency={}", words::reason(&step.reason), or_null(Some(&step.dependency))));
    }
    if step.priority != 0 || step.attempt != 0 {
        r.line(format!("StepPriority={} Retries={}", step.priority, step.attempt));
    }
    r
}
