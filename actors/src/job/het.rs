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

use super::{
    core::{Commit, JobCore, Turn},
    messages::{JobCommand, JobEffect, JobInput, JobTimer},
    record::{Afterwards, End, Ending, HeldBy, Phase, PreemptMark, Run},
    start::COMMIT_LIMIT,
    state::JobEvent,
};
use crate::scheduler::plan::StartProposal;
use garrick_model::{
    ids::{JobId, Sluid},
    messages::node::HetComponent,
    refusal::Refusal,
    spec::JobKind,
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

    /// While the leader's word is awaited, nothing may be recorded or given back. `None`: it was put off.
    pub(super) fn het_puts_off(&mut self, input: JobInput) -> Option<JobInput> {
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
    pub(super) const fn het_puts_off_anything(&self) -> bool {
        self.het.ready.is_some() || self.het.limbo.is_some()
    }

    /// Nodes that an earlier life prepared and that the leader has not decided about.
    pub(super) fn het_undecided_nodes(&self) -> Vec<String> {
        self.het.limbo.as_ref().map_or_else(Vec::new, |(_, nodes)| nodes.clone())
    }

    /// What was put off, once there is word.
    pub(super) fn het_take_put_off(&mut self) -> Vec<JobInput> {
        if self.het_puts_off_anything() {
            return Vec::new();
        }
        std::mem::take(&mut self.het.put_off)
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
                None => self.tell_others(&HetMessage::Ask, turn),
            },
            Phase::Completing(_, end) | Phase::Over(_, end) => {
                let message = HetMessage::End { state: end.state, then: end.then, by: None };
                self.tell_others(&message, turn);
            }
        }
    }

    /// Tells the leader how far the run is.
    fn tell_leader(&self, leader: JobId, turn: &mut Turn<'_>) {
        let sluid = self.record.sluid;
        if let Some(End { state, reason, .. }) = self.record.phase.end().filter(|_| self.record.phase.run().is_some()) {
            self.tell(leader, HetMessage::Ended { sluid, state: *state, reason: reason.clone() }, turn);
        } else if self.record.phase.run().is_some_and(|run| run.started.is_some()) {
            self.tell(leader, HetMessage::Started { sluid }, turn);
        }
    }

    /// Has the others prepare their parts of the attempt under way.
    pub(super) fn het_prepare(&mut self, others: Vec<StartProposal>, turn: &mut Turn<'_>) {
        self.het.prepared.clear();
        let attempt = self.attempt;
        for proposal in others {
            let to = proposal.job;
            self.tell(to, HetMessage::Prepare { attempt, proposal: Box::new(proposal) }, turn);
        }
    }

    /// The attempt's own nodes and licenses are there. True when it may be recorded now.
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

    fn say_prepared(&self, turn: &mut Turn<'_>) {
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
    pub(super) fn het_parts(&self) -> Vec<HetComponent> {
        self.het.prepared.values().map(|(_, component)| (**component).clone()).collect()
    }

    /// Has the allocations of the others recorded with the leader's own.
    pub(super) fn het_grant(&mut self, turn: &mut Turn<'_>) {
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

    /// The commit's timer. True: it was about what the leader has to decide.
    pub(super) fn het_still_waits(&self, turn: &mut Turn<'_>) -> bool {
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

    /// The leader is not launched before the step managers of all others serve.
    pub(super) fn het_holds_launch(&self) -> bool {
        matches!(&self.record.phase, Phase::Starting(_))
            && !self.others().all(|other| self.het.serving.contains(&other))
    }

    /// A component serves: its leader may be waiting for that.
    pub(super) fn het_started(&self, turn: &mut Turn<'_>) {
        if let Some(leader) = self.het_leader() {
            self.tell_leader(leader, turn);
        }
    }

    /// The run, or the job that never ran, is over. Others end with their leader.
    pub(super) fn het_ended(&self, turn: &mut Turn<'_>) {
        if let Some(leader) = self.het_leader() {
            return self.tell_leader(leader, turn);
        }
        if let Some(end) = self.record.phase.end() {
            let message = HetMessage::End { state: end.state, then: end.then, by: None };
            self.tell_others(&message, turn);
        }
    }

    /// All of it is to end, and this is to follow.
    pub(super) fn het_end_others(&self, state: JobState, then: Afterwards, by: Option<u32>, turn: &mut Turn<'_>) {
        self.tell_others(&HetMessage::End { state, then, by }, turn);
    }

    /// All of it gives way to another job.
    pub(super) fn het_have_others_give_way(&self, mark: &PreemptMark, turn: &mut Turn<'_>) {
        self.tell_others(&HetMessage::GiveWay { mark: Box::new(mark.clone()) }, turn);
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
            HetMessage::Prepare { attempt, proposal } if from_leader => self.prepare(attempt, *proposal, turn),
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

    fn prepare(&mut self, attempt: u64, proposal: StartProposal, turn: &mut Turn<'_>) {
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
                self.het.of_attempt = Some(attempt);
                self.commit(proposal, turn);
            }
        }
    }

    fn give_back(&mut self, attempt: u64, turn: &mut Turn<'_>) {
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

    fn take_granted(&mut self, attempt: u64, run: Run, turn: &mut Turn<'_>) {
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

    fn other_prepared(
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

    fn other_lost(&mut self, from: JobId, turn: &mut Turn<'_>) {
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

    fn is_of_this_run(&self, other: JobId, sluid: Sluid) -> bool {
        let run = self.record.phase.working();
        run.is_some_and(|run| run.parts.iter().any(|part| part.job == other && part.sluid == sluid))
    }

    fn other_serves(&mut self, other: JobId, sluid: Sluid, turn: &mut Turn<'_>) {
        if !self.is_of_this_run(other, sluid) || !self.het.serving.insert(other) {
            return;
        }
        let wanted = self.record.phase.working().is_some_and(|run| run.ending.is_none());
        if wanted && matches!(self.record.phase, Phase::Starting(_)) && !self.het_holds_launch() {
            self.launch(turn);
            self.limit_launch(turn);
        }
    }

    /// A component that was cancelled by itself, or used up its time, ends alone. One that a node failed, or that could not
    /// be launched, ends the whole job.
    fn other_ended(&mut self, other: JobId, sluid: Sluid, state: JobState, reason: Reason, turn: &mut Turn<'_>) {
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
        self.save(JobEvent::Ending(Ending { state, reason, then, by: None }), turn);
        self.ask_for_end(turn);
        self.het_end_others(state, then, None, turn);
    }

    pub(super) fn end_with_leader(&mut self, state: JobState, then: Afterwards, by: Option<u32>, turn: &mut Turn<'_>) {
        if self.het.ready.is_some() || self.het.limbo.is_some() || self.commit.is_some() {
            // It ended before it recorded anything of this attempt.
            let attempt = self.het.of_attempt.unwrap_or(0);
            self.give_back(attempt, turn);
        }
        let over = then == Afterwards::Over;
        match &self.record.phase {
            Phase::Pending if over => {
                let _ = self.cancel(state, by, turn);
            }
            // It is back already.
            Phase::Pending => {}
            Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run) => {
                if run.ending.as_ref().is_none_or(|ending| ending.then != then) {
                    let reason = Reason::None;
                    self.save(JobEvent::Ending(Ending { state, reason, then, by }), turn);
                }
                self.ask_for_end(turn);
            }
            Phase::Completing(_, end) => {
                if end.then != then {
                    let reason = Reason::None;
                    self.save(JobEvent::Ending(Ending { state, reason, then, by }), turn);
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
