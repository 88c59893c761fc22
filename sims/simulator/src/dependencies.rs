//! Whether a job that starts was allowed to by what it depends on: judged from the journal's history alone.

use super::{
    ledger::{JobNote, Ledger},
    world::World,
};
use garrick_model::{
    ids::JobId,
    spec::{Dependency, DependencyKind},
};

impl World {
    /// The job is given nodes: its conditions hold, or did once.
    pub(super) fn against_dependencies(&mut self, job: JobId) {
        if let Some(what) = self.ledger.unmet(job) {
            self.broken = Some(("a_dependent_job_does_not_start_before_its_condition_holds", what));
        }
    }
}

impl Ledger {
    /// What a job waits for, if it has to wait.
    fn unmet(&self, job: JobId) -> Option<String> {
        let note = self.jobs.get(&job)?;
        let conditions = &note.dependencies;
        let unmet: Vec<&Dependency> = conditions.list.iter().filter(|d| !self.is_met(job, note, d)).collect();
        let one_is_enough = conditions.any && unmet.len() < conditions.list.len();
        let first = unmet.first().filter(|_| !one_is_enough)?;
        let waits_for = match first.kind {
            DependencyKind::Singleton => self.open_sibling(job, note).map(|on| format!(", because of job {}", on.0)),
            _ => None,
        };
        let because = waits_for.unwrap_or_default();
        Some(format!("job {} is given nodes, and its condition {first:?} never held{because}", job.0))
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
