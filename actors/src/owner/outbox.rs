//! Holds effects until the events that they follow from are on disk, in order. Part of the actors of all owners.

use std::collections::VecDeque;

/// Effects that wait for the journal, and those behind them.
#[derive(Debug)]
pub struct Outbox<E> {
    batches: VecDeque<Batch<E>>,
    next: u64,
}

#[derive(Debug)]
struct Batch<E> {
    number: u64,
    saved: bool,
    effects: Vec<E>,
}

impl<E> Default for Outbox<E> {
    fn default() -> Self {
        Self { batches: VecDeque::new(), next: 0 }
    }
}

impl<E> Outbox<E> {
    /// Adds effects that may happen once the batch with the returned number is saved.
    pub fn push_unsaved(&mut self, effects: Vec<E>) -> u64 {
        self.next += 1;
        self.batches.push_back(Batch { number: self.next, saved: false, effects });
        self.next
    }

    /// Adds effects that wait only for those before them.
    pub fn push(&mut self, effects: Vec<E>) {
        if !effects.is_empty() {
            self.next += 1;
            self.batches.push_back(Batch { number: self.next, saved: true, effects });
        }
    }

    /// That batch is on disk.
    pub fn saved(&mut self, number: u64) {
        if let Some(batch) = self.batches.iter_mut().find(|b| b.number == number) {
            batch.saved = true;
        }
    }

    /// That batch will never be saved: its effects must not happen.
    pub fn lost(&mut self, number: u64) {
        self.batches.retain(|b| b.number != number);
    }

    /// Nothing that waits will be saved.
    pub fn lose_all(&mut self) {
        self.batches.clear();
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The next effects that may happen.
    pub fn take_ready(&mut self) -> Option<Vec<E>> {
        self.batches.pop_front_if(|b| b.saved).map(|b| b.effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overtakes_what_waits_for_the_disk() {
        let mut outbox = Outbox::default();
        outbox.push(vec![1]);
        let first = outbox.push_unsaved(vec![2]);
        outbox.push(vec![3]);
        let second = outbox.push_unsaved(vec![4]);
        assert_eq!(outbox.take_ready(), Some(vec![1]));
        assert_eq!(outbox.take_ready(), None);
        outbox.saved(second);
        assert_eq!(outbox.take_ready(), None);
        outbox.saved(first);
        assert_eq!(
            (outbox.take_ready(), outbox.take_ready(), outbox.take_ready()),
            (Some(vec![2]), Some(vec![3]), Some(vec![4]))
        );
        let lost = outbox.push_unsaved(vec![5]);
        outbox.push(vec![6]);
        outbox.lost(lost);
        assert_eq!(outbox.take_ready(), Some(vec![6]));
    }
}
