//! Step manager and the shepherds of its job, one on each node. On the batch host both live in one process and these are
//! near messages; from other nodes the shepherd's `stepd` connects over QUIC, proves its node by its certificate and the
//! run by the credential, and gets the same messages.

use super::node::SignedCredential;
use crate::{
    cpu_freq::CpuFreq,
    gpu_freq::GpuFreq,
    gres::{GpuBind, GresShare},
    ids::{Sluid, StepId},
    profile::Profiling,
    resources::CpuSet,
    spec::{
        CpuBind, EnvEntry, Mpi, OpenMode, ResourceLimit, StdinTo, StreamTarget, TaskOverWith, TaskScripts, WithinNode,
    },
    state::ExitStatus,
    usage::{TaskSample, TaskUsage},
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// What all steps made of one request share, on all their nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLaunch {
    /// Name of the step.
    pub name: String,
    /// Name of the job, for patterns.
    pub job_name: String,
    /// User, for patterns.
    pub user: String,
    /// For `%A` and `%a`.
    pub array_task: Option<crate::ids::ArrayTask>,
    /// Environment that many steps of a job share (the same `Arc` where it is the same), so that it is encoded for the
    /// launcher once.
    pub environment: Arc<Vec<EnvEntry>>,
    /// Working directory.
    pub work_dir: String,
    /// Input.
    pub stdin: StreamTarget,
    /// Who gets relayed input.
    pub stdin_to: StdinTo,
    /// Output.
    pub stdout: StreamTarget,
    /// Errors.
    pub stderr: StreamTarget,
    /// How files are opened.
    pub open_mode: OpenMode,
    /// Terminal size for `--pty` (task 0 only).
    pub pty: Option<(u16, u16)>,
    /// Mask.
    pub umask: u32,
    /// Nice value of the command that asked for them.
    #[serde(default)]
    pub process_nice: i32,
    /// Limits.
    pub rlimits: Vec<ResourceLimit>,
    /// Binding.
    pub cpu_bind: CpuBind,
    /// Each task's binding is written to its standard error.
    #[serde(default)]
    pub says_cpu_bind: bool,
    /// How tasks are laid on the CPUs that they are bound to.
    #[serde(default, skip_serializing_if = "WithinNode::is_default")]
    pub within: WithinNode,
    /// How tasks are bound to the step's GPUs.
    #[serde(default)]
    pub gpu_bind: GpuBind,
    /// CPUs per task.
    pub cpus_per_task: u32,
    /// All tasks of the step.
    pub total_tasks: u32,
    /// A script to run instead of `argv[0]` (batch step, `srun --batch`): written to the spool by the shepherd.
    pub script: Option<ByteBuf>,
    /// The batch step: own rules for standard files, and no `srun` behind it.
    pub batch: bool,
    /// Pattern of the output pack that streams to `Pack` go to.
    #[serde(default)]
    pub output_pack: Option<String>,
    /// `TaskStarted` is of interest to nobody: nobody stays with the step, or whoever does has not asked for it.
    #[serde(default)]
    pub unattended: bool,
    /// Lines of a list: an executable file that is no program is run by `/bin/sh`, as shells do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub or_shell: bool,
    /// The user did not ask for the file of its output: it is removed if it is empty.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unasked_output: bool,
    /// What the step's user has run before and after each task.
    #[serde(default, skip_serializing_if = "TaskScripts::is_none")]
    pub task_scripts: TaskScripts,
    /// How its tasks find each other.
    #[serde(default, skip_serializing_if = "Mpi::is_none")]
    pub mpi: Mpi,
    /// The program was sent to the nodes, and its name has that of the node at its end, after a `_`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub program_named_by_node: bool,
    /// `--cpu-freq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_freq: Option<CpuFreq>,
    /// `--gpu-freq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_freq: Option<GpuFreq>,
    /// `--acctg-freq`: how often it is looked at what its tasks use, seconds; 0: never; `None`: as the site says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_secs: Option<u32>,
    /// Which time series of it are recorded, and how often.
    #[serde(default, skip_serializing_if = "Profiling::is_default")]
    pub profiling: Profiling,
    /// When its tasks are over.
    #[serde(default, skip_serializing_if = "TaskOverWith::is_first")]
    pub over_with: TaskOverWith,
}

/// A [`StepLaunch`], whole, or by the number under which it was sent before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaunchRef {
    /// Itself. The only form that cores see: links between hosts replace it by its number, and back.
    Whole(Arc<StepLaunch>),
    /// As `StepMgrToShepherd::Keep` named it on this link.
    Known(u32),
}

/// One start of a step on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepStart {
    /// Step.
    pub step: StepId,
    /// Tries before this one.
    #[serde(default)]
    pub attempt: u32,
    /// What it shares with others.
    pub launch: LaunchRef,
    /// Variables of steps that are laid out alike, set over the launch's environment.
    #[serde(default)]
    pub env: Arc<Vec<EnvEntry>>,
    /// Variables of this step alone, set over those.
    #[serde(default)]
    pub own_env: Vec<EnvEntry>,
    /// Its share here.
    pub share: StepNodeShare,
    /// Its tasks here.
    pub tasks: Vec<TaskLaunch>,
    /// It takes over what this step has here, and starts when that one's task has ended: at once if it has.
    #[serde(default)]
    pub after: Option<StepId>,
    /// Where all tasks of a step that uses PMI are, in PMI's form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<String>,
}

/// A task that a shepherd knows of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFound {
    /// Step.
    pub step: StepId,
    /// Tries before this one.
    pub attempt: u32,
    /// Rank.
    pub rank: u32,
    /// How it ended; `None`: it runs.
    pub end: Option<TaskEnd>,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// Status.
    pub status: ExitStatus,
    /// Use of resources.
    pub usage: TaskUsage,
    /// Ran out of memory.
    pub oom: bool,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLaunch {
    /// Rank in the step, `SLURM_PROCID`.
    pub rank: u32,
    /// Number on its node, `SLURM_LOCALID`.
    pub local_id: u32,
    /// Program and arguments.
    pub argv: Arc<Vec<ByteBuf>>,
    /// Variables of this task alone.
    pub extra_env: Vec<EnvEntry>,
}

/// Share of a step on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepNodeShare {
    /// Number of the node within the step, `SLURM_NODEID`.
    pub node_id: u32,
    /// Abstract CPUs.
    pub cpus: CpuSet,
    /// Memory limit, MiB.
    pub memory_mib: Option<u64>,
    /// Generic resources.
    #[serde(default)]
    pub gres: Vec<GresShare>,
    /// Needs a cgroup of its own (binding or limits that the job's does not give).
    pub own_cgroup: bool,
    /// Variables of the step's tasks on this node; set over the step's.
    #[serde(default)]
    pub env: Arc<Vec<EnvEntry>>,
}

/// Bytes of relayed output that a shepherd may send for a step before the first [`StepMgrToShepherd::Credit`]. Each
/// frame counts as its data and [`OUTPUT_FRAME_COST`], so that small writes are bounded too.
pub const OUTPUT_WINDOW: u64 = 256 * 1024;

/// What an output frame costs beside its data, in bytes of credit.
pub const OUTPUT_FRAME_COST: u64 = 64;

/// Whom a signal reaches in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalReach {
    /// Each task's process group.
    #[default]
    Groups,
    /// The tasks' first processes only (the batch shell).
    Leaders,
}

/// To a shepherd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StepMgrToShepherd {
    /// Registration accepted.
    Welcome,
    /// Keep a launch under a number, for the `Launch`es that follow on this link. Links know of it, cores do not.
    Keep {
        /// Number; of two with the same number the later counts.
        id: u32,
        /// What.
        launch: Arc<StepLaunch>,
    },
    /// Start tasks.
    Launch(Box<StepStart>),
    /// Input for the tasks that get relayed input here.
    Stdin {
        /// Step.
        step: StepId,
        /// Bytes; empty: end of input.
        data: ByteBuf,
        /// For this task only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rank: Option<u32>,
    },
    /// Signal the step's tasks.
    Signal {
        /// Step.
        step: StepId,
        /// Signal number.
        signal: i32,
        /// Process groups, or first processes only.
        #[serde(default)]
        reach: SignalReach,
        /// Not for this step but for every process of the run on this node. SIGSTOP holds until SIGCONT: what is started
        /// meanwhile is stopped too.
        #[serde(default)]
        whole_run: bool,
    },
    /// SIGTERM now, SIGKILL after the site's KillWait.
    Terminate {
        /// Step.
        step: StepId,
    },
    /// SIGKILL to everything of the step.
    Kill {
        /// Step.
        step: StepId,
    },
    /// New terminal size.
    Resize {
        /// Step.
        step: StepId,
        /// Rows.
        rows: u16,
        /// Columns.
        cols: u16,
    },
    /// End everything of the job here; answered by `Gone`.
    EndJob,
    /// So many more bytes of the step's output may be sent (see [`OUTPUT_WINDOW`]).
    Credit {
        /// Step.
        step: StepId,
        /// Bytes that left the step manager.
        bytes: u64,
    },
    /// What do the step's tasks use here? Answered by `Sampled`.
    Sample {
        /// Step.
        step: StepId,
        /// Correlation.
        query: u64,
    },
    /// Write a line to the file that the step's standard error goes to here; nothing where it is relayed.
    Note {
        /// Step.
        step: StepId,
        /// The line, without its end.
        text: String,
    },
    /// All tasks of a step have come to a fence: what they told each other, by key.
    PmiFenced {
        /// Step.
        step: StepId,
        /// Number of the fence, from 0.
        fence: u32,
        /// Keys and values; the same for all nodes.
        puts: Arc<Vec<(String, String)>>,
    },
    /// Which tasks are or lately were here? Answered by `Tasks`. Asked by a step manager that was restarted, or of a
    /// shepherd that was.
    ListTasks,
}

/// Which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// From a shepherd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ShepherdToStepMgr {
    /// First message from another node.
    Register {
        /// Proof.
        credential: SignedCredential,
        /// Run.
        sluid: Sluid,
        /// Node name.
        node: String,
    },
    /// Answer to `Sample`.
    Sampled {
        /// Step.
        step: StepId,
        /// Correlation.
        query: u64,
        /// Its running tasks.
        tasks: Vec<TaskSample>,
    },
    /// A task runs.
    TaskStarted {
        /// Step.
        step: StepId,
        /// Rank.
        rank: u32,
        /// Process.
        pid: u32,
    },
    /// A task could not be started. It counts as ended with the code given (Slurm: exec errors end with the errno, 2).
    TaskFailed {
        /// Step.
        step: StepId,
        /// Rank.
        rank: u32,
        /// What and why, for the user.
        message: String,
        /// Exit status to record.
        status: ExitStatus,
        /// It ran, and how it ended was not seen.
        #[serde(default)]
        unknown: bool,
        /// Its node could not even try: no room for its script, no launcher.
        #[serde(default)]
        untried: bool,
    },
    /// Relayed output.
    Output {
        /// Step.
        step: StepId,
        /// Rank.
        rank: u32,
        /// Which.
        stream: Stream,
        /// Bytes; empty: end of the stream.
        data: ByteBuf,
    },
    /// All tasks of a step here have come to a fence. Answered by `PmiFenced` when those of all nodes have.
    PmiFence {
        /// Step.
        step: StepId,
        /// Number of the fence, from 0.
        fence: u32,
        /// What the tasks here told since the fence before: keys and values.
        puts: Vec<(String, String)>,
    },
    /// A task that uses PMI wants its step to end, or cannot go on.
    PmiAbort {
        /// Step.
        step: StepId,
        /// Rank.
        rank: u32,
        /// Why.
        message: String,
    },
    /// A task ended (after its output was relayed).
    TaskExited {
        /// Step.
        step: StepId,
        /// Rank.
        rank: u32,
        /// How.
        end: TaskEnd,
        /// No process of the step is left here: stands for the `StepGone` that would follow.
        #[serde(default)]
        gone: bool,
    },
    /// A step that was to start after another never did, and will not: it was asked to end, or the other took too long.
    NotStarted {
        /// Step.
        step: StepId,
    },
    /// No process of the step is left here.
    StepGone {
        /// Step.
        step: StepId,
    },
    /// No process of the job is left here.
    Gone,
    /// Relayed input that the tasks took: so much more may be sent.
    StdinConsumed {
        /// Step.
        step: StepId,
        /// Bytes.
        bytes: u64,
    },
    /// Answer to `ListTasks`.
    Tasks {
        /// Tasks that run, and the latest ends.
        tasks: Vec<TaskFound>,
        /// Nothing that was started here in this run is unknown: what is neither in `tasks` nor known to have ended was
        /// never started. False once a launcher died.
        complete: bool,
    },
}
