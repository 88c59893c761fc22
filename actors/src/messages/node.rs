//! Messages to a node's owner.

use super::names::agent_message_name;
use crate::power_policy::PowerPolicy;
use garrick_model::{
    ids::{JobId, NodeIndex, Sluid},
    messages::{
        command::NodeChange,
        node::{ControllerToNode, HeldRun, Neighbour, NodeToController, ReleasedRun},
    },
    node_shape::{NodeShape, NodeShare, SpecCores},
    time::Timestamp,
    view::{NodeFacts, NodeLoad},
};
use garrick_plan::snapshot::{caps::CpuCaps, request::NodeUse};
use std::{sync::Arc, time::Duration};

/// A node as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// Name.
    pub name: String,
    /// Place in configuration order.
    pub index: NodeIndex,
    /// Its resources.
    pub shape: NodeShape,
    /// `Feature=`.
    pub features: Vec<String>,
    /// `Weight=`.
    pub weight: u32,
    /// `NodeAddr=`.
    pub address: String,
    /// `NodeHostname=`.
    pub hostname: String,
    /// Port.
    pub port: u16,
    /// `State=` of the configuration file, for a node without saved state.
    pub initial: InitialState,
    /// `Reason=` of the configuration file.
    pub initial_reason: Option<String>,
    /// `State=CLOUD`.
    pub cloud: bool,
    /// It is a dynamic node.
    pub dynamic: bool,
    /// Other dynamic nodes, about which it is told.
    pub neighbours: Vec<Neighbour>,
}

/// `State=` in `slurm.conf`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialState {
    /// UNKNOWN: its state is decided at registration.
    #[default]
    Unknown,
    /// DOWN
    Down,
    /// DRAIN
    Drain,
    /// FAIL
    Fail,
    /// FUTURE
    Future,
}

/// When a node that is DOWN returns to service by registering, `ReturnToService`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturnToService {
    /// 0: never by itself.
    #[default]
    Never,
    /// 1: if it was DOWN for not responding.
    IfSilent,
    /// 2: always, if its configuration is valid.
    Always,
}

/// Settings for every node of the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSite {
    /// `SlurmdTimeout`; `None`: nodes are never set DOWN for not responding.
    pub silence: Option<Duration>,
    /// `ReturnToService`.
    pub return_to_service: ReturnToService,
    /// Grows with every start of the controller.
    pub epoch: u64,
    /// Id and name of SlurmUser, in whose name the controller sets reasons.
    pub slurm_user: (u32, String),
    /// Key with which agents check credentials.
    pub credential_key: Vec<u8>,
    /// Its id.
    pub key_id: String,
    /// The configured resources count, whatever the machine has.
    pub config_overrides: bool,
    /// How much of its configured memory a node must have, in percent; `None`: 100, and 90 of cloud nodes
    /// (`node_reg_mem_percent`).
    pub memory_percent: Option<u32>,
    /// Power saving; `None`: the site has no programs for it.
    pub power: Option<Arc<PowerPolicy>>,
    /// Hash of the `slurm.conf` that the controller read.
    pub conf_hash: Option<u32>,
    /// `ResumeTimeout`: how long a reboot may take.
    pub reboot_limit: Duration,
    /// There is a `RebootProgram`.
    pub reboots: bool,
}

impl Default for NodeSite {
    fn default() -> Self {
        Self {
            silence: Some(Duration::from_secs(300)),
            return_to_service: ReturnToService::Never,
            epoch: 1,
            slurm_user: (0, "root".to_owned()),
            credential_key: Vec::new(),
            key_id: String::new(),
            config_overrides: false,
            memory_percent: None,
            power: None,
            conf_hash: None,
            reboot_limit: Duration::from_secs(60),
            reboots: false,
        }
    }
}

/// A share that a job requests of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReserveAsk {
    /// Job.
    pub job: JobId,
    /// Run.
    pub sluid: Sluid,
    /// The job's attempt: a later release names it.
    pub attempt: u64,
    /// Owner.
    pub uid: u32,
    /// MCS label of the job.
    pub mcs_label: Option<String>,
    /// Share.
    pub share: NodeShare,
    /// How the node is used.
    pub usage: NodeUse,
    /// Partition of the run.
    pub partition: String,
    /// The limits on CPUs of the node for jobs of that partition.
    pub caps: CpuCaps,
    /// Cores that a job with exclusive use leaves to the system; `None`: as the node says.
    pub left_to_system: Option<SpecCores>,
    /// The node is to be rebooted before the run begins.
    pub reboot: bool,
    /// When the job is expected to end.
    pub expected_end: Option<Timestamp>,
    /// Generation of the node's view that the plan was made from.
    pub generation: u64,
}

/// A share that a node's owner granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// QUIC address of the node's agent.
    pub address: String,
    /// The node is off, is being powered up, or would be rebooted on [`NodeInput::Reboot`]: [`JobInput::NodeReady`](crate::messages::job::JobInput::NodeReady) follows.
    pub boots: bool,
}

impl Grant {
    /// On a node that is on.
    pub const fn at(address: String) -> Self {
        Self { address, boots: false }
    }
}

/// What is done about a node's power, decided by the owner of power saving from the node's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerMove {
    /// Power it down, if it has no jobs.
    Suspend,
    /// Powering down has taken its time.
    Off,
    /// Power it up.
    Resume,
    /// It did not come in time.
    Failed,
}

/// Why a node's owner refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveRefusal {
    /// The node accepts no work now.
    #[error("node is {0}")]
    OutOfService(&'static str),
    /// The plan was made from an older view, and the share is not free any more.
    #[error("planned on generation {planned}, now {current}, and the share is taken")]
    Stale {
        /// Generation in the plan.
        planned: u64,
        /// Generation now.
        current: u64,
    },
    /// The plan was made from the newest view and is wrong.
    #[error("share is not free in the view it was planned on")]
    DoesNotFit,
}

/// Named timers of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeTimer {
    /// SlurmdTimeout since it was last heard of.
    Silence,
    /// Next ping.
    Ping,
    /// ResumeTimeout since it was told to reboot.
    Reboot,
    /// It is to be back in service.
    Resume,
}

impl NodeTimer {
    /// Key for the runtime.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Silence => "silence",
            Self::Ping => "ping",
            Self::Reboot => "reboot",
            Self::Resume => "resume",
        }
    }
}

/// A registration.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Connection it came over.
    pub conn: u64,
    /// What the agent found.
    pub facts: NodeFacts,
    /// Runs it holds.
    pub runs: Vec<HeldRun>,
    /// Runs that it released; reports about them follow.
    pub released: Vec<ReleasedRun>,
    /// New for each start of the agent.
    pub incarnation: u64,
    /// Load.
    pub load: NodeLoad,
    /// The address that it connected from.
    pub address: Option<String>,
}

/// Inputs of a node's owner.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeInput {
    /// A job's owner requests a share.
    Reserve(Box<ReserveAsk>),
    /// A job's owner releases its share.
    Release {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Only what this attempt reserved.
        attempt: Option<u64>,
        /// Drain the node, for this reason.
        drain: Option<String>,
    },
    /// The run has this node, and wants it rebooted first. Safe to repeat; answered by
    /// [`JobInput::NodeReady`](crate::messages::job::JobInput::NodeReady) when that is done.
    Reboot {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
    },
    /// Nothing of the run is left here; its share stays with the job for its next run.
    Keep {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
    },
    /// The run's work here is over or being ended.
    Completing {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
    },
    /// The run is suspended for another one: its CPUs are free.
    Park {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
    },
    /// The run wants its CPUs back. Answered by [`JobInput::Unparked`](crate::messages::job::JobInput::Unparked).
    Unpark {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// The job's attempt.
        attempt: u64,
    },
    /// The run's expected end has changed.
    MoveEnd {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// New expected end.
        expected_end: Option<Timestamp>,
    },
    /// The agent connected and registered.
    Registered(Box<Registration>),
    /// The connection is gone.
    LinkGone {
        /// Which.
        conn: u64,
    },
    /// A frame of the agent that is about this node.
    Frame {
        /// Connection.
        conn: u64,
        /// Frame.
        frame: Box<NodeToController>,
    },
    /// A report is on disk with its job's owner.
    ReportSafe {
        /// Sequence number.
        seq: u64,
    },
    /// The job's owner failed and was rebuilt: inputs that it was handling, and messages that it was sending, are lost.
    OwnerIsNew {
        /// Job.
        job: JobId,
    },
    /// Pass on to the agent.
    Send(Box<ControllerToNode>),
    /// An administrator's change. Answered by [`crate::owner::Effect::Answer`].
    Update {
        /// Request.
        request: u64,
        /// Who (uid, name).
        by: (u32, String),
        /// Change.
        change: NodeChange,
    },
    /// From the owner of power saving.
    Power(PowerMove),
    /// The node is being deleted: it accepts nothing new. Answered by [`crate::owner::Effect::Answer`].
    Retire {
        /// Request.
        request: u64,
    },
    /// The configuration changed.
    Configure {
        /// This node's settings.
        settings: Box<NodeSettings>,
        /// The site's.
        site: Arc<NodeSite>,
    },
    /// A timer ran out.
    Timer(NodeTimer),
}

/// The frontend's questions to a node's owner. Answers are sent when what they promise is on disk; all may be asked twice.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAsk {
    /// An administrator's change.
    Update {
        /// Who (uid, name).
        by: (u32, String),
        /// Change.
        change: NodeChange,
    },
    /// Delete the node. Refused while it has jobs.
    Retire,
}

impl NodeInput {
    /// Its name in traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Reserve(_) => "Reserve",
            Self::Release { .. } => "Release",
            Self::Reboot { .. } => "Reboot",
            Self::Keep { .. } => "Keep",
            Self::Completing { .. } => "Completing",
            Self::Park { .. } => "Park",
            Self::Unpark { .. } => "Unpark",
            Self::MoveEnd { .. } => "MoveEnd",
            Self::Registered(_) => "Connected",
            Self::LinkGone { .. } => "LinkGone",
            Self::Frame { frame, .. } => agent_message_name(frame),
            Self::ReportSafe { .. } => "ReportSafe",
            Self::OwnerIsNew { .. } => "OwnerIsNew",
            Self::Send(_) => "Send",
            Self::Update { .. } => "Update",
            Self::Power(PowerMove::Suspend) => "PowerDown",
            Self::Power(PowerMove::Off) => "PoweredDown",
            Self::Power(PowerMove::Resume) => "PowerUp",
            Self::Power(PowerMove::Failed) => "PowerUpFailed",
            Self::Retire { .. } => "Retire",
            Self::Configure { .. } => "Configure",
            Self::Timer(_) => "Timer",
        }
    }
}
