//! Heterogeneous jobs: components that start together or not at all, end together, and are each a job of their own.
//!
//! The leader (offset 0) coordinates. It alone gets the scheduler's proposal for all components, and has each of the others
//! prepare its part ([`HetMessage::Prepare`]): reserve its nodes and licenses, and keep them. When all have done so, the
//! leader records every component's allocation in one write, so that a crash leaves all of them or none. Between
//! [`HetMessage::Prepared`] and the leader's answer a component records nothing and gives nothing back; what would make it
//! do so is put off until then. What the leader answers is what it recorded, whoever asks and however late.
//!
//! The leader is launched last, when the step managers of all others serve, since only it runs a script. When it ends, all
//! end; what follows its end follows theirs. What a lost word would be asked for again by is in [`super::news`].
//!
//! | file | what of it |
//! |---|---|
//! | this | what they say to each other, what each remembers, and what it makes of a first turn |
//! | `agree` | from a proposal to recorded allocations |
//! | `course` | launch and end |

mod agree;
mod course;

use crate::{
    job::{
        core::{JobCore, Turn},
        messages::{JobCommand, JobInput},
    },
    records::job::{Afterwards, Phase, PreemptMark, Run},
    scheduler::proposals::StartProposal,
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::node::HetComponent,
    refusal::Refusal,
    state::{JobState, Reason},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

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

/// What a leader has recorded for the other components: of each the run, as it is on disk.
pub type Granted = BTreeMap<JobId, (Sluid, Box<Run>)>;

/// What a component of a heterogeneous job remembers, and need not after a restart of the controller.
#[derive(Clone, Debug, Default)]
pub(super) struct HetState {
    /// Leader: what others have prepared in the attempt under way.
    prepared: BTreeMap<JobId, (Box<Run>, Box<HetComponent>)>,
    /// Leader: what was recorded for others, for those who have not heard of it. Outlives its owner.
    pub(super) granted: Arc<Granted>,
    /// Leader: components of this run whose step managers serve, or did.
    serving: BTreeSet<JobId>,
    /// Other components: the leader's attempt that the commit under way belongs to.
    of_attempt: Option<u64>,
    /// Other components: the leader may be requeued, as it said with that attempt.
    requeue: bool,
    /// Other components: prepared, and waiting for the leader's word.
    ready: Option<Box<Run>>,
    /// What came meanwhile.
    put_off: Vec<JobInput>,
    /// What an earlier life may have prepared: its attempt and nodes.
    limbo: Option<(u64, Vec<String>)>,
}

impl JobCore {
    fn others(&self) -> impl Iterator<Item = JobId> + use<> {
        self.record.spec.het_others()
    }

    /// Leader of the job that this is another component of.
    pub(super) fn het_leader(&self) -> Option<JobId> {
        self.record.spec.het_leader_of_component()
    }

    fn tell(&self, to: JobId, message: HetMessage, turn: &mut Turn<'_>) {
        turn.tell_job(to, JobInput::Het { from: self.record.id, message: Box::new(message) });
    }

    fn tell_others(&self, message: &HetMessage, turn: &mut Turn<'_>) {
        for other in self.others() {
            self.tell(other, message.clone(), turn);
        }
    }

    /// A proposal must be for all components, and comes to the leader.
    pub(super) fn is_for_all_of_it(&self, proposal: &StartProposal) -> bool {
        self.het_leader().is_none() && proposal.others.iter().map(|other| other.job).eq(self.others())
    }

    /// First turn of a life of the actor. Takes what an earlier one may have prepared: that is the leader's to decide.
    pub(super) fn het_resume(&mut self, attempt: u64, nodes: &mut Vec<String>, turn: &mut Turn<'_>) {
        // Recorded by the leader while this owner was built anew.
        if let Some(run) = self.record.phase.run() {
            nodes.retain(|node| !run.has_node(node));
        }
        if self.het_leader().is_some() && matches!(self.record.phase, Phase::Pending) && !nodes.is_empty() {
            self.het.limbo = Some((attempt, std::mem::take(nodes)));
            self.say_lost(turn);
        }
        self.het_exchange(turn);
    }

    /// What only the whole job can be told.
    pub(super) fn het_refuses(&self, command: &JobCommand) -> Result<(), Refusal> {
        let whole = match command {
            JobCommand::Cancel => matches!(self.record.phase, Phase::Pending) || self.is_queued_again(),
            JobCommand::Requeue { .. } | JobCommand::RequeueSpecialExit | JobCommand::FinishAllocation { .. } => true,
            _ => false,
        };
        if whole && self.het_leader().is_some() { Err(Refusal::NotWholeHetJob) } else { Ok(()) }
    }

    /// Word from another component of the same job.
    pub(super) fn het_message(&mut self, from: JobId, message: HetMessage, turn: &mut Turn<'_>) {
        let from_leader = self.het_leader() == Some(from);
        let from_other = self.others().any(|other| other == from);
        match message {
            HetMessage::Prepare { attempt, requeue, proposal } if from_leader => {
                self.prepare(attempt, requeue, *proposal, turn);
            }
            HetMessage::SetRequeue { allowed } if from_leader => self.set_requeue(allowed, turn),
            HetMessage::Abandon { attempt } if from_leader => self.give_back(attempt, turn),
            HetMessage::Granted { sluid, run } if from_leader => self.take_granted(sluid, *run, turn),
            HetMessage::NotGranted { sluid } if from_leader && sluid == self.record.sluid => self.leave_limbo(turn),
            HetMessage::Ask if from_leader => self.tell_leader(from, turn),
            HetMessage::End { state, then, by } if from_leader => self.end_with_leader(state, then, by, turn),
            HetMessage::Back if from_leader => self.wait_with_leader(turn),
            HetMessage::GiveWay { mark } if from_leader => {
                let run = self.record.phase.working();
                if run.is_some_and(|run| run.ending.is_none() && run.preempted.is_none()) {
                    self.gives_way(*mark, turn);
                }
            }
            HetMessage::Prepared { attempt, run, component } if from_other => {
                self.other_prepared(from, attempt, run, component, turn);
            }
            HetMessage::Declined { attempt } if from_other => {
                if attempt == self.attempt && self.commit.is_some() {
                    self.abandon_commit(turn);
                }
            }
            HetMessage::Lost { sluid } if from_other => self.other_lost(from, sluid, turn),
            HetMessage::Started { sluid } if from_other => self.other_serves(from, sluid, turn),
            HetMessage::Ended { sluid, state, reason } if from_other => {
                self.other_ended(from, sluid, state, reason, turn);
            }
            other => tracing::warn!(job_id = self.record.id.0, from = from.0, message = other.name(), "job.het_stray"),
        }
    }
}
