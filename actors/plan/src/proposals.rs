//! What a plan proposes to the owners of jobs, who may refuse any of it.

use super::snapshot::{caps::CpuCaps, request::NodeUse};
use garrick_model::{
    config::PreemptMode,
    ids::{JobId, Sluid},
    spec_text::licenses::Licenses,
    time::{TimeLimit, Timestamp},
    view::AllocatedNode,
};
use std::time::Duration;

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

/// A run that has to give way, as proposed to the job's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptProposal {
    /// Number of the pass, set when proposals are sent; answers name it.
    pub pass: u64,
    /// Whose.
    pub job: JobId,
    /// Which run: a later one is not meant.
    pub sluid: Sluid,
    /// To whom.
    pub by: JobId,
    /// How. Never [`PreemptMode::Off`].
    pub mode: PreemptMode,
    /// From being told to the end.
    pub grace: Duration,
    /// From when on it could be preempted.
    pub eligible: Timestamp,
    /// When the other is expected to end.
    pub until: Option<Timestamp>,
}

/// A run that may go on, as proposed to the job's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeProposal {
    /// Number of the pass, set when proposals are sent; answers name it.
    pub pass: u64,
    /// Whose.
    pub job: JobId,
    /// Which run.
    pub sluid: Sluid,
}

/// A run that is to stand still until its turn comes, or whose turn it is, as proposed to the job's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnProposal {
    /// Number of the pass, set when proposals are sent; answers name it.
    pub pass: u64,
    /// Whose.
    pub job: JobId,
    /// Which run.
    pub sluid: Sluid,
    /// It is its turn; else it stands still.
    pub on: bool,
}
