//! Limits of accounting on how many jobs wait and run (`MaxSubmitJobs`, `GrpSubmitJobs`, and those of a QOS for each user and
//! account). Each task of an array counts. Jobs that are being saved count too, and changes that are under way: the frontend judges
//! one request after the other, so a burst of them never exceeds a limit. A job that changes is judged only by limits under which it
//! was not before. A job that names several QOS counts for each of them until it runs with one.

use super::core::FrontendCore;
use crate::controller::shells::submitted::{Submitted, tasks};
use garrick_events::records::job::JobRecord;
use garrick_model::{config::EnforceWord, ids::JobId, refusal::Refusal};
use garrick_plan::{
    rules::accounting::{JobsLimit, submit_limits, submitters},
    snapshot::{
        accounting::{Accounting, Holder},
        affiliation::Affiliation,
    },
};
use std::collections::BTreeMap;

/// A job, or some tasks of an array, that changes from one affiliation to another.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) job: JobId,
    pub(super) from: Affiliation<String>,
    pub(super) to: Affiliation<String>,
    pub(super) tasks: u64,
}

/// That of a job with this record.
pub(super) fn affiliation(record: &JobRecord) -> Affiliation<String> {
    Affiliation {
        uid: record.owner.uid,
        user: record.owner.user.clone(),
        account: record.spec.account.clone(),
        qos: record.spec.qos.clone(),
        association: record.resolved.association,
        partition: record.resolved.partitions.first().cloned(),
    }
}

/// For how many jobs a new record counts.
fn tasks_of(record: &JobRecord) -> u64 {
    record.array.as_ref().map_or(1, |array| array.pending.len() as u64)
}

/// For whom jobs count.
struct Counting {
    accounting: Accounting,
    /// QOS of partitions, by the partitions' names.
    of_partition: BTreeMap<String, Option<String>>,
}

impl Counting {
    /// The QOS of the partition in which a job runs, or waits first.
    fn qos_of(&self, job: &Affiliation<String>) -> Option<&str> {
        self.of_partition.get(job.partition.as_ref()?)?.as_deref()
    }

    fn limits(&self, job: &Affiliation<String>) -> Vec<JobsLimit> {
        submit_limits(&self.accounting, job.borrowed(), self.qos_of(job))
    }

    fn submitters(&self, job: &Affiliation<String>) -> Vec<Holder> {
        submitters(&self.accounting, job.borrowed(), self.qos_of(job))
    }

    /// Adds jobs to the sums of the limits that count them.
    fn add(&self, limits: &[JobsLimit], sums: &mut [u64], job: &Affiliation<String>, tasks: u64) {
        let holders = self.submitters(job);
        for (_, sum) in limits.iter().zip(sums).filter(|(limit, _)| holders.contains(&limit.holder)) {
            *sum = sum.saturating_add(tasks);
        }
    }
}

fn refuse_over(limits: &[JobsLimit], sums: &[u64]) -> Result<(), Refusal> {
    match limits.iter().zip(sums).find(|(limit, sum)| **sum > limit.most) {
        None => Ok(()),
        Some((limit, _)) => Err(Refusal::AccountingPolicy.after(vec![limit.reason.text().into_owned()])),
    }
}

impl FrontendCore {
    /// Whom jobs count for; `None`: no limit holds.
    fn counting(&self) -> Option<Counting> {
        let accounting = self.sight.accounting();
        let partitions = || self.sight.boards().partitions.list();
        accounting.enforces(EnforceWord::Limits).then(|| Counting {
            of_partition: partitions().iter().map(|p| (p.config.name.clone(), p.config.qos.clone())).collect(),
            accounting,
        })
    }

    /// May there be these jobs besides all others?
    pub(super) fn check_submit_limits(&self, records: &[JobRecord]) -> Result<(), Refusal> {
        let Some(counting) = self.counting() else { return Ok(()) };
        let new: Vec<(Affiliation<String>, u64)> = records.iter().map(|r| (affiliation(r), tasks_of(r))).collect();
        let mut limits: Vec<JobsLimit> = Vec::new();
        for limit in new.iter().flat_map(|(job, _)| counting.limits(job)) {
            if !limits.contains(&limit) {
                limits.push(limit);
            }
        }
        let mut sums = self.submitted(&counting, &limits);
        new.iter().for_each(|(job, tasks)| counting.add(&limits, &mut sums, job, *tasks));
        refuse_over(&limits, &sums)
    }

    /// May a job change so? If it may, it counts in both places until its owner has answered.
    pub(super) fn check_move(&mut self, request: u64, change: Move, by_admin: bool) -> Result<(), Refusal> {
        if change.from == change.to {
            return Ok(());
        }
        let Some(counting) = self.counting() else { return Ok(()) };
        if !by_admin {
            let before = counting.submitters(&change.from);
            let mut limits = counting.limits(&change.to);
            limits.retain(|limit| !before.contains(&limit.holder));
            let mut sums = self.submitted(&counting, &limits);
            counting.add(&limits, &mut sums, &change.to, change.tasks);
            refuse_over(&limits, &sums)?;
        }
        self.moves.insert((request, change.job), change);
        Ok(())
    }

    /// How many jobs wait or run that each limit counts.
    fn submitted(&self, counting: &Counting, limits: &[JobsLimit]) -> Vec<u64> {
        let mut sums = vec![0; limits.len()];
        if limits.is_empty() {
            return sums;
        }
        let jobs = &self.sight.boards().jobs;
        let (known, entering): (Submitted, _) = self.sight.entering().beside(|| jobs.submitted());
        let mut add = |job: &Affiliation<String>, tasks| counting.add(limits, &mut sums, job, tasks);
        known.sums().for_each(|(job, tasks)| add(job, tasks));
        for view in entering.iter().filter(|view| known.of(view.id).is_none()) {
            add(&Affiliation::of(view).owned(), tasks(view));
        }
        // Where the board shows the change already, the job counts there.
        let is_as_before = |change: &&Move| known.of(change.job).is_some_and(|(now, _)| *now == change.from);
        self.moves.values().filter(is_as_before).for_each(|change| add(&change.to, change.tasks));
        sums
    }
}
