//! What `garrick steps` shows: the steps of a job that runs or is over, from the records of its run.
//!
//! | module | what it is |
//! |---|---|
//! | [`fields`] | columns |
//! | [`json`] | objects |
//! | [`joblog`] | a log in GNU parallel's columns |
//! | [`summary`] | counts, percentiles, the slowest, how busy the job's CPUs were |
//! | [`chart`] | the use of the CPUs as a picture |

pub mod chart;
pub mod fields;
pub mod joblog;
pub mod json;
pub mod summary;

use garrick_model::{
    messages::records::{RecordedOrigin, RecordedRun, RecordedStep},
    state::StepState,
};

/// The states that count as failed: steps that were cancelled did not fail.
pub const FAILED: [StepState; 4] = [StepState::Failed, StepState::Timeout, StepState::NodeFail, StepState::OutOfMemory];

/// A step as it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its run.
    pub run: &'a RecordedRun,
    /// What it has in common with others.
    pub origin: &'a RecordedOrigin,
    /// Itself.
    pub step: &'a RecordedStep,
    /// The name of a user, by number.
    pub user: fn(u32) -> String,
}
