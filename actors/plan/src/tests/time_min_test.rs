//! Limits that are lowered so that a job starts earlier (`--time-min`).
#![allow(clippy::unwrap_used)]

use super::plan_test::{NOW, wide};
use crate::{
    fixtures::cluster,
    plan::{
        Plan, plan,
        probe::{declined, would_start},
    },
    snapshot::{
        bounds::Bounds,
        facts::{Backfill, ClusterView},
        reservations::Reservations,
    },
};
use garrick_model::{
    ids::JobId,
    reservation::Reservation,
    spec::{JobSpec, Sharing},
    state::{PartitionState, Reason},
    testing::{array, hold, job, node, spec},
    time::TimeLimit,
};
use std::{sync::Arc, time::Duration};

const MINUTE: u64 = 60;

fn minutes(n: u64) -> Option<TimeLimit> {
    Some(TimeLimit::Secs(n * MINUTE))
}

/// Nodes and limit of a job's start.
fn start(plan: &Plan, id: u32) -> Option<(Vec<String>, TimeLimit)> {
    let start = plan.starts.iter().find(|s| s.job == JobId(id))?;
    Some((start.nodes.iter().map(|n| n.name.clone()).collect(), start.time_limit))
}

/// Jobs and their limits in minutes.
fn start_of_limits(plan: &Plan) -> Vec<(u32, u64)> {
    plan.starts.iter().map(|s| (s.job.0, s.time_limit.duration().unwrap().as_secs() / MINUTE)).collect()
}

/// One of two nodes is busy for ten minutes, and a job that wants both has them reserved from then on.
fn before_a_wide_job(spec: JobSpec) -> ClusterView {
    let mut busy = node(0, 4);
    busy.holds.push(hold(90, 0..8, 100, Some(NOW.secs() + 600)));
    let first = JobSpec { time_limit: minutes(60), sharing: Sharing::Exclusive, ..wide(2) };
    cluster(vec![busy, node(1, 4)], vec![job(1, first), job(2, spec)])
}

fn short(limit: u64, least: Option<u64>) -> JobSpec {
    JobSpec { time_limit: minutes(limit), time_min: least.and_then(minutes), ..spec() }
}

#[test]
fn a_limit_is_lowered_as_little_as_it_takes_and_nobody_is_delayed() {
    let expected = plan(&before_a_wide_job(short(20, None)), NOW).expected;
    let made = plan(&before_a_wide_job(short(20, Some(1))), NOW);
    assert_eq!(start(&made, 2), Some((vec!["n1".to_owned()], TimeLimit::Secs(10 * MINUTE))));
    assert_eq!(made.expected[0], expected[0]);
}

#[test]
fn a_limit_is_lowered_only_so_far_and_only_where_that_helps() {
    let started = |spec| start(&plan(&before_a_wide_job(spec), NOW), 2).map(|(_, limit)| limit);
    assert_eq!(started(short(20, None)), None);
    assert_eq!(started(short(20, Some(11))), None);
    assert_eq!(started(short(20, Some(10))), Some(TimeLimit::Secs(10 * MINUTE)));
    assert_eq!(started(short(10, Some(1))), Some(TimeLimit::Secs(10 * MINUTE)));
    let alone = cluster(vec![node(0, 4)], vec![job(2, short(20, Some(1)))]);
    assert_eq!(start(&plan(&alone, NOW), 2).unwrap().1, TimeLimit::Secs(20 * MINUTE));
    let mut in_order = before_a_wide_job(short(20, Some(1)));
    in_order.policy.backfill = Backfill::Off;
    assert_eq!(start(&plan(&in_order, NOW), 2), None);
}

#[test]
fn every_task_of_an_array_has_its_limit_lowered() {
    let tasks = JobSpec { array: Some(array(0, 9, None)), tasks: Some(4), ..short(20, Some(1)) };
    let made = plan(&before_a_wide_job(tasks), NOW);
    let limits: Vec<TimeLimit> = made.starts.iter().filter(|s| s.job == JobId(2)).map(|s| s.time_limit).collect();
    assert_eq!(limits, [TimeLimit::Secs(10 * MINUTE); 2]);
}

#[test]
fn a_limit_is_lowered_to_end_before_a_reservation_and_spoils_nothing_for_others() {
    let mut view = cluster(vec![node(0, 4)], vec![job(1, short(60, Some(10))), job(2, short(10, None))]);
    let start = NOW.plus(Duration::from_secs(30 * MINUTE));
    let kept = Reservation {
        name: "kept".to_owned(),
        start,
        end: start.plus(Duration::from_secs(60 * MINUTE)),
        nodes: vec!["n0".to_owned()],
        ..Reservation::default()
    };
    view.reservations = Reservations::new(&[Arc::new(kept)], &view.nodes, Vec::new(), NOW, &jiff::tz::TimeZone::UTC);
    let made = plan(&view, NOW);
    assert_eq!(start_of_limits(&made), [(1, 30), (2, 10)]);
    // Nor does it where nothing short enough would do.
    let before = |least| {
        let mut view = view.clone();
        view.pending[0] = Arc::new(job(1, short(60, Some(least))));
        start_of_limits(&plan(&view, NOW))
    };
    assert_eq!(before(31), [(2, 10)]);
}

#[test]
fn no_limit_is_lowered_where_nothing_may_start() {
    let mut view = before_a_wide_job(short(20, Some(1)));
    view.policy.bounds = Some(Arc::new(Bounds { backfilled: Some(0), ..Bounds::default() }));
    assert_eq!(start_of_limits(&plan(&view, NOW)), []);
    view.policy.bounds = Some(Arc::new(Bounds { backfilled: Some(1), ..Bounds::default() }));
    assert_eq!(start_of_limits(&plan(&view, NOW)), [(2, 10)]);
}

#[test]
fn no_start_is_promised_where_the_partition_forbids_it() {
    let long = job(2, short(99, None));
    let mut view = cluster(vec![node(0, 4)], Vec::new());
    let why_not = |view: &ClusterView| declined(view, std::slice::from_ref(&long), NOW);
    assert!(would_start(&view, &long, NOW).is_some());
    view.partitions[0].max_time = TimeLimit::Secs(30 * MINUTE);
    assert_eq!((would_start(&view, &long, NOW), why_not(&view)), (None, Reason::PartitionTimeLimit));
    view.partitions[0].max_time = TimeLimit::Unlimited;
    view.partitions[0].state = PartitionState::Down;
    assert_eq!((would_start(&view, &long, NOW), why_not(&view)), (None, Reason::PartitionDown));
}
