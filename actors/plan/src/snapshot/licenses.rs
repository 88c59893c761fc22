//! Licenses in a plan's snapshot.

use garrick_model::{config::Hres, ids::JobId, spec_text::licenses::Licenses, state::Reason, time::Timestamp};
use std::{collections::BTreeMap, sync::Arc};

/// Licenses in a plan's snapshot.
#[derive(Clone, Debug, Default)]
pub struct LicenseFacts {
    /// Total of each license.
    pub totals: BTreeMap<String, u32>,
    /// What jobs hold, and until when; `None`: without a known end.
    pub held: Vec<(JobId, Licenses, Option<Timestamp>)>,
    /// Hierarchical resources. What is held of their layers is in [`Self::held`], under the layers' names.
    pub hres: Arc<Hres>,
    /// The reservation inside which a job holds its licenses, if there are reservations.
    pub inside: BTreeMap<JobId, String>,
}

/// Why a job waits for licenses, as Slurm names it. It is not a variant of its own, because older programs could not read it.
pub fn reason() -> Reason {
    Reason::Other("Licenses".to_owned())
}
