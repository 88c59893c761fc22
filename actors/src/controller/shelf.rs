//! Saved state in memory, so that an actor that panicked is built anew without reading the journal: for each job the
//! record as its saved events make it, for each node its core after the last message that it handled. Written by the
//! owner alone; read by the owner's factory, by recovery, and where a board would be a moment too late.

use crate::{
    job::{core::Leftover, dependency::waits_for, record::JobRecord, state::JobEvent},
    node::core::NodeCore,
    partition::record::SavedPartition,
};
use garrick_model::ids::JobId;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A job on the shelf.
#[derive(Clone, Debug)]
pub struct KeptJob {
    /// Record.
    pub record: JobRecord,
    /// What is not saved but must outlive a panic.
    pub leftover: Leftover,
}

/// All jobs. Clones are the same shelf.
#[derive(Clone, Debug, Default)]
pub struct JobShelf {
    jobs: Arc<Mutex<BTreeMap<JobId, KeptJob>>>,
    /// Bytes of scripts, environments and arguments by user; changed while `jobs` is held.
    bytes: Arc<Mutex<BTreeMap<u32, u64>>>,
}

/// What a record takes beside others: a task of an array shares what the array has.
fn own_bytes(record: &JobRecord) -> u64 {
    let shares = record.array_task.is_some_and(|task| task.array_job != record.id);
    if shares { 0 } else { record.spec.work_bytes() }
}

impl JobShelf {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, KeptJob>> {
        // Every change is one insertion, removal or applied event: nothing is half done after a panic elsewhere.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_bytes(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_off(&self, record: &JobRecord) {
        let mut bytes = self.lock_bytes();
        if let Some(of_user) = bytes.get_mut(&record.owner.uid) {
            *of_user = of_user.saturating_sub(own_bytes(record));
            if *of_user == 0 {
                bytes.remove(&record.owner.uid);
            }
        }
    }

    /// A new job.
    pub fn put(&self, record: JobRecord) {
        let mut jobs = self.lock();
        let (uid, more) = (record.owner.uid, own_bytes(&record));
        if let Some(before) = jobs.insert(record.id, KeptJob { record, leftover: Leftover::default() }) {
            self.take_off(&before.record);
        }
        if more > 0 {
            *self.lock_bytes().entry(uid).or_default() += more;
        }
    }

    /// Bytes of the scripts, environments and arguments of a user's jobs.
    pub fn bytes_of(&self, uid: u32) -> u64 {
        self.lock_bytes().get(&uid).copied().unwrap_or(0)
    }

    /// What the job's owner must not forget in a panic.
    pub fn keep(&self, job: JobId, leftover: Leftover) {
        if let Some(kept) = self.lock().get_mut(&job) {
            kept.leftover = leftover;
        }
    }

    /// An event of this job was recorded, by its owner or by another's.
    pub fn apply(&self, job: JobId, event: &JobEvent) {
        let mut jobs = self.lock();
        match event {
            JobEvent::Submitted(record) => {
                drop(jobs);
                self.put((**record).clone());
            }
            JobEvent::SubmittedLike { record, like } => {
                let mut record = (**record).clone();
                if let Some(like) = jobs.get(like) {
                    record.take_work_of(&like.record);
                }
                drop(jobs);
                self.put(record);
            }
            event => {
                if let Some(kept) = jobs.get_mut(&job)
                    && let Err(illegal) = kept.record.apply(event)
                {
                    // Its owner applied the same event to an equal record.
                    tracing::error!(job_id = job.0, error = %illegal, "job.shelf_differs");
                }
            }
        }
    }

    /// A job.
    pub fn get(&self, job: JobId) -> Option<KeptJob> {
        self.lock().get(&job).cloned()
    }

    /// What is to be known of a job, without a copy of it. `None`: it is not there.
    pub fn look<T>(&self, job: JobId, at: impl FnOnce(&KeptJob) -> T) -> Option<T> {
        self.lock().get(&job).map(at)
    }

    /// All ids.
    pub fn ids(&self) -> Vec<JobId> {
        self.lock().keys().copied().collect()
    }

    /// Is it there?
    pub fn contains(&self, job: JobId) -> bool {
        self.lock().contains_key(&job)
    }

    /// Forgets a job.
    pub fn remove(&self, job: JobId) {
        let mut jobs = self.lock();
        if let Some(gone) = jobs.remove(&job) {
            self.take_off(&gone.record);
        }
    }

    /// Jobs that hold up `singleton` ([`JobRecord::holds_up_singleton`]).
    pub fn siblings(&self, singleton: &JobRecord) -> Vec<JobId> {
        let jobs = self.lock();
        let earlier = jobs.range(..singleton.id);
        earlier.filter(|(_, kept)| kept.record.holds_up_singleton(singleton)).map(|(job, _)| *job).collect()
    }
}

impl JobShelf {
    /// Jobs that wait for news of this one.
    pub fn waiting_for(&self, job: JobId) -> Vec<JobId> {
        let jobs = self.lock();
        let Some(on) = jobs.get(&job) else { return Vec::new() };
        jobs.iter().filter(|(_, kept)| waits_for(&kept.record, &on.record)).map(|(id, _)| *id).collect()
    }
}

/// All nodes. Clones are the same shelf.
#[derive(Clone, Debug, Default)]
pub struct NodeShelf(Arc<Mutex<BTreeMap<String, NodeCore>>>);

impl NodeShelf {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, NodeCore>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node after a message.
    pub fn put(&self, name: &str, core: &NodeCore) {
        let mut nodes = self.lock();
        match nodes.get_mut(name) {
            Some(kept) => kept.clone_from(core),
            None => {
                nodes.insert(name.to_owned(), core.clone());
            }
        }
    }

    /// A node.
    pub fn get(&self, name: &str) -> Option<NodeCore> {
        self.lock().get(name).cloned()
    }

    /// All names.
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Forgets a node.
    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }
}

/// What is saved of all partitions. Clones are the same shelf.
#[derive(Clone, Debug, Default)]
pub struct PartitionShelf(Arc<Mutex<BTreeMap<String, SavedPartition>>>);

impl PartitionShelf {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SavedPartition>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A partition's updates.
    pub fn put(&self, name: &str, saved: SavedPartition) {
        self.lock().insert(name.to_owned(), saved);
    }

    /// A partition's updates; none when nothing was ever saved.
    pub fn get(&self, name: &str) -> SavedPartition {
        self.lock().get(name).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::{
            fixtures::record,
            record::{Afterwards, ArrayRecord, End, Phase, TaskMark, TaskOutcome},
        },
        scheduler::fixtures::spec,
    };
    use garrick_model::{
        ids::ArrayTask,
        spec::JobSpec,
        state::{ExitStatus, JobState, Reason},
        time::Timestamp,
    };

    fn no_tasks() -> ArrayRecord {
        ArrayRecord { pending: [].into(), limit: None, tasks: [].into() }
    }

    fn cancelled() -> End {
        let (state, reason, exit) = (JobState::Cancelled, Reason::None, ExitStatus::SUCCESS);
        End { state, reason, exit, derived: exit, at: Timestamp(1), then: Afterwards::Over, cause: None }
    }

    #[test]
    fn what_a_users_jobs_have_is_counted_once_for_an_array_and_forgotten_with_them() {
        let shelf = JobShelf::default();
        let environment = || Arc::new(vec![vec![b'x'; 1000].into()]);
        let one = record(7, JobSpec { environment: environment(), script: None, argv: Vec::new(), ..spec() });
        let (uid, mut task) = (one.owner.uid, one.clone());
        task.id = JobId(8);
        task.array_task = Some(ArrayTask { array_job: JobId(7), index: 1 });
        shelf.put(one.clone());
        shelf.put(one);
        shelf.put(task);
        assert_eq!((shelf.bytes_of(uid), shelf.bytes_of(uid + 1)), (1000, 0));
        shelf.remove(JobId(8));
        assert_eq!(shelf.bytes_of(uid), 1000);
        shelf.remove(JobId(7));
        assert_eq!(shelf.bytes_of(uid), 0);
    }

    /// An array that is cancelled right after tasks went their own ways: it is over, and their records are only being made.
    #[test]
    fn a_singleton_waits_for_tasks_of_an_earlier_array_that_are_not_there_yet() {
        let shelf = JobShelf::default();
        let task = TaskMark { job: JobId(9), started: None, over: None };
        let mut array = record(7, spec());
        array.array = Some(ArrayRecord { tasks: [(1, task)].into(), ..no_tasks() });
        array.phase = Phase::Over(None, cancelled());
        let singleton = record(8, spec());
        shelf.put(array.clone());
        assert_eq!(shelf.siblings(&singleton), [JobId(7)]);
        for mark in array.array.iter_mut().flat_map(|array| array.tasks.values_mut()) {
            mark.over = Some(TaskOutcome::NotOk);
        }
        shelf.put(array);
        assert!(shelf.siblings(&singleton).is_empty());
    }

    #[test]
    fn a_task_that_is_a_singleton_does_not_wait_for_its_own_array() {
        let shelf = JobShelf::default();
        let of = |array_job, index| Some(ArrayTask { array_job: JobId(array_job), index });
        let (mut array, mut other, mut task) = (record(7, spec()), record(8, spec()), record(9, spec()));
        (array.array, other.array_task, task.array_task) = (Some(no_tasks()), of(7, 1), of(7, 2));
        shelf.put(array);
        shelf.put(other);
        assert_eq!(shelf.siblings(&record(9, spec())), [JobId(7), JobId(8)]);
        assert!(shelf.siblings(&task).is_empty());
    }
}
