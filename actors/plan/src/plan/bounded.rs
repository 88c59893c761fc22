//! What the optional bounds change in a plan ([`crate::snapshot::bounds`]). If no bound is set, each method only tests an
//! `Option`.

use super::{Asked, Pass, order::Entry};
use crate::{
    rules::arrays::{NextTask, PendingTasks},
    snapshot::bounds::Bounds,
};
use garrick_model::{state::JobState, view::JobView};

impl<'a> Pass<'a> {
    fn policy_bounds(&self) -> Option<&'a Bounds> {
        self.view.policy.bounds.as_deref()
    }

    /// Has the plan used up its time, with `left` jobs not yet looked at?
    pub(super) fn is_late(&mut self, left: usize) -> bool {
        let late = self.late.is_some_and(|late| late());
        if late {
            self.plan.left_out = left;
        }
        late
    }

    /// Ends the plan before it has looked at all entries.
    pub(super) fn leave_out(&mut self, entries: &[Entry], done: usize) {
        // The last start was an array's: at the limit of starts, some of its tasks may remain.
        let of_array = |entry: &&Entry| self.view.pending[entry.job].array_pending.is_some();
        let last = done.checked_sub(1).map(|last| &entries[last]).filter(|_| self.plan.truncated).filter(of_array);
        self.unlooked.extend(last.into_iter().chain(&entries[done..]));
    }

    /// Have as many jobs started as one plan may start?
    pub(super) fn has_started_all(&self) -> bool {
        self.plan.starts.len() >= self.view.policy.max_starts
    }

    /// Has the plan reached its limit of starts for jobs behind waiting ones (or for the others)? Heterogeneous jobs are counted
    /// as a whole.
    pub(super) fn has_started_its_kind(&self, behind: bool) -> bool {
        self.trial.is_none()
            && self.policy_bounds().is_some_and(|bounds| self.bounds.tally.has_started_all(bounds, behind))
    }

    /// Is the partition frozen, so that nothing starts there now? Another plan is due when that ends.
    pub(super) fn is_frozen(&mut self, partition: usize) -> bool {
        let Some(until) = self.bounds.frozen_until(self.view, partition, self.now) else { return false };
        let known = self.patience.next;
        self.patience.next = Some(known.map_or(until, |known| known.min(until)));
        true
    }

    /// Is the job too young or of too low a priority for others to wait for it?
    pub(super) fn is_modest(&self, job: &JobView) -> bool {
        let counts = !self.queue.minds(job) && job.state != JobState::Expediting;
        let Some(bounds) = self.policy_bounds().filter(|_| counts) else { return false };
        bounds.is_modest(job, self.now) || bounds.one_per_job && self.bounds.tally.booked.contains(&job.id)
    }

    /// Are resources reserved there for jobs that a magnetic reservation attracts?
    pub(super) fn reserves_where_drawn(&self) -> bool {
        self.policy_bounds().is_some_and(|bounds| bounds.magnetic)
    }

    /// Is it an array whose further tasks get nothing reserved?
    pub(super) fn is_task_too_many(&self, job: &JobView) -> bool {
        let most = self.policy_bounds().and_then(|bounds| bounds.array_tasks);
        most == Some(0) && job.array_pending.is_some() && !self.queue.minds(job)
    }

    /// Once the first task of an array has resources reserved, reserves for further tasks too.
    pub(super) fn reserve_for_tasks(&mut self, asked: &Asked<'_>, tasks: &mut PendingTasks) {
        let Some(most) = self.policy_bounds().and_then(|bounds| bounds.array_tasks) else { return };
        if asked.job.array_pending.is_none() || self.trial.is_some() {
            return;
        }
        for _ in 1..most {
            let place = asked.request.partition;
            if !self.reserves(place) || !matches!(tasks.next(), NextTask::Index(_)) || !self.reserve(asked) {
                return;
            }
        }
    }
}
