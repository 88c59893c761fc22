//! States of the run and of its steps as the step manager sees them.

use crate::stepmgr::{
    findings::Findings, messages::ClientId, placement::Placement, queue::QueueKey, rows::RowId, shape::StepShape,
};
use garrick_model::{
    ids::{RequestId, StepKey},
    spec::{EnvEntry, StepSpec},
    time::Timestamp,
    view::StepOrigin,
};
use serde_bytes::ByteBuf;
use std::{collections::BTreeSet, sync::Arc};

/// The phase of the run. The ledger has its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPhase {
    /// Waits for the batch host's shepherd.
    Starting,
    /// Steps run.
    Running,
    /// Steps were told to end.
    Ending,
    /// Shepherds were told to end everything.
    Sweeping,
    /// This node is clean and the end was reported; waits for other nodes.
    Ended,
    /// All clean; `Gone` was reported.
    Gone,
}

impl RunPhase {
    /// Are new steps accepted?
    pub const fn takes_steps(self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }
}

/// A step that runs, or whose command waits with it.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRecord {
    /// The request.
    pub spec: Arc<StepSpec>,
    /// Its shape.
    pub shape: Arc<StepShape>,
    /// Its first layer of environment.
    pub environment: Arc<Vec<EnvEntry>>,
    /// How reports describe it and similar steps.
    pub origin: Arc<StepOrigin>,
    /// The row of a minibatch step, and its member number.
    pub row: Option<(RowId, u32)>,
    /// Number of earlier tries.
    pub attempt: u32,
    /// The command that waits with it.
    pub client: Option<ClientId>,
    /// That command's request.
    pub request: Option<RequestId>,
    /// Descriptors that its command handed over.
    pub handed: [bool; 3],
    /// Input that its command sent before the step ran, within the window that it may send without a grant.
    pub early_input: Vec<ByteBuf>,
    /// Commands that watch its output.
    pub watchers: Vec<ClientId>,
    /// When its order to start was passed to its nodes, as the number of questions asked so far (`StepMgrCore::asked`): an answer
    /// to an earlier question does not include it.
    pub ordered: Option<u64>,
    /// Its state.
    pub state: RecordState,
}

/// The state of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordState {
    /// Waits in the queue.
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
    /// An earlier step manager started it; its nodes are being asked about it. It keeps its resources.
    Unsure {
        /// Where.
        placement: Placement,
        /// Since.
        since: Timestamp,
        /// Their answers so far.
        findings: Findings,
    },
}

impl RecordState {
    /// Its placement, unless it waits.
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
    /// The user, by uid.
    pub uid: u32,
    /// The user may use this job.
    pub allowed: bool,
    /// The user may act for others.
    pub trusted: bool,
    /// Its subject.
    pub about: About,
    /// The number reserved for its step.
    pub reserved: Option<u32>,
}

/// The subject of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// No request yet.
    Nothing,
    /// A step, by number.
    Step(u32),
    /// Steps that are being accepted into the journal.
    Enqueue,
    /// The end of steps.
    Wait,
    /// The output of a step, for `sattach`.
    Watch(StepKey),
    /// What steps use, for `sstat`.
    Sample,
    /// A file for nodes, some of which are not there yet.
    File,
    /// A file on its way.
    FileUnderWay,
    /// Answered; nothing more is expected.
    Done,
}

/// The first entry of the queue that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Its place.
    pub key: QueueKey,
    /// Its shape.
    pub shape: Arc<StepShape>,
    /// Steps that started ahead of it.
    pub bypassed: u32,
    /// Nodes kept free for it, once enough steps have started ahead of it.
    pub kept: BTreeSet<u32>,
}
