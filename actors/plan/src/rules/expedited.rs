//! Expedited jobs: the nodes that are kept for such a job are free to it and taken to all others.

use crate::{
    room::{
        hres::{self, Room},
        machine::{Machine, PlannedHold},
        select,
    },
    snapshot::{
        changes::{Fact, Follows, Reads},
        facts::{ClusterView, NEVER, UNLIMITED_FOR_PLANNING},
        request::Request,
    },
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    ids::{JobId, NodeIndex},
    state::JobState,
    time::Timestamp,
    view::{AllocatedNode, JobView},
};
use std::time::Duration;

/// What the rule reads.
pub(crate) const READS: Reads = Reads {
    with_job: |_, job| if job.state == JobState::Expediting { Follows::No } else { Follows::Wholly },
    ..Reads::only("expedited", |_| &[Fact::Closings])
};

/// Free resources for an expedited job now, including the nodes that are kept for it.
pub(crate) struct Own<'a> {
    machine: Machine<'a>,
    open: FixedBitSet,
}

impl<'a> Own<'a> {
    /// Without the resources of this plan's starts. `longest`: how long it may run; no other reservation may begin in that time.
    pub fn of(
        view: &'a ClusterView,
        now: Timestamp,
        (job, request): (&JobView, &Request),
        candidates: &FixedBitSet,
        longest: Duration,
        planned: &[PlannedHold],
    ) -> Self {
        let end = now.plus(longest);
        let closed = view.reservations.closed_cpus(request.reservation, now, now, end);
        let mut open = candidates.clone();
        open.difference_with(&view.reservations.closed(request.reservation, now, now, end));
        Self { machine: Machine::now_for(view, job.id, planned).without_cpus(closed), open }
    }

    /// Nodes that it gets.
    pub fn place(&self, job: &JobView, request: &Request, layers: Option<&Room<'_>>) -> Option<Vec<AllocatedNode>> {
        place_expedited(&self.machine, job, request, &self.open, layers)
    }
}

/// Prefers the nodes that are kept for the job.
fn place_expedited(
    machine: &Machine<'_>,
    job: &JobView,
    request: &Request,
    open: &FixedBitSet,
    layers: Option<&Room<'_>>,
) -> Option<Vec<AllocatedNode>> {
    let is_kept = |place: &usize| machine.view().nodes[*place].holds.iter().any(|h| h.kept && h.job == job.id);
    let kept: Vec<NodeIndex> =
        open.ones().filter(is_kept).filter(|n| machine.is_usable(*n)).map(|n| machine.view().nodes[n].index).collect();
    let mut on_kept = request.clone();
    on_kept.nodelist.extend(kept);
    on_kept.nodelist.sort_unstable();
    on_kept.nodelist.dedup();
    let room = on_kept.nodelist.len() <= request.max_nodes as usize;
    let place = |request: &Request| hres::place(machine, request, open, None, layers);
    room.then(|| place(&on_kept)).flatten().or_else(|| place(request))
}

/// The earliest time at which the request fits if running jobs end as expected, and where.
pub(crate) fn earliest(
    view: &ClusterView,
    now: Timestamp,
    job: JobId,
    request: &Request,
    candidates: &FixedBitSet,
    planned: &[PlannedHold],
) -> Option<(Timestamp, Vec<AllocatedNode>)> {
    let far = now.plus(UNLIMITED_FOR_PLANNING);
    let mut ends: Vec<Timestamp> = candidates
        .ones()
        .filter_map(|place| view.nodes.get(place))
        .flat_map(|node| node.holds.iter().map(move |h| h.expected_end.unwrap_or(far).max(now)))
        .chain(planned.iter().map(|p| p.end))
        .chain([now])
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let closed = view.reservations.closed_cpus(request.reservation, now, now, NEVER);
    // Free resources only grow with time here, so the first time that fits is found by binary search.
    let fits = |at: Timestamp| {
        let machine = if at >= far { Machine::idle(view) } else { Machine::at(view, at, planned, job) };
        select::place(&machine.without_cpus(closed.clone()), request, candidates)
    };
    let (mut low, mut high) = (0, ends.len());
    let mut best = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match fits(ends[middle]) {
            Some(nodes) => {
                best = Some((ends[middle], nodes));
                high = middle;
            }
            None => low = middle + 1,
        }
    }
    best
}
