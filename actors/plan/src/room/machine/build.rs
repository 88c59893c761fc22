//! Machines from snapshots: as they are now, as planned for a later time, or without some holds.

use super::{Floor, Machine, PlannedHold, Room, WeightClass};
use crate::{
    room::{
        horizon::Horizon,
        node::{free::Free, room::Remains},
    },
    snapshot::{
        caps::CpuCaps,
        facts::{ClusterView, cpus_per_unit, in_service},
        request::{NodeUse, Owner},
    },
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    gres::{GPU, devices_used},
    ids::JobId,
    node_shape::NodeShare,
    resources::MemoryMib,
    time::Timestamp,
    view::{NodeHold, NodeView},
};
use std::collections::BTreeMap;

/// Partitions with CPU limits, by name.
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

impl<'a> Machine<'a> {
    /// As the snapshot shows it.
    pub fn now(view: &'a ClusterView) -> Self {
        Self::build(view, &[], |_| Remains::All, in_service)
    }

    /// As it is now after the `planned` starts, for a job that has nodes kept for it: to other jobs those are taken.
    pub(crate) fn now_for(view: &'a ClusterView, job: JobId, planned: &[PlannedHold]) -> Self {
        let planned: Vec<&PlannedHold> = planned.iter().collect();
        Self::build(view, &planned, |hold| Remains::all_if(!(hold.kept && hold.job == job)), in_service)
    }

    /// As it would be at `at` if nothing but the `planned` starts happened: holds that end by then are gone. What is kept for
    /// `job` is free to it.
    pub(crate) fn at(view: &'a ClusterView, at: Timestamp, planned: &[PlannedHold], job: JobId) -> Self {
        let planned: Vec<&PlannedHold> = planned.iter().filter(|p| p.end > at).collect();
        let still_held =
            |hold: &NodeHold| hold.expected_end.is_none_or(|end| end > at) && !(hold.kept && hold.job == job);
        Self::build(view, &planned, |hold| Remains::all_if(still_held(hold)), in_service)
    }

    /// As it would be now after the `planned` starts, with nothing else on the nodes but what `remains` returns.
    pub(crate) fn without(
        view: &'a ClusterView,
        planned: &[PlannedHold],
        remains: impl Fn(&NodeHold) -> Remains,
    ) -> Self {
        let planned: Vec<&PlannedHold> = planned.iter().collect();
        Self::build(view, &planned, remains, in_service)
    }

    /// With all nodes in service idle.
    pub fn idle(view: &'a ClusterView) -> Self {
        Self::build(view, &[], |_| Remains::Nothing, in_service)
    }

    /// With every configured node idle and in service.
    pub(crate) fn ideal(view: &'a ClusterView) -> Self {
        Self::build(view, &[], |_| Remains::Nothing, |_| true)
    }

    /// As it is planned to be during the whole interval from `at` until `until`. Which CPUs are meant is not known that far
    /// ahead: the lowest ones stand for as many.
    pub(crate) fn ahead(
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
        let mut weights: Vec<u64> = view.nodes.iter().map(|n| n.rank()).collect();
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
            let class = weights.binary_search(&node.rank()).unwrap_or(0);
            let room = Room { class, ..Room::of(node, cpus_per_unit(node, view.policy.unit), &remains) };
            machine.floor.usable.set(place, usable_node(node));
            machine.floor.classes[class].nodes.insert(place);
            machine.floor.rooms.push(room);
            machine.enter(place);
            // `remains` may be slow.
            let counted = if limited.is_empty() { &[][..] } else { &node.holds[..] };
            for hold in counted.iter().filter(|hold| remains(hold) == Remains::All) {
                machine.count(limited.place(hold), place, &hold.share);
            }
        }
        planned.iter().for_each(|hold| machine.take_planned(hold));
        machine
    }

    /// As it is now, computed from the state of an earlier snapshot with the same nodes in the same service: only nodes that
    /// `changed`, and those of which something was taken that was only planned, are examined.
    pub(crate) fn renewed(view: &'a ClusterView, floor: Floor, changed: &[usize]) -> Self {
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

    /// The state that outlives the snapshot.
    pub(crate) fn into_floor(self) -> Floor {
        self.floor
    }
}
