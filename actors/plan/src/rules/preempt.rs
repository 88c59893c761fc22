//! Which running jobs give way to one that waits. Pure: reads the snapshot of a plan and names runs; their owners dispose.
//!
//! Who may preempt whom is [`PreemptRules::way`]'s to say; whoever asked to overlap reservations gives way to their jobs. Of those that may be, as few as possible are named:
//!
//! 1. what ends anyhow (runs that are being cleaned up or were told to go) counts as gone, and where that is enough nobody
//!    is named;
//! 2. jobs of the lowest tier go first, among them with `youngest_first` those that started last, then those with more
//!    CPUs, then by id: the shortest beginning of that list that makes room;
//! 3. of those, in the opposite order, everyone is spared without whom there is room all the same.
//!
//! Who is only suspended makes room of CPUs alone. His CPUs are free to all jobs that he gives way to, also to those that come
//! later, and taken to all others: see [`crate::rules::resume`].
//!
//! Nodes on which room is reserved for a job that goes before are left alone. Licenses, and amounts of hierarchical resources, are
//! nobody's to make room of unless `reclaim_licenses` says so. A heterogeneous job gives way as a whole or not at all, and has
//! room made for all of its components or for none.

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

/// What it reads.
pub(crate) const READS: Reads = Reads {
    at_site: |view| !(view.policy.preempt.is_on() && view.has_parked),
    ..Reads::only("preempt", |_| &[Fact::Policy, Fact::Partitions, Fact::Closings])
};

/// Jobs for which a pass looks for others that give way, at most: each look is several at every node.
const MOST_TRIED: usize = 100;

/// What is decided on preemption in one pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preemption {
    /// Named in this pass, and how they go.
    named: BTreeMap<JobId, PreemptMode>,
    /// Requests for which nobody's end makes room.
    failed: FxHashSet<(Request, Rank)>,
    /// Requests for which those that are suspended leave no room.
    failed_over_suspended: FxHashSet<(Request, Rank)>,
    tried: usize,
    tried_over_suspended: usize,
}

impl Preemption {
    /// One in which nobody is looked for any more.
    pub(crate) fn spent() -> Self {
        Self { tried: MOST_TRIED, tried_over_suspended: MOST_TRIED, ..Self::default() }
    }

    /// Room for a job that did not fit, within `candidates` but for nodes reserved for jobs before it; `None`: nobody's end
    /// helps, or it need not.
    pub(crate) fn room(
        &mut self,
        view: &ClusterView,
        now: Timestamp,
        (job, request, candidates): (&JobView, &Request, &FixedBitSet),
        (planned, reserved): (&[PlannedHold], &[Reservation]),
        fees: Fees<'_>,
    ) -> Option<Room> {
        let rules = &view.policy.preempt;
        let claim = Claim { job, partition: request.partition, eyes: request.reservation };
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

    /// Room that a job gets at once of runs that stand still for such as it, likewise.
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
        let claim = Claim { job, partition: request.partition, eyes: request.reservation };
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

/// Leaves out nodes of which others have room reserved before it would end.
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
