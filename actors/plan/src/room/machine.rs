//! Free room on every node while a plan is made: a working copy that starts and reservations are taken from. Nodes are
//! indexed by weight and by free CPUs, so that a place is found without looking at every node.

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
pub struct PlannedHold {
    /// Node.
    pub node: usize,
    /// Share.
    pub share: NodeShare,
    /// How it is used.
    pub usage: NodeUse,
    /// Owner.
    pub owner: Owner,
    /// Place of the partition in the view.
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

/// Free room on the cluster's nodes.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    view: &'a ClusterView,
    floor: Floor,
    /// CPUs that are not for whom a place is looked for.
    closed: BTreeMap<usize, CpuSet>,
    /// What has been promised to others of the partition for which a place is looked for: CPUs by node.
    promised: BTreeMap<usize, u32>,
}

/// The same without the snapshot that it was built from, to go on with in a later one.
#[derive(Clone, Debug, PartialEq)]
pub struct Floor {
    rooms: Vec<Room>,
    /// Nodes that may get work.
    usable: FixedBitSet,
    /// Nodes that nobody holds anything of.
    idle: FixedBitSet,
    /// Free CPUs of usable nodes, in whole units.
    free_cpus: u64,
    /// Ascending weight.
    classes: Vec<WeightClass>,
    /// Some node has CPUs that come with GPUs.
    restricted: bool,
    /// What jobs of partitions with limits of CPUs have: by node and partition.
    of_partitions: BTreeMap<(usize, usize), CpuSet>,
    /// Nodes of which something was taken that the snapshot does not show.
    taken: Vec<usize>,
}

impl<'a> Machine<'a> {
    /// Counts what is free on a node among what is free in all.
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

    /// Counts it no longer.
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

    /// Takes what a planned start has.
    pub fn take_planned(&mut self, hold: &PlannedHold) {
        self.take(hold.node, &hold.share, hold.usage, hold.owner);
        let limited = self.view.partitions[hold.partition].caps != CpuCaps::NONE;
        self.count(limited.then_some(hold.partition), hold.node, &hold.share);
    }

    /// Counts a share to those of its partition, where that has limits.
    pub(crate) fn count(&mut self, partition: Option<usize>, node: usize, share: &NodeShare) {
        if let Some(partition) = partition {
            self.floor.of_partitions.entry((node, partition)).or_default().add(&share.cpus);
        }
    }

    /// From now on places are looked for beside what has been promised to others of the partition.
    pub fn promise(&mut self, promised: BTreeMap<usize, u32>) {
        self.promised = promised;
    }

    /// How many CPUs more the request's partition may have of a node.
    pub(crate) fn left(&self, node: usize, request: &Request, held: &CpuSet) -> u32 {
        let promised = self.promised.get(&node).copied().unwrap_or(0);
        request.caps.left(&self.view.nodes[node].shape, held, promised)
    }

    /// What jobs of the request's partition have of a node, where that matters to it.
    fn held_by_partition(&self, node: usize, request: &Request) -> Option<CpuSet> {
        let held = || self.floor.of_partitions.get(&(node, request.partition)).cloned().unwrap_or_default();
        request.caps.count(request.usage).then(held)
    }

    /// The snapshot that this was built from.
    pub const fn view(&self) -> &'a ClusterView {
        self.view
    }

    /// From now on places are looked for without these CPUs of nodes of which a part is reserved.
    pub fn close(&mut self, cpus: BTreeMap<usize, CpuSet>) {
        self.closed = cpus;
    }

    /// The same machine without these CPUs.
    #[must_use]
    pub fn without_cpus(mut self, cpus: BTreeMap<usize, CpuSet>) -> Self {
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

    /// The same for that request.
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

    /// Of the CPUs that the request could share with so many others, those that its partition may have.
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

    /// The same with those that come with these GPUs.
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

    /// May CPUs of the node be shared? Not where a part of it is reserved.
    fn shares(&self, node: usize, usage: NodeUse) -> Option<u32> {
        match usage {
            NodeUse::Oversubscribe(most) if !self.view.reservations.is_parted(node) => Some(most),
            _ => None,
        }
    }

    /// Leaves of `set` the nodes that may get work of this kind at all.
    pub fn restrict(&self, set: &mut FixedBitSet, usage: NodeUse) {
        set.intersect_with(&self.floor.usable);
        if usage == NodeUse::Whole {
            set.intersect_with(&self.floor.idle);
        }
    }

    /// Fewer CPUs are free in all than the request needs: no use in looking for nodes.
    pub fn is_short_for(&self, request: &Request) -> bool {
        let overcommit = request.layout.is_some_and(|layout| layout.overcommit);
        let tasks = if overcommit { request.min_nodes } else { request.total_tasks().max(request.min_nodes) };
        let tasks = u64::from(tasks);
        let other = matches!(request.usage, NodeUse::Oversubscribe(_)) || request.left_to_system.is_some();
        let counted = !other && !self.counts_by_gpus(request);
        counted && tasks * u64::from(request.cpus_per_task) > self.floor.free_cpus
    }

    /// Free CPUs of nodes do not say what the request finds there: some come with GPUs.
    pub fn counts_by_gpus(&self, request: &Request) -> bool {
        self.floor.restricted && (request.gres.is_some() || request.usage == NodeUse::Whole)
    }

    /// True when nobody holds anything of the node.
    pub fn is_idle(&self, node: usize) -> bool {
        self.floor.idle.contains(node)
    }

    /// True when the node may get work at all.
    pub fn is_usable(&self, node: usize) -> bool {
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
    pub fn class_of(&self, node: usize) -> usize {
        self.floor.rooms[node].class
    }

    /// Nodes of a class within `set`, those with the fewest free CPUs (but at least `least`) first, in configuration order
    /// among equals. For requests that share CPUs the number of free CPUs means nothing: configuration order.
    pub fn tightest_first<'s>(
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

    /// Nodes of a class within `set` that have so many CPUs free.
    pub fn with_free(&self, class: usize, least: u32, set: &FixedBitSet) -> FixedBitSet {
        let mut with = FixedBitSet::with_capacity(self.view.nodes.len());
        self.floor.classes[class].by_free.range(least..).for_each(|(_, nodes)| with.union_with(nodes));
        with.intersect_with(set);
        with
    }

    /// Nodes of a class within `set`, those with the most free CPUs first.
    pub fn widest_first<'s>(
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
