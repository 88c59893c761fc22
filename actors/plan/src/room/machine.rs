//! Free resources on every node while a plan is made: a working copy, from which starts and reservations are taken. Nodes are
//! indexed by weight and by free CPUs, so that a search does not examine every node.

use super::node::{
    free::whole_units,
    room::{Remains, Room},
};
use crate::snapshot::{
    caps::CpuCaps,
    facts::ClusterView,
    request::{NodeUse, Owner, Request},
};
use fixedbitset::FixedBitSet;
use garrick_model::{node_shape::NodeShare, resources::CpuSet, time::Timestamp};
use std::collections::BTreeMap;

mod build;
mod share;

/// A start that was planned but that views do not show yet.
#[derive(Clone, Debug)]
pub(crate) struct PlannedHold {
    /// Node.
    pub node: usize,
    /// Share.
    pub share: NodeShare,
    /// How the node is used.
    pub usage: NodeUse,
    /// Owner.
    pub owner: Owner,
    /// Index of the partition in the view.
    pub partition: usize,
    /// Expected end.
    pub end: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
struct WeightClass {
    nodes: FixedBitSet,
    by_free: BTreeMap<u32, FixedBitSet>,
}

impl Remains {
    const fn all_if(held: bool) -> Self {
        if held { Self::All } else { Self::Nothing }
    }
}

/// Free resources on the cluster's nodes.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    view: &'a ClusterView,
    floor: Floor,
    /// CPUs that the current search must not use.
    closed: BTreeMap<usize, CpuSet>,
    /// CPUs, by node, that are reserved for other jobs of the partition of the current search.
    promised: BTreeMap<usize, u32>,
}

/// The same without its snapshot, to be continued with a later one.
#[derive(Clone, Debug, PartialEq)]
pub struct Floor {
    rooms: Vec<Room>,
    /// Nodes that may get work.
    usable: FixedBitSet,
    /// Nodes without any hold.
    idle: FixedBitSet,
    /// Free CPUs of usable nodes, in whole units.
    free_cpus: u64,
    /// Ascending by weight.
    classes: Vec<WeightClass>,
    /// Some node has CPUs that come with GPUs.
    restricted: bool,
    /// What jobs of partitions with CPU limits hold, by node and partition.
    of_partitions: BTreeMap<(usize, usize), CpuSet>,
    /// Nodes of which something was taken that the snapshot does not show.
    taken: Vec<usize>,
}

impl<'a> Machine<'a> {
    /// Adds the node to the totals.
    pub(crate) fn enter(&mut self, node: usize) {
        let count = self.view.nodes.len();
        let Room { class, free_cpus, holders, .. } = self.floor.rooms[node];
        if self.floor.usable.contains(node) {
            self.floor.free_cpus += u64::from(free_cpus);
        }
        self.floor.idle.set(node, holders == 0);
        let by_free = &mut self.floor.classes[class].by_free;
        by_free.entry(free_cpus).or_insert_with(|| FixedBitSet::with_capacity(count)).insert(node);
    }

    /// Removes the node from the totals.
    pub(crate) fn leave(&mut self, node: usize) {
        let Room { class, free_cpus, .. } = self.floor.rooms[node];
        if self.floor.usable.contains(node) {
            self.floor.free_cpus = self.floor.free_cpus.saturating_sub(free_cpus.into());
        }
        let by_free = &mut self.floor.classes[class].by_free;
        if let Some(alike) = by_free.get_mut(&free_cpus) {
            alike.set(node, false);
            if alike.is_clear() {
                by_free.remove(&free_cpus);
            }
        }
    }

    /// Takes the resources of a planned start.
    pub(crate) fn take_planned(&mut self, hold: &PlannedHold) {
        self.take(hold.node, &hold.share, hold.usage, hold.owner);
        let limited = self.view.partitions[hold.partition].caps != CpuCaps::NONE;
        self.count(limited.then_some(hold.partition), hold.node, &hold.share);
    }

    /// Counts a share for its partition, if that has limits.
    pub(crate) fn count(&mut self, partition: Option<usize>, node: usize, share: &NodeShare) {
        if let Some(partition) = partition {
            self.floor.of_partitions.entry((node, partition)).or_default().add(&share.cpus);
        }
    }

    /// Sets the CPUs that are reserved for other jobs of the partition in later searches.
    pub fn promise(&mut self, promised: BTreeMap<usize, u32>) {
        self.promised = promised;
    }

    /// How many more CPUs of a node the request's partition may have.
    pub(crate) fn left(&self, node: usize, request: &Request, held: &CpuSet) -> u32 {
        let promised = self.promised.get(&node).copied().unwrap_or(0);
        request.caps.left(&self.view.nodes[node].shape, held, promised)
    }

    /// What jobs of the request's partition hold of a node, if its limits make that matter.
    fn held_by_partition(&self, node: usize, request: &Request) -> Option<CpuSet> {
        let held = || self.floor.of_partitions.get(&(node, request.partition)).cloned().unwrap_or_default();
        request.caps.count(request.usage).then(held)
    }

    /// The snapshot that this was built from.
    pub const fn view(&self) -> &'a ClusterView {
        self.view
    }

    /// Excludes these CPUs of partly reserved nodes from later searches.
    pub fn close(&mut self, cpus: BTreeMap<usize, CpuSet>) {
        self.closed = cpus;
    }

    /// The same machine without these CPUs.
    #[must_use]
    pub(crate) fn without_cpus(mut self, cpus: BTreeMap<usize, CpuSet>) -> Self {
        self.close(cpus);
        self
    }

    /// CPUs that may be taken of a node without a GPU, in whole units.
    fn open(&self, node: usize) -> CpuSet {
        let room = &self.floor.rooms[node];
        match self.closed.get(&node) {
            Some(closed) => {
                whole_units(&room.free.difference(closed).difference(&room.restricted), room.unit).collect()
            }
            None => room.whole_units().collect(),
        }
    }

    /// The same for this request.
    fn open_to(&self, node: usize, request: &Request) -> CpuSet {
        let shape = &self.view.nodes[node].shape;
        match self.held_by_partition(node, request) {
            Some(held) => {
                let unit = self.floor.rooms[node].unit;
                request.caps.by_socket((shape, unit), &held, &self.open(node), &CpuSet::new())
            }
            None => request.own_share(shape).unwrap_or_else(|| self.open(node)),
        }
    }

    /// CPUs that the request could share (at most `most` holders) and that its partition may have.
    fn shareable_to(&self, node: usize, request: &Request, most: u32) -> CpuSet {
        let (room, shape) = (&self.floor.rooms[node], &self.view.nodes[node].shape);
        let all: CpuSet = room.shareable(shape.cpus, most).collect();
        let Some(held) = self.held_by_partition(node, request) else { return all };
        let own = all.intersection(&held);
        let more = all.difference(&own);
        let more =
            request.caps.by_socket((shape, 1), &held, &more, &CpuSet::new()).take(self.left(node, request, &held));
        own.union(&more)
    }

    /// The same, with those that come with these GPUs.
    fn open_with(&self, node: usize, request: &Request, gpus: impl Fn(u32) -> bool) -> CpuSet {
        let (room, shape) = (&self.floor.rooms[node], &self.view.nodes[node].shape);
        if room.restricted.is_empty() {
            return self.open_to(node, request);
        }
        let own = shape.cpus_of_gpus(gpus).intersection(&room.free);
        let own = self.closed.get(&node).map_or_else(|| own.clone(), |closed| own.difference(closed));
        let all = self.open(node).union(&own);
        match self.held_by_partition(node, request) {
            Some(held) => request.caps.by_socket((shape, room.unit), &held, &all, &own),
            None => all,
        }
    }

    /// How many may share a CPU of the node. Partly reserved nodes are not shared.
    fn shares(&self, node: usize, usage: NodeUse) -> Option<u32> {
        match usage {
            NodeUse::Oversubscribe(most) if !self.view.reservations.is_parted(node) => Some(most),
            _ => None,
        }
    }

    /// Keeps in `set` the nodes that may get work of this kind at all.
    pub fn restrict(&self, set: &mut FixedBitSet, usage: NodeUse) {
        set.intersect_with(&self.floor.usable);
        if usage == NodeUse::Whole {
            set.intersect_with(&self.floor.idle);
        }
    }

    /// Are fewer CPUs free in all than the request needs? Then no search is needed.
    pub(crate) fn is_short_for(&self, request: &Request) -> bool {
        let overcommit = request.layout.is_some_and(|layout| layout.overcommit);
        let tasks = if overcommit { request.min_nodes } else { request.total_tasks().max(request.min_nodes) };
        let tasks = u64::from(tasks);
        let other = matches!(request.usage, NodeUse::Oversubscribe(_)) || request.left_to_system.is_some();
        let counted = !other && !self.counts_by_gpus(request);
        counted && tasks * u64::from(request.cpus_per_task) > self.floor.free_cpus
    }

    /// The number of free CPUs of a node does not say what the request gets there: some come with GPUs.
    pub(crate) fn counts_by_gpus(&self, request: &Request) -> bool {
        self.floor.restricted && (request.gres.is_some() || request.usage == NodeUse::Whole)
    }

    /// Is the node without any hold?
    pub fn is_idle(&self, node: usize) -> bool {
        self.floor.idle.contains(node)
    }

    /// May the node get work at all?
    pub(crate) fn is_usable(&self, node: usize) -> bool {
        self.floor.usable.contains(node)
    }

    /// Takes a share from a node.
    pub fn take(&mut self, node: usize, share: &NodeShare, usage: NodeUse, owner: Owner) {
        self.leave(node);
        let gres = &self.view.nodes[node].shape.gres;
        self.floor.rooms[node].add(gres, share, usage, owner);
        self.enter(node);
        self.floor.taken.push(node);
    }

    /// Number of weight classes.
    pub const fn classes(&self) -> usize {
        self.floor.classes.len()
    }

    /// Weight class of a node: 0 for the lowest weight.
    pub(crate) fn class_of(&self, node: usize) -> usize {
        self.floor.rooms[node].class
    }

    /// Nodes of a class within `set`, those with the fewest free CPUs (but at least `least`) first, in configuration order among
    /// equals. For requests that share CPUs the number of free CPUs does not matter: configuration order.
    pub(crate) fn tightest_first<'s>(
        &'s self,
        class: usize,
        least: u32,
        usage: NodeUse,
        set: &'s FixedBitSet,
    ) -> Box<dyn Iterator<Item = usize> + 's> {
        let class = &self.floor.classes[class];
        match usage {
            NodeUse::Oversubscribe(_) => Box::new(class.nodes.intersection(set)),
            _ => Box::new(class.by_free.range(least..).flat_map(move |(_, nodes)| nodes.intersection(set))),
        }
    }

    /// Nodes of a class within `set` with at least this many free CPUs.
    pub(crate) fn with_free(&self, class: usize, least: u32, set: &FixedBitSet) -> FixedBitSet {
        let mut with = FixedBitSet::with_capacity(self.view.nodes.len());
        self.floor.classes[class].by_free.range(least..).for_each(|(_, nodes)| with.union_with(nodes));
        with.intersect_with(set);
        with
    }

    /// Nodes of a class within `set`, those with the most free CPUs first.
    pub(crate) fn widest_first<'s>(
        &'s self,
        class: usize,
        least: u32,
        usage: NodeUse,
        set: &'s FixedBitSet,
    ) -> Box<dyn Iterator<Item = usize> + 's> {
        let class = &self.floor.classes[class];
        match usage {
            NodeUse::Oversubscribe(_) => Box::new(class.nodes.intersection(set)),
            _ => Box::new(class.by_free.range(least..).rev().flat_map(move |(_, nodes)| nodes.intersection(set))),
        }
    }
}
