//! Which running jobs are preempted for one that waits. Pure: it reads the snapshot of a plan and names runs; their owners
//! decide.
//!
//! `PreemptRules::way` says which jobs may preempt which. Jobs that asked to overlap reservations may also be preempted by the
//! reservations' jobs. As few runs as possible are named:
//!
//! 1. runs that end anyhow (they are being cleaned up or were told to end) count as gone; if that is enough, no run is named;
//! 2. candidates are ordered: the lowest tier first, then with `youngest_first` those that started last, then those with more
//!    CPUs, then by id; the shortest beginning of that list that frees enough is taken;
//! 3. of those, in the opposite order, every run is spared that is not needed.
//!
//! A suspended run frees its CPUs only. They are free to all jobs that may preempt it, also to later ones, and taken to all
//! others: see [`crate::rules::resume`].
//!
//! Nodes that are reserved for a job ahead of this one are left alone. No run is preempted for its licenses or hierarchical
//! resources unless `reclaim_licenses` says so. A heterogeneous job is preempted as a whole or not at all, and runs are preempted
//! for all of its components or for none.

mod search;

pub(crate) use crate::rules::preempt::search::{Fees, Room};
use crate::{
    room::{machine::PlannedHold, reserved::Reservation},
    snapshot::{
        changes::{Fact, Reads},
        facts::{ClusterView, UNLIMITED_FOR_PLANNING},
        preempt::{Claim, Rank},
        request::Request,
    },
};

use self::search::Search;
use fixedbitset::FixedBitSet;
use garrick_model::{
    config::PreemptMode,
    ids::JobId,
    resources::CpuSet,
    time::Timestamp,
    view::{AllocatedNode, JobView},
};
use rustc_hash::FxHashSet;
use std::{collections::BTreeMap, time::Duration};

/// What the rule reads.
pub(crate) const READS: Reads = Reads {
    at_site: |view| !(view.policy.preempt.is_on() && view.has_parked),
    ..Reads::only("preempt", |_| &[Fact::Policy, Fact::Partitions, Fact::Closings])
};

/// Most jobs per pass for which preemption is tried: each try examines every node several times.
const MOST_TRIED: usize = 100;

/// The preemption decisions of one pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preemption {
    /// Runs that were named in this pass, and how they are preempted.
    named: BTreeMap<JobId, PreemptMode>,
    /// Requests for which preemption does not help.
    failed: FxHashSet<(Request, Rank)>,
    /// Requests that do not fit on resources of suspended runs.
    failed_over_suspended: FxHashSet<(Request, Rank)>,
    tried: usize,
    tried_over_suspended: usize,
}

impl Preemption {
    /// One that tries no further preemption.
    pub(crate) fn spent() -> Self {
        Self { tried: MOST_TRIED, tried_over_suspended: MOST_TRIED, ..Self::default() }
    }

    /// Resources for a job that did not fit, within `candidates` without nodes reserved for jobs ahead of it; `None`: preemption
    /// does not help, or is not needed.
    pub(crate) fn room(
        &mut self,
        view: &ClusterView,
        now: Timestamp,
        (job, request, candidates): (&JobView, &Request, &FixedBitSet),
        (planned, reserved): (&[PlannedHold], &[Reservation]),
        fees: Fees<'_>,
    ) -> Option<Room> {
        let rules = &view.policy.preempt;
        let claim = Claim { job, partition: request.partition, viewer: request.reservation };
        if !rules.may_preempt(view, claim) || self.tried >= MOST_TRIED {
            return None;
        }
        let key = (request.clone(), rules.rank(view, claim));
        if self.failed.contains(&key) {
            return None;
        }
        self.tried += 1;
        let open = without_reserved(now, request, candidates, reserved);
        let closed = closed_cpus(view, now, request);
        let search = Search { view, now, claim, request, open: &open, planned, named: &self.named, closed, fees };
        let found = search.run(job.id);
        match &found {
            Some(room) => self.named.extend(room.gone.iter().copied()),
            None => {
                self.failed.insert(key);
            }
        }
        found
    }

    /// Resources that a job gets at once from runs that are suspended for jobs like it, within the same candidates.
    pub(crate) fn room_over_suspended(
        &mut self,
        view: &ClusterView,
        now: Timestamp,
        (job, request, candidates): (&JobView, &Request, &FixedBitSet),
        (planned, reserved): (&[PlannedHold], &[Reservation]),
        fees: Fees<'_>,
    ) -> Option<Vec<AllocatedNode>> {
        let rules = &view.policy.preempt;
        if !rules.is_on() || self.tried_over_suspended >= MOST_TRIED {
            return None;
        }
        let claim = Claim { job, partition: request.partition, viewer: request.reservation };
        let key = (request.clone(), rules.rank(view, claim));
        if self.failed_over_suspended.contains(&key) {
            return None;
        }
        let open = without_reserved(now, request, candidates, reserved);
        let closed = closed_cpus(view, now, request);
        let search = Search { view, now, claim, request, open: &open, planned, named: &self.named, closed, fees };
        let parked = |place: usize| view.nodes[place].holds.iter().any(|hold| search.stands_aside(hold));
        let found = open.ones().any(parked).then(|| {
            self.tried_over_suspended += 1;
            search.place_now()
        });
        let found = found.flatten();
        if found.is_none() {
            self.failed_over_suspended.insert(key);
        }
        found
    }
}

/// CPUs that are reserved for others before it would end.
fn closed_cpus(view: &ClusterView, now: Timestamp, request: &Request) -> BTreeMap<usize, CpuSet> {
    view.reservations.closed_cpus(request.reservation, now, now, end_of(now, request))
}

fn end_of(now: Timestamp, request: &Request) -> Timestamp {
    now.plus(request.limit_secs.map_or(UNLIMITED_FOR_PLANNING, Duration::from_secs))
}

/// Without nodes on which resources are reserved for others before it would end.
fn without_reserved(
    now: Timestamp,
    request: &Request,
    candidates: &FixedBitSet,
    reserved: &[Reservation],
) -> FixedBitSet {
    let end = end_of(now, request);
    let mut open = candidates.clone();
    for (node, _) in reserved.iter().filter(|r| r.from < end).flat_map(|r| &r.nodes) {
        open.set(*node, false);
    }
    open
}
