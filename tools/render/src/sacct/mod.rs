//! Records of accounting, as `sacct` shows them (sacct(1)): rows of the service in, text out.
//!
//! | module | what it is |
//! |---|---|
//! | [`state`] | states of records and their words |
//! | [`choice`] | which rows are shown, of which steps, in which order |
//! | [`entry`] | a line: a job, a task of an array that waits, or a step |
//! | [`fields`] | the fields, and which of them are shown unasked |
//! | [`units`] | amounts and times that something took |
//! | [`usage`] | what tasks of steps used |
//! | [`document`] | the same as JSON |
//! | [`completed`] | records of job completion |
//! | [`efficiency`] | used against asked for |

pub mod choice;
pub mod completed;
pub mod document;
pub mod efficiency;
pub mod entry;
pub mod fields;
pub mod state;
pub mod units;
pub mod usage;

/// Words for why a job waits, as `--reason` takes them and `--helpreason` of Slurm 26.05.3 lists them.
const REASONS: &str = include_str!("reasons.txt");

/// Those words.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    REASONS.lines()
}

/// A window of time: seconds since the epoch, the end not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Beginning; 0: none.
    pub start: garrick_model::time::Timestamp,
    /// End.
    pub end: garrick_model::time::Timestamp,
}
