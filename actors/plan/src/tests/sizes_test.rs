//! Jobs that may have one of several numbers of nodes.
#![allow(clippy::unwrap_used)]

use super::plan_test::NOW;
use crate::{
    fixtures::cluster,
    plan::{plan, probe::Feasibility},
    snapshot::facts::ClusterView,
};
use garrick_model::{
    ids::JobId,
    node_sizes::NodeSizes,
    spec::{JobSpec, LayoutRequest},
    state::Reason,
    testing::{hold, job, node, spec},
    time::Timestamp,
    view::NodeView,
};

fn sizes(text: &str) -> JobSpec {
    let node_sizes: NodeSizes = text.parse().unwrap();
    JobSpec { nodes: node_sizes.bounds(), node_sizes, ..spec() }
}

fn free(count: u32) -> Vec<NodeView> {
    (0..count).map(|index| node(index, 2)).collect()
}

fn started(view: &ClusterView) -> Option<usize> {
    plan(view, NOW).starts.first().map(|start| start.nodes.len())
}

#[test]
fn the_greatest_number_that_is_free_is_taken() {
    let on = |count, text| started(&cluster(free(count), vec![job(1, sizes(text))]));
    assert_eq!(on(15, "1-15:4"), Some(13));
    assert_eq!(on(12, "1-15:4"), Some(9));
    assert_eq!(on(8, "1,5,9"), Some(5));
    assert_eq!(on(4, "3,1"), Some(3));
    assert_eq!(on(4, "2-3,9"), Some(3));
    assert_eq!(on(3, "4,6"), None);
}

#[test]
fn tasks_and_the_wish_for_few_nodes_bound_it() {
    let tasks = JobSpec { tasks: Some(6), ..sizes("1,3,7") };
    assert_eq!(started(&cluster(free(9), vec![job(1, tasks.clone())])), Some(3));
    // Six tasks need more than one node.
    let layout = LayoutRequest { fewest_nodes: true, ..LayoutRequest::default() };
    let few = JobSpec { layout, ..tasks };
    assert_eq!(started(&cluster(free(9), vec![job(1, few)])), Some(3));
    let layout = LayoutRequest { fewest_nodes: true, ..LayoutRequest::default() };
    assert_eq!(started(&cluster(free(9), vec![job(1, JobSpec { layout, ..sizes("7,2,4") })])), Some(2));
}

#[test]
fn however_many_numbers_there_are_few_are_looked_at() {
    let all = || sizes("1-4294967295:2");
    assert_eq!(started(&cluster(free(6), vec![job(1, all())])), Some(5));
    let layout = LayoutRequest { fewest_nodes: true, ..LayoutRequest::default() };
    assert_eq!(started(&cluster(free(6), vec![job(1, JobSpec { layout, ..all() })])), Some(1));
}

#[test]
fn neighbours_and_features_hold_for_the_number() {
    let mut nodes = free(8);
    nodes[4].flags.drain = true;
    let near = JobSpec { contiguous: true, ..sizes("2,5") };
    assert_eq!(started(&cluster(nodes.clone(), vec![job(1, near)])), Some(2));
    for node in &mut nodes[..3] {
        node.features = vec!["big".into()];
    }
    let big = JobSpec { constraint: Some("big*1".into()), ..sizes("2,5,8") };
    assert_eq!(started(&cluster(nodes, vec![job(1, big)])), Some(5));
}

#[test]
fn one_that_waits_has_the_least_number_reserved() {
    let mut nodes = free(4);
    for (index, node) in nodes.iter_mut().enumerate() {
        let end = 100_000 + 3600 * (i64::try_from(index).unwrap() + 1);
        node.holds = vec![hold(9, 0..node.shape.cpus, 0, Some(end))];
    }
    let plan = plan(&cluster(nodes, vec![job(1, sizes("2,4"))]), NOW);
    assert_eq!(plan.expected, [(JobId(1), Timestamp::from_secs(107_200))]);
}

#[test]
fn more_nodes_than_there_are_may_be_waited_for() {
    let view = cluster(free(5), Vec::new());
    assert_eq!(Feasibility::new(view.clone()).check(&job(1, sizes("10,20"))), Ok(()));
    assert_eq!(Feasibility::new(view).check(&job(1, sizes("2,20"))), Ok(()));
}

#[test]
fn a_partition_that_allows_none_of_the_numbers_makes_it_wait() {
    let mut view = cluster(free(8), vec![job(1, sizes("1,6"))]);
    (view.partitions[0].min_nodes, view.partitions[0].max_nodes) = (2, Some(5));
    assert_eq!(plan(&view, NOW).reasons, [(JobId(1), Reason::PartitionNodeLimit)]);
    // None of four tasks is on a sixth node.
    let mut few = cluster(free(8), vec![job(1, JobSpec { tasks: Some(4), ..sizes("1,6") })]);
    few.partitions[0].min_nodes = 2;
    assert_eq!(plan(&few, NOW).reasons, [(JobId(1), Reason::PartitionNodeLimit)]);
    (view.partitions[0].min_nodes, view.partitions[0].max_nodes) = (0, Some(5));
    assert_eq!(started(&view), Some(1));
}
