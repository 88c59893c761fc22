//! Resources now: where a job starts without delaying a job that has resources reserved.

use super::{Asked, Pass};
use crate::{
    room::{
        hres::{self, Room},
        reservations::taken,
        select::Bound,
    },
    rules::{caps, het::Trial, preempt::Fees},
    snapshot::{facts::Backfill, request::Request},
};
use fixedbitset::FixedBitSet;
use garrick_model::{resources::CpuSet, spec_text::licenses::Licenses, time::Timestamp, view::AllocatedNode};
use std::{collections::BTreeMap, time::Duration};

/// A time limit has whole minutes.
const MINUTE: u64 = 60;

impl<'a> Pass<'a> {
    /// Nodes that the request gets now without delaying a job that has resources reserved.
    pub(super) fn place_now(&mut self, asked: &Asked<'_>) -> Option<Vec<AllocatedNode>> {
        let Asked { request, candidates, length, .. } = *asked;
        let run = (self.now, self.now.plus(length));
        if self.known.failed.contains(request) || self.space.machine.is_short_for(request) {
            return None;
        }
        let soft = asked.longest > length;
        let open = soft.then(|| self.open_to(asked, self.now.plus(asked.longest)));
        let candidates = open.as_ref().unwrap_or(candidates);
        let placed = if self.space.horizon.room_now(request, candidates, length, &mut self.space.limits) {
            let mut closed = taken(&self.view.reservations, &self.space.horizon, run.0, run.1);
            if soft {
                for (node, cpus) in self.closed_cpus(asked, self.now) {
                    closed.entry(node).or_default().add(&cpus);
                }
            }
            self.space.machine.close(closed);
            self.space.machine.promise(caps::promised(&self.space.promises, request, candidates, run));
            let bound = Bound { horizon: &self.space.horizon, limits: &self.space.limits, run };
            let room = self.room(request, self.now, length);
            hres::place(&self.space.machine, request, candidates, Some(bound), room.as_ref())
        } else {
            None
        };
        if placed.is_none() {
            self.known.failed.insert(request.clone());
        }
        placed
    }

    /// With `--time-min`: the shortest time limit, in whole minutes, to which a start now may lower it.
    pub(super) fn shortest(&self, asked: &Asked<'_>) -> Option<Duration> {
        let least = asked.job.spec.time_min?.duration()?;
        let may = least < asked.length && self.view.policy.backfill != Backfill::Off && self.trial.is_none();
        may.then(|| Duration::from_secs(least.as_secs().div_ceil(MINUTE).max(1) * MINUTE))
    }

    /// Nodes that the request gets now if its time limit is lowered, and the longest such limit, in seconds.
    pub(super) fn place_shortened(&mut self, asked: &Asked<'_>) -> Option<(Vec<AllocatedNode>, Licenses, u64)> {
        let mut fits = self.shortest(asked)?.as_secs() / MINUTE;
        let mut too_long = asked.length.as_secs().div_ceil(MINUTE);
        let mut best = self.place_for(asked, fits * MINUTE)?;
        while too_long - fits > 1 {
            let middle = fits + (too_long - fits) / 2;
            match self.place_for(asked, middle * MINUTE) {
                Some(placed) => (fits, best) = (middle, placed),
                None => too_long = middle,
            }
        }
        Some((best.0, best.1, fits * MINUTE))
    }

    /// Nodes and licenses that the request gets now for this run time.
    pub(super) fn place_for(&mut self, asked: &Asked<'_>, secs: u64) -> Option<(Vec<AllocatedNode>, Licenses)> {
        let length = Duration::from_secs(secs);
        let request = Request { limit_secs: Some(secs), taken_secs: None, ..asked.request.clone() };
        let licenses = self.space.licenses.at(request.licenses.as_deref(), self.now, length)?;
        let nodes = self.place_now(&Asked { request: &request, length, longest: length, ..*asked })?;
        let licenses = self.with_layers(licenses, &request, &hres::places(&nodes), self.now, length)?;
        Some((nodes, licenses))
    }

    /// Nodes that the request gets now from runs that are suspended for jobs like it.
    pub(super) fn place_over_suspended(&mut self, asked: &Asked<'_>) -> Option<Vec<AllocatedNode>> {
        let Asked { job, request, length, longest, .. } = *asked;
        if !self.view.has_parked || Trial::is_later(self.trial) {
            return None;
        }
        let open = self.open_to(asked, self.now.plus(longest));
        let taken = (self.space.planned.as_slice(), self.plan.reservations.as_slice());
        let fees = Fees { licenses: &self.space.licenses, length };
        self.preemption.room_over_suspended(self.view, self.now, (job, request, &open), taken, fees)
    }

    /// Candidates that no advance reservation keeps for other jobs until `end`.
    pub(super) fn open_to(&self, asked: &Asked<'_>, end: Timestamp) -> FixedBitSet {
        let mut open = asked.candidates.clone();
        open.difference_with(&self.view.reservations.closed(asked.request.reservation, self.now, self.now, end));
        open
    }

    /// CPUs that reservations keep for other jobs at some time while it runs from `from` on.
    pub(super) fn closed_cpus(&self, asked: &Asked<'_>, from: Timestamp) -> BTreeMap<usize, CpuSet> {
        let until = from.plus(asked.longest);
        self.view.reservations.closed_cpus(asked.request.reservation, self.now, from, until)
    }

    /// What is free of the requested hierarchical resources from then on for this run time.
    pub(super) fn room(&self, request: &Request, from: Timestamp, length: Duration) -> Option<Room<'a>> {
        Room::within(&self.view.licenses.hres, &self.space.licenses, request, from, length)
    }

    /// Adds to the licenses what these nodes need of hierarchical resources. `None`: too little is free.
    pub(super) fn with_layers(
        &self,
        mut licenses: Licenses,
        request: &Request,
        nodes: &[usize],
        from: Timestamp,
        length: Duration,
    ) -> Option<Licenses> {
        if let Some(room) = self.room(request, from, length) {
            licenses.0.extend(room.share(nodes)?.0);
        }
        Some(licenses)
    }
}
