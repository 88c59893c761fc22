//! Heterogeneous jobs: components that start together or not at all, end together, and are each a job of their own.
//!
//! The leader (offset 0) coordinates. It alone gets the scheduler's proposal for all components, and makes each of the others
//! prepare its part ([`HetMessage::Prepare`]): reserve its nodes and licenses, and keep them. When all have done so, the leader
//! records every component's allocation in one write, so that after a crash all of them or none are there. Between
//! [`HetMessage::Prepared`] and the leader's answer, a component records nothing and releases nothing; inputs that would make it
//! do so are deferred. The leader's answer is always what it recorded, whoever asks and however late.
//!
//! The leader is launched last, when the step managers of all others are ready, since only it runs a script. When it ends, all
//! end, and are requeued or not as it is. [`super::news`] says how lost messages are asked for again.

use super::core::{JobCore, Turn};
use crate::messages::{
    het::HetMessage,
    job::{JobCommand, JobInput},
};
use garrick_events::records::job::{Phase, Run};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::node::HetComponent,
    refusal::Refusal,
};
use garrick_plan::proposals::StartProposal;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What a leader has recorded for the other components: the run of each, as saved.
pub type Granted = BTreeMap<JobId, (Sluid, Box<Run>)>;

/// State of a component of a heterogeneous job that it does not need after a restart of the controller.
#[derive(Clone, Debug, Default)]
pub(super) struct HetState {
    /// Leader: what the others have prepared in the current attempt.
    pub(super) prepared: BTreeMap<JobId, (Box<Run>, Box<HetComponent>)>,
    /// Leader: what was recorded for others, for those that have not been told. It outlives the owner.
    pub(super) granted: Arc<Granted>,
    /// Leader: components of this run whose step managers are or were ready.
    pub(super) serving: BTreeSet<JobId>,
    /// Other components: the leader's attempt to which the current commit belongs.
    pub(super) of_attempt: Option<u64>,
    /// Other components: whether the leader may be requeued, according to that attempt.
    pub(super) requeue: bool,
    /// Other components: prepared, and waiting for the leader's answer.
    pub(super) ready: Option<Box<Run>>,
    /// Inputs deferred meanwhile.
    pub(super) put_off: Vec<JobInput>,
    /// What an earlier life may have prepared: its attempt and nodes.
    pub(super) limbo: Option<(u64, Vec<String>)>,
}

impl JobCore {
    pub(super) fn others(&self) -> impl Iterator<Item = JobId> + use<> {
        self.record.spec.het_others()
    }

    /// Leader of the job that this is another component of.
    pub(super) fn het_leader(&self) -> Option<JobId> {
        self.record.spec.het_leader_of_component()
    }

    pub(super) fn tell(&self, to: JobId, message: HetMessage, turn: &mut Turn<'_>) {
        turn.tell_job(to, JobInput::Het { from: self.record.id, message: Box::new(message) });
    }

    pub(super) fn tell_others(&self, message: &HetMessage, turn: &mut Turn<'_>) {
        for other in self.others() {
            self.tell(other, message.clone(), turn);
        }
    }

    /// A proposal must be for all components, and is sent to the leader.
    pub(super) fn is_for_all_of_it(&self, proposal: &StartProposal) -> bool {
        self.het_leader().is_none() && proposal.others.iter().map(|other| other.job).eq(self.others())
    }

    /// First turn of a life of the actor. What an earlier life may have prepared is for the leader to decide.
    pub(super) fn het_resume(&mut self, attempt: u64, nodes: &mut Vec<String>, turn: &mut Turn<'_>) {
        // Recorded by the leader while this owner was rebuilt.
        if let Some(run) = self.record.phase.run() {
            nodes.retain(|node| !run.has_node(node));
        }
        if self.het_leader().is_some() && matches!(self.record.phase, Phase::Pending) && !nodes.is_empty() {
            self.het.limbo = Some((attempt, std::mem::take(nodes)));
            self.say_lost(turn);
        }
        self.het_exchange(turn);
    }

    /// Refuses commands that are only possible for the whole job.
    pub(super) fn het_refuses(&self, command: &JobCommand) -> Result<(), Refusal> {
        let whole = match command {
            JobCommand::Cancel => matches!(self.record.phase, Phase::Pending) || self.is_queued_again(),
            JobCommand::Requeue { .. } | JobCommand::RequeueSpecialExit | JobCommand::FinishAllocation { .. } => true,
            _ => false,
        };
        if whole && self.het_leader().is_some() { Err(Refusal::NotWholeHetJob) } else { Ok(()) }
    }

    /// Handles a message from another component of the same job.
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
