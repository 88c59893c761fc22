//! Owners that fail, and the time between two lives of one: as in the controller, the next life begins from the committed state
//! after all that was appended before is committed, and messages that come meanwhile wait.

use super::world::World;
use garrick_actors::{partition::messages::PartitionInput, reservation::owner::ReservationInput};
use garrick_model::ids::JobId;
use std::collections::{BTreeMap, VecDeque};

/// The batch that a new life waits for.
const ALL_BEFORE: u64 = 0;
/// A batch is known by its life and its number in that.
const LIFE_BITS: u32 = 32;

/// Lives of owners.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// How often a job's owner was built anew.
    pub(super) jobs: BTreeMap<JobId, u64>,
    /// The same of nodes.
    pub(super) nodes: Vec<u64>,
    pub(super) reservations: Life<ReservationInput>,
    pub(super) partitions: Vec<Life<PartitionInput>>,
}

/// Which life of an owner it is, and whether that has begun.
#[derive(Debug)]
pub(super) struct Life<I> {
    number: u64,
    waiting: bool,
    early: VecDeque<I>,
}

impl<I> Default for Life<I> {
    fn default() -> Self {
        Self { number: 0, waiting: false, early: VecDeque::new() }
    }
}

/// What is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saved {
    /// All that earlier lives appended: this one may begin.
    All,
    /// A batch of this life.
    Batch(u64),
    /// Something that is no longer waited for.
    OfEarlierLife,
}

impl<I> Life<I> {
    /// The number by which the disk knows a batch of this life.
    pub(super) const fn number_of(&self, batch: u64) -> u64 {
        batch | self.number << LIFE_BITS
    }

    /// The owner fails: its next life waits for the batch of the returned number.
    pub(super) const fn fail(&mut self) -> u64 {
        self.number += 1;
        self.waiting = true;
        self.number_of(ALL_BEFORE)
    }

    /// It has yet to begin.
    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// What that batch is to this life, which begins with the one that it waits for.
    pub(super) fn saved(&mut self, batch: u64) -> Saved {
        if batch >> LIFE_BITS != self.number {
            return Saved::OfEarlierLife;
        }
        match batch ^ self.number << LIFE_BITS {
            ALL_BEFORE => {
                self.waiting = false;
                Saved::All
            }
            batch => Saved::Batch(batch),
        }
    }

    /// Keeps an input for a life that has yet to begin, or gives it back.
    pub(super) fn wait(&mut self, input: I) -> Option<I> {
        if self.waiting {
            self.early.push_back(input);
            return None;
        }
        Some(input)
    }

    /// What came before this life began, one at a time: the rest is the next one's if it fails.
    pub(super) fn next_early(&mut self) -> Option<I> {
        if self.waiting { None } else { self.early.pop_front() }
    }
}

impl World {
    /// Does an owner fail over what it is told? One that is told little fails over it so many times as often.
    pub(super) fn fails_over_it(&mut self, times: u32) -> bool {
        !self.is_calm() && self.random.one_in_thousand(self.mix.owners_fail * times)
    }
}
