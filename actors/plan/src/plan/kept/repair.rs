//! A repair in progress: it removes jobs that are gone, recounts changed nodes, and plans the affected jobs again.

use super::{
    MOST_DUE, MOST_EARLIER, MOST_NOW, Offer, Repair,
    changes::{Changed, asks_the_same},
};
use crate::{
    plan::{Key, Pass, ledger::Ledger},
    room::{horizon::Planned, node::free::Amount, reserved::Promise},
    rules::accounting::Kind,
    snapshot::{
        facts::{Backfill, ClusterView, NEVER},
        request::Request,
        reservations::Viewer,
    },
};
use garrick_model::{state::Reason, time::Timestamp, view::JobView};
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

impl<'p, 'v> Repair<'p, 'v> {
    pub(super) fn new(pass: &'p mut Pass<'v>, ledger: Ledger, left: BTreeSet<Key>, stale: bool) -> Self {
        let guests = ledger.guests().map(|group| group.request.reservation);
        let viewers: BTreeSet<Viewer> = std::iter::once(None).chain(guests).collect();
        let closings =
            viewers.into_iter().map(|viewer| (viewer, pass.view.reservations.closings(viewer, pass.now))).collect();
        Self {
            pass,
            ledger,
            closings,
            due: left,
            now: BTreeSet::new(),
            earlier: BTreeSet::new(),
            offered: (0, 0),
            freed: BTreeSet::new(),
            measured: 0,
            looked: BTreeSet::new(),
            begun: FxHashMap::default(),
            noted: 0,
            licenses_held: false,
            stale,
        }
    }

    /// Removes jobs that are gone, recounts changed nodes, and lists the affected jobs. False: make a new plan.
    pub(super) fn prepare(&mut self, before: &ClusterView, jobs: &[Changed<'_>], changed: BTreeSet<usize>) -> bool {
        let mut freed: BTreeMap<usize, Vec<(Timestamp, Timestamp)>> = BTreeMap::new();
        let new = self.note_changes(jobs, &mut freed);
        let ledger = &self.ledger;
        self.due.retain(|key| ledger.row(*key).is_some());
        self.due.extend(ledger.started());
        let more = |key: &Key| ledger.row(*key).is_some_and(|row| self.has_other_tasks(before, &row.job));
        self.due.extend(ledger.limited().filter(more).collect::<Vec<_>>());
        self.measure_again();
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
        if view.policy.bounds.is_some() {
            for (key, row) in self.ledger.behind() {
                self.pass.bounds.count_behind(view, &row.job, key.partition);
            }
        }
        let classes: BTreeMap<usize, usize> =
            changed.iter().map(|node| (*node, self.pass.space.horizon.class_of(*node))).collect();
        for node in &changed {
            freed.remove(node);
            for lost in self.recount(*node, (Timestamp(i64::MIN), NEVER)) {
                self.release(lost, &mut freed);
                self.due.insert(lost);
            }
        }
        // A proposed start that is now in the snapshot is no change.
        let mut gained: BTreeSet<usize> = changed
            .into_iter()
            .filter(|node| classes.get(node) != Some(&self.pass.space.horizon.class_of(*node)))
            .collect();
        // Recounting one node may take a job's reservation away on a node that was counted before.
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
        if self.due.iter().any(|key| self.only_keeps(*key)) {
            return false;
        }
        // Freed resources are not offered to heterogeneous jobs.
        self.stale |= !gained.is_empty() && self.ledger.components() > 0;
        self.stale |= self.may_help_guests(&gained);
        self.offer_to_groups(&gained);
        self.offer_to_neighbours(&gained);
        self.next_in_line();
        self.due.len() <= MOST_DUE
    }

    /// What running jobs have of limits, and have used, changes with each start, each end, and time: the first job of each kind that
    /// is over a limit is measured again, and looked at if it may start now, or waits for another limit. The next one follows where
    /// that is.
    fn measure_again(&mut self) {
        self.freed = self.ledger.over_limits().into_iter().filter(|key| !self.is_over_as_before(*key)).collect();
    }

    /// Is the job still over the limit that it waits for? Where resources were searched, that depends on which ones.
    fn is_over_as_before(&self, key: Key) -> bool {
        let Some(row) = self.ledger.row(key) else { return true };
        row.group.is_none() && self.pass.limit_of(key, &row.job).as_ref() == self.ledger.limit_of(key)
    }

    /// A job that was over a limit was looked at: is there another of its kind that may be under it too?
    fn measure_next(&mut self, kind: &Arc<Kind>, key: Key) {
        let stays = self.ledger.kind_over_limits(key).is_some();
        if !stays || self.ledger.row(key).is_some_and(|row| row.group.is_some()) {
            let next = self.ledger.next_over_limits(kind, key);
            self.freed.extend(next.filter(|next| !self.looked_at(*next)));
        }
    }

    /// Removes from the ledger what is gone, and notes what jobs show now. Returns the jobs that begin to wait.
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
                    // The other components of its group no longer need their resources.
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

    /// Does the job keep its reservation, and is considered by new plans only?
    fn only_keeps(&self, key: Key) -> bool {
        self.is_of_group(key) || self.ledger.row(key).is_some_and(|row| !row.job.spec.reservations.is_empty())
    }

    /// Could freed resources help jobs that wait for advance reservations? Repairs offer them nothing.
    fn may_help_guests(&mut self, gained: &BTreeSet<usize>) -> bool {
        let requests: Vec<Request> = self.ledger.guests().map(|group| group.request.clone()).collect();
        requests.iter().any(|request| {
            let mut candidates = self.pass.candidates(request);
            self.pass.view.reservations.restrict(request.reservation, &mut candidates);
            gained.iter().any(|node| candidates.contains(*node))
        })
    }

    /// Do more or fewer tasks of its array run than before?
    fn has_other_tasks(&self, before: &ClusterView, job: &JobView) -> bool {
        let array = job.array_task.map_or(job.id, |task| task.array_job);
        before.array_running.get(&array) != self.pass.view.array_running.get(&array)
    }

    fn hold_licenses(&mut self) {
        for promise in self.ledger.licensed() {
            self.pass.space.licenses.hold(&promise.licenses, promise.from.max(self.pass.now), promise.until);
        }
    }

    /// Gives up a job's reservation, and notes on which nodes and when.
    fn release(&mut self, key: Key, freed: &mut BTreeMap<usize, Vec<(Timestamp, Timestamp)>>) {
        let Some(promise) = self.ledger.give_up(key) else { return };
        if self.licenses_held {
            self.pass.space.licenses.release(&promise.licenses, promise.from.max(self.pass.now), promise.until);
        }
        for (node, _) in &promise.nodes {
            freed.entry(*node).or_default().push((promise.from, promise.until));
        }
    }

    /// Gives up a job's reservation and recounts its nodes. Returns those nodes.
    pub(super) fn vacate(&mut self, key: Key) -> BTreeSet<usize> {
        let mut freed = BTreeMap::new();
        self.release(key, &mut freed);
        for (node, times) in &freed {
            for time in times {
                self.recount(*node, *time);
            }
        }
        freed.into_keys().collect()
    }

    /// Recounts what is free on a node. Returns jobs whose reservation no longer fits there.
    fn recount(&mut self, node: usize, (from, until): (Timestamp, Timestamp)) -> Vec<Key> {
        let until = if until == NEVER { NEVER } else { self.pass.space.horizon.round(until) };
        let round = |at: Timestamp| self.pass.space.horizon.round(at);
        let planned = self.ledger.planned(node, |begin, end| begin < until && round(end) > from);
        let begun = self.begun.get(&node).map_or(&[][..], Vec::as_slice);
        let sees = |key: Key| {
            let group = self.ledger.row(key).and_then(|row| row.group);
            let viewer = group.and_then(|group| self.ledger.groups()[group].request.reservation);
            self.closings.iter().position(|(known, _)| *known == viewer).unwrap_or(0)
        };
        let reserved = planned.iter().map(|(key, one)| (one, sees(*key)));
        let of_node: Vec<(&Planned, usize)> = begun.iter().map(|one| (one, 0)).chain(reserved).collect();
        let seen = of_node.iter().map(|(_, sees)| sees + 1).max().unwrap_or(1);
        let closed = self.closings[..seen].iter();
        let closed: Vec<Vec<(Timestamp, Timestamp)>> =
            closed.map(|(_, list)| list.iter().filter_map(|closing| closing.of_node(node)).collect()).collect();
        let misfits = self.pass.space.horizon.recount(&self.pass.view.nodes[node], (from, until), &closed, &of_node);
        misfits.into_iter().filter_map(|number| Some(planned.get(number.checked_sub(begun.len())?)?.0)).collect()
    }

    fn whose_time_has_come(&mut self) {
        let soon = self.pass.space.horizon.round(self.pass.now);
        self.due.extend(self.ledger.begins().take_while(|(from, _)| *from <= soon).map(|(_, key)| key));
    }

    pub(super) fn go(&mut self) {
        while let Some((key, offer)) = self.next() {
            let helps = match offer {
                None => true,
                Some(Offer::Limit) => {
                    let freed = !self.is_over_as_before(key);
                    self.measured += usize::from(freed);
                    freed && self.measured <= MOST_NOW
                }
                Some(Offer::Now) => {
                    self.offered.0 += 1;
                    self.offered.0 <= MOST_NOW && self.could_start(key)
                }
                Some(Offer::Earlier) => {
                    self.offered.1 += 1;
                    self.offered.1 <= MOST_EARLIER && self.could_be_earlier(key)
                }
            };
            self.stale |= self.offered.0.max(self.measured) > MOST_NOW || self.offered.1 > MOST_EARLIER;
            if !helps {
                continue;
            }
            if self.pass.is_full() {
                self.due.insert(key);
                self.stale = true;
                return;
            }
            self.look(key);
            if self.pass.plan.barred {
                return;
            }
            self.next_in_line();
        }
    }

    /// The first job that must be looked at or could start now; if there is none, the first that could start earlier.
    fn next(&mut self) -> Option<(Key, Option<Offer>)> {
        let first = [self.due.first(), self.now.first(), self.freed.first()].into_iter().flatten().min();
        let key = *first.or(self.earlier.first())?;
        let (due, now, freed) = (self.due.remove(&key), self.now.remove(&key), self.freed.remove(&key));
        self.earlier.remove(&key);
        let offer = match (due, freed, now) {
            (true, ..) => None,
            (_, true, _) => Some(Offer::Limit),
            (.., true) => Some(Offer::Now),
            _ => Some(Offer::Earlier),
        };
        Some((key, offer))
    }

    /// Plans one job anew.
    fn look(&mut self, key: Key) {
        let Some(row) = self.ledger.row(key) else { return };
        let (job, before) = (Arc::clone(&row.job), row.promise.clone());
        let over = self.ledger.kind_over_limits(key);
        let (reason, group) = (row.reason.clone(), row.group);
        let freed = self.vacate(key);
        let pass = &mut *self.pass;
        pass.known.forget_searches();
        // A job may be looked at again, although it is counted already.
        pass.bounds.looks_again = group.is_some();
        pass.queue.tried_behind = if group.is_some() { 0 } else { self.ledger.looked() };
        pass.queue.blocked.clear();
        pass.queue.reserved.clear();
        for (partition, waiting) in self.ledger.partitions() {
            if waiting.first().is_some_and(|first| *first < key) {
                pass.queue.block(&pass.view.partitions[partition].nodes);
            }
            pass.queue.reserved.insert(partition, self.ledger.promised(partition));
        }
        pass.ledger = Some(std::mem::take(&mut self.ledger));
        pass.try_job(key, &job);
        self.ledger = pass.ledger.take().unwrap_or_default();
        for hold in &pass.space.planned[self.noted..] {
            let what = Amount::of_share(&pass.view.nodes[hold.node].shape, &hold.share, hold.usage, hold.owner);
            self.begun.entry(hold.node).or_default().push(Planned { from: pass.now, until: hold.end, what });
        }
        self.noted = pass.space.planned.len();
        self.looked.insert(job.id);
        if let Some(kind) = over {
            self.measure_next(&kind, key);
        }
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
    /// Restores a reservation. A search gives each node an even part of a request; an uneven mixture that the job had would not
    /// be found again.
    fn restore(&mut self, key: Key, promise: Promise, reason: Option<Reason>) {
        self.vacate(key);
        self.pass.space.horizon.hold(&promise.nodes, promise.from, promise.until);
        self.pass.space.licenses.hold(&promise.licenses, promise.from, promise.until);
        self.ledger.promise(promise);
        self.ledger.declines(&reason.unwrap_or(Reason::Priority));
    }
}
