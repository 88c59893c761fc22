//! What accounts, users and WCKeys used in a window of time, summed up from the rows of jobs (sreport(1)). It is computed when it is
//! asked for: it is exact at any time, and nothing has to be rolled up before.
//!
//! Of a job that lies in the window only partly, the part of its time counts. Time for which it was suspended does not count. When
//! that was is not kept, only how long: of a job that is cut by the window it is taken out evenly. So what neighbouring windows say
//! always adds up to what one over both says.

use crate::{
    filter::JobFilter,
    tres::{ENERGY, Tres},
};
use garrick_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageQuestion {
    /// Beginning of the window.
    pub start: Timestamp,
    /// Its end, which is not in it. Jobs that run count until now at most.
    pub end: Timestamp,
    /// Only jobs like these. Window, states and duplicates are not looked at.
    #[serde(default)]
    pub such: JobFilter,
    /// Told apart by the number of their CPUs too.
    #[serde(default)]
    pub by_size: bool,
    /// With what jobs waited for.
    #[serde(default)]
    pub waits: bool,
}

/// Whose usage it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UsageKey {
    /// Cluster.
    pub cluster: String,
    /// Account; `None`: jobs that named none.
    #[serde(default)]
    pub account: Option<String>,
    /// User's name at submission.
    pub user: String,
    /// WCKey.
    #[serde(default)]
    pub wckey: Option<String>,
    /// QOS.
    #[serde(default)]
    pub qos: Option<String>,
    /// CPUs of each job; 0 where jobs are not told apart by that.
    #[serde(default)]
    pub cpus: u64,
}

/// What it comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSum {
    /// Runs of jobs that were there in the window.
    pub jobs: u64,
    /// Amounts times seconds, by the name of the TRES (`mem`: MiB times seconds; `energy`: joules).
    pub tres_secs: BTreeMap<String, u64>,
    /// The same that jobs asked for, for the time for which they waited and could have started (sreport(1), `Planned`).
    #[serde(default)]
    pub waited_secs: BTreeMap<String, u64>,
}

/// Adds amounts times seconds.
fn add_secs(sums: &mut BTreeMap<String, u64>, name: &str, more: u64) {
    match sums.get_mut(name) {
        Some(sum) => *sum = sum.saturating_add(more),
        None => drop(sums.insert(name.to_owned(), more)),
    }
}

impl UsageSum {
    /// Of a TRES.
    pub fn of(&self, name: &str) -> u64 {
        self.tres_secs.get(name).copied().unwrap_or(0)
    }

    /// Adds a run that counts so many seconds.
    pub fn add(&mut self, allocated: &Tres, secs: u64) {
        self.jobs = self.jobs.saturating_add(1);
        for (name, count) in allocated.iter() {
            add_secs(&mut self.tres_secs, name, count.saturating_mul(secs));
        }
    }

    /// Adds energy, joules: it is not multiplied by a time.
    pub fn add_energy(&mut self, joules: u64) {
        if joules > 0 {
            add_secs(&mut self.tres_secs, ENERGY, joules);
        }
    }

    /// What jobs waited for of a TRES.
    pub fn waited(&self, name: &str) -> u64 {
        self.waited_secs.get(name).copied().unwrap_or(0)
    }

    /// Adds a time for which a job waited.
    pub fn add_wait(&mut self, requested: &Tres, secs: u64) {
        for (name, count) in requested.iter().filter(|_| secs > 0) {
            add_secs(&mut self.waited_secs, name, count.saturating_mul(secs));
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        self.jobs = self.jobs.saturating_add(other.jobs);
        for (name, more) in &other.tres_secs {
            add_secs(&mut self.tres_secs, name, *more);
        }
        for (name, more) in &other.waited_secs {
            add_secs(&mut self.waited_secs, name, *more);
        }
    }
}

/// A line of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Whose.
    pub key: UsageKey,
    /// What.
    pub sum: UsageSum,
}

/// Whole seconds of a time that are in a window.
pub fn secs_in((from, to): (Timestamp, Timestamp), (start, end): (Timestamp, Timestamp)) -> u64 {
    u64::try_from(to.min(end).secs() - from.max(start).secs()).unwrap_or(0)
}

/// When a run was there, and how much of that it was suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Start.
    pub start: Timestamp,
    /// End, or now.
    pub end: Timestamp,
    /// Suspended in between, milliseconds.
    pub suspended_ms: u64,
}

impl Ran {
    /// Was it there in the window? Runs that took no time were.
    pub fn meets(&self, start: Timestamp, end: Timestamp) -> bool {
        self.start < end && (self.end > start || (self.end == self.start && self.start >= start))
    }

    /// Seconds in the window, without suspended time.
    pub fn secs_in(&self, start: Timestamp, end: Timestamp) -> u64 {
        self.until(end).saturating_sub(self.until(start))
    }

    /// The part of something that it took evenly over its time which is in the window.
    pub fn part_in(&self, amount: u64, start: Timestamp, end: Timestamp) -> u64 {
        let until = |at: Timestamp| {
            let (whole, passed) = (self.end.0 - self.start.0, at.clamp(self.start, self.end).0 - self.start.0);
            match (u128::try_from(whole), u128::try_from(passed)) {
                (Ok(whole @ 1..), Ok(passed)) => u128::from(amount) * passed / whole,
                // It took no time.
                _ => {
                    if at > self.start {
                        amount.into()
                    } else {
                        0
                    }
                }
            }
        };
        u64::try_from(until(end).saturating_sub(until(start))).unwrap_or(u64::MAX)
    }

    /// Seconds from its start until then.
    fn until(&self, at: Timestamp) -> u64 {
        // As sacct(1) has it, by whole seconds.
        let secs = |from: Timestamp, to: Timestamp| u64::try_from(to.secs() - from.secs()).unwrap_or(0);
        let whole = secs(self.start, self.end);
        let passed = secs(self.start, at.min(self.end)).min(whole);
        let whole_ms = whole.saturating_mul(1000);
        let counts = whole_ms.saturating_sub(self.suspended_ms);
        let part = u128::from(passed) * u128::from(counts);
        part.checked_div(u128::from(whole_ms)).map_or(0, |secs| u64::try_from(secs).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tres::{CPU, MEM};

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    const fn ran(start: i64, end: i64, suspended_ms: u64) -> Ran {
        Ran { start: Timestamp(start * 1000), end: Timestamp(end * 1000), suspended_ms }
    }

    #[test]
    fn only_the_time_in_the_window_counts() {
        let run = ran(100, 200, 0);
        assert_eq!(run.secs_in(at(0), at(1000)), 100);
        assert_eq!(run.secs_in(at(150), at(1000)), 50);
        assert_eq!(run.secs_in(at(0), at(150)), 50);
        assert_eq!(run.secs_in(at(120), at(130)), 10);
        assert_eq!((run.secs_in(at(0), at(100)), run.secs_in(at(200), at(300))), (0, 0));
    }

    #[test]
    fn suspended_time_is_taken_out_evenly_and_windows_add_up() {
        let run = ran(100, 200, 40_000);
        assert_eq!(run.secs_in(at(0), at(1000)), 60);
        assert_eq!(run.secs_in(at(100), at(150)), 30);
        // Also where nothing divides evenly.
        let odd = ran(3, 1000, 333_333);
        for cut in 0..1100 {
            let (before, behind) = (odd.secs_in(at(0), at(cut)), odd.secs_in(at(cut), at(2000)));
            assert_eq!(before + behind, odd.secs_in(at(0), at(2000)), "{cut}");
        }
        assert_eq!(ran(100, 200, u64::MAX).secs_in(at(0), at(1000)), 0);
    }

    #[test]
    fn energy_is_parted_by_time() {
        let run = ran(100, 200, 0);
        assert_eq!(run.part_in(1000, at(0), at(1000)), 1000);
        assert_eq!(run.part_in(1000, at(150), at(160)), 100);
        assert_eq!(ran(100, 100, 0).part_in(7, at(100), at(200)), 7);
        let parts: u64 = (0..250).map(|cut| run.part_in(777, at(cut), at(cut + 1))).sum();
        assert_eq!(parts, 777);
    }

    #[test]
    fn a_run_without_length_is_there_once() {
        let run = ran(100, 100, 0);
        assert!(run.meets(at(100), at(200)) && !run.meets(at(0), at(100)));
        assert_eq!(run.secs_in(at(0), at(200)), 0);
        assert!(ran(100, 150, 0).meets(at(149), at(200)) && !ran(100, 150, 0).meets(at(150), at(200)));
    }

    #[test]
    fn sums_are_amounts_times_seconds() {
        let tres: Tres = [(CPU, 4), (MEM, 400)].into_iter().collect();
        let mut sum = UsageSum::default();
        sum.add(&tres, 10);
        sum.add(&tres, 1);
        let mut both = sum.clone();
        both.merge(&sum);
        assert_eq!((sum.jobs, sum.of(CPU), sum.of(MEM), sum.of("gres/gpu")), (2, 44, 4400, 0));
        assert_eq!((both.jobs, both.of(CPU)), (4, 88));
    }
}
