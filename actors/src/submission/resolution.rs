//! Resolves a request: fills in defaults of the cluster and of partitions, and derives counts from each other. Part of admission.

use super::{
    admission::{Change, Purpose, Rules},
    gpu_counts,
};
use garrick_events::records::{job::Resolved, job_event::cpus_asked};
use garrick_model::{
    config::MemoryPer,
    gres::{GPU, GresBinding, GresCount, GresRequest, Totals, list},
    refusal::Refusal,
    resources::{MemoryMib, MemoryRequest},
    spec::{JobKind, JobSpec},
    view::PartitionView,
};
use garrick_plan::{
    policy::partition_facts,
    snapshot::{
        constraint::Wish,
        request::{NodeUse, default_memory},
    },
};
use std::sync::Arc;

/// What happens to memory beyond the limit per CPU or per node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beyond {
    /// More CPUs, if there is a limit per CPU.
    MakesCpus,
    /// A refusal.
    IsRefused,
    /// Nothing: an administrator requested it, or it is unchanged.
    Stays,
}

impl Beyond {
    fn of(purpose: &Purpose<'_>, spec: &JobSpec) -> Self {
        let named = |spec: &JobSpec| (spec.memory, spec.min_cpus_per_node, spec.cpus_per_task);
        match purpose {
            Purpose::New(_) => Self::MakesCpus,
            Purpose::Change(_) if purpose.is_by_admin() => Self::Stays,
            Purpose::Change(_) if purpose.asks(spec, named) => Self::IsRefused,
            Purpose::Change(_) if purpose.asks(spec, |spec| &spec.partitions) => Self::MakesCpus,
            Purpose::Change(_) => Self::Stays,
        }
    }
}

impl Rules<'_> {
    /// The resolved request. For a changed job, values that the change does not affect stay as they are.
    pub(super) fn resolved(
        &self,
        spec: &mut JobSpec,
        partitions: &[Arc<PartitionView>],
        purpose: &Purpose<'_>,
    ) -> Result<Resolved, Refusal> {
        let beyond = Beyond::of(purpose, spec);
        let after = self.resolve(spec, partitions, beyond)?;
        let Some(change) = purpose.change() else { return Ok(after) };
        if !purpose.asks(spec, |spec| &spec.gres.per_node) {
            spec.gres.binding.clone_from(&change.record.spec.gres.binding);
        }
        let places = self.places_of(change.record);
        let mut asked = (*change.record.spec).clone();
        let before = if places.is_empty() { None } else { self.resolve(&mut asked, &places, Beyond::Stays).ok() };
        Ok(before.map_or_else(|| after.clone(), |before| moved(change, before, after.clone())))
    }

    /// `DefCpuPerGPU` and `DefMemPerGPU` for a job with GPUs that does not say otherwise. A partition's default of memory in
    /// another form overrides the cluster's.
    pub(super) fn fill_gpu_defaults(&self, spec: &mut JobSpec, partition: &PartitionView) {
        if !spec.gres.all().any(|one| one.name == GPU && one.count > 0) {
            return;
        }
        let (own, site) = (partition.config.job_defaults(), self.config.job_defaults);
        if spec.cpus_per_task.is_none() && spec.gres.cpus_per_gpu.is_none() {
            spec.gres.cpus_per_gpu = own.cpus_per_gpu.or(site.cpus_per_gpu);
        }
        if spec.memory == MemoryRequest::Default && spec.gres.mem_per_gpu.is_none() {
            let by_site = site.mem_per_gpu.filter(|_| partition.config.def_memory.is_none());
            spec.gres.mem_per_gpu = own.mem_per_gpu.or(by_site);
        }
    }

    /// Every name must be one of `GresTypes`; what follows from numbers of GPUs is filled in.
    pub(super) fn fill_gres(&self, spec: &mut JobSpec) -> Result<(), Refusal> {
        let gres = &spec.gres;
        // None of something is had everywhere.
        let is_unknown = |asked: &GresCount| asked.count > 0 && !self.config.gres.types.contains(&asked.name);
        if let Some(unknown) = gres.all().find(|asked| is_unknown(asked)) {
            return Err(Refusal::InvalidGres(unknown.to_string()));
        }
        gres.check_totals()?;
        if !gres.per_socket.is_empty() && (spec.layout.tasks_per_socket.is_some() || spec.layout.one_core_per_socket) {
            return Err(Refusal::NotSupported(
                "--gpus-per-socket with limits of tasks or cores of a socket".to_owned(),
            ));
        }
        let gpus = |list: &[GresCount]| u32::try_from(GresRequest::gpus(list)).unwrap_or(u32::MAX);
        let (each, on_node, total) = (gpus(&gres.per_task), gpus(&gres.on_node(0, Totals::NONE)), gpus(&gres.total));
        let gres_nodes = gres.totals().most_nodes();
        let contradiction = || Refusal::InvalidGres(list(&gres.total));
        if each > 0 && total > 0 {
            // The resulting number of tasks.
            let tasks = total / each;
            if total % each > 0 || spec.tasks.is_some_and(|asked| asked != tasks) {
                return Err(contradiction());
            }
            spec.tasks = Some(tasks);
        }
        gpu_counts::agree(spec, each, on_node, total)?;
        let gres = &spec.gres;
        if let Some(per_gpu) = gres.tasks_per_gpu {
            match (spec.tasks, total, on_node) {
                (None, 0, 0) => return Err(Refusal::InvalidGres("--ntasks-per-gpu".to_owned())),
                (None, 0, on_node) => spec.tasks_per_node = Some(on_node.saturating_mul(per_gpu)),
                (None, total, _) => spec.tasks = Some(total.saturating_mul(per_gpu)),
                (Some(tasks), 0, 0) => {
                    let count = u64::from(tasks.div_ceil(per_gpu.max(1)));
                    spec.gres.total = vec![GresCount { name: GPU.to_owned(), kind: None, count }];
                }
                (Some(_), ..) => {}
            }
        }
        // Without GPUs, memory per GPU has no meaning: the default applies.
        if !spec.gres.all().any(|asked| asked.name == GPU && asked.count > 0) {
            spec.gres.mem_per_gpu = None;
        }
        if let Some(cpus) = spec.gres.cpus_per_gpu
            && each > 0
            && spec.cpus_per_task.is_none()
        {
            spec.cpus_per_task = Some(each.saturating_mul(cpus));
        }
        if spec.nodes.is_some_and(|nodes| total > 0 && gres_nodes < u64::from(nodes.min)) {
            return Err(Refusal::NodeConfigUnavailable { detail: None });
        }
        Ok(())
    }

    fn resolve(
        &self,
        spec: &mut JobSpec,
        partitions: &[Arc<PartitionView>],
        beyond: Beyond,
    ) -> Result<Resolved, Refusal> {
        let first = &partitions[0];
        let facts = partition_facts(first, self.feasibility.view().nodes.len());
        if self.config.select.enforce_binding && spec.gres.all().any(|one| one.name == GPU && one.count > 0) {
            spec.gres.binding.get_or_insert(GresBinding::Enforce);
        }
        let (memory, cpus_per_task) = self.memory(spec, partitions, beyond)?;
        let (tasks, min_nodes, max_nodes) = node_range(spec, partitions);
        let time_limit = spec.time_limit.or(first.config.default_time).unwrap_or(first.config.max_time);
        Ok(Resolved {
            partitions: partitions.iter().map(|p| p.config.name.clone()).collect(),
            time_limit,
            tasks,
            cpus_per_task,
            min_nodes,
            max_nodes,
            cpus: cpus_asked(spec, tasks.max(min_nodes), cpus_per_task, min_nodes),
            memory,
            sharing: NodeUse::of(spec.sharing, &facts, self.feasibility.view().policy.unit).sharing(),
            requeue: spec.kind == JobKind::Batch && (spec.expedite || spec.requeue.unwrap_or(self.config.job_requeue)),
            association: None,
            billing: None,
            default_qos: false,
        })
    }

    /// What the request is billed by the weights of that partition, which it waits in first.
    pub(super) fn billing(&self, resolved: &Resolved, spec: &JobSpec, first: &PartitionView) -> Option<u64> {
        let terms = self.config.priority.flags.billed_terms();
        first.config.weights().map(|weights| resolved.billed(spec, &weights, terms))
    }

    /// Memory, and CPUs of a task: more of either brings more of the other, where a limit binds them.
    fn memory(
        &self,
        spec: &mut JobSpec,
        partitions: &[Arc<PartitionView>],
        beyond: Beyond,
    ) -> Result<(MemoryRequest, u32), Refusal> {
        let first = &partitions[0];
        let mut cpus_per_task = spec.cpus_per_task.unwrap_or(1).max(1);
        let mut memory = match spec.memory {
            MemoryRequest::Default if spec.gres.mem_per_gpu.is_some() => MemoryRequest::Default,
            MemoryRequest::Default => default_memory(first.config.def_memory.or(self.config.def_memory)),
            // `--mem=0` on the command line is all of a node's memory.
            MemoryRequest::PerNode(MemoryMib(0)) => MemoryRequest::All,
            asked => asked,
        };
        match (memory, first.config.max_memory.or(self.config.max_memory)) {
            _ if beyond == Beyond::Stays => {}
            (asked, most) if beyond == Beyond::IsRefused => {
                let on_node = spec.min_cpus_per_node.unwrap_or(0).max(cpus_per_task);
                if !brought(asked, most, on_node) {
                    return Err(too_much_memory());
                }
            }
            // As in Slurm, a task with more memory than a CPU may have gets more CPUs.
            (MemoryRequest::PerCpu(MemoryMib(asked)), Some(MemoryPer::Cpu(MemoryMib(most))))
                if most > 0 && asked > most =>
            {
                let times = asked.div_ceil(most);
                cpus_per_task = cpus_per_task.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX));
                spec.cpus_per_task = Some(cpus_per_task);
                memory = MemoryRequest::PerCpu(MemoryMib(asked.div_ceil(times)));
                // Steps get this value and multiply it by those CPUs.
                spec.memory = memory;
            }
            // The same for a node.
            (MemoryRequest::PerNode(MemoryMib(asked)), Some(MemoryPer::Cpu(MemoryMib(most)))) if most > 0 => {
                let least = u32::try_from(asked.div_ceil(most)).unwrap_or(u32::MAX);
                let known = spec.min_cpus_per_node.unwrap_or(0);
                if least > known.max(cpus_per_task) {
                    spec.min_cpus_per_node = Some(least);
                }
            }
            (MemoryRequest::PerNode(MemoryMib(asked)), Some(MemoryPer::Node(MemoryMib(most))))
                if asked > most && partitions.len() == 1 =>
            {
                return Err(too_much_memory());
            }
            _ => {}
        }
        Ok((memory, cpus_per_task))
    }
}

/// Tasks, and the fewest and most nodes.
fn node_range(spec: &JobSpec, partitions: &[Arc<PartitionView>]) -> (u32, u32, u32) {
    let named = u32::try_from(spec.nodelist.len()).unwrap_or(u32::MAX);
    let per_node = spec.tasks_per_node.map(|n| n.max(1));
    let min_nodes = match (spec.nodes, spec.tasks, per_node) {
        (Some(nodes), _, _) => nodes.min,
        (None, Some(tasks), Some(each)) => tasks.div_ceil(each),
        (None, _, _) => 1,
    };
    // `a*2&b*4` implies six nodes, if no number is given.
    let counted = spec.constraint.as_deref().filter(|text| spec.nodes.is_none() && Wish::is_together(text));
    let counted = counted.and_then(|text| Wish::parse(text).ok()).map_or(1, |wish| wish.least_nodes());
    // A job without numbers gets as many as a partition requires.
    let unsaid = spec.nodes.is_none() && spec.tasks.is_none();
    let of_partition = partitions.iter().filter(|_| unsaid).map(|partition| partition.config.min_nodes).min();
    let min_nodes = min_nodes.max(named).max(counted).max(of_partition.unwrap_or(1));
    let tasks = spec.tasks.unwrap_or_else(|| min_nodes.saturating_mul(per_node.unwrap_or(1)));
    // A total for all nodes may need more nodes than the tasks do.
    let of_gres = || u32::try_from(spec.gres.totals().most_nodes()).unwrap_or(u32::MAX);
    let max_nodes = match spec.nodes {
        Some(nodes) => nodes.max.unwrap_or(nodes.min),
        None => spec.tasks.unwrap_or(min_nodes).max(of_gres()),
    };
    (tasks, min_nodes, max_nodes.max(min_nodes))
}

/// The new values of a job, where a change makes `after` of what would be `before` by the current rules.
fn moved(change: &Change<'_>, before: Resolved, after: Resolved) -> Resolved {
    let Change { record, change, .. } = change;
    let now = record.resolved.clone();
    let counts = |r: &Resolved| (r.tasks, r.cpus_per_task, r.min_nodes, r.max_nodes, r.cpus);
    let counted = if counts(&before) == counts(&after) { &now } else { &after };
    let (tasks, cpus_per_task, min_nodes, max_nodes, cpus) = counts(counted);
    let limited = change.names_limit(now.time_limit) || before.time_limit != after.time_limit;
    Resolved {
        time_limit: if limited { after.time_limit } else { now.time_limit },
        partitions: if before.partitions == after.partitions { now.partitions } else { after.partitions },
        memory: if before.memory == after.memory { now.memory } else { after.memory },
        sharing: if before.sharing == after.sharing { now.sharing } else { after.sharing },
        requeue: match change.requeue {
            Some(requeue) => requeue,
            None if before.requeue == after.requeue => now.requeue,
            None => after.requeue,
        },
        association: now.association,
        billing: now.billing,
        default_qos: now.default_qos,
        tasks,
        cpus_per_task,
        min_nodes,
        max_nodes,
        cpus,
    }
}

fn too_much_memory() -> Refusal {
    Refusal::NodeConfigUnavailable { detail: Some("Memory specification can not be satisfied".to_owned()) }
}

/// Do so many CPUs on a node allow the requested memory, under the limit per CPU?
fn brought(asked: MemoryRequest, most: Option<MemoryPer>, on_node: u32) -> bool {
    match (asked, most) {
        (_, None | Some(MemoryPer::Node(MemoryMib(0)) | MemoryPer::Cpu(MemoryMib(0)))) => true,
        (MemoryRequest::PerCpu(asked), Some(MemoryPer::Cpu(most))) => asked <= most,
        (MemoryRequest::PerNode(asked), Some(MemoryPer::Cpu(most))) => asked.0.div_ceil(most.0) <= on_node.into(),
        (MemoryRequest::PerNode(asked), Some(MemoryPer::Node(most))) => asked <= most,
        _ => true,
    }
}
