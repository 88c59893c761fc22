//! What a submission must fulfil, and what it comes to with defaults filled in. Pure: the picture of the cluster, the
//! configuration, and who the user is are arguments. Called by the front for `SubmitJob` and `TestJob`.

use super::{gpu_counts, labels, ports::User, texts};
use crate::{
    job::{
        core::JobCore,
        messages::JobSite,
        record::{ArrayRecord, HeldBy, JobRecord, Owner, Phase, Resolved, indices_of},
        state::cpus_asked,
    },
    scheduler::{
        constraint::Wish,
        extra::Extra,
        facts::PartitionFacts,
        plan::longer,
        priority,
        probe::{Feasibility, Infeasible},
        request::{NodeUse, default_memory},
        shell::partition_facts,
    },
};
use garrick_model::{
    config::{Config, EnforcePartLimits, MemoryPer, function},
    gres::{GPU, GresBinding, GresCount, GresRequest, Totals, list},
    ids::{JobId, RequestId, Sluid},
    messages::command::Caller,
    node_sizes::NodeSizes,
    refusal::Refusal,
    resources::{MemoryMib, MemoryRequest},
    spec::{DependencyKind, JobKind, JobSpec, NodeCount, Sharing},
    spec_text::licenses::{LicenseCount, LicenseRequest, with_numbers},
    time::{TimeLimit, Timestamp},
    view::{JobView, PartitionState, PartitionView, PriorityTerms},
};
use std::{collections::BTreeMap, sync::Arc};

/// The user of an array index that nobody could mean: `--array=0-4000000000` must not be expanded.
const MOST_INDICES: u64 = 4_000_000;
/// Largest priority that submissions get under `priority/basic`; each one gets one less, as in Slurm.
const HIGHEST_PRIORITY: u32 = 4_294_901_759;

/// Bytes of a batch script, where the site does not say otherwise: 4 megabytes, as slurm.conf(5) has it.
const MOST_OF_SCRIPT: usize = 4 * 1024 * 1024;

/// `max_script_size`, which sites have among either kind of parameters.
fn most_of_script(config: &Config) -> usize {
    let named = [&config.slurmctld_parameters, &config.scheduler_parameters];
    let said = named.into_iter().filter_map(|words| words.value("max_script_size")?.parse().ok()).next();
    said.unwrap_or(MOST_OF_SCRIPT)
}

/// What submissions are judged by.
pub struct Rules<'a> {
    /// Configuration.
    pub config: &'a Config,
    /// Partitions as they are now.
    pub partitions: &'a [Arc<PartitionView>],
    /// What could ever run.
    pub feasibility: &'a mut Feasibility,
    /// Is there such a job, or such a task of an array, for dependencies?
    pub known_job: &'a dyn Fn(JobId, Option<u32>) -> bool,
    /// How priorities are calculated; `None`: not known yet, or they are not.
    pub priority: Option<&'a priority::Rules>,
    /// Time.
    pub now: Timestamp,
}

/// Who submits.
pub struct Submitter<'a> {
    /// From the kernel.
    pub caller: &'a Caller,
    /// From the user database, where it knows the user.
    pub user: Option<User>,
    /// Name of the caller's group.
    pub group: Option<String>,
    /// Root or SlurmUser.
    pub admin: bool,
}

/// Identities for the new job.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Job.
    pub job: JobId,
    /// Run.
    pub sluid: Sluid,
    /// Submission.
    pub request: Option<RequestId>,
    /// Submissions before this one.
    pub submissions: u64,
}

/// A job that may enter the queue.
#[derive(Debug)]
pub struct Admitted {
    /// Its record.
    pub record: JobRecord,
    /// Things to say to the user, one line each.
    pub warnings: Vec<String>,
}

impl Rules<'_> {
    /// Judges a submission.
    pub fn admit(&mut self, by: &Submitter<'_>, mut spec: JobSpec, identity: Identity) -> Result<Admitted, Refusal> {
        if spec.het.is_some() {
            return Err(Refusal::NotSupported("a heterogeneous job".to_owned()));
        }
        texts::check_spec(&spec)?;
        if spec.kind == JobKind::Batch && spec.script.as_ref().is_none_or(|s| s.is_empty()) {
            return Err(Refusal::InvalidScript("it is empty".to_owned()));
        }
        let most = most_of_script(self.config);
        let size = spec.script.as_ref().map_or(0, |script| script.len());
        if size > most {
            let what = format!("it has {size} bytes, and this cluster takes {most} (max_script_size)");
            return Err(Refusal::InvalidScript(what));
        }
        if !self.config.runs_jobs_of(by.caller.uid, by.user.as_ref().map(|user| user.name.as_str())) {
            let user = by.user.as_ref().map_or_else(|| by.caller.uid.to_string(), |user| user.name.clone());
            let what =
                format!("this cluster runs jobs of {} only, not of {user} (SlurmdUser)", self.config.slurmd_user);
            return Err(Refusal::InvalidUser(what));
        }
        if spec.expedite && !self.config.expedited_requeue() {
            return Err(Refusal::ExpediteDisabled);
        }
        spec.nodelist = self.nodes_named(&spec.nodelist)?;
        spec.exclude = self.nodes_named(&spec.exclude)?;
        let partitions = self.partitions_for(by, &spec)?;
        check_counts(&spec)?;
        let array = self.array(&spec)?;
        self.check_nodes(&spec)?;
        self.check_constraint(&spec)?;
        self.fill_gpu_defaults(&mut spec, &partitions[0]);
        self.fill_gres(&mut spec)?;
        spec.licenses = check_licenses(spec.licenses.take(), self.config)?;
        self.check_dependencies(&spec)?;
        if spec.deadline.is_some_and(|at| at <= self.now) {
            return Err(Refusal::InvalidTimeLimit);
        }
        if !by.admin {
            if spec.nice < 0 {
                return Err(Refusal::InvalidNice);
            }
            // As in Slurm, it is passed over.
            if spec.priority.is_some_and(|p| p > 0) {
                spec.priority = None;
            }
        }
        // What the command says it does, done here too for those that do not come through it.
        if let (Some(tasks), Some(nodes)) = (spec.tasks, &mut spec.nodes)
            && tasks < nodes.min
        {
            *nodes = NodeCount { min: tasks, max: nodes.max.map(|max| max.min(tasks)) };
            spec.node_sizes = NodeSizes::default();
        }
        // core_spec.html: the node is the job's either way, the count is forgotten where the site does not allow it.
        if spec.layout.left_to_system.is_some() {
            spec.sharing = Sharing::Exclusive;
            spec.layout.left_to_system = spec.layout.left_to_system.filter(|_| self.config.allow_spec_resources);
        }
        labels::give(self.config, by, &mut spec)?;
        let resolved = self.resolve(&mut spec, &partitions)?;
        if spec.time_min.is_some_and(|least| longer(least, resolved.time_limit)) {
            return Err(Refusal::InvalidTimeLimit);
        }
        // It would be removed at once.
        let needs = spec.time_min.unwrap_or(resolved.time_limit).duration().unwrap_or_default();
        let earliest = spec.begin.unwrap_or(self.now).max(self.now);
        if spec.deadline.is_some_and(|at| at < earliest.plus(needs)) {
            return Err(Refusal::InvalidTimeLimit);
        }
        let mut record = self.record(by, spec, resolved, array, identity);
        let view = JobCore::new(record.clone(), Arc::new(JobSite::default())).view(self.now);
        if let Some(rules) = self.priority.filter(|_| !record.terms.fixed) {
            record.priority = rules.priority(&view, rules.standing(&view));
        }
        self.enforce_limits(&record, &partitions)?;
        could_ever_run(self.feasibility, &view)?;
        Ok(Admitted { record, warnings: Vec::new() })
    }

    fn partitions_for(&self, by: &Submitter<'_>, spec: &JobSpec) -> Result<Vec<Arc<PartitionView>>, Refusal> {
        let mut named = Vec::new();
        if spec.partitions.is_empty() {
            let default = self.partitions.iter().find(|p| p.config.default);
            named.push(default.ok_or(Refusal::NoPartition)?);
        }
        for name in &spec.partitions {
            let found = self.partitions.iter().find(|p| p.config.name == *name);
            named.push(found.ok_or_else(|| Refusal::InvalidPartition(name.clone()))?);
        }
        let mut usable: Vec<Arc<PartitionView>> = Vec::new();
        let mut refused = None;
        for partition in named {
            let partition = self.alternate_of(partition)?;
            if usable.iter().any(|one| one.config.name == partition.config.name) {
                continue;
            }
            let reserved = !partition.config.require_reservation || !spec.reservations.is_empty();
            let may = may_use(self.config, partition, by)
                .and(if reserved { Ok(()) } else { Err(Refusal::AccessDenied) })
                .and_then(|()| match self.config.enforce_part_limits {
                    // It waits until the partition takes it.
                    EnforcePartLimits::No => Ok(()),
                    EnforcePartLimits::Any | EnforcePartLimits::All => {
                        takes(partition, by, spec.account.as_deref(), spec.qos.as_deref())
                    }
                });
            match may {
                Ok(()) => usable.push(Arc::clone(partition)),
                Err(refusal) => refused = Some(refusal),
            }
        }
        match refused {
            Some(refusal) if usable.is_empty() || self.config.enforce_part_limits == EnforcePartLimits::All => {
                Err(refusal)
            }
            _ => Ok(usable),
        }
    }

    /// Where jobs go while a partition is DRAIN or INACTIVE.
    fn alternate_of<'p>(&'p self, mut partition: &'p Arc<PartitionView>) -> Result<&'p Arc<PartitionView>, Refusal> {
        let is_closed = |one: &PartitionView| matches!(one.state, PartitionState::Drain | PartitionState::Inactive);
        // In a circle nobody is open.
        for _ in 0..self.partitions.len() {
            let Some(name) = partition.config.alternate.as_ref().filter(|_| is_closed(partition)) else { break };
            let found = self.partitions.iter().find(|one| one.config.name == *name);
            partition = found.ok_or_else(|| Refusal::InvalidPartition(name.clone()))?;
        }
        Ok(partition)
    }

    fn array(&self, spec: &JobSpec) -> Result<Option<ArrayRecord>, Refusal> {
        let Some(array) = &spec.array else { return Ok(None) };
        let count: u64 = array
            .ranges
            .iter()
            .map(|&(first, last, step)| u64::from(last.saturating_sub(first)) / u64::from(step.max(1)) + 1)
            .sum();
        let most = self.config.max_array_size;
        let tasks = self.config.scheduler_parameters.value("max_array_tasks").and_then(|text| text.parse::<u64>().ok());
        let too_many = count > MOST_INDICES || tasks.is_some_and(|most| count > most);
        if spec.kind != JobKind::Batch || !array.is_sound(most) || count == 0 || too_many || array.limit == Some(0) {
            return Err(Refusal::InvalidArray);
        }
        Ok(Some(ArrayRecord { pending: indices_of(&array.ranges), limit: array.limit, tasks: BTreeMap::new() }))
    }

    /// Nodes in place of host list functions.
    fn nodes_named(&self, names: &[String]) -> Result<Vec<String>, Refusal> {
        if names.iter().all(|name| function(name).is_none()) {
            return Ok(names.to_vec());
        }
        let with_feature = |feature: &str| self.feasibility.nodes_with_feature(feature);
        self.config.with_functions(names, &with_feature).map_err(|wrong| Refusal::InvalidNode(wrong.to_string()))
    }

    fn check_nodes(&self, spec: &JobSpec) -> Result<(), Refusal> {
        for name in spec.nodelist.iter().chain(&spec.exclude).chain(&spec.layout.task_nodes) {
            if !self.feasibility.knows_node(name) {
                return Err(Refusal::InvalidNode(name.clone()));
            }
        }
        let named = u32::try_from(spec.nodelist.len()).unwrap_or(u32::MAX);
        if spec.nodes.is_some_and(|n| n.max.is_some_and(|max| max < named)) {
            return Err(Refusal::BadNodeCount);
        }
        Ok(())
    }

    /// `DefCpuPerGPU` and `DefMemPerGPU` for a job with GPUs that does not say otherwise. What a partition says of memory in
    /// another way goes over what the cluster says of it.
    fn fill_gpu_defaults(&self, spec: &mut JobSpec, partition: &PartitionView) {
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
    fn fill_gres(&self, spec: &mut JobSpec) -> Result<(), Refusal> {
        let gres = &spec.gres;
        if let Some(unknown) = gres.all().find(|asked| !self.config.gres.types.contains(&asked.name)) {
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
            // So many tasks as that makes.
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
        // Without GPUs, memory for each of them says nothing: the default holds.
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

    fn check_constraint(&self, spec: &JobSpec) -> Result<(), Refusal> {
        check_extra(self.config, spec.extra.as_deref())?;
        let known = |feature: &str| self.feasibility.knows_feature(feature);
        check_features(self.config, spec.constraint.as_deref(), spec.prefer.as_deref(), &known)
    }

    fn check_dependencies(&self, spec: &JobSpec) -> Result<(), Refusal> {
        for dependency in &spec.dependencies.list {
            match (dependency.kind, dependency.job) {
                (DependencyKind::Singleton, _) => {}
                (_, None) => return Err(Refusal::Dependency),
                (_, Some(job)) => {
                    if !(self.known_job)(job, dependency.array_index) {
                        return Err(Refusal::Dependency);
                    }
                }
            }
        }
        Ok(())
    }

    fn resolve(&self, spec: &mut JobSpec, partitions: &[Arc<PartitionView>]) -> Result<Resolved, Refusal> {
        let first = &partitions[0];
        let facts = partition_facts(first, self.feasibility.view().nodes.len());
        let named = u32::try_from(spec.nodelist.len()).unwrap_or(u32::MAX);
        if self.config.select.enforce_binding && spec.gres.all().any(|one| one.name == GPU && one.count > 0) {
            spec.gres.binding.get_or_insert(GresBinding::Enforce);
        }
        let mut cpus_per_task = spec.cpus_per_task.unwrap_or(1).max(1);
        let mut memory = match spec.memory {
            MemoryRequest::Default if spec.gres.mem_per_gpu.is_some() => MemoryRequest::Default,
            MemoryRequest::Default => default_memory(first.config.def_memory.or(self.config.def_memory)),
            // `--mem=0` on the command line is all of a node's memory.
            MemoryRequest::PerNode(MemoryMib(0)) => MemoryRequest::All,
            asked => asked,
        };
        match (memory, first.config.max_memory.or(self.config.max_memory)) {
            // As in Slurm, a task that wants more memory than a CPU may bring gets more CPUs.
            (MemoryRequest::PerCpu(MemoryMib(asked)), Some(MemoryPer::Cpu(MemoryMib(most))))
                if most > 0 && asked > most =>
            {
                let times = asked.div_ceil(most);
                cpus_per_task = cpus_per_task.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX));
                spec.cpus_per_task = Some(cpus_per_task);
                memory = MemoryRequest::PerCpu(MemoryMib(asked.div_ceil(times)));
                // Steps are told of it, and multiply it with those CPUs.
                spec.memory = memory;
            }
            // And so does a node.
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
                let detail = Some("Memory specification can not be satisfied".to_owned());
                return Err(Refusal::NodeConfigUnavailable { detail });
            }
            _ => {}
        }
        let per_node = spec.tasks_per_node.map(|n| n.max(1));
        let min_nodes = match (spec.nodes, spec.tasks, per_node) {
            (Some(nodes), _, _) => nodes.min,
            (None, Some(tasks), Some(each)) => tasks.div_ceil(each),
            (None, _, _) => 1,
        };
        // `a*2&b*4` comes to six nodes, where it is not said how many.
        let counted = spec.constraint.as_deref().filter(|text| spec.nodes.is_none() && Wish::is_together(text));
        let counted = counted.and_then(|text| Wish::parse(text).ok()).map_or(1, |wish| wish.least_nodes());
        // Who says nothing of numbers is given as many as a partition wants.
        let unsaid = spec.nodes.is_none() && spec.tasks.is_none();
        let of_partition = partitions.iter().filter(|_| unsaid).map(|partition| partition.config.min_nodes).min();
        let min_nodes = min_nodes.max(named).max(counted).max(of_partition.unwrap_or(1));
        let tasks = spec.tasks.unwrap_or_else(|| min_nodes.saturating_mul(per_node.unwrap_or(1)));
        let max_nodes = match (spec.nodes, spec.tasks) {
            (Some(nodes), _) => nodes.max.unwrap_or(nodes.min),
            (None, Some(tasks)) => tasks,
            (None, None) => min_nodes,
        };
        // What is asked for on all nodes together may need more of them than tasks do.
        let max_nodes = match spec.nodes {
            None => max_nodes.max(u32::try_from(spec.gres.totals().most_nodes()).unwrap_or(u32::MAX)),
            Some(_) => max_nodes,
        };
        let time_limit = spec.time_limit.or(first.config.default_time).unwrap_or(first.config.max_time);
        Ok(Resolved {
            partitions: partitions.iter().map(|p| p.config.name.clone()).collect(),
            time_limit,
            tasks,
            cpus_per_task,
            min_nodes,
            max_nodes: max_nodes.max(min_nodes),
            cpus: cpus_asked(spec, tasks.max(min_nodes), cpus_per_task, min_nodes),
            memory,
            sharing: NodeUse::of(spec.sharing, &facts, self.feasibility.view().policy.unit).sharing(),
            requeue: spec.kind == JobKind::Batch && (spec.expedite || spec.requeue.unwrap_or(self.config.job_requeue)),
        })
    }

    fn record(
        &self,
        by: &Submitter<'_>,
        spec: JobSpec,
        resolved: Resolved,
        array: Option<ArrayRecord>,
        identity: Identity,
    ) -> JobRecord {
        let held = spec.hold || spec.priority == Some(0);
        let base = match spec.priority.filter(|p| *p > 0) {
            Some(priority) => priority,
            None if self.config.multifactor() => 1,
            None => HIGHEST_PRIORITY.saturating_sub(u32::try_from(identity.submissions).unwrap_or(u32::MAX)).max(1),
        };
        let priority = (i64::from(base) - i64::from(spec.nice)).clamp(1, i64::from(u32::MAX));
        let groups = by.user.as_ref().map_or_else(Vec::new, |u| u.groups.iter().map(|g| g.0).collect());
        JobRecord {
            id: identity.job,
            sluid: identity.sluid,
            request: identity.request,
            owner: Owner {
                uid: by.caller.uid,
                gid: by.caller.gid,
                user: by.user.as_ref().map_or_else(|| by.caller.uid.to_string(), |u| u.name.clone()),
                group: by.group.clone().unwrap_or_else(|| by.caller.gid.to_string()),
                groups,
            },
            resolved,
            submit_time: self.now,
            priority: u32::try_from(priority).unwrap_or(u32::MAX),
            terms: PriorityTerms { fixed: spec.priority.is_some_and(|p| p > 0), site: 0 },
            hold: held.then_some(HeldBy::User),
            begin: spec.begin.filter(|at| *at > self.now),
            dependencies: spec.dependencies.clone(),
            dependency_failed: false,
            eligible_time: None,
            array,
            array_task: None,
            restarts: 0,
            requeues_unasked: 0,
            admin_comment: None,
            steps: garrick_model::packed_steps::StepTally::default(),
            earlier: Vec::new(),
            unfenced: Vec::new(),
            expediting: None,
            last_exit: None,
            last_cause: None,
            phase: Phase::Pending,
            spec: Arc::new(spec),
        }
    }

    /// `EnforcePartLimits`: a job beyond its partitions' limits is refused rather than left to wait.
    fn enforce_limits(&self, record: &JobRecord, partitions: &[Arc<PartitionView>]) -> Result<(), Refusal> {
        let Resolved { min_nodes, max_nodes, .. } = record.resolved;
        let extent = Extent { time_limit: record.spec.time_limit, min_nodes, max_nodes };
        extent.enforce(self.config.enforce_part_limits, partitions, self.feasibility.view().nodes.len())
    }
}

/// What of a job partitions limit.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Limit; `None`: each partition's own.
    pub time_limit: Option<TimeLimit>,
    /// Fewest nodes.
    pub min_nodes: u32,
    /// Most nodes.
    pub max_nodes: u32,
}

impl Extent {
    /// Is it within the limits of as many of the partitions as `EnforcePartLimits` says? The cluster has `nodes` nodes.
    pub fn enforce(
        self,
        enforced: EnforcePartLimits,
        partitions: &[Arc<PartitionView>],
        nodes: usize,
    ) -> Result<(), Refusal> {
        let check = |partition: &Arc<PartitionView>| self.within(&partition_facts(partition, nodes));
        match enforced {
            EnforcePartLimits::No => Ok(()),
            EnforcePartLimits::All => partitions.iter().try_for_each(check),
            EnforcePartLimits::Any => {
                let mut last = Ok(());
                for partition in partitions {
                    last = check(partition);
                    if last.is_ok() {
                        break;
                    }
                }
                last
            }
        }
    }

    fn within(self, partition: &PartitionFacts) -> Result<(), Refusal> {
        if longer(self.time_limit.unwrap_or(partition.limit_unsaid()), partition.max_time) {
            return Err(Refusal::InvalidTimeLimit);
        }
        let members = u32::try_from(partition.nodes.count_ones(..)).unwrap_or(u32::MAX);
        let most = partition.max_nodes.unwrap_or(u32::MAX).min(members);
        if self.min_nodes > most || self.max_nodes < partition.min_nodes {
            return Err(Refusal::BadNodeCount);
        }
        Ok(())
    }
}

/// May this user submit to this partition?
pub fn may_use(config: &Config, partition: &PartitionView, by: &Submitter<'_>) -> Result<(), Refusal> {
    let settings = &partition.config;
    let root = by.caller.uid == 0;
    if root && settings.disable_root_jobs.unwrap_or(config.disable_root_jobs) {
        return Err(Refusal::AccessDenied);
    }
    if settings.root_only && !root {
        return Err(Refusal::AccessDenied);
    }
    if let Some(hosts) = &settings.alloc_nodes {
        let allowed = garrick_model::hostlist::expand(hosts).unwrap_or_default();
        if !allowed.contains(&by.caller.host) {
            return Err(Refusal::AccessDenied);
        }
    }
    if let Some(groups) = &settings.allow_groups
        && !by.admin
        && !by.user.as_ref().is_some_and(|user| user.groups.iter().any(|(_, name)| groups.contains(name)))
    {
        return Err(Refusal::GroupNotPermitted);
    }
    match partition.state {
        PartitionState::Up | PartitionState::Down => Ok(()),
        PartitionState::Drain | PartitionState::Inactive => Err(Refusal::PartitionUnavailable),
    }
}

/// Does this partition take jobs of that account, and with that QOS?
pub(super) fn takes(
    partition: &PartitionView,
    by: &Submitter<'_>,
    account: Option<&str>,
    qos: Option<&str>,
) -> Result<(), Refusal> {
    if !partition.config.allows_account(account) {
        return Err(Refusal::InvalidAccount(account.map(str::to_owned)));
    }
    // As in Slurm, root's jobs have any QOS.
    if by.caller.uid != 0 && !partition.config.allows_qos(qos) {
        return Err(Refusal::InvalidQos(qos.map(str::to_owned)));
    }
    Ok(())
}

fn check_counts(spec: &JobSpec) -> Result<(), Refusal> {
    let nodes_wrong = spec.nodes.is_some_and(|n| n.min == 0 || n.max.is_some_and(|max| max < n.min));
    let nodes_wrong = nodes_wrong || !spec.node_sizes.is_empty() && spec.node_sizes.bounds() != spec.nodes;
    let zero = spec.tasks == Some(0) || spec.tasks_per_node == Some(0) || spec.cpus_per_task == Some(0);
    if nodes_wrong || zero { Err(Refusal::BadNodeCount) } else { Ok(()) }
}

/// Could the job run in one of its partitions, whatever is free and whichever nodes are up?
pub fn could_ever_run(feasibility: &mut Feasibility, job: &JobView) -> Result<(), Refusal> {
    let known = |feature: &str| feasibility.knows_feature(feature);
    if check_constraint(job.spec.constraint.as_deref(), &known).is_err() {
        // What it names may come yet.
        return Ok(());
    }
    let refusal = |what: Infeasible| Refusal::NodeConfigUnavailable { detail: what.detail().map(str::to_owned) };
    feasibility.check(job).map_err(refusal)
}

/// Each license and each hierarchical resource that is named must be there, and enough of them for one of the choices.
/// Answers the request with numbers for words that stand for amounts.
pub fn check_licenses(request: Option<String>, config: &Config) -> Result<Option<String>, Refusal> {
    let Some(text) = request.as_deref().filter(|text| !text.is_empty()) else { return Ok(request) };
    let refusal = || Refusal::InvalidLicense(text.to_owned());
    let numbered = with_numbers(text, &|name, word| config.hres.variable(name, word)).map_err(|_| refusal())?;
    let request: LicenseRequest = numbered.parse().map_err(|_| refusal())?;
    let asked = || request.alternatives.iter().flat_map(|a| &a.0);
    // Which of several resources it is to be would have to be decided with the choice of nodes.
    if request.alternatives.len() > 1 && asked().any(|l| config.hres.resource(&l.name).is_some()) {
        return Err(refusal());
    }
    let most = |license: &LicenseCount| match config.hres.resource(&license.name) {
        Some((_, resource)) => resource.could_give(license.count),
        None => license.count <= config.licenses.count(&license.name),
    };
    let known = |l: &LicenseCount| config.licenses.count(&l.name) > 0 || config.hres.resource(&l.name).is_some();
    let enough = request.alternatives.iter().any(|a| a.0.iter().all(most));
    let enough = enough || config.scheduler_parameters.has("allow_zero_lic");
    if asked().all(known) && enough { Ok(Some(numbered)) } else { Err(refusal()) }
}

/// Features that are asked for and those that are preferred, where the site does not leave unknown ones to its users.
pub fn check_features(
    config: &Config,
    constraint: Option<&str>,
    prefer: Option<&str>,
    known: &dyn Fn(&str) -> bool,
) -> Result<(), Refusal> {
    let words = &config.scheduler_parameters;
    let (any, any_preferred) = (words.has("ignore_constraint_validation"), words.has("ignore_prefer_validation"));
    check_constraint(constraint, &|feature| any || known(feature))?;
    check_constraint(prefer, &|feature| any_preferred || known(feature))
}

/// Where nodes are filtered by `--extra`, that must be a request.
pub fn check_extra(config: &Config, extra: Option<&str>) -> Result<(), Refusal> {
    let applies = config.scheduler_parameters.has("extra_constraints");
    match extra.filter(|text| applies && !text.is_empty()).map(|text| (text, Extra::parse(text))) {
        Some((text, Err(error))) => Err(Refusal::InvalidUpdate(format!("Invalid extra constraint {text:?}: {error}"))),
        _ => Ok(()),
    }
}

/// A feature expression must be one, and every feature in it must be on some node.
fn check_constraint(constraint: Option<&str>, known: &dyn Fn(&str) -> bool) -> Result<(), Refusal> {
    let Some(text) = constraint.filter(|text| !text.is_empty()) else { return Ok(()) };
    let refusal = || Refusal::InvalidFeature(text.to_owned());
    let wish = Wish::parse(text).map_err(|_| refusal())?;
    let mut all_known = true;
    wish.each_feature(&mut |feature| all_known &= known(feature));
    if all_known { Ok(()) } else { Err(refusal()) }
}
