//! What the journal has promised so far: accepted jobs, their runs, and how often each ended. Derived from events alone, so that
//! rules compare cores with an independent source.

use garrick_events::{
    event::ControllerEvent,
    records::{
        job::{Afterwards, End, JobRecord, Phase, indices_of},
        job_event::JobEvent,
    },
};
use garrick_model::{
    ids::{JobId, Sluid},
    spec::Dependencies,
    state::JobState,
};
use std::collections::{BTreeMap, BTreeSet};

/// How often each thing happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    all: BTreeMap<&'static str, u64>,
    /// How often a fault met a job of a kind, as [`meetings`](super::meetings) names both.
    pub met: BTreeMap<(&'static str, &'static str), u64>,
}

impl Counts {
    pub(super) fn add(&mut self, what: &'static str) {
        *self.all.entry(what).or_insert(0) += 1;
    }

    /// How often this happened.
    pub fn of(&self, what: &str) -> u64 {
        self.all.get(what).copied().unwrap_or(0)
    }

    pub(super) fn meet(&mut self, fault: &'static str, kind: &'static str) {
        *self.met.entry((fault, kind)).or_insert(0) += 1;
    }

    /// All of it, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.all.iter().map(|(what, count)| (*what, *count))
    }

    /// Adds what another world held.
    pub fn merge(&mut self, other: &Self) {
        other.all.iter().for_each(|(what, count)| *self.all.entry(what).or_insert(0) += count);
        other.met.iter().for_each(|(what, count)| *self.met.entry(*what).or_insert(0) += count);
    }
}

/// A run, from the moment its identity was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunNote {
    /// Whose.
    pub job: JobId,
    /// Times that its end was recorded.
    pub ends: u32,
}

/// An accepted job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobNote {
    /// Its newest run.
    pub run: Option<Sluid>,
    /// Indices, for an array.
    pub indices: BTreeSet<u32>,
    /// It was forgotten.
    pub purged: bool,
    /// Whose it is.
    pub owner: u32,
    /// Its name.
    pub name: String,
    /// What it waits for, and has not behind it.
    pub dependencies: Dependencies,
    /// It is a task with this index of this array.
    pub array_of: Option<(JobId, u32)>,
    /// It is a component of the heterogeneous job with this leader and so many components.
    pub het: Option<(JobId, u32)>,
    /// It was given nodes once.
    pub began: bool,
    /// Of each end after which nothing was to follow: whether it was a good one.
    pub outcomes: Vec<bool>,
    /// The same of one that another run is to follow.
    pub to_follow: Option<bool>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Accepted jobs, forgotten ones too.
    pub jobs: BTreeMap<JobId, JobNote>,
    /// Runs.
    pub runs: BTreeMap<Sluid, RunNote>,
    /// Runs that were given nodes.
    pub started: BTreeSet<Sluid>,
    /// Runs of components that their leaders have recorded with their own.
    pub granted: BTreeSet<Sluid>,
    /// Runs that were replaced before their end was recorded.
    pub replaced_alive: Vec<(JobId, Sluid)>,
    /// Runs that give way, with what is to follow.
    pub preempted: BTreeMap<Sluid, Afterwards>,
    /// Runs that ended as preempted and were to be followed by another, and are not.
    pub not_queued_again: Vec<(JobId, Sluid)>,
    /// How often each event was recorded.
    pub counts: Counts,
}

/// What others were told and rely on: it has to be on disk, and to be there after every crash.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Jobs that were answered.
    pub jobs: BTreeSet<JobId>,
    /// Runs that agents were sent.
    pub runs: BTreeSet<Sluid>,
    /// Runs whose end a `stepd` may forget.
    pub ends: BTreeSet<Sluid>,
    /// Runs whose cancellation was answered.
    pub cancelled: BTreeSet<Sluid>,
    /// Some were made since they were looked at last.
    pub(super) news: Vec<Promise>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// See [`Promises::jobs`].
    Job(JobId),
    /// See [`Promises::runs`].
    Run(Sluid),
    /// See [`Promises::ends`].
    End(Sluid),
}

impl Promises {
    pub(super) fn job(&mut self, job: JobId) {
        self.jobs.insert(job);
        self.news.push(Promise::Job(job));
    }

    pub(super) fn run(&mut self, sluid: Sluid) {
        self.runs.insert(sluid);
        self.news.push(Promise::Run(sluid));
    }

    pub(super) fn end(&mut self, sluid: Sluid) {
        self.ends.insert(sluid);
        self.news.push(Promise::End(sluid));
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = Promise> + '_ {
        let jobs = self.jobs.iter().map(|job| Promise::Job(*job));
        let runs = self.runs.iter().map(|run| Promise::Run(*run));
        jobs.chain(runs).chain(self.ends.iter().map(|run| Promise::End(*run)))
    }
}

impl Ledger {
    /// Takes note of an event.
    pub fn note(&mut self, event: &ControllerEvent) {
        let ControllerEvent::Job { job, event } = event else { return };
        self.counts.add(event.name());
        let note = self.jobs.entry(*job).or_default();
        match &**event {
            JobEvent::Submitted(record) | JobEvent::SubmittedLike { record, .. } => self.submitted(*job, record),
            JobEvent::Requeued { sluid, .. } => {
                note.to_follow = None;
                if let Some(old) = note.run.replace(*sluid)
                    && self.runs.get(&old).is_none_or(|run| run.ends != 1)
                {
                    self.replaced_alive.push((*job, old));
                }
                self.runs.insert(*sluid, RunNote { job: *job, ends: 0 });
            }
            JobEvent::Preempted(mark) => {
                if let Some(run) = note.run {
                    self.preempted.insert(run, mark.then);
                }
            }
            JobEvent::Ending(ending) => {
                // It was told something else meanwhile.
                if ending.state != JobState::Preempted {
                    note.run.and_then(|run| self.preempted.remove(&run));
                }
                // Asked for while the run that ended was being cleaned up.
                if ending.then == Afterwards::Over {
                    note.outcomes.extend(note.to_follow.take());
                }
            }
            JobEvent::Ended(end) => self.ended(*job, end),
            JobEvent::DependenciesLeft { left, .. } => note.dependencies = left.clone(),
            JobEvent::Revised(revision) => note.dependencies = revision.dependencies.clone(),
            JobEvent::Allocated(run) => {
                note.began = true;
                note.dependencies = Dependencies::default();
                self.granted.extend(run.parts.iter().map(|part| part.sluid));
                self.started.extend(note.run);
            }
            JobEvent::Purged => note.purged = true,
            _ => {}
        }
    }

    fn submitted(&mut self, job: JobId, record: &JobRecord) {
        // A task waits for what its array waits for, and has behind it what that has.
        let array = record.array_task.and_then(|task| self.jobs.get(&task.array_job));
        let own = array.map_or_else(|| record.spec.dependencies.clone(), |array| array.dependencies.clone());
        let note = self.jobs.entry(job).or_default();
        note.run = Some(record.sluid);
        (note.owner, note.name) = (record.owner.uid, record.spec.name.clone());
        note.dependencies = own;
        note.het = record.spec.het.map(|(leader, _)| (leader, record.spec.het_size));
        note.array_of = record.array_task.map(|task| (task.array_job, task.index));
        if let Phase::Over(..) = record.phase {
            note.outcomes.push(false);
        }
        if let Some(array) = record.spec.array.as_ref().filter(|_| record.array.is_some()) {
            note.indices = indices_of(&array.ranges);
        }
        // A task that is cancelled before it was a job is over from the start.
        let ends = u32::from(matches!(record.phase, Phase::Over(..)));
        self.runs.insert(record.sluid, RunNote { job, ends });
    }

    fn ended(&mut self, job: JobId, end: &End) {
        let note = self.jobs.entry(job).or_default();
        let good = end.state == JobState::Completed;
        match end.then {
            Afterwards::Over | Afterwards::ExpediteIfEpilogFails => note.outcomes.push(good),
            Afterwards::Requeue { .. } | Afterwards::Recur | Afterwards::Expedite | Afterwards::ExpediteOrHold => {
                note.to_follow = Some(good);
            }
        }
        if let Some(run) = note.run
            && let Some(Afterwards::Requeue { .. }) = self.preempted.remove(&run)
            && end.state == JobState::Preempted
            && !matches!(end.then, Afterwards::Requeue { .. })
        {
            self.not_queued_again.push((job, run));
        }
        if let Some(run) = note.run.and_then(|sluid| self.runs.get_mut(&sluid)) {
            run.ends += 1;
        }
    }
}
