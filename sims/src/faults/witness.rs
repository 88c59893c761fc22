//! What jobs and steps log about themselves, independently of Garrick: one line each, appended by the processes themselves.
//!
//! | line | said by | when |
//! |---|---|---|
//! | `B serial sluid job restarts pid` | a batch script | it began |
//! | `F serial sluid code` | a batch script | it is about to exit |
//! | `A serial sluid first count ids` | a batch script | so many steps were accepted, under these ids |
//! | `N serial sluid first` | a batch script | steps were not acknowledged |
//! | `R serial sluid index code` | a batch script | an `srun` returned |
//! | `S serial sluid index step array rank try pid` | a task | it began |
//! | `E serial sluid index step array rank try pid code` | a task | it is about to exit |

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// A step of a run, as its tasks know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepRef {
    /// The run.
    pub sluid: String,
    /// Number.
    pub step: u32,
    /// Task of an array.
    pub array: Option<u32>,
}

/// One task's run, or several that should be one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskSeen {
    /// Times that it began.
    pub began: u32,
    /// Exit codes that it announced.
    pub codes: Vec<u8>,
}

/// What was seen of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepSeen {
    /// The job's serial number.
    pub serial: u32,
    /// The step's index in it.
    pub index: u32,
    /// By try and rank.
    pub tasks: BTreeMap<(u32, u32), TaskSeen>,
}

/// What was seen of a run of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSeen {
    /// The job's serial number.
    pub serial: u32,
    /// Times that its script began.
    pub began: u32,
    /// Exit codes that the script announced.
    pub codes: Vec<u8>,
    /// Acknowledged steps: first index, count, ids.
    pub accepted: Vec<(u32, u32, String)>,
    /// Requests that were not acknowledged.
    pub refused: u32,
    /// `srun`s that returned: index and code.
    pub returned: Vec<(u32, u8)>,
}

/// All that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// By run.
    pub runs: BTreeMap<String, RunSeen>,
    /// Steps.
    pub steps: BTreeMap<StepRef, StepSeen>,
    /// Lines that cannot be read.
    pub odd: Vec<String>,
}

/// The file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the witness {}: {cause}", path.display())]
pub struct WitnessError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

impl Witness {
    /// Reads the file; none is an empty one.
    pub fn read(path: &Path) -> Result<Self, WitnessError> {
        let text = match fs::read_to_string(path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(WitnessError { path: path.to_owned(), cause });
            }
            read => read.unwrap_or_default(),
        };
        Ok(Self::of(&text))
    }

    fn of(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines() {
            if all.line(line).is_none() {
                all.odd.push(line.to_owned());
            }
        }
        all
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<u32>().ok();
        let (kind, serial, sluid) = (*words.first()?, number(1)?, (*words.get(2)?).to_owned());
        let code = || words.last()?.parse::<u8>().ok();
        if kind == "S" || kind == "E" {
            let (index, step, rank, attempt) = (number(3)?, number(4)?, number(6)?, number(7)?);
            let array = match *words.get(5)? {
                "-" => None,
                text => Some(text.parse().ok()?),
            };
            let seen = self.steps.entry(StepRef { sluid, step, array }).or_default();
            (seen.serial, seen.index) = (serial, index);
            let task = seen.tasks.entry((attempt, rank)).or_default();
            match kind {
                "S" => task.began += 1,
                _ => task.codes.push(code()?),
            }
            return Some(());
        }
        let run = self.runs.entry(sluid).or_default();
        run.serial = serial;
        match kind {
            "B" => run.began += 1,
            "F" => run.codes.push(code()?),
            "A" => run.accepted.push((number(3)?, number(4)?, (*words.get(5)?).to_owned())),
            "N" => run.refused += 1,
            "R" => run.returned.push((number(3)?, code()?)),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_say_what_ran_and_how_often() {
        let seen = Witness::of(
            "B 7 s1 12 0 99\nA 7 s1 2 3 12.0\nS 7 s1 2 0 2 0 0 100\nS 7 s1 2 0 2 0 0 101\nE 7 s1 2 0 2 0 0 100 3\nR 7 s1 0 0\n\
             F 7 s1 0\nnonsense\n",
        );
        let run = &seen.runs["s1"];
        assert_eq!((run.serial, run.began, run.codes.as_slice()), (7, 1, &[0][..]));
        assert_eq!(run.accepted, [(2, 3, "12.0".to_owned())]);
        let step = &seen.steps[&StepRef { sluid: "s1".to_owned(), step: 0, array: Some(2) }];
        assert_eq!(step.tasks[&(0, 0)], TaskSeen { began: 2, codes: vec![3] });
        assert_eq!(seen.odd, ["nonsense"]);
    }
}
