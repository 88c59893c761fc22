//! What jobs of partitions with CPU limits ([`CpuCaps`]) hold, and what is reserved for them.

use super::{machine::PlannedHold, node::free::Amount};
use crate::snapshot::{
    caps::CpuCaps,
    facts::{ClusterView, NEVER},
};
use fixedbitset::FixedBitSet;
use garrick_model::time::Timestamp;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// CPUs of one node over time: from when, until when, how many.
type Spans = Vec<(Timestamp, Timestamp, u32)>;

/// What jobs of partitions with limits hold of each node, and what is reserved there for others of them.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Indices of the partitions that have limits.
    limited: BTreeSet<usize>,
    /// By partition and node.
    held: FxHashMap<(usize, usize), Vec<(Timestamp, u32)>>,
    /// By partition, then node.
    reserved: FxHashMap<usize, BTreeMap<usize, Spans>>,
}

impl Promises {
    /// From what runs now.
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

    /// Adds a start.
    pub(crate) fn take(&mut self, hold: &PlannedHold) {
        if self.limited.contains(&hold.partition) {
            let held = self.held.entry((hold.partition, hold.node)).or_default();
            held.push((hold.end, hold.share.cpus.len()));
        }
    }

    /// Adds a reservation.
    pub fn reserve(&mut self, partition: usize, nodes: &[(usize, Amount)], (from, until): (Timestamp, Timestamp)) {
        if !self.limited.contains(&partition) {
            return;
        }
        let reserved = self.reserved.entry(partition).or_default();
        for (node, what) in nodes {
            reserved.entry(*node).or_default().push((from, until, what.cpus + what.with_gpus));
        }
    }

    /// How many CPUs of each candidate jobs of the partition will hold at some time of the interval beyond those that they hold
    /// at its beginning: what is reserved for them in it, less what ends by then.
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
            // At equal times, ends go before begins.
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
