//! Giving way to another job: told by the scheduler, by run, so that an old proposal never meets a newer run. The tasks are
//! told at once; the end comes after the partition's `GraceTime`, unless the run ends by itself before. Who is only suspended is
//! the business of [`super::suspend`].

use super::{
    core::{JobCore, Turn},
    messages::{JobEffect, JobTimer},
    record::{Afterwards, Ending, Phase, PreemptMark},
    state::JobEvent,
};
use crate::scheduler::preempt::PreemptProposal;
use garrick_model::{
    config::PreemptMode,
    messages::node::SignalScope,
    signal,
    state::{JobState, Reason},
    view::PreemptTimes,
};

impl JobCore {
    pub(super) fn preempt(&mut self, proposal: &PreemptProposal, turn: &mut Turn<'_>) {
        if proposal.mode == PreemptMode::Suspend {
            let accepted = self.record.sluid == proposal.sluid && self.stand_aside(proposal, turn);
            return turn.out.push(JobEffect::Outcome { pass: proposal.pass, accepted });
        }
        let run = self.record.phase.working().filter(|_| self.record.sluid == proposal.sluid);
        let accepted = run.is_some();
        // One that ends anyhow, or was told before, is not told again.
        if run.is_some_and(|run| run.ending.is_none() && run.preempted.is_none()) {
            let requeues = proposal.mode == PreemptMode::Requeue && self.may_be_requeued();
            let then = if requeues { Afterwards::Requeue { hold: None, delay: true } } else { Afterwards::Over };
            let ends = turn.now.plus(proposal.grace);
            let times = PreemptTimes { eligible: proposal.eligible, at: turn.now, ends };
            tracing::info!(job_id = self.record.id.0, by = proposal.by.0, requeues, "job.preempted");
            self.save(JobEvent::Preempted(PreemptMark { times, then, by: proposal.by }), turn);
            self.warn_of_preemption(turn);
            self.move_end(turn);
            self.end_preempted(turn);
        }
        turn.out.push(JobEffect::Outcome { pass: proposal.pass, accepted });
    }

    /// Tells the tasks that the run will be ended, as Slurm does: they are continued, then asked to end.
    pub(super) fn warn_of_preemption(&self, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working() else { return };
        let Some(mark) = run.preempted.as_ref().filter(|mark| mark.times.ends > turn.now && run.ending.is_none())
        else {
            return;
        };
        turn.out.push(JobEffect::SetTimer { timer: JobTimer::Preempt, at: mark.times.ends });
        if !matches!(self.record.phase, Phase::Starting(_)) {
            for signal in [signal::SIGCONT, signal::SIGTERM] {
                self.send_signal(run.batch_host(), signal, SignalScope::Steps, turn);
            }
        }
    }

    /// Ends a run whose grace is over.
    pub(super) fn end_preempted(&mut self, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working().filter(|run| run.ending.is_none()) else { return };
        let Some(mark) = &run.preempted else { return };
        if mark.times.ends > turn.now {
            // The clock was set back.
            return turn.out.push(JobEffect::SetTimer { timer: JobTimer::Preempt, at: mark.times.ends });
        }
        let (state, then) = (JobState::Preempted, mark.then);
        self.save(JobEvent::Ending(Ending { state, reason: Reason::None, then, by: None }), turn);
        self.ask_for_end(turn);
    }
}
