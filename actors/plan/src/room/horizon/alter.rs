//! Taking resources of nodes for some time.

use super::{Horizon, index};
use crate::{
    room::node::{
        free::{Amount, Free},
        room::Step,
    },
    snapshot::facts::NEVER,
};
use garrick_model::{resources::CpuSet, time::Timestamp};
use std::rc::Rc;

impl Horizon {
    /// Takes amounts of nodes, from `from` to `until`.
    pub fn hold(&mut self, nodes: &[(usize, Amount)], from: Timestamp, until: Timestamp) {
        self.alter(nodes, from, until, |free, what, _| free.less(what));
    }

    /// Closes CPUs of nodes of which a part is reserved, from `from` to `until`.
    pub fn close(&mut self, nodes: &[(usize, CpuSet)], from: Timestamp, until: Timestamp) {
        self.alter(nodes, from, until, |free, cpus, unit| free.without(cpus, unit));
    }

    fn alter<W: Clone + PartialEq>(
        &mut self,
        nodes: &[(usize, W)],
        from: Timestamp,
        until: Timestamp,
        change: impl Fn(&Free, &W, u32) -> Free,
    ) {
        let until = self.round(until);
        let mut moved: Vec<(u32, W, u32)> = Vec::new();
        let mut steps = Vec::new();
        for (node, what) in nodes {
            let (node, old) = (*node, self.class_of[*node]);
            let known = moved.iter().rev().take(8).find(|(class, same, _)| *class == old && same == what);
            let new = match known {
                Some((.., new)) => *new,
                None => {
                    let unit = self.kinds[self.classes[old as usize].kind as usize].unit;
                    less(&self.classes[old as usize].steps, from, until, &mut steps, |free| change(free, what, unit));
                    let new = self.class(self.classes[old as usize].kind, &steps);
                    moved.push((old, what.clone(), new));
                    new
                }
            };
            self.class_of[node] = new;
            self.classes[old as usize].members.remove(&index(node));
            self.classes[new as usize].members.insert(index(node));
        }
        for (old, ..) in moved {
            self.vacate(old);
        }
    }

    /// Frees the number of a class without nodes for another class.
    pub(super) fn vacate(&mut self, number: u32) {
        let class = &self.classes[number as usize];
        if class.members.is_empty() && self.known.remove(&(class.kind, Rc::clone(&class.steps))).is_some() {
            self.vacant.push(number);
        }
    }
}

/// The steps, with what is free between two times replaced.
pub(super) fn less(
    steps: &[Step],
    from: Timestamp,
    until: Timestamp,
    new: &mut Vec<Step>,
    change: impl Fn(&Free) -> Free,
) {
    new.clear();
    let mut push = |step: Step| {
        if new.last().is_none_or(|last: &Step| last.free != step.free) {
            new.push(step);
        }
    };
    for (place, step) in steps.iter().enumerate() {
        let end = steps.get(place + 1).map_or(NEVER, |s| s.from);
        if step.from < from {
            push(step.clone());
        }
        let begin = step.from.max(from);
        if begin < end.min(until) {
            push(Step { from: begin, free: change(&step.free) });
        }
        if until < end && step.from.max(until) < end && end > from {
            push(Step { from: step.from.max(until), free: step.free.clone() });
        }
    }
}
