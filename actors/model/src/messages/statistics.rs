//! What the controller counts of its own work, for `sdiag`. Times are microseconds.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Counters since [`Statistics::since`], and what there is now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// When they were read.
    pub at: Timestamp,
    /// Since when is counted: the start of the controller, the last midnight (UTC) or the last reset.
    pub since: Timestamp,
    /// Requests of commands that are being served, this one included.
    pub serving: u32,
    /// What waits for the service of accounting.
    pub accounting: AccountingQueue,
    /// Jobs.
    pub jobs: JobCounts,
    /// All passes of the scheduler.
    pub passes: PassCounts,
    /// Those of them in which a whole plan was made.
    pub plans: PlanCounts,
    /// Requests of commands by kind, since the controller was started or they were reset.
    pub requests: Vec<RequestCount>,
    /// The same by user.
    pub users: Vec<UserCount>,
    /// What reading the clock a thousand times took when the controller was started.
    pub clock_micros: u64,
}

/// What waits for the service of accounting (`slurmdbd`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountingQueue {
    /// Events that it has not stored yet, as far as the log was told.
    pub events: u64,
    /// The position of the log up to which it has stored all.
    pub stored: u64,
    /// Since when it has been away; `None`: it is fed, or there is to be none.
    pub away_since: Option<Timestamp>,
}

/// Counts of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobCounts {
    /// Submitted; an array is one.
    pub submitted: u64,
    /// Started; each task of an array.
    pub started: u64,
    /// Over, by themselves or their limits.
    pub completed: u64,
    /// Cancelled or preempted.
    pub cancelled: u64,
    /// Over since a node or the launch failed.
    pub failed: u64,
    /// Waiting now; an array's tasks that were not split off are one.
    pub pending: u64,
    /// Running now.
    pub running: u64,
}

/// Times of one kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cycles {
    /// How many.
    pub count: u64,
    /// The last one, counters reset or not.
    pub last_micros: u64,
    /// The longest.
    pub max_micros: u64,
    /// All together.
    pub sum_micros: u64,
}

impl Cycles {
    /// One more.
    pub fn add(&mut self, micros: u64) {
        self.count += 1;
        self.last_micros = micros;
        self.max_micros = self.max_micros.max(micros);
        self.sum_micros += micros;
    }

    /// On average; `None`: there was none.
    pub fn mean_micros(&self) -> Option<u64> {
        self.sum_micros.checked_div(self.count)
    }
}

/// Why passes ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exits {
    /// All jobs were looked at.
    pub end_of_queue: u64,
    /// As many jobs were started as may be.
    pub most_starts: u64,
    /// The time was up.
    pub time: u64,
    /// Reservations had changed: the plan was thrown away.
    pub changed: u64,
}

/// Passes of the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PassCounts {
    /// Their times, the reading of the state included.
    pub cycles: Cycles,
    /// Jobs that were looked at in all of them.
    pub depth_sum: u64,
    /// Jobs that could have been started in the last one.
    pub last_queue: u64,
    /// Why they ended.
    pub exits: Exits,
}

/// Plans that were made anew, in which jobs may start ahead of others that wait (backfill).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanCounts {
    /// Their times.
    pub cycles: Cycles,
    /// Jobs started ahead of others since the controller was started.
    pub backfilled_ever: u64,
    /// The same since the counters were reset.
    pub backfilled: u64,
    /// Components of heterogeneous jobs among those since the controller was started.
    pub backfilled_components: u64,
    /// When the last one was made.
    pub last_at: Option<Timestamp>,
    /// Jobs looked at in the last one, and in all.
    pub last_depth: u64,
    /// In all.
    pub depth_sum: u64,
    /// Jobs that got resources now or later in the last one.
    pub last_tried: u64,
    /// In all.
    pub tried_sum: u64,
    /// Jobs that waited in the last one.
    pub last_queue: u64,
    /// In all.
    pub queue_sum: u64,
    /// Times at which jobs are planned to start in the last one, and now.
    pub last_slots: u64,
    /// In all.
    pub slots_sum: u64,
    /// Why they ended.
    pub exits: Exits,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestCount {
    /// Its name here.
    pub request: String,
    /// How many were answered.
    pub count: u64,
    /// From their turns to their answers. What is answered only when something happens (`WaitJob`) has none.
    pub micros: u64,
}

/// Requests of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserCount {
    /// User.
    pub uid: u32,
    /// How many were answered.
    pub count: u64,
    /// As of [`RequestCount::micros`].
    pub micros: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_nothing_is_none() {
        let mut cycles = Cycles::default();
        assert_eq!(cycles.mean_micros(), None);
        cycles.add(30);
        cycles.add(10);
        let expected = Cycles { count: 2, last_micros: 10, max_micros: 30, sum_micros: 40 };
        assert_eq!((cycles, cycles.mean_micros()), (expected, Some(20)));
    }
}
