//! DebugFlags: topics of which the daemons log more than their level asks for.

use crate::config::syntax::values::{self, LogLevel, Value};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt};

/// A topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DebugFlag {
    /// What controller and nodes tell each other.
    Agent,
    /// Each request to the controller: who asks for what, before it is looked at.
    AuditRpcs,
    /// Plans of the scheduler.
    Backfill,
    /// Connections between hosts and at doors.
    Network,
    /// A node that was started with another `slurm.conf` is not told of.
    NoConfHash,
    /// What the scheduler chooses: as Backfill, since both are one here.
    SelectType,
    /// Step managers and shepherds.
    Steps,
    /// How the state of jobs changes.
    TraceJobs,
}

/// The flags, their names in `slurm.conf(5)`, and the modules whose events they show.
const FLAGS: &[(DebugFlag, &str, &[&str])] = &[
    (
        DebugFlag::Agent,
        "Agent",
        &["garrick_actors::node", "garrick_agent", "garrick_noded::node", "garrick_noded::controller::links"],
    ),
    (DebugFlag::AuditRpcs, "AuditRPCs", &[AUDIT_RPCS]),
    (DebugFlag::Backfill, "Backfill", &["garrick_actors::scheduler", "garrick_plan"]),
    (DebugFlag::Network, "Network", &["garrick_transport"]),
    (DebugFlag::NoConfHash, "NO_CONF_HASH", &[]),
    (DebugFlag::SelectType, "SelectType", &["garrick_actors::scheduler", "garrick_plan"]),
    (
        DebugFlag::Steps,
        "Steps",
        &["garrick_run::stepmgr", "garrick_run::step", "garrick_run::shepherd", "garrick_stepd"],
    ),
    (DebugFlag::TraceJobs, "TraceJobs", &["garrick_actors::job"]),
];

/// The target of events that tell of requests.
pub const AUDIT_RPCS: &str = "garrick::requests";

/// Those that `slurm.conf(5)` of 26.05 has besides.
const NOT_YET: &[&str] = &[
    "Accrue",
    "AuditTLS",
    "BackfillMap",
    "BurstBuffer",
    "Cgroup",
    "ConMgr",
    "CPU_Bind",
    "CpuFrequency",
    "Data",
    "DBD_Agent",
    "Dependency",
    "Elasticsearch",
    "Energy",
    "Federation",
    "Gang",
    "GLOB_SILENCE",
    "Gres",
    "Hetjob",
    "JobAccountGather",
    "JobComp",
    "License",
    "Metrics",
    "Namespace",
    "NetworkRaw",
    "NodeFeatures",
    "Power",
    "Priority",
    "Profile",
    "Protocol",
    "Reservation",
    "Route",
    "Script",
    "Switch",
    "thread",
    "TLS",
    "Triggers",
];

/// A set of topics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugFlags(pub BTreeSet<DebugFlag>);

impl DebugFlags {
    /// A list with commas, in any case, and which of the flags in it are not supported yet. An error names one that there is not.
    pub fn of(text: &str) -> Result<(Self, Vec<&'static str>), String> {
        Self::parse(text).map_err(|e| e.to_string())
    }

    pub(in crate::config) fn parse(text: &str) -> Value<(Self, Vec<&'static str>)> {
        let names: Vec<&'static str> = FLAGS.iter().map(|(_, name, _)| *name).chain(NOT_YET.iter().copied()).collect();
        let (mut flags, mut not_yet) = (Self::default(), Vec::new());
        for word in values::list(text) {
            let name = values::choice(&word, &names)?;
            match FLAGS.iter().find(|(_, known, _)| *known == name) {
                Some((flag, _, _)) => drop(flags.0.insert(*flag)),
                None => not_yet.push(name),
            }
        }
        Ok((flags, not_yet))
    }

    /// Modules whose events they show.
    pub fn targets(&self) -> impl Iterator<Item = &'static str> {
        FLAGS.iter().filter(|(flag, _, _)| self.0.contains(flag)).flat_map(|(_, _, targets)| targets.iter().copied())
    }
}

impl fmt::Display for DebugFlags {
    /// As `slurm.conf` has them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = FLAGS.iter().filter(|(flag, _, _)| self.0.contains(flag)).map(|(_, name, _)| *name);
        f.pad(&names.collect::<Vec<_>>().join(","))
    }
}

/// How a daemon's log changes while it runs, until it reads `slurm.conf` again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogChange {
    /// So much from now on.
    Level(LogLevel),
    /// These topics no more, and those too.
    Flags {
        /// No more.
        without: DebugFlags,
        /// Too.
        with: DebugFlags,
    },
    /// Whether the log of the scheduler is written (`SlurmSchedLogLevel`).
    Scheduler(bool),
}

impl fmt::Display for LogChange {
    /// `info`, `-Agent+Steps,Backfill`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => f.write_str(level.name()),
            Self::Scheduler(on) => write!(f, "SlurmSchedLogLevel={}", u8::from(*on)),
            Self::Flags { without, with } => {
                let sign = |sign, flags: &DebugFlags| {
                    if flags.0.is_empty() { String::new() } else { format!("{sign}{flags}") }
                };
                write!(f, "{}{}", sign('-', without), sign('+', with))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn flags_are_read_in_any_case_and_those_that_do_nothing_yet_are_told_apart() {
        let (flags, not_yet) = DebugFlags::of("steps,tracejobs,STEPS,Gang").unwrap();
        assert_eq!((flags.to_string().as_str(), not_yet), ("Steps,TraceJobs", vec!["Gang"]));
        assert!(flags.targets().any(|target| target == "garrick_actors::job"));
        assert!(DebugFlags::of("loud").unwrap_err().contains("loud"));
    }
}
