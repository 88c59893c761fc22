//! Dependencies: which are fulfilled, which never can be. An array's task that waits for the task of the same index in another
//! array is split off as soon as that one is over: then it has conditions of its own. A job asks the jobs that it depends on for
//! news; an array's record answers for all its tasks. An unknown job counts as ended with an unknown result: `afterany` and
//! `after` are fulfilled, `afterok` and `afternotok` are not.

use super::{
    core::{JobCore, Turn},
    effects::{JobEffect, JobErrand},
};
use crate::messages::job::{JobFact, JobInput, JobTimer};
use garrick_events::records::{
    job::{Afterwards, Phase, TaskOutcome},
    job_event::JobEvent,
};
use garrick_model::{
    ids::JobId,
    spec::{Dependencies, Dependency, DependencyKind},
    state::JobState,
    time::Timestamp,
};
use std::{collections::BTreeSet, time::Duration};

/// The state of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Waits,
    /// Fulfilled at that time, when nothing changes.
    WaitsUntil(Timestamp),
    Fulfilled,
    Never,
}

impl JobCore {
    /// Asks every job that it depends on, and the other jobs of a singleton.
    pub(super) fn ask_dependencies(&mut self, turn: &mut Turn<'_>) {
        let list = &self.record.dependencies.list;
        let jobs: BTreeSet<JobId> = list.iter().filter_map(|d| d.job).collect();
        for job in jobs {
            turn.tell_job(job, JobInput::Subscribe { by: self.record.id });
        }
        if list.iter().any(|d| d.kind == DependencyKind::Singleton) && self.siblings.is_none() {
            turn.out.push(JobEffect::Do(JobErrand::FindSiblings));
        }
    }

    pub(super) fn found_siblings(&mut self, jobs: &[JobId], turn: &mut Turn<'_>) {
        for &job in jobs {
            turn.tell_job(job, JobInput::Subscribe { by: self.record.id });
        }
        self.siblings = Some(jobs.iter().copied().collect());
        self.singleton_news(turn);
    }

    /// Handles news of another job: a task of this array, another job of a singleton, or a job that it depends on.
    pub(super) fn learned(&mut self, job: JobId, fact: Option<&JobFact>, turn: &mut Turn<'_>) {
        if let Some(fact) = fact {
            self.task_news(job, fact, turn);
        }
        if fact.is_none() && self.het_leader() == Some(job) {
            // That job ended, and was forgotten before this one was told.
            self.het_gives_all_back(turn);
            self.end_with_leader(JobState::Cancelled, Afterwards::Over, None, turn);
        }
        let noted = fact.is_none_or(|f| f.noted);
        if noted && (self.array_to_tell() == Some(job) || self.het_leader() == Some(job)) {
            self.end_is_noted(turn);
        }
        if !matches!(self.record.phase, Phase::Pending) || fact.is_some_and(|f| f.noted) {
            return;
        }
        if fact.is_none_or(|f| f.over.is_some())
            && let Some(siblings) = &mut self.siblings
            && siblings.remove(&job)
        {
            self.singleton_news(turn);
        }
        self.part_ways(job, fact, turn);
        let own = self.own_indices();
        self.judge(turn, |dependency, now| match dependency.job {
            Some(on) if on == job => verdict(dependency, fact, now, &own),
            _ => Verdict::Waits,
        });
    }

    /// The tasks of an array that this represents.
    fn own_indices(&self) -> BTreeSet<u32> {
        match (&self.record.array_task, &self.record.array) {
            (Some(task), _) => [task.index].into(),
            (None, Some(array)) => array.pending.clone(),
            (None, None) => BTreeSet::new(),
        }
    }

    /// Splits off tasks whose counterparts in another array are over while others' are not.
    fn part_ways(&mut self, job: JobId, fact: Option<&JobFact>, turn: &mut Turn<'_>) {
        let list = &self.record.dependencies.list;
        let on_tasks = list.iter().find(|d| d.kind == DependencyKind::AfterCorr && d.job == Some(job));
        let Some(dependency) = on_tasks.filter(|_| self.record.is_array_record()).cloned() else { return };
        let verdict = |index: &u32| verdict(&dependency, fact, turn.now, &[*index].into());
        let verdicts: Vec<(u32, Verdict)> = self.own_indices().iter().map(|index| (*index, verdict(index))).collect();
        // If all are alike, the whole record is handled.
        let Some((_, first)) = verdicts.first().filter(|(_, first)| verdicts.iter().any(|(_, v)| v != first)) else {
            return;
        };
        // One task keeps the record, so that it is not left without any.
        let stays = if verdicts.iter().any(|(_, v)| *v == Verdict::Waits) { Verdict::Waits } else { *first };
        let alone = !self.record.dependencies.any;
        for (index, verdict) in verdicts.iter().filter(|(_, v)| *v != stays) {
            // It need not ask that array any more.
            let fulfilled = (alone && *verdict == Verdict::Fulfilled).then_some(&dependency);
            self.split_waiting(*index, fulfilled, turn);
        }
    }

    fn singleton_news(&mut self, turn: &mut Turn<'_>) {
        if self.siblings.as_ref().is_some_and(BTreeSet::is_empty) {
            self.judge(turn, |dependency, _| match dependency.kind {
                DependencyKind::Singleton => Verdict::Fulfilled,
                _ => Verdict::Waits,
            });
        }
    }

    fn judge(&mut self, turn: &mut Turn<'_>, verdict: impl Fn(&Dependency, Timestamp) -> Verdict) {
        let known = &self.record.dependencies;
        if known.list.is_empty() {
            return;
        }
        let verdicts: Vec<Verdict> = known.list.iter().map(|d| verdict(d, turn.now)).collect();
        for verdict in &verdicts {
            if let Verdict::WaitsUntil(at) = verdict {
                turn.out.push(JobEffect::SetTimer { timer: JobTimer::Eligible, at: *at });
            }
        }
        let one_is_enough = known.any && verdicts.contains(&Verdict::Fulfilled);
        let still = |v: &Verdict| matches!(v, Verdict::Waits | Verdict::WaitsUntil(_));
        // An alternative that can never be fulfilled is removed, unless it is the last.
        let keep = |v: &Verdict| still(v) || (*v == Verdict::Never && !known.any);
        let left: Vec<Dependency> = if one_is_enough {
            Vec::new()
        } else {
            known.list.iter().zip(&verdicts).filter(|(_, v)| keep(v)).map(|(d, v)| marked(d, *v)).collect()
        };
        let never = verdicts.contains(&Verdict::Never);
        let failed = if known.any { !one_is_enough && left.is_empty() && never } else { never };
        let failed = failed || (self.record.dependency_failed && !one_is_enough);
        let all = || known.list.iter().zip(&verdicts).map(|(d, v)| marked(d, *v)).collect();
        let left = if failed && left.is_empty() { all() } else { left };
        if left != known.list || failed != self.record.dependency_failed {
            let left = Dependencies { any: known.any, list: left };
            self.save(JobEvent::DependenciesLeft { left, failed }, turn);
            self.check_eligible(turn);
            self.end_if_impossible(turn);
        }
    }

    /// If the site is configured so, ends a job whose dependencies can never be fulfilled.
    pub(super) fn end_if_impossible(&mut self, turn: &mut Turn<'_>) {
        let waits = matches!(self.record.phase, Phase::Pending);
        let ends = self.record.spec.kill_on_invalid_dep.unwrap_or(self.site.kill_invalid_depend);
        if waits && self.record.dependency_failed && ends && self.het_leader().is_none() {
            // It waits, so it can be ended.
            let _ = self.cancel(JobState::Cancelled, None, turn);
        }
    }
}

/// The condition, marked as failed if it can never be fulfilled.
fn marked(dependency: &Dependency, verdict: Verdict) -> Dependency {
    Dependency { failed: dependency.failed || verdict == Verdict::Never, ..dependency.clone() }
}

/// `own`: the tasks that ask, if they belong to an array.
fn verdict(dependency: &Dependency, fact: Option<&JobFact>, now: Timestamp, own: &BTreeSet<u32>) -> Verdict {
    let corresponds = dependency.kind == DependencyKind::AfterCorr;
    if let Some(fact) = fact.filter(|fact| corresponds && dependency.array_index.is_none() && !fact.tasks.is_empty()) {
        let of = |index: &u32| {
            let on_task = Dependency { array_index: Some(*index), ..dependency.clone() };
            verdict(&on_task, Some(fact), now, own)
        };
        let verdicts: Vec<Verdict> = own.iter().map(of).collect();
        if let [first, rest @ ..] = verdicts.as_slice() {
            return if rest.iter().all(|v| v == first) { *first } else { Verdict::Waits };
        }
    }
    let Some(fact) = fact else {
        return match dependency.kind {
            DependencyKind::After { .. } | DependencyKind::AfterAny | DependencyKind::Singleton => Verdict::Fulfilled,
            DependencyKind::AfterOk | DependencyKind::AfterCorr | DependencyKind::AfterNotOk => Verdict::Never,
        };
    };
    let (started, over, some_failed) = match dependency.array_index {
        None => (fact.started, fact.over, fact.some_failed),
        Some(index) => match fact.tasks.get(&index) {
            Some((started, over)) => (*started, *over, *over == Some(TaskOutcome::NotOk)),
            None => return Verdict::Never,
        },
    };
    match dependency.kind {
        DependencyKind::After { minutes } => match started {
            None => Verdict::Waits,
            Some(at) => {
                let from = at.plus(Duration::from_secs(60 * u64::from(minutes)));
                if from <= now { Verdict::Fulfilled } else { Verdict::WaitsUntil(from) }
            }
        },
        DependencyKind::AfterAny if over.is_some() => Verdict::Fulfilled,
        DependencyKind::AfterOk | DependencyKind::AfterCorr if some_failed => Verdict::Never,
        DependencyKind::AfterOk | DependencyKind::AfterCorr if over == Some(TaskOutcome::Ok) => Verdict::Fulfilled,
        DependencyKind::AfterNotOk => match over {
            Some(TaskOutcome::NotOk) => Verdict::Fulfilled,
            Some(TaskOutcome::Ok) => Verdict::Never,
            None => Verdict::Waits,
        },
        DependencyKind::AfterAny | DependencyKind::AfterOk | DependencyKind::AfterCorr | DependencyKind::Singleton => {
            Verdict::Waits
        }
    }
}
