//! Recounting what is free on single nodes: for kept plans, which are repaired.

use super::{Horizon, Kind, Query, Sought, index, less, levels};
use crate::{
    room::node::{
        free::{Amount, whole_node},
        room::Step,
    },
    snapshot::{facts::NEVER, request::Request},
};
use fixedbitset::FixedBitSet;
use garrick_model::{time::Timestamp, view::NodeView};
use std::{collections::BTreeSet, time::Duration};

/// A reservation on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Beginning.
    pub from: Timestamp,
    /// End.
    pub until: Timestamp,
    /// The amounts of the node.
    pub what: Amount,
}

impl Planned {
    fn fits(&self, steps: &[Step]) -> bool {
        let begin = steps.partition_point(|s| s.from <= self.from).saturating_sub(1);
        steps[begin..].iter().take_while(|s| s.from < self.until).all(|s| s.free.covers(&self.what))
    }
}

impl Horizon {
    /// Moves the beginning to `now`: steps that ended are dropped.
    pub fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Recounts what is free on a node between two times: what its view shows, less the times at which it is `closed`, less what
    /// is planned there, in this order. The caller names all that is planned between these times, each with the index in `closed`
    /// of the closings that apply to it; the first of those are the closings of this future. Returns what no longer fits, by its
    /// index in `planned`; that is left out of the count.
    pub fn recount(
        &mut self,
        node: &NodeView,
        (from, until): (Timestamp, Timestamp),
        closed: &[Vec<(Timestamp, Timestamp)>],
        planned: &[(&Planned, usize)],
    ) -> Vec<usize> {
        let place = node.index.0 as usize;
        let old = self.class_of[place];
        let kind = self.classes[old as usize].kind;
        let (mut shown, mut scratch, mut misfits) = (Vec::new(), Vec::new(), Vec::new());
        let Kind { unit, parted, .. } = self.kinds[kind as usize];
        self.futures(node, (unit, parted), &mut shown);
        let whole = whole_node();
        // One future for each view of reservations.
        let mut futures: Vec<Vec<Step>> = vec![shown; closed.len()];
        for (steps, closed) in futures.iter_mut().zip(closed) {
            for (begin, end) in closed {
                less(steps, (*begin).max(self.now), self.round(*end), &mut scratch, |free| free.less(&whole));
                std::mem::swap(steps, &mut scratch);
            }
        }
        for (number, (one, sees)) in planned.iter().enumerate() {
            if !futures.get(*sees).is_some_and(|steps| one.fits(steps)) {
                misfits.push(number);
                continue;
            }
            for steps in &mut futures {
                less(steps, one.from, self.round(one.until), &mut scratch, |free| free.less(&one.what));
                std::mem::swap(steps, &mut scratch);
            }
        }
        let steps = futures.first().map_or(&[][..], Vec::as_slice);
        splice(&self.classes[old as usize].steps, (from, until), steps, &mut scratch);
        let new = self.class(kind, &scratch);
        if new != old {
            self.class_of[place] = new;
            self.classes[old as usize].members.remove(&index(place));
            self.classes[new as usize].members.insert(index(place));
            self.vacate(old);
        }
        misfits
    }

    /// What is free on a node from `at` on.
    #[cfg(test)]
    pub(crate) fn steps_from(&self, node: usize, at: Timestamp) -> Vec<Step> {
        let steps = &self.classes[self.class_of(node)].steps;
        let rest = steps[steps.partition_point(|s| s.from <= at).saturating_sub(1)..].iter();
        rest.map(|step| Step { from: step.from.max(at), free: step.free.clone() }).collect()
    }

    /// Does the amount fit on the node at that time?
    pub(crate) fn covers(&self, node: usize, what: &Amount, at: Timestamp) -> bool {
        let steps = &self.classes[self.class_of(node)].steps;
        steps[steps.partition_point(|s| s.from <= at).saturating_sub(1)].free.covers(what)
    }

    /// From when on, before `before`, the first node of these classes has room for an even share of the request on the largest
    /// allowed number of nodes.
    pub fn opens(
        &self,
        classes: &BTreeSet<usize>,
        request: &Request,
        candidates: &FixedBitSet,
        before: Timestamp,
        length: Duration,
    ) -> Option<Timestamp> {
        let query = Query { request, candidates, length };
        let (level, _) = levels(request).pop()?;
        let mut first: Option<Timestamp> = None;
        for class in classes.iter().map(|class| &self.classes[*class]) {
            let kind = &self.kinds[class.kind as usize];
            let latest = Timestamp(first.unwrap_or(before).0 - 1);
            if latest < self.now {
                break;
            }
            if Self::takes(kind, &query)
                && let Some((at, _)) = Sought::on(kind, &query, level).window(class, (self.now, latest))
            {
                first = Some(at);
            }
        }
        first
    }

    /// Could the request start before `before`, with `own` nodes that are already reserved for it?
    pub(crate) fn could_be_earlier(
        &mut self,
        request: &Request,
        candidates: &FixedBitSet,
        own: u32,
        before: Timestamp,
        length: Duration,
    ) -> bool {
        let query = Query { request, candidates, length };
        let times = (self.round(self.now), Timestamp(before.0 - 1));
        levels(request).into_iter().any(|(level, nodes)| {
            nodes <= own || times.0 <= times.1 && self.when(&query, level, nodes - own, times).is_some()
        })
    }
}

/// The steps of `outer`, with those between two times taken from `inner`.
fn splice(outer: &[Step], (from, until): (Timestamp, Timestamp), inner: &[Step], spliced: &mut Vec<Step>) {
    spliced.clear();
    let mut push = |step: Step| {
        if spliced.last().is_none_or(|last: &Step| last.free != step.free) {
            spliced.push(step);
        }
    };
    outer.iter().take_while(|s| s.from < from).cloned().for_each(&mut push);
    let begin = inner.partition_point(|s| s.from <= from).saturating_sub(1);
    for step in inner[begin..].iter().take_while(|s| s.from < until) {
        push(Step { from: step.from.max(from), free: step.free.clone() });
    }
    if until < NEVER {
        let rest = outer.partition_point(|s| s.from <= until).saturating_sub(1);
        for step in &outer[rest..] {
            push(Step { from: step.from.max(until), free: step.free.clone() });
        }
    }
}
