//! The step manager's inputs, with their senders, and its effects. Inputs from one sender keep their order; a repeated `Enqueue`
//! (by request id), `EndJob`, `SetTimeLimit`, `ShepherdLost` or `Journaled` changes nothing.

use crate::step::{
    NodeSlot, StepEffect, StepInput, StepPlan, StepTimer,
    messages::{client_message_name, shepherd_message_name},
};
use garrick_events::steps::event::StepEvent;
use garrick_model::{
    ids::StepKey,
    messages::{
        command::Caller,
        files::FileOrder,
        shepherd::{ShepherdToStepMgr, StepMgrToShepherd},
        step::{CommandToStepMgr, StepMgrToCommand},
        stepd::{NodeToStepd, StepdToNode},
    },
    refusal::Refusal,
};
use garrick_runtime::Message;
use std::time::Duration;

/// A conversation with a command, numbered by the door; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Timers of the step manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepMgrTimer {
    /// The job's time limit, grace included.
    TimeLimit,
    /// `--signal`.
    Warning,
    /// Steps that were told to end should be over.
    KillWait,
    /// Step changes are to be reported.
    Report,
    /// A step is to be tried again.
    Retry,
    /// Other nodes should be clean.
    Others,
    /// A `swait` is to get progress counts.
    Progress(ClientId),
    /// For the shell: messages that a step's mailbox refused are sent again.
    Backlog,
    /// For the shell: of a step that it hosts.
    Step(StepKey, StepTimer),
}

/// The step manager's inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum StepMgrInput {
    /// First input: a new run begins, or (if its journal had records) one of an earlier step manager is taken over.
    Begin,
    /// The agent of another node answered: its shepherd was started and will register, or not.
    ShepherdStart {
        /// The node.
        node: NodeSlot,
        /// The answer, or that it could not be reached.
        result: Result<(), Refusal>,
    },
    /// A shepherd is connected (credential checked) and its launcher runs. The batch host's own counts too.
    ShepherdUp {
        /// The node.
        node: NodeSlot,
    },
    /// The connection to a shepherd broke, or its process died. It may come back (`ShepherdUp`); its tasks go on meanwhile.
    ShepherdAway {
        /// The node.
        node: NodeSlot,
        /// For the log.
        detail: String,
    },
    /// A shepherd is gone for good: it did not come back in time, nothing of the run is left on its node, or it sent `Gone`. It
    /// cannot come back: what it has there is ended.
    ShepherdLost {
        /// The node.
        node: NodeSlot,
        /// For the log.
        detail: String,
    },
    /// From a shepherd, after `ShepherdUp`.
    Shepherd {
        /// The node.
        node: NodeSlot,
        /// The message.
        message: ShepherdToStepMgr,
    },
    /// A command connected.
    ClientOpened {
        /// Its conversation.
        client: ClientId,
        /// The caller, from the kernel.
        caller: Caller,
    },
    /// From a command.
    Client {
        /// Its conversation.
        client: ClientId,
        /// The message.
        message: CommandToStepMgr,
    },
    /// A command went away.
    ClientClosed {
        /// Its conversation.
        client: ClientId,
    },
    /// The effects of a step's actor. `SetTimer` is not among them.
    StepSays {
        /// The step.
        step: StepKey,
        /// The effects.
        effects: Vec<StepEffect>,
    },
    /// A step's actor died.
    StepCrashed {
        /// The step.
        step: StepKey,
    },
    /// From the node's agent.
    Agent(NodeToStepd),
    /// The agent is connected (again) and said `Welcome`.
    AgentUp,
    /// Journal records up to this number are on disk.
    Journaled {
        /// Number given in the effect.
        upto: u64,
    },
    /// The record with this number could not be written for now; no part of it is in the journal.
    JournalRefused {
        /// Number given in the effect.
        record: u64,
        /// Error.
        detail: String,
    },
    /// Records without a number wait for space on the disk: nothing may be started until they are written.
    JournalBehind {
        /// Error.
        detail: String,
    },
    /// They are written.
    JournalCaughtUp,
    /// The journal cannot be written any more.
    JournalFailed {
        /// Error.
        detail: String,
    },
    /// A timer ran out.
    Timer(StepMgrTimer),
}

/// The step manager's effects.
#[derive(Clone, Debug, PartialEq)]
pub enum StepMgrEffect {
    /// Append to the journal, before any of the following effects leaves the process. With a number: sync, then send `Journaled`;
    /// without, the record may wait for the next sync.
    Journal {
        /// Record.
        event: StepEvent,
        /// The number for `Journaled`.
        durable: Option<u64>,
    },
    /// Ask the agent of another node to start a shepherd for this run; answered by `ShepherdStart`.
    StartShepherd {
        /// The node.
        node: NodeSlot,
        /// The run had a shepherd there: look for it, and do not begin another.
        again: bool,
    },
    /// To a shepherd.
    ToShepherd {
        /// The node.
        node: NodeSlot,
        /// The message.
        message: StepMgrToShepherd,
    },
    /// Start a step's actor and tell it `Begin`.
    StartStep {
        /// The plan.
        plan: Box<StepPlan>,
    },
    /// Start a step's actor and tell it `Resume`.
    ResumeStep {
        /// The plan.
        plan: Box<StepPlan>,
        /// Ranks with a process.
        live: Vec<u32>,
    },
    /// To a step's actor; dropped if that is over.
    ToStep {
        /// The step.
        step: StepKey,
        /// The input.
        input: StepInput,
    },
    /// To a command.
    ToClient {
        /// The command.
        client: ClientId,
        /// The message.
        message: StepMgrToCommand,
    },
    /// Send a command's file to these nodes, whose shepherds are there. Its parts, `FileReady` and `FileDone` go past the core.
    SendFile {
        /// The command.
        client: ClientId,
        /// The nodes.
        nodes: Vec<NodeSlot>,
        /// The file.
        file: FileOrder,
        /// Most children of a node in the tree; 0: no tree.
        width: u16,
    },
    /// Close a conversation once what was sent is out.
    CloseClient {
        /// The command.
        client: ClientId,
    },
    /// From now on messages go to the node's agent over its newest connection. This comes before all that is repeated for the
    /// agent, which takes reports by growing numbers and would drop those after a newer one as repeats.
    OpenAgent,
    /// To the node's agent; dropped while it is away, and on a new connection until [`StepMgrEffect::OpenAgent`] (reports are
    /// repeated on `AgentUp`).
    ToAgent(StepdToNode),
    /// Set a timer, replacing one of the same name.
    SetTimer {
        /// The timer.
        timer: StepMgrTimer,
        /// From now.
        after: Duration,
    },
    /// Clear a timer.
    ClearTimer(StepMgrTimer),
    /// Tell an operator.
    Log {
        /// Text.
        text: String,
    },
    /// The run is over and all have been told: the process may end. Last effect.
    Exit,
}

/// Mailbox of the step manager's actor.
#[derive(Debug)]
pub struct StepMgrMsg(pub StepMgrInput);

impl Message for StepMgrMsg {
    fn name(&self) -> &'static str {
        match &self.0 {
            StepMgrInput::Begin => "Begin",
            StepMgrInput::ShepherdStart { .. } => "ShepherdStart",
            StepMgrInput::ShepherdUp { .. } => "ShepherdUp",
            StepMgrInput::ShepherdAway { .. } => "ShepherdAway",
            StepMgrInput::ShepherdLost { .. } => "ShepherdLost",
            StepMgrInput::Shepherd { message, .. } => shepherd_message_name(message),
            StepMgrInput::ClientOpened { .. } => "ClientOpened",
            StepMgrInput::Client { message, .. } => client_message_name(message),
            StepMgrInput::ClientClosed { .. } => "ClientClosed",
            StepMgrInput::StepSays { .. } => "StepSays",
            StepMgrInput::StepCrashed { .. } => "StepCrashed",
            StepMgrInput::Agent(message) => agent_message_name(message),
            StepMgrInput::AgentUp => "AgentUp",
            StepMgrInput::Journaled { .. } => "Journaled",
            StepMgrInput::JournalRefused { .. } => "JournalRefused",
            StepMgrInput::JournalBehind { .. } => "JournalBehind",
            StepMgrInput::JournalCaughtUp => "JournalCaughtUp",
            StepMgrInput::JournalFailed { .. } => "JournalFailed",
            StepMgrInput::Timer(_) => "Timer",
        }
    }
}

/// Name of an agent's message, for traces.
pub const fn agent_message_name(message: &NodeToStepd) -> &'static str {
    match message {
        NodeToStepd::Welcome => "Welcome",
        NodeToStepd::EndJob { .. } => "EndJob",
        NodeToStepd::SignalJob { .. } => "SignalJob",
        NodeToStepd::SetTimeLimit(_) => "SetTimeLimit",
        NodeToStepd::FinishAllocation(_) => "FinishAllocation",
        NodeToStepd::SignalSteps { .. } => "SignalSteps",
        NodeToStepd::Order(_) => "Order",
        NodeToStepd::ListSteps { .. } => "ListSteps",
        NodeToStepd::Trace { .. } => "Trace",
        NodeToStepd::StopTrace { .. } => "StopTrace",
        NodeToStepd::Ack { .. } => "Ack",
    }
}
