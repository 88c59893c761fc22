//! Repaired plans beside the world that they were made for: jobs start, end early or late, come and go.

#![allow(clippy::unwrap_used)]

use super::plan_test::{any_spec, overbooked, overbooked_later};
use crate::{
    fixtures::{cluster, partition},
    plan::{
        Plan,
        kept::{Kept, plan_to_keep},
    },
    proposals::StartProposal,
    room::{horizon::Horizon, machine::Machine, node::free::Amount, reservations::seen, reserved::Reservation},
    rules::bounds::Quota,
    snapshot::{
        bounds::Bounds,
        facts::{Backfill, ClusterView, NEVER},
        preempt::PreemptRules,
        request::{Label, Owner},
        reservations::Reservations,
    },
};
use garrick_model::{
    config::{PreemptMode, PreemptType},
    ids::{JobId, Sluid},
    reservation,
    spec::{ArraySpec, JobSpec, NodeCount},
    state::{JobState, Reason},
    testing::{job, node, spec},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, Allocation, JobView, NodeHold},
};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const BEGIN: Timestamp = Timestamp::from_secs(10_000);

/// What happens between two plans.
#[derive(Clone, Debug)]
enum Event {
    Submit(Box<JobSpec>, u8),
    Cancel(usize),
    End(usize),
    /// A running job is given more time.
    Longer(usize),
    Wait(u64),
    /// The next start is refused.
    Refuse,
    /// A node goes out of service, or comes back.
    Drain(usize),
}

/// Nodes that are reserved for those who ask for `r0` and so on: from which on, from when on, for how long, and whether their
/// jobs may have others too.
fn reserved(view: &ClusterView, list: &[(u32, u64, u64, bool)]) -> Reservations {
    let shown = list.iter().enumerate().map(|(number, (first, from, secs, flex))| {
        let flex = flex.then_some(reservation::ReservationFlag::Flex);
        let start = BEGIN.plus(Duration::from_secs(*from));
        Arc::new(reservation::Reservation {
            name: format!("r{number}"),
            start,
            end: start.plus(Duration::from_secs(*secs)),
            nodes: (*first..view.nodes.len() as u32).map(|n| format!("n{n}")).collect(),
            users: reservation::AccessList::parse("alice").unwrap(),
            flags: [reservation::ReservationFlag::Overlap].into_iter().chain(flex).collect(),
            ..reservation::Reservation::default()
        })
    });
    let shown: Vec<_> = shown.collect();
    Reservations::new(&shown, &view.nodes, Vec::new(), BEGIN, &TimeZone::UTC)
}

struct World {
    view: ClusterView,
    now: Timestamp,
    next: u32,
    refuse: bool,
    bounds: Option<Arc<Bounds>>,
    quota: Quota,
}

impl World {
    fn new(nodes: u32, specs: Vec<JobSpec>, backfill: Backfill) -> Self {
        let nodes = (0..nodes).map(|n| node(n, 4)).collect();
        let jobs: Vec<JobView> = specs.into_iter().zip(1..).map(|(spec, id)| job(id, spec)).collect();
        let next = u32::try_from(jobs.len()).unwrap() + 1;
        let mut view = cluster(nodes, jobs);
        view.policy.backfill = backfill;
        view.policy.backfill_depth = 12;
        Self { view, now: BEGIN, next, refuse: false, bounds: None, quota: Quota::default() }
    }

    /// Within these bounds, with jobs of several users.
    fn bounded(mut self, bounds: Bounds) -> Self {
        self.bounds = Some(Arc::new(bounds));
        self.view.pending = self.view.pending.iter().map(|job| Arc::new(of_several((**job).clone()))).collect();
        self
    }

    /// What is left of the bounds for the next plan.
    fn within_quota(&mut self) {
        let left = self.bounds.as_ref().map(|bounds| self.quota.left(bounds, self.now, Duration::from_secs(600)));
        self.view.policy.bounds = left;
    }

    /// No more of a user are looked at, behind others, than may be, and no more start than may.
    fn keeps_bounds(&self, plan: &Plan, (before, after): (&Looked, &Looked), repaired: bool) -> bool {
        let Some(bounds) = &self.view.policy.bounds else { return true };
        let user = |job: JobId| self.view.pending.iter().find(|waits| waits.id == job).map(|waits| waits.uid);
        let count = |users: &[Option<u32>], of: u32| users.iter().filter(|user| **user == Some(of)).count();
        let is_new = |who: &(JobId, usize)| !repaired || !before.contains_key(who);
        let new: Vec<_> =
            after.iter().filter(|(who, behind)| **behind && is_new(who)).map(|(who, _)| user(who.0)).collect();
        let known: Vec<_> =
            before.iter().filter(|(_, behind)| **behind && repaired).map(|(who, _)| user(who.0)).collect();
        let within = |most: u32| (0..3).all(|of| count(&new, of) <= (most as usize).saturating_sub(count(&known, of)));
        // Components start together or not at all, so the last may be more than one.
        let together = u32::try_from(plan.starts.iter().map(|start| start.others.len()).sum::<usize>()).unwrap();
        bounds.of_user.is_none_or(within)
            && bounds.in_order.is_none_or(|most| plan.in_order <= most + together)
            && bounds.backfilled.is_none_or(|most| plan.backfilled <= most + together)
    }

    /// With a second partition `high` of a higher tier over the first half of its nodes.
    fn with_high(mut self) -> Self {
        let mut high = partition("high", 0..self.view.nodes.len().div_ceil(2));
        high.tier = 2;
        high.nodes.grow(self.view.nodes.len());
        self.view.partitions.push(high);
        self
    }

    /// The same, whose jobs preempt others.
    fn with_preemption(mut self) -> Self {
        self = self.with_high();
        let (kind, mode) = (PreemptType::PartitionPrio, PreemptMode::Requeue);
        self.view.policy.preempt = PreemptRules { kind, mode, ..PreemptRules::default() };
        self
    }

    /// Two jobs that follow each other are components of one.
    fn with_group(mut self, which: usize) -> Self {
        let pending = &mut self.view.pending;
        if pending.len() > 1 {
            let first = which % (pending.len() - 1);
            let leader = pending[first].id;
            for (offset, job) in (0..2).zip(&mut pending[first..]) {
                let spec = JobSpec { het: Some((leader, offset)), het_size: 2, array: None, ..(*job.spec).clone() };
                *job = Arc::new(JobView { array_pending: None, spec: Arc::new(spec), ..(**job).clone() });
            }
        }
        self
    }

    fn running(&self) -> Vec<JobId> {
        let mut jobs: Vec<JobId> = self.view.nodes.iter().flat_map(|n| n.holds.iter().map(|h| h.job)).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    fn each_hold(&mut self, job: JobId, mut change: impl FnMut(&mut NodeHold) -> bool) {
        for node in &mut self.view.nodes {
            if node.holds.iter().any(|h| h.job == job) {
                Arc::make_mut(node).holds.retain_mut(|hold| hold.job != job || change(hold));
            }
        }
    }

    fn ends(&mut self, job: JobId) {
        self.each_hold(job, |_| false);
        self.view.working.remove(&job);
    }

    /// True: somebody who has room reserved may lose it.
    fn happens(&mut self, event: &Event) -> bool {
        match event {
            Event::Submit(spec, favour) => {
                let mut new = job(self.next, (**spec).clone());
                if self.bounds.is_some() {
                    new = of_several(new);
                }
                new.priority += u32::from(*favour) * 3;
                self.next += 1;
                self.view.pending.push(Arc::new(new));
            }
            Event::Cancel(which) if !self.view.pending.is_empty() => {
                let place = which % self.view.pending.len();
                self.view.pending.remove(place);
            }
            Event::End(which) if !self.running().is_empty() => {
                let running = self.running();
                self.ends(running[which % running.len()]);
            }
            Event::Longer(which) if !self.running().is_empty() => {
                let running = self.running();
                self.each_hold(running[which % running.len()], |hold| {
                    hold.expected_end = hold.expected_end.map(|end| end.plus(Duration::from_secs(777)));
                    true
                });
                return true;
            }
            Event::Wait(secs) => {
                self.now = self.now.plus(Duration::from_secs(*secs));
                // Who should be over and is not stands in the way.
                let now = self.now;
                return self.view.nodes.iter().flat_map(|n| &n.holds).any(|h| h.expected_end.is_some_and(|e| e <= now));
            }
            Event::Refuse => {
                self.refuse = true;
                return true;
            }
            Event::Drain(which) => {
                let place = which % self.view.nodes.len();
                let node = Arc::make_mut(&mut self.view.nodes[place]);
                node.flags.drain = !node.flags.drain;
                return true;
            }
            _ => {}
        }
        false
    }

    /// Owners do what a plan proposes.
    fn obey(&mut self, plan: &Plan) {
        for victim in &plan.preemptions {
            self.ends(victim.job);
        }
        let mut refused = None;
        for (leader, start) in all_starts(plan) {
            if std::mem::take(&mut self.refuse) {
                refused = Some(leader);
            }
            if refused == Some(leader) {
                continue;
            }
            let place = self.view.pending.iter().position(|job| job.id == start.job).unwrap();
            let waiting = Arc::clone(&self.view.pending[place]);
            let id = self.begin(&waiting, start);
            match start.array_index {
                None => {
                    self.view.pending.remove(place);
                }
                Some(index) => {
                    let left = waiting.array_pending.as_ref().unwrap().ranges.iter();
                    let left: Vec<_> =
                        left.flat_map(|(a, b, _)| *a..=*b).filter(|i| *i != index).map(|i| (i, i, 1)).collect();
                    if left.is_empty() {
                        self.view.pending.remove(place);
                    } else {
                        let array_pending = Some(ArraySpec { ranges: left, limit: None });
                        self.view.pending[place] = Arc::new(JobView { array_pending, ..(*waiting).clone() });
                    }
                    self.next = self.next.max(id.0 + 1);
                }
            }
        }
    }

    fn begin(&mut self, job: &JobView, start: &StartProposal) -> JobId {
        let id = if start.array_index.is_some() { JobId(self.next) } else { job.id };
        self.next = self.next.max(id.0 + 1);
        for given in &start.nodes {
            let node = Arc::make_mut(&mut self.view.nodes[given.index.0 as usize]);
            node.generation += 1;
            node.holds.push(NodeHold {
                job: id,
                sluid: Sluid(u64::from(id.0)),
                uid: job.uid,
                share: given.share.clone(),
                sharing: start.usage.sharing(),
                mcs_label: job.spec.mcs_label.clone(),
                partition: Some(start.partition.clone()),
                expected_end: start.time_limit.duration().map(|limit| self.now.plus(limit)),
                completing: false,
                kept: false,
                parked: false,
            });
        }
        let (nodes, partition) = (start.nodes.clone(), start.partition.clone());
        let allocation = Some(Arc::new(Allocation { nodes, partition, ..Allocation::default() }));
        let runs = JobView { id, state: JobState::Running, start_time: Some(self.now), allocation, ..job.clone() };
        self.view.working.insert(id, Arc::new(runs));
        id
    }

    /// Runs the plan on, and says whether it was repaired.
    fn plan(&self, kept: Option<Kept>) -> (Plan, Option<Kept>, bool) {
        let repaired = kept.and_then(|kept| kept.repair(self.view.clone(), self.now).ok());
        match repaired {
            Some((plan, kept)) => (plan, Some(kept), true),
            None => {
                let (plan, kept) = plan_to_keep(self.view.clone(), self.now);
                (plan, kept.ok(), false)
            }
        }
    }

    /// Are nodes that it has reserved for others then?
    fn is_closed_to(&self, one: &Reservation) -> bool {
        let job = self.view.pending.iter().find(|job| job.id == one.job).unwrap();
        let viewer = job.spec.reservations.first().and_then(|name| self.view.reservations.viewer_of(name));
        let closed = self.view.reservations.closed(viewer, self.now, one.from, one.until);
        one.nodes.iter().any(|(node, _)| closed.contains(*node))
    }

    /// What is free from now on, counted from nothing.
    fn free(&self, plan: &Plan, reservations: &[Reservation]) -> Horizon {
        let mut horizon = seen(&self.view, None, self.now);
        for (_, start) in all_starts(plan) {
            let until = start.time_limit.duration().map_or(NEVER, |limit| self.now.plus(limit));
            let until = until.min(self.now.plus(crate::snapshot::facts::UNLIMITED_FOR_PLANNING));
            let job = self.view.pending.iter().find(|job| job.id == start.job).unwrap();
            let label = Label::of(job.spec.mcs_label.as_deref());
            let owner = Owner { user: job.uid, label }.where_matters(self.view.matters());
            let amount = |given: &AllocatedNode| {
                let place = given.index.0 as usize;
                (place, Amount::of_share(&self.view.nodes[place].shape, &given.share, start.usage, owner))
            };
            let nodes: Vec<_> = start.nodes.iter().map(amount).collect();
            horizon.hold(&nodes, self.now, until);
        }
        for reservation in reservations {
            horizon.hold(&reservation.nodes, reservation.from, reservation.until);
        }
        horizon
    }
}

/// With those that start with others, each with whom.
fn all_starts(plan: &Plan) -> impl Iterator<Item = (JobId, &StartProposal)> {
    plan.starts.iter().flat_map(|start| std::iter::once(start).chain(&start.others).map(|one| (start.job, one)))
}

/// For whom room was looked for, and whether behind others.
type Looked = BTreeMap<(JobId, usize), bool>;

fn of_several(job: JobView) -> JobView {
    JobView { uid: job.id.0 % 3, ..job }
}

fn any_bounds() -> impl Strategy<Value = Bounds> {
    let most = || prop::option::weighted(0.6, 1u32..5);
    (most(), most(), most(), most()).prop_map(|(of_user, of_partition, backfilled, in_order)| Bounds {
        of_user,
        of_partition,
        backfilled,
        in_order,
        ..Bounds::default()
    })
}

fn times(reservations: &[Reservation]) -> BTreeMap<(JobId, usize), Timestamp> {
    reservations.iter().map(|r| ((r.job, r.partition), r.from)).collect()
}

/// With a limit that may be lowered, of the partition `high`, and for a reservation, here and there.
fn any_wish() -> impl Strategy<Value = JobSpec> {
    let guest = prop::option::weighted(0.15, 0usize..3);
    (any_spec(), prop::option::weighted(0.3, 1u64..60), prop::bool::weighted(0.2), guest).prop_map(
        |(spec, least, high, guest)| {
            let partitions = if high { vec!["high".to_owned()] } else { Vec::new() };
            let reservations = guest.iter().map(|number| format!("r{number}")).collect();
            JobSpec { time_min: least.map(|minutes| TimeLimit::Secs(minutes * 60)), partitions, reservations, ..spec }
        },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (any_wish(), prop_oneof![3 => Just(0u8), 1 => 0u8..9]).prop_map(|(spec, favour)| Event::Submit(Box::new(spec), favour)),
        1 => any::<usize>().prop_map(Event::Cancel),
        4 => any::<usize>().prop_map(Event::End),
        1 => any::<usize>().prop_map(Event::Longer),
        3 => (1u64..2000).prop_map(Event::Wait),
        1 => Just(Event::Refuse),
        1 => any::<usize>().prop_map(Event::Drain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_repaired_plan_holds(
        specs in prop::collection::vec(any_wish(), 1..20),
        nodes in 1u32..8,
        preempts in prop::bool::weighted(0.3),
        group in prop::option::weighted(0.4, any::<usize>()),
        bounds in prop::option::weighted(0.4, any_bounds()),
        backfill in prop_oneof![(1u32..3).prop_map(Backfill::First), Just(Backfill::Conservative)],
        events in prop::collection::vec(any_event(), 1..25),
        reservations in prop::collection::vec((0u32..8, 0u64..10_000, 1u64..5_000, any::<bool>()), 0..3),
    ) {
        let mut world = World::new(nodes, specs, backfill);
        world = if preempts { world.with_preemption() } else { world.with_high() };
        world = if let Some(which) = group { world.with_group(which) } else { world };
        world = if let Some(bounds) = bounds { world.bounded(bounds) } else { world };
        world.view.reservations = reserved(&world.view, &reservations);
        world.within_quota();
        let (mut plan, mut kept, _) = world.plan(None);
        world.quota.spend((plan.in_order, plan.backfilled));
        world.obey(&plan);
        for event in events {
            let looked = kept.as_ref().map(Kept::looked).unwrap_or_default();
            let before = kept.as_ref().map(|kept| times(&kept.reservations())).unwrap_or_default();
            let may_lose = world.happens(&event) || before.values().any(|from| *from < world.now);
            world.within_quota();
            let repaired;
            (plan, kept, repaired) = world.plan(kept);
            world.quota.spend((plan.in_order, plan.backfilled));
            prop_assert!(!repaired || crate::plan::plan(&world.view, world.now).preemptions.is_empty());
            prop_assert_eq!(overbooked(&world.view, &plan), None);
            if let Some(kept) = &kept {
                prop_assert!(world.keeps_bounds(&plan, (&looked, &kept.looked()), repaired));
                let reservations = kept.reservations();
                let whole = Plan { reservations: reservations.clone(), ..plan.clone() };
                prop_assert_eq!(overbooked_later(&world.view, &whole, world.now), None);
                prop_assert_eq!(kept.floor(), Machine::now(&world.view).into_floor());
                for one in &reservations {
                    prop_assert!(!world.is_closed_to(one), "{:?}", one);
                }
                let counted = world.free(&plan, &reservations);
                for node in 0..world.view.nodes.len() {
                    prop_assert_eq!(kept.horizon().steps_from(node, world.now), counted.steps_from(node, world.now), "{}", node);
                }
                let after = times(&reservations);
                for (who, from) in before.iter().filter(|_| repaired && !may_lose) {
                    let waits = world.view.pending.iter().any(|job| job.id == who.0);
                    let starts = all_starts(&plan).any(|(_, start)| start.job == who.0);
                    let place = after.get(who);
                    prop_assert!(!waits || starts || place.is_some_and(|at| at <= from), "{:?} had {:?}, now {:?}", who, from, place);
                }
                for job in &world.view.pending {
                    let starts = all_starts(&plan).any(|(_, start)| start.job == job.id);
                    // A component whose leader is gone is looked at by nobody.
                    let starts = starts || job.spec.het.is_some();
                    prop_assert!(starts || kept.news(job.id).0.is_some(), "{:?}", job.id);
                }
            }
            world.obey(&plan);
        }
    }
}

fn wide(nodes: u32, minutes: u64) -> JobSpec {
    JobSpec {
        nodes: Some(NodeCount { min: nodes, max: None }),
        time_limit: Some(TimeLimit::Secs(minutes * 60)),
        sharing: garrick_model::spec::Sharing::Exclusive,
        ..spec()
    }
}

#[test]
fn who_ends_early_lets_the_next_ones_move_up() {
    // One on each of four nodes for an hour, then one on all of them, then one on each of two again.
    let mut world = World::new(4, vec![wide(4, 60), wide(4, 60), wide(2, 60), wide(2, 60)], Backfill::Conservative);
    let (plan, kept, _) = world.plan(None);
    world.obey(&plan);
    let kept = kept.unwrap();
    let hour = |n: u64| BEGIN.plus(Duration::from_secs(3600 * n));
    let expected: Vec<Timestamp> = times(&kept.reservations()).into_values().collect();
    assert_eq!(expected, [hour(1), hour(2), hour(2)]);
    world.now = world.now.plus(Duration::from_secs(600));
    world.happens(&Event::End(0));
    let (plan, kept, repaired) = world.plan(Some(kept));
    assert!(repaired);
    assert_eq!(plan.starts.iter().map(|start| start.job.0).collect::<Vec<_>>(), [2]);
    let end = world.now.plus(Duration::from_secs(3600));
    assert_eq!(times(&kept.unwrap().reservations()).into_values().collect::<Vec<_>>(), [end, end]);
    assert_eq!(plan.expected, [(JobId(3), end), (JobId(4), end)]);
}

#[test]
fn a_new_job_starts_beside_those_that_wait() {
    let mut world = World::new(4, vec![wide(3, 60), wide(4, 60)], Backfill::Conservative);
    let (plan, kept, _) = world.plan(None);
    world.obey(&plan);
    world.happens(&Event::Submit(Box::new(wide(1, 90)), 0));
    world.happens(&Event::Submit(Box::new(wide(1, 30)), 0));
    let (plan, kept, repaired) = world.plan(kept);
    assert!(repaired);
    assert_eq!(plan.starts.iter().map(|start| start.job.0).collect::<Vec<_>>(), [4]);
    let kept = kept.unwrap();
    assert_eq!(kept.news(JobId(3)), (Some(Reason::Priority), Some(BEGIN.plus(Duration::from_secs(7200)))));
    assert!(!kept.is_stale());
}

#[test]
fn a_node_that_leaves_takes_a_new_plan() {
    let mut world = World::new(2, vec![wide(2, 60), wide(2, 60)], Backfill::Conservative);
    let (plan, kept, _) = world.plan(None);
    world.obey(&plan);
    world.happens(&Event::Drain(0));
    let (_, kept, repaired) = world.plan(kept);
    assert!(!repaired);
    assert_eq!(kept.unwrap().news(JobId(2)).1, None);
}

#[test]
fn a_reservation_closes_its_nodes_to_repairs_too() {
    let mut world = World::new(2, vec![wide(2, 60), wide(1, 60), wide(2, 60)], Backfill::Conservative);
    // From an hour and a half on, the second node for an hour.
    world.view.reservations = reserved(&world.view, &[(1, 5400, 3600, false)]);
    let (plan, kept, _) = world.plan(None);
    world.obey(&plan);
    world.now = world.now.plus(Duration::from_secs(600));
    world.happens(&Event::End(0));
    let (plan, kept, repaired) = world.plan(kept);
    assert!(repaired);
    assert_eq!(
        plan.starts.iter().map(|start| (start.job.0, start.nodes[0].name.as_str())).collect::<Vec<_>>(),
        [(2, "n0")]
    );
    let free_again = BEGIN.plus(Duration::from_secs(9000));
    assert_eq!(times(&kept.as_ref().unwrap().reservations()).into_values().collect::<Vec<_>>(), [free_again]);
    world.obey(&plan);
    world.view.reservations = Reservations::default();
    let (_, kept, repaired) = world.plan(kept);
    assert!(!repaired);
    let end = world.now.plus(Duration::from_secs(3600));
    assert_eq!(times(&kept.unwrap().reservations()).into_values().collect::<Vec<_>>(), [end]);
}

#[test]
fn who_waits_for_a_reservation_keeps_his_room_and_takes_a_new_plan_when_it_begins() {
    let guest = || JobSpec { reservations: vec!["r0".to_owned()], ..wide(1, 60) };
    let specs = vec![wide(2, 60), wide(1, 60), wide(2, 90), wide(2, 60), guest()];
    let mut world = World::new(3, specs, Backfill::Conservative);
    // From an hour and a half on, the third node.
    world.view.reservations = reserved(&world.view, &[(2, 5400, 7200, false)]);
    let (plan, kept, _) = world.plan(None);
    world.obey(&plan);
    let begin = BEGIN.plus(Duration::from_secs(5400));
    let mine = |kept: &Option<Kept>| times(&kept.as_ref().unwrap().reservations()).get(&(JobId(5), 0)).copied();
    assert_eq!(mine(&kept), Some(begin));
    // Others end and come beside it.
    world.now = world.now.plus(Duration::from_secs(600));
    world.happens(&Event::End(0));
    let (plan, kept, repaired) = world.plan(kept);
    assert!(repaired && !kept.as_ref().unwrap().is_stale());
    assert_eq!(plan.starts.iter().map(|start| start.job.0).collect::<Vec<_>>(), [3]);
    assert_eq!(mine(&kept), Some(begin));
    world.obey(&plan);
    world.happens(&Event::Submit(Box::new(wide(1, 20)), 0));
    let (plan, kept, repaired) = world.plan(kept);
    assert!(repaired && plan.starts.is_empty());
    assert_eq!(mine(&kept), Some(begin));
    // What is freed on its own node may help it.
    world.happens(&Event::End(0));
    let (plan, kept, repaired) = world.plan(kept);
    assert!(repaired && kept.as_ref().unwrap().is_stale(), "{:?}", plan.starts);
    world.obey(&plan);
    for job in world.running() {
        world.ends(job);
    }
    world.now = begin;
    let (plan, _, repaired) = world.plan(kept);
    assert!(!repaired);
    let starts = plan.starts.iter().filter(|start| start.reservation.is_some());
    assert_eq!(starts.map(|start| (start.job.0, start.nodes[0].name.as_str())).collect::<Vec<_>>(), [(5, "n2")]);
}

#[test]
fn who_submits_for_a_reservation_takes_a_new_plan() {
    let guest = JobSpec { reservations: vec!["r0".to_owned()], ..wide(1, 60) };
    let mut world = World::new(2, vec![wide(2, 60), wide(2, 60), guest.clone()], Backfill::Conservative);
    world.view.reservations = reserved(&world.view, &[(1, 9000, 7200, false)]);
    let (plan, kept, _) = world.plan(None);
    world.obey(&plan);
    let (_, kept, repaired) = world.plan(kept);
    assert!(repaired);
    // Another may use it: those who wait may be others.
    let mut shown = (*world.view.reservations.list[0].reservation).clone();
    shown.accounts = reservation::AccessList::parse("physics").unwrap();
    let before = std::mem::take(&mut world.view.reservations);
    world.view.reservations =
        Reservations::new(&[Arc::new(shown)], &world.view.nodes, Vec::new(), BEGIN, &TimeZone::UTC);
    let (_, kept, repaired) = world.plan(kept);
    assert!(!repaired && kept.unwrap().news(JobId(3)).1.is_none());
    world.view.reservations = before;
    let kept = world.plan(None).1;
    world.happens(&Event::Submit(Box::new(guest), 0));
    let (_, kept, repaired) = world.plan(kept);
    assert!(!repaired && kept.is_some());
}

#[test]
fn of_each_user_so_many_are_looked_at_in_repairs_too() {
    let bounds = Bounds { of_user: Some(1), ..Bounds::default() };
    let specs = vec![wide(2, 60), wide(2, 60), wide(2, 60), wide(2, 60)];
    let mut world = World::new(2, specs, Backfill::Conservative).bounded(bounds);
    // The first of all that wait is behind nobody.
    world.within_quota();
    let (plan, kept, _) = world.plan(None);
    world.obey(&plan);
    let hour = |n: u64| BEGIN.plus(Duration::from_secs(3600 * n));
    let reserved = |kept: &Option<Kept>| -> Vec<(u32, Timestamp)> {
        times(&kept.as_ref().unwrap().reservations()).into_iter().map(|((job, _), at)| (job.0, at)).collect()
    };
    assert_eq!(reserved(&kept), [(2, hour(1)), (3, hour(2)), (4, hour(3))]);
    // Those of users 2 and 0, and one of user 1, who has one behind others already.
    for _ in 0..3 {
        world.happens(&Event::Submit(Box::new(wide(2, 60)), 0));
    }
    let (plan, kept, repaired) = world.plan(kept);
    assert!(repaired && plan.starts.is_empty());
    assert_eq!(reserved(&kept), [(2, hour(1)), (3, hour(2)), (4, hour(3)), (5, hour(4))]);
    assert_eq!(kept.as_ref().unwrap().news(JobId(7)), (Some(Reason::Priority), None));
    // One goes, and the next of his is looked at.
    let place = world.view.pending.iter().position(|job| job.id == JobId(4)).unwrap();
    world.happens(&Event::Cancel(place));
    let (_, kept, repaired) = world.plan(kept);
    assert!(repaired);
    assert_eq!(reserved(&kept), [(2, hour(1)), (3, hour(2)), (5, hour(4)), (7, hour(3))]);
}

/// Starts of plans as jobs are submitted that could all start, and whether each plan was repaired.
fn starts_within(bounds: Bounds, specs: Vec<JobSpec>, submitted: usize) -> Vec<(Vec<u32>, bool)> {
    let mut world = World::new(4, specs, Backfill::Conservative).bounded(bounds);
    world.within_quota();
    let (plan, mut kept, _) = world.plan(None);
    world.quota.spend((plan.in_order, plan.backfilled));
    world.obey(&plan);
    let mut all = Vec::new();
    for wait in [1, 1, 600] {
        for _ in 0..submitted {
            world.happens(&Event::Submit(Box::new(wide(1, 10)), 0));
        }
        world.happens(&Event::Wait(wait));
        world.within_quota();
        let (plan, now_kept, repaired) = world.plan(kept);
        kept = now_kept;
        world.quota.spend((plan.in_order, plan.backfilled));
        world.obey(&plan);
        all.push((plan.starts.iter().map(|start| start.job.0).collect(), repaired));
    }
    all
}

#[test]
fn no_more_start_in_repairs_of_an_interval_than_may() {
    let behind = Bounds { backfilled: Some(1), ..Bounds::default() };
    let started = starts_within(behind, vec![wide(2, 60), wide(3, 60)], 1);
    assert_eq!(started, [(vec![3], true), (vec![], false), (vec![4], false)]);
}

/// Who waits only for the next starts let those behind him go first.
#[test]
fn who_waits_for_the_next_starts_is_not_passed_by_in_repairs() {
    let in_order = Bounds { in_order: Some(2), ..Bounds::default() };
    let started = starts_within(in_order, vec![wide(1, 60)], 1);
    assert_eq!(started, [(vec![2], true), (vec![], false), (vec![3, 4], false)]);
    // Several in one repair.
    let in_order = Bounds { in_order: Some(2), ..Bounds::default() };
    let started = starts_within(in_order, vec![wide(1, 60)], 3);
    assert_eq!(started, [(vec![2], false), (vec![], false), (vec![3, 4], false)]);
}

#[test]
fn who_loses_his_room_gives_up_its_licenses_too() {
    let licensed = JobSpec { licenses: Some("a:2".to_owned()), ..wide(2, 60) };
    let mut world = World::new(2, vec![wide(2, 60), licensed], Backfill::Conservative);
    world.view.licenses.totals.insert("a".to_owned(), 2);
    let (plan, kept, _) = world.plan(None);
    world.obey(&plan);
    let before = times(&kept.as_ref().unwrap().reservations());
    world.happens(&Event::Longer(0));
    let (_, kept, repaired) = world.plan(kept);
    assert!(repaired);
    let after = times(&kept.unwrap().reservations());
    assert_eq!(after, times(&world.plan(None).1.unwrap().reservations()));
    assert_ne!(after, before);
}

#[test]
fn with_preemption_plans_are_repaired_as_long_as_nobody_who_waits_may_preempt_anybody() {
    let mut world =
        World::new(2, vec![wide(1, 60), wide(1, 120), wide(2, 60)], Backfill::Conservative).with_preemption();
    let (plan, kept, _) = world.plan(None);
    world.obey(&plan);
    world.happens(&Event::End(1));
    let (plan, kept, repaired) = world.plan(kept);
    assert!(repaired && plan.starts.is_empty());
    // The only node of the other partition is taken by one that gives way.
    let high = JobSpec { partitions: vec!["high".to_owned()], ..wide(1, 60) };
    world.happens(&Event::Submit(Box::new(high), 0));
    let (plan, kept, repaired) = world.plan(kept);
    assert!(!repaired && kept.is_none());
    assert_eq!(
        plan.preemptions.iter().map(|victim| (victim.job, victim.by)).collect::<Vec<_>>(),
        [(JobId(1), JobId(4))]
    );
}

#[test]
fn freed_room_is_offered_for_a_lower_limit_too() {
    let brief = JobSpec { time_min: Some(TimeLimit::Secs(600)), ..wide(1, 120) };
    // One node for half an hour and one for an hour, then both for an hour.
    let mut world = World::new(2, vec![wide(1, 30), wide(1, 60), wide(2, 60), brief], Backfill::Conservative);
    let (plan, kept, _) = world.plan(None);
    world.obey(&plan);
    world.happens(&Event::End(0));
    let (plan, _, repaired) = world.plan(kept);
    assert!(repaired);
    let started: Vec<_> = plan.starts.iter().map(|start| (start.job.0, start.time_limit)).collect();
    assert_eq!(started, [(4, TimeLimit::Secs(3600))]);
}

#[test]
fn a_heterogeneous_job_keeps_its_room_and_takes_a_new_plan_when_its_time_comes() {
    let specs = vec![wide(1, 60), wide(1, 120), wide(1, 30), wide(1, 30)];
    let mut world = World::new(2, specs, Backfill::Conservative).with_group(2);
    let (plan, kept, _) = world.plan(None);
    world.obey(&plan);
    let hour = |n: u64| BEGIN.plus(Duration::from_secs(3600 * n));
    let reserved = |kept: &Option<Kept>| times(&kept.as_ref().unwrap().reservations());
    assert_eq!(reserved(&kept).into_values().collect::<Vec<_>>(), [hour(2), hour(2)]);
    world.happens(&Event::Submit(Box::new(wide(1, 60)), 0));
    let (plan, kept, repaired) = world.plan(kept);
    assert!(repaired && plan.starts.is_empty());
    assert_eq!(reserved(&kept).into_values().collect::<Vec<_>>(), [hour(2), hour(2), hour(1)]);
    world.happens(&Event::Wait(7200));
    world.happens(&Event::End(0));
    world.happens(&Event::End(0));
    let (plan, _, repaired) = world.plan(kept);
    assert!(!repaired);
    let started: Vec<(u32, u32)> = all_starts(&plan).map(|(leader, start)| (leader.0, start.job.0)).collect();
    assert_eq!(started, [(3, 3), (3, 4)]);
}
