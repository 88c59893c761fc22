//! To whom a run's use is charged.

use garrick_model::entities::used::Who;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// To whom a run is charged, and how. Decided when it starts, as billing is in Slurm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The user in an account; `None`: no association is known for the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Who>,
    /// Its QOS, and that of its partition.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub qos: BTreeSet<String>,
    /// What is billed, by `TRESBillingWeights`.
    pub billing: u64,
    /// `UsageFactor` of the QOS, millionths.
    pub factor_millionths: u64,
}
