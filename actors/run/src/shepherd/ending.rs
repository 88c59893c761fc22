//! Ends in the shepherd: signals, KillWait, the death of the launcher, the end of a step and of the job.

use crate::shepherd::{
    core::{LAUNCHER_RESTARTS, ShepherdCore},
    messages::{ShepherdEffect, ShepherdTimer},
    state::{Exit, ShepherdPhase, StreamState, TaskPhase},
};
use garrick_model::{
    ids::StepId,
    messages::{
        launcher::ToLauncher,
        shepherd::{ShepherdToStepMgr, SignalReach},
    },
    signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM},
    state::ExitStatus,
    time::Timestamp,
    usage::TaskUsage,
};
use std::time::Duration;

/// How long the launcher may take to report ends after everything was killed.
const LAST_ENDS: Duration = Duration::from_secs(2);

/// How long the launcher may take to write its buffers and end. A file server that does not answer must not keep the node.
const LEAVE: Duration = Duration::from_secs(10);

/// The status of a task whose end was not seen.
const EXIT_UNKNOWN: ExitStatus = ExitStatus { code: 1, signal: None };

/// The end of a task that is killed without its launcher.
fn killed() -> Exit {
    let status = ExitStatus { code: 0, signal: Some(SIGKILL as u8) };
    Exit { pid: 0, status, usage: TaskUsage::default(), survivors: false }
}

impl ShepherdCore {
    pub(super) fn signal_step(&self, step: StepId, signal: i32, reach: SignalReach, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get(&step) else { return };
        for (_, token) in &here.running {
            let over = self.tasks.get(token).is_none_or(|t| matches!(t.phase, TaskPhase::Ended { .. }));
            if !over {
                let message = ToLauncher::Signal { token: *token, signal, group: reach == SignalReach::Groups };
                out.push(ShepherdEffect::ToLauncher { message, passed: Vec::new() });
            }
        }
    }

    /// Signals everything of the run here. SIGSTOP holds until SIGCONT.
    pub(super) fn signal_run(&mut self, signal: i32, out: &mut Vec<ShepherdEffect>) {
        match signal {
            SIGSTOP => self.still = true,
            SIGCONT => {
                self.still = false;
                // The launcher may not have started them yet.
                for token in std::mem::take(&mut self.stopped_at_start) {
                    self.signal_task(token, SIGCONT, out);
                }
            }
            _ => {}
        }
        if self.phase == ShepherdPhase::Serving && self.launcher_up {
            out.push(ShepherdEffect::SignalRun { signal });
        }
    }

    fn signal_task(&self, token: u64, signal: i32, out: &mut Vec<ShepherdEffect>) {
        if self.tasks.get(&token).is_some_and(|t| !matches!(t.phase, TaskPhase::Ended { .. })) {
            let message = ToLauncher::Signal { token, signal, group: true };
            out.push(ShepherdEffect::ToLauncher { message, passed: Vec::new() });
        }
    }

    /// Stops a task that was just ordered, if the run is stopped.
    pub(super) fn stop_at_start(&mut self, token: u64, out: &mut Vec<ShepherdEffect>) {
        if self.still {
            self.stopped_at_start.push(token);
            self.signal_task(token, SIGSTOP, out);
        }
    }

    /// SIGCONT and SIGTERM now, SIGKILL after KillWait.
    pub(super) fn terminate(&mut self, now: Timestamp, step: StepId, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get_mut(&step) else { return };
        if std::mem::replace(&mut here.ending, true) {
            return;
        }
        if !self.launcher_up {
            return self.fail_unspawned(step, "the step was ended", out);
        }
        let attempt = here.attempt;
        self.signal_step(step, SIGCONT, SignalReach::Groups, out);
        self.signal_step(step, SIGTERM, SignalReach::Groups, out);
        if self.escalations.is_empty() {
            out.push(ShepherdEffect::SetTimer { timer: ShepherdTimer::Kill, after: self.config.kill_wait });
        }
        self.escalations.push_back((now.plus(self.config.kill_wait), step, attempt));
    }

    pub(super) fn escalate(&mut self, now: Timestamp, out: &mut Vec<ShepherdEffect>) {
        while let Some((deadline, step, attempt)) = self.escalations.front().copied() {
            if deadline > now {
                let after = deadline.since(now);
                out.push(ShepherdEffect::SetTimer { timer: ShepherdTimer::Kill, after });
                return;
            }
            self.escalations.pop_front();
            if self.steps.get(&step).is_some_and(|here| here.attempt == attempt) {
                self.kill(step, out);
            }
        }
    }

    pub(super) fn kill(&mut self, step: StepId, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get_mut(&step) else { return };
        here.ending = true;
        if !self.launcher_up {
            return self.fail_unspawned(step, "the step was ended", out);
        }
        self.signal_step(step, SIGKILL, SignalReach::Groups, out);
    }

    /// When all tasks of a step are over, kills what the launcher could not kill of their groups, or everything in the step's own
    /// cgroup.
    pub(super) fn step_over_if_done(&mut self, step: StepId, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get_mut(&step) else { return };
        if here.tasks_left > 0 || here.sweeping {
            return;
        }
        if here.share.own_cgroup {
            here.sweeping = true;
            out.push(ShepherdEffect::Sweep { step });
            return;
        }
        kill_groups(&mut here.groups, out);
        self.step_gone(step, out);
    }

    pub(super) fn step_gone(&mut self, step: StepId, out: &mut Vec<ShepherdEffect>) {
        if self.steps.get(&step).is_none_or(|s| s.tasks_left > 0) {
            return;
        }
        let here = self.steps.remove(&step);
        if let Some(here) = &here {
            self.put_frequency_back(here, out);
        }
        let open = here.and_then(|here| here.pmi).map(|mut pmi| pmi.left_open());
        out.extend(open.into_iter().flatten().map(|token| ShepherdEffect::Close { token }));
        self.say(ShepherdToStepMgr::StepGone { step }, out);
        self.gone_if_done(out);
    }

    /// Tasks of a dead launcher end with an unknown exit status and are killed; nothing is run again. `for_memory`: the job ran
    /// out of memory, and the kernel killed the launcher instead of the process that took the memory. Then the tasks ended for
    /// memory too.
    pub(super) fn launcher_down(
        &mut self,
        now: Timestamp,
        detail: &str,
        for_memory: bool,
        out: &mut Vec<ShepherdEffect>,
    ) {
        self.launcher_up = false;
        if self.phase == ShepherdPhase::Leaving {
            return self.gone(out);
        }
        self.complete = false;
        self.settings.forget();
        self.launcher_restarts += 1;
        out.push(ShepherdEffect::Log { text: format!("launcher of job {}: {detail}", self.config.job) });
        self.tasks_lost(now, detail, for_memory, out);
        self.lingering.clear();
        self.running_epilogs.clear();
        let again = self.launcher_restarts <= LAUNCHER_RESTARTS && self.phase == ShepherdPhase::Serving;
        // In both cases, all that it had started is killed.
        if again {
            out.push(ShepherdEffect::StartLauncher);
        } else {
            self.launcher_known = true;
            if self.phase == ShepherdPhase::Serving {
                out.push(ShepherdEffect::SweepJob);
            }
        }
        let steps: Vec<StepId> = self.steps.keys().copied().collect();
        for step in steps {
            if !again {
                self.fail_unspawned(step, "no launcher can be started", out);
            }
            self.step_over_if_done(step, out);
        }
        if !again && self.listing {
            self.list_tasks(out);
        }
        if self.phase == ShepherdPhase::Counting {
            self.gone_if_done(out);
        }
    }

    /// Reports the tasks of a launcher that ended.
    fn tasks_lost(&mut self, now: Timestamp, detail: &str, for_memory: bool, out: &mut Vec<ShepherdEffect>) {
        let message = format!(
            "[{}] error: launcher on {} ended ({detail}): exit status unknown",
            now.text_with_millis(&self.config.zone),
            self.config.node
        );
        for (token, task) in std::mem::take(&mut self.tasks) {
            out.push(ShepherdEffect::Close { token });
            let (step, rank) = (task.step, task.rank);
            match task.phase {
                TaskPhase::Ended { exit, oom } => self.report(step, rank, exit, oom.unwrap_or(false), false, out),
                TaskPhase::Running { .. } | TaskPhase::Launched if for_memory => {
                    self.report(step, rank, killed(), true, false, out);
                }
                TaskPhase::Running { .. } | TaskPhase::Launched => {
                    let message = message.clone();
                    self.say(
                        ShepherdToStepMgr::TaskFailed {
                            step,
                            rank,
                            message,
                            status: EXIT_UNKNOWN,
                            unknown: true,
                            untried: false,
                        },
                        out,
                    );
                }
            }
            if let Some(here) = self.steps.get_mut(&step) {
                here.tasks_left -= 1;
                here.forget(token);
                here.input.remove_reader(token);
            }
        }
    }

    /// Kills everything of the job here.
    pub(super) fn end_job(&mut self, out: &mut Vec<ShepherdEffect>) {
        if self.phase != ShepherdPhase::Serving {
            return;
        }
        self.phase = ShepherdPhase::Sweeping;
        for here in self.steps.values_mut() {
            here.ending = true;
        }
        // The last first: they may start after others.
        let steps: Vec<StepId> = self.steps.keys().rev().copied().collect();
        for step in steps {
            // This also reaches tasks that the launcher was told to spawn and has not spawned yet.
            self.signal_step(step, SIGKILL, SignalReach::Groups, out);
            self.fail_unspawned(step, "the job is ending", out);
        }
        out.push(ShepherdEffect::SweepJob);
    }

    pub(super) fn job_swept(&mut self, out: &mut Vec<ShepherdEffect>) {
        if self.phase != ShepherdPhase::Sweeping {
            return;
        }
        self.phase = ShepherdPhase::Counting;
        self.gone_if_done(out);
        if self.phase == ShepherdPhase::Counting {
            out.push(ShepherdEffect::SetTimer { timer: ShepherdTimer::LastEnds, after: LAST_ENDS });
        }
    }

    /// No process is left, so tasks without a reported end are reported as killed.
    pub(super) fn give_up_ends(&mut self, out: &mut Vec<ShepherdEffect>) {
        if self.phase != ShepherdPhase::Counting {
            return;
        }
        let tokens: Vec<u64> = self.tasks.keys().copied().collect();
        for token in tokens {
            let Some(task) = self.tasks.get_mut(&token) else { continue };
            task.streams = [StreamState::Closed; 2];
            if let TaskPhase::Ended { oom, .. } = &mut task.phase {
                oom.get_or_insert(false);
            } else {
                task.phase = TaskPhase::Ended { exit: killed(), oom: Some(false) };
            }
            out.push(ShepherdEffect::Close { token });
            self.report_if_over(token, out);
        }
        let steps: Vec<StepId> = self.steps.keys().copied().collect();
        for step in steps {
            self.step_gone(step, out);
        }
        self.gone_if_done(out);
    }

    /// After the last step the launcher ends: it writes its buffers for output packs first.
    pub(super) fn gone_if_done(&mut self, out: &mut Vec<ShepherdEffect>) {
        if self.phase != ShepherdPhase::Counting || !self.steps.is_empty() {
            return;
        }
        if !self.launcher_up {
            return self.gone(out);
        }
        self.phase = ShepherdPhase::Leaving;
        out.push(ShepherdEffect::ToLauncher { message: ToLauncher::Finish, passed: Vec::new() });
        out.push(ShepherdEffect::SetTimer { timer: ShepherdTimer::Leave, after: LEAVE });
    }

    /// Nothing is left.
    pub(super) fn gone(&mut self, out: &mut Vec<ShepherdEffect>) {
        self.phase = ShepherdPhase::Gone;
        self.say(ShepherdToStepMgr::Gone, out);
        out.push(ShepherdEffect::Finished);
    }
}

/// Kills what is left of process groups.
pub(super) fn kill_groups(groups: &mut Vec<u32>, out: &mut Vec<ShepherdEffect>) {
    let pids = std::mem::take(groups);
    if !pids.is_empty() {
        out.push(ShepherdEffect::KillGroups { pids });
    }
}
