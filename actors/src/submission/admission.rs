//! The conditions that a submission must fulfil, and the request with defaults filled in; the same for a change of a waiting job,
//! whose changed specification is judged by the same function. Pure: the snapshot of the cluster, the configuration and the user
//! are arguments. Called by the frontend for `SubmitJob`, `TestJob` and `UpdateJob`.
//!
//! What a change does not touch is not judged again: the site may have changed since, or an administrator put the job where its
//! user may not. Otherwise, a change differs from a submission as follows:
//!
//! - All partitions that it names must be open to the job's owner; of those that a submission names, one is enough.
//! - Memory beyond the limit per CPU (`MaxMemPerCPU`) is refused if a change names it; for a submission, or a move to another
//!   partition, it increases the number of CPUs.
//! - Nodes that it names stay, however few tasks there are.
//! - Limits and access rules of partitions do not apply to an administrator's request.

use super::{labels, texts, users::User};
use crate::{
    job::core::JobCore,
    messages::job::{Authority, JobSite, Revise},
};
use garrick_events::records::job::{ArrayRecord, HeldBy, JobRecord, Owner, Phase, Resolved, indices_of};
use garrick_model::{
    config::{Config, EnforcePartLimits, function},
    ids::{JobId, RequestId, Sluid},
    mail,
    messages::command::{Caller, JobChange},
    node_sizes::NodeSizes,
    refusal::Refusal,
    reservation::Reservation,
    spec::{DependencyKind, JobKind, JobSpec, NodeCount, Sharing},
    spec_text::licenses::{LicenseCount, LicenseRequest, with_numbers},
    time::Timestamp,
    view::{JobView, PartitionView, PriorityTerms},
};
use garrick_plan::{
    plan::probe::{Feasibility, Infeasible},
    rules::{limits::longer, priority},
    snapshot::{accounting::Accounting, constraint::Wish, extra::Extra},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// More indices are refused: `--array=0-4000000000` must not be expanded.
const MOST_INDICES: u64 = 4_000_000;
/// Largest priority that submissions get under `priority/basic`; each one gets one less, as in Slurm.
const HIGHEST_PRIORITY: u32 = 4_294_901_759;

/// Most bytes of a batch script, unless the site sets another limit: 4 megabytes, as in slurm.conf(5).
const MOST_OF_SCRIPT: usize = 4 * 1024 * 1024;

/// `max_script_size`, which sites set in either kind of parameters.
fn most_of_script(config: &Config) -> usize {
    let named = [&config.slurmctld_parameters, &config.scheduler_parameters];
    let said = named.into_iter().filter_map(|words| words.value("max_script_size")?.parse().ok()).next();
    said.unwrap_or(MOST_OF_SCRIPT)
}

/// The data by which submissions are judged.
pub struct Rules<'a> {
    /// Configuration.
    pub config: &'a Config,
    /// Current partitions.
    pub partitions: &'a [Arc<PartitionView>],
    /// Feasibility of requests.
    pub feasibility: &'a mut Feasibility,
    /// Does this job, or this task of an array, exist? For dependencies.
    pub known_job: &'a dyn Fn(JobId, Option<u32>) -> bool,
    /// Looks up a current reservation.
    pub reservation: &'a dyn Fn(&String) -> Option<Arc<Reservation>>,
    /// How priorities are calculated; `None`: not known yet, or not calculated.
    pub priority: Option<&'a priority::Rules>,
    /// How many of a license there are, with those of servers.
    pub licenses: &'a dyn Fn(&str) -> u32,
    /// What binds jobs of what accounting knows.
    pub accounting: &'a Accounting,
    /// Time.
    pub now: Timestamp,
}

/// Who submits.
pub struct Submitter<'a> {
    /// Identity from the kernel.
    pub caller: &'a Caller,
    /// From the user database, if it knows the user.
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
    /// Number of earlier submissions.
    pub submissions: u64,
}

/// A change of a waiting job.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The job as it is.
    pub record: &'a JobRecord,
    /// The requested change.
    pub change: &'a JobChange,
    /// The requester.
    pub by: Authority,
}

/// For what purpose a specification is judged.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose<'a> {
    /// A new job.
    New(Identity),
    /// The new request of a waiting job.
    Change(Change<'a>),
}

impl<'a> Purpose<'a> {
    /// Is this part of a specification to be judged: for a new job, or because it changes?
    pub(super) fn asks<'s, T: PartialEq>(&'s self, spec: &'s JobSpec, of: impl Fn(&'s JobSpec) -> T) -> bool {
        match self {
            Self::New(_) => true,
            Self::Change(Change { record, .. }) => of(&record.spec) != of(spec),
        }
    }

    pub(super) const fn change(&self) -> Option<&Change<'a>> {
        match self {
            Self::New(_) => None,
            Self::Change(change) => Some(change),
        }
    }

    /// Does an administrator place a job?
    pub(super) fn is_by_admin(&self) -> bool {
        self.change().is_some_and(|change| change.by.admin)
    }
}

/// A job with an accepted specification.
struct Judged {
    record: JobRecord,
    view: JobView,
}

impl Rules<'_> {
    /// Judges a submission: returns the accepted job's record.
    pub fn admit(&mut self, by: &Submitter<'_>, mut spec: JobSpec, identity: Identity) -> Result<JobRecord, Refusal> {
        self.follow_reservation(&mut spec);
        let Judged { mut record, view } = self.judge(by, spec, Purpose::New(identity))?;
        if let Some(rules) = self.priority.filter(|_| !record.terms.fixed) {
            record.priority = rules.priority(&view, rules.standing(&view));
        }
        Ok(record)
    }

    /// Judges a change as a submission of the job's owner: returns the new request.
    pub fn revise(&mut self, owner: &Submitter<'_>, change: Change<'_>) -> Result<Revise, Refusal> {
        let Change { record, change: asked, .. } = change;
        let spec = asked.patch(&record.spec, record.resolved.time_limit);
        let judged = self.judge(owner, spec, Purpose::Change(change))?.record;
        let revise = Revise {
            change: asked.clone(),
            from: Arc::clone(&record.spec),
            resolved_from: record.resolved.clone(),
            spec: Arc::unwrap_or_clone(judged.spec),
            resolved: judged.resolved,
        };
        Ok(revise)
    }

    /// The one function that decides whether a job may have this request, and fills in defaults.
    fn judge(&mut self, by: &Submitter<'_>, mut spec: JobSpec, purpose: Purpose<'_>) -> Result<Judged, Refusal> {
        let purpose = &purpose;
        let names_qos = spec.qos.as_deref().is_some_and(|name| !name.is_empty());
        let association = self.settle_accounting(by, &mut spec, purpose)?;
        let asks_for_reservation = purpose.asks(&spec, |spec| &spec.reservations);
        if asks_for_reservation {
            self.check_reservations(by, &spec, purpose)?;
        }
        if purpose.change().is_none() {
            self.check_new(by, &spec)?;
        }
        if purpose.asks(&spec, |spec| spec.expedite) && spec.expedite && !self.config.expedited_requeue() {
            return Err(Refusal::ExpediteDisabled);
        }
        spec.nodelist = self.nodes_named(&spec.nodelist)?;
        spec.exclude = self.nodes_named(&spec.exclude)?;
        let partitions = self.partitions_for(by, &spec, purpose)?;
        self.check_amounts(&spec, purpose)?;
        let anew = purpose.asks(&spec, asked_for) || purpose.change().is_some_and(Change::names_what_is_resolved);
        if anew {
            partitions.first().ok_or_else(|| gone(&spec, purpose))?;
            // Changed defaults since its submission are no change of its request.
            if purpose.asks(&spec, |s| {
                (&s.gres, s.cpus_per_task, s.memory, s.nodes, s.tasks, s.tasks_per_node, &s.partitions)
            }) {
                self.fill_gpu_defaults(&mut spec, &partitions[0]);
                self.fill_gres(&mut spec)?;
            }
        }
        let asks_for_licenses = purpose.asks(&spec, |spec| &spec.licenses);
        if asks_for_licenses {
            spec.licenses = check_licenses(spec.licenses.take(), self.config, self.licenses)?;
        }
        if purpose.asks(&spec, |spec| &spec.dependencies) {
            self.check_dependencies(&spec)?;
        }
        if purpose.asks(&spec, |spec| spec.deadline) && spec.deadline.is_some_and(|at| at <= self.now) {
            return Err(Refusal::InvalidTimeLimit);
        }
        match purpose {
            Purpose::New(_) => self.settle_new(by, &mut spec)?,
            Purpose::Change(_) => {
                let cores = purpose.asks(&spec, |spec| spec.layout.left_to_system);
                if cores && spec.layout.left_to_system.is_some() && !self.config.allow_spec_resources {
                    let said = "CoreSpec and ThreadSpec without AllowSpecResourcesUsage=YES";
                    return Err(Refusal::NotSupported(said.to_owned()));
                }
            }
        }
        labels::give(self.config, by, &mut spec, purpose)?;
        let mut resolved = match purpose.change() {
            Some(change) if !anew => change.record.resolved.clone(),
            _ => self.resolved(&mut spec, &partitions, purpose)?,
        };
        if (anew || asks_for_licenses)
            && let Some(first) = partitions.first()
        {
            resolved.billing = self.billing(&resolved, &spec, first);
        }
        resolved.association = association;
        resolved.default_qos = match purpose.change() {
            None => spec.qos.is_some() && !names_qos,
            Some(change) => change.record.resolved.default_qos && spec.qos == change.record.spec.qos,
        };
        self.check_times(&spec, &resolved, purpose)?;
        // What an administrator granted beyond the limits stays while none of it is changed.
        let place = |s: &JobSpec| (s.partitions.clone(), s.account.clone(), s.qos.clone(), s.time_limit);
        let nodes = |of: &Resolved| (of.min_nodes, of.max_nodes);
        let limited = purpose.change().is_none_or(|Change { record, .. }| {
            place(&spec) != place(&record.spec) || nodes(&resolved) != nodes(&record.resolved)
        });
        if anew && limited && !purpose.is_by_admin() {
            self.enforce_limits(&spec, &resolved, &partitions)?;
        }
        let record = match *purpose {
            Purpose::New(identity) => {
                let array = self.array(&spec)?;
                self.record(by, spec, resolved, array, identity)
            }
            Purpose::Change(Change { record, .. }) => JobRecord { spec: Arc::new(spec), resolved, ..record.clone() },
        };
        let (now, admin) = (self.now, purpose.is_by_admin());
        let seen = |record: &JobRecord| JobCore::new(record.clone(), Arc::new(JobSite::default())).view(now);
        let view = seen(&record);
        if anew && limited && !admin {
            self.deny_on_limit(&view, &record.resolved, &partitions)?;
        }
        // An infeasible job may be changed in other ways.
        let before = purpose.change().map(|change| seen(change.record));
        if !before.is_some_and(|before| self.feasibility.ask_alike(&before, &view)) {
            could_ever_run(self.feasibility, &view, record.hold.is_some(), self.config.enforce_part_limits)?;
        }
        Ok(Judged { record, view })
    }

    /// Numbers, nodes and wishes.
    fn check_amounts(&self, spec: &JobSpec, purpose: &Purpose<'_>) -> Result<(), Refusal> {
        if purpose.asks(spec, |s| (s.nodes, &s.node_sizes, s.tasks, s.tasks_per_node, s.cpus_per_task)) {
            check_counts(spec)?;
        }
        if purpose.asks(spec, |s| (&s.nodelist, &s.exclude, s.nodes, &s.layout.task_nodes)) {
            self.check_nodes(spec)?;
        }
        if purpose.asks(spec, |s| (&s.extra, &s.constraint, &s.prefer, &s.batch_features)) {
            self.check_wishes(spec, purpose)?;
        }
        Ok(())
    }

    /// A job that could not end in time would be removed at once.
    fn check_times(&self, spec: &JobSpec, resolved: &Resolved, purpose: &Purpose<'_>) -> Result<(), Refusal> {
        let moved = purpose.change().is_none_or(|change| change.record.resolved.time_limit != resolved.time_limit);
        let timed = |spec: &JobSpec| (spec.time_limit, spec.time_min);
        if (moved || purpose.asks(spec, timed)) && spec.time_min.is_some_and(|least| longer(least, resolved.time_limit))
        {
            return Err(Refusal::InvalidTimeLimit);
        }
        let needs = spec.time_min.unwrap_or(resolved.time_limit).duration().unwrap_or_default();
        let earliest = spec.begin.unwrap_or(self.now).max(self.now);
        if (moved || purpose.asks(spec, |spec| (timed(spec), spec.deadline, spec.begin)))
            && spec.deadline.is_some_and(|at| at < earliest.plus(needs))
        {
            return Err(Refusal::InvalidTimeLimit);
        }
        Ok(())
    }

    /// Conditions on what no change touches.
    fn check_new(&self, by: &Submitter<'_>, spec: &JobSpec) -> Result<(), Refusal> {
        if spec.het.is_some() {
            return Err(Refusal::NotSupported("a heterogeneous job".to_owned()));
        }
        texts::check_spec(spec)?;
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
        Ok(())
    }

    /// Corrections to a submission. For a change, a job's owner decides who may set which priority.
    fn settle_new(&self, by: &Submitter<'_>, spec: &mut JobSpec) -> Result<(), Refusal> {
        if !by.admin {
            if spec.reboot {
                let lines = vec!["rebooting of nodes is only allowed for admins".to_owned()];
                return Err(Refusal::Said { lines, refusal: Box::new(Refusal::AccessDenied) });
            }
            if spec.nice < 0 {
                return Err(Refusal::InvalidNice);
            }
            // Ignored, as in Slurm.
            if spec.priority.is_some_and(|p| p > 0) {
                spec.priority = None;
            }
        }
        // The command does this too; done here for requests that do not come through it.
        if let (Some(tasks), Some(nodes)) = (spec.tasks, &mut spec.nodes)
            && tasks < nodes.min
        {
            *nodes = NodeCount { min: tasks, max: nodes.max.map(|max| max.min(tasks)) };
            spec.node_sizes = NodeSizes::default();
        }
        if !spec.mail.is_default() {
            let owner = by.user.as_ref().map_or_else(|| by.caller.uid.to_string(), |user| user.name.clone());
            let domain = self.config.mail_domain.as_deref();
            spec.mail.user = Some(mail::address(spec.mail.user.as_deref(), &owner, domain));
        }
        // Nobody else's job runs where a node is rebooted for this one.
        if spec.reboot {
            spec.sharing = Sharing::Exclusive;
        }
        // core_spec.html: the job gets the node exclusively in any case; the count is dropped if the site does not allow it.
        if spec.layout.left_to_system.is_some() {
            spec.sharing = Sharing::Exclusive;
            spec.layout.left_to_system = spec.layout.left_to_system.filter(|_| self.config.allow_spec_resources);
        }
        Ok(())
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

    /// Replaces host list functions by nodes.
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

    /// Checks requested and preferred features, unless the site allows unknown ones, and conditions on nodes' `Extra` data.
    fn check_wishes(&self, spec: &JobSpec, purpose: &Purpose<'_>) -> Result<(), Refusal> {
        if purpose.asks(spec, |spec| &spec.extra) {
            check_extra(self.config, spec.extra.as_deref())?;
        }
        let words = &self.config.scheduler_parameters;
        let (any, any_preferred) = (words.has("ignore_constraint_validation"), words.has("ignore_prefer_validation"));
        let known = |feature: &str| self.feasibility.knows_feature(feature);
        if purpose.asks(spec, |spec| &spec.constraint) {
            check_constraint(spec.constraint.as_deref(), &|feature| any || known(feature))?;
        }
        if purpose.asks(spec, |spec| &spec.prefer) {
            check_constraint(spec.prefer.as_deref(), &|feature| any_preferred || known(feature))?;
        }
        if purpose.asks(spec, |spec| (&spec.batch_features, &spec.constraint)) {
            check_batch_features(spec)?;
        }
        Ok(())
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
            terms: PriorityTerms { fixed: spec.priority.is_some_and(|p| p > 0), site: 0, ..PriorityTerms::default() },
            hold: held.then_some(HeldBy::User),
            begin: spec.begin.filter(|at| *at > self.now),
            dependencies: spec.dependencies.clone(),
            dependency_failed: false,
            eligible_time: None,
            array,
            array_task: None,
            restarts: 0,
            requeues_unasked: 0,
            left_crontab: false,
            admin_comment: None,
            steps: garrick_model::packed_steps::StepTally::default(),
            earlier: Vec::new(),
            unfenced: Vec::new(),
            expediting: None,
            last_exit: None,
            first_run: None,
            last_cause: None,
            phase: Phase::Pending,
            spec: Arc::new(spec),
        }
    }
}

/// The parts of a request that admission fills in or uses for that.
fn asked_for(spec: &JobSpec) -> impl PartialEq + use<'_> {
    let place = (spec.kind, &spec.partitions, &spec.account, &spec.qos, &spec.reservations, &spec.nodelist);
    let counts = (spec.nodes, &spec.node_sizes, spec.tasks, spec.tasks_per_node, spec.cpus_per_task);
    let share = (spec.min_cpus_per_node, spec.memory, &spec.gres, spec.sharing, &spec.mcs_label, &spec.layout);
    (place, counts, share, spec.time_limit, &spec.constraint, (spec.requeue, spec.expedite))
}

/// A job has to be resolved again, but its partitions no longer exist.
fn gone(spec: &JobSpec, purpose: &Purpose<'_>) -> Refusal {
    let was = purpose.change().and_then(|change| change.record.resolved.partitions.first());
    was.or_else(|| spec.partitions.first()).map_or(Refusal::NoPartition, |name| Refusal::InvalidPartition(name.clone()))
}

impl Change<'_> {
    /// Does the request itself name a resolved value that was resolved differently since?
    fn names_what_is_resolved(&self) -> bool {
        self.change.names_limit(self.record.resolved.time_limit) || self.change.requeue.is_some()
    }
}

fn check_counts(spec: &JobSpec) -> Result<(), Refusal> {
    let nodes_wrong = spec.nodes.is_some_and(|n| n.min == 0 || n.max.is_some_and(|max| max < n.min));
    let nodes_wrong = nodes_wrong || !spec.node_sizes.is_empty() && spec.node_sizes.bounds() != spec.nodes;
    let zero = spec.tasks == Some(0) || spec.tasks_per_node == Some(0) || spec.cpus_per_task == Some(0);
    if nodes_wrong || zero { Err(Refusal::BadNodeCount) } else { Ok(()) }
}

/// Could the job run in one of its partitions, whatever is free and whichever nodes are up?
fn could_ever_run(
    feasibility: &mut Feasibility,
    job: &JobView,
    is_held: bool,
    enforced: EnforcePartLimits,
) -> Result<(), Refusal> {
    let known = |feature: &str| feasibility.knows_feature(feature);
    if check_constraint(job.spec.constraint.as_deref(), &known).is_err() {
        // What it names may be added later.
        return Ok(());
    }
    let refusal = |what: Infeasible| Refusal::NodeConfigUnavailable { detail: what.detail().map(str::to_owned) };
    match feasibility.check(job) {
        Err(_) if feasibility.exceeds(job) => match enforced {
            EnforcePartLimits::No => Ok(()),
            EnforcePartLimits::Any | EnforcePartLimits::All => Err(Refusal::TooManyCpus),
        },
        // As in Slurm, a held job is not measured against the nodes' memory and disks: they may grow until it is released.
        Err(Infeasible::Memory | Infeasible::TmpDisk) if is_held => Ok(()),
        outcome => outcome.map_err(refusal),
    }
}

/// Each license and hierarchical resource that is named must exist, with enough for one of the alternatives. Returns the request
/// with numbers in place of words for amounts.
fn check_licenses(
    request: Option<String>,
    config: &Config,
    count: &dyn Fn(&str) -> u32,
) -> Result<Option<String>, Refusal> {
    let Some(text) = request.as_deref().filter(|text| !text.is_empty()) else { return Ok(request) };
    let refusal = || Refusal::InvalidLicense(text.to_owned());
    let numbered = with_numbers(text, &|name, word| config.hres.variable(name, word)).map_err(|_| refusal())?;
    let request: LicenseRequest = numbered.parse().map_err(|_| refusal())?;
    let asked = || request.alternatives.iter().flat_map(|a| &a.0);
    // The choice between several resources would have to be made together with the choice of nodes.
    if request.alternatives.len() > 1 && asked().any(|l| config.hres.resource(&l.name).is_some()) {
        return Err(refusal());
    }
    let most = |license: &LicenseCount| match config.hres.resource(&license.name) {
        Some((_, resource)) => resource.could_give(license.count),
        None => license.count <= count(&license.name),
    };
    let known = |l: &LicenseCount| count(&l.name) > 0 || config.hres.resource(&l.name).is_some();
    let enough = request.alternatives.iter().any(|a| a.0.iter().all(most));
    let enough = enough || config.scheduler_parameters.has("allow_zero_lic");
    if asked().all(known) && enough { Ok(Some(numbered)) } else { Err(refusal()) }
}

/// If nodes are filtered by `--extra`, it must be well formed.
fn check_extra(config: &Config, extra: Option<&str>) -> Result<(), Refusal> {
    let applies = config.scheduler_parameters.has("extra_constraints");
    match extra.filter(|text| applies && !text.is_empty()).map(|text| (text, Extra::parse(text))) {
        Some((text, Err(error))) => Err(Refusal::InvalidUpdate(format!("Invalid extra constraint {text:?}: {error}"))),
        _ => Ok(()),
    }
}

/// `--batch` asks for features of one node, and must be a part of what `--constraint` asks for (sbatch(1)).
fn check_batch_features(spec: &JobSpec) -> Result<(), Refusal> {
    let Some(text) = spec.batch_features.as_deref().filter(|text| !text.is_empty()) else { return Ok(()) };
    let refusal = || Refusal::InvalidFeature(text.to_owned());
    let wish = Wish::parse(text).map_err(|_| refusal())?;
    let all = spec.constraint.as_deref().and_then(|all| Wish::parse(all).ok()).ok_or_else(refusal)?;
    let mut asked = BTreeSet::new();
    all.each_feature(&mut |feature| {
        asked.insert(feature);
    });
    let mut part = matches!(wish, Wish::Each(_));
    wish.each_feature(&mut |feature| part &= asked.contains(feature));
    if part { Ok(()) } else { Err(refusal()) }
}

/// A feature expression must be well formed, and every feature in it must be on some node.
fn check_constraint(constraint: Option<&str>, known: &dyn Fn(&str) -> bool) -> Result<(), Refusal> {
    let Some(text) = constraint.filter(|text| !text.is_empty()) else { return Ok(()) };
    let refusal = || Refusal::InvalidFeature(text.to_owned());
    let wish = Wish::parse(text).map_err(|_| refusal())?;
    let mut all_known = true;
    wish.each_feature(&mut |feature| all_known &= known(feature));
    if all_known { Ok(()) } else { Err(refusal()) }
}
