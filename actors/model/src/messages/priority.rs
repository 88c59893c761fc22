//! What `sprio` shows: the factors behind priorities.

use crate::ids::{ArrayTask, JobId};
use serde::{Deserialize, Serialize};

/// What a factor of 1.0 adds to a priority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorityWeights {
    /// `PriorityWeightAge`.
    pub age: u32,
    /// `PriorityWeightAssoc`.
    pub assoc: u32,
    /// `PriorityWeightFairshare`.
    pub fairshare: u32,
    /// `PriorityWeightJobSize`.
    pub job_size: u32,
    /// `PriorityWeightPartition`.
    pub partition: u32,
    /// `PriorityWeightQOS`.
    pub qos: u32,
    /// `PriorityWeightTRES` by name, in the order of [`JobPriority::tres`].
    pub tres: Vec<(String, f64)>,
    /// That, as written.
    pub tres_text: Option<String>,
}

/// A job's priority in one of its partitions. Factors are before weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobPriority {
    /// Job.
    pub job: JobId,
    /// Set on a task of an array.
    #[serde(default)]
    pub array_task: Option<ArrayTask>,
    /// Owner.
    pub uid: u32,
    /// Owner's name at submission.
    pub user: String,
    /// Account.
    #[serde(default)]
    pub account: Option<String>,
    /// QOS.
    #[serde(default)]
    pub qos_name: Option<String>,
    /// Partition.
    pub partition: String,
    /// Priority there.
    pub priority: u32,
    /// Age.
    #[serde(default)]
    pub age: f64,
    /// Association.
    #[serde(default)]
    pub assoc: f64,
    /// Fair share.
    #[serde(default)]
    pub fairshare: f64,
    /// Size.
    #[serde(default)]
    pub job_size: f64,
    /// Partition's factor.
    #[serde(default)]
    pub partition_factor: f64,
    /// QOS's factor.
    #[serde(default)]
    pub qos: f64,
    /// One for each weighed TRES; none where somebody fixed the priority.
    #[serde(default)]
    pub tres: Vec<f64>,
    /// `SiteFactor`.
    #[serde(default)]
    pub site: i32,
    /// Nice.
    #[serde(default)]
    pub nice: i32,
}
