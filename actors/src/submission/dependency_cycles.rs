//! Would a change of a job's dependencies make it depend on itself? Checked where commands arrive, since no job's owner knows the
//! dependencies of others.

use garrick_model::{ids::JobId, messages::command::JobSelector, spec::Dependencies, view::JobView};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// All jobs that would be waited for with these dependencies, directly or through other waiting jobs.
pub struct Awaited(BTreeSet<Target>);

/// A job, or one task of an array.
type Target = (JobId, Option<u32>);

impl Awaited {
    /// Follows the dependencies of all waiting jobs.
    pub fn with(jobs: &[Arc<JobView>], dependencies: &Dependencies) -> Self {
        let own_id = |view: &JobView| view.array_task.map(|task| (view.id, (task.array_job, Some(task.index))));
        let of_own_id: BTreeMap<JobId, Target> = jobs.iter().filter_map(|view| own_id(view)).collect();
        let mut waiting: BTreeMap<JobId, Vec<&JobView>> = BTreeMap::new();
        for view in jobs.iter().filter(|view| !view.dependencies.list.is_empty()) {
            waiting.entry(view.array_task.map_or(view.id, |task| task.array_job)).or_default().push(view);
        }
        // A task may be named by the id of its own record.
        let target = |job: JobId, index: Option<u32>| match of_own_id.get(&job) {
            Some((array, own)) if index.is_none() && *array != job => (*array, *own),
            _ => (job, index),
        };
        let targets = |list: &Dependencies| -> Vec<Target> {
            list.list.iter().filter_map(|d| Some(target(d.job?, d.array_index))).collect()
        };
        let mut open = targets(dependencies);
        let mut seen: BTreeSet<Target> = open.iter().copied().collect();
        while let Some((on, index)) = open.pop() {
            let meant = |view: &&&JobView| match (index, view.array_task) {
                (Some(index), Some(task)) => index == task.index,
                _ => true,
            };
            for view in waiting.get(&on).into_iter().flatten().filter(meant) {
                open.extend(targets(&view.dependencies).into_iter().filter(|next| seen.insert(*next)));
            }
        }
        Self(seen)
    }

    /// Does it contain that job, or one of its named tasks?
    pub fn has(&self, named: &JobSelector) -> bool {
        let mut of_job = self.0.range((named.job, None)..=(named.job, Some(u32::MAX))).map(|(_, index)| *index);
        of_job.any(|index| index.is_none_or(|index| named.has_task(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::{
        ids::ArrayTask,
        spec::{Dependency, DependencyKind, JobSpec},
        testing::{array, depends_on, job, spec},
    };

    fn after(on: u32, array_index: Option<u32>) -> Dependencies {
        let one = Dependency { kind: DependencyKind::AfterAny, job: Some(JobId(on)), array_index, failed: false };
        Dependencies { any: false, list: vec![one] }
    }

    fn waits(id: u32, dependencies: Dependencies) -> Arc<JobView> {
        Arc::new(JobView { dependencies, ..job(id, spec()) })
    }

    fn leads_back(jobs: &[Arc<JobView>], job: &JobSelector, dependencies: &Dependencies) -> bool {
        Awaited::with(jobs, dependencies).has(job)
    }

    fn plain(id: u32) -> JobSelector {
        JobId(id).into()
    }

    #[test]
    fn a_job_that_waits_for_itself_does_so_at_once_or_by_way_of_others() {
        let jobs = [waits(2, after(1, None)), waits(3, after(2, None)), waits(4, after(9, None))];
        assert!(leads_back(&[], &plain(1), &after(1, None)));
        assert!(leads_back(&jobs, &plain(1), &after(3, None)));
        assert!(!leads_back(&jobs, &plain(3), &after(1, None)));
        assert!(!leads_back(&jobs, &plain(1), &after(4, None)));
        // Cycles among other jobs must not make this loop for ever.
        let circle = [waits(5, after(6, None)), waits(6, after(5, None))];
        assert!(!leads_back(&circle, &plain(1), &after(5, None)));
    }

    #[test]
    fn tasks_of_an_array_may_wait_for_others_of_it() {
        let task = |id, index, dependencies| {
            let array_task = Some(ArrayTask { array_job: JobId(10), index });
            Arc::new(JobView { array_task, dependencies, ..job(id, spec()) })
        };
        let third = JobSelector { job: JobId(10), tasks: Some(vec![(3, 3, 1)]), het: None, run: None };
        assert!(!leads_back(&[], &third, &after(10, Some(2))));
        assert!(leads_back(&[], &third, &after(10, Some(3))));
        assert!(leads_back(&[], &third, &after(10, None)));
        assert!(leads_back(&[task(12, 2, after(10, Some(3)))], &third, &after(10, Some(2))));
        // By the ids of their own records.
        assert!(leads_back(&[task(12, 2, after(10, Some(3)))], &third, &after(12, None)));
        assert!(leads_back(&[task(12, 3, after(5, None)), waits(20, after(12, None))], &third, &after(20, None)));
        assert!(!leads_back(&[task(12, 2, after(10, Some(3)))], &third, &after(10, Some(1))));
        let whole = JobSpec { array: Some(array(1, 3, None)), ..depends_on(DependencyKind::AfterCorr, 7) };
        let record = JobView { dependencies: after(7, None), ..job(10, whole) };
        assert!(leads_back(&[Arc::new(record)], &plain(7), &after(10, Some(1))));
    }
}
