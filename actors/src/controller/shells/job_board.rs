//! Views of jobs as their owners publish them, with indexes: by user, by state, by array and task, and by run; and counts of those
//! that wait or run.

use super::submitted::{Submitted, tasks};
use garrick_model::{
    ids::{ArrayTask, JobId, Sluid},
    job_query::JobQuery,
    view::JobView,
};
use garrick_plan::snapshot::affiliation::Affiliation;
use garrick_runtime::BoardMap;
use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};
use std::{
    ops::{Bound, Deref},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;

/// Ids of jobs with some property. For a moment it may contain an id whose view no longer has the property, so readers check the
/// view too. It never misses a view that has it.
#[derive(Clone, Debug, Default)]
struct Index {
    of_user: RedBlackTreeSetSync<(u32, JobId)>,
    live: RedBlackTreeSetSync<JobId>,
    tasks: RedBlackTreeMapSync<(JobId, u32), JobId>,
    runs: RedBlackTreeMapSync<Sluid, JobId>,
    /// Exact at any moment.
    submitted: Submitted,
}

impl Index {
    fn add(&mut self, view: &JobView) {
        self.of_user.insert_mut((view.uid, view.id));
        if view.state.is_live() {
            self.live.insert_mut(view.id);
        }
        if let Some(task) = view.array_task {
            self.tasks.insert_mut((task.array_job, task.index), view.id);
        }
        self.runs.insert_mut(view.sluid, view.id);
        self.submitted.set(view.id, Some(view));
    }

    /// Removes entries that `view` implies and `now` does not.
    fn drop_old(&mut self, view: &JobView, now: Option<&JobView>) {
        if now.is_none_or(|now| now.uid != view.uid) {
            self.of_user.remove_mut(&(view.uid, view.id));
        }
        if now.is_none_or(|now| !now.state.is_live()) {
            self.live.remove_mut(&view.id);
        }
        if let Some(task) = view.array_task.filter(|task| now.is_none_or(|now| now.array_task != Some(*task)))
            && self.tasks.get(&(task.array_job, task.index)) == Some(&view.id)
        {
            self.tasks.remove_mut(&(task.array_job, task.index));
        }
        if now.is_none_or(|now| now.sluid != view.sluid) && self.runs.get(&view.sluid) == Some(&view.id) {
            self.runs.remove_mut(&view.sluid);
        }
    }
}

/// Do both views have the same index entries?
fn alike(one: &JobView, other: &JobView) -> bool {
    let keys = |view: &JobView| (view.uid, view.state.is_live(), view.array_task, view.sluid);
    keys(one) == keys(other) && tasks(one) == tasks(other) && Affiliation::of(one) == Affiliation::of(other)
}

/// The board of jobs. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct JobBoard {
    views: BoardMap<JobId, JobView>,
    index: Arc<ArcSwap<Index>>,
    /// Serialises changes of the index.
    indexing: Arc<Mutex<()>>,
}

impl Deref for JobBoard {
    type Target = BoardMap<JobId, JobView>;

    fn deref(&self) -> &Self::Target {
        &self.views
    }
}

impl JobBoard {
    /// For the holder of `indexing`.
    fn change(&self, change: impl FnOnce(&mut Index)) {
        let mut index = Index::clone(&self.index.load());
        change(&mut index);
        self.index.store(Arc::new(index));
    }

    /// As [`BoardMap::publish`].
    pub fn publish(&self, job: JobId, view: Arc<JobView>) -> u64 {
        let before = self.views.get(&job);
        if before.is_some_and(|before| alike(&before, &view)) {
            return self.views.publish(job, view);
        }
        let indexing = self.indexing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.views.get(&job);
        self.change(|index| index.add(&view));
        let generation = self.views.publish(job, Arc::clone(&view));
        if let Some(before) = before {
            self.change(|index| index.drop_old(&before, Some(&view)));
        }
        drop(indexing);
        generation
    }

    /// As [`BoardMap::remove`].
    pub fn remove(&self, job: &JobId) -> bool {
        let indexing = self.indexing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.views.get(job);
        let was_there = self.views.remove(job);
        if let Some(before) = before {
            self.change(|index| {
                index.drop_old(&before, None);
                index.submitted.set(*job, None);
            });
        }
        drop(indexing);
        was_there
    }

    /// Jobs with the property that pass the filter, with ids greater than `after`, by id, at most so many.
    pub fn such(
        &self,
        which: &JobQuery,
        after: Option<JobId>,
        most: usize,
        passes: impl Fn(&JobView) -> bool,
    ) -> Vec<Arc<JobView>> {
        let takes = |view: &JobView| which.takes(view) && passes(view);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let index = self.index.load_full();
        let known = |ids: &mut dyn Iterator<Item = JobId>| -> Vec<Arc<JobView>> {
            ids.filter_map(|id| self.views.get(&id)).filter(|view| takes(view)).take(most).collect()
        };
        match which.users.as_slice() {
            [user] => {
                let from = after.map_or(Bound::Included((*user, JobId(0))), |after| Bound::Excluded((*user, after)));
                let to = Bound::Included((*user, JobId(u32::MAX)));
                known(&mut index.of_user.range((from, to)).map(|(_, id)| *id))
            }
            // If most jobs are live, a scan is cheaper than many look-ups.
            _ if which.states.are_live() && index.live.size() < self.views.len() / 4 => {
                known(&mut index.live.range((from, Bound::Unbounded)).copied())
            }
            _ => self.views.some((from, Bound::Unbounded), takes, most),
        }
    }

    /// Jobs that wait, run or are being cleaned up, by id.
    pub fn live(&self) -> Vec<Arc<JobView>> {
        self.such(&JobQuery::live(), None, usize::MAX, |_| true)
    }

    /// How many jobs wait, run or are being cleaned up.
    pub fn submitted(&self) -> Submitted {
        self.index.load().submitted.clone()
    }

    /// Tasks of an array with records of their own, by index: those in the range whose indices are selected. Also returns how
    /// many indices were examined.
    pub fn tasks(
        &self,
        array: JobId,
        (first, last): (u32, u32),
        wanted: impl Fn(u32) -> bool,
    ) -> (Vec<Arc<JobView>>, usize) {
        let index = self.index.load_full();
        let (mut tasks, mut looked_at) = (Vec::new(), 0);
        for ((_, task), id) in index.tasks.range((array, first)..=(array, last)) {
            looked_at += 1;
            let is_task = |view: &Arc<JobView>| view.array_task.is_some_and(|task| task.array_job == array);
            tasks.extend(Some(id).filter(|_| wanted(*task)).and_then(|id| self.views.get(id)).filter(is_task));
        }
        (tasks, looked_at)
    }

    /// A task of an array with a record of its own.
    pub fn task(&self, task: ArrayTask) -> Option<Arc<JobView>> {
        let index = self.index.load();
        let view = self.views.get(index.tasks.get(&(task.array_job, task.index))?)?;
        (view.array_task == Some(task)).then_some(view)
    }

    /// The job whose newest run this is.
    pub fn run(&self, run: Sluid) -> Option<Arc<JobView>> {
        let index = self.index.load();
        self.views.get(index.runs.get(&run)?).filter(|view| view.sluid == run)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::{
        job_query::JobStates,
        spec::JobSpec,
        state::JobState,
        testing::{array, job, spec},
    };
    use proptest::prelude::*;

    /// What a job is published as: its user, state, task and run. `None`: it is taken off.
    type Shown = Option<(u32, u8, Option<(u32, u32)>, u64)>;

    fn view(id: u32, (uid, state, task, run): (u32, u8, Option<(u32, u32)>, u64)) -> JobView {
        let states = [JobState::Pending, JobState::Running, JobState::Completing, JobState::Failed];
        let array_task = task.map(|(array, index)| ArrayTask { array_job: JobId(array), index });
        // Runs are unique over all jobs.
        let sluid = Sluid(u64::from(id) * 100 + run);
        JobView { uid, state: states[usize::from(state)], array_task, sluid, ..job(id, spec()) }
    }

    fn queries() -> Vec<JobQuery> {
        let states =
            [JobStates::All, JobStates::Live, JobStates::Only(vec![JobState::Failed]), JobStates::Only(Vec::new())];
        let users = [vec![], vec![1], vec![1, 2]];
        let both = users.iter().flat_map(|users| states.iter().map(move |states| (users.clone(), states.clone())));
        both.map(|(users, states)| JobQuery { users, states, ..JobQuery::default() }).collect()
    }

    fn ids(views: &[Arc<JobView>]) -> Vec<u32> {
        views.iter().map(|view| view.id.0).collect()
    }

    fn shown() -> impl Strategy<Value = Shown> {
        let task = proptest::option::of((40u32..42, 0u32..3));
        proptest::option::weighted(0.85, (0u32..3, 0u8..4, task, 0u64..3))
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_a_look_at_all_jobs_finds(changes in proptest::collection::vec((0u32..12, shown()), 1..60)) {
            let board = JobBoard::default();
            for (id, shown) in changes {
                match shown {
                    // Two jobs are never the same task.
                    Some((uid, state, task, run)) => {
                        let task = task.map(|(array, index)| (array, index * 100 + id));
                        board.publish(JobId(id), Arc::new(view(id, (uid, state, task, run))));
                    }
                    None => {
                        board.remove(&JobId(id));
                    }
                }
            }
            let all = board.list();
            for query in queries() {
                for after in [None, Some(JobId(4))] {
                    let odd = |view: &JobView| view.id.0 % 2 == 1;
                    let mut meant = all.clone();
                    meant.retain(|view| after.is_none_or(|after| view.id > after) && query.takes(view));
                    prop_assert_eq!(board.such(&query, after, usize::MAX, |_| true), meant.clone());
                    meant.retain(|view| odd(view));
                    meant.truncate(2);
                    prop_assert_eq!(board.such(&query, after, 2, odd), meant);
                }
            }
            for view in &all {
                prop_assert_eq!(board.run(view.sluid).map(|found| found.id), Some(view.id));
                if let Some(task) = view.array_task {
                    prop_assert_eq!(board.task(task).map(|found| found.id), Some(view.id));
                }
            }
            for array in [40, 41] {
                let mut of_array = all.clone();
                of_array.retain(|view| view.array_task.is_some_and(|task| task.array_job.0 == array));
                of_array.sort_by_key(|view| view.array_task.unwrap().index);
                prop_assert_eq!(ids(&board.tasks(JobId(array), (0, u32::MAX), |_| true).0), ids(&of_array));
            }
            let index = board.index.load();
            let live = all.iter().filter(|view| view.state.is_live()).count();
            let sizes = (index.of_user.size(), index.live.size(), index.runs.size());
            prop_assert_eq!(sizes, (all.len(), live, all.len()), "nothing of old views is kept");
        }

        /// Submissions, tasks that leave their array, moves to another account, requeues, ends and removals, in any order; and a
        /// restart, after which all that is there is published anew.
        #[test]
        fn jobs_are_counted_as_a_look_at_all_of_them_counts(
            changes in proptest::collection::vec((0u32..9, proptest::option::weighted(0.85, counted())), 1..60)
        ) {
            let board = JobBoard::default();
            for (id, shown) in changes {
                match shown {
                    Some(shown) => _ = board.publish(JobId(id), Arc::new(counted_view(id, shown))),
                    None => _ = board.remove(&JobId(id)),
                }
                let all = board.list();
                prop_assert_eq!(sums(&board), recounted(&all));
                let again = JobBoard::default();
                all.iter().for_each(|view| _ = again.publish(view.id, Arc::clone(view)));
                prop_assert_eq!(sums(&again), recounted(&all));
            }
        }
    }

    /// What a job counts by: its user, state, waiting tasks, account and partition.
    type Counted = (u32, u8, Option<u32>, Option<bool>, bool);

    fn counted() -> impl Strategy<Value = Counted> {
        let (tasks, account) = (proptest::option::of(1u32..5), proptest::option::of(proptest::bool::ANY));
        (0u32..3, 0u8..4, tasks, account, proptest::bool::ANY)
    }

    fn counted_view(id: u32, (uid, state, tasks, account, partition): Counted) -> JobView {
        let name = |yes: bool| if yes { "one" } else { "two" }.to_owned();
        let spec = JobSpec { account: account.map(name), ..spec() };
        let array_pending = tasks.map(|tasks| array(0, tasks - 1, None)).filter(|_| state == 0);
        JobView {
            array_pending,
            partitions: vec![name(partition)],
            spec: Arc::new(spec),
            ..view(id, (uid, state, None, 1))
        }
    }

    type Sums = std::collections::BTreeMap<Affiliation<String>, u64>;

    fn sums(board: &JobBoard) -> Sums {
        board.submitted().sums().map(|(of, jobs)| (of.clone(), jobs)).collect()
    }

    fn recounted(all: &[Arc<JobView>]) -> Sums {
        let mut sums = Sums::new();
        for view in all.iter().filter(|view| view.state.is_live()) {
            *sums.entry(Affiliation::of(view).owned()).or_default() +=
                view.array_pending.as_ref().map_or(1, |array| array.count() as u64);
        }
        sums
    }
}
