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

/// Room reserved for a job.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    /// Beginning.
    pub from: Timestamp,
    /// End.
    pub until: Timestamp,
    /// What of which nodes, by place, with those that are closed to others for it.
    pub nodes: Vec<(usize, Amount)>,
    /// Licenses.
    pub licenses: Licenses,
}

impl Promise {
    /// What of a node.
    pub fn share(&self, node: usize) -> Option<&Amount> {
        let place = self.nodes.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(&self.nodes[place].1)
    }
}
