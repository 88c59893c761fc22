//! What one job requests of one partition, in numbers: the form that node selection works on.

use super::{
    caps::CpuCaps,
    constraint::{Mix, Wish},
    facts::{AllocationUnit, ClusterView, PartitionFacts, PartitionSharing},
    hres::HresAsk,
    layout::Layout,
    reservations::Viewer,
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    config::MemoryPer,
    gres::{GPU, GresBinding, GresRequest, Totals},
    ids::NodeIndex,
    node_shape::{NodeShape, SpecCores},
    node_sizes::NodeSizes,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{CpuOrder, Distribution, JobSpec, Sharing},
    time::{TimeLimit, Timestamp},
    view::{JobView, NodeHold},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The user of requests for which the user does not matter. No user has this id: `chown(2)` takes it for "leave unchanged".
pub(crate) const ANYBODY: u32 = u32::MAX;

/// An MCS label in a plan: a hash of its text, which is quick to copy and compare. Two labels with one hash would be proposed to
/// one node; the node's own account compares the texts and refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u64);

impl Label {
    /// For jobs without a label.
    pub const NONE: Self = Self(0);
    /// For requests to which labels do not matter.
    pub const ANY: Self = Self(u64::MAX);

    /// FNV-1a, which is the same in every run.
    pub fn of(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::NONE };
        let mixed = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(text.bytes().fold(0xcbf2_9ce4_8422_2325, mixed).clamp(1, u64::MAX - 1))
    }
}

/// The owner of a job, as far as it matters to the nodes that the job may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// `ANYBODY` if no node is kept to a user.
    pub user: u32,
    /// [`Label::ANY`] if no node is kept to a label.
    pub label: Label,
}

impl Owner {
    /// No particular owner.
    pub(crate) const ANYBODY: Self = Self { user: ANYBODY, label: Label::ANY };

    /// The owner of a hold.
    pub fn of(hold: &NodeHold) -> Self {
        Self { user: hold.uid, label: Label::of(hold.mcs_label.as_deref()) }
    }

    /// Without the parts that do not matter.
    #[must_use]
    pub(crate) const fn where_matters(self, matters: Matters) -> Self {
        Self {
            user: if matters.users { self.user } else { ANYBODY },
            label: if matters.labels { self.label } else { Label::ANY },
        }
    }
}

/// Whether users and labels of jobs matter to the nodes that they may have. If neither does, jobs of all owners with equal
/// requests are interchangeable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matters {
    /// Some job keeps a node to a user, or requests that.
    pub users: bool,
    /// Some job keeps a node to an MCS label, or requests that.
    pub labels: bool,
}

impl Matters {
    /// What matters if jobs request or use nodes in these ways.
    pub fn of(sharing: impl Iterator<Item = Sharing>) -> Self {
        sharing.fold(Self { users: false, labels: false }, |matters, sharing| Self {
            users: matters.users || sharing == Sharing::User,
            labels: matters.labels || sharing == Sharing::Mcs,
        })
    }
}

/// How a job uses its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeUse {
    /// Exclusive CPUs; other jobs may have the rest.
    Cpus,
    /// CPUs shared with at most this many holders in all.
    Oversubscribe(u32),
    /// Exclusive CPUs; the rest only for jobs of the same user.
    User,
    /// Exclusive CPUs; the rest only for jobs of the same MCS label.
    Label,
    /// The whole node.
    Whole,
}

impl NodeUse {
    /// The use that results from the job's request in this partition. `FORCE` leaves users no choice; `YES` needs the request.
    pub fn of(wish: Sharing, partition: &PartitionFacts, unit: AllocationUnit) -> Self {
        match (partition.sharing, wish) {
            _ if partition.exclusive_topo => Self::Whole,
            (PartitionSharing::Exclusive, _) => Self::Whole,
            // A node is kept either to a user or to a label: a job that needs both has the whole node.
            (_, Sharing::Mcs) if unit == AllocationUnit::Node || partition.exclusive_user => Self::Whole,
            // Keeping labels apart goes before sharing.
            (_, Sharing::Mcs) => Self::Label,
            (PartitionSharing::Force(most), _) => Self::Oversubscribe(most.max(1)),
            (_, Sharing::Exclusive) => Self::Whole,
            (PartitionSharing::Yes(most), Sharing::Oversubscribe) => Self::Oversubscribe(most.max(1)),
            _ if unit == AllocationUnit::Node => Self::Whole,
            (_, Sharing::User) => Self::User,
            _ if partition.exclusive_user => Self::User,
            _ => Self::Cpus,
        }
    }

    /// The form used in views.
    pub const fn sharing(self) -> Sharing {
        match self {
            Self::Cpus => Sharing::Default,
            Self::Oversubscribe(_) => Sharing::Oversubscribe,
            Self::User => Sharing::User,
            Self::Label => Sharing::Mcs,
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

/// Memory requested on each node, with defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MemoryNeed {
    /// Memory is not accounted.
    None,
    /// This many MiB.
    PerNode(u64),
    /// This many MiB for each CPU that is given.
    PerCpu(u64),
    /// This many MiB for each GPU that is given.
    PerGpu(u64),
    /// All memory of the node.
    All,
    /// All memory of the node, but at most this many MiB for each CPU that is given (`MaxMemPerCPU`).
    AllWithin(u64),
}

/// One job in one partition. Equal requests are interchangeable to node selection, so repeated ones are skipped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Index of the partition in the view.
    pub partition: usize,
    /// Owner: matters on nodes that are kept to a user or a label (`ClusterView::matters`).
    pub owner: Owner,
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
    /// Only these numbers of nodes, within [`Self::min_nodes`] and [`Self::max_nodes`]; empty: any.
    pub node_sizes: NodeSizes,
    /// Of several allowed numbers of nodes, the fewest.
    pub fewest_nodes: bool,
    /// Memory.
    pub(crate) memory: MemoryNeed,
    /// Most memory taken of a node (`MaxMemPerNode`), MiB.
    pub max_memory: Option<u64>,
    /// Memory that a node must have where memory is not given to jobs, MiB.
    pub least_memory_mib: u64,
    /// TmpDisk, MiB.
    pub tmp_disk_mib: u64,
    /// Consecutive nodes only.
    pub contiguous: bool,
    /// How nodes are used.
    pub usage: NodeUse,
    /// Cores that it leaves to the system on a node with exclusive use; `None`: as the node says.
    pub left_to_system: Option<SpecCores>,
    /// Sockets, cores and threads; `None`: any.
    pub layout: Option<Layout>,
    /// Cores are not shared by tasks.
    pub one_task_per_core: bool,
    /// How it gets CPUs of several sockets.
    pub over_sockets: CpuOrder,
    /// Tasks fill a node before the next, also on whole nodes.
    pub packs: bool,
    /// Nodes with the most free CPUs first.
    pub least_loaded: bool,
    /// Most CPUs that all jobs of the partition may have of a node.
    pub caps: CpuCaps,
    /// `-C`.
    pub constraint: Option<String>,
    /// `--extra`, where nodes are filtered by it.
    pub extra: Option<String>,
    /// The conditions of [`Self::constraint`] on the nodes together; `None`: none.
    pub mix: Option<Arc<Mix>>,
    /// `-L`, without hierarchical resources.
    pub licenses: Option<String>,
    /// The hierarchical resources of `-L`; `None`: none.
    pub(crate) hres: Option<Arc<[HresAsk]>>,
    /// Its view of reservations.
    pub reservation: Viewer,
    /// Generic resources; `None`: none are requested.
    pub gres: Option<Arc<GresRequest>>,
    /// `-w`, as indices, ascending; a name that no node has makes the job unplaceable and is in [`Self::unknown_nodes`].
    pub nodelist: Vec<NodeIndex>,
    /// Tasks on each node of a list (`-m arbitrary`); `None`: no list.
    pub listed: Option<Arc<[(NodeIndex, u32)]>>,
    /// `-x`, ascending.
    pub exclude: Vec<NodeIndex>,
    /// Some name of the node list belongs to no node.
    pub unknown_nodes: bool,
    /// Time limit of the run.
    pub limit_secs: Option<u64>,
    /// The expected run time, if that is less (`time_min_as_soft_limit`).
    pub taken_secs: Option<u64>,
    /// What it requests of the partition's topology; `None`: it is not bound to one.
    pub(crate) near: Option<Near>,
}

/// How often a job's list of task nodes names each node. A list that does not match the requested tasks and nodes (they were
/// changed since) is ignored.
fn listed(
    spec: &JobSpec,
    nodelist: &[NodeIndex],
    names: &dyn Fn(&str) -> Option<NodeIndex>,
) -> Option<Arc<[(NodeIndex, u32)]>> {
    let list = &spec.layout.task_nodes;
    if spec.layout.distribution != Some(Distribution::Arbitrary) || spec.tasks != u32::try_from(list.len()).ok() {
        return None;
    }
    let mut counts: BTreeMap<NodeIndex, u32> = BTreeMap::new();
    list.iter().filter_map(|name| names(name)).for_each(|node| *counts.entry(node).or_default() += 1);
    counts.keys().eq(nodelist).then(|| counts.into_iter().collect())
}

/// What a request asks of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Near {
    /// At most so many leaf switches, until that time.
    pub switches: Option<(u32, Timestamp)>,
    /// Number of nodes of a segment.
    pub segment: Option<u32>,
    /// No base block has nodes of two segments.
    pub spread: bool,
    /// All segments are in one aggregated block.
    pub consolidate: bool,
    /// No other job is in its leaf switches or blocks.
    pub exclusive: bool,
}

impl Near {
    fn of(view: &ClusterView, job: &JobView, place: usize) -> Option<Self> {
        view.topology(place)?;
        let asked = &job.spec.topology;
        let exclusive = asked.exclusive || view.partitions[place].exclusive_topo;
        if view.policy.topologies.optional() && asked.switches.is_none() && asked.segment.is_none() && !exclusive {
            return None;
        }
        let patience = asked.switches_wait_secs.map_or(view.policy.switch_wait, Duration::from_secs);
        let until = job.eligible_time.unwrap_or(job.submit_time).plus(patience.min(view.policy.switch_wait));
        Some(Self {
            switches: asked.switches.filter(|most| *most > 0).map(|most| (most, until)),
            segment: asked.segment.filter(|size| *size > 0),
            spread: asked.spread_segments,
            consolidate: asked.consolidate_segments,
            exclusive,
        })
    }
}

impl Request {
    /// Is one CPU enough?
    pub(crate) fn is_serial(&self) -> bool {
        self.min_nodes <= 1
            && self.min_cpus <= 1
            && self.cpus_per_task <= 1
            && self.tasks.is_none_or(|tasks| tasks <= 1)
            && self.tasks_each.is_none_or(|tasks| tasks <= 1)
            && self.usage == NodeUse::Cpus
            && self.gres.is_none()
    }

    /// The job's request in that partition.
    pub fn new(view: &ClusterView, job: &JobView, place: usize, names: &dyn Fn(&str) -> Option<NodeIndex>) -> Self {
        let partition = &view.partitions[place];
        let spec = &job.spec;
        let explicit_tasks = spec.tasks.is_some() || (spec.nodes.is_none() && spec.tasks_per_node.is_none());
        let min_nodes = job.min_nodes.max(partition.min_nodes.min(job.max_nodes)).max(1);
        let max_nodes = partition.max_nodes.map_or(job.max_nodes, |most| job.max_nodes.min(most)).max(min_nodes);
        let ranged = spec.nodes.is_some_and(|n| n.max.is_some_and(|max| max > n.min));
        let nodelist = places_of(&spec.nodelist, names);
        let unknown_nodes = spec.nodelist.iter().any(|name| names(name).is_none());
        // A job with `--spread-job` is not placed near (sbatch(1)).
        let near = if spec.layout.spread { None } else { Near::of(view, job, place) };
        let (licenses, hres) = HresAsk::of(&view.licenses.hres, spec.licenses.as_deref());
        let gres = gres_need(&spec.gres);
        let most_memory = partition.max_memory.or(view.policy.max_memory);
        let wish = if spec.topology.exclusive { Sharing::Exclusive } else { spec.sharing };
        Self {
            partition: place,
            owner: Owner { user: job.uid, label: Label::of(spec.mcs_label.as_deref()) },
            tasks: explicit_tasks.then_some(job.tasks.max(1)),
            tasks_each: spec.tasks_per_node,
            tasks_named: spec.tasks.is_some() || spec.tasks_per_node.is_some(),
            cpus_per_task: job.cpus_per_task.max(1),
            min_cpus: spec.min_cpus_per_node.unwrap_or(0),
            min_nodes,
            max_nodes,
            want_nodes: match spec.layout.fewest_nodes {
                false if ranged || spec.layout.spread => max_nodes.min(most_nodes(gres.as_deref())).max(min_nodes),
                _ => min_nodes,
            },
            node_sizes: spec.node_sizes.clone(),
            fewest_nodes: spec.layout.fewest_nodes,
            memory: memory_each(view, partition, job, most_memory),
            max_memory: most_on_node(most_memory),
            least_memory_mib: if view.policy.memory { 0 } else { memory_of_node(job) },
            tmp_disk_mib: spec.tmp_disk_mib,
            // With a topology, the order of nodes has another meaning (`--contiguous` in sbatch(1)).
            contiguous: spec.contiguous && near.is_none(),
            usage: NodeUse::of(wish, partition, view.policy.unit),
            left_to_system: spec.layout.left_to_system,
            layout: Layout::of(view, &spec.layout),
            one_task_per_core: view.policy.one_task_per_core,
            over_sockets: spec.layout.within.sockets.unwrap_or(view.policy.over_sockets),
            packs: packs(spec.layout.distribution, view.policy.pack_nodes),
            least_loaded: view.policy.least_loaded || partition.least_loaded,
            caps: partition.caps,
            mix: spec.constraint.as_deref().and_then(mix_of),
            constraint: spec.constraint.clone().filter(|c| !c.is_empty()),
            extra: spec.extra.clone().filter(|_| view.policy.extra_constraints),
            licenses,
            hres,
            reservation: None,
            gres,
            listed: listed(spec, &nodelist, names),
            nodelist,
            exclude: places_of(&spec.exclude, names),
            unknown_nodes,
            limit_secs: match run_limit(job, partition) {
                TimeLimit::Secs(secs) => Some(secs),
                TimeLimit::Unlimited => None,
            },
            taken_secs: None,
            near,
        }
    }

    /// The same with another constraint.
    #[must_use]
    pub(crate) fn with_constraint(&self, text: &str) -> Self {
        Self { constraint: Some(text.to_owned()), mix: mix_of(text), ..self.clone() }
    }

    /// Amounts alone do not say whether it fits: times are tried one by one.
    pub(crate) fn is_particular(&self) -> bool {
        self.counts_cpus_or_nodes() || self.is_particular_otherwise()
    }

    fn counts_cpus_or_nodes(&self) -> bool {
        self.caps.count(self.usage) || !self.node_sizes.is_empty()
    }

    fn is_particular_otherwise(&self) -> bool {
        let bound = self.gres.as_ref().is_some_and(|gres| is_strict(gres));
        self.contiguous || !self.nodelist.is_empty() || self.mix.is_some() || self.hres.is_some() || bound
    }

    /// Is that only because of its partition's CPU limits, or the numbers of nodes that it may have? Then it never fits before
    /// amounts say that it does.
    pub(crate) fn fits_by_amounts_first(&self) -> bool {
        self.counts_cpus_or_nodes() && !self.is_particular_otherwise()
    }

    /// The same after the wait for few switches is over.
    #[must_use]
    pub(crate) fn on_any_switches(mut self) -> Self {
        if let Some(near) = &mut self.near {
            near.switches = None;
        }
        self
    }

    /// The same as of that time.
    #[must_use]
    pub fn as_of(self, at: Timestamp) -> Self {
        let over = self.near.as_ref().and_then(|near| near.switches).is_some_and(|(_, until)| until <= at);
        if over { self.on_any_switches() } else { self }
    }

    /// CPUs that it has of a node with exclusive use.
    pub fn whole(&self, shape: &NodeShape) -> CpuSet {
        self.left_to_system.map_or_else(|| shape.job_cpus(), |left| shape.job_cpus_but(left))
    }

    /// CPUs of a node that it could have with exclusive use, without those that come with GPUs, if the request says what is left
    /// to the system.
    pub(crate) fn own_share(&self, shape: &NodeShape) -> Option<CpuSet> {
        let left = self.left_to_system.filter(|_| self.usage == NodeUse::Whole)?;
        Some(shape.job_cpus_but(left).difference(&shape.restricted_cpus()))
    }

    /// The most that may be taken of so much memory of a node.
    pub(crate) fn most_memory(&self, free: u64) -> u64 {
        self.max_memory.map_or(free, |most| free.min(most))
    }

    /// Fewest tasks that a node of the allocation must be able to run.
    pub(crate) fn least_tasks(&self) -> u32 {
        if self.tasks.is_some() { 1 } else { self.tasks_each.unwrap_or(1).max(1) }
    }

    /// The same with the least part of the total that every node must give.
    pub(crate) fn least_part(&self) -> Part {
        Part { tasks: self.least_tasks().max(1), total: self.total_gres().one_each() }
    }

    /// The part of each node when the fewest nodes share everything evenly.
    pub(crate) fn even_part(&self) -> Part {
        let nodes = self.min_nodes.max(1);
        let least = self.least_part();
        let tasks = self.total_tasks().div_ceil(nodes).max(least.tasks);
        Part { tasks, total: self.total_gres().part(nodes.into()).max(least.total) }
    }

    /// Tasks on that node according to a list.
    pub(crate) fn tasks_listed_on(&self, node: usize) -> Option<u32> {
        self.listed.as_ref()?.iter().find(|(index, _)| index.0 as usize == node).map(|(_, tasks)| *tasks)
    }

    /// Generic resources requested for all nodes together.
    pub(crate) fn total_gres(&self) -> Totals {
        self.gres.as_ref().map_or(Totals::NONE, |gres| gres.totals())
    }

    /// Tasks that the fewest nodes have to hold together.
    pub(crate) fn total_tasks(&self) -> u32 {
        self.tasks.unwrap_or_else(|| self.least_tasks().saturating_mul(self.min_nodes))
    }

    /// Nodes of the partition that the job could use if they were free: features and exclusions are applied.
    pub(crate) fn candidates(&self, members: &FixedBitSet, features: Option<&FixedBitSet>) -> FixedBitSet {
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

/// Do tasks fill a node before the next, also on whole nodes? If the job does not say, the site's setting holds.
const fn packs(asked: Option<Distribution>, unless_said: bool) -> bool {
    match asked {
        Some(Distribution::BlockPack) => true,
        Some(Distribution::Block) | None => unless_said,
        Some(_) => false,
    }
}

const fn most_on_node(most: Option<MemoryPer>) -> Option<u64> {
    match most {
        Some(MemoryPer::Node(MemoryMib(most))) if most > 0 => Some(most),
        _ => None,
    }
}

/// Indices of the known nodes among these names, ascending.
fn places_of(list: &[String], names: &dyn Fn(&str) -> Option<NodeIndex>) -> Vec<NodeIndex> {
    let mut places: Vec<NodeIndex> = list.iter().filter_map(|name| names(name)).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// Each node has at least one device of each type, so more nodes than devices are impossible.
fn most_nodes(gres: Option<&GresRequest>) -> u32 {
    match gres.map_or(0, |gres| gres.totals().most_nodes()) {
        0 => u32::MAX,
        most => u32::try_from(most).unwrap_or(u32::MAX),
    }
}

/// What a job asks for of a node, where it is no resource that jobs are given: nodes with less are not for it, as in Slurm.
fn memory_of_node(job: &JobView) -> u64 {
    match job.spec.memory {
        MemoryRequest::PerNode(MemoryMib(mib)) => mib,
        MemoryRequest::PerCpu(MemoryMib(mib)) => mib.saturating_mul(u64::from(job.cpus_per_task.max(1))),
        MemoryRequest::All | MemoryRequest::Default => 0,
    }
}

fn memory_each(view: &ClusterView, partition: &PartitionFacts, job: &JobView, most: Option<MemoryPer>) -> MemoryNeed {
    match (job.spec.gres.mem_per_gpu, memory_in(view, partition, job)) {
        (Some(MemoryMib(mib)), MemoryRequest::Default) if view.policy.memory => MemoryNeed::PerGpu(mib),
        (_, memory) => match (memory_need(view.policy.memory, memory), most) {
            (MemoryNeed::All, Some(MemoryPer::Cpu(MemoryMib(most)))) if most > 0 => MemoryNeed::AllWithin(most),
            (need, _) => need,
        },
    }
}

/// The part that placement has to consider. If GPUs are requested per task, their total follows from the tasks.
fn gres_need(asked: &GresRequest) -> Option<Arc<GresRequest>> {
    if asked.is_empty() {
        return None;
    }
    let mut need = asked.clone();
    if need.per_task.iter().any(|each| each.name == GPU) {
        need.total.clear();
    }
    Some(Arc::new(need))
}

fn mix_of(text: &str) -> Option<Arc<Mix>> {
    if !Wish::is_together(text) {
        return None;
    }
    match Wish::parse(text) {
        Ok(Wish::Together(mix)) => Some(Arc::new(mix)),
        Ok(Wish::Each(_)) | Err(_) => None,
    }
}

/// The memory that the job requests in that partition. Partitions have defaults of their own.
fn memory_in(view: &ClusterView, partition: &PartitionFacts, job: &JobView) -> MemoryRequest {
    match job.spec.memory {
        MemoryRequest::Default if job.partitions.len() > 1 && job.spec.gres.mem_per_gpu.is_none() => {
            default_memory(partition.def_memory.or(view.policy.def_memory))
        }
        _ => job.memory,
    }
}

/// The memory that a job gets that requests none.
pub const fn default_memory(default: Option<MemoryPer>) -> MemoryRequest {
    match default {
        Some(MemoryPer::Node(mib)) => MemoryRequest::PerNode(mib),
        Some(MemoryPer::Cpu(mib)) => MemoryRequest::PerCpu(mib),
        None => MemoryRequest::Default,
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

/// The time limit of a run in this partition: the job's own, or else the partition's default, or else its maximum.
pub fn run_limit(job: &JobView, partition: &PartitionFacts) -> TimeLimit {
    match job.spec.time_limit {
        Some(_) => job.time_limit,
        None => partition.limit_unsaid(),
    }
}

/// The part of a request on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Tasks.
    pub tasks: u32,
    /// Of the generic resource that is requested for all nodes together.
    pub total: Totals,
}

/// Amounts alone do not say whether it fits.
pub(crate) fn is_strict(gres: &GresRequest) -> bool {
    gres.binding == Some(GresBinding::Enforce) || !gres.per_socket.is_empty()
}

pub(crate) fn without_limit(request: &Request) -> Request {
    Request { limit_secs: None, taken_secs: None, ..request.clone() }.on_any_switches()
}
