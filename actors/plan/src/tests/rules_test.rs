//! What rules read, and what repairs of kept plans make of it.

use super::plan_test::NOW;
use crate::{
    fixtures::cluster,
    rules::{self, RULES, follow, read_the_same},
    snapshot::{
        bounds::Bounds,
        changes::{Fact, Follows, Minds},
        facts::{Backfill, ClusterView},
    },
};
use garrick_model::{
    ids::JobId,
    spec::JobSpec,
    spec_text::licenses::Licenses,
    state::JobState,
    testing::{job, node, spec},
    view::JobView,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

const NOBODY: Minds = Minds { licenses: false, reservations: false };

#[test]
fn each_rule_says_once_what_it_reads() {
    let names: BTreeSet<&str> = RULES.iter().map(|rule| rule.rule).collect();
    assert_eq!(names.len(), RULES.len());
    let view = cluster(vec![node(0, 4)], vec![job(1, spec())]);
    assert!(rules::allow_repairs(&view) && read_the_same(&view, &view, NOBODY, NOW));
}

/// What each reads by its code, besides nodes and the job.
#[test]
fn each_rule_names_the_facts_that_it_reads() {
    use Fact::{Accounting, Closings, Licenses, LicensesHeld, Partitions, Policy, Reservations};
    let all = Minds { licenses: true, reservations: true };
    let reads: Vec<(&str, &[Fact])> = RULES.iter().map(|rule| (rule.rule, (rule.facts)(all))).collect();
    let known: [(&str, &[Fact]); 13] = [
        ("limits", &[Partitions, Accounting]),
        ("accounting", &[Accounting]),
        ("bounds", &[Policy]),
        ("reservations", &[Closings, Reservations]),
        ("licenses", &[Licenses, LicensesHeld]),
        ("features", &[Policy, Partitions]),
        ("arrays", &[Policy]),
        ("backfill", &[Policy, Partitions]),
        ("expedited", &[Closings]),
        ("caps", &[Partitions]),
        ("whole", &[Policy]),
        ("het", &[Policy]),
        ("preempt", &[Policy, Partitions, Closings]),
    ];
    assert_eq!(reads, known);
}

#[test]
fn a_kept_plan_stands_until_something_changes_that_a_rule_reads() {
    let view = cluster(vec![node(0, 4)], vec![job(1, spec())]);
    let same = |change: &dyn Fn(&mut ClusterView), minds: Minds| {
        let mut other = view.clone();
        change(&mut other);
        read_the_same(&view, &other, minds, NOW)
    };
    let held = |view: &mut ClusterView| view.licenses.held.push((JobId(9), Licenses::default(), None));
    assert!(!same(&|view| view.policy.backfill_depth += 1, NOBODY));
    assert!(!same(&|view| view.partitions[0].tier += 1, NOBODY));
    assert!(!same(&|view| _ = view.licenses.totals.insert("a".to_owned(), 1), NOBODY));
    // Who has licenses is read for those who want some.
    assert!(same(&held, NOBODY));
    assert!(!same(&held, Minds { licenses: true, ..NOBODY }));
    // These are followed one by one.
    assert!(same(&|view| view.pending.clear(), NOBODY));
    assert!(same(&|view| _ = view.array_running.insert(JobId(1), 1), NOBODY));
}

#[test]
fn plans_are_not_repaired_where_a_rule_is_in_use_that_repairs_do_not_follow() {
    let allowed = |change: &dyn Fn(&mut ClusterView)| {
        let mut view = cluster(vec![node(0, 4)], vec![job(1, spec())]);
        change(&mut view);
        rules::allow_repairs(&view)
    };
    assert!(allowed(&|_| {}));
    let within =
        |bounds: Bounds| allowed(&|view: &mut ClusterView| view.policy.bounds = Some(Arc::new(bounds.clone())));
    assert!(within(Bounds { of_user: Some(1), of_partition: Some(2), backfilled: Some(3), ..Bounds::default() }));
    assert!(!within(Bounds { min_age: Duration::from_secs(1), ..Bounds::default() }));
    assert!(!within(Bounds { of_user: Some(1), plan_time: Some(Duration::from_secs(1)), ..Bounds::default() }));
    assert!(!allowed(&|view| view.policy.shortest_first = Some(Duration::ZERO)));
    assert!(!allowed(&|view| view.policy.topology_patience = Some(Duration::ZERO)));
    assert!(!allowed(&|view| view.partitions[0].caps.per_node = Some(2)));
}

#[test]
fn who_keeps_its_room_does_so_for_one_reason_and_where_all_have_room() {
    let view = cluster(vec![node(0, 4)], Vec::new());
    let names = |count: usize| (0..count).map(|n| format!("r{n}")).collect::<Vec<_>>();
    let booked = |count: usize| JobSpec { reservations: names(count), ..spec() };
    let het = |spec: JobSpec| JobSpec { het: Some((JobId(1), 0)), ..spec };
    let with = |spec: JobSpec| follow(&view, &job(1, spec));
    assert_eq!(with(spec()), Follows::Wholly);
    assert_eq!(with(booked(1)), Follows::Keeps);
    assert_eq!(with(booked(2)), Follows::No);
    assert_eq!(with(het(spec())), Follows::Keeps);
    assert_eq!(with(het(booked(1))), Follows::No);
    let expedited = JobView { state: JobState::Expediting, ..job(1, spec()) };
    assert_eq!(follow(&view, &expedited), Follows::No);
    let mut few = view.clone();
    few.policy.backfill = Backfill::First(1);
    assert_eq!(follow(&few, &job(1, booked(1))), Follows::No);
    assert_eq!(follow(&few, &job(1, spec())), Follows::Wholly);
}
