//! What has changed between two pictures, and whether a plan for the first can be repaired for the second.

use crate::scheduler::picture::{
    caps::CpuCaps,
    facts::{Backfill, ClusterView, NEVER, in_service},
    request::Matters,
};
use garrick_model::{
    ids::JobId,
    state::JobState,
    time::Timestamp,
    view::{JobView, NodeView},
};
use std::{collections::BTreeMap, sync::Arc};

/// What those who wait mind besides nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Minds {
    /// Somebody wants licenses.
    pub licenses: bool,
    /// Somebody is for an advance reservation.
    pub reservations: bool,
}

impl Minds {
    pub(super) fn of<'j>(jobs: impl Iterator<Item = &'j Arc<JobView>>) -> Self {
        let none = Self { licenses: false, reservations: false };
        jobs.fold(none, |minds, job| Self {
            licenses: minds.licenses || job.spec.licenses.is_some(),
            reservations: minds.reservations || !job.spec.reservations.is_empty(),
        })
    }

    pub(super) const fn or(self, other: Self) -> Self {
        Self { licenses: self.licenses || other.licenses, reservations: self.reservations || other.reservations }
    }
}

/// Does what a plan stands on still hold?
pub(super) fn stands(
    before: &ClusterView,
    view: &ClusterView,
    jobs: &[Changed<'_>],
    minds: Minds,
    now: Timestamp,
) -> bool {
    let licenses = before.licenses.totals == view.licenses.totals
        && before.licenses.hres == view.licenses.hres
        && (!minds.licenses || before.licenses.held == view.licenses.held);
    allows_repairs(view)
        && licenses
        && before.policy == view.policy
        && before.partitions == view.partitions
        && before.reservations.closings(None, now) == view.reservations.closings(None, now)
        && (!minds.reservations || before.reservations.are_the_same(&view.reservations))
        && jobs.iter().all(|(old, job)| {
            let as_before =
                |job: &Arc<JobView>| old.is_some_and(|old| only_keeps(view, job) && waits_the_same(old, job));
            job.is_none_or(|job| is_plain(job) || as_before(job))
        })
}

/// [`ClusterView::matters`], from what it was before and what has changed.
pub(super) fn matters(before: Matters, view: &ClusterView, jobs: &[Changed<'_>], nodes: &[usize]) -> Matters {
    if before.users || before.labels {
        return view.matters();
    }
    let wished = jobs.iter().filter_map(|(_, job)| job.map(|job| job.spec.sharing));
    let kept = nodes.iter().flat_map(|node| &view.nodes[*node].holds).map(|hold| hold.sharing);
    Matters::of(wished.chain(kept))
}

/// Are plans for such a picture repaired, if all that wait are plain?
pub(super) fn allows_repairs(view: &ClusterView) -> bool {
    view.reservations.only_close_nodes()
        && !(view.policy.preempt.is_on() && view.has_parked)
        && view.policy.shortest_first.is_none()
        && view.policy.topology_patience.is_none()
        && view.partitions.iter().all(|partition| partition.caps == CpuCaps::NONE)
        && view.policy.bounds.is_none()
}

/// Does the job ask for what a repair can give it?
pub(super) fn is_plain(job: &JobView) -> bool {
    job.state != JobState::Expediting && job.spec.reservations.is_empty() && job.spec.het.is_none()
}

/// Is it a component of a heterogeneous job, or one for an advance reservation, of which repairs take care in so far as they
/// leave it its room?
pub(super) fn only_keeps(view: &ClusterView, job: &JobView) -> bool {
    let one_of_these = usize::from(job.spec.het.is_some()) + job.spec.reservations.len() == 1;
    let leaves_room = view.policy.backfill == Backfill::Conservative && !view.policy.preempt.is_on();
    job.state != JobState::Expediting && one_of_these && leaves_room
}

/// Does the job ask for the same as before, in the same place of the queue?
fn waits_the_same(a: &Arc<JobView>, b: &Arc<JobView>) -> bool {
    asks_the_same(a, b) && (a.priority, a.submit_time, a.eligible) == (b.priority, b.submit_time, b.eligible)
}

/// A job as it was, and as it is.
pub(super) type Changed<'v> = (Option<&'v Arc<JobView>>, Option<&'v Arc<JobView>>);

/// Jobs that are not the very same in both pictures. Both are in about the same order, and most jobs are not looked at.
pub(super) fn changed_jobs<'v>(before: &'v [Arc<JobView>], now: &'v [Arc<JobView>]) -> Vec<Changed<'v>> {
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
pub(super) fn changed_nodes(
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
        if !same && (!same_kind(old, new, view.policy.extra_constraints) || new.holds.iter().any(|hold| hold.kept)) {
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
pub(super) fn first_end(node: &NodeView) -> Timestamp {
    node.holds.iter().filter_map(|hold| hold.expected_end).min().unwrap_or(NEVER)
}

fn same_kind(a: &NodeView, b: &NodeView, by_extra: bool) -> bool {
    a.name == b.name
        && a.shape == b.shape
        && a.weight == b.weight
        && a.features == b.features
        && (!by_extra || a.extra == b.extra)
        && in_service(a) == in_service(b)
}

/// Does the job ask for the same as before?
pub(super) fn asks_the_same(a: &Arc<JobView>, b: &Arc<JobView>) -> bool {
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
