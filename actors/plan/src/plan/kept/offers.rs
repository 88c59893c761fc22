//! Which jobs freed resources are offered to.

use super::{MOST_PASSED_OVER, Repair};
use crate::{
    plan::{
        Key,
        ledger::{Group, Row},
    },
    snapshot::{facts::Backfill, request::Request},
};
use garrick_model::time::Timestamp;
use std::{collections::BTreeSet, time::Duration};

/// Is it a request for which times are tried one by one? Such jobs are left to a new plan.
fn is_awkward(request: &Request) -> bool {
    request.is_particular() || request.near.is_some()
}

impl Repair<'_, '_> {
    /// Offers freed resources to the first job of each group that requests the same.
    pub(super) fn offer_to_groups(&mut self, gained: &BTreeSet<usize>) {
        let classes: BTreeSet<usize> = gained.iter().map(|node| self.pass.space.horizon.class_of(*node)).collect();
        if classes.is_empty() {
            return;
        }
        for number in 0..self.ledger.groups().len() {
            let group = &self.ledger.groups()[number];
            let Some(first) = group.members.first().copied() else { continue };
            let Some(before) = self.better(first) else { continue };
            let (request, length, least) = (group.request.clone(), group.length, group.least);
            let candidates = self.pass.candidates(&request);
            let horizon = &self.pass.space.horizon;
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

    /// Offers freed resources to jobs that wait for more of the same nodes.
    pub(super) fn offer_to_neighbours(&mut self, gained: &BTreeSet<usize>) {
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

    /// The job gains only if it starts before this time. `None`: it cannot gain.
    fn better(&self, key: Key) -> Option<Timestamp> {
        let offers = |row: &&Row| row.group.is_some() && !row.started && row.job.spec.reservations.is_empty();
        let row = self.ledger.row(key).filter(offers)?;
        let soon = self.pass.space.horizon.round(self.pass.now);
        let before = match &row.promise {
            Some(promise) => promise.from,
            None if self.pass.view.policy.backfill == Backfill::Conservative => {
                self.pass.now.plus(self.pass.view.policy.backfill_window)
            }
            None => Timestamp(soon.0 + 1),
        };
        (before > soon).then_some(before)
    }

    /// The same for jobs that a repair may move earlier.
    pub(super) fn improvable(&self, key: Key) -> Option<Timestamp> {
        let group = self.ledger.row(key)?.group?;
        self.better(key).filter(|_| !is_awkward(&self.ledger.groups()[group].request))
    }

    /// Would the job fit just before its reserved start on a node that is reserved for it then?
    fn has_room_before(&self, key: Key, node: usize) -> bool {
        self.ledger.row(key).and_then(|row| row.promise.as_ref()).is_some_and(|promise| {
            let before = Timestamp(promise.from.0 - 1);
            promise.share(node).is_some_and(|what| self.pass.space.horizon.covers(node, what, before))
        })
    }

    /// On how many of its own nodes the job would fit just before its reserved start.
    fn own_room(&self, key: Key) -> u32 {
        let promise = self.ledger.row(key).and_then(|row| row.promise.as_ref());
        let own = promise.map_or(0, |promise| {
            let before = Timestamp(promise.from.0 - 1);
            promise.nodes.iter().filter(|(node, what)| self.pass.space.horizon.covers(*node, what, before)).count()
        });
        u32::try_from(own).unwrap_or(u32::MAX)
    }

    /// If resources are reserved for a limited number of jobs, finds the next job to look at.
    pub(super) fn next_in_line(&mut self) {
        if let Backfill::First(most) = self.pass.view.policy.backfill {
            for (partition, waiting) in self.ledger.partitions() {
                let missing = most.saturating_sub(self.ledger.promised(partition));
                let unpromised = |key: &&Key| self.ledger.row(**key).is_some_and(|row| row.promise.is_none());
                let next = waiting.iter().filter(unpromised).filter(|key| !self.looked_at(**key));
                let next: Vec<Key> = next.take(missing as usize).copied().collect();
                self.due.extend(next);
            }
        }
        self.pass.bounds.looks_again = false;
        let view = self.pass.view;
        let is_open = |key: &Key| {
            let row = self.ledger.row(*key);
            row.is_some_and(|row| !self.pass.bounds.has_seen_enough_like(view, &row.job, key.partition))
        };
        let most = if view.policy.bounds.is_some() { MOST_PASSED_OVER } else { 1 };
        if self.ledger.looked() >= view.policy.backfill_depth {
            return;
        }
        match self.ledger.unlooked().take(most).find(is_open) {
            Some(next) if !self.looked_at(next) => _ = self.due.insert(next),
            Some(_) => {}
            // A new plan asks all of them.
            None => self.stale |= self.ledger.unlooked().nth(most).is_some(),
        }
    }

    pub(super) fn looked_at(&self, key: Key) -> bool {
        self.ledger.row(key).is_some_and(|row| self.looked.contains(&row.job.id))
    }

    fn asks(&self, key: Key) -> Option<Group> {
        let group = &self.ledger.groups()[self.ledger.row(key)?.group?];
        Some(Group { request: group.request.clone(), members: BTreeSet::new(), ..*group })
    }

    pub(super) fn could_start(&mut self, key: Key) -> bool {
        let Some(Group { request, length, least, .. }) = self.asks(key) else { return false };
        if self.better(key).is_none() || self.own_room(key) > 0 {
            // Before its start, the job's own nodes may be free for a shorter time than it would run.
            return least < length || self.could_be_earlier(key);
        }
        let candidates = self.pass.candidates(&request);
        self.pass.has_room_now(&request, &candidates, least)
    }

    pub(super) fn could_be_earlier(&mut self, key: Key) -> bool {
        let (Some(before), Some(asks)) = (self.improvable(key), self.asks(key)) else { return false };
        let Group { request, length, .. } = asks;
        let (own, candidates) = (self.own_room(key), self.pass.candidates(&request));
        self.pass.space.horizon.could_be_earlier(&request, &candidates, own, before, length)
    }
}
