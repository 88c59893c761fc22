//! What one job asks of one partition, in numbers: the form that node selection works on.

use super::{
    caps::CpuCaps,
    constraint::{Mix, Wish},
    facts::{AllocationUnit, ClusterView, PartitionFacts, PartitionSharing},
    hres::HresAsk,
    layout::Layout,
    reservations::Eyes,
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

/// Owner of requests where that does not matter. No user has this id: `chown(2)` takes it for "leave it".
pub const ANYBODY: u32 = u32::MAX;

/// An MCS label in a plan: a number of its text, so that it can be copied and compared in no time. Two labels of one number
/// would be proposed to one node; its own account compares the texts and refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u64);

impl Label {
    /// Of jobs without a label.
    pub const NONE: Self = Self(0);
    /// Of requests where labels do not matter.
    pub const ANY: Self = Self(u64::MAX);

    /// FNV-1a, which is the same in every run.
    pub fn of(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::NONE };
        let mixed = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(text.bytes().fold(0xcbf2_9ce4_8422_2325, mixed).clamp(1, u64::MAX - 1))
    }
}

/// Whose a job is, as far as it matters to the nodes that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// [`ANYBODY`] where no node is kept to a user.
    pub user: u32,
    /// [`Label::ANY`] where no node is kept to a label.
    pub label: Label,
}

impl Owner {
    /// Nobody in particular.
    pub const ANYBODY: Self = Self { user: ANYBODY, label: Label::ANY };

    /// The owner of a hold.
    pub fn of(hold: &NodeHold) -> Self {
        Self { user: hold.uid, label: Label::of(hold.mcs_label.as_deref()) }
    }

    /// As far as that matters.
    #[must_use]
    pub const fn where_matters(self, matters: Matters) -> Self {
        Self {
            user: if matters.users { self.user } else { ANYBODY },
            label: if matters.labels { self.label } else { Label::ANY },
        }
    }
}

/// What of the owners of jobs matters to the nodes that they may have. Where nothing does, jobs of all owners that ask for the
/// same are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matters {
    /// Somebody keeps a node to a user, or wants to.
    pub users: bool,
    /// Somebody keeps a node to an MCS label, or wants to.
    pub labels: bool,
}

impl Matters {
    /// What matters where jobs want their nodes, or have them, in these ways.
    pub fn of(sharing: impl Iterator<Item = Sharing>) -> Self {
        sharing.fold(Self { users: false, labels: false }, |matters, sharing| Self {
            users: matters.users || sharing == Sharing::User,
            labels: matters.labels || sharing == Sharing::Mcs,
        })
    }
}

/// How a job uses the nodes that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeUse {
    /// CPUs of its own; other jobs may have the rest.
    Cpus,
    /// CPUs shared with up to this many holders in all.
    Oversubscribe(u32),
    /// CPUs of its own; the rest only for jobs of the same user.
    User,
    /// CPUs of its own; the rest only for jobs of the same MCS label.
    Label,
    /// The whole node.
    Whole,
}

impl NodeUse {
    /// What the job's wish comes to in this partition. `FORCE` leaves users no choice; `YES` needs the wish.
    pub fn of(wish: Sharing, partition: &PartitionFacts, unit: AllocationUnit) -> Self {
        match (partition.sharing, wish) {
            _ if partition.exclusive_topo => Self::Whole,
            (PartitionSharing::Exclusive, _) => Self::Whole,
            // A node is kept to a user or to a label: who is to have both has it whole.
            (_, Sharing::Mcs) if unit == AllocationUnit::Node || partition.exclusive_user => Self::Whole,
            // What keeps labels apart goes before what puts jobs together.
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

    /// In the words of views.
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

/// Memory asked for on each node, with defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryNeed {
    /// Memory is not accounted.
    None,
    /// This much.
    PerNode(u64),
    /// This much for each CPU that is given.
    PerCpu(u64),
    /// This much for each GPU that is given.
    PerGpu(u64),
    /// All that the node has.
    All,
    /// All that the node has, but no more than this for each CPU that is given (`MaxMemPerCPU`).
    AllWithin(u64),
}

/// One job in one partition. Equal requests are interchangeable to node selection, which is used to skip repeats.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Place of the partition in the view.
    pub partition: usize,
    /// Owner: matters on nodes that are kept to a user or a label ([`ClusterView::matters`]).
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
    /// As few nodes as do of several numbers.
    pub fewest_nodes: bool,
    /// Memory.
    pub memory: MemoryNeed,
    /// Most memory taken of a node (`MaxMemPerNode`), MiB.
    pub max_memory: Option<u64>,
    /// TmpDisk, MiB.
    pub tmp_disk_mib: u64,
    /// Consecutive nodes only.
    pub contiguous: bool,
    /// How nodes are used.
    pub usage: NodeUse,
    /// What it leaves to the system of a node that it has to itself; `None`: what the node says.
    pub left_to_system: Option<SpecCores>,
    /// Sockets, cores and threads; `None`: any.
    pub layout: Option<Layout>,
    /// A task has its cores to itself.
    pub one_task_per_core: bool,
    /// How it gets CPUs of several sockets.
    pub over_sockets: CpuOrder,
    /// Tasks fill a node before the next also where it has nodes to itself.
    pub packs: bool,
    /// Nodes with the most free CPUs first.
    pub least_loaded: bool,
    /// Most CPUs that all jobs of the partition have of a node.
    pub caps: CpuCaps,
    /// `-C`.
    pub constraint: Option<String>,
    /// `--extra`, where nodes are filtered by it.
    pub extra: Option<String>,
    /// What [`Self::constraint`] says of the nodes together; `None`: nothing.
    pub mix: Option<Arc<Mix>>,
    /// `-L`, without hierarchical resources.
    pub licenses: Option<String>,
    /// The hierarchical resources of `-L`; `None`: there are none.
    pub hres: Option<Arc<[HresAsk]>>,
    /// With whose eyes it looks at nodes.
    pub reservation: Eyes,
    /// Generic resources; `None`: none are asked for.
    pub gres: Option<Arc<GresRequest>>,
    /// `-w`, as indices, ascending; a name that no node has makes the job unplaceable and is in [`Self::unknown_nodes`].
    pub nodelist: Vec<NodeIndex>,
    /// Tasks of the nodes that a list names for each (`-m arbitrary`); `None`: nothing says that.
    pub listed: Option<Arc<[(NodeIndex, u32)]>>,
    /// `-x`, ascending.
    pub exclude: Vec<NodeIndex>,
    /// Some name of the node list belongs to no node.
    pub unknown_nodes: bool,
    /// Limit of the run.
    pub limit_secs: Option<u64>,
    /// How long it is taken to run where that is less (`time_min_as_soft_limit`).
    pub taken_secs: Option<u64>,
    /// What it asks of the partition's topology; `None`: it is not bound to one.
    pub near: Option<Near>,
}

/// How often a job's list of its tasks' nodes has each node. A list that is not about the tasks and nodes that are asked for
/// (they were changed since) says nothing.
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
pub struct Near {
    /// No more leaf switches than these, until then.
    pub switches: Option<(u32, Timestamp)>,
    /// Nodes of a segment.
    pub segment: Option<u32>,
    /// No base block has nodes of two segments.
    pub spread: bool,
    /// All segments are in one aggregated block.
    pub consolidate: bool,
    /// Nobody else is in its leaf switches or blocks.
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
    /// Does one CPU do?
    pub fn is_serial(&self) -> bool {
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
        // It is not to be near (`--spread-job` in sbatch(1)).
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
            tmp_disk_mib: spec.tmp_disk_mib,
            // The order of nodes means something else in a topology (`--contiguous` in sbatch(1)).
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

    /// The same with other features asked for.
    #[must_use]
    pub fn with_constraint(&self, text: &str) -> Self {
        Self { constraint: Some(text.to_owned()), mix: mix_of(text), ..self.clone() }
    }

    /// Amounts alone do not say whether it fits: times are tried one by one.
    pub fn is_particular(&self) -> bool {
        self.counts_cpus_or_nodes() || self.is_particular_otherwise()
    }

    fn counts_cpus_or_nodes(&self) -> bool {
        self.caps.count(self.usage) || !self.node_sizes.is_empty()
    }

    fn is_particular_otherwise(&self) -> bool {
        let bound = self.gres.as_ref().is_some_and(|gres| is_strict(gres));
        self.contiguous || !self.nodelist.is_empty() || self.mix.is_some() || self.hres.is_some() || bound
    }

    /// Is it the limits of its partition's CPUs alone that make it so, or the numbers of nodes that it may have? It never fits
    /// before amounts say that it does.
    pub fn fits_by_amounts_first(&self) -> bool {
        self.counts_cpus_or_nodes() && !self.is_particular_otherwise()
    }

    /// The same once the wait for few switches is over.
    #[must_use]
    pub fn on_any_switches(mut self) -> Self {
        if let Some(near) = &mut self.near {
            near.switches = None;
        }
        self
    }

    /// The same as it counts at that time.
    #[must_use]
    pub fn as_of(self, at: Timestamp) -> Self {
        let over = self.near.as_ref().and_then(|near| near.switches).is_some_and(|(_, until)| until <= at);
        if over { self.on_any_switches() } else { self }
    }

    /// CPUs that it has of a node to itself.
    pub fn whole(&self, shape: &NodeShape) -> CpuSet {
        self.left_to_system.map_or_else(|| shape.job_cpus(), |left| shape.job_cpus_but(left))
    }

    /// CPUs of a node that it could have to itself, other than those that come with GPUs, where it says itself what is
    /// left to the system.
    pub fn own_share(&self, shape: &NodeShape) -> Option<CpuSet> {
        let left = self.left_to_system.filter(|_| self.usage == NodeUse::Whole)?;
        Some(shape.job_cpus_but(left).difference(&shape.restricted_cpus()))
    }

    /// What may be taken of so much memory of a node.
    pub fn most_memory(&self, free: u64) -> u64 {
        self.max_memory.map_or(free, |most| free.min(most))
    }

    /// Fewest tasks that a node of the allocation must be able to run.
    pub fn least_tasks(&self) -> u32 {
        if self.tasks.is_some() { 1 } else { self.tasks_each.unwrap_or(1).max(1) }
    }

    /// The same with what every node must give of what is asked for on all of them together.
    pub fn least_part(&self) -> Part {
        Part { tasks: self.least_tasks().max(1), total: self.total_gres().one_each() }
    }

    /// What each node has when the fewest nodes share everything evenly.
    pub fn even_part(&self) -> Part {
        let nodes = self.min_nodes.max(1);
        let least = self.least_part();
        let tasks = self.total_tasks().div_ceil(nodes).max(least.tasks);
        Part { tasks, total: self.total_gres().part(nodes.into()).max(least.total) }
    }

    /// Tasks that a list has for that node.
    pub fn tasks_listed_on(&self, node: usize) -> Option<u32> {
        self.listed.as_ref()?.iter().find(|(index, _)| index.0 as usize == node).map(|(_, tasks)| *tasks)
    }

    /// Generic resources asked for on all nodes together.
    pub fn total_gres(&self) -> Totals {
        self.gres.as_ref().map_or(Totals::NONE, |gres| gres.totals())
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

/// Do tasks fill a node before the next also where it has nodes to itself? Where it does not say, as the site has it.
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

/// Nodes of these names that there are, ascending.
fn places_of(list: &[String], names: &dyn Fn(&str) -> Option<NodeIndex>) -> Vec<NodeIndex> {
    let mut places: Vec<NodeIndex> = list.iter().filter_map(|name| names(name)).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// Each node has one of each type at least: more nodes than that cannot be.
fn most_nodes(gres: Option<&GresRequest>) -> u32 {
    match gres.map_or(0, |gres| gres.totals().most_nodes()) {
        0 => u32::MAX,
        most => u32::try_from(most).unwrap_or(u32::MAX),
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

/// What placement has to look at. Where each task brings its GPUs, how many there are in all follows from the tasks.
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

/// What the job asks for in that partition. Partitions have defaults of their own.
fn memory_in(view: &ClusterView, partition: &PartitionFacts, job: &JobView) -> MemoryRequest {
    match job.spec.memory {
        MemoryRequest::Default if job.partitions.len() > 1 && job.spec.gres.mem_per_gpu.is_none() => {
            default_memory(partition.def_memory.or(view.policy.def_memory))
        }
        _ => job.memory,
    }
}

/// What a job that names no memory asks for.
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

/// The limit that a run in this partition gets: the job's own, else the partition's default, else its maximum.
pub fn run_limit(job: &JobView, partition: &PartitionFacts) -> TimeLimit {
    match job.spec.time_limit {
        Some(_) => job.time_limit,
        None => partition.limit_unsaid(),
    }
}

/// What of a request falls on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Tasks.
    pub tasks: u32,
    /// Of the generic resource that is asked for on all nodes together.
    pub total: Totals,
}

/// Amounts alone do not say whether it fits.
pub fn is_strict(gres: &GresRequest) -> bool {
    gres.binding == Some(GresBinding::Enforce) || !gres.per_socket.is_empty()
}

pub(crate) fn without_limit(request: &Request) -> Request {
    Request { limit_secs: None, taken_secs: None, ..request.clone() }.on_any_switches()
}
