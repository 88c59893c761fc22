//! Steps that are over, as their step managers reported them: kept in memory as long as their job is known, for `squeue --steps
//! --states=all`. Accounting keeps them for good; this is for immediate queries. Reports are kept as received and unpacked for a
//! query, so that a step costs nothing but its bytes until then.

use garrick_model::{
    ids::{JobId, Sluid},
    packed_steps::PackedSteps,
    view::StepView,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

/// Most steps shown of one job; beyond it those that ended first are dropped.
const PER_JOB: usize = 1000;
/// Most bytes kept of one job, if its steps are large.
const PER_JOB_BYTES: usize = 2 << 20;
/// Most bytes kept in all, some 150,000 steps; beyond it the jobs with the lowest ids lose theirs.
const IN_ALL_BYTES: usize = 32 << 20;

/// Reports of one run.
#[derive(Debug)]
struct Kept {
    sluid: Sluid,
    reports: VecDeque<PackedSteps>,
    rows: usize,
    bytes: usize,
}

impl Kept {
    const fn of(sluid: Sluid) -> Self {
        Self { sluid, reports: VecDeque::new(), rows: 0, bytes: 0 }
    }

    fn push(&mut self, steps: PackedSteps) {
        self.rows += steps.rows as usize;
        self.bytes += steps.bytes();
        self.reports.push_back(steps);
        while let [first, _, ..] = self.reports.make_contiguous()
            && (self.rows - first.rows as usize >= PER_JOB || self.bytes > PER_JOB_BYTES)
        {
            self.rows -= first.rows as usize;
            self.bytes -= first.bytes();
            self.reports.pop_front();
        }
    }

    fn ended(&self, job: JobId) -> Vec<StepView> {
        let mut views = Vec::with_capacity(self.rows);
        for report in &self.reports {
            match report.unpack() {
                Ok(steps) => views.extend(steps.views(job).filter(|view| view.state.is_over())),
                Err(error) => tracing::warn!(job_id = job.0, %error, "steps.unreadable_report"),
            }
        }
        // A repeated report has the same content.
        views.sort_by_key(|view| (view.id, Reverse(view.attempt)));
        views.dedup_by_key(|view| view.id);
        if views.len() > PER_JOB {
            views.sort_by_key(|view| Reverse(view.end_time));
            views.truncate(PER_JOB);
        }
        views
    }
}

/// The steps that are over.
#[derive(Debug, Default)]
pub struct EndedSteps {
    by_job: BTreeMap<JobId, Kept>,
    bytes: usize,
}

impl EndedSteps {
    /// Takes a report of a run.
    pub fn note(&mut self, job: JobId, sluid: Sluid, steps: PackedSteps) {
        let kept = self.by_job.entry(job).or_insert_with(|| Kept::of(sluid));
        if sluid < kept.sluid {
            return;
        }
        let before = kept.bytes;
        if sluid > kept.sluid {
            *kept = Kept::of(sluid);
        }
        kept.push(steps);
        self.bytes = self.bytes - before + kept.bytes;
        while self.bytes > IN_ALL_BYTES {
            let Some((_, kept)) = self.by_job.pop_first() else { break };
            self.bytes -= kept.bytes;
        }
    }

    /// The steps of a job.
    pub fn of(&self, job: JobId) -> Vec<StepView> {
        self.by_job.get(&job).map_or_else(Vec::new, |kept| kept.ended(job))
    }

    /// Jobs with steps.
    pub fn jobs(&self) -> Vec<JobId> {
        self.by_job.keys().copied().collect()
    }

    /// Drops the steps of jobs that are not known any more.
    pub fn keep(&mut self, known: impl Fn(JobId) -> bool) {
        self.by_job.retain(|job, _| known(*job));
        self.bytes = self.by_job.values().map(|kept| kept.bytes).sum();
    }
}

#[cfg(test)]
#[path = "ended_test.rs"]
mod tests;
