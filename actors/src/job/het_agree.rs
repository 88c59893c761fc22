//! How all components of a heterogeneous job get their allocations at one time: each prepares, and the leader records.

use super::{
    core::{Commit, JobCore, Turn},
    effects::JobEffect,
    het::{Granted, HetState},
    start::COMMIT_LIMIT,
    view,
};
use crate::messages::{
    het::HetMessage,
    job::{JobInput, JobTimer},
    letter::Letter,
    license::LicenseInput,
    node::NodeInput,
};
use garrick_events::{
    event::ControllerEvent,
    records::{
        job::{Phase, Run},
        job_event::JobEvent,
    },
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::node::HetComponent,
};
use garrick_plan::proposals::StartProposal;
use std::sync::Arc;

impl JobCore {
    /// While it waits for the leader's answer, nothing may be recorded or released. `None`: the input was deferred. This includes
    /// the end of the leader's run: it may be the run whose grant has not arrived.
    pub(super) fn het_puts_off(&mut self, input: JobInput) -> Option<JobInput> {
        let waits = self.het_puts_off_anything();
        let matters = match &input {
            // No leader is left that could answer.
            JobInput::Fact { job, fact: None } => self.het_leader() != Some(*job),
            JobInput::Het { message, .. } => matches!(**message, HetMessage::End { .. } | HetMessage::GiveWay { .. }),
            JobInput::Command { .. }
            | JobInput::NodeLost { .. }
            | JobInput::NodeReady { .. }
            | JobInput::Fact { .. }
            | JobInput::Siblings { .. }
            | JobInput::Site(_)
            | JobInput::Timer(JobTimer::Eligible | JobTimer::Deadline | JobTimer::Immediate) => true,
            _ => false,
        };
        if waits && matters {
            if !self.het.put_off.contains(&input) {
                self.het.put_off.push(input);
            }
            return None;
        }
        Some(input)
    }

    /// It waits for the leader's answer.
    pub(super) const fn het_puts_off_anything(&self) -> bool {
        self.het.ready.is_some() || self.het.limbo.is_some()
    }

    /// Nodes that an earlier life prepared and that the leader has not decided about.
    pub(super) fn het_undecided_nodes(&self) -> Vec<String> {
        self.het.limbo.as_ref().map_or_else(Vec::new, |(_, nodes)| nodes.clone())
    }

    /// An earlier life asked for nodes and licenses in that attempt, and the leader has not decided about it.
    pub(super) fn het_is_undecided(&self, attempt: u64) -> bool {
        self.het.limbo.as_ref().is_some_and(|(of, _)| *of == attempt)
    }

    /// The deferred inputs, once the leader has answered.
    pub(super) fn het_take_put_off(&mut self) -> Vec<JobInput> {
        if self.het_puts_off_anything() {
            return Vec::new();
        }
        std::mem::take(&mut self.het.put_off)
    }

    /// Makes the others prepare their parts of the current attempt.
    pub(super) fn het_prepare(&mut self, others: Vec<StartProposal>, turn: &mut Turn<'_>) {
        self.het.prepared.clear();
        let (attempt, requeue) = (self.attempt, self.may_be_requeued());
        for proposal in others {
            let to = proposal.job;
            self.tell(to, HetMessage::Prepare { attempt, requeue, proposal: Box::new(proposal) }, turn);
        }
    }

    /// The attempt's own nodes and licenses are reserved. True if it may be recorded now.
    pub(super) fn het_may_allocate(&mut self, turn: &mut Turn<'_>) -> bool {
        if self.het_leader().is_some() {
            if let Some(commit) = &self.commit {
                self.het.ready = Some(Box::new(self.run_of(commit, turn.now)));
            }
            self.say_prepared(turn);
            return false;
        }
        self.others().all(|other| self.het.prepared.contains_key(&other))
    }

    pub(super) fn say_prepared(&self, turn: &mut Turn<'_>) {
        let (Some(leader), Some(attempt), Some(run)) = (self.het_leader(), self.het.of_attempt, &self.het.ready) else {
            return;
        };
        let component = HetComponent {
            job: self.record.id,
            sluid: self.record.sluid,
            spec: Arc::new(view::told_spec(&self.record.spec)),
            nodes: run.allocation.nodes.clone(),
            partition: run.allocation.partition.clone(),
            tasks: self.record.resolved.tasks,
            cpus_per_task: self.record.resolved.cpus_per_task,
        };
        let message = HetMessage::Prepared { attempt, run: run.clone(), component: Box::new(component) };
        self.tell(leader, message, turn);
        turn.out.push(JobEffect::SetTimer { timer: JobTimer::Commit, at: turn.now.plus(COMMIT_LIMIT) });
    }

    /// The other components for the leader's run, in order; they are recorded with it.
    pub(super) fn het_parts(&self) -> Vec<HetComponent> {
        self.het.prepared.values().map(|(_, component)| (**component).clone()).collect()
    }

    /// Records the allocations of the others together with the leader's own.
    pub(super) fn het_grant(&mut self, turn: &mut Turn<'_>) {
        self.het.serving.clear();
        let mut granted = Granted::new();
        for (job, (mut run, component)) in std::mem::take(&mut self.het.prepared) {
            let sluid = component.sluid;
            run.start = turn.now;
            granted.insert(job, (sluid, run.clone()));
            let event = Box::new(JobEvent::Allocated(run.clone()));
            turn.out.push(JobEffect::Save(ControllerEvent::Job { job, event }));
            self.tell(job, HetMessage::Granted { sluid, run }, turn);
        }
        self.het.granted = Arc::new(granted);
    }

    /// Tells a component's owner again what was recorded for its run, and what has happened since.
    fn grant_again(&self, other: JobId, sluid: Sluid, turn: &mut Turn<'_>) -> bool {
        let Some((_, run)) = self.het.granted.get(&other).filter(|(of, _)| *of == sluid) else { return false };
        self.tell(other, HetMessage::Granted { sluid, run: run.clone() }, turn);
        self.say_words_to(other, turn);
        true
    }

    /// An attempt is given up: the leader tells the others, or they tell the leader. True: tell the scheduler.
    pub(super) fn het_abandoned(&mut self, attempt: u64, turn: &mut Turn<'_>) -> bool {
        self.het.prepared.clear();
        self.het.ready = None;
        if let Some(leader) = self.het_leader() {
            if let Some(attempt) = self.het.of_attempt.take() {
                self.tell(leader, HetMessage::Declined { attempt }, turn);
            }
            return false;
        }
        self.tell_others(&HetMessage::Abandon { attempt }, turn);
        true
    }

    /// The commit's timer. True: the leader has to decide.
    pub(super) fn het_still_waits(&self, turn: &mut Turn<'_>) -> bool {
        match self.het_leader() {
            Some(_) if self.het.ready.is_some() => self.say_prepared(turn),
            Some(_) if self.het.limbo.is_some() => self.say_lost(turn),
            _ => return false,
        }
        true
    }

    pub(super) fn say_lost(&self, turn: &mut Turn<'_>) {
        if let Some(leader) = self.het_leader() {
            self.tell(leader, HetMessage::Lost { sluid: self.record.sluid }, turn);
            turn.out.push(JobEffect::SetTimer { timer: JobTimer::Commit, at: turn.now.plus(COMMIT_LIMIT) });
        }
    }

    pub(super) fn prepare(&mut self, attempt: u64, requeue: bool, proposal: StartProposal, turn: &mut Turn<'_>) {
        if self.het.of_attempt == Some(attempt) && self.commit.is_some() {
            return self.say_prepared(turn);
        }
        let wanted = self.is_eligible(turn.now)
            && self.commit.is_none()
            && self.het.limbo.is_none()
            && !proposal.nodes.is_empty()
            && self.record.resolved.partitions.contains(&proposal.partition)
            && self.chosen_qos(&proposal).is_ok();
        match self.het_leader() {
            Some(leader) if !wanted => self.tell(leader, HetMessage::Declined { attempt }, turn),
            _ => {
                (self.het.of_attempt, self.het.requeue) = (Some(attempt), requeue);
                self.commit(proposal, turn);
            }
        }
    }

    pub(super) fn give_back(&mut self, attempt: u64, turn: &mut Turn<'_>) {
        if self.het.of_attempt == Some(attempt) {
            // The leader knows.
            self.het.of_attempt = None;
            self.abandon_commit(turn);
        }
    }

    /// Nothing that an earlier life prepared was or will be recorded.
    pub(super) fn leave_limbo(&mut self, turn: &mut Turn<'_>) {
        let Some((attempt, nodes)) = self.het.limbo.take() else { return };
        let sluid = self.record.sluid;
        for node in nodes {
            turn.tell_node(
                node,
                NodeInput::Release { job: self.record.id, sluid, attempt: Some(attempt), drain: None },
            );
        }
        if self.record.spec.licenses.is_some() {
            turn.tell(Letter::Licenses(LicenseInput::Release { job: self.record.id, attempt: Some(attempt) }));
        }
        turn.out.push(JobEffect::ClearTimer(JobTimer::Commit));
    }

    /// The leader is unknown now: what is or was prepared is released.
    pub(super) fn het_gives_all_back(&mut self, turn: &mut Turn<'_>) {
        self.leave_limbo(turn);
        self.het.of_attempt = None;
        self.abandon_commit(turn);
    }

    pub(super) fn take_granted(&mut self, sluid: Sluid, run: Run, turn: &mut Turn<'_>) {
        let expected = sluid == self.record.sluid && self.het_puts_off_anything();
        if !matches!(self.record.phase, Phase::Pending) || !expected {
            return;
        }
        self.het = HetState { put_off: std::mem::take(&mut self.het.put_off), ..HetState::default() };
        self.commit = None;
        turn.out.push(JobEffect::ClearTimer(JobTimer::Commit));
        self.adopt(&JobEvent::Allocated(Box::new(run)));
        self.ask_reboots(turn);
        self.launch(turn);
        self.limit_launch(turn);
    }

    pub(super) fn other_prepared(
        &mut self,
        from: JobId,
        attempt: u64,
        run: Box<Run>,
        component: Box<HetComponent>,
        turn: &mut Turn<'_>,
    ) {
        let under_way = self.commit.is_some() && attempt == self.attempt;
        if !under_way {
            // Repeated, since the answer has not come.
            if !self.grant_again(from, component.sluid, turn) {
                self.tell(from, HetMessage::Abandon { attempt }, turn);
            }
            return;
        }
        self.het.prepared.insert(from, (run, component));
        if self.commit.as_ref().is_some_and(Commit::has_all) {
            self.committed(turn);
        }
    }

    pub(super) fn other_lost(&mut self, from: JobId, sluid: Sluid, turn: &mut Turn<'_>) {
        if !self.grant_again(from, sluid, turn) {
            // What it prepared may belong to the current attempt.
            self.abandon_commit(turn);
            self.tell(from, HetMessage::NotGranted { sluid }, turn);
        }
    }
}
