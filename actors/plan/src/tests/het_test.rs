//! Heterogeneous jobs in plans: all components or none, now and later.
#![allow(clippy::unwrap_used)]

use super::plan_test::{NOW, any_node, any_spec, nodes_of_kind, overbooked, overbooked_later, wide};
use crate::{
    fixtures::{cluster, partition},
    plan::{
        Plan, plan,
        probe::{Feasibility, would_start_together},
    },
    snapshot::facts::{Backfill, ClusterView},
};
use garrick_model::{
    ids::JobId,
    spec::{JobSpec, Sharing},
    state::Reason,
    testing::{hold, job, node, spec},
    time::TimeLimit,
    view::JobView,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Components with ids from `leader` on.
fn group(leader: u32, specs: Vec<JobSpec>) -> Vec<JobView> {
    let size = u32::try_from(specs.len()).unwrap();
    let with_offset = |(spec, offset): (JobSpec, u32)| {
        let spec = JobSpec { het: Some((JobId(leader), offset)), het_size: size, array: None, ..spec };
        // Equal priorities, as if nobody else had submitted meanwhile.
        JobView { priority: 1_000_000 - leader, ..job(leader + offset, spec) }
    };
    specs.into_iter().zip(0..).map(with_offset).collect()
}

fn whole(nodes: u32) -> JobSpec {
    JobSpec { sharing: Sharing::Exclusive, ..wide(nodes) }
}

fn reason(plan: &Plan, id: u32) -> Reason {
    plan.reasons.iter().find(|(job, _)| *job == JobId(id)).map_or(Reason::None, |(_, r)| r.clone())
}

fn reserved(plan: &Plan, id: u32) -> Option<i64> {
    plan.reservations.iter().find(|r| r.job == JobId(id)).map(|r| r.from.secs() - NOW.secs())
}

fn busy(node: &mut garrick_model::view::NodeView, secs: i64) {
    node.holds.push(hold(90 + node.index.0, 0..2, 0, Some(NOW.secs() + secs)));
}

#[test]
fn all_components_are_proposed_as_one() {
    let plan_of = plan(&cluster(vec![node(0, 1), node(1, 1), node(2, 1)], group(1, vec![whole(1), whole(2)])), NOW);
    assert_eq!(plan_of.starts.len(), 1);
    let start = &plan_of.starts[0];
    assert_eq!((start.job, start.nodes.len()), (JobId(1), 1));
    assert_eq!(start.others.iter().map(|o| (o.job, o.nodes.len())).collect::<Vec<_>>(), [(JobId(2), 2)]);
    assert!(start.nodes.iter().all(|n| !start.others[0].nodes.iter().any(|o| o.name == n.name)));
    assert!(plan_of.reasons.is_empty());
}

#[test]
fn would_start_asks_for_all_of_it_behind_the_queue() {
    let mut nodes = vec![node(0, 1), node(1, 1), node(2, 1)];
    let asked = |view: &ClusterView| {
        let answer = would_start_together(view, &group(20, vec![whole(1), whole(2)]), NOW)?;
        Some(answer.iter().map(|start| (start.at.secs() - NOW.secs(), start.nodes.len())).collect::<Vec<_>>())
    };
    assert_eq!(asked(&cluster(nodes.clone(), vec![])), Some(vec![(0, 1), (0, 2)]));
    busy(&mut nodes[2], 600);
    assert_eq!(asked(&cluster(nodes.clone(), vec![])), Some(vec![(600, 1), (600, 2)]));
    // One that waits for all nodes goes first, for an hour.
    let mut view = cluster(nodes, vec![job(1, whole(3))]);
    assert_eq!(asked(&view), Some(vec![(4200, 1), (4200, 2)]));
    // However far a plan looks.
    view.policy.backfill_window = std::time::Duration::from_secs(1000);
    assert_eq!(asked(&view), Some(vec![(4200, 1), (4200, 2)]));
    // Behind one without an end, which is taken to run for a year.
    let mut endless = vec![node(0, 1), node(1, 1)];
    endless.iter_mut().for_each(|node| node.holds.push(hold(90, 0..2, 0, None)));
    let hour = || JobSpec { time_limit: Some(TimeLimit::Secs(3600)), ..whole(1) };
    let found = would_start_together(&cluster(endless, vec![]), &group(20, vec![hour(), hour()]), NOW).unwrap();
    let year = i64::try_from(crate::snapshot::facts::UNLIMITED_FOR_PLANNING.as_secs()).unwrap();
    assert!(found.iter().all(|start| start.at.secs() - NOW.secs() == year), "{found:?}");
    let too_much = would_start_together(&view, &group(20, vec![whole(1), whole(4)]), NOW);
    assert_eq!(too_much, None);
}

#[test]
fn one_component_alone_never_starts_and_room_is_kept_for_all_at_one_time() {
    let mut nodes = vec![node(0, 1), node(1, 1), node(2, 1)];
    busy(&mut nodes[1], 600);
    busy(&mut nodes[2], 1200);
    // Behind them: one that would delay the first component, and one that ends before all of them begin.
    let long = JobSpec { time_limit: Some(TimeLimit::Secs(1800)), ..whole(1) };
    let short = JobSpec { time_limit: Some(TimeLimit::Secs(1200)), ..whole(1) };
    let mut jobs = group(1, vec![whole(1), whole(2)]);
    jobs.extend([job(5, long), job(6, short)]);
    let plan_of = plan(&cluster(nodes, jobs), NOW);
    assert_eq!(plan_of.starts.iter().map(|s| s.job).collect::<Vec<_>>(), [JobId(6)]);
    assert_eq!((reserved(&plan_of, 1), reserved(&plan_of, 2)), (Some(1200), Some(1200)));
    assert_eq!((reason(&plan_of, 1), reason(&plan_of, 2)), (Reason::Resources, Reason::Resources));
    assert_eq!(reason(&plan_of, 5), Reason::Priority);
    let expected: BTreeMap<_, _> = plan_of.expected.iter().copied().collect();
    assert_eq!(expected[&JobId(1)], expected[&JobId(2)]);
}

#[test]
fn a_component_that_waits_for_something_else_keeps_all_of_them() {
    let mut jobs = group(1, vec![spec(), spec()]);
    jobs[1].eligible = false;
    jobs[1].reason = Reason::JobHeldUser;
    let plan_of = plan(&cluster(vec![node(0, 4)], jobs), NOW);
    assert!(plan_of.starts.is_empty() && plan_of.reservations.is_empty());
    assert_eq!(reason(&plan_of, 1), Reason::JobHeldUser);
    // One that is not back in the queue yet.
    let plan_of = plan(&cluster(vec![node(0, 4)], group(1, vec![spec(), spec()])[..1].to_vec()), NOW);
    assert!(plan_of.starts.is_empty());
    assert_eq!(reason(&plan_of, 1), Reason::Resources);
}

#[test]
fn what_can_never_start_holds_nobody_back() {
    let mut jobs = group(1, vec![whole(1), whole(9)]);
    jobs.push(job(5, whole(2)));
    let plan_of = plan(&cluster(vec![node(0, 1), node(1, 1)], jobs), NOW);
    assert_eq!(plan_of.starts.iter().map(|s| s.job).collect::<Vec<_>>(), [JobId(5)]);
    assert!(plan_of.reservations.is_empty());
    assert_eq!((reason(&plan_of, 1), reason(&plan_of, 2)), (Reason::PartitionConfig, Reason::PartitionConfig));
}

#[test]
fn one_that_wants_a_node_out_of_service_holds_nobody_back() {
    let mut nodes = vec![node(0, 1), node(1, 1)];
    nodes[1].flags.drain = true;
    let named = JobSpec { nodelist: vec!["n1".to_owned()], ..whole(1) };
    let mut jobs = group(1, vec![spec(), named]);
    jobs.push(job(5, spec()));
    let mut view = cluster(nodes, jobs);
    for backfill in [Backfill::Off, Backfill::First(1), Backfill::Conservative] {
        view.policy.backfill = backfill;
        let made = plan(&view, NOW);
        assert_eq!(made.starts.iter().map(|s| s.job).collect::<Vec<_>>(), [JobId(5)], "{backfill:?}");
        assert!(reason(&made, 1).is_unavailable_nodes() && reason(&made, 2).is_unavailable_nodes());
    }
}

#[test]
fn components_may_be_in_different_partitions() {
    let jobs = group(
        1,
        vec![
            JobSpec { partitions: vec!["a".to_owned()], ..whole(1) },
            JobSpec { partitions: vec!["b".to_owned()], ..whole(1) },
        ],
    );
    let mut view = cluster(vec![node(0, 1), node(1, 1)], jobs);
    view.partitions = vec![partition("a", 0..1), partition("b", 1..2)];
    let plan_of = plan(&view, NOW);
    assert_eq!(plan_of.starts[0].nodes[0].name, "n0");
    assert_eq!(plan_of.starts[0].others[0].nodes[0].name, "n1");
}

#[test]
fn without_reservations_nothing_starts_behind_them() {
    let mut nodes = vec![node(0, 1), node(1, 1)];
    busy(&mut nodes[1], 600);
    let mut jobs = group(1, vec![whole(1), whole(1)]);
    jobs.push(job(5, whole(1)));
    let mut view = cluster(nodes, jobs);
    view.policy.backfill = Backfill::Off;
    let plan_of = plan(&view, NOW);
    assert!(plan_of.starts.is_empty());
    assert_eq!(reason(&plan_of, 5), Reason::Priority);
}

/// Components and plain jobs mixed; each number is how many components the next job has.
fn mixed(specs: Vec<JobSpec>, sizes: &[usize]) -> Vec<JobView> {
    let mut jobs = Vec::new();
    let mut specs = specs.into_iter().peekable();
    for size in sizes.iter().cycle() {
        if specs.peek().is_none() {
            break;
        }
        let some: Vec<JobSpec> = specs.by_ref().take(*size).collect();
        let id = u32::try_from(jobs.len()).unwrap() + 1;
        match some.len() {
            1 => jobs.extend(some.into_iter().map(|spec| job(id, spec))),
            _ => jobs.extend(group(id, some)),
        }
    }
    jobs
}

fn check(view: &ClusterView, plan_of: &Plan, jobs: &[JobView]) -> Result<(), TestCaseError> {
    prop_assert_eq!(overbooked(view, plan_of), None);
    prop_assert_eq!(overbooked_later(view, plan_of, NOW), None);
    for start in &plan_of.starts {
        let leader = jobs.iter().find(|j| j.id == start.job).unwrap();
        let others: Vec<JobId> = leader.spec.het_others().collect();
        prop_assert_eq!(start.others.iter().map(|o| o.job).collect::<Vec<_>>(), others);
        prop_assert!(leader.spec.het_leader_of_component().is_none(), "a component alone");
    }
    // Room later is for all of a job, and at one time.
    for leader in jobs.iter().filter(|j| j.spec.het.is_some_and(|(_, offset)| offset == 0)) {
        let of = |id: JobId| plan_of.reservations.iter().find(|r| r.job == id).map(|r| r.from);
        let first = of(leader.id);
        prop_assert!(leader.spec.het_others().all(|other| of(other) == first), "{:?}", plan_of.reservations);
    }
    let started = |id: JobId| plan_of.starts.iter().any(|s| s.job == id || s.others.iter().any(|o| o.job == id));
    for job in jobs {
        prop_assert!(
            started(job.id) || plan_of.reasons.iter().any(|(j, _)| *j == job.id),
            "{:?} has no reason",
            job.id
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_or_nothing_and_nothing_is_overbooked(
        machines in prop::collection::vec(any_node(), 1..10),
        specs in prop::collection::vec(any_spec(), 1..20),
        sizes in prop::collection::vec(1usize..4, 1..6),
        backfill in prop_oneof![Just(Backfill::Off), (1u32..4).prop_map(Backfill::First), Just(Backfill::Conservative)],
    ) {
        let jobs = mixed(specs, &sizes);
        let mut view = cluster(nodes_of_kind(&machines), jobs.clone());
        view.policy.backfill = backfill;
        let plan_of = plan(&view, NOW);
        prop_assert_eq!(&plan_of, &plan(&view, NOW));
        check(&view, &plan_of, &jobs)?;
    }
}

#[test]
fn one_that_could_go_anywhere_leaves_the_node_that_another_names() {
    let on_first = JobSpec { nodelist: vec!["n0".to_owned()], ..whole(1) };
    let plan_of = plan(&cluster(vec![node(0, 2), node(1, 2)], group(1, vec![spec(), on_first.clone()])), NOW);
    let start = &plan_of.starts[0];
    assert_eq!((start.nodes[0].name.as_str(), start.others[0].nodes[0].name.as_str()), ("n1", "n0"));
    // Later too.
    let mut nodes = vec![node(0, 2), node(1, 2)];
    nodes.iter_mut().for_each(|node| busy(node, 600));
    let plan_of = plan(&cluster(nodes, group(1, vec![spec(), on_first])), NOW);
    assert_eq!((reserved(&plan_of, 1), reserved(&plan_of, 2)), (Some(600), Some(600)));
}

#[test]
fn components_that_never_fit_together_are_known() {
    let view = |licenses: u32| {
        let mut view = cluster(vec![node(0, 2), node(1, 2)], Vec::new());
        view.licenses.totals = [("a".to_owned(), licenses)].into();
        view.nodes.iter_mut().for_each(|node| std::sync::Arc::make_mut(node).flags.not_responding = true);
        Feasibility::new(view)
    };
    let of = |count: u32| JobSpec { licenses: Some(format!("a:{count}")), ..spec() };
    let on_first = || JobSpec { nodelist: vec!["n0".to_owned()], ..whole(1) };
    assert!(view(2).check_together(&group(1, vec![of(2), of(1)])).is_err());
    assert!(view(3).check_together(&group(1, vec![of(2), of(1)])).is_ok());
    assert!(view(0).check_together(&group(1, vec![whole(2), spec()])).is_err());
    assert!(view(0).check_together(&group(1, vec![whole(1), spec()])).is_ok());
    assert!(view(0).check_together(&group(1, vec![on_first(), on_first()])).is_err());
    assert!(view(0).check_together(&group(1, vec![spec(), on_first()])).is_ok());
}

#[test]
fn one_that_wants_what_few_nodes_have_goes_first() {
    let mut nodes = vec![node(0, 2), node(1, 2)];
    nodes[0].features = vec!["gpu".to_owned()];
    let on_gpu = JobSpec { constraint: Some("gpu".to_owned()), ..whole(1) };
    let members = group(1, vec![whole(1), on_gpu]);
    assert!(Feasibility::new(cluster(nodes.clone(), Vec::new())).check_together(&members).is_ok());
    let plan_of = plan(&cluster(nodes, members), NOW);
    let start = &plan_of.starts[0];
    assert_eq!((start.nodes[0].name.as_str(), start.others[0].nodes[0].name.as_str()), ("n1", "n0"));
}

#[test]
fn what_may_come_yet_is_not_refused() {
    let feasibility = Feasibility::new(cluster(vec![node(0, 2), node(1, 2)], Vec::new()));
    let more = group(1, vec![whole(3), spec()]);
    assert!(feasibility.check_together(&more).is_ok(), "it waits as it would alone");
    let unknown = JobSpec { constraint: Some("gpu".to_owned()), ..whole(1) };
    assert!(feasibility.check_together(&group(1, vec![whole(2), unknown])).is_ok());
}
