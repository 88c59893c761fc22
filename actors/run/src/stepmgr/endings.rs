//! How steps end: by themselves, withdrawn while they waited, tried again, or lost with their actor. Every accepted step with a
//! number passes through here once.

use crate::{
    step::{NodeSlot, StepEffect},
    stepmgr::{
        core::StepMgrCore,
        ends::EndedStep,
        journal::ranges,
        messages::{ClientId, StepMgrEffect, StepMgrTimer},
        rows::RowId,
        schedule::numbered,
        state::{RecordState, RunPhase},
    },
};
use garrick_events::steps::{
    end::{StepEnd, StepResult},
    event::StepEvent,
};
use garrick_model::{
    batch::RetryOn,
    ids::{StepId, StepKey},
    messages::{shepherd::StepMgrToShepherd, step::StepMgrToCommand},
    state::{ExitStatus, StepState},
    time::Timestamp,
    usage::{TaskUsage, UsageSpread},
};
use roaring::RoaringBitmap;
use std::{sync::Arc, time::Duration};

impl StepMgrCore {
    /// Handles the effects of a running step.
    pub(super) fn on_step(
        &mut self,
        now: Timestamp,
        step: StepKey,
        effects: Vec<StepEffect>,
        out: &mut Vec<StepMgrEffect>,
    ) {
        for effect in effects {
            match effect {
                StepEffect::ToShepherd { node, message } => {
                    if matches!(message, StepMgrToShepherd::Launch(_))
                        && let Some(record) = self.steps.get_mut(&step)
                    {
                        record.ordered = Some(self.asked);
                    }
                    out.push(StepMgrEffect::ToShepherd { node, message });
                }
                StepEffect::ToClient(message) => {
                    let Some(record) = self.steps.get(&step) else { continue };
                    if !record.watchers.is_empty() && matches!(message, StepMgrToCommand::Output { .. }) {
                        for watcher in &record.watchers {
                            Self::tell(*watcher, message.clone(), out);
                        }
                    }
                    if let Some(client) = record.client {
                        Self::tell(client, message, out);
                    }
                }
                StepEffect::ToWatcher { watcher, message } => {
                    let watcher = ClientId(watcher);
                    let Some(record) = self.steps.get_mut(&step).filter(|r| r.watchers.contains(&watcher)) else {
                        continue;
                    };
                    if let StepMgrToCommand::Refused(refusal) = message {
                        record.watchers.retain(|other| *other != watcher);
                        self.refuse(watcher, refusal, out);
                    } else {
                        Self::tell(watcher, message, out);
                    }
                }
                StepEffect::Over(result) => self.step_over(now, result, out),
                StepEffect::NotStarted => self.not_started(now, step, out),
                // The step's actor, or its host, keeps its timers.
                StepEffect::SetTimer { .. } => {}
            }
        }
    }

    /// No process of a step is left.
    pub(super) fn step_over(&mut self, now: Timestamp, mut result: StepResult, out: &mut Vec<StepMgrEffect>) {
        let key = result.step.key();
        let Some(record) = self.steps.get(&key).filter(|record| record.state.placement().is_some()) else { return };
        // A script runs once, however many tasks it asked for.
        let is_one_of_several = record.spec.script.is_some() && record.shape.tasks > 1 && result.spread.is_none();
        if is_one_of_several && result.usage.is_measured() {
            result.spread = Some(Arc::new(UsageSpread::of_one(&result.usage, 0, 0)));
        }
        self.leave_place(now, key, out);
        self.settled = false;
        match self.try_after(now, key, &result) {
            Some((delay, tries)) => self.try_again(now, key, delay, tries, Some(&result), out),
            None => self.record_end(now, result.clone(), out),
        }
        if key == StepKey::BATCH {
            self.batch_over(now, &result, out);
        }
        match self.phase {
            RunPhase::Starting | RunPhase::Running => self.schedule(now, out),
            RunPhase::Ending if self.steps.is_empty() => self.sweep(now, out),
            _ => self.look_for_end(now, out),
        }
    }

    /// If a step that ended is tried again: after which delay, and its number of tries by then.
    fn try_after(&self, _now: Timestamp, key: StepKey, result: &StepResult) -> Option<(Duration, u32)> {
        if !self.phase.takes_steps() || result.state == StepState::Completed {
            return None;
        }
        let record = self.steps.get(&key)?;
        let policy = record.spec.retry.as_ref().filter(|_| record.row.is_some())?;
        let given_up = self.ledger.is_stopped(record.spec.fail_limit);
        if record.attempt >= policy.count || given_up || self.is_too_large(&record.shape) {
            return None;
        }
        let lost = matches!(result.ended, Some(StepEnd::NodeLost { .. } | StepEnd::ExitUnknown))
            || result.state == StepState::NodeFail;
        let timeout = result.state == StepState::Timeout;
        let oom = result.state == StepState::OutOfMemory;
        let by_itself =
            matches!(result.ended, None | Some(StepEnd::BadExit | StepEnd::TaskOutOfMemory | StepEnd::WaitOver));
        if !(lost || timeout || oom || by_itself) {
            return None;
        }
        let meant = |on: &RetryOn| match on {
            RetryOn::Codes(from, to) => {
                by_itself && result.exit.signal.is_none() && (*from..=*to).contains(&result.exit.code)
            }
            RetryOn::Signal(signal) => by_itself && result.exit.signal == Some(*signal),
            RetryOn::NodeFail => lost,
            RetryOn::Timeout => timeout,
            RetryOn::OutOfMemory => oom,
        };
        let wanted = policy.on.is_empty() || policy.on.iter().any(meant);
        wanted.then(|| (Duration::from_secs(u64::from(policy.delay_secs)), record.attempt + 1))
    }

    /// Queues a step that ran for another try. `tries`: number before the next one; `ended`: how the previous one ended, if it
    /// began.
    pub(super) fn try_again(
        &mut self,
        now: Timestamp,
        key: StepKey,
        delay: Duration,
        tries: u32,
        ended: Option<&StepResult>,
        out: &mut Vec<StepMgrEffect>,
    ) {
        if let Some(result) = self.end_of_stopped(key) {
            return self.record_end(now, result, out);
        }
        let Some((id, member)) = self.steps.remove(&key).and_then(|r| r.row) else { return };
        let after = now.plus(delay);
        let ended = ended.cloned().map(Box::new);
        self.record(StepEvent::Retried { step: key, attempt: tries, after, ended, at: Some(now) }, out);
        self.reports.step_waits(key);
        let Some(row) = self.rows.get_mut(id) else { return };
        row.running -= 1;
        if delay.is_zero() {
            row.tries.insert(member, tries);
            row.waiting.insert(member);
        } else if self.rows.delay(id, member, tries, after) {
            out.push(StepMgrEffect::SetTimer { timer: StepMgrTimer::Retry, after: delay });
        }
        self.rows.settle(id, &mut self.queue);
        self.tell_curious(now, out);
    }

    /// Members whose delay is over wait like the others.
    pub(super) fn delays_over(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        while let Some((id, member)) = self.rows.due(now) {
            if let Some(row) = self.rows.get_mut(id) {
                row.waiting.insert(member);
                self.rows.settle(id, &mut self.queue);
            }
        }
        if let Some(next) = self.rows.next_due() {
            out.push(StepMgrEffect::SetTimer { timer: StepMgrTimer::Retry, after: next.since(now) });
        }
        self.schedule(now, out);
    }

    /// A step's actor died: its processes are killed, and it ends as failed.
    pub(super) fn step_crashed(&mut self, now: Timestamp, step: StepKey, out: &mut Vec<StepMgrEffect>) {
        let Some(record) = self.steps.get(&step) else { return };
        let RecordState::Running { placement, .. } = &record.state else { return };
        let id = StepId::of(self.facts.job, step);
        for node in &placement.nodes {
            let message = StepMgrToShepherd::Kill { step: id };
            out.push(StepMgrEffect::ToShepherd { node: NodeSlot(node.slot), message });
        }
        out.push(StepMgrEffect::Log { text: format!("the actor of step {id} died; its tasks are killed") });
        self.step_lost_hold(now, step, out);
    }

    /// Removes a command's waiting step from the queue for good.
    pub(super) fn withdraw(&mut self, now: Timestamp, step: u32, cause: StepEnd, out: &mut Vec<StepMgrEffect>) {
        let step = StepKey::number(step);
        let Some(record) = self.steps.get(&step) else { return };
        let RecordState::Queued { key, .. } = record.state else { return };
        let request = record.request;
        self.queue.remove(key);
        self.attended_waiting -= 1;
        request.and_then(|request| self.asked_for.remove(&request));
        self.unblock(key);
        let state = cause.state().unwrap_or(StepState::Cancelled);
        let result = StepResult {
            step: StepId::of(self.facts.job, step),
            state,
            exit: ExitStatus::SUCCESS,
            ended: Some(cause),
            usage: TaskUsage::default(),
            spread: None,
            detail: None,
        };
        self.record_end(now, result, out);
    }

    fn unblock(&mut self, key: crate::stepmgr::queue::QueueKey) {
        if self.blocked.as_ref().is_some_and(|b| b.key == key) {
            self.blocked = None;
            self.settled = false;
        }
    }

    /// Waiting members of a row are over for good, without having run (this time).
    pub(super) fn withdraw_members(
        &mut self,
        now: Timestamp,
        id: RowId,
        members: &RoaringBitmap,
        cause: &StepEnd,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let Some(row) = self.rows.get_mut(id) else { return };
        row.waiting -= members;
        row.corresponding -= members;
        let which = row.named(members, None);
        let delayed: Vec<u32> = row.delayed.keys().copied().filter(|m| members.contains(*m)).collect();
        let (first, key) = (row.first, row.key);
        let steps: Vec<(StepKey, bool)> =
            members.iter().map(|member| (row.step(member), row.tries.contains_key(&member))).collect();
        for member in delayed {
            self.rows.undelay(id, member);
        }
        if *cause == StepEnd::DependencyNeverSatisfied {
            self.note_line(
                format!("step {}.{which} does not run: its dependency can never be satisfied", self.facts.job),
                out,
            );
        }
        let ranges = ranges(members);
        let state = cause.state().unwrap_or(StepState::Cancelled);
        let event = StepEvent::Withdrawn { first, members: ranges, state, cause: cause.clone(), at: now };
        self.record(event, out);
        let first = self.reports.changed();
        self.report_later(first, out);
        let end = EndedStep { state, exit: ExitStatus::SUCCESS, minibatch: true };
        for (step, began) in steps {
            self.note_end(step, end, began);
            self.tell_waiters(step, end, out);
        }
        if let Some(row) = self.rows.settle(id, &mut self.queue) {
            self.unblock(key);
            self.release_hold(id, &row);
        }
        self.tell_curious(now, out);
    }

    /// Withdraws all waiting steps because the job ends.
    pub(super) fn withdraw_all(&mut self, now: Timestamp, cause: &StepEnd, out: &mut Vec<StepMgrEffect>) {
        let attended: Vec<u32> = self
            .steps
            .iter()
            .filter(|(_, r)| matches!(r.state, RecordState::Queued { .. }))
            .filter_map(|(key, _)| key.step.number())
            .collect();
        for step in attended {
            self.withdraw(now, step, cause.clone(), out);
        }
        let rows: Vec<(RowId, RoaringBitmap)> = self.rows.iter().map(|(id, row)| (id, row.all_waiting())).collect();
        for (id, members) in rows {
            if !members.is_empty() {
                self.withdraw_members(now, id, &members, cause, out);
            }
        }
    }

    /// Records and reports the end of a step, and tells commands that wait for it.
    pub(super) fn record_end(&mut self, now: Timestamp, result: StepResult, out: &mut Vec<StepMgrEffect>) {
        let key = result.step.key();
        let record = self.steps.remove(&key);
        let ran = record.as_ref().is_some_and(|r| r.state.placement().is_some());
        let first = self.reports.step_ended(key);
        self.report_later(first, out);
        let (exit, state) = (result.exit, result.state);
        self.record(StepEvent::Ended { result, at: now }, out);
        self.note_limit(record.as_ref().and_then(|r| r.spec.fail_limit));
        if let Some((id, member)) = record.as_ref().and_then(|r| r.row)
            && let Some(row) = self.rows.get_mut(id)
        {
            row.running -= 1;
            row.tries.remove(&member);
            if let Some(row) = self.rows.settle(id, &mut self.queue) {
                self.release_hold(id, &row);
            }
        }
        for client in record.iter().flat_map(|r| r.client.iter().chain(&r.watchers)).copied() {
            if self.clients.contains_key(&client) {
                Self::tell(client, StepMgrToCommand::Finished { exit, state }, out);
                self.conversation_over(client, out);
            }
        }
        if numbered(key) {
            let minibatch = record.is_none_or(|r| r.row.is_some());
            let end = EndedStep { state, exit, minibatch };
            self.note_end(key, end, ran);
            self.tell_waiters(key, end, out);
            self.tell_curious(now, out);
        }
    }

    fn tell_waiters(&mut self, key: StepKey, end: EndedStep, out: &mut Vec<StepMgrEffect>) {
        let drained = self.is_drained();
        for (client, worst) in self.waiters.step_over(key, end.verdict(), end.minibatch, drained) {
            self.tell_drained(client, worst, out);
        }
    }
}
