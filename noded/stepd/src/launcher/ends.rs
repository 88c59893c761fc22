//! The latest ends of tasks, for a `stepd` that adopts this launcher.

use garrick_model::messages::launcher::{ENDS_KEPT, TaskOver};
use std::collections::VecDeque;

/// The last [`ENDS_KEPT`] ends, and all that no `stepd` was told of.
#[derive(Debug, Default)]
pub(super) struct Ends {
    ring: VecDeque<TaskOver>,
    /// So many of the last were told to nobody.
    untold: usize,
}

impl Ends {
    /// Remembers an end. `told`: a `stepd` is there to be told of it.
    pub(super) fn push(&mut self, over: TaskOver, told: bool) {
        self.ring.push_back(over);
        self.untold = if told { 0 } else { self.untold + 1 };
        while self.ring.len() > ENDS_KEPT.max(self.untold) {
            self.ring.pop_front();
        }
    }

    /// All of them, oldest first.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &TaskOver> {
        self.ring.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::{
        ids::{JobId, StepId, StepNum},
        messages::launcher::TaskLabel,
        state::ExitStatus,
        usage::TaskUsage,
    };

    fn over(token: u64) -> TaskOver {
        let step = StepId::new(JobId(1), StepNum::Number(0));
        let label =
            TaskLabel { step, attempt: 0, rank: 0, own_cgroup: false, epilog: false, profiling: Default::default() };
        TaskOver { token, label, status: ExitStatus::SUCCESS, usage: TaskUsage::default() }
    }

    #[test]
    fn the_oldest_is_forgotten_but_never_one_that_nobody_was_told_of() {
        let mut ends = Ends::default();
        let kept = ENDS_KEPT as u64;
        for token in 0..kept + 3 {
            ends.push(over(token), true);
        }
        let first = |ends: &Ends| ends.iter().next().map(|e| e.token);
        assert_eq!((ends.iter().len(), first(&ends)), (ENDS_KEPT, Some(3)));
        for token in 0..2 * kept {
            ends.push(over(token), false);
        }
        assert_eq!((ends.iter().len(), first(&ends)), (2 * ENDS_KEPT, Some(0)));
        ends.push(over(7), true);
        assert_eq!(ends.iter().len(), ENDS_KEPT);
    }
}
