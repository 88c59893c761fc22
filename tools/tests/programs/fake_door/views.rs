//! Job views as a controller would send them.

use garrick_model::{
    ids::{JobId, NodeIndex, Sluid},
    node_shape::NodeShare,
    resources::CpuSet,
    spec::JobSpec,
    state::{ExitStatus, JobState, Reason},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, Allocation, JobView},
};
use std::sync::Arc;

/// A job of alice's with one CPU of n1.
pub fn job_view(id: JobId, spec: JobSpec, state: JobState) -> JobView {
    let share = NodeShare { cpus: CpuSet::from(0..1), memory: None, tasks: 1, gres: Vec::new() };
    let nodes = vec![AllocatedNode { name: "n1".to_owned(), index: NodeIndex(0), share }];
    JobView {
        id,
        generation: 1,
        sluid: Sluid(1),
        uid: 0,
        gid: 0,
        user: "alice".to_owned(),
        group: "alice".to_owned(),
        state,
        ending: None,
        reason: Reason::None,
        array_pending: None,
        array_task: None,
        array_running: 0,
        priority: 1,
        dependencies: spec.dependencies.clone(),
        eligible: true,
        partitions: vec!["debug".to_owned()],
        time_limit: TimeLimit::Unlimited,
        submit_time: Timestamp::from_secs(1),
        eligible_time: None,
        start_time: None,
        end_time: None,
        last_sched_eval: None,
        allocation: Some(Arc::new(Allocation {
            nodes,
            partition: "debug".to_owned(),
            exclusive: false,
            ..Allocation::default()
        })),
        completing_nodes: vec![],
        exit: ExitStatus::SUCCESS,
        derived_exit: ExitStatus::SUCCESS,
        restarts: 0,
        requeue: true,
        cpus_per_task: 1,
        tasks: 1,
        min_nodes: 1,
        max_nodes: 1,
        cpus: 1,
        memory: spec.memory,
        sharing: spec.sharing,
        stdout_path: None,
        stderr_path: None,
        stdin_path: None,
        admin_comment: None,
        system_comment: None,
        terms: garrick_model::view::PriorityTerms::default(),
        preempted: None,
        leave_by: None,
        suspended: None,
        billing: None,
        steps: garrick_model::packed_steps::StepTally::default(),
        spec: Arc::new(spec),
    }
}
