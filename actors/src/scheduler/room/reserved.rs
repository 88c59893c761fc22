//! Room that a plan reserves.

use super::node::free::Amount;
use garrick_model::{ids::JobId, spec_text::licenses::Licenses, time::Timestamp};

/// Room reserved for a job that cannot start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Job, or the record of an array.
    pub job: JobId,
    /// Place of the partition.
    pub partition: usize,
    /// From when on.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// What of which nodes, by place.
    pub nodes: Vec<(usize, Amount)>,
    /// Licenses.
    pub licenses: Licenses,
}
