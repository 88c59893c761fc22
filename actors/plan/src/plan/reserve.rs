//! Resources later: from when on a job that cannot start now fits, and what is reserved for it.

use super::{Asked, Pass, obstacle::Obstacle};
use crate::{
    room::{
        horizon::is_kept_for,
        hres::{self, Room},
        machine::Machine,
        node::free::Amount,
        reserved::{Promise, Reservation},
        topology,
    },
    rules::{caps, expedited::earliest, het::Trial},
    snapshot::facts::{NEVER, UNLIMITED_FOR_PLANNING},
};
use garrick_model::{
    outlook::Blocker, resources::CpuSet, spec_text::licenses::Licenses, time::Timestamp, view::AllocatedNode,
};
use std::time::Duration;

/// Most times per pass at which hierarchical resources alone rule a start out. Each check looks at every layer.
const MOST_GLANCES_AHEAD: usize = 2_000;

/// How far ahead a plan looks for the job it is made for: past all waiting jobs without a time limit.
const AS_FAR_AS_CAN_BE: Duration = Duration::from_secs(100 * UNLIMITED_FOR_PLANNING.as_secs());

/// A time, amounts of nodes at that time, and licenses.
type Found = (Timestamp, Vec<(usize, Amount)>, Licenses);

impl<'a> Pass<'a> {
    /// Reserves resources for a job at the earliest time at which it fits.
    pub(super) fn reserve(&mut self, asked: &Asked<'_>) -> bool {
        let request = asked.request;
        if request.unknown_nodes {
            return false;
        }
        let from = self.space.horizon.round(Trial::from(self.trial, self.now));
        let mut from = self.known.not_before.get(request).map_or(from, |known| from.max(*known));
        let minded = self.queue.minds(asked.job);
        // Jobs ahead of it may be beyond the window, too.
        let window = if self.queue.minded.is_some() { AS_FAR_AS_CAN_BE } else { self.view.policy.backfill_window };
        let until = self.now.plus(window);
        if minded {
            // For other jobs the search did not go so far.
            from = self.space.horizon.round(Trial::from(self.trial, self.now));
        }
        // Not before the jobs ahead of it.
        let shares = |place: usize| !self.view.partitions[place].nodes.is_disjoint(asked.candidates);
        from = self.queue.turns.iter().filter(|(place, _)| shares(*place)).fold(from, |from, (_, at)| from.max(*at));
        if from > until {
            return false;
        }
        let found = self.first_room(asked, (from, until));
        // Reservations count for as long as the job may run.
        let closed = found.as_ref().is_some_and(|(at, nodes, _)| self.closes_later(asked, *at, nodes));
        let asked = &if closed { Asked { length: asked.longest, ..*asked } } else { *asked };
        let found = if closed { self.first_room(asked, (from, until)) } else { found };
        let Some((at, nodes, licenses)) = found else {
            self.known.not_before.insert(request.clone(), NEVER);
            return false;
        };
        self.known.not_before.insert(request.clone(), at);
        self.keep(asked, at, nodes, licenses);
        true
    }

    /// When and where the job fits for its run time, and its licenses.
    pub(super) fn first_room(&mut self, asked: &Asked<'_>, (mut from, until): (Timestamp, Timestamp)) -> Option<Found> {
        let Asked { request, length, .. } = *asked;
        // Search nodes and licenses in turn, until both are free at one time.
        loop {
            let found = if request.fits_by_amounts_first() {
                self.first_by_amounts(asked, (from, until))
            } else if request.is_particular() {
                self.look_ahead(asked, (from, until)).map(|(at, nodes)| (at, self.space.amounts(&nodes, request)))
            } else {
                self.earliest_by_amounts(asked, (from, until))
            };
            let Some((at, nodes)) = found else { break None };
            match self.space.licenses.earliest(request.licenses.as_deref(), at, length) {
                Some((first, licenses)) if first <= at => {
                    let places: Vec<usize> = nodes.iter().map(|(node, _)| *node).collect();
                    let all = self.with_layers(licenses, request, &places, at, length);
                    break all.map(|licenses| (at, nodes, licenses));
                }
                Some((first, _)) => from = self.space.horizon.round(first),
                None => break None,
            }
            if from > until {
                break None;
            }
        }
    }

    /// A job that is expected to run for less time than it may: could it still be there when a reservation closes those nodes?
    pub(super) fn closes_later(&self, asked: &Asked<'_>, at: Timestamp, nodes: &[(usize, Amount)]) -> bool {
        if asked.longest <= asked.length {
            return false;
        }
        let viewer = asked.request.reservation;
        let closed = self.view.reservations.closed(viewer, self.now, at, at.plus(asked.longest));
        let parts = self.closed_cpus(asked, at);
        let ends = |(node, what): &(usize, Amount)| {
            let part = parts.get(node).filter(|_| !closed.contains(*node));
            let kept = |cpus: &CpuSet| what.named.as_ref().is_none_or(|named| !named.is_disjoint(cpus));
            closed.contains(*node) || part.is_some_and(kept)
        };
        nodes.iter().any(ends)
    }

    /// The earliest time at which amounts say that it fits, and the amounts of each node.
    pub(super) fn earliest_by_amounts(
        &mut self,
        asked: &Asked<'_>,
        window: (Timestamp, Timestamp),
    ) -> Option<(Timestamp, Vec<(usize, Amount)>)> {
        let Asked { request, candidates, length, .. } = *asked;
        let topology = self.view.topology(request.partition).filter(|_| request.near.is_some());
        let slot = match topology {
            Some(topology) => {
                let horizon = &mut self.space.horizon;
                topology::earliest(horizon, topology, request, (candidates, candidates), window, length)
            }
            None => self.space.horizon.earliest(request, candidates, window, length),
        }?;
        Some((slot.at, self.space.horizon.amounts(request, &slot.nodes, slot.at, length)))
    }

    /// The same within the CPU limits of its partition, for one of its numbers of nodes. If too many times were tried in this
    /// pass, amounts have to do: owners check the limits when it starts.
    pub(super) fn first_by_amounts(
        &mut self,
        asked: &Asked<'_>,
        (from, until): (Timestamp, Timestamp),
    ) -> Option<(Timestamp, Vec<(usize, Amount)>)> {
        let (first, nodes) = self.earliest_by_amounts(asked, (from, until))?;
        match self.look_ahead(asked, (first, until)) {
            Some((at, nodes)) => Some((at, self.space.amounts(&nodes, asked.request))),
            None if self.known.looks_left_by_amounts == 0 => Some((first, nodes)),
            None => None,
        }
    }

    pub(super) fn keep(&mut self, asked: &Asked<'_>, from: Timestamp, nodes: Vec<(usize, Amount)>, licenses: Licenses) {
        let until = from.plus(asked.length);
        let obstacle = self.ends.obstacle(self.view, &self.space.horizon, &nodes, from).or_else(|| {
            // If all nodes were free before, the job waits for its nodes to be near each other.
            let wish = asked.request.near.as_ref().and_then(|near| near.switches);
            if let Some((most, until)) = wish.filter(|(_, until)| *until <= from) {
                return Some(Obstacle { by: Blocker::Switches(most), node: None, until });
            }
            let (by, node) = (Blocker::Licenses(asked.job.spec.licenses.clone()?), None);
            Some(Obstacle { by, node, until: from })
        });
        self.plan.obstacles.extend(obstacle.map(|obstacle| (asked.job.id, obstacle)));
        self.ends.note(asked.job.id, nodes.iter().map(|(node, _)| *node), self.space.horizon.round(until));
        let closed = topology::rest_of_units(self.view, asked.request, nodes.iter().map(|(node, _)| *node));
        let component = self.trial.is_some();
        if self.ledger.is_some() || component {
            let nodes = nodes.iter().chain(&closed).cloned().collect();
            let promise = Promise { from, until, nodes, licenses: licenses.clone() };
            match &mut self.ledger {
                Some(ledger) if !component => ledger.promise(promise),
                _ => self.of_groups.push((asked.job.id, asked.request.partition, promise)),
            }
        }
        self.space.hold(closed, from, until);
        self.space.hold(nodes.clone(), from, until);
        self.space.licenses.hold(&licenses, from, until);
        let job = asked.job.id;
        if self.plan.expected.last().is_none_or(|(last, _)| *last != job) {
            self.plan.expected.push((job, from));
        }
        if self.view.policy.bounds.is_some() {
            self.bounds.tally.booked.insert(job);
        }
        let partition = asked.request.partition;
        if self.queue.in_order {
            self.queue.turns.push((partition, from));
        }
        *self.queue.reserved.entry(partition).or_insert(0) += 1;
        self.space.promises.reserve(partition, &nodes, (from, until));
        self.plan.reservations.push(Reservation { job, partition, from, until, nodes, licenses });
    }

    /// Tries times one by one: for named nodes, neighbours and nodes that are chosen by counts of features.
    pub(super) fn look_ahead(
        &mut self,
        asked: &Asked<'_>,
        (from, until): (Timestamp, Timestamp),
    ) -> Option<(Timestamp, Vec<AllocatedNode>)> {
        let wait = (from > self.space.horizon.round(self.now)).then_some(from);
        let after = wait.unwrap_or(self.now);
        let mut changes = self.space.horizon.changes(asked.request, asked.candidates, after);
        if let Some(room) = self.room(asked.request, self.now, asked.length) {
            changes
                .extend(room.changes(&self.space.licenses, after).into_iter().map(|at| self.space.horizon.round(at)));
            changes.sort_unstable();
            changes.dedup();
        }
        // When its wait for switches ends, any switches will do, even if nothing else changes then.
        let over =
            asked.request.near.as_ref().and_then(|near| near.switches).map(|(_, over)| self.space.horizon.round(over));
        if let Some(over) = over.filter(|over| *over > after) {
            changes.push(over);
            changes.sort_unstable();
            changes.dedup();
        }
        for at in wait.into_iter().chain(changes) {
            if at > until
                || *self.known.looks_left(asked.request) == 0
                || self.known.glances_ahead >= MOST_GLANCES_AHEAD
            {
                return None;
            }
            let room = self.room(asked.request, at, asked.length);
            if room.as_ref().is_some_and(|room| !room.bears(asked.request, asked.candidates)) {
                self.known.glances_ahead += 1;
                continue;
            }
            *self.known.looks_left(asked.request) -= 1;
            let mut machine =
                Machine::ahead(self.view, &self.space.horizon, (at, at.plus(asked.length)), &self.space.planned);
            machine.promise(caps::promised(
                &self.space.promises,
                asked.request,
                asked.candidates,
                (at, at.plus(asked.length)),
            ));
            let relaxed = over.map(|_| asked.request.clone().as_of(at));
            let request = relaxed.as_ref().unwrap_or(asked.request);
            if let Some(nodes) = hres::place(&machine, request, asked.candidates, None, room.as_ref()) {
                return Some((at, nodes));
            }
        }
        None
    }

    /// The same for a job that has nodes kept for it: no other job gets those, so it waits only for running jobs.
    pub(super) fn reserve_expedited(&mut self, asked: &Asked<'_>) -> bool {
        let Asked { job, request, candidates, .. } = *asked;
        let mut open = candidates.clone();
        open.difference_with(&self.view.reservations.closed(request.reservation, self.now, self.now, NEVER));
        let Some((at, nodes)) = earliest(self.view, self.now, job.id, request, &open, &self.space.planned) else {
            return false;
        };
        let Some((at, licenses)) = self.space.licenses.earliest(request.licenses.as_deref(), at, asked.length) else {
            return false;
        };
        let room = Room::whole(&self.view.licenses.hres, request);
        let Some((at, licenses)) =
            self.space.licenses.with_layers_of(room.as_ref(), &hres::places(&nodes), licenses, at, asked.length)
        else {
            return false;
        };
        let kept = |node: usize| is_kept_for(self.view, node, job.id);
        let nodes = self.space.amounts(&nodes, request).into_iter().filter(|(node, _)| !kept(*node)).collect();
        self.keep(asked, at, nodes, licenses);
        true
    }
}
