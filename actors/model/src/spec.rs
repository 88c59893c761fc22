//! What a user asked for, after script lines, environment and command line were merged: jobs and steps. Text patterns
//! (`%j`, `%t`) stay patterns; limits and amounts are typed.

use crate::{
    batch::{FailLimit, RetryPolicy, StepCgroup, StepDependencies},
    cpu_freq::{CpuFreq, FrequencyRules},
    cron::Schedule,
    gpu_freq::GpuFreq,
    gres::GresRequest,
    ids::{ArrayTask, JobId},
    mail::Mail,
    node_shape::SpecCores,
    node_sizes::NodeSizes,
    profile::Profiling,
    resources::MemoryRequest,
    sharing::Shared,
    time::{TimeLimit, Timestamp},
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_bytes::ByteBuf;
use std::{
    fmt,
    sync::{Arc, LazyLock},
};

/// Minimum and maximum node count, `-N min[-max]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCount {
    /// At least this many.
    pub min: u32,
    /// At most this many; `None`: no upper bound was given (then `min` unless tasks want more).
    pub max: Option<u32>,
}

/// `--exclusive` and `--oversubscribe`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// The partition decides.
    #[default]
    Default,
    /// `--exclusive`: whole nodes.
    Exclusive,
    /// `--exclusive=user`: nodes shared with jobs of the same user only.
    User,
    /// `--exclusive=mcs`: nodes shared with jobs of the same MCS label only.
    Mcs,
    /// `--oversubscribe`.
    Oversubscribe,
}

impl Sharing {
    /// The words of records and variables: is it shared, and with whom not. `topology`: with nobody on its leaf switches and the
    /// like ([`TopologyRequest::exclusive`]).
    pub const fn words(self, topology: bool) -> (&'static str, &'static str) {
        match self {
            Self::Default => ("NO", "NO"),
            Self::Oversubscribe => ("YES", "NO"),
            Self::Exclusive if topology => ("NO", "TOPO"),
            Self::Exclusive => ("NO", "NODE"),
            Self::User => ("NO", "USER"),
            Self::Mcs => ("NO", "MCS"),
        }
    }
}

/// How output files are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenMode {
    /// `JobFileAppend` decides; truncate by default.
    #[default]
    Default,
    /// Append.
    Append,
    /// Truncate.
    Truncate,
}

/// `--signal=[R|B][:]sig[@secs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalWarning {
    /// Signal number.
    pub signal: i32,
    /// Seconds before the end.
    pub before_secs: u32,
    /// `B:`: the batch shell only, else all steps but the batch shell.
    pub batch_only: bool,
    /// `R:`: the job may overlap reservations with `MaxStartDelay`, and gives way to their jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overlaps: bool,
}

/// `--array`: indices as inclusive ranges with steps, and `%limit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArraySpec {
    /// Sorted, disjoint inclusive ranges `(first, last, step)`.
    pub ranges: Vec<(u32, u32, u32)>,
    /// Most tasks at a time.
    pub limit: Option<u32>,
}

/// Kind of a dependency on another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DependencyKind {
    /// `after:job[+minutes]`: began or was cancelled.
    After {
        /// Delay after the other's start, minutes.
        minutes: u32,
    },
    /// Ended in any way.
    AfterAny,
    /// Ended with exit code 0.
    AfterOk,
    /// Ended otherwise.
    AfterNotOk,
    /// `singleton`: no other job of that name and user runs or is before it.
    Singleton,
    /// `aftercorr`: of an array, the task with the same index ended with exit code 0; of a job that is none, as `afterok`.
    AfterCorr,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// Kind.
    pub kind: DependencyKind,
    /// On which job (none for singleton).
    pub job: Option<JobId>,
    /// On one task of an array, `N_3`.
    #[serde(default)]
    pub array_index: Option<u32>,
    /// It can never be fulfilled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// All (`,`) or any (`?`) of some conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependencies {
    /// True for `?`: one is enough.
    pub any: bool,
    /// The conditions.
    pub list: Vec<Dependency>,
}

/// A resource limit that travels with a job or step: `setrlimit` numbers, `None` for infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// `RLIMIT_*` number of Linux.
    pub resource: u32,
    /// Soft limit.
    pub soft: Option<u64>,
}

/// The nice value of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskNice {
    /// That of the command that asked for them.
    pub value: i32,
    /// They are to be nicer than the daemon that starts them, whoever they are.
    pub below_daemon: bool,
}

impl TaskNice {
    /// What it comes to where the daemon has `daemon`: none but root's tasks go before the daemon.
    pub fn beside(self, daemon: i32, is_root: bool) -> i32 {
        match (self.below_daemon, is_root) {
            (true, _) => self.value.max(daemon + 1),
            (false, true) => self.value,
            (false, false) => self.value.max(daemon),
        }
    }
}

/// What starts when the allocation is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobKind {
    /// A batch script.
    #[default]
    Batch,
    /// An allocation for `salloc` or `srun`, ended by its owner.
    Allocation,
}

/// One variable: `NAME=value`, in the bytes that the user had.
pub type EnvEntry = ByteBuf;

/// What a job asks of the network topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopologyRequest {
    /// `--switches=count`: most leaf switches.
    pub switches: Option<u32>,
    /// `--switches=count@time`: seconds to wait for them; `None`: as long as the site allows.
    pub switches_wait_secs: Option<u64>,
    /// `--segment`: nodes of a segment.
    pub segment: Option<u32>,
    /// `--spread-segments`: a base block has nodes of one segment only.
    pub spread_segments: bool,
    /// `--consolidate-segments`: all segments in one aggregated block.
    pub consolidate_segments: bool,
    /// `--exclusive=topo`: leaf switches, blocks, rings or tori with no other job.
    pub exclusive: bool,
}

impl TopologyRequest {
    /// Nothing is asked.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a job asks of the sockets, cores and threads of its nodes, and how its tasks go over them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct LayoutRequest {
    /// `--sockets-per-node`: nodes with at least so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets_per_node: Option<u32>,
    /// `--cores-per-socket`: nodes with at least so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_per_socket: Option<u32>,
    /// `--threads-per-core`: nodes with at least so many, and no more of a core are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads_per_core: Option<u32>,
    /// `--ntasks-per-socket`: at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_per_socket: Option<u32>,
    /// `--ntasks-per-core`: at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_per_core: Option<u32>,
    /// `--hint=memory_bound`: one core of a socket is used.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one_core_per_socket: bool,
    /// `--overcommit`: CPUs as for one task on each node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub overcommit: bool,
    /// `--spread-job`: as many nodes as possible, tasks evenly.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// `--use-min-nodes`: of a range of nodes rather the fewest.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fewest_nodes: bool,
    /// `--distribution`, for steps that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// Its second and third words: which CPUs of a node the job gets, and how steps lay tasks on them.
    #[serde(skip_serializing_if = "WithinNode::is_default")]
    pub within: WithinNode,
    /// With [`Distribution::Arbitrary`]: the node of each task, by rank.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub task_nodes: Vec<String>,
    /// `--core-spec`, `--thread-spec`: left to the system on each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_to_system: Option<SpecCores>,
}

impl LayoutRequest {
    /// Nothing is asked.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A job as asked for. The default asks for one task of a batch script that is still to be named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Batch or allocation.
    pub kind: JobKind,
    /// `-J`.
    pub name: String,
    /// `-A`.
    #[serde(default)]
    pub account: Option<String>,
    /// `-q`: while the job waits, it may be several (see [`crate::entities::qos::choices`]); while it runs, that of the run.
    #[serde(default)]
    pub qos: Option<String>,
    /// `--comment`.
    #[serde(default)]
    pub comment: Option<String>,
    /// `--extra`, as written: where the site filters nodes by it, a request of each of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    /// `--wckey`.
    #[serde(default)]
    pub wckey: Option<String>,
    /// `-p`, in the order given; empty: the default partition.
    #[serde(default)]
    pub partitions: Vec<String>,
    /// `-N`.
    #[serde(default)]
    pub nodes: Option<NodeCount>,
    /// `-N` with a list or a step: one of these numbers, whose least and most are [`Self::nodes`].
    #[serde(default, skip_serializing_if = "NodeSizes::is_empty")]
    pub node_sizes: NodeSizes,
    /// `-n`.
    #[serde(default)]
    pub tasks: Option<u32>,
    /// `--ntasks-per-node`.
    #[serde(default)]
    pub tasks_per_node: Option<u32>,
    /// `-c`.
    #[serde(default)]
    pub cpus_per_task: Option<u32>,
    /// `--mincpus`.
    #[serde(default)]
    pub min_cpus_per_node: Option<u32>,
    /// `--mem`, `--mem-per-cpu`.
    #[serde(default)]
    pub memory: MemoryRequest,
    /// `--tmp`, MiB.
    #[serde(default)]
    pub tmp_disk_mib: u64,
    /// `-t`.
    #[serde(default)]
    pub time_limit: Option<TimeLimit>,
    /// `--time-min`.
    #[serde(default)]
    pub time_min: Option<TimeLimit>,
    /// `-C`, as written.
    #[serde(default)]
    pub constraint: Option<String>,
    /// `--prefer`, as written: goes before [`Self::constraint`] where it lets the job start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<String>,
    /// `--batch`, as written: what the node of the batch script has to have, as far as the job gets such a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_features: Option<String>,
    /// `--reboot`: its nodes are rebooted before it begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reboot: bool,
    /// `--delay-boot`: seconds for which no node is restarted for the job's features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_boot_secs: Option<u64>,
    /// `-L`, as written.
    #[serde(default)]
    pub licenses: Option<String>,
    /// `--reservation`: any one of these, in the order of preference; empty: none is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<String>,
    /// `--get-user-env`: it has what a login of its user sets too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub user_env: bool,
    /// `--cpu-freq` of its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_freq: Option<CpuFreq>,
    /// `--gpu-freq` of its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_freq: Option<GpuFreq>,
    /// `--acctg-freq`: how often it is looked at what tasks of its batch script and steps use, seconds; 0: never; `None`: as the
    /// site says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_secs: Option<u32>,
    /// `--profile`, and `--acctg-freq` of what is not tasks: time series of its batch script and steps.
    #[serde(default, skip_serializing_if = "Profiling::is_default")]
    pub profiling: Profiling,
    /// `--oom-kill-step` of its steps; `None`: not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_kill_step: Option<bool>,
    /// `--gres`, `--gpus` and their relatives.
    #[serde(default)]
    pub gres: GresRequest,
    /// `-w`: nodes that must be in the allocation (expanded).
    #[serde(default)]
    pub nodelist: Vec<String>,
    /// `-x`: nodes that must not (expanded).
    #[serde(default)]
    pub exclude: Vec<String>,
    /// `--exclusive`, `--oversubscribe`.
    #[serde(default)]
    pub sharing: Sharing,
    /// `--mcs-label`; of an accepted job, the label that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcs_label: Option<String>,
    /// `--contiguous`.
    #[serde(default)]
    pub contiguous: bool,
    /// What it asks of the network topology.
    #[serde(default)]
    pub topology: TopologyRequest,
    /// What it asks of sockets, cores and threads.
    #[serde(default, skip_serializing_if = "LayoutRequest::is_default")]
    pub layout: LayoutRequest,
    /// `-a`.
    #[serde(default)]
    pub array: Option<ArraySpec>,
    /// `-d`.
    #[serde(default)]
    pub dependencies: Dependencies,
    /// `-b`.
    #[serde(default)]
    pub begin: Option<Timestamp>,
    /// `--deadline`.
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    /// `-H`.
    #[serde(default)]
    pub hold: bool,
    /// `--priority`.
    #[serde(default)]
    pub priority: Option<u32>,
    /// `--nice`.
    #[serde(default)]
    pub nice: i32,
    /// `--requeue`, `--no-requeue`; `None`: `JobRequeue` decides.
    #[serde(default)]
    pub requeue: Option<bool>,
    /// `--requeue=expedite`.
    #[serde(default)]
    pub expedite: bool,
    /// `-k`/`--no-kill`.
    #[serde(default)]
    pub no_kill: bool,
    /// `--kill-on-invalid-dep`; `None`: as the site has it.
    #[serde(default)]
    pub kill_on_invalid_dep: Option<bool>,
    /// `-I`/`--immediate`: give up when not started after this many seconds.
    #[serde(default)]
    pub immediate_secs: Option<u32>,
    /// Working directory.
    pub work_dir: String,
    /// `-i`.
    #[serde(default)]
    pub stdin: Option<String>,
    /// `-o`.
    #[serde(default)]
    pub stdout: Option<String>,
    /// `-e`.
    #[serde(default)]
    pub stderr: Option<String>,
    /// `--open-mode`.
    #[serde(default)]
    pub open_mode: OpenMode,
    /// The job's environment, after `--export`. All tasks of an array share one.
    #[serde(default)]
    #[serde(deserialize_with = "environment_of_many")]
    pub environment: Arc<Vec<EnvEntry>>,
    /// The batch script's text. All tasks of an array share one.
    #[serde(default)]
    #[serde(deserialize_with = "script_of_many")]
    pub script: Option<Arc<ByteBuf>>,
    /// The script's arguments (batch) or the command (allocation).
    #[serde(default)]
    pub argv: Vec<ByteBuf>,
    /// File mode creation mask.
    #[serde(default)]
    pub umask: u32,
    /// Nice value of the command that asks for it (`SLURM_PRIO_PROCESS`, `PropagatePrioProcess`).
    #[serde(default)]
    pub process_nice: i32,
    /// Soft limits to set (`PropagateResourceLimits`).
    #[serde(default)]
    pub rlimits: Vec<ResourceLimit>,
    /// `--signal`.
    #[serde(default)]
    pub signal: Option<SignalWarning>,
    /// Host of the submission.
    #[serde(default)]
    pub submit_host: String,
    /// Session id of the submitter.
    #[serde(default)]
    pub alloc_sid: u32,
    /// The command line as typed, `SubmitLine`.
    #[serde(default)]
    pub submit_line: String,
    /// What `Command=` shows: the script's path, or nothing for `--wrap`.
    #[serde(default)]
    pub command: Option<String>,
    /// Of a component of a heterogeneous job: the job's leader, and the component's offset. Set by the controller.
    #[serde(default)]
    pub het: Option<(JobId, u32)>,
    /// How many components that heterogeneous job has. Their ids follow the leader's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub het_size: u32,
    /// Set on tasks split from an array.
    #[serde(default)]
    pub array_task: Option<ArrayTask>,
    /// `--mail-type`, `--mail-user`.
    #[serde(default, skip_serializing_if = "Mail::is_default")]
    pub mail: Mail,
    /// Of a job of a crontab: when it is due. After each run it waits for the next time. Set by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<Schedule>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

static ENVIRONMENTS: LazyLock<Shared<Vec<EnvEntry>>> = LazyLock::new(Shared::default);
static SCRIPTS: LazyLock<Shared<ByteBuf>> = LazyLock::new(Shared::default);

fn environment_of_many<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Vec<EnvEntry>>, D::Error> {
    Arc::deserialize(from).map(|environment| ENVIRONMENTS.share(environment))
}

fn script_of_many<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<ByteBuf>>, D::Error> {
    Option::deserialize(from).map(|script: Option<_>| script.map(|script| SCRIPTS.share(script)))
}

impl JobSpec {
    /// Bytes of its script, environment and arguments: nearly all that a job takes in memory.
    pub fn work_bytes(&self) -> u64 {
        let of_all = |list: &[ByteBuf]| list.iter().map(|one| one.len()).sum::<usize>();
        let script = self.script.as_ref().map_or(0, |script| script.len());
        u64::try_from(script + of_all(&self.environment) + of_all(&self.argv)).unwrap_or(u64::MAX)
    }

    /// The leader of the heterogeneous job that it is another component of.
    pub fn het_leader_of_component(&self) -> Option<JobId> {
        self.het.filter(|(_, offset)| *offset > 0).map(|(leader, _)| leader)
    }

    /// Ids of the other components, where it is the leader of a heterogeneous job.
    pub fn het_others(&self) -> impl Iterator<Item = JobId> + use<> {
        let size = if self.het.is_some_and(|(_, offset)| offset == 0) { self.het_size } else { 0 };
        let leader = self.het.map_or(0, |(leader, _)| leader.0);
        (1..size).map(move |offset| JobId(leader.saturating_add(offset)))
    }

    /// Whether another run may follow one that was lost with its node, as far as that can be told from the request: a batch job,
    /// or another component of a heterogeneous one (its leader may be such a job), that does not forbid it. `default` is
    /// `JobRequeue`.
    pub fn may_be_requeued(&self, default: bool) -> bool {
        let can_be = self.kind == JobKind::Batch || self.het_leader_of_component().is_some();
        can_be && self.requeue.unwrap_or(default)
    }
}

/// Where a step's standard stream goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamTarget {
    /// To (or from) the `srun` that waits.
    #[default]
    Relay,
    /// A file pattern, opened on the node as the user (`%t`, `%n`, `%N`, `%J`, ... are filled in there).
    File(String),
    /// `/dev/null`.
    Null,
    /// Stderr only: where stdout goes.
    SameAsStdout,
    /// The descriptor that the step's `srun` handed over; on the host of that `srun` only. Nothing relays it.
    Handed,
    /// The step's output pack.
    Pack,
}

/// Which tasks get the relayed standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinTo {
    /// Every task (`srun`'s default).
    #[default]
    All,
    /// One task, by rank (`-i N`).
    Task(u32),
    /// None: `/dev/null`.
    None,
}

/// How tasks are laid out over nodes, `-m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Distribution {
    /// Consecutive ranks share a node; how many of them, the site says where there is room for more.
    #[default]
    Block,
    /// Round robin over nodes.
    Cyclic,
    /// Round robin over nodes in blocks of so many.
    Plane(u32),
    /// Ranks as with block, but as many tasks on each node as possible alike (`block,NoPack`).
    BlockNoPack,
    /// As block, a node filled before the next (`block,Pack`).
    BlockPack,
    /// As the node list says: one task for each time that a node is named in it.
    Arbitrary,
}

/// In which order CPUs of sockets, or of cores, go to tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CpuOrder {
    /// One is used up before the next.
    Block,
    /// Each task has its CPUs from one, the next task from the next.
    Cyclic,
    /// Each CPU is from the next one.
    Fcyclic,
}

/// The second and third words of `-m`: over the sockets of a node, and over the cores of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct WithinNode {
    /// `None`: cyclic, and for the CPUs of a job as the site says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<CpuOrder>,
    /// `None`: as over sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<CpuOrder>,
}

impl WithinNode {
    /// Nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for WithinNode {
    /// As behind the first word, with the colons: nothing, `:cyclic`, `:*:block`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |order: Option<CpuOrder>| match order {
            None => "*",
            Some(CpuOrder::Block) => "block",
            Some(CpuOrder::Cyclic) => "cyclic",
            Some(CpuOrder::Fcyclic) => "fcyclic",
        };
        match (self.sockets, self.cores) {
            (None, None) => Ok(()),
            (sockets, None) => write!(f, ":{}", word(sockets)),
            (sockets, cores) => write!(f, ":{}:{}", word(sockets), word(cores)),
        }
    }
}

/// How tasks are bound to CPUs, `--cpu-bind`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuBind {
    /// The site's default: to the step's CPUs.
    #[default]
    Default,
    /// No binding below the job's own.
    None,
    /// Each task to its own CPUs and what else the step has of their cores (`cores`).
    Cores,
    /// Each task to what the step has of the sockets of its own CPUs.
    Sockets,
    /// Each task to its own CPUs (`threads`, `rank`).
    Threads,
    /// Each task to the mask with its local id.
    Map(Vec<u32>),
}

/// How a step shares its job's resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StepSharing {
    /// `srun`'s default: waits for what it needs, gets all CPUs of the job's share on its nodes that tasks may use.
    #[default]
    Default,
    /// `--exact`: what it asks for, no more. (`--exclusive` for a step implies it.)
    Exact,
    /// `--overlap`: needs nothing free.
    Overlap,
}

/// A step as asked for. The default asks for nothing but its program, which is still to be named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSpec {
    /// `-J`, or the command's name.
    pub name: String,
    /// `-N`.
    #[serde(default)]
    pub nodes: Option<NodeCount>,
    /// `-n`.
    #[serde(default)]
    pub tasks: Option<u32>,
    /// `--ntasks-per-node`.
    #[serde(default)]
    pub tasks_per_node: Option<u32>,
    /// `-c`.
    #[serde(default)]
    pub cpus_per_task: Option<u32>,
    /// `--mem`, `--mem-per-cpu`.
    #[serde(default)]
    pub memory: MemoryRequest,
    /// `-w`.
    #[serde(default)]
    pub nodelist: Vec<String>,
    /// `-x`.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// `-r`: start at this node of the allocation.
    #[serde(default)]
    pub relative: Option<u32>,
    /// `-m`.
    #[serde(default)]
    pub distribution: Distribution,
    /// Its second and third words.
    #[serde(default, skip_serializing_if = "WithinNode::is_default")]
    pub within: WithinNode,
    /// `--exact`, `--overlap`, `--exclusive`.
    #[serde(default)]
    pub sharing: StepSharing,
    /// `--cpu-bind`.
    #[serde(default)]
    pub cpu_bind: CpuBind,
    /// `--cpu-bind=verbose`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub says_cpu_bind: bool,
    /// `-t`.
    #[serde(default)]
    pub time_limit: Option<TimeLimit>,
    /// `-I`: fail instead of waiting.
    #[serde(default)]
    pub immediate: bool,
    /// Program and arguments. With `multi_prog` set this is empty.
    pub argv: Vec<ByteBuf>,
    /// `--multi-prog`: per-task programs, resolved by `srun`: inclusive task ranges, program and arguments (`%t`, `%o` left).
    #[serde(default)]
    pub multi_prog: Vec<MultiProg>,
    /// `srun --batch`: a script's text, run like a batch script; `argv` holds its arguments.
    #[serde(default)]
    pub script: Option<ByteBuf>,
    /// Working directory; `None`: the job's.
    #[serde(default)]
    pub work_dir: Option<String>,
    /// Environment after `--export`. Step variables are added by the step manager. Empty: the same as of the step before
    /// it in the same request, or the job's for the first.
    #[serde(default)]
    pub environment: Vec<EnvEntry>,
    /// Standard input.
    #[serde(default)]
    pub stdin: StreamTarget,
    /// For relayed input.
    #[serde(default)]
    pub stdin_to: StdinTo,
    /// Standard output.
    #[serde(default)]
    pub stdout: StreamTarget,
    /// Standard error.
    #[serde(default)]
    pub stderr: StreamTarget,
    /// `--open-mode`.
    #[serde(default)]
    pub open_mode: OpenMode,
    /// `--pty`: rows and columns of the terminal.
    #[serde(default)]
    pub pty: Option<(u16, u16)>,
    /// `-K`: kill the step when a task exits with other than 0.
    #[serde(default)]
    pub kill_on_bad_exit: bool,
    /// `-W`: seconds to wait after the first task ended before killing the rest; `None`: for ever.
    #[serde(default)]
    pub wait_secs: Option<u32>,
    /// File mode creation mask; `None`: the job's.
    #[serde(default)]
    pub umask: Option<u32>,
    /// Nice value of the command that asks for it (`SLURM_PRIO_PROCESS`, `PropagatePrioProcess`).
    #[serde(default)]
    pub process_nice: i32,
    /// Soft limits to set in the step's tasks.
    #[serde(default)]
    pub rlimits: Vec<ResourceLimit>,
    /// Where `srun` runs: host and pid, `SrunHost:Pid`.
    #[serde(default)]
    pub srun: Option<(String, u32)>,
    /// The command line as typed.
    #[serde(default)]
    pub submit_line: String,
    /// What it waits for, `--dependency`.
    #[serde(default)]
    pub dependency: Option<StepDependencies>,
    /// Among waiting steps the greater goes first, `--step-priority`.
    #[serde(default)]
    pub priority: i32,
    /// When it is tried again, `--retries`. Minibatch only.
    #[serde(default)]
    pub retry: Option<RetryPolicy>,
    /// A cgroup of its own, `--step-cgroup`.
    #[serde(default)]
    pub step_cgroup: StepCgroup,
    /// `--max-fails` of the steps that it is handed over with. Minibatch only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_limit: Option<FailLimit>,
    /// Pattern of the output pack that takes what is not sent elsewhere, `--output-pack`. Minibatch only.
    #[serde(default)]
    pub output_pack: Option<String>,
    /// Its `srun` says when each task starts (`-v`).
    #[serde(default)]
    pub tell_starts: bool,
    /// `--gres`, `--gpus` and their relatives.
    #[serde(default)]
    pub gres: GresRequest,
    /// `--overcommit`: tasks may share CPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overcommit: bool,
    /// With [`Distribution::Arbitrary`]: the node of each task, by rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_nodes: Vec<String>,
    /// `--gpus-per-task` of the job, for a step that names nothing of the kind and is waited for.
    #[serde(default)]
    pub inherited_gres: GresRequest,
    /// In a heterogeneous job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub het: Option<HetPart>,
    /// It is run again for steps of that job, handed over from this number on (`--rerun-failed`, `--resume`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_of: Option<(JobId, u32)>,
    /// The user did not ask for the file that `stdout` names. Minibatch only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unasked_output: bool,
    /// `--task-prolog` and `--task-epilog`.
    #[serde(default, skip_serializing_if = "TaskScripts::is_none")]
    pub task_scripts: TaskScripts,
    /// `--mpi`.
    #[serde(default, skip_serializing_if = "Mpi::is_none")]
    pub mpi: Mpi,
    /// `--preserve-env`: SLURM_JOB_NUM_NODES and SLURM_NTASKS of its tasks are those of its command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preserve_env: bool,
    /// `--oom-kill-step`: it ends when a task of it runs out of memory; `None`: as the job says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_kill_step: Option<bool>,
    /// `--cpu-freq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_freq: Option<CpuFreq>,
    /// `--gpu-freq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_freq: Option<GpuFreq>,
    /// `--acctg-freq`: how often it is looked at what its tasks use, seconds; 0: never; `None`: as the job says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_secs: Option<u32>,
    /// `--profile`, and `--acctg-freq` of what is not tasks; what is not said here, the job says.
    #[serde(default, skip_serializing_if = "Profiling::is_default")]
    pub profiling: Profiling,
    /// `--wait-for-children`: a task is over when the last of its processes is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait_for_children: bool,
    /// The program is sent to the step's nodes before it starts. Attended steps only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentProgram>,
}

/// A program that is sent to the nodes of its step (`srun --bcast`): the step is placed at once, and started when its command
/// says that the program is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SentProgram {
    /// On each node its name has that of the node at its end, after a `_`.
    pub named_by_node: bool,
}

/// When a task is over (`--wait-for-children` in srun(1)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TaskOverWith {
    /// With its first process.
    #[default]
    First,
    /// With the last of its processes.
    Last,
    /// With the last of them, or with the first where that one fails.
    LastOrFailed,
}

impl TaskOverWith {
    /// With its first process.
    pub const fn is_first(&self) -> bool {
        matches!(self, Self::First)
    }
}

/// How the tasks of a step find each other when they start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mpi {
    /// By their own means.
    #[default]
    None,
    /// Over PMI, version 1 or 2: each task has a descriptor to its node.
    Pmi2,
    /// Over PMIx: the first task of each node starts a server there, from the site's library.
    Pmix,
}

impl Mpi {
    /// All.
    pub const ALL: [Self; 3] = [Self::None, Self::Pmi2, Self::Pmix];

    /// As `--mpi` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pmi2 => "pmi2",
            Self::Pmix => "pmix",
        }
    }

    /// The one of that name. A version of PMIx (`pmix_v4`) stands for PMIx: its servers serve programs of other versions too.
    pub fn named(text: &str) -> Option<Self> {
        let version = text.strip_prefix("pmix_v").filter(|version| ["1", "2", "3", "4", "5", "6"].contains(version));
        Self::ALL.into_iter().find(|mpi| mpi.name() == text).or_else(|| version.map(|_| Self::Pmix))
    }

    /// By their own means.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// Programs that run as the job's user on the task's node, before and after each task: those of the site (`TaskProlog`,
/// `TaskEpilog`) or of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskScripts {
    /// Before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prolog: Option<String>,
    /// After.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epilog: Option<String>,
}

impl TaskScripts {
    /// There is neither.
    pub const fn is_none(&self) -> bool {
        self.prolog.is_none() && self.epilog.is_none()
    }
}

/// What each `srun` in a job has to know of the site, which does not read `slurm.conf` for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteOfSrun {
    /// `SrunProlog`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prolog: Option<String>,
    /// `SrunEpilog`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epilog: Option<String>,
    /// There are `CliFilterPlugins`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub filters_options: bool,
    /// `MpiDefault`.
    #[serde(skip_serializing_if = "Mpi::is_none")]
    pub mpi: Mpi,
    /// `CpuFreqDef` and `CpuFreqGovernors`.
    #[serde(skip_serializing_if = "FrequencyRules::are_usual")]
    pub frequencies: FrequencyRules,
}

impl SiteOfSrun {
    /// There is nothing of this.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What a step in a component of a heterogeneous job knows of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HetPart {
    /// The job's leader: what its tasks see as `SLURM_JOB_ID`.
    pub leader: JobId,
    /// Where the step is over several components, what comes before this part of it.
    #[serde(default)]
    pub behind: Option<PartsBefore>,
}

/// The parts of a step in the components before: this part's tasks and nodes are numbered behind theirs. A part is placed
/// at once and started when all are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartsBefore {
    /// Tasks.
    pub tasks: u32,
    /// Nodes.
    pub nodes: u32,
}

/// One line of a `--multi-prog` file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MultiProg {
    /// Inclusive task ranges; empty means `*` (every task not named elsewhere).
    pub tasks: Vec<(u32, u32)>,
    /// Program and arguments; `%t` is the task's number, `%o` its offset in the range.
    pub argv: Vec<ByteBuf>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn jobs_that_are_read_have_equal_environments_and_scripts_in_common() {
        let read = |name: &str, script: &str| {
            let environment = Arc::new(vec![ByteBuf::from("TOGETHER=yes")]);
            let script = Some(Arc::new(ByteBuf::from(script)));
            let spec = JobSpec { name: name.to_owned(), environment, script, ..JobSpec::default() };
            rmp_serde::from_slice::<JobSpec>(&rmp_serde::to_vec_named(&spec).unwrap()).unwrap()
        };
        let (one, two, other) = (read("one", "#!same"), read("two", "#!same"), read("other", "#!other"));
        assert!(Arc::ptr_eq(&one.environment, &two.environment) && Arc::ptr_eq(&one.environment, &other.environment));
        assert!(Arc::ptr_eq(one.script.as_ref().unwrap(), two.script.as_ref().unwrap()));
        assert_ne!(one.script, other.script);
    }
}
