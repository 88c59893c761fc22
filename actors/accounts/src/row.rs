//! What is kept of one run of a job. A requeued job has one row for each run, told apart by their SLUIDs.

use crate::tres::{BILLING, CPU, ENERGY, Tres};
use garrick_events::records::job::{End, JobRecord, Phase, Resolved, Run};
use garrick_model::{
    config::TrackedTres,
    cpu_freq::CpuFreq,
    entities::association::AssocId,
    hostlist,
    ids::{ArrayTask, JobId, NodeIndex, Sluid, StepNum},
    resources::MemoryRequest,
    spec::{ArraySpec, JobKind, JobSpec, Sharing},
    state::{ExitStatus, JobState, Reason},
    time::{TimeLimit, Timestamp},
    view::Allocation,
};
use serde::{Deserialize, Serialize};

/// One run of a job. While the job waits, the run that is to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    /// `ClusterName` of its controller.
    pub cluster: String,
    /// Job.
    pub job: JobId,
    /// The run.
    pub sluid: Sluid,
    /// Of a task of an array: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_task: Option<ArrayTask>,
    /// Of the record of an array: the tasks that have no job of their own yet, and how many run at a time at most. `None` once all
    /// have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<ArraySpec>,
    /// Of a component of a heterogeneous job: the leader, and the component's offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub het: Option<(JobId, u32)>,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// User's name at submission.
    pub user: String,
    /// Group's name at submission.
    pub group: String,
    /// A batch script; otherwise an allocation of `salloc` or `srun`.
    pub batch: bool,
    /// Account that it asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// QOS that it asked for: while it waits, maybe several (`high,normal`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// Workload characterization key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wckey: Option<String>,
    /// Name.
    pub name: String,
    /// Partitions in which it may run.
    pub partitions: Vec<String>,
    /// The one in which it has or had an allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Reservations that it asked for, any one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested_reservations: Vec<String>,
    /// The one in which it has or had an allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// PENDING, RUNNING (from the allocation on), SUSPENDED, or the state in which the run ended.
    pub state: JobState,
    /// Another run followed this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requeued: bool,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Reason::is_none")]
    pub reason: Reason,
    /// Exit status.
    #[serde(default)]
    pub exit: ExitStatus,
    /// Highest of its steps.
    #[serde(default)]
    pub derived: ExitStatus,
    /// Why it could not be started, or its script (`SystemComment`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_comment: Option<String>,
    /// Who asked for its end, if anybody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<u32>,
    /// The node whose failure ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_node: Option<String>,
    /// Submission.
    pub submit: Timestamp,
    /// When only resources kept it waiting; the begin time where that is known before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eligible: Option<Timestamp>,
    /// Start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// Suspended time, milliseconds, without the current suspension.
    #[serde(default)]
    pub suspended_ms: u64,
    /// Of a suspended one: since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_since: Option<Timestamp>,
    /// Its suspensions that are over, oldest first ([`Suspension`]). Rows of earlier versions have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspensions: Vec<Suspension>,
    /// Its end was made up (`sacctmgr show runawayjobs`, or since another run followed). What its controller says of it later holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repaired: bool,
    /// Limit of the run.
    pub time_limit: TimeLimit,
    /// Limit that it asked for, or its partition's.
    pub requested_limit: TimeLimit,
    /// Priority when not held, as of the last change.
    pub priority: u32,
    /// Requeues before this run.
    #[serde(default)]
    pub restarts: u32,
    /// Tasks that it asks for.
    pub tasks: u32,
    /// What it asks for.
    pub requested: Tres,
    /// What it has or had.
    #[serde(default)]
    pub allocated: Tres,
    /// Memory in the form in which it was asked for.
    #[serde(default)]
    pub requested_memory: MemoryRequest,
    /// Its nodes as a host list; empty: none.
    #[serde(default)]
    pub nodes: String,
    /// Their indices in the configuration of that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_indices: Vec<NodeIndex>,
    /// Nodes that are being powered up for it: it starts when all have come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub booting: Vec<String>,
    /// Features asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<String>,
    /// Licenses asked for, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licenses: Option<String>,
    /// Comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Comment of an administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_comment: Option<String>,
    /// `--extra`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    /// MCS label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcs_label: Option<String>,
    /// `--segment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<u32>,
    /// Working directory.
    pub work_dir: String,
    /// Host of the submission.
    #[serde(default)]
    pub submit_host: String,
    /// Command line of the submission.
    #[serde(default)]
    pub submit_line: String,
    /// `--input`, with its `%` words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// `--output`, with its `%` words. `None`: as sbatch(1) says for a batch script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// `--error`, with its `%` words. `None`: with the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Its association.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub association: Option<AssocId>,
    /// It named no QOS: it has the default one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_qos: bool,
    /// The first run of the job, where this is a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_run: Option<Sluid>,
    /// It started while jobs of higher priority waited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backfilled: bool,
    /// What it waited for last, other than resources and its turn.
    #[serde(default, skip_serializing_if = "Reason::is_none")]
    pub waited_for: Reason,
    /// All QOS that it asked for, where they were several: `qos` is the one that it started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_asked: Option<String>,
    /// `--cpu-freq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_freq: Option<CpuFreq>,
    /// With whom it shares nodes.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub sharing: Sharing,
    /// `--exclusive=topo`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub topology_exclusive: bool,
    /// Energy of its steps.
    #[serde(default, skip_serializing_if = "RunEnergy::is_none")]
    pub energy: RunEnergy,
    /// Numbers of what it names: only in answers, for those who show them.
    #[serde(default, skip_serializing_if = "RowIds::is_empty")]
    pub ids: RowIds,
}

/// Energy of the steps of a run, joules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunEnergy {
    /// Of numbered steps.
    pub numbered: u64,
    /// Of the batch script and other steps without a number.
    pub others: u64,
}

impl RunEnergy {
    /// Adds that of a step.
    pub fn add(&mut self, step: StepNum, joules: u64) {
        let sum = if step.number().is_some() { &mut self.numbered } else { &mut self.others };
        *sum = sum.saturating_add(joules);
    }

    /// That of the run. That of its nodes while the batch script runs is that of the steps in it too, and is not counted twice.
    pub fn joules(&self) -> u64 {
        self.numbered.max(self.others)
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Numbers of what a row names, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RowIds {
    /// Of its QOS.
    pub qos: Option<u32>,
    /// Of its workload characterization key.
    pub wckey: Option<u32>,
    /// Of the reservation that it ran in.
    pub reservation: Option<u64>,
}

impl RowIds {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_usual(sharing: &Sharing) -> bool {
    *sharing == Sharing::Default
}

impl JobRow {
    /// The row of a job's current run.
    pub fn of(cluster: &str, record: &JobRecord) -> Self {
        let (spec, owner) = (&*record.spec, &record.owner);
        let mut row = Self {
            cluster: cluster.to_owned(),
            job: record.id,
            sluid: record.sluid,
            array_task: record.array_task,
            waiting: record.array.as_ref().map(|array| array.pending_spec()).filter(|tasks| !tasks.is_empty()),
            het: spec.het,
            uid: owner.uid,
            gid: owner.gid,
            user: owner.user.clone(),
            group: owner.group.clone(),
            batch: spec.kind == JobKind::Batch,
            account: None,
            qos: None,
            wckey: None,
            name: String::new(),
            partitions: Vec::new(),
            partition: None,
            requested_reservations: Vec::new(),
            reservation: None,
            state: JobState::Pending,
            requeued: false,
            reason: Reason::None,
            exit: ExitStatus::SUCCESS,
            derived: ExitStatus::SUCCESS,
            system_comment: None,
            cancelled_by: None,
            failed_node: None,
            submit: record.submit_time,
            eligible: record.eligible_time.or(record.begin),
            start: None,
            end: None,
            suspended_ms: 0,
            suspended_since: None,
            suspensions: Vec::new(),
            repaired: false,
            time_limit: record.resolved.time_limit,
            requested_limit: record.resolved.time_limit,
            priority: record.priority,
            restarts: record.restarts,
            tasks: 0,
            requested: Tres::default(),
            allocated: Tres::default(),
            requested_memory: MemoryRequest::Default,
            nodes: String::new(),
            node_indices: Vec::new(),
            booting: Vec::new(),
            constraint: None,
            licenses: None,
            comment: None,
            admin_comment: record.admin_comment.clone(),
            extra: None,
            mcs_label: None,
            segment: None,
            work_dir: String::new(),
            submit_host: String::new(),
            submit_line: String::new(),
            stdin: None,
            stdout: None,
            stderr: None,
            association: None,
            default_qos: false,
            first_run: record.first_run.filter(|first| *first != record.sluid),
            backfilled: false,
            waited_for: Reason::None,
            qos_asked: None,
            cpu_freq: None,
            sharing: Sharing::Default,
            topology_exclusive: false,
            energy: RunEnergy::default(),
            ids: RowIds::default(),
        };
        row.ask(spec, &record.resolved);
        row.be_in(&record.phase);
        row
    }

    /// Leaves out types of generic resources that are not counted by themselves.
    pub fn count_only(&mut self, tracked: &TrackedTres) {
        self.requested.retain(|name| tracked.counts(name));
        self.allocated.retain(|name| tracked.counts(name));
    }

    /// What it has or had, with the energy that its steps took.
    pub fn allocated_with_energy(&self) -> Tres {
        let mut tres = self.allocated.clone();
        tres.set(ENERGY, self.energy.joules());
        tres
    }

    /// Takes over what its controller does not know, from what was known before of the same run.
    pub fn remember(&mut self, known: &Self) {
        self.energy = known.energy;
        self.first_run = self.first_run.or(known.first_run);
    }

    /// True once the run is over.
    pub const fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// Takes over what is asked for.
    pub(crate) fn ask(&mut self, spec: &JobSpec, resolved: &Resolved) {
        self.account.clone_from(&spec.account);
        self.qos.clone_from(&spec.qos);
        self.wckey.clone_from(&spec.wckey);
        self.name.clone_from(&spec.name);
        self.partitions.clone_from(&resolved.partitions);
        self.requested_reservations.clone_from(&spec.reservations);
        self.requested_limit = resolved.time_limit;
        self.tasks = resolved.tasks;
        self.requested = requested(spec, resolved);
        self.requested_memory = resolved.memory;
        self.constraint.clone_from(&spec.constraint);
        self.licenses.clone_from(&spec.licenses);
        self.comment.clone_from(&spec.comment);
        self.extra.clone_from(&spec.extra);
        self.mcs_label.clone_from(&spec.mcs_label);
        self.segment = spec.topology.segment;
        self.work_dir.clone_from(&spec.work_dir);
        self.submit_host.clone_from(&spec.submit_host);
        self.submit_line.clone_from(&spec.submit_line);
        self.stdin.clone_from(&spec.stdin);
        self.stdout.clone_from(&spec.stdout);
        self.stderr.clone_from(&spec.stderr);
        (self.association, self.default_qos) = (resolved.association, resolved.default_qos);
        self.cpu_freq = spec.cpu_freq;
        (self.sharing, self.topology_exclusive) = (resolved.sharing, spec.topology.exclusive);
    }

    /// Takes over the phase of a record.
    fn be_in(&mut self, phase: &Phase) {
        if let Some(run) = phase.run() {
            self.run(run);
            self.cancelled_by = run.ending.as_ref().and_then(|ending| ending.by);
            self.failed_node = run.lost.iter().next().cloned();
        }
        if let Phase::Suspended(run) = phase {
            self.state = JobState::Suspended;
            self.suspended_since = run.suspended.as_ref().map(|suspended| suspended.at);
        }
        if let Some(end) = phase.end() {
            self.over(end);
        }
    }

    /// Takes over a run.
    pub(crate) fn run(&mut self, run: &Run) {
        let Allocation { nodes, partition, reservation, .. } = &*run.allocation;
        self.state = JobState::Running;
        (self.end, self.repaired) = (None, false);
        self.start = Some(run.start);
        self.time_limit = run.time_limit;
        self.partition = Some(partition.clone());
        self.reservation.clone_from(reservation);
        self.nodes = hostlist::fold(nodes.iter().map(|node| node.name.as_str()));
        self.node_indices = nodes.iter().map(|node| node.index).collect();
        self.allocated = allocated(run);
        self.booting = run.booting.iter().cloned().collect();
        (self.backfilled, self.waited_for) = (run.backfilled, run.waited_for.clone());
        if let Some(chosen) = &run.chosen_qos {
            (self.qos, self.qos_asked) = (Some(chosen.qos.clone()), Some(chosen.of.clone()));
        }
        self.suspended_ms = run.suspended.as_ref().map_or(0, |suspended| suspended.stood_ms);
    }

    /// Takes over an end.
    pub(crate) fn over(&mut self, end: &End) {
        self.went_on(end.at);
        self.state = end.state;
        self.reason = end.reason.clone();
        let withdrawn = matches!(end.state, JobState::Cancelled | JobState::Deadline);
        if self.start.is_none() && withdrawn && end.reason.is_blocking() {
            // It waited until then.
            self.waited_for = end.reason.clone();
        }
        (self.exit, self.derived) = (end.exit, end.derived);
        self.system_comment.clone_from(&end.cause);
        self.cancelled_by = self.cancelled_by.or(end.by);
        (self.end, self.repaired) = (Some(end.at), false);
        self.booting.clear();
        // The loss of a node ends a job only where that is said.
        if end.state != JobState::NodeFail {
            self.failed_node = None;
        }
    }
}

/// So many suspensions are kept apart. Gang scheduling makes thousands: the oldest are kept together.
const SUSPENSIONS: usize = 64;

/// A time in which a run was suspended, or several together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// Begin of the first.
    pub from: Timestamp,
    /// End of the last.
    pub until: Timestamp,
    /// For how long in that time, milliseconds.
    pub ms: u64,
}

impl Suspension {
    /// How much of it lies between two times, milliseconds. Of several together that is not known exactly: as much as can be.
    fn within(&self, from: Timestamp, until: Timestamp) -> u64 {
        millis(self.from.max(from), self.until.min(until)).min(self.ms)
    }
}

fn millis(from: Timestamp, until: Timestamp) -> u64 {
    u64::try_from(until.since(from).as_millis()).unwrap_or(u64::MAX)
}

impl JobRow {
    /// A suspension ends, if there is one.
    pub(crate) fn went_on(&mut self, at: Timestamp) {
        let Some(from) = self.suspended_since.take() else { return };
        let ms = millis(from, at);
        self.suspended_ms = self.suspended_ms.saturating_add(ms);
        self.suspensions.push(Suspension { from, until: at, ms });
        if self.suspensions.len() > SUSPENSIONS {
            let oldest = self.suspensions.remove(0);
            let next = &mut self.suspensions[0];
            (next.from, next.ms) = (oldest.from, next.ms.saturating_add(oldest.ms));
        }
    }

    /// For how long the run was suspended between two times, milliseconds: what a step of it stood still.
    pub fn suspended_within(&self, from: Timestamp, until: Timestamp) -> u64 {
        let known: u64 = self.suspensions.iter().map(|one| one.ms).sum();
        // What was suspended before a record of all that came before, or under an earlier version.
        let begin = self.start.unwrap_or(from);
        let first = self.suspensions.first().map(|one| one.from);
        let end = first.or(self.suspended_since).or(self.end).unwrap_or(until);
        let earlier = Suspension { from: begin, until: end, ms: self.suspended_ms.saturating_sub(known) };
        let now = self.suspended_since.map_or(0, |since| millis(since.max(from), until));
        let all = self.suspensions.iter().chain([&earlier]).map(|one| one.within(from, until)).sum::<u64>();
        all.saturating_add(now)
    }
}

/// What a request amounts to, as far as that is known before the job starts.
fn requested(spec: &JobSpec, resolved: &Resolved) -> Tres {
    let amounts = resolved.tres(spec);
    let mut tres: Tres = amounts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    tres.set(BILLING, resolved.billing.unwrap_or_else(|| resolved.cpus.into()));
    tres
}

/// What a run amounts to. What it is billed was decided when it started.
fn allocated(run: &Run) -> Tres {
    let amounts = run.allocation.tres();
    let mut tres: Tres = amounts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    tres.set(BILLING, run.charge.as_ref().map_or_else(|| tres.count(CPU), |charge| charge.billing));
    tres
}
