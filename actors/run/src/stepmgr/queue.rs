//! Waiting steps in the order in which they are considered: higher priority first, and first come, first served among equals. A
//! minibatch step counts as if it had come `minibatch_age` later than it did. So a blocking `srun` goes ahead of queued minibatch
//! steps, and none of them waits behind newer `srun`s for longer than that.

use crate::stepmgr::rows::RowId;
use garrick_model::time::Timestamp;
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
    time::Duration,
};

/// Whether a command waits with the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// An `srun`.
    Blocking,
    /// None: a minibatch step.
    Minibatch,
}

/// Position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    priority: Reverse<i32>,
    counts_from: Timestamp,
    arrival: u64,
}

/// What waits at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// An attended step, by number.
    Attended(u32),
    /// Minibatch steps that differ only in their number.
    Row(RowId),
}

/// The queue.
#[derive(Debug, Default)]
pub struct StepQueue {
    order: BTreeMap<QueueKey, Waiting>,
    arrivals: u64,
}

impl StepQueue {
    /// A position for a step that arrives now (or, after a restart, that arrived then).
    pub fn place(&mut self, at: Timestamp, urgency: Urgency, age: Duration, priority: i32) -> QueueKey {
        self.arrivals += 1;
        let counts_from = match urgency {
            Urgency::Blocking => at,
            Urgency::Minibatch => at.plus(age),
        };
        QueueKey { priority: Reverse(priority), counts_from, arrival: self.arrivals }
    }

    /// Inserts an entry.
    pub fn insert(&mut self, key: QueueKey, what: Waiting) {
        self.order.insert(key, what);
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: QueueKey) {
        self.order.remove(&key);
    }

    /// Is there an entry?
    pub fn contains(&self, key: QueueKey) -> bool {
        self.order.contains_key(&key)
    }

    /// The first after `key`, or the first of all.
    pub fn next(&self, after: Option<QueueKey>) -> Option<(QueueKey, Waiting)> {
        let from = after.map_or(Unbounded, Excluded);
        self.order.range((from, Unbounded)).next().map(|(k, s)| (*k, *s))
    }

    /// Number of entries: attended steps and rows.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Nothing waits that may start.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Everything, in order.
    pub fn iter(&self) -> impl Iterator<Item = (QueueKey, Waiting)> + '_ {
        self.order.iter().map(|(k, w)| (*k, *w))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(arrivals: &[(i64, Urgency, i32)]) -> Vec<u32> {
        let mut queue = StepQueue::default();
        for ((at, urgency, priority), step) in arrivals.iter().zip(0..) {
            let key = queue.place(Timestamp::from_secs(*at), *urgency, Duration::from_secs(60), *priority);
            queue.insert(key, Waiting::Attended(step));
        }
        queue.iter().map(|(_, w)| if let Waiting::Attended(step) = w { step } else { u32::MAX }).collect()
    }

    #[test]
    fn blocking_goes_ahead_of_minibatch_until_that_has_aged() {
        use Urgency::{Blocking, Minibatch};
        assert_eq!(queue(&[(0, Minibatch, 0), (1, Minibatch, 0), (30, Blocking, 0), (61, Blocking, 0)]), [2, 0, 1, 3]);
    }

    #[test]
    fn equal_times_keep_the_order_of_arrival() {
        use Urgency::Blocking;
        assert_eq!(queue(&[(7, Blocking, 0), (7, Blocking, 0), (7, Blocking, 0)]), [0, 1, 2]);
    }

    #[test]
    fn the_greater_priority_goes_first_whoever_came_before() {
        use Urgency::{Blocking, Minibatch};
        assert_eq!(queue(&[(0, Blocking, 0), (9, Minibatch, 5), (9, Minibatch, -1), (8, Minibatch, 5)]), [3, 1, 0, 2]);
    }
}
