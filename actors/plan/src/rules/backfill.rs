//! Who is behind others that wait, and for whom room is reserved. Nobody who is behind delays those who have room reserved;
//! how many of them are looked at is bounded (`bf_max_job_test`).

use crate::snapshot::{
    changes::{Fact, Reads},
    facts::{Backfill, ClusterView},
};
use fixedbitset::FixedBitSet;
use garrick_model::{ids::JobId, state::Reason, time::Timestamp, view::JobView};
use std::collections::BTreeMap;

/// What it reads.
pub(crate) const READS: Reads = Reads {
    at_site: |view| view.policy.shortest_first.is_none(),
    ..Reads::only("backfill", |_| &[Fact::Policy, Fact::Partitions])
};

/// Those who wait, as far as a plan has come.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    /// Nodes of partitions in which a job is blocked.
    pub blocked: FixedBitSet,
    /// How many jobs of each partition have room reserved.
    pub reserved: BTreeMap<usize, u32>,
    /// How many were looked at that are behind others.
    pub tried_behind: usize,
    /// A job that is looked at whatever the policy's bounds say.
    pub minded: Option<JobId>,
    /// Nobody goes ahead of anybody, and all have room reserved.
    pub in_order: bool,
    /// What was reserved that way: in which partition, from when on.
    pub turns: Vec<(usize, Timestamp)>,
}

/// Where one stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Others that wait go before it on some of its nodes.
    pub behind: bool,
    /// It would pass them by, which nobody may.
    pub passes_by: bool,
}

impl Queue {
    /// Nobody waits, over so many nodes.
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

    /// Does somebody on these nodes go before those who are looked at now?
    pub fn is_behind(&self, nodes: &FixedBitSet) -> bool {
        !self.blocked.is_disjoint(nodes)
    }

    /// Is room reserved for the next job of the partition that does not fit?
    pub fn reserves(&self, policy: Backfill, partition: usize) -> bool {
        match policy {
            Backfill::Off => self.in_order,
            Backfill::First(most) => self.reserved.get(&partition).copied().unwrap_or(0) < most,
            Backfill::Conservative => true,
        }
    }

    /// The plan is made for the sake of that job, or of all components of its leader's.
    pub fn minds(&self, job: &JobView) -> bool {
        self.minded.is_some_and(|minded| minded == job.id || job.spec.het.is_some_and(|(leader, _)| leader == minded))
    }

    /// Is one looked at that is behind others, or is not? `enough`: as many of the like were looked at as may be.
    pub fn gate(
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

    /// Nobody goes ahead of those who wait on these nodes, but as backfill lets them.
    pub fn block(&mut self, nodes: &FixedBitSet) {
        self.blocked.union_with(nodes);
    }
}
