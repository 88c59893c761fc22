//! How steps end.

use garrick_model::{
    ids::StepId,
    state::{ExitStatus, JobState, Reason, StepState},
    usage::{TaskUsage, UsageSpread},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Why a step is ended before its tasks ended by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepEnd {
    /// By its owner or an administrator.
    Cancelled,
    /// Its `srun` went away.
    ClientGone,
    /// Its own time limit.
    TimeLimit,
    /// The job is ended, with that state.
    Job(JobState),
    /// The batch script ended before it.
    BatchOver,
    /// A node of it was lost.
    NodeLost {
        /// The node.
        node: String,
    },
    /// A task ended with other than 0 and `-K` was given.
    BadExit,
    /// A task ran out of memory and `--oom-kill-step` was given.
    TaskOutOfMemory,
    /// `-W` seconds passed since the first task ended.
    WaitOver,
    /// The step manager was restarted and lost the step.
    ManagerRestarted,
    /// More input was sent than the command was granted.
    InputOverrun,
    /// A task ran and its end was not seen: its launcher died.
    ExitUnknown,
    /// Its dependency can never be fulfilled.
    DependencyNeverSatisfied,
    /// Too many steps of its group failed (`--max-fails`).
    TooManyFailed,
}

impl StepEnd {
    /// The reason that `squeue` and `scontrol` show, if neither the state nor the exit status says it.
    pub fn word(&self) -> Reason {
        match self {
            Self::DependencyNeverSatisfied => Reason::DependencyNeverSatisfied,
            // Named after the option; a controller of an earlier version could not read a variant of its own.
            Self::TooManyFailed => Reason::Other("MaxFails".to_owned()),
            _ => Reason::None,
        }
    }

    /// The state of a step that ended for this reason; `None`: as its tasks ended.
    pub const fn state(&self) -> Option<StepState> {
        match self {
            Self::Cancelled
            | Self::ClientGone
            | Self::BatchOver
            | Self::InputOverrun
            | Self::DependencyNeverSatisfied
            | Self::TooManyFailed => Some(StepState::Cancelled),
            Self::TimeLimit => Some(StepState::Timeout),
            Self::Job(JobState::Timeout | JobState::Deadline) => Some(StepState::Timeout),
            Self::Job(JobState::NodeFail) | Self::NodeLost { .. } => Some(StepState::NodeFail),
            Self::Job(JobState::OutOfMemory) => Some(StepState::OutOfMemory),
            Self::Job(_) => Some(StepState::Cancelled),
            Self::BadExit | Self::WaitOver => None,
            Self::TaskOutOfMemory => Some(StepState::OutOfMemory),
            Self::ManagerRestarted | Self::ExitUnknown => Some(StepState::Failed),
        }
    }

    /// ` DUE TO ...`, if Slurm writes one.
    pub const fn due_to(&self) -> &'static str {
        match self {
            Self::TimeLimit | Self::Job(JobState::Timeout) => " DUE TO TIME LIMIT",
            Self::Job(JobState::NodeFail) | Self::NodeLost { .. } => " DUE TO NODE FAILURE",
            Self::Job(JobState::Preempted) => " DUE TO PREEMPTION",
            Self::WaitOver => " DUE TO TASK WAIT LIMIT",
            Self::BatchOver => " DUE TO END OF BATCH SCRIPT",
            Self::TooManyFailed => " DUE TO TOO MANY FAILED STEPS",
            _ => "",
        }
    }
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepResult {
    /// The step.
    pub step: StepId,
    /// Final state.
    pub state: StepState,
    /// Highest exit status of its tasks.
    pub exit: ExitStatus,
    /// Why it was ended, if it was.
    pub ended: Option<StepEnd>,
    /// What its tasks used.
    #[serde(default)]
    pub usage: TaskUsage,
    /// How that is spread over several tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Arc<UsageSpread>>,
    /// Why a task of it could not be started (no such program, its output cannot be opened): the first task's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
