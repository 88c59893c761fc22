//! Clusters with good defaults, so that a test shows only what matters. Their jobs and nodes are those of
//! [`garrick_model::testing`].

use crate::snapshot::{
    caps::CpuCaps,
    facts::{ClusterView, PartitionFacts, PartitionSharing, Policy},
    licenses::LicenseFacts,
    preempt::Yielding,
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    spec::{JobSpec, NodeCount},
    state::PartitionState,
    testing::{hres, job, node, spec},
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
        qos: None,
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

/// Four nodes of eight CPUs with the hierarchical resources `a` and `b`, of these modes (`MODE_1` to `MODE_3`) and with these
/// `counts`, three layers each; and jobs that wait, each of: nodes, how many of `a` and of `b` (0: none) on each, its limit in tens
/// of seconds, and whether its nodes are to be neighbours.
pub fn layered(modes: (&str, &str), counts: &[u32], jobs: &[(u32, u32, u32, u64, bool)]) -> ClusterView {
    let layers = |at: usize| [(0..4, counts[at] + 4, 2), (0..2, counts[at + 1] + 1, 1), (2..4, counts[at + 2], 0)];
    let (a, b) = (layers(0), layers(3));
    let specs = jobs.iter().map(|(nodes, a, b, tens, contiguous)| JobSpec {
        contiguous: *contiguous,
        licenses: Some(if *b == 0 { format!("a:{a}") } else { format!("b:{b},a:{a}") }),
        nodes: Some(NodeCount { min: *nodes, max: Some(*nodes) }),
        time_limit: Some(TimeLimit::Secs(tens * 10)),
        ..spec()
    });
    let jobs = specs.zip(1..).map(|(spec, id)| job(id, spec)).collect();
    let mut view = cluster((0..4).map(|index| node(index, 8)).collect(), jobs);
    let hres = hres(4, &[("a", modes.0, &a), ("b", modes.1, &b)]);
    view.licenses = LicenseFacts { hres, ..LicenseFacts::default() };
    view
}
