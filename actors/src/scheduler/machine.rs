//! Free room on every node while a plan is made: a working copy that starts and reservations are taken from. Nodes are
//! indexed by weight and by free CPUs, so that a place is found without looking at every node.

use super::{
    binding,
    caps::CpuCaps,
    facts::{ClusterView, cpus_per_unit, in_service},
    free::{Capacity, Door, Free, Part, cpus_of_part, cpus_of_task, greatest, memory_of, whole_units},
    horizon::{Horizon, NEVER, Step},
    request::{Label, NodeUse, Owner, Request},
    sockets,
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    gres::{GPU, GresAmounts, GresEntry, GresPool, GresRequest, GresShare, Totals, devices_in, devices_used},
    ids::JobId,
    resources::{CpuSet, MemoryMib, NodeShape, NodeShare},
    spec::Sharing,
    time::Timestamp,
    view::{NodeHold, NodeView},
};
use std::collections::BTreeMap;

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
struct Room {
    unit: u32,
    free: CpuSet,
    /// CPUs that come with GPUs.
    restricted: CpuSet,
    /// Without those.
    free_cpus: u32,
    memory: u64,
    gres: GresPool,
    door: Door,
    /// The one user whose jobs are here; `None` when there are none or several.
    only_user: Option<u32>,
    /// The same of MCS labels.
    only_label: Option<Label>,
    holders: u32,
    /// Holders of each CPU and the most that they allow, kept only where CPUs are shared.
    shared: BTreeMap<u32, (u32, u32)>,
    /// CPUs that somebody holds for himself, also where those who share them stand still for him.
    alone: CpuSet,
    class: usize,
}

/// Partitions with limits of CPUs, by name.
struct Limited<'a>(BTreeMap<&'a str, usize>);

impl<'a> Limited<'a> {
    fn of(view: &'a ClusterView) -> Self {
        let limited = view.partitions.iter().enumerate().filter(|(_, partition)| partition.caps != CpuCaps::NONE);
        Self(limited.map(|(place, partition)| (partition.name.as_str(), place)).collect())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn place(&self, hold: &NodeHold) -> Option<usize> {
        if self.is_empty() { None } else { self.0.get(hold.partition.as_deref()?).copied() }
    }

    fn planned(&self, hold: &PlannedHold) -> Option<usize> {
        self.0.values().copied().find(|place| *place == hold.partition)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct WeightClass {
    nodes: FixedBitSet,
    by_free: BTreeMap<u32, FixedBitSet>,
}

/// What is left of a hold when others have gone or stand aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// All of it.
    All,
    /// All but its CPUs, and it minds no neighbours: it is suspended.
    ButCpus,
    /// Nothing.
    Nothing,
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

/// The same without the picture that it was built from, to go on with in a later one.
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
    /// Nodes of which something was taken that the picture does not show.
    taken: Vec<usize>,
}

impl<'a> Machine<'a> {
    /// As it is now.
    pub fn now(view: &'a ClusterView) -> Self {
        Self::build(view, &[], |_| Remains::All, in_service)
    }

    /// As it is now, after the `planned` starts, for the job that has nodes kept for it: to others those are taken.
    pub fn now_for(view: &'a ClusterView, job: JobId, planned: &[PlannedHold]) -> Self {
        let planned: Vec<&PlannedHold> = planned.iter().collect();
        Self::build(view, &planned, |hold| Remains::all_if(!(hold.kept && hold.job == job)), in_service)
    }

    /// As it would be at `at` if nothing but the `planned` starts happened: what ends by then is gone. What is kept for
    /// `job` is free to it.
    pub fn at(view: &'a ClusterView, at: Timestamp, planned: &[PlannedHold], job: JobId) -> Self {
        let planned: Vec<&PlannedHold> = planned.iter().filter(|p| p.end > at).collect();
        let still_held =
            |hold: &NodeHold| hold.expected_end.is_none_or(|end| end > at) && !(hold.kept && hold.job == job);
        Self::build(view, &planned, |hold| Remains::all_if(still_held(hold)), in_service)
    }

    /// As it would be now, after the `planned` starts, with nothing else there but what `remains`.
    pub fn without(view: &'a ClusterView, planned: &[PlannedHold], remains: impl Fn(&NodeHold) -> Remains) -> Self {
        let planned: Vec<&PlannedHold> = planned.iter().collect();
        Self::build(view, &planned, remains, in_service)
    }

    /// With all nodes in service idle.
    pub fn idle(view: &'a ClusterView) -> Self {
        Self::build(view, &[], |_| Remains::Nothing, in_service)
    }

    /// With every configured node idle and in service.
    pub fn ideal(view: &'a ClusterView) -> Self {
        Self::build(view, &[], |_| Remains::Nothing, |_| true)
    }

    /// As it is planned to be all the time from `at` until `until`. Which CPUs are meant is not known that far ahead: the
    /// lowest ones stand for as many.
    pub fn ahead(
        view: &'a ClusterView,
        horizon: &Horizon,
        (at, until): (Timestamp, Timestamp),
        planned: &[PlannedHold],
    ) -> Self {
        let mut machine = Self::build(view, &[], |_| Remains::Nothing, in_service);
        for node in 0..view.nodes.len() {
            let mut least = Free::all(&view.nodes[node].shape);
            for free in horizon.during(node, at, until) {
                least = least.least(&free);
            }
            let shape = &view.nodes[node].shape;
            let sharing = least.shareable > least.cpus;
            let left = if sharing { least.shareable } else { least.cpus };
            let gres = least.gres.shares_leaving(&shape.gres);
            let common = shape.common_cpus();
            let held = devices_used(&gres, GPU);
            let held = shape.cpus_of_gpus(|gpu| held.contains(gpu));
            let share = NodeShare {
                cpus: match &least.named {
                    Some(named) => common.difference(named).union(&held),
                    None => common.iter().skip(left as usize).chain(held.iter()).collect(),
                },
                memory: Some(MemoryMib(shape.job_memory().saturating_sub(least.memory))),
                tasks: 0,
                gres,
            };
            if !least.idle {
                machine.take(node, &share, NodeUse::Cpus, Owner::ANYBODY);
                machine.floor.rooms[node].door = least.door;
                machine.floor.rooms[node].only_user = least.only_user;
                machine.floor.rooms[node].only_label = least.only_label;
            }
        }
        let limited = Limited::of(view);
        for (place, node) in view.nodes.iter().enumerate().filter(|_| !limited.is_empty()) {
            for hold in node.holds.iter().filter(|hold| hold.expected_end.is_none_or(|end| end > at)) {
                machine.count(limited.place(hold), place, &hold.share);
            }
        }
        for hold in planned.iter().filter(|hold| hold.end > at) {
            machine.count(limited.planned(hold), hold.node, &hold.share);
        }
        machine
    }

    fn build(
        view: &'a ClusterView,
        planned: &[&PlannedHold],
        remains: impl Fn(&NodeHold) -> Remains,
        usable_node: impl Fn(&NodeView) -> bool,
    ) -> Self {
        let count = view.nodes.len();
        let mut weights: Vec<u32> = view.nodes.iter().map(|n| n.weight).collect();
        weights.sort_unstable();
        weights.dedup();
        let empty = WeightClass { nodes: FixedBitSet::with_capacity(count), by_free: BTreeMap::new() };
        let floor = Floor {
            rooms: Vec::with_capacity(count),
            usable: FixedBitSet::with_capacity(count),
            idle: FixedBitSet::with_capacity(count),
            free_cpus: 0,
            classes: vec![empty; weights.len()],
            restricted: view.nodes.iter().any(|node| !node.shape.gpu_cpus.is_empty()),
            of_partitions: BTreeMap::new(),
            taken: Vec::new(),
        };
        let mut machine = Self { view, floor, closed: BTreeMap::new(), promised: BTreeMap::new() };
        let limited = Limited::of(view);
        for (place, node) in view.nodes.iter().enumerate() {
            let class = weights.binary_search(&node.weight).unwrap_or(0);
            let room = Room { class, ..Room::of(node, cpus_per_unit(node, view.policy.unit), &remains) };
            machine.floor.usable.set(place, usable_node(node));
            machine.floor.classes[class].nodes.insert(place);
            machine.floor.rooms.push(room);
            machine.enter(place);
            // What remains may take long to say.
            let counted = if limited.is_empty() { &[][..] } else { &node.holds[..] };
            for hold in counted.iter().filter(|hold| remains(hold) == Remains::All) {
                machine.count(limited.place(hold), place, &hold.share);
            }
        }
        planned.iter().for_each(|hold| machine.take_planned(hold));
        machine
    }

    /// As it is now, from what an earlier picture of the same nodes in the same service came to: only those are looked at that
    /// `changed`, and those of which something was taken that was only planned.
    pub fn renewed(view: &'a ClusterView, floor: Floor, changed: &[usize]) -> Self {
        let mut machine = Self { view, floor, closed: BTreeMap::new(), promised: BTreeMap::new() };
        let limited = Limited::of(view);
        let taken = std::mem::take(&mut machine.floor.taken);
        for &place in changed.iter().chain(&taken) {
            let node = &view.nodes[place];
            machine.leave(place);
            let Room { class, unit, .. } = machine.floor.rooms[place];
            machine.floor.rooms[place] = Room { class, ..Room::of(node, unit, |_| Remains::All) };
            machine.enter(place);
            let of_node = machine.floor.of_partitions.range((place, 0)..(place + 1, 0));
            for key in of_node.map(|(key, _)| *key).collect::<Vec<_>>() {
                machine.floor.of_partitions.remove(&key);
            }
            for hold in &node.holds {
                machine.count(limited.place(hold), place, &hold.share);
            }
        }
        machine
    }

    /// What is left when the picture is gone.
    pub fn into_floor(self) -> Floor {
        self.floor
    }

    /// Counts what is free on a node among what is free in all.
    fn enter(&mut self, node: usize) {
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
    fn leave(&mut self, node: usize) {
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
    fn count(&mut self, partition: Option<usize>, node: usize, share: &NodeShare) {
        if let Some(partition) = partition {
            self.floor.of_partitions.entry((node, partition)).or_default().add(&share.cpus);
        }
    }

    /// From now on places are looked for beside what has been promised to others of the partition.
    pub fn promise(&mut self, promised: BTreeMap<usize, u32>) {
        self.promised = promised;
    }

    /// How many CPUs more the request's partition may have of a node.
    fn left(&self, node: usize, request: &Request, held: &CpuSet) -> u32 {
        let promised = self.promised.get(&node).copied().unwrap_or(0);
        request.caps.left(&self.view.nodes[node].shape, held, promised)
    }

    /// What jobs of the request's partition have of a node, where that matters to it.
    fn held_by_partition(&self, node: usize, request: &Request) -> Option<CpuSet> {
        let held = || self.floor.of_partitions.get(&(node, request.partition)).cloned().unwrap_or_default();
        request.caps.count(request.usage).then(held)
    }

    /// The picture that this was built from.
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

    /// What the node could do for this request now; `None`: nothing.
    pub fn capacity(&self, node: usize, request: &Request) -> Option<Capacity> {
        let room = &self.floor.rooms[node];
        let shape = &self.view.nodes[node].shape;
        let closed = self.closed.get(&node).is_some_and(|closed| !closed.is_disjoint(&room.free));
        if closed && matches!(request.usage, NodeUse::Whole | NodeUse::User | NodeUse::Label) {
            return None;
        }
        let held = self.held_by_partition(node, request);
        let shares = self.shares(node, request.usage);
        let cpus = match shares {
            Some(most) => self.shareable_to(node, request, most).len(),
            None if closed || held.is_some() => self.open_to(node, request).len(),
            None => room.free_cpus,
        };
        let most = match &held {
            Some(_) if shares.is_some() => cpus,
            Some(held) if room.restricted.is_empty() => self.left(node, request, held),
            Some(held) => self.left(node, request, held).min(self.open_with(node, request, |_| true).len()),
            None => request.caps.most(shape),
        };
        let taken = |closed: &CpuSet| !closed.is_disjoint(&room.restricted);
        let per_gpu = if self.closed.get(&node).is_some_and(taken) { 0 } else { shape.cpus_per_gpu() };
        let capacity = room.amounts(shape).capacity_with((cpus, per_gpu, most), shape, room.unit, request)?;
        let capacity = match &request.gres {
            Some(gres) if binding::is_strict(gres) && !matches!(request.usage, NodeUse::Oversubscribe(_)) => {
                self.bound_capacity(node, request, capacity)?
            }
            _ => capacity,
        };
        match &request.layout {
            Some(layout) if layout.is_by_socket() && !matches!(request.usage, NodeUse::Oversubscribe(_)) => {
                let tasks =
                    capacity.tasks.min(layout.tasks_on(&self.open_to(node, request), shape, request.cpus_per_task));
                (tasks >= request.least_tasks()).then_some(Capacity { tasks, ..capacity })
            }
            _ => Some(capacity),
        }
    }

    /// What is left of a capacity where CPUs have to be near to GPUs.
    fn bound_capacity(&self, node: usize, request: &Request, capacity: Capacity) -> Option<Capacity> {
        let gres = request.gres.as_ref()?;
        let fits = |tasks: u32, total: Totals| {
            let part = Part { tasks, total };
            self.bound(node, request, gres, part, None).is_some()
        };
        let least = request.least_part();
        // CPUs that come with GPUs: only so many GPUs will do for so many tasks.
        let even = Part { tasks: capacity.tasks, total: capacity.total };
        if !self.floor.rooms[node].restricted.is_empty() && even == request.even_part() && fits(even.tasks, even.total)
        {
            return Some(capacity);
        }
        let tasks =
            greatest(capacity.tasks.into(), |tasks| fits(u32::try_from(tasks).unwrap_or(u32::MAX), least.total))?;
        let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
        let mut total = least.total;
        for place in 0..gres.total.len() {
            let most = capacity.total.at(place);
            total = total.with(place, greatest(most, |n| fits(tasks.min(least.tasks), total.with(place, n)))?);
        }
        (tasks >= request.least_tasks() && total.holds(&least.total)).then_some(Capacity { tasks, total, ..capacity })
    }

    /// CPUs and generic resources for a part of the request that are near to each other.
    fn bound(
        &self,
        node: usize,
        request: &Request,
        gres: &GresRequest,
        part: Part,
        most: Option<&GresAmounts>,
    ) -> Option<(CpuSet, Vec<GresShare>)> {
        let (room, shape) = (&self.floor.rooms[node], &self.view.nodes[node].shape);
        let cpus = cpus_of_part(shape, room.unit, request, part);
        let wanted = binding::Wanted { gres, need: gres.on_node(part.tasks, part.total), cpus };
        binding::choose(shape, &self.open_with(node, request, |_| true), &room.gres, &wanted, most)
    }

    /// The share for a part of the request on a node that has the capacity for it. `most` bounds what may be had of
    /// its generic resources; `None`: it is not to be had within that.
    pub fn share(&self, node: usize, request: &Request, part: Part, most: Option<&GresAmounts>) -> Option<NodeShare> {
        let room = &self.floor.rooms[node];
        let shape = &self.view.nodes[node].shape;
        let wanted = cpus_of_part(shape, room.unit, request, part);
        let by_socket = request.layout.is_some_and(|layout| layout.is_by_socket());
        let together = match (&request.gres, request.usage) {
            (Some(gres), NodeUse::Cpus | NodeUse::User | NodeUse::Label)
                if binding::matters(shape, gres) && !by_socket =>
            {
                match self.bound(node, request, gres, part, most) {
                    None if binding::is_strict(gres) => return None,
                    together => together,
                }
            }
            _ => None,
        };
        if let Some((cpus, gres)) = together {
            let memory = memory_of(shape, request, cpus.len(), part, room.memory).map(MemoryMib);
            return Some(NodeShare { cpus, memory, tasks: if request.tasks_named { part.tasks } else { 0 }, gres });
        }
        let gres = match (request.usage, &request.gres) {
            (NodeUse::Whole, _) => room.gres.everything(&shape.gres),
            (_, Some(gres)) => room.gres.choose(&shape.gres, &gres.on_node(part.tasks, part.total), most)?,
            (_, None) => Vec::new(),
        };
        let gpus = devices_in(&gres, GPU);
        let open = || self.open_with(node, request, |gpu| gpus.contains(gpu));
        let limited = request.caps.count(request.usage);
        let of_sockets = |open: &CpuSet, wanted: u32| {
            let each = request.layout.map_or_else(
                || cpus_of_task(shape, request),
                |layout| layout.cpus_for(1, shape, request.cpus_per_task),
            );
            sockets::choose(open, shape, request.over_sockets, (room.unit, each), wanted)
        };
        let cpus: CpuSet = match (request.usage, self.shares(node, request.usage)) {
            (NodeUse::Whole, _) => request.whole(shape).difference(&shape.cpus_of_gpus(|gpu| !gpus.contains(gpu))),
            (_, Some(most)) => room.least_shared(&self.shareable_to(node, request, most), wanted),
            _ => match &request.layout {
                Some(layout) if layout.is_by_socket() => layout.choose(&open(), shape, request, part.tasks, wanted),
                _ if self.closed.is_empty() && room.restricted.is_empty() && !limited => of_sockets(&room.free, wanted),
                _ => {
                    let (own, all) = (shape.cpus_of_gpus(|gpu| gpus.contains(gpu)), open());
                    let own = all.intersection(&own).take(wanted);
                    let whole = of_sockets(&all.difference(&own), wanted - own.len()).union(&own);
                    all.difference(&whole).take(wanted.saturating_sub(whole.len())).union(&whole)
                }
            },
        };
        let counted = limited || !room.restricted.is_empty();
        if counted && request.usage != NodeUse::Whole && cpus.len() < wanted {
            return None;
        }
        let memory = memory_of(shape, request, cpus.len(), part, room.memory).map(MemoryMib);
        Some(NodeShare { cpus, memory, tasks: if request.tasks_named { part.tasks } else { 0 }, gres })
    }
}

/// What is free on a node from now on: steps in order of time, the first from now. Of a node of which a part is reserved
/// (`parted`) also which CPUs.
pub fn futures(
    node: &NodeView,
    (unit, parted): (u32, bool),
    round: impl Fn(Timestamp) -> Timestamp,
    now: Timestamp,
    steps: &mut Vec<Step>,
) {
    let mut held: Vec<(Timestamp, &NodeHold)> =
        node.holds.iter().map(|hold| (hold.expected_end.filter(|_| !hold.kept).map_or(NEVER, &round), hold)).collect();
    held.sort_unstable_by_key(|(end, _)| std::cmp::Reverse(*end));
    if held.is_empty() && !parted {
        steps.push(Step { from: now, free: Free::all(&node.shape) });
        return;
    }
    let mut room = Room::all(node, unit);
    let amounts = |room: &Room| {
        let free = room.amounts(&node.shape);
        if parted { free.with_named(room.whole_units().collect()) } else { free }
    };
    for (end, hold) in held {
        let free = amounts(&room);
        if end < NEVER && steps.last().is_none_or(|later| later.from > end) {
            steps.push(Step { from: end, free });
        }
        room.add(&node.shape.gres, &hold.share, used_as(hold.sharing), Owner::of(hold));
    }
    steps.push(Step { from: now, free: amounts(&room) });
    steps.reverse();
    steps.dedup_by(|later, earlier| later.free == earlier.free);
}

/// How somebody uses a node, of whom is not known how many others he allows on his CPUs.
const fn used_as(sharing: Sharing) -> NodeUse {
    match sharing {
        Sharing::Default => NodeUse::Cpus,
        Sharing::Exclusive => NodeUse::Whole,
        Sharing::User => NodeUse::User,
        Sharing::Mcs => NodeUse::Label,
        Sharing::Oversubscribe => NodeUse::Oversubscribe(u32::MAX),
    }
}

impl Room {
    fn all(node: &NodeView, unit: u32) -> Self {
        Self {
            unit,
            free: node.shape.job_cpus(),
            restricted: node.shape.restricted_cpus(),
            free_cpus: node.shape.common_cpu_count(),
            memory: node.shape.job_memory(),
            gres: GresPool::all(&node.shape.gres),
            door: Door::Open,
            only_user: None,
            only_label: None,
            holders: 0,
            shared: BTreeMap::new(),
            alone: CpuSet::new(),
            class: 0,
        }
    }

    /// With what remains of what is held of it.
    fn of(node: &NodeView, unit: u32, remains: impl Fn(&NodeHold) -> Remains) -> Self {
        let mut room = Self::all(node, unit);
        for hold in &node.holds {
            match remains(hold) {
                Remains::All => room.add(&node.shape.gres, &hold.share, used_as(hold.sharing), Owner::of(hold)),
                Remains::ButCpus => room.add_but_cpus(&node.shape.gres, &hold.share),
                Remains::Nothing => {}
            }
        }
        room
    }

    fn add(&mut self, entries: &[GresEntry], share: &NodeShare, usage: NodeUse, owner: Owner) {
        self.free.subtract(&share.cpus);
        if let NodeUse::Oversubscribe(most_holders) = usage {
            for cpu in share.cpus.iter() {
                let (holders, most) = self.shared.entry(cpu).or_insert((0, u32::MAX));
                *holders += 1;
                *most = (*most).min(most_holders);
            }
        } else {
            self.alone.add(&share.cpus);
        }
        let plain = self.unit == 1 && self.restricted.is_empty();
        self.free_cpus = if plain { self.free.len() } else { u32::try_from(self.whole_units().count()).unwrap_or(0) };
        self.memory = self.memory.saturating_sub(share.memory.map_or(0, |m| m.0));
        self.gres.take(entries, &share.gres);
        let Owner { user, label } = owner;
        self.only_user = Some(user).filter(|_| self.holders == 0 || self.only_user == Some(user));
        self.only_label = Some(label).filter(|_| self.holders == 0 || self.only_label == Some(label));
        self.holders += 1;
        self.door = self.door.behind(usage, owner);
    }

    fn add_but_cpus(&mut self, entries: &[GresEntry], share: &NodeShare) {
        self.memory = self.memory.saturating_sub(share.memory.map_or(0, |m| m.0));
        self.gres.take(entries, &share.gres);
    }

    /// In amounts, of a node of that shape.
    fn amounts(&self, shape: &NodeShape) -> Free {
        let sharing = || self.shared.iter().filter(|(cpu, _)| !self.alone.contains(**cpu));
        let sharers: u32 = sharing().map(|(_, (holders, _))| holders).sum();
        let free =
            if self.restricted.is_empty() { self.free.len() } else { self.free.difference(&self.restricted).len() };
        let shareable = free + u32::try_from(sharing().count()).unwrap_or(0);
        Free {
            cpus: self.free_cpus,
            shareable: shareable.min(shape.cpus),
            sharers,
            memory: self.memory,
            gres: GresAmounts::free(&shape.gres, &self.gres),
            door: self.door,
            idle: self.holders == 0,
            only_user: self.only_user,
            only_label: self.only_label,
            named: None,
        }
    }

    /// Free CPUs in ascending order, without those that come with GPUs, leaving out units of which a part is taken.
    fn whole_units(&self) -> impl Iterator<Item = u32> + '_ {
        let common = |cpu: u32| self.restricted.is_empty() || !self.restricted.contains(cpu);
        whole_units(&self.free, self.unit).filter(move |cpu| common(*cpu))
    }

    /// CPUs that one more sharing holder may have: free, or held by sharing holders only, fewer than all of them allow.
    fn shareable(&self, cpus: u32, most: u32) -> impl Iterator<Item = u32> + '_ {
        (0..cpus).filter(|cpu| !self.restricted.contains(*cpu)).filter(move |cpu| {
            self.free.contains(*cpu)
                || !self.alone.contains(*cpu)
                    && self.shared.get(cpu).is_some_and(|(holders, allowed)| *holders < most.min(*allowed))
        })
    }

    fn least_shared(&self, cpus: &CpuSet, wanted: u32) -> CpuSet {
        let mut choice: Vec<(u32, u32)> =
            cpus.iter().map(|cpu| (self.shared.get(&cpu).map_or(0, |s| s.0), cpu)).collect();
        choice.sort_unstable();
        choice.into_iter().take(wanted as usize).map(|(_, cpu)| cpu).collect()
    }
}
