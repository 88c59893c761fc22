//! Crontabs, as the controller keeps them for `scrontab`.

use crate::{
    bounded,
    ids::{JobId, RequestId},
    spec::JobSpec,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Most bytes of a crontab. A choice of this project: some thousand lines.
pub const MOST_BYTES: usize = 256 * 1024;
/// Most entries of a crontab. A choice of this project.
pub const MOST_ENTRIES: usize = 1024;

/// What stands before a line whose job was cancelled.
const DISABLED: &[u8] = b"#DISABLED: ";

/// The job of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrontabJob {
    /// Job.
    pub job: JobId,
    /// Its first and last line, from 1: its options, and when it is due.
    pub lines: (u32, u32),
}

/// The crontab of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crontab {
    /// As the user wrote it.
    pub text: ByteBuf,
    /// Its jobs, in the order of its lines.
    pub jobs: Vec<CrontabJob>,
}

impl Crontab {
    /// True where the job belongs to it.
    #[must_use]
    pub fn has(&self, job: JobId) -> bool {
        self.jobs.iter().any(|entry| entry.job == job)
    }

    /// Without that job: its lines become comments, as scrontab(1) says of a cancelled job.
    #[must_use]
    pub fn without(&self, job: JobId) -> Self {
        let Some(entry) = self.jobs.iter().find(|entry| entry.job == job) else { return self.clone() };
        let mut text = Vec::with_capacity(self.text.len() + DISABLED.len());
        for (number, line) in (1u32..).zip(self.text.split_inclusive(|byte| *byte == b'\n')) {
            if (entry.lines.0..=entry.lines.1).contains(&number) {
                text.extend_from_slice(DISABLED);
            }
            text.extend_from_slice(line);
        }
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        let jobs = self.jobs.iter().filter(|entry| entry.job != job).cloned().collect();
        Self { text: text.into(), jobs }
    }
}

/// An entry of a crontab, to be installed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrontabEntry {
    /// Its first and last line, from 1.
    pub lines: (u32, u32),
    /// Its job.
    pub spec: JobSpec,
}

/// A crontab that replaces the one that a user has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrontabChange {
    /// Identity of this change.
    pub request: RequestId,
    /// Whose crontab.
    pub uid: u32,
    /// The group of its jobs.
    pub gid: u32,
    /// Its text; `None`: the user has none any more.
    pub text: Option<ByteBuf>,
    /// Its entries.
    #[serde(deserialize_with = "bounded::list::<_, _, MOST_ENTRIES>")]
    pub entries: Vec<CrontabEntry>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_cancelled_job_become_comments() {
        let entry = |job, lines| CrontabJob { job: JobId(job), lines };
        let text = b"DIR=/tmp\n#SCRON -t 5\n*/10 * * * * hostname\n@daily true".to_vec();
        let crontab = Crontab { text: text.into(), jobs: vec![entry(7, (2, 3)), entry(8, (4, 4))] };
        let left = crontab.without(JobId(7));
        let want = "DIR=/tmp\n#DISABLED: #SCRON -t 5\n#DISABLED: */10 * * * * hostname\n@daily true\n";
        assert_eq!((String::from_utf8_lossy(&left.text).as_ref(), left.jobs.len()), (want, 1));
        assert_eq!(left.without(JobId(7)), left);
        let none = left.without(JobId(8));
        assert!(none.jobs.is_empty() && none.text.ends_with(b"#DISABLED: @daily true\n"));
    }
}
