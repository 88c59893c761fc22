//! Limits of associations and QOS (`AccountingStorageEnforce`; Slurm's page on resource limits, sacctmgr(1)). A job that is over one
//! waits with its reason, and holds no other job back. Resources that are reserved for later are not counted: each start is
//! measured when it comes.
//!
//! Where one limit is set in several places, the first of these counts: the partition's QOS, the job's QOS (the other way round with
//! `OverPartQOS`), the job's association, and then the accounts above it. Limits of groups count in all of those accounts.

use super::minutes::{Spent, group_reaches, own_reaches};
use crate::proposals::StartProposal;
use crate::snapshot::{
    accounting::{Accounting, Compiled, Demand, Holder, QosRules, Standing, Sum, Used},
    affiliation::Affiliation,
    changes::{Fact, Reads},
    facts::{ClusterView, PartitionFacts},
    qos::with_each,
    request::run_limit,
};
use garrick_model::{
    config::EnforceWord,
    entities::{
        association::AssocId,
        limits::{Count, TresLimit},
        qos::{QosFlag, choices},
        reasons::{INVALID_ACCOUNT, INVALID_QOS, Level, USAGE_THRESHOLD, of_count, of_tres, plain},
        used::Flow,
    },
    spec_text::licenses::Licenses,
    state::Reason,
    view::{AllocatedNode, JobView},
};
use std::{collections::BTreeSet, sync::Arc};

/// What the rule reads. What running jobs have is read anew by each repair.
pub(crate) const READS: Reads = Reads::only("accounting", |_| &[Fact::Accounting]);

/// The TRES of which jobs on one node have one together.
const NODE: &str = "node";

/// What jobs have while a plan is made: running jobs, and those that the plan starts.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    used: Arc<Used>,
}

impl Counted {
    pub(crate) fn new(view: &ClusterView) -> Self {
        Self { used: Arc::clone(&view.accounting.used) }
    }

    /// May the job start, by what it asks for?
    pub(crate) fn gate(&self, view: &ClusterView, job: &JobView, partition: &PartitionFacts) -> Result<(), Reason> {
        let accounting = &view.accounting;
        if !accounting.enforces(EnforceWord::Associations) {
            return Ok(());
        }
        let standing = accounting.standing_in(job, partition);
        is_valid(accounting, &standing, job)?;
        if !accounting.enforces(EnforceWord::Limits) {
            return Ok(());
        }
        let demand = accounting.asks(job, &standing, secs(job, partition));
        exceeded(accounting, &standing, &demand, Some(&self.used)).map_or(Ok(()), Err)
    }

    /// May it start with these nodes and licenses, for so many seconds?
    pub(crate) fn gate_start(
        &self,
        view: &ClusterView,
        (job, partition): (&JobView, &PartitionFacts),
        what: (&[AllocatedNode], &Licenses),
        secs: Option<u64>,
    ) -> Result<(), Reason> {
        let accounting = &view.accounting;
        if !accounting.enforces(EnforceWord::Limits) {
            return Ok(());
        }
        let standing = accounting.standing_in(job, partition);
        let demand = accounting.gets(job, &standing, what, secs);
        exceeded(accounting, &standing, &demand, Some(&self.used)).map_or(Ok(()), Err)
    }

    /// It starts with them.
    pub(crate) fn start(
        &mut self,
        view: &ClusterView,
        (job, partition): (&JobView, &PartitionFacts),
        what: (&[AllocatedNode], &Licenses),
        secs: Option<u64>,
    ) {
        let accounting = &view.accounting;
        if !accounting.enforces(EnforceWord::Limits) {
            return;
        }
        let standing = accounting.standing_in(job, partition);
        let holders = standing.holders();
        if !holders.is_empty() {
            let demand = accounting.gets(job, &standing, what, secs);
            Arc::make_mut(&mut self.used).add(&holders, &demand);
        }
    }
}

impl ClusterView {
    /// Counts starts that may still come about against limits, beside what running jobs have.
    pub fn count_starts(&mut self, starts: &[StartProposal]) {
        if starts.is_empty() {
            return;
        }
        let mut counted = Counted::new(self);
        for start in starts.iter().flat_map(|start| [start].into_iter().chain(&start.others)) {
            let job = self.pending.iter().find(|job| job.id == start.job);
            let partition = self.partitions.iter().find(|partition| partition.name == start.partition);
            if let (Some(job), Some(partition)) = (job, partition) {
                let secs = start.time_limit.duration().map(|limit| limit.as_secs());
                let with = with_each(job).into_iter().find(|job| job.spec.qos == start.qos);
                counted.start(self, (with.as_deref().unwrap_or(job), partition), (&start.nodes, &start.licenses), secs);
            }
        }
        self.accounting.used = counted.used;
    }
}

/// What a job is measured by before resources are searched for it. Jobs that agree in this have the same gate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    partition: usize,
    association: Option<AssocId>,
    qos: Option<u32>,
    /// Of a job that names several QOS, the others.
    others: Vec<Option<u32>>,
    uid: u32,
    amounts: Vec<u64>,
    on_node: Vec<u64>,
    secs: Option<u64>,
    factor: u64,
}

impl Kind {
    pub(crate) fn of(view: &ClusterView, job: &JobView, partition: usize) -> Self {
        let facts = &view.partitions[partition];
        let standing = view.accounting.standing_in(job, facts);
        let Demand { amounts, on_node, secs, factor, .. } = view.accounting.asks(job, &standing, secs(job, facts));
        let (association, qos) = (standing.id, standing.own.map(|qos| qos.record.id));
        let named = job.spec.qos.as_deref().unwrap_or_default();
        let others =
            choices(named).skip(1).map(|name| view.accounting.table.qos(name).map(|qos| qos.record.id)).collect();
        Self { partition, association, qos, others, uid: job.uid, amounts, on_node, secs, factor: factor.to_bits() }
    }
}

/// How long a run in this partition may take; `None`: without end.
fn secs(job: &JobView, partition: &PartitionFacts) -> Option<u64> {
    run_limit(job, partition).duration().map(|limit| limit.as_secs())
}

/// Has the job an association that still exists, and a QOS that it may have?
fn is_valid(accounting: &Accounting, standing: &Standing<'_>, job: &JobView) -> Result<(), Reason> {
    let association = standing.association.filter(|rules| rules.living);
    let association = association.ok_or_else(|| plain(INVALID_ACCOUNT))?;
    if accounting.enforces(EnforceWord::Qos) {
        let may = standing.own.is_some_and(|qos| job.uid == 0 || association.qos.contains(&qos.record.name));
        if !may {
            return Err(plain(INVALID_QOS));
        }
    }
    Ok(())
}

/// Would the job be over a limit if no other job had anything? For `DenyOnLimit`, at submission.
pub fn exceeded_alone(accounting: &Accounting, job: &JobView, partition: &PartitionFacts) -> Option<Reason> {
    if !accounting.enforces(EnforceWord::Limits) {
        return None;
    }
    let standing = accounting.standing_in(job, partition);
    if !standing.qos.iter().any(|qos| qos.record.has(QosFlag::DenyOnLimit)) {
        return None;
    }
    let demand = accounting.asks(job, &standing, secs(job, partition));
    exceeded(accounting, &standing, &demand, None)
}

/// A limit on a number of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobsLimit {
    /// Whose jobs count.
    pub holder: Holder,
    /// How many there may be.
    pub most: u64,
    /// Why there may not be more.
    pub reason: Reason,
}

/// The limits on numbers of jobs of one kind, by where they are set.
struct Words {
    /// Of an association with those below it, or of a QOS.
    group: Count,
    /// Of an account in a QOS.
    per_account: Count,
    /// Of a user in a QOS.
    per_user: Count,
    /// Of an association itself.
    own: Count,
}

/// Jobs that wait or run.
const SUBMITTED: Words = Words {
    group: Count::GrpSubmit,
    per_account: Count::MaxSubmitPerAccount,
    per_user: Count::MaxSubmitPerUser,
    own: Count::MaxSubmit,
};

/// Waiting jobs that gain priority by age.
const ACCRUING: Words = Words {
    group: Count::GrpJobsAccrue,
    per_account: Count::MaxJobsAccruePerAccount,
    per_user: Count::MaxJobsAccruePerUser,
    own: Count::MaxJobsAccrue,
};

/// The limits on jobs that wait or run that hold for a job in a partition with that QOS: if it names several itself, those of each.
pub fn submit_limits(accounting: &Accounting, job: Affiliation<&str>, partition_qos: Option<&str>) -> Vec<JobsLimit> {
    let mut all: Vec<JobsLimit> = Vec::new();
    if !accounting.enforces(EnforceWord::Limits) {
        return all;
    }
    for job in each_affiliation(job) {
        let standing = accounting.standing(job, partition_qos);
        for limit in jobs_limits(&standing, &standing.qos, &SUBMITTED) {
            if !all.contains(&limit) {
                all.push(limit);
            }
        }
    }
    all
}

/// The affiliation with each of the QOS that the job names.
fn each_affiliation(job: Affiliation<&str>) -> impl Iterator<Item = Affiliation<&str>> {
    // As it is, it is that with the first one.
    let others = job.qos.into_iter().flat_map(|named| choices(named).skip(1));
    std::iter::once(job).chain(others.map(move |name| Affiliation { qos: Some(name), ..job }))
}

/// The limits on waiting jobs that gain priority by age. Of QOS only the job's own counts (Slurm's page on resource limits).
pub(super) fn accrue_limits(accounting: &Accounting, job: Affiliation<&str>) -> Vec<JobsLimit> {
    if !accounting.enforces(EnforceWord::Limits) {
        return Vec::new();
    }
    let standing = accounting.standing(job, None);
    let own: Vec<&QosRules> = standing.own.into_iter().collect();
    jobs_limits(&standing, &own, &ACCRUING)
}

/// Those of QOS, and those of associations that no QOS goes before.
fn jobs_limits(standing: &Standing<'_>, all_qos: &[&QosRules], words: &Words) -> Vec<JobsLimit> {
    let mut all = Vec::new();
    let mut known = BTreeSet::new();
    for qos in all_qos {
        let number = qos.record.id;
        let account = standing.association.map(|rules| Holder::QosAccount(number, rules.account));
        let holders = [
            (words.group, Some(Holder::Qos(number))),
            (words.per_account, account),
            (words.per_user, Some(Holder::QosUser(number, standing.uid))),
        ];
        for (count, holder) in holders {
            if let (Some(holder), Some(most)) = (holder, qos.limits.count(count))
                && known.insert(count)
            {
                all.push(JobsLimit { holder, most, reason: of_count(Level::Qos, count) });
            }
        }
    }
    let of_association = |count, id, most| JobsLimit {
        holder: Holder::Association(id),
        most,
        reason: of_count(Level::Association, count),
    };
    if let Some((id, rules)) = standing.id.zip(standing.association) {
        if !known.contains(&words.per_user) && !known.contains(&words.per_account) {
            all.extend(rules.limits.count(words.own).map(|most| of_association(words.own, id, most)));
        }
        if !known.contains(&words.group) {
            let groups = rules.groups.iter().filter_map(|(id, limits)| Some((*id, limits.count(words.group)?)));
            all.extend(groups.map(|(id, most)| of_association(words.group, id, most)));
        }
    }
    all
}

/// For whom a job in a partition with that QOS counts while it waits or runs: with each of the QOS that it names.
pub fn submitters(accounting: &Accounting, job: Affiliation<&str>, partition_qos: Option<&str>) -> Vec<Holder> {
    each_affiliation(job).flat_map(|job| accounting.standing(job, partition_qos).submitters()).collect()
}

/// Does the job's QOS have that flag?
pub fn qos_has(accounting: &Accounting, job: &JobView, flag: QosFlag) -> bool {
    accounting.enforces(EnforceWord::Limits)
        && accounting.standing(Affiliation::of(job), None).own.is_some_and(|qos| qos.record.has(flag))
}

/// Is nothing to be reserved for the job (`NoReserve`, `MinPrioThreshold`)?
pub(crate) fn reserves_nothing(view: &ClusterView, job: &JobView, partition: &PartitionFacts) -> bool {
    let accounting = &view.accounting;
    if !accounting.enforces(EnforceWord::Limits) {
        return false;
    }
    let standing = accounting.standing_in(job, partition);
    let least = |limits: &Compiled| limits.count(Count::MinPrioThreshold);
    let of_qos = standing.qos.iter().find_map(|qos| least(&qos.limits));
    let least = of_qos.or_else(|| standing.association.and_then(|rules| least(&rules.limits)));
    standing.own.is_some_and(|qos| qos.record.has(QosFlag::NoReserve))
        || least.is_some_and(|least| u64::from(job.priority) < least)
}

/// The reason of the first limit that the job would be over. `used`: what others have; `None`: the job is measured alone.
fn exceeded(accounting: &Accounting, standing: &Standing<'_>, demand: &Demand, used: Option<&Used>) -> Option<Reason> {
    let mut check = Check::new(accounting, demand, used);
    if let Some(reason) = check.threshold(standing) {
        return Some(reason);
    }
    if let Some(reason) = standing.qos.iter().find_map(|qos| check.qos(qos, standing)) {
        return Some(reason);
    }
    check.factor = limit_factor(standing);
    check.association(standing)
}

/// `LimitFactor`.
fn limit_factor(standing: &Standing<'_>) -> f64 {
    standing.own.and_then(|qos| qos.record.limit_factor).unwrap_or(1.0)
}

/// Measures a job by limits, in the order in which they count.
pub(super) struct Check<'c> {
    accounting: &'c Accounting,
    demand: &'c Demand,
    used: Option<&'c Used>,
    /// What was set in a place that goes before.
    counts: BTreeSet<Count>,
    tres: BTreeSet<(TresLimit, usize)>,
    /// `LimitFactor`.
    factor: f64,
}

/// One place of limits.
struct At<'c> {
    level: Level,
    limits: &'c Compiled,
    holder: Holder,
    past: Option<&'c Flow>,
}

impl<'c> Check<'c> {
    /// `used`: what others have; `None`: the job is measured alone.
    pub(super) const fn new(accounting: &'c Accounting, demand: &'c Demand, used: Option<&'c Used>) -> Self {
        Self { accounting, demand, used, counts: BTreeSet::new(), tres: BTreeSet::new(), factor: 1.0 }
    }

    /// In how many seconds a run reaches the first of its limits of minutes, and which one that is.
    pub(super) fn first_reached(&mut self, standing: &Standing<'c>, spent: &Spent) -> Option<(f64, Reason)> {
        let past = &self.accounting.past;
        let mut all = Vec::new();
        for qos in &standing.qos {
            let (limits, number) = (&qos.limits, qos.record.id);
            let at = At { level: Level::Qos, limits, holder: Holder::Qos(number), past: past.qos.get(&number) };
            self.reaches(&at, TresLimit::MaxTresMinsPerJob, spent, &mut all);
            self.reaches(&at, TresLimit::GrpTresMins, spent, &mut all);
            self.note(limits);
        }
        self.factor = limit_factor(standing);
        if let (Some(id), Some(rules)) = (standing.id, standing.association) {
            let (level, limits) = (Level::Association, &rules.limits);
            let at = At { level, limits, holder: Holder::Association(id), past: None };
            self.reaches(&at, TresLimit::MaxTresMinsPerJob, spent, &mut all);
            for (id, limits) in &rules.groups {
                let past = past.associations.get(id);
                let at = At { level, limits, holder: Holder::Association(*id), past };
                self.reaches(&at, TresLimit::GrpTresMins, spent, &mut all);
            }
        }
        all.into_iter().min_by(|(a, _), (b, _)| a.total_cmp(b))
    }

    /// When the run, or its group, reaches each of these limits of a TRES that it has.
    fn reaches(&self, at: &At<'_>, limit: TresLimit, spent: &Spent, all: &mut Vec<(f64, Reason)>) {
        for (place, most) in at.limits.tres(limit).iter().filter(|(place, _)| !self.tres.contains(&(limit, *place))) {
            let (name, own, most) =
                (&self.accounting.table.names()[*place], self.demand.amounts[*place], self.scaled(*most));
            if own == 0 {
                continue;
            }
            let secs = match limit {
                TresLimit::MaxTresMinsPerJob => own_reaches(spent, own, most),
                _ => group_reaches(at.past, name, most),
            };
            all.extend(secs.map(|secs| (secs, of_tres(at.level, limit, name))));
        }
    }

    fn sum(&self, holder: Holder) -> Option<&'c Sum> {
        self.used?.of(holder)
    }

    /// `UsageThreshold` with `EnforceUsageThreshold`.
    fn threshold(&self, standing: &Standing<'_>) -> Option<Reason> {
        self.used?;
        let qos = standing.own.filter(|qos| qos.record.has(QosFlag::EnforceUsageThreshold))?;
        let (least, share) = (qos.record.usage_threshold?, *self.accounting.past.fair_share.get(&standing.id?)?);
        (share < least).then(|| plain(USAGE_THRESHOLD))
    }

    fn qos(&mut self, qos: &'c QosRules, standing: &Standing<'_>) -> Option<Reason> {
        let (limits, number) = (&qos.limits, qos.record.id);
        let past = self.accounting.past.qos.get(&number);
        let at = At { level: Level::Qos, limits, holder: Holder::Qos(number), past };
        let user = Holder::QosUser(number, standing.uid);
        let account = standing.association.map(|rules| Holder::QosAccount(number, rules.account));
        let reason = self
            .running(&at, Count::GrpJobs, at.holder)
            .or_else(|| self.running(&at, Count::MaxJobsPerAccount, account?))
            .or_else(|| self.running(&at, Count::MaxJobsPerUser, user))
            .or_else(|| self.of_job(&at))
            .or_else(|| self.of_group(&at))
            .or_else(|| self.amounts(&at, TresLimit::MaxTresPerAccount, account?))
            .or_else(|| self.amounts(&at, TresLimit::MaxTresPerUser, user))
            .or_else(|| self.left(&at, TresLimit::MaxTresRunMinsPerAccount, account?))
            .or_else(|| self.left(&at, TresLimit::MaxTresRunMinsPerUser, user))
            .or_else(|| self.least(&at));
        self.note(limits);
        reason
    }

    fn association(&mut self, standing: &Standing<'c>) -> Option<Reason> {
        let (id, rules) = (standing.id?, standing.association?);
        let at = At { level: Level::Association, limits: &rules.limits, holder: Holder::Association(id), past: None };
        let of_qos = [Count::MaxJobsPerUser, Count::MaxJobsPerAccount];
        let jobs_of_qos = of_qos.iter().any(|count| self.counts.contains(count));
        let jobs = if jobs_of_qos { None } else { self.running(&at, Count::MaxJobs, at.holder) };
        jobs.or_else(|| self.of_job(&at)).or_else(|| {
            rules.groups.iter().find_map(|(id, limits)| {
                let past = self.accounting.past.associations.get(id);
                let at = At { level: Level::Association, limits, holder: Holder::Association(*id), past };
                self.running(&at, Count::GrpJobs, at.holder).or_else(|| self.of_group(&at))
            })
        })
    }

    /// What is set here goes before what is set elsewhere.
    fn note(&mut self, limits: &Compiled) {
        use Count::{GrpJobs, GrpWall, MaxJobsPerAccount, MaxJobsPerUser, MaxWall};
        let counts = [GrpJobs, GrpWall, MaxJobsPerAccount, MaxJobsPerUser, MaxWall];
        self.counts.extend(counts.into_iter().filter(|count| limits.count(*count).is_some()));
        for limit in TresLimit::ALL {
            self.tres.extend(limits.tres(limit).iter().map(|(at, _)| (limit, *at)));
        }
    }

    fn count(&self, at: &At<'_>, count: Count) -> Option<u64> {
        at.limits.count(count).filter(|_| !self.counts.contains(&count))
    }

    /// Numbers that jobs are over together, not one alone.
    fn running(&self, at: &At<'_>, count: Count, holder: Holder) -> Option<Reason> {
        let most = self.count(at, count)?;
        let running = self.sum(holder).map_or(0, |sum| sum.jobs);
        (self.used.is_some() && running >= most).then(|| of_count(at.level, count))
    }

    /// Limits of each job.
    fn of_job(&self, at: &At<'_>) -> Option<Reason> {
        let too_long = |most: u64| self.demand.secs.is_none_or(|secs| secs > most.saturating_mul(60));
        let wall = self.count(at, Count::MaxWall).filter(|most| too_long(*most));
        wall.map(|_| of_count(at.level, Count::MaxWall))
            .or_else(|| self.first(at, TresLimit::MaxTresPerJob, |place, most| self.demand.amounts[place] > most))
            .or_else(|| self.first(at, TresLimit::MaxTresPerNode, |place, most| self.demand.on_node[place] > most))
            .or_else(|| {
                // Without `safe`, a job that uses them up is ended then.
                let safe = self.accounting.enforces(EnforceWord::Safe);
                let over = |place, most: u64| safe && self.demand.times_secs(place) > most.saturating_mul(60);
                self.first(at, TresLimit::MaxTresMinsPerJob, over)
            })
    }

    fn least(&self, at: &At<'_>) -> Option<Reason> {
        self.first(at, TresLimit::MinTresPerJob, |place, least| self.demand.amounts[place] < least)
    }

    /// Limits of all jobs of a group together.
    fn of_group(&self, at: &At<'c>) -> Option<Reason> {
        self.amounts(at, TresLimit::GrpTres, at.holder)
            .or_else(|| self.minutes(at))
            .or_else(|| self.left(at, TresLimit::GrpTresRunMins, at.holder))
            .or_else(|| self.wall(at))
    }

    /// Amounts that jobs have at one time.
    fn amounts(&self, at: &At<'_>, limit: TresLimit, holder: Holder) -> Option<Reason> {
        let sum = self.sum(holder);
        self.first(at, limit, |place, most| {
            let own = self.demand.amounts[place];
            if self.accounting.table.names()[place] == NODE {
                return self.nodes(sum).unwrap_or(own) > most;
            }
            let others = sum.and_then(|sum| sum.tres.get(place)).copied().unwrap_or(0);
            others.saturating_add(own) > most
        })
    }

    /// On how many nodes jobs are together with this one; `None`: it has no nodes yet.
    fn nodes(&self, sum: Option<&Sum>) -> Option<u64> {
        let own = self.demand.nodes.as_ref()?;
        let known = |node: &&usize| sum.is_some_and(|sum| sum.nodes.contains_key(*node));
        let new = own.iter().filter(|node| !known(node)).count();
        Some((sum.map_or(0, |sum| sum.nodes.len()) + new) as u64)
    }

    /// Minutes that running jobs have left.
    fn left(&self, at: &At<'_>, limit: TresLimit, holder: Holder) -> Option<Reason> {
        let sum = self.sum(holder);
        self.first(at, limit, |place, most| {
            let others = sum.and_then(|sum| sum.left_secs.get(place)).copied().unwrap_or(0);
            others.saturating_add(self.demand.times_secs(place)) > most.saturating_mul(60)
        })
    }

    /// What was used in the past; of no concern to a job that is measured alone.
    fn past(&self, at: &At<'c>) -> Option<&'c Flow> {
        at.past.filter(|_| self.used.is_some())
    }

    /// Minutes of the past, and with `safe` also those that running jobs and this one may use.
    fn minutes(&self, at: &At<'c>) -> Option<Reason> {
        let sum = self.sum(at.holder);
        self.first(at, TresLimit::GrpTresMins, |place, most| {
            let name = &self.accounting.table.names()[place];
            let past = self.past(at).and_then(|past| past.used.tres.get(name)).copied().unwrap_or(0.0);
            let others = sum.and_then(|sum| sum.left_secs.get(place)).copied().unwrap_or(0);
            self.is_over(past, others, self.demand.times_secs(place), most)
        })
    }

    /// The same of run time.
    fn wall(&self, at: &At<'c>) -> Option<Reason> {
        let most = self.count(at, Count::GrpWall)?;
        let past = self.past(at).map_or(0.0, |past| past.used.wall_secs);
        let others = self.sum(at.holder).map_or(0, |sum| sum.wall_left_secs);
        self.is_over(past, others, self.demand.wall_secs(), most).then(|| of_count(at.level, Count::GrpWall))
    }

    fn is_over(&self, past: f64, others: u64, own: u64, most_minutes: u64) -> bool {
        #[expect(clippy::cast_precision_loss)]
        let (most, to_come) = (most_minutes as f64 * 60.0, others.saturating_add(own) as f64);
        if self.accounting.enforces(EnforceWord::Safe) { past + to_come > most } else { past >= most }
    }

    /// The first TRES of such a limit that is over it.
    fn first(&self, at: &At<'_>, limit: TresLimit, over: impl Fn(usize, u64) -> bool) -> Option<Reason> {
        let free = |place: &usize| !self.tres.contains(&(limit, *place));
        let mut all = at.limits.tres(limit).iter().filter(|(place, _)| free(place));
        let over = all.find(|(place, most)| over(*place, self.scaled(*most)))?;
        Some(of_tres(at.level, limit, &self.accounting.table.names()[over.0]))
    }

    fn scaled(&self, most: u64) -> u64 {
        if self.factor == 1.0 {
            return most;
        }
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let scaled = (most as f64 * self.factor) as u64;
        scaled
    }
}
