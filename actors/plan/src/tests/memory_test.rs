//! Rules of memory: which CPUs it is counted by, what partitions allow and give where none is named.
#![allow(clippy::unwrap_used)]

use super::plan_test::NOW;
use crate::{
    fixtures::{cluster, partition},
    plan::{
        plan,
        probe::{Feasibility, Infeasible},
    },
    snapshot::facts::{ClusterView, PartitionSharing},
};
use garrick_model::{
    config::MemoryPer,
    resources::{MemoryMib, MemoryRequest},
    spec::{JobSpec, LayoutRequest, NodeCount, Sharing},
    testing::{job, node, spec},
};

const fn per_cpu(mib: u64) -> MemoryRequest {
    MemoryRequest::PerCpu(MemoryMib(mib))
}

fn with(memory: MemoryRequest) -> JobSpec {
    JobSpec { memory, ..spec() }
}

fn single_threads(tasks: u32, memory: MemoryRequest) -> JobSpec {
    let layout = LayoutRequest { threads_per_core: Some(1), ..LayoutRequest::default() };
    JobSpec { tasks: Some(tasks), nodes: Some(NodeCount { min: 1, max: Some(1) }), layout, ..with(memory) }
}

/// One node of four cores of two threads, with 1000 MiB.
fn one_node(spec: JobSpec) -> ClusterView {
    cluster(vec![node(0, 4)], vec![job(1, spec)])
}

/// CPUs and memory of the only start; `None`: there is none.
fn share(view: &ClusterView) -> Option<(String, u64)> {
    let plan = plan(view, NOW);
    let nodes: Vec<_> = plan.starts.iter().flat_map(|start| &start.nodes).collect();
    assert!(nodes.len() <= 1);
    nodes.first().map(|n| (n.share.cpus.to_string(), n.share.memory.unwrap().0))
}

fn judged(view: &ClusterView) -> Result<(), Infeasible> {
    Feasibility::new(view.clone()).check(&view.pending[0])
}

#[test]
fn memory_is_counted_by_usable_cpus() {
    assert_eq!(share(&one_node(single_threads(2, per_cpu(100)))), Some(("0-3".to_owned(), 200)));
    let all = one_node(single_threads(4, per_cpu(250)));
    assert_eq!((judged(&all), share(&all)), (Ok(()), Some(("0-7".to_owned(), 1000))));
    assert_eq!(judged(&one_node(single_threads(4, per_cpu(251)))), Err(Infeasible::Memory));
    // Where all threads may be used, all count, asked for or not.
    assert_eq!(share(&one_node(JobSpec { tasks: Some(1), ..with(per_cpu(100)) })), Some(("0-1".to_owned(), 200)));
    let whole = JobSpec { sharing: Sharing::Exclusive, ..single_threads(1, per_cpu(250)) };
    assert_eq!(share(&one_node(whole)), Some(("0-7".to_owned(), 1000)));
}

#[test]
fn a_whole_node_must_have_the_memory_for_all_of_its_cpus() {
    let whole = |mib| one_node(JobSpec { sharing: Sharing::Exclusive, ..with(per_cpu(mib)) });
    assert_eq!(share(&whole(125)), Some(("0-7".to_owned(), 1000)));
    assert_eq!((judged(&whole(126)), share(&whole(126))), (Err(Infeasible::Memory), None));
}

#[test]
fn all_of_the_memory_is_what_the_given_cpus_may_have() {
    let limited = |most, spec: JobSpec| {
        let mut view = one_node(spec);
        view.partitions[0].max_memory = Some(MemoryPer::Cpu(MemoryMib(most)));
        (judged(&view), share(&view).unwrap())
    };
    let two = |memory| JobSpec { tasks: Some(2), ..with(memory) };
    assert_eq!(limited(100, two(MemoryRequest::All)), (Ok(()), ("0-1".to_owned(), 200)));
    assert_eq!(limited(100, two(MemoryRequest::Default)), (Ok(()), ("0-1".to_owned(), 200)));
    assert_eq!(limited(600, two(MemoryRequest::All)), (Ok(()), ("0-1".to_owned(), 1000)));
    let whole = JobSpec { sharing: Sharing::Exclusive, ..with(MemoryRequest::All) };
    assert_eq!(limited(100, whole.clone()), (Ok(()), ("0-7".to_owned(), 800)));
    assert_eq!(limited(500, whole), (Ok(()), ("0-7".to_owned(), 1000)));
}

#[test]
fn no_more_memory_of_a_node_is_taken_than_its_partition_allows() {
    let limited = |spec: JobSpec| {
        let mut view = one_node(spec);
        view.partitions[0].max_memory = Some(MemoryPer::Node(MemoryMib(300)));
        view
    };
    assert_eq!(judged(&limited(with(MemoryRequest::PerNode(MemoryMib(301))))), Err(Infeasible::Memory));
    assert_eq!(share(&limited(with(MemoryRequest::PerNode(MemoryMib(300))))), Some(("0-1".to_owned(), 300)));
    assert_eq!(judged(&limited(JobSpec { cpus_per_task: Some(4), ..with(per_cpu(100)) })), Err(Infeasible::Memory));
    let whole = JobSpec { sharing: Sharing::Exclusive, ..with(per_cpu(50)) };
    assert_eq!(judged(&limited(whole)), Err(Infeasible::Memory));
    assert_eq!(share(&limited(with(MemoryRequest::All))), Some(("0-1".to_owned(), 300)));
    let mut by_site = one_node(with(MemoryRequest::All));
    by_site.policy.max_memory = Some(MemoryPer::Node(MemoryMib(400)));
    assert_eq!(share(&by_site), Some(("0-1".to_owned(), 400)));
}

#[test]
fn each_partition_gives_its_own_default_memory() {
    let both = |spec: JobSpec| {
        let mut view = one_node(JobSpec { partitions: vec!["small".to_owned(), "debug".to_owned()], ..spec });
        let mut small = partition("small", 0..1);
        small.max_nodes = Some(0);
        small.def_memory = Some(MemoryPer::Node(MemoryMib(500)));
        view.partitions.push(small);
        view.partitions[0].def_memory = Some(MemoryPer::Cpu(MemoryMib(100)));
        // It starts in the second of its choices.
        view.partitions[1].state = garrick_model::state::PartitionState::Down;
        let mut waiting = (*view.pending[0]).clone();
        // As submission fills it in, from the first.
        if waiting.memory == MemoryRequest::Default {
            waiting.memory = MemoryRequest::PerNode(MemoryMib(500));
        }
        view.pending = vec![std::sync::Arc::new(waiting)];
        view
    };
    assert_eq!(share(&both(with(MemoryRequest::Default))), Some(("0-1".to_owned(), 200)));
    assert_eq!(share(&both(with(MemoryRequest::PerNode(MemoryMib(70))))), Some(("0-1".to_owned(), 70)));
    let mut whole = both(with(MemoryRequest::Default));
    whole.partitions[0].sharing = PartitionSharing::Exclusive;
    assert_eq!(share(&whole), Some(("0-7".to_owned(), 800)));
}
