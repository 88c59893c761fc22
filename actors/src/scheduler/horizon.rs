//! Free room on all nodes from now on, in amounts: what running jobs hold until their limit, and what is planned. Nodes
//! whose future is the same are one class, and are looked at once: a cluster has far fewer classes than nodes.

use super::{
    facts::{ClusterView, cpus_per_unit, in_service},
    free::{Amount, Capacity, Free, amount},
    machine::futures,
    request::Request,
};
use fixedbitset::FixedBitSet;
use garrick_model::{ids::JobId, resources::NodeShape, time::Timestamp};
use rustc_hash::FxHashMap;
use std::{
    collections::BTreeSet,
    rc::Rc,
    time::Duration,
};

/// The end of time.
pub const NEVER: Timestamp = Timestamp(i64::MAX);

/// From when on that much is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Beginning; the end is the next one's beginning.
    pub from: Timestamp,
    /// What is free then.
    pub free: Free,
}

/// Nodes that are alike in all that does not change while a plan is made.
#[derive(Clone, Debug)]
struct Kind {
    shape: NodeShape,
    unit: u32,
    weight: u32,
    usable: bool,
    /// One of them: for questions that all answer alike.
    sample: usize,
}

/// Nodes of one kind with the same future.
#[derive(Clone, Debug)]
struct Class {
    kind: u32,
    steps: Rc<[Step]>,
    members: BTreeSet<u32>,
}

/// A place in the future for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// When.
    pub at: Timestamp,
    /// Which nodes, and how many tasks on each.
    pub nodes: Vec<(usize, u32)>,
}

/// What the request is looked at with: computed once, used for its searches.
#[derive(Debug, Default)]
pub struct Sight {
    /// For each class that has nodes for it: class, nodes, first of its caps.
    classes: Vec<Seen>,
    /// Tasks that fit in each step of each of those classes.
    caps: Vec<u32>,
    events: Vec<(Timestamp, i64)>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    class: u32,
    nodes: u32,
    caps: usize,
}

/// Free room from now on.
#[derive(Clone, Debug)]
pub struct Horizon {
    now: Timestamp,
    /// Milliseconds: times are rounded up to whole ones of these.
    resolution: i64,
    kinds: Vec<Kind>,
    classes: Vec<Class>,
    class_of: Vec<u32>,
    known: FxHashMap<(u32, Rc<[Step]>), u32>,
    vacant: Vec<u32>,
}

impl Horizon {
    /// What the nodes of that picture hold, and until when. What is kept for a job counts as held for ever.
    pub fn new(view: &ClusterView, now: Timestamp) -> Self {
        let resolution = i64::try_from(view.policy.resolution.as_millis()).unwrap_or(1).max(1);
        let mut horizon = Self {
            now,
            resolution,
            kinds: Vec::new(),
            classes: Vec::new(),
            class_of: Vec::with_capacity(view.nodes.len()),
            known: FxHashMap::default(),
            vacant: Vec::new(),
        };
        let mut kinds = FxHashMap::default();
        let mut steps = Vec::new();
        for (place, node) in view.nodes.iter().enumerate() {
            let s = &node.shape;
            let size = (s.cpus, s.boards, s.sockets, s.cores_per_socket, s.threads_per_core, s.memory, s.tmp_disk_mib);
            let member: Vec<bool> = view.partitions.iter().map(|p| p.nodes.contains(place)).collect();
            let usable = in_service(node);
            let unit = cpus_per_unit(node, view.policy.unit);
            let kind = *kinds.entry((size, node.weight, usable, &node.features, member)).or_insert_with(|| {
                let kind = Kind { shape: s.clone(), unit, weight: node.weight, usable, sample: place };
                horizon.kinds.push(kind);
                u32::try_from(horizon.kinds.len() - 1).unwrap_or(u32::MAX)
            });
            steps.clear();
            futures(node, unit, |end| horizon.round(end), now, &mut steps);
            let class = horizon.class(kind, &steps);
            horizon.classes[class as usize].members.insert(index(place));
            horizon.class_of.push(class);
        }
        horizon
    }

    /// A time as it is planned with: not before the next whole resolution after now.
    pub fn round(&self, at: Timestamp) -> Timestamp {
        if at == NEVER {
            return NEVER;
        }
        let at = at.0.max(self.now.0 + 1);
        Timestamp(at.saturating_add(self.resolution - 1).div_euclid(self.resolution).saturating_mul(self.resolution))
    }

    /// How many classes there are.
    pub fn classes(&self) -> usize {
        self.classes.len() - self.vacant.len()
    }

    fn class(&mut self, kind: u32, steps: &[Step]) -> u32 {
        let steps: Rc<[Step]> = Rc::from(steps);
        if let Some(class) = self.known.get(&(kind, Rc::clone(&steps))) {
            return *class;
        }
        let class = Class { kind, steps: Rc::clone(&steps), members: BTreeSet::new() };
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
        self.known.insert((kind, steps), place);
        place
    }

    /// Looks at all classes with the eyes of a request that may use the nodes `candidates`.
    pub fn see(&self, request: &Request, candidates: &FixedBitSet, sight: &mut Sight) {
        sight.classes.clear();
        sight.caps.clear();
        let alike = request.exclude.is_empty();
        for (place, class) in self.classes.iter().enumerate() {
            let kind = &self.kinds[class.kind as usize];
            if !kind.usable || class.members.is_empty() || (alike && !candidates.contains(kind.sample)) {
                continue;
            }
            let nodes = if alike {
                class.members.len()
            } else {
                class.members.iter().filter(|n| candidates.contains(**n as usize)).count()
            };
            if nodes == 0 {
                continue;
            }
            let caps = sight.caps.len();
            let mut any = 0;
            for step in class.steps.iter() {
                let tasks = step.free.capacity(&kind.shape, kind.unit, request).map_or(0, |c| c.tasks);
                any |= tasks;
                sight.caps.push(tasks);
            }
            if any == 0 {
                sight.caps.truncate(caps);
            } else {
                sight.classes.push(Seen { class: index(place), nodes: index(nodes), caps });
            }
        }
    }

    /// The earliest time from `from` to `until` at which the request could run for `length` where nodes need not be
    /// neighbours or named, and nodes for it: rather those that others leave last, so that what is free now stays so.
    ///
    /// Nodes are taken with even numbers of tasks. A mixture may fit earlier; starts at once are not bound to this.
    pub fn earliest(
        &self,
        request: &Request,
        candidates: &FixedBitSet,
        sight: &mut Sight,
        (from, until): (Timestamp, Timestamp),
        length: Duration,
    ) -> Option<Slot> {
        let total = request.total_tasks().max(1);
        let mut best: Option<(Timestamp, u32)> = None;
        let mut level = total.div_ceil(request.min_nodes.max(1)).max(request.least_tasks());
        loop {
            let nodes = total.div_ceil(level).max(request.min_nodes);
            if nodes > request.max_nodes {
                break;
            }
            let until = best.map_or(until, |(at, _)| Timestamp(at.0 - 1));
            if let Some(at) = self.when(sight, level, nodes, (from, until), length) {
                best = Some((at, level));
                if at <= from {
                    break;
                }
            }
            if level <= request.least_tasks() {
                break;
            }
            level = (level / 2).max(request.least_tasks());
        }
        let (at, level) = best?;
        Some(Slot { at, nodes: self.choose(request, candidates, sight, at, level, length) })
    }

    /// When so many nodes at once have room for `level` tasks each.
    fn when(
        &self,
        sight: &mut Sight,
        level: u32,
        nodes: u32,
        (from, until): (Timestamp, Timestamp),
        length: Duration,
    ) -> Option<Timestamp> {
        let (needed, mut at_once) = (i64::from(nodes), 0);
        let Sight { classes, caps, events } = sight;
        events.clear();
        for seen in classes.iter() {
            let steps = &self.classes[seen.class as usize].steps;
            for (begin, end) in windows(steps, &caps[seen.caps..seen.caps + steps.len()], level) {
                let last = if end == NEVER { NEVER } else { Timestamp(end.0 - millis(length)) };
                let begin = begin.max(from);
                if begin > last || begin > until {
                    continue;
                }
                if begin == from {
                    at_once += i64::from(seen.nodes);
                }
                events.push((begin, i64::from(seen.nodes)));
                if last < until {
                    events.push((Timestamp(last.0 + 1), -i64::from(seen.nodes)));
                }
            }
        }
        if at_once >= needed {
            return Some(from);
        }
        // At the same time, what goes comes before what comes.
        events.sort_unstable();
        let mut there = 0;
        let mut events = events.iter().peekable();
        while let Some((at, change)) = events.next() {
            there += change;
            if there >= needed && events.peek().is_none_or(|(next, _)| next > at) {
                return Some(*at);
            }
        }
        None
    }

    fn choose(
        &self,
        request: &Request,
        candidates: &FixedBitSet,
        sight: &Sight,
        at: Timestamp,
        level: u32,
        length: Duration,
    ) -> Vec<(usize, u32)> {
        let until = at.plus(length);
        let mut fitting: Vec<(u32, std::cmp::Reverse<Timestamp>, u32, u32)> = Vec::new();
        for seen in &sight.classes {
            let class = &self.classes[seen.class as usize];
            let caps = &sight.caps[seen.caps..seen.caps + class.steps.len()];
            let window = windows(&class.steps, caps, level).find(|(begin, end)| *begin <= at && *end >= until);
            if let (Some((begin, _)), Some(first)) = (window, class.members.first()) {
                let weight = self.kinds[class.kind as usize].weight;
                fitting.push((weight, std::cmp::Reverse(begin), *first, seen.class));
            }
        }
        fitting.sort_unstable();
        let mut left = request.total_tasks().max(1);
        let mut nodes: Vec<(usize, u32)> = Vec::new();
        for (.., class) in fitting {
            let members = self.classes[class as usize].members.iter().map(|n| *n as usize);
            for node in members.filter(|n| request.exclude.is_empty() || candidates.contains(*n)) {
                if left == 0 && nodes.len() >= request.min_nodes as usize {
                    return nodes;
                }
                let tasks = level.min(left).max(request.least_tasks());
                left = left.saturating_sub(tasks);
                nodes.push((node, tasks));
            }
        }
        nodes
    }

    /// Tasks that fit on the nodes of each class all the time from `from` on for `length`, in place `class`: none where
    /// the request has no sight of it.
    pub fn limits(&self, sight: &Sight, from: Timestamp, length: Duration) -> Limits {
        let until = from.plus(length);
        let mut tasks = vec![0; self.classes.len()];
        for seen in &sight.classes {
            let steps = &self.classes[seen.class as usize].steps;
            let begin = steps.partition_point(|s| s.from <= from).saturating_sub(1);
            let during = steps[begin..].iter().take_while(|s| s.from < until).count();
            let caps = &sight.caps[seen.caps + begin..seen.caps + begin + during];
            tasks[seen.class as usize] = caps.iter().copied().min().unwrap_or(0);
        }
        Limits { tasks }
    }

    /// Takes nodes out of `open` that have no room for the whole length of the request.
    pub fn restrict(&self, limits: &Limits, open: &mut FixedBitSet) {
        for (class, _) in self.classes.iter().zip(&limits.tasks).filter(|(_, tasks)| **tasks == 0) {
            for node in &class.members {
                if (*node as usize) < open.len() {
                    open.set(*node as usize, false);
                }
            }
        }
    }

    /// The class of a node.
    pub fn class_of(&self, node: usize) -> usize {
        self.class_of[node] as usize
    }

    /// When something changes on nodes that the request could use, after `after`, in order.
    pub fn changes(&self, sight: &Sight, after: Timestamp) -> Vec<Timestamp> {
        let steps = sight.classes.iter().flat_map(|s| self.classes[s.class as usize].steps.iter());
        let times: BTreeSet<Timestamp> = steps.map(|s| s.from).filter(|at| *at > after).collect();
        times.into_iter().collect()
    }

    /// What is free on a node all the time between: the least of each.
    pub fn during(&self, node: usize, from: Timestamp, until: Timestamp) -> Vec<Free> {
        let steps = &self.classes[self.class_of(node)].steps;
        let begin = steps.partition_point(|s| s.from <= from).saturating_sub(1);
        steps[begin..].iter().take_while(|s| s.from < until || s.from <= from).map(|s| s.free).collect()
    }

    /// Could what is free when all has ended be enough for the request?
    pub fn suffices_finally(&self, sight: &Sight, request: &Request) -> bool {
        let mut last = vec![0; self.classes.len()];
        for seen in &sight.classes {
            let steps = self.classes[seen.class as usize].steps.len();
            last[seen.class as usize] = sight.caps[seen.caps + steps - 1];
        }
        // As many nodes as it may have, the widest ones.
        let mut open: Vec<(u32, u32)> = sight.classes.iter().map(|s| (last[s.class as usize], s.nodes)).collect();
        open.sort_unstable_by_key(|(tasks, _)| std::cmp::Reverse(*tasks));
        let (mut nodes, mut sum) = (0u64, 0u64);
        for (tasks, count) in open.into_iter().filter(|(tasks, _)| *tasks >= request.least_tasks().max(1)) {
            let taken = u64::from(count).min(u64::from(request.max_nodes) - nodes);
            nodes += taken;
            sum += taken * u64::from(tasks);
        }
        nodes >= u64::from(request.min_nodes) && sum >= u64::from(request.total_tasks())
    }

    /// What a request takes of nodes with so many tasks on each, at a time.
    pub fn amounts(&self, request: &Request, nodes: &[(usize, u32)], at: Timestamp) -> Vec<(usize, Amount)> {
        let of = |(node, tasks): &(usize, u32)| {
            let class = &self.classes[self.class_of(*node)];
            let kind = &self.kinds[class.kind as usize];
            let free = class.steps[class.steps.partition_point(|s| s.from <= at).saturating_sub(1)].free;
            (*node, amount(&kind.shape, kind.unit, request, *tasks, free.memory))
        };
        nodes.iter().map(of).collect()
    }

    /// Could those tasks be enough for the request?
    pub fn suffice(&self, sight: &Sight, limits: &Limits, request: &Request) -> bool {
        let least = request.least_tasks().max(1);
        let open = sight.classes.iter().map(|seen| (seen.nodes, limits.tasks(seen.class as usize)));
        let (nodes, tasks) = open.filter(|(_, tasks)| *tasks >= least).fold((0u64, 0u64), |(n, t), (nodes, tasks)| {
            (n + u64::from(nodes), t + u64::from(nodes) * u64::from(tasks))
        });
        nodes >= u64::from(request.min_nodes) && tasks >= u64::from(request.total_tasks())
    }

    /// Takes amounts of nodes, from `from` to `until`.
    pub fn hold(&mut self, nodes: &[(usize, Amount)], from: Timestamp, until: Timestamp) {
        let until = self.round(until);
        let mut moved: Vec<(u32, Amount, u32)> = Vec::new();
        let mut steps = Vec::new();
        for &(node, what) in nodes {
            let old = self.class_of[node];
            let known = moved.iter().rev().take(8).find(|(class, same, _)| *class == old && *same == what);
            let new = match known {
                Some((.., new)) => *new,
                None => {
                    less(&self.classes[old as usize].steps, from, until, &mut steps, |free| free.less(&what));
                    let new = self.class(self.classes[old as usize].kind, &steps);
                    moved.push((old, what, new));
                    new
                }
            };
            self.class_of[node] = new;
            self.classes[old as usize].members.remove(&index(node));
            self.classes[new as usize].members.insert(index(node));
        }
        for (old, ..) in moved {
            let class = &self.classes[old as usize];
            if class.members.is_empty() && self.known.remove(&(class.kind, Rc::clone(&class.steps))).is_some() {
                self.vacant.push(old);
            }
        }
    }
}

/// Tasks that fit on nodes of each class.
#[derive(Clone, Debug)]
pub struct Limits {
    tasks: Vec<u32>,
}

impl Limits {
    /// Tasks that fit on the nodes of that class.
    pub fn tasks(&self, class: usize) -> u32 {
        self.tasks.get(class).copied().unwrap_or(0)
    }

    /// Tasks that fit on a node, of those that fit there now.
    pub fn bound(&self, class: usize, capacity: Capacity, least: u32) -> Option<Capacity> {
        let tasks = capacity.tasks.min(self.tasks(class));
        (tasks >= least.max(1)).then_some(Capacity { tasks, ..capacity })
    }
}

fn index(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

/// Longest times between which at least `level` tasks fit.
fn windows<'a>(steps: &'a [Step], caps: &'a [u32], level: u32) -> impl Iterator<Item = (Timestamp, Timestamp)> + 'a {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < steps.len() && caps[at] < level {
            at += 1;
        }
        let begin = steps.get(at)?.from;
        while at < steps.len() && caps[at] >= level {
            at += 1;
        }
        Some((begin, steps.get(at).map_or(NEVER, |s| s.from)))
    })
}

/// The steps with what is free between two times replaced.
fn less(steps: &[Step], from: Timestamp, until: Timestamp, new: &mut Vec<Step>, change: impl Fn(&Free) -> Free) {
    new.clear();
    let mut push = |step: Step| {
        if new.last().is_none_or(|last: &Step| last.free != step.free) {
            new.push(step);
        }
    };
    for (place, step) in steps.iter().enumerate() {
        let end = steps.get(place + 1).map_or(NEVER, |s| s.from);
        if step.from < from {
            push(*step);
        }
        let begin = step.from.max(from);
        if begin < end.min(until) {
            push(Step { from: begin, free: change(&step.free) });
        }
        if until < end && step.from.max(until) < end && end > from {
            push(Step { from: step.from.max(until), free: step.free });
        }
    }
}

/// For the owners of what is kept: nothing here is theirs. See [`super::plan`].
pub fn is_kept_for(view: &ClusterView, node: usize, job: JobId) -> bool {
    view.nodes[node].holds.iter().any(|hold| hold.kept && hold.job == job)
}
