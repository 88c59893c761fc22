//! Rules of constraints on nodes together, and of preferences.
#![allow(clippy::unwrap_used)]

use super::plan_test::NOW;
use crate::{
    fixtures::cluster,
    plan::{Plan, plan, probe::Feasibility},
    snapshot::facts::ClusterView,
};
use garrick_model::{
    ids::JobId,
    spec::{JobSpec, NodeCount},
    state::Reason,
    testing::{hold, job, node, spec},
    time::{TimeLimit, Timestamp},
    view::NodeView,
};

/// Nodes of two CPUs with these features.
fn nodes(features: &[&str]) -> Vec<NodeView> {
    let with = |(place, text): (usize, &&str)| {
        let mut node = node(u32::try_from(place).unwrap(), 1);
        node.features = text.split_whitespace().map(str::to_owned).collect();
        node
    };
    features.iter().enumerate().map(with).collect()
}

fn asks(constraint: &str, nodes: u32) -> JobSpec {
    let nodes = Some(NodeCount { min: nodes, max: None });
    JobSpec { constraint: Some(constraint.to_owned()), nodes, ..spec() }
}

fn prefers(prefer: &str, constraint: Option<&str>) -> JobSpec {
    JobSpec { prefer: Some(prefer.to_owned()), constraint: constraint.map(str::to_owned), ..spec() }
}

fn started(view: &ClusterView, id: u32) -> Vec<String> {
    let plan: Plan = plan(view, NOW);
    plan.starts.iter().filter(|s| s.job == JobId(id)).flat_map(|s| s.nodes.iter().map(|n| n.name.clone())).collect()
}

#[test]
fn so_many_nodes_have_each_feature() {
    let view = cluster(nodes(&["b", "b", "a", "", "a", "b"]), vec![job(1, asks("a*2&b*1", 3))]);
    assert_eq!(started(&view, 1), ["n0", "n2", "n4"]);
    let view = cluster(nodes(&["b", "b", "a", "", "a", "b"]), vec![job(1, asks("[a*1&b*3]", 4))]);
    assert_eq!(started(&view, 1), ["n0", "n1", "n2", "n5"]);
}

#[test]
fn the_rest_of_the_nodes_may_be_any() {
    let view = cluster(nodes(&["", "", "a"]), vec![job(1, asks("a*1", 2))]);
    assert_eq!(started(&view, 1), ["n0", "n2"]);
}

#[test]
fn no_node_counts_for_two() {
    // Only n0 can be b, so that a has to do with n1.
    let view = cluster(nodes(&["a b", "a", "c"]), vec![job(1, asks("[a*1&b*1]", 2))]);
    assert_eq!(started(&view, 1), ["n0", "n1"]);
    let view = cluster(nodes(&["a b", "c"]), vec![job(1, asks("[a*1&b*1]", 2))]);
    assert_eq!(started(&view, 1), Vec::<String>::new());
    // A chain: each has to move for the next.
    let view = cluster(nodes(&["a b", "b c", "c", "a"]), vec![job(1, asks("[b*1&c*2&a*1]", 4))]);
    assert_eq!(started(&view, 1).len(), 4);
}

#[test]
fn without_a_number_of_nodes_the_counts_are_enough() {
    let any = JobSpec { constraint: Some("a*1&b*2".to_owned()), tasks: Some(6), ..spec() };
    let view = cluster(nodes(&["a", "b", "b"]), vec![job(1, any)]);
    assert_eq!(started(&view, 1), ["n0", "n1", "n2"]);
}

#[test]
fn all_nodes_are_of_one_alternative() {
    let free = nodes(&["r1", "r2", "r1", "r2", "r2"]);
    let view = cluster(free.clone(), vec![job(1, asks("[r1|r2]", 2))]);
    assert_eq!(started(&view, 1), ["n0", "n2"]);
    let view = cluster(free.clone(), vec![job(1, asks("[r1|r2]", 3))]);
    assert_eq!(started(&view, 1), ["n1", "n3", "n4"]);
    let view = cluster(free, vec![job(1, asks("[r1|r2]", 4))]);
    assert_eq!(started(&view, 1), Vec::<String>::new());
}

#[test]
fn named_and_neighbouring_nodes_count() {
    let named = JobSpec { nodelist: vec!["n3".to_owned()], ..asks("a*2", 2) };
    let view = cluster(nodes(&["a", "", "", "a"]), vec![job(1, named)]);
    assert_eq!(started(&view, 1), ["n0", "n3"]);
    let neighbours = JobSpec { contiguous: true, ..asks("[a*1&b*1]", 2) };
    let view = cluster(nodes(&["a", "", "a", "b"]), vec![job(1, neighbours)]);
    assert_eq!(started(&view, 1), ["n2", "n3"]);
}

#[test]
fn what_never_fits_is_refused_and_what_is_down_waits() {
    let mut all = nodes(&["a", "b"]);
    let check = |all: &Vec<NodeView>, text: &str, count| {
        Feasibility::new(cluster(all.clone(), Vec::new())).check(&job(1, asks(text, count)))
    };
    assert_eq!(check(&all, "a*1&b*1", 2), Ok(()));
    assert!(check(&all, "a*2", 2).is_err());
    assert!(check(&all, "[a|b]", 2).is_err());
    all[1].flags.drain = true;
    let view = cluster(all, vec![job(1, asks("a*1&b*1", 2))]);
    assert_eq!(plan(&view, NOW).reasons, [(JobId(1), Reason::NodesUnavailable)]);
}

#[test]
fn room_to_come_is_reserved_on_nodes_of_each_kind() {
    let mut all = nodes(&["a", "b", "b"]);
    let end = |secs| Some(NOW.0 / 1000 + secs);
    all[1].holds.push(hold(90, 0..2, 0, end(600)));
    all[2].holds.push(hold(91, 0..2, 0, end(1200)));
    let long = JobSpec { time_limit: Some(TimeLimit::Secs(7200)), ..spec() };
    let view = cluster(all, vec![job(1, asks("[a*1&b*1]", 2)), job(2, long)]);
    let plan = plan(&view, NOW);
    let at = Timestamp::from_secs(NOW.0 / 1000 + 600);
    assert_eq!(plan.expected[0], (JobId(1), at));
    let places: Vec<usize> = plan.reservations[0].nodes.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, [0, 1]);
    assert!(plan.starts.is_empty(), "n0 is kept: {:?}", plan.starts);
}

#[test]
fn what_is_preferred_is_taken_where_it_is_free_now() {
    let mut all = nodes(&["a", "b", "a b"]);
    let view = cluster(all.clone(), vec![job(1, prefers("b", Some("a")))]);
    assert_eq!(started(&view, 1), ["n1"], "it goes over the constraint");
    all[1].holds.push(hold(90, 0..2, 0, None));
    all[2].holds.push(hold(90, 0..2, 0, None));
    let view = cluster(all.clone(), vec![job(1, prefers("b", Some("a")))]);
    assert_eq!(started(&view, 1), ["n0"]);
    let view = cluster(all, vec![job(1, prefers("b", None))]);
    assert_eq!(started(&view, 1), ["n0"]);
}

#[test]
fn a_job_that_starts_nowhere_waits_for_its_constraint() {
    let mut all = nodes(&["a", "b"]);
    let end = |secs| Some(NOW.0 / 1000 + secs);
    all[0].holds.push(hold(90, 0..2, 0, end(1200)));
    all[1].holds.push(hold(91, 0..2, 0, end(600)));
    let view = cluster(all, vec![job(1, prefers("b", Some("a")))]);
    let plan = plan(&view, NOW);
    assert_eq!(plan.expected[0].1, Timestamp::from_secs(NOW.0 / 1000 + 1200));
    assert_eq!(plan.reservations[0].nodes[0].0, 0);
}
