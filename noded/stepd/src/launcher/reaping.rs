//! Ends of tasks, their output on its way into packs, and the reports of both to a later `stepd`.

use super::{
    packs::{COPY_AFTER, Told},
    service::{Service, ServiceError, Task, call},
};
use garrick_kernel::{
    reap::{self, Ended},
    sampling::OwnIo,
    signals::{self, Delivery},
};
use garrick_model::{
    messages::launcher::{FromLauncher, TaskHeld, TaskLabel, TaskOver},
    state::ExitStatus,
    usage::TaskUsage,
};
use std::time::Instant;

/// Tasks or ends in one `Held`: with the longest of paths they stay within a frame.
const HELD_A_MESSAGE: usize = 512;

/// Killed process groups with members that are not gone, which are asked about again.
const MOST_DYING: usize = 64;

/// Failures of packs that are kept while there is nobody to be told.
const MOST_UNTOLD: usize = 64;

/// A task that is over, whose output is not all in its pack.
pub(super) struct Draining {
    token: u64,
    task: Task,
    ended: Ended,
    survivors: bool,
    /// There is no hurry to tell of it.
    soon: bool,
}

impl Service {
    pub(super) fn reap(&mut self) -> Result<(), ServiceError> {
        self.children.take_one().map_err(call("signalfd"))?;
        while let Some(pid) = reap::peek_any().map_err(call("waitid"))? {
            let Some(token) = self.tokens.remove(&pid) else {
                // An orphan of some task.
                reap::reap_pid(pid).map_err(call("waitid"))?;
                continue;
            };
            // Not reaped yet, so the group is still the task's. Whoever may not be killed by this user is `stepd`'s to kill.
            let _ = signals::send_group(pid, libc::SIGKILL);
            let mut ended = self.take_away(pid)?;
            let Some(mut task) = self.tasks.remove(&token) else { continue };
            let again = task.again.take().filter(|_| self.maker.fell_short(pid));
            match (again, task.ended_by) {
                (Some(again), None) => {
                    self.spawn_again(task, again);
                    continue;
                }
                // It was to end, and did before its program was there.
                (Some(_), signal) => ended.status = ExitStatus { code: 0, signal },
                (None, _) => {}
            }
            let survivors = self.has_survivors(pid);
            let soon = self.go_on_after(token);
            self.end_output(task.unasked.as_deref());
            match task.capture {
                Some(_) => {
                    self.captured -= 1;
                    self.draining.push_back(Draining { token, task, ended, survivors, soon });
                }
                None => self.over(token, &task, ended, survivors, soon),
            }
        }
        self.look_after_the_dying();
        Ok(())
    }

    /// Reaps a task. The kernel adds what it read and wrote to this process's own at that moment.
    fn take_away(&self, pid: u32) -> Result<Ended, ServiceError> {
        let before = self.io.as_ref().and_then(OwnIo::look);
        let mut ended = reap::reap_pid(pid).map_err(call("waitid"))?;
        if let Some((before, after)) = before.zip(self.io.as_ref().and_then(OwnIo::look)) {
            (ended.usage.read, ended.usage.written) = after.since(&before);
        }
        ended.usage.rss_is_bound = ended.usage.max_rss_kib <= reap::own_peak_kib();
        Ok(ended)
    }

    /// Whether only processes are left in a killed group that are not this user's to kill. Where others are, which are dying,
    /// nobody can say yet: it is asked again when children end. (It is only asked, so it does no harm should the number mean
    /// another group by then.)
    fn has_survivors(&mut self, group: u32) -> bool {
        match signals::send_group(group, 0) {
            Ok(Delivery::Gone) => false,
            Ok(Delivery::Sent) => {
                self.dying.push_back(group);
                false
            }
            Err(_) => true,
        }
    }

    fn look_after_the_dying(&mut self) {
        let excess = self.dying.len().saturating_sub(MOST_DYING);
        for n in 0..self.dying.len() {
            let Some(pid) = self.dying.pop_front() else { break };
            // Of too many, those that take longest are left to `stepd`.
            if self.has_survivors(pid) || n < excess {
                self.dying.retain(|other| *other != pid);
                self.answer(&FromLauncher::Survivors { pid });
            }
        }
    }

    fn over(&mut self, token: u64, task: &Task, ended: Ended, survivors: bool, soon: bool) {
        let Ended { status, usage } = ended;
        self.remember(token, task.label, status, usage);
        let end = FromLauncher::Exited { token, pid: task.pid, status, usage, survivors };
        if soon { self.answer_soon(&end) } else { self.answer(&end) }
    }

    pub(super) fn remember(&mut self, token: u64, label: TaskLabel, status: ExitStatus, usage: TaskUsage) {
        self.ends.push(TaskOver { token, label, status, usage }, self.connection.is_here());
    }

    /// What tasks wrote goes into their packs, a bounded part of it at a time.
    pub(super) fn keep_packs(&mut self) -> Result<(), ServiceError> {
        if self.draining.is_empty() && self.copy_at.is_none() && self.packs.is_idle() {
            return Ok(());
        }
        let now = Instant::now();
        for _ in 0..self.draining.len() {
            let Some(mut one) = self.draining.pop_front() else { break };
            let Some(capture) = &mut one.task.capture else { continue };
            let Ended { status, usage } = one.ended;
            let outcome = match self.packs.copy_rest(capture, now) {
                Ok(true) => {
                    self.draining.push_back(one);
                    // The others had their turn when this one comes again.
                    break;
                }
                Ok(false) => self.packs.finish(capture, status, usage, now),
                Err(e) => {
                    // Its end may still find room.
                    let _ = self.packs.finish(capture, status, usage, now);
                    Err(e)
                }
            };
            if let Err(e) = outcome {
                self.tell((one.task.label, e.to_string()));
            }
            self.over(one.token, &one.task, one.ended, one.survivors, one.soon);
        }
        if self.copy_at.is_some_and(|at| at <= now) {
            for capture in self.tasks.values_mut().filter_map(|t| t.capture.as_deref_mut()) {
                if capture.is_long(now) {
                    self.packs.copy_live(capture, now);
                }
            }
            self.copy_at = (self.captured > 0).then(|| now + COPY_AFTER);
        }
        let told = self.packs.keep(now);
        self.tell_all(told);
        Ok(())
    }

    /// What tasks wrote until they were killed. Nobody is left to be told of failures.
    pub(super) fn save_output(&mut self) {
        let now = Instant::now();
        let tasks = self.tasks.values_mut().chain(self.draining.iter_mut().map(|one| &mut one.task));
        for capture in tasks.filter_map(|t| t.capture.as_deref_mut()) {
            while matches!(self.packs.copy_rest(capture, now), Ok(true)) {}
        }
        self.packs.close_all();
    }

    pub(super) fn tell_all(&mut self, told: Vec<Told>) {
        for one in told {
            self.tell(one);
        }
    }

    /// A pack's failure, now or when there is somebody to be told.
    pub(super) fn tell(&mut self, (label, message): Told) {
        if self.connection.is_here() {
            self.answer(&FromLauncher::PackFailed { label, message });
        } else if self.untold.len() < MOST_UNTOLD {
            self.untold.push((label, message));
        }
    }

    pub(super) fn tell_what_is_here(&mut self) {
        let held = |(token, task): (&u64, &Task)| TaskHeld {
            token: *token,
            pid: task.pid,
            label: task.label,
            error_path: task.error_path.clone(),
        };
        let mut tasks: Vec<TaskHeld> = self.tasks.iter().map(held).collect();
        tasks.extend(self.draining.iter().map(|one| held((&one.token, &one.task))));
        tasks.sort_unstable_by_key(|t| t.token);
        let ended: Vec<TaskOver> = self.ends.iter().copied().collect();
        let (mut tasks, mut ended) = (tasks.chunks(HELD_A_MESSAGE), ended.chunks(HELD_A_MESSAGE));
        let mut messages = Vec::new();
        loop {
            let more = tasks.len() > 1 || ended.len() > 1;
            let (tasks, ended) = (tasks.next().unwrap_or_default().to_vec(), ended.next().unwrap_or_default().to_vec());
            messages.push(FromLauncher::Held { tasks, ended, first: self.first, more });
            if !more {
                break;
            }
        }
        for message in &messages {
            self.answer(message);
        }
        let untold = std::mem::take(&mut self.untold);
        self.tell_all(untold);
    }
}
