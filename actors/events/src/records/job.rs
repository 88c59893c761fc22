//! The durable state of a job: everything that a restarted controller must know. Only [`JobRecord::apply`] changes it (see
//! [`super::job_event`]), so that replaying the events gives the same record.

use super::charge::Charge;
use super::job_event::requeues;
use garrick_model::{
    cron::Schedule,
    entities::association::AssocId,
    ids::{ArrayTask, JobId, RequestId, Sluid},
    messages::node::{HetComponent, RequeuePolicy},
    packed_steps::StepTally,
    resources::MemoryRequest,
    spec::{ArraySpec, Dependencies, DependencyKind, JobSpec, Sharing},
    spec_text::licenses::Licenses,
    state::{ExitStatus, JobState, Reason},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, Allocation, PreemptTimes, PriorityTerms},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The owner of a job, as the kernel and the user database said at submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// User's name.
    pub user: String,
    /// Group's name.
    pub group: String,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// The request, with defaults of partition and site filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// Partitions in the order in which they are tried.
    pub partitions: Vec<String>,
    /// Time limit; the partition's if the job named none.
    pub time_limit: TimeLimit,
    /// Tasks.
    pub tasks: u32,
    /// CPUs of a task.
    pub cpus_per_task: u32,
    /// Fewest nodes.
    pub min_nodes: u32,
    /// Most nodes.
    pub max_nodes: u32,
    /// Total CPUs of the request.
    pub cpus: u32,
    /// Memory.
    pub memory: MemoryRequest,
    /// Sharing.
    pub sharing: Sharing,
    /// May be requeued.
    pub requeue: bool,
    /// Its association in accounting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub association: Option<AssocId>,
    /// What the request is billed by the weights of its first partition. `None`: that has none, or an earlier version took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billing: Option<u64>,
    /// Its QOS is the default one: it named none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_qos: bool,
}

/// Who holds a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeldBy {
    /// Its user.
    User,
    /// An administrator.
    Admin,
    /// The system: the job could not be launched and was requeued.
    LaunchFailure,
    /// The site, because of the exit code (`RequeueExitHold`), or an administrator with `State=SpecialExit`. The user may release
    /// it.
    SpecialExit,
    /// The site: the job was requeued too often without a request (`MaxBatchRequeue`). According to slurm.conf(5), this is an
    /// administrator's hold.
    MaxRequeue,
    /// The system: the script of an expedited job failed although every epilog succeeded. The user may release it.
    ScriptFailure,
}

impl HeldBy {
    /// The reason that `squeue` shows.
    pub fn reason(self) -> Reason {
        match self {
            Self::User | Self::SpecialExit => Reason::JobHeldUser,
            Self::Admin => Reason::JobHeldAdmin,
            Self::MaxRequeue => Reason::JobHoldMaxRequeue,
            Self::LaunchFailure => Reason::Other("launch failed requeued held".to_owned()),
            Self::ScriptFailure => Reason::Other("job requeued in held state".to_owned()),
        }
    }

    /// Only an administrator may release the job.
    pub const fn binds_user(self) -> bool {
        matches!(self, Self::Admin | Self::MaxRequeue)
    }
}

/// What an array knows about a task with a record of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskMark {
    /// The task's job.
    pub job: JobId,
    /// When it first started.
    #[serde(default)]
    pub started: Option<Timestamp>,
    /// Set when it is over: whether the exit code was 0.
    #[serde(default)]
    pub over: Option<TaskOutcome>,
    /// Its exit status then. Earlier versions did not save it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitStatus>,
}

/// How an array's task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskOutcome {
    /// COMPLETED.
    Ok,
    /// Otherwise.
    NotOk,
}

/// The part of a record that is for arrays: tasks without a record of their own, and marks of the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayRecord {
    /// Indices of waiting tasks.
    pub pending: BTreeSet<u32>,
    /// `%limit`.
    pub limit: Option<u32>,
    /// Tasks that were split off.
    pub tasks: BTreeMap<u32, TaskMark>,
}

impl ArrayRecord {
    /// Number of tasks that were split off and are not over.
    pub fn live(&self) -> u32 {
        u32::try_from(self.tasks.values().filter(|t| t.over.is_none()).count()).unwrap_or(u32::MAX)
    }

    /// Waiting indices, as ranges.
    pub fn pending_spec(&self) -> ArraySpec {
        ArraySpec { ranges: ranges_of(&self.pending), limit: self.limit }
    }
}

/// Sorted numbers as inclusive ranges with a step, the longest run first: `1,3,5,7` is `1-7:2`, two numbers stay two.
pub fn ranges_of(numbers: &BTreeSet<u32>) -> Vec<(u32, u32, u32)> {
    let all: Vec<u32> = numbers.iter().copied().collect();
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < all.len() {
        let step = all.get(at + 1).map_or(1, |next| next - all[at]);
        let mut end = at;
        while end + 1 < all.len() && all[end + 1] - all[end] == step {
            end += 1;
        }
        // Two numbers with a gap are shorter one by one.
        if step > 1 && end - at < 2 {
            end = at;
        }
        ranges.push((all[at], all[end], if end == at { 1 } else { step }));
        at = end + 1;
    }
    ranges
}

/// All indices of an array specification.
pub fn indices_of(ranges: &[(u32, u32, u32)]) -> BTreeSet<u32> {
    ranges.iter().flat_map(|&(first, last, step)| (first..=last).step_by(step.max(1) as usize)).collect()
}

/// One run of a job, from its allocation on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its allocation.
    pub allocation: Arc<Allocation>,
    /// QUIC address of each node's agent, in the allocation's order.
    pub addresses: Vec<String>,
    /// When it was allocated.
    pub start: Timestamp,
    /// Limit of this run.
    pub time_limit: TimeLimit,
    /// When its step manager reported that it is ready.
    #[serde(default)]
    pub started: Option<Timestamp>,
    /// The door of its step manager.
    #[serde(default)]
    pub door: String,
    /// Nodes on which nothing of it is left.
    #[serde(default)]
    pub released: BTreeSet<String>,
    /// An end that was requested.
    #[serde(default)]
    pub ending: Option<Ending>,
    /// Nodes on which nothing of it is left, and which are kept for the job's next run.
    #[serde(default)]
    pub kept: BTreeSet<String>,
    /// Nodes that were given up: the next run does not wait for their reports about this one.
    #[serde(default)]
    pub lost: BTreeSet<String>,
    /// The epilog failed on some node.
    #[serde(default)]
    pub epilog_failed: bool,
    /// For a run that follows a failed and expedited one: when that failure was noticed.
    #[serde(default)]
    pub after_failure: Option<Timestamp>,
    /// It was suspended and continued.
    #[serde(default)]
    pub continued: bool,
    /// It was told to end or stop because another job preempts it.
    #[serde(default)]
    pub preempted: Option<PreemptMark>,
    /// Its reservation has ended: when the run ends at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave_by: Option<Timestamp>,
    /// It is or was suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<Suspended>,
    /// In the leader's run, the other components of a heterogeneous job: recorded with it, for its launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<HetComponent>,
    /// Nodes that are being powered up for it, and have not registered yet: it is launched when all of them have.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub booting: BTreeSet<String>,
    /// What its nodes are told about a possible later run. `None`: an earlier version launched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<RequeuePolicy>,
    /// `PrologSlurmctld` has to succeed before it is launched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_prolog: bool,
    /// `EpilogSlurmctld` has to end before it is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_epilog: bool,
    /// To whom it is charged, and how much. `None`: there is neither accounting nor are there weights, or an earlier version started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<Arc<Charge>>,
    /// Which one: for followers of the log that missed some of it. `None`: an earlier version started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sluid: Option<Sluid>,
    /// It started while jobs of higher priority waited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backfilled: bool,
    /// What it waited for last, other than resources and its turn.
    #[serde(default, skip_serializing_if = "Reason::is_none")]
    pub waited_for: Reason,
    /// The QOS that it has of several that the job asked for. `None`: the job asked for one at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_qos: Option<ChosenQos>,
}

/// The QOS of a run of a job that asked for several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenQos {
    /// The run's QOS.
    pub qos: String,
    /// All that the job asked for, in the order in which they are tried (`high,normal`): it waits with them again if it is requeued.
    pub of: String,
}

/// A preemption of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptMark {
    /// When it was told, and when it ends at the latest.
    pub times: PreemptTimes,
    /// What follows that end.
    pub then: Afterwards,
    /// The job that preempts it.
    pub by: JobId,
}

/// A suspension of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspended {
    /// When it was last suspended or resumed.
    pub at: Timestamp,
    /// Total suspended time in milliseconds, without the current suspension.
    pub stood_ms: u64,
    /// An administrator suspended it; only an administrator resumes it.
    #[serde(default)]
    pub by_admin: bool,
    /// It is suspended for another job.
    #[serde(default)]
    pub yielded: Option<Yielded>,
    /// Gang scheduling: it waits for its turn on shared CPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_turn: bool,
}

/// The job for which a run is suspended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Yielded {
    /// When the run was told, and when its CPUs become available to the other job.
    pub times: PreemptTimes,
    /// That job.
    pub by: JobId,
    /// When that job is expected to end.
    pub until: Timestamp,
}

impl Run {
    /// The job for which it is suspended, or was when it ended.
    pub fn yielded(&self) -> Option<&Yielded> {
        self.suspended.as_ref()?.yielded.as_ref()
    }

    /// Total suspended time, without the current suspension.
    pub fn stood(&self) -> Duration {
        Duration::from_millis(self.suspended.as_ref().map_or(0, |suspended| suspended.stood_ms))
    }

    /// The first node: it runs the step manager.
    pub fn batch_host(&self) -> &str {
        self.allocation.nodes.first().map_or("", |n| n.name.as_str())
    }

    /// Nodes still to be released.
    pub fn unreleased(&self) -> impl Iterator<Item = &str> {
        self.allocation.nodes.iter().map(|n| n.name.as_str()).filter(|n| !self.released.contains(*n))
    }

    /// Nodes that have not reported yet that nothing of it is left there.
    pub fn unclean(&self) -> impl Iterator<Item = &str> {
        self.unreleased().filter(|n| !self.kept.contains(*n))
    }

    /// True when a node that was not given up has reported that nothing of it is left.
    pub fn was_let_go_of(&self) -> bool {
        self.released.iter().any(|node| !self.lost.contains(node))
    }

    /// True when the node is part of it.
    pub fn has_node(&self, node: &str) -> bool {
        self.allocation.nodes.iter().any(|n| n.name == node)
    }

    /// When it ends at the latest.
    pub fn expected_end(&self) -> Option<Timestamp> {
        let limit = self.time_limit.duration().map(|d| self.start.plus(d + self.stood()));
        // It is resumed when the other job has ended.
        let late = self.yielded().zip(self.suspended.as_ref()).map(|(other, own)| other.until.since(own.at));
        let limit = limit.map(|end| end.plus(late.unwrap_or_default()));
        let preempted = self.preempted.as_ref().map(|mark| mark.times.ends);
        preempted.into_iter().chain(self.leave_by).chain(limit).min()
    }
}

/// What follows the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Afterwards {
    /// The job is over.
    Over,
    /// Back to the queue.
    Requeue {
        /// Whether and by whom it is held there.
        hold: Option<HeldBy>,
        /// Not before the usual delay.
        delay: bool,
    },
    /// Back to the queue for the next time that its crontab names.
    Recur,
    /// Requeued ahead of all others, with its healthy nodes kept for it.
    Expedite,
    /// Expedited if the epilog fails on some node, otherwise over. Nodes are kept until all epilogs have ended.
    ExpediteIfEpilogFails,
    /// Expedited if the epilog fails on some node, otherwise requeued and held. Nodes are kept until all epilogs have ended.
    ExpediteOrHold,
}

impl Afterwards {
    /// Does another run follow, whatever the epilogs do?
    pub const fn is_requeue(self) -> bool {
        matches!(self, Self::Requeue { .. } | Self::Recur | Self::Expedite | Self::ExpediteOrHold)
    }

    /// Do clean nodes stay with the job?
    pub const fn keeps_nodes(self) -> bool {
        matches!(self, Self::Expedite | Self::ExpediteIfEpilogFails | Self::ExpediteOrHold)
    }
}

/// What an earlier run of a job still holds on a node while the job waits for its next run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierHold {
    /// That run.
    pub sluid: Sluid,
    /// The node and the share of it.
    pub node: AllocatedNode,
    /// Partition of that run.
    pub partition: String,
    /// It had whole nodes.
    pub exclusive: bool,
    /// Clean, and kept for the next run; otherwise given up, and still to be cleaned.
    pub kept: bool,
    /// It was suspended for another job, which may have the CPUs.
    #[serde(default)]
    pub parked: bool,
}

/// A run may still be active on a node that was given up: by the controller, and the node did not know that it has to end the run
/// when it is cut off; or by its step manager only, which cannot reach the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfenced {
    /// The run.
    pub sluid: Sluid,
    /// The node.
    pub node: String,
    /// The node ends the run by itself before the controller gives the node up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_when_cut_off: bool,
}

/// A requested end that is in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// State to record.
    pub state: JobState,
    /// Reason to record.
    pub reason: Reason,
    /// What follows.
    pub then: Afterwards,
    /// Who requested it.
    pub by: Option<u32>,
    /// When: shown as the job's end until the real one is known. Earlier versions did not save it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Nobody requested it, and the job's own work did not end: it is requeued because of something that happened to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unasked: bool,
}

/// How a run (or a job that never ran) ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Terminal state.
    pub state: JobState,
    /// Reason.
    pub reason: Reason,
    /// Exit status.
    pub exit: ExitStatus,
    /// Highest of its steps.
    pub derived: ExitStatus,
    /// When.
    pub at: Timestamp,
    /// What follows.
    pub then: Afterwards,
    /// Why it could not be started, or its script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Who cancelled it before it ran; for a run see [`Ending::by`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    /// Which run: for followers of the log that missed some of it. `None`: an earlier version ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sluid: Option<Sluid>,
}

/// The phase of a job's life. State that exists only in one phase is stored there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// In the queue.
    Pending,
    /// Allocated; its launch is in progress.
    Starting(Run),
    /// Its step manager is ready.
    Running(Run),
    /// Stopped.
    Suspended(Run),
    /// The work is over; nodes are being cleaned.
    Completing(Run, End),
    /// Over. Without a run: it never ran.
    Over(Option<Run>, End),
}

impl Phase {
    /// The run, if there is or was one.
    pub const fn run(&self) -> Option<&Run> {
        match self {
            Self::Pending => None,
            Self::Starting(run) | Self::Running(run) | Self::Suspended(run) | Self::Completing(run, _) => Some(run),
            Self::Over(run, _) => run.as_ref(),
        }
    }

    /// The run, as long as its work goes on.
    pub const fn working(&self) -> Option<&Run> {
        match self {
            Self::Starting(run) | Self::Running(run) | Self::Suspended(run) => Some(run),
            _ => None,
        }
    }

    /// The end, once known.
    pub const fn end(&self) -> Option<&End> {
        match self {
            Self::Completing(_, end) | Self::Over(_, end) => Some(end),
            _ => None,
        }
    }

    /// Name for logs and errors.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Starting(_) => "starting",
            Self::Running(_) => "running",
            Self::Suspended(_) => "suspended",
            Self::Completing(..) => "completing",
            Self::Over(..) => "over",
        }
    }
}

/// The durable record of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Id.
    pub id: JobId,
    /// Identity of the current run (while pending: of the next).
    pub sluid: Sluid,
    /// Identity of the submission; a repeat of it is answered with this job.
    #[serde(default)]
    pub request: Option<RequestId>,
    /// The request, including script and environment.
    pub spec: Arc<JobSpec>,
    /// Owner.
    pub owner: Owner,
    /// With defaults filled in.
    pub resolved: Resolved,
    /// Submission of the current run: of a requeued job, its requeue.
    pub submit_time: Timestamp,
    /// Priority when not held. If priorities are calculated and none was fixed, the value at submission.
    pub priority: u32,
    /// What the priority is computed from.
    #[serde(default)]
    pub terms: PriorityTerms,
    /// Who holds it.
    #[serde(default)]
    pub hold: Option<HeldBy>,
    /// Earliest start.
    #[serde(default)]
    pub begin: Option<Timestamp>,
    /// Dependencies that are not fulfilled yet.
    #[serde(default)]
    pub dependencies: Dependencies,
    /// Some of them never will be.
    #[serde(default)]
    pub dependency_failed: bool,
    /// When it became eligible: from then on only resources kept it waiting.
    #[serde(default)]
    pub eligible_time: Option<Timestamp>,
    /// Set on the record of an array.
    #[serde(default)]
    pub array: Option<ArrayRecord>,
    /// Set on a task of an array.
    #[serde(default)]
    pub array_task: Option<ArrayTask>,
    /// Number of requeues.
    #[serde(default)]
    pub restarts: u32,
    /// How many of them nobody requested.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub requeues_unasked: u32,
    /// Its crontab was replaced or removed: it does not recur.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_crontab: bool,
    /// Comment set by an administrator.
    #[serde(default)]
    pub admin_comment: Option<String>,
    /// Counts of the last run's step manager when the run was over.
    #[serde(default)]
    pub steps: StepTally,
    /// What earlier runs still hold on nodes.
    #[serde(default)]
    pub earlier: Vec<EarlierHold>,
    /// Nodes on which runs of it may still be active unnoticed: no new run starts until they have reported that it is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfenced: Vec<Unfenced>,
    /// While it waits expedited: when the failure of its last run was noticed.
    #[serde(default)]
    pub expediting: Option<Timestamp>,
    /// How the previous run ended, while the job waits for the next: shown as its exit code until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<ExitStatus>,
    /// Identity of its first run, once another has followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_run: Option<Sluid>,
    /// Why the previous run could not be started, while the job waits for the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cause: Option<String>,
    /// Its phase.
    pub phase: Phase,
}

/// A share of a node that a job holds according to its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHold<'r> {
    /// Run.
    pub sluid: Sluid,
    /// The node and the share of it.
    pub node: &'r AllocatedNode,
    /// Partition.
    pub partition: &'r str,
    /// Whole nodes were given.
    pub exclusive: bool,
    /// Expected end; `None`: not known.
    pub expected_end: Option<Timestamp>,
    /// The run is being cleaned up there.
    pub completing: bool,
    /// Clean, and kept for the next run.
    pub kept: bool,
    /// It was suspended for another job, which may have the CPUs.
    pub parked: bool,
}

impl JobRecord {
    /// All that it holds on nodes, for its current run and for earlier ones.
    pub fn holds(&self) -> Vec<RecordHold<'_>> {
        let earlier = self.earlier.iter().map(|hold| RecordHold {
            sluid: hold.sluid,
            node: &hold.node,
            partition: &hold.partition,
            exclusive: hold.exclusive,
            expected_end: None,
            completing: !hold.kept,
            kept: hold.kept,
            parked: hold.parked,
        });
        let mut holds: Vec<RecordHold<'_>> = earlier.collect();
        let run = match &self.phase {
            Phase::Pending => None,
            // Over only for a moment: it is about to be requeued.
            Phase::Over(run, end) => run.as_ref().filter(|run| requeues(Some(run), end)),
            phase => phase.run(),
        };
        if let Some(run) = run {
            let over = run.ending.is_some() || self.phase.end().is_some();
            for node in run.allocation.nodes.iter().filter(|n| !run.released.contains(&n.name)) {
                let kept = run.kept.contains(&node.name);
                holds.push(RecordHold {
                    sluid: self.sluid,
                    node,
                    partition: &run.allocation.partition,
                    exclusive: run.allocation.exclusive,
                    expected_end: run.expected_end().filter(|_| !kept),
                    completing: over && !kept,
                    kept,
                    parked: run.yielded().is_some(),
                });
            }
        }
        holds
    }

    /// Licenses that it holds: those of its run, until the work is over.
    pub fn licenses(&self) -> Option<&Licenses> {
        self.phase.working().map(|run| &run.allocation.licenses).filter(|licenses| !licenses.is_empty())
    }

    /// When it is due by its crontab, as long as it belongs to one.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.spec.cron.as_ref().filter(|_| !self.left_crontab)
    }

    /// True while the record represents tasks without records of their own.
    pub fn is_array_record(&self) -> bool {
        self.array_task.is_none() && self.array.is_some()
    }

    /// Does this job keep a singleton from starting, because it is an earlier job of the same name and user that is not over? An
    /// array is over when all of its tasks are, including those whose own records are being made. A task does not wait for its
    /// array.
    pub fn holds_up_singleton(&self, singleton: &Self) -> bool {
        let array_of = |record: &Self| record.array_task.map(|task| task.array_job);
        let same_array = array_of(singleton).is_some_and(|array| array == self.id || array_of(self) == Some(array));
        let tasks = || self.array.iter().flat_map(|array| array.tasks.values());
        let tasks_over = || tasks().all(|task| task.job == self.id || task.over.is_some());
        self.id < singleton.id
            && self.owner.uid == singleton.owner.uid
            && self.spec.name == singleton.spec.name
            && !same_array
            && !(matches!(self.phase, Phase::Over(..)) && tasks_over())
    }

    /// Is this node the batch host of that run?
    pub fn steps_run_from(&self, node: &str, sluid: Sluid) -> bool {
        let current = self.sluid == sluid && self.phase.run().is_some_and(|run| run.batch_host() == node);
        let earlier = self.earlier.iter().any(|hold| hold.sluid == sluid && hold.node.name == node);
        current || earlier || self.unfenced.iter().any(|left| left.sluid == sluid && left.node == node)
    }

    /// Is that run at work, with this node as one that it has not lost?
    pub fn works_on(&self, node: &str, sluid: Sluid) -> bool {
        let has_it = |run: &Run| run.allocation.nodes.iter().any(|n| n.name == node) && !run.lost.contains(node);
        self.sluid == sluid && self.phase.working().is_some_and(has_it)
    }

    /// Without script, arguments and environment: for a journal that saves them with another job.
    pub fn without_work(&self) -> Self {
        Self { spec: Arc::new(without_work((*self.spec).clone())), ..self.clone() }
    }

    /// Does it have the same script, arguments and environment as the other?
    pub fn has_work_of(&self, other: &Self) -> bool {
        let (own, other) = (&self.spec, &other.spec);
        own.script == other.script && own.environment == other.environment && own.argv == other.argv
    }

    /// Shares the script, arguments and environment of the other.
    pub fn take_work_of(&mut self, other: &Self) {
        take_work(Arc::make_mut(&mut self.spec), &other.spec);
    }

    /// May the user or an administrator act on it? `admin` is root or SlurmUser.
    pub fn may_act(&self, uid: u32, admin: bool) -> bool {
        admin || uid == self.owner.uid
    }
}

/// Does this job have a dependency on that one? Used when a job's owner was rebuilt and forgot which owners had asked it.
pub fn waits_for(record: &JobRecord, on: &JobRecord) -> bool {
    let same = || record.id > on.id && record.owner.uid == on.owner.uid && record.spec.name == on.spec.name;
    matches!(record.phase, Phase::Pending)
        && record.dependencies.list.iter().any(|dependency| match dependency.kind {
            DependencyKind::Singleton => same(),
            _ => dependency.job == Some(on.id),
        })
}

/// A specification without its script, arguments and environment.
pub(super) fn without_work(spec: JobSpec) -> JobSpec {
    JobSpec { script: None, argv: Vec::new(), environment: Arc::default(), ..spec }
}

/// Shares the script, arguments and environment of another.
pub(super) fn take_work(own: &mut JobSpec, other: &JobSpec) {
    (own.script, own.argv) = (other.script.clone(), other.argv.clone());
    own.environment = Arc::clone(&other.environment);
}

/// Most jobs are never requeued.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_indices_are_each_other() {
        for numbers in [vec![], vec![4], vec![1, 2, 3, 7], vec![1, 3, 5, 7], vec![1, 9], vec![0, 2, 3, 4, 10, 20, 30]] {
            let set: BTreeSet<u32> = numbers.into_iter().collect();
            assert_eq!(indices_of(&ranges_of(&set)), set);
        }
        assert_eq!(ranges_of(&[1, 3, 5, 9].into()), [(1, 5, 2), (9, 9, 1)]);
        assert_eq!(ranges_of(&[1, 9].into()), [(1, 1, 1), (9, 9, 1)]);
    }
}
