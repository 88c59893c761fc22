//! `priority/multifactor`: a job's factors and the resulting number, as Slurm's page on the plugin describes it
//! (`priority_multifactor.html`); where the page leaves a formula open, the output of Slurm 22.05's `sprio` decided. Pure: the
//! job, the site's rules and the time of the calculation are arguments. Called by the scheduler for waiting jobs, by admission
//! for a first value, and by the frontend for `sprio`.
//!
//! All jobs are calculated for the same moment, [`Rules::as_of`], which moves every `PriorityCalcPeriod`. Between two such
//! moments a priority changes only if its job or the rules change.

use crate::{rules::fair::FairShares, snapshot::qos::QosTable};
use garrick_model::{
    config::{BilledTerms, BillingWeights, PrioritySettings, WeighedTres},
    resources::MemoryRequest,
    spec_text::licenses::LicenseRequest,
    time::{TimeLimit, Timestamp},
    view::{JobView, NodeView, PartitionView},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The values of a partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rank {
    /// `PriorityJobFactor`.
    pub job_factor: u32,
    /// Nodes.
    pub nodes: u32,
    /// CPUs.
    pub cpus: u64,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// What its nodes have, by the name of the TRES.
    pub tres: BTreeMap<String, u64>,
    /// `TRESBillingWeights`; `None`: CPUs are billed.
    pub billing: Option<BillingWeights>,
    /// What all of that is billed as.
    pub whole_billing: u64,
}

/// All that priorities are calculated from, besides the job.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Weights and flags.
    pub settings: PrioritySettings,
    /// Partitions by name.
    pub partitions: BTreeMap<String, Rank>,
    /// Greatest `PriorityJobFactor`.
    pub highest_factor: u32,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// CPUs of the cluster.
    pub cpus: u64,
    /// Licenses of the cluster, and how many: also those that accounting allows it of other servers.
    pub licenses: BTreeMap<String, u32>,
    /// The moment that the calculation is made for.
    pub as_of: Timestamp,
    /// The qualities of service.
    pub qos: Arc<QosTable>,
    /// Fair shares, with what accounting knows of associations and QOS; empty without it.
    pub fair: Arc<FairShares>,
}

/// What accounting knows of a job's user, each as a factor. Without accounting all are 0, as in Slurm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// Fair share, 0 to 1.
    pub fairshare: f64,
    /// The association's priority divided by the greatest one (or itself with `NO_NORMAL_ASSOC`).
    pub assoc: f64,
    /// The QOS's priority divided by the greatest one (or itself with `NO_NORMAL_QOS`).
    pub qos: f64,
}

/// A job's factors in one partition, before weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Factors {
    /// How long it was eligible, 0 to 1.
    pub age: f64,
    /// Association.
    pub assoc: f64,
    /// Fair share.
    pub fairshare: f64,
    /// Size, 0 to 1.
    pub job_size: f64,
    /// Partition, 0 to 1 (or `PriorityJobFactor` with `NO_NORMAL_PART`).
    pub partition: f64,
    /// QOS.
    pub qos: f64,
    /// Shares of the partition (or amounts with `NO_NORMAL_TRES`), of licenses shares of all; in the order of
    /// [`PrioritySettings::tres`].
    pub tres: Vec<f64>,
    /// `SiteFactor`, added unchanged.
    pub site: i32,
    /// Nice, subtracted unchanged.
    pub nice: i32,
}

impl Rank {
    fn of(view: &PartitionView, nodes: &[Arc<NodeView>], terms: BilledTerms) -> Self {
        let mut rank = Self {
            job_factor: u32::from(view.config.priority_job_factor),
            billing: view.config.weights(),
            ..Self::default()
        };
        for node in view.nodes.iter().filter_map(|index| nodes.get(index.0 as usize)) {
            rank.nodes += 1;
            rank.cpus += u64::from(node.shape.cpus);
            rank.memory_mib += node.shape.memory.0;
            for (name, count) in node.shape.amounts() {
                *rank.tres.entry(name).or_default() += count;
            }
        }
        rank.whole_billing = rank.billed(&rank.tres, terms);
        rank
    }

    fn billed(&self, tres: &BTreeMap<String, u64>, terms: BilledTerms) -> u64 {
        let cpus = || tres.get("cpu").copied().unwrap_or(0);
        self.billing.as_ref().map_or_else(cpus, |weights| weights.billed(tres, terms))
    }
}

impl Rules {
    /// Is another calculation due (`PriorityCalcPeriod`)? Also if the clock was set back.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let period = Duration::from_secs(self.settings.calc_period_secs);
        self.as_of > now || now.since(self.as_of) >= period
    }

    /// From boards and configuration. Nodes are in the order of their indices.
    pub fn new(
        settings: &PrioritySettings,
        partitions: &[Arc<PartitionView>],
        nodes: &[Arc<NodeView>],
        as_of: Timestamp,
    ) -> Self {
        let terms = settings.flags.billed_terms();
        let ranks: BTreeMap<String, Rank> =
            partitions.iter().map(|view| (view.config.name.clone(), Rank::of(view, nodes, terms))).collect();
        Self {
            settings: settings.clone(),
            highest_factor: ranks.values().map(|rank| rank.job_factor).max().unwrap_or(0),
            partitions: ranks,
            nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            cpus: nodes.iter().map(|node| u64::from(node.shape.cpus)).sum(),
            licenses: BTreeMap::new(),
            as_of,
            qos: Arc::default(),
            fair: Arc::default(),
        }
    }

    /// The same with these licenses.
    #[must_use]
    pub fn with_licenses(self, licenses: BTreeMap<String, u32>) -> Self {
        Self { licenses, ..self }
    }

    /// The same with these fair shares.
    #[must_use]
    pub fn with_fair(self, fair: Arc<FairShares>) -> Self {
        Self { fair, ..self }
    }

    /// The same with these qualities of service.
    #[must_use]
    pub fn with_qos(self, qos: Arc<QosTable>) -> Self {
        Self { qos, ..self }
    }

    /// The factors of a job's user and QOS.
    pub fn standing(&self, job: &JobView) -> Standing {
        let flags = &self.settings.flags;
        if !self.fair.is_empty() {
            return self.fair.standing(job, !flags.no_normal_assoc, !flags.no_normal_qos);
        }
        Standing { qos: self.qos.factor(job, !self.settings.flags.no_normal_qos), ..Standing::default() }
    }

    /// The priority of a job without a fixed one: in the partition where it is highest. At least 1, since 0 means held.
    pub fn priority(&self, job: &JobView, standing: Standing) -> u32 {
        let nowhere = || Rank { job_factor: 0, ..Rank::default() };
        let of = |rank: &Rank| self.number(&self.factors(job, rank, standing));
        let best = job.partitions.iter().filter_map(|name| self.partitions.get(name)).map(of).max();
        best.unwrap_or_else(|| of(&nowhere()))
    }

    /// A job's factors in a partition.
    pub fn factors(&self, job: &JobView, rank: &Rank, standing: Standing) -> Factors {
        let settings = &self.settings;
        let cpus = f64::from(job.cpus);
        // Without a number of nodes the job will need as many as its CPUs fill.
        let filled = share(cpus * f64::from(rank.nodes), wide(rank.cpus)).ceil();
        let nodes = match &job.allocation {
            Some(allocation) if !job.state.waits() => count(allocation.nodes.len()),
            _ => f64::from(job.min_nodes).max(filled),
        };
        let memory = match job.memory {
            MemoryRequest::PerNode(mib) => wide(mib.0) * nodes,
            MemoryRequest::PerCpu(mib) => wide(mib.0) * cpus,
            MemoryRequest::Default | MemoryRequest::All => share(wide(rank.memory_mib), f64::from(rank.nodes)) * nodes,
        };
        let tres = self.tres(job, rank, [cpus, memory, nodes]);
        Factors {
            age: self.age(job),
            assoc: standing.assoc,
            fairshare: standing.fairshare,
            job_size: self.job_size(job, cpus, nodes),
            partition: if settings.flags.no_normal_part {
                f64::from(rank.job_factor)
            } else {
                share(f64::from(rank.job_factor), f64::from(self.highest_factor))
            },
            qos: standing.qos,
            tres,
            site: job.terms.site,
            nice: job.spec.nice,
        }
    }

    /// What each weighed TRES comes to, of a job with so many CPUs, so much memory (MiB) and so many nodes.
    fn tres(&self, job: &JobView, rank: &Rank, [cpus, memory, nodes]: [f64; 3]) -> Vec<f64> {
        let weights = &self.settings.tres;
        if weights.is_empty() {
            return Vec::new();
        }
        // Nothing is looked up by name for a job that has nothing with one.
        let has_named = !job.spec.gres.is_empty() || job.spec.licenses.is_some();
        let others = weights.iter().any(|(kind, _)| match kind {
            WeighedTres::Cpu | WeighedTres::Mem | WeighedTres::Node => false,
            WeighedTres::Billing => true,
            WeighedTres::Gres(_) | WeighedTres::License(_) => has_named,
        });
        let named = if others { self.amounts(job, [cpus, memory, nodes]) } else { BTreeMap::new() };
        let of = |name: String| named.get(&name).copied().unwrap_or(0);
        let all = |name: String| rank.tres.get(&name).copied().unwrap_or(0);
        let terms = self.settings.flags.billed_terms();
        let factor = |kind: &WeighedTres| {
            let (amount, whole) = match kind {
                WeighedTres::Cpu => (cpus, wide(rank.cpus)),
                WeighedTres::Mem => (memory, wide(rank.memory_mib)),
                WeighedTres::Node => (nodes, f64::from(rank.nodes)),
                WeighedTres::Billing => (wide(rank.billed(&named, terms)), wide(rank.whole_billing)),
                WeighedTres::Gres(_) => (wide(of(kind.name())), wide(all(kind.name()))),
                WeighedTres::License(name) => {
                    (wide(of(kind.name())), wide(self.licenses.get(name).copied().unwrap_or(0).into()))
                }
            };
            if self.settings.flags.no_normal_tres { amount } else { share(amount, whole).min(1.0) }
        };
        weights.iter().map(|(kind, _)| factor(kind)).collect()
    }

    /// By the name of the TRES: what a job has, or asks for as long as it waits.
    fn amounts(&self, job: &JobView, [cpus, memory, nodes]: [f64; 3]) -> BTreeMap<String, u64> {
        if let Some(allocation) = job.allocation.as_ref().filter(|_| !job.state.waits()) {
            return allocation.tres();
        }
        let usual = [("cpu", cpus), ("mem", memory), ("node", nodes)];
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
        let mut amounts: BTreeMap<String, u64> =
            usual.into_iter().map(|(name, amount)| (name.to_owned(), amount as u64)).collect();
        let nodes = u32::try_from(amounts["node"]).unwrap_or(u32::MAX);
        let gres = job.spec.gres.counted(nodes, job.tasks).into_iter();
        amounts.extend(gres.map(|(name, count)| (format!("gres/{name}"), count)));
        let first = LicenseRequest::of(&job.spec)
            .and_then(|request| request.alternatives.into_iter().next())
            .unwrap_or_default();
        amounts.extend(first.0.into_iter().map(|one| (format!("license/{}", one.name), u64::from(one.count))));
        amounts
    }

    /// The weighted sum.
    pub fn number(&self, factors: &Factors) -> u32 {
        let weights = &self.settings;
        let mut sum = f64::from(factors.site) - f64::from(factors.nice);
        sum += factors.age * f64::from(weights.age);
        sum += factors.assoc * f64::from(weights.assoc);
        sum += factors.fairshare * f64::from(weights.fairshare);
        sum += factors.job_size * f64::from(weights.job_size);
        sum += factors.partition * f64::from(weights.partition);
        sum += factors.qos * f64::from(weights.qos);
        sum += weights.tres.iter().zip(&factors.tres).map(|((_, weight), factor)| factor * weight).sum::<f64>();
        // The conversion saturates. The least value above "held" is 1.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range")]
        let number = sum.clamp(1.0, f64::from(u32::MAX)) as u32;
        number
    }

    fn age(&self, job: &JobView) -> f64 {
        let always = self.settings.flags.accrue_always.then_some(job.submit_time);
        let Some(since) = always.or_else(|| job.accrue_time()) else { return 0.0 };
        // A running job no longer waits.
        let until = job.start_time.filter(|_| !job.state.waits()).unwrap_or(self.as_of);
        let waited = until.since(since).as_secs();
        share(wide(waited), wide(self.settings.max_age_secs)).min(1.0)
    }

    /// The mean of the shares of nodes and CPUs; with `SMALL_RELATIVE_TO_TIME` the greater of them divided by the minutes of the
    /// time limit.
    fn job_size(&self, job: &JobView, cpus: f64, nodes: f64) -> f64 {
        let of_nodes = share(nodes, f64::from(self.nodes));
        let of_cpus = share(cpus, wide(self.cpus));
        let size = if self.settings.flags.small_relative_to_time {
            match job.time_limit {
                TimeLimit::Unlimited => 0.0,
                TimeLimit::Secs(secs) => of_nodes.max(of_cpus) / (wide(secs) / 60.0).max(1.0),
            }
        } else {
            f64::midpoint(of_nodes, of_cpus)
        };
        let size = size.clamp(0.0, 1.0);
        if self.settings.favor_small { 1.0 - size } else { size }
    }
}

/// Jobs whose priorities change by themselves: waiting ones and, if the site wants that, running ones.
pub fn is_calculated(settings: &PrioritySettings, job: &JobView) -> bool {
    let held = job.priority == 0;
    let runs = job.state.works();
    !job.terms.fixed && !held && (job.state.waits() || (settings.flags.calculate_running && runs))
}

/// The priority that a job should have now, if it differs from the one that it shows.
pub fn news(rules: &Rules, job: &JobView, standing: Standing) -> Option<u32> {
    if !is_calculated(&rules.settings, job) {
        return None;
    }
    let mut priority = rules.priority(job, standing);
    if rules.settings.flags.incr_only {
        priority = priority.max(job.priority);
    }
    (priority != job.priority).then_some(priority)
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Counts of CPUs, MiB and seconds are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
const fn wide(number: u64) -> f64 {
    number as f64
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
