//! Qualities of service, as accounting keeps them.

use super::limits::Limits;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// `Flags` of a QOS (sacctmgr(1)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QosFlag {
    /// `DenyOnLimit`: jobs over a limit of a job are refused at submission.
    DenyOnLimit,
    /// `EnforceUsageThreshold`.
    EnforceUsageThreshold,
    /// `NoDecay`: its usage does not decay.
    NoDecay,
    /// `NoReserve`: backfill reserves nothing for its jobs.
    NoReserve,
    /// `OverPartQOS`: its limits go before those of a partition's QOS.
    OverPartQos,
    /// `PartitionMaxNodes`: its limits go before the partition's `MaxNodes`.
    PartitionMaxNodes,
    /// `PartitionMinNodes`: its limits go before the partition's `MinNodes`.
    PartitionMinNodes,
    /// `PartitionTimeLimit`: its limits go before the partition's `MaxTime`.
    PartitionTimeLimit,
    /// `Relative`: TRES limits are percentages.
    Relative,
    /// `RequiresReservation`.
    RequiresReservation,
    /// `UsageFactorSafe`: `GrpTRESMins` are checked with the factor applied.
    UsageFactorSafe,
}

/// `PreemptMode` of a QOS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QosPreemptMode {
    /// `SUSPEND`.
    Suspend,
    /// `REQUEUE`.
    Requeue,
    /// `CANCEL`.
    Cancel,
    /// `WITHIN`: jobs of the same QOS too.
    Within,
    /// `PRIORITY`: only by jobs of a higher priority.
    Priority,
}

/// The QOS that a job names (`--qos`): one, or several with commas between, in the order in which they are tried.
pub fn choices(named: &str) -> impl Iterator<Item = &str> {
    named.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Does a job name several QOS?
pub fn are_several(named: Option<&str>) -> bool {
    named.is_some_and(|named| named.contains(','))
}

/// Is `asked` one of the QOS that a job names? A job that names none has the one without a name.
pub fn names_qos(named: Option<&str>, asked: &str) -> bool {
    named.map_or_else(|| asked.is_empty(), |named| named == asked || choices(named).any(|one| one == asked))
}

/// A quality of service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QosRecord {
    /// Number; `normal` is 1.
    pub id: u32,
    /// Name.
    pub name: String,
    /// `Description`.
    #[serde(default)]
    pub description: String,
    /// `Priority`.
    #[serde(default)]
    pub priority: u32,
    /// `Flags`.
    #[serde(default)]
    pub flags: BTreeSet<QosFlag>,
    /// `Preempt`: jobs of these may be preempted.
    #[serde(default)]
    pub preempt: BTreeSet<String>,
    /// `PreemptMode`; empty: the cluster's.
    #[serde(default)]
    pub preempt_mode: BTreeSet<QosPreemptMode>,
    /// `PreemptExemptTime`, seconds; `None`: the cluster's.
    #[serde(default)]
    pub preempt_exempt_secs: Option<u64>,
    /// `GraceTime`, seconds.
    #[serde(default)]
    pub grace_secs: u64,
    /// `UsageFactor`: what is used counts so many times.
    #[serde(default = "one")]
    pub usage_factor: f64,
    /// `UsageThreshold`: least fair-share factor of jobs that may start.
    #[serde(default)]
    pub usage_threshold: Option<f64>,
    /// `LimitFactor`: associations' `GrpTRES` and other TRES limits count so many times for its jobs.
    #[serde(default)]
    pub limit_factor: Option<f64>,
    /// Limits.
    #[serde(default)]
    pub limits: Limits,
    /// Kept only since jobs refer to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// When it came.
    #[serde(default)]
    pub created: Timestamp,
    /// When it was last changed.
    #[serde(default)]
    pub modified: Timestamp,
    /// When its past use was last set to 0 (`RawUsage=0`).
    #[serde(default)]
    pub usage_reset: Option<Timestamp>,
}

const fn one() -> f64 {
    1.0
}

impl QosRecord {
    /// With that number and name, and nothing set.
    pub fn new(id: u32, name: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            description: name.to_owned(),
            priority: 0,
            flags: BTreeSet::new(),
            preempt: BTreeSet::new(),
            preempt_mode: BTreeSet::new(),
            preempt_exempt_secs: None,
            grace_secs: 0,
            usage_factor: one(),
            usage_threshold: None,
            limit_factor: None,
            limits: Limits::default(),
            deleted: false,
            created: Timestamp::default(),
            modified: Timestamp::default(),
            usage_reset: None,
        }
    }

    /// Has it this flag?
    pub fn has(&self, flag: QosFlag) -> bool {
        self.flags.contains(&flag)
    }
}
