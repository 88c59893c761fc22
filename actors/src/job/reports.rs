//! Agents' reports and registrations about a run. Reports about older runs change nothing; if one says that an older run is
//! active, the answer is to end it.

use super::{
    core::{JobCore, Turn},
    effects::{JobEffect, JobShown},
    fencing::GivenUpBy,
};
use crate::messages::{
    job::JobTimer,
    letter::{Letter, end_lost},
    license::LicenseInput,
    node::NodeInput,
    released::Trouble,
};
use garrick_events::{
    event::ControllerEvent,
    records::{
        job::{Afterwards, EarlierHold, End, HeldBy, Phase},
        job_event::JobEvent,
    },
};
use garrick_model::{
    ids::Sluid,
    messages::node::AgentReport,
    packed_steps::{PackedSteps, StepTally},
    spec::JobKind,
    state::{ExitStatus, JobState, Reason},
};
use std::time::Duration;

/// How long the batch host's agent may still report about a run that it no longer holds.
const MISSING_GRACE: Duration = Duration::from_secs(15);

impl JobCore {
    pub(super) fn report(&mut self, node: &str, seq: u64, report: AgentReport, turn: &mut Turn<'_>) {
        let current = self.record.sluid;
        if let AgentReport::JobStarted { sluid, .. } | AgentReport::Steps { sluid, .. } = &report
            && *sluid != current
        {
            // A late order started it after that node was given up.
            turn.tell(end_lost(self.record.id, node.to_owned(), *sluid));
        }
        if !self.may_report(node, &report) {
            tracing::warn!(job_id = self.record.id.0, node, "report.not_its_job");
            return;
        }
        if let AgentReport::Steps { sluid, steps, .. } = &report {
            self.keep_records(*sluid, steps, turn);
        }
        match report {
            AgentReport::JobStarted { sluid, door, .. } if sluid == current => self.started(node, door, turn),
            AgentReport::JobEnded { sluid, state, reason, exit, derived, at, lost, cause, .. } if sluid == current => {
                let then = self.after_run(state, &reason, exit);
                self.ended(End { state, reason, exit, derived, at, then, cause, by: None, sluid: None }, lost, turn);
            }
            AgentReport::JobLaunchFailed { sluid, reason, detail, drain_node, .. } if sluid == current => {
                self.launch_failed(node, reason, &detail, drain_node, turn);
            }
            AgentReport::Steps { sluid, steps, .. } if sluid == current => self.steps(seq, steps.tally, turn),
            AgentReport::RequeueSet { sluid, policy, .. } if sluid == current => self.requeue_heard(node, policy),
            AgentReport::NodeReleased { sluid, epilog_failed, unkillable, .. } => {
                self.fenced(node, sluid, turn);
                let trouble = Trouble { epilog_failed, unkillable };
                trouble.log(self.record.id, node);
                if sluid == current {
                    self.node_released(node, &trouble, turn);
                } else {
                    self.earlier_released(node, sluid, &trouble, turn);
                }
            }
            AgentReport::JobStarted { .. }
            | AgentReport::JobEnded { .. }
            | AgentReport::JobLaunchFailed { .. }
            | AgentReport::Steps { .. }
            | AgentReport::RequeueSet { .. } => {}
        }
    }

    /// Nodes report about runs in which they take part: about their work only the batch host, about their start any of their
    /// nodes.
    fn may_report(&self, node: &str, report: &AgentReport) -> bool {
        let run = self.record.phase.run();
        match report {
            AgentReport::JobStarted { .. } | AgentReport::JobEnded { .. } => {
                run.is_none_or(|run| run.batch_host() == node)
            }
            AgentReport::Steps { sluid, .. } => self.record.steps_run_from(node, *sluid),
            AgentReport::JobLaunchFailed { .. } | AgentReport::RequeueSet { .. } => {
                run.is_none_or(|run| run.has_node(node))
            }
            // A node may release its own share. A run that is still reserving nodes was started nowhere, so no node can have
            // released it.
            AgentReport::NodeReleased { sluid, .. } => *sluid != self.record.sluid || !self.asks_for_nodes(),
        }
    }

    /// Nodes have reserved this run's share, or are about to, and nothing is recorded.
    fn asks_for_nodes(&self) -> bool {
        matches!(self.record.phase, Phase::Pending) && (self.commit.is_some() || self.het_puts_off_anything())
    }

    fn started(&mut self, node: &str, door: String, turn: &mut Turn<'_>) {
        if matches!(self.record.phase, Phase::Pending | Phase::Over(..)) {
            turn.tell(end_lost(self.record.id, node.to_owned(), self.record.sluid));
        }
        if matches!(self.record.phase, Phase::Starting(_)) {
            turn.out.push(JobEffect::ClearTimer(JobTimer::Launch));
            self.save(JobEvent::Started { at: turn.now, door }, turn);
            self.het_started(turn);
            // Some nodes may have missed a change that came during the launch.
            self.tell_requeue(turn);
            if let Some(failure) = self.record.phase.run().and_then(|run| run.after_failure) {
                let millis = u64::try_from(turn.now.since(failure).as_millis()).unwrap_or(u64::MAX);
                tracing::info!(job_id = self.record.id.0, millis, "job.expedited_restart");
            }
            // An end that was requested during the launch may have been missed.
            self.warn_of_preemption(turn);
            self.ask_for_end(turn);
        }
    }

    fn ended(&mut self, end: End, lost: Vec<String>, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working() else { return };
        let batch_host = run.batch_host().to_owned();
        let lost: Vec<String> = lost.into_iter().filter(|n| run.has_node(n) && !run.lost.contains(n)).collect();
        if !lost.is_empty() {
            self.save(JobEvent::NodesLost { nodes: lost }, turn);
        }
        self.end_from(end, Some(&batch_host), turn);
    }

    /// What follows a run that ended by itself, or on request.
    fn after_run(&self, state: JobState, reason: &Reason, exit: ExitStatus) -> Afterwards {
        if let Some(ending) = self.record.phase.working().and_then(|run| run.ending.as_ref()) {
            return ending.then;
        }
        let by_script = matches!(state, JobState::Completed | JobState::Failed)
            && exit.signal.is_none()
            && matches!(reason, Reason::None | Reason::NonZeroExitCode);
        if state == JobState::NodeFail {
            self.after_node_failure()
        } else if by_script && !exit.success() && self.is_expedited() {
            // As Slurm 26.05.3 does, before RequeueExit.
            Afterwards::ExpediteOrHold
        } else if by_script && self.may_be_requeued() && self.site.requeue_exit_hold.contains(exit.code) {
            Afterwards::Requeue { hold: Some(HeldBy::SpecialExit), delay: true }
        } else if by_script && self.may_be_requeued() && self.site.requeue_exit.contains(exit.code) {
            self.requeue_unasked()
        } else if state == JobState::Failed && !exit.success() && self.is_expedited() {
            Afterwards::ExpediteIfEpilogFails
        } else {
            self.after_work()
        }
    }

    pub(super) fn may_be_requeued(&self) -> bool {
        self.record.resolved.requeue && self.record.spec.kind == JobKind::Batch
    }

    pub(super) fn is_expedited(&self) -> bool {
        self.may_be_requeued() && self.record.spec.expedite && self.site.expedite
    }

    /// A batch job that may be requeued is requeued when a node failed: expedited if that was requested, otherwise eligible again
    /// after the usual delay.
    pub(super) fn after_node_failure(&self) -> Afterwards {
        if self.is_expedited() {
            Afterwards::Expedite
        } else if self.may_be_requeued() {
            self.requeue_unasked()
        } else {
            self.after_work()
        }
    }

    /// Requeues without a request: held if that happened too often (`MaxBatchRequeue`).
    pub(super) fn requeue_unasked(&self) -> Afterwards {
        let often = self.record.requeues_unasked >= self.site.max_batch_requeue;
        Afterwards::Requeue { hold: often.then_some(HeldBy::MaxRequeue), delay: true }
    }

    /// The work of the run is over: records that and has every node cleaned.
    pub(super) fn end(&mut self, end: End, turn: &mut Turn<'_>) {
        self.end_from(end, None, turn);
    }

    /// As [`Self::end`]; `told_by` is the node that reported it, which cleans up unasked.
    fn end_from(&mut self, end: End, told_by: Option<&str>, turn: &mut Turn<'_>) {
        let licensed = self.record.licenses().is_some();
        self.let_go_of_booting(turn);
        self.save(JobEvent::Ended(End { sluid: Some(self.record.sluid), ..end }), turn);
        self.het_ended(turn);
        if licensed {
            turn.tell(Letter::Licenses(LicenseInput::Release { job: self.record.id, attempt: None }));
        }
        self.save_tally(turn);
        self.run_epilog(turn);
        for timer in [
            JobTimer::Missing,
            JobTimer::Launch,
            JobTimer::Deadline,
            JobTimer::Immediate,
            JobTimer::Eligible,
            JobTimer::Preempt,
        ] {
            turn.out.push(JobEffect::ClearTimer(timer));
        }
        if self.is_over() {
            self.after_end(turn);
        } else {
            self.mark_completing(turn);
            self.clean_up(told_by, turn);
        }
    }

    fn launch_failed(&mut self, node: &str, reason: Reason, detail: &str, drain: bool, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working() else { return };
        tracing::warn!(job_id = self.record.id.0, node, detail, "job.launch_failed");
        let by_prolog = reason == Reason::PrologFailure;
        let batch = self.record.spec.kind == JobKind::Batch;
        // What may not be requeued is cancelled where its prolog fails (seen in 26.05.3).
        let again = batch && (!by_prolog || self.may_be_requeued() || self.site.requeue_on_prolog_fail);
        let then = match &run.ending {
            Some(ending) => ending.then,
            None if again && by_prolog && !self.site.hold_on_prolog_fail => self.requeue_unasked(),
            None if again => Afterwards::Requeue { hold: Some(HeldBy::LaunchFailure), delay: false },
            None => self.after_work(),
        };
        let state = match (by_prolog, batch && !again) {
            (true, true) => JobState::Cancelled,
            (true, false) => JobState::NodeFail,
            (false, _) => JobState::Failed,
        };
        let exit = ExitStatus { code: u8::from(state != JobState::Cancelled), signal: None };
        if drain {
            self.save(JobEvent::NodeReleased { node: node.to_owned(), epilog_failed: false }, turn);
            turn.tell_node(
                node.to_owned(),
                NodeInput::Release {
                    job: self.record.id,
                    sluid: self.record.sluid,
                    attempt: None,
                    drain: Some("Prolog error".to_owned()),
                },
            );
        }
        let cause = Some(detail.to_owned());
        self.end(End { state, reason, exit, derived: exit, at: turn.now, then, cause, by: None, sluid: None }, turn);
    }

    /// The batch host reported neither that the run started nor that it could not, for instance because it did not accept the
    /// credential.
    pub(super) fn launch_timed_out(&mut self, turn: &mut Turn<'_>) {
        if self.het_holds_launch() {
            // Their own time limit applies.
            return self.limit_launch(turn);
        }
        if let Phase::Starting(run) = &self.record.phase {
            let node = run.batch_host().to_owned();
            self.launch_failed(&node, Reason::JobLaunchFailure, "nothing was heard of the launch", false, turn);
        }
    }

    /// For any run: its report is acknowledged, and forgotten by the node, once the rows are saved. A repeated report is saved
    /// again.
    fn keep_records(&self, sluid: Sluid, steps: &PackedSteps, turn: &mut Turn<'_>) {
        if self.site.keeps_step_records && steps.rows > 0 {
            let records = ControllerEvent::Steps { job: self.record.id, sluid, steps: steps.clone() };
            turn.out.push(JobEffect::Save(records));
        }
    }

    /// The job does not read the rows. Its counts are published beside its view, so that watchers of jobs are not woken for them;
    /// they are saved with the run's end, and with later counts.
    ///
    /// A new connection of the agent repeats reports that were not acknowledged when it began, after those of the old connection.
    /// So a repeat may be all that a rebuilt owner of the job gets, and the number that is saved with the tally shows that it is
    /// older. Step managers of earlier versions send no number: then the report's number is used.
    fn steps(&mut self, seq: u64, tally: StepTally, turn: &mut Turn<'_>) {
        let older = if tally.number == 0 { seq < self.tally_seq } else { tally.number < self.tally.number };
        if older {
            return;
        }
        self.tally_seq = seq;
        if tally == self.tally {
            return;
        }
        self.tally = tally;
        match self.record.phase {
            Phase::Pending => {}
            Phase::Starting(_) | Phase::Running(_) | Phase::Suspended(_) => {
                turn.out.push(JobEffect::Publish(JobShown::Steps(tally)));
            }
            Phase::Completing(..) | Phase::Over(..) => self.save_tally(turn),
        }
    }

    fn save_tally(&mut self, turn: &mut Turn<'_>) {
        if self.tally != self.record.steps {
            self.save(JobEvent::StepsCounted(self.tally), turn);
        }
    }

    fn node_released(&mut self, node: &str, trouble: &Trouble, turn: &mut Turn<'_>) {
        let drain = trouble.reason();
        if drain.is_none() && self.keep_node(node, turn) {
            return;
        }
        turn.tell_node(
            node.to_owned(),
            NodeInput::Release { job: self.record.id, sluid: self.record.sluid, attempt: None, drain },
        );
        self.forget_node(node, trouble.epilog_failed.is_some(), turn);
        // An agent reports in order: when the batch host has released the run, no end of it will come any more.
        self.end_without_word(turn);
    }

    /// A clean node stays with a job that is or may be expedited next.
    fn keep_node(&mut self, node: &str, turn: &mut Turn<'_>) -> bool {
        let Phase::Completing(run, end) = &self.record.phase else { return false };
        // The CPUs of a run that was suspended for another belong to that one.
        let gone = run.yielded().is_some();
        if gone || !end.then.keeps_nodes() || !run.has_node(node) || run.released.contains(node) {
            return false;
        }
        let news = !run.kept.contains(node);
        turn.tell_node(node.to_owned(), NodeInput::Keep { job: self.record.id, sluid: self.record.sluid });
        if news {
            self.save(JobEvent::NodeKept { node: node.to_owned() }, turn);
            if self.is_over() {
                self.after_end(turn);
            }
        }
        true
    }

    /// Nothing of an earlier run is left on that node. A node that is kept for the next run has reported before.
    fn earlier_released(&mut self, node: &str, sluid: Sluid, trouble: &Trouble, turn: &mut Turn<'_>) {
        let drain = trouble.reason();
        let this = |hold: &&EarlierHold| hold.sluid == sluid && hold.node.name == node;
        match self.record.earlier.iter().find(this) {
            Some(hold) if hold.kept && drain.is_none() => return,
            Some(_) => self.save(JobEvent::EarlierReleased { sluid, node: node.to_owned() }, turn),
            None => {}
        }
        turn.tell_node(node.to_owned(), NodeInput::Release { job: self.record.id, sluid, attempt: None, drain });
    }

    /// About an earlier run: the agent still has it, does not know it, or its node is down.
    pub(super) fn earlier_news(&mut self, node: String, sluid: Sluid, news: EarlierNews, turn: &mut Turn<'_>) {
        let this = |hold: &&EarlierHold| hold.sluid == sluid && hold.node.name == node;
        let kept = self.record.earlier.iter().find(this).map(|hold| hold.kept);
        match (news, kept) {
            (EarlierNews::Held, Some(false) | None) => turn.tell(end_lost(self.record.id, node, sluid)),
            (EarlierNews::Held, Some(true)) => {}
            // Its node may not have been told that it is kept.
            (EarlierNews::Missing, Some(true)) => turn.tell_node(node, NodeInput::Keep { job: self.record.id, sluid }),
            (EarlierNews::Missing, _) => {
                self.fenced(&node, sluid, turn);
                self.earlier_released(&node, sluid, &Trouble::default(), turn);
            }
            (EarlierNews::Lost, Some(false) | None) => {
                self.earlier_node_lost(&node, sluid, turn);
                self.earlier_released(&node, sluid, &Trouble::default(), turn);
            }
            (EarlierNews::Lost, Some(true)) => self.release_earlier(|hold| this(&hold), turn),
        }
    }

    /// Nothing of the run is left on that node, or the node is gone.
    pub(super) fn forget_node(&mut self, node: &str, epilog_failed: bool, turn: &mut Turn<'_>) {
        self.policy_known.remove(node);
        let open = match &self.record.phase {
            Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run) | Phase::Completing(run, _) => {
                run.has_node(node) && !run.released.contains(node)
            }
            Phase::Pending | Phase::Over(..) => false,
        };
        if open {
            self.save(JobEvent::NodeReleased { node: node.to_owned(), epilog_failed }, turn);
            if self.is_over() {
                self.after_end(turn);
            }
        }
    }

    pub(super) fn run_held(&mut self, node: &str, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.run() else { return };
        let at_batch_host = run.batch_host() == node;
        match &self.record.phase {
            Phase::Starting(_) | Phase::Running(_) | Phase::Suspended(_) if at_batch_host => {
                turn.out.push(JobEffect::ClearTimer(JobTimer::Missing));
                self.tell_limit(turn);
                self.stop_or_continue_again(turn);
                self.warn_of_preemption(turn);
                self.ask_for_end(turn);
            }
            Phase::Completing(..) | Phase::Over(..) => self.end_on(node, turn),
            Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run) if run.released.contains(node) => {
                turn.tell(end_lost(self.record.id, node.to_owned(), self.record.sluid));
            }
            _ => {}
        }
    }

    pub(super) fn run_missing(&mut self, node: &str, turn: &mut Turn<'_>) {
        self.fenced(node, self.record.sluid, turn);
        let Some(run) = self.record.phase.run() else {
            let sluid = self.record.sluid;
            // It belongs to an attempt that was given up. A current attempt is answered through its reservation.
            let undecided = self.het_undecided_nodes().iter().any(|known| known == node);
            if !undecided && self.commit.as_ref().is_none_or(|commit| !commit.has_node(node)) {
                // What was kept there for the job comes back with it.
                let (node, attempt) = (node.to_owned(), Some(self.attempt));
                turn.tell_node(node, NodeInput::Release { job: self.record.id, sluid, attempt, drain: None });
            }
            return;
        };
        let at_batch_host = run.batch_host() == node;
        match &self.record.phase {
            // Released, or not reserved because the attempt was given up, and its node was not told.
            Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run)
                if !run.has_node(node) || run.released.contains(node) =>
            {
                self.release_node(node, turn);
            }
            // It never began. If another node has released it, it did begin, and its batch host has lost it since.
            Phase::Starting(run) if at_batch_host && run.ending.is_none() && !run.was_let_go_of() => self.launch(turn),
            Phase::Starting(_) | Phase::Running(_) | Phase::Suspended(_) if at_batch_host => {
                let at = turn.now.plus(MISSING_GRACE);
                turn.out.push(JobEffect::SetTimer { timer: JobTimer::Missing, at });
            }
            // Other nodes of a working run: the step manager notices, and knows more.
            Phase::Starting(_) | Phase::Running(_) | Phase::Suspended(_) => {}
            Phase::Completing(..) | Phase::Over(..) => self.node_released(node, &Trouble::default(), turn),
            Phase::Pending => {}
        }
    }

    /// The batch host came back without the run and reported nothing about it.
    pub(super) fn declare_lost(&mut self, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working() else { return };
        let batch_host = run.batch_host().to_owned();
        // An order to start it may still be in flight, and begin it on a machine that was set up anew.
        turn.tell(end_lost(self.record.id, batch_host.clone(), self.record.sluid));
        self.release_node(&batch_host, turn);
        self.end_without_word(turn);
    }

    /// Ends a run that its batch host no longer knows, and whose end it did not report.
    pub(super) fn end_without_word(&mut self, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working() else { return };
        if !run.released.contains(run.batch_host()) {
            return;
        }
        let (state, reason, then) = match &run.ending {
            Some(ending) => (ending.state, ending.reason.clone(), ending.then),
            None => (JobState::NodeFail, Reason::StepManagerDied, self.after_node_failure()),
        };
        let exit = ExitStatus { code: 0, signal: Some(9) };
        self.end(
            End { state, reason, exit, derived: exit, at: turn.now, then, cause: None, by: None, sluid: None },
            turn,
        );
    }

    pub(super) fn node_lost(&mut self, node: &str, turn: &mut Turn<'_>) {
        self.release_earlier(|hold| hold.kept && hold.node.name == node, turn);
        let was_booting = self.record.phase.working().is_some_and(|run| run.booting.contains(node));
        if !was_booting {
            self.leave_unfenced(node, GivenUpBy::Controller, turn);
        }
        self.release_node(node, turn);
        // If its step manager lives on, it is told with the order to end.
        if self.record.phase.working().is_some_and(|run| run.has_node(node) && !run.lost.contains(node)) {
            self.save(JobEvent::NodesLost { nodes: vec![node.to_owned()] }, turn);
        }
        let Some(run) = self.record.phase.working() else {
            self.abandon_commit(turn);
            return;
        };
        // It belongs to an earlier attempt, and that node was not told that it was given up.
        let of_other_attempt = !run.has_node(node);
        if of_other_attempt || (self.record.spec.no_kill && run.batch_host() != node) {
            if was_booting {
                self.launch_if_all_came(turn);
            }
            return;
        }
        let (state, then) = match &run.ending {
            Some(ending) => (ending.state, ending.then),
            None if was_booting && self.site.requeue_on_resume_failure && self.record.spec.kind == JobKind::Batch => {
                (JobState::NodeFail, self.requeue_unasked())
            }
            None => (JobState::NodeFail, self.after_node_failure()),
        };
        // 1:0, and nothing of its steps, as sacct of Slurm 26.05.3 has it.
        let exit = ExitStatus { code: u8::from(state == JobState::NodeFail), signal: None };
        self.end(
            End {
                state,
                reason: Reason::NodeDown,
                exit,
                derived: ExitStatus::SUCCESS,
                at: turn.now,
                then,
                cause: None,
                by: None,
                sluid: None,
            },
            turn,
        );
    }

    pub(super) fn release_node(&mut self, node: &str, turn: &mut Turn<'_>) {
        turn.tell_node(
            node.to_owned(),
            NodeInput::Release { job: self.record.id, sluid: self.record.sluid, attempt: None, drain: None },
        );
        self.forget_node(node, false, turn);
    }
}

/// What a node reports about a run that is not the job's newest.
#[derive(Clone, Copy, Debug)]
pub(super) enum EarlierNews {
    /// Its agent registered with it.
    Held,
    /// Its agent registered without it.
    Missing,
    /// The node is down.
    Lost,
}
