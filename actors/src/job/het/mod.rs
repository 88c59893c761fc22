//! Heterogeneous jobs: components that start together or not at all, end together, and are each a job of their own.
//!
//! The leader (offset 0) coordinates. It alone gets the scheduler's proposal for all components, and has each of the others
//! prepare its part ([`HetMessage::Prepare`]): reserve its nodes and licenses, and keep them. When all have done so, the
//! leader records every component's allocation in one write, so that a crash leaves all of them or none. Between
//! [`HetMessage::Prepared`] and the leader's answer a component records nothing and gives nothing back; what would make it
//! do so is put off until then.
//!
//! The leader is launched last, when the step managers of all others serve, since only it runs a script. When it ends, all
//! end; what follows its end follows theirs.
//!
//! | file | what of it |
//! |---|---|
//! | this | what they say to each other, what each remembers, and what it makes of a first turn |
//! | `agree` | from a proposal to recorded allocations |
//! | `course` | launch and end |

mod agree;
mod course;

use super::{
    core::{JobCore, Turn},
    messages::{JobCommand, JobEffect, JobInput, JobTimer},
    record::{Afterwards, Ending, Phase, PreemptMark, Run},
    start::COMMIT_LIMIT,
};
use crate::scheduler::plan::StartProposal;
use garrick_model::{
    ids::{JobId, Sluid},
    messages::node::HetComponent,
    refusal::Refusal,
    state::{JobState, Reason},
};
use std::collections::{BTreeMap, BTreeSet};

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
        /// The leader's attempt.
        attempt: u64,
        /// As recorded.
        run: Box<Run>,
    },
    /// To the leader: its owner was built anew, and does not know what became of what it had prepared.
    Lost,
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
            Self::Lost => "HetLost",
            Self::Ask => "HetAsk",
            Self::Started { .. } => "HetStarted",
            Self::Ended { .. } => "HetEnded",
            Self::GiveWay { .. } => "HetGiveWay",
            Self::SetRequeue { .. } => "HetSetRequeue",
            Self::End { .. } => "HetEnd",
        }
    }
}

/// What a component of a heterogeneous job remembers, and need not after a restart of the controller.
#[derive(Clone, Debug, Default)]
pub(super) struct HetState {
    /// Leader: what others have prepared in the attempt under way.
    prepared: BTreeMap<JobId, (Box<Run>, Box<HetComponent>)>,
    /// Leader: what was recorded for others, for those who lost it.
    granted: BTreeMap<JobId, Box<Run>>,
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

    fn is_leader(&self) -> bool {
        self.others().next().is_some()
    }

    fn tell(&self, to: JobId, message: HetMessage, turn: &mut Turn<'_>) {
        turn.out.push(JobEffect::TellHet { to, message: Box::new(message) });
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
    pub(super) fn het_resume(&mut self, attempt: u64, nodes: &mut Vec<String>, again: bool, turn: &mut Turn<'_>) {
        // Recorded by the leader while this owner was built anew.
        if let Some(run) = self.record.phase.run() {
            nodes.retain(|node| !run.has_node(node));
        }
        if let Some(leader) = self.het_leader() {
            if matches!(self.record.phase, Phase::Pending) && !nodes.is_empty() {
                self.het.limbo = Some((attempt, std::mem::take(nodes)));
                self.tell(leader, HetMessage::Lost, turn);
                let at = turn.now.plus(COMMIT_LIMIT);
                turn.out.push(JobEffect::SetTimer { timer: JobTimer::Commit, at });
            }
            if !self.is_over() {
                turn.out.push(JobEffect::SubscribeTo { job: leader });
            }
            return self.tell_leader(leader, turn);
        }
        match &self.record.phase {
            _ if !self.is_leader() => {}
            Phase::Pending => {
                if again {
                    self.tell_others(&HetMessage::Abandon { attempt }, turn);
                }
                if self.record.restarts > 0 {
                    // They may not have heard that it is back.
                    let then = Afterwards::Requeue { hold: self.record.hold, delay: false };
                    self.het_end_others(JobState::Cancelled, then, None, turn);
                }
            }
            Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run) => match run.ending.clone() {
                Some(Ending { state, then, by, .. }) => {
                    self.tell_others(&HetMessage::End { state, then, by }, turn);
                }
                None => {
                    self.tell_others(&HetMessage::Ask, turn);
                    self.het_set_requeue(turn);
                }
            },
            Phase::Completing(_, end) | Phase::Over(_, end) => {
                let message = HetMessage::End { state: end.state, then: end.then, by: None };
                self.tell_others(&message, turn);
            }
        }
    }

    /// What only the whole job can be told.
    pub(super) fn het_refuses(&self, command: &JobCommand) -> Result<(), Refusal> {
        let whole = match command {
            JobCommand::Cancel => matches!(self.record.phase, Phase::Pending),
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
            HetMessage::Granted { attempt, run } if from_leader => self.take_granted(attempt, *run, turn),
            HetMessage::Ask if from_leader => self.tell_leader(from, turn),
            HetMessage::End { state, then, by } if from_leader => self.end_with_leader(state, then, by, turn),
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
            HetMessage::Lost if from_other => self.other_lost(from, turn),
            HetMessage::Started { sluid } if from_other => self.other_serves(from, sluid, turn),
            HetMessage::Ended { sluid, state, reason } if from_other => {
                self.other_ended(from, sluid, state, reason, turn);
            }
            other => tracing::warn!(job_id = self.record.id.0, from = from.0, message = other.name(), "job.het_stray"),
        }
    }
}
