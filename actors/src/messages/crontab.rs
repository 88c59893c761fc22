//! Messages to the owner of crontabs.

use garrick_model::{crontab::Crontab, ids::JobId};

/// The frontend's request: this crontab replaces the one that the user has. Its jobs are saved. The answer is sent when the
/// change is on disk. May be asked twice.
#[derive(Clone, Debug, PartialEq)]
pub struct InstallCrontab {
    /// Whose.
    pub uid: u32,
    /// It; `None`: the user has none any more.
    pub crontab: Option<Crontab>,
}

/// Inputs of the owner of crontabs.
#[derive(Clone, Debug, PartialEq)]
pub enum CrontabInput {
    /// The actor's life begins.
    Begun,
    /// Somebody asks.
    Asked {
        /// Request.
        request: u64,
        /// What.
        ask: InstallCrontab,
    },
    /// A job of a crontab is over for good, though nobody told it to leave: it was cancelled. From the job's owner.
    Over {
        /// Whose crontab.
        uid: u32,
        /// The job.
        job: JobId,
    },
    /// Answer to the errand to find the jobs of crontabs.
    Seen {
        /// Jobs that belong to a crontab according to their own records, and are not over.
        living: Vec<(u32, JobId)>,
    },
}
