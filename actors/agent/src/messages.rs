//! What the agent is told, by whom, and what it wants done. Inputs from one sender keep their order. Everything about a
//! run names the run ([`RunKey`]); repeats and late arrivals change nothing.

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
    /// What the credential says, or why it is not believed.
    pub credential: Result<Box<JobCredential>, String>,
}

/// How far a run that was found in the spool had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepdState {
    /// Its `stepd` lives and will connect.
    Alive {
        /// Process; `None`: it has not noted it yet.
        pid: Option<u32>,
        /// The run's processes are gone, what it reported is safe, and that was noted: it only waits to be told.
        clean: bool,
    },
    /// Its `stepd` is gone, and the run is not over or not all that it reported is safe.
    Dead,
    /// The machine was started anew since: nothing of the run is left.
    Rebooted,
    /// Its processes are gone and what it reported is safe, and that was noted; the epilog may not have run.
    Clean,
}

/// A run found in the spool at the agent's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRun {
    /// Which.
    pub run: RunKey,
    /// Its step manager is here.
    pub batch_host: bool,
    /// Owner.
    pub uid: u32,
    /// State of its `stepd`.
    pub stepd: StepdState,
    /// Door of its `stepd`.
    pub door: String,
    /// May the controller start its job again elsewhere when it gives this node up? As it said last.
    pub requeue: RequeuePolicy,
}

/// Timers of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgentTimer {
    /// Time to say that the node is alive.
    Heartbeat,
    /// A `stepd` that was started should have connected.
    Start(RunKey),
    /// A `stepd` that was told to end should have.
    End(RunKey),
    /// Time to start a `stepd` again that died.
    Restart(RunKey),
    /// The `stepd`s should have answered a listing or trace query.
    Query(u64),
    /// A command has waited for the controller as long as it may.
    Command(u64),
    /// The controller was not heard for nearly as long as it waits for this node.
    Lease,
}

/// What other nodes said of the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeersSaid {
    /// Nodes that were asked: some of the cluster's others, 0 where there are none.
    pub asked: usize,
    /// Nodes that answered.
    pub reached: usize,
    /// Of these, nodes that are connected to the controller.
    pub with_controller: usize,
}

/// What the agent is told.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentInput {
    /// First input.
    Begin {
        /// Runs in the spool.
        found: Vec<FoundRun>,
        /// Runs that are over here, and until when a credential of each may be shown.
        over: Vec<(RunKey, Timestamp)>,
        /// What the machine has.
        facts: Box<NodeFacts>,
        /// Load.
        load: NodeLoad,
    },
    /// A connection to the controller is up; nothing was said on it yet.
    ControllerUp,
    /// It is gone.
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
        /// The run had one here: it is looked for, and none is begun in its place.
        again: bool,
    },
    /// Prolog and spool folder are done and the `stepd` was started, or something failed.
    Prepared {
        /// Run.
        run: RunKey,
        /// Process, or why not.
        result: Result<u32, PrepareFailure>,
    },
    /// What `NoteRequeue` asked for is on the disk.
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
        /// Process, or why not.
        result: Result<u32, String>,
    },
    /// A `stepd` connected and said `Hello`.
    StepdUp {
        /// Run.
        run: RunKey,
        /// Connection, never used again.
        conn: u64,
        /// Process, from the kernel.
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
    /// A `stepd`'s process ended, or is not there.
    StepdExited {
        /// Run.
        run: RunKey,
        /// Process; `None`: whichever it was.
        pid: Option<u32>,
        /// How, for the log.
        how: String,
    },
    /// No process of the run is left, its cgroups are removed; or that could not be brought about.
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
        /// Who.
        caller: Caller,
        /// What.
        request: Box<CommandRequest>,
    },
    /// It went away.
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
        /// Which.
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

/// What a sweep could not bring to an end within UnkillableStepTimeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Processes that do not end, although they were killed.
    Processes(Vec<u32>),
    /// Whether any are left could not be found out, and why.
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

/// What the agent wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentEffect {
    /// To the controller; dropped while it is away (what must arrive is repeated after `Welcome`).
    ToController(Box<NodeToController>),
    /// Remember the key that credentials are checked with.
    TrustKey {
        /// ed25519 public key.
        key: Vec<u8>,
        /// Its id.
        id: String,
    },
    /// Run the prolog, write the run's folder, start its `stepd`; answered by `Prepared`.
    Prepare {
        /// Run.
        run: RunKey,
        /// Order.
        launch: Box<JobLaunch>,
        /// Credential.
        credential: Box<JobCredential>,
        /// Set where only a shepherd is wanted: its step manager's address.
        manager: Option<String>,
    },
    /// To a `stepd`; dropped when it is not connected.
    ToStepd {
        /// Run.
        run: RunKey,
        /// Message.
        message: NodeToStepd,
    },
    /// Tell the controller which runs of a job are recorded here (`Records`).
    FindRecords {
        /// Correlation.
        query: u64,
        /// Job.
        job: JobId,
        /// This run of it.
        run: Option<Sluid>,
        /// The task of a job array that is meant instead of a job.
        task: Option<ArrayTask>,
    },
    /// Start the `stepd` of a run again, from what is in the run's folder. Answered by `Restarted`, its end by `StepdExited`.
    Restart {
        /// Run.
        run: RunKey,
    },
    /// A `stepd` that this agent did not start connected: say `StepdExited` when it ends.
    Watch {
        /// Run.
        run: RunKey,
        /// Process.
        pid: u32,
    },
    /// Kill the `stepd` of a run. One that is not there is answered by `StepdExited`.
    KillStepd {
        /// Run.
        run: RunKey,
        /// Process, where it is known.
        pid: Option<u32>,
    },
    /// Note in the run's folder where its step manager is reached from now on, if that changed.
    NoteManager {
        /// Run.
        run: RunKey,
        /// Address of the step manager's `stepd`.
        manager: String,
    },
    /// Note in the run's folder what was said last of starting it again elsewhere. Answered by `RequeueNoted` once it is on the
    /// disk, and not where it cannot be noted.
    NoteRequeue {
        /// Run.
        run: RunKey,
        /// What was said.
        policy: RequeuePolicy,
    },
    /// Kill everything of the run and remove its cgroups; answered by `Swept`.
    Sweep {
        /// Run.
        run: RunKey,
    },
    /// Run the site's UnkillableStepProgram, if there is one. Nothing waits for it.
    RunUnkillable {
        /// Run.
        run: RunKey,
    },
    /// Note in the run's folder that the controller knows how it ended and no `stepd` is to look after it any more. The next
    /// agent sweeps what is left of it.
    MarkClean {
        /// Run.
        run: RunKey,
    },
    /// Run the epilog; answered by `EpilogDone`.
    RunEpilog {
        /// Run.
        run: RunKey,
    },
    /// Remember, also for the next agent, that the run is over here.
    NoteOver {
        /// Run.
        run: RunKey,
        /// Until then its credential may be shown.
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
    /// Collect this process's trace records; answered by `OwnTrace`, again and again with `follow` until `StopOwnTrace`.
    OwnTrace {
        /// Query.
        query: u64,
        /// Prefixes.
        prefixes: Vec<String>,
        /// Keep sending.
        follow: bool,
    },
    /// End of interest.
    StopOwnTrace {
        /// Query.
        query: u64,
    },
    /// Set a timer, replacing one of the same name.
    SetTimer {
        /// Which.
        timer: AgentTimer,
        /// From now.
        after: Duration,
    },
    /// Clear a timer.
    ClearTimer(AgentTimer),
    /// Tell an operator.
    Log {
        /// Something is wrong.
        warning: bool,
        /// What.
        text: String,
    },
    /// Ask some other nodes whether they have the controller; answered by `PeersSaid`.
    AskPeers,
    /// Nodes that came at run time and may be asked, too.
    Neighbours(Vec<Neighbour>),
    /// Runs that start from now on are told that the node has this, but for GRES.
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
        ControllerToNode::Trace { .. } => "Trace",
        ControllerToNode::StopTrace { .. } => "StopTrace",
        ControllerToNode::CommandReply { .. } => "CommandReply",
        ControllerToNode::Revoked { .. } => "Revoked",
        ControllerToNode::ChangeLog(_) => "ChangeLog",
        ControllerToNode::RenewCertificate => "RenewCertificate",
        ControllerToNode::Certificate { .. } => "Certificate",
        ControllerToNode::Reconfigure => "Reconfigure",
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
