//! Which nodes a request gets, and how many tasks go on each. The rules, in order:
//!
//! 1. nodes named by `--nodelist`, all of them;
//! 2. nodes of lower `Weight` before nodes of higher;
//! 3. among equals, the node with the fewest free CPUs that holds an even share of what is still missing (best fit), and
//!    where no node holds an even share, the node with the most free CPUs;
//! 4. among those, configuration order.
//!
//! With `LLN` the node with the most free CPUs goes first in place of rule 3. If the job would need more nodes than it may have,
//! the nodes with most free CPUs are tried regardless of weight before giving up. Tasks then fill the chosen nodes in
//! configuration order, with at least one on every node. On whole nodes they are distributed evenly unless they are packed, and
//! with `-m arbitrary` as a list says.

use super::{
    horizon::{Horizon, Limits},
    machine::Machine,
    mixed,
    node::free::Capacity,
    sizes, topology,
};
use crate::snapshot::request::{NodeUse, Part, Request};
use fixedbitset::FixedBitSet;
use garrick_model::{
    gres::{GresAmounts, Totals},
    time::Timestamp,
    view::AllocatedNode,
};

/// A chosen node and the tasks that it could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pick {
    node: usize,
    capacity: u32,
    /// Of what is requested for all nodes together.
    total: Totals,
}

/// What is planned for later limits what may start now: tasks that fit on a node during the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'b> {
    /// The plan so far.
    pub(crate) horizon: &'b Horizon,
    /// Tasks by class.
    pub limits: &'b Limits,
    /// Begin and end of a run that starts now.
    pub run: (Timestamp, Timestamp),
}

/// Nodes for the request out of `candidates`, with their shares; `None` if it does not fit.
pub fn place(machine: &Machine<'_>, request: &Request, candidates: &FixedBitSet) -> Option<Vec<AllocatedNode>> {
    place_within(machine, request, candidates, None)
}

/// The same, within what is planned.
pub(crate) fn place_within(
    machine: &Machine<'_>,
    request: &Request,
    candidates: &FixedBitSet,
    bound: Option<Bound<'_>>,
) -> Option<Vec<AllocatedNode>> {
    sizes::of_sizes(request, &|request| place_sized(machine, request, candidates, bound))
}

fn place_sized(
    machine: &Machine<'_>,
    request: &Request,
    candidates: &FixedBitSet,
    bound: Option<Bound<'_>>,
) -> Option<Vec<AllocatedNode>> {
    if request.unknown_nodes {
        return None;
    }
    let open = open(machine, request, candidates, bound);
    match &request.mix {
        Some(mix) => mixed::place(machine, request, mix, (candidates, &open), bound),
        None => place_open(machine, request, (candidates, open), bound, None),
    }
}

/// The same without the nodes of `apart`, which still count for the size of a block.
pub(crate) fn place_apart(
    machine: &Machine<'_>,
    request: &Request,
    (candidates, without): (&FixedBitSet, &FixedBitSet),
    bound: Bound<'_>,
) -> Option<Vec<AllocatedNode>> {
    let mut open = open(machine, request, candidates, Some(bound));
    open.difference_with(without);
    place_open(machine, request, (candidates, open), Some(bound), None)
}

/// Further conditions on the nodes, for topologies that offer several choices.
#[derive(Clone, Copy)]
pub(crate) struct Besides<'b> {
    /// Are these nodes acceptable?
    pub fits: &'b dyn Fn(&Vec<AllocatedNode>) -> bool,
    /// Reduces a set of nodes to one that is more likely to be acceptable.
    pub thin: &'b dyn Fn(&FixedBitSet) -> FixedBitSet,
}

/// The same out of `some` of the candidates; all candidates count for the size of a block.
pub(crate) fn place_some(
    machine: &Machine<'_>,
    request: &Request,
    (members, some): (&FixedBitSet, &FixedBitSet),
    bound: Option<Bound<'_>>,
    besides: Besides<'_>,
) -> Option<Vec<AllocatedNode>> {
    if request.unknown_nodes {
        return None;
    }
    let open = open(machine, request, some, bound);
    let nodes = match &request.mix {
        Some(mix) => mixed::place(machine, request, mix, (members, &open), bound),
        None => place_open(machine, request, (members, open), bound, Some(besides)),
    };
    nodes.filter(besides.fits)
}

/// Nodes out of `open`, whatever their features.
pub(crate) fn place_open(
    machine: &Machine<'_>,
    request: &Request,
    (members, open): (&FixedBitSet, FixedBitSet),
    bound: Option<Bound<'_>>,
    besides: Option<Besides<'_>>,
) -> Option<Vec<AllocatedNode>> {
    match machine.view().topology(request.partition) {
        Some(topology) if request.near.is_some() => {
            topology::place(topology.as_ref(), machine, request, (members, open), bound, besides)
        }
        _ => place_among(machine, request, open, bound),
    }
}

/// Nodes that may be considered.
fn open(machine: &Machine<'_>, request: &Request, candidates: &FixedBitSet, bound: Option<Bound<'_>>) -> FixedBitSet {
    let mut open = candidates.clone();
    machine.restrict(&mut open, request.usage);
    if let Some(bound) = bound {
        open.intersect_with(bound.limits.open());
    }
    open
}

/// Nodes out of these, whatever the topology.
pub(crate) fn place_among(
    machine: &Machine<'_>,
    request: &Request,
    open: FixedBitSet,
    bound: Option<Bound<'_>>,
) -> Option<Vec<AllocatedNode>> {
    let mut picks = choose(machine, request, open, bound)?;
    let topologies = &machine.view().policy.topologies;
    if topologies.is_empty() {
        picks.sort_unstable_by_key(|p| p.node);
    } else {
        picks.sort_unstable_by_key(|p| (topologies.rank(p.node), p.node));
    }
    lay_out(machine, request, &picks, bound)
}

/// How much of the request the node can hold, within what is reserved for others.
fn capacity_within(
    machine: &Machine<'_>,
    request: &Request,
    node: usize,
    bound: Option<Bound<'_>>,
) -> Option<Capacity> {
    let capacity = machine.capacity(node, request)?;
    match bound {
        Some(Bound { horizon, limits, .. }) => limits.bound(horizon.class_of(node), capacity, request.least_part()),
        None => Some(capacity),
    }
}

/// Tasks of the request that the node could run.
pub(crate) fn tasks_on(machine: &Machine<'_>, request: &Request, node: usize, bound: Option<Bound<'_>>) -> u32 {
    capacity_within(machine, request, node, bound).map_or(0, |capacity| capacity.tasks)
}

fn choose(machine: &Machine<'_>, request: &Request, open: FixedBitSet, bound: Option<Bound<'_>>) -> Option<Vec<Pick>> {
    let mut search = Search {
        machine,
        request,
        bound,
        open,
        picks: Vec::new(),
        missing: request.total_tasks(),
        missing_total: request.total_gres(),
    };
    for index in &request.nodelist {
        let node = index.0 as usize;
        if !search.open.contains(node) {
            return None;
        }
        let mut capacity = search.capacity(node)?;
        if request.listed.is_some() {
            let tasks = request.tasks_listed_on(node)?;
            if capacity.tasks < tasks {
                return None;
            }
            capacity.tasks = tasks;
        }
        search.add(node, capacity);
    }
    if request.contiguous {
        return search.contiguous();
    }
    if machine.view().policy.serial_at_end && request.is_serial() && search.picks.is_empty() {
        return search.last();
    }
    let required = search.clone();
    search.frugal().or_else(|| required.widest())
}

#[derive(Clone)]
struct Search<'m, 'a> {
    machine: &'m Machine<'a>,
    request: &'m Request,
    bound: Option<Bound<'m>>,
    open: FixedBitSet,
    picks: Vec<Pick>,
    /// Tasks without a node so far.
    missing: u32,
    /// What is still missing of the total for all nodes together.
    missing_total: Totals,
}

impl Search<'_, '_> {
    fn capacity(&self, node: usize) -> Option<Capacity> {
        capacity_within(self.machine, self.request, node, self.bound)
    }

    fn count(&self) -> u32 {
        u32::try_from(self.picks.len()).unwrap_or(u32::MAX)
    }

    fn enough(&self) -> bool {
        self.missing == 0
            && self.missing_total.is_none()
            && self.count() >= self.request.min_nodes
            && self.count() <= self.request.max_nodes
    }

    fn add(&mut self, node: usize, capacity: Capacity) {
        self.open.set(node, false);
        self.missing = self.missing.saturating_sub(capacity.tasks);
        self.missing_total = self.missing_total.less(capacity.total);
        self.picks.push(Pick { node, capacity: capacity.tasks, total: capacity.total });
    }

    /// CPUs that a node must have free to run that many tasks.
    fn cpus_for(&self, tasks: u32) -> u32 {
        if self.machine.counts_by_gpus(self.request) {
            return 0;
        }
        if self.request.usage == NodeUse::Whole || self.request.layout.is_some_and(|layout| layout.overcommit) {
            return 1;
        }
        tasks.saturating_mul(self.request.cpus_per_task).max(self.request.min_cpus).max(1)
    }

    /// The first node of a class that has room for at least `part`. Nodes that are found to be useless are not examined again.
    fn find(&mut self, class: usize, part: Part, widest: bool) -> Option<(usize, Capacity)> {
        let least = self.cpus_for(part.tasks);
        let mut useless = Vec::new();
        let mut found = None;
        let usage = self.request.usage;
        let nodes = if widest {
            self.machine.widest_first(class, least, usage, &self.open)
        } else {
            self.machine.tightest_first(class, least, usage, &self.open)
        };
        for node in nodes {
            match self.capacity(node) {
                Some(c) if c.tasks >= part.tasks && c.total.holds(&part.total) => {
                    found = Some((node, c));
                    break;
                }
                Some(_) => {}
                None => useless.push(node),
            }
        }
        for node in useless {
            self.open.set(node, false);
        }
        found
    }

    fn frugal(mut self) -> Option<Vec<Pick>> {
        let least = Part { tasks: self.request.least_tasks(), ..self.request.least_part() };
        for class in 0..self.machine.classes() {
            while !self.enough() {
                if self.count() >= self.request.max_nodes {
                    return None;
                }
                let nodes_left = self.request.min_nodes.saturating_sub(self.count()).max(1);
                let even = Part {
                    tasks: self.missing.div_ceil(nodes_left).max(least.tasks),
                    total: self.missing_total.part(nodes_left.into()).max(least.total),
                };
                let next = self.find(class, even, self.request.least_loaded).or_else(|| self.find(class, least, true));
                match next {
                    Some((node, capacity)) => self.add(node, capacity),
                    None => break,
                }
            }
            if self.enough() {
                break;
            }
        }
        if !self.enough() {
            return None;
        }
        // A range of numbers of nodes was requested: as many as are free.
        let most = match self.request.tasks {
            Some(tasks) => self.request.want_nodes.min(tasks),
            None => self.request.want_nodes,
        };
        for class in 0..self.machine.classes() {
            while self.count() < most {
                match self.find(class, least, self.request.least_loaded) {
                    Some((node, capacity)) => self.add(node, capacity),
                    None => break,
                }
            }
        }
        Some(self.picks)
    }

    /// The last node with room, among those of the lowest weight.
    fn last(mut self) -> Option<Vec<Pick>> {
        for class in 0..self.machine.classes() {
            let nodes = self.machine.with_free(class, 1, &self.open);
            let fits = |node: usize| self.capacity(node).filter(|capacity| capacity.tasks > 0).map(|c| (node, c));
            if let Some((node, capacity)) = nodes.ones().rev().find_map(fits) {
                self.add(node, capacity);
                return self.enough().then_some(self.picks);
            }
        }
        None
    }

    fn widest(mut self) -> Option<Vec<Pick>> {
        let mut all: Vec<Pick> = self
            .open
            .ones()
            .filter_map(|node| self.capacity(node).map(|c| Pick { node, capacity: c.tasks, total: c.total }))
            .collect();
        all.sort_by_key(|p| (std::cmp::Reverse((p.total.sum(), p.capacity)), self.machine.class_of(p.node), p.node));
        for pick in all {
            if self.enough() || self.count() >= self.request.max_nodes {
                break;
            }
            self.add(pick.node, Capacity { tasks: pick.capacity, cpus: 0, total: pick.total });
        }
        self.enough().then_some(self.picks)
    }

    /// The first run of consecutive nodes that is enough and includes all named nodes.
    fn contiguous(self) -> Option<Vec<Pick>> {
        let named: Vec<Pick> = self.picks.clone();
        let mut open = self.open.clone();
        open.extend(named.iter().map(|p| p.node));
        let mut run: std::collections::VecDeque<Pick> = std::collections::VecDeque::new();
        let (mut tasks, mut total) = (0u64, Totals::NONE);
        let needed = u64::from(self.request.total_tasks());
        for node in open.ones() {
            let Some(Capacity { tasks: capacity, total: gres, .. }) = self.capacity(node) else {
                run.clear();
                (tasks, total) = (0, Totals::NONE);
                continue;
            };
            if run.back().is_some_and(|last| last.node + 1 != node) {
                run.clear();
                (tasks, total) = (0, Totals::NONE);
            }
            run.push_back(Pick { node, capacity, total: gres });
            tasks += u64::from(capacity);
            total = total.plus(gres);
            while run.len() > self.request.max_nodes as usize
                && let Some(first) = run.pop_front()
            {
                tasks -= u64::from(first.capacity);
                total = total.less(first.total);
            }
            let first = run.front().map_or(node, |p| p.node);
            let has_named = named.iter().all(|p| (first..=node).contains(&p.node));
            let enough = tasks >= needed && total.holds(&self.request.total_gres());
            if enough && run.len() >= self.request.min_nodes as usize && has_named {
                return Some(run.into_iter().collect());
            }
        }
        None
    }
}

fn lay_out(
    machine: &Machine<'_>,
    request: &Request,
    picks: &[Pick],
    bound: Option<Bound<'_>>,
) -> Option<Vec<AllocatedNode>> {
    let least = request.least_tasks();
    let nodes = u32::try_from(picks.len()).unwrap_or(u32::MAX);
    let mut left = request.tasks.unwrap_or_else(|| nodes.saturating_mul(least));
    let mut spare = left.saturating_sub(nodes.saturating_mul(least));
    let each = request.least_part().total;
    let all = request.total_gres();
    let fixed = each.times(nodes.into());
    let mut spare_total = if all.holds(&fixed) { all.less(fixed) } else { return None };
    // Whole nodes have room for more than the tasks, which are distributed evenly.
    let even = (request.usage == NodeUse::Whole && !request.packs) || request.layout.is_some_and(|layout| layout.even);
    let mut in_turn = even.then(|| in_turn(picks, least, spare).into_iter());
    picks
        .iter()
        .map(|pick| {
            let more = match &mut in_turn {
                _ if request.listed.is_some() => request.tasks_listed_on(pick.node)?.saturating_sub(least).min(spare),
                Some(counts) => counts.next().unwrap_or(0),
                None => spare.min(pick.capacity.saturating_sub(least)),
            };
            spare -= more;
            // Fewer tasks than nodes (a long node list): the last nodes get none.
            let tasks = (least + more).min(left);
            left -= tasks;
            let more = spare_total.min(pick.total.less(each));
            spare_total = spare_total.less(more);
            let part = Part { tasks, total: each.plus(more) };
            let view = &machine.view().nodes[pick.node];
            let most = planned_gres(pick.node, request, bound);
            let share = machine.share(pick.node, request, part, most.as_ref())?;
            Some(AllocatedNode { name: view.name.clone(), index: view.index, share })
        })
        .collect()
}

/// How many more than the minimum each node gets when tasks are dealt in turn.
fn in_turn(picks: &[Pick], least: u32, mut spare: u32) -> Vec<u32> {
    let mut more = vec![0; picks.len()];
    let room = |pick: &Pick, more: u32| pick.capacity.saturating_sub(least).saturating_sub(more);
    loop {
        let with_room = more.iter().zip(picks).filter(|(more, pick)| room(pick, **more) > 0).count();
        let Some(rounds) = spare.checked_div(u32::try_from(with_room).unwrap_or(u32::MAX)) else { return more };
        if spare == 0 {
            return more;
        }
        // Several rounds at once while there is enough for all.
        for (more, pick) in more.iter_mut().zip(picks) {
            let next = rounds.max(1).min(room(pick, *more)).min(spare);
            *more += next;
            spare -= next;
        }
    }
}

/// The minimum that is planned to be free of a node's generic resources while a start now would run: a job that names no type
/// must not get a type that is reserved for others.
fn planned_gres(node: usize, request: &Request, bound: Option<Bound<'_>>) -> Option<GresAmounts> {
    let Bound { horizon, run: (from, until), .. } = bound.filter(|_| request.gres.is_some())?;
    horizon.during(node, from, until).into_iter().map(|free| free.gres).reduce(|a, b| a.least(&b))
}
