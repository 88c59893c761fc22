//! Rules of taking turns, and properties over random jobs that share CPUs.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::{cluster, partition},
    policy::policy,
    rules::turns::{Turns, turns},
    snapshot::{
        facts::{ClusterView, PartitionSharing},
        preempt::PreemptRules,
    },
};
use garrick_model::{
    config::{self, PreemptMode, PreemptType},
    ids::{JobId, NodeIndex},
    node_shape::NodeShare,
    resources::CpuSet,
    spec::{JobSpec, Sharing},
    state::JobState,
    testing::{hold, job, node, spec},
    time::Timestamp,
    view::{AllocatedNode, Allocation, JobView, NodeHold, NodeView, PreemptTimes, SuspendTimes},
};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::Path,
    sync::Arc,
    time::Duration,
};

/// A slice begins then.
const NOW: Timestamp = Timestamp::from_secs(90_000);
const SLICE: Duration = Duration::from_secs(30);

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(NOW.secs() + secs)
}

/// Runs in `partition` since `start` on these CPUs, which it shares.
fn runs(id: u32, partition: &str, start: i64, on: &[(u32, Range<u32>)]) -> JobView {
    let share = |cpus: &Range<u32>| NodeShare { cpus: CpuSet::from(cpus.clone()), ..NodeShare::default() };
    let nodes =
        on.iter().map(|(n, cpus)| AllocatedNode { name: format!("n{n}"), index: NodeIndex(*n), share: share(cpus) });
    let allocation = Allocation { nodes: nodes.collect(), partition: partition.to_owned(), ..Allocation::default() };
    JobView {
        state: JobState::Running,
        eligible: false,
        start_time: Some(at(start)),
        allocation: Some(Arc::new(allocation)),
        ..job(id, JobSpec { partitions: vec![partition.to_owned()], ..spec() })
    }
}

/// The same job, waiting for its turn since then.
fn waiting(mut job: JobView, since: i64) -> JobView {
    let times = SuspendTimes { at: at(since), stood_ms: 0, by_admin: false, yielded: None, waits_turn: true };
    (job.state, job.suspended) = (JobState::Suspended, Some(times));
    job
}

/// The same job, which had its turn come then.
fn on_since(job: JobView, since: i64) -> JobView {
    let mut job = waiting(job, since);
    job.state = JobState::Running;
    job.suspended.as_mut().unwrap().waits_turn = false;
    job
}

/// Three nodes of eight CPUs in the partitions `low`, `same` and `high`, of the tiers 1, 1 and 2.
fn site(jobs: &[JobView]) -> ClusterView {
    let mut nodes: Vec<NodeView> = (0..3).map(|index| node(index, 4)).collect();
    for job in jobs {
        for held in &job.allocation.as_ref().unwrap().nodes {
            let parked = job.suspended.is_some_and(|times| times.yielded.is_some());
            let hold = hold(job.id.0, 0..0, 0, None);
            let hold = NodeHold { share: held.share.clone(), sharing: Sharing::Oversubscribe, parked, ..hold };
            nodes[held.index.0 as usize].holds.push(hold);
        }
    }
    let base = cluster(nodes, Vec::new());
    let mut partitions = Vec::new();
    for (name, tier) in [("low", 1), ("same", 1), ("high", 2)] {
        let mut one = partition(name, 0..3);
        (one.tier, one.sharing) = (tier, PartitionSharing::Force(4));
        partitions.push(one);
    }
    let mut policy = base.policy;
    policy.preempt = PreemptRules { time_slice: Some(SLICE), ..PreemptRules::default() };
    let jobs: Vec<Arc<JobView>> = jobs.iter().cloned().map(Arc::new).collect();
    ClusterView::new(policy, &jobs, &base.nodes, partitions)
}

fn named(made: &Turns, on: bool) -> Vec<u32> {
    made.proposals.iter().filter(|one| one.on == on).map(|one| one.job.0).collect()
}

/// Who stops, and who goes on.
fn made(jobs: &[JobView], now: i64) -> (Vec<u32>, Vec<u32>) {
    let made = turns(&site(jobs), at(now));
    (named(&made, false), named(&made, true))
}

#[test]
fn a_newcomer_waits_for_the_next_slice_and_then_they_change_places() {
    let first = || runs(1, "low", -50, &[(0, 0..8)]);
    let second = || runs(2, "low", 4, &[(0, 4..8)]);
    assert_eq!(made(&[first(), second()], 5), (vec![2], vec![]));
    let settled = turns(&site(&[first(), waiting(second(), 5)]), at(6));
    assert_eq!(settled, Turns { proposals: vec![], again: Some(at(30)) }, "until the next slice");
    assert_eq!(made(&[first(), waiting(second(), 5)], 29), (vec![], vec![]));
    assert_eq!(made(&[first(), waiting(second(), 5)], 30), (vec![1], vec![2]));
    let changed = [waiting(first(), 30), on_since(second(), 30)];
    assert_eq!(made(&changed, 31), (vec![], vec![]));
    assert_eq!(made(&changed, 60), (vec![2], vec![1]));
    // Whoever is left goes on at once, and nobody waits for a slice.
    let left = turns(&site(&[waiting(first(), 30)]), at(31));
    assert_eq!((named(&left, true), left.again), (vec![1], None));
}

#[test]
fn a_slice_is_as_long_as_the_site_says() {
    let first = || runs(1, "low", -50, &[(0, 0..8)]);
    let mut view = site(&[first(), waiting(runs(2, "low", 4, &[(0, 4..8)]), 5)]);
    for (line, secs) in [("", 30), ("SchedulerTimeSlice=60\n", 60), ("SchedulerTimeSlice=10\n", 10)] {
        let text = format!(
            "ClusterName=c\nSlurmctldHost=a\nPreemptMode=GANG\n{line}NodeName=n0\nPartitionName=low Nodes=ALL\n"
        );
        let (config, report) = config::read_text(Path::new("/e/slurm.conf"), &text);
        view.policy = policy(&config.unwrap_or_else(|| panic!("{report}")));
        assert_eq!(turns(&view, at(6)), Turns { proposals: vec![], again: Some(at(secs)) }, "{line}");
    }
}

#[test]
fn those_that_share_nothing_go_on_and_so_do_those_that_fill_gaps() {
    let nine = || runs(9, "low", -100, &[(0, 0..8), (1, 0..8)]);
    let ten = || runs(10, "low", -99, &[(2, 0..8)]);
    let eleven = || runs(11, "low", -98, &[(0, 0..8), (1, 0..8)]);
    assert_eq!(made(&[nine(), ten(), waiting(eleven(), -98)], 1), (vec![9], vec![11]));
    assert_eq!(made(&[nine(), ten()], 1), (vec![], vec![]));
    // Slurm's example of local backfilling: who needs all nodes waits, and who is behind it goes on beside the first.
    let all = || runs(13, "low", 2, &[(0, 0..8), (1, 0..8), (2, 0..8)]);
    assert_eq!(made(&[nine(), all(), runs(14, "low", 3, &[(2, 0..8)])], 4), (vec![13], vec![]));
    let later = [nine(), waiting(all(), 4), runs(14, "low", 3, &[(2, 0..8)])];
    assert_eq!(made(&later, 31), (vec![9, 14], vec![13]));
}

#[test]
fn administrators_keep_theirs_and_those_who_gave_way_to_others_take_no_turns() {
    let both = |second: JobView| made(&[runs(1, "low", -50, &[(0, 0..8)]), second], 31);
    let second = || waiting(runs(2, "low", -40, &[(0, 0..8)]), -40);
    assert_eq!(both(second()), (vec![1], vec![2]));
    let mut by_admin = second();
    by_admin.suspended.as_mut().unwrap().by_admin = true;
    assert_eq!(both(by_admin), (vec![], vec![]));
    let mut gave_way = second();
    gave_way.suspended.as_mut().unwrap().yielded = Some(PreemptTimes { eligible: NOW, at: NOW, ends: NOW });
    assert_eq!(both(gave_way), (vec![], vec![]));
    let mut starting = runs(2, "low", -40, &[(0, 0..8)]);
    starting.state = JobState::Configuring;
    assert_eq!(both(starting), (vec![], vec![]));
    let mut alone = second();
    alone.suspended.as_mut().unwrap().by_admin = true;
    assert_eq!(made(&[alone], 31), (vec![], vec![]), "also when nobody else is there");
}

#[test]
fn parts_of_heterogeneous_jobs_and_those_that_end_for_others_are_not_stopped() {
    let mut ends = runs(2, "low", 2, &[(0, 0..8)]);
    ends.preempted = Some(PreemptTimes { eligible: NOW, at: NOW, ends: at(60) });
    assert_eq!(made(&[on_since(runs(1, "low", -50, &[(0, 0..8)]), 1), ends], 3), (vec![1], vec![]));
}

#[test]
fn jobs_of_different_tiers_take_no_turns() {
    let two = |partition: &str| vec![runs(1, "low", -50, &[(0, 0..8)]), runs(2, partition, 4, &[(0, 0..8)])];
    assert_eq!(made(&two("same"), 5), (vec![2], vec![]), "another partition of the same tier");
    assert_eq!(made(&two("high"), 5), (vec![], vec![]));
    let mut view = site(&two("high"));
    let time_slice = Some(SLICE);
    let (kind, mode) = (PreemptType::PartitionPrio, PreemptMode::Suspend);
    view.policy.preempt = PreemptRules { kind, mode, time_slice, ..PreemptRules::default() };
    assert_eq!(named(&turns(&view, at(5)), false), [1], "it waits for the other's end");
    view = site(&[waiting(two("high").remove(0), 5), two("high").remove(1)]);
    view.policy.preempt = PreemptRules { kind, mode, time_slice, ..PreemptRules::default() };
    assert!(turns(&view, at(100)).proposals.is_empty());
}

#[test]
fn where_nobody_takes_turns_any_more_nobody_waits_for_his() {
    let first = waiting(runs(1, "low", -50, &[(0, 0..8)]), -10);
    let jobs = [first, runs(2, "low", -40, &[(0, 0..8)])];
    let view = site(&jobs);
    let mut policy = view.policy.clone();
    policy.preempt.time_slice = None;
    let jobs = jobs.map(Arc::new);
    let off = turns(&ClusterView::new(policy, &jobs, &view.nodes, view.partitions), at(1));
    assert_eq!((named(&off, true), named(&off, false), off.again), (vec![1], vec![], None));
}

#[test]
fn a_clock_that_was_set_back_keeps_nobody_waiting() {
    let first = on_since(runs(1, "low", -50, &[(0, 0..8)]), 86_400);
    let second = waiting(runs(2, "low", -40, &[(0, 0..8)]), 86_400);
    assert_eq!(made(&[first, second], 1), (vec![1], vec![2]));
}

/// Jobs that take turns, with owners who agree to everything.
struct Play {
    jobs: BTreeMap<u32, JobView>,
}

impl Play {
    fn settle(&mut self, now: i64) {
        let all: Vec<JobView> = self.jobs.values().cloned().collect();
        for one in turns(&site(&all), at(now)).proposals {
            let job = self.jobs[&one.job.0].clone();
            let turned = if one.on { on_since(job, now) } else { waiting(job, now) };
            self.jobs.insert(one.job.0, turned);
        }
        let all: Vec<JobView> = self.jobs.values().cloned().collect();
        assert!(turns(&site(&all), at(now)).proposals.is_empty(), "it is settled");
        let running: Vec<&JobView> = self.jobs.values().filter(|job| job.state == JobState::Running).collect();
        for (place, a) in running.iter().enumerate() {
            for b in &running[place + 1..] {
                assert!(!share(a, b), "jobs {} and {} run on the same CPUs", a.id, b.id);
            }
        }
        for idle in self.jobs.values().filter(|job| job.state == JobState::Suspended) {
            assert!(running.iter().any(|job| share(job, idle)), "job {} waits for nobody", idle.id);
        }
    }

    fn sharers(&self, id: u32) -> usize {
        self.jobs.values().filter(|job| job.id != JobId(id) && share(job, &self.jobs[&id])).count()
    }
}

fn share(a: &JobView, b: &JobView) -> bool {
    let nodes = |job: &JobView| job.allocation.clone().unwrap().nodes.clone();
    nodes(a).iter().any(|x| nodes(b).iter().any(|y| x.index == y.index && !x.share.cpus.is_disjoint(&y.share.cpus)))
}

#[test]
fn who_waits_in_a_partition_that_is_gone_goes_on() {
    let other = || runs(1, "low", -50, &[(0, 0..8)]);
    let alone = waiting(runs(2, "gone", 4, &[(0, 0..8)]), 5);
    assert_eq!(made(&[other(), alone.clone()], 6), (vec![], vec![2]));
    let mut held = alone;
    held.suspended.as_mut().unwrap().by_admin = true;
    assert_eq!(made(&[other(), held], 6), (vec![], vec![]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn no_cpu_is_had_by_two_and_everybody_has_a_turn(
        steps in prop::collection::vec((0u32..3, 0u32..7, 1u32..5, any::<bool>(), 0i64..45, any::<u8>()), 1..16),
        start in 0i64..30,
    ) {
        let mut play = Play { jobs: BTreeMap::new() };
        let mut now = start;
        for (id, (first, cpu, cpus, wide, later, ends)) in (1..).zip(steps) {
            let on: Vec<(u32, Range<u32>)> =
                (first..3).take(if wide { 2 } else { 1 }).map(|n| (n, cpu..(cpu + cpus).min(8))).collect();
            play.jobs.insert(id, runs(id, if cpu % 2 == 0 { "low" } else { "same" }, now, &on));
            play.settle(now);
            now += later;
            if ends % 4 == 0 {
                let gone = *play.jobs.keys().nth(usize::from(ends / 4) % play.jobs.len()).unwrap();
                play.jobs.remove(&gone);
            }
            play.settle(now);
        }
        // Nobody comes or goes any more.
        let slice = i64::try_from(SLICE.as_secs()).unwrap();
        now -= now % slice;
        let most = play.jobs.keys().map(|id| play.sharers(*id)).max().unwrap_or(0);
        let mut waits: BTreeMap<u32, usize> = BTreeMap::new();
        let mut had: BTreeSet<u32> = BTreeSet::new();
        for _ in 0..=2 * most + 2 {
            now += slice;
            play.settle(now);
            for (id, job) in &play.jobs {
                let waited = waits.entry(*id).or_default();
                *waited = if job.state == JobState::Running { 0 } else { *waited + 1 };
                prop_assert!(*waited <= play.sharers(*id), "job {} has waited for {} slices", id, waited);
                if *waited == 0 {
                    had.insert(*id);
                }
            }
        }
        prop_assert_eq!(had.len(), play.jobs.len(), "everybody had a turn");
    }
}
