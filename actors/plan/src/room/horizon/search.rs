//! The earliest time at which nodes together have room for a request.

use super::{
    Class, Found, Horizon, Index, Kind, LENGTHS, Query, SLOT, SLOTS, Slot, index,
    window::{Room, Sought, common_cpus, counts_by_gpus},
};
use crate::{
    room::node::free::Capacity,
    snapshot::{
        facts::NEVER,
        request::{Part, Request},
    },
};
use fixedbitset::FixedBitSet;
use garrick_model::{gres::Totals, time::Timestamp};
use std::{collections::BinaryHeap, time::Duration};

impl Horizon {
    /// Nodes of a class that the request may use.
    pub(super) fn open(class: &Class, query: &Query<'_>) -> u32 {
        if query.request.exclude.is_empty() {
            index(class.members.len())
        } else {
            index(class.members.iter().filter(|n| query.candidates.contains(**n as usize)).count())
        }
    }

    /// May the request use nodes of that kind?
    pub(super) fn takes(kind: &Kind, query: &Query<'_>) -> bool {
        kind.usable && (!query.request.exclude.is_empty() || query.candidates.contains(kind.sample))
    }

    /// The index for that many tasks on a node of that kind, made when it is first needed; `None` where no index helps.
    fn index_for(&mut self, kind: usize, query: &Query<'_>, level: Part) -> Option<usize> {
        let of_kind = &self.kinds[kind];
        let room = match Room::least(of_kind, query.request, level)? {
            Room::Cpus(cpus) => Room::Cpus(1 << (31 - cpus.max(1).leading_zeros())),
            Room::Idle => Room::Idle,
        };
        let minutes =
            LENGTHS.iter().rev().find(|m| Duration::from_secs(**m * 60) <= query.length).copied().unwrap_or(0);
        let length = Duration::from_secs(minutes * 60);
        let known = of_kind.indexes.iter().position(|index| index.room == room && index.length == length);
        if known.is_some() {
            return known;
        }
        let mut new = Index::new(room, length);
        let place = self.kinds[kind].indexes.len();
        for (number, class) in self.classes.iter_mut().enumerate().filter(|(_, c)| c.kind as usize == kind) {
            let slot = new.slot(&class.brief, self.origin);
            new.at(slot).push(index(number));
            class.slots.push(slot);
        }
        self.kinds[kind].indexes.push(new);
        Some(place)
    }

    /// Calls back for each class that may have room for `level` before `until`, some of them only later; each class once.
    pub(super) fn visit(
        &mut self,
        query: &Query<'_>,
        level: Part,
        mut look: impl FnMut(&Class, &Sought<'_>, u32) -> Timestamp,
    ) {
        self.search += 1;
        for kind in 0..self.kinds.len() {
            if !Self::takes(&self.kinds[kind], query) {
                continue;
            }
            let Some(place) = self.index_for(kind, query, level) else {
                let sought = Sought::on(&self.kinds[kind], query, level);
                for (number, class) in self.classes.iter().enumerate().filter(|(_, c)| c.kind as usize == kind) {
                    look(class, &sought, index(number));
                }
                continue;
            };
            let mut bound = NEVER;
            for slot in (0..).take(SLOTS) {
                if self.origin.0 + i64::from(slot) * SLOT > bound.0 {
                    break;
                }
                let slots = &mut self.kinds[kind].indexes[place];
                if slots.is_empty(slot) {
                    continue;
                }
                let mut entries = std::mem::take(slots.at(slot));
                entries.retain(|number| {
                    let class = &mut self.classes[*number as usize];
                    let here = class.kind as usize == kind
                        && class.slots.get(place) == Some(&slot)
                        && class.visited != self.search
                        && !class.members.is_empty();
                    class.visited = if here { self.search } else { class.visited };
                    here
                });
                let sought = Sought::on(&self.kinds[kind], query, level);
                for number in &entries {
                    bound = bound.min(look(&self.classes[*number as usize], &sought, *number));
                }
                *self.kinds[kind].indexes[place].at(slot) = entries;
            }
        }
    }

    /// Tasks that fit on the nodes from now on during `length`, as bounds of a start now; false if that cannot be enough.
    pub(crate) fn room_now(
        &mut self,
        request: &Request,
        candidates: &FixedBitSet,
        length: Duration,
        limits: &mut Limits,
    ) -> bool {
        limits.clear(self.classes.len(), candidates.len());
        let least = request.least_part();
        let query = Query { request, candidates, length };
        let (now, until) = (self.now, self.now.plus(length));
        let (mut nodes, mut sum, mut total) = (0u64, 0u64, Totals::NONE);
        self.visit(&query, least, |class, sought, number| {
            if let Some(part) = sought.room_during(class, now, until) {
                limits.parts[number as usize] = part;
                limits.set.push(number);
                for node in class.members.iter().map(|n| *n as usize).filter(|n| candidates.contains(*n)) {
                    limits.open.insert(node);
                    nodes += 1;
                    sum += u64::from(part.tasks);
                    total = total.plus(part.total);
                }
            }
            // Later starts do not matter here.
            now
        });
        nodes >= u64::from(request.min_nodes)
            && sum >= u64::from(request.total_tasks())
            && total.holds(&request.total_gres())
    }

    /// The earliest time from `from` to `until` at which the request could run for `length`, and nodes for it, if nodes need not
    /// be neighbours or named ones. Nodes that others leave last are preferred, so that what is free now stays free.
    ///
    /// Each node gets an equal number of tasks. An unequal distribution may fit earlier; starts now are not restricted in this
    /// way.
    pub fn earliest(
        &mut self,
        request: &Request,
        candidates: &FixedBitSet,
        (from, until): (Timestamp, Timestamp),
        length: Duration,
    ) -> Option<Slot> {
        let query = Query { request, candidates, length };
        let mut best: Option<(Timestamp, Vec<(usize, Part)>)> = None;
        for (level, nodes) in levels(request) {
            let until = best.as_ref().map_or(until, |(at, _)| Timestamp(at.0 - 1));
            if let Some(at) = self.when(&query, level, nodes, (from, until)) {
                let chosen = self.choose(&query, level);
                // The last node may have fewer GPUs, and too few CPUs with them.
                let short = |(node, part): &(usize, Part)| {
                    let kind = &self.kinds[self.classes[self.class_of(*node)].kind as usize];
                    counts_by_gpus(kind, request)
                        && common_cpus(kind, request, *part) > common_cpus(kind, request, level)
                };
                if chosen.iter().any(short) {
                    continue;
                }
                best = Some((at, chosen));
                if at <= from {
                    break;
                }
            }
        }
        best.map(|(at, nodes)| Slot { at, nodes })
    }

    /// When so many nodes at once have room for `level` each. The classes found are kept for [`Horizon::choose`].
    pub(super) fn when(
        &mut self,
        query: &Query<'_>,
        level: Part,
        nodes: u32,
        (from, until): (Timestamp, Timestamp),
    ) -> Option<Timestamp> {
        let mut from = from;
        let mut found = std::mem::take(&mut self.found);
        let at = loop {
            found.clear();
            let mut nearest: BinaryHeap<(Timestamp, u32)> = BinaryHeap::new();
            let mut near = 0u64;
            self.visit(query, level, |class, sought, number| {
                let bound = |nearest: &BinaryHeap<(Timestamp, u32)>, near: u64| {
                    let enough = near >= u64::from(nodes);
                    nearest.peek().filter(|_| enough).map_or(until, |(at, _)| *at)
                };
                if let Some((begin, since)) = sought.window(class, (from, bound(&nearest, near))) {
                    let open = Self::open(class, query);
                    if open > 0 {
                        found.push(Found { begin, since, class: number });
                        nearest.push((begin, open));
                        near += u64::from(open);
                        while let Some((_, last)) = nearest.peek()
                            && near - u64::from(*last) >= u64::from(nodes)
                        {
                            near -= u64::from(*last);
                            nearest.pop();
                        }
                    }
                }
                bound(&nearest, near)
            });
            match nearest.peek() {
                Some((at, _)) if near >= u64::from(nodes) => {
                    // Classes that had room before may have none any more.
                    if *at == from {
                        break Some(from);
                    }
                    from = *at;
                }
                _ => break None,
            }
        };
        found.retain(|f| at.is_some_and(|at| f.begin <= at));
        self.found = found;
        at
    }

    /// Nodes for the request, out of the classes found last.
    fn choose(&mut self, query: &Query<'_>, level: Part) -> Vec<(usize, Part)> {
        let Query { request, candidates, .. } = *query;
        let mut found = std::mem::take(&mut self.found);
        let rank = |f: &Found| {
            let class = &self.classes[f.class as usize];
            let weight = self.kinds[class.kind as usize].weight;
            (weight, std::cmp::Reverse(f.since), class.members.first().copied(), f.class)
        };
        found.sort_by_cached_key(rank);
        let mut left = request.total_tasks().max(1);
        let mut total = request.total_gres();
        let mut nodes: Vec<(usize, Part)> = Vec::new();
        'found: for f in &found {
            let members = self.classes[f.class as usize].members.iter().map(|n| *n as usize);
            for node in members.filter(|n| request.exclude.is_empty() || candidates.contains(*n)) {
                if left == 0 && total.is_none() && nodes.len() >= request.min_nodes as usize {
                    break 'found;
                }
                let least = request.least_part();
                let part = Part {
                    tasks: level.tasks.min(left).max(request.least_tasks()),
                    total: level.total.min(total).max(least.total),
                };
                left = left.saturating_sub(part.tasks);
                total = total.less(part.total);
                nodes.push((node, part));
            }
        }
        self.found = found;
        nodes
    }
}

/// Tasks that fit on each node during the whole time of a start now.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// By class.
    parts: Vec<Part>,
    /// Classes whose entry is not 0.
    set: Vec<u32>,
    open: FixedBitSet,
}

impl Limits {
    fn clear(&mut self, classes: usize, nodes: usize) {
        for class in self.set.drain(..) {
            self.parts[class as usize] = Part::default();
        }
        self.parts.resize(classes.max(self.parts.len()), Part::default());
        self.open.clear();
        self.open.grow(nodes);
    }

    /// Nodes on which at least one task fits.
    pub const fn open(&self) -> &FixedBitSet {
        &self.open
    }

    /// Limits a node's current capacity to what fits during the whole time; `None` if that is less than `least`.
    pub(crate) fn bound(&self, class: usize, capacity: Capacity, least: Part) -> Option<Capacity> {
        let part = self.parts.get(class).copied().unwrap_or_default();
        let tasks = capacity.tasks.min(part.tasks);
        let total = capacity.total.min(part.total);
        (tasks >= least.tasks.max(1) && total.holds(&least.total)).then_some(Capacity { tasks, total, ..capacity })
    }
}

/// Equal parts of the request for each node, with the number of nodes that this takes: few nodes first.
pub(super) fn levels(request: &Request) -> Vec<(Part, u32)> {
    let (total, gres) = (request.total_tasks().max(1), request.total_gres());
    let mut levels = Vec::new();
    let mut tasks = total.div_ceil(request.min_nodes.max(1)).max(request.least_tasks());
    loop {
        let nodes = total.div_ceil(tasks).max(request.min_nodes);
        if nodes > request.max_nodes {
            break;
        }
        levels.push((Part { tasks, total: gres.part(nodes.into()) }, nodes));
        if tasks <= request.least_tasks() {
            break;
        }
        tasks = (tasks / 2).max(request.least_tasks());
    }
    // The total of generic resources may take more nodes than the tasks need.
    let most = u64::from(request.max_nodes).min(gres.most_nodes());
    let mut nodes = levels.last().map_or(0, |(_, nodes)| u64::from(*nodes)) * 2;
    while nodes > 0 && nodes / 2 < most {
        let count = u32::try_from(nodes.min(most)).unwrap_or(u32::MAX);
        let tasks = total.div_ceil(count).max(request.least_tasks());
        levels.push((Part { tasks, total: gres.part(count.into()) }, count));
        nodes *= 2;
    }
    levels
}
