//! What comes of a pass.

use crate::scheduler::{
    caps::CpuCaps, free::Amount, obstacle::Obstacle, preempt::PreemptProposal, request::NodeUse, resume::ResumeProposal,
};
use garrick_model::{
    ids::JobId,
    spec_text::licenses::Licenses,
    state::Reason,
    time::{TimeLimit, Timestamp},
    view::AllocatedNode,
};

/// One start, as proposed to the job's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartProposal {
    /// Number of the pass, set when proposals are sent; answers name it.
    pub pass: u64,
    /// Job, or the record of an array.
    pub job: JobId,
    /// Which task of the array is to be split off and started.
    pub array_index: Option<u32>,
    /// Generation of the job's view.
    pub job_generation: u64,
    /// Partition.
    pub partition: String,
    /// Nodes in configuration order, the batch host first.
    pub nodes: Vec<AllocatedNode>,
    /// Generation of each node's view, in the same order.
    pub generations: Vec<u64>,
    /// How the nodes are used.
    pub usage: NodeUse,
    /// Most CPUs of each that its partition has.
    pub caps: CpuCaps,
    /// The run's limit in this partition.
    pub time_limit: TimeLimit,
    /// Licenses that go with the nodes.
    pub licenses: Licenses,
    /// Reservation that it starts in.
    pub reservation: Option<String>,
    /// Of the leader of a heterogeneous job: its other components, which start with it or not at all.
    pub others: Vec<Self>,
}

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
