//! Questions about a job that is not in the queue: could it ever run here, and when would it start?

use super::{Plan, plan_minding};
use crate::{
    proposals::StartProposal,
    room::{
        hres::{self, Room},
        licenses::LicensePlan,
        machine::Machine,
        node::free::Amount,
        reserved::Reservation,
        select,
    },
    rules::{
        expedited::earliest,
        features::{Features, node_names},
        limits,
    },
    snapshot::{
        facts::{Backfill, ClusterView, NEVER, UNLIMITED_FOR_PLANNING},
        qos::with_each,
        request::{MemoryNeed, NodeUse, Owner, Request, run_limit, without_limit},
    },
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    config::PreemptType,
    hostlist::HostList,
    ids::NodeIndex,
    node_shape::NodeShare,
    resources::CpuSet,
    spec_text::licenses::LicenseRequest,
    state::Reason,
    time::Timestamp,
    view::{AllocatedNode, JobView, NodeHold, NodeView},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// What part of a request no configured node could satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infeasible {
    /// More CPUs on a node than any node has.
    Cpus,
    /// More memory than any node has.
    Memory,
    /// More temporary disk space than any node has.
    TmpDisk,
    /// More in all than there is, features that no node has, nodes that are not in the partition.
    Nodes,
}

impl Infeasible {
    /// The line that Slurm prints before its refusal, where it prints one.
    pub const fn detail(self) -> Option<&'static str> {
        match self {
            Self::Cpus => Some("CPU count per node can not be satisfied"),
            Self::Memory => Some("Memory specification can not be satisfied"),
            Self::TmpDisk => Some("Temporary disk specification can not be satisfied"),
            Self::Nodes => None,
        }
    }
}

/// Answers "could this ever run" for submissions, from node shapes and features alone. Answers are cached by request, since
/// queues have many jobs of few kinds. Make a new one when the configuration or a node's features change.
#[derive(Debug)]
pub struct Feasibility {
    view: ClusterView,
    names: HashMap<String, NodeIndex>,
    known: HashMap<Request, Result<(), Infeasible>>,
}

/// Most cached answers; when it is reached, all are dropped.
const MOST_KNOWN: usize = 4096;

impl Feasibility {
    /// For the nodes and partitions of this view; its jobs do not matter.
    pub fn new(view: ClusterView) -> Self {
        let names = view.nodes.iter().map(|n| (n.name.clone(), n.index)).collect();
        Self { view, names, known: HashMap::new() }
    }

    /// The snapshot that answers come from.
    pub const fn view(&self) -> &ClusterView {
        &self.view
    }

    /// Is there a node of that name?
    pub fn knows_node(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Nodes that have this feature now.
    pub fn nodes_with_feature(&self, feature: &str) -> HostList {
        let has = |node: &&Arc<NodeView>| node.features.iter().any(|f| f == feature);
        self.view.nodes.iter().filter(has).map(|node| node.name.as_str()).collect()
    }

    /// Does any node have that feature?
    pub fn knows_feature(&self, feature: &str) -> bool {
        self.view.nodes.iter().any(|n| n.features.iter().any(|f| f == feature))
    }

    /// Could the job run in one of its partitions if every node were idle? A request for more nodes than a partition has is not
    /// refused here: such a job may wait with `PartitionNodeLimit`.
    pub fn check(&mut self, job: &JobView) -> Result<(), Infeasible> {
        let mut worst = Infeasible::Nodes;
        for request in self.requests(job) {
            if self.known.len() >= MOST_KNOWN {
                self.known.clear();
            }
            let view = &self.view;
            let answer = *self.known.entry(request).or_insert_with_key(|request| could_run(view, request));
            match answer {
                Ok(()) => return Ok(()),
                Err(why) => worst = why,
            }
        }
        Err(worst)
    }

    /// Does one of its partitions not have the CPUs that it asks for, however idle? Such a job may wait with `PartitionConfig`.
    pub fn exceeds(&self, job: &JobView) -> bool {
        let mut partitions = job.partitions.iter().filter_map(|name| self.view.partition(name));
        partitions.any(|(_, partition)| self.view.exceeds(partition, job))
    }

    /// Do both jobs get the same answer, because they request the same in the same partitions?
    pub fn ask_alike(&self, one: &JobView, other: &JobView) -> bool {
        self.requests(one) == self.requests(other)
    }

    /// The job's request in each of its partitions.
    fn requests(&self, job: &JobView) -> Vec<Request> {
        let in_partition = |name: &String| {
            let (place, partition) = self.view.partition(name)?;
            let request = Request::new(&self.view, job, place, &|name| self.names.get(name).copied());
            let mut request = without_limit(&request);
            // On an empty cluster no node is kept to a user or a label.
            request.owner = Owner::ANYBODY;
            // A node's `Extra` data changes, and licenses are not about nodes.
            (request.extra, request.licenses) = (None, None);
            let members = u32::try_from(partition.nodes.count_ones(..)).unwrap_or(u32::MAX);
            if request.min_nodes > members && members > 0 {
                request.min_nodes = members;
                request.want_nodes = members;
                request.tasks = request.tasks.map(|_| members);
                request.node_sizes = Default::default();
                request.near = None;
            }
            Some(request)
        };
        job.partitions.iter().filter_map(in_partition).collect()
    }

    /// Could all components of a heterogeneous job, each of which could run alone, run at one time if every node were idle and
    /// every license free? Only certain conflicts count: more licenses than there are, more exclusive nodes than all components
    /// may use together, a node that one component names and needs whole while another needs it too.
    pub fn check_together(&self, members: &[JobView]) -> Result<(), Infeasible> {
        if self.licenses_exceed(members) {
            return Err(Infeasible::Nodes);
        }
        let mut features = Features::new(&self.view);
        let mut all = FixedBitSet::with_capacity(self.view.nodes.len());
        let (mut least, mut shares) = (0, false);
        let mut named: HashMap<NodeIndex, bool> = HashMap::new();
        for job in members {
            let requests = self.requests(job);
            let mut own = FixedBitSet::with_capacity(self.view.nodes.len());
            for request in &requests {
                own.union_with(&features.candidates(request));
            }
            // If it does not fit alone, it waits for nodes that may come.
            if own.count_ones(..) < job.min_nodes as usize {
                return Ok(());
            }
            let whole = requests.iter().all(|request| request.usage == NodeUse::Whole);
            if whole {
                least += job.min_nodes as usize;
            }
            shares |= !whole;
            all.union_with(&own);
            for node in requests.first().map(|request| request.nodelist.as_slice()).unwrap_or_default() {
                if named.insert(*node, whole).is_some_and(|other| whole || other) {
                    return Err(Infeasible::Nodes);
                }
            }
        }
        let needed = least + usize::from(shares);
        if needed > all.count_ones(..) { Err(Infeasible::Nodes) } else { Ok(()) }
    }

    fn licenses_exceed(&self, members: &[JobView]) -> bool {
        let mut asked: BTreeMap<String, u64> = BTreeMap::new();
        for job in members {
            let Some(request) = LicenseRequest::of(&job.spec) else { continue };
            let [one] = request.alternatives.as_slice() else { continue };
            for license in &one.0 {
                *asked.entry(license.name.clone()).or_default() += u64::from(license.count);
            }
        }
        let total = |name: &str| self.view.licenses.totals.get(name);
        asked.iter().any(|(name, count)| total(name).is_some_and(|total| u64::from(*total) < *count))
    }
}

fn could_run(view: &ClusterView, request: &Request) -> Result<(), Infeasible> {
    let machine = Machine::ideal(view);
    let candidates = Features::new(view).candidates(request);
    let room = Room::whole(&view.licenses.hres, request);
    if hres::place(&machine, request, &candidates, None, room.as_ref()).is_some() {
        return Ok(());
    }
    if let Some(room) = &room
        && select::place(&machine, request, &candidates).is_some()
    {
        // If the search does not try every choice of nodes, one that it did not find may exist.
        let might = !room.is_sought_everywhere(request) && room.bears(request, &candidates);
        return if might { Ok(()) } else { Err(Infeasible::Nodes) };
    }
    let could_without = |request: &Request| select::place(&machine, request, &candidates).is_some();
    if could_without(&Request { memory: MemoryNeed::None, least_memory_mib: 0, ..request.clone() }) {
        return Err(Infeasible::Memory);
    }
    if could_without(&Request { tmp_disk_mib: 0, ..request.clone() }) {
        return Err(Infeasible::TmpDisk);
    }
    let per_node = request.cpus_per_task.saturating_mul(request.least_tasks()).max(request.min_cpus);
    let largest =
        candidates.ones().filter_map(|n| view.nodes.get(n)).map(|n| n.shape.job_cpu_count()).max().unwrap_or(0);
    if largest > 0 && per_node > largest { Err(Infeasible::Cpus) } else { Err(Infeasible::Nodes) }
}

/// When and where a job would start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WouldStart {
    /// Start time.
    pub at: Timestamp,
    /// Partition.
    pub partition: String,
    /// Nodes.
    pub nodes: Vec<AllocatedNode>,
}

/// Why a job, or a component, gets no resources however long it waits: what its partitions refuse, or else the reason that a plan
/// gives.
pub fn declined(view: &ClusterView, members: &[JobView], now: Timestamp) -> Reason {
    let Some(first) = members.first().map(|job| job.id) else { return Reason::BadConstraints };
    if let Some(reason) = members.iter().find_map(|job| barred(view, job)) {
        return reason;
    }
    let waiting = members.iter().cloned().map(|job| Arc::new(JobView { eligible: true, ..job })).collect();
    let alone = ClusterView { pending: waiting, ..with_all_ends(view, now) };
    let plan = plan_minding(&alone, now, first);
    plan.reasons.into_iter().find(|(job, _)| *job == first).map_or(Reason::BadConstraints, |(_, reason)| reason)
}

/// Why no partition of the job takes it, whatever is free; `None`: one does.
fn barred(view: &ClusterView, job: &JobView) -> Option<Reason> {
    let mut why = None;
    for (_, partition) in job.partitions.iter().filter_map(|name| view.partition(name)) {
        for job in with_each(job) {
            why = Some(limits::gate(view, &job, partition).err()?);
        }
    }
    why
}

/// Adds the job to the queue of the snapshot and makes a plan. Returns when and where it starts or has resources reserved, behind
/// all jobs that go before it, however many and however far ahead. If the plan reserves nothing for it, the answer is the
/// earliest time at which running jobs leave enough resources. `None`: no end in sight (nodes down, limits).
pub fn would_start(view: &ClusterView, job: &JobView, now: Timestamp) -> Option<WouldStart> {
    let mut job = job.clone();
    job.eligible = true;
    let view = &with_all_ends(view, now);
    if let Some(mut start) = in_the_queue(view, view.pending.clone(), std::slice::from_ref(&job), now) {
        return start.pop();
    }
    let names = node_names(view);
    let mut features = Features::new(view);
    let mut best: Option<WouldStart> = None;
    for name in &job.partitions {
        let Some((place, partition)) = view.partition(name) else { continue };
        if with_each(&job).iter().all(|job| limits::gate(view, job, partition).is_err()) {
            continue;
        }
        let mut request = Request::new(view, &job, place, &|name| names.get(name).copied()).as_of(now);
        let mut candidates = features.candidates(&request);
        let viewer = view.reservations.viewers(&job, name, now).into_iter().next_back();
        let Some(viewer) = viewer else { continue };
        request.reservation = viewer;
        view.reservations.restrict(viewer, &mut candidates);
        candidates.difference_with(&view.reservations.closed(viewer, now, now, NEVER));
        let Some((at, nodes)) = earliest(view, now, job.id, &request, &candidates, &[]) else { continue };
        let length = run_limit(&job, partition).duration().unwrap_or(UNLIMITED_FOR_PLANNING);
        let mut plan = LicensePlan::among(&view.licenses, &view.reservations, now);
        plan.look(viewer);
        let room = Room::whole(&view.licenses.hres, &request);
        let licenses = plan
            .earliest(request.licenses.as_deref(), at, length)
            .and_then(|(at, licenses)| plan.with_layers_of(room.as_ref(), &hres::places(&nodes), licenses, at, length));
        if let Some((at, _)) = licenses
            && best.as_ref().is_none_or(|b| at < b.at)
        {
            best = Some(WouldStart { at, partition: name.clone(), nodes });
        }
    }
    best
}

/// The same for a heterogeneous job, the leader first: when all of it starts. If a plan reserves nothing for it, the answer is
/// what it would get without preemption, then what it would get if no other job waited.
pub fn would_start_together(view: &ClusterView, members: &[JobView], now: Timestamp) -> Option<Vec<WouldStart>> {
    let mut members = members.to_vec();
    members.iter_mut().for_each(|job| job.eligible = true);
    let view = &with_all_ends(view, now);
    let queue = || view.pending.clone();
    in_the_queue(view, queue(), &members, now).or_else(|| {
        // A plan that preempts runs for the job waits for them and reserves nothing.
        let mut peaceful = view.clone();
        peaceful.policy.preempt.kind = PreemptType::None;
        let behind_others = in_the_queue(&peaceful, queue(), &members, now);
        behind_others.or_else(|| in_the_queue(&peaceful, Vec::new(), &members, now))
    })
}

/// The same snapshot, but runs without a time limit end too, and return their licenses then.
fn with_all_ends(view: &ClusterView, now: Timestamp) -> ClusterView {
    let mut view = view.clone();
    let end = now.plus(UNLIMITED_FOR_PLANNING);
    let endless = |hold: &NodeHold| hold.expected_end.is_none() && !hold.kept;
    for node in view.nodes.iter_mut().filter(|node| node.holds.iter().any(endless)) {
        let holds = Arc::make_mut(node).holds.iter_mut();
        holds.filter(|hold| endless(hold)).for_each(|hold| hold.expected_end = Some(end));
    }
    view.licenses.held.iter_mut().for_each(|(_, _, until)| *until = until.or(Some(end)));
    view
}

/// What a plan starts or reserves for a job, or for all components of one, behind the waiting jobs.
fn in_the_queue(
    view: &ClusterView,
    mut waiting: Vec<Arc<JobView>>,
    members: &[JobView],
    now: Timestamp,
) -> Option<Vec<WouldStart>> {
    let first = members.first()?.id;
    waiting.extend(members.iter().cloned().map(Arc::new));
    let mut with = ClusterView { pending: waiting, ..view.clone() };
    if with.policy.backfill != Backfill::Off {
        with.policy.backfill = Backfill::Conservative;
    }
    with.policy.shortest_first = None;
    with.policy.bounds = with.policy.bounds.map(|bounds| Arc::new(bounds.looking_at_all()));
    let Plan { starts, reservations, .. } = plan_minding(&with, now, first);
    if let Some(mut start) = starts.into_iter().find(|s| s.job == first) {
        let others = std::mem::take(&mut start.others);
        let at_once = |start: StartProposal| WouldStart { at: now, partition: start.partition, nodes: start.nodes };
        return Some(std::iter::once(start).chain(others).map(at_once).collect());
    }
    let kept = |job: &JobView| reservations.iter().filter(|r| r.job == job.id).min_by_key(|r| r.from);
    members.iter().map(|job| kept(job).map(|kept| reserved(view, kept))).collect()
}

fn reserved(view: &ClusterView, kept: &Reservation) -> WouldStart {
    let mut nodes: Vec<&(usize, Amount)> = kept.nodes.iter().collect();
    nodes.sort_unstable_by_key(|(place, _)| *place);
    // Which CPUs they are is not known that far ahead: the lowest ones stand for them.
    let node = |(place, what): &(usize, Amount)| {
        let node = &view.nodes[*place];
        let lowest = || CpuSet::from(0..what.cpus + what.with_gpus);
        let cpus = match (what.usage, &what.named) {
            (NodeUse::Whole, _) => node.shape.all_cpus(),
            (_, named) => named.clone().unwrap_or_else(lowest),
        };
        AllocatedNode { name: node.name.clone(), index: node.index, share: NodeShare { cpus, ..NodeShare::default() } }
    };
    WouldStart {
        at: kept.from,
        partition: view.partitions[kept.partition].name.clone(),
        nodes: nodes.into_iter().map(node).collect(),
    }
}
