//! What a plan is made from: the views as one read-only snapshot, with the site's policy. It is built by the scheduler's shell
//! (and by tests) and never changed while a plan is made.

use super::{
    accounting::Accounting,
    bounds::Bounds,
    caps::CpuCaps,
    licenses::LicenseFacts,
    preempt::{PreemptRules, Yielding},
    qos::QosTable,
    request::Matters,
    reservations::Reservations,
    units::close_units,
};
use crate::topology::{Topologies, Topology};
use fixedbitset::FixedBitSet;
use garrick_model::{
    config::{Enforce, MemoryPer, PartitionConfig},
    ids::{JobId, NodeIndex},
    node_shape::NodeShape,
    spec::CpuOrder,
    state::{JobState, NodeBase, NodeFlags, NodePower, PartitionState, PowerRequest},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, JobView, NodeLoad, NodeView},
};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

/// The unit of allocation: single CPUs, whole cores, whole sockets or whole nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationUnit {
    /// `CR_CPU`: each logical CPU by itself.
    Cpu,
    /// `CR_Core`: all threads of a core go together.
    Core,
    /// `CR_Socket`: whole sockets.
    Socket,
    /// `select/linear`: nodes are never shared.
    Node,
}

/// Which waiting jobs have resources reserved (A. W. Mu'alem, D. G. Feitelson, IEEE TPDS 12(6), 2001).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backfill {
    /// None, and nothing starts behind a waiting job (`sched/builtin`).
    Off,
    /// The first so many jobs of each partition that do not fit; EASY is 1.
    First(u32),
    /// Every job that is considered.
    Conservative,
}

/// Site-wide rules that a plan follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The unit of allocation.
    pub unit: AllocationUnit,
    /// Memory is a consumable resource.
    pub memory: bool,
    /// `DefMemPerNode` or `DefMemPerCPU`, where a partition has none of its own.
    pub def_memory: Option<MemoryPer>,
    /// `MaxMemPerNode` or `MaxMemPerCPU`, where a partition has none of its own.
    pub max_memory: Option<MemoryPer>,
    /// `CR_ONE_TASK_PER_CORE`: a task has its cores to itself.
    pub one_task_per_core: bool,
    /// How jobs get CPUs of several sockets unless they say; block with `CR_CORE_DEFAULT_DIST_BLOCK`.
    pub over_sockets: CpuOrder,
    /// `CR_Pack_Nodes`: tasks fill a node before the next, also on whole nodes.
    pub pack_nodes: bool,
    /// `CR_LLN`: nodes with the most free CPUs first.
    pub least_loaded: bool,
    /// Which jobs have resources reserved, and whether jobs behind a blocked one may start.
    pub backfill: Backfill,
    /// Jobs behind those with reserved resources are tried in the order of their time limits, but first, in the usual order,
    /// those that have waited for longer than this. `None`: all in the usual order.
    pub shortest_first: Option<Duration>,
    /// Planned times are rounded up to a multiple of this (`bf_resolution`).
    pub resolution: Duration,
    /// Nothing is reserved further ahead (`bf_window`).
    pub backfill_window: Duration,
    /// Most jobs tried behind blocked ones in a pass (`bf_max_job_test`; Slurm's default is 500).
    pub backfill_depth: usize,
    /// Most starts in one plan, so that a pass stays short; the next pass continues.
    pub max_starts: usize,
    /// Network topologies.
    pub topologies: Arc<Topologies>,
    /// How long a job waits at most for the number of switches that it requested (`max_switch_wait`).
    pub switch_wait: Duration,
    /// How long a job waits at most for blocks that are already broken up if it could start in a whole one; zero: it uses them if
    /// they have free resources, but does not wait (`topology_patience`).
    pub topology_patience: Option<Duration>,
    /// Which jobs may preempt which.
    pub preempt: PreemptRules,
    /// Jobs of one CPU go to the last node with room (`pack_serial_at_end`).
    pub serial_at_end: bool,
    /// Nodes are filtered by `--extra` (`extra_constraints`).
    pub extra_constraints: bool,
    /// `AccountingStorageEnforce`.
    pub enforce: Enforce,
    /// Optional bounds; `None`: none is set.
    pub bounds: Option<Arc<Bounds>>,
    /// A plan is made this often even if nothing changed (`bf_interval`); `None`: only after a change.
    pub interval: Option<Duration>,
    /// Least time between two plans (`sched_min_interval`).
    pub least_pause: Duration,
}

/// Default of `bf_interval`, as in Slurm: what may be backfilled changes with time alone.
const BF_INTERVAL: Duration = Duration::from_secs(30);
/// Shortest pause between two plans: a burst of submissions is planned together.
const SHORTEST_PAUSE: Duration = Duration::from_millis(3);

impl Default for Policy {
    fn default() -> Self {
        Self {
            unit: AllocationUnit::Core,
            memory: true,
            def_memory: None,
            max_memory: None,
            one_task_per_core: false,
            over_sockets: CpuOrder::Cyclic,
            pack_nodes: false,
            least_loaded: false,
            backfill: Backfill::Conservative,
            shortest_first: None,
            resolution: Duration::from_secs(1),
            backfill_window: Duration::from_secs(24 * 3600),
            backfill_depth: 500,
            max_starts: 2_000,
            topologies: Arc::default(),
            switch_wait: Duration::from_secs(300),
            topology_patience: None,
            preempt: PreemptRules::default(),
            serial_at_end: false,
            extra_constraints: false,
            enforce: Enforce::default(),
            bounds: None,
            interval: Some(BF_INTERVAL),
            least_pause: SHORTEST_PAUSE,
        }
    }
}

/// How a partition lets jobs share CPUs, `OverSubscribe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionSharing {
    /// NO: a CPU has one holder.
    No,
    /// YES:n: jobs that ask for it share CPUs, up to `n` a CPU.
    Yes(u32),
    /// FORCE:n: all jobs share CPUs, up to `n` a CPU.
    Force(u32),
    /// EXCLUSIVE: whole nodes.
    Exclusive,
}

/// A partition in the form that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionFacts {
    /// Name.
    pub name: String,
    /// State.
    pub state: PartitionState,
    /// `PriorityTier`: higher goes first.
    pub tier: u32,
    /// Members.
    pub nodes: FixedBitSet,
    /// `DefaultTime`; `None`: [`Self::max_time`] applies.
    pub default_time: Option<TimeLimit>,
    /// `MaxTime`.
    pub max_time: TimeLimit,
    /// `MinNodes`.
    pub min_nodes: u32,
    /// `MaxNodes`; `None`: no limit.
    pub max_nodes: Option<u32>,
    /// `MaxCPUsPerNode`, `MaxCPUsPerSocket`.
    pub caps: CpuCaps,
    /// `DefMemPerNode` or `DefMemPerCPU`.
    pub def_memory: Option<MemoryPer>,
    /// `MaxMemPerNode` or `MaxMemPerCPU`.
    pub max_memory: Option<MemoryPer>,
    /// `OverSubscribe`.
    pub sharing: PartitionSharing,
    /// `ExclusiveUser`: nodes are shared by jobs of one user only.
    pub exclusive_user: bool,
    /// `LLN`: nodes with the most free CPUs first.
    pub least_loaded: bool,
    /// `Topology`; `None`: the cluster's.
    pub topology: Option<String>,
    /// `ExclusiveTopo`: every job as with `--exclusive=topo`.
    pub exclusive_topo: bool,
    /// How its jobs are preempted.
    pub yielding: Yielding,
    /// `QOS`: the limits of this QOS hold for its jobs.
    pub qos: Option<String>,
    /// The accounts and QOS whose jobs it accepts; `None`: all.
    pub takes: Option<Arc<PartitionConfig>>,
}

impl PartitionFacts {
    /// The time limit of jobs that name none.
    pub fn limit_unsaid(&self) -> TimeLimit {
        self.default_time.unwrap_or(self.max_time)
    }
}

/// The snapshot that [`crate::plan::plan`] works on.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// The policy.
    pub policy: Policy,
    /// Nodes; the node of index `i` is at position `i`.
    pub nodes: Vec<Arc<NodeView>>,
    /// Partitions in configuration order.
    pub partitions: Vec<PartitionFacts>,
    /// Waiting jobs, eligible or not, in any order.
    pub pending: Vec<Arc<JobView>>,
    /// Number of running tasks of each array, including those that were split off as single jobs.
    pub array_running: BTreeMap<JobId, u32>,
    /// Licenses, and which jobs hold them.
    pub licenses: LicenseFacts,
    /// Advance reservations.
    pub reservations: Reservations,
    /// Jobs with nodes, if there is preemption or gang scheduling. Jobs that are suspended for others or until their turn comes
    /// are always included.
    pub working: BTreeMap<JobId, Arc<JobView>>,
    /// Qualities of service.
    pub qos: Arc<QosTable>,
    /// Associations, limits, and what running jobs have of them.
    pub accounting: Accounting,
    /// Some run is suspended for another.
    pub has_parked: bool,
    /// End and partition of each job whose nodes are still being cleaned, if `CompleteWait` limits plans.
    pub completing: Vec<(Timestamp, String)>,
}

impl ClusterView {
    /// From the views. `nodes` may be in any order: the index in each view decides its position. Where no node has an index (a
    /// node left, or will come in a moment), a placeholder stands that no job can use.
    pub fn new(
        policy: Policy,
        jobs: &[Arc<JobView>],
        nodes: &[Arc<NodeView>],
        partitions: Vec<PartitionFacts>,
    ) -> Self {
        let nodes = by_place(nodes);
        let mut array_running = BTreeMap::new();
        let mut pending = Vec::new();
        let mut working = BTreeMap::new();
        let mut completing = Vec::new();
        let waits_for_them = policy.bounds.as_ref().is_some_and(|bounds| !bounds.complete_wait.is_zero());
        let mut places = OnceCell::new();
        for job in jobs.iter().filter(|job| job.state.is_live()) {
            let job = &in_place(job, &nodes, &mut places);
            match job.state {
                state if state.waits() => pending.push(Arc::clone(job)),
                _ => {
                    let waits = job.suspended.is_some_and(|times| times.yielded.is_some() || times.waits_turn);
                    if policy.preempt.is_on() || policy.preempt.time_slice.is_some() || waits {
                        working.insert(job.id, Arc::clone(job));
                    }
                    if waits_for_them
                        && job.state == JobState::Completing
                        && let (Some(end), Some(allocation)) = (job.end_time, &job.allocation)
                    {
                        completing.push((end, allocation.partition.clone()));
                    }
                    if let Some(task) = job.array_task {
                        *array_running.entry(task.array_job).or_insert(0) += 1;
                    }
                }
            }
        }
        let has_parked = nodes.iter().any(|node| node.holds.iter().any(|hold| hold.parked));
        let mut view = Self {
            policy,
            nodes,
            partitions,
            pending,
            array_running,
            working,
            has_parked,
            completing,
            ..Self::default()
        };
        close_units(&mut view, jobs);
        view
    }

    /// Whether users and MCS labels of jobs matter to the nodes that they may have.
    pub(crate) fn matters(&self) -> Matters {
        let by_user = self.partitions.iter().any(|partition| partition.exclusive_user);
        let wished = self.pending.iter().map(|job| job.spec.sharing);
        let kept = self.nodes.iter().flat_map(|node| &node.holds).map(|hold| hold.sharing);
        let matters = Matters::of(wished.chain(kept));
        Matters { users: by_user || matters.users, ..matters }
    }

    /// The topology of a partition, by its place; `None`: all nodes are equally near.
    pub fn topology(&self, partition: usize) -> Option<&Arc<dyn Topology>> {
        self.policy.topologies.get(self.partitions.get(partition)?.topology.as_deref())
    }

    /// Does the job need more CPUs than the nodes of the partition have together? Then it waits until they have them (seen in
    /// 26.05.3).
    pub fn exceeds(&self, partition: &PartitionFacts, job: &JobView) -> bool {
        let mut left = u64::from(job.cpus);
        for node in partition.nodes.ones().filter_map(|n| self.nodes.get(n)) {
            left = left.saturating_sub(node.shape.job_cpu_count().into());
            if left == 0 {
                return false;
            }
        }
        left > 0
    }

    /// A partition by name, with its index.
    pub fn partition(&self, name: &str) -> Option<(usize, &PartitionFacts)> {
        self.partitions.iter().enumerate().find(|(_, p)| p.name == name)
    }

    /// A node by index.
    pub fn node(&self, index: NodeIndex) -> Option<&Arc<NodeView>> {
        self.nodes.get(index.0 as usize)
    }
}

/// Number of positions that nodes with such indices take.
pub fn node_places(nodes: &[Arc<NodeView>]) -> usize {
    nodes.iter().map(|node| node.index.0 as usize + 1).max().unwrap_or(0)
}

fn by_place(nodes: &[Arc<NodeView>]) -> Vec<Arc<NodeView>> {
    let places = node_places(nodes);
    if nodes.len() == places && nodes.iter().enumerate().all(|(place, node)| node.index.0 as usize == place) {
        return nodes.to_vec();
    }
    let mut all: Vec<Arc<NodeView>> = (0..).map(|index| Arc::new(nobody(NodeIndex(index)))).take(places).collect();
    for node in nodes {
        all[node.index.0 as usize] = Arc::clone(node);
    }
    all
}

/// A placeholder where there is no node: in no partition, and without resources.
fn nobody(index: NodeIndex) -> NodeView {
    NodeView {
        name: String::new(),
        index,
        generation: 0,
        base: NodeBase::Future,
        flags: NodeFlags::default(),
        reason: None,
        shape: NodeShape::default(),
        holds: Vec::new(),
        features: Vec::new(),
        weight: 1,
        address: String::new(),
        hostname: String::new(),
        port: 0,
        registration: None,
        load: NodeLoad::default(),
        last_busy: None,
        suspend_time_secs: None,
        power_since: None,
        idle_since: None,
        comment: None,
        after_reboot: None,
        resume_at: None,
        instance_id: None,
        instance_type: None,
        extra: None,
    }
}

/// The job with the current indices of its nodes: indices move when nodes are added to the configuration file.
fn in_place(
    job: &Arc<JobView>,
    nodes: &[Arc<NodeView>],
    places: &mut OnceCell<HashMap<String, NodeIndex>>,
) -> Arc<JobView> {
    let Some(allocation) = &job.allocation else { return Arc::clone(job) };
    let is_there = |node: &AllocatedNode| nodes.get(node.index.0 as usize).is_some_and(|view| view.name == node.name);
    if allocation.nodes.iter().all(is_there) {
        return Arc::clone(job);
    }
    let places = places.get_or_init(|| nodes.iter().map(|node| (node.name.clone(), node.index)).collect());
    let mut moved = (**allocation).clone();
    // Nodes that no longer exist are left out.
    moved.nodes.retain_mut(|node| {
        let place = places.get(&node.name);
        node.index = place.copied().unwrap_or(node.index);
        place.is_some()
    });
    Arc::new(JobView { allocation: Some(moved.into()), ..(**job).clone() })
}

/// True when new work may be put on the node: if it is off, it is switched on for that.
pub fn in_service(node: &NodeView) -> bool {
    let flags = node.flags;
    let goes_off = flags.power == NodePower::PoweringDown || flags.power_request == Some(PowerRequest::Down);
    node.base == NodeBase::Up
        && !flags.is_held_back()
        && !flags.is_silent()
        && !flags.invalid
        && !flags.remains
        && !flags.reboot_issued
        && !goes_off
}

/// CPUs that go together on this node: 1 with [`AllocationUnit::Cpu`], a core's schedulable threads otherwise.
pub(crate) fn cpus_per_unit(node: &NodeView, unit: AllocationUnit) -> u32 {
    match unit {
        AllocationUnit::Cpu => 1,
        AllocationUnit::Core | AllocationUnit::Node => node.shape.cpus_per_core().max(1),
        AllocationUnit::Socket => node.shape.cpus_per_core().saturating_mul(node.shape.cores_per_socket).max(1),
    }
}

/// Planning assumes that a job without a time limit runs this long: Slurm's backfill also counts UNLIMITED as a year.
pub const UNLIMITED_FOR_PLANNING: Duration = Duration::from_secs(365 * 24 * 3600);

/// The end of time.
pub(crate) const NEVER: Timestamp = Timestamp(i64::MAX);
