//! What components of a heterogeneous job say to each other: how that goes is told where they decide, in `job/het.rs`.

use garrick_events::records::job::{Afterwards, PreemptMark, Run};
use garrick_model::{
    ids::Sluid,
    messages::node::HetComponent,
    state::{JobState, Reason},
};
use garrick_plan::proposals::StartProposal;

/// What the leader of a heterogeneous job and the owners of its other components say to each other. All may come twice.
#[derive(Clone, Debug, PartialEq)]
pub enum HetMessage {
    /// From the leader: reserve this, and keep it until there is word.
    Prepare {
        /// The leader's attempt.
        attempt: u64,
        /// Should the job be lost with a node, it goes back to the queue as a whole.
        requeue: bool,
        /// Part of the scheduler's proposal.
        proposal: Box<StartProposal>,
    },
    /// To the leader: everything said yes. Sent again while there is no answer.
    Prepared {
        /// The leader's attempt.
        attempt: u64,
        /// What would be recorded.
        run: Box<Run>,
        /// What the leader's script is told of it.
        component: Box<HetComponent>,
    },
    /// To the leader: something said no, and nothing is held.
    Declined {
        /// The leader's attempt.
        attempt: u64,
    },
    /// From the leader: what was prepared in that attempt is to be given back.
    Abandon {
        /// The leader's attempt.
        attempt: u64,
    },
    /// From the leader: the allocation is recorded.
    Granted {
        /// Whose it is: the component's run.
        sluid: Sluid,
        /// As recorded.
        run: Box<Run>,
    },
    /// To the leader: its owner was built anew, and does not know what became of what it had prepared.
    Lost {
        /// For this run.
        sluid: Sluid,
    },
    /// From the leader, to that: nothing is recorded.
    NotGranted {
        /// For this run.
        sluid: Sluid,
    },
    /// From the leader: how far is it?
    Ask,
    /// To the leader: its step manager serves.
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
    /// From the leader: the whole job gives way to another one, and is ended when the leader says so.
    GiveWay {
        /// The leader's run was told so.
        mark: Box<PreemptMark>,
    },
    /// From the leader: whether the job goes back to the queue should it be lost with a node.
    SetRequeue {
        /// It does.
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
    /// From the leader: it waits again, and so should all.
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
