//! What one job asks of one partition, in numbers: the form that node selection works on.

use super::facts::{AllocationUnit, ClusterView, PartitionFacts, PartitionSharing};
use fixedbitset::FixedBitSet;
use garrick_model::{
    ids::NodeIndex,
    resources::{MemoryMib, MemoryRequest},
    spec::Sharing,
    time::TimeLimit,
    view::JobView,
};

/// How a job uses the nodes that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeUse {
    /// CPUs of its own; other jobs may have the rest.
    Cpus,
    /// CPUs shared with up to this many holders in all.
    Oversubscribe(u32),
    /// CPUs of its own; the rest only for jobs of the same user.
    User,
    /// The whole node.
    Whole,
}

impl NodeUse {
    /// What the job's wish comes to in this partition. `FORCE` leaves users no choice; `YES` needs the wish.
    pub fn of(wish: Sharing, partition: &PartitionFacts, unit: AllocationUnit) -> Self {
        match (partition.sharing, wish) {
            (PartitionSharing::Exclusive, _) => Self::Whole,
            (PartitionSharing::Force(most), _) => Self::Oversubscribe(most.max(1)),
            (_, Sharing::Exclusive) => Self::Whole,
            (PartitionSharing::Yes(most), Sharing::Oversubscribe) => Self::Oversubscribe(most.max(1)),
            _ if unit == AllocationUnit::Node => Self::Whole,
            (_, Sharing::User) => Self::User,
            _ if partition.exclusive_user => Self::User,
            _ => Self::Cpus,
        }
    }

    /// In the words of views.
    pub const fn sharing(self) -> Sharing {
        match self {
            Self::Cpus => Sharing::Default,
            Self::Oversubscribe(_) => Sharing::Oversubscribe,
            Self::User => Sharing::User,
            Self::Whole => Sharing::Exclusive,
        }
    }

    /// Most holders of a CPU.
    pub const fn most_holders(self) -> u32 {
        match self {
            Self::Oversubscribe(most) => most,
            _ => 1,
        }
    }
}

/// Memory asked for on each node, with defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryNeed {
    /// Memory is not accounted.
    None,
    /// This much.
    PerNode(u64),
    /// This much for each CPU that is given.
    PerCpu(u64),
    /// All that the node has.
    All,
}

/// One job in one partition. Equal requests are interchangeable to node selection, which is used to skip repeats.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Place of the partition in the view.
    pub partition: usize,
    /// Owner: matters on nodes that a user keeps to themselves.
    pub uid: u32,
    /// Tasks in all; `None`: [`Self::tasks_each`] on every node.
    pub tasks: Option<u32>,
    /// Most tasks on a node (`--ntasks-per-node`); with `tasks` unset, exactly that many.
    pub tasks_each: Option<u32>,
    /// The job said how many tasks; if not, shares carry no task count.
    pub tasks_named: bool,
    /// CPUs a task.
    pub cpus_per_task: u32,
    /// Fewest CPUs on a node (`--mincpus`).
    pub min_cpus: u32,
    /// Fewest nodes.
    pub min_nodes: u32,
    /// Most nodes.
    pub max_nodes: u32,
    /// Nodes to take when they are free: `-N 2-4` takes up to 4.
    pub want_nodes: u32,
    /// Memory.
    pub memory: MemoryNeed,
    /// TmpDisk, MiB.
    pub tmp_disk_mib: u64,
    /// Consecutive nodes only.
    pub contiguous: bool,
    /// How nodes are used.
    pub usage: NodeUse,
    /// A task has its cores to itself.
    pub one_task_per_core: bool,
    /// Nodes with the most free CPUs first.
    pub least_loaded: bool,
    /// Most CPUs taken of a node.
    pub max_cpus_per_node: Option<u32>,
    /// `-C`.
    pub constraint: Option<String>,
    /// `-L`.
    pub licenses: Option<String>,
    /// `-w`, as indices, ascending; a name that no node has makes the job unplaceable and is in [`Self::unknown_nodes`].
    pub nodelist: Vec<NodeIndex>,
    /// `-x`, ascending.
    pub exclude: Vec<NodeIndex>,
    /// Some name of the node list belongs to no node.
    pub unknown_nodes: bool,
    /// Limit of the run.
    pub limit_secs: Option<u64>,
}

impl Request {
    /// The job's request in that partition.
    pub fn new(view: &ClusterView, job: &JobView, place: usize, names: &dyn Fn(&str) -> Option<NodeIndex>) -> Self {
        let partition = &view.partitions[place];
        let spec = &job.spec;
        let explicit_tasks = spec.tasks.is_some() || (spec.nodes.is_none() && spec.tasks_per_node.is_none());
        let min_nodes = job.min_nodes.max(partition.min_nodes.min(job.max_nodes)).max(1);
        let max_nodes = partition.max_nodes.map_or(job.max_nodes, |most| job.max_nodes.min(most)).max(min_nodes);
        let ranged = spec.nodes.is_some_and(|n| n.max.is_some_and(|max| max > n.min));
        let mut nodelist: Vec<NodeIndex> = spec.nodelist.iter().filter_map(|n| names(n)).collect();
        let unknown_nodes = nodelist.len() != spec.nodelist.len();
        nodelist.sort_unstable();
        nodelist.dedup();
        let mut exclude: Vec<NodeIndex> = spec.exclude.iter().filter_map(|n| names(n)).collect();
        exclude.sort_unstable();
        exclude.dedup();
        Self {
            partition: place,
            uid: job.uid,
            tasks: explicit_tasks.then_some(job.tasks.max(1)),
            tasks_each: spec.tasks_per_node,
            tasks_named: spec.tasks.is_some() || spec.tasks_per_node.is_some(),
            cpus_per_task: job.cpus_per_task.max(1),
            min_cpus: spec.min_cpus_per_node.unwrap_or(0),
            min_nodes,
            max_nodes,
            want_nodes: if ranged { max_nodes } else { min_nodes },
            memory: memory_need(view.policy.memory, job.memory),
            tmp_disk_mib: spec.tmp_disk_mib,
            contiguous: spec.contiguous,
            usage: NodeUse::of(spec.sharing, partition, view.policy.unit),
            one_task_per_core: view.policy.one_task_per_core,
            least_loaded: view.policy.least_loaded || partition.least_loaded,
            max_cpus_per_node: partition.max_cpus_per_node,
            constraint: spec.constraint.clone().filter(|c| !c.is_empty()),
            licenses: spec.licenses.clone(),
            nodelist,
            exclude,
            unknown_nodes,
            limit_secs: match run_limit(job, partition) {
                TimeLimit::Secs(secs) => Some(secs),
                TimeLimit::Unlimited => None,
            },
        }
    }

    /// Fewest tasks that a node of the allocation must be able to run.
    pub fn least_tasks(&self) -> u32 {
        if self.tasks.is_some() { 1 } else { self.tasks_each.unwrap_or(1).max(1) }
    }

    /// Tasks that the fewest nodes have to hold together.
    pub fn total_tasks(&self) -> u32 {
        self.tasks.unwrap_or_else(|| self.least_tasks().saturating_mul(self.min_nodes))
    }

    /// Nodes of the partition that the job could use if they were free: features, exclusions.
    pub fn candidates(&self, members: &FixedBitSet, features: Option<&FixedBitSet>) -> FixedBitSet {
        let mut set = members.clone();
        if let Some(features) = features {
            set.intersect_with(features);
        }
        for index in &self.exclude {
            if (index.0 as usize) < set.len() {
                set.set(index.0 as usize, false);
            }
        }
        set
    }
}

fn memory_need(accounted: bool, request: MemoryRequest) -> MemoryNeed {
    match request {
        _ if !accounted => MemoryNeed::None,
        MemoryRequest::PerNode(MemoryMib(mib)) => MemoryNeed::PerNode(mib),
        MemoryRequest::PerCpu(MemoryMib(mib)) => MemoryNeed::PerCpu(mib),
        // Slurm: without any default, a job that names no memory gets all of its nodes' memory.
        MemoryRequest::All | MemoryRequest::Default => MemoryNeed::All,
    }
}

/// The limit that a run in this partition gets: the job's own, else the partition's default, else its maximum.
pub fn run_limit(job: &JobView, partition: &PartitionFacts) -> TimeLimit {
    match job.spec.time_limit {
        Some(_) => job.time_limit,
        None => partition.default_time.unwrap_or(partition.max_time),
    }
}
