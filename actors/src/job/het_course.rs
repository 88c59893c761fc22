//! Relations between the components of a heterogeneous job after the allocation: the leader is launched last, and they end
//! together.

use super::core::{JobCore, Turn};
use crate::messages::{het::HetMessage, job::JobInput};
use garrick_events::records::{
    job::{Afterwards, End, Ending, HeldBy, Phase, PreemptMark},
    job_event::JobEvent,
};
use garrick_model::{
    ids::{JobId, Sluid},
    spec::JobKind,
    state::{JobState, Reason},
};

impl JobCore {
    /// What the others have to know about their leader, according to its record. During an attempt there is nothing to send: a
    /// component that does not know that it waits cannot prepare, and that ends the attempt.
    fn het_words(&self) -> Vec<HetMessage> {
        match &self.record.phase {
            Phase::Pending if self.record.restarts == 0 || self.commit.is_some() => Vec::new(),
            Phase::Pending => vec![HetMessage::Back],
            Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run) => match run.ending.clone() {
                Some(Ending { state, then, by, .. }) => vec![HetMessage::End { state, then, by }],
                None => {
                    let give_way = run.preempted.clone().map(|mark| HetMessage::GiveWay { mark: Box::new(mark) });
                    give_way.into_iter().chain([HetMessage::Ask]).chain(self.changed_requeue()).collect()
                }
            },
            Phase::Completing(_, end) | Phase::Over(_, end) => {
                vec![HetMessage::End { state: end.state, then: end.then, by: None }]
            }
        }
    }

    /// Repeats to a component what it may have missed.
    pub(super) fn say_words_to(&self, other: JobId, turn: &mut Turn<'_>) {
        for word in self.het_words() {
            self.tell(other, word, turn);
        }
    }

    /// Repeats and asks for what the components may have missed.
    pub(super) fn het_exchange(&self, turn: &mut Turn<'_>) {
        if let Some(leader) = self.het_leader() {
            if !self.is_over() {
                turn.tell_job(leader, JobInput::Subscribe { by: self.record.id });
            }
            return self.tell_leader(leader, turn);
        }
        for other in self.others() {
            self.say_words_to(other, turn);
        }
    }

    /// Another job asks for this one's state. A component also gets what it may have missed from its leader.
    pub(super) fn het_asked(&self, by: JobId, turn: &mut Turn<'_>) {
        if self.others().any(|other| other == by) {
            self.say_words_to(by, turn);
        }
    }

    /// Its run ends or has ended, and it is to wait with the others again.
    pub(super) fn is_queued_again(&self) -> bool {
        let phase = &self.record.phase;
        let ending = phase.working().and_then(|run| run.ending.as_ref()).map(|ending| ending.then);
        let then = ending.or(phase.end().map(|end| end.then));
        matches!(then, Some(Afterwards::Requeue { .. }))
    }

    /// The leader waits again. Only the leader is held, or has a begin time.
    pub(super) fn wait_with_leader(&mut self, turn: &mut Turn<'_>) {
        if !self.is_queued_again() {
            let then = Afterwards::Requeue { hold: None, delay: false };
            self.end_with_leader(JobState::Cancelled, then, None, turn);
        }
    }

    /// Tells the leader the state of the run.
    pub(super) fn tell_leader(&self, leader: JobId, turn: &mut Turn<'_>) {
        let sluid = self.record.sluid;
        if let Some(End { state, reason, .. }) = self.record.phase.end().filter(|_| self.record.phase.run().is_some()) {
            self.tell(leader, HetMessage::Ended { sluid, state: *state, reason: reason.clone() }, turn);
        } else if self.record.phase.run().is_some_and(|run| run.started.is_some()) {
            self.tell(leader, HetMessage::Started { sluid }, turn);
        }
    }

    /// The leader is not launched before the step managers of all others are ready.
    pub(super) fn het_holds_launch(&self) -> bool {
        matches!(&self.record.phase, Phase::Starting(_))
            && !self.others().all(|other| self.het.serving.contains(&other))
    }

    /// A component's step manager is ready: its leader may be waiting for that.
    pub(super) fn het_started(&self, turn: &mut Turn<'_>) {
        if let Some(leader) = self.het_leader() {
            self.tell_leader(leader, turn);
        }
    }

    /// The run, or the job that never ran, is over. The others end with their leader.
    pub(super) fn het_ended(&self, turn: &mut Turn<'_>) {
        if let Some(leader) = self.het_leader() {
            return self.tell_leader(leader, turn);
        }
        if let Some(end) = self.record.phase.end() {
            let message = HetMessage::End { state: end.state, then: end.then, by: None };
            self.tell_others(&message, turn);
        }
    }

    /// All components are to end, and this follows.
    pub(super) fn het_end_others(&self, state: JobState, then: Afterwards, by: Option<u32>, turn: &mut Turn<'_>) {
        self.tell_others(&HetMessage::End { state, then, by }, turn);
    }

    /// All components are preempted by another job.
    pub(super) fn het_have_others_give_way(&self, mark: &PreemptMark, turn: &mut Turn<'_>) {
        self.tell_others(&HetMessage::GiveWay { mark: Box::new(mark.clone()) }, turn);
    }

    /// As the leader said when this component's part was prepared.
    pub(super) const fn het_leader_may_be_requeued(&self) -> bool {
        self.het.requeue
    }

    /// Whether the job is requeued is the same for all components. They know it from the start, and are told changes.
    pub(super) fn het_set_requeue(&self, turn: &mut Turn<'_>) {
        if let Some(message) = self.changed_requeue() {
            self.tell_others(&message, turn);
        }
    }

    fn changed_requeue(&self) -> Option<HetMessage> {
        let policy = self.requeue_policy(self.record.phase.working()?);
        (policy.revision > 0).then_some(HetMessage::SetRequeue { allowed: policy.allowed })
    }

    fn is_of_this_run(&self, other: JobId, sluid: Sluid) -> bool {
        let run = self.record.phase.working();
        run.is_some_and(|run| run.parts.iter().any(|part| part.job == other && part.sluid == sluid))
    }

    pub(super) fn other_serves(&mut self, other: JobId, sluid: Sluid, turn: &mut Turn<'_>) {
        if !self.is_of_this_run(other, sluid) {
            return;
        }
        // Its owner may have been rebuilt since it was told.
        if let Some(message) = self.changed_requeue() {
            self.tell(other, message, turn);
        }
        if !self.het.serving.insert(other) {
            return;
        }
        let wanted = self.record.phase.working().is_some_and(|run| run.ending.is_none());
        if wanted && matches!(self.record.phase, Phase::Starting(_)) && !self.het_holds_launch() {
            self.launch(turn);
            self.limit_launch(turn);
        }
    }

    /// A component that was cancelled by itself, or reached its time limit, ends alone. One that a node failed, or that could not
    /// be launched, ends the whole job.
    pub(super) fn other_ended(
        &mut self,
        other: JobId,
        sluid: Sluid,
        state: JobState,
        reason: Reason,
        turn: &mut Turn<'_>,
    ) {
        if !self.is_of_this_run(other, sluid) {
            return;
        }
        let Some(run) = self.record.phase.working() else { return };
        let served = matches!(self.record.phase, Phase::Running(_) | Phase::Suspended(_)) || !self.het_holds_launch();
        let failed = matches!(state, JobState::NodeFail | JobState::BootFail);
        if run.ending.is_some() || (served && !failed) {
            return;
        }
        let batch = self.record.spec.kind == JobKind::Batch;
        let then = match state {
            _ if failed => self.after_node_failure(),
            JobState::Failed if batch => Afterwards::Requeue { hold: Some(HeldBy::LaunchFailure), delay: false },
            _ => Afterwards::Over,
        };
        self.save(JobEvent::Ending(Ending { state, reason, then, by: None, at: Some(turn.now), unasked: true }), turn);
        self.ask_for_end(turn);
        self.het_end_others(state, then, None, turn);
    }

    pub(super) fn end_with_leader(&mut self, state: JobState, then: Afterwards, by: Option<u32>, turn: &mut Turn<'_>) {
        let over = then == Afterwards::Over;
        match &self.record.phase {
            Phase::Pending if over => {
                let _ = self.cancel(state, by, turn);
            }
            // It is requeued already.
            Phase::Pending => {}
            Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run) => {
                if run.ending.as_ref().is_none_or(|ending| ending.then != then) {
                    let reason = Reason::None;
                    self.save(
                        JobEvent::Ending(Ending { state, reason, then, by, at: Some(turn.now), unasked: false }),
                        turn,
                    );
                }
                self.ask_for_end(turn);
            }
            Phase::Completing(_, end) => {
                if end.then != then {
                    let reason = Reason::None;
                    self.save(
                        JobEvent::Ending(Ending { state, reason, then, by, at: Some(turn.now), unasked: false }),
                        turn,
                    );
                    if self.is_over() {
                        self.after_end(turn);
                    }
                }
            }
            Phase::Over(..) if over => {}
            Phase::Over(..) => self.back_with_leader(then, turn),
        }
    }
}
