//! What a step needs of its job's resources, derived from its request and the job's own shape. Steps with equal shapes are placed
//! alike, so thousands of equal waiting steps need not be examined one by one.

use crate::stepmgr::run::RunFacts;
use garrick_model::{
    batch::StepCgroup,
    gres::{self, GPU, GresCount, GresRequest, Totals},
    refusal::Refusal,
    resources::MemoryRequest,
    spec::{CpuBind, Distribution, StepSharing, StepSpec},
};
use std::collections::{BTreeMap, BTreeSet};

/// Memory a step needs on each of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepMemory {
    /// Its share, by CPUs, of the job's memory there.
    ByCpus,
    /// MiB per node.
    PerNode(u64),
    /// MiB per CPU given to it.
    PerCpu(u64),
    /// All of the job's memory there.
    All,
}

/// Generic resources that a step gets of its job's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StepGres {
    /// None.
    None,
    /// All that the job has on its nodes.
    All,
    /// What it requests.
    Asked(GresRequest),
}

/// Who requests a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A command that waits with it: if it names no generic resources, the step gets all of the job's (`srun(1)`).
    Attended,
    /// The queue: a step gets what it names, so that others can run beside it.
    Queue,
}

/// What a step needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StepShape {
    /// At least so many nodes.
    pub min_nodes: u32,
    /// At most.
    pub max_nodes: u32,
    /// Tasks.
    pub tasks: u32,
    /// Most tasks on a node.
    pub tasks_per_node: Option<u32>,
    /// CPUs per task.
    pub cpus_per_task: u32,
    /// Tasks may share them.
    pub overcommit: bool,
    /// Memory.
    pub memory: StepMemory,
    /// `Default`: whole nodes of the job, exclusively. `Exact`: what it requests, exclusively. `Overlap`: shared.
    pub sharing: StepSharing,
    /// For an overlapping step: only as many CPUs as requested.
    pub exact_cpus: bool,
    /// Nodes that must be among its nodes, ascending.
    pub required: Vec<u32>,
    /// Nodes that must not.
    pub excluded: Vec<u32>,
    /// First node that may be among them (`-r`).
    pub first: u32,
    /// Layout.
    pub distribution: Distribution,
    /// With [`Distribution::Arbitrary`]: the node of each task, by rank; empty: no list.
    pub task_slots: Vec<u32>,
    /// Generic resources.
    pub gres: StepGres,
    /// Binding or its own memory limit was requested: it needs its own cgroup.
    pub own_cgroup: bool,
}

/// What [`shape_of`] needs to know about the job.
#[derive(Clone, Debug)]
pub struct JobShape {
    nodes: u32,
    tasks: u32,
    slots: BTreeMap<String, u32>,
    /// The node of each of its tasks, if there is a list.
    task_nodes: Vec<String>,
    /// Block distribution is packed unless a step says otherwise.
    packs: bool,
    /// `MaxTasksPerNode`: most tasks of a step on a node.
    most_tasks: u32,
}

impl JobShape {
    /// Of a run.
    pub fn new(facts: &RunFacts, packs: bool, most_tasks: u32) -> Self {
        Self {
            nodes: facts.nodes.len() as u32,
            tasks: facts.tasks,
            slots: facts.slots_by_name(),
            task_nodes: facts.spec.layout.task_nodes.clone(),
            packs,
            most_tasks,
        }
    }

    fn slots_of(&self, names: &[String]) -> Result<Vec<u32>, Refusal> {
        let mut slots = Vec::with_capacity(names.len());
        for name in names {
            slots.push(*self.slots.get(name).ok_or_else(|| Refusal::InvalidNode(name.clone()))?);
        }
        slots.sort_unstable();
        slots.dedup();
        Ok(slots)
    }
}

/// The shape of a step: defaults filled in as `srun` documents them. An explicit `-c` implies `--exact`.
pub fn shape_of(spec: &StepSpec, job: &JobShape, asker: Asker) -> Result<StepShape, Refusal> {
    let task_slots = task_slots(spec, job)?;
    let (required, excluded, first) = named_nodes(spec, job, &task_slots)?;
    let with_gpus = spec.cpus_per_task.is_none().then(|| cpus_with_gpus(spec)).flatten();
    let cpus_per_task = spec.cpus_per_task.or(with_gpus).unwrap_or(1);
    if spec.tasks == Some(0) || cpus_per_task == 0 || spec.tasks_per_node == Some(0) {
        return Err(impossible("a count is zero".into()));
    }
    let asked_nodes = asked_nodes(spec, &task_slots);
    if let Some((min, max)) = asked_nodes
        && (min == 0 || max.is_some_and(|m| m < min))
    {
        return Err(Refusal::BadNodeCount);
    }
    let tasks = tasks_of(spec, job, &task_slots, &required);
    let exact = spec.sharing == StepSharing::Exact || spec.cpus_per_task.is_some();
    let left = job.nodes - first;
    let (min_nodes, max_nodes) = match asked_nodes {
        Some((min, max)) => (min, max.unwrap_or(left.max(min))),
        None if !required.is_empty() => (required.len() as u32, required.len() as u32),
        // Without --exact a step spreads over the nodes of its job; with it, it takes the fewest.
        None if exact || spec.sharing == StepSharing::Overlap => (1, left),
        None => (left.min(tasks), left),
    };
    let min_nodes = min_nodes.min(tasks).max(required.len().min(tasks as usize) as u32);
    if required.len() as u32 > max_nodes || required.len() as u32 > tasks {
        return Err(impossible("more nodes are named than the step may use".into()));
    }
    let on_a_node = spec.tasks_per_node.unwrap_or(0).min(tasks).max(tasks.div_ceil(max_nodes.min(left).max(1)));
    if on_a_node > job.most_tasks {
        return Err(impossible(format!(
            "{on_a_node} tasks on a node, where a step may have {} (MaxTasksPerNode)",
            job.most_tasks
        )));
    }
    let memory = memory_of(spec, max_nodes, exact)?;
    Ok(StepShape {
        min_nodes,
        max_nodes,
        tasks,
        tasks_per_node: spec.tasks_per_node,
        cpus_per_task,
        overcommit: spec.overcommit,
        memory,
        sharing: match spec.sharing {
            StepSharing::Overlap => StepSharing::Overlap,
            _ if exact => StepSharing::Exact,
            _ => StepSharing::Default,
        },
        exact_cpus: exact,
        required,
        excluded,
        first,
        distribution: match spec.distribution {
            Distribution::Block if job.packs => Distribution::BlockPack,
            other => other,
        },
        task_slots,
        gres: gres_of(spec, tasks, asker)?,
        own_cgroup: spec.step_cgroup == StepCgroup::Always
            || !matches!(spec.cpu_bind, CpuBind::Default | CpuBind::None)
            || matches!(memory, StepMemory::PerNode(_) | StepMemory::PerCpu(_)),
    })
}

/// Which slots have to be used, which may not, and the first that may.
fn named_nodes(spec: &StepSpec, job: &JobShape, task_slots: &[u32]) -> Result<(Vec<u32>, Vec<u32>, u32), Refusal> {
    let mut required = job.slots_of(&spec.nodelist)?;
    if !task_slots.is_empty() {
        required = task_slots.to_vec();
        required.sort_unstable();
        required.dedup();
    }
    // Names of nodes that the job does not have exclude nothing.
    let mut excluded: Vec<u32> = spec.exclude.iter().filter_map(|n| job.slots.get(n).copied()).collect();
    excluded.sort_unstable();
    excluded.dedup();
    let first = spec.relative.unwrap_or(0);
    if first >= job.nodes {
        return Err(impossible(format!("relative node {first} of a job with {} nodes", job.nodes)));
    }
    if required.iter().any(|slot| excluded.contains(slot)) {
        return Err(impossible("a node is both required and excluded".into()));
    }
    Ok((required, excluded, first))
}

/// The fewest and most nodes that it asks for. A list of its tasks' nodes says it already.
fn asked_nodes(spec: &StepSpec, task_slots: &[u32]) -> Option<(u32, Option<u32>)> {
    spec.nodes.filter(|_| task_slots.is_empty()).map(|n| (n.min, n.max))
}

fn tasks_of(spec: &StepSpec, job: &JobShape, task_slots: &[u32], required: &[u32]) -> u32 {
    match (spec.tasks, spec.tasks_per_node, asked_nodes(spec, task_slots)) {
        _ if !task_slots.is_empty() => u32::try_from(task_slots.len()).unwrap_or(u32::MAX),
        (Some(tasks), _, _) => tasks,
        (None, Some(per_node), Some((min, _))) => per_node * min,
        (None, Some(per_node), None) => per_node * required.len().max(1) as u32,
        (None, None, Some((min, _))) => min,
        (None, None, None) if !required.is_empty() => required.len() as u32,
        (None, None, None) => job.tasks.max(1),
    }
}

/// The node of each task by rank, if there is a list: as many entries as tasks.
fn task_slots(spec: &StepSpec, job: &JobShape) -> Result<Vec<u32>, Refusal> {
    if spec.distribution != Distribution::Arbitrary {
        return Ok(Vec::new());
    }
    // A step without a list, and with no more than what the job has, uses the job's list.
    let of_job = spec.task_nodes.is_empty()
        && spec.nodelist.is_empty()
        && spec.tasks.is_none_or(|tasks| tasks as usize <= job.task_nodes.len());
    let listed = if of_job { first_nodes(&job.task_nodes, spec) } else { &spec.task_nodes[..] };
    if listed.is_empty() {
        return Ok(Vec::new());
    }
    let named = u32::try_from(listed.len()).unwrap_or(u32::MAX);
    let tasks = spec.tasks.unwrap_or(named);
    if tasks > named {
        return Err(impossible(format!("{tasks} tasks of which a list of {named} nodes says the places")));
    }
    let slot = |name: &String| job.slots.get(name).copied().ok_or_else(|| Refusal::InvalidNode(name.clone()));
    listed.iter().take(tasks as usize).map(slot).collect()
}

/// The beginning of the job's list that names no more nodes than the step may have.
fn first_nodes<'j>(listed: &'j [String], spec: &StepSpec) -> &'j [String] {
    let Some(most) = spec.nodes.map(|nodes| nodes.max.unwrap_or(nodes.min) as usize) else { return listed };
    let mut seen = BTreeSet::new();
    let within = listed.iter().take_while(|name| {
        seen.insert(name.as_str());
        seen.len() <= most
    });
    &listed[..within.count()]
}

/// CPUs that each task brings with its GPUs: those of the step divided by its tasks, rounded up.
fn cpus_with_gpus(spec: &StepSpec) -> Option<u32> {
    let each = u64::from(spec.gres.cpus_per_gpu?);
    let gpus = match GresRequest::gpus(&spec.gres.per_task) {
        0 => {
            let all = GresRequest::gpus(&spec.gres.total).max(GresRequest::gpus(&spec.gres.on_node(0, Totals::NONE)));
            all.div_ceil(u64::from(spec.tasks.unwrap_or(1).max(1)))
        }
        of_task => of_task,
    };
    u32::try_from(each * gpus).ok().filter(|cpus| *cpus > 0)
}

/// Memory on a node: what it asks for, or what goes with its GPUs.
fn memory_of(spec: &StepSpec, max_nodes: u32, exact: bool) -> Result<StepMemory, Refusal> {
    match spec.memory {
        MemoryRequest::Default => {}
        MemoryRequest::PerNode(m) => return Ok(StepMemory::PerNode(m.0)),
        MemoryRequest::PerCpu(m) => return Ok(StepMemory::PerCpu(m.0)),
        MemoryRequest::All => return Ok(StepMemory::All),
    }
    let Some(each) = spec.gres.mem_per_gpu else { return Ok(StepMemory::ByCpus) };
    let on_node = GresRequest::gpus(&spec.gres.on_node(spec.tasks.unwrap_or(1), spec.gres.totals()));
    let known = max_nodes == 1 || (spec.gres.total.is_empty() && spec.gres.per_task.is_empty());
    match (known, exact) {
        (true, _) => Ok(StepMemory::PerNode(each.0.saturating_mul(on_node))),
        // It has its nodes exclusively.
        (false, false) => Ok(StepMemory::ByCpus),
        (false, true) => {
            let what = "--mem-per-gpu of a step on several nodes without --gpus-per-node";
            Err(Refusal::NotSupported(what.into()))
        }
    }
}

fn gres_of(spec: &StepSpec, tasks: u32, asker: Asker) -> Result<StepGres, Refusal> {
    let mut asked = spec.gres.clone();
    asked.check_totals()?;
    if let Some(per_gpu) = asked.tasks_per_gpu
        && asked.all().all(|one| one.name != GPU)
    {
        let count = u64::from(tasks.div_ceil(per_gpu.max(1)));
        asked.total.push(GresCount { name: GPU.into(), kind: None, count });
    }
    // If each task brings its GPUs, their total follows from the tasks.
    let each = GresRequest::gpus(&asked.per_task);
    let total = GresRequest::gpus(&asked.total);
    if each > 0 && total > 0 {
        if each.saturating_mul(u64::from(tasks)) != total {
            return Err(Refusal::InvalidGres(gres::list(&asked.total)));
        }
        asked.total.clear();
    }
    Ok(if asked.none {
        StepGres::None
    } else if !asked.is_empty() {
        StepGres::Asked(asked)
    } else if asked.all().next().is_some() || asker == Asker::Queue {
        StepGres::None
    } else if !spec.inherited_gres.is_empty() {
        StepGres::Asked(spec.inherited_gres.clone())
    } else {
        StepGres::All
    })
}

pub(crate) fn impossible(detail: String) -> Refusal {
    Refusal::StepImpossible { detail }
}
