//! The agent's inputs, with their senders, and its effects. Inputs from one sender keep their order. Each input about a run names
//! the run ([`RunKey`]); repeats and late arrivals change nothing.

use garrick_model::{
    config::LogChange,
    ids::{ArrayTask, JobId, Sluid},
    messages::{
        command::{Caller, CommandReply, CommandRequest, TraceLine},
        node::{
            AgentToStepMgr, ControllerToNode, JobCredential, JobLaunch, Neighbour, NodeToController, RequeuePolicy,
        },
        stepd::{NodeToStepd, StepdToNode},
    },
    node_shape::NodeShape,
    time::Timestamp,
    view::{NodeFacts, NodeLoad},
};
use garrick_runtime::Message;
use std::{fmt, time::Duration};

/// One run of a job on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// Job.
    pub job: JobId,
    /// Run.
    pub sluid: Sluid,
}

/// An order to start a run, with its credential already checked (signature, cluster, expiry) by the shell.
#[derive(Clone, Debug, PartialEq)]
pub struct StartOrder {
    /// The order.
    pub launch: Box<JobLaunch>,
    /// The credential's content, or why it is not accepted.
    pub credential: Result<Box<JobCredential>, String>,
}

/// How far a run in the spool had come when the agent started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepdState {
    /// Its `stepd` lives and will connect.
    Alive {
        /// Process id; `None`: it has not written it yet.
        pid: Option<u32>,
        /// The run's processes are gone, all reports are acknowledged, and that was noted: it only waits for the permission to
        /// exit.
        clean: bool,
    },
    /// Its `stepd` is gone, and the run is not over or some of its reports are not acknowledged.
    Dead,
    /// The machine was rebooted since: nothing of the run is left.
    Rebooted,
    /// Its processes are gone, its reports are acknowledged, and that was noted; the epilog may not have run.
    Clean,
}

/// A run found in the spool at the agent's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRun {
    /// The run.
    pub run: RunKey,
    /// Its step manager is here.
    pub batch_host: bool,
    /// Owner.
    pub uid: u32,
    /// State of its `stepd`.
    pub stepd: StepdState,
    /// Door of its `stepd`.
    pub door: String,
    /// May the controller start the job again elsewhere when it gives this node up? As it last said.
    pub requeue: RequeuePolicy,
}

/// Timers of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgentTimer {
    /// Time to say that the node is alive.
    Heartbeat,
    /// A `stepd` that was started should have connected.
    Start(RunKey),
    /// A `stepd` that was told to end its run should have done so.
    End(RunKey),
    /// Time to restart a `stepd` that died.
    Restart(RunKey),
    /// The `stepd`s should have answered a listing or trace query.
    Query(u64),
    /// A command has waited for the controller as long as it may.
    Command(u64),
    /// The lease is over: the controller was not heard from for nearly as long as it waits for this node.
    Lease,
}

/// What other nodes said about the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeersSaid {
    /// Number of nodes that were asked; 0 if there are no others.
    pub asked: usize,
    /// Number of nodes that answered.
    pub reached: usize,
    /// How many of those are connected to the controller.
    pub with_controller: usize,
}

/// The agent's inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentInput {
    /// First input.
    Begin {
        /// Runs in the spool.
        found: Vec<FoundRun>,
        /// Runs that ended here, and until when the credential of each is valid.
        over: Vec<(RunKey, Timestamp)>,
        /// Hardware of the machine.
        facts: Box<NodeFacts>,
        /// Load.
        load: NodeLoad,
    },
    /// A connection to the controller is up; nothing was sent on it yet.
    ControllerUp,
    /// The connection to the controller is gone.
    ControllerGone,
    /// From the controller (`StartJob` comes as [`AgentInput::StartJob`]).
    Controller(ControllerToNode),
    /// From the controller: start a run whose batch host this is.
    StartJob(StartOrder),
    /// From another node's step manager: start a shepherd.
    StartShepherd {
        /// Conversation to answer in.
        query: u64,
        /// Order.
        order: StartOrder,
        /// Address of that step manager's `stepd`.
        manager: String,
        /// The run had a shepherd here: look for it, and do not begin another.
        again: bool,
    },
    /// Prolog and spool folder are done and the `stepd` was started, or something failed.
    Prepared {
        /// Run.
        run: RunKey,
        /// Process id, or the failure.
        result: Result<u32, PrepareFailure>,
    },
    /// What `NoteRequeue` requested is on disk.
    RequeueNoted {
        /// Run.
        run: RunKey,
        /// What was noted.
        policy: RequeuePolicy,
    },
    /// The `stepd` of a run was started again, or could not be.
    Restarted {
        /// Run.
        run: RunKey,
        /// Process id, or the failure.
        result: Result<u32, String>,
    },
    /// A `stepd` connected and said `Hello`.
    StepdUp {
        /// Run.
        run: RunKey,
        /// Connection number, never reused.
        conn: u64,
        /// Process id, from the kernel.
        pid: u32,
        /// Its door.
        door: String,
        /// Hosts the step manager.
        batch_host: bool,
    },
    /// From a `stepd`.
    Stepd {
        /// Run.
        run: RunKey,
        /// Connection.
        conn: u64,
        /// Message.
        message: StepdToNode,
    },
    /// A `stepd`'s connection is gone.
    StepdGone {
        /// Run.
        run: RunKey,
        /// Connection.
        conn: u64,
    },
    /// A `stepd`'s process ended, or does not exist.
    StepdExited {
        /// Run.
        run: RunKey,
        /// Process id; `None`: not known.
        pid: Option<u32>,
        /// Description for the log.
        how: String,
    },
    /// No process of the run is left and its cgroups are removed, or that could not be achieved.
    Swept {
        /// Run.
        run: RunKey,
        /// What is left.
        left: Option<Leftover>,
    },
    /// The epilog ended.
    EpilogDone {
        /// Run.
        run: RunKey,
        /// Why it failed, if it did.
        failed: Option<String>,
    },
    /// A command at this node's door.
    Command {
        /// Conversation.
        query: u64,
        /// The caller.
        caller: Caller,
        /// The request.
        request: Box<CommandRequest>,
    },
    /// The command closed its connection.
    CommandGone {
        /// Conversation.
        query: u64,
    },
    /// This process's own trace records for a query.
    OwnTrace {
        /// Query.
        query: u64,
        /// Records.
        records: Vec<TraceLine>,
    },
    /// Answer to `AskPeers`.
    PeersSaid(PeersSaid),
    /// A timer ran out.
    Timer {
        /// The timer.
        timer: AgentTimer,
        /// Load, read when the heartbeat is due.
        load: NodeLoad,
    },
}

/// Why a run could not be prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrepareFailure {
    /// The prolog failed: the node is to be drained.
    Prolog(String),
    /// Anything else.
    Start(String),
}

/// What a sweep could not remove within UnkillableStepTimeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Processes that do not end, although they were killed.
    Processes(Vec<u32>),
    /// It is not known whether any are left, for this reason.
    Unknown(String),
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processes(pids) => write!(f, "processes that cannot be killed: {pids:?}"),
            Self::Unknown(why) => write!(f, "whether processes are left is not known: {why}"),
        }
    }
}

/// The agent's effects.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentEffect {
    /// Sends a message to the controller; dropped while it is away (what must arrive is repeated after `Welcome`).
    ToController(Box<NodeToController>),
    /// Remember the key with which credentials are checked.
    TrustKey {
        /// ed25519 public key.
        key: Vec<u8>,
        /// Its id.
        id: String,
    },
    /// Run the prolog, write the run's folder, start its `stepd`. Answered by `Prepared`.
    Prepare {
        /// Run.
        run: RunKey,
        /// Order.
        launch: Box<JobLaunch>,
        /// Credential.
        credential: Box<JobCredential>,
        /// Set if only a shepherd is needed: its step manager's address.
        manager: Option<String>,
    },
    /// To a `stepd`; dropped while it is not connected.
    ToStepd {
        /// Run.
        run: RunKey,
        /// Message.
        message: NodeToStepd,
    },
    /// Tell the controller which runs of a job have records here (`Records`).
    FindRecords {
        /// Number that relates the answer to the question.
        query: u64,
        /// Job.
        job: JobId,
        /// Only this run.
        run: Option<Sluid>,
        /// A task of a job array, instead of a job.
        task: Option<ArrayTask>,
    },
    /// Start the `stepd` of a run again, from the run's folder. Answered by `Restarted`, its end by `StepdExited`.
    Restart {
        /// Run.
        run: RunKey,
    },
    /// A `stepd` that this agent did not start has connected: report `StepdExited` when it ends.
    Watch {
        /// Run.
        run: RunKey,
        /// Process.
        pid: u32,
    },
    /// Kill the `stepd` of a run. If it does not exist, `StepdExited` follows too.
    KillStepd {
        /// Run.
        run: RunKey,
        /// Process id, if known.
        pid: Option<u32>,
    },
    /// Note in the run's folder the new address of its step manager, if it changed.
    NoteManager {
        /// Run.
        run: RunKey,
        /// Address of the step manager's `stepd`.
        manager: String,
    },
    /// Note in the run's folder whether the job may be started again elsewhere. Answered by `RequeueNoted` once it is on disk;
    /// not answered if that fails.
    NoteRequeue {
        /// Run.
        run: RunKey,
        /// The policy.
        policy: RequeuePolicy,
    },
    /// Kill everything of the run and remove its cgroups. Answered by `Swept`.
    Sweep {
        /// Run.
        run: RunKey,
    },
    /// Run the site's RebootProgram. Nothing waits for it.
    Reboot,
    /// Run the site's UnkillableStepProgram, if there is one. Nothing waits for it.
    RunUnkillable {
        /// Run.
        run: RunKey,
    },
    /// Note in the run's folder that the controller knows how it ended and that no `stepd` is needed any more. A later agent then
    /// only sweeps what is left.
    MarkClean {
        /// Run.
        run: RunKey,
    },
    /// Run the epilog; answered by `EpilogDone`.
    RunEpilog {
        /// Run.
        run: RunKey,
    },
    /// Remember, also for a later agent, that the run is over here.
    NoteOver {
        /// Run.
        run: RunKey,
        /// Expiry of its credential.
        until: Timestamp,
    },
    /// Remove the run's folder.
    RemoveSpool {
        /// Run.
        run: RunKey,
    },
    /// Answer to `StartShepherd`.
    AnswerShepherd {
        /// Conversation.
        query: u64,
        /// Answer.
        answer: AgentToStepMgr,
    },
    /// Answer to a command.
    AnswerCommand {
        /// Conversation.
        query: u64,
        /// Answer.
        reply: Box<CommandReply>,
    },
    /// Collect this process's trace records. Answered by `OwnTrace`, with `follow` repeatedly until `StopOwnTrace`.
    OwnTrace {
        /// Query.
        query: u64,
        /// Prefixes.
        prefixes: Vec<String>,
        /// Keep sending.
        follow: bool,
    },
    /// Stop collecting.
    StopOwnTrace {
        /// Query.
        query: u64,
    },
    /// Set a timer, replacing one of the same name.
    SetTimer {
        /// The timer.
        timer: AgentTimer,
        /// Time from now.
        after: Duration,
    },
    /// Clear a timer.
    ClearTimer(AgentTimer),
    /// Tell an operator.
    Log {
        /// Something is wrong.
        warning: bool,
        /// Text.
        text: String,
    },
    /// Ask some other nodes whether they are connected to the controller. Answered by `PeersSaid`.
    AskPeers,
    /// Dynamic nodes, which may be asked too.
    Neighbours(Vec<Neighbour>),
    /// Runs that start from now on are told this shape of the node, except for GRES.
    CountAs(Box<NodeShape>),
    /// Change this daemon's log.
    ChangeLog(LogChange),
    /// Read the configuration again.
    Reconfigure,
    /// End this daemon.
    Exit,
}

/// Mailbox of the agent.
#[derive(Debug)]
pub struct AgentMsg(pub AgentInput);

impl Message for AgentMsg {
    fn is_traced(&self) -> bool {
        !matches!(
            self.0,
            AgentInput::OwnTrace { .. }
                | AgentInput::Controller(ControllerToNode::CommandReply { reply: CommandReply::TraceRecords(_), .. })
        )
    }

    fn name(&self) -> &'static str {
        match &self.0 {
            AgentInput::Begin { .. } => "Begin",
            AgentInput::ControllerUp => "ControllerUp",
            AgentInput::ControllerGone => "ControllerGone",
            AgentInput::Controller(message) => controller_message_name(message),
            AgentInput::StartJob(_) => "StartJob",
            AgentInput::StartShepherd { .. } => "StartShepherd",
            AgentInput::Prepared { .. } => "Prepared",
            AgentInput::RequeueNoted { .. } => "RequeueNoted",
            AgentInput::Restarted { .. } => "Restarted",
            AgentInput::StepdUp { .. } => "StepdUp",
            AgentInput::Stepd { message, .. } => stepd_message_name(message),
            AgentInput::StepdGone { .. } => "StepdGone",
            AgentInput::StepdExited { .. } => "StepdExited",
            AgentInput::Swept { .. } => "Swept",
            AgentInput::EpilogDone { .. } => "EpilogDone",
            AgentInput::Command { .. } => "Command",
            AgentInput::CommandGone { .. } => "CommandGone",
            AgentInput::OwnTrace { .. } => "OwnTrace",
            AgentInput::PeersSaid(_) => "PeersSaid",
            AgentInput::Timer { .. } => "Timer",
        }
    }
}

/// Name of a controller's message, for traces.
pub const fn controller_message_name(message: &ControllerToNode) -> &'static str {
    match message {
        ControllerToNode::Welcome { .. } => "Welcome",
        ControllerToNode::Declined(_) => "Declined",
        ControllerToNode::StartJob(_) => "StartJob",
        ControllerToNode::EndJob { .. } => "EndJob",
        ControllerToNode::SignalJob { .. } => "SignalJob",
        ControllerToNode::SetTimeLimit { .. } => "SetTimeLimit",
        ControllerToNode::FinishAllocation { .. } => "FinishAllocation",
        ControllerToNode::SetRequeue { .. } => "SetRequeue",
        ControllerToNode::Ping { .. } => "Ping",
        ControllerToNode::AckReports { .. } => "AckReports",
        ControllerToNode::ListSteps { .. } => "ListSteps",
        ControllerToNode::FindRecords { .. } => "FindRecords",
        ControllerToNode::SignalSteps { .. } => "SignalSteps",
        ControllerToNode::OrderSteps { .. } => "OrderSteps",
        ControllerToNode::Trace { .. } => "Trace",
        ControllerToNode::StopTrace { .. } => "StopTrace",
        ControllerToNode::CommandReply { .. } => "CommandReply",
        ControllerToNode::Revoked { .. } => "Revoked",
        ControllerToNode::ChangeLog(_) => "ChangeLog",
        ControllerToNode::RenewCertificate => "RenewCertificate",
        ControllerToNode::Certificate { .. } => "Certificate",
        ControllerToNode::Reconfigure => "Reconfigure",
        ControllerToNode::Reboot => "Reboot",
        ControllerToNode::Shutdown => "Shutdown",
    }
}

const fn stepd_message_name(message: &StepdToNode) -> &'static str {
    match message {
        StepdToNode::Hello { .. } => "Hello",
        StepdToNode::Report { .. } => "Report",
        StepdToNode::Steps { .. } => "Steps",
        StepdToNode::Trace { .. } => "Trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_records_are_in_no_trace() {
        let reply = |reply| AgentMsg(AgentInput::Controller(ControllerToNode::CommandReply { query: 1, reply }));
        assert!(!reply(CommandReply::TraceRecords(Vec::new())).is_traced());
        assert!(reply(CommandReply::Done).is_traced());
        assert!(!AgentMsg(AgentInput::OwnTrace { query: 1, records: Vec::new() }).is_traced());
        assert!(AgentMsg(AgentInput::ControllerUp).is_traced());
    }
}
