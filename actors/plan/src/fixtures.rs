//! Clusters with good defaults, so that a test shows only what matters. Their jobs and nodes are those of
//! [`garrick_model::testing`].

use crate::snapshot::{
    caps::CpuCaps,
    facts::{ClusterView, PartitionFacts, PartitionSharing, Policy},
    preempt::Yielding,
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    state::PartitionState,
    time::TimeLimit,
    view::{JobView, NodeView},
};
use std::sync::Arc;

/// A partition over the nodes `members`.
pub fn partition(name: &str, members: std::ops::Range<usize>) -> PartitionFacts {
    let mut nodes = FixedBitSet::with_capacity(members.end);
    nodes.insert_range(members);
    PartitionFacts {
        name: name.to_owned(),
        state: PartitionState::Up,
        tier: 1,
        nodes,
        default_time: None,
        max_time: TimeLimit::Unlimited,
        min_nodes: 0,
        max_nodes: None,
        caps: CpuCaps::NONE,
        def_memory: None,
        max_memory: None,
        sharing: PartitionSharing::No,
        exclusive_user: false,
        least_loaded: false,
        topology: None,
        exclusive_topo: false,
        yielding: Yielding::default(),
        takes: None,
    }
}

/// A cluster with one partition `debug` over all nodes.
pub fn cluster(nodes: Vec<NodeView>, pending: Vec<JobView>) -> ClusterView {
    let count = nodes.len();
    let nodes: Vec<Arc<NodeView>> = nodes.into_iter().map(Arc::new).collect();
    let jobs: Vec<Arc<JobView>> = pending.into_iter().map(Arc::new).collect();
    ClusterView::new(Policy::default(), &jobs, &nodes, vec![partition("debug", 0..count)])
}
