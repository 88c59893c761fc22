//! `scontrol show step`.

use super::{Record, or_null};
use crate::{amounts, clock::Clock, step_lines::StepLine, words};
use garrick_model::state::{Reason, StepState};

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
    r.line(format!("Nodes={} CPUs={} Tasks={} Name={} Network=(null)", step.nodes, step.cpus, step.tasks, step.name));
    match step.state {
        StepState::Pending => r.line("TRES=(null)"),
        _ => r.line(format!("TRES={}", amounts::step_tres(step))),
    }
    r.line("ResvPorts=(null)");
    r.line("CPUFreqReq=Default Dist=Unknown");
    r.line_if("TresPerStep", amounts::step_gres(&step.gres).as_deref());
    if let Some((host, pid)) = &step.srun {
        r.line(format!("SrunHost:Pid={host}:{pid}"));
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
