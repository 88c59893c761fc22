//! States of records. A run that another followed as somebody asked for it is REQUEUED; other states are those of jobs.

use garrick_accounts::row::JobRow;
use garrick_model::state::JobState;

/// A state that records are asked for by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// That of a job.
    Job(JobState),
    /// Another run follows.
    Requeued,
    /// A part of a job before its size changed. Garrick's jobs keep one record.
    Resizing,
    /// A job that runs on another cluster of a federation. There is none.
    Revoked,
}

/// States that records have, with their compact words.
const STATES: [(RecordState, &str, &str); 15] = [
    (RecordState::Job(JobState::Pending), "PENDING", "PD"),
    (RecordState::Job(JobState::Running), "RUNNING", "R"),
    (RecordState::Job(JobState::Suspended), "SUSPENDED", "S"),
    (RecordState::Job(JobState::Completed), "COMPLETED", "CD"),
    (RecordState::Job(JobState::Cancelled), "CANCELLED", "CA"),
    (RecordState::Job(JobState::Failed), "FAILED", "F"),
    (RecordState::Job(JobState::Timeout), "TIMEOUT", "TO"),
    (RecordState::Job(JobState::NodeFail), "NODE_FAIL", "NF"),
    (RecordState::Job(JobState::Preempted), "PREEMPTED", "PR"),
    (RecordState::Job(JobState::BootFail), "BOOT_FAIL", "BF"),
    (RecordState::Job(JobState::Deadline), "DEADLINE", "DL"),
    (RecordState::Job(JobState::OutOfMemory), "OUT_OF_MEMORY", "OOM"),
    (RecordState::Requeued, "REQUEUED", "RQ"),
    (RecordState::Resizing, "RESIZING", "RS"),
    (RecordState::Revoked, "REVOKED", "RV"),
];

/// How many of them `--helpstate` lists.
const LISTED: usize = 12;

/// States of jobs that are not those of records.
const OF_LIVE_JOBS: [(&str, &str); 10] = [
    ("CONFIGURING", "CF"),
    ("COMPLETING", "CG"),
    ("STAGE_OUT", "SO"),
    ("SIGNALING", "SI"),
    ("SPECIAL_EXIT", "SE"),
    ("REQUEUE_HOLD", "RH"),
    ("REQUEUE_FED", "RF"),
    ("RESV_DEL_HOLD", "RD"),
    ("STOPPED", "ST"),
    ("POWER_UP_NODE", "PUN"),
];

/// A word that is no state of records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// It is no state.
    #[error("unrecognized job state value '{0}'")]
    Unknown(String),
    /// It is one of jobs in the queue only.
    #[error("job state {0} is not supported / accounted")]
    NotAccounted(String),
}

impl RecordState {
    /// Reads a long or compact word, in any case.
    ///
    /// # Errors
    /// Another word.
    pub fn read(text: &str) -> Result<Self, StateError> {
        let is = |word: &str, compact: &str| word.eq_ignore_ascii_case(text) || compact.eq_ignore_ascii_case(text);
        if let Some((state, ..)) = STATES.iter().find(|(_, word, compact)| is(word, compact)) {
            return Ok(*state);
        }
        Err(match OF_LIVE_JOBS.iter().any(|(word, compact)| is(word, compact)) {
            true => StateError::NotAccounted(text.to_owned()),
            false => StateError::Unknown(text.to_owned()),
        })
    }

    /// Its long word.
    pub fn word(self) -> &'static str {
        STATES.iter().find(|(state, ..)| *state == self).map_or("UNKNOWN", |(_, word, _)| word)
    }

    /// That of a row.
    pub fn of(row: &JobRow) -> Self {
        match row.state {
            JobState::Cancelled if row.requeued => Self::Requeued,
            // Work that is over is that, and nodes that are made ready are given.
            JobState::Configuring | JobState::Completing => Self::Job(JobState::Running),
            JobState::SpecialExit | JobState::Expediting | JobState::RequeueHold => Self::Job(JobState::Pending),
            state => Self::Job(state),
        }
    }
}

/// What `--helpstate` lists.
pub fn listed() -> impl Iterator<Item = &'static str> {
    STATES.iter().take(LISTED).map(|(_, word, _)| *word)
}

/// `CANCELLED by 1000`.
pub fn words(row: &JobRow) -> String {
    match (RecordState::of(row), row.cancelled_by) {
        (state @ RecordState::Job(JobState::Cancelled), Some(uid)) => format!("{} by {uid}", state.word()),
        (state, _) => state.word().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// As sacct of Slurm 26.05.3 took and refused them.
    #[test]
    fn states_are_read_by_long_and_compact_words() {
        for (text, word) in [("r", "RUNNING"), ("Cancelled", "CANCELLED"), ("oom", "OUT_OF_MEMORY"), ("rq", "REQUEUED")]
        {
            assert_eq!(RecordState::read(text).unwrap().word(), word);
        }
        for text in ["CG", "COMPLETING", "CF", "SO", "SI", "SE", "RH", "ST", "stage_out"] {
            let told = format!("job state {text} is not supported / accounted");
            assert_eq!(RecordState::read(text).unwrap_err().to_string(), told);
        }
        for text in ["bogus", "all", "f to", "run", "LF", "UT"] {
            assert_eq!(
                RecordState::read(text).unwrap_err().to_string(),
                format!("unrecognized job state value '{text}'")
            );
        }
        assert_eq!(listed().count(), 12);
    }
}
