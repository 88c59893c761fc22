//! Optional bounds of a plan, which few sites set (`SchedulerParameters`, `CompleteWait`): how many jobs are considered for each
//! user, partition or association, how many start, which jobs get nothing reserved, how long a plan may take. If none is set,
//! they cost nothing. Plans are repaired ([`crate::plan::kept`]) with the bounds on the number of jobs considered and started.

use super::facts::ClusterView;
use garrick_model::{
    config::Config,
    ids::JobId,
    state::{JobState, NodeBase},
    time::Timestamp,
    view::JobView,
};
use rustc_hash::FxHashMap;
use std::{sync::Arc, time::Duration};

/// Which priority of its components a heterogeneous job goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HetPriority {
    /// The lowest.
    Least,
    /// The mean.
    Mean,
    /// The highest.
    Most,
}

impl HetPriority {
    fn of(self, values: &[u32]) -> u32 {
        let sum: u64 = values.iter().copied().map(u64::from).sum();
        let mean = sum / values.len().max(1) as u64;
        match self {
            Self::Least => values.iter().copied().min().unwrap_or(0),
            Self::Mean => u32::try_from(mean).unwrap_or(u32::MAX),
            Self::Most => values.iter().copied().max().unwrap_or(0),
        }
    }
}

/// The bounds. `None`: not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Jobs behind waiting ones that are considered, for each user (`bf_max_job_user`).
    pub of_user: Option<u32>,
    /// The same for each partition (`bf_max_job_part`).
    pub of_partition: Option<u32>,
    /// The same for each user in each partition (`bf_max_job_user_part`).
    pub of_user_in_partition: Option<u32>,
    /// The same for each user with each account (`bf_max_job_assoc`).
    pub of_association: Option<u32>,
    /// Jobs of each partition that are considered where nothing is backfilled (`partition_job_depth`).
    pub in_partition: Option<u32>,
    /// Starts of jobs behind waiting ones (`bf_max_job_start`).
    pub backfilled: Option<u32>,
    /// Starts of other jobs (`sched_max_job_start`).
    pub in_order: Option<u32>,
    /// Tasks of an array that have resources reserved (`bf_max_job_array_resv`); 1 if not set.
    pub array_tasks: Option<u32>,
    /// A job that has waited for less gets nothing reserved, and no job waits for it (`bf_min_age_reserve`).
    pub min_age: Duration,
    /// The same for a job of lower priority (`bf_min_prio_reserve`).
    pub min_priority: u64,
    /// A job has resources reserved in one of its partitions only (`bf_one_resv_per_job`).
    pub one_per_job: bool,
    /// Jobs that a magnetic reservation attracts have resources reserved there (`bf_allow_magnetic_slot`).
    pub magnetic: bool,
    /// `bf_hetjob_prio`.
    pub het_priority: Option<HetPriority>,
    /// Jobs are expected to end at their `--time-min` (`time_min_as_soft_limit`).
    pub soft_limits: bool,
    /// How long a plan may take (`bf_max_time`; `max_sched_time` where nothing is backfilled).
    pub plan_time: Option<Duration>,
    /// For this long after a job ended, nothing starts while its nodes are cleaned (`CompleteWait`).
    pub complete_wait: Duration,
    /// `CompleteWait` applies only to partitions that share nodes with the job's own (`reduce_completing_frag`).
    pub complete_wait_nearby: bool,
}

impl Bounds {
    /// The bounds of a configuration; `None`: it sets none.
    pub fn of(config: &Config) -> Option<Arc<Self>> {
        let words = &config.scheduler_parameters;
        let number = |name: &str| words.value(name).and_then(|text| text.parse::<u64>().ok());
        let most = |name: &str| number(name).filter(|n| *n > 0).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let seconds = |name: &str| number(name).map(Duration::from_secs);
        let backfills = config.backfill();
        let bounds = Self {
            of_user: most("bf_max_job_user"),
            of_partition: most("bf_max_job_part"),
            of_user_in_partition: most("bf_max_job_user_part"),
            of_association: most("bf_max_job_assoc"),
            in_partition: most("partition_job_depth").filter(|_| !backfills),
            backfilled: most("bf_max_job_start"),
            in_order: most("sched_max_job_start"),
            array_tasks: number("bf_max_job_array_resv").map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            min_age: seconds("bf_min_age_reserve").unwrap_or_default(),
            min_priority: number("bf_min_prio_reserve").unwrap_or(0),
            one_per_job: words.has("bf_one_resv_per_job"),
            magnetic: words.has("bf_allow_magnetic_slot"),
            het_priority: match words.value("bf_hetjob_prio") {
                Some("min") => Some(HetPriority::Least),
                Some("avg") => Some(HetPriority::Mean),
                Some("max") => Some(HetPriority::Most),
                _ => None,
            },
            soft_limits: words.has("time_min_as_soft_limit"),
            plan_time: seconds(if backfills { "bf_max_time" } else { "max_sched_time" }),
            complete_wait: Duration::from_secs(config.complete_wait_secs.into()),
            complete_wait_nearby: words.has("reduce_completing_frag") && config.complete_wait_secs > 0,
        };
        (bounds != Self::default()).then(|| Arc::new(bounds))
    }

    /// The bounds without those that repairs can keep to.
    fn others(&self) -> Self {
        Self {
            of_user: None,
            of_partition: None,
            of_user_in_partition: None,
            of_association: None,
            backfilled: None,
            in_order: None,
            ..self.clone()
        }
    }

    /// Can plans be repaired with these bounds?
    pub(crate) fn allow_repairs(&self) -> bool {
        self.others() == Self::default()
    }

    /// Are both equal except for the remaining number of starts, which shrinks with every start?
    pub(crate) fn are_as(&self, other: &Self) -> bool {
        let kinds = |bounds: &Self| (bounds.backfilled.is_some(), bounds.in_order.is_some());
        let without = |bounds: &Self| Self { backfilled: None, in_order: None, ..bounds.clone() };
        kinds(self) == kinds(other) && without(self) == without(other)
    }

    /// The same for a plan that asks when one job starts, however many are ahead of it.
    pub(crate) fn looking_at_all(&self) -> Self {
        Self {
            of_user: None,
            of_partition: None,
            of_user_in_partition: None,
            of_association: None,
            in_partition: None,
            backfilled: None,
            in_order: None,
            plan_time: None,
            ..self.clone()
        }
    }

    /// Is a waiting job too young or of too low a priority for others to wait for it?
    pub(crate) fn is_modest(&self, job: &JobView, now: Timestamp) -> bool {
        let waits_since = job.eligible_time.unwrap_or(job.submit_time).max(job.submit_time);
        u64::from(job.priority) < self.min_priority || now.since(waits_since) < self.min_age
    }

    /// Tier and priority of the components of each heterogeneous job, by the id of its leader.
    pub(crate) fn het_priorities(&self, view: &ClusterView) -> FxHashMap<JobId, (u32, u32)> {
        let Some(kind) = self.het_priority else { return FxHashMap::default() };
        let mut groups: FxHashMap<JobId, (Vec<u32>, Vec<u32>)> = FxHashMap::default();
        for job in &view.pending {
            let Some((leader, _)) = job.spec.het else { continue };
            let tier = job.partitions.iter().find_map(|name| view.partition(name)).map_or(1, |(_, p)| p.tier);
            let (tiers, priorities) = groups.entry(leader).or_default();
            tiers.push(tier);
            priorities.push(job.priority);
        }
        groups
            .into_iter()
            .map(|(leader, (tiers, priorities))| (leader, (kind.of(&tiers), kind.of(&priorities))))
            .collect()
    }

    /// Until when nothing starts in a partition because jobs ended a short time ago.
    pub(crate) fn frozen_until(&self, view: &ClusterView, partition: usize, now: Timestamp) -> Option<Timestamp> {
        if self.complete_wait.is_zero() {
            return None;
        }
        let near = |name: &str| {
            let nodes = view.partition(name).map(|(_, facts)| &facts.nodes);
            nodes.is_some_and(|nodes| !nodes.is_disjoint(&view.partitions[partition].nodes))
        };
        let counts = |name: &str| !self.complete_wait_nearby || near(name);
        let ends = view.completing.iter().filter(|(_, name)| counts(name));
        ends.map(|(end, _)| end.plus(self.complete_wait)).filter(|until| *until > now).max()
    }
}

/// With soft limits, runs are expected to end at their `--time-min`, until that has passed.
pub fn soften(view: &mut ClusterView, jobs: &[Arc<JobView>], now: Timestamp) {
    if view.policy.bounds.as_ref().is_none_or(|bounds| !bounds.soft_limits) {
        return;
    }
    let soft_end = |job: &Arc<JobView>| {
        let soft = job.spec.time_min.and_then(|limit| limit.duration())?;
        let end = job.start_time.filter(|_| job.state == JobState::Running)?.plus(soft);
        (end > now).then_some((job.id, end))
    };
    let ends: FxHashMap<JobId, Timestamp> = jobs.iter().filter_map(soft_end).collect();
    let concerns = |node: &garrick_model::view::NodeView| {
        node.base != NodeBase::Down && node.holds.iter().any(|hold| ends.contains_key(&hold.job))
    };
    for node in view.nodes.iter_mut().filter(|node| concerns(node)) {
        for hold in &mut Arc::make_mut(node).holds {
            if let Some(end) = ends.get(&hold.job) {
                hold.expected_end = Some(hold.expected_end.map_or(*end, |hard| hard.min(*end)));
            }
        }
    }
}
