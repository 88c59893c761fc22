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
    /// Set when proposals are sent: it is given up then.
    pub answer_by: Timestamp,
    /// Job, or the record of an array.
    pub job: JobId,
    /// The index of the array's task to split off and start.
    pub array_index: Option<u32>,
    /// Generation of the job's view.
    pub job_generation: u64,
    /// Partition.
    pub partition: String,
    /// Nodes in configuration order, but the batch host first.
    pub nodes: Vec<AllocatedNode>,
    /// Generation of each node's view, in the same order as `nodes`.
    pub generations: Vec<u64>,
    /// How the nodes are used.
    pub usage: NodeUse,
    /// The limits on CPUs of a node in its partition.
    pub caps: CpuCaps,
    /// The run's limit in this partition.
    pub time_limit: TimeLimit,
    /// Licenses that go with the nodes.
    pub licenses: Licenses,
    /// Reservation that it starts in.
    pub reservation: Option<String>,
    /// Jobs of higher priority wait: it is backfilled.
    pub backfilled: bool,
    /// The QOS that it was planned with: of several that the job names, the one that it starts with.
    pub qos: Option<String>,
    /// For the leader of a heterogeneous job: its other components, which start with it or not at all.
    pub others: Vec<Self>,
}

/// A run to preempt, as proposed to the job's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptProposal {
    /// Number of the pass, set when proposals are sent; answers name it.
    pub pass: u64,
    /// The job to preempt.
    pub job: JobId,
    /// Its run: a later run is not meant.
    pub sluid: Sluid,
    /// The job that preempts it.
    pub by: JobId,
    /// The mode. Never [`PreemptMode::Off`].
    pub mode: PreemptMode,
    /// Time from the request to the end.
    pub grace: Duration,
    /// Since when the run may be preempted.
    pub eligible: Timestamp,
    /// When the preempting job is expected to end.
    pub until: Option<Timestamp>,
}

/// A suspended run to resume, as proposed to the job's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeProposal {
    /// Number of the pass, set when proposals are sent; answers name it.
    pub pass: u64,
    /// The job.
    pub job: JobId,
    /// Its run.
    pub sluid: Sluid,
}

/// Gang scheduling: a run to stop until its turn comes, or to continue, as proposed to the job's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnProposal {
    /// Number of the pass, set when proposals are sent; answers name it.
    pub pass: u64,
    /// The job.
    pub job: JobId,
    /// Its run.
    pub sluid: Sluid,
    /// True: it is the run's turn; false: it stops.
    pub on: bool,
}
