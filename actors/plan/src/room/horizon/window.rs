//! When nodes of one class have room for a request. Most steps are ruled out by their number of free CPUs, so that number is kept
//! apart: for most classes, searches read nothing else.

use super::{Class, Kind, Query};
use crate::{
    room::node::{
        free::{Free, common_cpus_of_part, cpus_of_part},
        room::Step,
    },
    snapshot::{
        facts::NEVER,
        request::{NodeUse, Part, Request},
    },
};
use garrick_model::{gres::Totals, time::Timestamp};
use std::time::Duration;

/// The fields of a [`Step`] that rule out most requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Brief {
    pub from: Timestamp,
    cpus: u32,
    idle: bool,
}

impl Brief {
    pub const fn of(step: &Step) -> Self {
        Self { from: step.from, cpus: step.free.cpus, idle: step.free.idle }
    }

    pub const fn is_idle(&self) -> bool {
        self.idle
    }
}

/// The least that has to be free, whatever else is requested: quick to test, and what an index is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// At least so many CPUs are free.
    Cpus(u32),
    /// The node is idle.
    Idle,
}

impl Room {
    /// For `level` of the request on a node of that kind; `None` where CPUs are shared, or come with GPUs.
    pub fn least(kind: &Kind, request: &Request, level: Part) -> Option<Self> {
        match request.usage {
            NodeUse::Oversubscribe(_) => None,
            NodeUse::Whole => Some(Self::Idle),
            // The more GPUs, the more CPUs come with them.
            _ if counts_by_gpus(kind, request) => None,
            NodeUse::Cpus | NodeUse::User | NodeUse::Label => {
                Some(Self::Cpus(cpus_of_part(&kind.shape, kind.unit, request, level)))
            }
        }
    }

    pub const fn is_in(self, free: &Brief) -> bool {
        match self {
            Self::Cpus(cpus) => free.cpus >= cpus,
            Self::Idle => free.idle,
        }
    }
}

/// What is searched for on nodes of one kind.
#[derive(Clone, Copy)]
pub(super) struct Sought<'r> {
    kind: &'r Kind,
    request: &'r Request,
    level: Part,
    least: Option<Room>,
    length: Duration,
}

impl<'r> Sought<'r> {
    pub fn on(kind: &'r Kind, query: &Query<'r>, level: Part) -> Self {
        let Query { request, length, .. } = *query;
        Self { kind, request, level, least: Room::least(kind, request, level), length }
    }

    /// Do the very same CPUs or GPUs have to be free all the time?
    const fn together(&self) -> bool {
        self.kind.parted || self.kind.sharded && self.request.gres.is_some()
    }

    /// The part of the request that fits; `None`: less than is searched for.
    pub fn room(&self, class: &Class, place: usize) -> Option<Part> {
        if self.least.is_some_and(|least| !least.is_in(&class.brief[place])) {
            return None;
        }
        Some(room(&class.steps[place].free, self.kind, self.request)).filter(|room| room.holds(self.level))
    }

    /// The same for the whole interval.
    pub(crate) fn room_during(&self, class: &Class, from: Timestamp, until: Timestamp) -> Option<Part> {
        let begin = class.brief.partition_point(|s| s.from <= from).saturating_sub(1);
        let rest = class.brief[begin..].iter().take_while(|s| s.from < until || s.from <= from).count();
        if self.together() {
            let free = common(class.steps[begin..begin + rest].iter().map(|step| &step.free))?;
            return Some(room(&free, self.kind, self.request)).filter(|room| room.holds(self.level));
        }
        let most = Part { tasks: u32::MAX, total: Totals::ALL };
        (begin..begin + rest).try_fold(most, |part, place| {
            let here = self.room(class, place)?;
            let both = Part { tasks: part.tasks.min(here.tasks), total: part.total.min(here.total) };
            both.holds(self.level).then_some(both)
        })
    }

    /// The first time from `from` to `latest` from which on a node of the class has room for the requested time, and since when
    /// it has.
    pub fn window(&self, class: &Class, times: (Timestamp, Timestamp)) -> Option<(Timestamp, Timestamp)> {
        if self.together() {
            let fits = |free: &Free| room(free, self.kind, self.request).holds(self.level) && self.has_level(free);
            let least = |place: usize| self.least.is_none_or(|least| least.is_in(&class.brief[place]));
            return common_window(&class.steps, least, fits, times, self.length);
        }
        let has = |place: usize| self.room(class, place).is_some() && self.has_level(&class.steps[place].free);
        first_window(&class.brief, has, times, self.length)
    }

    /// Where CPUs come with GPUs: are there enough CPUs for the tasks with only this many GPUs?
    fn has_level(&self, free: &Free) -> bool {
        !counts_by_gpus(self.kind, self.request) || common_cpus(self.kind, self.request, self.level) <= free.cpus
    }
}

/// Does the number of CPUs that the request finds on a node of that kind depend on its GPUs?
pub(super) fn counts_by_gpus(kind: &Kind, request: &Request) -> bool {
    let own = matches!(request.usage, NodeUse::Cpus | NodeUse::User | NodeUse::Label);
    own && request.gres.is_some() && !kind.shape.gpu_cpus.is_empty()
}

/// CPUs that this part takes of such a node, besides those that come with its GPUs.
pub(super) fn common_cpus(kind: &Kind, request: &Request, part: Part) -> u32 {
    common_cpus_of_part(&kind.shape, (kind.unit, kind.shape.cpus_per_gpu()), request, part)
}

/// How much of the request a node of that kind has room for.
pub(super) fn room(free: &Free, kind: &Kind, request: &Request) -> Part {
    let capacity = free.capacity(&kind.shape, kind.unit, request);
    capacity.map_or(Part::default(), |c| Part { tasks: c.tasks, total: c.total })
}

/// The first time from `from` to `latest` at which `has` begins to hold for `length`, and since when it holds.
pub(super) fn first_window(
    steps: &[Brief],
    has: impl Fn(usize) -> bool,
    (from, latest): (Timestamp, Timestamp),
    length: Duration,
) -> Option<(Timestamp, Timestamp)> {
    let present = steps.partition_point(|s| s.from <= from).saturating_sub(1);
    let mut since: Option<usize> = None;
    for (place, step) in steps.iter().enumerate().skip(present) {
        if since.is_none() && step.from > latest {
            return None;
        }
        if !has(place) {
            since = None;
            continue;
        }
        let begin = *since.get_or_insert(place);
        let start = steps[begin].from.max(from);
        let end = steps.get(place + 1).map_or(NEVER, |s| s.from);
        if end == NEVER || end >= start.plus(length) {
            let before = (0..begin).rev().take_while(|place| begin == present && has(*place)).count();
            return (start <= latest).then(|| (start, steps[begin - before].from));
        }
    }
    None
}

/// What is free all the time.
pub(super) fn common<'f>(mut times: impl Iterator<Item = &'f Free>) -> Option<Free> {
    let first = times.next()?.clone();
    Some(times.fold(first, |least, free| least.least(free)))
}

/// As [`first_window`], where the same CPUs or GPUs have to be free all the time. `least`: is the minimum free in a step?
fn common_window(
    steps: &[Step],
    least: impl Fn(usize) -> bool,
    has: impl Fn(&Free) -> bool,
    (from, latest): (Timestamp, Timestamp),
    length: Duration,
) -> Option<(Timestamp, Timestamp)> {
    let first = steps.partition_point(|s| s.from <= from).saturating_sub(1);
    let places = (first..steps.len()).take_while(|place| steps[*place].from.max(from) <= latest);
    places.filter(|place| least(*place)).find_map(|place| {
        let begin = steps[place].from.max(from);
        let until = begin.plus(length);
        let during = steps[place..].iter().take_while(|s| s.from < until || s.from <= begin);
        has(&common(during.map(|s| &s.free))?).then_some((begin, steps[place].from))
    })
}
