//! What a running step is told, by its step manager only, and what it wants done. Inputs are handled in the order sent;
//! the shepherds' messages of one node keep theirs. Nothing here is retried.

use crate::step::state::{StepEnd, StepResult};
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
use std::{sync::Arc, time::Duration};

/// A node of the job by its place in the allocation, from 0 (the batch host).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeSlot(pub u32);

/// A step's share of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedNode {
    /// Which node of the job.
    pub slot: NodeSlot,
    /// Its name.
    pub name: String,
    /// CPUs, memory, variables.
    pub share: StepNodeShare,
    /// Tasks there, ranks ascending.
    pub tasks: Vec<TaskLaunch>,
}

/// Everything needed to run a step that was placed.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPlan {
    /// Which.
    pub id: StepId,
    /// Tries before this one.
    pub attempt: u32,
    /// What it shares with steps of the same request.
    pub launch: Arc<StepLaunch>,
    /// Variables of steps that are laid out alike.
    pub env: Arc<Vec<EnvEntry>>,
    /// Variables of this step alone.
    pub own_env: Vec<EnvEntry>,
    /// Nodes in step order.
    pub nodes: Vec<PlannedNode>,
    /// An `srun` stays with it.
    pub attended: bool,
    /// Its own limit.
    pub time_limit: Option<Duration>,
    /// `-K`.
    pub kill_on_bad_exit: bool,
    /// `-W`.
    pub wait: Option<Duration>,
    /// For the notices that name a time.
    pub zone: TimeZone,
    /// It starts in the place of this step when that ends.
    pub after: Option<StepId>,
    /// Number of its first task: not 0 where it is a part of a step over several components.
    pub first_rank: u32,
    /// It waits for the other parts before it starts.
    pub awaits_others: bool,
}

impl StepPlan {
    /// Which of descriptors 0, 1 and 2 are those that the step's `srun` handed over.
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
    /// The shell's own: messages that the step manager's mailbox refused are tried again.
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

/// What a step is told.
#[derive(Clone, Debug, PartialEq)]
pub enum StepInput {
    /// Start: first input of a new step.
    Begin,
    /// Take up a step that runs already (after the step manager's restart): these ranks are not over.
    Resume {
        /// Ranks with a process.
        live: Vec<u32>,
    },
    /// From the shepherd of a node.
    Shepherd {
        /// Which node.
        node: NodeSlot,
        /// What.
        message: ShepherdToStepMgr,
    },
    /// All other parts of the step have their places: start, by this plan.
    StartPart {
        /// The same, with what is known now of the other parts.
        plan: Box<StepPlan>,
    },
    /// A node of the job was lost.
    NodeLost {
        /// Which.
        node: NodeSlot,
    },
    /// From its `srun`: `Stdin`, `Signal`, `Resize`, `Cancel`, `Consumed`; anything else is ignored.
    Client(CommandToStepMgr),
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
        /// Whom.
        reach: garrick_model::messages::shepherd::SignalReach,
    },
    /// A timer ran out.
    Timer(StepTimer),
}

/// What a step wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum StepEffect {
    /// To the shepherd of a node.
    ToShepherd {
        /// Which node.
        node: NodeSlot,
        /// What.
        message: StepMgrToShepherd,
    },
    /// To its `srun`.
    ToClient(StepMgrToCommand),
    /// Set a timer.
    SetTimer {
        /// Which.
        timer: StepTimer,
        /// From now.
        after: Duration,
    },
    /// No process of it is left. Last effect.
    Over(StepResult),
    /// It was to start after another and never did. Last effect.
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
            StepInput::ClientGone => "ClientGone",
            StepInput::End(_) => "End",
            StepInput::Kill(_) => "Kill",
            StepInput::Signal { .. } => "Signal",
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
        CommandToStepMgr::Stdin(_) => "Stdin",
        CommandToStepMgr::Signal(_) => "Signal",
        CommandToStepMgr::Resize { .. } => "Resize",
        CommandToStepMgr::Cancel => "Cancel",
        CommandToStepMgr::SignalSteps { .. } => "SignalSteps",
        CommandToStepMgr::Consumed(_) => "Consumed",
        CommandToStepMgr::ReserveStep { .. } => "ReserveStep",
        CommandToStepMgr::StartPart(_) => "StartPart",
    }
}
