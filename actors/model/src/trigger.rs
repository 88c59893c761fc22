//! Triggers (strigger(1)): programs that the controller runs when something happens.

use crate::{ids::JobId, time::Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most triggers of SlurmUser; with so many, no other user may set one. A choice of this project.
pub const MOST: usize = 4096;
/// Most triggers of a user who is not SlurmUser (`SlurmctldParameters=allow_user_triggers`). A choice of this project.
pub const MOST_OF_USER: usize = 64;
/// Most bytes of a program with its arguments (`PATH_MAX`).
pub const MOST_OF_PROGRAM: usize = 4096;

/// What a trigger waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TriggerEvent {
    /// A job reaches its time limit.
    Time,
    /// A job is over.
    Fini,
    /// A node is DOWN.
    Down,
    /// A node is back from DOWN.
    Up,
    /// A node is DRAINED.
    Drained,
    /// A node is DRAINING.
    Draining,
    /// A node was set to RESUME.
    Resume,
    /// A node stays IDLE.
    Idle,
    /// The configuration was read again.
    Reconfig,
    /// The controller is back after a failure.
    PrimaryResumed,
    /// A node is FAIL.
    Fail,
    /// The controller on the primary host failed.
    PrimaryFailed,
    /// A controller on the primary host took over from one on another host.
    PrimaryInControl,
    /// A controller on a backup host failed.
    BackupFailed,
    /// A controller on a backup host is back.
    BackupResumed,
    /// A controller on a backup host took over.
    BackupInControl,
    /// More waits for the service of accounting than may.
    AccountingFull,
    /// The service of accounting does not answer.
    SlurmdbdFailed,
    /// The service of accounting answers.
    SlurmdbdResumed,
    /// The service of accounting cannot use its database.
    DatabaseFailed,
    /// The service of accounting can use its database again.
    DatabaseResumed,
    /// A burst buffer failed: there are none, so this never happens.
    BurstBuffer,
}

impl TriggerEvent {
    /// As `strigger --get` shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Fini => "fini",
            Self::Down => "down",
            Self::Up => "up",
            Self::Drained => "drained",
            Self::Draining => "draining",
            Self::Resume => "resume",
            Self::Idle => "idle",
            Self::Reconfig => "reconfig",
            Self::PrimaryResumed => "primary_slurmctld_resumed_operation",
            Self::Fail => "fail",
            Self::PrimaryFailed => "primary_slurmctld_failure",
            Self::PrimaryInControl => "primary_slurmctld_resumed_control",
            Self::BackupFailed => "backup_slurmctld_failure",
            Self::BackupResumed => "backup_slurmctld_resumed_operation",
            Self::BackupInControl => "backup_slurmctld_assumed_control",
            Self::AccountingFull => "primary_slurmctld_acct_buffer_full",
            Self::SlurmdbdFailed => "primary_slurmdbd_failure",
            Self::SlurmdbdResumed => "primary_slurmdbd_resumed_operation",
            Self::DatabaseFailed => "primary_database_failure",
            Self::DatabaseResumed => "primary_database_resumed_operation",
            Self::BurstBuffer => "burst_buffer",
        }
    }

    /// It is about one job.
    #[must_use]
    pub const fn is_of_job(self) -> bool {
        matches!(self, Self::Time | Self::Fini)
    }

    /// It is about nodes: of a list, of a job, or all.
    #[must_use]
    pub const fn is_of_node(self) -> bool {
        use TriggerEvent::{Down, Drained, Draining, Fail, Idle, Resume, Up};
        matches!(self, Down | Up | Drained | Draining | Fail | Resume | Idle)
    }

    /// What it is about, where that is neither a job nor nodes: `RES_TYPE` of `strigger --get`.
    #[must_use]
    pub const fn resource(self) -> &'static str {
        match self {
            Self::SlurmdbdFailed | Self::SlurmdbdResumed => "slurmdbd",
            Self::DatabaseFailed | Self::DatabaseResumed => "database",
            Self::BurstBuffer => "other",
            _ => "slurmctld",
        }
    }
}

/// What a trigger is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TriggerAbout {
    /// A job, or its nodes.
    Job(JobId),
    /// These nodes; empty: any.
    Nodes(Vec<String>),
    /// A controller, the service of accounting or its database.
    Controller,
}

/// A trigger, as it is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerRequest {
    /// Any of these events.
    pub events: BTreeSet<TriggerEvent>,
    /// Of what.
    pub about: TriggerAbout,
    /// The program runs so many seconds after the event, or before it.
    pub offset_secs: i32,
    /// The program: an absolute path, and arguments separated by blanks.
    pub program: String,
    /// It stays after the event (`--flags=PERM`).
    pub permanent: bool,
}

/// A trigger that is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// Its number.
    pub id: u32,
    /// Who set it.
    pub uid: u32,
    /// What it waits for.
    pub request: TriggerRequest,
    /// The event was there: when the program runs, and with what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Due>,
}

/// A run of a trigger's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// When.
    pub at: Timestamp,
    /// Its last argument: a job's number, or a host list.
    pub argument: String,
}

/// Which triggers are meant: those for which all that is given holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerSelector {
    /// The one with this number.
    pub id: Option<u32>,
    /// Those about this job.
    pub job: Option<JobId>,
    /// Those that this user set.
    pub uid: Option<u32>,
}

impl TriggerSelector {
    /// Is it meant?
    #[must_use]
    pub fn takes(&self, trigger: &Trigger) -> bool {
        self.id.is_none_or(|id| id == trigger.id)
            && self.job.is_none_or(|job| trigger.request.about == TriggerAbout::Job(job))
            && self.uid.is_none_or(|uid| uid == trigger.uid)
    }
}
