//! A line of `sacct`: a job, a task of an array that waits, or a step.

use super::{Window, state};
use crate::{step_lines::cut, words};
use garrick_accounts::{row::JobRow, step::StepRecord};
use garrick_model::{
    ids::{StepKey, StepNum},
    state::{JobState, StepState},
    time::Timestamp,
    usage::TaskUsage,
};

/// What of a run a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'r> {
    /// The job.
    Job,
    /// A task of an array that has no job of its own yet (`--array`).
    Task(u32),
    /// A step.
    Step(&'r StepRecord),
}

/// A line.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'r> {
    /// The run.
    pub row: &'r JobRow,
    /// What of it.
    pub part: Part<'r>,
    /// What tasks used: those of the step, or of all steps that are shown with the job.
    pub used: TaskUsage,
}

/// When something ran, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Start.
    pub start: Option<Timestamp>,
    /// End.
    pub end: Option<Timestamp>,
    /// For how long, without suspensions, seconds.
    pub secs: u64,
}

impl<'r> Entry<'r> {
    /// The step, if it is one.
    pub const fn step(&self) -> Option<&'r StepRecord> {
        match self.part {
            Part::Step(step) => Some(step),
            _ => None,
        }
    }

    /// Is it the batch script, or another step without a number?
    pub fn is_special(&self) -> bool {
        self.step().is_some_and(|step| !matches!(step.key.step, StepNum::Number(_)))
    }

    /// `9_1.batch`, `10+0`, `225_[1,3,5-9%2]`; long lists of tasks are cut to so many characters.
    pub fn id(&self, limit: Option<usize>) -> String {
        let row = self.row;
        let job = match (row.array_task, &row.waiting, row.het, self.part) {
            (Some(task), ..) => format!("{}_{}", task.array_job, task.index),
            (None, Some(_), _, Part::Task(task)) => format!("{}_{task}", row.job),
            (None, Some(waiting), ..) => format!("{}_[{}]", row.job, cut(waiting, limit)),
            (None, None, Some((leader, offset)), _) => format!("{leader}+{offset}"),
            (None, None, None, _) => row.job.to_string(),
        };
        self.with_step(job)
    }

    /// `18.batch`
    pub fn raw_id(&self) -> String {
        self.with_step(self.row.job.to_string())
    }

    fn with_step(&self, job: String) -> String {
        match self.step() {
            None => job,
            Some(step) => format!("{job}.{}", step_text(step)),
        }
    }

    /// `CANCELLED by 1000`
    pub fn state(&self) -> String {
        match self.step() {
            None => state::words(self.row),
            // With its job.
            Some(step) if step.state == StepState::Running && self.row.state == JobState::Suspended => {
                words::job_state(JobState::Suspended).to_owned()
            }
            Some(step) => words::step_state(step.state).to_owned(),
        }
    }

    /// When it ran. `truncate`: as far as that lies in the window (`-T`).
    pub fn span(&self, now: Timestamp, truncate: Option<Window>) -> Span {
        let (mut start, mut end) = match self.step() {
            None => (self.row.start, self.row.end),
            Some(step) => (step.start, step.end),
        };
        let mut until = end.unwrap_or(now);
        if let Some(window) = truncate {
            until = end.filter(|end| *end <= window.end).unwrap_or(window.end);
            end = Some(until);
            start = Some(start.map_or(until, |start| start.max(window.start)));
        }
        let ran = start.map_or(0, |start| until.secs().saturating_sub(start.secs()));
        let secs = u64::try_from(ran).unwrap_or(0).saturating_sub(self.suspended_secs(now));
        Span { start, end, secs }
    }

    /// How long it was suspended, seconds: a step as long as its job was, while it ran.
    pub fn suspended_secs(&self, now: Timestamp) -> u64 {
        if let Some(step) = self.step().filter(|_| !self.is_special()) {
            return step.start.map_or(0, |start| self.row.suspended_within(start, step.end.unwrap_or(now)) / 1000);
        }
        let current = self.row.suspended_since.map_or(0, |since| now.since(since).as_secs());
        self.row.suspended_ms / 1000 + current
    }
}

/// `batch`, `3`, `7_123`, or the steps that one record is about.
pub fn step_text(step: &StepRecord) -> String {
    step.all_of.as_ref().map_or_else(|| step.key.to_string(), ToString::to_string)
}

/// The order of the steps of a job: the batch script, other steps without a number, then the numbers.
pub fn step_order(key: StepKey) -> (u8, StepKey) {
    let rank = match key.step {
        StepNum::Batch => 0,
        StepNum::Interactive => 1,
        StepNum::Extern => 2,
        StepNum::Number(_) => 3,
    };
    (rank, key)
}
