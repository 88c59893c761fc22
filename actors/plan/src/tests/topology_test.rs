//! Topologies in plans: rules by example, and properties over random clusters and queues.
#![allow(clippy::unwrap_used)]

use super::plan_test::{NOW, overbooked, overbooked_later};
use crate::{
    fixtures::cluster,
    plan::{
        Plan, plan,
        probe::{Feasibility, would_start},
    },
    snapshot::facts::ClusterView,
    topology::{Topologies, Topology},
};
use garrick_model::{
    ids::{JobId, NodeIndex},
    spec::{JobSpec, NodeCount, Sharing, TopologyRequest},
    state::JobState,
    testing::{hold, job, node, spec},
    time::{TimeLimit, Timestamp},
    topology::{Layout, NamedTopology, Placement, Region, Switch, Torus, Unit, Xyz},
    view::{Allocation, JobView},
};
use proptest::prelude::*;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

fn topologies(layout: Layout, nodes: usize) -> Arc<Topologies> {
    let index = |name: &str| name[1..].parse::<u32>().ok().map(NodeIndex);
    let named = NamedTopology { name: "t".to_owned(), cluster_default: true, layout, line: 0 };
    Arc::new(Topologies::of(&[named], nodes, &index))
}

pub(crate) fn with(layout: Layout, busy: &[(u32, i64)], nodes: u32, jobs: Vec<JobView>) -> ClusterView {
    let mut machines: Vec<_> = (0..nodes).map(|i| node(i, 2)).collect();
    for (n, minutes) in busy {
        let mut taken = hold(9000 + n, 0..4, 0, Some(NOW.secs() + minutes * 60));
        taken.sharing = Sharing::Exclusive;
        machines[*n as usize].holds.push(taken);
    }
    let mut view = cluster(machines, jobs);
    view.policy.topologies = topologies(layout, nodes as usize);
    view
}

pub(crate) fn unit(name: impl Into<String>, nodes: std::ops::Range<u32>) -> Unit {
    let nodes = nodes.map(|n| format!("n{n}")).collect::<Vec<_>>().iter().map(String::as_str).collect();
    Unit { name: name.into(), nodes, line: 0 }
}

fn tree(leaf: u32, leaves: u32) -> Layout {
    let mut switches: Vec<Switch> = (0..leaves)
        .map(|l| {
            let leaf = unit(format!("s{l}"), l * leaf..(l + 1) * leaf);
            Switch { name: leaf.name, nodes: leaf.nodes, ..Switch::default() }
        })
        .collect();
    let children = switches.iter().map(|s| s.name.as_str()).collect();
    switches.push(Switch { name: "top".to_owned(), children, ..Switch::default() });
    Layout::Tree { switches }
}

pub(crate) fn blocks(size: u32, count: u32, sizes: Vec<u32>) -> Layout {
    Layout::Block { sizes, blocks: (0..count).map(|b| unit(format!("b{b}"), b * size..(b + 1) * size)).collect() }
}

fn torus(dims: Xyz, shapes: &[Xyz]) -> Layout {
    let nodes = unit("t", 0..u32::try_from(dims.cells()).unwrap()).nodes;
    let placements = shapes.iter().map(|d| Placement { dims: *d, seed: Xyz::default(), spacing: *d }).collect();
    let regions = vec![Region { anchor: Xyz::default(), dims, nodes }];
    Layout::Torus3d { toruses: vec![Torus { name: "t".to_owned(), dims, regions, placements, line: 0 }] }
}

pub(crate) fn wide(nodes: u32, topology: TopologyRequest) -> JobSpec {
    JobSpec { nodes: Some(NodeCount { min: nodes, max: None }), sharing: Sharing::Exclusive, topology, ..spec() }
}

pub(crate) fn any_switches() -> TopologyRequest {
    TopologyRequest::default()
}

/// Where a job is in the plan: when, and on which nodes.
pub(crate) fn places(plan: &Plan, id: u32) -> Option<(Timestamp, BTreeSet<usize>)> {
    let start = plan.starts.iter().find(|s| s.job == JobId(id));
    let now = start.map(|s| (NOW, s.nodes.iter().map(|n| n.index.0 as usize).collect()));
    now.or_else(|| {
        let kept = plan.reservations.iter().find(|r| r.job == JobId(id))?;
        Some((kept.from, kept.nodes.iter().map(|(node, _)| *node).collect()))
    })
}

fn units_of(nodes: &BTreeSet<usize>, size: usize) -> BTreeSet<usize> {
    nodes.iter().map(|n| n / size).collect()
}

#[test]
fn a_job_goes_to_the_lowest_switch_that_fits() {
    let view = with(
        tree(4, 3),
        &[(0, 60), (4, 60), (5, 60)],
        12,
        vec![job(1, wide(2, any_switches())), job(2, wide(3, any_switches())), job(3, wide(4, any_switches()))],
    );
    let plan = plan(&view, NOW);
    assert_eq!(places(&plan, 1), Some((NOW, BTreeSet::from([6, 7]))));
    assert_eq!(places(&plan, 2), Some((NOW, BTreeSet::from([1, 2, 3]))));
    assert_eq!(places(&plan, 3), Some((NOW, BTreeSet::from([8, 9, 10, 11]))));
}

#[test]
fn weight_goes_before_the_topology() {
    let mut view = with(tree(4, 2), &[], 8, vec![job(1, wide(3, any_switches()))]);
    for heavy in [0, 1, 4] {
        Arc::make_mut(&mut view.nodes[heavy]).weight = 9;
    }
    assert_eq!(places(&plan(&view, NOW), 1).unwrap().1, BTreeSet::from([5, 6, 7]));
}

#[test]
fn a_job_waits_for_few_switches_but_not_for_ever() {
    let ask = |secs| TopologyRequest { switches: Some(1), switches_wait_secs: Some(secs), ..any_switches() };
    let waiting = |secs, age: u64| {
        let mut waiting = job(1, wide(4, ask(secs)));
        waiting.submit_time = Timestamp(NOW.0 - i64::try_from(age * 1000).unwrap());
        waiting
    };
    let busy = [(0, 1), (4, 60), (8, 60)];
    // One switch is free in a minute.
    let view = with(tree(4, 3), &busy, 12, vec![waiting(200, 0)]);
    assert_eq!(places(&plan(&view, NOW), 1), Some((NOW.plus(Duration::from_secs(60)), BTreeSet::from([0, 1, 2, 3]))));
    // Its patience ends before that.
    let view = with(tree(4, 3), &busy, 12, vec![waiting(30, 0)]);
    let (at, nodes) = places(&plan(&view, NOW), 1).unwrap();
    assert_eq!((at, units_of(&nodes, 4).len()), (NOW.plus(Duration::from_secs(30)), 2));
    // It has ended.
    let view = with(tree(4, 3), &busy, 12, vec![waiting(30, 31)]);
    assert_eq!(places(&plan(&view, NOW), 1).unwrap().0, NOW);
    // The site allows less than was asked for.
    let mut view = with(tree(4, 3), &busy, 12, vec![waiting(1000, 11)]);
    view.policy.switch_wait = Duration::from_secs(10);
    assert_eq!(places(&plan(&view, NOW), 1).unwrap().0, NOW);
}

#[test]
fn named_nodes_wait_for_few_switches_no_longer_than_is_asked_for() {
    let ask = TopologyRequest { switches: Some(1), switches_wait_secs: Some(40), ..any_switches() };
    let mut named = job(1, JobSpec { nodelist: vec!["n0".to_owned(), "n4".to_owned()], ..wide(2, ask) });
    named.submit_time = NOW;
    let over = NOW.plus(Duration::from_secs(40));
    let mut view = with(tree(4, 2), &[], 8, Vec::new());
    assert_eq!(would_start(&view, &named, NOW).map(|start| start.at), Some(over));
    // A later job does not get them meanwhile, unless it is over before.
    view.pending = vec![Arc::new(named), Arc::new(job(2, wide(8, any_switches())))];
    let made = plan(&view, NOW);
    assert_eq!(places(&made, 1), Some((over, BTreeSet::from([0, 4]))));
    assert!(made.starts.is_empty());
}

#[test]
fn a_block_is_waited_for() {
    let view = with(
        blocks(4, 4, vec![4, 8]),
        &[(1, 10), (6, 20), (9, 30), (13, 5)],
        16,
        vec![job(1, wide(4, any_switches())), job(2, wide(3, any_switches())), job(3, wide(8, any_switches()))],
    );
    let plan = plan(&view, NOW);
    let minutes = |n: u64| NOW.plus(Duration::from_secs(n * 60));
    assert_eq!(places(&plan, 1), Some((minutes(5), BTreeSet::from([12, 13, 14, 15]))));
    assert_eq!(places(&plan, 2).unwrap().0, NOW);
    // The second pair of blocks is taken for an hour from the fifth minute on.
    let (at, nodes) = places(&plan, 3).unwrap();
    assert_eq!(units_of(&nodes, 8).len(), 1, "{at:?} {nodes:?}");
}

#[test]
fn units_of_ones_own_keep_all_others_out() {
    let exclusive = TopologyRequest { exclusive: true, ..any_switches() };
    let view = with(
        tree(4, 3),
        &[(0, 60)],
        12,
        vec![
            job(1, wide(2, exclusive.clone())),
            job(2, wide(3, any_switches())),
            job(3, wide(5, any_switches())),
            job(4, wide(2, exclusive.clone())),
        ],
    );
    let made = plan(&view, NOW);
    let (_, own) = places(&made, 1).unwrap();
    assert_eq!(own, BTreeSet::from([4, 5]));
    assert_eq!(places(&made, 2), Some((NOW, BTreeSet::from([1, 2, 3]))));
    // Four are left on the third switch; the rest of the second is not for it.
    let (at, _) = places(&made, 3).unwrap();
    assert!(at > NOW);
    assert_eq!(places(&made, 4), Some((NOW, BTreeSet::from([8, 9]))));
    // The same once it runs.
    let mut running = job(1, wide(2, exclusive));
    running.state = JobState::Running;
    running.allocation = Some(Arc::new(Allocation { partition: "debug".to_owned(), ..Allocation::default() }));
    let mut nodes: Vec<_> = (0..8).map(|i| node(i, 2)).collect();
    for n in [4, 5] {
        let mut taken = hold(1, 0..4, 0, Some(NOW.secs() + 60));
        taken.sharing = Sharing::Exclusive;
        nodes[n].holds.push(taken);
    }
    let waiting = job(2, wide(5, any_switches()));
    let base = with(tree(4, 2), &[], 8, vec![]);
    let jobs = [Arc::new(running), Arc::new(waiting)];
    let nodes: Vec<_> = nodes.into_iter().map(Arc::new).collect();
    let view = ClusterView::new(base.policy, &jobs, &nodes, base.partitions);
    assert_eq!(places(&plan(&view, NOW), 2).unwrap().0, NOW.plus(Duration::from_secs(60)));
}

#[test]
fn what_no_nodes_could_ever_satisfy_is_known_at_submission() {
    let check = |layout: Layout, nodes: u32, spec: JobSpec| {
        Feasibility::new(with(layout, &[], nodes, vec![])).check(&job(1, spec)).is_ok()
    };
    let segment = |size| TopologyRequest { segment: Some(size), ..any_switches() };
    assert!(check(blocks(4, 4, vec![4, 8]), 16, wide(12, segment(4))));
    assert!(!check(blocks(4, 4, vec![4, 8]), 16, wide(10, segment(4))));
    assert!(!check(blocks(4, 4, vec![4]), 16, wide(12, segment(6))));
    let cube = Xyz { x: 2, y: 2, z: 2 };
    let whole = Xyz { x: 4, y: 4, z: 4 };
    assert!(check(torus(whole, &[cube]), 64, wide(8, any_switches())));
    assert!(!check(torus(whole, &[cube]), 64, wide(7, any_switches())));
    assert!(check(torus(whole, &[cube]), 64, wide(16, segment(8))));
    // Few switches are a wish that ends.
    let one = TopologyRequest { switches: Some(1), ..any_switches() };
    assert!(check(tree(4, 3), 12, wide(8, one)));
}

pub(crate) fn any_layout() -> impl Strategy<Value = (Layout, u32)> {
    let xyz = |x, y, z| Xyz { x, y, z };
    prop_oneof![
        (2u32..5, 2u32..5).prop_map(|(size, count)| (tree(size, count), size * count)),
        (2u32..4, 2u32..7).prop_map(|(size, count)| (blocks(size, count, vec![size, size * 2]), size * count)),
        (3u32..7, 1u32..4).prop_map(|(size, count)| {
            let rings = (0..count).map(|r| unit(format!("r{r}"), r * size..(r + 1) * size)).collect();
            (Layout::Ring { rings }, size * count)
        }),
        Just((torus(xyz(4, 2, 2), &[xyz(1, 1, 1), xyz(2, 1, 1), xyz(2, 2, 1), xyz(4, 2, 2)]), 16)),
    ]
}

pub(crate) fn any_spec() -> impl Strategy<Value = JobSpec> {
    let asked = (prop::option::of(1u32..4), prop::option::of(1u32..5), any::<bool>(), any::<bool>());
    let asked = (asked, prop::bool::weighted(0.15), prop::option::of(0u64..400));
    (1u32..9, 1u64..90, 0u32..3, any::<bool>(), asked).prop_map(
        |(nodes, minutes, more, whole, ((switches, segment, spread, consolidate), exclusive, wait))| JobSpec {
            nodes: Some(NodeCount { min: nodes, max: (more > 0).then_some(nodes + more) }),
            sharing: if whole { Sharing::Exclusive } else { Sharing::Default },
            time_limit: Some(TimeLimit::Secs(minutes * 60)),
            topology: TopologyRequest {
                switches,
                switches_wait_secs: wait,
                segment,
                spread_segments: spread,
                consolidate_segments: consolidate,
                exclusive,
            },
            ..spec()
        },
    )
}

/// What is wrong with these nodes for the job, by counting of its own.
fn broken(
    layout: &Layout,
    view: &ClusterView,
    job: &JobView,
    at: Timestamp,
    nodes: &BTreeSet<usize>,
) -> Option<String> {
    let asked = &job.spec.topology;
    let topology: &Arc<dyn Topology> = view.topology(0).unwrap();
    let units = topology.units();
    let in_units: BTreeSet<usize> = nodes.iter().filter_map(|n| units.of(*n)).collect();
    let count = u32::try_from(nodes.len()).unwrap();
    let segment = asked.segment.filter(|s| *s < count);
    if segment.is_some_and(|s| !count.is_multiple_of(s)) && !matches!(layout, Layout::Tree { .. }) {
        return Some(format!("{count} nodes are not whole segments"));
    }
    let in_unit = |unit: usize| u32::try_from(nodes.iter().filter(|n| units.of(**n) == Some(unit)).count()).unwrap();
    match layout {
        Layout::Tree { .. } => {
            let patience = Duration::from_secs(asked.switches_wait_secs.unwrap_or(300).min(300));
            let most = asked.switches.filter(|_| at < job.submit_time.plus(patience));
            let few = most.is_none_or(|most| in_units.len() <= most as usize);
            (!few).then(|| format!("{} switches", in_units.len()))
        }
        Layout::Block { sizes, .. } => {
            let base = sizes[0];
            let needs = segment.unwrap_or(count);
            let wrong = if needs <= base {
                // Whole segments in every block.
                in_units.iter().any(|unit| in_unit(*unit) % needs != 0)
                    || (segment.is_some() && asked.spread_segments && in_units.iter().any(|u| in_unit(*u) != needs))
            } else if needs <= sizes[1] && 2 * base as usize <= view.nodes.len() {
                let pairs: BTreeSet<usize> = in_units.iter().map(|unit| unit / 2).collect();
                pairs.iter().any(|pair| {
                    (in_unit(pair * 2) + if pair * 2 + 1 < units.len() { in_unit(pair * 2 + 1) } else { 0 }) % needs
                        != 0
                })
            } else {
                false
            };
            let spread_out = segment.is_some()
                && asked.consolidate_segments
                && in_units.iter().map(|unit| unit / 2).collect::<BTreeSet<_>>().len() > 1;
            (wrong || spread_out).then(|| format!("blocks {in_units:?}"))
        }
        Layout::Ring { .. } => {
            // Arcs are as many as ends of arcs, at most one for each segment (arcs may touch).
            let arcs = in_units.iter().map(|ring| {
                let order = units.nodes(*ring);
                let ends = (0..order.len())
                    .filter(|at| nodes.contains(&order[*at]) && !nodes.contains(&order[(at + 1) % order.len()]));
                ends.count().max(1)
            });
            let arcs: usize = arcs.sum();
            (arcs > segment.map_or(1, |s| count / s) as usize).then(|| format!("{arcs} arcs"))
        }
        Layout::Torus3d { .. } => {
            // Boxes of one shape tile this torus of 4x2x2.
            let tile = |node: &usize| -> usize {
                match segment.unwrap_or(count) {
                    1 => *node,
                    2 => node / 2,
                    4 => node % 4 / 2 + 2 * (node / 8),
                    _ => 0,
                }
            };
            let size = segment.unwrap_or(count);
            let mut tiles = std::collections::BTreeMap::new();
            nodes.iter().for_each(|node| *tiles.entry(tile(node)).or_insert(0) += 1);
            let whole = [1, 2, 4, 16].contains(&size) && tiles.values().all(|have| *have == size);
            (!whole).then(|| format!("no boxes of {size}"))
        }
        Layout::Flat { .. } => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_start_and_every_reservation_is_as_the_topology_will_have_it(
        (layout, count) in any_layout(),
        busy in prop::collection::vec((0u32..32, 1i64..120), 0..8),
        specs in prop::collection::vec(any_spec(), 1..16),
    ) {
        let mut seen = BTreeSet::new();
        let busy: Vec<(u32, i64)> =
            busy.into_iter().map(|(n, m)| (n % count, m)).filter(|(n, _)| seen.insert(*n)).collect();
        let jobs: Vec<JobView> = specs.into_iter().zip(1..).map(|(spec, id)| {
            let mut waiting = job(id, spec);
            waiting.submit_time = NOW;
            waiting
        }).collect();
        let view = with(layout.clone(), &busy, count, jobs.clone());
        let made = plan(&view, NOW);
        prop_assert_eq!(overbooked(&view, &made), None);
        prop_assert_eq!(overbooked_later(&view, &made, NOW), None);
        prop_assert_eq!(&made, &plan(&view, NOW));
        let placed: Vec<(&JobView, Timestamp, Timestamp, BTreeSet<usize>)> = jobs.iter().filter_map(|job| {
            let (at, nodes) = places(&made, job.id.0)?;
            Some((job, at, at.plus(job.time_limit.duration().unwrap()), nodes))
        }).collect();
        let units = view.topology(0).unwrap().units().clone();
        for (job, at, until, nodes) in &placed {
            let wrong = broken(&layout, &view, job, *at, nodes);
            prop_assert_eq!(wrong, None, "job {} at {:?} on {:?}: {:?}", job.id, at, nodes, job.spec.topology);
            if !job.spec.topology.exclusive {
                continue;
            }
            let own: BTreeSet<usize> = nodes.iter().filter_map(|n| units.of(*n)).collect();
            for (other, from, end, theirs) in placed.iter().filter(|(other, ..)| other.id != job.id) {
                let meets = theirs.iter().any(|n| units.of(*n).is_some_and(|unit| own.contains(&unit)));
                let together = from < until && at < end;
                prop_assert!(!(meets && together), "jobs {} and {} share a unit", job.id, other.id);
            }
        }
        // Who could ever run, runs or has a time: nothing is down, and all that is in the way ends.
        let mut feasibility = Feasibility::new(view);
        for job in &jobs {
            if feasibility.check(job).is_ok() && job.min_nodes <= count {
                prop_assert!(places(&made, job.id.0).is_some(), "job {} has no time: {:?}", job.id, made.reasons);
            }
        }
    }
}

#[test]
fn fifteen_thousand_nodes_in_a_tree_and_in_blocks() {
    for layout in [tree(18, 840), blocks(18, 840, vec![18, 144, 1152])] {
        let mut view = with(layout, &[], 15_120, vec![]);
        for n in (0..15_120).filter(|n| n % 3 != 0) {
            let mut taken = hold(9000, 0..4, 0, Some(NOW.secs() + 60 * i64::from(1 + n % 700)));
            taken.sharing = Sharing::Exclusive;
            Arc::make_mut(&mut view.nodes[n as usize]).holds.push(taken);
        }
        let jobs: Vec<Arc<JobView>> = (1..=24)
            .map(|id| {
                let segment = (id % 2 == 0).then_some(8);
                Arc::new(job(id, wide(8 * (1 + id % 9), TopologyRequest { segment, ..any_switches() })))
            })
            .collect();
        let view = ClusterView { pending: jobs, ..view };
        let made = plan(&view, NOW);
        assert_eq!(made.starts.len() + made.reservations.len(), 24);
    }
}
