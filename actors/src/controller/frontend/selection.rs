//! Which jobs a request names: found by id, tasks by their array. The cost is counted over the whole request, so that one small
//! request cannot occupy the frontend: ranges stay ranges, and all jobs are searched once.

use super::core::FrontendCore;
use crate::{controller::shells::job_board::JobBoard, messages::job::Authority};
use garrick_model::{
    ids::{ArrayTask, JobId, Sluid},
    messages::command::JobSelector,
    refusal::Refusal,
    view::JobView,
};
use std::sync::Arc;

/// How many jobs and tasks a request may name, besides each known job [`TIMES`] times. As many as a long command line has; each
/// costs a change some ten microseconds.
const MOST_NAMED: u64 = 20_000;
/// See [`MOST_NAMED`]: `scancel --user` names each job of a user.
const TIMES: u64 = 4;
/// So many waiting tasks count as one job.
const TASKS_FOR_ONE: u64 = 250;

/// A selector and the jobs that it means.
pub(super) type Named = (JobSelector, Vec<Arc<JobView>>);

/// Jobs that one request names.
pub(super) struct Selection {
    jobs: JobBoard,
    most: u64,
    spent: u64,
}

impl Selection {
    pub(super) fn new(jobs: &JobBoard) -> Self {
        let known = u64::try_from(jobs.len()).unwrap_or(u64::MAX);
        let most = MOST_NAMED.saturating_add(known.saturating_mul(TIMES));
        Self { jobs: jobs.clone(), most, spent: 0 }
    }

    /// Counts work. Returns an error when the request has used its share.
    pub(super) fn spend(&mut self, work: usize) -> Result<(), Refusal> {
        self.spent = self.spent.saturating_add(u64::try_from(work).unwrap_or(u64::MAX));
        if self.spent <= self.most {
            return Ok(());
        }
        let most = self.most;
        let said =
            format!("the request names too many jobs and tasks (more than {most} together): name fewer at a time");
        Err(Refusal::TooLarge(said))
    }

    /// A task with a record of its own.
    pub(super) fn task(&self, task: ArrayTask) -> Option<Arc<JobView>> {
        self.jobs.task(task)
    }

    /// Fills in the ids of the jobs whose newest runs these are. An unknown run stays without an id and matches no job. Earlier
    /// runs do not exist any more: naming one does not mean the next run.
    pub(super) fn look_up(&self, runs: Vec<(Sluid, &mut JobId)>) {
        for (run, job) in runs {
            *job = self.jobs.run(run).map_or(JobId::OF_A_RUN, |view| view.id);
        }
    }

    /// A component of a heterogeneous job, by its leader's id and its offset.
    pub(super) fn component(&self, leader: JobId, offset: u32) -> Option<Arc<JobView>> {
        let view = self.jobs.get(&JobId(leader.0.checked_add(offset)?))?;
        (view.spec.het == Some((leader, offset))).then_some(view)
    }

    /// The jobs that a selector means, by id: the job, an array's record and its tasks, or all components of a heterogeneous job.
    pub(super) fn find(&mut self, selector: &JobSelector) -> Result<Vec<Arc<JobView>>, Refusal> {
        self.spend(1 + selector.tasks.as_ref().map_or(0, Vec::len))?;
        if !selector.is_sound() {
            return Err(Refusal::InvalidArray);
        }
        let mut found = self.meant(selector)?;
        if let Some(run) = selector.run {
            // It may have been requeued since it was looked up.
            found.retain(|view| view.sluid == run);
        }
        self.spend(found.len())?;
        found.sort_unstable_by_key(|view| view.id);
        found.dedup_by_key(|view| view.id);
        Ok(found)
    }

    fn meant(&mut self, selector: &JobSelector) -> Result<Vec<Arc<JobView>>, Refusal> {
        if let Some(offset) = selector.het {
            return Ok(self.component(selector.job, offset).into_iter().collect());
        }
        let own = self.jobs.get(&selector.job);
        if let Some(view) = own.as_ref().filter(|view| view.spec.het_size > 0 && selector.tasks.is_none()) {
            let others = view.spec.het_others().filter_map(|job| self.jobs.get(&job));
            let others = others.filter(|other| other.spec.het_leader_of_component().is_some());
            return Ok(own.iter().cloned().chain(others).collect());
        }
        let mut found = Vec::new();
        let is_plain = own.as_ref().is_some_and(|view| view.spec.array.is_none());
        if let Some(own) = own {
            if let (Some(_), Some(pending)) = (&selector.tasks, &own.array_pending) {
                self.spend(usize::try_from(u64::from(pending.count()) / TASKS_FOR_ONE).unwrap_or(usize::MAX))?;
            }
            found.extend(Some(own).filter(|view| selects(selector, view)));
        }
        if is_plain {
            return Ok(found);
        }
        let all = [(0, u32::MAX, 1)];
        let ranges = selector.tasks.as_deref().unwrap_or(&all).iter().filter(|(first, last, _)| first <= last);
        for &(first, last, _) in ranges {
            let wanted = |index: u32| selector.tasks.is_none() || selector.has_task(index);
            let (tasks, looked_at) = self.jobs.tasks(selector.job, (first, last), wanted);
            self.spend(looked_at / TASKS_FOR_ONE as usize)?;
            found.extend(tasks);
        }
        Ok(found)
    }
}

/// Does the selector mean the view with its id?
fn selects(selector: &JobSelector, view: &JobView) -> bool {
    if selector.tasks.is_none() {
        return true;
    }
    match (view.array_task, &view.array_pending) {
        (Some(task), _) => selector.has_task(task.index),
        (None, Some(pending)) => pending.indices().any(|index| selector.has_task(index)),
        (None, None) => false,
    }
}

/// May the caller act on the job? The owner decides the same from the record.
pub(super) fn may_act(by: Authority, view: &JobView) -> bool {
    by.admin || by.uid == view.uid
}

impl FrontendCore {
    /// For the jobs of one request.
    pub(super) fn selection(&self) -> Selection {
        Selection::new(&self.sight.boards().jobs)
    }

    /// The jobs that each of them means.
    pub(super) fn named(&self, selectors: Vec<JobSelector>) -> Result<Vec<Named>, Refusal> {
        let mut selection = self.selection();
        let mut find = |selector: JobSelector| selection.find(&selector).map(|views| (selector, views));
        selectors.into_iter().map(&mut find).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::{
        spec::{ArraySpec, JobSpec},
        testing::{array, job, spec},
    };

    fn board() -> JobBoard {
        let board = JobBoard::default();
        let of_array = || JobSpec { array: Some(array(0, 9, None)), ..spec() };
        let pending = ArraySpec { ranges: vec![(5, 9, 1)], limit: None };
        board.publish(JobId(1), Arc::new(job(1, spec())));
        board.publish(JobId(2), Arc::new(JobView { array_pending: Some(pending), ..job(2, of_array()) }));
        for index in 0..5 {
            let array_task = Some(ArrayTask { array_job: JobId(2), index });
            let id = 10 + index;
            board.publish(JobId(id), Arc::new(JobView { array_task, ..job(id, of_array()) }));
        }
        board
    }

    fn found(selection: &mut Selection, selector: &str) -> Vec<u32> {
        let views = selection.find(&selector.parse().unwrap()).unwrap();
        views.iter().map(|view| view.id.0).collect()
    }

    #[test]
    fn arrays_and_their_tasks_are_found_by_either_id() {
        let selection = &mut Selection::new(&board());
        assert_eq!(found(selection, "1"), [1]);
        assert_eq!(found(selection, "2"), [2, 10, 11, 12, 13, 14]);
        assert_eq!(found(selection, "2_[1-3:2,6]"), [2, 11, 13]);
        assert_eq!(found(selection, "2_4"), [14]);
        assert_eq!(found(selection, "12"), [12]);
        assert!(
            found(selection, "1_2").is_empty()
                && found(selection, "2_77").is_empty()
                && found(selection, "9").is_empty()
        );
        assert_eq!(selection.task(ArrayTask { array_job: JobId(2), index: 3 }).unwrap().id, JobId(13));
    }

    #[test]
    fn a_run_is_its_job_as_long_as_it_is_the_newest() {
        let board = board();
        let selection = &mut Selection::new(&board);
        let run = board.get(&JobId(12)).unwrap().sluid;
        let mut named: JobSelector = run.into();
        selection.look_up(vec![(run, &mut named.job)]);
        assert_eq!(named.job, JobId(12));
        assert_eq!(selection.find(&named).unwrap().len(), 1);
        // Requeued between the look-up and the change.
        let next = JobView { sluid: Sluid(99_999), ..JobView::clone(&board.get(&JobId(12)).unwrap()) };
        board.publish(JobId(12), Arc::new(next));
        assert_eq!(selection.find(&named).unwrap(), []);
        selection.look_up(vec![(run, &mut named.job)]);
        assert_eq!(named.job, JobId::OF_A_RUN);
        assert_eq!(selection.find(&named).unwrap(), []);
    }

    #[test]
    fn the_widest_range_is_no_more_work_than_what_is_in_it() {
        let selection = &mut Selection::new(&board());
        let all = JobSelector { job: JobId(2), tasks: Some(vec![(0, u32::MAX, 1)]), het: None, run: None };
        let views = selection.find(&all).unwrap();
        assert_eq!(views.iter().map(|view| view.id.0).collect::<Vec<_>>(), [2, 10, 11, 12, 13, 14]);
        assert_eq!(selection.spent, 2 + 6);
        let backwards = JobSelector { tasks: Some(vec![(4, 1, 1)]), ..all.clone() };
        assert_eq!(selection.find(&backwards).unwrap(), []);
        let twice = JobSelector { tasks: Some(vec![(0, 9, 1), (0, 9, 1)]), ..all };
        assert_eq!(selection.find(&twice), Err(Refusal::InvalidArray));
    }

    #[test]
    fn a_request_names_each_job_a_few_times_and_not_without_end() {
        let board = board();
        let selection = &mut Selection::new(&board);
        let most = MOST_NAMED + TIMES * 7;
        for _ in 0..most / 7 {
            assert_eq!(found(selection, "2").len(), 6);
        }
        let refusal = selection.find(&JobId(2).into()).unwrap_err();
        assert!(refusal.to_string().contains(&format!("more than {most} together")), "{refusal}");
        // Unknown ids count, and do not cause another search of all jobs.
        let selection = &mut Selection::new(&board);
        let unknown = (0..).take_while(|n| selection.find(&JobId(1000 + n).into()).is_ok()).count();
        assert_eq!(u64::try_from(unknown).unwrap(), most);
    }
}
