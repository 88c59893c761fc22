//! How all components of a heterogeneous job get their allocations at one time: prepared by each, recorded by the leader.

use super::HetMessage;
use crate::{
    job::{
        core::{Commit, JobCore, Turn},
        het::HetState,
        messages::{JobEffect, JobInput, JobTimer},
        record::{Phase, Run},
        start::COMMIT_LIMIT,
        state::JobEvent,
    },
    scheduler::plan::StartProposal,
};
use garrick_model::{ids::JobId, messages::node::HetComponent};

impl JobCore {
    /// While the leader's word is awaited, nothing may be recorded or given back. `None`: it was put off.
    pub(in crate::job) fn het_puts_off(&mut self, input: JobInput) -> Option<JobInput> {
        let waits = self.het_puts_off_anything();
        let matters = matches!(
            input,
            JobInput::Command { .. }
                | JobInput::NodeLost { .. }
                | JobInput::Fact { .. }
                | JobInput::Siblings { .. }
                | JobInput::Site(_)
                | JobInput::Timer(JobTimer::Eligible | JobTimer::Deadline | JobTimer::Immediate)
        );
        if waits && matters {
            self.het.put_off.push(input);
            return None;
        }
        Some(input)
    }

    /// The leader's word is awaited.
    pub(in crate::job) const fn het_puts_off_anything(&self) -> bool {
        self.het.ready.is_some() || self.het.limbo.is_some()
    }

    /// Nodes that an earlier life prepared and that the leader has not decided about.
    pub(in crate::job) fn het_undecided_nodes(&self) -> Vec<String> {
        self.het.limbo.as_ref().map_or_else(Vec::new, |(_, nodes)| nodes.clone())
    }

    /// What was put off, once there is word.
    pub(in crate::job) fn het_take_put_off(&mut self) -> Vec<JobInput> {
        if self.het_puts_off_anything() {
            return Vec::new();
        }
        std::mem::take(&mut self.het.put_off)
    }

    /// Has the others prepare their parts of the attempt under way.
    pub(in crate::job) fn het_prepare(&mut self, others: Vec<StartProposal>, turn: &mut Turn<'_>) {
        self.het.prepared.clear();
        let (attempt, requeue) = (self.attempt, self.may_be_requeued());
        for proposal in others {
            let to = proposal.job;
            self.tell(to, HetMessage::Prepare { attempt, requeue, proposal: Box::new(proposal) }, turn);
        }
    }

    /// The attempt's own nodes and licenses are there. True when it may be recorded now.
    pub(in crate::job) fn het_may_allocate(&mut self, turn: &mut Turn<'_>) -> bool {
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
            spec: self.shown_spec.clone(),
            nodes: run.allocation.nodes.clone(),
            partition: run.allocation.partition.clone(),
            tasks: self.record.resolved.tasks,
            cpus_per_task: self.record.resolved.cpus_per_task,
        };
        let message = HetMessage::Prepared { attempt, run: run.clone(), component: Box::new(component) };
        self.tell(leader, message, turn);
        turn.out.push(JobEffect::SetTimer { timer: JobTimer::Commit, at: turn.now.plus(COMMIT_LIMIT) });
    }

    /// What the leader's run is told of the others, in their order; they are recorded with it.
    pub(in crate::job) fn het_parts(&self) -> Vec<HetComponent> {
        self.het.prepared.values().map(|(_, component)| (**component).clone()).collect()
    }

    /// Has the allocations of the others recorded with the leader's own.
    pub(in crate::job) fn het_grant(&mut self, turn: &mut Turn<'_>) {
        let attempt = self.attempt;
        self.het.serving.clear();
        self.het.granted.clear();
        for (job, (mut run, _)) in std::mem::take(&mut self.het.prepared) {
            run.start = turn.now;
            self.het.granted.insert(job, run.clone());
            turn.out.push(JobEffect::Grant { job, attempt, run });
        }
    }

    /// An attempt is given up: the leader tells the others, they tell the leader. True: the scheduler is to be told.
    pub(in crate::job) fn het_abandoned(&mut self, attempt: u64, turn: &mut Turn<'_>) -> bool {
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

    /// The commit's timer. True: it was about what the leader has to decide.
    pub(in crate::job) fn het_still_waits(&self, turn: &mut Turn<'_>) -> bool {
        match self.het_leader() {
            Some(_) if self.het.ready.is_some() => self.say_prepared(turn),
            Some(leader) if self.het.limbo.is_some() => {
                self.tell(leader, HetMessage::Lost, turn);
                turn.out.push(JobEffect::SetTimer { timer: JobTimer::Commit, at: turn.now.plus(COMMIT_LIMIT) });
            }
            _ => return false,
        }
        true
    }

    pub(super) fn prepare(&mut self, attempt: u64, requeue: bool, proposal: StartProposal, turn: &mut Turn<'_>) {
        if self.het.of_attempt == Some(attempt) && self.commit.is_some() {
            return self.say_prepared(turn);
        }
        let wanted = self.is_eligible(turn.now)
            && self.commit.is_none()
            && self.het.limbo.is_none()
            && !proposal.nodes.is_empty()
            && self.record.resolved.partitions.contains(&proposal.partition);
        match self.het_leader() {
            Some(leader) if !wanted => self.tell(leader, HetMessage::Declined { attempt }, turn),
            _ => {
                (self.het.of_attempt, self.het.requeue) = (Some(attempt), requeue);
                self.commit(proposal, turn);
            }
        }
    }

    pub(super) fn give_back(&mut self, attempt: u64, turn: &mut Turn<'_>) {
        if let Some((attempt, nodes)) = self.het.limbo.take() {
            let sluid = self.record.sluid;
            for node in nodes {
                turn.out.push(JobEffect::Release { node, sluid, attempt: Some(attempt), drain: None });
            }
            if self.record.spec.licenses.is_some() {
                turn.out.push(JobEffect::ReleaseLicenses { attempt: Some(attempt) });
            }
            turn.out.push(JobEffect::ClearTimer(JobTimer::Commit));
        }
        if self.het.of_attempt == Some(attempt) {
            // The leader knows.
            self.het.of_attempt = None;
            self.abandon_commit(turn);
        }
    }

    pub(super) fn take_granted(&mut self, attempt: u64, run: Run, turn: &mut Turn<'_>) {
        let expected = self.het.of_attempt == Some(attempt) && self.het.ready.is_some();
        if !matches!(self.record.phase, Phase::Pending) || !(expected || self.het.limbo.is_some()) {
            return;
        }
        self.het = HetState { put_off: std::mem::take(&mut self.het.put_off), ..HetState::default() };
        self.commit = None;
        turn.out.push(JobEffect::ClearTimer(JobTimer::Commit));
        self.adopt(&JobEvent::Allocated(Box::new(run)));
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
            // Said again, since the answer has not come.
            let recorded = attempt == self.attempt
                && self.record.phase.run().is_some_and(|own| {
                    own.parts.iter().any(|part| {
                        part.job == from && part.sluid == component.sluid && part.nodes == run.allocation.nodes
                    })
                });
            let message = if recorded { HetMessage::Granted { attempt, run } } else { HetMessage::Abandon { attempt } };
            return self.tell(from, message, turn);
        }
        self.het.prepared.insert(from, (run, component));
        if self.commit.as_ref().is_some_and(Commit::has_all) {
            self.committed(turn);
        }
    }

    pub(super) fn other_lost(&mut self, from: JobId, turn: &mut Turn<'_>) {
        let attempt = self.attempt;
        let recorded = self.record.phase.run().and(self.het.granted.get(&from)).cloned();
        match recorded {
            Some(run) => self.tell(from, HetMessage::Granted { attempt, run }, turn),
            None => {
                self.abandon_commit(turn);
                self.tell(from, HetMessage::Abandon { attempt }, turn);
            }
        }
    }
}
