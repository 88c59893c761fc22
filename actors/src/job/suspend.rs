//! Suspension: by an administrator; for another job that preempts this one and gets its CPUs; or, with gang scheduling, until its
//! turn on shared CPUs comes. A run suspended for another job keeps all but its CPUs, and is resumed when every node has
//! confirmed that the CPUs are free again. A run that waits for its turn keeps everything, and continues when the scheduler says
//! so. A run that an administrator suspended as well also waits for an administrator.

use super::{
    core::{JobCore, Turn},
    effects::JobEffect,
    start::COMMIT_LIMIT,
};
use crate::messages::{
    job::{JobAnswer, JobTimer},
    letter::Letter,
    node::NodeInput,
};
use garrick_events::records::{
    job::{Phase, Run, Suspended, Yielded},
    job_event::JobEvent,
};
use garrick_model::{
    messages::node::{ControllerToNode, SignalScope},
    refusal::Refusal,
    signal::{SIGCONT, SIGSTOP, SIGTSTP},
    time::TimeLimit,
    view::PreemptTimes,
};
use garrick_plan::proposals::{PreemptProposal, ResumeProposal, TurnProposal};
use std::{collections::BTreeSet, time::Duration};

/// A run asks its nodes for its CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resuming {
    attempt: u64,
    /// Nodes that have not answered.
    waiting: BTreeSet<String>,
    asked_by: Asker,
}

/// Why a run is suspended.
#[derive(Clone, Debug, Default)]
struct Cause {
    by_admin: bool,
    yielded: Option<Yielded>,
    waits_turn: bool,
}

impl Cause {
    fn of(run: &Run) -> Self {
        run.suspended.clone().map_or_else(Self::default, |suspended| {
            let Suspended { by_admin, yielded, waits_turn, .. } = suspended;
            Self { by_admin, yielded, waits_turn }
        })
    }

    /// Unless an administrator suspended it, the scheduler resumes it.
    fn is_the_schedulers(&self) -> bool {
        self.yielded.is_some() || self.waits_turn
    }

    fn waits_turn_only(&self) -> bool {
        self.waits_turn && !self.by_admin && self.yielded.is_none()
    }
}

/// Who is told the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    /// The scheduler, in this pass.
    Pass(u64),
    /// An administrator, in this request.
    Request(u64),
}

impl JobCore {
    /// An administrator suspends it.
    pub(super) fn suspend(&mut self, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        match &self.record.phase {
            Phase::Running(_) => {
                self.stand(turn, Cause { by_admin: true, ..Cause::default() });
                self.stop(turn);
                self.tell_limit(turn);
                Ok(())
            }
            Phase::Suspended(run) => {
                let cause = Cause::of(run);
                if cause.is_the_schedulers() {
                    self.stand(turn, Cause { by_admin: true, ..cause });
                    self.give_up_resuming(false, turn);
                }
                Ok(())
            }
            Phase::Pending | Phase::Starting(_) => Err(Refusal::JobPending),
            Phase::Completing(..) | Phase::Over(..) => Err(Refusal::AlreadyDone),
        }
    }

    /// An administrator resumes it. `None`: it is suspended for another job, and the answer comes when its nodes have said
    /// whether its CPUs are free.
    pub(super) fn resume_by_admin(&mut self, request: u64, turn: &mut Turn<'_>) -> Option<Result<(), Refusal>> {
        match &self.record.phase {
            Phase::Suspended(run) => match Cause::of(run) {
                cause if !cause.is_the_schedulers() => {
                    self.go_on(turn);
                    Some(Ok(()))
                }
                _ if run.ending.is_some() => Some(Err(Refusal::AlreadyDone)),
                // From now on the scheduler resumes it.
                cause if cause.by_admin => {
                    self.stand(turn, Cause { by_admin: false, ..cause });
                    Some(Ok(()))
                }
                // Another job has its turn on the same CPUs.
                cause if cause.yielded.is_none() => Some(Err(Refusal::Busy)),
                _ if self.resuming.is_some() => Some(Err(Refusal::Busy)),
                _ => {
                    self.ask_for_cpus(Asker::Request(request), turn);
                    None
                }
            },
            Phase::Running(_) => Some(Ok(())),
            Phase::Pending | Phase::Starting(_) => Some(Err(Refusal::JobPending)),
            Phase::Completing(..) | Phase::Over(..) => Some(Err(Refusal::AlreadyDone)),
        }
    }

    /// Suspends it for another job. False: that is not possible.
    pub(super) fn stand_aside(&mut self, proposal: &PreemptProposal, turn: &mut Turn<'_>) -> bool {
        let (run, still) = match &self.record.phase {
            Phase::Running(run) => (run, false),
            Phase::Suspended(run) => (run, true),
            _ => return false,
        };
        if run.yielded().is_some() || run.ending.is_some() || run.preempted.is_some() {
            // A node may have missed it.
            self.give_cpus(turn);
            return true;
        }
        // A run that only waited for its turn is resumed by the scheduler only.
        let by_admin = still && !Cause::of(run).waits_turn_only();
        let grace = if still { Duration::ZERO } else { proposal.grace };
        let times = PreemptTimes { eligible: proposal.eligible, at: turn.now, ends: turn.now.plus(grace) };
        let until = proposal.until.unwrap_or(turn.now);
        tracing::info!(job_id = self.record.id.0, by = proposal.by.0, "job.suspended");
        let yielded = Some(Yielded { times, by: proposal.by, until });
        self.stand(turn, Cause { by_admin, yielded, waits_turn: false });
        self.tell_limit(turn);
        self.move_end(turn);
        if !grace.is_zero()
            && let Some(run) = self.record.phase.working()
        {
            self.send_signal(run.batch_host(), SIGTSTP, SignalScope::Full, turn);
        }
        self.give_cpus(turn);
        true
    }

    /// Its turn on shared CPUs is over, or has come. A run that is ending, or suspended for another reason, takes no turns.
    pub(super) fn take_turn(&mut self, proposal: &TurnProposal, turn: &mut Turn<'_>) {
        let phase = Some(&self.record.phase).filter(|_| self.record.sluid == proposal.sluid);
        let accepted = match phase {
            Some(Phase::Running(run)) if !proposal.on && run.ending.is_none() && run.preempted.is_none() => {
                self.stand(turn, Cause { waits_turn: true, ..Cause::default() });
                self.stop(turn);
                self.tell_limit(turn);
                self.move_end(turn);
                true
            }
            Some(Phase::Suspended(run)) if proposal.on && run.ending.is_none() && Cause::of(run).waits_turn_only() => {
                self.go_on(turn);
                true
            }
            // It is in that state already.
            Some(Phase::Running(_)) => proposal.on,
            _ => false,
        };
        turn.outcome(proposal.pass, accepted);
    }

    fn stand(&mut self, turn: &mut Turn<'_>, cause: Cause) {
        let Cause { by_admin, yielded, waits_turn } = cause;
        self.save(JobEvent::Stopped { at: turn.now, by_admin, yielded, waits_turn }, turn);
    }

    /// A run suspended for another job releases its CPUs when its grace is over. May be repeated.
    pub(super) fn give_cpus(&self, turn: &mut Turn<'_>) {
        let Phase::Suspended(run) = &self.record.phase else { return };
        // Nodes that answer that it has its CPUs must not be told otherwise meanwhile. The end of that attempt calls this again.
        if self.resuming.is_some() {
            return;
        }
        let Some(yielded) = run.yielded().filter(|_| run.ending.is_none()) else { return };
        if yielded.times.ends > turn.now {
            return turn.out.push(JobEffect::SetTimer { timer: JobTimer::Preempt, at: yielded.times.ends });
        }
        self.stop(turn);
        for node in run.unreleased() {
            turn.tell_node(node.to_owned(), NodeInput::Park { job: self.record.id, sluid: self.record.sluid });
        }
    }

    /// The scheduler says that its CPUs are free.
    pub(super) fn go_on_if_free(&mut self, proposal: &ResumeProposal, turn: &mut Turn<'_>) {
        let run = match &self.record.phase {
            Phase::Suspended(run) if self.record.sluid == proposal.sluid => Some(run),
            _ => None,
        };
        let waits = run.is_some_and(|run| {
            run.ending.is_none() && run.yielded().is_some() && run.suspended.as_ref().is_some_and(|s| !s.by_admin)
        });
        if waits && self.resuming.is_none() {
            self.ask_for_cpus(Asker::Pass(proposal.pass), turn);
        } else {
            turn.outcome(proposal.pass, false);
        }
    }

    fn ask_for_cpus(&mut self, asked_by: Asker, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working() else { return };
        // Answers to an earlier life of this owner must not be taken for answers to this one.
        let attempt = u64::try_from(turn.now.0).unwrap_or(0).max(self.resume_attempt + 1);
        self.resume_attempt = attempt;
        let waiting: BTreeSet<String> = run.unreleased().map(str::to_owned).collect();
        for node in &waiting {
            turn.tell_node(node.clone(), NodeInput::Unpark { job: self.record.id, sluid: self.record.sluid, attempt });
        }
        turn.out.push(JobEffect::SetTimer { timer: JobTimer::Commit, at: turn.now.plus(COMMIT_LIMIT) });
        self.resuming = Some(Resuming { attempt, waiting, asked_by });
    }

    pub(super) fn unparked(&mut self, attempt: u64, node: &str, granted: bool, turn: &mut Turn<'_>) {
        let Some(resuming) = self.resuming.as_mut().filter(|r| r.attempt == attempt) else { return };
        if !granted {
            tracing::debug!(job_id = self.record.id.0, node, "job.cpus_are_not_free");
            return self.give_up_resuming(false, turn);
        }
        resuming.waiting.remove(node);
        if resuming.waiting.is_empty() {
            self.go_on(turn);
            self.give_up_resuming(true, turn);
        }
    }

    /// Ends an attempt. Unless the run is resumed, nodes that may have given its CPUs back release them again.
    pub(super) fn give_up_resuming(&mut self, goes_on: bool, turn: &mut Turn<'_>) {
        let Some(resuming) = self.resuming.take() else { return };
        turn.out.push(JobEffect::ClearTimer(JobTimer::Commit));
        if !goes_on {
            self.give_cpus(turn);
        }
        turn.out.push(match resuming.asked_by {
            Asker::Pass(pass) => JobEffect::Tell(Letter::Outcome { pass, accepted: goes_on }),
            Asker::Request(request) => JobEffect::Answer {
                request,
                answer: JobAnswer::Done(if goes_on { Ok(()) } else { Err(Refusal::Busy) }),
            },
        });
    }

    /// An attempt for a run that ended meanwhile is useless.
    pub(super) fn resumes_only_what_waits(&mut self, turn: &mut Turn<'_>) {
        let waits = matches!(&self.record.phase, Phase::Suspended(run) if run.ending.is_none());
        if !waits {
            self.give_up_resuming(false, turn);
        }
    }

    fn go_on(&mut self, turn: &mut Turn<'_>) {
        self.save(JobEvent::Continued { at: turn.now }, turn);
        turn.out.push(JobEffect::ClearTimer(JobTimer::Preempt));
        if let Some(run) = self.record.phase.working() {
            self.send_signal(run.batch_host(), SIGCONT, SignalScope::Full, turn);
        }
        self.tell_limit(turn);
        self.move_end(turn);
        // A run that is to end for another job meanwhile still is.
        self.end_preempted(turn);
    }

    fn stop(&self, turn: &mut Turn<'_>) {
        if let Some(run) = self.record.phase.working() {
            self.send_signal(run.batch_host(), SIGSTOP, SignalScope::Full, turn);
        }
    }

    /// The batch host may not have received the order before its connection or its daemon ended.
    pub(super) fn stop_or_continue_again(&self, turn: &mut Turn<'_>) {
        match &self.record.phase {
            Phase::Suspended(run) if run.ending.is_some() => {}
            // Its nodes are told again too: nothing else would show that they have missed it.
            Phase::Suspended(run) if run.yielded().is_some() => self.give_cpus(turn),
            Phase::Suspended(_) => self.stop(turn),
            Phase::Running(run) if run.continued => {
                self.send_signal(run.batch_host(), SIGCONT, SignalScope::Full, turn);
            }
            _ => {}
        }
    }

    /// Tells the batch host the time limit: suspended time does not count.
    pub(super) fn tell_limit(&self, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working() else { return };
        let limit = match (&self.record.phase, run.time_limit) {
            (Phase::Suspended(_), _) => TimeLimit::Unlimited,
            (_, TimeLimit::Secs(secs)) => TimeLimit::Secs(secs.saturating_add(run.stood().as_secs())),
            (_, unlimited) => unlimited,
        };
        let frame = ControllerToNode::SetTimeLimit { job: self.record.id, sluid: self.record.sluid, limit };
        turn.send(run.batch_host().to_owned(), frame);
    }
}
