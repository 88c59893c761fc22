//! The future of nodes in the view of an advance reservation (`Viewer`).

use super::{horizon::Horizon, machine::Machine, node::free::Amount, node::free::whole_node, select};
use crate::snapshot::{
    facts::ClusterView,
    request::Request,
    reservations::{Closing, Reservations, Viewer},
};
use fixedbitset::FixedBitSet;
use garrick_model::{resources::CpuSet, state::Reason, time::Timestamp};
use std::{collections::BTreeMap, time::Duration};

/// Amounts by node, begin, end.
type Held = (Vec<(usize, Amount)>, Timestamp, Timestamp);

/// The futures that a pass plans with: one for each view of reservations, made when it is first needed. What is held in one is
/// held in all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Futures {
    current: Viewer,
    /// The others, and how much of what is held each has included.
    parked: BTreeMap<Viewer, (Horizon, usize)>,
    held: Vec<Held>,
}

impl Futures {
    /// Replaces `horizon` by the future in this view.
    pub fn look(&mut self, horizon: &mut Horizon, viewer: Viewer, view: &ClusterView, now: Timestamp) {
        if viewer == self.current {
            return;
        }
        let (mut next, known) = self.parked.remove(&viewer).unwrap_or_else(|| (seen(view, viewer, now), 0));
        for (nodes, from, until) in &self.held[known..] {
            next.hold(nodes, *from, *until);
        }
        let before = std::mem::replace(horizon, next);
        self.parked.insert(self.current, (before, self.held.len()));
        self.current = viewer;
    }

    /// Holds that, in all futures.
    pub fn hold(
        &mut self,
        horizon: &mut Horizon,
        view: &ClusterView,
        nodes: Vec<(usize, Amount)>,
        (from, until): (Timestamp, Timestamp),
    ) {
        horizon.hold(&nodes, from, until);
        if !view.reservations.list.is_empty() {
            self.held.push((nodes, from, until));
        }
    }
}

/// The future of the nodes in this view.
pub(crate) fn seen(view: &ClusterView, viewer: Viewer, now: Timestamp) -> Horizon {
    let mut horizon = Horizon::new(view, now);
    let whole = whole_node();
    for Closing { nodes, parts, from, until } in view.reservations.closings(viewer, now) {
        let closed: Vec<(usize, Amount)> = nodes.ones().map(|place| (place, whole.clone())).collect();
        horizon.hold(&closed, from.max(now), until);
        let parts: Vec<(usize, CpuSet)> = parts.into_iter().collect();
        horizon.close(&parts, from.max(now), until);
    }
    horizon
}

/// Why a job waits, if reservations are the cause: its own reservation has not begun, or nodes that are free now are reserved for
/// others now or soon.
pub fn reason(
    machine: &mut Machine<'_>,
    request: &Request,
    candidates: &FixedBitSet,
    now: Timestamp,
    length: Duration,
) -> Option<Reason> {
    let reservations = &machine.view().reservations;
    if reservations.list.is_empty() {
        return None;
    }
    if reservations.awaits(request.reservation, now) {
        return Some(Reason::Other("Reservation".to_owned()));
    }
    let closed = reservations.closed(request.reservation, now, now, now.plus(length));
    let mut open = candidates.clone();
    open.difference_with(&closed);
    let parts = reservations.closed_cpus(request.reservation, now, now, now.plus(length));
    if open == *candidates && parts.is_empty() {
        return None;
    }
    machine.close(BTreeMap::new());
    let without = select::place(machine, request, candidates).is_some();
    machine.close(parts);
    let stands_in_the_way = without && select::place(machine, request, &open).is_none();
    machine.close(BTreeMap::new());
    stands_in_the_way.then(|| Reason::Other("ReqNodeNotAvail, May be reserved for other job".to_owned()))
}

/// CPUs of partly reserved nodes that are not free during the whole interval.
pub(crate) fn taken(
    reservations: &Reservations,
    horizon: &Horizon,
    from: Timestamp,
    until: Timestamp,
) -> BTreeMap<usize, CpuSet> {
    let taken = |node: usize| {
        let free = horizon.named(node, from, until).unwrap_or_default();
        (node, horizon.shape(node).common_cpus().difference(&free))
    };
    reservations.parted().map(taken).collect()
}
