//! The committed state: the state that all saved events of the log lead to. It belongs to the log ([`super::Log::value`]), which
//! advances it when it commits, before anyone is told. A controller starts with the replayed state. A failed owner is rebuilt
//! from it, queries read it for what a job's view does not contain, and snapshots of the log are made from it.

use garrick_events::{
    beside::Pieces,
    event::{ControllerEvent, Replayed},
    records::{
        job::{JobRecord, waits_for},
        node::SavedNode,
        partition::SavedPartition,
    },
    usage::Usage,
};
use garrick_model::{
    config::{DynamicNode, PartitionChange},
    crontab::Crontab,
    ids::JobId,
    reservation::Reservation,
    trigger::Trigger,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Debug, Default)]
struct State {
    replayed: Replayed,
    /// Number of events that did not fit the state.
    misfits: u64,
}

/// So many events did not fit the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} events do not fit what was committed before them")]
pub struct Misfits(u64);

/// The committed state. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Committed(Arc<Mutex<State>>);

impl State {
    fn apply(&mut self, event: &ControllerEvent) {
        if let Err(error) = self.replayed.apply(event) {
            // Its owner applied the same event to an equal record.
            tracing::error!(%error, "log.event_does_not_fit");
            self.misfits += 1;
        }
    }
}

impl Committed {
    /// From the replayed state.
    pub fn new(replayed: Replayed) -> Self {
        Self(Arc::new(Mutex::new(State { replayed, misfits: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is one event: nothing is half done after a panic elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies committed events. Only for the log.
    pub fn advance(&self, events: &[ControllerEvent]) {
        let mut state = self.lock();
        events.iter().for_each(|event| state.apply(event));
    }

    /// A copy of the current state, to be written out. It takes little time, however many jobs there are.
    ///
    /// # Errors
    /// If an event did not fit: then the events contain more than the state, and must be kept.
    pub fn copy(&self) -> Result<Replayed, Misfits> {
        let state = self.lock();
        match state.misfits {
            0 => Ok(state.replayed.clone()),
            misfits => Err(Misfits(misfits)),
        }
    }

    /// A copy for a controller that starts: misfits were logged.
    pub(crate) fn started_from(&self) -> Replayed {
        self.lock().replayed.clone()
    }

    /// What was changed of partitions.
    pub fn partitions(&self) -> BTreeMap<String, SavedPartition> {
        self.lock().replayed.partitions.clone()
    }

    /// A job.
    pub fn job(&self, job: JobId) -> Option<JobRecord> {
        self.lock().replayed.jobs.get(&job).cloned()
    }

    /// Reads a job's record without copying it. `None`: it does not exist.
    pub fn look<T>(&self, job: JobId, at: impl FnOnce(&JobRecord) -> T) -> Option<T> {
        self.lock().replayed.jobs.get(&job).map(at)
    }

    /// Is it there?
    pub fn has_job(&self, job: JobId) -> bool {
        self.lock().replayed.jobs.contains_key(&job)
    }

    /// All jobs.
    pub fn jobs(&self) -> Vec<JobId> {
        self.lock().replayed.jobs.keys().copied().collect()
    }

    /// Bytes of the scripts, environments and arguments of a user's jobs.
    pub fn bytes_of(&self, uid: u32) -> u64 {
        self.lock().replayed.bytes_of(uid)
    }

    /// Jobs that hold up `singleton` ([`JobRecord::holds_up_singleton`]).
    pub fn siblings(&self, singleton: &JobRecord) -> Vec<JobId> {
        let state = self.lock();
        let earlier = state.replayed.jobs.below(singleton.id);
        earlier.filter(|(_, record)| record.holds_up_singleton(singleton)).map(|(job, _)| *job).collect()
    }

    /// Jobs that wait for news of this one.
    pub fn waiting_for(&self, job: JobId) -> Vec<JobId> {
        let state = self.lock();
        let jobs = &state.replayed.jobs;
        let Some(on) = jobs.get(&job) else { return Vec::new() };
        jobs.iter().filter(|(_, record)| waits_for(record, on)).map(|(id, _)| *id).collect()
    }

    /// The saved state of a node; `None`: nothing was ever saved.
    pub fn node(&self, name: &str) -> Option<SavedNode> {
        self.lock().replayed.nodes.get(name).cloned()
    }

    /// Dynamic nodes.
    pub fn dynamic_nodes(&self) -> BTreeMap<String, DynamicNode> {
        self.lock().replayed.dynamic_nodes.clone()
    }

    /// Partitions that were created or deleted at run time.
    pub fn partition_changes(&self) -> BTreeMap<String, PartitionChange> {
        self.lock().replayed.partition_changes.clone()
    }

    /// A partition's updates; empty when nothing was ever saved.
    pub fn partition(&self, name: &str) -> SavedPartition {
        self.lock().replayed.partitions.get(name).cloned().unwrap_or_default()
    }

    /// Pieces beside the log.
    pub fn beside(&self) -> Pieces {
        self.lock().replayed.beside.clone()
    }

    /// What users and QOS have used. The copy is cheap.
    pub fn usage(&self) -> Usage {
        self.lock().replayed.usage.clone()
    }

    /// All triggers, and the greatest number of one so far.
    pub fn triggers(&self) -> (BTreeMap<u32, Trigger>, u32) {
        let state = self.lock();
        (state.replayed.triggers.clone(), state.replayed.last_trigger)
    }

    /// All crontabs, by user.
    pub fn crontabs(&self) -> BTreeMap<u32, Crontab> {
        self.lock().replayed.crontabs.clone()
    }

    /// The crontab of a user.
    pub fn crontab(&self, uid: u32) -> Option<Crontab> {
        self.lock().replayed.crontabs.get(&uid).cloned()
    }

    /// All reservations.
    pub fn reservations(&self) -> BTreeMap<String, Reservation> {
        self.lock().replayed.reservations.clone()
    }
}

#[cfg(test)]
use garrick_events::records::job_event::JobEvent;

#[cfg(test)]
impl Committed {
    /// A job is there.
    pub fn put(&self, record: JobRecord) {
        let (job, event) = (record.id, Box::new(JobEvent::Submitted(Box::new(record))));
        self.advance(&[ControllerEvent::Job { job, event }]);
    }

    /// It is over and forgotten.
    pub fn purge(&self, job: JobId) {
        if let Some(record) = self.lock().replayed.jobs.get_mut(&job) {
            record.phase = garrick_events::records::job::Phase::Over(None, garrick_events::testing::cancelled());
        }
        self.advance(&[ControllerEvent::Job { job, event: Box::new(JobEvent::Purged) }]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_events::{
        records::job::{ArrayRecord, Phase, TaskMark, TaskOutcome},
        testing::{cancelled, record},
    };
    use garrick_model::{ids::ArrayTask, spec::JobSpec, testing::spec};

    fn no_tasks() -> ArrayRecord {
        ArrayRecord { pending: [].into(), limit: None, tasks: [].into() }
    }

    #[test]
    fn what_a_users_jobs_have_is_counted_once_for_an_array_and_forgotten_with_them() {
        let committed = Committed::default();
        let environment = || Arc::new(vec![vec![b'x'; 1000].into()]);
        let one = record(7, JobSpec { environment: environment(), script: None, argv: Vec::new(), ..spec() });
        let (uid, mut task) = (one.owner.uid, one.clone());
        task.id = JobId(8);
        task.array_task = Some(ArrayTask { array_job: JobId(7), index: 1 });
        committed.put(one.clone());
        committed.put(one);
        committed.put(task);
        assert_eq!((committed.bytes_of(uid), committed.bytes_of(uid + 1)), (1000, 0));
        committed.purge(JobId(8));
        assert_eq!(committed.bytes_of(uid), 1000);
        committed.purge(JobId(7));
        assert_eq!(committed.bytes_of(uid), 0);
        // As a log saves what is submitted together: in one record, or in several.
        let submitted = |job| {
            let spec = JobSpec { environment: environment(), script: None, argv: Vec::new(), ..spec() };
            let event = Box::new(JobEvent::Submitted(Box::new(record(job, spec))));
            ControllerEvent::Job { job: JobId(job), event }
        };
        committed.advance(&[ControllerEvent::Together(vec![submitted(1), submitted(2)])]);
        assert_eq!(committed.bytes_of(uid), 2000);
        let part = |first, job| ControllerEvent::Part { first, last: !first, events: vec![submitted(job)] };
        committed.advance(&[part(true, 3), part(false, 4)]);
        assert_eq!(committed.bytes_of(uid), 4000);
        assert_eq!(Committed::new(committed.copy().unwrap()).bytes_of(uid), 4000);
    }

    /// An array that is cancelled right after tasks went their own ways: it is over, and their records are only being made.
    #[test]
    fn a_singleton_waits_for_tasks_of_an_earlier_array_that_are_not_there_yet() {
        let committed = Committed::default();
        let task = TaskMark { job: JobId(9), started: None, over: None, exit: None };
        let mut array = record(7, spec());
        array.array = Some(ArrayRecord { tasks: [(1, task)].into(), ..no_tasks() });
        array.phase = Phase::Over(None, cancelled());
        let singleton = record(8, spec());
        committed.put(array.clone());
        assert_eq!(committed.siblings(&singleton), [JobId(7)]);
        for mark in array.array.iter_mut().flat_map(|array| array.tasks.values_mut()) {
            mark.over = Some(TaskOutcome::NotOk);
        }
        committed.put(array);
        assert!(committed.siblings(&singleton).is_empty());
    }

    #[test]
    fn a_task_that_is_a_singleton_does_not_wait_for_its_own_array() {
        let committed = Committed::default();
        let of = |array_job, index| Some(ArrayTask { array_job: JobId(array_job), index });
        let (mut array, mut other, mut task) = (record(7, spec()), record(8, spec()), record(9, spec()));
        (array.array, other.array_task, task.array_task) = (Some(no_tasks()), of(7, 1), of(7, 2));
        committed.put(array);
        committed.put(other);
        assert_eq!(committed.siblings(&record(9, spec())), [JobId(7), JobId(8)]);
        assert!(committed.siblings(&task).is_empty());
    }
}
