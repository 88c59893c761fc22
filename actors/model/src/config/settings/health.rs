//! The site's program that looks whether a node is well (slurm.conf(5), HealthCheckProgram).

use crate::config::syntax::{
    report::not_yet,
    values::{Value, choice, list},
};
use std::{
    fmt::{self, Display},
    path::PathBuf,
    time::Duration,
};

/// When a node has its health checked, and by what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheck {
    /// `HealthCheckProgram`: run as the node daemon's user.
    pub program: Option<PathBuf>,
    /// `HealthCheckInterval`, seconds; 0: only when the daemon starts.
    pub interval_secs: u32,
    /// `HealthCheckNodeState`.
    pub states: HealthStates,
}

const WORDS: &[&str] = &["ANY", "IDLE", "ALLOC", "START_ONLY", "CYCLE", "MIXED", "NONDRAINED_IDLE"];

/// On which nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthStates {
    /// Those without jobs.
    idle: bool,
    /// Those with jobs.
    alloc: bool,
    /// Only when the daemon starts.
    start_only: bool,
    /// One after the other in the course of the interval.
    cycle: bool,
}

impl HealthStates {
    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        let mut states = Self::default();
        for word in list(text) {
            match choice(&word, WORDS)? {
                "ANY" => (states.idle, states.alloc) = (true, true),
                "IDLE" => states.idle = true,
                "ALLOC" => states.alloc = true,
                "START_ONLY" => states.start_only = true,
                "CYCLE" => states.cycle = true,
                other => return Err(not_yet(other)),
            }
        }
        // `CYCLE` alone says nothing of which nodes.
        if !(states.idle || states.alloc || states.start_only) {
            (states.idle, states.alloc) = (true, true);
        }
        Ok(states)
    }
}

impl Display for HealthStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = self.idle && self.alloc;
        let words = [
            (both, "ANY"),
            (self.idle && !both, "IDLE"),
            (self.alloc && !both, "ALLOC"),
            (self.start_only, "START_ONLY"),
            (self.cycle, "CYCLE"),
        ];
        let said: Vec<&str> = words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        f.pad(&said.join(","))
    }
}

impl HealthCheck {
    /// Is a node checked that has jobs, or has none?
    pub const fn concerns(&self, has_jobs: bool) -> bool {
        if has_jobs { self.states.alloc } else { self.states.idle }
    }

    /// How long until the next check, at that time since the epoch: all nodes check at the same moments, as Slurm's do, so that a
    /// parallel program is disturbed once; with `CYCLE` each of `nodes` at another, by its place among them. `None`: there is no
    /// other.
    pub fn next(&self, now: Duration, place: u32, nodes: u32) -> Option<Duration> {
        let period = Duration::from_secs(self.interval_secs.into());
        if self.program.is_none() || period.is_zero() || self.states.start_only {
            return None;
        }
        let turn = if self.states.cycle { period * place / nodes.max(1) } else { Duration::ZERO };
        // By another period, so that it is not below zero.
        let since = now + period - turn.min(period);
        let into = Duration::from_millis(u64::try_from(since.as_millis() % period.as_millis()).unwrap_or(0));
        Some(period - into)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(interval_secs: u32, states: &str) -> HealthCheck {
        let states = HealthStates::parse(states).unwrap();
        HealthCheck { program: Some("/sbin/check".into()), interval_secs, states }
    }

    #[test]
    fn nodes_check_at_the_same_moments() {
        let check = of(60, "ANY");
        assert_eq!(check.next(Duration::from_secs(600), 3, 4), Some(Duration::from_secs(60)));
        assert_eq!(check.next(Duration::from_millis(659_250), 0, 1), Some(Duration::from_millis(750)));
        assert_eq!(of(0, "ANY").next(Duration::from_secs(1), 0, 1), None);
        assert_eq!(of(60, "IDLE,START_ONLY").next(Duration::from_secs(1), 0, 1), None);
        assert_eq!(HealthCheck { program: None, ..check }.next(Duration::from_secs(1), 0, 1), None);
    }

    #[test]
    fn with_cycle_each_node_has_a_moment_of_its_own() {
        let check = of(60, "CYCLE");
        let next = |place| check.next(Duration::from_secs(600), place, 4).unwrap().as_secs();
        assert_eq!([0, 1, 2, 3].map(next), [60, 15, 30, 45]);
        assert!(check.concerns(true) && check.concerns(false));
        assert!(!of(60, "IDLE,CYCLE").concerns(true));
        assert_eq!(of(60, "IDLE,CYCLE").states.to_string(), "IDLE,CYCLE");
    }

    #[test]
    fn states_choose_nodes() {
        assert!(of(1, "ANY").concerns(true) && of(1, "ANY").concerns(false));
        assert!(of(1, "idle").concerns(false) && !of(1, "IDLE").concerns(true));
        assert!(!of(1, "ALLOC").concerns(false) && of(1, "ALLOC").concerns(true));
        assert_eq!(of(1, "alloc,idle").states.to_string(), "ANY");
        assert!(HealthStates::parse("MIXED").is_err() && HealthStates::parse("WELL").is_err());
    }
}
