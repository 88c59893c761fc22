//! Job, step and node states and reasons with Slurm's own words. Legal moves live with the actors' cores.

use crate::signal::signal_description;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, os::unix::process::ExitStatusExt as _};

/// State of a job as users see it (`squeue -o %T`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum JobState {
    /// Waiting.
    Pending,
    /// Allocated, prolog under way (CONFIGURING).
    Configuring,
    /// Running.
    Running,
    /// Stopped by `scontrol suspend`.
    Suspended,
    /// Work is over, nodes are being cleaned.
    Completing,
    /// Exit code 0.
    Completed,
    /// By a user or an administrator.
    Cancelled,
    /// Exit code other than 0.
    Failed,
    /// Time limit reached.
    Timeout,
    /// A node of the job failed.
    NodeFail,
    /// By preemption.
    Preempted,
    /// The launch failed for the system's reasons.
    BootFail,
    /// Deadline passed.
    Deadline,
    /// Ran out of memory.
    OutOfMemory,
    /// Waiting, held: requeued for its exit code (`RequeueExitHold`) or by an administrator's word.
    SpecialExit,
    /// Waiting ahead of all others, with its healthy nodes kept for it (`--requeue=expedite`).
    Expediting,
    /// Waiting, held by the system: its script failed while every Epilog succeeded (`--requeue=expedite`).
    RequeueHold,
}

impl JobState {
    /// Slurm's number of a state in which a run is or ended; of waiting in any of its forms, 0.
    pub const fn number(self) -> u32 {
        match self {
            Self::Running | Self::Configuring => 1,
            Self::Suspended => 2,
            Self::Completed => 3,
            Self::Cancelled => 4,
            Self::Failed => 5,
            Self::Timeout => 6,
            Self::NodeFail => 7,
            Self::Preempted => 8,
            Self::BootFail => 9,
            Self::Deadline => 10,
            Self::OutOfMemory => 11,
            Self::Pending | Self::Completing | Self::SpecialExit | Self::Expediting | Self::RequeueHold => 0,
        }
    }

    /// That of such a number, of which the low byte says it (Slurm's others are flags).
    pub fn of_number(number: u32) -> Option<Self> {
        const ALL: [JobState; 12] = [
            JobState::Pending,
            JobState::Running,
            JobState::Suspended,
            JobState::Completed,
            JobState::Cancelled,
            JobState::Failed,
            JobState::Timeout,
            JobState::NodeFail,
            JobState::Preempted,
            JobState::BootFail,
            JobState::Deadline,
            JobState::OutOfMemory,
        ];
        ALL.into_iter().find(|state| state.number() == number & 0xff)
    }

    /// The long word for it, `RUNNING`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Configuring => "CONFIGURING",
            Self::Running => "RUNNING",
            Self::Suspended => "SUSPENDED",
            Self::Completing => "COMPLETING",
            Self::Completed => "COMPLETED",
            Self::Cancelled => "CANCELLED",
            Self::Failed => "FAILED",
            Self::Timeout => "TIMEOUT",
            Self::NodeFail => "NODE_FAIL",
            Self::Preempted => "PREEMPTED",
            Self::BootFail => "BOOT_FAIL",
            Self::Deadline => "DEADLINE",
            Self::OutOfMemory => "OUT_OF_MEMORY",
            Self::SpecialExit => "SPECIAL_EXIT",
            Self::Expediting => "EXPEDITING",
            Self::RequeueHold => "REQUEUE_HOLD",
        }
    }

    /// True while the job is in the queue.
    pub const fn waits(self) -> bool {
        matches!(self, Self::Pending | Self::SpecialExit | Self::Expediting | Self::RequeueHold)
    }

    /// Has it nodes for a run that has not ended?
    pub const fn works(self) -> bool {
        matches!(self, Self::Configuring | Self::Running | Self::Suspended)
    }

    /// True while the job waits, runs or is being cleaned up: what `squeue` shows unasked.
    pub const fn is_live(self) -> bool {
        self.waits() || self.works() || matches!(self, Self::Completing)
    }
}

/// State of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StepState {
    /// Queued in the step manager.
    Pending,
    /// Tasks run.
    Running,
    /// All tasks ended with 0.
    Completed,
    /// Some task ended otherwise.
    Failed,
    /// By a user, or with its job.
    Cancelled,
    /// Step's or job's time limit.
    Timeout,
    /// A node went away.
    NodeFail,
    /// Ran out of memory.
    OutOfMemory,
}

impl StepState {
    /// It has ended.
    pub const fn is_over(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// Base state of a node; flags are in [`NodeFlags`]. ALLOCATED and MIXED are derived from use when shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodeBase {
    /// Never heard from since the controller started.
    Unknown,
    /// In service.
    Up,
    /// Not in service.
    Down,
    /// Planned, `State=FUTURE`.
    Future,
}

/// Whether the machine of a node is on (power_save.html).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NodePower {
    /// It is on, as far as anybody knows.
    #[default]
    On,
    /// POWERING_DOWN: `SuspendProgram` is switching it off.
    PoweringDown,
    /// POWERED_DOWN: a job that gets it has it switched on.
    PoweredDown,
    /// POWERING_UP: `ResumeProgram` is switching it on; it has not registered yet.
    PoweringUp,
}

impl NodePower {
    /// It is on.
    pub const fn is_on(&self) -> bool {
        matches!(self, Self::On)
    }

    /// A job that gets the node waits until it has registered.
    pub const fn must_boot(self) -> bool {
        matches!(self, Self::PoweredDown | Self::PoweringUp)
    }
}

/// What a node's power is to become as soon as that is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PowerRequest {
    /// POWER_UP
    Up,
    /// POWER_DOWN: it gets nothing new, and is switched off when it is empty.
    Down,
}

/// Flags beside a node's base state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFlags {
    /// DRAIN: gets nothing new.
    pub drain: bool,
    /// FAIL: an administrator expects it to fail, so it gets nothing new either.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fail: bool,
    /// NOT_RESPONDING.
    pub not_responding: bool,
    /// A job's epilog is still running there, or its processes are being ended.
    pub completing: bool,
    /// Runs that were given up while the node was away are still being ended there: it gets nothing new until they are gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub remains: bool,
    /// The registration contradicts the configuration.
    pub invalid: bool,
    /// RESERVED: a reservation holds there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reserved: bool,
    /// MAINT: a reservation for maintenance holds there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub maint: bool,
    /// CLOUD: it is there when it registers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cloud: bool,
    /// DYNAMIC_NORM: it came at run time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dynamic: bool,
    /// Whether it is on.
    #[serde(skip_serializing_if = "NodePower::is_on")]
    pub power: NodePower,
    /// What that is to become.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_request: Option<PowerRequest>,
    /// REBOOT_REQUESTED: it is rebooted when nothing runs there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reboot_requested: bool,
    /// REBOOT_ISSUED: it is being rebooted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reboot_issued: bool,
}

impl NodeFlags {
    /// It gets nothing new, as an administrator wants: DRAIN or FAIL.
    pub const fn is_held_back(&self) -> bool {
        self.drain || self.fail
    }

    /// It does not respond although it is on.
    pub const fn is_silent(&self) -> bool {
        self.not_responding && self.power.is_on()
    }
}

/// Why a job waits or ended, `squeue`'s Reason. Printed as the variant's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// Nothing to say.
    #[default]
    None,
    /// Resources are in use.
    Resources,
    /// Jobs of higher priority go first.
    Priority,
    /// A dependency is not fulfilled yet.
    Dependency,
    /// A dependency can never be fulfilled.
    DependencyNeverSatisfied,
    /// `--begin` is in the future.
    BeginTime,
    /// Held by its user.
    JobHeldUser,
    /// Held by an administrator.
    JobHeldAdmin,
    /// Held by the site: it was requeued too often without anybody's asking.
    JobHoldMaxRequeue,
    /// Array task limit `%N` reached.
    JobArrayTaskLimit,
    /// More nodes than the partition allows, or has.
    PartitionNodeLimit,
    /// More CPUs than the partition's nodes have together.
    PartitionConfig,
    /// Longer than the partition allows.
    PartitionTimeLimit,
    /// The partition does not take jobs of its account.
    AccountNotAllowed,
    /// The partition does not take jobs with its QOS.
    #[serde(rename = "QOSNotAllowed")]
    QosNotAllowed,
    /// The partition is DOWN.
    PartitionDown,
    /// The partition is INACTIVE.
    PartitionInactive,
    /// Nodes asked for are down, drained or reserved ("ReqNodeNotAvail").
    ReqNodeNotAvail,
    /// As above, with the nodes named: `Nodes required for job are DOWN, DRAINED or reserved ...`.
    NodesUnavailable,
    /// No node's shape and features fit.
    BadConstraints,
    /// It could start, but would break up a block that is idle altogether (Garrick's own, `topology_patience`).
    Fragmentation,
    /// Just requeued; not yet considered.
    Cleaning,
    /// Exit code other than 0.
    NonZeroExitCode,
    /// Ended by a signal.
    RaisedSignal(i32),
    /// Time limit reached.
    TimeLimit,
    /// Node failure.
    NodeDown,
    /// The job's step manager died.
    StepManagerDied,
    /// The batch script could not be started.
    JobLaunchFailure,
    /// The prolog failed.
    PrologFailure,
    /// Ran out of memory.
    OutOfMemory,
    /// Something else, in words.
    Other(String),
}

/// How the reason of a job begins that asks for nodes which are out of service.
const UNAVAILABLE_NODES: &str = "ReqNodeNotAvail, UnavailableNodes:";

impl Reason {
    /// Nothing to say.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Something else than resources or its turn keeps a job waiting.
    pub const fn is_blocking(&self) -> bool {
        !matches!(self, Self::None | Self::Resources | Self::Priority)
    }

    /// As `squeue -o %r` and `scontrol show job` print it.
    pub fn text(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::None => "None",
            Self::Resources => "Resources",
            Self::Priority => "Priority",
            Self::Dependency => "Dependency",
            Self::DependencyNeverSatisfied => "DependencyNeverSatisfied",
            Self::BeginTime => "BeginTime",
            Self::JobHeldUser => "JobHeldUser",
            Self::JobHeldAdmin => "JobHeldAdmin",
            Self::JobHoldMaxRequeue => "JobHoldMaxRequeue",
            Self::JobArrayTaskLimit => "JobArrayTaskLimit",
            Self::PartitionNodeLimit => "PartitionNodeLimit",
            Self::PartitionConfig => "PartitionConfig",
            Self::PartitionTimeLimit => "PartitionTimeLimit",
            Self::AccountNotAllowed => "AccountNotAllowed",
            Self::QosNotAllowed => "QOSNotAllowed",
            Self::PartitionDown => "PartitionDown",
            Self::PartitionInactive => "PartitionInactive",
            Self::ReqNodeNotAvail => "ReqNodeNotAvail",
            Self::NodesUnavailable => {
                "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
            }
            Self::BadConstraints => "BadConstraints",
            Self::Fragmentation => "Fragmentation",
            Self::Cleaning => "Cleaning",
            Self::NonZeroExitCode => "NonZeroExitCode",
            Self::RaisedSignal(n) => {
                return Cow::Owned(format!("RaisedSignal:{n}({})", signal_description(*n).replace(' ', "_")));
            }
            Self::TimeLimit => "TimeLimit",
            Self::NodeDown => "NodeDown",
            Self::StepManagerDied => "StepManagerDied",
            Self::JobLaunchFailure => "JobLaunchFailure",
            Self::PrologFailure => "Prolog",
            Self::OutOfMemory => "OutOfMemory",
            Self::Other(text) => text,
        })
    }

    /// Those of the nodes asked for are out of service, in Slurm's words.
    pub fn unavailable_nodes<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        Self::Other(format!("{UNAVAILABLE_NODES}{}", crate::hostlist::fold(names)))
    }

    /// Nodes that are out of service keep it waiting.
    pub fn is_unavailable_nodes(&self) -> bool {
        match self {
            Self::NodesUnavailable | Self::ReqNodeNotAvail => true,
            Self::Other(text) => text.starts_with(UNAVAILABLE_NODES),
            _ => false,
        }
    }
}

/// How a task, step or job ended: exit code and, when ended by one, signal. Shown as `code:signal`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExitStatus {
    /// Exit code, 0 to 255.
    pub code: u8,
    /// Signal that ended it, if one did.
    #[serde(default)]
    pub signal: Option<u8>,
}

/// `1:0`: exit code and signal, as Slurm shows them.
impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.code, self.signal.unwrap_or(0))
    }
}

impl ExitStatus {
    /// Exit 0.
    pub const SUCCESS: Self = Self { code: 0, signal: None };
    /// True for exit code 0 without a signal.
    pub const fn success(self) -> bool {
        self.code == 0 && self.signal.is_none()
    }
    /// As wait(2) has it.
    pub fn wait_status(self) -> u32 {
        u32::from(self.code) << 8 | u32::from(self.signal.unwrap_or(0))
    }
    /// As a shell would report it: `128 + signal`, else the code.
    pub fn shell_code(self) -> i32 {
        self.signal.map_or(i32::from(self.code), |s| 128 + i32::from(s))
    }
}

/// Of a process that was waited for. One that neither ended by itself nor by a signal has not ended: 0.
impl From<std::process::ExitStatus> for ExitStatus {
    fn from(status: std::process::ExitStatus) -> Self {
        let byte = |number: Option<i32>| number.and_then(|number| u8::try_from(number).ok());
        Self { code: byte(status.code()).unwrap_or(0), signal: byte(status.signal()) }
    }
}

/// State of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartitionState {
    /// UP
    #[default]
    Up,
    /// DOWN: accepts, does not start.
    Down,
    /// DRAIN: does not accept, starts what is queued.
    Drain,
    /// INACTIVE: neither.
    Inactive,
}

impl fmt::Display for PartitionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Up => "UP",
            Self::Down => "DOWN",
            Self::Drain => "DRAIN",
            Self::Inactive => "INACTIVE",
        })
    }
}
