//! Nodes for a request with conditions on its nodes together: so many with one feature and so many with another, or all alike in
//! one of several ways. Nodes for the counts are found first and then treated as if the job had named them.

use super::{
    machine::Machine,
    select::{self, Bound},
};
use crate::snapshot::{
    constraint::{Choice, Mix},
    request::Request,
};
use fixedbitset::FixedBitSet;
use garrick_model::{ids::NodeIndex, view::AllocatedNode};
use std::cmp::Reverse;

/// Nodes out of `open`, for the first choice that can be satisfied.
pub(crate) fn place(
    machine: &Machine<'_>,
    request: &Request,
    mix: &Mix,
    (members, open): (&FixedBitSet, &FixedBitSet),
    bound: Option<Bound<'_>>,
) -> Option<Vec<AllocatedNode>> {
    mix.choices.iter().find_map(|choice| {
        let mut open = open.clone();
        if let Some(every) = &choice.every {
            let nodes = &machine.view().nodes;
            let others: Vec<usize> = open.ones().filter(|node| !every.holds(&nodes[*node].features)).collect();
            others.into_iter().for_each(|node| open.set(node, false));
        }
        if choice.counts.is_empty() {
            return select::place_open(machine, request, (members, open), bound, None);
        }
        let search = Search::new(machine, request, choice, bound, &open)?;
        if request.contiguous {
            return search.windows(members, &open);
        }
        search.place(members, &open, Order::Light).or_else(|| search.place(members, &open, Order::Wide))
    })
}

/// Which nodes are preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Nodes of low weight that hold an even share.
    Light,
    /// Nodes with most free resources.
    Wide,
}

/// A node that could be used for the counts.
struct Place {
    node: usize,
    tasks: u32,
    /// For each count: does the node satisfy it?
    fits: Vec<bool>,
}

struct Search<'s, 'a> {
    machine: &'s Machine<'a>,
    /// With at least as many nodes as the counts add up to.
    request: Request,
    choice: &'s Choice,
    bound: Option<Bound<'s>>,
    places: Vec<Place>,
}

impl<'s, 'a> Search<'s, 'a> {
    /// `None`: more nodes would be needed than it may have.
    fn new(
        machine: &'s Machine<'a>,
        request: &Request,
        choice: &'s Choice,
        bound: Option<Bound<'s>>,
        open: &FixedBitSet,
    ) -> Option<Self> {
        let least = choice.least_nodes();
        if least > request.max_nodes {
            return None;
        }
        let request = Request {
            min_nodes: request.min_nodes.max(least),
            want_nodes: request.want_nodes.max(least),
            ..request.clone()
        };
        let mut places = Vec::new();
        for node in open.ones() {
            let features = &machine.view().nodes[node].features;
            let fits: Vec<bool> = choice.counts.iter().map(|(wanted, _)| wanted.holds(features)).collect();
            if fits.contains(&true) {
                let tasks = select::tasks_on(machine, &request, node, bound);
                if tasks > 0 {
                    places.push(Place { node, tasks, fits });
                }
            }
        }
        Some(Self { machine, request, choice, bound, places })
    }

    fn place(&self, members: &FixedBitSet, open: &FixedBitSet, order: Order) -> Option<Vec<AllocatedNode>> {
        let mut nodelist = self.request.nodelist.clone();
        nodelist.extend(self.counted(open, order)?.into_iter().map(|node| self.machine.view().nodes[node].index));
        nodelist.sort_unstable();
        nodelist.dedup();
        if nodelist.len() > self.request.max_nodes as usize {
            return None;
        }
        let request = Request { nodelist, ..self.request.clone() };
        select::place_open(self.machine, &request, (members, open.clone()), self.bound, None)
    }

    /// Consecutive nodes: tried from each node on.
    fn windows(&self, members: &FixedBitSet, open: &FixedBitSet) -> Option<Vec<AllocatedNode>> {
        let (least, most) = (self.request.min_nodes as usize, self.request.max_nodes as usize);
        let sizes = if most > least { vec![least, most] } else { vec![least] };
        sizes.into_iter().find_map(|size| {
            open.ones().find_map(|first| {
                let mut window = FixedBitSet::with_capacity(open.len());
                window.insert_range(first..first.saturating_add(size).min(open.len()));
                window.intersect_with(open);
                self.place(members, &window, Order::Light)
            })
        })
    }

    /// A node for each unit of the counts: a matching by augmenting paths, preferred nodes first.
    fn counted(&self, open: &FixedBitSet, order: Order) -> Option<Vec<usize>> {
        let even = self.request.total_tasks().div_ceil(self.request.min_nodes.max(1));
        let named = |node: usize| self.request.nodelist.binary_search(&NodeIndex(index(node))).is_ok();
        let mut places: Vec<&Place> = self.places.iter().filter(|place| open.contains(place.node)).collect();
        places.sort_by_key(|place| {
            let uses = place.fits.iter().filter(|fits| **fits).count();
            let weight = self.machine.class_of(place.node);
            let by_order = match order {
                Order::Light => (usize::from(place.tasks < even), weight, Reverse(0)),
                Order::Wide => (0, 0, Reverse(place.tasks)),
            };
            (!named(place.node), by_order, uses, place.node)
        });
        let mut taken: Vec<Option<usize>> = vec![None; places.len()];
        for (kind, (_, count)) in self.choice.counts.iter().enumerate() {
            let mut next = 0;
            for _ in 0..*count {
                // A place that is taken never becomes free again, so places before `next` need not be tested again.
                let free = (next..places.len()).find(|at| taken[*at].is_none() && places[*at].fits[kind]);
                if let Some(at) = free {
                    taken[at] = Some(kind);
                    next = at + 1;
                    continue;
                }
                next = places.len();
                let mut seen = FixedBitSet::with_capacity(places.len());
                if !seat(kind, &places, &mut taken, &mut seen) {
                    return None;
                }
            }
        }
        Some(places.iter().zip(taken).filter(|(_, kind)| kind.is_some()).map(|(place, _)| place.node).collect())
    }
}

/// Finds one more node for a kind; nodes that are assigned already may be reassigned. No recursion: counts come from users.
fn seat(kind: usize, places: &[&Place], taken: &mut [Option<usize>], seen: &mut FixedBitSet) -> bool {
    // Breadth first: from which place each was reached.
    let mut from: Vec<(usize, Option<usize>)> = Vec::new();
    let mut at = 0;
    let mut wanted = (kind, None);
    loop {
        for place in 0..places.len() {
            if !places[place].fits[wanted.0] || seen.put(place) {
                continue;
            }
            from.push((place, wanted.1));
            if taken[place].is_none() {
                return move_along(kind, &from, taken);
            }
        }
        let Some((place, _)) = from.get(at) else { return false };
        wanted = (taken[*place].unwrap_or(kind), Some(at));
        at += 1;
    }
}

/// Shifts the assignments along the path: each place passes its kind to the next, and the first gets the new kind.
fn move_along(kind: usize, from: &[(usize, Option<usize>)], taken: &mut [Option<usize>]) -> bool {
    let mut here = from.len() - 1;
    while let (place, Some(before)) = from[here] {
        taken[place] = taken[from[before].0];
        here = before;
    }
    taken[from[here].0] = Some(kind);
    true
}

fn index(node: usize) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}
