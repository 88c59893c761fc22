//! States of the run and of its steps as the step manager sees them.

use crate::stepmgr::{messages::ClientId, placement::Placement, queue::QueueKey, shape::StepShape};
use garrick_model::{
    spec::{EnvEntry, StepSpec},
    time::Timestamp,
};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// Where the run is. What it ends with is in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPhase {
    /// Its batch host's shepherd is awaited.
    Starting,
    /// Steps run.
    Running,
    /// Steps were told to end.
    Ending,
    /// Shepherds were told to end everything.
    Sweeping,
    /// This node is clean and the end was reported; other nodes are awaited.
    Ended,
    /// All clean; `Gone` was reported.
    Gone,
}

impl RunPhase {
    /// New steps are welcome.
    pub const fn takes_steps(self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }
}

/// A step that is not over.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRecord {
    /// What was asked for.
    pub spec: Arc<StepSpec>,
    /// What it needs.
    pub shape: Arc<StepShape>,
    /// Its first layer of environment.
    pub environment: Arc<Vec<EnvEntry>>,
    /// The command that stays with it.
    pub client: Option<ClientId>,
    /// Input that its command sent before it ran, within the window that it may send unasked.
    pub early_input: Vec<ByteBuf>,
    /// Where it is.
    pub state: RecordState,
}

/// Where a step is.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordState {
    /// Waits at this place in the queue.
    Queued {
        /// Place.
        key: QueueKey,
        /// Its command was told that it waits.
        told: bool,
    },
    /// Has its resources.
    Running {
        /// Where.
        placement: Placement,
        /// Since.
        since: Timestamp,
    },
    /// Ran under a step manager that died; its fate is being asked for.
    Unsure {
        /// Since.
        since: Timestamp,
    },
}

/// A conversation with a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// May use this job.
    pub allowed: bool,
    /// May speak for others.
    pub trusted: bool,
    /// What it is about.
    pub about: About,
}

/// What a conversation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// No request yet.
    Nothing,
    /// A step, by number.
    Step(u32),
    /// Steps whose acceptance is being written down.
    Enqueue,
    /// The end of steps.
    Wait,
    /// Answered; nothing more is expected.
    Done,
}

/// The step that is first in the queue and does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Its number.
    pub step: u32,
    /// Steps that started ahead of it.
    pub bypassed: u32,
    /// Nodes kept free for it, once enough have.
    pub kept: std::collections::BTreeSet<u32>,
}
