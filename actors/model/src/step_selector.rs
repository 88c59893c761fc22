//! Steps as users name them: `5609.7`, `5609.7_3`, `5609.7_[10-20]`, `5609.7_*`, `5609.[3-9]`, `5609.*`, for `scancel`,
//! `squeue -s`, `swait --step` and `--dependency`.

use crate::{
    ids::{ArrayTask, IdError, JobId, Sluid, StepKey, StepNum, job_number, number, run_named},
    spec::ArraySpec,
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

const WHAT: &str = "step id";
const FORMS: &str = "JOB.STEP, JOB.STEP_TASK, JOB.STEP_[TASKS], JOB.[STEPS] or JOB.*";

/// Which steps of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhichSteps {
    /// Every numbered step, `*`.
    All,
    /// A step without a number.
    Special(StepNum),
    /// Numbered steps; of an array all tasks.
    Numbers(ArraySpec),
    /// Tasks of one array.
    Tasks {
        /// The array's number.
        step: u32,
        /// Which.
        tasks: ArraySpec,
    },
}

/// Steps of a job, which may be named as a task of a job array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepsSelector {
    /// The job, or the job array when `task` is there.
    pub job: JobId,
    /// Task of the job array.
    #[serde(default)]
    pub task: Option<u32>,
    /// Offset of the heterogeneous component.
    #[serde(default)]
    pub het: Option<u32>,
    /// Only of this run of the job: see [`JobSelector::run`](crate::messages::command::JobSelector::run).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Sluid>,
    /// Which of its steps.
    pub which: WhichSteps,
}

impl WhichSteps {
    /// One step.
    pub fn one(key: StepKey) -> Self {
        let only = |n| ArraySpec { ranges: vec![(n, n, 1)], limit: None };
        match (key.step, key.array) {
            (StepNum::Number(n), None) => Self::Numbers(only(n)),
            (StepNum::Number(step), Some(task)) => Self::Tasks { step, tasks: only(task) },
            (special, _) => Self::Special(special),
        }
    }

    /// Is this step meant?
    pub fn contains(&self, key: StepKey) -> bool {
        match (self, key.step) {
            (Self::All, StepNum::Number(_)) => true,
            (Self::All, _) => false,
            (Self::Special(named), step) => *named == step,
            (Self::Numbers(numbers), StepNum::Number(n)) => numbers.contains(n),
            (Self::Tasks { step, tasks }, StepNum::Number(n)) => {
                *step == n && key.array.is_some_and(|task| tasks.contains(task))
            }
            (Self::Numbers(_) | Self::Tasks { .. }, _) => false,
        }
    }

    /// The steps of `self` that `other` means too; `None`: there are none. Of `self` because it says how they are named:
    /// what is left of an array's tasks stays tasks of that array, with its limit.
    pub fn and(&self, other: &Self) -> Option<Self> {
        let both = |mine: &ArraySpec, other: &ArraySpec| {
            let left = ArraySpec::from_indices(mine.indices().filter(|i| other.contains(*i)), mine.limit);
            (!left.is_empty()).then_some(left)
        };
        match (self, other) {
            (Self::All, Self::All | Self::Numbers(_) | Self::Tasks { .. }) => Some(other.clone()),
            (Self::Numbers(_) | Self::Tasks { .. }, Self::All) => Some(self.clone()),
            (Self::Numbers(mine), Self::Numbers(other)) => both(mine, other).map(Self::Numbers),
            (Self::Numbers(mine), Self::Tasks { step, .. }) => mine.contains(*step).then(|| other.clone()),
            (Self::Tasks { step, .. }, Self::Numbers(other)) => other.contains(*step).then(|| self.clone()),
            (Self::Tasks { step, tasks }, Self::Tasks { step: same, tasks: other }) if step == same => {
                both(tasks, other).map(|tasks| Self::Tasks { step: *step, tasks })
            }
            (Self::Special(mine), Self::Special(other)) if mine == other => Some(self.clone()),
            _ => None,
        }
    }

    /// Every step of it, one by one, where it says which they are: not for all steps.
    pub fn keys(&self) -> Box<dyn Iterator<Item = StepKey> + '_> {
        match self {
            Self::All => Box::new(std::iter::empty()),
            Self::Special(step) => Box::new(std::iter::once(StepKey { step: *step, array: None })),
            Self::Numbers(numbers) => Box::new(numbers.indices().map(StepKey::number)),
            Self::Tasks { step, tasks } => Box::new(tasks.indices().map(|task| StepKey::task(*step, task))),
        }
    }

    /// How many ranges it is made of; at least one.
    pub fn ranges(&self) -> usize {
        match self {
            Self::All | Self::Special(_) => 1,
            Self::Numbers(list) | Self::Tasks { tasks: list, .. } => list.ranges.len().max(1),
        }
    }

    /// The one step that it names, if it names no more.
    pub fn single(&self) -> Option<StepKey> {
        let one = |spec: &ArraySpec| match spec.ranges.as_slice() {
            [(first, last, _)] if first == last => Some(*first),
            _ => None,
        };
        match self {
            Self::All => None,
            Self::Special(step) => Some(StepKey { step: *step, array: None }),
            Self::Numbers(numbers) => one(numbers).map(StepKey::number),
            Self::Tasks { step, tasks } => one(tasks).map(|task| StepKey::task(*step, task)),
        }
    }
}

impl StepsSelector {
    /// The array task it names, if it names one.
    pub const fn array_task(&self) -> Option<ArrayTask> {
        match self.task {
            Some(index) => Some(ArrayTask { array_job: self.job, index }),
            None => None,
        }
    }
}

fn indices(text: &str, part: &str) -> Result<ArraySpec, IdError> {
    let form = || IdError::Form { what: WHAT, text: text.to_owned(), expected: FORMS };
    match part.strip_prefix('[') {
        Some(inside) => inside.strip_suffix(']').ok_or_else(form)?.parse().map_err(|_| form()),
        None => {
            let n = number(WHAT, text, part)?;
            Ok(ArraySpec { ranges: vec![(n, n, 1)], limit: None })
        }
    }
}

impl FromStr for WhichSteps {
    type Err = IdError;
    /// `7`, `7_3`, `7_[1-4]`, `7_*`, `[3-9]`, `3-9`, `*`, `batch`.
    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.is_empty() {
            return Err(IdError::Empty { what: WHAT });
        }
        match text {
            "*" => return Ok(Self::All),
            "batch" | "extern" | "interactive" => return Ok(Self::Special(text.parse()?)),
            _ => {}
        }
        if let Some((step, tasks)) = text.split_once('_') {
            let step = number(WHAT, text, step)?;
            return match tasks {
                "*" => Ok(Self::Numbers(ArraySpec { ranges: vec![(step, step, 1)], limit: None })),
                tasks => Ok(Self::Tasks { step, tasks: indices(text, tasks)? }),
            };
        }
        if text.contains('-') && !text.starts_with('[') {
            return Ok(Self::Numbers(indices(text, &format!("[{text}]"))?));
        }
        Ok(Self::Numbers(indices(text, text)?))
    }
}

impl fmt::Display for WhichSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |spec: &ArraySpec| match spec.ranges.as_slice() {
            [(first, last, _)] if first == last && spec.limit.is_none() => first.to_string(),
            _ => format!("[{}]", ArraySpec { ranges: spec.ranges.clone(), limit: spec.limit }),
        };
        let text = match self {
            Self::All => "*".to_owned(),
            Self::Special(step) => step.to_string(),
            Self::Numbers(numbers) => list(numbers),
            Self::Tasks { step, tasks } => format!("{step}_{}", list(tasks)),
        };
        f.pad(&text)
    }
}

impl FromStr for StepsSelector {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.is_empty() {
            return Err(IdError::Empty { what: WHAT });
        }
        let form = || IdError::Form { what: WHAT, text: text.to_owned(), expected: FORMS };
        let (left, right) = text.split_once('.').ok_or_else(form)?;
        if let Some(run) = run_named(left) {
            return Ok(Self { job: JobId::OF_A_RUN, task: None, het: None, run: Some(run), which: right.parse()? });
        }
        let (job, task, het) = if let Some((job, task)) = left.split_once('_') {
            (job, Some(number(WHAT, text, task)?), None)
        } else if let Some((job, het)) = left.split_once('+') {
            (job, None, Some(number(WHAT, text, het)?))
        } else {
            (left, None, None)
        };
        Ok(Self { job: job_number(WHAT, text, job)?, task, het, run: None, which: right.parse()? })
    }
}

impl fmt::Display for StepsSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(run) = self.run {
            return f.pad(&format!("{run}.{}", self.which));
        }
        let mut text = self.job.to_string();
        for (mark, part) in [('_', self.task), ('+', self.het)] {
            if let Some(n) = part {
                text.push(mark);
                text.push_str(&n.to_string());
            }
        }
        f.pad(&format!("{text}.{}", self.which))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_are_named_in_every_form() {
        for text in [
            "5609.7",
            "5609.7_3",
            "5609.7_[10-20]",
            "5609.7_[8002%2]",
            "5609_4.[3-9,12]",
            "5609+1.*",
            "5609.batch",
            "sFSNM7YRTC8Q00.7_3",
        ] {
            assert_eq!(text.parse::<StepsSelector>().unwrap().to_string(), text);
        }
        assert_eq!("7_*".parse::<WhichSteps>().unwrap().to_string(), "7");
        assert_eq!("3-9".parse::<WhichSteps>().unwrap().to_string(), "[3-9]");
        for text in ["", "5609", "5609.", "5609.x", "5609.7_", "5609.7_[", "5609.[]", "5609.9-3", "5609.7_x", "5609.**"]
        {
            assert!(text.parse::<StepsSelector>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_array_named_by_its_number_means_all_its_tasks() {
        let named: WhichSteps = "7".parse().unwrap();
        assert!(named.contains(StepKey::number(7)) && named.contains(StepKey::task(7, 3)));
        let some: WhichSteps = "7_[1-4]".parse().unwrap();
        assert!(some.contains(StepKey::task(7, 4)) && !some.contains(StepKey::task(7, 5)));
        assert!(!some.contains(StepKey::number(7)) && some.single().is_none());
        assert_eq!("7_4".parse::<WhichSteps>().unwrap().single(), Some(StepKey::task(7, 4)));
        assert!(!WhichSteps::All.contains(StepKey { step: StepNum::Batch, array: None }));
    }

    #[test]
    fn what_two_choices_have_in_common_is_named_as_the_first_names_it() {
        let and = |mine: &str, other: &str| {
            let (mine, other): (WhichSteps, WhichSteps) = (mine.parse().unwrap(), other.parse().unwrap());
            mine.and(&other).map(|both| both.to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(and("7_[3-99%4]", "7_[1-5,99]"), some("7_[3-5,99%4]"));
        assert_eq!(and("7_[3-99]", "[5-9]"), some("7_[3-99]"));
        assert_eq!(and("7", "7_3"), some("7_3"));
        assert_eq!(and("[5-1000]", "7-8"), some("[7-8]"));
        assert_eq!(and("[5-1000]", "*"), some("[5-1000]"));
        assert_eq!(and("batch", "batch"), some("batch"));
        for (mine, other) in [("7_[3-9]", "7_2"), ("7_[3-9]", "8"), ("[5-9]", "4"), ("batch", "*"), ("batch", "extern")]
        {
            assert_eq!(and(mine, other), None, "{mine} {other}");
        }
    }

    #[test]
    fn steps_are_listed_one_by_one() {
        let keys = |text: &str| text.parse::<WhichSteps>().unwrap().keys().map(|k| k.to_string()).collect::<Vec<_>>();
        assert_eq!(keys("7_[3-5,9]"), ["7_3", "7_4", "7_5", "7_9"]);
        assert_eq!(keys("[1-2]"), ["1", "2"]);
        assert_eq!(keys("batch"), ["batch"]);
        assert!(keys("*").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_names_steps_or_is_an_error(s in "\\PC{0,20}|[0-9]{1,3}\\.[0-9]{0,2}_?\\[?[0-9,%:-]{0,12}\\]?") {
            if let Ok(named) = s.parse::<StepsSelector>() {
                let again: StepsSelector = named.to_string().parse().unwrap();
                prop_assert!((0..50).all(|i| again.which.contains(StepKey::number(i)) == named.which.contains(StepKey::number(i))));
            }
        }
    }
}
