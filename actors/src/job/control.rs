//! Commands of users and administrators: permissions, and the effect in each phase.

use super::{
    core::{JobCore, Turn},
    effects::JobEffect,
    told,
};
use crate::messages::{
    job::{Authority, CHANGED_MEANWHILE, JobAnswer, JobCommand, JobInput, Revise, TaskChoice},
    node::NodeInput,
};
use garrick_events::records::{
    job::{HeldBy, Phase, Resolved},
    job_event::{JobEvent, Revision, shifted},
};
use garrick_model::{
    messages::{
        command::JobChange,
        node::{ControllerToNode, SignalScope},
    },
    refusal::Refusal,
    spec::JobSpec,
    state::JobState,
    time::{TimeLimit, Timestamp},
};
use std::collections::BTreeSet;

impl JobCore {
    pub(super) fn command(
        &mut self,
        request: u64,
        by: Authority,
        tasks: TaskChoice,
        command: JobCommand,
        turn: &mut Turn<'_>,
    ) {
        let asked = told::name_of(&command);
        let result = match command {
            JobCommand::Resume if by.admin && matches!(self.chosen_tasks(&tasks), Ok(None)) => {
                self.resume_by_admin(request, turn)
            }
            command => Some(self.obey(by, tasks, command, turn)),
        };
        if let Some(what) = asked.filter(|_| !matches!(result, Some(Err(_)))) {
            told::tell_of_command(&self.record, by, what);
        }
        if let Some(result) = result {
            turn.out.push(JobEffect::Answer { request, answer: JobAnswer::Done(result) });
        }
    }

    fn obey(
        &mut self,
        by: Authority,
        tasks: TaskChoice,
        command: JobCommand,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        if !self.record.may_act(by.uid, by.admin) {
            return Err(Refusal::AccessDenied);
        }
        self.het_refuses(&command)?;
        self.cron_refuses(&command)?;
        if let Some(some) = self.chosen_tasks(&tasks)? {
            return match command {
                JobCommand::Cancel => {
                    self.cancel_tasks(&some, Some(by.uid), turn);
                    Ok(())
                }
                JobCommand::Hold { .. } | JobCommand::Release | JobCommand::Update(_) | JobCommand::Revise(_) => {
                    self.would_refuse(by, &command, turn.now)?;
                    // Their answers are known, so nobody waits for them: request 0.
                    let first = JobInput::Command { request: 0, by, tasks: None, command };
                    self.split_for(&some, &first, turn);
                    Ok(())
                }
                _ => Err(Refusal::JobPending),
            };
        }
        match command {
            JobCommand::Cancel => self.cancel(JobState::Cancelled, Some(by.uid), turn),
            JobCommand::Signal { signal, to } => self.signal(signal, to, turn),
            JobCommand::Hold { admin } => self.hold(if admin && by.admin { HeldBy::Admin } else { HeldBy::User }, turn),
            JobCommand::Release => self.release(by, turn),
            JobCommand::Requeue { hold } => {
                let held = if by.admin { HeldBy::Admin } else { HeldBy::User };
                self.requeue(hold.then_some(held), by.uid, turn)
            }
            JobCommand::RequeueSpecialExit => self.requeue(Some(HeldBy::SpecialExit), by.uid, turn),
            JobCommand::Suspend if by.admin => self.suspend(turn),
            // Administrators' commands were handled above, except for tasks of an array, which do not run.
            JobCommand::Suspend | JobCommand::Resume => Err(Refusal::AccessDenied),
            JobCommand::Update(mut change) => {
                self.complete_address(&mut change);
                self.update(by, *change, turn)
            }
            JobCommand::Revise(mut revise) => {
                self.complete_address(&mut revise.change);
                revise.change.patch_mail(&mut revise.spec.mail);
                self.revise_request(by, *revise, turn)
            }
            JobCommand::FinishAllocation { exit } => self.finish_allocation(exit, by.uid, turn),
        }
    }

    fn signal(&self, signal: i32, to: SignalScope, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        match &self.record.phase {
            Phase::Pending | Phase::Starting(_) => Err(Refusal::JobPending),
            Phase::Completing(..) | Phase::Over(..) => Err(Refusal::AlreadyDone),
            Phase::Running(run) | Phase::Suspended(run) => {
                self.send_signal(run.batch_host(), signal, to, turn);
                Ok(())
            }
        }
    }

    pub(super) fn send_signal(&self, node: &str, signal: i32, to: SignalScope, turn: &mut Turn<'_>) {
        turn.send(
            node.to_owned(),
            ControllerToNode::SignalJob { job: self.record.id, sluid: self.record.sluid, signal, to },
        );
    }

    fn hold(&mut self, by: HeldBy, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        if self.record.phase.end().is_some() {
            return Err(Refusal::AlreadyDone);
        }
        // A user's hold does not weaken an administrator's.
        if self.record.hold == Some(by) || self.record.hold.is_some_and(HeldBy::binds_user) {
            return Ok(());
        }
        // One that runs is held when it is requeued.
        self.abandon_commit(turn);
        self.let_go_of_kept(turn);
        self.save(JobEvent::Held(by), turn);
        self.check_eligible(turn);
        Ok(())
    }

    fn release(&mut self, by: Authority, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        if self.record.phase.end().is_some() {
            return Err(Refusal::AlreadyDone);
        }
        match self.record.hold {
            None => Ok(()),
            Some(held) => {
                may_release(held, by)?;
                self.save(JobEvent::Released { priority: self.record.priority.max(1) }, turn);
                self.check_eligible(turn);
                Ok(())
            }
        }
    }

    /// What the tasks waiting here would answer, since their requests and state would equal this record.
    fn would_refuse(&self, by: Authority, command: &JobCommand, now: Timestamp) -> Result<(), Refusal> {
        match (command, self.record.hold) {
            (JobCommand::Release, Some(held)) => may_release(held, by),
            (JobCommand::Update(change), _) => self.permits(by, change, now).and_then(|()| stands_aside(change)),
            (JobCommand::Revise(revise), _) => {
                self.permits(by, &revise.change, now)?;
                if revise.is_of(&self.record) { Ok(()) } else { Err(CHANGED_MEANWHILE) }
            }
            _ => Ok(()),
        }
    }

    /// A change that admission did not judge.
    fn update(&mut self, by: Authority, change: JobChange, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        if !matches!(self.record.phase, Phase::Pending) {
            return self.update_running(by, change, turn);
        }
        self.permits(by, &change, turn.now)?;
        stands_aside(&change)?;
        let spec = change.patch(&self.record.spec, self.shown_limit());
        let resolved = self.record.resolved.clone();
        self.revise_waiting(by, change, spec, resolved, turn)
    }

    /// A change that admission judged.
    fn revise_request(&mut self, by: Authority, revise: Revise, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        if !matches!(self.record.phase, Phase::Pending) {
            return self.update_running(by, revise.change, turn);
        }
        self.permits(by, &revise.change, turn.now)?;
        if !revise.is_of(&self.record) {
            return Err(CHANGED_MEANWHILE);
        }
        self.revise_waiting(by, revise.change, revise.spec, revise.resolved, turn)
    }

    /// May this user make this change in the job's current phase?
    fn permits(&self, by: Authority, change: &JobChange, now: Timestamp) -> Result<(), Refusal> {
        let waiting = matches!(self.record.phase, Phase::Pending);
        if self.record.phase.end().is_some() && !only_comments(change) {
            return Err(Refusal::AlreadyDone);
        }
        if !waiting && is_of_waiting_jobs(change) {
            return Err(Refusal::JobNotPending);
        }
        if waiting && change.end_time.is_some() {
            return Err(Refusal::JobNotRunning);
        }
        if change.nodes.is_some_and(|n| n.min == 0 || n.max.is_some_and(|max| max < n.min)) || change.tasks == Some(0) {
            return Err(Refusal::BadNodeCount);
        }
        if change.request.has_zero() {
            return Err(Refusal::BadNodeCount);
        }
        if change.request.deadline.is_some_and(|at| at <= now) {
            return Err(Refusal::InvalidTimeLimit);
        }
        if change.array_limit.is_some() && self.record.array.is_none() && self.record.array_task.is_none() {
            return Err(Refusal::InvalidArray);
        }
        if !by.admin {
            let shown = if self.record.hold.is_some() { 0 } else { self.priority() };
            let raises_priority = change.priority.is_some_and(|p| p > shown);
            if raises_priority
                || change.nice.is_some_and(|n| n < self.record.spec.nice)
                || change.admin_comment.is_some()
                || change.site_factor.is_some()
                || change.request.is_privileged()
            {
                return Err(Refusal::AccessDenied);
            }
        }
        let limit = change.limit_after(self.shown_limit());
        if waiting
            && (change.time_min.is_some() || change.time_limit.is_some() || change.time_limit_delta_secs.is_some())
        {
            let least = change.time_min.or(self.record.spec.time_min);
            if least.is_some_and(|least| least != limit && least.min(limit) == limit) {
                return Err(Refusal::InvalidTimeLimit);
            }
        }
        Ok(())
    }

    fn revise_waiting(
        &mut self,
        by: Authority,
        mut change: JobChange,
        spec: JobSpec,
        resolved: Resolved,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        self.abandon_commit(turn);
        // Priority 0 means hold in Slurm.
        if change.priority == Some(0) {
            change.priority = None;
            self.hold(if by.admin { HeldBy::Admin } else { HeldBy::User }, turn)?;
        }
        // Any other priority releases a held job (scontrol(1)).
        if let Some(priority) = change.priority.filter(|_| self.record.hold.is_some()) {
            self.save(JobEvent::Released { priority }, turn);
        }
        let before = &self.record.spec;
        let asks_anew = change.dependencies.is_some() || spec.dependencies != before.dependencies;
        self.calculated = self.calculated.map(|calculated| shifted(calculated, before.nice, spec.nice));
        if std::mem::take(&mut change.reset_accrue_time) {
            self.reset_accrual(turn);
        }
        if change != JobChange::default() {
            let revision = Revision::new(&self.record, &change, spec, resolved);
            self.save(JobEvent::Revised(Box::new(revision)), turn);
        }
        self.await_deadline(turn);
        if asks_anew {
            self.siblings = None;
            self.ask_dependencies(turn);
        }
        self.check_eligible(turn);
        Ok(())
    }

    /// Removes reservations that are over from its request.
    pub(super) fn leave_reservations(&mut self, gone: &BTreeSet<String>, turn: &mut Turn<'_>) {
        let asked = &self.record.spec.reservations;
        let left: Vec<String> = asked.iter().filter(|name| !gone.contains(*name)).cloned().collect();
        if matches!(self.record.phase, Phase::Pending) && left.len() < asked.len() {
            self.abandon_commit(turn);
            let change = JobChange { reservations: Some(left), ..JobChange::default() };
            let spec = change.patch(&self.record.spec, self.shown_limit());
            let revision = Revision::new(&self.record, &change, spec, self.record.resolved.clone());
            self.save(JobEvent::Revised(Box::new(revision)), turn);
            self.check_eligible(turn);
        }
    }

    fn update_running(&mut self, by: Authority, mut change: JobChange, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        // Only the controller says how nodes are shared, and it does so while a job waits.
        change.sharing = None;
        change.reset_accrue_time = false;
        self.permits(by, &change, turn.now)?;
        let current = self.shown_limit();
        if let Some((at, run)) = change.end_time.take().zip(self.record.phase.working()) {
            change.time_limit = Some(limit_until(run.start, at));
        }
        let limit = change.limit_after(current);
        if change.time_limit_delta_secs.take().is_some() && matches!(limit, TimeLimit::Secs(_)) {
            change.time_limit = Some(limit);
        }
        if let Some(limit) = change.time_limit.take().filter(|limit| *limit != current) {
            let longer = limit.min(current) == current;
            if longer && !by.admin {
                return Err(Refusal::AccessDenied);
            }
            self.save(JobEvent::LimitChanged(limit), turn);
            self.tell_limit(turn);
            self.move_end(turn);
        }
        if change != JobChange::default() {
            let requeue = change.requeue.filter(|_| self.het_leader().is_none());
            self.save(JobEvent::Updated(Box::new(change)), turn);
            if requeue.is_some() {
                self.set_requeue(self.may_be_requeued(), turn);
            }
        }
        Ok(())
    }

    /// Tells the nodes the new expected end of the run.
    pub(super) fn move_end(&self, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working() else { return };
        let (sluid, expected_end) = (self.record.sluid, run.expected_end());
        for node in run.unreleased() {
            turn.tell_node(node.to_owned(), NodeInput::MoveEnd { job: self.record.id, sluid, expected_end });
        }
    }
}

/// The limit of a run that is to end then, in whole minutes, and one at least.
fn limit_until(start: Timestamp, end: Timestamp) -> TimeLimit {
    TimeLimit::Secs((end.since(start).as_secs() / 60).max(1) * 60)
}

/// The only changes of a waiting job that need not be judged by admission.
fn stands_aside(change: &JobChange) -> Result<(), Refusal> {
    if change.is_aside() { Ok(()) } else { Err(CHANGED_MEANWHILE) }
}

/// A user may not remove an administrator's hold.
fn may_release(held: HeldBy, by: Authority) -> Result<(), Refusal> {
    if held.binds_user() && !by.admin { Err(Refusal::AccessDenied) } else { Ok(()) }
}

/// What cannot be changed any more once a job runs.
fn is_of_waiting_jobs(change: &JobChange) -> bool {
    change.partitions.is_some()
        || change.nodes.is_some()
        || change.tasks.is_some()
        || change.memory.is_some()
        || change.constraint.is_some()
        || change.extra.is_some()
        || change.prefer.is_some()
        || change.licenses.is_some()
        || change.begin.is_some()
        || change.dependencies.is_some()
        || change.nodelist.is_some()
        || change.exclude.is_some()
        || change.switches.is_some()
        || change.segment.is_some()
        || change.reservations.is_some()
        || change.time_min.is_some()
        || !change.request.is_default()
        || change.mcs_label.is_some()
}

fn only_comments(change: &JobChange) -> bool {
    let rest = JobChange { comment: None, admin_comment: None, ..change.clone() };
    rest == JobChange::default()
}
