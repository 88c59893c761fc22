//! Resources that a plan reserves.

use super::node::free::Amount;
use garrick_model::{ids::JobId, spec_text::licenses::Licenses, time::Timestamp};

/// Resources reserved for a job that cannot start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Job, or the record of an array.
    pub job: JobId,
    /// Index of the partition.
    pub partition: usize,
    /// Begin.
    pub from: Timestamp,
    /// End.
    pub until: Timestamp,
    /// Amounts by node index.
    pub nodes: Vec<(usize, Amount)>,
    /// Licenses.
    pub licenses: Licenses,
}

/// Resources reserved for a job.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    /// Begin.
    pub from: Timestamp,
    /// End.
    pub until: Timestamp,
    /// Amounts by node index, including nodes that are closed to others for it.
    pub nodes: Vec<(usize, Amount)>,
    /// Licenses.
    pub licenses: Licenses,
}

impl Promise {
    /// The amounts of a node.
    pub fn share(&self, node: usize) -> Option<&Amount> {
        let place = self.nodes.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(&self.nodes[place].1)
    }
}
