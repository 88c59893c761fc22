//! What has changed between two snapshots, and whether a plan for the first can be repaired for the second.

use crate::{
    rules,
    snapshot::{
        changes::{Follows, Minds},
        facts::{ClusterView, NEVER, in_service},
        request::Matters,
    },
};
use garrick_model::{
    ids::JobId,
    time::Timestamp,
    view::{JobView, NodeView},
};
use std::{collections::BTreeMap, sync::Arc};

/// Is everything that the plan is based on unchanged?
pub(super) fn stands(
    before: &ClusterView,
    view: &ClusterView,
    jobs: &[Changed<'_>],
    minds: Minds,
    now: Timestamp,
) -> bool {
    rules::allow_repairs(view)
        && rules::read_the_same(before, view, minds, now)
        && jobs.iter().all(|(old, job)| {
            job.is_none_or(|job| match rules::follow(view, job) {
                Follows::Wholly => true,
                Follows::Keeps => old.is_some_and(|old| waits_the_same(old, job)),
                Follows::No => false,
            })
        })
}

/// Computes [`ClusterView::matters`] from its earlier value and the changes.
pub(super) fn matters(before: Matters, view: &ClusterView, jobs: &[Changed<'_>], nodes: &[usize]) -> Matters {
    if before.users || before.labels {
        return view.matters();
    }
    let wished = jobs.iter().filter_map(|(_, job)| job.map(|job| job.spec.sharing));
    let kept = nodes.iter().flat_map(|node| &view.nodes[*node].holds).map(|hold| hold.sharing);
    Matters::of(wished.chain(kept))
}

/// Does the job ask for the same as before, in the same place of the queue?
fn waits_the_same(a: &Arc<JobView>, b: &Arc<JobView>) -> bool {
    asks_the_same(a, b) && (a.priority, a.submit_time, a.eligible) == (b.priority, b.submit_time, b.eligible)
}

/// A job in the earlier and in the new snapshot.
pub(super) type Changed<'v> = (Option<&'v Arc<JobView>>, Option<&'v Arc<JobView>>);

/// Jobs that differ between the snapshots. Both are in about the same order, and unchanged jobs are skipped by pointer
/// comparison.
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

/// Nodes on which a hold began, ended or was extended, and the earliest expected end of all holds; `first_end` is that of the
/// earlier snapshot. `None`: more than that has changed.
pub(super) fn changed_nodes(
    before: &ClusterView,
    first_end_before: Timestamp,
    view: &ClusterView,
    now: Timestamp,
) -> Option<(Vec<usize>, Timestamp)> {
    if before.nodes.len() != view.nodes.len() {
        return None;
    }
    // A job may hold a node longer than was expected.
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

/// When the first of the node's holds is expected to end.
pub(super) fn first_end(node: &NodeView) -> Timestamp {
    node.holds.iter().filter_map(|hold| hold.expected_end).min().unwrap_or(NEVER)
}

fn same_kind(a: &NodeView, b: &NodeView, by_extra: bool) -> bool {
    a.name == b.name
        && a.shape == b.shape
        && a.rank() == b.rank()
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
