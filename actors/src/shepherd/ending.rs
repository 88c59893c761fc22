//! The shepherd's part about ends: signals, KillWait, the launcher's death, the end of a step and of the job.

use crate::shepherd::{
    core::{LAUNCHER_RESTARTS, ShepherdCore},
    messages::{ShepherdEffect, ShepherdTimer},
    state::{ShepherdPhase, StreamState, TaskPhase},
};
use garrick_model::{
    ids::StepId,
    messages::{
        launcher::{TaskUsage, ToLauncher},
        shepherd::{ShepherdToStepMgr, SignalReach},
    },
    state::ExitStatus,
    time::Timestamp,
};
use std::time::Duration;

// Linux's numbers; the launcher runs on Linux only.
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;

/// After everything was killed, how long the launcher may take to tell of the ends.
const LAST_ENDS: Duration = Duration::from_secs(2);

/// A task whose end nobody saw.
const EXIT_UNKNOWN: ExitStatus = ExitStatus { code: 1, signal: None };

impl ShepherdCore {
    pub(super) fn signal_step(&self, step: StepId, signal: i32, reach: SignalReach, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get(&step) else { return };
        for token in here.tokens.values() {
            let over = self.tasks.get(token).is_none_or(|t| matches!(t.phase, TaskPhase::Ended { .. }));
            if !over {
                let message = ToLauncher::Signal { token: *token, signal, group: reach == SignalReach::Groups };
                out.push(ShepherdEffect::ToLauncher { message, passed: Vec::new() });
            }
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
        self.signal_step(step, SIGCONT, SignalReach::Groups, out);
        self.signal_step(step, SIGTERM, SignalReach::Groups, out);
        if self.escalations.is_empty() {
            out.push(ShepherdEffect::SetTimer { timer: ShepherdTimer::Kill, after: self.config.kill_wait });
        }
        self.escalations.push_back((now.plus(self.config.kill_wait), step));
    }

    pub(super) fn escalate(&mut self, now: Timestamp, out: &mut Vec<ShepherdEffect>) {
        while let Some((deadline, step)) = self.escalations.front().copied() {
            if deadline > now {
                let after = deadline.since(now);
                out.push(ShepherdEffect::SetTimer { timer: ShepherdTimer::Kill, after });
                return;
            }
            self.escalations.pop_front();
            self.kill(step, out);
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

    /// All tasks of a step are over: what is left of their groups, or everything in the step's own cgroup, is killed.
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
        let pids = std::mem::take(&mut here.groups);
        if !pids.is_empty() {
            out.push(ShepherdEffect::KillGroups { pids });
        }
        self.step_gone(step, out);
    }

    pub(super) fn step_gone(&mut self, step: StepId, out: &mut Vec<ShepherdEffect>) {
        if self.steps.get(&step).is_none_or(|s| s.tasks_left > 0) {
            return;
        }
        self.steps.remove(&step);
        self.say(ShepherdToStepMgr::StepGone { step }, out);
        self.gone_if_done(out);
    }

    /// What the launcher had running ends as "exit unknown" and is killed; nothing is run again.
    pub(super) fn launcher_down(&mut self, now: Timestamp, detail: &str, out: &mut Vec<ShepherdEffect>) {
        self.launcher_up = false;
        self.environments.forget();
        self.launcher_restarts += 1;
        out.push(ShepherdEffect::Log { text: format!("launcher of job {}: {detail}", self.config.job) });
        let message = format!(
            "[{}] error: launcher on {} ended ({detail}): exit status unknown",
            now.text_with_millis(&self.config.zone),
            self.config.node
        );
        let mut pids = Vec::new();
        for (token, task) in std::mem::take(&mut self.tasks) {
            out.push(ShepherdEffect::Close { token });
            let (step, rank) = (task.step, task.task.rank);
            match task.phase {
                TaskPhase::Ended { status, usage, oom, pid } => {
                    let oom = oom.unwrap_or(false);
                    self.say(ShepherdToStepMgr::TaskExited { step, rank, status, usage, oom }, out);
                    pids.push(pid);
                }
                TaskPhase::Running { pid } => {
                    pids.push(pid);
                    let message = message.clone();
                    self.say(ShepherdToStepMgr::TaskFailed { step, rank, message, status: EXIT_UNKNOWN }, out);
                }
                TaskPhase::Spawning => {
                    let message = message.clone();
                    self.say(ShepherdToStepMgr::TaskFailed { step, rank, message, status: EXIT_UNKNOWN }, out);
                }
            }
            if let Some(here) = self.steps.get_mut(&step) {
                here.tasks_left -= 1;
                here.tokens.remove(&rank);
                here.input.remove_reader(token);
            }
        }
        self.lingering.clear();
        if !pids.is_empty() {
            out.push(ShepherdEffect::KillGroups { pids });
        }
        let again = self.launcher_restarts <= LAUNCHER_RESTARTS && self.phase == ShepherdPhase::Serving;
        if again {
            out.push(ShepherdEffect::StartLauncher);
        }
        let steps: Vec<StepId> = self.steps.keys().copied().collect();
        for step in steps {
            if !again {
                self.fail_unspawned(step, "no launcher can be started", out);
            }
            self.step_over_if_done(step, out);
        }
        if self.phase == ShepherdPhase::Counting {
            self.gone_if_done(out);
        }
    }

    /// Everything of the job is killed here.
    pub(super) fn end_job(&mut self, out: &mut Vec<ShepherdEffect>) {
        if self.phase != ShepherdPhase::Serving {
            return;
        }
        self.phase = ShepherdPhase::Sweeping;
        for here in self.steps.values_mut() {
            here.ending = true;
        }
        let steps: Vec<StepId> = self.steps.keys().copied().collect();
        for step in steps {
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

    /// No process is left, so whatever was not reported by now is reported as killed.
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
                let status = ExitStatus { code: 0, signal: Some(9) };
                let usage = TaskUsage::default();
                task.phase = TaskPhase::Ended { pid: 0, status, usage, oom: Some(false) };
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

    fn gone_if_done(&mut self, out: &mut Vec<ShepherdEffect>) {
        if self.phase == ShepherdPhase::Counting && self.steps.is_empty() {
            self.phase = ShepherdPhase::Gone;
            if self.launcher_up {
                out.push(ShepherdEffect::ToLauncher { message: ToLauncher::Finish, passed: Vec::new() });
            }
            self.say(ShepherdToStepMgr::Gone, out);
            out.push(ShepherdEffect::Finished);
        }
    }
}
