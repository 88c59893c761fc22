//! Job arrays: one record represents all waiting tasks. When a task starts or is treated apart from the others, it becomes a job
//! of its own. The last waiting task takes the record over and keeps the array's id.

use super::{
    core::{JobCore, Turn},
    effects::JobEffect,
};
use crate::messages::{
    job::{JobFact, JobInput, TaskChoice},
    letter::Letter,
};
use garrick_events::{
    event::ControllerEvent,
    records::{
        job::{Afterwards, End, JobRecord, Phase, TaskMark, TaskOutcome},
        job_event::JobEvent,
    },
};
use garrick_model::{
    ids::{ArrayTask, JobId},
    refusal::Refusal,
    spec::Dependency,
    spec_text::array::contains_index,
    state::{ExitStatus, JobState, Reason},
    time::Timestamp,
};
use garrick_plan::proposals::StartProposal;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// What follows from an array's list of tasks. With thousands of tasks, a look at all of them for each change of one would take
/// seconds in all.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    /// Index of each task with a job of its own.
    index: HashMap<JobId, u32>,
    /// Tasks that are known to run; requeued tasks are not counted.
    running: u32,
    /// How often the list was changed.
    pub(super) changes: u64,
}

impl Tasks {
    pub(super) fn of(record: &JobRecord) -> Self {
        let all = || record.array.iter().flat_map(|array| &array.tasks);
        Self {
            index: all().map(|(index, mark)| (mark.job, *index)).collect(),
            running: u32::try_from(all().filter(|(_, mark)| runs(mark)).count()).unwrap_or(u32::MAX),
            changes: 0,
        }
    }

    /// An event of the array's record was applied.
    pub(super) fn note(&mut self, event: &JobEvent) {
        match event {
            JobEvent::TaskSplit { index, job } => drop(self.index.insert(*job, *index)),
            JobEvent::TaskNews { .. } => {}
            _ => return,
        }
        self.changes += 1;
    }
}

const fn runs(mark: &TaskMark) -> bool {
    mark.started.is_some() && mark.over.is_none()
}

impl JobCore {
    /// Gives a waiting task a record of its own, and passes the proposal to it.
    pub(super) fn split(&mut self, index: u32, proposal: StartProposal, turn: &mut Turn<'_>) {
        let record = self.task_record(index, turn);
        let proposal = StartProposal { job: record.id, array_index: None, ..proposal };
        self.split_off(index, record, Some(JobInput::Start(Box::new(proposal))), turn);
    }

    /// Gives a waiting task a record of its own, in which the condition `fulfilled` is removed.
    pub(super) fn split_waiting(&mut self, index: u32, fulfilled: Option<&Dependency>, turn: &mut Turn<'_>) {
        let mut record = self.task_record(index, turn);
        record.dependencies.list.retain(|dependency| Some(dependency) != fulfilled);
        self.split_off(index, record, None, turn);
    }

    /// Gives waiting tasks records of their own and passes each the same input. The result is part of its record, so that it is
    /// on disk when the command is answered.
    pub(super) fn split_for(&mut self, indices: &BTreeSet<u32>, first: &JobInput, turn: &mut Turn<'_>) {
        for &index in indices {
            let mut task = Self::new(self.task_record(index, turn), Arc::clone(&self.site));
            // Its owner handles what else follows, in its first turn.
            task.handle(turn.now, turn.ids, first.clone(), &mut Vec::new());
            self.split_off(index, task.record, None, turn);
        }
    }

    /// The task's record is saved before the array's mark: if a crash cuts a write short, the mark must not exist alone.
    fn split_off(&mut self, index: u32, record: JobRecord, first: Option<JobInput>, turn: &mut Turn<'_>) {
        let job = record.id;
        let event = Box::new(JobEvent::task_submitted(&record, self.record.id));
        turn.out.push(JobEffect::Save(ControllerEvent::Job { job, event }));
        turn.tell(Letter::Begin { record: Box::new(record), first: first.map(Box::new) });
        self.save(JobEvent::TaskSplit { index, job }, turn);
    }

    fn task_record(&mut self, index: u32, turn: &mut Turn<'_>) -> JobRecord {
        let task = ArrayTask { array_job: self.record.id, index };
        // The array's list of tasks does not belong to this task, and is long.
        let array = self.record.array.take();
        let mut record = self.record.clone();
        self.record.array = array;
        record.id = turn.ids.job();
        record.sluid = turn.ids.sluid(turn.now);
        record.request = None;
        record.priority = self.priority();
        record.array_task = Some(task);
        Arc::make_mut(&mut record.spec).array_task = Some(task);
        record
    }

    /// The tasks that a command names: `Ok(None)` if it is about this record as a whole.
    pub(super) fn chosen_tasks(&self, tasks: &TaskChoice) -> Result<Option<BTreeSet<u32>>, Refusal> {
        let Some(ranges) = tasks else { return Ok(None) };
        // The command may name any range: only existing indices are visited.
        if let Some(task) = self.record.array_task {
            return if contains_index(ranges, task.index) { Ok(None) } else { Err(Refusal::InvalidJobId) };
        }
        let Some(array) = &self.record.array else { return Err(Refusal::InvalidJobId) };
        let waiting: BTreeSet<u32> =
            array.pending.iter().copied().filter(|index| contains_index(ranges, *index)).collect();
        if waiting.is_empty() {
            Err(Refusal::InvalidJobId)
        } else if waiting.len() == array.pending.len() {
            Ok(None)
        } else {
            Ok(Some(waiting))
        }
    }

    /// Ends waiting tasks of the array; each gets a record of its own that says so.
    pub(super) fn cancel_tasks(&mut self, indices: &BTreeSet<u32>, by: Option<u32>, turn: &mut Turn<'_>) {
        for &index in indices {
            let mut record = self.task_record(index, turn);
            record.phase = Phase::Over(
                None,
                End {
                    state: JobState::Cancelled,
                    reason: Reason::None,
                    exit: ExitStatus::SUCCESS,
                    derived: ExitStatus::SUCCESS,
                    at: turn.now,
                    then: Afterwards::Over,
                    cause: None,
                    by,
                    sluid: None,
                },
            );
            self.split_off(index, record, None, turn);
        }
    }

    /// Handles news of a task that was split off.
    pub(super) fn task_news(&mut self, job: JobId, fact: &JobFact, turn: &mut Turn<'_>) {
        let Some(&index) = self.tasks.index.get(&job) else { return };
        let ran = self.task_runs(index);
        let Some(mark) = self.record.array.as_ref().and_then(|array| array.tasks.get(&index)) else { return };
        let started = mark.started.or(fact.started);
        let waits = fact.started.is_none() && fact.over.is_none();
        self.touched |=
            started.is_some() && if waits { self.back_in_queue.insert(job) } else { self.back_in_queue.remove(&job) };
        // A requeued task is not over any more.
        if mark.started != started || mark.over != fact.over {
            let (over, exit) = (fact.over, fact.exit);
            self.save(JobEvent::TaskNews { index, started, over, exit }, turn);
        }
        match (ran, self.task_runs(index)) {
            (false, true) => self.tasks.running += 1,
            (true, false) => self.tasks.running = self.tasks.running.saturating_sub(1),
            _ => {}
        }
    }

    /// Is that task known to run? Not if it is back in the queue.
    fn task_runs(&self, index: u32) -> bool {
        let mark = self.record.array.as_ref().and_then(|array| array.tasks.get(&index));
        mark.is_some_and(|mark| runs(mark) && !self.back_in_queue.contains(&mark.job))
    }

    /// Tasks that are known to run; requeued tasks are not counted.
    pub(super) const fn running_tasks(&self) -> u32 {
        self.tasks.running
    }

    /// The job with the array's record, if this is a task with a record of its own.
    pub(super) fn array_to_tell(&self) -> Option<JobId> {
        self.record.array_task.map(|task| task.array_job).filter(|array| *array != self.record.id)
    }

    /// Tells the array's record the state of this task.
    pub(super) fn tell_array(&self, turn: &mut Turn<'_>) {
        if let Some(to) = self.array_to_tell() {
            turn.tell_job(to, JobInput::Fact { job: self.record.id, fact: Some(Arc::new(self.fact())) });
        }
    }

    /// Asks all tasks with records of their own that are not known to be over for their state.
    pub(super) fn ask_tasks(&self, turn: &mut Turn<'_>) {
        let by = self.record.id;
        self.live_tasks().for_each(|job| turn.tell_job(job, JobInput::Subscribe { by }));
    }

    pub(super) fn live_tasks(&self) -> impl Iterator<Item = JobId> {
        let tasks = self.record.array.iter().flat_map(|array| array.tasks.values());
        tasks.filter(|mark| mark.over.is_none() && mark.job != self.record.id).map(|mark| mark.job)
    }

    /// Another job asks for this one's state. A task whose end is noted waits only for that answer.
    pub(super) fn subscribed(&mut self, by: JobId, turn: &mut Turn<'_>) {
        let index = self.tasks.index.get(&by);
        let mark = self.record.array.as_ref().zip(index).and_then(|(array, index)| array.tasks.get(index));
        let fact = if mark.is_some_and(|mark| mark.over.is_some()) {
            let (job, tasks) = (self.record.id, std::collections::BTreeMap::new());
            JobFact { job, started: None, over: None, some_failed: false, tasks, exit: None, noted: true }
        } else {
            // Its array is told every change anyhow.
            if self.array_to_tell() != Some(by) {
                self.watchers.insert(by);
            }
            self.fact()
        };
        turn.tell_job(by, JobInput::Fact { job: self.record.id, fact: Some(Arc::new(fact)) });
        self.het_asked(by, turn);
        // It was lost, perhaps.
        self.tells_watchers = false;
    }

    /// Tells them what changed. What an array tells is long: it tells once of all that its tasks have told it by then.
    pub(super) fn tell_watchers_soon(&mut self, turn: &mut Turn<'_>) {
        if self.record.array.is_none() || self.watchers.is_empty() {
            self.tell_watchers(turn);
        } else if !std::mem::replace(&mut self.tells_watchers, true) {
            turn.tell_job(self.record.id, JobInput::TellWatchers);
        }
    }

    pub(super) fn tell_watchers(&mut self, turn: &mut Turn<'_>) {
        self.tells_watchers = false;
        if !self.watchers.is_empty() {
            let fact = Arc::new(self.fact());
            for to in &self.watchers {
                turn.tell_job(*to, JobInput::Fact { job: self.record.id, fact: Some(Arc::clone(&fact)) });
            }
        }
    }

    /// The state of this job, or of the whole array that its record represents.
    pub(super) fn fact(&self) -> JobFact {
        let record = &self.record;
        let own_start = record.phase.run().and_then(|r| r.started).or(record.phase.end().map(|e| e.at));
        let own_over = match &record.phase {
            Phase::Over(_, end) => {
                Some(if end.state == JobState::Completed { TaskOutcome::Ok } else { TaskOutcome::NotOk })
            }
            _ => None,
        };
        let Some(array) = &record.array else {
            return JobFact {
                job: record.id,
                started: own_start,
                over: own_over,
                some_failed: own_over == Some(TaskOutcome::NotOk),
                tasks: std::collections::BTreeMap::new(),
                exit: record.phase.end().filter(|_| own_over.is_some()).map(|end| end.exit),
                noted: false,
            };
        };
        let mut tasks: std::collections::BTreeMap<u32, (Option<Timestamp>, Option<TaskOutcome>)> =
            array.tasks.iter().map(|(index, mark)| (*index, (mark.started, mark.over))).collect();
        match record.array_task {
            Some(task) => {
                tasks.insert(task.index, (own_start, own_over));
            }
            // The record as a whole was cancelled, or waits.
            None => tasks.extend(array.pending.iter().map(|index| (*index, (own_start, own_over)))),
        }
        let started = tasks.values().map(|t| t.0).try_fold(Timestamp(0), |latest, t| t.map(|t| latest.max(t)));
        let all_over = tasks.values().all(|t| t.1.is_some());
        let some_failed = tasks.values().any(|t| t.1 == Some(TaskOutcome::NotOk));
        let outcome = if some_failed { TaskOutcome::NotOk } else { TaskOutcome::Ok };
        JobFact {
            job: record.id,
            started,
            over: all_over.then_some(outcome),
            some_failed,
            tasks,
            exit: None,
            noted: false,
        }
    }
}
