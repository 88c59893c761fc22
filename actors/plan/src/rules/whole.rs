//! Large blocks stay whole (`topology_patience`): a job that would break up an idle block waits for one that is already broken
//! up, within its patience.

use crate::snapshot::{
    changes::{Fact, Reads},
    facts::ClusterView,
};
use garrick_model::{ids::JobId, state::Reason, time::Timestamp, view::JobView};

/// What the rule reads.
pub(crate) const READS: Reads =
    Reads { at_site: |view| view.policy.topology_patience.is_none(), ..Reads::only("whole", |_| &[Fact::Policy]) };

/// How many jobs may begin to wait in a pass, and which did.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    /// How many jobs may begin to wait.
    pub most: usize,
    /// The jobs that began to wait.
    pub begun: Vec<JobId>,
    /// The earliest expected start of all jobs that wait so.
    pub next: Option<Timestamp>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { most: usize::MAX, begun: Vec::new(), next: None }
    }
}

/// Did the job already wait in the last plan?
pub(crate) fn waits_already(view: &ClusterView, job: &JobView) -> bool {
    view.policy.topology_patience.is_some() && job.reason == Reason::Fragmentation && job.array_pending.is_none()
}
