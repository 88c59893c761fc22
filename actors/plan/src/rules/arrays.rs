//! The tasks of an array in a plan: at most as many run at a time as its limit allows.

use crate::snapshot::{
    changes::{Fact, Reads},
    facts::ClusterView,
};
use garrick_model::{ids::JobId, state::Reason, view::JobView};
use std::collections::{BTreeMap, BTreeSet};

/// What the rule reads.
pub(crate) const READS: Reads = Reads::only("arrays", |_| &[Fact::Policy]);

/// What started in a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts {
    /// Jobs, and which tasks of arrays.
    pub started: BTreeMap<JobId, BTreeSet<u32>>,
    /// Tasks of each array that started, including those that were split off before.
    array_started: BTreeMap<JobId, u32>,
}

impl Starts {
    /// Notes that the job, or a task of it, starts.
    pub fn note(&mut self, job: &JobView, array_index: Option<u32>) {
        self.started.entry(job.id).or_default().extend(array_index);
        if let Some(array) = array_index.map(|_| job.id).or(job.array_task.map(|t| t.array_job)) {
            *self.array_started.entry(array).or_insert(0) += 1;
        }
    }

    /// The parts of a job that may start. `Err`: its array runs as many tasks as it may.
    pub(crate) fn gate(&self, view: &ClusterView, job: &JobView) -> Result<PendingTasks, Reason> {
        let tasks = PendingTasks::new(view, job, self.started.get(&job.id), &self.array_started);
        if tasks.room == Some(0) { Err(Reason::JobArrayTaskLimit) } else { Ok(tasks) }
    }
}

/// The next part of a job that may start.
pub(crate) enum NextTask {
    Whole,
    Index(u32),
    LimitReached,
    Exhausted,
}

/// The tasks of a job that may still start in this pass: the job itself, or indices of an array under its limit.
pub(crate) struct PendingTasks {
    indices: Option<std::vec::IntoIter<u32>>,
    room: Option<u32>,
}

impl PendingTasks {
    fn new(
        view: &ClusterView,
        job: &JobView,
        started: Option<&BTreeSet<u32>>,
        array_started: &BTreeMap<JobId, u32>,
    ) -> Self {
        let array = job.array_pending.as_ref().map(|a| (a, job.id)).or_else(|| {
            // A task that was split off earlier and waits again still counts for its array's limit.
            job.array_task.and_then(|t| job.spec.array.as_ref().map(|a| (a, t.array_job)))
        });
        let room = array.and_then(|(spec, id)| {
            let running = view.array_running.get(&id).copied().unwrap_or(0);
            let planned = array_started.get(&id).copied().unwrap_or(0);
            spec.limit.map(|limit| limit.saturating_sub(running).saturating_sub(planned))
        });
        let indices = job.array_pending.as_ref().map(|spec| {
            let most = view.policy.max_starts;
            let all = spec.ranges.iter().flat_map(|&(first, last, step)| (first..=last).step_by(step.max(1) as usize));
            let left: Vec<u32> = all.filter(|i| started.is_none_or(|s| !s.contains(i))).take(most).collect();
            left.into_iter()
        });
        Self { indices, room }
    }

    pub fn next(&mut self) -> NextTask {
        let next = match &mut self.indices {
            None => NextTask::Whole,
            Some(indices) => match indices.next() {
                None => return NextTask::Exhausted,
                Some(index) => NextTask::Index(index),
            },
        };
        match &mut self.room {
            Some(0) => NextTask::LimitReached,
            Some(room) => {
                *room -= 1;
                next
            }
            None => next,
        }
    }
}
