//! How steps ended, for the life of the run: a few bytes each; one bit for an array task that ended normally.

use crate::step::state::worse;
use garrick_model::{
    ids::{StepKey, StepNum},
    state::{ExitStatus, StepState},
};
use roaring::RoaringBitmap;
use std::collections::BTreeMap;

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedStep {
    /// Final state.
    pub state: StepState,
    /// Exit status.
    pub exit: ExitStatus,
    /// It is a minibatch step: no command waited with it.
    pub minibatch: bool,
}

impl EndedStep {
    const WELL: Self = Self { state: StepState::Completed, exit: ExitStatus::SUCCESS, minibatch: true };

    /// How it counts for the worst exit status: a cancelled step counts as 1, whatever signal ended its tasks, and so does a step
    /// that failed without an exit status of its own.
    pub fn verdict(self) -> ExitStatus {
        let own = self.ok() || (self.state != StepState::Cancelled && !self.exit.success());
        if own { self.exit } else { ExitStatus { code: 1, signal: None } }
    }

    /// Did it end with 0, in the sense of `afterok`?
    pub fn ok(self) -> bool {
        self.state == StepState::Completed
    }
}

/// Ends of numbered steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ends {
    by_number: Vec<Option<EndedStep>>,
    arrays: BTreeMap<u32, ArrayEnds>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ArrayEnds {
    well: RoaringBitmap,
    otherwise: BTreeMap<u32, EndedStep>,
}

impl Ends {
    /// Notes an end. The first counts.
    pub fn note(&mut self, key: StepKey, end: EndedStep) {
        let StepNum::Number(number) = key.step else { return };
        let Some(task) = key.array else {
            let at = number as usize;
            if self.by_number.len() <= at {
                self.by_number.resize(at + 1, None);
            }
            self.by_number[at].get_or_insert(end);
            return;
        };
        let array = self.arrays.entry(number).or_default();
        if array.well.contains(task) {
            return;
        }
        if end == EndedStep::WELL {
            if !array.otherwise.contains_key(&task) {
                array.well.insert(task);
            }
        } else {
            array.otherwise.entry(task).or_insert(end);
        }
    }

    /// The worst exit status of all minibatch steps.
    pub fn worst_of_minibatch(&self) -> ExitStatus {
        let numbers = self.by_number.iter().flatten();
        let tasks = self.arrays.values().flat_map(|array| array.otherwise.values());
        let all = numbers.chain(tasks).filter(|end| end.minibatch);
        all.fold(ExitStatus::SUCCESS, |so_far, end| worse(so_far, end.verdict()))
    }

    /// How a step ended, if it did.
    pub fn of(&self, key: StepKey) -> Option<EndedStep> {
        let StepNum::Number(number) = key.step else { return None };
        match key.array {
            None => self.by_number.get(number as usize).copied().flatten(),
            Some(task) => {
                let array = self.arrays.get(&number)?;
                array.well.contains(task).then_some(EndedStep::WELL).or_else(|| array.otherwise.get(&task).copied())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_step_counts_as_1_whatever_ended_its_tasks() {
        let ended = |state, code, signal| {
            let exit = ExitStatus { code, signal };
            EndedStep { state, exit, minibatch: true }.verdict().shell_code()
        };
        assert_eq!(ended(StepState::Cancelled, 0, Some(15)), 1);
        assert_eq!(ended(StepState::Cancelled, 0, None), 1);
        assert_eq!(ended(StepState::Failed, 0, Some(9)), 137);
        assert_eq!(ended(StepState::Failed, 3, None), 3);
        assert_eq!(ended(StepState::Completed, 0, None), 0);
    }

    #[test]
    fn the_first_end_of_a_step_counts() {
        let failed =
            EndedStep { state: StepState::Failed, exit: ExitStatus { code: 3, signal: None }, minibatch: true };
        let mut ends = Ends::default();
        for key in [StepKey::number(4), StepKey::task(5, 70_000)] {
            assert_eq!(ends.of(key), None);
            ends.note(key, failed);
            ends.note(key, EndedStep::WELL);
            assert_eq!(ends.of(key), Some(failed));
        }
        ends.note(StepKey::task(5, 1), EndedStep::WELL);
        ends.note(StepKey::task(5, 1), failed);
        assert_eq!(ends.of(StepKey::task(5, 1)), Some(EndedStep::WELL));
        assert_eq!(ends.of(StepKey::number(5)), None);
    }
}
