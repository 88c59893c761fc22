//! Inputs and effects of the scheduler.

use crate::owner::Effect;
use garrick_model::{
    config::Config,
    ids::JobId,
    messages::{command::CommandReply, statistics::Statistics},
    view::{JobView, PartitionView},
};
use garrick_plan::{
    plan::kept::planning::{Made, Planning},
    rules::{fair::FairShares, priority},
    snapshot::facts::{ClusterView, Policy},
};
use std::{sync::Arc, time::Duration};

/// An effect of the scheduler.
pub type SchedulerEffect = Effect<SchedulerTimer, SchedulerShown, CommandReply, SchedulerErrand>;

/// The rules with which others calculate priorities too. `None`: none are calculated.
pub type SchedulerShown = Option<Arc<priority::Rules>>;

/// Generations of the boards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Jobs.
    pub jobs: u64,
    /// Nodes.
    pub nodes: u64,
    /// Partitions.
    pub partitions: u64,
    /// Reservations.
    pub reservations: u64,
    /// What accounting knows, and past usage.
    pub accounting: (u64, u64),
}

/// The views at one time.
#[derive(Debug)]
pub struct Snapshot {
    /// Generations before anything was read.
    pub seen: Seen,
    /// When reading began, on a monotonic clock.
    pub began: Duration,
    /// The snapshot for a plan.
    pub view: ClusterView,
    /// Jobs that wait, run or are being cleaned up; others may be included.
    pub jobs: Vec<Arc<JobView>>,
    /// All partitions.
    pub partitions: Vec<Arc<PartitionView>>,
    /// Configuration.
    pub config: Arc<Config>,
    /// Fair shares as of the last calculation; empty without accounting.
    pub fair: Arc<FairShares>,
}

/// Timers, each set once at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SchedulerTimer {
    /// Something changed.
    Pass,
    /// The site's interval.
    Interval,
    /// Answers are missing.
    Patience,
    /// The kept plan asks for it, or is to be made anew.
    Kept,
    /// A job starts that waits only for time.
    Again,
    /// A running job reaches a limit of minutes.
    Minutes,
}

impl SchedulerTimer {
    /// Its key in an actor.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Interval => "interval",
            Self::Patience => "patience",
            Self::Kept => "kept",
            Self::Again => "again",
            Self::Minutes => "minutes",
        }
    }
}

/// Inputs of the scheduler.
#[derive(Debug)]
pub enum SchedulerInput {
    /// The actor has started.
    Started,
    /// A board has changed since [`SchedulerErrand::Watch`].
    Changed,
    /// A timer went off.
    Timer(SchedulerTimer),
    /// Answer to [`SchedulerErrand::Look`].
    Snapshot(Box<Snapshot>),
    /// Answer to [`SchedulerErrand::Plan`].
    Planned {
        /// The plan.
        made: Box<Made>,
        /// The generation of the reservations' board when the plan was begun.
        reservations: u64,
    },
    /// A job's owner answered a proposal. Answers to passes before the last do not count.
    Outcome {
        /// Pass.
        pass: u64,
        /// It starts.
        accepted: bool,
    },
    /// New rules.
    Policy(Box<Policy>),
    /// A query what a job waits for.
    Explain {
        /// Request.
        request: u64,
        /// Job.
        job: JobId,
        /// Other jobs that stand in its way may be named.
        names_jobs: bool,
    },
    /// A query for what was counted: these are the others' counters.
    Statistics {
        /// Request.
        request: u64,
        /// Counters.
        counted: Box<Statistics>,
    },
    /// Counters begin anew.
    ResetStatistics {
        /// Request.
        request: u64,
    },
}

impl SchedulerInput {
    /// Its name in traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Started => "Started",
            Self::Changed => "Changed",
            Self::Timer(SchedulerTimer::Patience) => "Impatient",
            Self::Timer(_) => "Pass",
            Self::Snapshot(_) => "Snapshot",
            Self::Planned { .. } => "Planned",
            Self::Outcome { .. } => "Outcome",
            Self::Policy(_) => "Policy",
            Self::Explain { .. } => "Explain",
            Self::Statistics { .. } => "Statistics",
            Self::ResetStatistics { .. } => "ResetStatistics",
        }
    }
}

/// Questions to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerAsk {
    /// What was counted? To be added to these counters. Answered by [`CommandReply::Statistics`], between passes.
    Statistics(Box<Statistics>),
    /// Have the counters begin anew. Answered by [`CommandReply::Done`].
    ResetStatistics,
    /// What does a job wait for? Answered by [`CommandReply::Outlook`], between passes.
    Explain {
        /// Job.
        job: JobId,
        /// Other jobs that stand in its way may be named.
        names_jobs: bool,
    },
}

/// The scheduler's errands.
#[derive(Debug)]
pub enum SchedulerErrand {
    /// Read the views; answered by [`SchedulerInput::Snapshot`].
    Look,
    /// Send [`SchedulerInput::Changed`] when a board is newer than this.
    Watch(Seen),
    /// Make that plan; answered by [`SchedulerInput::Planned`].
    Plan(Box<Planning>),
}
