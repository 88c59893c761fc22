//! What happens to a run whose `stepd` died. Its journal, its orders and its launcher outlive it, so it is started again from the
//! run's folder, after a short pause, up to [`RESTARTS`] times in [`RESTART_WINDOW`]; the job goes on running. After that, or
//! when the `stepd` was killed because it did not end the run, the run is given up: the controller is told, and what is left of
//! it here is killed.

use crate::{
    core::{NodeAgentCore, log_info, log_warning},
    messages::{AgentEffect, AgentTimer, FoundRun, RunKey, StepdState},
    state::{Run, RunPhase},
};
use garrick_model::{
    messages::{node::AgentReport, node::AgentToStepMgr, stepd::NodeToStepd},
    refusal::Refusal,
    state::{ExitStatus, JobState, Reason},
};
use std::time::Duration;

/// How often the `stepd` of a run is started again within [`RESTART_WINDOW`]. The limit is for a `stepd` that its own journal or
/// its orders make die: it would die for ever.
pub const RESTARTS: usize = RESTART_PAUSES.len();
/// Earlier deaths do not count.
pub const RESTART_WINDOW: Duration = Duration::from_secs(600);
/// Pauses before each start. They are short for those that wait for the step manager, and let a passing cause of the death go
/// away. Together they are shorter than the time for which shepherds on other nodes wait.
pub const RESTART_PAUSES: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
    Duration::from_secs(10),
];

impl NodeAgentCore {
    pub(super) fn adopt(&mut self, found: FoundRun, out: &mut Vec<AgentEffect>) {
        let phase = match found.stepd {
            StepdState::Alive { .. } | StepdState::Dead => RunPhase::Awaited,
            StepdState::Rebooted | StepdState::Clean => RunPhase::Sweeping,
        };
        let key = found.run;
        let mut run = Run::new(phase, found.batch_host, found.uid);
        run.door = found.door;
        (run.requeue, run.noted) = (found.requeue, found.requeue);
        run.clean = matches!(found.stepd, StepdState::Clean | StepdState::Alive { clean: true, .. });
        run.end_reported = run.clean;
        if let StepdState::Alive { pid, .. } = found.stepd {
            run.pid = pid;
        }
        self.runs.insert(key, run);
        match found.stepd {
            StepdState::Alive { .. } => self.await_stepd(key, out),
            StepdState::Dead => self.stepd_exited(key, None, "while this daemon was away", out),
            StepdState::Rebooted => {
                out.push(log_warning(format!("job {} was here before this machine was started anew", key.job)));
                self.report_end(key, JobState::NodeFail, Reason::NodeDown, out);
                out.push(AgentEffect::Sweep { run: key });
            }
            // Its tasks are gone, but something of its `stepd` (a cgroup, a door) may be left.
            StepdState::Clean => out.push(AgentEffect::Sweep { run: key }),
        }
    }

    pub(super) fn stepd_exited(&mut self, key: RunKey, pid: Option<u32>, how: &str, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        // The end of an earlier process, told late.
        if pid.is_some() && run.pid.is_some() && pid != run.pid {
            return;
        }
        match run.phase {
            RunPhase::Preparing
            | RunPhase::Restarting { .. }
            | RunPhase::Sweeping
            | RunPhase::Epilog
            | RunPhase::Released => {}
            RunPhase::Leaving if run.clean => {
                run.phase = RunPhase::Sweeping;
                out.push(AgentEffect::ClearTimer(AgentTimer::End(key)));
                out.push(AgentEffect::Sweep { run: key });
            }
            // Its reports are with this agent, which may die too: the next `stepd` repeats them.
            RunPhase::Leaving => {
                out.push(log_warning(format!(
                    "the stepd of job {} ended before its reports were safe ({how})",
                    key.job
                )));
                self.start_again(key, out);
            }
            // It had reported to an earlier agent.
            RunPhase::Awaited | RunPhase::Held { .. } if run.clean => {
                run.phase = RunPhase::Sweeping;
                out.push(AgentEffect::ClearTimer(AgentTimer::Start(key)));
                out.push(AgentEffect::ClearTimer(AgentTimer::End(key)));
                out.push(AgentEffect::Sweep { run: key });
            }
            RunPhase::Awaited | RunPhase::Held { .. } => {
                out.push(log_warning(format!("the stepd of job {} ended unasked ({how})", key.job)));
                out.push(AgentEffect::ClearTimer(AgentTimer::Start(key)));
                self.start_again(key, out);
            }
        }
    }

    /// After a death: starts the `stepd` again, or ends the run.
    fn start_again(&mut self, key: RunKey, out: &mut Vec<AgentEffect>) {
        let now = self.now;
        let Some(run) = self.runs.get_mut(&key) else { return };
        // The next `stepd` repeats all of it.
        (run.pid, run.gone, run.unreported) = (None, false, 0);
        run.restarts.retain(|at| now.since(*at) < RESTART_WINDOW);
        let pause = RESTART_PAUSES.get(run.restarts.len()).filter(|_| !run.condemned);
        let Some(pause) = pause else { return self.give_up(key, out) };
        run.restarts.push(now);
        run.phase = RunPhase::Restarting { begun: false };
        out.push(AgentEffect::SetTimer { timer: AgentTimer::Restart(key), after: *pause });
    }

    pub(super) fn restart_now(&mut self, key: RunKey, out: &mut Vec<AgentEffect>) {
        let waits = |r: &&mut Run| r.phase == RunPhase::Restarting { begun: false };
        let Some(run) = self.runs.get_mut(&key).filter(waits) else { return };
        run.phase = RunPhase::Restarting { begun: true };
        out.push(log_info(format!("starting the stepd of job {} again", key.job)));
        out.push(AgentEffect::Restart { run: key });
    }

    pub(super) fn restarted(&mut self, key: RunKey, result: Result<u32, String>, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        match (&run.phase, result) {
            (RunPhase::Restarting { begun: true }, Ok(pid)) => {
                run.phase = RunPhase::Awaited;
                run.pid = Some(pid);
                self.await_stepd(key, out);
            }
            (RunPhase::Restarting { begun: true }, Err(why)) => {
                out.push(log_warning(format!("the stepd of job {} cannot be started again: {why}", key.job)));
                self.start_again(key, out);
            }
            // It connected before its start was reported.
            (RunPhase::Held { .. }, _) => {}
            // The run was given up meanwhile.
            (_, Ok(pid)) => out.push(AgentEffect::KillStepd { run: key, pid: Some(pid) }),
            (_, Err(_)) => {}
        }
    }

    /// No `stepd` takes care of the run any more: what is left of it is killed.
    pub(super) fn give_up(&mut self, key: RunKey, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        (run.phase, run.given_up) = (RunPhase::Sweeping, true);
        let (state, reason) = match &run.standing.end {
            Some(NodeToStepd::EndJob { state, reason, .. }) => (*state, reason.clone()),
            _ => (JobState::Failed, Reason::StepManagerDied),
        };
        out.push(log_warning(format!("job {} is given up here: its stepd is not started again", key.job)));
        for timer in [AgentTimer::Start(key), AgentTimer::End(key), AgentTimer::Restart(key)] {
            out.push(AgentEffect::ClearTimer(timer));
        }
        self.answer_asker(key, AgentToStepMgr::Failed(Refusal::AlreadyDone), out);
        self.report_end(key, state, reason, out);
        out.push(AgentEffect::Sweep { run: key });
    }

    /// Tells the controller that the run ended without its manager, unless the run's end was reported already.
    fn report_end(&mut self, key: RunKey, state: JobState, reason: Reason, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key).filter(|r| r.batch_host && !r.end_reported) else { return };
        run.end_reported = true;
        let RunKey { job, sluid } = key;
        let exit = ExitStatus { code: 0, signal: Some(9) };
        let (at, lost) = (self.now, Vec::new());
        let report = AgentReport::JobEnded { job, sluid, state, reason, exit, derived: exit, at, lost, cause: None };
        self.report(report, None, None, out);
    }
}
