//! Limits of accounting on how many jobs wait and run (`MaxSubmitJobs`, `GrpSubmitJobs`, and those of a QOS for each user and
//! account). Each task of an array counts. Jobs that are being saved count too: the frontend judges one submission after the other,
//! so a burst of them never exceeds a limit.

use super::core::FrontendCore;
use crate::job::core::JobCore;
use garrick_events::records::job::JobRecord;
use garrick_model::{config::EnforceWord, ids::JobId, refusal::Refusal, time::Timestamp, view::JobView};
use garrick_plan::{
    rules::accounting::{SubmitLimit, counts_for, submit_limits},
    snapshot::accounting::Accounting,
};
use std::collections::{BTreeMap, BTreeSet};

/// How many jobs one view stands for: the waiting tasks of an array, else one.
fn tasks(view: &JobView) -> u64 {
    view.array_pending.as_ref().map_or(1, |array| array.count() as u64)
}

/// QOS of partitions, by the partitions' names.
struct Places(BTreeMap<String, Option<String>>);

impl Places {
    /// The QOS of the partition in which a job runs, or waits first.
    fn qos_of(&self, view: &JobView) -> Option<&str> {
        let runs = view.allocation.as_ref().map(|allocation| &allocation.partition);
        self.0.get(runs.or(view.partitions.first())?)?.as_deref()
    }
}

impl FrontendCore {
    /// May there be these jobs besides all others? `but`: a job that changes, as it is now.
    pub(super) fn check_submit_limits(
        &self,
        records: &[JobRecord],
        but: Option<JobId>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let accounting = self.sight.accounting();
        if !accounting.enforces(EnforceWord::Limits) {
            return Ok(());
        }
        let partitions = self.sight.boards().partitions.list();
        let places = Places(partitions.iter().map(|p| (p.config.name.clone(), p.config.qos.clone())).collect());
        let site = self.sight.job_site();
        let view = |record: &JobRecord| JobCore::new(record.clone(), site.clone()).view(now);
        let views: Vec<JobView> = records.iter().map(view).collect();
        let mut limits: Vec<SubmitLimit> = Vec::new();
        for limit in views.iter().flat_map(|view| submit_limits(&accounting, view, places.qos_of(view))) {
            if !limits.contains(&limit) {
                limits.push(limit);
            }
        }
        if limits.is_empty() {
            return Ok(());
        }
        let mut sums = self.submitted(&accounting, &places, &limits, but);
        views.iter().for_each(|view| add(&accounting, &places, &limits, &mut sums, view));
        match limits.iter().zip(sums).find(|(limit, sum)| *sum > limit.most) {
            None => Ok(()),
            Some((limit, _)) => Err(Refusal::AccountingPolicy.after(vec![limit.reason.text().into_owned()])),
        }
    }

    /// How many jobs wait or run that each limit counts.
    fn submitted(
        &self,
        accounting: &Accounting,
        places: &Places,
        limits: &[SubmitLimit],
        but: Option<JobId>,
    ) -> Vec<u64> {
        let mut sums = vec![0; limits.len()];
        let mut known: BTreeSet<JobId> = but.into_iter().collect();
        // Those in progress first: one that is saved meanwhile is found on the board, and counted once.
        self.sight.entering().each(|view| {
            if known.insert(view.id) {
                add(accounting, places, limits, &mut sums, view);
            }
        });
        for view in self.sight.boards().jobs.live().iter().filter(|view| !known.contains(&view.id)) {
            add(accounting, places, limits, &mut sums, view);
        }
        sums
    }
}

fn add(accounting: &Accounting, places: &Places, limits: &[SubmitLimit], sums: &mut [u64], view: &JobView) {
    for (limit, sum) in limits.iter().zip(sums) {
        if counts_for(accounting, limit.holder, view, places.qos_of(view)) {
            *sum += tasks(view);
        }
    }
}
