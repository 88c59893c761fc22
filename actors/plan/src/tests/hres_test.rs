//! Hierarchical resources in whole plans.
#![allow(clippy::unwrap_used)]

use super::topology_test;
use crate::{
    fixtures::{cluster, layered},
    plan::{
        Plan,
        kept::plan_to_keep,
        plan,
        probe::{Feasibility, Infeasible, would_start},
    },
    room::hres::places,
    snapshot::{
        facts::ClusterView,
        licenses::{self, LicenseFacts},
    },
};
use garrick_model::{
    config::{Hres, HresMode},
    ids::JobId,
    spec::{JobSpec, NodeCount, TopologyRequest},
    spec_text::licenses::{LicenseCount, Licenses},
    state::Reason,
    testing::{Layer, hres, job, node, spec},
    time::{TimeLimit, Timestamp},
    topology::Layout,
};
use proptest::prelude::*;
use std::{sync::Arc, time::Duration};

const NOW: Timestamp = Timestamp::from_secs(100_000);

fn at(secs: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(secs))
}

/// A job of one task on each of so many nodes.
fn on(nodes: u32, licenses: &str) -> JobSpec {
    let nodes = NodeCount { min: nodes, max: Some(nodes) };
    JobSpec { licenses: Some(licenses.to_owned()), nodes: Some(nodes), ..spec() }
}

fn short(mut spec: JobSpec, secs: u64) -> JobSpec {
    spec.time_limit = Some(TimeLimit::Secs(secs));
    spec
}

fn held(what: &[(&str, u32)]) -> Licenses {
    Licenses(what.iter().map(|(name, count)| LicenseCount { name: (*name).to_owned(), count: *count }).collect())
}

type Layers = &'static [Layer];

/// Four nodes in two racks.
fn snapshot(mode: &str, layers: Layers, specs: Vec<JobSpec>) -> ClusterView {
    let jobs = specs.into_iter().zip(1..).map(|(spec, id)| job(id, spec)).collect();
    let mut view = cluster((0..4).map(|index| node(index, 8)).collect(), jobs);
    view.licenses = LicenseFacts { hres: hres(4, &[("r", mode, layers)]), ..LicenseFacts::default() };
    view
}

/// Jobs that start, with their nodes and what they take.
fn started(plan: &Plan) -> Vec<(u32, Vec<usize>, String)> {
    plan.starts.iter().map(|s| (s.job.0, places(&s.nodes), s.licenses.to_string())).collect()
}

fn reasons(plan: &Plan) -> Vec<(u32, Reason)> {
    plan.reasons.iter().map(|(job, reason)| (job.0, reason.clone())).collect()
}

#[test]
fn mode_1_takes_all_of_one_layer_the_smallest_that_has_enough() {
    let layers: Layers = &[(0..4, 50, 0), (0..2, 100, 0), (2..4, 100, 0)];
    let jobs = vec![on(1, "r:100"), on(1, "r:100"), on(1, "r:60"), on(2, "r:50")];
    let made = plan(&snapshot("MODE_1", layers, jobs), NOW);
    let want = [
        (1, vec![0], "r(n[0-1]):100".to_owned()),
        (2, vec![2], "r(n[2-3]):100".to_owned()),
        (4, vec![1, 3], "r(n[0-3]):50".to_owned()),
    ];
    assert_eq!(started(&made).iter().map(|s| s.2.clone()).collect::<Vec<_>>(), want.map(|w| w.2));
    assert_eq!(reasons(&made), [(3, licenses::reason())]);
}

#[test]
fn mode_1_is_content_with_one_node_where_there_is_enough() {
    let layers: Layers = &[(0..1, 5, 0), (1..4, 1, 0)];
    let made = plan(&snapshot("MODE_1", layers, vec![on(3, "r:5")]), NOW);
    assert_eq!(started(&made)[0].2, "r(n0):5");
    assert!(started(&made)[0].1.contains(&0));
}

#[test]
fn mode_2_takes_of_every_layer_and_a_layer_without_any_closes_its_nodes() {
    let layers: Layers = &[(0..4, 24, 0), (0..2, 16, 0), (2..4, 16, 0), (2..3, 0, 0)];
    let made = plan(&snapshot("MODE_2", layers, vec![on(1, "r:12"), on(1, "r:12"), on(1, "r:1"), on(3, "r:1")]), NOW);
    let want =
        [(1, vec![0], "r(n[0-1]):12,r(n[0-3]):12".to_owned()), (2, vec![3], "r(n[2-3]):12,r(n[0-3]):12".to_owned())];
    assert_eq!(started(&made), want);
    // The last would need the closed node whatever ends.
    assert_eq!(reasons(&made), [(3, licenses::reason()), (4, licenses::reason())]);
}

#[test]
fn mode_3_sums_up_what_each_node_takes_over_what_is_always_in_use() {
    let layers: Layers = &[(0..4, 4000, 500), (0..2, 2000, 0), (2..4, 2000, 500)];
    // Two nodes of the second rack would take 2000 of the 1500 that it has.
    let made = plan(&snapshot("MODE_3", layers, vec![on(3, "r:1000")]), NOW);
    let want = (1, vec![0, 1, 2], "r(n[0-1]):2000,r(n[2-3]):1000,r(n[0-3]):3000".to_owned());
    assert_eq!(started(&made), [want]);
    let made = plan(&snapshot("MODE_3", layers, vec![on(4, "r:750"), on(4, "r:751"), on(1, "r:1")]), NOW);
    assert_eq!(started(&made).iter().map(|s| s.0).collect::<Vec<_>>(), [1]);
    assert_eq!(reasons(&made), [(2, licenses::reason()), (3, licenses::reason())]);
    // A power cap: what fits on nodes does not all start.
    let made = plan(&snapshot("MODE_3", layers, (0..8).map(|_| on(1, "r:600")).collect()), NOW);
    assert_eq!(made.starts.len(), 5, "three in one rack, two in the other");
}

#[test]
fn room_is_kept_for_when_amounts_come_back() {
    let layers: Layers = &[(0..4, 3000, 0), (0..2, 2000, 0), (2..4, 2000, 0)];
    let mut view =
        snapshot("MODE_3", layers, vec![on(2, "r:1000"), short(on(1, "r:500"), 100), on(1, "r:500"), spec()]);
    let has = held(&[("r(n[0-1])", 2000), ("r(n[0-3])", 2000)]);
    view.licenses.held = vec![(JobId(9), has, Some(at(600)))];
    let made = plan(&view, NOW);
    // The second is over before the first gets its nodes. The third would not be, but leaves it enough.
    assert_eq!(made.expected.first(), Some(&(JobId(1), at(600))));
    assert_eq!(started(&made).iter().map(|s| s.0).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(reasons(&made), [(1, licenses::reason())]);
    assert!(would_start(&view, &job(8, on(2, "r:1500")), NOW).unwrap().at > at(600));
}

#[test]
fn what_could_never_be_is_refused_and_without_end_is_no_bound() {
    let mut view = snapshot("MODE_3", &[(0..4, 3000, 0), (0..2, 1000, 0), (2..4, 2000, 0)], Vec::new());
    let mut feasibility = Feasibility::new(view.clone());
    assert_eq!(feasibility.check(&job(1, on(3, "r:1000"))), Ok(()));
    assert_eq!(feasibility.check(&job(1, on(4, "r:1000"))), Err(Infeasible::Nodes));
    let mut endless = Hres::clone(&view.licenses.hres);
    endless.resources[0].layers.iter_mut().for_each(|layer| layer.count = None);
    view.licenses.hres = Arc::new(endless);
    view.pending = vec![Arc::new(job(1, on(4, "r:100000")))];
    assert_eq!(plan(&view, NOW).starts.len(), 1);
}

#[test]
fn neighbours_go_where_their_racks_have_enough() {
    let layers: Layers = &[(0..4, 3000, 0), (0..2, 1000, 0), (2..4, 2000, 0)];
    let contiguous = JobSpec { contiguous: true, ..on(2, "r:1000") };
    let made = plan(&snapshot("MODE_3", layers, vec![contiguous]), NOW);
    assert_eq!(started(&made)[0].1, [2, 3]);
    // Only over the border of the racks.
    let layers: Layers = &[(0..4, 3000, 0), (0..2, 1000, 0), (2..4, 1000, 0)];
    let contiguous = JobSpec { contiguous: true, ..on(2, "r:1000") };
    assert_eq!(started(&plan(&snapshot("MODE_3", layers, vec![contiguous]), NOW))[0].1, [1, 2]);
}

#[test]
fn plans_are_not_repaired_when_others_take_of_layers() {
    let layers: Layers = &[(0..4, 3000, 0), (0..2, 2000, 0), (2..4, 2000, 0)];
    let view = snapshot("MODE_3", layers, vec![on(4, "r:1000"), on(2, "r:100")]);
    let kept = || plan_to_keep(view.clone(), NOW).1.unwrap();
    let mut later = view.clone();
    later.pending.truncate(1);
    assert!(kept().repair(later.clone(), NOW).is_ok());
    later.licenses.held = vec![(JobId(9), held(&[("r(n[0-1])", 100), ("r(n[0-3])", 100)]), None)];
    assert!(kept().repair(later.clone(), NOW).is_err());
    later.licenses.held.clear();
    later.licenses.hres = hres(4, &[("r", "MODE_3", &[(0..4, 2000, 0)])]);
    assert!(kept().repair(later, NOW).is_err());
}

#[test]
fn of_two_resources_each_layer_is_minded() {
    let jobs = vec![on(2, "a:5,b:5"), on(1, "b:1")];
    let mut view = snapshot("MODE_3", &[(0..4, 1, 0)], jobs);
    let a: Layers = &[(0..4, 100, 0), (0..2, 5, 0), (2..4, 100, 0)];
    let b: Layers = &[(0..4, 10, 0), (0..2, 10, 0), (2..4, 5, 0)];
    view.licenses.hres = hres(4, &[("a", "MODE_3", a), ("b", "MODE_3", b)]);
    let made = plan(&view, NOW);
    let (_, nodes, takes) = &started(&made)[0];
    assert_eq!(nodes, &[0, 2], "{takes}");
    assert_eq!(reasons(&made), [(2, licenses::reason())]);
}

/// The same with nodes of that topology, busy ones among them, and one layer for all and more of four nodes each.
fn near(layout: Layout, layers: Layers, jobs: Vec<JobSpec>) -> ClusterView {
    let jobs = jobs.into_iter().zip(1..).map(|(spec, id)| job(id, spec)).collect();
    let mut view = topology_test::with(layout, &[], 8, jobs);
    view.licenses = LicenseFacts { hres: hres(8, &[("r", "MODE_3", layers)]), ..LicenseFacts::default() };
    view
}

fn in_segments(size: u32, job: JobSpec) -> JobSpec {
    JobSpec { topology: TopologyRequest { segment: Some(size), ..TopologyRequest::default() }, ..job }
}

#[test]
fn a_segment_stays_in_its_block_whatever_layers_bear() {
    let blocks = || topology_test::blocks(2, 4, vec![2, 4]);
    // The first block bears one node: what can be found first are nodes of two aggregated blocks.
    let layers: Layers = &[(0..8, 4000, 0), (0..2, 1000, 0), (2..4, 2000, 0), (4..6, 2000, 0), (6..8, 2000, 0)];
    for size in [4, 2] {
        let view = near(blocks(), layers, vec![in_segments(size, on(4, "r:1000"))]);
        assert_eq!(started(&plan(&view, NOW))[0].1, [4, 5, 6, 7], "{size}");
    }
    // No aggregated block bears four: it may not have nodes of several, and small ones are no segments.
    let layers: Layers = &[(0..8, 4000, 0), (0..4, 2000, 0), (4..8, 2000, 0)];
    let view = near(blocks(), layers, vec![in_segments(4, on(4, "r:1000"))]);
    assert_eq!(reasons(&plan(&view, NOW)), [(1, licenses::reason())]);
    // Nodes without the resource are no part of a block to it.
    let layers: Layers = &[(1..8, 7000, 0)];
    let view = near(topology_test::blocks(4, 2, vec![4]), layers, vec![on(4, "r:1000")]);
    assert_eq!(started(&plan(&view, NOW))[0].1, [4, 5, 6, 7]);
}

#[test]
fn every_arc_of_a_ring_is_tried() {
    let ring = || Layout::Ring { rings: vec![topology_test::unit("r0", 0..8)] };
    let layers: Layers = &[(0..8, 4000, 0), (0..4, 2000, 0), (4..8, 2000, 0)];
    let apart = JobSpec { exclude: vec!["n7".to_owned()], ..on(4, "r:1000") };
    let view = near(ring(), layers, vec![apart.clone()]);
    assert_eq!(Feasibility::new(view.clone()).check(&job(1, apart)), Ok(()));
    assert_eq!(started(&plan(&view, NOW))[0].1, [2, 3, 4, 5]);
}

#[test]
fn what_only_was_not_found_is_not_refused() {
    // Two whole blocks would do, but the nodes that are looked at first are of three.
    let layers: Layers = &[(0..8, 4000, 0), (0..2, 1000, 0), (2..4, 2000, 0), (4..6, 2000, 0), (6..8, 2000, 0)];
    let asked = in_segments(2, on(4, "r:1000"));
    let view = near(topology_test::blocks(2, 4, vec![2]), layers, Vec::new());
    let mut feasibility = Feasibility::new(view);
    assert_eq!(feasibility.check(&job(1, asked)), Ok(()));
    assert_eq!(feasibility.check(&job(1, in_segments(2, on(6, "r:1000")))), Err(Infeasible::Nodes));
}

/// What is held of each layer is at no time more than there is for jobs.
fn never_too_much(hres: &Hres, held: &[(Licenses, Timestamp, Timestamp)]) -> Result<(), TestCaseError> {
    for (_, time, _) in held {
        for (_, layer) in hres.layers() {
            let now = held.iter().filter(|(_, from, until)| from <= time && time < until);
            let used: u32 = now.map(|(licenses, ..)| licenses.count(&layer.name)).sum();
            prop_assert!(layer.available().is_none_or(|most| used <= most), "{} {used}", layer.name);
        }
    }
    Ok(())
}

fn any_mode() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["MODE_1", "MODE_2", "MODE_3"])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// No plan gives more of a layer than there is at any time, now or reserved.
    #[test]
    fn no_plan_overbooks_a_layer(
        modes in (any_mode(), any_mode()),
        counts in prop::collection::vec(0u32..9, 6),
        jobs in prop::collection::vec((1u32..5, 1u32..4, 0u32..4, 1u64..40, any::<bool>()), 1..12),
    ) {
        let view = layered(modes, &counts, &jobs);
        let hres = &view.licenses.hres;
        let made = plan(&view, NOW);
        let mut all = Vec::new();
        for start in &made.starts {
            let asked = view.pending.iter().find(|job| job.id == start.job).unwrap().spec.licenses.clone();
            let again = hres.recount(asked.as_deref(), &places(&start.nodes), &start.licenses);
            prop_assert_eq!(again.by_name(), start.licenses.by_name());
            all.push((start.licenses.clone(), NOW, NOW.plus(start.time_limit.duration().unwrap())));
        }
        for room in &made.reservations {
            let nodes: Vec<usize> = room.nodes.iter().map(|(node, _)| *node).collect();
            let all_modes_hold = hres.resources.iter().filter(|r| r.mode != HresMode::One).all(|resource| {
                let asked = room.licenses.0.iter().any(|l| l.name.starts_with(&format!("{}(", resource.name)));
                let here = |layer: &garrick_model::config::HresLayer| nodes.iter().any(|n| layer.members.contains(*n));
                !asked || resource.layers.iter().all(|l| !here(l) || room.licenses.count(&l.name) > 0)
            });
            prop_assert!(all_modes_hold, "{room:?}");
            all.push((room.licenses.clone(), room.from, room.until));
        }
        never_too_much(hres, &all)?;
    }
}
