//! Jobs that are being saved. A job is invisible until it is in the log; if the log refuses it, only its number is lost. They are
//! kept here and not in the frontend, so that they survive a failure of the frontend.

use garrick_events::records::job::JobRecord;
use garrick_model::{
    ids::{JobId, RequestId},
    view::JobView,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A job that is being saved, and its view.
pub type Entrant = (JobRecord, Arc<JobView>);

#[derive(Debug, Default)]
struct State {
    saving: BTreeMap<RequestId, Vec<Entrant>>,
    /// Those of `saving`.
    jobs: BTreeSet<JobId>,
    /// Bytes of scripts, environments and arguments in them by user.
    bytes: BTreeMap<u32, u64>,
    /// Submissions that the log has answered, until the frontend has been told: those of their jobs that exist.
    settled: BTreeMap<RequestId, Vec<JobId>>,
}

/// Jobs that are being saved. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Entering(Arc<Mutex<State>>);

impl Entering {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is a single call, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A submission is on its way to the log.
    pub fn begin(&self, request: RequestId, entrants: Vec<Entrant>) {
        let mut state = self.lock();
        for (record, _) in &entrants {
            state.jobs.insert(record.id);
            *state.bytes.entry(record.owner.uid).or_default() += record.spec.work_bytes();
        }
        state.saving.insert(request, entrants);
    }

    /// Is one of the jobs such?
    pub fn any(&self, such: impl Fn(&JobView) -> bool) -> bool {
        self.lock().saving.values().flatten().any(|(_, view)| such(view))
    }

    /// What `read` finds while none of them becomes a job, and their views.
    pub fn beside<T>(&self, read: impl FnOnce() -> T) -> (T, Vec<Arc<JobView>>) {
        let state = self.lock();
        (read(), state.saving.values().flatten().map(|(_, view)| Arc::clone(view)).collect())
    }

    /// The log has answered. If the jobs are saved, their views are passed to `enter`, in order.
    pub fn settle(&self, request: RequestId, saved: bool, mut enter: impl FnMut(Arc<JobView>)) {
        let mut state = self.lock();
        let Some(entrants) = state.saving.remove(&request) else { return };
        let mut there = Vec::new();
        for (record, view) in entrants {
            let (job, uid, bytes) = (record.id, record.owner.uid, record.spec.work_bytes());
            if saved {
                there.push(job);
                enter(view);
            }
            state.jobs.remove(&job);
            if let Some(of_user) = state.bytes.get_mut(&uid) {
                *of_user = of_user.saturating_sub(bytes);
                if *of_user == 0 {
                    state.bytes.remove(&uid);
                }
            }
        }
        state.settled.insert(request, there);
    }

    /// Tells the frontend the result of a submission. `None`: it is being saved, or is unknown.
    pub fn take(&self, request: RequestId) -> Option<Vec<JobId>> {
        self.lock().settled.remove(&request)
    }

    /// Submissions whose result the frontend has not taken.
    pub fn requests(&self) -> Vec<RequestId> {
        let state = self.lock();
        state.saving.keys().chain(state.settled.keys()).copied().collect()
    }

    /// Jobs that are being saved.
    pub fn jobs(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Is it one of them?
    pub fn contains(&self, job: JobId) -> bool {
        self.lock().jobs.contains(&job)
    }

    /// Bytes of the scripts, environments and arguments of a user's jobs among them.
    pub fn bytes_of(&self, uid: u32) -> u64 {
        self.lock().bytes.get(&uid).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::core::JobCore;
    use garrick_events::testing::record;
    use garrick_model::{spec::JobSpec, testing::spec, time::Timestamp};

    fn entrant(job: u32) -> Entrant {
        let environment = Arc::new(vec![vec![b'x'; 1000].into()]);
        let record = record(job, JobSpec { environment, script: None, argv: Vec::new(), ..spec() });
        let view = Arc::new(JobCore::new(record.clone(), Arc::default()).view(Timestamp(1)));
        (record, view)
    }

    #[test]
    fn what_is_refused_leaves_nothing_and_what_is_saved_is_handed_over_once() {
        let entering = Entering::default();
        let (one, two) = (RequestId(1, 1), RequestId(1, 2));
        entering.begin(one, vec![entrant(7)]);
        entering.begin(two, vec![entrant(8), entrant(9)]);
        let uid = entrant(7).0.owner.uid;
        assert_eq!((entering.jobs(), entering.bytes_of(uid), entering.contains(JobId(9))), (3, 3000, true));
        assert_eq!((entering.requests(), entering.take(one)), (vec![one, two], None));
        entering.settle(one, false, |view| panic!("job {} was refused", view.id.0));
        assert_eq!((entering.jobs(), entering.bytes_of(uid), entering.contains(JobId(7))), (2, 2000, false));
        let mut entered = Vec::new();
        entering.settle(two, true, |view| entered.push(view.id));
        assert_eq!(entered, [JobId(8), JobId(9)]);
        entering.settle(two, true, |view| panic!("job {} was handed over", view.id.0));
        assert_eq!((entering.jobs(), entering.bytes_of(uid), entering.requests()), (0, 0, vec![one, two]));
        assert_eq!((entering.take(one), entering.take(two)), (Some(vec![]), Some(vec![JobId(8), JobId(9)])));
        assert!(entering.requests().is_empty());
    }
}
