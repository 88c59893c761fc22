//! Which waiting jobs gain priority by age where limits say how many may (`MaxJobsAccrue`, `GrpJobsAccrue` and those of QOS;
//! Slurm's page on resource limits). The limits hold no job back. A job that gains goes on when a limit is lowered; others follow
//! in the order in which they became eligible, each when there is room for it. Each waiting task of an array counts: where there
//! is room for some of them only, these become jobs of their own. All of this was seen in Slurm 22.05.
//!
//! The scheduler calls [`Accruals::decide`] before priorities are calculated, and tells the jobs what was decided. A job shows it
//! when it is on disk; until then the decision stands here.

use super::accounting::{JobsLimit, accrue_limits};
use crate::snapshot::{
    accounting::{Accounting, AccountingTable, Holder},
    affiliation::Affiliation,
    facts::ClusterView,
};
use garrick_model::{
    ids::JobId,
    time::Timestamp,
    view::{Accrual, JobView},
};
use rustc_hash::FxHashMap;
use std::{sync::Arc, time::Duration};

/// For how long a new scheduler decides nothing: what the one before it told is shown by then.
const SETTLES: Duration = Duration::from_secs(10);
/// For how long tasks that are to become jobs are waited for.
const SPLITS: Duration = Duration::from_secs(10);

/// What a job is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The job.
    pub job: JobId,
    /// Since when it gains priority by age.
    pub accrual: Accrual,
    /// The reset by hand that the job shows.
    pub reset: Option<Timestamp>,
    /// Of an array: this is for so many of its waiting tasks, which become jobs of their own. `None`: for all.
    pub tasks: Option<u32>,
}

/// Tasks that are to become jobs of their own.
#[derive(Clone, Copy, Debug)]
struct Splitting {
    tasks: u64,
    /// How many tasks the array's record has afterwards.
    left: u64,
    /// From then on nobody counts on it.
    until: Timestamp,
}

/// What was decided, and is not shown yet.
#[derive(Clone, Debug, Default)]
pub struct Accruals {
    /// What jobs were told, and the reset by hand that they showed then.
    told: FxHashMap<JobId, (Accrual, Option<Timestamp>)>,
    splitting: FxHashMap<JobId, Splitting>,
    began: Option<Timestamp>,
    /// When jobs were looked at last, and by which limits.
    last: Option<(Timestamp, Arc<AccountingTable>)>,
}

/// A job that may gain if there is room.
struct Candidate {
    place: usize,
    accrual: Accrual,
    tasks: u64,
    limits: Vec<JobsLimit>,
}

/// How many jobs gain, by whose they are.
#[derive(Default)]
struct Gaining(FxHashMap<Holder, u64>);

impl Gaining {
    fn add(&mut self, limits: &[JobsLimit], tasks: u64) {
        for limit in limits {
            *self.0.entry(limit.holder).or_default() += tasks;
        }
    }

    /// For how many more there is room.
    fn room(&self, limits: &[JobsLimit]) -> u64 {
        let left = |limit: &JobsLimit| limit.most.saturating_sub(self.0.get(&limit.holder).copied().unwrap_or(0));
        limits.iter().map(left).min().unwrap_or(u64::MAX)
    }
}

/// The waiting tasks of an array that have no job of their own; 1 of all others.
fn tasks(job: &JobView) -> u64 {
    job.array_pending.as_ref().map_or(1, |tasks| u64::from(tasks.count().max(1)))
}

impl Accruals {
    /// Decides for all waiting jobs, and sets it in the snapshot. What was told before and is not shown is told again.
    pub fn decide(&mut self, view: &mut ClusterView, now: Timestamp) -> Vec<Decision> {
        if *self.began.get_or_insert(now) > now {
            // The clock was set back.
            self.began = Some(now);
        }
        let settled = self.began.is_some_and(|began| now.since(began) >= SETTLES);
        if !settled {
            return Vec::new();
        }
        let rules = view.accounting.clone();
        let last = self.last.replace((now, Arc::clone(&rules.table)));
        // With other limits, those that nothing limited before go on.
        let changed = last.filter(|(_, table)| !Arc::ptr_eq(table, &rules.table)).map(|(at, _)| at);
        let mut told = FxHashMap::default();
        let mut gaining = Gaining::default();
        let mut candidates = Vec::new();
        self.splitting.retain(|_, splitting| now < splitting.until);
        for (place, job) in view.pending.iter().enumerate() {
            let unseen = self.unseen(job);
            told.extend(unseen.map(|accrual| (job.id, accrual)));
            let accrual = unseen.unwrap_or(job.terms.accrual);
            let of_job = || limits(&rules, job);
            match (accrual, job.eligible) {
                // It gives up its place. Without limits it has none, and goes on with what it has gained when it may start again.
                (Accrual::Since(_), false) if !of_job().is_empty() => drop(told.insert(job.id, Accrual::Waits)),
                (_, false) => {}
                (Accrual::Since(_), true) => gaining.add(&of_job(), tasks(job)),
                (Accrual::Eligible, true) => {
                    let limits = of_job();
                    let was_there = changed.is_some_and(|at| job.eligible_time.is_some_and(|since| since < at));
                    match job.eligible_time.filter(|_| was_there && !limits.is_empty()) {
                        Some(since) => {
                            gaining.add(&limits, tasks(job));
                            told.insert(job.id, Accrual::Since(since));
                        }
                        None if limits.is_empty() => {}
                        None => candidates.push(Candidate { place, accrual, tasks: tasks(job), limits }),
                    }
                }
                (Accrual::Waits, true) => match of_job() {
                    // As if there had never been a limit.
                    none if none.is_empty() => drop(told.insert(job.id, Accrual::Eligible)),
                    limits => candidates.push(Candidate { place, accrual, tasks: tasks(job), limits }),
                },
            }
        }
        let order = |of: &Candidate| {
            let job = &view.pending[of.place];
            (job.eligible_time.unwrap_or(job.submit_time), job.id)
        };
        candidates.sort_by_key(order);
        let mut decisions = Vec::new();
        for one in candidates {
            let job = &view.pending[one.place];
            decisions.extend(self.admit(job, &one, &mut gaining, &mut told, now));
        }
        decisions.extend(self.set(view, &told));
        decisions
    }

    /// What a job was told before, unless it was reset by hand meanwhile: then its own word is newer.
    fn unseen(&self, job: &JobView) -> Option<Accrual> {
        let (told, reset) = self.told.get(&job.id).copied()?;
        (reset == job.terms.reset).then_some(told)
    }

    /// Decides for one that may gain if there is room. Returns what is for some tasks of an array.
    fn admit(
        &mut self,
        job: &JobView,
        one: &Candidate,
        gaining: &mut Gaining,
        told: &mut FxHashMap<JobId, Accrual>,
        now: Timestamp,
    ) -> Option<Decision> {
        let since = match (one.accrual, job.eligible_time) {
            (Accrual::Eligible, Some(at)) => at,
            _ => now,
        };
        let splitting = self.splitting.get(&job.id).copied().filter(|splitting| one.tasks > splitting.left);
        if let Some(splitting) = splitting {
            gaining.add(&one.limits, splitting.tasks);
            told.insert(job.id, Accrual::Waits);
            return None;
        }
        let room = gaining.room(&one.limits);
        if room >= one.tasks {
            gaining.add(&one.limits, one.tasks);
            told.insert(job.id, Accrual::Since(since));
            return None;
        }
        told.insert(job.id, Accrual::Waits);
        if room == 0 {
            return None;
        }
        gaining.add(&one.limits, room);
        self.splitting.insert(job.id, Splitting { tasks: room, left: one.tasks - room, until: now.plus(SPLITS) });
        let (accrual, reset) = (Accrual::Since(since), job.terms.reset);
        Some(Decision { job: job.id, accrual, reset, tasks: u32::try_from(room).ok() })
    }

    /// Sets in the snapshot what jobs do not show yet, and keeps of what was told only that.
    fn set(&mut self, view: &mut ClusterView, told: &FxHashMap<JobId, Accrual>) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let mut unseen = FxHashMap::default();
        for job in &mut view.pending {
            let reset = job.terms.reset;
            let Some(accrual) = told.get(&job.id).copied().filter(|told| *told != job.terms.accrual) else { continue };
            unseen.insert(job.id, (accrual, reset));
            decisions.push(Decision { job: job.id, accrual, reset, tasks: None });
            Arc::make_mut(job).terms.accrual = accrual;
        }
        self.told = unseen;
        decisions
    }
}

/// The limits for a job; where none are enforced, none.
fn limits(rules: &Accounting, job: &JobView) -> Vec<JobsLimit> {
    if rules.table.limits_accrual() { accrue_limits(rules, Affiliation::of(job)) } else { Vec::new() }
}
