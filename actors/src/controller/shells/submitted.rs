//! How many jobs wait or run, by their affiliations: limits on that many are judged by it, without a look at all jobs. Tasks of an
//! array count each. The board of jobs keeps it: it changes in the same moment as the board's other indexes.

use garrick_model::{ids::JobId, view::JobView};
use garrick_plan::snapshot::affiliation::Affiliation;
use rpds::RedBlackTreeMapSync;
use std::sync::Arc;

/// For how many jobs one view counts: the waiting tasks of an array, else one; none if it is over.
pub fn tasks(view: &JobView) -> u64 {
    match &view.array_pending {
        _ if !view.state.is_live() => 0,
        Some(array) => array.count() as u64,
        None => 1,
    }
}

/// An affiliation that many jobs share.
type Shared = Arc<Affiliation<String>>;

/// Jobs that wait or run, counted. Clones are cheap.
#[derive(Clone, Debug, Default)]
pub struct Submitted {
    of_job: RedBlackTreeMapSync<JobId, (Shared, u64)>,
    sums: RedBlackTreeMapSync<Shared, u64>,
}

impl Submitted {
    /// The job is that now; `None`: it is gone.
    pub(super) fn set(&mut self, job: JobId, view: Option<&JobView>) {
        let now = view.map(|view| (Affiliation::of(view), tasks(view))).filter(|(_, tasks)| *tasks > 0);
        let before = self.of_job.get(&job).cloned();
        if let (Some((of, count)), Some((now, tasks))) = (&before, &now)
            && of.borrowed() == *now
            && count == tasks
        {
            return;
        }
        if let Some((of, count)) = before {
            self.of_job.remove_mut(&job);
            self.change(&of, |sum| sum.saturating_sub(count));
        }
        if let Some((now, tasks)) = now {
            let now = Arc::new(now.owned());
            let shared = self.sums.get_key_value(&now).map_or(now, |(known, _)| Arc::clone(known));
            self.change(&shared, |sum| sum + tasks);
            self.of_job.insert_mut(job, (shared, tasks));
        }
    }

    fn change(&mut self, of: &Shared, change: impl FnOnce(u64) -> u64) {
        match change(self.sums.get(of).copied().unwrap_or(0)) {
            0 => _ = self.sums.remove_mut(of),
            sum => self.sums.insert_mut(Arc::clone(of), sum),
        }
    }

    /// A job's affiliation, and for how many jobs it counts; `None`: it does not.
    pub fn of(&self, job: JobId) -> Option<(&Affiliation<String>, u64)> {
        self.of_job.get(&job).map(|(of, tasks)| (&**of, *tasks))
    }

    /// Affiliations with their numbers of jobs.
    pub fn sums(&self) -> impl Iterator<Item = (&Affiliation<String>, u64)> {
        self.sums.iter().map(|(of, sum)| (&**of, *sum))
    }
}
