//! Checks whether a job that starts was allowed to by its dependencies, from the journal's history alone. A condition that was
//! once fulfilled and recorded stays fulfilled, even if the job that it is about is requeued.

use super::{
    ledger::{JobNote, Ledger},
    world::World,
};
use garrick_events::records::job_event::JobEvent;
use garrick_model::{
    ids::JobId,
    spec::{Dependencies, Dependency, DependencyKind},
};

impl World {
    /// A condition is taken for fulfilled, or the job is given nodes: it holds, or did once.
    pub(super) fn against_dependencies(&mut self, job: JobId, event: &JobEvent) {
        let unmet = match event {
            JobEvent::Allocated(_) => {
                self.ledger.unmet(job).map(|what| format!("job {} is given nodes, and {what}", job.0))
            }
            JobEvent::DependenciesLeft { left, .. } => {
                let behind = self.ledger.behind(job, left);
                behind
                    .and_then(|behind| self.ledger.unmet_of(job, &behind))
                    .map(|what| format!("job {} goes on, and {what}", job.0))
            }
            _ => None,
        };
        if let Some(what) = unmet {
            self.broken = Some(("a_dependent_job_does_not_start_before_its_condition_holds", what));
        }
    }
}

impl Ledger {
    /// What a job waits for, if it has to wait.
    fn unmet(&self, job: JobId) -> Option<String> {
        self.unmet_of(job, &self.jobs.get(&job)?.dependencies)
    }

    /// Those of a job's conditions that it has behind it where these are left. Of alternatives those that never can be are left out
    /// one by one.
    fn behind(&self, job: JobId, left: &Dependencies) -> Option<Dependencies> {
        let before = &self.jobs.get(&job)?.dependencies;
        let same = |a: &Dependency, b: &Dependency| (a.kind, a.job, a.array_index) == (b.kind, b.job, b.array_index);
        let is_left = |one: &Dependency| left.list.iter().any(|other| same(one, other));
        let list: Vec<Dependency> = before.list.iter().filter(|one| !is_left(one)).cloned().collect();
        let told = !list.is_empty() && (!before.any || left.list.is_empty());
        told.then_some(Dependencies { any: before.any, list })
    }

    fn unmet_of(&self, job: JobId, conditions: &Dependencies) -> Option<String> {
        let note = self.jobs.get(&job)?;
        let unmet: Vec<&Dependency> = conditions.list.iter().filter(|d| !self.is_met(job, note, d)).collect();
        let one_is_enough = conditions.any && unmet.len() < conditions.list.len();
        let first = unmet.first().filter(|_| !one_is_enough)?;
        let waits_for = match first.kind {
            DependencyKind::Singleton => self.open_sibling(job, note).map(|on| format!(", because of job {}", on.0)),
            _ => None,
        };
        let because = waits_for.unwrap_or_default();
        Some(format!("its condition {first:?} never held{because}"))
    }

    /// An earlier job of the same name and user that never ended.
    fn open_sibling(&self, job: JobId, note: &JobNote) -> Option<JobId> {
        let own_array = note.array_of.map(|(array, _)| array);
        let same = |(id, other): &(&JobId, &JobNote)| {
            (**id < job || other.array_of.is_some_and(|(array, _)| array < job))
                && other.owner == note.owner
                && other.name == note.name
                && Some(**id) != own_array
                && (own_array.is_none() || other.array_of.map(|(array, _)| array) != own_array)
        };
        let mut siblings = self.jobs.iter().filter(same);
        siblings.find(|(_, other)| !other.purged && other.outcomes.is_empty()).map(|(id, _)| *id)
    }

    /// Which task of its array a job is: the record of an array becomes the one that no other job is.
    fn index_of(&self, job: JobId, note: &JobNote) -> Option<u32> {
        let split = |index: &u32| self.jobs.values().any(|other| other.array_of == Some((job, *index)));
        note.array_of.map(|(_, index)| index).or_else(|| note.indices.iter().copied().find(|index| !split(index)))
    }

    fn is_met(&self, job: JobId, note: &JobNote, condition: &Dependency) -> bool {
        if condition.kind == DependencyKind::Singleton {
            return self.open_sibling(job, note).is_none();
        }
        let Some((on, target)) = condition.job.and_then(|on| Some((on, self.jobs.get(&on)?))) else { return true };
        // What became of it is not asked any more.
        if target.purged {
            return true;
        }
        let of_array = |(_, other): &(&JobId, &JobNote)| other.array_of.is_some_and(|(array, _)| array == on);
        // The record of an array becomes one of its tasks in the end.
        let split: Vec<&JobNote> = self.jobs.iter().filter(of_array).map(|(_, other)| other).collect();
        if let (DependencyKind::AfterCorr, Some(index)) = (condition.kind, self.index_of(job, note))
            && !target.indices.is_empty()
        {
            let task = split.iter().find(|task| task.array_of == Some((on, index)));
            return task.copied().unwrap_or(target).outcomes.contains(&true);
        }
        // One that was cancelled while it waited ends with all tasks that were no jobs yet.
        let all_there = split.len() + 1 >= target.indices.len() || !target.outcomes.is_empty();
        let units = || split.iter().copied().chain([target]);
        let all_over = all_there && units().all(|unit| !unit.outcomes.is_empty());
        match condition.kind {
            DependencyKind::After { .. } => units().any(|unit| unit.began || !unit.outcomes.is_empty()),
            DependencyKind::AfterOk | DependencyKind::AfterCorr => {
                all_over && units().all(|unit| unit.outcomes.contains(&true))
            }
            DependencyKind::AfterNotOk => all_over && units().any(|unit| unit.outcomes.contains(&false)),
            DependencyKind::AfterAny | DependencyKind::Singleton => all_over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_events::event::ControllerEvent;

    const ARRAY: JobId = JobId(16);
    const WAITS: JobId = JobId(57);

    fn condition() -> Dependencies {
        let on_array =
            Dependency { kind: DependencyKind::AfterAny, job: Some(ARRAY), array_index: None, failed: false };
        Dependencies { any: false, list: vec![on_array] }
    }

    /// The array is over, and another job waits for that.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        let array = JobNote { indices: (0..3).collect(), outcomes: vec![false], ..JobNote::default() };
        ledger.jobs.insert(ARRAY, array);
        ledger.jobs.insert(WAITS, JobNote { dependencies: condition(), ..JobNote::default() });
        ledger
    }

    /// The array was queued again, and one of its tasks runs.
    fn queue_again(ledger: &mut Ledger) {
        let task = JobNote { array_of: Some((ARRAY, 1)), began: true, ..JobNote::default() };
        ledger.jobs.insert(JobId(121), task);
    }

    #[test]
    fn a_condition_that_held_once_does_not_come_back_with_a_requeue() {
        let mut ledger = ledger();
        let left = Dependencies::default();
        let behind = ledger.behind(WAITS, &left);
        assert_eq!((behind, ledger.unmet_of(WAITS, &condition())), (Some(condition()), None));
        let event = Box::new(JobEvent::DependenciesLeft { left, failed: false });
        ledger.note(&ControllerEvent::Job { job: WAITS, event });
        queue_again(&mut ledger);
        assert_eq!(ledger.unmet(WAITS), None);
    }

    #[test]
    fn a_condition_that_was_not_recorded_as_fulfilled_is_still_to_hold() {
        let mut ledger = ledger();
        assert_eq!(ledger.unmet(WAITS), None);
        queue_again(&mut ledger);
        assert!(ledger.unmet(WAITS).is_some_and(|what| what.contains("AfterAny")));
    }
}
