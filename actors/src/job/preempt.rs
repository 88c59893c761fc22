//! Preemption by another job. The scheduler proposes it for one run, so that an old proposal never applies to a newer run. The
//! tasks are told at once; the end follows after the partition's `GraceTime`, unless the run ends by itself before.
//! [`super::suspend`] handles runs that are only suspended.

use super::{
    core::{JobCore, Turn},
    effects::JobEffect,
};
use crate::messages::job::JobTimer;
use garrick_events::records::{
    job::{Afterwards, Ending, Phase, PreemptMark},
    job_event::JobEvent,
};
use garrick_model::{
    config::PreemptMode,
    messages::node::SignalScope,
    signal,
    state::{JobState, Reason},
    view::PreemptTimes,
};
use garrick_plan::proposals::PreemptProposal;
use std::time::Duration;

impl JobCore {
    pub(super) fn preempt(&mut self, proposal: &PreemptProposal, turn: &mut Turn<'_>) {
        if proposal.mode == PreemptMode::Suspend {
            let accepted = self.record.sluid == proposal.sluid && self.stand_aside(proposal, turn);
            return turn.outcome(proposal.pass, accepted);
        }
        // Only the leader may end a component of a heterogeneous job.
        let own = self.record.sluid == proposal.sluid && self.het_leader().is_none();
        let run = self.record.phase.working().filter(|_| own);
        let accepted = run.is_some();
        // A run that is ending, or was told before, is not told again.
        if run.is_some_and(|run| run.ending.is_none() && run.preempted.is_none()) {
            let requeues = proposal.mode == PreemptMode::Requeue && self.may_be_requeued();
            let then = if requeues { Afterwards::Requeue { hold: None, delay: true } } else { Afterwards::Over };
            let ends = turn.now.plus(proposal.grace);
            let times = PreemptTimes { eligible: proposal.eligible, at: turn.now, ends };
            tracing::info!(job_id = self.record.id.0, by = proposal.by.0, requeues, "job.preempted");
            self.gives_way(PreemptMark { times, then, by: proposal.by }, turn);
            self.end_preempted(turn);
        } else if let Some(mark) = run.and_then(|run| run.preempted.clone()) {
            // A component may have missed it.
            self.het_have_others_give_way(&mark, turn);
        }
        turn.outcome(proposal.pass, accepted);
    }

    /// The run was told, and so were all components of a heterogeneous job.
    pub(super) fn gives_way(&mut self, mark: PreemptMark, turn: &mut Turn<'_>) {
        self.save(JobEvent::Preempted(mark.clone()), turn);
        self.het_have_others_give_way(&mark, turn);
        self.warn_of_preemption(turn);
        self.move_end(turn);
    }

    /// Tells the tasks that the run will be ended, as Slurm does: they are continued, then asked to end. If the site is
    /// configured so, they get the signal of `--signal` instead, also without grace.
    pub(super) fn warn_of_preemption(&self, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working().filter(|run| run.ending.is_none()) else { return };
        let Some(mark) = &run.preempted else { return };
        let has_grace = mark.times.ends > turn.now;
        if has_grace {
            turn.out.push(JobEffect::SetTimer { timer: JobTimer::Preempt, at: mark.times.ends });
        }
        if matches!(self.record.phase, Phase::Starting(_)) {
            return;
        }
        let users = self.record.spec.signal.filter(|warning| {
            let end = run.time_limit.duration().map(|limit| run.start.plus(limit + run.stood()));
            let before = Duration::from_secs(u64::from(warning.before_secs));
            // Otherwise it has had the signal.
            self.site.send_user_signal && end.is_none_or(|end| end.since(turn.now) > before)
        });
        let (signal, to) = match users {
            Some(warning) if warning.batch_only => (warning.signal, SignalScope::BatchShell),
            Some(warning) => (warning.signal, SignalScope::Steps),
            None if has_grace => (signal::SIGTERM, SignalScope::Steps),
            None => return,
        };
        for signal in [signal::SIGCONT, signal] {
            self.send_signal(run.batch_host(), signal, to, turn);
        }
    }

    /// Ends a run whose grace is over.
    pub(super) fn end_preempted(&mut self, turn: &mut Turn<'_>) {
        let run = self.record.phase.working().filter(|run| run.ending.is_none() && self.het_leader().is_none());
        let Some(run) = run else { return };
        let Some(mark) = &run.preempted else { return };
        if mark.times.ends > turn.now {
            // The clock was set back.
            return turn.out.push(JobEffect::SetTimer { timer: JobTimer::Preempt, at: mark.times.ends });
        }
        let (state, then) = (JobState::Preempted, mark.then);
        self.save(
            JobEvent::Ending(Ending {
                state,
                reason: Reason::None,
                then,
                by: None,
                at: Some(turn.now),
                unasked: false,
            }),
            turn,
        );
        self.ask_for_end(turn);
        self.het_end_others(state, then, None, turn);
    }
}
