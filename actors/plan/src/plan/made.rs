//! The result of a pass.

use super::obstacle::Obstacle;
use crate::{
    proposals::{PreemptProposal, ResumeProposal, StartProposal},
    room::reserved::Reservation,
    rules::resume::Given,
    snapshot::request::NodeUse,
};
use garrick_model::{ids::JobId, state::Reason, time::Timestamp, view::AllocatedNode};

/// The result of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Starts, in the order decided.
    pub starts: Vec<StartProposal>,
    /// Runs that are preempted for jobs that do not start yet.
    pub preemptions: Vec<PreemptProposal>,
    /// What is kept for those jobs until then.
    pub kept_for_preempting: Vec<(AllocatedNode, NodeUse)>,
    /// Suspended runs that are resumed.
    pub resumptions: Vec<ResumeProposal>,
    /// Why eligible jobs that were considered do not start.
    pub reasons: Vec<(JobId, Reason)>,
    /// Expected starts of jobs with nodes reserved.
    pub expected: Vec<(JobId, Timestamp)>,
    /// What is reserved, in the order decided.
    pub reservations: Vec<Reservation>,
    /// What jobs with reserved resources wait for, where that is known.
    pub obstacles: Vec<(JobId, Obstacle)>,
    /// The pass stopped at its limit of starts: make another one soon.
    pub truncated: bool,
    /// A job waits only because the limit of starts is reached: such a plan is not repaired.
    pub barred: bool,
    /// Starts of jobs that are not behind a waiting one.
    pub in_order: u32,
    /// Starts of jobs behind waiting ones (backfill).
    pub backfilled: u32,
    /// Components of heterogeneous jobs among those.
    pub backfilled_components: u32,
    /// The pass stopped at its time limit: so many jobs, counted in each of their partitions, were not considered.
    pub left_out: usize,
    /// The earliest start of jobs that could start now but wait for blocks that are already broken up: make another plan then.
    pub again: Option<Timestamp>,
}

impl Plan {
    /// All starts, with those of components.
    pub(crate) fn all_starts(&self) -> impl Iterator<Item = &StartProposal> {
        self.starts.iter().flat_map(|start| std::iter::once(start).chain(&start.others))
    }

    /// What the plan gives to jobs, or keeps for them, of nodes.
    pub(crate) fn given(&self) -> impl Iterator<Item = Given<'_>> {
        let starts = self
            .all_starts()
            .flat_map(|start| start.nodes.iter().map(|node| (node, start.usage, Some(start.partition.as_str()))));
        starts.chain(self.kept_for_preempting.iter().map(|(node, usage)| (node, *usage, None)))
    }
}
