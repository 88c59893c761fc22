//! What `sacctmgr` changes of records of jobs: what their owners and administrators say of them (`modify job`), the end of those that
//! never got one (`show runawayjobs`), and what is old (`archive`).

use crate::{
    change::{Actor, edit::TresEdit},
    filter::JobFilter,
    row::JobRow,
};
use garrick_model::{
    ids::{JobId, Sluid},
    state::{ExitStatus, JobState},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest text that is set.
pub const LONGEST_TEXT: usize = 64 << 10;
/// TRES of an edit at most.
const MOST_TRES: usize = 100;
/// Longest name of one.
const LONGEST_TRES: usize = 255;
/// Runs that are named in a question at most.
pub const MOST_RUNS: usize = 4096;

/// What is set of records (sacctmgr(1), "SPECIFICATIONS FOR JOB"). An empty text unsets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobEdit {
    /// `Comment`.
    pub comment: Option<String>,
    /// `DerivedExitCode`.
    pub derived: Option<ExitStatus>,
    /// `Extra`.
    pub extra: Option<String>,
    /// `AdminComment`.
    pub admin_comment: Option<String>,
    /// `SystemComment`.
    pub system_comment: Option<String>,
    /// `NewWCKey`.
    pub wckey: Option<String>,
    /// `TRES`: what runs that are over had, by the name of the TRES.
    pub tres: BTreeMap<String, TresEdit>,
}

/// Which records are changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Which {
    /// The newest runs that this takes, of these.
    pub filter: JobFilter,
    /// `StartTime`: those that started then or later.
    pub start: Option<Timestamp>,
    /// `EndTime`: those that ended before.
    pub end: Option<Timestamp>,
}

impl Which {
    /// Is that row meant, which the filter takes?
    pub fn takes(&self, row: &JobRow) -> bool {
        self.start.is_none_or(|start| row.start.is_some_and(|at| at >= start))
            && self.end.is_none_or(|end| row.end.is_some_and(|at| at < end))
    }
}

/// A record that is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modified {
    /// Cluster.
    pub cluster: String,
    /// Job.
    pub job: JobId,
    /// When it was submitted.
    pub submit: Timestamp,
}

/// What is purged now. What is not said is as in `slurmdbd.conf` (sacctmgr(1), "archive dump").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PurgeOrder {
    /// `Directory`: of the service's host.
    pub folder: Option<String>,
    /// `PurgeJobAfter`, as it was typed.
    pub jobs: Option<String>,
    /// `PurgeStepAfter`.
    pub steps: Option<String>,
    /// `PurgeTXNAfter`.
    pub transactions: Option<String>,
    /// `PurgeEventAfter`.
    #[serde(default)]
    pub events: Option<String>,
    /// `PurgeResvAfter`.
    #[serde(default)]
    pub reservations: Option<String>,
    /// `PurgeJobScriptAfter`.
    pub scripts: Option<String>,
    /// `PurgeJobEnvAfter`.
    pub environments: Option<String>,
    /// `Jobs`: jobs are archived before.
    pub archive_jobs: bool,
    /// `Steps`.
    pub archive_steps: bool,
    /// `TXN`.
    pub archive_transactions: bool,
    /// `Events`.
    #[serde(default)]
    pub archive_events: bool,
    /// `Reservations`.
    #[serde(default)]
    pub archive_reservations: bool,
    /// `JobScript`.
    pub archive_scripts: bool,
    /// `JobEnv`.
    pub archive_environments: bool,
}

/// A question about records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
// Generated messages tell types apart by these names, which are not sent: step managers have a request of that name too.
#[serde(rename = "EditedRecordsRequest")]
pub enum RecordsRequest {
    /// `modify job`. Answered by [`RecordsReply::Modified`].
    Modify {
        /// Which.
        which: Box<Which>,
        /// What is set.
        edit: JobEdit,
        /// Only say what would be changed.
        only_try: bool,
    },
    /// Runs that the controller does not know any more have ended. Answered by [`RecordsReply::Repaired`].
    Repair {
        /// Cluster.
        cluster: String,
        /// Which.
        runs: Vec<(JobId, Sluid)>,
        /// They have failed; otherwise they are completed.
        failed: bool,
    },
    /// `archive dump`. Answered by [`RecordsReply::Purged`].
    Purge(PurgeOrder),
    /// `archive load` of a file of the service's host. Answered by [`RecordsReply::Loaded`].
    Load {
        /// Its path.
        file: String,
        /// Only say what would be loaded.
        only_try: bool,
    },
}

/// An answer to a question about records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "EditedRecordsReply")]
pub enum RecordsReply {
    /// These were changed, or would be, by job.
    Modified(Vec<Modified>),
    /// So many got an end. The others have one.
    Repaired(u64),
    /// So many records were deleted: jobs, steps, transactions, events, reservations, and scripts and environments.
    Purged([u64; 6]),
    /// So many records came, and so many were there already.
    Loaded {
        /// New ones.
        new: u64,
        /// Others.
        known: u64,
    },
    /// The file is none of an archive, or cannot be read, and why.
    NoArchive(String),
}

impl JobEdit {
    /// Is none of its texts too long, and can each be a text of C?
    pub fn is_sound(&self) -> bool {
        let texts = [&self.comment, &self.extra, &self.admin_comment, &self.system_comment, &self.wckey];
        let named = self.tres.keys().all(|name| !name.is_empty() && name.len() <= LONGEST_TRES);
        named
            && self.tres.len() <= MOST_TRES
            && texts.into_iter().flatten().all(|text| text.len() <= LONGEST_TEXT && !text.contains('\0'))
    }

    /// Can it be set of that row? Amounts can only where nothing changes them any more.
    pub fn fits(&self, row: &JobRow) -> bool {
        self.tres.is_empty() || row.is_over()
    }

    /// May the job's owner set all of it? The rest is for administrators (sacctmgr(1)).
    pub fn is_for_owners(&self) -> bool {
        self.admin_comment.is_none() && self.system_comment.is_none() && self.wckey.is_none() && self.tres.is_empty()
    }

    /// Sets it.
    pub fn on(&self, row: &mut JobRow) {
        let text = |own: &mut Option<String>, new: &Option<String>| {
            if let Some(new) = new {
                *own = Some(new.clone()).filter(|new| !new.is_empty());
            }
        };
        text(&mut row.comment, &self.comment);
        text(&mut row.extra, &self.extra);
        text(&mut row.admin_comment, &self.admin_comment);
        text(&mut row.system_comment, &self.system_comment);
        text(&mut row.wckey, &self.wckey);
        row.derived = self.derived.unwrap_or(row.derived);
        let is_over = row.is_over();
        for (name, edit) in self.tres.iter().filter(|_| is_over) {
            let had = row.allocated.count(name);
            row.allocated.set(
                name,
                match edit {
                    TresEdit::Clear => 0,
                    TresEdit::Set(number) => *number,
                    TresEdit::Add(number) => had.saturating_add(*number),
                    TresEdit::Subtract(number) => had.saturating_sub(*number),
                },
            );
        }
    }
}

impl From<&JobRow> for Modified {
    fn from(row: &JobRow) -> Self {
        Self { cluster: row.cluster.clone(), job: row.job, submit: row.submit }
    }
}

impl JobRow {
    /// Gives a run without an end the one that sacctmgr(1) names: the latest of its submission, its being eligible and its start. False:
    /// it has one.
    pub fn repair(&mut self, failed: bool) -> bool {
        if self.is_over() {
            return false;
        }
        let end = self.start.max(self.eligible).max(Some(self.submit));
        self.state = if failed { JobState::Failed } else { JobState::Completed };
        (self.end, self.suspended_since) = (end, None);
        self.booting.clear();
        self.repaired = true;
        true
    }
}

/// Who may ask for that, apart from whose records it is about: ends of runaway jobs are for operators, archives for administrators.
pub fn may(request: &RecordsRequest, who: &Actor, is_operator: bool, is_administrator: bool) -> bool {
    who.believed
        || match request {
            RecordsRequest::Modify { edit, .. } => is_operator || edit.is_for_owners(),
            RecordsRequest::Repair { .. } => is_operator,
            RecordsRequest::Purge(_) | RecordsRequest::Load { .. } => is_administrator,
        }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_events::testing::record;
    use garrick_model::spec::JobSpec;

    fn row() -> JobRow {
        JobRow {
            submit: Timestamp(10),
            eligible: Some(Timestamp(12)),
            ..JobRow::of("c", &record(1, JobSpec::default()))
        }
    }

    #[test]
    fn a_runaway_job_ends_when_it_was_seen_last() {
        let mut waiting = row();
        assert!(waiting.repair(true) && !waiting.repair(false));
        assert_eq!((waiting.state, waiting.end), (JobState::Failed, Some(Timestamp(12))));
        let mut running = JobRow { start: Some(Timestamp(15)), state: JobState::Running, ..row() };
        assert!(running.repair(false));
        assert_eq!((running.state, running.end), (JobState::Completed, Some(Timestamp(15))));
    }

    #[test]
    fn times_are_of_starts_and_ends() {
        let ran = JobRow { start: Some(Timestamp(20)), end: Some(Timestamp(30)), ..row() };
        let takes = |start, end, row: &JobRow| Which { start, end, ..Which::default() }.takes(row);
        let at = |ms| Some(Timestamp(ms));
        assert!(takes(at(20), at(31), &ran) && takes(None, None, &row()));
        assert!(!takes(at(21), None, &ran) && !takes(None, at(30), &ran) && !takes(at(1), None, &row()));
    }

    #[test]
    fn an_empty_text_unsets() {
        let mut row = JobRow { comment: Some("old".to_owned()), extra: Some("x".to_owned()), ..row() };
        let derived = ExitStatus { code: 0, signal: Some(9) };
        let edit = JobEdit { comment: Some(String::new()), derived: Some(derived), ..JobEdit::default() };
        edit.on(&mut row);
        assert_eq!((row.comment, row.extra.as_deref(), row.derived), (None, Some("x"), derived));
    }

    #[test]
    fn amounts_are_set_of_runs_that_are_over() {
        let tres = [
            ("cpu", TresEdit::Set(8)),
            ("mem", TresEdit::Add(100)),
            ("node", TresEdit::Subtract(9)),
            ("gres/gpu", TresEdit::Clear),
        ];
        let tres = tres.map(|(name, edit)| (name.to_owned(), edit)).into();
        let edit = JobEdit { tres, ..JobEdit::default() };
        assert!(edit.is_sound() && !edit.is_for_owners());
        let had = [("cpu", 4), ("mem", 50), ("node", 1), ("gres/gpu", 2)].into_iter().collect();
        let mut over = JobRow { end: Some(Timestamp(30)), state: JobState::Completed, allocated: had, ..row() };
        assert!(edit.fits(&over) && !edit.fits(&row()) && JobEdit::default().fits(&row()));
        edit.on(&mut over);
        assert_eq!(over.allocated.iter().collect::<Vec<_>>(), [("cpu", 8), ("mem", 150)]);
        let mut waits = row();
        edit.on(&mut waits);
        assert_eq!(waits, row());
        let many = (0..200).map(|n| (n.to_string(), TresEdit::Clear)).collect();
        assert!(!JobEdit { tres: many, ..JobEdit::default() }.is_sound());
    }

    #[test]
    fn owners_comment_and_administrators_do_the_rest() {
        let who = |believed| Actor { name: "ann".to_owned(), believed };
        let modify = |edit| RecordsRequest::Modify { which: Box::default(), edit, only_try: false };
        let own = modify(JobEdit { comment: Some("x".to_owned()), ..JobEdit::default() });
        let admin = modify(JobEdit { admin_comment: Some("x".to_owned()), ..JobEdit::default() });
        let repair = RecordsRequest::Repair { cluster: "c".to_owned(), runs: Vec::new(), failed: false };
        let purge = RecordsRequest::Purge(PurgeOrder::default());
        let all = [&own, &admin, &repair, &purge];
        let of = |operator, administrator| all.map(|one| may(one, &who(false), operator, administrator));
        assert_eq!(of(false, false), [true, false, false, false]);
        assert_eq!(of(true, false), [true, true, true, false]);
        assert_eq!(of(true, true), [true; 4]);
        assert!(may(&purge, &who(true), false, false));
    }
}
