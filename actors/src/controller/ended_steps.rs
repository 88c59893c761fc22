//! Steps that are over, as their step managers reported them: kept in memory for as long as their job is known, for
//! `squeue --steps --states=all`. Accounting keeps them for good; this is what can be asked at once.

use garrick_model::{
    ids::JobId,
    state::StepState,
    view::{JobView, StepView},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Steps kept of one job; of more, the oldest are forgotten.
const PER_JOB: usize = 1000;
/// Steps kept in all, about 300 bytes each; beyond it the jobs with the lowest numbers lose theirs.
const IN_ALL: usize = 100_000;

/// What is kept.
#[derive(Debug, Default)]
pub struct EndedSteps {
    by_job: BTreeMap<JobId, VecDeque<StepView>>,
    count: usize,
}

impl EndedSteps {
    /// Takes those of a report that are over. A repeat replaces what is there.
    pub fn note(&mut self, job: JobId, steps: &[StepView]) {
        let kept = self.by_job.entry(job).or_default();
        for step in steps.iter().filter(|s| !matches!(s.state, StepState::Pending | StepState::Running)) {
            if let Some(same) = kept.iter_mut().rev().take(steps.len()).find(|s| s.id == step.id) {
                *same = step.clone();
                continue;
            }
            kept.push_back(step.clone());
            self.count += 1;
            if kept.len() > PER_JOB {
                kept.pop_front();
                self.count -= 1;
            }
        }
        while self.count > IN_ALL {
            let Some((_, steps)) = self.by_job.pop_first() else { break };
            self.count -= steps.len();
        }
    }

    /// Those of some jobs.
    pub fn of(&self, jobs: &[Arc<JobView>]) -> Vec<StepView> {
        jobs.iter().filter_map(|view| self.by_job.get(&view.id)).flatten().cloned().collect()
    }

    /// Forgets jobs that are not known any more.
    pub fn keep(&mut self, known: impl Fn(JobId) -> bool) {
        self.by_job.retain(|job, _| known(*job));
        self.count = self.by_job.values().map(VecDeque::len).sum();
    }
}
