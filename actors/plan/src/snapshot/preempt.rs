//! Which jobs may preempt which, and how.

use super::{facts::ClusterView, reservations::Viewer};
use garrick_model::{
    config::{Config, McsSelect, PreemptMode, PreemptType},
    spec::Sharing,
    view::JobView,
};
use std::{collections::BTreeSet, time::Duration};

/// Which jobs may preempt which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreemptRules {
    /// `PreemptType`.
    pub kind: PreemptType,
    /// `PreemptMode`: for partitions without one of their own.
    pub mode: PreemptMode,
    /// `WITHIN` of `PreemptMode`.
    pub within: bool,
    /// `PRIORITY` of `PreemptMode`.
    pub by_priority: bool,
    /// `PreemptExemptTime`: runs are not preempted before this time after their start.
    pub exempt: Duration,
    /// `min_exempt_priority`: jobs of this priority and above are not preempted.
    pub exempt_from: Option<u32>,
    /// `youngest_first`: within a tier, runs that started last are preempted first.
    pub youngest_first: bool,
    /// `suspend_grace_time`: for runs that are suspended, the time from the request to the stop.
    pub suspend_grace: Duration,
    /// `reclaim_licenses`: jobs are preempted for their licenses too.
    pub reclaim_licenses: bool,
    /// `reorder_count`: so many other orders are tried to preempt fewer jobs.
    pub reorders: u32,
    /// `strict_order`: in those orders the job that was needed last comes first.
    pub strict_order: bool,
    /// `MCSParameters=select`: jobs of different MCS labels do not preempt each other, however they use their nodes.
    pub by_label: bool,
    /// `SchedulerTimeSlice`, where jobs that share CPUs take turns (`GANG`).
    pub time_slice: Option<Duration>,
}

/// How the jobs of a partition, or of a QOS, are preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Yielding {
    /// `PreemptMode`; `None`: the cluster's.
    pub mode: Option<PreemptMode>,
    /// `WITHIN` of that: also by jobs of the same QOS. It counts besides the cluster's.
    pub within: bool,
    /// `PRIORITY` of that: only by jobs of a higher priority. It counts besides the cluster's.
    pub by_priority: bool,
    /// `GraceTime`: from the request to the end.
    pub grace: Duration,
}

/// How one certain job is preempted by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Lower ranks are preempted first.
    pub rank: u32,
    /// The mode. Never [`PreemptMode::Off`].
    pub mode: PreemptMode,
    /// From the request to the end.
    pub grace: Duration,
    /// From its start until it may be preempted.
    pub exempt: Duration,
}

/// A job that may preempt others: it waits, in one of its partitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'c> {
    /// Job.
    pub job: &'c JobView,
    /// Index of the partition.
    pub partition: usize,
    /// Its view of reservations.
    pub viewer: Viewer,
}

/// What makes two claims equal, besides their requests.
pub(crate) type Rank = (Option<String>, Option<u32>);

impl PreemptRules {
    /// From a configuration.
    pub fn of(config: &Config) -> Self {
        Self {
            kind: config.preempt.kind,
            mode: config.preempt.mode.mode.unwrap_or_default(),
            within: config.preempt.mode.within,
            by_priority: config.preempt.mode.by_priority,
            exempt_from: config.preempt.exempt_from(),
            exempt: Duration::from_secs(config.preempt.exempt_secs),
            youngest_first: config.preempt.youngest_first(),
            suspend_grace: Duration::from_secs(config.preempt.suspend_grace_secs()),
            reclaim_licenses: config.preempt.reclaims_licenses(),
            reorders: config.preempt.reorders(),
            strict_order: config.preempt.is_strict_order(),
            by_label: config.mcs.select == McsSelect::Always,
            time_slice: (config.preempt.is_gang())
                .then(|| Duration::from_secs(u64::from(config.preempt.time_slice_secs()))),
        }
    }

    /// Is preemption possible at all?
    pub fn is_on(&self) -> bool {
        self.kind != PreemptType::None
    }

    /// How a job with nodes is preempted by a waiting one; `None`: it is not.
    pub(crate) fn way(&self, view: &ClusterView, claim: Claim<'_>, runs: &JobView) -> Option<Way> {
        let (_, runs_in) = view.partition(&runs.allocation.as_ref()?.partition)?;
        let kept = |job: &JobView| job.spec.sharing == Sharing::Mcs || self.by_label && job.spec.mcs_label.is_some();
        if (kept(claim.job) || kept(runs)) && claim.job.spec.mcs_label != runs.spec.mcs_label {
            return None;
        }
        if let Some(grace) = view.reservations.grace_of_guest(claim.viewer, runs).filter(|_| self.is_on()) {
            return Some(Way { rank: 0, mode: PreemptMode::Requeue, grace, exempt: Duration::ZERO });
        }
        let tier = view.partitions[claim.partition].tier;
        let (rank, yielding, exempt) = match self.kind {
            PreemptType::None => return None,
            PreemptType::PartitionPrio => {
                (runs_in.tier < tier).then_some((runs_in.tier, &runs_in.yielding, self.exempt))?
            }
            PreemptType::Qos => {
                let ((own, asks), (name, gives)) = (view.qos.of(claim.job)?, view.qos.of(runs)?);
                let within = own == name && (gives.yielding.within || self.within);
                let may = within || asks.preempts.contains(name);
                may.then_some((gives.priority, &gives.yielding, gives.exempt.unwrap_or(self.exempt)))?
            }
        };
        let mode = yielding.mode.unwrap_or(self.mode);
        // With QOS, as in Slurm: by a job in the same partition, or in one of a higher tier.
        let near = || runs_in.tier < tier || runs_in.name == view.partitions[claim.partition].name;
        let never = match mode {
            PreemptMode::Off => true,
            PreemptMode::Suspend => !near(),
            PreemptMode::Cancel | PreemptMode::Requeue => false,
        };
        let by_priority = self.by_priority || yielding.by_priority;
        let outranked = by_priority && runs.priority >= claim.job.priority;
        let spared = self.exempt_from.is_some_and(|least| runs.priority >= least);
        let grace = if mode == PreemptMode::Suspend { self.suspend_grace } else { yielding.grace };
        (!never && !outranked && !spared).then_some(Way { rank, mode, grace, exempt })
    }

    /// Is it certain that no job with nodes can be preempted by a waiting job, whatever both request? `highest`: the highest tier
    /// of the waiting jobs. False means only that it is not certain.
    pub(crate) fn is_moot(&self, view: &ClusterView, highest: Option<u32>) -> bool {
        // This does not examine jobs that are suspended already.
        if !self.is_on() || view.has_parked || view.reservations.may_have_guests() {
            return !self.is_on();
        }
        let mode = |yielding: &Yielding| yielding.mode.unwrap_or(self.mode);
        match self.kind {
            PreemptType::None => true,
            PreemptType::PartitionPrio => view.working.values().all(|job| {
                let runs_in = job.allocation.as_ref().and_then(|allocation| view.partition(&allocation.partition));
                runs_in.is_none_or(|(_, runs_in)| {
                    mode(&runs_in.yielding) == PreemptMode::Off || highest.is_none_or(|highest| highest <= runs_in.tier)
                })
            }),
            PreemptType::Qos => {
                let yields = |job: &JobView| {
                    let (name, gives) = view.qos.of(job)?;
                    (mode(&gives.yielding) != PreemptMode::Off)
                        .then(|| (name.to_owned(), gives.yielding.within || self.within))
                };
                let running: BTreeSet<(String, bool)> = view.working.values().filter_map(|job| yields(job)).collect();
                let takes = |job: &JobView| {
                    let known = view.qos.of(job);
                    known.is_some_and(|(own, asks)| {
                        running.iter().any(|(name, within)| asks.preempts.contains(name) || *within && own == name)
                    })
                };
                running.is_empty() || view.pending.iter().all(|job| !job.eligible || !takes(job))
            }
        }
    }

    /// Might any job be preempted for it at all?
    pub(crate) fn may_preempt(&self, view: &ClusterView, claim: Claim<'_>) -> bool {
        if self.is_on() && view.reservations.may_have_guests() && claim.viewer.is_some() {
            return true;
        }
        match self.kind {
            PreemptType::None => false,
            PreemptType::PartitionPrio => {
                let tier = view.partitions[claim.partition].tier;
                let gives = |mode: Option<PreemptMode>| mode.unwrap_or(self.mode) != PreemptMode::Off;
                view.partitions.iter().any(|other| other.tier < tier && gives(other.yielding.mode))
            }
            PreemptType::Qos => view
                .qos
                .of(claim.job)
                .is_some_and(|(_, qos)| !qos.preempts.is_empty() || qos.yielding.within || self.within),
        }
    }

    /// What decides which jobs the claim may preempt, besides its partition.
    pub(crate) fn rank(&self, view: &ClusterView, claim: Claim<'_>) -> Rank {
        let minds_priority = self.by_priority
            || view.partitions.iter().any(|partition| partition.yielding.by_priority)
            || view.qos.all().any(|qos| qos.yielding.by_priority);
        let qos = (self.kind == PreemptType::Qos).then(|| view.qos.of(claim.job)).flatten();
        (qos.map(|(name, _)| name.to_owned()), minds_priority.then_some(claim.job.priority))
    }
}
