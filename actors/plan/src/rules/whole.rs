//! Large blocks stay whole (`topology_patience`): a job that would break up one that is idle waits for a broken one, within
//! its patience.

use crate::snapshot::{
    changes::{Fact, Reads},
    facts::ClusterView,
};
use garrick_model::{ids::JobId, state::Reason, time::Timestamp, view::JobView};

/// What it reads.
pub(crate) const READS: Reads =
    Reads { at_site: |view| view.policy.topology_patience.is_none(), ..Reads::only("whole", |_| &[Fact::Policy]) };

/// Who may be kept waiting in a pass, and who is.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    /// So many jobs may begin to wait.
    pub most: usize,
    /// Those that do.
    pub begun: Vec<JobId>,
    /// When the first of all that wait is to start.
    pub next: Option<Timestamp>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { most: usize::MAX, begun: Vec::new(), next: None }
    }
}

/// Does the job wait as of the last plan?
pub(crate) fn waits_already(view: &ClusterView, job: &JobView) -> bool {
    view.policy.topology_patience.is_some() && job.reason == Reason::Fragmentation && job.array_pending.is_none()
}
