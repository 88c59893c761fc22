//! The most CPUs that all jobs of a partition together have of a node (`MaxCPUsPerNode`, `MaxCPUsPerSocket`). Nobody
//! may ask for more than that on a node, not with the node to himself either; but then he is given all of it.

use super::{facts::ClusterView, free::Amount, horizon::NEVER, machine::PlannedHold, request::NodeUse};
use fixedbitset::FixedBitSet;
use garrick_model::{
    resources::{CpuSet, NodeShape},
    time::Timestamp,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

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

    /// What of it holds for a request of this kind.
    pub fn of(self, usage: NodeUse) -> Self {
        if self.count(usage) { self } else { Self::NONE }
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

/// CPUs of one node over time: from when, until when, how many.
type Spans = Vec<(Timestamp, Timestamp, u32)>;

/// What jobs of partitions with limits have of each node, and what is reserved there for others of them.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Places of the partitions that have limits.
    limited: BTreeSet<usize>,
    /// By partition and node.
    held: FxHashMap<(usize, usize), Vec<(Timestamp, u32)>>,
    /// By partition, then node.
    reserved: FxHashMap<usize, BTreeMap<usize, Spans>>,
}

impl Promises {
    /// What runs now.
    pub fn of(view: &ClusterView) -> Self {
        let limited = view.partitions.iter().enumerate().filter(|(_, partition)| partition.caps != CpuCaps::NONE);
        let names: BTreeMap<&str, usize> = limited.map(|(place, facts)| (facts.name.as_str(), place)).collect();
        let mut promises = Self { limited: names.values().copied().collect(), ..Self::default() };
        for (node, facts) in view.nodes.iter().enumerate().filter(|_| !names.is_empty()) {
            for hold in facts.holds.iter().filter(|hold| !hold.parked) {
                if let Some(place) = hold.partition.as_deref().and_then(|name| names.get(name)) {
                    let until = hold.expected_end.unwrap_or(NEVER);
                    promises.held.entry((*place, node)).or_default().push((until, hold.share.cpus.len()));
                }
            }
        }
        promises
    }

    /// One more has that from now on.
    pub fn take(&mut self, hold: &PlannedHold) {
        if self.limited.contains(&hold.partition) {
            let held = self.held.entry((hold.partition, hold.node)).or_default();
            held.push((hold.end, hold.share.cpus.len()));
        }
    }

    /// One more of that partition is to have that.
    pub fn reserve(&mut self, partition: usize, nodes: &[(usize, Amount)], (from, until): (Timestamp, Timestamp)) {
        if !self.limited.contains(&partition) {
            return;
        }
        let reserved = self.reserved.entry(partition).or_default();
        for (node, what) in nodes {
            reserved.entry(*node).or_default().push((from, until, what.cpus + what.with_gpus));
        }
    }

    /// How many CPUs of each candidate jobs of the partition will have at some time of the window beyond those that they
    /// have at its beginning: what is reserved for them meanwhile, less what ends by then.
    pub fn within(
        &self,
        partition: usize,
        candidates: &FixedBitSet,
        (from, until): (Timestamp, Timestamp),
    ) -> BTreeMap<usize, u32> {
        let reserved = self.reserved.get(&partition).into_iter().flatten();
        let mut promised = BTreeMap::new();
        for (node, spans) in reserved.filter(|(node, _)| candidates.contains(**node)) {
            let spans = spans.iter().filter(|(begin, end, _)| *begin < until && *end > from);
            // At one time, what ends goes before what begins.
            let mut changes: Vec<(Timestamp, bool, u32)> = spans
                .flat_map(|(begin, end, cpus)| [((*begin).max(from), true, *cpus), (*end, false, *cpus)])
                .collect();
            if changes.is_empty() {
                continue;
            }
            let held = self.held.get(&(partition, *node)).into_iter().flatten();
            let held: Vec<&(Timestamp, u32)> = held.filter(|(end, _)| *end > from).collect();
            let at_first: u32 = held.iter().map(|(_, cpus)| cpus).sum();
            changes.extend(held.into_iter().map(|(end, cpus)| (*end, false, *cpus)));
            changes.sort_unstable();
            let (mut now, mut most) = (at_first, at_first);
            for (_, begins, cpus) in changes {
                now = if begins { now.saturating_add(cpus) } else { now.saturating_sub(cpus) };
                most = most.max(now);
            }
            promised.insert(*node, most - at_first);
        }
        promised
    }
}
