//! Placement with a network topology: asks [`crate::topology`] which of the nodes with free resources a request may have, now and
//! at the earliest later time, and keeps others out of what `--exclusive=topo` took.

use super::{
    horizon::{Horizon, Opening, Slot},
    machine::Machine,
    node::free::Amount,
    select::{self, Besides, Bound},
};
use crate::{
    snapshot::{
        facts::{ClusterView, NEVER},
        request::{Near, NodeUse, Part, Request},
    },
    topology::{Offer, Room, Topology, Want},
};
use fixedbitset::FixedBitSet;
use garrick_model::{gres::GresTaken, ids::NodeIndex, time::Timestamp, view::AllocatedNode};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Most numbers of nodes that are tried for a request with a range of them.
const MOST_COUNTS: usize = 64;
/// Most offers that are examined if nodes have to meet conditions that the topology does not know.
const MOST_OFFERS: usize = 256;
/// Most times that a search for the earliest one examines.
const MOST_TIMES: usize = 200;

/// Nodes for the request out of the open `candidates`, as the topology allows.
pub(crate) fn place(
    topology: &dyn Topology,
    machine: &Machine<'_>,
    request: &Request,
    (members, mut open): (&FixedBitSet, FixedBitSet),
    bound: Option<Bound<'_>>,
    besides: Option<Besides<'_>>,
) -> Option<Vec<AllocatedNode>> {
    let near = request.near.as_ref()?;
    if near.exclusive {
        keep_whole_units(topology, &mut open, |node| machine.is_idle(node) && idle_for_now(bound, request, node));
    }
    let mut tasks = vec![0; open.len()];
    for (node, tasks) in tasks.iter_mut().enumerate().filter(|(node, _)| open.contains(*node)) {
        *tasks = select::tasks_on(machine, request, node, bound);
    }
    for node in (0..tasks.len()).filter(|node| tasks[*node] == 0) {
        open.set(node, false);
    }
    let required: Vec<usize> = request.nodelist.iter().map(|index| index.0 as usize).collect();
    if required.iter().any(|node| !open.contains(*node)) {
        return None;
    }
    // Light nodes go before near ones (slurm.conf(5), Weight).
    let mut weights: Vec<usize> = open.ones().map(|node| machine.class_of(node)).collect();
    weights.sort_unstable();
    weights.dedup();
    let within = |most: usize| {
        let mut light = open.clone();
        if most + 1 < weights.len() {
            open.ones()
                .filter(|node| machine.class_of(*node) > weights[most] && !required.contains(node))
                .for_each(|node| light.set(node, false));
        }
        place_level(topology, machine, (request, near), (members, &light, &tasks), &required, (bound, besides))
    };
    if weights.len() <= 1 {
        return within(0);
    }
    let mut best = within(weights.len() - 1)?;
    let (mut low, mut high) = (0, weights.len() - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match within(middle) {
            Some(nodes) => (best, high) = (nodes, middle),
            None => low = middle + 1,
        }
    }
    Some(best)
}

fn place_level(
    topology: &dyn Topology,
    machine: &Machine<'_>,
    (request, near): (&Request, &Near),
    (members, open, tasks): (&FixedBitSet, &FixedBitSet, &[u32]),
    required: &[usize],
    (bound, besides): (Option<Bound<'_>>, Option<Besides<'_>>),
) -> Option<Vec<AllocatedNode>> {
    let mut found = None;
    let mut left = MOST_OFFERS;
    let mut take = |request: &Request, offer: Offer| {
        let (request, set) = match offer {
            Offer::Among(set) => (request.clone(), set),
            Offer::These(nodes) => {
                let mut nodelist: Vec<NodeIndex> = nodes.iter().map(|node| machine.view().nodes[*node].index).collect();
                nodelist.sort_unstable();
                let mut set = FixedBitSet::with_capacity(open.len());
                set.extend(nodes);
                (Request { nodelist, ..request.clone() }, set)
            }
        };
        let Some(besides) = besides else {
            found = select::place_among(machine, &request, set, bound);
            return found.is_some();
        };
        found = select::place_among(machine, &request, set.clone(), bound).filter(besides.fits).or_else(|| {
            let fewer = (besides.thin)(&set);
            (fewer != set).then(|| select::place_among(machine, &request, fewer, bound)).flatten().filter(besides.fits)
        });
        left -= 1;
        found.is_some() || left == 0
    };
    let all_offers = besides.is_some();
    if topology.mixes() {
        let need = u64::from(request.total_tasks());
        let want = Want { required: required.to_vec(), all_offers, ..want(near, request.min_nodes, need) };
        topology.offer(&want, Room { members, open, tasks }, &mut |offer| take(request, offer));
        return found;
    }
    let largest = open.ones().map(|node| tasks[node]).max()?;
    for (nodes, level) in counts(topology, request, near, largest, open) {
        let mut wide = open.clone();
        open.ones().filter(|node| tasks[*node] < level).for_each(|node| wide.set(node, false));
        let narrow = Request { min_nodes: nodes, max_nodes: nodes, want_nodes: nodes, ..request.clone() };
        let want = Want { required: required.to_vec(), all_offers, ..want(near, nodes, 0) };
        let room = Room { members, open: &wide, tasks };
        if topology.offer(&want, room, &mut |offer| take(&narrow, offer)) {
            break;
        }
    }
    found
}

fn want(near: &Near, nodes: u32, tasks: u64) -> Want {
    Want {
        nodes,
        tasks,
        segment: near.segment,
        spread: near.spread,
        consolidate: near.consolidate,
        switches: near.switches.map(|(most, _)| most),
        required: Vec::new(),
        all_offers: false,
    }
}

/// Numbers of nodes to try, with the tasks that each node must hold, if no node holds more than `largest`: as few as possible, or
/// as many as are wanted and `open`.
fn counts(
    topology: &dyn Topology,
    request: &Request,
    near: &Near,
    largest: u32,
    open: &FixedBitSet,
) -> Vec<(u32, u32)> {
    let least = request.least_tasks();
    let total = request.total_tasks().max(1);
    let level = |nodes: u32| match request.tasks {
        Some(_) => total.div_ceil(nodes.max(1)).max(least),
        None => least,
    };
    let asked = Want { segment: near.segment, ..Want::default() };
    let ranged = request.want_nodes > request.min_nodes;
    if let Some(known) = topology.counts(&asked, request.min_nodes, request.max_nodes) {
        let mut known: Vec<(u32, u32)> = known.into_iter().map(|nodes| (nodes, level(nodes))).collect();
        if ranged {
            known.reverse();
        }
        known.truncate(MOST_COUNTS);
        return known;
    }
    if ranged {
        let most = request.want_nodes.min(u32::try_from(open.count_ones(..)).unwrap_or(u32::MAX));
        return (request.min_nodes..=most).rev().take(MOST_COUNTS).map(|n| (n, level(n))).collect();
    }
    let mut all = Vec::new();
    let mut each = level(request.min_nodes).min(largest.max(least));
    loop {
        let nodes =
            if request.tasks.is_some() { total.div_ceil(each).max(request.min_nodes) } else { request.min_nodes };
        if nodes > request.max_nodes {
            break;
        }
        all.push((nodes, each));
        if each <= least {
            break;
        }
        each = (each / 2).max(least);
    }
    all
}

/// The earliest time from `from` to `until` at which the request could run for `length` on nodes that the topology allows, and
/// those nodes, out of the `open` candidates. Named nodes are handled elsewhere.
///
/// Each node gets an equal number of tasks, as in [`Horizon::earliest`].
pub(crate) fn earliest(
    horizon: &mut Horizon,
    topology: &Arc<dyn Topology>,
    request: &Request,
    (candidates, open): (&FixedBitSet, &FixedBitSet),
    (from, until): (Timestamp, Timestamp),
    length: Duration,
) -> Option<Slot> {
    let Some((_, over)) = request.near.as_ref().and_then(|near| near.switches) else {
        return earliest_as_is(horizon, topology, request, (candidates, open), (from, until), length);
    };
    // On few switches before its wait for them ends, on any from then on.
    let few = earliest_as_is(horizon, topology, request, (candidates, open), (from, until.min(over)), length);
    if few.as_ref().is_some_and(|slot| slot.at <= over) {
        return few;
    }
    let any = request.clone().on_any_switches();
    let from = from.max(horizon.round(over));
    earliest_as_is(horizon, topology, &any, (candidates, open), (from, until), length)
}

fn earliest_as_is(
    horizon: &mut Horizon,
    topology: &Arc<dyn Topology>,
    request: &Request,
    (candidates, open): (&FixedBitSet, &FixedBitSet),
    (from, until): (Timestamp, Timestamp),
    length: Duration,
) -> Option<Slot> {
    let near = request.near.as_ref()?;
    let mut best: Option<Slot> = None;
    for (nodes, level) in counts(topology.as_ref(), request, near, u32::MAX, open) {
        let until = best.as_ref().map_or(until, |slot| Timestamp(slot.at.0 - 1));
        let level = Part { tasks: level, total: request.total_gres().part(nodes.into()) };
        let asked = Asked { topology: topology.as_ref(), request, near, candidates, open, nodes, level, length };
        if let Some(slot) = asked.when(horizon, from, until) {
            let at = slot.at;
            best = Some(slot);
            if at <= from {
                break;
            }
        }
    }
    best
}

struct Asked<'a> {
    topology: &'a dyn Topology,
    request: &'a Request,
    near: &'a Near,
    candidates: &'a FixedBitSet,
    /// Nodes that it may have now.
    open: &'a FixedBitSet,
    nodes: u32,
    level: Part,
    length: Duration,
}

impl Asked<'_> {
    fn when(&self, horizon: &Horizon, from: Timestamp, until: Timestamp) -> Option<Slot> {
        let mut from = from;
        for _ in 0..MOST_TIMES {
            let mut openings = horizon.openings(self.request, self.open, self.level, (from, until), self.length);
            if self.near.exclusive {
                self.wait_for_units(horizon, &mut openings, from, until);
            }
            openings.sort_by_key(|o| o.begin);
            // Assume that nodes stay open once they open: no time before the one found so can do.
            let mut nodes = 0;
            let mut times: Vec<usize> = Vec::new();
            for (at, opening) in openings.iter().enumerate() {
                nodes += opening.nodes.len();
                let last = openings.get(at + 1).is_none_or(|next| next.begin > opening.begin);
                if last && nodes >= self.nodes as usize {
                    times.push(at + 1);
                }
            }
            let first = times.partition_point(|end| self.offered(&openings[..*end]).is_none());
            let end = *times.get(first)?;
            let at = openings[end - 1].begin;
            if at <= from {
                let nodes = self.offered(&openings[..end])?;
                return Some(Slot { at: from, nodes: self.lay_out(nodes, &openings[..end]) });
            }
            // Nodes that had room before may have none any more.
            from = at;
        }
        None
    }

    fn offered(&self, openings: &[Opening]) -> Option<Offer> {
        let mut open = FixedBitSet::with_capacity(self.candidates.len());
        open.extend(openings.iter().flat_map(|o| &o.nodes).copied());
        let room = Room { members: self.candidates, open: &open, tasks: &[] };
        let mut offered = None;
        self.topology.offer(&want(self.near, self.nodes, 0), room, &mut |offer| {
            offered = Some(offer);
            true
        });
        offered
    }

    /// No other job may be on any node of the units that it gets: a node opens when all of its unit do.
    fn wait_for_units(&self, horizon: &Horizon, openings: &mut Vec<Opening>, from: Timestamp, until: Timestamp) {
        let units = self.topology.units();
        let mut known: BTreeMap<usize, Option<Timestamp>> = BTreeMap::new();
        let all = std::mem::take(openings);
        for (opening, node) in all.iter().flat_map(|o| o.nodes.iter().map(move |node| (o, *node))) {
            let Some(unit) = units.of(node) else { continue };
            let all = known.entry(unit).or_insert_with(|| {
                let idle = |node: &usize| horizon.idle_from(*node, from, self.length);
                let begins: Option<Vec<Timestamp>> = units.nodes(unit).iter().map(idle).collect();
                begins.and_then(|begins| begins.into_iter().max())
            });
            if let Some(begin) = all.filter(|begin| *begin <= until) {
                openings.push(Opening { begin: opening.begin.max(begin), nodes: vec![node], ..*opening });
            }
        }
    }

    /// Prefers nodes that others leave last, so that what is free now stays free.
    fn lay_out(&self, offer: Offer, openings: &[Opening]) -> Vec<(usize, Part)> {
        let mut nodes: Vec<usize> = match offer {
            Offer::These(nodes) => nodes,
            Offer::Among(set) => {
                let rank = |o: &Opening| (o.weight, Reverse(o.since));
                let mut open: Vec<_> =
                    openings.iter().flat_map(|o| o.nodes.iter().map(move |node| (rank(o), *node))).collect();
                open.retain(|(_, node)| set.contains(*node));
                open.sort_unstable();
                open.into_iter().map(|(_, node)| node).collect()
            }
        };
        nodes.truncate(self.nodes as usize);
        let mut left = self.request.total_tasks().max(1);
        let mut total = self.request.total_gres();
        let (least, fewest) = (self.request.least_part(), self.request.least_tasks());
        let lay = |node: usize| {
            let part = Part {
                tasks: self.level.tasks.min(left).max(fewest),
                total: self.level.total.min(total).max(least.total),
            };
            left = left.saturating_sub(part.tasks);
            total = total.less(part.total);
            (node, part)
        };
        nodes.into_iter().map(lay).collect()
    }
}

/// Keeps in `open` the nodes whose units are completely free.
fn keep_whole_units(topology: &dyn Topology, open: &mut FixedBitSet, is_free: impl Fn(usize) -> bool) {
    let units = topology.units();
    let free: Vec<bool> = (0..units.len()).map(|unit| units.nodes(unit).iter().all(|node| is_free(*node))).collect();
    for node in 0..open.len() {
        if open.contains(node) && !units.of(node).is_some_and(|unit| free[unit]) {
            open.set(node, false);
        }
    }
}

/// Is nothing reserved on the node while a start now would run?
fn idle_for_now(bound: Option<Bound<'_>>, request: &Request, node: usize) -> bool {
    let Some(Bound { horizon, .. }) = bound else { return true };
    let now = horizon.begins();
    let until = request.limit_secs.map_or(NEVER, |secs| now.plus(Duration::from_secs(secs)));
    horizon.during(node, now, until).iter().all(|free| free.idle)
}

/// What a request for exclusive units keeps others out of, besides its nodes.
pub(crate) fn rest_of_units(
    view: &ClusterView,
    request: &Request,
    nodes: impl Iterator<Item = usize>,
) -> Vec<(usize, Amount)> {
    let exclusive = request.near.as_ref().is_some_and(|near| near.exclusive);
    let Some(topology) = view.topology(request.partition).filter(|_| exclusive) else { return Vec::new() };
    let nodes: BTreeSet<usize> = nodes.collect();
    let units = topology.units();
    let taken: BTreeSet<usize> = nodes.iter().filter_map(|node| units.of(*node)).collect();
    let rest = taken.iter().flat_map(|unit| units.nodes(*unit)).filter(|node| !nodes.contains(node));
    let nothing = Amount {
        cpus: 0,
        with_gpus: 0,
        memory: 0,
        gres: GresTaken::default(),
        usage: NodeUse::Whole,
        owner: request.owner,
        named: None,
    };
    rest.map(|node| (*node, nothing.clone())).collect()
}
