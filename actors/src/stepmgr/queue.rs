//! Waiting steps in the order in which they are looked at: first come, first served, where a minibatch step counts as if
//! it had come `minibatch_age` later than it did. So a blocking `srun` goes ahead of queued minibatch steps, and none of
//! them waits behind newer `srun`s for longer than that.

use garrick_model::time::Timestamp;
use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
    time::Duration,
};

/// Who waits with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// An `srun`.
    Blocking,
    /// Nobody: minibatch.
    Minibatch,
}

/// Place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    counts_from: Timestamp,
    arrival: u64,
}

/// The queue; steps are named by number.
#[derive(Debug, Default)]
pub struct StepQueue {
    order: BTreeMap<QueueKey, u32>,
    arrivals: u64,
}

impl StepQueue {
    /// Adds a step.
    pub fn push(&mut self, now: Timestamp, urgency: Urgency, age: Duration, step: u32) -> QueueKey {
        self.arrivals += 1;
        let counts_from = match urgency {
            Urgency::Blocking => now,
            Urgency::Minibatch => now.plus(age),
        };
        let key = QueueKey { counts_from, arrival: self.arrivals };
        self.order.insert(key, step);
        key
    }

    /// Takes a step out.
    pub fn remove(&mut self, key: QueueKey) {
        self.order.remove(&key);
    }

    /// The first step after `key`, or the first of all.
    pub fn next(&self, after: Option<QueueKey>) -> Option<(QueueKey, u32)> {
        let from = after.map_or(Unbounded, Excluded);
        self.order.range((from, Unbounded)).next().map(|(k, s)| (*k, *s))
    }

    /// Steps waiting.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// None waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queue: &StepQueue) -> Vec<u32> {
        queue.order.values().copied().collect()
    }

    #[test]
    fn blocking_goes_ahead_of_minibatch_until_that_has_aged() {
        let mut queue = StepQueue::default();
        let age = Duration::from_secs(60);
        queue.push(Timestamp::from_secs(0), Urgency::Minibatch, age, 0);
        queue.push(Timestamp::from_secs(1), Urgency::Minibatch, age, 1);
        queue.push(Timestamp::from_secs(30), Urgency::Blocking, age, 2);
        queue.push(Timestamp::from_secs(61), Urgency::Blocking, age, 3);
        assert_eq!(order(&queue), [2, 0, 1, 3]);
    }

    #[test]
    fn equal_times_keep_the_order_of_arrival() {
        let mut queue = StepQueue::default();
        for step in [5, 3, 9] {
            queue.push(Timestamp::from_secs(7), Urgency::Blocking, Duration::ZERO, step);
        }
        assert_eq!(order(&queue), [5, 3, 9]);
    }
}
