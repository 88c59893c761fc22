//! How runs end (on request, by deadline), and what follows: cleaning the nodes, a requeue, or forgetting the job.

use super::{
    core::{JobCore, Turn},
    effects::{JobEffect, JobShown},
    fencing::GivenUpBy,
};
use crate::messages::{
    job::{JobAnswer, JobInput, JobTimer},
    letter::{Letter, end_lost},
    node::NodeInput,
};
use garrick_events::records::{
    job::{Afterwards, EarlierHold, End, Ending, HeldBy, Phase},
    job_event::{JobEvent, requeues},
};
use garrick_model::{
    ids::Sluid,
    messages::node::ControllerToNode,
    packed_steps::StepTally,
    refusal::Refusal,
    spec::JobKind,
    state::{ExitStatus, JobState, Reason},
    time::Timestamp,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// How often nodes that have not reported the end of a run are told again to end it.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(60);
/// An array's record is kept while tasks of it are not over, and a task's record until its array has noted its end. After this
/// time forgetting is tried again.
const ARRAY_PURGE_RETRY: Duration = Duration::from_secs(60);

/// How a job is requeued.
#[derive(Clone, Copy, Debug)]
enum BackAs {
    /// In order of priority.
    Ordinary {
        /// Held.
        hold: Option<HeldBy>,
        /// Not before the usual delay.
        delay: bool,
    },
    /// Ahead of all others, at once.
    Expedited,
}

impl JobCore {
    pub(super) fn cancel(&mut self, state: JobState, by: Option<u32>, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        let reason = if state == JobState::Timeout { Reason::TimeLimit } else { Reason::None };
        self.cancel_for(state, reason, by, turn)
    }

    /// The same with that reason, where it runs.
    fn cancel_for(
        &mut self,
        state: JobState,
        reason: Reason,
        by: Option<u32>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let ending = Ending { state, reason, then: Afterwards::Over, by, at: Some(turn.now), unasked: false };
        match &self.record.phase {
            Phase::Pending => {
                self.abandon_commit(turn);
                self.let_go_of_kept(turn);
                self.end(End { by, ..self.end_without_run(state, turn) }, turn);
                Ok(())
            }
            Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run) => {
                if run.ending.as_ref().is_none_or(|e| e.then != Afterwards::Over) {
                    self.save(JobEvent::Ending(ending), turn);
                }
                self.ask_for_end(turn);
                self.het_end_others(state, Afterwards::Over, by, turn);
                Ok(())
            }
            Phase::Completing(_, end) if end.then != Afterwards::Over => {
                self.save(JobEvent::Ending(ending), turn);
                self.let_go_of_kept(turn);
                self.het_end_others(state, Afterwards::Over, by, turn);
                Ok(())
            }
            Phase::Completing(..) | Phase::Over(..) => Err(Refusal::AlreadyDone),
        }
    }

    fn end_without_run(&self, state: JobState, turn: &Turn<'_>) -> End {
        End {
            state,
            reason: match state {
                JobState::Deadline => Reason::Other("DeadLine".to_owned()),
                _ => self.pending_reason(turn.now),
            },
            exit: ExitStatus::SUCCESS,
            derived: ExitStatus::SUCCESS,
            at: turn.now,
            then: Afterwards::Over,
            cause: None,
            by: None,
            sluid: None,
        }
    }

    pub(super) fn requeue(&mut self, hold: Option<HeldBy>, by: u32, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        if self.record.spec.kind != JobKind::Batch || !self.record.resolved.requeue {
            return Err(Refusal::Disabled);
        }
        let then = match hold {
            // It does not wait, whoever asks.
            None if self.is_expedited() => Afterwards::Expedite,
            _ => Afterwards::Requeue { hold, delay: true },
        };
        match &self.record.phase {
            Phase::Pending => Err(Refusal::JobPending),
            Phase::Over(..) => {
                self.back_to_queue(BackAs::Ordinary { hold, delay: false }, turn);
                Ok(())
            }
            phase => {
                let again = phase.working().is_some_and(|r| r.ending.as_ref().is_some_and(|e| e.then == then));
                if !again {
                    let reason = Reason::Other("JOB REQUEUE".to_owned());
                    let (state, at) = (JobState::Cancelled, Some(turn.now));
                    self.save(JobEvent::Ending(Ending { state, reason, then, by: Some(by), at, unasked: false }), turn);
                    if then != Afterwards::Expedite {
                        self.let_go_of_kept(turn);
                    }
                }
                self.ask_for_end(turn);
                self.het_end_others(JobState::Cancelled, then, Some(by), turn);
                // An expedited job does not wait for nodes that were lost.
                if self.is_over() {
                    self.after_end(turn);
                }
                Ok(())
            }
        }
    }

    /// A run that waits for nodes to come was launched nowhere: it ends at once.
    pub(super) fn end_unlaunched(&mut self, turn: &mut Turn<'_>) {
        let Phase::Starting(run) = &self.record.phase else { return };
        let Some(ending) = run.ending.clone().filter(|_| !run.booting.is_empty()) else { return };
        let (exit, at) = (ExitStatus::SUCCESS, turn.now);
        let Ending { state, reason, then, .. } = ending;
        self.end(End { state, reason, exit, derived: exit, at, then, cause: None, by: None, sluid: None }, turn);
    }

    /// Sends the requested end to the batch host, and shows the nodes as completing; a run that was launched nowhere ends at once.
    pub(super) fn ask_for_end(&mut self, turn: &mut Turn<'_>) {
        self.end_unlaunched(turn);
        let Some(run) = self.record.phase.working() else { return };
        let Some(ending) = &run.ending else { return };
        turn.send(
            run.batch_host().to_owned(),
            ControllerToNode::EndJob {
                job: self.record.id,
                sluid: self.record.sluid,
                state: ending.state,
                reason: ending.reason.clone(),
                lost: run.lost.iter().cloned().collect(),
            },
        );
        self.mark_completing(turn);
    }

    pub(super) fn mark_completing(&self, turn: &mut Turn<'_>) {
        if let Some(run) = self.record.phase.run() {
            for node in run.unclean() {
                let sluid = self.record.sluid;
                turn.tell_node(node.to_owned(), NodeInput::Completing { job: self.record.id, sluid });
            }
        }
    }

    /// Tells every node that still holds something of the ended run to end it. An agent that does not know the run answers that
    /// it is gone, so that a node which the launch never reached is released too. `but` cleans up unasked. The same applies to
    /// what earlier runs left on nodes that were given up, whatever the job does meanwhile.
    pub(super) fn clean_up(&self, but: Option<&str>, turn: &mut Turn<'_>) {
        let given_up = self.record.earlier.iter().filter(|hold| !hold.kept).map(|hold| (hold.sluid, &hold.node.name));
        let remains: BTreeSet<_> = given_up.chain(self.unfenced_earlier()).collect();
        for (sluid, node) in &remains {
            turn.tell(end_lost(self.record.id, (*node).clone(), *sluid));
        }
        match &self.record.phase {
            Phase::Completing(run, _) => {
                for node in run.unclean().filter(|node| Some(*node) != but) {
                    self.end_on(node, turn);
                }
            }
            _ if remains.is_empty() => return,
            _ => {}
        }
        turn.out.push(JobEffect::SetTimer { timer: JobTimer::CleanUp, at: turn.now.plus(CLEAN_UP_INTERVAL) });
    }

    pub(super) fn end_on(&self, node: &str, turn: &mut Turn<'_>) {
        let (Some(end), Some(run)) = (self.record.phase.end(), self.record.phase.run()) else { return };
        turn.send(
            node.to_owned(),
            ControllerToNode::EndJob {
                job: self.record.id,
                sluid: self.record.sluid,
                state: end.state,
                reason: end.reason.clone(),
                lost: run.lost.iter().cloned().collect(),
            },
        );
    }

    /// The job is over: it is requeued if requested, otherwise remembered for a while.
    pub(super) fn after_end(&mut self, turn: &mut Turn<'_>) {
        turn.out.push(JobEffect::ClearTimer(JobTimer::CleanUp));
        self.clean_up(None, turn);
        let Phase::Over(run, end) = &self.record.phase else { return };
        let back = requeues(run.as_ref(), end).then(|| match end.then {
            Afterwards::Requeue { hold, delay } => BackAs::Ordinary { hold, delay },
            Afterwards::Recur => BackAs::Ordinary { hold: None, delay: false },
            Afterwards::ExpediteOrHold if run.as_ref().is_none_or(|run| !run.epilog_failed) => {
                BackAs::Ordinary { hold: Some(HeldBy::ScriptFailure), delay: false }
            }
            _ => BackAs::Expedited,
        });
        if !matches!(back, Some(BackAs::Expedited)) {
            // They were kept for a next run that does not come, or not soon.
            for node in run.iter().flat_map(|run| &run.kept) {
                let (node, sluid) = (node.clone(), self.record.sluid);
                turn.tell_node(node, NodeInput::Release { job: self.record.id, sluid, attempt: None, drain: None });
            }
        }
        if let Some(back) = back {
            return self.back_to_queue(back, turn);
        }
        let at = end.at;
        self.leave_for_good(turn);
        if let Some(age) = self.site.min_job_age {
            turn.out.push(JobEffect::SetTimer { timer: JobTimer::Purge, at: at.plus(age).max(turn.now) });
        }
    }

    /// Releases what was kept for the next run: it will not be expedited, or not come at all.
    pub(super) fn let_go_of_kept(&mut self, turn: &mut Turn<'_>) {
        if let Phase::Completing(run, _) = &self.record.phase {
            let sluid = self.record.sluid;
            for node in run.kept.clone() {
                turn.tell_node(
                    node.clone(),
                    NodeInput::Release { job: self.record.id, sluid, attempt: None, drain: None },
                );
                self.save(JobEvent::NodeReleased { node, epilog_failed: false }, turn);
            }
        }
        self.release_earlier(|hold| hold.kept, turn);
        if self.record.expediting.is_some() {
            self.save(JobEvent::NotExpedited, turn);
        }
    }

    /// Releases some of what earlier runs still hold.
    pub(super) fn release_earlier(&mut self, which: impl Fn(&EarlierHold) -> bool, turn: &mut Turn<'_>) {
        let chosen: Vec<_> =
            self.record.earlier.iter().filter(|h| which(h)).map(|h| (h.sluid, h.node.name.clone())).collect();
        for (sluid, node) in chosen {
            turn.tell_node(node.clone(), NodeInput::Release { job: self.record.id, sluid, attempt: None, drain: None });
            self.save(JobEvent::EarlierReleased { sluid, node }, turn);
        }
    }

    /// Requeues another component of a heterogeneous job together with its leader.
    pub(super) fn back_with_leader(&mut self, then: Afterwards, turn: &mut Turn<'_>) {
        if let Afterwards::Requeue { hold, delay } = then {
            self.back_to_queue(BackAs::Ordinary { hold, delay }, turn);
        }
    }

    fn back_to_queue(&mut self, back: BackAs, turn: &mut Turn<'_>) {
        let sluid = turn.ids.sluid(turn.now);
        let (hold, begin, expedited) = match back {
            BackAs::Ordinary { hold, delay } => (
                hold.or(self.record.hold),
                delay.then(|| turn.now.plus(self.site.requeue_delay)).filter(|at| *at > turn.now),
                false,
            ),
            BackAs::Expedited => (None, None, true),
        };
        let begin = if expedited { begin } else { self.due_after(begin, turn.now) };
        turn.out.push(JobEffect::ClearTimer(JobTimer::Purge));
        if !expedited {
            self.het_end_others(JobState::Cancelled, Afterwards::Requeue { hold, delay: begin.is_some() }, None, turn);
        }
        let left: Vec<String> =
            self.record.phase.run().into_iter().flat_map(|run| run.unclean()).map(str::to_owned).collect();
        for node in left {
            self.leave_unfenced(&node, GivenUpBy::StepManager, turn);
        }
        self.save(JobEvent::Requeued { sluid, hold, begin, expedited, at: Some(turn.now) }, turn);
        self.policy_known.clear();
        (self.tally, self.tally_seq) = (StepTally::default(), 0);
        turn.out.push(JobEffect::Publish(JobShown::Steps(self.tally)));
        self.reason = Reason::None;
        self.expected = None;
        // Before it asks: its array answers nothing to a task that is over.
        self.tell_array(turn);
        // What happened to the jobs that it depends on while it was not waiting is unknown.
        self.siblings = None;
        self.ask_dependencies(turn);
        self.check_eligible(turn);
        self.await_deadline(turn);
        self.clean_up(None, turn);
    }

    pub(super) fn purge(&mut self, turn: &mut Turn<'_>) {
        if !self.is_over() {
            return;
        }
        // Nor while a node has something of it that no other job would ever ask for.
        let remains = self.record.earlier.iter().any(|hold| !hold.kept);
        if remains || self.record.array.as_ref().is_some_and(|a| a.live() > 0) {
            turn.out.push(JobEffect::SetTimer { timer: JobTimer::Purge, at: turn.now.plus(ARRAY_PURGE_RETRY) });
            return;
        }
        // Only the record can say how the task ended, if the news of it is lost in a restart.
        if let Some(array) = self.array_to_tell() {
            self.tell_array(turn);
            turn.tell_job(array, JobInput::Subscribe { by: self.record.id });
            turn.out.push(JobEffect::SetTimer { timer: JobTimer::Purge, at: turn.now.plus(ARRAY_PURGE_RETRY) });
            return;
        }
        // Its leader may be requeued as long as it is remembered, and then needs all components.
        if let Some(leader) = self.het_leader() {
            turn.tell_job(leader, JobInput::Subscribe { by: self.record.id });
            turn.out.push(JobEffect::SetTimer { timer: JobTimer::Purge, at: turn.now.plus(ARRAY_PURGE_RETRY) });
            return;
        }
        self.forget(turn);
    }

    /// The array has noted this task's end, or is itself forgotten.
    pub(super) fn end_is_noted(&mut self, turn: &mut Turn<'_>) {
        let Phase::Over(_, end) = &self.record.phase else { return };
        let remains = self.record.earlier.iter().any(|hold| !hold.kept);
        if !remains && self.site.min_job_age.is_some_and(|age| end.at.plus(age) <= turn.now) {
            self.forget(turn);
        }
    }

    fn forget(&mut self, turn: &mut Turn<'_>) {
        if self.tells_watchers {
            self.tell_watchers(turn);
        }
        self.save(JobEvent::Purged, turn);
        self.touched = false;
        self.forgotten = true;
        turn.out.push(JobEffect::Stop);
    }

    /// No event may follow the last one, or the journal could not be replayed. Answers as for an unknown job.
    pub(super) fn came_too_late(&self, input: JobInput, turn: &mut Turn<'_>) {
        let job = self.record.id;
        match input {
            JobInput::Command { request, .. } => turn.answer(request, JobAnswer::Done(Err(Refusal::InvalidJobId))),
            JobInput::Wait { request, .. } => turn.answer(request, self.reached(turn.now)),
            JobInput::Script { request } => turn.answer(request, self.script()),
            JobInput::Locate { request } => turn.answer(request, JobAnswer::Place(self.place())),
            JobInput::Subscribe { by } => {
                turn.tell_job(by, JobInput::Fact { job, fact: Some(Arc::new(self.fact())) });
            }
            other => Letter::Job(job, other).undeliverable().into_iter().for_each(|letter| turn.tell(letter)),
        }
    }

    pub(super) fn deadline(&mut self, turn: &mut Turn<'_>) {
        let Some(at) = self.deadline_comes().filter(|_| self.het_leader().is_none()) else { return };
        if at > turn.now {
            // It started in time, its limit changed, or the clock was set back.
            return turn.out.push(JobEffect::SetTimer { timer: JobTimer::Deadline, at });
        }
        // Over already: nothing to end.
        let _ = self.cancel(JobState::Deadline, None, turn);
    }

    /// Sets the timer of `--deadline`.
    pub(super) fn await_deadline(&self, turn: &mut Turn<'_>) {
        if let Some(at) = self.deadline_comes().filter(|_| self.waits_or_works()) {
            turn.out.push(JobEffect::SetTimer { timer: JobTimer::Deadline, at });
        }
    }

    /// When `--deadline` ends the job: a waiting job, as soon as it could not end in time any more.
    fn deadline_comes(&self) -> Option<Timestamp> {
        let deadline = self.record.spec.deadline?;
        let needs = self.record.spec.time_min.unwrap_or(self.record.resolved.time_limit).duration();
        let latest_start = needs.map(|needs| {
            let needs_ms = i64::try_from(needs.as_millis()).unwrap_or(i64::MAX);
            Timestamp(deadline.0.saturating_sub(needs_ms)).plus(Duration::from_secs(1))
        });
        match self.record.phase {
            Phase::Pending => latest_start.map(|latest| latest.min(deadline)).or(Some(deadline)),
            _ => Some(deadline),
        }
    }

    /// Its reservation has ended, and the run may continue until `at`. Only the first such message counts.
    pub(super) fn leave_by(&mut self, at: Timestamp, turn: &mut Turn<'_>) {
        if self.record.phase.working().is_some_and(|run| run.leave_by.is_none()) {
            self.save(JobEvent::LeaveBy(at), turn);
            self.move_end(turn);
            self.leave(turn);
        }
    }

    /// Ends a run that may not stay in its reservation any longer.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>) {
        let run = self.record.phase.working().filter(|run| run.ending.is_none());
        let Some(at) = run.and_then(|run| run.leave_by) else { return };
        if at > turn.now {
            return turn.out.push(JobEffect::SetTimer { timer: JobTimer::Leave, at });
        }
        let _ = self.cancel(JobState::Timeout, None, turn);
    }

    /// That run has reached a limit of minutes of accounting.
    pub(super) fn over_limit(&mut self, sluid: Sluid, reason: Reason, turn: &mut Turn<'_>) {
        let runs = self.record.phase.working().is_some_and(|run| run.ending.is_none());
        if runs && sluid == self.record.sluid {
            let _ = self.cancel_for(JobState::Timeout, reason, None, turn);
        }
    }

    /// `--immediate`: it still waits after the time that it was given.
    pub(super) fn gave_up_waiting(&mut self, turn: &mut Turn<'_>) {
        if matches!(self.record.phase, Phase::Pending) && self.het_leader().is_none() {
            let _ = self.cancel(JobState::Cancelled, None, turn);
        }
    }

    pub(super) fn finish_allocation(&mut self, exit: ExitStatus, by: u32, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        match &self.record.phase {
            Phase::Pending => self.cancel(JobState::Cancelled, Some(by), turn),
            Phase::Completing(..) | Phase::Over(..) => Err(Refusal::AlreadyDone),
            Phase::Starting(_) => {
                let state = if exit.success() { JobState::Completed } else { JobState::Failed };
                self.cancel(state, Some(by), turn)
            }
            Phase::Running(run) | Phase::Suspended(run) => {
                turn.send(
                    run.batch_host().to_owned(),
                    ControllerToNode::FinishAllocation { job: self.record.id, sluid: self.record.sluid, exit },
                );
                Ok(())
            }
        }
    }
}
