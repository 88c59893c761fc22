//! The inputs of a running step, which only its step manager sends, and its effects. Inputs are handled in the order sent; the
//! shepherds' messages of one node keep theirs. Nothing here is retried.

use garrick_events::steps::end::{StepEnd, StepResult};
use garrick_model::{
    ids::StepId,
    messages::{
        shepherd::{ShepherdToStepMgr, StepLaunch, StepMgrToShepherd, StepNodeShare, TaskLaunch},
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    spec::{EnvEntry, StreamTarget},
};
use garrick_runtime::Message;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::{sync::Arc, time::Duration};

/// A node of the job, by its index in the allocation, from 0 (the batch host).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeSlot(pub u32);

/// A command that attached to the step and sends input of its own; numbered by the step manager.
pub type Watcher = u64;

/// A step's share of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedNode {
    /// The node.
    pub slot: NodeSlot,
    /// Its name.
    pub name: String,
    /// CPUs, memory, variables.
    pub share: StepNodeShare,
    /// Tasks there, ranks ascending.
    pub tasks: Vec<TaskLaunch>,
}

/// Everything needed to run a placed step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPlan {
    /// The step.
    pub id: StepId,
    /// Number of earlier tries.
    pub attempt: u32,
    /// What it shares with steps of the same request.
    pub launch: Arc<StepLaunch>,
    /// Variables shared by steps with the same layout.
    pub env: Arc<Vec<EnvEntry>>,
    /// Variables of this step alone.
    pub own_env: Vec<EnvEntry>,
    /// Nodes in step order.
    pub nodes: Vec<PlannedNode>,
    /// An `srun` waits with it.
    pub attended: bool,
    /// Its own limit.
    pub time_limit: Option<Duration>,
    /// `-K`.
    pub kill_on_bad_exit: bool,
    /// `--oom-kill-step`.
    pub kill_on_oom: bool,
    /// `-W`.
    pub wait: Option<Duration>,
    /// For the notices that name a time.
    pub zone: TimeZone,
    /// The step whose place it takes over when that ends.
    pub after: Option<StepId>,
    /// Rank of its first task: not 0 if it is a part of a step over several components.
    pub first_rank: u32,
    /// It waits for the other parts before it starts.
    pub awaits_others: bool,
}

impl StepPlan {
    /// Which of descriptors 0, 1 and 2 the step's `srun` handed over.
    pub fn handed(&self) -> [bool; 3] {
        [&self.launch.stdin, &self.launch.stdout, &self.launch.stderr].map(|target| *target == StreamTarget::Handed)
    }
}

/// Timers of a step; none is set unless the step has such a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepTimer {
    /// The step's own time limit.
    Limit,
    /// `-W` after the first task's end.
    Wait,
    /// For the shell: messages that the step manager's mailbox refused are sent again.
    Backlog,
}

impl StepTimer {
    /// Name for the runtime's timers.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Wait => "wait",
            Self::Backlog => "backlog",
        }
    }
}

/// The inputs of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepInput {
    /// Start: first input of a new step.
    Begin,
    /// Resume a step that runs already (after the step manager's restart): these ranks are not over.
    Resume {
        /// Ranks with a process.
        live: Vec<u32>,
    },
    /// From the shepherd of a node.
    Shepherd {
        /// The node.
        node: NodeSlot,
        /// The message.
        message: ShepherdToStepMgr,
    },
    /// All other parts of the step are placed: start, by this plan.
    StartPart {
        /// The same plan, with what is now known about the other parts.
        plan: Box<StepPlan>,
    },
    /// A node of the job was lost.
    NodeLost {
        /// The node.
        node: NodeSlot,
    },
    /// From its `srun`: `Stdin`, `Signal`, `Resize`, `Cancel`, `Consumed`; anything else is ignored.
    Client(CommandToStepMgr),
    /// Input from a command that attached to it.
    Attached {
        /// Which.
        watcher: Watcher,
        /// For this task only.
        rank: Option<u32>,
        /// Bytes.
        data: ByteBuf,
    },
    /// Its `srun` went away.
    ClientGone,
    /// End it.
    End(StepEnd),
    /// End it at once, by SIGKILL.
    Kill(StepEnd),
    /// Signal its tasks.
    Signal {
        /// Number.
        signal: i32,
        /// Which of their processes.
        reach: garrick_model::messages::shepherd::SignalReach,
    },
    /// It has a new limit, so much time from now; `None`: none.
    SetLimit(Option<Duration>),
    /// `scontrol notify`.
    Notice(String),
    /// A timer ran out.
    Timer(StepTimer),
}

/// The effects of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepEffect {
    /// To the shepherd of a node.
    ToShepherd {
        /// The node.
        node: NodeSlot,
        /// The message.
        message: StepMgrToShepherd,
    },
    /// To its `srun`.
    ToClient(StepMgrToCommand),
    /// To a command that attached to it.
    ToWatcher {
        /// Which.
        watcher: Watcher,
        /// The message.
        message: StepMgrToCommand,
    },
    /// Set a timer.
    SetTimer {
        /// The timer.
        timer: StepTimer,
        /// From now.
        after: Duration,
    },
    /// No process of it is left. Last effect.
    Over(StepResult),
    /// It was to start after another step and never did. Last effect.
    NotStarted,
}

/// Mailbox of a step's actor.
#[derive(Debug)]
pub struct StepMsg(pub StepInput);

impl Message for StepMsg {
    fn name(&self) -> &'static str {
        match &self.0 {
            StepInput::Begin => "Begin",
            StepInput::Resume { .. } => "Resume",
            StepInput::StartPart { .. } => "StartPart",
            StepInput::Shepherd { message, .. } => shepherd_message_name(message),
            StepInput::NodeLost { .. } => "NodeLost",
            StepInput::Client(message) => client_message_name(message),
            StepInput::Attached { .. } => "Attached",
            StepInput::ClientGone => "ClientGone",
            StepInput::End(_) => "End",
            StepInput::Kill(_) => "Kill",
            StepInput::Signal { .. } => "Signal",
            StepInput::SetLimit(_) => "SetLimit",
            StepInput::Notice(_) => "Notice",
            StepInput::Timer(_) => "Timer",
        }
    }
}

/// Name of a shepherd's message, for traces.
pub const fn shepherd_message_name(message: &ShepherdToStepMgr) -> &'static str {
    match message {
        ShepherdToStepMgr::Register { .. } => "Register",
        ShepherdToStepMgr::TaskStarted { .. } => "TaskStarted",
        ShepherdToStepMgr::TaskFailed { .. } => "TaskFailed",
        ShepherdToStepMgr::Output { .. } => "Output",
        ShepherdToStepMgr::PmiFence { .. } => "PmiFence",
        ShepherdToStepMgr::PmiAbort { .. } => "PmiAbort",
        ShepherdToStepMgr::Sampled { .. } => "Sampled",
        ShepherdToStepMgr::TaskExited { .. } => "TaskExited",
        ShepherdToStepMgr::NotStarted { .. } => "NotStarted",
        ShepherdToStepMgr::StepGone { .. } => "StepGone",
        ShepherdToStepMgr::Gone => "Gone",
        ShepherdToStepMgr::StdinConsumed { .. } => "StdinConsumed",
        ShepherdToStepMgr::Tasks { .. } => "Tasks",
    }
}

/// Name of a command's message, for traces.
pub const fn client_message_name(message: &CommandToStepMgr) -> &'static str {
    match message {
        CommandToStepMgr::OnBehalfOf(_) => "OnBehalfOf",
        CommandToStepMgr::Launch { .. } => "LaunchStep",
        CommandToStepMgr::LaunchLight(_) => "LaunchLight",
        CommandToStepMgr::TakeOver => "TakeOver",
        CommandToStepMgr::Rejoin { .. } => "RejoinStep",
        CommandToStepMgr::Enqueue { .. } => "EnqueueSteps",
        CommandToStepMgr::Wait { .. } => "WaitSteps",
        CommandToStepMgr::List => "ListSteps",
        CommandToStepMgr::Attach { .. } => "Attach",
        CommandToStepMgr::Sample { .. } => "Sample",
        CommandToStepMgr::Stdin(_) => "Stdin",
        CommandToStepMgr::AttachedInput { .. } => "AttachedInput",
        CommandToStepMgr::Signal(_) => "Signal",
        CommandToStepMgr::Resize { .. } => "Resize",
        CommandToStepMgr::Cancel => "Cancel",
        CommandToStepMgr::SignalSteps { .. } => "SignalSteps",
        CommandToStepMgr::Consumed(_) => "Consumed",
        CommandToStepMgr::ReserveStep { .. } => "ReserveStep",
        CommandToStepMgr::StartPart(_) => "StartPart",
        CommandToStepMgr::SendFile(_) => "SendFile",
        CommandToStepMgr::FilePart(_) => "FilePart",
    }
}
