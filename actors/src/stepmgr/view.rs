//! Views of steps, for `squeue -s`, `scontrol show step`, `swait` and the reports to the controller.

use crate::{
    step::state::StepResult,
    stepmgr::{
        run::RunFacts,
        state::{RecordState, StepRecord},
    },
};
use garrick_model::{
    hostlist,
    ids::{StepId, StepNum},
    state::{ExitStatus, Reason, StepState},
    time::{TimeLimit, Timestamp},
    view::StepView,
};

/// View of a step that is not over.
pub fn live(facts: &RunFacts, step: StepNum, record: &StepRecord) -> StepView {
    let mut view = StepView {
        id: StepId::new(facts.job, step),
        name: record.spec.name.clone(),
        state: StepState::Pending,
        reason: Reason::None,
        uid: facts.uid,
        partition: facts.partition.clone(),
        nodelist: String::new(),
        nodes: record.shape.min_nodes,
        cpus: record.shape.tasks * record.shape.cpus_per_task,
        tasks: record.shape.tasks,
        start_time: None,
        end_time: None,
        time_limit: record.spec.time_limit.unwrap_or(TimeLimit::Unlimited),
        exit: ExitStatus::SUCCESS,
        srun: record.spec.srun.clone(),
        submit_line: record.spec.submit_line.clone(),
    };
    match &record.state {
        RecordState::Queued { .. } => view.reason = Reason::Resources,
        RecordState::Unsure { since } => {
            view.state = StepState::Running;
            view.start_time = Some(*since);
        }
        RecordState::Running { placement, since } => {
            let names = placement.nodes.iter().map(|n| &facts.nodes[n.slot as usize].name);
            view.state = StepState::Running;
            view.nodelist = hostlist::fold(names);
            view.nodes = placement.nodes.len() as u32;
            view.cpus = placement.nodes.iter().map(|n| n.cpu_count).sum();
            view.start_time = Some(*since);
        }
    }
    view
}

/// Last view of a step.
pub fn ended(facts: &RunFacts, record: &StepRecord, result: &StepResult, at: Timestamp) -> StepView {
    let mut view = live(facts, result.step.step, record);
    view.state = result.state;
    view.reason = Reason::None;
    view.exit = result.exit;
    view.end_time = Some(at);
    view
}
