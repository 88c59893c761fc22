//! How much of a request a node can hold, and the share of the node that a part of the request gets.

use super::Machine;
use crate::{
    room::node::{
        binding,
        free::{Capacity, cpus_of_part, cpus_of_task, greatest, memory_of},
        sockets,
    },
    snapshot::request::{NodeUse, Part, Request, is_strict},
};
use garrick_model::{
    gres::{GPU, GresAmounts, GresRequest, GresShare, Totals, devices_in},
    node_shape::NodeShare,
    resources::{CpuSet, MemoryMib},
};

impl Machine<'_> {
    /// How much of this request the node could hold now; `None`: nothing.
    pub(crate) fn capacity(&self, node: usize, request: &Request) -> Option<Capacity> {
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
            Some(gres) if is_strict(gres) && !matches!(request.usage, NodeUse::Oversubscribe(_)) => {
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

    /// The capacity that remains if CPUs have to be near to GPUs.
    fn bound_capacity(&self, node: usize, request: &Request, capacity: Capacity) -> Option<Capacity> {
        let gres = request.gres.as_ref()?;
        let fits = |tasks: u32, total: Totals| {
            let part = Part { tasks, total };
            self.bound(node, request, gres, part, None).is_some()
        };
        let least = request.least_part();
        // CPUs come with GPUs: only certain numbers of GPUs are enough for the tasks.
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

    /// The share for a part of the request on a node that has the capacity for it. `most` limits its generic resources; `None`:
    /// the part does not fit within that.
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
                    None if is_strict(gres) => return None,
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
