//! The floor that every launch rate is compared with: how fast this machine can `posix_spawn` and reap `/bin/true` at all.
//!
//! Nothing is prepared for the child but its arguments and environment: no descriptors, no ids, no signals. Several ways to
//! keep the processors busy are tried, and the best of them is what others are measured against.

use nix::{
    errno::Errno,
    spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn},
    sys::wait::{WaitStatus, waitpid},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    ffi::{CStr, CString},
    os::unix::ffi::OsStringExt,
    time::{Duration, Instant},
};

/// What is spawned.
const PROGRAM: &CStr = c"/bin/true";

/// Why the floor could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// A call failed.
    #[error("{operation} of {PROGRAM:?}: {cause}")]
    Call {
        /// Which.
        operation: &'static str,
        /// Why.
        #[source]
        cause: Errno,
    },
    /// The program did not end with exit code 0.
    #[error("{PROGRAM:?} ended with {0:?}")]
    Child(WaitStatus),
    /// A measuring thread panicked.
    #[error("a measuring thread panicked")]
    Thread,
}

/// How spawns were kept under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Threads that spawn and wait.
    pub threads: usize,
    /// Processes under way in each.
    pub in_flight: usize,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.threads, self.in_flight) {
            (1, 1) => f.write_str("one at a time"),
            (1, n) => write!(f, "{n} in flight"),
            (t, 1) => write!(f, "{t} threads"),
            (t, n) => write!(f, "{t} threads, {n} in flight each"),
        }
    }
}

/// Spawn rates of this machine, measured within about a second each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Spawns per second of each way; the first is one at a time.
    pub ways: Vec<(Way, f64)>,
}

impl Floor {
    /// Measures with `count` spawns for each way.
    pub fn measure(count: usize) -> Result<Self, FloorError> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut ways = vec![
            Way { threads: 1, in_flight: 1 },
            Way { threads: 1, in_flight: cpus },
            Way { threads: 1, in_flight: 2 * cpus },
            Way { threads: cpus, in_flight: 1 },
            Way { threads: 2 * cpus, in_flight: 1 },
        ];
        ways.dedup();
        // The first spawns find cold caches.
        spawn_rate(Way { threads: 1, in_flight: 1 }, (count / 10).max(20))?;
        let ways: Result<Vec<_>, _> = ways.into_iter().map(|w| spawn_rate(w, count).map(|r| (w, r))).collect();
        Ok(Self { ways: ways? })
    }

    /// Spawns per second, one at a time.
    pub fn serial(&self) -> f64 {
        self.ways.first().map_or(0.0, |w| w.1)
    }

    /// Spawns per second of the best way.
    pub fn best(&self) -> f64 {
        self.ways.iter().map(|w| w.1).fold(0.0, f64::max)
    }

    /// The mean of two measurements, way by way: for what happened between them.
    pub fn between(before: &Self, after: &Self) -> Self {
        let pairs = before.ways.iter().zip(&after.ways);
        Self { ways: pairs.map(|((way, a), (_, b))| (*way, (a + b) / 2.0)).collect() }
    }
}

impl std::fmt::Display for Floor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (way, rate)) in self.ways.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{rate:.0}/s {way}")?;
        }
        Ok(())
    }
}

/// Spawns per second over `count` spawns in all.
pub fn spawn_rate(way: Way, count: usize) -> Result<f64, FloorError> {
    let environment: Vec<CString> = std::env::vars_os()
        .filter_map(|(name, value)| CString::new([name.into_vec(), value.into_vec()].join(&b'=')).ok())
        .collect();
    let each = (count / way.threads.max(1)).max(1);
    let began = Instant::now();
    if way.threads <= 1 {
        spawn_and_wait(each, way.in_flight, &environment)?;
    } else {
        std::thread::scope(|scope| {
            let all: Vec<_> =
                (0..way.threads).map(|_| scope.spawn(|| spawn_and_wait(each, way.in_flight, &environment))).collect();
            all.into_iter().try_for_each(|t| t.join().map_err(|_| FloorError::Thread)?)
        })?;
    }
    Ok(rate(each * way.threads.max(1), began.elapsed()))
}

fn spawn_and_wait(count: usize, in_flight: usize, environment: &[CString]) -> Result<(), FloorError> {
    let call = |operation| move |cause| FloorError::Call { operation, cause };
    let actions = PosixSpawnFileActions::init().map_err(call("preparing the spawn"))?;
    let attributes = PosixSpawnAttr::init().map_err(call("preparing the spawn"))?;
    let mut running = VecDeque::with_capacity(in_flight);
    for _ in 0..count {
        if running.len() >= in_flight.max(1) {
            reap(&mut running)?;
        }
        let child =
            posix_spawn(PROGRAM, &actions, &attributes, &[PROGRAM], environment).map_err(call("posix_spawn"))?;
        running.push_back(child);
    }
    while !running.is_empty() {
        reap(&mut running)?;
    }
    Ok(())
}

fn reap(running: &mut VecDeque<Pid>) -> Result<(), FloorError> {
    let Some(child) = running.pop_front() else { return Ok(()) };
    match waitpid(child, None).map_err(|cause| FloorError::Call { operation: "waitpid", cause })? {
        WaitStatus::Exited(_, 0) => Ok(()),
        other => Err(FloorError::Child(other)),
    }
}

/// Events per second.
pub fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_way_spawns_and_reaps() {
        let floor = Floor::measure(8).unwrap();
        assert!(floor.ways.len() >= 3 && floor.ways.iter().all(|(_, rate)| *rate > 0.0), "{floor:?}");
        assert!(floor.best() >= floor.serial());
    }

    #[test]
    fn the_floor_between_two_is_their_mean() {
        let way = Way { threads: 1, in_flight: 1 };
        let (a, b) = (Floor { ways: vec![(way, 100.0)] }, Floor { ways: vec![(way, 300.0)] });
        assert_eq!(Floor::between(&a, &b).ways, [(way, 200.0)]);
    }
}
