//! The requested steps of a pack.

use crate::{
    block::Mark,
    index::{Entry, Span},
    record::{Group, code_of},
};
use garrick_model::{
    ids::{JobId, StepId, StepNum},
    spec::ArraySpec,
    step_selector::WhichSteps,
};

/// Steps of one job, or of whatever jobs are in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Only of this job.
    pub job: Option<JobId>,
    /// Only of this heterogeneous component; `None` for any.
    pub het: Option<u32>,
    /// Which steps.
    pub which: WhichSteps,
}

/// Steps that are wanted: those of any of the picks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The picks.
    pub picks: Vec<Pick>,
}

impl Selection {
    /// One step, or one task of a step array; for a step array without a task, all of them.
    pub fn one(step: StepId) -> Self {
        Self { picks: vec![Pick { job: Some(step.job), het: step.het, which: WhichSteps::one(step.key()) }] }
    }

    /// Is this step wanted?
    pub fn contains(&self, step: &StepId) -> bool {
        let group = Group::of(step);
        self.picks.iter().any(|pick| pick.may_be_in(group) && pick.which.contains(step.key()))
    }

    /// May a block contain selected steps, according to its index entry?
    pub(crate) fn touches_entry(&self, entry: &Entry) -> bool {
        let Some((group, spans)) = &entry.holds else { return true };
        self.picks
            .iter()
            .filter(|pick| pick.may_be_in(*group))
            .any(|pick| spans.iter().any(|s| touches(&pick.which, s)))
    }

    /// May a block contain selected steps, according to its header?
    pub(crate) fn touches_block(&self, group: Group, first: Mark, last: Mark) -> bool {
        // Between marks of two steps lie whole steps: of the tasks nothing is known.
        let span = |pick: &Pick| match (&pick.which, first.step == last.step) {
            (WhichSteps::Tasks { step, .. }, false) => (first.step..=last.step).contains(step),
            (which, _) => touches(which, &Span { first, last }),
        };
        self.picks.iter().any(|pick| pick.may_be_in(group) && span(pick))
    }
}

impl Pick {
    fn may_be_in(&self, group: Group) -> bool {
        self.job.is_none_or(|job| job == group.job) && (self.het.is_none() || self.het == group.het)
    }
}

/// Is a member of the span among those?
fn touches(which: &WhichSteps, span: &Span) -> bool {
    let (first, last) = (span.first.step, span.last.step);
    match which {
        WhichSteps::All => first < code_of(StepNum::Interactive),
        WhichSteps::Special(step) => (first..=last).contains(&code_of(*step)),
        WhichSteps::Numbers(numbers) => meets(numbers, first, last),
        WhichSteps::Tasks { step, tasks } => {
            // A task's number is its index plus 1.
            first == *step
                && last == *step
                && span.last.task > 0
                && meets(tasks, span.first.task.saturating_sub(1), span.last.task - 1)
        }
    }
}

/// Has the list an index from `from` to `to`?
fn meets(list: &ArraySpec, from: u32, to: u32) -> bool {
    list.ranges.iter().any(|&(first, last, step)| {
        let step = step.max(1);
        // The least index of the range that is not below `from`.
        let least = match from.checked_sub(first) {
            None => Some(first),
            Some(over) => over.div_ceil(step).checked_mul(step).and_then(|over| first.checked_add(over)),
        };
        least.is_some_and(|least| least <= last.min(to))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::ids::StepKey;
    use proptest::prelude::*;

    fn picked(text: &str) -> Selection {
        Selection { picks: vec![Pick { job: None, het: None, which: text.parse().unwrap() }] }
    }

    fn id(job: u32, key: StepKey) -> StepId {
        StepId::of(JobId(job), key)
    }

    #[test]
    fn a_job_narrows_a_pick() {
        let mut selection = picked("7_[1-3]");
        assert!(selection.contains(&id(1, StepKey::task(7, 3))) && !selection.contains(&id(1, StepKey::number(7))));
        selection.picks[0].job = Some(JobId(2));
        assert!(!selection.contains(&id(1, StepKey::task(7, 3))) && selection.contains(&id(2, StepKey::task(7, 3))));
        let one = Selection::one(id(2, StepKey::BATCH));
        assert!(one.contains(&id(2, StepKey::BATCH)) && !one.contains(&id(3, StepKey::BATCH)));
    }

    #[test]
    fn special_steps_are_found_between_marks() {
        let group = Group { job: JobId(1), het: None };
        let mark = |step| Mark { step, task: 0 };
        assert!(picked("batch").touches_block(group, mark(3), mark(code_of(StepNum::Batch))));
        assert!(!picked("batch").touches_block(group, mark(3), mark(4)));
        assert!(!picked("*").touches_block(group, mark(code_of(StepNum::Batch)), mark(code_of(StepNum::Batch))));
    }

    fn which() -> impl Strategy<Value = String> {
        let list = proptest::collection::vec((0u32..30, 0u32..6, 1u32..4), 1..4).prop_map(|ranges| {
            let texts: Vec<String> =
                ranges.iter().map(|(from, more, step)| format!("{from}-{}:{step}", from + more)).collect();
            texts.join(",")
        });
        (list, proptest::option::of(0u32..4)).prop_map(|(list, step)| match step {
            None => format!("[{list}]"),
            Some(step) => format!("{step}_[{list}]"),
        })
    }

    proptest! {
        /// What is in a block is never passed over, and by spans nothing is read in vain.
        #[test]
        fn blocks_are_passed_over_only_when_nothing_in_them_is_wanted(
            which in which(), keys in proptest::collection::vec((0u32..5, proptest::option::of(0u32..36)), 1..12),
        ) {
            let selection = picked(&which);
            let keys: Vec<StepKey> = keys.into_iter().map(|(n, array)| StepKey { step: StepNum::Number(n), array }).collect();
            let wanted = keys.iter().any(|key| selection.contains(&id(1, *key)));
            let group = Group { job: JobId(1), het: None };
            let mut marks: Vec<Mark> = keys.iter().map(|key| Mark::of(*key)).collect();
            let spans = crate::index::spans(&mut marks);
            prop_assert_eq!(selection.touches_entry(&Entry { offset: 16, holds: Some((group, spans)) }), wanted);
            let touched = selection.touches_block(group, marks[0], marks[marks.len() - 1]);
            prop_assert!(touched || !wanted);
        }
    }
}
