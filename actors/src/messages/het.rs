//! Messages between components of a heterogeneous job; `job/het.rs` describes the protocol.

use garrick_events::records::job::{Afterwards, PreemptMark, Run};
use garrick_model::{
    ids::Sluid,
    messages::node::HetComponent,
    state::{JobState, Reason},
};
use garrick_plan::proposals::StartProposal;

/// Messages between the leader of a heterogeneous job and the owners of its other components. All may come twice.
#[derive(Clone, Debug, PartialEq)]
pub enum HetMessage {
    /// From the leader: reserve this, and keep it until I answer.
    Prepare {
        /// The leader's attempt.
        attempt: u64,
        /// If the job is lost with a node, it is requeued as a whole.
        requeue: bool,
        /// Part of the scheduler's proposal.
        proposal: Box<StartProposal>,
    },
    /// To the leader: everything is reserved. Repeated while there is no answer.
    Prepared {
        /// The leader's attempt.
        attempt: u64,
        /// What would be recorded.
        run: Box<Run>,
        /// The component's data for the leader's script.
        component: Box<HetComponent>,
    },
    /// To the leader: something was refused, and nothing is held.
    Declined {
        /// The leader's attempt.
        attempt: u64,
    },
    /// From the leader: release what was prepared in that attempt.
    Abandon {
        /// The leader's attempt.
        attempt: u64,
    },
    /// From the leader: the allocation is recorded.
    Granted {
        /// The component's run.
        sluid: Sluid,
        /// As recorded.
        run: Box<Run>,
    },
    /// To the leader: the component's owner was rebuilt, and does not know the result of what it had prepared.
    Lost {
        /// For this run.
        sluid: Sluid,
    },
    /// From the leader, in answer to `Lost`: nothing is recorded.
    NotGranted {
        /// For this run.
        sluid: Sluid,
    },
    /// From the leader: what is your state?
    Ask,
    /// To the leader: the component's step manager is ready.
    Started {
        /// Run.
        sluid: Sluid,
    },
    /// To the leader: its run is over.
    Ended {
        /// Run.
        sluid: Sluid,
        /// How.
        state: JobState,
        /// Why.
        reason: Reason,
    },
    /// From the leader: the whole job is preempted by another one, and ends when the leader says so.
    GiveWay {
        /// The mark of the leader's run.
        mark: Box<PreemptMark>,
    },
    /// From the leader: whether the job is requeued if it is lost with a node.
    SetRequeue {
        /// It is requeued.
        allowed: bool,
    },
    /// From the leader: the whole job ends.
    End {
        /// State to record.
        state: JobState,
        /// What follows.
        then: Afterwards,
        /// Who asked.
        by: Option<u32>,
    },
    /// From the leader: it waits again, and all components should.
    Back,
}

impl HetMessage {
    /// Name for traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Prepare { .. } => "HetPrepare",
            Self::Prepared { .. } => "HetPrepared",
            Self::Declined { .. } => "HetDeclined",
            Self::Abandon { .. } => "HetAbandon",
            Self::Granted { .. } => "HetGranted",
            Self::Lost { .. } => "HetLost",
            Self::NotGranted { .. } => "HetNotGranted",
            Self::Ask => "HetAsk",
            Self::Started { .. } => "HetStarted",
            Self::Ended { .. } => "HetEnded",
            Self::GiveWay { .. } => "HetGiveWay",
            Self::SetRequeue { .. } => "HetSetRequeue",
            Self::End { .. } => "HetEnd",
            Self::Back => "HetBack",
        }
    }
}
