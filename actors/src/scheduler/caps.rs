//! The most CPUs that all jobs of a partition together have of a node (`MaxCPUsPerNode`, `MaxCPUsPerSocket`). Whoever has a
//! node to himself has all of it.

use super::{facts::ClusterView, machine::PlannedHold, plan::Reservation, request::NodeUse};
use garrick_model::{
    resources::{CpuSet, NodeShape},
    time::Timestamp,
};
use std::collections::BTreeMap;

/// Most CPUs of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuCaps {
    /// On all its sockets together.
    pub per_node: Option<u32>,
    /// On each.
    pub per_socket: Option<u32>,
}

impl CpuCaps {
    /// No limits.
    pub const NONE: Self = Self { per_node: None, per_socket: None };

    /// Do others of the partition matter to a request of this kind?
    pub fn count(self, usage: NodeUse) -> bool {
        self != Self::NONE && usage != NodeUse::Whole
    }

    /// The most on an idle node.
    pub fn most(self, shape: &NodeShape) -> u32 {
        let by_socket = self.per_socket.map_or(u32::MAX, |most| most.saturating_mul(shape.sockets.max(1)));
        self.per_node.unwrap_or(u32::MAX).min(by_socket)
    }

    /// How many more than those that the partition has, and those that it has been promised.
    pub fn left(self, shape: &NodeShape, held: &CpuSet, promised: u32) -> u32 {
        self.most(shape).saturating_sub(held.len().saturating_add(promised))
    }

    /// May the partition have these?
    pub fn allow(self, shape: &NodeShape, cpus: &CpuSet) -> bool {
        let by_socket =
            |most: u32| shape.sockets_cpus().all(|socket| cpus.intersection(&CpuSet::from(socket)).len() <= most);
        self.per_node.is_none_or(|most| cpus.len() <= most) && self.per_socket.is_none_or(by_socket)
    }

    /// Of `free`, what may come on each socket to what the partition has: whole units, and those of `first` before others.
    pub fn by_socket(self, (shape, unit): (&NodeShape, u32), held: &CpuSet, free: &CpuSet, first: &CpuSet) -> CpuSet {
        let Some(most) = self.per_socket else { return free.clone() };
        let mut all = CpuSet::new();
        for socket in shape.sockets_cpus() {
            let socket = CpuSet::from(socket);
            let here = free.intersection(&socket);
            let left = most.saturating_sub(held.intersection(&socket).len());
            let left = left - left % unit.max(1);
            let own = here.intersection(first).take(left);
            all.add(&here.difference(&own).take(left - own.len()));
            all.add(&own);
        }
        all
    }
}

/// How many CPUs of each node jobs of a partition will have at some time of the window beyond those that they have at its
/// beginning: what is reserved for them meanwhile, less what ends by then.
pub fn promised(
    view: &ClusterView,
    partition: usize,
    (from, until): (Timestamp, Timestamp),
    planned: &[PlannedHold],
    reservations: &[Reservation],
) -> BTreeMap<usize, u32> {
    let name = view.partitions[partition].name.as_str();
    let ours: Vec<&Reservation> =
        reservations.iter().filter(|r| r.partition == partition && r.from < until && r.until > from).collect();
    let held = |node: usize, at: Timestamp| -> u32 {
        let there =
            view.nodes[node].holds.iter().filter(|hold| hold.partition.as_deref() == Some(name) && !hold.parked);
        let there = there.filter(|hold| hold.expected_end.is_none_or(|end| end > at)).map(|hold| &hold.share);
        let soon = planned.iter().filter(|hold| hold.node == node && hold.partition == partition && hold.end > at);
        there.chain(soon.map(|hold| &hold.share)).map(|share| share.cpus.len()).sum()
    };
    let reserved = |node: usize, at: Timestamp| -> u32 {
        let then = ours.iter().filter(|r| r.from <= at && r.until > at).flat_map(|r| &r.nodes);
        then.filter(|(place, _)| *place == node).map(|(_, what)| what.cpus + what.with_gpus).sum()
    };
    let mut promised = BTreeMap::new();
    for (node, _) in ours.iter().flat_map(|r| &r.nodes) {
        promised.entry(*node).or_insert_with(|| {
            let times = ours.iter().map(|r| r.from.max(from)).chain([from]);
            let most = times.map(|at| held(*node, at) + reserved(*node, at)).max().unwrap_or(0);
            most.saturating_sub(held(*node, from))
        });
    }
    promised
}
