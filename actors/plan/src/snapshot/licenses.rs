//! Licenses as a plan's snapshot has them.

use garrick_model::{config::Hres, ids::JobId, spec_text::licenses::Licenses, state::Reason, time::Timestamp};
use std::{collections::BTreeMap, sync::Arc};

/// Licenses as a plan's snapshot has them.
#[derive(Clone, Debug, Default)]
pub struct LicenseFacts {
    /// How many there are of each.
    pub totals: BTreeMap<String, u32>,
    /// What jobs have, until when; `None`: without a known end.
    pub held: Vec<(JobId, Licenses, Option<Timestamp>)>,
    /// Hierarchical resources. What is held of their layers is in [`Self::held`], by the layers' names.
    pub hres: Arc<Hres>,
    /// In which reservation jobs have them, where there are reservations.
    pub inside: BTreeMap<JobId, String>,
}

/// Why a job waits for licenses, in Slurm's word. Not a variant of its own: programs of before would not understand it.
pub fn reason() -> Reason {
    Reason::Other("Licenses".to_owned())
}
