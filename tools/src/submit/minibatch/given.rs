//! The numbers of accepted steps, as ranges: a million consecutive steps are one range.

use garrick_model::{
    batch::GivenNumbers,
    ids::JobId,
    spec::ArraySpec,
    step_selector::{StepsSelector, WhichSteps},
};

/// Numbers of accepted steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    ranges: Vec<(u32, u32, u32)>,
    steps: u64,
}

impl Given {
    /// More of them. Numbers grow from one answer to the next.
    pub fn add(&mut self, given: GivenNumbers) {
        let Some(more) = given.count.checked_sub(1) else { return };
        self.steps += u64::from(given.count);
        let last = if given.array { given.first } else { given.first.saturating_add(more) };
        match self.ranges.last_mut() {
            Some((_, end, _)) if end.checked_add(1) == Some(given.first) => *end = last,
            _ => self.ranges.push((given.first, last, 1)),
        }
    }

    /// How many steps.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// `5609.7`, `5609.[1-1000]`, `5609.[1-10,14]`; `None`: no step.
    pub fn names(&self, job: JobId) -> Option<String> {
        if self.ranges.is_empty() {
            return None;
        }
        let which = WhichSteps::Numbers(ArraySpec { ranges: self.ranges.clone(), limit: None });
        Some(StepsSelector { job, task: None, het: None, run: None, which }.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(5609);

    fn of(answers: &[(u32, u32)]) -> Given {
        let mut given = Given::default();
        answers.iter().for_each(|&(first, count)| given.add(GivenNumbers { first, count, array: false }));
        given
    }

    #[test]
    fn consecutive_numbers_are_one_range() {
        let all = of(&[(1, 10_000), (10_001, 5), (10_006, 1)]);
        assert_eq!((all.steps(), all.names(JOB).as_deref()), (10_006, Some("5609.[1-10006]")));
        let gaps = of(&[(0, 2), (5, 1), (7, 3)]);
        assert_eq!((gaps.steps(), gaps.names(JOB).as_deref()), (6, Some("5609.[0-1,5,7-9]")));
        assert_eq!(of(&[(7, 1)]).names(JOB).as_deref(), Some("5609.7"));
        assert_eq!(of(&[(7, 0)]).names(JOB), None);
    }

    #[test]
    fn an_array_has_one_number() {
        let mut given = Given::default();
        given.add(GivenNumbers { first: 7, count: 10_000, array: true });
        assert_eq!((given.steps(), given.names(JOB).as_deref()), (10_000, Some("5609.7")));
    }
}
