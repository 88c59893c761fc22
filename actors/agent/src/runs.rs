//! The life of a run on this node: prepared, awaited, held, swept, epilog, released.

use crate::{
    core::{NodeAgentCore, log_info, log_warning},
    messages::{AgentEffect, AgentTimer, Leftover, PrepareFailure, RunKey, StartOrder},
    state::{Run, RunPhase},
};
use garrick_model::{
    messages::{
        node::{AgentReport, AgentToStepMgr, JobCredential, JobLaunch, RequeuePolicy},
        stepd::NodeToStepd,
    },
    refusal::Refusal,
    state::Reason,
};

/// A `stepd` that connected.
#[derive(Debug)]
pub(super) struct StepdConn {
    pub conn: u64,
    pub pid: u32,
    pub door: String,
    pub batch_host: bool,
}

/// Most runs that are remembered as not to be started; an order to start is only moments late.
const MOST_NOT_TO_START: usize = 4_096;
/// Most runs that are remembered as over: more than a node has in a day, at 48 bytes each.
const MOST_OVER: usize = 200_000;

impl NodeAgentCore {
    pub(super) fn await_stepd(&self, key: RunKey, out: &mut Vec<AgentEffect>) {
        out.push(AgentEffect::SetTimer { timer: AgentTimer::Start(key), after: self.config.start_limit });
    }

    fn new_run(&mut self, key: RunKey, batch_host: bool, uid: u32, asked_by: Option<u64>, launch: &JobLaunch) {
        let requeue = launch.requeue_policy(self.config.requeue);
        let run = Run { asked_by, requeue, noted: requeue, ..Run::new(RunPhase::Preparing, batch_host, uid) };
        self.runs.insert(key, run);
    }

    /// May a run of that job begin here? Its user has to be one that this daemon can become.
    fn check_place(&self, credential: &JobCredential, batch_host: bool) -> Result<(), String> {
        if let Some(own) = self.config.only_uid.filter(|own| *own != credential.uid) {
            return Err(format!(
                "node {} runs as uid {own} and cannot start a job of {} (uid {})",
                self.config.node, credential.user, credential.uid
            ));
        }
        let place = credential.nodes.iter().position(|n| n.name == self.config.node);
        match place {
            None => Err(format!("the credential of job {} does not name node {}", credential.job, self.config.node)),
            Some(0) if !batch_host => {
                Err(format!("node {} is the batch host of job {}", self.config.node, credential.job))
            }
            Some(n) if n > 0 && batch_host => {
                Err(format!("node {} is not the batch host of job {}", self.config.node, credential.job))
            }
            Some(_) => Ok(()),
        }
    }

    pub(super) fn start_job(&mut self, order: StartOrder, out: &mut Vec<AgentEffect>) {
        let credential = match order.credential {
            Ok(c) => c,
            Err(why) => {
                // Without an acceptable credential there is no run to report about; the controller's own timeout ends it.
                out.push(log_warning(format!("an order to start a job was refused: {why}")));
                return;
            }
        };
        let key = RunKey { job: credential.job, sluid: credential.sluid };
        if self.runs.contains_key(&key) {
            return;
        }
        if self.not_to_start.contains(&key) {
            let RunKey { job, sluid } = key;
            out.push(log_info(format!("run {sluid} of job {job} is over before the order to start it came")));
            return;
        }
        if let Err(detail) = self.check_place(&credential, true) {
            return self.launch_failed(key, Reason::JobLaunchFailure, detail, false, out);
        }
        self.new_run(key, true, credential.uid, None, &order.launch);
        out.push(AgentEffect::Prepare { run: key, launch: order.launch, credential, manager: None });
    }

    pub(super) fn start_shepherd(
        &mut self,
        query: u64,
        order: StartOrder,
        manager: String,
        again: bool,
        out: &mut Vec<AgentEffect>,
    ) {
        let checked = order.credential.and_then(|c| self.check_place(&c, false).map(|()| c));
        let credential = match checked {
            Ok(c) => c,
            Err(why) => {
                out.push(log_warning(format!("an order to start a shepherd was refused: {why}")));
                let answer = AgentToStepMgr::Failed(Refusal::AccessDenied);
                return out.push(AgentEffect::AnswerShepherd { query, answer });
            }
        };
        let key = RunKey { job: credential.job, sluid: credential.sluid };
        let over = self.not_to_start.contains(&key) || self.is_over(key);
        match self.runs.get_mut(&key) {
            // The controller has released this node, and may have given it to other jobs.
            None if over => {
                let answer = AgentToStepMgr::Failed(Refusal::AlreadyDone);
                out.push(AgentEffect::AnswerShepherd { query, answer });
            }
            // It ended here, or its state on this node is lost together with its tasks; the controller may have released the
            // node.
            None if again => {
                out.push(log_info(format!("nothing of run {} of job {} is here any more", key.sluid, key.job)));
                let answer = AgentToStepMgr::Failed(Refusal::AlreadyDone);
                out.push(AgentEffect::AnswerShepherd { query, answer });
            }
            None => {
                self.new_run(key, false, credential.uid, Some(query), &order.launch);
                out.push(AgentEffect::Prepare { run: key, launch: order.launch, credential, manager: Some(manager) });
            }
            Some(run) => match run.phase {
                RunPhase::Preparing => run.asked_by = Some(query),
                // Asked again: by a step manager that was restarted, perhaps under another address, or by one whose shepherd is
                // missing.
                RunPhase::Awaited | RunPhase::Restarting { .. } | RunPhase::Held { .. } => {
                    out.push(AgentEffect::NoteManager { run: key, manager });
                    out.push(AgentEffect::AnswerShepherd { query, answer: AgentToStepMgr::Started });
                }
                _ => {
                    let answer = AgentToStepMgr::Failed(Refusal::AlreadyDone);
                    out.push(AgentEffect::AnswerShepherd { query, answer });
                }
            },
        }
    }

    pub(super) fn answer_asker(&mut self, key: RunKey, answer: AgentToStepMgr, out: &mut Vec<AgentEffect>) {
        if let Some(query) = self.runs.get_mut(&key).and_then(|r| r.asked_by.take()) {
            out.push(AgentEffect::AnswerShepherd { query, answer });
        }
    }

    pub(super) fn prepared(&mut self, key: RunKey, result: Result<u32, PrepareFailure>, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key).filter(|r| r.phase == RunPhase::Preparing) else { return };
        match result {
            Ok(pid) => {
                run.phase = RunPhase::Awaited;
                run.pid = Some(pid);
                // What was said while it was being prepared is not on disk.
                let requeue = run.requeue;
                if requeue.revision > 0 {
                    out.push(AgentEffect::NoteRequeue { run: key, policy: requeue });
                }
                self.await_stepd(key, out);
                self.answer_asker(key, AgentToStepMgr::Started, out);
            }
            Err(failure) => {
                let (reason, detail, drain_node) = match failure {
                    PrepareFailure::Prolog(detail) => (Reason::PrologFailure, detail, true),
                    PrepareFailure::Start(detail) => (Reason::JobLaunchFailure, detail, false),
                };
                let batch_host = run.batch_host;
                run.end_reported = true;
                run.phase = RunPhase::Sweeping;
                out.push(log_warning(format!("job {} could not be started here: {detail}", key.job)));
                self.answer_asker(key, AgentToStepMgr::Failed(Refusal::Internal(detail.clone())), out);
                if batch_host || drain_node {
                    self.launch_failed(key, reason, detail, drain_node, out);
                }
                out.push(AgentEffect::Sweep { run: key });
            }
        }
    }

    fn launch_failed(
        &mut self,
        key: RunKey,
        reason: Reason,
        detail: String,
        drain_node: bool,
        out: &mut Vec<AgentEffect>,
    ) {
        let RunKey { job, sluid } = key;
        self.report(AgentReport::JobLaunchFailed { job, sluid, reason, detail, drain_node }, None, None, out);
    }

    pub(super) fn stepd_up(&mut self, key: RunKey, up: StepdConn, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key) else {
            // Its folder is gone, so its end was acknowledged: the `stepd` must end.
            out.push(log_warning(format!(
                "a stepd of the forgotten run {} of job {} connected: killing it",
                key.sluid, key.job
            )));
            return out.push(AgentEffect::KillStepd { run: key, pid: Some(up.pid) });
        };
        match run.phase {
            RunPhase::Leaving => {
                // It reconnected. If nothing of it is in flight, the last acknowledgement was lost.
                out.push(AgentEffect::ToStepd { run: key, message: NodeToStepd::Welcome });
                let passed = run.passed;
                if !self.outbox.waiting.iter().any(|p| p.from_stepd.is_some_and(|(k, _)| k == key)) {
                    self.safe(key, passed, out);
                }
                return;
            }
            RunPhase::Preparing | RunPhase::Awaited | RunPhase::Restarting { begun: true } | RunPhase::Held { .. } => {}
            RunPhase::Restarting { begun: false } | RunPhase::Sweeping | RunPhase::Epilog | RunPhase::Released => {
                return;
            }
        }
        let watched = run.phase == RunPhase::Preparing || run.phase == RunPhase::Restarting { begun: true };
        if run.pid.is_none() && !watched {
            out.push(AgentEffect::Watch { run: key, pid: up.pid });
        }
        run.phase = RunPhase::Held { conn: Some(up.conn) };
        run.pid = Some(up.pid);
        (run.door, run.batch_host) = (up.door, up.batch_host);
        // A `stepd` that reconnects repeats unacknowledged reports; those in flight are recognised by number and dropped.
        let greeting = run.greeting();
        out.push(AgentEffect::ClearTimer(AgentTimer::Start(key)));
        self.answer_asker(key, AgentToStepMgr::Started, out);
        out.extend(greeting.into_iter().map(|message| AgentEffect::ToStepd { run: key, message }));
    }

    /// Passes an order to the run's `stepd`, now or when it connects.
    pub(super) fn order(&mut self, key: RunKey, message: NodeToStepd, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key).filter(|r| r.phase.works()) else { return };
        run.note(&message);
        match run.phase {
            RunPhase::Held { conn: Some(_) } => out.push(AgentEffect::ToStepd { run: key, message }),
            _ => run.keep(message),
        }
    }

    /// Sets whether the job may be started again elsewhere. A later statement is not undone by an earlier one.
    pub(super) fn set_requeue(&mut self, key: RunKey, policy: RequeuePolicy, out: &mut Vec<AgentEffect>) {
        let works = |run: &&mut Run| run.phase.works() && run.requeue.revision <= policy.revision;
        let Some(run) = self.runs.get_mut(&key).filter(works) else { return };
        run.requeue = policy;
        if run.phase != RunPhase::Preparing {
            out.push(AgentEffect::NoteRequeue { run: key, policy });
        }
    }

    /// The policy is on disk: from now on the controller may rely on it.
    pub(super) fn requeue_noted(&mut self, key: RunKey, policy: RequeuePolicy, out: &mut Vec<AgentEffect>) {
        if let Some(run) = self.runs.get_mut(&key).filter(|run| run.requeue == policy) {
            run.noted = policy;
            let RunKey { job, sluid } = key;
            self.report(AgentReport::RequeueSet { job, sluid, policy }, None, None, out);
        }
    }

    /// An order to end overtakes others on a connection: the order to start the same run may still be behind it.
    fn not_to_start(&mut self, key: RunKey) {
        if self.not_to_start.len() >= MOST_NOT_TO_START {
            // The start of the oldest job came long ago, or never will.
            self.not_to_start.pop_first();
        }
        self.not_to_start.insert(key);
    }

    /// Its credential is valid for some time: its holder must not start the run again.
    pub(super) fn note_over(&mut self, key: RunKey, out: &mut Vec<AgentEffect>) {
        let until = self.now.plus(JobCredential::LIFETIME);
        if self.over.insert(key, until).is_some() {
            return;
        }
        if self.over.len() > MOST_OVER {
            let now = self.now;
            self.over.retain(|_, until| *until > now);
        }
        while self.over.len() > MOST_OVER {
            // The oldest job mostly ended first.
            self.over.pop_first();
        }
        out.push(AgentEffect::NoteOver { run: key, until });
    }

    fn is_over(&self, key: RunKey) -> bool {
        self.over.get(&key).is_some_and(|until| *until > self.now)
    }

    /// Handles an order to end. It is also answered for a run that is not here (any more), so that the controller can release the
    /// node.
    pub(super) fn order_end(&mut self, key: RunKey, message: NodeToStepd, out: &mut Vec<AgentEffect>) {
        if let Some(run) = self.runs.get_mut(&key) {
            // From the first such order on: it is repeated until something happens.
            if run.phase.works() && !std::mem::replace(&mut run.end_awaited, true) {
                out.push(AgentEffect::SetTimer { timer: AgentTimer::End(key), after: self.config.end_limit });
            }
            self.order(key, message, out);
        } else {
            self.not_to_start(key);
            self.note_over(key, out);
            let RunKey { job, sluid } = key;
            let report = AgentReport::NodeReleased { job, sluid, epilog_failed: None, unkillable: None };
            self.report(report, None, None, out);
        }
    }

    pub(super) fn gone(&mut self, key: RunKey, seq: u64, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        run.phase = RunPhase::Leaving;
        (run.gone, run.end_awaited) = (true, false);
        out.push(AgentEffect::ClearTimer(AgentTimer::End(key)));
        // It may exit once the controller has its earlier reports: this acknowledgement is sent with that of the last of them.
        // Its exit then triggers the rest.
        let earlier = self.outbox.waiting.iter_mut().rev().find(|p| p.from_stepd.is_some_and(|(k, _)| k == key));
        match earlier {
            Some(p) => p.from_stepd = Some((key, seq)),
            None => self.safe(key, seq, out),
        }
    }

    /// The controller has the reports of a run's `stepd` up to this number. If those are all, that is noted in the run's folder
    /// before the `stepd` may exit: until then it, or the next `stepd` of the run, has to repeat them.
    pub(super) fn safe(&mut self, key: RunKey, upto: u64, out: &mut Vec<AgentEffect>) {
        let all = |r: &&mut Run| r.gone && !r.clean && r.unreported == 0 && r.passed <= upto;
        if let Some(run) = self.runs.get_mut(&key).filter(all) {
            run.clean = true;
            out.push(AgentEffect::MarkClean { run: key });
        }
        out.push(AgentEffect::ToStepd { run: key, message: NodeToStepd::Ack { upto } });
        // A `stepd` that has nothing more to report exits now, or is killed after a while.
        if self.runs.get(&key).is_some_and(|run| run.phase == RunPhase::Leaving && run.passed <= upto) {
            out.push(AgentEffect::SetTimer { timer: AgentTimer::End(key), after: self.config.end_limit });
        }
    }

    pub(super) fn stepd_gone(&mut self, key: RunKey, conn: u64, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        if run.phase == (RunPhase::Held { conn: Some(conn) }) {
            run.phase = RunPhase::Held { conn: None };
            // Either it died, which its process descriptor will tell, or it reconnects within the same time as a new one.
            self.await_stepd(key, out);
        }
    }

    pub(super) fn start_timed_out(&mut self, key: RunKey, out: &mut Vec<AgentEffect>) {
        let late = |r: &&mut Run| matches!(r.phase, RunPhase::Awaited | RunPhase::Held { conn: None });
        if let Some(run) = self.runs.get_mut(&key).filter(late) {
            out.push(log_warning(format!("the stepd of job {} did not connect in time: killing it", key.job)));
            out.push(AgentEffect::KillStepd { run: key, pid: run.pid });
        }
    }

    pub(super) fn end_timed_out(&mut self, key: RunKey, out: &mut Vec<AgentEffect>) {
        let ends = |r: &&mut Run| r.phase.works() || r.phase == RunPhase::Leaving;
        let Some(run) = self.runs.get_mut(&key).filter(ends) else { return };
        out.push(log_warning(format!("the stepd of job {} did not end in time: killing it", key.job)));
        run.condemned = true;
        match run.phase {
            // If its start succeeds after all, it is killed then.
            RunPhase::Restarting { .. } => self.give_up(key, out),
            _ => {
                out.push(AgentEffect::KillStepd { run: key, pid: run.pid });
                // If the kill has no effect (the process is still starting, or hangs in the kernel), it is tried again: the
                // controller may have forgotten this run and send no second order.
                out.push(AgentEffect::SetTimer { timer: AgentTimer::End(key), after: self.config.end_limit });
            }
        }
    }

    /// The epilog runs even if something is left: the controller drains the node when it is released, and nobody waits for the
    /// job for ever.
    pub(super) fn swept(&mut self, key: RunKey, left: Option<&Leftover>, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key).filter(|r| r.phase == RunPhase::Sweeping) else { return };
        run.phase = RunPhase::Epilog;
        run.unkillable = left.map(ToString::to_string);
        if let Some(left) = left {
            out.push(log_warning(format!("job {}: {left}", key.job)));
            out.push(AgentEffect::RunUnkillable { run: key });
        }
        out.push(AgentEffect::MarkClean { run: key });
        out.push(AgentEffect::RunEpilog { run: key });
    }

    pub(super) fn epilog_done(&mut self, key: RunKey, failed: Option<String>, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key).filter(|r| r.phase == RunPhase::Epilog) else { return };
        run.phase = RunPhase::Released;
        let unkillable = run.unkillable.take();
        let RunKey { job, sluid } = key;
        match &failed {
            Some(why) => out.push(log_warning(format!("epilog of job {job}: {why}"))),
            None if unkillable.is_some() => {}
            None => out.push(log_info(format!("job {job} is gone from this node"))),
        }
        self.report(AgentReport::NodeReleased { job, sluid, epilog_failed: failed, unkillable }, None, Some(key), out);
    }
}
