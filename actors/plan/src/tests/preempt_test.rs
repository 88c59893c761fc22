//! Rules of preemption, and properties over random clusters, running jobs and queues.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::{cluster, partition},
    plan::{Plan, plan, probe::would_start_together},
    snapshot::{
        facts::{AllocationUnit, ClusterView},
        preempt::{PreemptRules, Yielding},
        qos::{Qos, QosTable},
    },
};
use garrick_model::{
    config::{PreemptMode, PreemptType},
    entities::{
        Entities,
        qos::{QosPreemptMode, QosRecord},
    },
    ids::{JobId, NodeIndex, Sluid},
    node_shape::NodeShare,
    resources::{CpuSet, MemoryMib},
    spec::{JobSpec, NodeCount, Sharing},
    spec_text::licenses::Licenses,
    state::{JobState, Reason},
    testing::{Layer, hold, hres, job, node, spec},
    time::Timestamp,
    view::{AllocatedNode, Allocation, JobView, NodeView, PreemptTimes},
};
use proptest::prelude::*;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

const NOW: Timestamp = Timestamp::from_secs(100_000);

/// Runs in `partition` since `start` on these CPUs of these nodes.
fn running(id: u32, partition: &str, start: i64, on: &[(u32, std::ops::Range<u32>)]) -> JobView {
    let share = |cpus: &std::ops::Range<u32>| NodeShare {
        cpus: CpuSet::from(cpus.clone()),
        memory: Some(MemoryMib(0)),
        tasks: 1,
        gres: Vec::new(),
    };
    let nodes = on.iter().map(|(index, cpus)| AllocatedNode {
        name: format!("n{index}"),
        index: NodeIndex(*index),
        share: share(cpus),
    });
    let allocation = Allocation { nodes: nodes.collect(), partition: partition.to_owned(), ..Allocation::default() };
    JobView {
        state: JobState::Running,
        eligible: false,
        start_time: Some(Timestamp::from_secs(start)),
        allocation: Some(Arc::new(allocation)),
        ..job(id, JobSpec { partitions: vec![partition.to_owned()], ..spec() })
    }
}

fn asks(id: u32, partition: &str, nodes: u32, tasks: u32) -> JobView {
    let nodes = Some(NodeCount { min: nodes, max: None });
    job(id, JobSpec { partitions: vec![partition.to_owned()], nodes, tasks: Some(tasks), ..spec() })
}

/// Nodes of eight CPUs in the partitions `low`, `mid` and `high`, of the tiers 1, 2 and 3.
fn site(nodes: u32, running: &[JobView], waiting: Vec<JobView>) -> ClusterView {
    let mut all: Vec<NodeView> = (0..nodes).map(|index| node(index, 4)).collect();
    for job in running {
        for held in &job.allocation.as_ref().unwrap().nodes {
            let hold = hold(job.id.0, 0..0, 0, Some(NOW.secs() + 3600));
            all[held.index.0 as usize].holds.push(garrick_model::view::NodeHold { share: held.share.clone(), ..hold });
        }
    }
    let base = cluster(all, Vec::new());
    let mut partitions = Vec::new();
    for (name, tier) in [("low", 1), ("mid", 2), ("high", 3)] {
        let mut one = partition(name, 0..nodes as usize);
        one.tier = tier;
        partitions.push(one);
    }
    let mut policy = base.policy;
    policy.unit = AllocationUnit::Cpu;
    policy.preempt =
        PreemptRules { kind: PreemptType::PartitionPrio, mode: PreemptMode::Requeue, ..PreemptRules::default() };
    let jobs: Vec<Arc<JobView>> = running.iter().cloned().chain(waiting).map(Arc::new).collect();
    ClusterView::new(policy, &jobs, &base.nodes, partitions)
}

fn named(plan: &Plan) -> Vec<u32> {
    plan.preemptions.iter().map(|one| one.job.0).collect()
}

#[test]
fn a_job_of_a_higher_tier_has_one_of_a_lower_tier_go_and_nobody_else_gets_the_room() {
    let runs = [running(50, "low", 1000, &[(0, 0..8)])];
    let view = site(1, &runs, vec![asks(1, "high", 1, 8), asks(2, "low", 1, 1)]);
    let made = plan(&view, NOW);
    assert_eq!(named(&made), [50]);
    let one = &made.preemptions[0];
    assert_eq!((one.sluid, one.by, one.mode), (Sluid(50), JobId(1), PreemptMode::Requeue));
    assert!(made.starts.is_empty());
    assert!(made.reasons.contains(&(JobId(1), Reason::Resources)), "{:?}", made.reasons);
    // Told already: it is waited for, and what is left of the node is kept too.
    let mut runs = [running(50, "low", 1000, &[(0, 0..6)])];
    runs[0].preempted = Some(PreemptTimes { eligible: NOW, at: NOW, ends: NOW.plus(Duration::from_secs(90)) });
    let view = site(1, &runs, vec![asks(1, "high", 1, 8), asks(2, "low", 1, 1)]);
    let made = plan(&view, NOW);
    assert!(made.preemptions.is_empty() && made.starts.is_empty(), "{made:?}");
    assert!(made.expected.contains(&(JobId(1), NOW.plus(Duration::from_secs(90)))), "{:?}", made.expected);
}

#[test]
fn equal_tiers_spared_partitions_and_runs_that_are_exempt_are_left_alone() {
    let runs = [running(50, "mid", NOW.secs() - 100, &[(0, 0..8)])];
    let waits = |partition: &str| vec![asks(1, partition, 1, 8)];
    assert_eq!(named(&plan(&site(1, &runs, waits("high")), NOW)), [50]);
    for below in ["mid", "low"] {
        assert!(plan(&site(1, &runs, waits(below)), NOW).preemptions.is_empty(), "{below}");
    }
    let mut view = site(1, &runs, waits("high"));
    view.partitions[1].yielding = Yielding { mode: Some(PreemptMode::Off), ..Yielding::default() };
    assert!(plan(&view, NOW).preemptions.is_empty());
    view.partitions[1].yielding =
        Yielding { mode: Some(PreemptMode::Cancel), grace: Duration::from_secs(5), ..Yielding::default() };
    let one = plan(&view, NOW).preemptions[0].clone();
    assert_eq!((one.mode, one.grace), (PreemptMode::Cancel, Duration::from_secs(5)));
    view.policy.preempt.exempt = Duration::from_secs(101);
    assert!(plan(&view, NOW).preemptions.is_empty());
    view.policy.preempt.exempt = Duration::from_secs(100);
    assert_eq!(named(&plan(&view, NOW)), [50]);
    let mut off = site(1, &runs, waits("high"));
    off.policy.preempt.kind = PreemptType::None;
    assert!(plan(&off, NOW).preemptions.is_empty());
}

#[test]
fn who_keeps_nodes_to_his_label_neither_has_others_go_nor_goes_for_them() {
    let labelled = |mut job: JobView, label: Option<&str>, sharing| {
        let of = job.spec.as_ref().clone();
        job.spec = Arc::new(JobSpec { mcs_label: label.map(str::to_owned), sharing, ..of });
        job
    };
    let gone = |runs: (Option<&str>, Sharing), waits: (Option<&str>, Sharing), by_label| {
        let runs = [labelled(running(50, "low", 1000, &[(0, 0..8)]), runs.0, runs.1)];
        let mut view = site(1, &runs, vec![labelled(asks(1, "high", 1, 8), waits.0, waits.1)]);
        view.policy.preempt.by_label = by_label;
        named(&plan(&view, NOW))
    };
    let (red, blue) = (Some("red"), Some("blue"));
    assert_eq!(gone((red, Sharing::Mcs), (red, Sharing::Mcs), false), [50]);
    assert!(gone((red, Sharing::Mcs), (blue, Sharing::Default), false).is_empty());
    assert!(gone((red, Sharing::Mcs), (None, Sharing::Default), false).is_empty());
    assert!(gone((None, Sharing::Default), (blue, Sharing::Mcs), false).is_empty());
    assert_eq!(
        gone((red, Sharing::Default), (blue, Sharing::Exclusive), false),
        [50],
        "they do not keep nodes to labels"
    );
    assert!(gone((red, Sharing::Exclusive), (blue, Sharing::Exclusive), true).is_empty(), "all of them do");
    assert_eq!(gone((red, Sharing::Exclusive), (red, Sharing::Exclusive), true), [50]);
}

#[test]
fn the_lowest_tier_goes_first_then_the_youngest_if_asked_and_as_few_as_possible() {
    let runs = [
        running(50, "mid", 5000, &[(0, 0..8)]),
        running(51, "low", 1000, &[(1, 0..8)]),
        running(52, "low", 2000, &[(2, 0..8)]),
    ];
    let view = |youngest_first| {
        let mut view = site(3, &runs, vec![asks(1, "high", 1, 8)]);
        view.policy.preempt.youngest_first = youngest_first;
        view
    };
    assert_eq!(named(&plan(&view(false), NOW)), [51]);
    assert_eq!(named(&plan(&view(true), NOW)), [52]);
    let small = [
        running(60, "low", 1000, &[(0, 0..1)]),
        running(61, "low", 1000, &[(0, 1..2)]),
        running(62, "low", 1000, &[(0, 2..8)]),
    ];
    assert_eq!(named(&plan(&site(1, &small, vec![asks(1, "high", 1, 6)]), NOW)), [62]);
    // It needs all three, and nothing helps one that is too large.
    let all: BTreeSet<u32> = named(&plan(&site(1, &small, vec![asks(1, "high", 1, 8)]), NOW)).into_iter().collect();
    assert_eq!(all, BTreeSet::from([60, 61, 62]));
    assert!(plan(&site(1, &small, vec![asks(1, "high", 1, 9)]), NOW).preemptions.is_empty());
}

#[test]
fn two_jobs_do_not_count_on_the_same_room() {
    let runs = [running(50, "low", 1000, &[(0, 0..8)]), running(51, "low", 1000, &[(1, 0..8)])];
    let made = plan(&site(2, &runs, vec![asks(1, "high", 1, 8), asks(2, "high", 1, 8)]), NOW);
    let pairs: BTreeSet<(u32, u32)> = made.preemptions.iter().map(|one| (one.by.0, one.job.0)).collect();
    assert_eq!(pairs, BTreeSet::from([(1, 50), (2, 51)]));
    // One run makes room for both where there is enough.
    let made = plan(&site(1, &runs[..1], vec![asks(1, "high", 1, 4), asks(2, "high", 1, 4)]), NOW);
    assert_eq!(named(&made), [50]);
}

#[test]
fn tasks_of_an_array_have_room_made_together() {
    let runs = [running(50, "low", 1000, &[(0, 0..8)]), running(51, "low", 1000, &[(1, 0..8)])];
    let mut array = asks(1, "high", 1, 8);
    let spec = garrick_model::testing::array(1, 5, None);
    array.array_pending = Some(spec.clone());
    Arc::make_mut(&mut array.spec).array = Some(spec);
    assert_eq!(named(&plan(&site(2, &runs, vec![array]), NOW)), [50, 51]);
}

/// Do these gone leave room for the job, all else as it is?
fn fits_without(view: &ClusterView, gone: &BTreeSet<JobId>, waiting: &JobView) -> bool {
    let mut alone = view.clone();
    alone.policy.preempt.kind = PreemptType::None;
    alone.pending = vec![Arc::new(waiting.clone())];
    for node in &mut alone.nodes {
        Arc::make_mut(node).holds.retain(|hold| !gone.contains(&hold.job));
    }
    !plan(&alone, NOW).starts.is_empty()
}

#[test]
fn a_heterogeneous_job_that_would_preempt_is_told_when_it_starts_without() {
    let runs = [running(90, "low", 99_000, &[(0, 0..8)])];
    let view = site(2, &runs, Vec::new());
    let component = |id: u32, offset: u32| {
        let spec = asks(id, "high", 1, 8).spec;
        job(id, JobSpec { het: Some((JobId(20), offset)), het_size: 2, ..(*spec).clone() })
    };
    let group = [component(20, 0), component(21, 1)];
    let answer = would_start_together(&view, &group, NOW).unwrap();
    let at: Vec<_> = answer.iter().map(|one| one.at.since(NOW).as_secs()).collect();
    assert_eq!(at.len(), 2);
    assert!(at.iter().all(|secs| (3600..=3660).contains(secs)), "{at:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn only_lower_tiers_go_and_none_without_need(
        nodes in 1u32..5,
        runs in prop::collection::vec((0usize..3, 0i64..5, 0u32..5, 0u32..8, 1u32..5, any::<bool>()), 0..12),
        wants in (1usize..3, 1u32..3, 1u32..12),
        others in prop::collection::vec((0usize..3, 1u32..6), 0..5),
        youngest_first in any::<bool>(),
    ) {
        let names = ["low", "mid", "high"];
        let mut free: Vec<CpuSet> = (0..nodes).map(|_| (0..8).collect()).collect();
        let mut jobs = Vec::new();
        for (id, (tier, start, first, cpu, cpus, wide)) in (50..).zip(runs) {
            let on: Vec<(u32, std::ops::Range<u32>)> = (first % nodes..nodes)
                .take(if wide { 2 } else { 1 })
                .map(|node| (node, cpu..(cpu + cpus).min(8)))
                .collect();
            let room = on.iter().all(|(node, cpus)| cpus.clone().all(|c| free[*node as usize].contains(c)));
            if room {
                for (node, cpus) in &on {
                    free[*node as usize].subtract(&CpuSet::from(cpus.clone()));
                }
                jobs.push(running(id, names[tier], 1000 * start, &on));
            }
        }
        let first = asks(1, names[wants.0], wants.1, wants.2.max(wants.1));
        let mut view = site(nodes, &jobs, vec![first.clone()]);
        view.policy.preempt.youngest_first = youngest_first;
        let made = plan(&view, NOW);
        let gone: BTreeSet<JobId> = made.preemptions.iter().map(|one| one.job).collect();
        prop_assert_eq!(gone.len(), made.preemptions.len(), "each run is named once");
        let tier = |job: JobId| {
            let job = jobs.iter().find(|j| j.id == job).unwrap();
            names.iter().position(|n| *n == job.allocation.as_ref().unwrap().partition).unwrap()
        };
        prop_assert!(gone.iter().all(|job| tier(*job) < wants.0));
        if gone.is_empty() {
            let all = jobs.iter().map(|j| j.id).filter(|j| tier(*j) < wants.0).collect();
            prop_assert!(!made.starts.is_empty() || !fits_without(&view, &all, &first), "somebody could have gone");
        } else {
            prop_assert!(made.starts.is_empty() && !fits_without(&view, &BTreeSet::new(), &first));
            prop_assert!(fits_without(&view, &gone, &first));
            for spared in &gone {
                let rest = gone.iter().copied().filter(|j| j != spared).collect();
                prop_assert!(!fits_without(&view, &rest, &first), "{} went for nothing", spared);
            }
        }
        // With others in the queue: what starts has CPUs of its own, and leaves enough for those for whom others go.
        let queue = others.iter().zip(2..).map(|(&(tier, tasks), id)| asks(id, names[tier], 1, tasks));
        let view = site(nodes, &jobs, std::iter::once(first).chain(queue).collect());
        let made = plan(&view, NOW);
        let mut left = free;
        for node in made.starts.iter().flat_map(|start| &start.nodes) {
            let free = &mut left[node.index.0 as usize];
            prop_assert!(node.share.cpus.is_subset(free));
            free.subtract(&node.share.cpus);
        }
        let gone: BTreeSet<JobId> = made.preemptions.iter().map(|one| one.job).collect();
        let mut after = view;
        for node in &mut after.nodes {
            Arc::make_mut(node).holds.retain(|hold| !gone.contains(&hold.job));
        }
        for start in &made.starts {
            for node in &start.nodes {
                let taken = garrick_model::view::NodeHold { share: node.share.clone(), ..hold(start.job.0, 0..0, 0, None) };
                Arc::make_mut(&mut after.nodes[node.index.0 as usize]).holds.push(taken);
            }
        }
        after.policy.preempt.kind = PreemptType::None;
        let by: BTreeSet<JobId> = made.preemptions.iter().map(|one| one.by).collect();
        after.pending.retain(|job| by.contains(&job.id));
        // Placed one after the other, the first may take nodes that were meant for another: each alone has room.
        prop_assert!(by.is_empty() || !plan(&after, NOW).starts.is_empty());
        for job in by {
            let mut alone = after.clone();
            alone.pending.retain(|waiting| waiting.id == job);
            prop_assert_eq!(plan(&alone, NOW).starts.len(), 1, "it starts once the room is there");
        }
    }
}

/// Jobs of one partition, with these QOS.
fn by_qos(all: Vec<(&str, Qos)>, running: &[(JobView, &str)], waiting: Vec<(JobView, &str)>) -> ClusterView {
    let of = |(job, qos): (JobView, &str)| {
        let qos = Some(qos.to_owned()).filter(|qos| !qos.is_empty());
        let spec = Arc::new(JobSpec { qos, ..(*job.spec).clone() });
        JobView { spec, ..job }
    };
    let running: Vec<JobView> = running.iter().cloned().map(of).collect();
    let mut view = site(2, &running, waiting.into_iter().map(of).collect());
    view.policy.preempt.kind = PreemptType::Qos;
    let named = all.into_iter().map(|(name, qos)| (name.to_owned(), qos));
    view.qos = Arc::new(QosTable::new(named, Some("normal")));
    view
}

fn qos(priority: u32, preempts: &[&str]) -> Qos {
    Qos { priority, preempts: preempts.iter().map(|name| (*name).to_owned()).collect(), ..Qos::default() }
}

#[test]
fn a_job_of_a_qos_preempts_those_of_the_ones_that_its_qos_names() {
    let runs = |qos| [(running(50, "high", 1000, &[(0, 0..8), (1, 0..8)]), qos)];
    let asks = |qos| vec![(asks(1, "low", 1, 8), qos)];
    let table = || vec![("normal", qos(1, &[])), ("Urgent", qos(9, &["NORMAL"])), ("other", qos(5, &[]))];
    assert_eq!(named(&plan(&by_qos(table(), &runs("normal"), asks("urgent")), NOW)), [50], "whatever the tiers");
    assert_eq!(named(&plan(&by_qos(table(), &runs(""), asks("URGENT")), NOW)), [50], "the default");
    for (runs_as, asks_as) in
        [("other", "urgent"), ("urgent", "normal"), ("normal", "normal"), ("normal", "unknown"), ("unknown", "urgent")]
    {
        let view = by_qos(table(), &runs(runs_as), asks(asks_as));
        assert!(named(&plan(&view, NOW)).is_empty(), "{asks_as} over {runs_as}");
    }
    assert!(named(&plan(&by_qos(vec![], &runs("normal"), asks("urgent")), NOW)).is_empty(), "none is known");
}

#[test]
fn a_qos_says_how_its_jobs_give_way_and_the_one_of_least_priority_goes_first() {
    let low = Yielding { mode: Some(PreemptMode::Cancel), grace: Duration::from_secs(7), ..Yielding::default() };
    let exempt = Some(Duration::from_secs(60));
    let table = |exempt| {
        let low = Qos { yielding: low, exempt, ..qos(1, &[]) };
        vec![("low", low), ("mid", qos(2, &[])), ("high", qos(3, &["low", "mid"]))]
    };
    let start = NOW.secs() - 30;
    let runs = [(running(50, "mid", start, &[(0, 0..8)]), "mid"), (running(51, "mid", start, &[(1, 0..8)]), "low")];
    let waits = || vec![(asks(1, "mid", 1, 8), "high")];
    let made = plan(&by_qos(table(None), &runs, waits()), NOW);
    let one = &made.preemptions[0];
    assert_eq!((named(&made), one.mode, one.grace), (vec![51], PreemptMode::Cancel, Duration::from_secs(7)));
    let made = plan(&by_qos(table(exempt), &runs, waits()), NOW);
    assert_eq!((named(&made), made.preemptions[0].mode), (vec![50], PreemptMode::Requeue), "51 is exempt");
    // The QOS's own time counts instead of the cluster's.
    let mut view = by_qos(table(Some(Duration::ZERO)), &runs, waits());
    view.policy.preempt.exempt = Duration::from_secs(3600);
    assert_eq!(named(&plan(&view, NOW)), [51]);
}

#[test]
fn a_qos_suspends_only_where_the_other_is_in_the_same_partition_or_a_higher_one() {
    let table = || vec![("low", qos(1, &[])), ("high", qos(2, &["low"]))];
    let told = |at: &str| {
        let runs = [(running(50, "mid", 1000, &[(0, 0..8), (1, 0..8)]), "low")];
        let mut view = by_qos(table(), &runs, vec![(asks(1, at, 1, 8), "high")]);
        view.policy.preempt.mode = PreemptMode::Suspend;
        named(&plan(&view, NOW))
    };
    assert_eq!((told("low"), told("mid"), told("high")), (vec![], vec![50], vec![50]));
}

#[test]
fn within_a_qos_jobs_preempt_each_other_and_with_priority_only_the_higher_the_lower() {
    let within = |by_priority| {
        let yielding = Yielding { within: true, by_priority, ..Yielding::default() };
        vec![("normal", Qos { yielding, ..qos(1, &[]) })]
    };
    let view = |table, running_at: u32, waiting_at: u32| {
        let mut runs = running(50, "mid", 1000, &[(0, 0..8), (1, 0..8)]);
        runs.priority = running_at;
        let mut waits = asks(1, "mid", 1, 8);
        waits.priority = waiting_at;
        by_qos(table, &[(runs, "normal")], vec![(waits, "normal")])
    };
    assert_eq!(named(&plan(&view(within(false), 100, 10), NOW)), [50]);
    assert!(named(&plan(&view(within(true), 100, 10), NOW)).is_empty());
    assert!(named(&plan(&view(within(true), 100, 100), NOW)).is_empty());
    assert_eq!(named(&plan(&view(within(true), 100, 101), NOW)), [50]);
    // The cluster's words count as well.
    let plain = || vec![("normal", qos(1, &[]))];
    let mut all = view(plain(), 100, 10);
    all.policy.preempt.within = true;
    assert_eq!(named(&plan(&all, NOW)), [50]);
    all.policy.preempt.by_priority = true;
    assert!(named(&plan(&all, NOW)).is_empty());
}

#[test]
fn a_qos_says_that_only_higher_priorities_preempt_its_jobs() {
    let record = |modes: &[QosPreemptMode]| {
        let mut normal = QosRecord::new(1, "normal");
        normal.preempt_mode = modes.iter().copied().collect();
        Entities { qos: [("normal".to_owned(), normal)].into(), ..Entities::default() }
    };
    let yielding = |modes: &[QosPreemptMode]| {
        let table = QosTable::of_entities(&record(modes));
        let yielding = table.all().next().unwrap().yielding;
        (yielding.mode, yielding.by_priority)
    };
    assert_eq!(yielding(&[QosPreemptMode::Cancel]), (Some(PreemptMode::Cancel), false));
    let both = yielding(&[QosPreemptMode::Cancel, QosPreemptMode::Priority]);
    assert_eq!(both, (Some(PreemptMode::Cancel), true));
}

#[test]
fn priority_counts_between_tiers_too_and_jobs_above_a_priority_are_exempt() {
    let mut runs = [running(50, "low", 1000, &[(0, 0..8)])];
    runs[0].priority = 100;
    let view = |waiting_at| {
        let mut waits = asks(1, "high", 1, 8);
        waits.priority = waiting_at;
        site(1, &runs, vec![waits])
    };
    let mut by_priority = [view(100), view(101)];
    by_priority.iter_mut().for_each(|view| view.policy.preempt.by_priority = true);
    assert!(named(&plan(&by_priority[0], NOW)).is_empty());
    assert_eq!(named(&plan(&by_priority[1], NOW)), [50]);
    let mut exempt = view(200);
    exempt.policy.preempt.exempt_from = Some(100);
    assert!(named(&plan(&exempt, NOW)).is_empty());
    exempt.policy.preempt.exempt_from = Some(101);
    assert_eq!(named(&plan(&exempt, NOW)), [50]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_goes_but_for_a_qos_that_names_his(
        rights in prop::collection::vec((0usize..4, 0usize..4), 0..6),
        runs in prop::collection::vec((0usize..5, 0i64..5, 0u32..2, 1u32..5, 1u32..50), 0..6),
        waits in prop::collection::vec((0usize..5, 1u32..9, 1u32..50), 1..4),
        flags in (any::<bool>(), any::<bool>()),
    ) {
        // The last one is not known.
        let names = ["a", "b", "c", "d", "unknown"];
        let may = |by: usize, whom: usize| rights.contains(&(by, whom));
        let table = (0..4).map(|by| {
            let whom: Vec<&str> = (0..4).filter(|whom| may(by, *whom)).map(|whom| names[whom]).collect();
            (names[by], qos(u32::try_from(by).unwrap(), &whom))
        });
        let mut free = [0u32; 2];
        let mut running_jobs = Vec::new();
        for (id, (of, start, node, cpus, priority)) in (50u32..).zip(runs) {
            let first = free[node as usize];
            if first + cpus <= 8 {
                free[node as usize] += cpus;
                let job = JobView { priority, ..running(id, "mid", start, &[(node, first..first + cpus)]) };
                running_jobs.push((job, names[of]));
            }
        }
        let waiting: Vec<(JobView, &str)> = (1..)
            .zip(&waits)
            .map(|(id, (of, cpus, priority))| (JobView { priority: *priority, ..asks(id, "mid", 1, *cpus) }, names[*of]))
            .collect();
        let mut view = by_qos(table.collect(), &running_jobs, waiting.clone());
        (view.policy.preempt.within, view.policy.preempt.by_priority) = flags;
        for one in plan(&view, NOW).preemptions {
            let (runs, whose) = running_jobs.iter().find(|(job, _)| job.id == one.job).unwrap();
            let (waits, by) = waiting.iter().find(|(job, _)| job.id == one.by).unwrap();
            let place = |name: &str| names.iter().position(|n| *n == name).unwrap();
            prop_assert!(may(place(by), place(whose)) || (flags.0 && by == whose && *by != "unknown"));
            prop_assert!(!flags.1 || waits.priority > runs.priority);
        }
    }
}

/// Licenses of one name, and who has them.
fn licensed(mut view: ClusterView, total: u32, held: &[(u32, &str)]) -> ClusterView {
    view.licenses.totals.insert("lic".to_owned(), total);
    let held = held.iter().map(|(job, what)| (JobId(*job), what.parse().unwrap(), None));
    view.licenses.held = held.collect();
    view
}

fn wants(id: u32, tasks: u32, licenses: &str) -> JobView {
    let mut job = asks(id, "high", 1, tasks);
    Arc::make_mut(&mut job.spec).licenses = Some(licenses.to_owned());
    job
}

#[test]
fn licenses_are_made_room_of_only_where_they_are_reclaimed() {
    let runs = [running(50, "low", 1000, &[(0, 0..2)]), running(51, "low", 1000, &[(0, 2..4)])];
    let told = |reclaim, what: &str, held: &[(u32, &str)]| {
        let mut view = licensed(site(1, &runs, vec![wants(1, 1, what)]), 2, held);
        view.policy.preempt.reclaim_licenses = reclaim;
        let made = plan(&view, NOW);
        (named(&made), made.starts.len())
    };
    assert_eq!(told(false, "lic:2", &[(51, "lic")]), (vec![], 0));
    assert_eq!(told(true, "lic:2", &[(51, "lic")]), (vec![51], 0), "not the one that has none");
    assert_eq!(told(true, "lic", &[(51, "lic")]), (vec![], 1));
    assert_eq!(told(true, "lic:2|lic:3", &[(51, "lic")]), (vec![], 0), "who leaves a choice waits");
    assert_eq!(told(true, "lic:2", &[(99, "lic")]), (vec![], 0), "of somebody who does not give way");
    // Who is suspended keeps them.
    let mut view = licensed(site(1, &runs, vec![wants(1, 1, "lic:2")]), 2, &[(51, "lic")]);
    (view.policy.preempt.reclaim_licenses, view.policy.preempt.mode) = (true, PreemptMode::Suspend);
    assert!(named(&plan(&view, NOW)).is_empty());
    // It has been told: nobody else is, and nobody else gets what will be free.
    let mut going = runs.clone();
    going[1].preempted = Some(PreemptTimes { eligible: NOW, at: NOW, ends: NOW.plus(Duration::from_secs(90)) });
    let behind = JobView { submit_time: NOW, ..wants(2, 1, "lic") };
    let mut view = licensed(site(1, &going, vec![wants(1, 1, "lic:2"), behind]), 2, &[(51, "lic")]);
    view.policy.preempt.reclaim_licenses = true;
    let made = plan(&view, NOW);
    assert!(made.preemptions.is_empty() && made.starts.is_empty(), "{made:?}");
    assert!(made.expected.contains(&(JobId(1), NOW.plus(Duration::from_secs(90)))), "{:?}", made.expected);
}

#[test]
fn jobs_with_hierarchical_resources_give_way_and_preempt() {
    let layers: &[Layer] = &[(0..2, 4, 0)];
    let runs = [running(50, "low", 1000, &[(0, 0..8)]), running(51, "low", 2000, &[(1, 0..8)])];
    let told = |reclaim, held: &[(u32, &str)]| {
        let mut view = licensed(site(2, &runs, vec![wants(1, 8, "r:3")]), 0, held);
        view.licenses.hres = hres(2, &[("r", "MODE_3", layers)]);
        let named_layer = |(_, licenses, _): &mut (JobId, Licenses, Option<Timestamp>)| {
            licenses.0.iter_mut().for_each(|license| license.name = "r(n[0-1])".to_owned());
        };
        view.licenses.held.iter_mut().for_each(named_layer);
        view.policy.preempt.reclaim_licenses = reclaim;
        named(&plan(&view, NOW))
    };
    assert_eq!(told(false, &[(51, "r:1")]), [50], "there is enough of the layer");
    assert!(told(false, &[(51, "r:2")]).is_empty(), "not enough");
    assert_eq!(told(true, &[(51, "r:2")]), [51], "the one that has it goes");
}

/// These as the components of one job, the first its leader.
fn together(jobs: Vec<JobView>) -> Vec<JobView> {
    let (leader, size) = (jobs[0].id, u32::try_from(jobs.len()).unwrap());
    let component = |(job, offset): (JobView, u32)| {
        let spec = Arc::new(JobSpec { het: Some((leader, offset)), het_size: size, ..(*job.spec).clone() });
        JobView { spec, ..job }
    };
    jobs.into_iter().zip(0..).map(component).collect()
}

#[test]
fn a_heterogeneous_job_gives_way_as_a_whole() {
    let runs =
        |second: &str| together(vec![running(50, "low", 1000, &[(0, 0..8)]), running(51, second, 1000, &[(1, 0..8)])]);
    let waits = || vec![asks(1, "high", 1, 8)];
    let view = site(2, &runs("mid"), waits());
    assert_eq!(named(&plan(&view, NOW)), [50], "its leader is told");
    assert!(named(&plan(&site(2, &runs("high"), waits()), NOW)).is_empty(), "a component may not be");
    let mut view = site(2, &runs("low"), vec![asks(1, "high", 1, 8), asks(2, "high", 1, 8)]);
    view.policy.preempt.mode = PreemptMode::Cancel;
    assert_eq!(named(&plan(&view, NOW)), [50], "its other nodes are free then too");
    // Of several ways the greatest counts, and it is not suspended.
    view.partitions[0].yielding.grace = Duration::from_secs(9);
    let mut view = site(2, &runs("mid"), waits());
    view.policy.preempt.mode = PreemptMode::Cancel;
    view.partitions[1].yielding.mode = Some(PreemptMode::Requeue);
    assert_eq!(plan(&view, NOW).preemptions[0].mode, PreemptMode::Requeue);
    view.partitions[1].yielding.mode = Some(PreemptMode::Suspend);
    assert!(named(&plan(&view, NOW)).is_empty());
    // It has been told.
    let mut going = runs("low");
    let times = PreemptTimes { eligible: NOW, at: NOW, ends: NOW.plus(Duration::from_secs(9)) };
    going.iter_mut().for_each(|run| run.preempted = Some(times));
    assert!(named(&plan(&site(2, &going, waits()), NOW)).is_empty());
}

#[test]
fn others_give_way_to_a_heterogeneous_job_where_all_of_it_has_room_then() {
    let group = || together(vec![asks(1, "high", 1, 8), asks(2, "high", 1, 8)]);
    let runs = [running(60, "low", 1000, &[(1, 0..8)])];
    let mut waiting = group();
    waiting.push(asks(9, "low", 1, 1));
    let made = plan(&site(2, &runs, waiting.clone()), NOW);
    assert_eq!(named(&made), [60]);
    assert!(made.starts.is_empty(), "what fits now is kept for it: {:?}", made.starts);
    assert_eq!((made.in_order, made.backfilled), (0, 0), "and is no start that bounds would count");
    assert!(
        made.reasons.contains(&(JobId(1), Reason::Resources)) && made.reasons.contains(&(JobId(2), Reason::Resources))
    );
    // It has been told.
    let mut going = runs;
    going[0].preempted = Some(PreemptTimes { eligible: NOW, at: NOW, ends: NOW.plus(Duration::from_secs(9)) });
    let made = plan(&site(2, &going, waiting.clone()), NOW);
    assert!(made.preemptions.is_empty() && made.starts.is_empty(), "{made:?}");
    // It has gone.
    let made = plan(&site(2, &[], waiting), NOW);
    assert_eq!(made.starts.iter().map(|start| (start.job.0, start.others.len())).collect::<Vec<_>>(), [(1, 1)]);
    // Nobody goes for half of it.
    let runs = [running(60, "low", 1000, &[(1, 0..8)]), running(61, "high", 1000, &[(0, 0..8)])];
    assert!(named(&plan(&site(2, &runs, group()), NOW)).is_empty());
}

#[test]
fn other_orders_are_tried_for_fewer_that_go() {
    let runs = [
        running(50, "low", 1000, &[(0, 0..5)]),
        running(51, "low", 1000, &[(0, 5..8)]),
        running(52, "mid", 1000, &[(1, 0..8)]),
    ];
    let mut view = site(2, &runs, vec![asks(1, "high", 1, 8)]);
    assert_eq!(named(&plan(&view, NOW)), [50, 51], "the lowest tier goes first");
    view.policy.preempt.reorders = 1;
    assert_eq!(named(&plan(&view, NOW)), [52]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_other_orders_no_more_of_them_go_and_they_make_room(
        runs in prop::collection::vec((0usize..2, 0u32..3, 1u32..6), 0..9),
        tasks in 1u32..20,
        (reorders, strict_order) in (1u32..6, any::<bool>()),
    ) {
        let mut taken = [0u32; 3];
        let mut jobs = Vec::new();
        for (id, (tier, node, cpus)) in (50u32..).zip(runs) {
            let first = taken[node as usize];
            if first + cpus <= 8 {
                taken[node as usize] += cpus;
                jobs.push(running(id, ["low", "mid"][tier], 1000, &[(node, first..first + cpus)]));
            }
        }
        let waits = asks(1, "high", 1, tasks);
        let mut view = site(3, &jobs, vec![waits.clone()]);
        let usual = named(&plan(&view, NOW));
        (view.policy.preempt.reorders, view.policy.preempt.strict_order) = (reorders, strict_order);
        let gone: BTreeSet<JobId> = plan(&view, NOW).preemptions.iter().map(|one| one.job).collect();
        prop_assert!(gone.len() <= usual.len() && gone.is_empty() == usual.is_empty());
        prop_assert!(gone.is_empty() || fits_without(&view, &gone, &waits));
    }
}
