//! Which jobs are behind waiting ones, and for which jobs resources are reserved. A job behind others must not delay a job with
//! reserved resources. The number of jobs behind others that a plan considers is bounded (`bf_max_job_test`).

use crate::snapshot::{
    changes::{Fact, Reads},
    facts::{Backfill, ClusterView},
};
use fixedbitset::FixedBitSet;
use garrick_model::{ids::JobId, state::Reason, time::Timestamp, view::JobView};
use std::collections::BTreeMap;

/// What the rule reads.
pub(crate) const READS: Reads = Reads {
    at_site: |view| view.policy.shortest_first.is_none(),
    ..Reads::only("backfill", |_| &[Fact::Policy, Fact::Partitions])
};

/// The waiting jobs, as far as a plan has come.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    /// Nodes of partitions in which a job is blocked.
    pub blocked: FixedBitSet,
    /// How many jobs of each partition have resources reserved.
    pub reserved: BTreeMap<usize, u32>,
    /// How many jobs behind others were considered.
    pub tried_behind: usize,
    /// A job that is considered whatever the policy's bounds say.
    pub minded: Option<JobId>,
    /// No job may go ahead of another, and all have resources reserved.
    pub in_order: bool,
    /// Reservations that were made that way: partition and begin.
    pub turns: Vec<(usize, Timestamp)>,
}

/// A job's position relative to waiting jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Waiting jobs go before it on some of its nodes.
    pub behind: bool,
    /// It would pass them, although no job may.
    pub passes_by: bool,
}

impl Queue {
    /// No job waits; for so many nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            blocked: FixedBitSet::with_capacity(nodes),
            reserved: BTreeMap::new(),
            tried_behind: 0,
            minded: None,
            in_order: false,
            turns: Vec::new(),
        }
    }

    /// Does a waiting job on these nodes go before the jobs that are considered now?
    pub(crate) fn is_behind(&self, nodes: &FixedBitSet) -> bool {
        !self.blocked.is_disjoint(nodes)
    }

    /// Does the next job of the partition that does not fit get resources reserved?
    pub(crate) fn reserves(&self, policy: Backfill, partition: usize) -> bool {
        match policy {
            Backfill::Off => self.in_order,
            Backfill::First(most) => self.reserved.get(&partition).copied().unwrap_or(0) < most,
            Backfill::Conservative => true,
        }
    }

    /// Is the plan made for this job, or for a component of the same heterogeneous job?
    pub(crate) fn minds(&self, job: &JobView) -> bool {
        self.minded.is_some_and(|minded| minded == job.id || job.spec.het.is_some_and(|(leader, _)| leader == minded))
    }

    /// May a job behind others, or one that is not, be considered? `enough`: its kind has reached its bound.
    pub(crate) fn gate(
        &self,
        view: &ClusterView,
        job: &JobView,
        behind: bool,
        enough: impl FnOnce() -> bool,
    ) -> Result<Standing, Reason> {
        let deep = || self.tried_behind >= view.policy.backfill_depth || enough();
        let passes_by = behind && view.policy.backfill == Backfill::Off;
        if (passes_by && !self.in_order) || (behind && !self.minds(job) && deep()) {
            return Err(Reason::Priority);
        }
        Ok(Standing { behind, passes_by })
    }

    /// Puts later jobs on these nodes behind waiting ones: they start only as backfill allows.
    pub fn block(&mut self, nodes: &FixedBitSet) {
        self.blocked.union_with(nodes);
    }
}
