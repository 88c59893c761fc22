//! What further bounds change in a plan ([`crate::snapshot::bounds`]). Without them each of these is one look at an `Option`.

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

    /// Is there no time for those that are left?
    pub(super) fn is_late(&mut self, left: usize) -> bool {
        let late = self.late.is_some_and(|late| late());
        if late {
            self.plan.left_out = left;
        }
        late
    }

    /// The plan ends before it has looked at all of them.
    pub(super) fn leave_out(&mut self, entries: &[Entry], done: usize) {
        // At the limit of starts some tasks of the last one may be left.
        let of_array = |entry: &&Entry| self.view.pending[entry.job].array_pending.is_some();
        let last = done.checked_sub(1).map(|last| &entries[last]).filter(|_| self.plan.truncated).filter(of_array);
        self.unlooked.extend(last.into_iter().chain(&entries[done..]));
    }

    /// Did as many start as may in one plan?
    pub(super) fn has_started_all(&self) -> bool {
        self.plan.starts.len() >= self.view.policy.max_starts
    }

    /// Did as many start as may of those behind others, or of those who are not? Heterogeneous jobs are asked about as a whole.
    pub(super) fn has_started_its_kind(&self, behind: bool) -> bool {
        self.trial.is_none()
            && self.policy_bounds().is_some_and(|bounds| self.bounds.tally.has_started_all(bounds, behind))
    }

    /// Does nothing start in that partition now? When that is over, another plan is due.
    pub(super) fn is_frozen(&mut self, partition: usize) -> bool {
        let Some(until) = self.bounds.frozen_until(self.view, partition, self.now) else { return false };
        let known = self.patience.next;
        self.patience.next = Some(known.map_or(until, |known| known.min(until)));
        true
    }

    /// Does nobody wait for this job?
    pub(super) fn is_modest(&self, job: &JobView) -> bool {
        let counts = !self.queue.minds(job) && job.state != JobState::Expediting;
        let Some(bounds) = self.policy_bounds().filter(|_| counts) else { return false };
        bounds.is_modest(job, self.now) || bounds.one_per_job && self.bounds.tally.booked.contains(&job.id)
    }

    /// Do jobs that a reservation draws have room reserved there?
    pub(super) fn reserves_where_drawn(&self) -> bool {
        self.policy_bounds().is_some_and(|bounds| bounds.magnetic)
    }

    /// Is it an array of which no task has room reserved?
    pub(super) fn is_task_too_many(&self, job: &JobView) -> bool {
        let most = self.policy_bounds().and_then(|bounds| bounds.array_tasks);
        most == Some(0) && job.array_pending.is_some() && !self.queue.minds(job)
    }

    /// Where the first task of an array has room reserved, more of them do.
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
