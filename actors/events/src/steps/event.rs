//! The records of the step journal in a job's spool folder.

use super::{
    batch::StoredBatch,
    end::{StepEnd, StepResult},
};
use garrick_model::{
    gres::GresShare,
    ids::{RequestId, StepKey},
    resources::CpuSet,
    signal::{SIGCONT, SIGSTOP},
    state::{ExitStatus, JobState, Reason, StepState},
    step_selector::WhichSteps,
    time::{TimeLimit, Timestamp},
    view::StepOrigin,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A record of the step journal in the job's spool folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StepEvent {
    /// A batch was accepted under consecutive numbers from `first`, or an array under that one number. On disk before the reply.
    Accepted {
        /// Identity of the request.
        request: RequestId,
        /// Its first number.
        first: u32,
        /// The steps.
        batch: Arc<StoredBatch>,
        /// When.
        at: Timestamp,
    },
    /// A step's tasks are handed to their nodes.
    Started {
        /// The step.
        step: StepKey,
        /// Number of earlier tries.
        #[serde(default)]
        attempt: u32,
        /// When.
        at: Timestamp,
        /// Its places.
        places: Vec<Place>,
        /// How reports describe it, unless it belongs to a batch.
        #[serde(default)]
        origin: Option<Arc<StepOrigin>>,
        /// It is lined up behind this step, whose places it gets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<StepKey>,
        /// Request id of its waiting command: a repeat of the request starts nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<RequestId>,
    },
    /// A step that ran will be tried again: it waits as before, until `after` at least.
    Retried {
        /// The step.
        step: StepKey,
        /// Tries so far.
        attempt: u32,
        /// Not before.
        after: Timestamp,
        /// How the try ended; not set if it did not begin, nor in journals of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Box<StepResult>>,
        /// When.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// A step is over, or never started and is over.
    Ended {
        /// Its result.
        result: StepResult,
        /// When.
        at: Timestamp,
    },
    /// Many waiting steps of one batch are over without having started.
    Withdrawn {
        /// The batch's first number.
        first: u32,
        /// Members, as inclusive ranges.
        members: Vec<(u32, u32)>,
        /// Final state.
        state: StepState,
        /// Why.
        cause: StepEnd,
        /// When.
        at: Timestamp,
    },
    /// The job is being ended.
    Ending {
        /// State to record.
        state: JobState,
        /// Why.
        reason: Reason,
        /// Exit status to record.
        exit: ExitStatus,
    },
    /// The job's limit was changed.
    TimeLimit(TimeLimit),
    /// The limit of a running step was changed.
    StepLimit {
        /// Step.
        step: StepKey,
        /// How reports describe it from now on, with the new limit.
        origin: Arc<StepOrigin>,
    },
    /// The run was stopped, or continued.
    Moved(Motion),
    /// The agent has acknowledged so many more ends: the oldest ones.
    Reported {
        /// How many.
        ends: u64,
    },
    /// The batch host could not even try to run the script: this is reported, whatever its step says of its end.
    LaunchFailed {
        /// Why.
        detail: String,
    },
    /// A step manager took the run over from one that died.
    Restarted,
    /// A node was lost for this run: a later step manager does not ask it again, whichever job uses it by then.
    NodeLost {
        /// Node of the job.
        slot: u32,
    },
    /// A node's shepherd was up: a later step manager looks for it, and does not begin another.
    ShepherdUp {
        /// Node of the job.
        slot: u32,
    },
    /// A user cancels steps. Only for the records of steps: the end of each is saved by itself.
    CancelAsked {
        /// The steps.
        steps: WhichSteps,
        /// The user, by uid.
        by: u32,
    },
}

/// A step's place on one node, as saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Node of the job.
    #[serde(rename = "n")]
    pub slot: u32,
    /// Its CPUs.
    #[serde(rename = "c")]
    pub cpus: CpuSet,
    /// Memory limit, MiB.
    #[serde(rename = "m")]
    pub memory: Option<u64>,
    /// Generic resources.
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    pub gres: Vec<GresShare>,
    /// Ranks.
    #[serde(rename = "r")]
    pub ranks: Vec<u32>,
    /// It holds these exclusively.
    #[serde(rename = "x")]
    pub held: bool,
}

/// Whether the run may use its CPUs, according to SIGSTOP and SIGCONT to the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Motion {
    /// No such signal was sent.
    #[default]
    Untouched,
    /// Stopped: tasks are stopped, and no step is started.
    Still,
    /// Continued.
    Resumed,
}

impl Motion {
    /// The signal for this state.
    pub const fn signal(self) -> Option<i32> {
        match self {
            Self::Untouched => None,
            Self::Still => Some(SIGSTOP),
            Self::Resumed => Some(SIGCONT),
        }
    }
}
