//! Blocks and leaf switches that stay whole (`topology_patience`): rules by example, and properties over random clusters and
//! queues.
#![allow(clippy::unwrap_used)]

use super::{
    plan_test::{NOW, overbooked, overbooked_later},
    topology_test::{any_layout, any_spec, any_switches, blocks, places, wide, with},
};
use crate::{
    plan::{Plan, plan},
    snapshot::facts::{Backfill, ClusterView},
};
use garrick_model::{
    ids::JobId,
    spec::JobSpec,
    state::Reason,
    testing::job,
    time::{TimeLimit, Timestamp},
    view::JobView,
};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

const HOUR: Duration = Duration::from_secs(3600);

fn minutes(n: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(n * 60))
}

fn fresh(id: u32, spec: JobSpec) -> JobView {
    JobView { submit_time: NOW, eligible_time: Some(NOW), ..job(id, spec) }
}

fn patient(mut view: ClusterView, patience: Duration) -> ClusterView {
    view.policy.topology_patience = Some(patience);
    view
}

fn reason(plan: &Plan, id: u32) -> Option<&Reason> {
    plan.reasons.iter().find(|(job, _)| *job == JobId(id)).map(|(_, reason)| reason)
}

/// The first block is idle; of the second, two nodes are busy for an hour and one for ten minutes.
fn one_broken(jobs: Vec<JobView>) -> ClusterView {
    with(blocks(4, 2, vec![4]), &[(5, 60), (6, 60), (7, 10)], 8, jobs)
}

#[test]
fn a_job_waits_for_a_broken_block_as_long_as_it_has_patience() {
    let view = one_broken(vec![fresh(1, wide(2, any_switches()))]);
    assert_eq!(places(&plan(&view, NOW), 1), Some((NOW, BTreeSet::from([0, 1]))));
    let made = plan(&patient(view.clone(), Duration::from_secs(600)), NOW);
    assert_eq!(places(&made, 1), Some((minutes(10), BTreeSet::from([4, 7]))));
    assert_eq!((reason(&made, 1), made.again), (Some(&Reason::Fragmentation), Some(minutes(10))));
    assert_eq!(made.expected, [(JobId(1), minutes(10))]);
    // Ten minutes are more than it is to wait.
    let made = plan(&patient(view, Duration::from_secs(599)), NOW);
    assert_eq!((places(&made, 1), made.again), (Some((NOW, BTreeSet::from([0, 1]))), None));
}

#[test]
fn patience_counts_from_when_a_job_might_start() {
    let mut waiting = fresh(1, wide(2, any_switches()));
    waiting.submit_time = Timestamp(NOW.0 - 10_000_000);
    let view = |waiting: &JobView| patient(one_broken(vec![waiting.clone()]), Duration::from_secs(660));
    assert_eq!(reason(&plan(&view(&waiting), NOW), 1), Some(&Reason::Fragmentation));
    waiting.eligible_time = Some(Timestamp(NOW.0 - 61_000));
    assert_eq!(places(&plan(&view(&waiting), NOW), 1).unwrap().0, NOW);
}

#[test]
fn a_job_is_held_to_the_start_that_it_was_told() {
    let mut waiting = fresh(1, wide(2, any_switches()));
    waiting.start_time = Some(minutes(9));
    let view = patient(one_broken(vec![waiting]), HOUR);
    assert_eq!(places(&plan(&view, NOW), 1).unwrap().0, NOW);
}

#[test]
fn who_has_room_in_a_broken_block_starts_there() {
    let jobs = vec![fresh(1, wide(4, any_switches()))];
    // A pair of blocks is whole; one block of the other pair is idle too.
    let view = with(blocks(4, 4, vec![4, 8]), &[(9, 60)], 16, jobs);
    assert_eq!(places(&plan(&view, NOW), 1), Some((NOW, BTreeSet::from([0, 1, 2, 3]))));
    let made = plan(&patient(view, Duration::ZERO), NOW);
    assert_eq!(places(&made, 1), Some((NOW, BTreeSet::from([12, 13, 14, 15]))));
}

#[test]
fn a_block_that_somebody_will_have_need_not_stay_whole() {
    // The first job has the whole of the first block in an hour, when the fourth node is free.
    let mut second = fresh(2, JobSpec { time_limit: Some(TimeLimit::Secs(600)), ..wide(2, any_switches()) });
    second.priority = 0;
    let view = with(
        blocks(4, 2, vec![4, 8]),
        &[(5, 60), (6, 60), (7, 10)],
        8,
        vec![fresh(1, wide(8, any_switches())), second],
    );
    let made = plan(&patient(view, HOUR), NOW);
    assert_eq!(places(&made, 1).unwrap().0, minutes(60));
    assert_eq!(places(&made, 2).unwrap().0, NOW);
}

#[test]
fn nobody_waits_where_others_would_pay() {
    // Both want the two nodes that are left of the broken block in ten minutes; the second fits nowhere else.
    let mut second = fresh(2, wide(2, any_switches()));
    second.spec = Arc::new(JobSpec { exclude: (0..4).map(|n| format!("n{n}")).collect(), ..(*second.spec).clone() });
    let view = patient(one_broken(vec![fresh(1, wide(2, any_switches())), second]), HOUR);
    let made = plan(&view, NOW);
    assert_eq!(places(&made, 1), Some((NOW, BTreeSet::from([0, 1]))));
    assert_eq!(places(&made, 2), Some((minutes(10), BTreeSet::from([4, 7]))));
}

#[test]
fn who_waits_so_goes_before_those_that_came_later() {
    let mut first = fresh(1, wide(2, any_switches()));
    (first.reason, first.start_time) = (Reason::Fragmentation, Some(minutes(10)));
    let mut later = fresh(2, wide(2, any_switches()));
    later.priority = first.priority + 1000;
    later.spec = Arc::new(JobSpec { exclude: (0..4).map(|n| format!("n{n}")).collect(), ..(*later.spec).clone() });
    let made = plan(&patient(one_broken(vec![first, later]), HOUR), NOW);
    assert_eq!(places(&made, 1), Some((minutes(10), BTreeSet::from([4, 7]))));
    assert!(places(&made, 2).unwrap().0 > minutes(10));
}

#[test]
fn with_sched_builtin_nobody_waits_so() {
    let mut view = patient(one_broken(vec![fresh(1, wide(2, any_switches()))]), HOUR);
    view.policy.backfill = Backfill::Off;
    assert_eq!(places(&plan(&view, NOW), 1).unwrap().0, NOW);
}

/// When each job starts or is to start.
fn times(plan: &Plan) -> BTreeMap<JobId, Timestamp> {
    let now = plan.starts.iter().map(|start| (start.job, NOW));
    plan.expected.iter().copied().chain(now).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_waits_longer_than_patience_and_nobody_else_pays(
        (layout, count) in any_layout(),
        busy in prop::collection::vec((0u32..32, 1i64..120), 0..8),
        specs in prop::collection::vec(any_spec(), 1..12),
        (patience, ages) in (0u64..4000, prop::collection::vec(0i64..5000, 12)),
        easy in any::<bool>(),
    ) {
        let mut seen = BTreeSet::new();
        let busy: Vec<(u32, i64)> =
            busy.into_iter().map(|(n, m)| (n % count, m)).filter(|(n, _)| seen.insert(*n)).collect();
        let jobs: Vec<JobView> = specs.into_iter().zip(1..).zip(&ages).map(|((spec, id), age)| {
            let submitted = Timestamp(NOW.0 - age * 1000);
            JobView { submit_time: submitted, eligible_time: Some(submitted), ..job(id, spec) }
        }).collect();
        let mut view = with(layout, &busy, count, jobs.clone());
        if easy {
            view.policy.backfill = Backfill::First(1);
        }
        let off = plan(&view, NOW);
        prop_assert_eq!(off.again, None);
        prop_assert!(off.reasons.iter().all(|(_, reason)| *reason != Reason::Fragmentation));
        let placed_only = plan(&patient(view.clone(), Duration::ZERO), NOW);
        prop_assert!(placed_only.reasons.iter().all(|(_, reason)| *reason != Reason::Fragmentation));
        let patience = Duration::from_secs(patience);
        let view = patient(view, patience);
        let made = plan(&view, NOW);
        prop_assert_eq!(overbooked(&view, &made), None);
        prop_assert_eq!(overbooked_later(&view, &made, NOW), None);
        prop_assert_eq!(&made, &plan(&view, NOW));
        let (with, without) = (times(&made), times(&placed_only));
        let mut first = None;
        for job in &jobs {
            let at = with.get(&job.id).copied();
            let waits = made.reasons.contains(&(job.id, Reason::Fragmentation));
            if waits {
                let at = at.unwrap();
                prop_assert!(at > NOW && at <= job.submit_time.plus(patience), "job {} waits until {at:?}", job.id);
                first = Some(first.map_or(at, |known: Timestamp| known.min(at)));
            } else if let Some(before) = without.get(&job.id) {
                prop_assert!(at.is_some_and(|at| at <= *before), "job {}: {at:?} instead of {before:?}", job.id);
            }
        }
        prop_assert_eq!(made.again, first);
    }
}
