//! Free resources on all nodes from now on, in amounts: less what running jobs hold until their time limit, and what is planned.
//! Nodes with the same future form one class and are examined once: a cluster has far fewer classes than nodes.

use super::node::{
    free::{Amount, Free, amount},
    room::{Step, futures},
};
use crate::snapshot::{
    facts::{ClusterView, NEVER, cpus_per_unit, in_service},
    request::{Matters, NodeUse, Part, Request},
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    gres::Totals, ids::JobId, node_shape::NodeShape, resources::CpuSet, time::Timestamp, view::NodeView,
};
use rustc_hash::FxHashMap;
use std::{collections::BTreeSet, rc::Rc, time::Duration};

mod alter;
mod openings;
mod recount;
mod search;
mod window;

use alter::less;
pub(crate) use openings::Opening;
pub use recount::Planned;
pub use search::Limits;
use search::levels;
use window::{Brief, Room, Sought, common, first_window, room};

/// Nodes that are alike in all that does not change while a plan is made.
#[derive(Clone, Debug)]
struct Kind {
    shape: NodeShape,
    unit: u32,
    /// A part of each node is reserved at some time, so futures say which CPUs are free.
    parted: bool,
    /// Its GPUs can be given in shards, and all shards of a job are of one GPU, which has to stay the same all the time.
    sharded: bool,
    weight: u64,
    usable: bool,
    /// One of the nodes: for questions that all of them answer alike.
    sample: usize,
    indexes: Vec<Index>,
}

/// Nodes of one kind with the same future.
#[derive(Clone, Debug)]
struct Class {
    kind: u32,
    steps: Rc<[Step]>,
    /// A short form of the same steps.
    brief: Box<[Brief]>,
    members: BTreeSet<u32>,
    /// Slot in each index of its kind.
    slots: Vec<u16>,
    /// Number of the last search that visited it.
    visited: u32,
}

/// Classes, by the first time at which some amount is free for some time. A search for as much or more skips classes whose time
/// is later than what it has found. An entry of a slot may be outdated: the class knows its slot.
#[derive(Clone, Debug)]
struct Index {
    room: Room,
    length: Duration,
    /// In parts: a copy of the snapshot copies only the parts that it changes.
    slots: Vec<Rc<Vec<Vec<u32>>>>,
}

/// Length of a slot in milliseconds. The slots cover four weeks; the last one has all that is later.
const SLOT: i64 = 600_000;
const SLOTS: usize = PARTS * PART;
const PARTS: usize = 63;
const PART: usize = 64;
/// Run times that have an index, in minutes: a search uses the longest that is not longer than its own.
const LENGTHS: [u64; 12] = [0, 10, 30, 60, 120, 240, 480, 960, 1440, 2880, 5760, 11_520];

/// A time and nodes for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Start time.
    pub at: Timestamp,
    /// The nodes, and the part of the request on each.
    pub nodes: Vec<(usize, Part)>,
}

/// Where the request may be placed.
#[derive(Clone, Copy)]
struct Query<'r> {
    request: &'r Request,
    candidates: &'r FixedBitSet,
    length: Duration,
}

/// A class that has enough free from `begin` on; it became free at `since`.
#[derive(Clone, Copy, Debug)]
struct Found {
    begin: Timestamp,
    since: Timestamp,
    class: u32,
}

/// Free resources from now on.
#[derive(Clone, Debug)]
pub(crate) struct Horizon {
    /// When it was made: futures and indexes begin there.
    origin: Timestamp,
    now: Timestamp,
    /// Milliseconds: times are rounded up to a multiple of this.
    resolution: i64,
    /// Whether users and MCS labels of jobs matter.
    matters: Matters,
    kinds: Vec<Kind>,
    classes: Vec<Class>,
    class_of: Vec<u32>,
    known: FxHashMap<(u32, Rc<[Step]>), u32>,
    vacant: Vec<u32>,
    search: u32,
    found: Vec<Found>,
}

impl Horizon {
    /// From what the nodes of the snapshot hold, and until when. Nodes that are kept for a job count as held for ever.
    pub fn new(view: &ClusterView, now: Timestamp) -> Self {
        let resolution = i64::try_from(view.policy.resolution.as_millis()).unwrap_or(1).max(1);
        let mut horizon = Self {
            origin: now,
            now,
            resolution,
            matters: view.matters(),
            kinds: Vec::new(),
            classes: Vec::new(),
            class_of: Vec::with_capacity(view.nodes.len()),
            known: FxHashMap::default(),
            vacant: Vec::new(),
            search: 0,
            found: Vec::new(),
        };
        let mut kinds = FxHashMap::default();
        let mut steps = Vec::new();
        // What candidates are chosen by: nodes of one kind are members of the same sets.
        let reserved = view.reservations.list.iter().map(|r| &r.nodes);
        let sets = view.partitions.iter().map(|p| &p.nodes).chain(reserved);
        for (place, node) in view.nodes.iter().enumerate() {
            let s = &node.shape;
            let reserved = (s.reserved_cpus.len(), s.reserved_memory, &s.gpu_cpus);
            let cores = (s.boards, s.sockets, s.cores_per_socket, s.threads_per_core);
            let size = (s.cpus, cores, s.memory, s.tmp_disk_mib, reserved);
            let member: Vec<bool> = sets.clone().map(|nodes| nodes.contains(place)).collect();
            let usable = in_service(node);
            let unit = cpus_per_unit(node, view.policy.unit);
            let parted = view.reservations.is_parted(place);
            let extra = node.extra.as_ref().filter(|_| view.policy.extra_constraints);
            let kind = *kinds
                .entry((size, &s.gres, node.rank(), (usable, parted), (&node.features, extra), member))
                .or_insert_with(|| {
                    let (shape, weight) = (s.clone(), node.rank());
                    let sharded = s.gres.iter().any(|entry| !entry.shards.is_empty());
                    let kind =
                        Kind { shape, unit, parted, sharded, weight, usable, sample: place, indexes: Vec::new() };
                    horizon.kinds.push(kind);
                    u32::try_from(horizon.kinds.len() - 1).unwrap_or(u32::MAX)
                });
            horizon.futures(node, (unit, parted), &mut steps);
            let class = horizon.class(kind, &steps);
            horizon.classes[class as usize].members.insert(index(place));
            horizon.class_of.push(class);
        }
        horizon
    }

    /// What the node has free over time, from what its view shows.
    fn futures(&self, node: &NodeView, parts: (u32, bool), steps: &mut Vec<Step>) {
        steps.clear();
        futures(node, parts, |end| self.round(end), self.origin, steps);
        let Matters { users, labels } = self.matters;
        if !(users && labels) {
            for step in steps.iter_mut() {
                step.free.only_user = step.free.only_user.filter(|_| users);
                step.free.only_label = step.free.only_label.filter(|_| labels);
            }
            steps.dedup_by(|later, earlier| later.free == earlier.free);
        }
    }

    /// Rounds a time for planning: to the next multiple of the resolution after now.
    pub fn round(&self, at: Timestamp) -> Timestamp {
        if at == NEVER {
            return NEVER;
        }
        let at = at.0.max(self.now.0 + 1);
        Timestamp(at.saturating_add(self.resolution - 1).div_euclid(self.resolution).saturating_mul(self.resolution))
    }

    /// Whether users and MCS labels of jobs matter.
    pub const fn matters(&self) -> Matters {
        self.matters
    }

    fn class(&mut self, kind: u32, steps: &[Step]) -> u32 {
        let steps: Rc<[Step]> = Rc::from(steps);
        if let Some(class) = self.known.get(&(kind, Rc::clone(&steps))) {
            return *class;
        }
        let brief: Box<[Brief]> = steps.iter().map(Brief::of).collect();
        let of_kind = &self.kinds[kind as usize];
        let slots: Vec<u16> = of_kind.indexes.iter().map(|index| index.slot(&brief, self.origin)).collect();
        let class = Class {
            kind,
            steps: Rc::clone(&steps),
            brief,
            members: BTreeSet::new(),
            slots: slots.clone(),
            visited: self.search,
        };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.classes[place as usize] = class;
                place
            }
            None => {
                self.classes.push(class);
                index(self.classes.len() - 1)
            }
        };
        for (index, slot) in self.kinds[kind as usize].indexes.iter_mut().zip(slots) {
            index.at(slot).push(place);
        }
        self.known.insert((kind, steps), place);
        place
    }

    /// The shape of a node.
    pub fn shape(&self, node: usize) -> &NodeShape {
        &self.kinds[self.classes[self.class_of(node)].kind as usize].shape
    }

    /// The class of a node.
    pub(crate) fn class_of(&self, node: usize) -> usize {
        self.class_of[node] as usize
    }

    /// Times after `after`, in order, at which something changes on nodes that the request could use.
    pub fn changes(&self, request: &Request, candidates: &FixedBitSet, after: Timestamp) -> Vec<Timestamp> {
        let query = Query { request, candidates, length: Duration::ZERO };
        let classes = self.classes.iter().filter(|class| Self::takes(&self.kinds[class.kind as usize], &query));
        let times: BTreeSet<Timestamp> = classes
            .filter(|class| Self::open(class, &query) > 0)
            .flat_map(|class| class.steps.iter().map(|s| s.from))
            .filter(|at| *at > after)
            .collect();
        times.into_iter().collect()
    }

    /// What is free on a node during the whole interval: the minimum of each amount.
    pub fn during(&self, node: usize, from: Timestamp, until: Timestamp) -> Vec<Free> {
        let steps = &self.classes[self.class_of(node)].steps;
        let begin = steps.partition_point(|s| s.from <= from).saturating_sub(1);
        steps[begin..].iter().take_while(|s| s.from < until || s.from <= from).map(|s| s.free.clone()).collect()
    }

    /// Is enough free for the request once everything has ended?
    pub(crate) fn suffices_finally(&self, request: &Request, candidates: &FixedBitSet) -> bool {
        let query = Query { request, candidates, length: Duration::ZERO };
        let mut open: Vec<(Part, u32)> = Vec::new();
        let mut first = Together::default();
        for class in &self.classes {
            let kind = &self.kinds[class.kind as usize];
            let last = class.steps.last().filter(|_| Self::takes(kind, &query));
            let part = last.map(|last| room(&last.free, kind, request)).filter(|part| part.holds(request.least_part()));
            if let Some(part) = part {
                let count = Self::open(class, &query);
                if first.add(part, count, request) {
                    return true;
                }
                open.push((part, count));
            }
        }
        // As many nodes as it may have, those with most free first.
        open.sort_unstable_by_key(|(part, _)| std::cmp::Reverse((part.total.sum(), part.tasks)));
        // With several types, the sum over all types does not say which nodes are best for one of them.
        let several = request.gres.as_ref().is_some_and(|gres| gres.total.len() > 1);
        let mut widest = Together { several, ..Together::default() };
        open.into_iter().any(|(part, count)| widest.add(part, count, request))
    }

    /// What a request takes of these nodes, with its part on each, from `at` on for its run time.
    pub fn amounts(
        &self,
        request: &Request,
        nodes: &[(usize, Part)],
        at: Timestamp,
        length: Duration,
    ) -> Vec<(usize, Amount)> {
        let of = |(node, part): &(usize, Part)| {
            let class = &self.classes[self.class_of(*node)];
            let kind = &self.kinds[class.kind as usize];
            let mut free = class.steps[class.steps.partition_point(|s| s.from <= at).saturating_sub(1)].free.clone();
            if request.gres.is_some() {
                // Devices that are free all the time.
                let during = self.during(*node, at, at.plus(length)).into_iter().map(|free| free.gres);
                free.gres = during.reduce(|a, b| a.least(&b)).unwrap_or(free.gres);
            }
            let mut what = amount(&kind.shape, kind.unit, request, *part, &free);
            if kind.parted && what.usage != NodeUse::Whole {
                what.named = self.named(*node, at, at.plus(length)).map(|named| named.take(what.cpus));
            }
            (*node, what)
        };
        nodes.iter().map(of).collect()
    }

    /// Which CPUs of a partly reserved node are free during the whole interval.
    pub fn named(&self, node: usize, from: Timestamp, until: Timestamp) -> Option<CpuSet> {
        let during = self.during(node, from, until);
        common(during.iter()).and_then(|free| free.named)
    }
}

/// How much of a request several nodes hold together.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    nodes: u64,
    tasks: u64,
    total: Totals,
    /// Several types of generic resources are requested: those on nodes beyond its maximum count too.
    several: bool,
}

impl Together {
    /// Adds so many nodes with this part each, up to the request's maximum. True when it is enough.
    fn add(&mut self, part: Part, count: u32, request: &Request) -> bool {
        let taken = u64::from(count).min(u64::from(request.max_nodes) - self.nodes);
        self.nodes += taken;
        self.tasks += taken * u64::from(part.tasks);
        self.total = self.total.plus(part.total.times(if self.several { count.into() } else { taken }));
        self.nodes >= u64::from(request.min_nodes)
            && self.tasks >= u64::from(request.total_tasks())
            && self.total.holds(&request.total_gres())
    }
}

impl Index {
    fn new(room: Room, length: Duration) -> Self {
        let none = Rc::new(vec![Vec::new(); PART]);
        Self { room, length, slots: std::iter::repeat_n(none, PARTS).collect() }
    }

    fn is_empty(&self, slot: u16) -> bool {
        self.slots[usize::from(slot) / PART][usize::from(slot) % PART].is_empty()
    }

    fn at(&mut self, slot: u16) -> &mut Vec<u32> {
        &mut Rc::make_mut(&mut self.slots[usize::from(slot) / PART])[usize::from(slot) % PART]
    }

    /// The slot for a class with these steps.
    fn slot(&self, brief: &[Brief], origin: Timestamp) -> u16 {
        let first = first_window(brief, |place| self.room.is_in(&brief[place]), (origin, NEVER), self.length);
        let after = first.map_or(i64::MAX, |(at, _)| (at.0 - origin.0) / SLOT);
        u16::try_from(after.clamp(0, SLOTS as i64 - 1)).unwrap_or(u16::MAX)
    }
}

fn index(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Is the node kept for this job? It is free to that job only. See [`crate::plan`].
pub(crate) fn is_kept_for(view: &ClusterView, node: usize, job: JobId) -> bool {
    view.nodes[node].holds.iter().any(|hold| hold.kept && hold.job == job)
}
