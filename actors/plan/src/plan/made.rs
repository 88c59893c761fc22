//! What comes of a pass.

use super::obstacle::Obstacle;
use crate::{
    proposals::{PreemptProposal, ResumeProposal, StartProposal},
    room::reserved::Reservation,
    rules::resume::Given,
    snapshot::request::NodeUse,
};
use garrick_model::{ids::JobId, state::Reason, time::Timestamp, view::AllocatedNode};

/// What came of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Starts, in the order decided.
    pub starts: Vec<StartProposal>,
    /// Runs that give way to jobs that do not start yet.
    pub preemptions: Vec<PreemptProposal>,
    /// What is kept for those jobs meanwhile.
    pub kept_for_preempting: Vec<(AllocatedNode, NodeUse)>,
    /// Runs that were suspended for others and go on.
    pub resumptions: Vec<ResumeProposal>,
    /// Why eligible jobs that were looked at do not start.
    pub reasons: Vec<(JobId, Reason)>,
    /// Expected starts of jobs that have nodes reserved.
    pub expected: Vec<(JobId, Timestamp)>,
    /// What is reserved, in the order decided.
    pub reservations: Vec<Reservation>,
    /// What stands in the way of those who have room reserved, where that is known.
    pub obstacles: Vec<(JobId, Obstacle)>,
    /// The pass stopped at its limit of starts: make another one soon.
    pub truncated: bool,
    /// Somebody waits only because as many started as may: such a plan is not repaired.
    pub barred: bool,
    /// How many starts are of jobs that are behind nobody.
    pub in_order: u32,
    /// How many are of those behind waiting ones.
    pub backfilled: u32,
    /// It stopped at its limit of time: so many jobs in their partitions were not looked at.
    pub left_out: usize,
    /// When the first of those is to start who could start now but wait for blocks that are broken already: make another
    /// one then.
    pub again: Option<Timestamp>,
}

impl Plan {
    /// All starts, those of components with them.
    pub(crate) fn all_starts(&self) -> impl Iterator<Item = &StartProposal> {
        self.starts.iter().flat_map(|start| std::iter::once(start).chain(&start.others))
    }

    /// What it gives and keeps of nodes.
    pub(crate) fn given(&self) -> impl Iterator<Item = Given<'_>> {
        let starts = self
            .all_starts()
            .flat_map(|start| start.nodes.iter().map(|node| (node, start.usage, Some(start.partition.as_str()))));
        starts.chain(self.kept_for_preempting.iter().map(|(node, usage)| (node, *usage, None)))
    }
}
