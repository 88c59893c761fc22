//! States of the run and of its steps as the step manager sees them.

use crate::stepmgr::{
    findings::Findings, messages::ClientId, placement::Placement, queue::QueueKey, rows::RowId, shape::StepShape,
};
use garrick_model::{
    ids::{RequestId, StepKey},
    signal::{SIGCONT, SIGSTOP},
    spec::{EnvEntry, StepSpec},
    time::Timestamp,
    view::StepOrigin,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::{collections::BTreeSet, sync::Arc};

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

/// Whether the run may use its CPUs, as SIGSTOP and SIGCONT to all of it say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Motion {
    /// Nothing was ever said.
    #[default]
    Untouched,
    /// It stands still: tasks are stopped, and no step is started.
    Still,
    /// It goes on.
    Resumed,
}

impl Motion {
    /// What was said last.
    pub const fn signal(self) -> Option<i32> {
        match self {
            Self::Untouched => None,
            Self::Still => Some(SIGSTOP),
            Self::Resumed => Some(SIGCONT),
        }
    }
}

/// A step that runs, or whose command waits with it.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRecord {
    /// What was asked for.
    pub spec: Arc<StepSpec>,
    /// What it needs.
    pub shape: Arc<StepShape>,
    /// Its first layer of environment.
    pub environment: Arc<Vec<EnvEntry>>,
    /// What reports say of it and of those like it.
    pub origin: Arc<StepOrigin>,
    /// The row of a minibatch step, and which of its members it is.
    pub row: Option<(RowId, u32)>,
    /// Tries before this one.
    pub attempt: u32,
    /// The command that stays with it.
    pub client: Option<ClientId>,
    /// And its request.
    pub request: Option<RequestId>,
    /// Descriptors that its command handed over.
    pub handed: [bool; 3],
    /// Input that its command sent before it ran, within the window that it may send unasked.
    pub early_input: Vec<ByteBuf>,
    /// Commands that watch its output.
    pub watchers: Vec<ClientId>,
    /// When its order to start was passed to its nodes, counted in questions what they have (`StepMgrCore::asked`): an answer
    /// to a question from before knows nothing of it.
    pub ordered: Option<u64>,
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
    /// Was started by a step manager that died; its nodes are asked what became of it. It keeps its resources.
    Unsure {
        /// Where.
        placement: Placement,
        /// Since.
        since: Timestamp,
        /// What they have said.
        findings: Findings,
    },
}

impl RecordState {
    /// Where it has its resources, unless it waits.
    pub const fn placement(&self) -> Option<&Placement> {
        match self {
            Self::Queued { .. } => None,
            Self::Running { placement, .. } | Self::Unsure { placement, .. } => Some(placement),
        }
    }
}

/// A conversation with a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// Whose, by uid.
    pub uid: u32,
    /// May use this job.
    pub allowed: bool,
    /// May speak for others.
    pub trusted: bool,
    /// What it is about.
    pub about: About,
    /// The number that its step is to have.
    pub reserved: Option<u32>,
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
    /// The output of a step that another command stays with, or nobody.
    Watch(StepKey),
    /// Answered; nothing more is expected.
    Done,
}

/// What is first in the queue and does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Its place.
    pub key: QueueKey,
    /// What it needs.
    pub shape: Arc<StepShape>,
    /// Steps that started ahead of it.
    pub bypassed: u32,
    /// Nodes kept free for it, once enough have.
    pub kept: BTreeSet<u32>,
}
