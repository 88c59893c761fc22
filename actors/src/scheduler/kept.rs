//! A plan that is kept, and repaired when something changes instead of being made anew.
//!
//! What was reserved stays reserved, so that nobody's reserved start moves later, unless the room is gone (a node is held
//! longer than was expected, or by somebody else): who loses it so is planned again where there is room. What became free
//! is offered, in the usual order, to those whose time has come, to those who wait behind it on the same nodes, and to the
//! first of each kind of request whom it could help; who moves leaves room in turn. Jobs that are new are planned behind
//! what is reserved.
//!
//! A repair gives room to the first who can use it, where a new plan would ask everybody again in order. So a new plan is
//! due from time to time, and at once where what a plan stands on has changed: the policy, partitions, nodes in service,
//! advance reservations. Where an expedited job waits, or one that is for a reservation, plans are not repaired; with
//! preemption, only while nobody who waits may preempt anybody who runs. Heterogeneous jobs keep what they have reserved, and
//! have a new plan made when it is their turn.

use super::{
    caps::CpuCaps,
    facts::{Backfill, ClusterView, in_service},
    free::Amount,
    horizon::{NEVER, Planned},
    ledger::{Group, Ledger, Promise},
    machine::Machine,
    plan::{Future, Key, Pass, Plan, plan_noting},
    request::{Matters, Request},
    reservations::Closing,
};
use garrick_model::{
    ids::JobId,
    state::{JobState, Reason},
    time::Timestamp,
    view::{JobView, NodeView},
};
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Jobs to which a repair offers freed room, at most: to start now, and to start earlier than was planned. A new plan asks
/// all of them.
const MOST_NOW: usize = 512;
const MOST_EARLIER: usize = 32;
/// Jobs that a repair must plan, at most: for more, a new plan is the better way.
const MOST_DUE: usize = 2_000;

/// A plan with what it takes to repair it.
#[derive(Debug)]
pub struct Kept {
    view: ClusterView,
    future: Future,
    ledger: Ledger,
    /// Nodes on which the last plan proposed starts: owners may have refused them.
    proposed: Vec<usize>,
    /// Who was to be looked at, and was not.
    left: BTreeSet<Key>,
    /// Something was left out that a new plan would look at.
    stale: bool,
    /// When the first of those who have nodes is expected to end.
    first_end: Timestamp,
    /// Somebody who waits wants licenses.
    licensed: bool,
}

/// A plan, kept. `Err`: it stopped at its limit of starts, and the next one goes on, or it is such that it is not repaired.
pub fn plan_to_keep(view: ClusterView, now: Timestamp) -> (Plan, Result<Kept, ClusterView>) {
    let fits = |job: &Arc<JobView>| is_plain(job) || is_component(&view, job);
    let (plan, noted) = plan_noting(&view, now, allows_repairs(&view) && view.pending.iter().all(fits));
    let moot = |ledger: &Ledger| view.policy.preempt.is_moot(&view, ledger.first().map(|key| key.tier()));
    let Some((future, ledger)) = noted.filter(|(_, ledger)| moot(ledger)) else { return (plan, Err(view)) };
    let kept = Kept {
        proposed: proposed(&plan),
        left: BTreeSet::new(),
        // Components that are refused are not looked at again by repairs.
        stale: plan.starts.iter().any(|start| !start.others.is_empty()),
        first_end: view.nodes.iter().map(|node| first_end(node)).min().unwrap_or(NEVER),
        licensed: view.pending.iter().any(|job| job.spec.licenses.is_some()),
        view,
        future,
        ledger,
    };
    (plan, Ok(kept))
}

fn proposed(plan: &Plan) -> Vec<usize> {
    let all = plan.starts.iter().flat_map(|start| std::iter::once(start).chain(&start.others));
    all.flat_map(|start| start.nodes.iter().map(|node| node.index.0 as usize)).collect()
}

impl Kept {
    /// Did the last repair leave out what a new plan would look at?
    pub const fn is_stale(&self) -> bool {
        self.stale
    }

    /// When the first of those that have room reserved is to start.
    pub fn next_start(&self) -> Option<Timestamp> {
        self.ledger.begins().next().map(|(from, _)| from)
    }

    /// What is reserved, in the order decided.
    #[cfg(test)]
    pub(super) fn reservations(&self) -> Vec<super::plan::Reservation> {
        let kept = |(key, row): (&Key, &super::ledger::Row)| {
            let promise = row.promise.clone()?;
            Some(super::plan::Reservation {
                job: row.job.id,
                partition: key.partition,
                from: promise.from,
                until: promise.until,
                nodes: promise.nodes,
                licenses: promise.licenses,
            })
        };
        self.ledger.rows().filter_map(kept).collect()
    }

    /// Why a job waits, and when it is expected to start, as of its last look.
    #[cfg(test)]
    pub(super) fn news(&self, job: JobId) -> (Option<Reason>, Option<Timestamp>) {
        self.ledger.news(job)
    }

    #[cfg(test)]
    pub(super) const fn horizon(&self) -> &super::horizon::Horizon {
        &self.future.horizon
    }

    /// What is free now, without what was only proposed.
    #[cfg(test)]
    pub(super) fn floor(&self) -> super::machine::Floor {
        Machine::renewed(&self.view, self.future.floor.clone(), &[]).into_floor()
    }

    /// Repairs the plan for what is now. `Err`: a new one has to be made from this picture.
    pub fn repair(self, view: ClusterView, now: Timestamp) -> Result<(Plan, Self), Box<ClusterView>> {
        let Self { view: before, future, ledger, proposed: touched, left, stale, first_end, licensed } = self;
        let Future { floor, mut horizon } = future;
        let jobs = changed_jobs(&before.pending, &view.pending);
        let licensed = licensed || jobs.iter().any(|(_, job)| job.is_some_and(|job| job.spec.licenses.is_some()));
        let nodes = changed_nodes(&before, first_end, &view, now);
        let stands = |nodes: &[usize]| {
            matters(horizon.matters(), &view, &jobs, nodes) == horizon.matters()
                && stands(&before, &view, &jobs, licensed, now)
        };
        let Some((changed, first_end)) = nodes.filter(|(nodes, _)| stands(nodes)) else {
            return Err(Box::new(view));
        };
        let preempt = view.policy.preempt.is_on();
        horizon.advance(now);
        let mut pass = Pass::on(&view, now, Machine::renewed(&view, floor, &changed), horizon);
        if preempt {
            pass.preempt_nobody();
        }
        let mut repair = Repair::new(&mut pass, ledger, left, stale);
        let changed: BTreeSet<usize> = changed.into_iter().chain(touched).collect();
        if !repair.prepare(&before, &jobs, changed) {
            return Err(Box::new(view));
        }
        repair.go();
        let Repair { ledger, looked, stale, due: left, .. } = repair;
        let (mut plan, future, _) = pass.finish();
        let wholly: BTreeSet<JobId> = plan.starts.iter().filter(|s| s.array_index.is_none()).map(|s| s.job).collect();
        plan.reasons.clear();
        plan.expected.clear();
        for job in looked.into_iter().filter(|job| !wholly.contains(job)) {
            let (reason, expected) = ledger.news(job);
            plan.reasons.extend(reason.map(|reason| (job, reason)));
            plan.expected.extend(expected.map(|at| (job, at)));
        }
        let proposed = proposed(&plan);
        Ok((plan, Self { view, future, ledger, proposed, left, stale, first_end, licensed }))
    }
}

/// Does what a plan stands on still hold?
fn stands(before: &ClusterView, view: &ClusterView, jobs: &[Changed<'_>], licensed: bool, now: Timestamp) -> bool {
    let licenses = before.licenses.totals == view.licenses.totals
        && before.licenses.hres == view.licenses.hres
        && (!licensed || before.licenses.held == view.licenses.held);
    allows_repairs(view)
        && licenses
        && before.policy == view.policy
        && before.partitions == view.partitions
        && before.reservations.closings(None, now) == view.reservations.closings(None, now)
        && jobs.iter().all(|(old, job)| {
            let as_before =
                |job: &Arc<JobView>| old.is_some_and(|old| is_component(view, job) && waits_the_same(old, job));
            job.is_none_or(|job| is_plain(job) || as_before(job))
        })
}

/// [`ClusterView::matters`], from what it was before and what has changed.
fn matters(before: Matters, view: &ClusterView, jobs: &[Changed<'_>], nodes: &[usize]) -> Matters {
    if before.users || before.labels {
        return view.matters();
    }
    let wished = jobs.iter().filter_map(|(_, job)| job.map(|job| job.spec.sharing));
    let kept = nodes.iter().flat_map(|node| &view.nodes[*node].holds).map(|hold| hold.sharing);
    Matters::of(wished.chain(kept))
}

/// Are plans for such a picture repaired, if all that wait are plain?
fn allows_repairs(view: &ClusterView) -> bool {
    view.reservations.only_close_nodes()
        && !(view.policy.preempt.is_on() && view.has_parked)
        && view.policy.shortest_first.is_none()
        && view.policy.topology_patience.is_none()
        && view.partitions.iter().all(|partition| partition.caps == CpuCaps::NONE)
        && view.policy.bounds.is_none()
}

/// Does the job ask for what a repair can give it?
fn is_plain(job: &JobView) -> bool {
    job.state != JobState::Expediting && job.spec.reservations.is_empty() && job.spec.het.is_none()
}

/// Is it a component of a heterogeneous job of which repairs take care in so far as they leave it its room?
fn is_component(view: &ClusterView, job: &JobView) -> bool {
    let plain = job.state != JobState::Expediting && job.spec.reservations.is_empty();
    let leaves_room = view.policy.backfill == Backfill::Conservative && !view.policy.preempt.is_on();
    plain && job.spec.het.is_some() && leaves_room
}

/// Does the job ask for the same as before, in the same place of the queue?
fn waits_the_same(a: &Arc<JobView>, b: &Arc<JobView>) -> bool {
    asks_the_same(a, b) && (a.priority, a.submit_time, a.eligible) == (b.priority, b.submit_time, b.eligible)
}

/// A job as it was, and as it is.
type Changed<'v> = (Option<&'v Arc<JobView>>, Option<&'v Arc<JobView>>);

/// Jobs that are not the very same in both pictures. Both are in about the same order, and most jobs are not looked at.
fn changed_jobs<'v>(before: &'v [Arc<JobView>], now: &'v [Arc<JobView>]) -> Vec<Changed<'v>> {
    let mut changed: BTreeMap<JobId, Changed<'v>> = BTreeMap::new();
    let (mut old, mut new) = (before.iter().peekable(), now.iter().peekable());
    loop {
        match (old.peek().copied(), new.peek().copied()) {
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => {
                old.next();
                new.next();
            }
            (Some(a), b) if b.is_none_or(|b| a.id <= b.id) => {
                changed.entry(a.id).or_default().0 = Some(a);
                old.next();
            }
            (_, Some(b)) => {
                changed.entry(b.id).or_default().1 = Some(b);
                new.next();
            }
            (_, None) => break,
        }
    }
    let same = |(a, b): &Changed<'_>| a.zip(*b).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
    changed.into_values().filter(|pair| !same(pair)).collect()
}

/// Nodes on which something is held that was not, or the other way round, or longer than was expected; and when the first
/// hold is expected to end, which `first_end` was before. `None`: more than that has changed.
fn changed_nodes(
    before: &ClusterView,
    first_end_before: Timestamp,
    view: &ClusterView,
    now: Timestamp,
) -> Option<(Vec<usize>, Timestamp)> {
    if before.nodes.len() != view.nodes.len() {
        return None;
    }
    // Somebody may be there longer than was expected.
    let all = first_end_before <= now;
    let mut first = if all { NEVER } else { first_end_before };
    let mut changed = Vec::new();
    for (place, (old, new)) in before.nodes.iter().zip(&view.nodes).enumerate() {
        let same = Arc::ptr_eq(old, new);
        if same && !all {
            continue;
        }
        if !same && (!same_kind(old, new) || new.holds.iter().any(|hold| hold.kept)) {
            return None;
        }
        let end = first_end(new);
        first = first.min(end);
        if !same && old.holds != new.holds || end <= now {
            changed.push(place);
        }
    }
    Some((changed, first))
}

/// When the first of those who have something of the node is expected to end.
fn first_end(node: &NodeView) -> Timestamp {
    node.holds.iter().filter_map(|hold| hold.expected_end).min().unwrap_or(NEVER)
}

fn same_kind(a: &NodeView, b: &NodeView) -> bool {
    a.name == b.name
        && a.shape == b.shape
        && a.weight == b.weight
        && a.features == b.features
        && in_service(a) == in_service(b)
}

/// Does the job ask for the same as before?
fn asks_the_same(a: &Arc<JobView>, b: &Arc<JobView>) -> bool {
    Arc::ptr_eq(a, b)
        || (Arc::ptr_eq(&a.spec, &b.spec) || a.spec == b.spec)
            && a.uid == b.uid
            && a.state == b.state
            && a.array_task == b.array_task
            && a.partitions == b.partitions
            && a.time_limit == b.time_limit
            && a.eligible_time == b.eligible_time
            && (a.tasks, a.cpus_per_task, a.min_nodes, a.max_nodes)
                == (b.tasks, b.cpus_per_task, b.min_nodes, b.max_nodes)
            && a.memory == b.memory
            && a.sharing == b.sharing
}

/// Times for such a request are tried one by one: that is left to a new plan.
fn is_awkward(request: &Request) -> bool {
    request.is_particular() || request.near.is_some()
}

/// What freed room is offered for.
#[derive(Clone, Copy)]
enum Offer {
    Now,
    Earlier,
}

/// A repair under way.
struct Repair<'p, 'v> {
    pass: &'p mut Pass<'v>,
    ledger: Ledger,
    /// Nodes that are reserved for others.
    closings: Vec<Closing>,
    /// Who is to be looked at: those who must be, and those whom freed room may help.
    due: BTreeSet<Key>,
    now: BTreeSet<Key>,
    earlier: BTreeSet<Key>,
    offered: (usize, usize),
    looked: BTreeSet<JobId>,
    /// What starts of this repair take of nodes, and how many of the pass's are in it.
    begun: FxHashMap<usize, Vec<Planned>>,
    noted: usize,
    /// Are the licenses of those who have room reserved counted yet?
    licenses_held: bool,
    stale: bool,
}

impl<'p, 'v> Repair<'p, 'v> {
    fn new(pass: &'p mut Pass<'v>, ledger: Ledger, left: BTreeSet<Key>, stale: bool) -> Self {
        let closings = pass.view.reservations.closings(None, pass.now);
        Self {
            pass,
            ledger,
            closings,
            due: left,
            now: BTreeSet::new(),
            earlier: BTreeSet::new(),
            offered: (0, 0),
            looked: BTreeSet::new(),
            begun: FxHashMap::default(),
            noted: 0,
            licenses_held: false,
            stale,
        }
    }

    /// Takes out who is gone, counts anew what changed, and lists whom that concerns. False: make a new plan.
    fn prepare(&mut self, before: &ClusterView, jobs: &[Changed<'_>], changed: BTreeSet<usize>) -> bool {
        let mut freed: BTreeMap<usize, Vec<(Timestamp, Timestamp)>> = BTreeMap::new();
        let new = self.note_changes(jobs, &mut freed);
        let ledger = &self.ledger;
        self.due.retain(|key| ledger.row(*key).is_some());
        self.due.extend(ledger.started());
        let more = |key: &Key| ledger.row(*key).is_some_and(|row| self.has_other_tasks(before, &row.job));
        self.due.extend(ledger.limited().filter(more).collect::<Vec<_>>());
        let last = self.ledger.last_looked();
        for (key, job) in new {
            if last.is_some_and(|last| key < last) {
                if self.pass.view.policy.backfill != Backfill::Conservative {
                    return false;
                }
                self.stale = true;
            }
            self.ledger.enter(key, job);
            self.due.insert(key);
        }
        let view = self.pass.view;
        if !view.policy.preempt.is_moot(view, self.ledger.first().map(|key| key.tier())) {
            return false;
        }
        self.hold_licenses();
        self.licenses_held = true;
        let classes: BTreeMap<usize, usize> =
            changed.iter().map(|node| (*node, self.pass.horizon.class_of(*node))).collect();
        for node in &changed {
            freed.remove(node);
            for lost in self.recount(*node, (Timestamp(i64::MIN), NEVER)) {
                self.release(lost, &mut freed);
                self.due.insert(lost);
            }
        }
        // What was proposed and is there now is no news.
        let mut gained: BTreeSet<usize> =
            changed.into_iter().filter(|node| classes.get(node) != Some(&self.pass.horizon.class_of(*node))).collect();
        // A node that was counted may have lost somebody to another one's count.
        while let Some((node, times)) = freed.pop_first() {
            for time in times {
                for lost in self.recount(node, time) {
                    self.release(lost, &mut freed);
                    self.due.insert(lost);
                }
            }
            gained.insert(node);
        }
        self.whose_time_has_come();
        if self.due.iter().any(|key| self.is_of_group(*key)) {
            return false;
        }
        // Heterogeneous jobs are offered nothing.
        self.stale |= !gained.is_empty() && self.ledger.components() > 0;
        self.offer_to_groups(&gained);
        self.offer_to_neighbours(&gained);
        self.next_in_line();
        self.due.len() <= MOST_DUE
    }

    /// Takes out of the ledger what is gone, and puts in what jobs show now. Answers who comes to wait.
    fn note_changes<'j>(
        &mut self,
        jobs: &[Changed<'j>],
        freed: &mut BTreeMap<usize, Vec<(Timestamp, Timestamp)>>,
    ) -> Vec<(Key, &'j Arc<JobView>)> {
        let keys = self.pass.keys();
        let mut new = Vec::new();
        for (old, job) in jobs {
            let known = old.map(|old| self.ledger.of_job(old.id).to_vec()).unwrap_or_default();
            let wanted = job.map(|job| keys.of(job)).unwrap_or_default();
            for key in &known {
                let Some(job) = job.filter(|_| wanted.contains(key)) else {
                    // The others of its group have no more use for their room.
                    self.stale |= self.is_of_group(*key);
                    self.release(*key, freed);
                    self.ledger.drop_row(*key);
                    continue;
                };
                let Some(row) = self.ledger.row(*key) else { continue };
                let (same, tasks) = (asks_the_same(&row.job, job), row.job.array_pending == job.array_pending);
                if same {
                    self.ledger.renew(*key, job);
                } else {
                    self.release(*key, freed);
                    self.ledger.enter(*key, job);
                }
                if !same || !tasks {
                    self.due.insert(*key);
                }
            }
            let other = wanted.into_iter().filter(|key| !known.contains(key));
            new.extend(job.iter().flat_map(|job| other.clone().map(move |key| (key, *job))));
        }
        new
    }

    fn is_of_group(&self, key: Key) -> bool {
        self.ledger.row(key).is_some_and(|row| row.job.spec.het.is_some())
    }

    /// Do more or fewer tasks of its array run than before?
    fn has_other_tasks(&self, before: &ClusterView, job: &JobView) -> bool {
        let array = job.array_task.map_or(job.id, |task| task.array_job);
        before.array_running.get(&array) != self.pass.view.array_running.get(&array)
    }

    fn hold_licenses(&mut self) {
        for promise in self.ledger.licensed() {
            self.pass.licenses.hold(&promise.licenses, promise.from.max(self.pass.now), promise.until);
        }
    }

    /// Gives up what is reserved for one, and notes where.
    fn release(&mut self, key: Key, freed: &mut BTreeMap<usize, Vec<(Timestamp, Timestamp)>>) {
        let Some(promise) = self.ledger.give_up(key) else { return };
        if self.licenses_held {
            self.pass.licenses.release(&promise.licenses, promise.from.max(self.pass.now), promise.until);
        }
        for (node, _) in &promise.nodes {
            freed.entry(*node).or_default().push((promise.from, promise.until));
        }
    }

    /// The same, and what is free there is counted anew. Answers on which nodes.
    fn vacate(&mut self, key: Key) -> BTreeSet<usize> {
        let mut freed = BTreeMap::new();
        self.release(key, &mut freed);
        for (node, times) in &freed {
            for time in times {
                self.recount(*node, *time);
            }
        }
        freed.into_keys().collect()
    }

    /// Counts anew what is free on a node. Answers who finds no room there any more.
    fn recount(&mut self, node: usize, (from, until): (Timestamp, Timestamp)) -> Vec<Key> {
        let until = if until == NEVER { NEVER } else { self.pass.horizon.round(until) };
        let round = |at: Timestamp| self.pass.horizon.round(at);
        let planned = self.ledger.planned(node, |begin, end| begin < until && round(end) > from);
        let begun = self.begun.get(&node).map_or(&[][..], Vec::as_slice);
        let of_node: Vec<&Planned> = begun.iter().chain(planned.iter().map(|(_, one)| one)).collect();
        let closed = self.closings.iter().filter_map(|closing| closing.of_node(node));
        let misfits = self.pass.horizon.recount(&self.pass.view.nodes[node], (from, until), closed, &of_node);
        misfits.into_iter().filter_map(|number| Some(planned.get(number.checked_sub(begun.len())?)?.0)).collect()
    }

    fn whose_time_has_come(&mut self) {
        let soon = self.pass.horizon.round(self.pass.now);
        self.due.extend(self.ledger.begins().take_while(|(from, _)| *from <= soon).map(|(_, key)| key));
    }

    /// Freed room may help the first of those who ask for the same.
    fn offer_to_groups(&mut self, gained: &BTreeSet<usize>) {
        let classes: BTreeSet<usize> = gained.iter().map(|node| self.pass.horizon.class_of(*node)).collect();
        if classes.is_empty() {
            return;
        }
        for number in 0..self.ledger.groups().len() {
            let group = &self.ledger.groups()[number];
            let Some(first) = group.members.first().copied() else { continue };
            let Some(before) = self.better(first) else { continue };
            let (request, length, least) = (group.request.clone(), group.length, group.least);
            let candidates = self.pass.candidates(&request);
            let horizon = &self.pass.horizon;
            let soon = horizon.round(self.pass.now);
            let opens = |length: Duration| horizon.opens(&classes, &request, &candidates, before, length);
            match opens(least) {
                Some(_) if is_awkward(&request) => self.stale = true,
                Some(at) if at <= soon => _ = self.now.insert(first),
                Some(_) if least == length || opens(length).is_some() => _ = self.earlier.insert(first),
                _ => {}
            }
        }
    }

    /// Freed room may help those who wait for more of it on the same nodes.
    fn offer_to_neighbours(&mut self, gained: &BTreeSet<usize>) {
        let mut known: BTreeSet<Key> = BTreeSet::new();
        for node in gained {
            for key in self.ledger.on_node(*node) {
                if !known.contains(&key) && !self.earlier.contains(&key) && self.has_room_before(key, *node) {
                    known.insert(key);
                }
            }
        }
        known.retain(|key| self.improvable(*key).is_some());
        self.earlier.extend(known);
    }

    /// Before when it would have to start to be better off. `None`: it can be no better off.
    fn better(&self, key: Key) -> Option<Timestamp> {
        let row = self.ledger.row(key).filter(|row| row.group.is_some() && !row.started)?;
        let soon = self.pass.horizon.round(self.pass.now);
        let before = match &row.promise {
            Some(promise) => promise.from,
            None if self.pass.view.policy.backfill == Backfill::Conservative => {
                self.pass.now.plus(self.pass.view.policy.backfill_window)
            }
            None => Timestamp(soon.0 + 1),
        };
        (before > soon).then_some(before)
    }

    /// The same for those that a repair makes better off.
    fn improvable(&self, key: Key) -> Option<Timestamp> {
        let group = self.ledger.row(key)?.group?;
        self.better(key).filter(|_| !is_awkward(&self.ledger.groups()[group].request))
    }

    /// Would it have room just before its time on a node that is its own then?
    fn has_room_before(&self, key: Key, node: usize) -> bool {
        self.ledger.row(key).and_then(|row| row.promise.as_ref()).is_some_and(|promise| {
            let before = Timestamp(promise.from.0 - 1);
            promise.share(node).is_some_and(|what| self.pass.horizon.covers(node, what, before))
        })
    }

    /// On how many of its own nodes it would have room just before its time.
    fn own_room(&self, key: Key) -> u32 {
        let promise = self.ledger.row(key).and_then(|row| row.promise.as_ref());
        let own = promise.map_or(0, |promise| {
            let before = Timestamp(promise.from.0 - 1);
            promise.nodes.iter().filter(|(node, what)| self.pass.horizon.covers(*node, what, before)).count()
        });
        u32::try_from(own).unwrap_or(u32::MAX)
    }

    /// Room is reserved for only so many, and so many are looked at: who comes next?
    fn next_in_line(&mut self) {
        if let Backfill::First(most) = self.pass.view.policy.backfill {
            for (partition, waiting) in self.ledger.partitions() {
                let missing = most.saturating_sub(self.ledger.promised(partition));
                let unpromised = |key: &&Key| self.ledger.row(**key).is_some_and(|row| row.promise.is_none());
                let next = waiting.iter().filter(unpromised).filter(|key| !self.looked_at(**key));
                let next: Vec<Key> = next.take(missing as usize).copied().collect();
                self.due.extend(next);
            }
        }
        if let Some(next) = self.ledger.first_unlooked()
            && self.ledger.looked() < self.pass.view.policy.backfill_depth
            && !self.looked_at(next)
        {
            self.due.insert(next);
        }
    }

    fn looked_at(&self, key: Key) -> bool {
        self.ledger.row(key).is_some_and(|row| self.looked.contains(&row.job.id))
    }

    fn go(&mut self) {
        while let Some((key, offer)) = self.next() {
            let helps = match offer {
                None => true,
                Some(Offer::Now) => {
                    self.offered.0 += 1;
                    self.offered.0 <= MOST_NOW && self.could_start(key)
                }
                Some(Offer::Earlier) => {
                    self.offered.1 += 1;
                    self.offered.1 <= MOST_EARLIER && self.could_be_earlier(key)
                }
            };
            self.stale |= self.offered.0 > MOST_NOW || self.offered.1 > MOST_EARLIER;
            if !helps {
                continue;
            }
            if self.pass.is_full() {
                self.due.insert(key);
                self.stale = true;
                return;
            }
            self.look(key);
            self.next_in_line();
        }
    }

    /// The first in order of those who must be looked at or could start now; when there are none, of those who could start
    /// earlier.
    fn next(&mut self) -> Option<(Key, Option<Offer>)> {
        let first = [self.due.first(), self.now.first()].into_iter().flatten().min().or(self.earlier.first());
        let key = first.copied()?;
        let (due, now) = (self.due.remove(&key), self.now.remove(&key));
        self.earlier.remove(&key);
        Some((key, if due { None } else { Some(if now { Offer::Now } else { Offer::Earlier }) }))
    }

    fn asks(&self, key: Key) -> Option<Group> {
        let group = &self.ledger.groups()[self.ledger.row(key)?.group?];
        Some(Group { request: group.request.clone(), members: BTreeSet::new(), ..*group })
    }

    fn could_start(&mut self, key: Key) -> bool {
        let Some(Group { request, length, least, .. }) = self.asks(key) else { return false };
        if self.better(key).is_none() || self.own_room(key) > 0 {
            // Before its time its own nodes may be free for less than it would have.
            return least < length || self.could_be_earlier(key);
        }
        let candidates = self.pass.candidates(&request);
        self.pass.has_room_now(&request, &candidates, least)
    }

    fn could_be_earlier(&mut self, key: Key) -> bool {
        let (Some(before), Some(asks)) = (self.improvable(key), self.asks(key)) else { return false };
        let Group { request, length, .. } = asks;
        let (own, candidates) = (self.own_room(key), self.pass.candidates(&request));
        self.pass.horizon.could_be_earlier(&request, &candidates, own, before, length)
    }

    /// Plans one anew.
    fn look(&mut self, key: Key) {
        let Some(row) = self.ledger.row(key) else { return };
        let (job, before) = (Arc::clone(&row.job), row.promise.clone());
        let (reason, group) = (row.reason.clone(), row.group);
        let freed = self.vacate(key);
        let pass = &mut *self.pass;
        pass.failed.clear();
        pass.not_before.clear();
        // Who has been looked at may be again.
        pass.tried_behind = if group.is_some() { 0 } else { self.ledger.looked() };
        pass.blocked.clear();
        pass.reserved.clear();
        for (partition, waiting) in self.ledger.partitions() {
            if waiting.first().is_some_and(|first| *first < key) {
                pass.blocked.union_with(&pass.view.partitions[partition].nodes);
            }
            pass.reserved.insert(partition, self.ledger.promised(partition));
        }
        pass.ledger = Some(std::mem::take(&mut self.ledger));
        pass.try_job(key, &job);
        self.ledger = pass.ledger.take().unwrap_or_default();
        for hold in &pass.planned[self.noted..] {
            let what = Amount::of_share(&pass.view.nodes[hold.node].shape, &hold.share, hold.usage, hold.owner);
            self.begun.entry(hold.node).or_default().push(Planned { from: pass.now, until: hold.end, what });
        }
        self.noted = pass.planned.len();
        self.looked.insert(job.id);
        let (started, at) =
            self.ledger.row(key).map_or((false, None), |row| (row.started, row.promise.as_ref().map(|p| p.from)));
        if let Some(before) =
            before.as_ref().filter(|p| !started && p.from >= self.pass.now && at.is_none_or(|at| at > p.from))
        {
            self.restore(key, before.clone(), reason);
        }
        let now = self.ledger.row(key).and_then(|row| row.promise.as_ref());
        let moved = match (&before, now) {
            (Some(before), Some(now)) => before.from != now.from || before.nodes != now.nodes,
            (before, now) => before.is_some() != now.is_some(),
        };
        if moved {
            self.offer_to_neighbours(&freed);
        }
        if (moved || started)
            && let Some(group) = group.and_then(|group| self.ledger.groups().get(group))
        {
            let next = group.members.range(key..).find(|next| **next != key && !self.looked_at(**next));
            let next = next.copied().filter(|next| self.improvable(*next).is_some());
            if started { self.now.extend(next) } else { self.earlier.extend(next) }
        }
    }
    /// A search takes even parts of a request; what it had before may be a mixture that it does not find again.
    fn restore(&mut self, key: Key, promise: Promise, reason: Option<Reason>) {
        self.vacate(key);
        self.pass.horizon.hold(&promise.nodes, promise.from, promise.until);
        self.pass.licenses.hold(&promise.licenses, promise.from, promise.until);
        self.ledger.promise(promise);
        self.ledger.declines(&reason.unwrap_or(Reason::Priority));
    }
}
