//! Job views as a controller would send them.

use garrick_model::{
    ids::{JobId, Sluid},
    node_shape::NodeShare,
    resources::CpuSet,
    spec::JobSpec,
    state::JobState,
    testing::{self, allocated},
    time::{TimeLimit, Timestamp},
    view::{Allocation, JobView},
};
use std::sync::Arc;

/// A job of alice's with one CPU of n1.
pub fn job_view(id: JobId, spec: JobSpec, state: JobState) -> JobView {
    let share = NodeShare { cpus: CpuSet::from(0..1), memory: None, tasks: 1, gres: Vec::new() };
    let nodes = vec![allocated("n1", 0, share)];
    let allocation = Allocation { nodes, partition: "debug".to_owned(), ..Allocation::default() };
    JobView {
        sluid: Sluid(1),
        uid: 0,
        gid: 0,
        state,
        array_pending: None,
        priority: 1,
        dependencies: spec.dependencies.clone(),
        partitions: vec!["debug".to_owned()],
        time_limit: TimeLimit::Unlimited,
        submit_time: Timestamp::from_secs(1),
        allocation: Some(Arc::new(allocation)),
        cpus_per_task: 1,
        tasks: 1,
        min_nodes: 1,
        max_nodes: 1,
        cpus: 1,
        ..testing::job(id.0, spec)
    }
}
