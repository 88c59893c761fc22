//! What the scheduler is told and what it has done.

use crate::owner::Effect;
use garrick_model::{
    config::Config,
    ids::JobId,
    messages::command::CommandReply,
    view::{JobView, PartitionView},
};
use garrick_plan::{
    plan::kept::planning::{Made, Planning},
    rules::priority,
    snapshot::facts::{ClusterView, Policy},
};
use std::{sync::Arc, time::Duration};

/// What shall happen.
pub type SchedulerEffect = Effect<SchedulerTimer, SchedulerShown, CommandReply, SchedulerErrand>;

/// What others calculate priorities by, too. `None`: nobody calculates any.
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
}

/// The boards at one time.
#[derive(Debug)]
pub struct Snapshot {
    /// Generations before anything was read.
    pub seen: Seen,
    /// When reading began, by a clock that is never set, from any beginning.
    pub began: Duration,
    /// What a plan is made from.
    pub view: ClusterView,
    /// Jobs that wait, run or are being cleaned up; others may be among them.
    pub jobs: Vec<Arc<JobView>>,
    /// All partitions.
    pub partitions: Vec<Arc<PartitionView>>,
    /// Configuration.
    pub config: Arc<Config>,
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
    /// The plan that is kept says when, or is to be made anew.
    Kept,
    /// Somebody starts who waits for nothing else than time.
    Again,
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
        }
    }
}

/// What the scheduler is told.
#[derive(Debug)]
pub enum SchedulerInput {
    /// It lives.
    Started,
    /// A board is further than [`SchedulerErrand::Watch`] said.
    Changed,
    /// A timer went off.
    Timer(SchedulerTimer),
    /// What [`SchedulerErrand::Look`] asked for.
    Snapshot(Box<Snapshot>),
    /// What came of [`SchedulerErrand::Plan`].
    Planned {
        /// Plan.
        made: Box<Made>,
        /// The generation of the board of reservations when it was made.
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
    /// Somebody asks what keeps a job waiting.
    Explain {
        /// Request.
        request: u64,
        /// Job.
        job: JobId,
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
        }
    }
}

/// What the scheduler is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerAsk {
    /// What keeps a job waiting? Answered by [`CommandReply::Outlook`], between passes.
    Explain(JobId),
}

/// What the scheduler has done.
#[derive(Debug)]
pub enum SchedulerErrand {
    /// Read the boards and say so, by [`SchedulerInput::Snapshot`].
    Look,
    /// Say by [`SchedulerInput::Changed`] when a board is further than this.
    Watch(Seen),
    /// Make that plan, and bring it back by [`SchedulerInput::Planned`].
    Plan(Box<Planning>),
}
