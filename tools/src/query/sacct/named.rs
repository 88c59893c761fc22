//! Jobs and steps after `-j`: `12`, `9_1`, `10+1`, `12.batch`, `12.0`, `sFSNM7YRTC8Q00` (sacct(1)); and what else `sacct` prints as an id:
//! waiting tasks `9_[0-5%3]`, tasks of step arrays `12.7_3`, steps that were withdrawn together `12.7_[3-9]`.

use crate::query::choices::at_commas;
use garrick_model::{
    ids::{JobId, Sluid, StepKey, StepNum},
    spec::ArraySpec,
    step_selector::WhichSteps,
};

/// A job, or a step of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The job.
    pub job: NamedJob,
    /// Only these steps.
    pub step: Option<WhichSteps>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedJob {
    /// By its number: of an array or a heterogeneous job all of it.
    Id(JobId),
    /// Tasks of an array.
    Tasks(JobId, ArraySpec),
    /// A component of a heterogeneous job.
    Component(JobId, u32),
    /// A run.
    Run(Sluid),
}

/// A word that names nothing, and why. The texts are Slurm's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Bad job/step specified: {word}{}", why.map(|why| format!(": {why}")).unwrap_or_default())]
pub struct NamedError {
    word: String,
    why: Option<&'static str>,
}

/// The greatest number that a job may have: those above it mean something else to Slurm.
const LARGEST_JOB: u64 = 0xffff_fff0;

/// Reads a list.
///
/// # Errors
/// The first word that names nothing.
pub fn read(list: &str) -> Result<Vec<Named>, NamedError> {
    let words = at_commas(list).into_iter().filter(|word| !word.is_empty());
    words.map(|word| named(word).map_err(|why| NamedError { word: word.to_owned(), why })).collect()
}

type Why = Option<&'static str>;

fn named(word: &str) -> Result<Named, Why> {
    let (job, step) = word.split_once('.').map_or((word, None), |(job, step)| (job, Some(step)));
    Ok(Named { job: named_job(job)?, step: step.map(named_step).transpose()? })
}

fn named_job(text: &str) -> Result<NamedJob, Why> {
    if text.starts_with('s') {
        return text.parse().map(NamedJob::Run).map_err(|_| Some("SLUID is invalid"));
    }
    let count = text.bytes().take_while(u8::is_ascii_digit).count();
    let (figures, rest) = text.split_at(count);
    if figures.is_empty() {
        return Err(None);
    }
    let id = match figures.parse::<u64>() {
        Ok(0) => return Err(Some("JobID can not be zero")),
        Ok(id) if id <= LARGEST_JOB => JobId(u32::try_from(id).map_err(|_| None)?),
        _ => return Err(Some("JobID larger than acceptable range")),
    };
    let foreign = Some("JobID includes unexpected non-numeric characters");
    match (rest.chars().next(), rest.get(1..).unwrap_or_default()) {
        (None, _) => Ok(NamedJob::Id(id)),
        (Some('_'), "") => Err(Some("Job Array ID must not be an empty string")),
        (Some('_'), task) if task.starts_with('-') => Err(Some("Job Array ID can not be a negative number")),
        (Some('_'), tasks) if tasks.starts_with('[') && tasks.ends_with(']') => {
            let tasks: ArraySpec = tasks.parse().map_err(|_| foreign)?;
            Ok(NamedJob::Tasks(id, ArraySpec { limit: None, ..tasks }))
        }
        (Some('_'), task) if task.starts_with('[') => Err(foreign),
        (Some('_'), task) if !task.starts_with(|c: char| c.is_ascii_digit()) => {
            Err(Some("Job Array ID includes unexpected non-numeric characters"))
        }
        (Some('_'), task) => task.parse().map(|task| NamedJob::Tasks(id, one(task))).map_err(|_| foreign),
        (Some('+'), "") => Err(Some("HetJob component must not be an empty string")),
        (Some('+'), offset) => offset.parse().map(|offset| NamedJob::Component(id, offset)).map_err(|_| foreign),
        _ => Err(foreign),
    }
}

/// One task.
fn one(task: u32) -> ArraySpec {
    ArraySpec { ranges: vec![(task, task, 1)], limit: None }
}

fn named_step(text: &str) -> Result<WhichSteps, Why> {
    // Tasks of step arrays, and several steps: Slurm has no such.
    if (text.contains('_') || text.starts_with('['))
        && let Ok(steps) = text.parse()
    {
        return Ok(steps);
    }
    Ok(WhichSteps::one(StepKey { step: numbered_step(text)?, array: None }))
}

fn numbered_step(text: &str) -> Result<StepNum, Why> {
    // A component of a step over a heterogeneous job: its number is that of the others.
    let (text, component) = text.split_once('+').map_or((text, None), |(step, component)| (step, Some(component)));
    if component.is_some_and(|component| component.parse::<u32>().is_err()) && !text.is_empty() {
        return Err(Some("HetStep component must not be an empty string"));
    }
    match text {
        "" if component.is_none() => Err(Some("StepID must not be an empty string")),
        _ if text.eq_ignore_ascii_case("batch") => Ok(StepNum::Batch),
        _ if text.eq_ignore_ascii_case("extern") => Ok(StepNum::Extern),
        _ if text.eq_ignore_ascii_case("interactive") => Ok(StepNum::Interactive),
        _ if text.starts_with('-') => Err(Some("StepID can not be a negative number")),
        _ if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) => {
            Err(Some("StepID includes unexpected non-numeric characters"))
        }
        _ => text.parse().map(StepNum::Number).map_err(|_| Some("StepID larger than acceptable range")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn jobs_and_steps_are_named_in_every_form() {
        let only = |word: &str| {
            let [named] = <[Named; 1]>::try_from(read(word).unwrap()).unwrap();
            (named.job, named.step)
        };
        let twelve = JobId(12);
        let number = |number| Some(WhichSteps::one(StepKey::number(number)));
        assert_eq!(only("12"), (NamedJob::Id(twelve), None));
        assert_eq!(only("12_3"), (NamedJob::Tasks(twelve, one(3)), None));
        assert_eq!(only("12+1.0"), (NamedJob::Component(twelve, 1), number(0)));
        assert_eq!(only("12.BATCH"), (NamedJob::Id(twelve), Some(WhichSteps::Special(StepNum::Batch))));
        assert_eq!(only("12.extern+1"), (NamedJob::Id(twelve), Some(WhichSteps::Special(StepNum::Extern))));
        assert_eq!(only("12_3.7"), (NamedJob::Tasks(twelve, one(3)), number(7)));
        let run = "sBCHM83SA32V00";
        assert_eq!(only(run), (NamedJob::Run(run.parse().unwrap()), None));
        assert_eq!(read("1,,2.interactive").unwrap().len(), 2);
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn ids_that_are_printed_are_taken_back() {
        let list = read("34.0_3,9_[0,2-5%3],34.7_[3-9],5").unwrap();
        assert_eq!(list.len(), 4);
        assert_eq!(list[0].step, Some(WhichSteps::one(StepKey::task(0, 3))));
        assert_eq!(list[1].job, NamedJob::Tasks(JobId(9), "0,2-5".parse().unwrap()));
        assert!(list[2].step.as_ref().is_some_and(|steps| steps.contains(StepKey::task(7, 4))));
        assert_eq!(list[3].job, NamedJob::Id(JobId(5)));
        for wrong in ["9_[1-2", "9_[x]", "34.0_x", "34._3"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    /// As sacct of Slurm 26.05.3 said.
    #[test]
    fn what_names_nothing_is_told_in_slurms_words() {
        let foreign = "JobID includes unexpected non-numeric characters";
        let foreign_step = "StepID includes unexpected non-numeric characters";
        for (list, word, why) in [
            ("abc", "abc", None),
            ("-1", "-1", None),
            (" 1", " 1", None),
            ("0", "0", Some("JobID can not be zero")),
            ("1x", "1x", Some(foreign)),
            ("1-3", "1-3", Some(foreign)),
            ("2,1 2", "1 2", Some(foreign)),
            ("1_1x", "1_1x", Some(foreign)),
            ("1_", "1_", Some("Job Array ID must not be an empty string")),
            ("1_x", "1_x", Some("Job Array ID includes unexpected non-numeric characters")),
            ("1_-1", "1_-1", Some("Job Array ID can not be a negative number")),
            ("1+", "1+", Some("HetJob component must not be an empty string")),
            ("99999999999", "99999999999", Some("JobID larger than acceptable range")),
            ("4294967295", "4294967295", Some("JobID larger than acceptable range")),
            ("1.", "1.", Some("StepID must not be an empty string")),
            ("1.x", "1.x", Some(foreign_step)),
            ("1..0", "1..0", Some(foreign_step)),
            ("236.int", "236.int", Some(foreign_step)),
            ("1.+", "1.+", Some(foreign_step)),
            ("1.-1", "1.-1", Some("StepID can not be a negative number")),
            ("1.99999999999", "1.99999999999", Some("StepID larger than acceptable range")),
            ("1.0+x", "1.0+x", Some("HetStep component must not be an empty string")),
            ("sX", "sX", Some("SLUID is invalid")),
        ] {
            let told = match why {
                Some(why) => format!("Bad job/step specified: {word}: {why}"),
                None => format!("Bad job/step specified: {word}"),
            };
            assert_eq!(read(list).unwrap_err().to_string(), told);
        }
    }
}
