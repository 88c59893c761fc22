//! Fresh job ids and runs, shared by the frontend and by arrays that split.

use crate::owner::FreshIds;
use garrick_model::{
    ids::{JobId, Sluid, SluidMaker},
    time::Timestamp,
};
use std::sync::{Arc, Mutex, PoisonError};

/// First id of a cluster that configures none (`FirstJobId`).
pub const FIRST_JOB: u32 = 1;
/// Highest id of a cluster that configures none (`MaxJobId`): 26 bits, as Slurm.
pub const MAX_JOB: u32 = 0x03ff_0000;

struct State {
    last_job: u32,
    first: u32,
    max: u32,
    sluids: SluidMaker,
    submissions: u64,
    random: fn() -> u32,
    /// Is an id still in use? Needed after wrapping around.
    taken: Box<dyn Fn(JobId) -> bool + Send>,
}

/// Clones share the source.
#[derive(Clone)]
pub struct IdSource(Arc<Mutex<State>>);

impl std::fmt::Debug for IdSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdSource")
    }
}

impl IdSource {
    /// Begins at the first id. `random` gives 32 random bits; `taken` says whether an id is in use.
    pub fn new(random: fn() -> u32, taken: impl Fn(JobId) -> bool + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(State {
            last_job: 0,
            first: FIRST_JOB,
            max: MAX_JOB,
            sluids: SluidMaker::default(),
            submissions: 0,
            random,
            taken: Box::new(taken),
        })))
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Continues after the ids that a journal says were used.
    pub fn resume(&self, last_job: u32, last_sluid: Option<Sluid>, submissions: u64) {
        self.with(|state| {
            state.last_job = state.last_job.max(last_job);
            if let Some(sluid) = last_sluid {
                state.sluids.saw(sluid);
            }
            state.submissions = state.submissions.max(submissions);
        });
    }

    /// `FirstJobId` and `MaxJobId`.
    pub fn limit(&self, first: u32, max: u32) {
        self.with(|state| {
            state.first = first.max(1);
            state.max = max.max(state.first);
        });
    }

    /// The id that the next job would get.
    pub fn peek(&self) -> JobId {
        self.with(|state| JobId(state.following(state.last_job)))
    }

    /// A job id that is not in use.
    pub fn job(&self) -> JobId {
        self.with(|state| {
            let mut id = state.following(state.last_job);
            // Ids start again after MaxJobId; those in use are skipped.
            for _ in 0..state.max {
                if !(state.taken)(JobId(id)) {
                    break;
                }
                id = state.following(id);
            }
            state.last_job = id;
            JobId(id)
        })
    }

    /// So many consecutive unused ids; returns the first. `None`: there is no such range.
    pub fn jobs(&self, count: u32) -> Option<JobId> {
        self.with(|state| {
            let mut id = state.following(state.last_job);
            for _ in 0..state.max {
                let last = id.saturating_add(count.saturating_sub(1));
                if last <= state.max && !(id..=last).any(|id| (state.taken)(JobId(id))) {
                    state.last_job = last;
                    return Some(JobId(id));
                }
                id = state.following(id);
            }
            None
        })
    }

    /// A new run.
    pub fn sluid(&self, now: Timestamp) -> Sluid {
        self.with(|state| {
            let random = (state.random)();
            state.sluids.make(now, random)
        })
    }

    /// Counts a submission. Returns the number of those before it.
    pub fn submission(&self) -> u64 {
        self.with(|state| {
            state.submissions += 1;
            state.submissions - 1
        })
    }
}

impl State {
    const fn following(&self, id: u32) -> u32 {
        if id < self.first || id >= self.max { self.first } else { id + 1 }
    }
}

impl FreshIds for IdSource {
    fn job(&mut self) -> JobId {
        Self::job(self)
    }
    fn jobs(&mut self, count: u32) -> Option<JobId> {
        Self::jobs(self, count)
    }
    fn sluid(&mut self, now: Timestamp) -> Sluid {
        Self::sluid(self, now)
    }
    fn submission(&mut self) -> u64 {
        Self::submission(self)
    }
}
