//! What owners publish about themselves for readers: the scheduler, `squeue`, `sinfo`, `scontrol show`. Immutable once
//! published; each carries the generation under which its owner published it.

use crate::{
    cpu_freq::CpuFreq,
    entities::association::AssocId,
    gres::{self, GresCount},
    ids::{ArrayTask, JobId, NodeIndex, Sluid, StepId, StepKey},
    node_shape::{NodeShape, NodeShare},
    packed_steps::StepTally,
    resources::{MemoryMib, MemoryRequest},
    spec::{ArraySpec, Dependencies, Distribution, JobSpec, Sharing},
    spec_text::licenses::Licenses,
    state::{ExitStatus, JobState, NodeBase, NodeFlags, NodePower, PartitionState, Reason, StepState},
    step_selector::WhichSteps,
    time::{TimeLimit, Timestamp},
    usage::{TaskUsage, UsageSpread},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, iter::Sum, sync::Arc};

/// A node's share of a job, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedNode {
    /// Node name.
    pub name: String,
    /// Index in the configuration that allocated it.
    pub index: NodeIndex,
    /// What the job has there.
    pub share: NodeShare,
}

/// An allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// Nodes in node-list order; the first is the batch host.
    pub nodes: Vec<AllocatedNode>,
    /// Partition in which it was made.
    pub partition: String,
    /// Whole nodes were given.
    pub exclusive: bool,
    /// Licenses that go with it; given back when the work is over.
    #[serde(default)]
    pub licenses: Licenses,
    /// Reservation that it was made in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
}

impl Allocation {
    /// What it amounts to, by the name of the TRES: `cpu`, `mem` (MiB), `node`, `gres/gpu`, `license/matlab`; what has a type by that
    /// too, `gres/gpu:h100`. Without billing, which a partition's weights say.
    pub fn tres(&self) -> BTreeMap<String, u64> {
        let mut tres: BTreeMap<String, u64> = BTreeMap::new();
        let mut add = |name: String, count: u64| {
            let sum = tres.entry(name).or_default();
            *sum = sum.saturating_add(count);
        };
        let sum =
            |of: fn(&NodeShare) -> u64| self.nodes.iter().map(|node| of(&node.share)).fold(0, u64::saturating_add);
        add("cpu".to_owned(), sum(|share| share.cpus.len().into()));
        add("mem".to_owned(), sum(|share| share.memory.map_or(0, |memory| memory.0)));
        add("node".to_owned(), self.nodes.len() as u64);
        for one in gres::counted(self.nodes.iter().flat_map(|node| &node.share.gres)) {
            add(format!("gres/{}", one.name), one.count);
            if let Some(kind) = &one.kind {
                add(format!("gres/{}:{kind}", one.name), one.count);
            }
        }
        self.licenses.0.iter().for_each(|license| add(format!("license/{}", license.name), license.count.into()));
        tres.retain(|_, count| *count > 0);
        tres
    }
}

/// Licenses of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LicenseView {
    /// Name.
    pub name: String,
    /// How many there are.
    pub total: u32,
    /// How many jobs have; more than there are after the configuration took some away. Of a layer also what is always in use.
    pub used: u32,
    /// How many are for the jobs of advance reservations now.
    #[serde(default)]
    pub reserved: u32,
    /// Of a hierarchical resource: which layer; `name` is the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<LayerView>,
    /// Of a license of a server that accounting divides among clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteView>,
}

/// What is known of a license of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteView {
    /// How many of the server's were in use when accounting was told last.
    pub last_consumed: u32,
    /// How many are kept back since nobody knows who uses them.
    pub last_deficit: u32,
    /// When accounting was told last.
    pub changed: Timestamp,
}

/// A layer of a hierarchical resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerView {
    /// Its nodes.
    pub nodes: String,
    /// There is no end to it, whatever [`LicenseView::total`] says.
    pub endless: bool,
}

/// What a job's priority comes from beside its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorityTerms {
    /// Somebody fixed it (`--priority`, `scontrol update Priority=`): it is not calculated.
    pub fixed: bool,
    /// `SiteFactor`.
    pub site: i32,
    /// Since when it gains priority by age.
    #[serde(skip_serializing_if = "Accrual::is_usual")]
    pub accrual: Accrual,
    /// When somebody reset that last (`ResetAccrueTime`). What the scheduler decided before does not hold any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<Timestamp>,
}

/// Since when a waiting job gains priority by age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accrual {
    /// Since it became eligible: no limit on how many may stands in its way.
    #[default]
    Eligible,
    /// It does not yet: as many gain as may.
    Waits,
    /// Since then.
    Since(Timestamp),
}

impl Accrual {
    /// As it is without limits.
    pub const fn is_usual(&self) -> bool {
        matches!(self, Self::Eligible)
    }
}

/// A job as its owner shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Id.
    pub id: JobId,
    /// Grows with every change of this job.
    pub generation: u64,
    /// Identity of the current run.
    pub sluid: Sluid,
    /// What was asked for, for what the view does not say itself. Left out (empty) are the script and the environment, and what
    /// the view says in its own fields: partitions, begin time, hold, priority, whether it may be requeued, and which task it
    /// is. Some values are in both, since what was asked for means something beside what it came to:
    ///
    /// - `nodes`, `tasks`: a count that was not named may become another where more fit (see the scheduler's request), and a
    ///   range is shown as it was written.
    /// - `time_limit`, `memory`, `sharing`: where none was named, each partition has its own; the fields of the view are about
    ///   the first of them.
    /// - `cpus_per_task`: `SLURM_CPUS_PER_TASK` is set only where it was named.
    /// - `dependencies`: the view has those that are left, and a job that can never run shows all that it asked for.
    pub spec: Arc<JobSpec>,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Owner's name at submission.
    pub user: String,
    /// Group's name at submission.
    pub group: String,
    /// State. `Completing` is shown while nodes are being cleaned.
    pub state: JobState,
    /// The terminal state behind `Completing`, once known.
    pub ending: Option<JobState>,
    /// Why it waits, or why it ended.
    pub reason: Reason,
    /// Set on the record of a job array: indices not yet split off.
    pub array_pending: Option<ArraySpec>,
    /// Set on a task of an array (also on the record once it became the last task).
    pub array_task: Option<ArrayTask>,
    /// Running tasks of the array, on the record.
    pub array_running: u32,
    /// Priority; 0 when held.
    pub priority: u32,
    /// What is left of the dependencies.
    pub dependencies: Dependencies,
    /// True when begin time and dependencies let it be considered.
    pub eligible: bool,
    /// Partitions in which it may run, in order.
    pub partitions: Vec<String>,
    /// Effective limit.
    pub time_limit: TimeLimit,
    /// Submission.
    pub submit_time: Timestamp,
    /// When it became or becomes eligible.
    pub eligible_time: Option<Timestamp>,
    /// Start of the current run; expected start while pending, where a plan has one.
    pub start_time: Option<Timestamp>,
    /// End, or expected end.
    pub end_time: Option<Timestamp>,
    /// Last look of the scheduler.
    pub last_sched_eval: Option<Timestamp>,
    /// The allocation, while there is or was one.
    pub allocation: Option<Arc<Allocation>>,
    /// Nodes still being cleaned.
    pub completing_nodes: Vec<String>,
    /// Exit status of the batch script, or of the job's worst step where there was no script.
    pub exit: ExitStatus,
    /// Highest exit status of any step.
    pub derived_exit: ExitStatus,
    /// Times this job was requeued.
    pub restarts: u32,
    /// May be requeued.
    pub requeue: bool,
    /// CPUs a task gets (defaults filled in).
    pub cpus_per_task: u32,
    /// Tasks (defaults filled in).
    pub tasks: u32,
    /// Fewest nodes.
    pub min_nodes: u32,
    /// Most nodes.
    pub max_nodes: u32,
    /// CPUs that the request amounts to.
    pub cpus: u32,
    /// Memory request with partition defaults filled in.
    pub memory: MemoryRequest,
    /// Effective sharing.
    pub sharing: Sharing,
    /// Filled-in output path.
    pub stdout_path: Option<String>,
    /// Filled-in error path; `None`: with the output.
    pub stderr_path: Option<String>,
    /// Filled-in input path.
    pub stdin_path: Option<String>,
    /// Comment set by an administrator.
    pub admin_comment: Option<String>,
    /// Why its last run could not be started, or its script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_comment: Option<String>,
    /// What the step manager of the current or last run counted, as of its latest report.
    #[serde(default)]
    pub steps: StepTally,
    /// What its priority comes from.
    #[serde(default)]
    pub terms: PriorityTerms,
    /// The current or last run gives way to a job that may preempt it.
    #[serde(default)]
    pub preempted: Option<PreemptTimes>,
    /// The current or last run is suspended, or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<SuspendTimes>,
    /// The time of the reservation that the current or last run is in is over: when the run ends at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave_by: Option<Timestamp>,
    /// Its association in accounting; `None`: it has none, or accounting knew of none when it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub association: Option<AssocId>,
    /// What it is billed by its partition's `TRESBillingWeights`; `None`: its CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billing: Option<u64>,
    /// It belongs to a crontab: another run will follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recurs: bool,
    /// Its nodes are being cleaned of a run that another follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runs_again: bool,
}

impl JobView {
    /// Since when it gains priority by age (`AccrueTime`), or until its run gained; `None`: it does not.
    pub fn accrue_time(&self) -> Option<Timestamp> {
        match self.terms.accrual {
            _ if self.state.waits() && !self.eligible => None,
            Accrual::Eligible => self.eligible_time,
            Accrual::Waits => None,
            Accrual::Since(at) => Some(at),
        }
    }

    /// How often it was requeued, with the requeue that waits until its nodes are clean.
    pub fn restart_count(&self) -> u32 {
        self.restarts.saturating_add(u32::from(self.runs_again))
    }

    /// The state that a finished or finishing job ends in; its state otherwise.
    pub fn base_state(&self) -> JobState {
        if self.state == JobState::Completing { self.ending.unwrap_or(JobState::Completing) } else { self.state }
    }
}

/// When a run was preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptTimes {
    /// From when on it could be (`PreemptEligibleTime`).
    pub eligible: Timestamp,
    /// When it was told (`PreemptTime`).
    pub at: Timestamp,
    /// When it ends at the latest: then, and the partition's `GraceTime`.
    pub ends: Timestamp,
}

/// How a run stands still, or stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendTimes {
    /// When it was last suspended or resumed (`SuspendTime`).
    pub at: Timestamp,
    /// How long it stood still in all, milliseconds, but for the present time.
    pub stood_ms: u64,
    /// An administrator suspended it: only administrators resume it.
    #[serde(default)]
    pub by_admin: bool,
    /// It is suspended for another job, which has its CPUs or may have them: from the end of these times on.
    #[serde(default)]
    pub yielded: Option<PreemptTimes>,
    /// It waits for its turn on CPUs that it shares.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_turn: bool,
}

impl NodeHold {
    /// A job waits for the node, or runs there.
    pub const fn is_at_work(&self) -> bool {
        !self.kept && !self.completing
    }
}

/// A job's hold on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHold {
    /// Job.
    pub job: JobId,
    /// Run.
    pub sluid: Sluid,
    /// Owner.
    pub uid: u32,
    /// Share.
    pub share: NodeShare,
    /// Has the node alone, or shares it only with the same user or the same MCS label.
    pub sharing: Sharing,
    /// MCS label of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcs_label: Option<String>,
    /// Partition of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// When the job is expected to end.
    pub expected_end: Option<Timestamp>,
    /// Being cleaned up.
    pub completing: bool,
    /// Nothing of the run is left there: the share is kept for the job's next run.
    #[serde(default)]
    pub kept: bool,
    /// The run is suspended for another: its CPUs are free, and all else is held.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
}

/// A node as its owner shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Name.
    pub name: String,
    /// Place in configuration order.
    pub index: NodeIndex,
    /// Grows with every change of this node.
    pub generation: u64,
    /// Base state.
    pub base: NodeBase,
    /// Flags.
    pub flags: NodeFlags,
    /// Why it is down or drained.
    pub reason: Option<NodeReason>,
    /// Shape that scheduling uses.
    pub shape: NodeShape,
    /// Who holds what.
    pub holds: Vec<NodeHold>,
    /// Features (`Feature=`).
    pub features: Vec<String>,
    /// `Weight=`.
    pub weight: u32,
    /// `NodeAddr=`.
    pub address: String,
    /// `NodeHostname=`.
    pub hostname: String,
    /// Port.
    pub port: u16,
    /// Last registration; `None` while never heard from.
    pub registration: Option<Arc<NodeFacts>>,
    /// Last load report.
    pub load: NodeLoad,
    /// Last time a job ended or started there.
    pub last_busy: Option<Timestamp>,
    /// `SuspendTime`, seconds; `None`: it is not powered down when it is idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend_time_secs: Option<u32>,
    /// Since when it has been what [`NodeFlags::power`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_since: Option<Timestamp>,
    /// For a node without jobs that is on: since when it could be switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// `Comment=` by update.
    pub comment: Option<String>,
    /// `Extra=` by update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    /// When it is back in service without anybody's asking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_at: Option<Timestamp>,
    /// `InstanceId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// `InstanceType`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// While it is to be rebooted: what follows, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_reboot: Option<AfterReboot>,
}

/// The state of a node after its reboot (`scontrol reboot nextstate=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AfterReboot {
    /// In service, whatever it was drained for.
    Resume,
    /// In service, if it was drained for the reboot only.
    Undrain,
    /// DOWN.
    Down,
}

impl AfterReboot {
    /// `RESUME`
    pub const fn word(self) -> &'static str {
        match self {
            Self::Resume => "RESUME",
            Self::Undrain => "UNDRAIN",
            Self::Down => "DOWN",
        }
    }
}

impl NodeView {
    /// Nodes that are on are used first, then those that are being switched on, and those that are off last; among them, those of
    /// lower weight (power_save.html).
    pub fn rank(&self) -> u64 {
        let power = match self.flags.power {
            NodePower::On => 0,
            NodePower::PoweringUp => 1,
            NodePower::PoweredDown | NodePower::PoweringDown => 2,
        };
        power << 32 | u64::from(self.weight)
    }

    /// What the configuration says about it, without what goes on there.
    pub fn without_state(&self) -> Self {
        Self {
            base: NodeBase::Unknown,
            flags: NodeFlags::default(),
            reason: None,
            holds: Vec::new(),
            registration: None,
            load: NodeLoad::default(),
            last_busy: None,
            power_since: None,
            idle_since: None,
            comment: None,
            extra: None,
            after_reboot: None,
            ..self.clone()
        }
    }

    /// The MCS label that the node is kept to.
    pub fn mcs_label(&self) -> Option<&str> {
        self.holds.iter().find(|hold| hold.sharing == Sharing::Mcs).and_then(|hold| hold.mcs_label.as_deref())
    }
}

/// Reason of a node's state, with who said it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReason {
    /// Text.
    pub text: String,
    /// Who (uid).
    pub uid: u32,
    /// Who (name).
    pub user: String,
    /// When.
    pub at: Timestamp,
}

/// What a node's agent found on its machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Host name.
    pub hostname: String,
    /// Shape found (with config_overrides: as configured).
    pub shape: NodeShape,
    /// `uname -m`.
    pub arch: String,
    /// `Linux 6.18 #1 SMP ...`.
    pub os: String,
    /// Program version.
    pub version: String,
    /// Boot of the machine.
    pub boot_time: Timestamp,
    /// Start of the agent.
    pub agent_start: Timestamp,
    /// What of kernel support is there: `cgroup/v1`, `cgroup/v2`, `process groups`.
    pub tracking: String,
    /// Another one after each boot (`/proc/sys/kernel/random/boot_id`); `None`: the system does not say.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// Of the `slurm.conf` that its daemon read ([`crate::config::Config::hash`]); of an earlier version nothing.
    #[serde(default)]
    pub conf_hash: Option<u32>,
}

/// Load of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// One-minute load average in hundredths.
    pub load_hundredths: u32,
    /// Free memory.
    pub free_memory: Option<MemoryMib>,
    /// What its energy meter shows; `None`: it is not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerReading>,
}

/// What the energy meter of a node shows (`AcctGatherNodeFreq`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerReading {
    /// At the last look, watts: as the power supply shows it, or the mean since the look before.
    pub watts: u32,
    /// Mean since the node's daemon began to look, watts.
    pub mean_watts: u32,
    /// Since the node's daemon began to look, joules.
    pub joules: u64,
    /// The same at the look before.
    pub joules_before: u64,
    /// When it was looked.
    pub at: Timestamp,
}

/// A partition as its owner shows it. Limits are as configured or updated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionView {
    /// Generation.
    pub generation: u64,
    /// Settings.
    pub config: Arc<crate::config::PartitionConfig>,
    /// State.
    pub state: PartitionState,
    /// Members, by index, ascending.
    pub nodes: Vec<NodeIndex>,
}

/// A step as its step manager shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepView {
    /// Id.
    pub id: StepId,
    /// Name.
    pub name: String,
    /// State.
    pub state: StepState,
    /// Why it waits.
    pub reason: Reason,
    /// Owner.
    pub uid: u32,
    /// Partition of its job.
    pub partition: String,
    /// Nodes it runs on (host list form).
    pub nodelist: String,
    /// Node count.
    pub nodes: u32,
    /// CPUs.
    pub cpus: u32,
    /// Tasks.
    pub tasks: u32,
    /// Start.
    pub start_time: Option<Timestamp>,
    /// End.
    pub end_time: Option<Timestamp>,
    /// Limit.
    pub time_limit: TimeLimit,
    /// Exit status once over.
    pub exit: ExitStatus,
    /// Host and pid of its `srun`.
    pub srun: Option<(String, u32)>,
    /// Command line as typed.
    pub submit_line: String,
    /// Tries before this one.
    #[serde(default)]
    pub attempt: u32,
    /// `--step-priority`.
    #[serde(default)]
    pub priority: i32,
    /// What it waits for, `--dependency`; empty: nothing.
    #[serde(default)]
    pub dependency: String,
    /// The view stands for all of these steps, which differ in nothing else (waiting tasks of an array, waiting lines of a
    /// list, or those of them that were cancelled together); `id` is the first of them.
    #[serde(default)]
    pub waiting: Option<WhichSteps>,
    /// What its tasks used; all zero while it runs.
    #[serde(default)]
    pub usage: TaskUsage,
    /// Generic resources that it has on all its nodes; of a waiting step, those that it asks for.
    #[serde(default)]
    pub gres: Vec<GresCount>,
    /// Memory that it has on all its nodes.
    #[serde(default, skip_serializing_if = "MemoryMib::is_zero")]
    pub memory: MemoryMib,
    /// `--cpu-freq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_freq: Option<CpuFreq>,
}

/// What steps made of one request have in common, in reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOrigin {
    /// Name.
    pub name: String,
    /// Owner.
    pub uid: u32,
    /// Partition of the job.
    pub partition: String,
    /// Tasks.
    pub tasks: u32,
    /// Limit.
    pub time_limit: TimeLimit,
    /// Host and pid of the `srun`.
    pub srun: Option<(String, u32)>,
    /// Command line as typed.
    pub submit_line: String,
    /// `--step-priority`.
    #[serde(default)]
    pub priority: i32,
    /// `--cpu-freq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_freq: Option<CpuFreq>,
    /// `-m`. `None`: the step has no number, or an earlier version reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Distribution>,
}

/// One step in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRow {
    /// Which.
    pub key: StepKey,
    /// Index of its origin.
    pub origin: u32,
    /// State.
    pub state: StepState,
    /// Nodes it runs or ran on (host list form).
    pub nodelist: String,
    /// How many nodes.
    pub nodes: u32,
    /// CPUs.
    pub cpus: u32,
    /// Memory on all its nodes; 0: it has no limit of its own, or an earlier version reports it.
    #[serde(default, skip_serializing_if = "MemoryMib::is_zero")]
    pub memory: MemoryMib,
    /// Generic resources on all its nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gres: Vec<GresCount>,
    /// Start.
    pub start_time: Option<Timestamp>,
    /// End.
    pub end_time: Option<Timestamp>,
    /// Exit status.
    pub exit: ExitStatus,
    /// Tries before this one.
    #[serde(default)]
    pub attempt: u32,
    /// What its tasks used.
    #[serde(default)]
    pub usage: TaskUsage,
    /// How that is spread over several tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Arc<UsageSpread>>,
    /// The row stands for all of these, which were withdrawn together; `key` is the first of them.
    #[serde(default)]
    pub all_of: Option<WhichSteps>,
    /// Why it ended, where state and exit status do not say it.
    #[serde(default, skip_serializing_if = "Reason::is_none")]
    pub reason: Reason,
}

/// Steps of one run, packed for reports: what many share is there once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRows {
    /// What they share.
    pub origins: Vec<StepOrigin>,
    /// The steps.
    pub rows: Vec<StepRow>,
    /// The run's numbered steps by state when this left. It and what follows travel beside the rows, in the open
    /// ([`StepTally`]).
    #[serde(skip)]
    pub counts: StepCounts,
    /// Ends that were not reported yet when this left.
    #[serde(skip)]
    pub unreported: u64,
    /// Ends of this run whose rows were given up for lack of room. They are in the run's counts and in its journal.
    #[serde(skip)]
    pub dropped: u64,
}

impl StepRows {
    /// The steps one by one. Rows that name an origin that is not there are left out.
    pub fn views(&self, job: JobId) -> impl Iterator<Item = StepView> + '_ {
        self.rows.iter().filter_map(move |row| {
            let origin = self.origins.get(row.origin as usize)?;
            Some(StepView {
                id: StepId::of(job, row.key),
                name: origin.name.clone(),
                state: row.state,
                reason: row.reason.clone(),
                uid: origin.uid,
                partition: origin.partition.clone(),
                nodelist: row.nodelist.clone(),
                nodes: row.nodes,
                cpus: row.cpus,
                tasks: origin.tasks,
                start_time: row.start_time,
                end_time: row.end_time,
                time_limit: origin.time_limit,
                exit: row.exit,
                srun: origin.srun.clone(),
                submit_line: origin.submit_line.clone(),
                attempt: row.attempt,
                priority: origin.priority,
                dependency: String::new(),
                waiting: row.all_of.clone(),
                usage: row.usage,
                gres: row.gres.clone(),
                memory: row.memory,
                cpu_freq: origin.cpu_freq,
            })
        })
    }
}

/// Counters of a step manager's queue, for progress lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCounts {
    /// Waiting.
    pub queued: u64,
    /// Running.
    pub running: u64,
    /// Ended with 0.
    pub done: u64,
    /// Ended otherwise.
    pub failed: u64,
    /// Of those: cancelled, begun or not.
    #[serde(default)]
    pub cancelled: u64,
}

impl Sum for StepCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            queued: a.queued + b.queued,
            running: a.running + b.running,
            done: a.done + b.done,
            failed: a.failed + b.failed,
            cancelled: a.cancelled + b.cancelled,
        })
    }
}
