//! Rules of suspending for others and of going on, and properties over random queues that are worked off.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::{cluster, partition},
    plan::{Plan, plan, plan_until},
    rules::resume::LEFT_TO_OTHERS,
    snapshot::{
        caps::CpuCaps,
        facts::{AllocationUnit, ClusterView},
        preempt::PreemptRules,
    },
};
use garrick_model::{
    config::{PreemptMode, PreemptType},
    ids::{JobId, NodeIndex, Sluid},
    node_shape::NodeShare,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{JobSpec, NodeCount, Sharing},
    state::{JobState, Reason},
    testing::{hold, job, node, spec},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, Allocation, JobView, NodeHold, NodeView, PreemptTimes, SuspendTimes},
};
use proptest::prelude::*;
use std::{cell::Cell, collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

const NOW: Timestamp = Timestamp::from_secs(100_000);
const GRACE: Duration = Duration::from_secs(2);

/// A job that has nodes, and what it has of them.
#[derive(Clone)]
struct Runs {
    view: JobView,
    sharing: Sharing,
    parked: bool,
}

fn runs_on(id: u32, partition: &str, nodes: Vec<AllocatedNode>) -> Runs {
    let allocation = Allocation { nodes, partition: partition.to_owned(), ..Allocation::default() };
    let view = JobView {
        state: JobState::Running,
        eligible: false,
        start_time: Some(Timestamp::from_secs(1000 + i64::from(id))),
        allocation: Some(Arc::new(allocation)),
        ..job(id, JobSpec { partitions: vec![partition.to_owned()], ..spec() })
    };
    Runs { view, sharing: Sharing::Default, parked: false }
}

/// Runs on these CPUs of node 0, with so much memory.
fn runs(id: u32, partition: &str, cpus: Range<u32>, memory: u64) -> Runs {
    let share = NodeShare { cpus: CpuSet::from(cpus), memory: Some(MemoryMib(memory)), tasks: 1, gres: Vec::new() };
    runs_on(id, partition, vec![AllocatedNode { name: "n0".to_owned(), index: NodeIndex(0), share }])
}

impl Runs {
    /// Suspended for another, which gets the CPUs then.
    fn suspended(mut self, ends: Timestamp) -> Self {
        let yielded = Some(PreemptTimes { eligible: NOW, at: NOW, ends });
        self.view.state = JobState::Suspended;
        self.view.suspended = Some(SuspendTimes { at: NOW, stood_ms: 0, by_admin: false, yielded, waits_turn: false });
        self.parked = ends <= NOW;
        self
    }

    fn by_admin(mut self) -> Self {
        self.view.suspended.as_mut().unwrap().by_admin = true;
        self
    }
}

fn asks(id: u32, partition: &str, tasks: u32, memory: u64) -> JobView {
    let nodes = Some(NodeCount { min: 1, max: None });
    let memory = MemoryRequest::PerNode(MemoryMib(memory));
    job(id, JobSpec { partitions: vec![partition.to_owned()], nodes, tasks: Some(tasks), memory, ..spec() })
}

/// Nodes of eight CPUs and 1000 MiB in the partitions `low`, `mid` and `high`, whose jobs are suspended for those above.
fn site(nodes: u32, running: &[Runs], waiting: Vec<JobView>) -> ClusterView {
    let mut all: Vec<NodeView> = (0..nodes).map(|index| node(index, 4)).collect();
    for one in running {
        for held in &one.view.allocation.as_ref().unwrap().nodes {
            let hold = hold(one.view.id.0, 0..0, 0, Some(NOW.secs() + 3600));
            let (share, sharing, parked) = (held.share.clone(), one.sharing, one.parked);
            all[held.index.0 as usize].holds.push(NodeHold { share, sharing, parked, ..hold });
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
    let (kind, mode) = (PreemptType::PartitionPrio, PreemptMode::Suspend);
    policy.preempt = PreemptRules { kind, mode, suspend_grace: GRACE, ..PreemptRules::default() };
    let jobs: Vec<Arc<JobView>> = running.iter().map(|one| one.view.clone()).chain(waiting).map(Arc::new).collect();
    ClusterView::new(policy, &jobs, &base.nodes, partitions)
}

fn made(running: &[Runs], waiting: Vec<JobView>) -> Plan {
    plan(&site(1, running, waiting), NOW)
}

fn told(plan: &Plan) -> Vec<u32> {
    plan.preemptions.iter().map(|one| one.job.0).collect()
}

fn started(plan: &Plan) -> Vec<u32> {
    plan.starts.iter().map(|one| one.job.0).collect()
}

fn resumed(plan: &Plan) -> Vec<u32> {
    plan.resumptions.iter().map(|one| one.job.0).collect()
}

#[test]
fn one_of_a_lower_tier_is_suspended_and_the_other_starts_on_its_cpus() {
    let low = runs(50, "low", 0..8, 100);
    let first = made(std::slice::from_ref(&low), vec![asks(1, "high", 8, 100)]);
    assert_eq!((told(&first), started(&first)), (vec![50], vec![]));
    let one = &first.preemptions[0];
    assert_eq!((one.mode, one.grace), (PreemptMode::Suspend, GRACE));
    assert_eq!(one.until, Some(NOW.plus(GRACE + Duration::from_secs(3600))), "when the other is expected to end");

    // It has been told; nobody else gets the CPUs meanwhile, and it does not go on.
    let told_already = low.clone().suspended(NOW.plus(GRACE));
    let waiting = || vec![asks(1, "high", 8, 100), asks(2, "low", 1, 100), asks(3, "high", 1, 100)];
    let second = made(&[told_already], waiting());
    assert_eq!((told(&second), started(&second), resumed(&second)), (vec![], vec![], vec![]));

    // It stands still.
    let parked = low.suspended(NOW);
    let third = made(std::slice::from_ref(&parked), waiting());
    assert_eq!((told(&third), started(&third), resumed(&third)), (vec![], vec![1], vec![]));

    // The other runs. Its peers wait for room, and those of lower tiers behind the suspended one.
    let other = runs(1, "high", 0..8, 100);
    let fourth = made(&[parked.clone(), other], vec![asks(2, "low", 1, 100), asks(3, "high", 1, 100)]);
    assert_eq!((told(&fourth), started(&fourth), resumed(&fourth)), (vec![], vec![], vec![]));
    assert!(fourth.reasons.contains(&(JobId(3), Reason::Resources)), "{:?}", fourth.reasons);

    // It has ended: those who may not preempt it come after it, those who may before.
    let fifth = made(std::slice::from_ref(&parked), vec![asks(2, "low", 1, 100)]);
    assert_eq!((started(&fifth), resumed(&fifth)), (vec![], vec![50]));
    let sixth = made(&[parked], vec![asks(3, "mid", 1, 100)]);
    assert_eq!((started(&sixth), resumed(&sixth)), (vec![3], vec![]));
}

#[test]
fn memory_is_not_made_room_of() {
    let low = [runs(50, "low", 0..8, 950)];
    assert!(told(&made(&low, vec![asks(1, "high", 8, 100)])).is_empty());
    assert_eq!(told(&made(&low, vec![asks(1, "high", 8, 50)])), [50]);
    let parked = [low[0].clone().suspended(NOW)];
    assert!(started(&made(&parked, vec![asks(1, "high", 8, 100)])).is_empty());
    assert_eq!(started(&made(&parked, vec![asks(1, "high", 8, 50)])), [1]);
    // Another that may be suspended is of no use either.
    let two = [runs(50, "low", 0..4, 500), runs(51, "low", 4..8, 450)];
    assert!(told(&made(&two, vec![asks(1, "high", 8, 100)])).is_empty());
}

#[test]
fn free_cpus_are_taken_first_and_as_few_as_possible_are_suspended() {
    let low = runs(50, "low", 0..4, 100);
    let made_now = made(std::slice::from_ref(&low), vec![asks(1, "high", 4, 100)]);
    assert_eq!((started(&made_now), told(&made_now)), (vec![1], vec![]));
    let two = [low, runs(51, "low", 4..8, 100)];
    assert_eq!(told(&made(&two, vec![asks(1, "high", 4, 100)])).len(), 1);
    // One stands still already: that is enough for the next.
    let one = [two[0].clone().suspended(NOW), two[1].clone()];
    let next = made(&one, vec![asks(1, "high", 4, 100)]);
    assert_eq!((started(&next), told(&next)), (vec![1], vec![]));
    let more = made(&one, vec![asks(1, "high", 8, 100)]);
    assert_eq!((started(&more), told(&more), resumed(&more)), (vec![], vec![51], vec![]));
}

#[test]
fn of_those_that_stand_still_the_higher_tier_goes_on_first_and_administrators_keep_theirs() {
    let low = runs(50, "low", 0..8, 100).suspended(NOW);
    let mid = runs(51, "mid", 0..4, 100).suspended(NOW);
    assert_eq!(resumed(&made(&[low.clone(), mid.clone()], vec![])), [51]);
    assert_eq!(resumed(&made(&[low.clone(), mid.clone().by_admin()], vec![])), [50]);
    let apart = runs(52, "low", 4..8, 100).suspended(NOW);
    assert_eq!(resumed(&made(&[mid.clone(), apart], vec![])), [51, 52]);
    // Not while anybody who is awake has one of its CPUs, or has the node alone.
    let other = runs(1, "low", 7..8, 100);
    assert!(resumed(&made(&[low, other], vec![])).is_empty());
    let alone = Runs { sharing: Sharing::Exclusive, ..runs(1, "high", 4..8, 100) };
    assert!(resumed(&made(&[mid.clone(), alone], vec![])).is_empty());
    let whole = Runs { sharing: Sharing::Exclusive, ..mid };
    assert!(resumed(&made(&[whole.clone(), runs(1, "low", 7..8, 100)], vec![])).is_empty());
    assert_eq!(resumed(&made(&[whole], vec![])), [51]);
}

#[test]
fn whoever_keeps_a_node_for_his_user_keeps_it_when_he_would_be_suspended() {
    let own = Runs { sharing: Sharing::User, ..runs(50, "low", 0..8, 100) };
    assert!(told(&made(std::slice::from_ref(&own), vec![asks(1, "high", 4, 100)])).is_empty());
    assert!(started(&made(&[own.suspended(NOW)], vec![asks(1, "high", 4, 100)])).is_empty());
}

#[test]
fn a_run_goes_on_within_the_limit_of_its_partition() {
    let resumed_beside = |partition: &str| {
        let running = [runs(1, "low", 0..4, 100).suspended(NOW), runs(2, partition, 4..8, 100)];
        let mut view = site(1, &running, Vec::new());
        let node = Arc::make_mut(&mut view.nodes[0]);
        node.holds[0].partition = Some("low".to_owned());
        node.holds[1].partition = Some(partition.to_owned());
        view.partitions[0].caps = CpuCaps { per_node: Some(6), per_socket: None };
        resumed(&plan(&view, NOW))
    };
    assert_eq!(resumed_beside("mid"), [1]);
    assert!(resumed_beside("low").is_empty());
}

#[test]
fn nobody_goes_on_where_others_who_may_preempt_it_were_not_looked_at() {
    let parked = runs(1, "low", 0..8, 100).suspended(NOW);
    let cut = |view: &ClusterView, now| {
        let cut = plan_until(view, now, Some(&|| true));
        assert!(started(&cut).is_empty() && cut.left_out == view.pending.len());
        resumed(&cut)
    };
    let beside = |others: &[&str]| {
        let waiting = (2..).zip(others).map(|(id, partition)| asks(id, partition, 1, 10)).collect();
        site(1, std::slice::from_ref(&parked), waiting)
    };
    assert_eq!(cut(&beside(&[]), NOW), [1]);
    assert_eq!(cut(&beside(&["low", "low"]), NOW), [1]);
    assert!(cut(&beside(&["low", "mid"]), NOW).is_empty());
    // Not for ever.
    let later = NOW.plus(LEFT_TO_OTHERS);
    assert!(cut(&beside(&["high"]), Timestamp(later.0 - 1)).is_empty());
    assert_eq!(cut(&beside(&["high"]), later), [1]);
    // Its nodes are none of theirs.
    let mut apart = site(2, std::slice::from_ref(&parked), vec![asks(2, "high", 1, 10)]);
    assert!(cut(&apart, NOW).is_empty());
    apart.partitions[2].nodes.set(0, false);
    assert_eq!(cut(&apart, NOW), [1]);
    // Only jobs of a higher priority preempt it.
    let mut by_priority = beside(&["high", "high"]);
    by_priority.policy.preempt.by_priority = true;
    assert_eq!(cut(&by_priority, NOW), [1]);
    Arc::make_mut(&mut by_priority.pending[1]).priority = parked.view.priority + 1;
    assert!(cut(&by_priority, NOW).is_empty());
}

#[test]
fn a_plan_that_stops_at_its_limit_of_starts_leaves_cpus_to_those_who_may_preempt() {
    let with = |partition: &str| {
        let running = [runs(1, "low", 0..8, 100).suspended(NOW)];
        let first = JobView { priority: u32::MAX, ..asks(2, "high", 8, 10) };
        let mut view = site(2, &running, vec![first, asks(3, partition, 1, 10)]);
        view.policy.max_starts = 1;
        let made = plan(&view, NOW);
        assert_eq!((started(&made), made.truncated), (vec![2], true));
        resumed(&made)
    };
    assert_eq!(with("low"), [1]);
    assert!(with("mid").is_empty());
}

#[test]
fn those_that_stand_still_go_on_when_nobody_waits_and_when_preemption_was_switched_off() {
    let parked = [runs(50, "low", 0..8, 100).suspended(NOW)];
    let view = site(1, &parked, vec![]);
    assert_eq!(resumed(&plan(&view, NOW)), [50]);
    let jobs: Vec<Arc<JobView>> = vec![Arc::new(parked[0].view.clone())];
    let mut policy = view.policy.clone();
    policy.preempt = PreemptRules::default();
    let off = ClusterView::new(policy, &jobs, &view.nodes, view.partitions);
    assert_eq!(resumed(&plan(&off, NOW)), [50]);
}

/// Works a queue off as owners would who agree to everything.
struct Play {
    nodes: u32,
    running: BTreeMap<u32, Runs>,
    waiting: Vec<JobView>,
    now: Timestamp,
    /// So many are looked at in a plan.
    looks: usize,
}

impl Play {
    fn pass(&mut self) -> Plan {
        let running: Vec<Runs> = self.running.values().cloned().collect();
        let looked = Cell::new(0);
        let late = || looked.replace(looked.get() + 1) >= self.looks;
        let made = plan_until(&site(self.nodes, &running, self.waiting.clone()), self.now, Some(&late));
        for one in &made.preemptions {
            let run = self.running.get_mut(&one.job.0).unwrap();
            assert_eq!((run.view.state, one.sluid), (JobState::Running, Sluid(u64::from(one.job.0))));
            *run = run.clone().suspended(NOW);
            run.view.suspended.as_mut().unwrap().at = self.now;
        }
        for start in &made.starts {
            self.waiting.retain(|job| job.id != start.job);
            self.running.insert(start.job.0, runs_on(start.job.0, &start.partition, start.nodes.clone()));
        }
        for one in &made.resumptions {
            let run = self.running.get_mut(&one.job.0).unwrap();
            assert!(run.parked, "only those that stand still go on");
            (run.parked, run.view.state, run.view.suspended) = (false, JobState::Running, None);
        }
        made
    }

    fn nothing_is_given_twice(&self) {
        for place in 0..self.nodes {
            let (mut cpus, mut memory) = (CpuSet::new(), 0);
            for run in self.running.values() {
                let held = &run.view.allocation.as_ref().unwrap().nodes;
                for held in held.iter().filter(|held| held.index.0 == place) {
                    memory += held.share.memory.map_or(0, |m| m.0);
                    if !run.parked {
                        assert!(held.share.cpus.is_disjoint(&cpus), "n{place}: {} again", held.share.cpus);
                        cpus.add(&held.share.cpus);
                    }
                }
            }
            assert!(memory <= 1000, "n{place}: {memory} MiB");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_given_twice_and_all_that_stand_still_go_on(
        nodes in 1u32..3,
        looks in prop_oneof![Just(usize::MAX), 1usize..5],
        steps in prop::collection::vec((0usize..3, 1u32..9, 0u64..5, any::<u8>()), 1..25),
    ) {
        let mut play = Play { nodes, running: BTreeMap::new(), waiting: Vec::new(), now: NOW, looks };
        for (id, (tier, tasks, memory, ends)) in (1..).zip(steps) {
            let waits = asks(id, ["low", "mid", "high"][tier], tasks, 50 + 100 * memory);
            play.waiting.push(JobView { time_limit: TimeLimit::Secs(3600), ..waits });
            for _ in 0..2 {
                play.pass();
                play.nothing_is_given_twice();
            }
            if ends.is_multiple_of(3) {
                let awake: Vec<u32> = play.running.iter().filter(|(_, run)| !run.parked).map(|(id, _)| *id).collect();
                if !awake.is_empty() {
                    play.running.remove(&awake[usize::from(ends) % awake.len()]);
                }
            }
        }
        // Whoever is awake ends; nobody else does, and nobody is left.
        for pass in 0..200 {
            if looks < usize::MAX && pass % 10 == 0 {
                play.now = play.now.plus(LEFT_TO_OTHERS);
            }
            play.pass();
            play.nothing_is_given_twice();
            let awake = play.running.iter().find(|(_, run)| !run.parked).map(|(id, _)| *id);
            awake.map(|id| play.running.remove(&id));
        }
        prop_assert!(play.running.is_empty() && play.waiting.is_empty(), "{:?}", play.running.keys());
    }
}
