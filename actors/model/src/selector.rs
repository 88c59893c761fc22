//! Jobs as users name them: `12`, `12_3`, `12_[1-4,7%2]`, `12+1`, or by a run, `sFSNM7YRTC8Q00`, for `scancel`, `squeue -j` and `scontrol`.

use crate::{
    ids::{IdError, JobId, Sluid, job_number, number, run_named},
    messages::command::JobSelector,
    spec::ArraySpec,
    spec_text::array::{are_sorted, contains_index},
};
use std::{fmt, str::FromStr};

const WHAT: &str = "job id";
const FORMS: &str = "JOB, JOB_TASK, JOB_[TASKS] or JOB+OFFSET";

impl From<JobId> for JobSelector {
    fn from(job: JobId) -> Self {
        Self { job, tasks: None, het: None, run: None }
    }
}

impl From<Sluid> for JobSelector {
    fn from(run: Sluid) -> Self {
        Self { run: Some(run), ..JobId::OF_A_RUN.into() }
    }
}

impl JobSelector {
    /// Is the task with this index meant? The ranges are sorted: see [`Self::is_sound`].
    pub fn has_task(&self, index: u32) -> bool {
        self.tasks.as_ref().is_none_or(|ranges| contains_index(ranges, index))
    }

    /// For what came from elsewhere: are the ranges of tasks sorted and apart? The other methods take that for granted.
    pub fn is_sound(&self) -> bool {
        self.tasks.as_deref().is_none_or(are_sorted)
    }
}

impl FromStr for JobSelector {
    type Err = IdError;
    /// `12_*` is all of the array, like `12`. A limit (`%2`) in the brackets is what `squeue` prints and is ignored.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let form = || IdError::Form { what: WHAT, text: text.to_owned(), expected: FORMS };
        if text.is_empty() {
            return Err(IdError::Empty { what: WHAT });
        }
        if let Some(run) = run_named(text) {
            return Ok(run.into());
        }
        if let Some((job, offset)) = text.split_once('+') {
            let (job, het) = (job_number(WHAT, text, job)?, Some(number(WHAT, text, offset)?));
            return Ok(Self { het, ..job.into() });
        }
        let Some((job, tasks)) = text.split_once('_') else {
            return Ok(job_number(WHAT, text, text)?.into());
        };
        let job = job_number(WHAT, text, job)?;
        let tasks = match tasks.strip_prefix('[') {
            None if tasks == "*" => None,
            None => {
                let task = number(WHAT, text, tasks)?;
                Some(vec![(task, task, 1)])
            }
            Some(inside) => {
                let inside = inside.strip_suffix(']').ok_or_else(form)?;
                Some(inside.parse::<ArraySpec>().map_err(|_| form())?.ranges)
            }
        };
        Ok(Self { tasks, ..job.into() })
    }
}

impl fmt::Display for JobSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(run) = self.run {
            return run.fmt(f);
        }
        let text = match self.tasks.as_deref() {
            None if self.het.is_some() => format!("{}+{}", self.job, self.het.unwrap_or(0)),
            None => self.job.to_string(),
            Some(&[(first, last, _)]) if first == last => format!("{}_{first}", self.job),
            Some(ranges) => format!("{}_[{}]", self.job, ArraySpec { ranges: ranges.to_vec(), limit: None }),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn jobs_are_named_in_every_form() {
        for text in ["12", "12_3", "12_[1-4,7]", "12_[0,2,4]", "12+0", "12+3", "sFSNM7YRTC8Q00"] {
            assert_eq!(text.parse::<JobSelector>().unwrap().to_string(), text);
        }
        let some: JobSelector = "12_[1-4,7%2]".parse().unwrap();
        assert_eq!(some.to_string(), "12_[1-4,7]");
        assert!(some.has_task(7) && !some.has_task(5));
        assert_eq!("12_*".parse::<JobSelector>().unwrap(), JobId(12).into());
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "x", "0", "12_", "12_x", "12_[", "12_[]", "12_[3-1]", "12+", "12+1_2", "12.0", " 12", "12_1-4"]
        {
            assert!(text.parse::<JobSelector>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_job_or_an_error(s in "\\PC{0,20}|[0-9]{1,3}_?\\[?[0-9,%:-]{0,12}\\]?") {
            if let Ok(named) = s.parse::<JobSelector>() {
                let again: JobSelector = named.to_string().parse().unwrap();
                prop_assert!((0..200).all(|i| again.has_task(i) == named.has_task(i)));
            }
        }
    }
}
