//! Licenses in whole plans.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::cluster,
    plan::{Plan, plan, probe::would_start},
    snapshot::{
        facts::{Backfill, ClusterView},
        licenses::{self, LicenseFacts},
    },
};
use garrick_model::{
    ids::JobId,
    spec::{JobSpec, NodeCount},
    spec_text::licenses::Licenses,
    state::Reason,
    testing::{array, hold, job, node, spec},
    time::{TimeLimit, Timestamp},
};
use proptest::prelude::*;
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_secs(100_000);

fn at(secs: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(secs))
}

fn with(licenses: &str) -> JobSpec {
    JobSpec { licenses: Some(licenses.to_owned()), ..spec() }
}

fn site(totals: &str, held: &[(u32, &str, Option<u64>)]) -> LicenseFacts {
    let totals: Licenses = totals.parse().unwrap();
    LicenseFacts {
        totals: totals.0.into_iter().map(|l| (l.name, l.count)).collect(),
        held: held.iter().map(|(job, what, end)| (JobId(*job), what.parse().unwrap(), end.map(at))).collect(),
        ..LicenseFacts::default()
    }
}

fn started(plan: &Plan) -> Vec<(u32, String)> {
    plan.starts.iter().map(|s| (s.job.0, s.licenses.to_string())).collect()
}

fn reasons(plan: &Plan) -> Vec<(u32, Reason)> {
    plan.reasons.iter().map(|(job, reason)| (job.0, reason.clone())).collect()
}

fn snapshot(specs: Vec<JobSpec>, facts: LicenseFacts) -> ClusterView {
    let jobs = specs.into_iter().zip(1..).map(|(spec, id)| job(id, spec)).collect();
    let mut view = cluster(vec![node(0, 8), node(1, 8)], jobs);
    view.licenses = facts;
    view
}

#[test]
fn a_job_starts_when_its_licenses_are_free_and_holds_back_no_other() {
    let view =
        snapshot(vec![with("foo:2"), with("foo:3"), spec(), with("bar|foo")], site("foo:4,bar:1", &[(9, "bar", None)]));
    let plan_of = plan(&view, NOW);
    assert_eq!(started(&plan_of), [(1, "foo:2".into()), (3, String::new()), (4, "foo:1".into())]);
    assert_eq!(reasons(&plan_of), [(2, licenses::reason())]);
}

#[test]
fn room_is_kept_for_when_they_come_back() {
    let mut second = with("foo:2");
    second.time_limit = Some(TimeLimit::Secs(100));
    let view = snapshot(vec![with("foo:4"), second, with("foo:2")], site("foo:4", &[(9, "foo:2", Some(600))]));
    let plan_of = plan(&view, NOW);
    // The second is over before the first gets its licenses; the third would not be.
    assert_eq!(started(&plan_of), [(2, "foo:2".into())]);
    assert_eq!(plan_of.expected[0], (JobId(1), at(600)));
    assert_eq!(reasons(&plan_of), [(1, licenses::reason()), (3, licenses::reason())]);
    // Behind the first and the third.
    assert_eq!(would_start(&view, &job(8, with("foo:4")), NOW).unwrap().at, at(7800));
}

#[test]
fn nodes_and_licenses_come_together() {
    let mut wide = with("foo");
    wide.nodes = Some(NodeCount { min: 2, max: None });
    wide.sharing = garrick_model::spec::Sharing::Exclusive;
    for (node_end, license_end, both) in [(50, 70, 70), (90, 70, 90)] {
        let mut view = snapshot(vec![wide.clone()], site("foo:1", &[(9, "foo", Some(license_end))]));
        let mut busy = node(0, 8);
        busy.holds.push(hold(9, 0..16, 100, Some(at(node_end).secs())));
        view.nodes[0] = busy.into();
        assert_eq!(plan(&view, NOW).expected, [(JobId(1), at(both))]);
        let named = JobSpec { nodelist: vec!["n0".to_owned(), "n1".to_owned()], ..wide.clone() };
        view.pending[0] = job(1, named).into();
        assert_eq!(plan(&view, NOW).expected, [(JobId(1), at(both))], "by name");
    }
}

#[test]
fn what_never_can_be_had_holds_nothing() {
    let view = snapshot(vec![with("foo:5"), with("foo:4")], site("foo:4", &[]));
    let plan_of = plan(&view, NOW);
    assert_eq!(started(&plan_of), [(2, "foo:4".into())]);
    assert_eq!((reasons(&plan_of), plan_of.reservations.len()), (vec![(1, licenses::reason())], 0));
}

#[test]
fn each_task_of_an_array_has_its_own() {
    let view = snapshot(vec![JobSpec { array: Some(array(1, 5, None)), ..with("foo:2") }], site("foo:5", &[]));
    let plan_of = plan(&view, NOW);
    assert_eq!(plan_of.starts.len(), 2);
    assert_eq!(reasons(&plan_of), [(1, licenses::reason())]);
}

fn any_licenses() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        Just(None),
        (1u32..5).prop_map(|n| Some(format!("foo:{n}"))),
        (1u32..3, 1u32..3).prop_map(|(n, m)| Some(format!("foo:{n},bar:{m}"))),
        (1u32..5, 1u32..3).prop_map(|(n, m)| Some(format!("foo:{n}|bar:{m}"))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Starts and reserved starts together never have more than there is, at any time.
    #[test]
    fn no_plan_overbooks_licenses(
        jobs in prop::collection::vec((any_licenses(), 1u64..60, 1u32..3, any::<bool>()), 1..25),
        running in prop::collection::vec((1u32..2, prop::option::of(0u64..3000)), 0..4),
        backfill in prop_oneof![Just(Backfill::Off), Just(Backfill::First(1)), Just(Backfill::Conservative)],
    ) {
        let specs = jobs.into_iter().map(|(licenses, minutes, nodes, named)| JobSpec {
            licenses,
            time_limit: Some(TimeLimit::Secs(minutes * 60)),
            nodes: Some(NodeCount { min: nodes, max: None }),
            nodelist: if named { vec!["n1".to_owned()] } else { Vec::new() },
            ..spec()
        });
        let texts: Vec<(u32, String, Option<u64>)> =
            running.iter().zip(900..).map(|((n, end), id)| (id, format!("foo:{n}"), *end)).collect();
        let held: Vec<(u32, &str, Option<u64>)> = texts.iter().map(|(id, t, end)| (*id, t.as_str(), *end)).collect();
        let mut view = snapshot(specs.collect(), site("foo:4,bar:2", &held));
        view.policy.backfill = backfill;
        let plan_of = plan(&view, NOW);
        let never = Timestamp(i64::MAX);
        let mut taken: Vec<(Timestamp, Timestamp, Licenses)> = Vec::new();
        for (_, licenses, end) in &view.licenses.held {
            taken.push((NOW, end.unwrap_or(never).max(Timestamp(NOW.0 + 1)), licenses.clone()));
        }
        for start in &plan_of.starts {
            taken.push((NOW, NOW.plus(start.time_limit.duration().unwrap()), start.licenses.clone()));
        }
        for kept in &plan_of.reservations {
            taken.push((kept.from, kept.until, kept.licenses.clone()));
        }
        for (from, ..) in &taken {
            for (name, total) in [("foo", 4), ("bar", 2)] {
                let there = taken.iter().filter(|(begin, end, _)| begin <= from && end > from);
                let used: u32 = there.map(|(.., licenses)| licenses.count(name)).sum();
                prop_assert!(used <= total, "{used} of {name} at {from:?}");
            }
        }
        // Everything pending has a start or a reason.
        for job in &view.pending {
            prop_assert!(plan_of.starts.iter().any(|s| s.job == job.id) || plan_of.reasons.iter().any(|(j, _)| *j == job.id));
        }
    }
}
