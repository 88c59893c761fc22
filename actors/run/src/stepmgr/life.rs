//! Begin and end of a run: shepherds, batch script, time limit, warning, the ways to end, and reports about them.

use crate::{
    step::{NodeSlot, StepInput, notice},
    stepmgr::{
        core::StepMgrCore,
        journal::Ledger,
        messages::{StepMgrEffect, StepMgrTimer},
        placement::Placement,
        pool::NodeUse,
        schedule::places,
        state::{RecordState, RunPhase, StepRecord},
        view,
    },
};
use garrick_events::steps::{
    end::{StepEnd, StepResult},
    event::StepEvent,
};
use garrick_model::{
    ids::{StepId, StepKey, StepNum},
    messages::{
        node::SignalScope,
        shepherd::{SignalReach, StepMgrToShepherd},
        stepd::StepdReport,
    },
    spec::{CpuBind, Distribution, NodeCount, StepSharing, StepSpec, StreamTarget},
    state::{ExitStatus, JobState, Reason, StepState},
    time::Timestamp,
    view::StepCounts,
};
use std::{sync::Arc, time::Duration};

/// Shepherds give steps KillWait to end; the run waits this much longer for their ends.
const KILL_MARGIN: Duration = Duration::from_secs(5);

impl StepMgrCore {
    /// Starts shepherds on the other nodes; the batch host's own comes up by itself.
    pub(super) fn begin(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        if !self.begin_once() {
            return;
        }
        for slot in 1..self.facts.nodes.len() as u32 {
            if self.ledger.lost.contains(&slot) {
                self.pool.set_usage(slot, NodeUse::Lost);
                self.clean[slot as usize] = true;
            } else {
                let again = self.ledger.begun.contains(&slot);
                out.push(StepMgrEffect::StartShepherd { node: NodeSlot(slot), again });
            }
        }
        if self.config.restarted || self.ledger != Ledger::default() {
            self.take_over(now, out);
        }
        self.set_limit_timers(now, out);
    }

    pub(super) fn batch_record(&mut self, state: RecordState) -> StepRecord {
        let environment = self.batch_environment();
        let spec = batch_step_spec();
        let shape = crate::stepmgr::shape::StepShape {
            min_nodes: 1,
            max_nodes: 1,
            tasks: 1,
            tasks_per_node: None,
            cpus_per_task: self.pool.nodes().first().map_or(1, |n| n.cpu_count),
            memory: crate::stepmgr::shape::StepMemory::ByCpus,
            sharing: StepSharing::Overlap,
            exact_cpus: false,
            required: Vec::new(),
            excluded: Vec::new(),
            first: 0,
            distribution: Distribution::Block,
            task_slots: Vec::new(),
            overcommit: false,
            gres: crate::stepmgr::shape::StepGres::All,
            own_cgroup: false,
        };
        StepRecord {
            origin: Arc::new(view::origin(&self.facts, &spec, 1)),
            spec: Arc::new(spec),
            shape: Arc::new(shape),
            environment,
            row: None,
            attempt: 0,
            client: None,
            request: None,
            handed: [false; 3],
            early_input: Vec::new(),
            watchers: Vec::new(),
            ordered: None,
            state,
        }
    }

    /// The run begins with its batch host; a batch script that is deferred, when no other node is awaited any more.
    pub(super) fn start_batch(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        let up = self.pool.nodes().first().is_some_and(|host| host.usage == NodeUse::Ready);
        let awaited = || self.pool.nodes().iter().any(|node| node.usage == NodeUse::Awaited);
        let deferred = self.config.defer_batch && self.facts.is_batch() && awaited();
        if self.phase == RunPhase::Starting && up && !deferred {
            self.batch_host_up(now, out);
        }
    }

    /// Starts the batch script, or reports that the allocation is ready.
    fn batch_host_up(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        self.phase = RunPhase::Running;
        if self.facts.is_batch() {
            let plan = self.plan_of_batch();
            let node = &self.pool.nodes()[0];
            let placed = crate::stepmgr::placement::PlacedNode {
                slot: 0,
                cpus: node.cpus.clone(),
                cpu_count: node.cpu_count,
                memory: node.memory,
                gres: node.all_gres.everything(&node.gres),
                ranks: vec![0],
            };
            let placement = Placement { nodes: vec![placed], claims: Vec::new() };
            let places = places(&placement);
            let record = self.batch_record(RecordState::Running { placement, since: now });
            let origin = Some(record.origin.clone());
            self.steps.insert(StepKey::BATCH, record);
            let (step, after, request) = (StepKey::BATCH, None, None);
            self.record(StepEvent::Started { step, attempt: 0, at: now, places, origin, after, request }, out);
            out.push(StepMgrEffect::StartStep { plan: Box::new(plan) });
            if self.stands_still() {
                self.tell_motion(StepKey::BATCH, out);
            }
            let first = self.reports.step_started(StepKey::BATCH);
            self.report_later(first, out);
        }
        self.report(StepdReport::Started, out);
    }

    /// Sets the timers of the time limit and its warning, counted from the run's start.
    pub(super) fn set_limit_timers(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        if !self.phase.takes_steps() {
            return;
        }
        match self.limit_with_grace() {
            Some(limit) => {
                let after = self.facts.start_time.plus(limit).since(now);
                out.push(StepMgrEffect::SetTimer { timer: StepMgrTimer::TimeLimit, after });
            }
            None => out.push(StepMgrEffect::ClearTimer(StepMgrTimer::TimeLimit)),
        }
        let Some(warning) = self.facts.spec.signal else { return };
        match self.time_limit.duration() {
            Some(limit) => {
                let before = Duration::from_secs(u64::from(warning.before_secs));
                let at = self.facts.start_time.plus(limit.saturating_sub(before));
                self.warned &= at <= now;
                out.push(if self.warned {
                    StepMgrEffect::ClearTimer(StepMgrTimer::Warning)
                } else {
                    StepMgrEffect::SetTimer { timer: StepMgrTimer::Warning, after: at.since(now) }
                });
            }
            None => out.push(StepMgrEffect::ClearTimer(StepMgrTimer::Warning)),
        }
    }

    /// Sends the warning of `--signal`: with `B:` to the batch shell only, otherwise to all steps except the batch step.
    pub(super) fn warn(&mut self, out: &mut Vec<StepMgrEffect>) {
        let Some(warning) = self.facts.spec.signal else { return };
        if self.phase.takes_steps() {
            self.warned = true;
            let to = if warning.batch_only { SignalScope::BatchShell } else { SignalScope::Steps };
            self.signal_steps(warning.signal, to, out);
        }
    }

    pub(super) fn signal_steps(&mut self, signal: i32, to: SignalScope, out: &mut Vec<StepMgrEffect>) {
        let steps: Vec<StepKey> = self.steps.keys().copied().collect();
        for step in steps {
            if let Some(reach) = reach_of(to, step) {
                self.order_step(step, StepInput::Signal { signal, reach }, out);
            }
        }
    }

    pub(super) fn finish_allocation(&mut self, now: Timestamp, exit: ExitStatus, out: &mut Vec<StepMgrEffect>) {
        let (state, reason) = outcome(exit);
        self.end_job(now, state, reason, exit, StepEnd::Job(state), out);
    }

    /// Ends the run; only the first reason counts. Waiting steps are withdrawn, running ones told to end. When none is left,
    /// everything of the job is ended on all nodes.
    pub(super) fn end_job(
        &mut self,
        now: Timestamp,
        state: JobState,
        reason: Reason,
        exit: ExitStatus,
        cause: StepEnd,
        out: &mut Vec<StepMgrEffect>,
    ) {
        if !self.phase.takes_steps() {
            return;
        }
        let batch_runs = self.steps.contains_key(&StepKey::BATCH);
        let natural = cause == StepEnd::BatchOver || matches!(state, JobState::Completed | JobState::Failed);
        if batch_runs && !natural {
            let what = format!("JOB {}", self.facts.job);
            let host = &self.facts.nodes[0].name;
            let text = notice::cancelled(what, host, now, &self.facts.zone, cause.due_to());
            self.note(notice::error_line(&text), out);
        }
        self.phase = RunPhase::Ending;
        self.moves_to_end(out);
        if self.ledger.ending.is_none() {
            self.record(StepEvent::Ending { state, reason, exit }, out);
        }
        out.push(StepMgrEffect::ClearTimer(StepMgrTimer::TimeLimit));
        out.push(StepMgrEffect::ClearTimer(StepMgrTimer::Warning));
        self.refuse_accepting(now, out);
        self.withdraw_all(now, &cause, out);
        let running = |r: &StepRecord| matches!(r.state, RecordState::Running { .. });
        for (step, _) in self.steps.iter().rev().filter(|(_, r)| running(r)) {
            out.push(StepMgrEffect::ToStep { step: *step, input: StepInput::End(cause.clone()) });
        }
        if self.steps.is_empty() {
            self.sweep(now, out);
        } else {
            let after = self.config.kill_wait + KILL_MARGIN;
            out.push(StepMgrEffect::SetTimer { timer: StepMgrTimer::KillWait, after });
        }
    }

    /// Writes a line into the job's error file.
    pub(super) fn note(&self, text: String, out: &mut Vec<StepMgrEffect>) {
        let step = StepId::new(self.facts.job, StepNum::Batch);
        out.push(StepMgrEffect::ToShepherd { node: NodeSlot(0), message: StepMgrToShepherd::Note { step, text } });
    }

    /// Writes a line about a minibatch step into the job's error file, for the first such steps only: one mistake often affects
    /// thousands.
    pub(super) fn note_line(&mut self, text: String, out: &mut Vec<StepMgrEffect>) {
        const MOST: u32 = 50;
        if self.lines_noted <= MOST {
            let last = self.lines_noted == MOST;
            let text = if last { "further failures of single steps are not listed here".to_owned() } else { text };
            self.lines_noted += 1;
            self.note(format!("slurmstepd: error: {text}"), out);
        }
    }

    /// The batch script is over: the job ends, and steps that it left are cancelled with a note.
    pub(super) fn batch_over(&mut self, now: Timestamp, result: &StepResult, out: &mut Vec<StepMgrEffect>) {
        if self.phase.takes_steps() {
            let counts = self.counts();
            if counts.queued + counts.running > 0 {
                let text = format!(
                    "JOB {} ON {}: BATCH SCRIPT ENDED WITH {} RUNNING AND {} QUEUED STEPS, WHICH ARE CANCELLED \
                     (\"swait\" at the end of a script waits for them)",
                    self.facts.job, self.facts.nodes[0].name, counts.running, counts.queued
                );
                self.note(notice::error_line(&text), out);
            }
            let (state, reason) = match (&result.ended, result.state) {
                (_, StepState::OutOfMemory) => (JobState::OutOfMemory, Reason::OutOfMemory),
                (Some(StepEnd::Cancelled), _) => (JobState::Cancelled, Reason::None),
                (Some(StepEnd::ManagerRestarted), _) => (JobState::Failed, Reason::StepManagerDied),
                _ => outcome(result.exit),
            };
            self.end_job(now, state, reason, result.exit, StepEnd::BatchOver, out);
        }
    }

    /// Nothing is left to wait for, or KillWait is over: everything of the job is killed on every node.
    pub(super) fn sweep(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        if self.phase != RunPhase::Ending {
            return;
        }
        self.phase = RunPhase::Sweeping;
        out.push(StepMgrEffect::ClearTimer(StepMgrTimer::KillWait));
        for (node, slot) in self.pool.nodes().iter().zip(0..) {
            if node.usage == NodeUse::Ready {
                let message = StepMgrToShepherd::EndJob;
                out.push(StepMgrEffect::ToShepherd { node: NodeSlot(slot), message });
            }
        }
        self.look_for_end(now, out);
    }

    /// A shepherd says that nothing of the job is left on its node.
    pub(super) fn node_clean(&mut self, now: Timestamp, node: NodeSlot, out: &mut Vec<StepMgrEffect>) {
        let Some(clean) = self.clean.get_mut(node.0 as usize) else { return };
        if std::mem::replace(clean, true) {
            return;
        }
        if self.phase.takes_steps() || self.phase == RunPhase::Ending {
            // A shepherd that ended by itself counts as lost.
            self.clean[node.0 as usize] = false;
            return self.node_lost(now, node, "its shepherd ended", out);
        }
        self.lose_steps_on(node, out);
        self.unsure_on(now, node, out);
        self.look_for_end(now, out);
    }

    /// Counts a node as gone, and its steps as lost. Returns its name, if that is new.
    fn forget_node(
        &mut self,
        now: Timestamp,
        node: NodeSlot,
        detail: &str,
        out: &mut Vec<StepMgrEffect>,
    ) -> Option<String> {
        let name = self.pool.nodes().get(node.0 as usize).map(|n| n.name.clone())?;
        if self.pool.node(node.0).usage == NodeUse::Lost {
            return None;
        }
        out.push(StepMgrEffect::Log { text: format!("node {name} lost: {detail}") });
        self.pool.set_usage(node.0, NodeUse::Lost);
        self.shapes.forget();
        // The batch host's own shepherd comes up with the next step manager.
        if !std::mem::replace(&mut self.clean[node.0 as usize], true) && node.0 != 0 {
            self.record(StepEvent::NodeLost { slot: node.0 }, out);
        }
        self.lose_steps_on(node, out);
        self.unsure_on(now, node, out);
        Some(name)
    }

    /// A node is out of reach for this run.
    pub(super) fn node_lost(&mut self, now: Timestamp, node: NodeSlot, detail: &str, out: &mut Vec<StepMgrEffect>) {
        let Some(name) = self.forget_node(now, node, detail, out) else { return };
        match self.phase {
            RunPhase::Starting | RunPhase::Running => {
                if node.0 == 0 {
                    self.batch_host_lost(now, detail, out);
                } else if self.facts.spec.no_kill {
                    self.drop_impossible(now, &name, out);
                    self.start_batch(now, out);
                } else {
                    let cause = StepEnd::Job(JobState::NodeFail);
                    self.end_job(now, JobState::NodeFail, Reason::NodeDown, ExitStatus::SUCCESS, cause, out);
                }
            }
            RunPhase::Ending => {
                if node.0 == 0 {
                    self.sweep(now, out);
                }
            }
            RunPhase::Sweeping | RunPhase::Ended => self.look_for_end(now, out),
            RunPhase::Gone => {}
        }
    }

    /// The controller gave these nodes up together with the run: nothing is expected from them. The controller's order to end the
    /// job follows, so the loss itself ends nothing here.
    pub(super) fn given_up(&mut self, now: Timestamp, nodes: &[String], out: &mut Vec<StepMgrEffect>) {
        let slots = self.pool.nodes().iter().zip(0..);
        let lost: Vec<NodeSlot> = slots.filter(|(n, _)| nodes.contains(&n.name)).map(|(_, at)| NodeSlot(at)).collect();
        for node in lost.into_iter().filter(|node| node.0 != 0) {
            self.forget_node(now, node, "the controller gave it up", out);
            if matches!(self.phase, RunPhase::Sweeping | RunPhase::Ended) {
                self.look_for_end(now, out);
            }
        }
    }

    fn batch_host_lost(&mut self, now: Timestamp, detail: &str, out: &mut Vec<StepMgrEffect>) {
        if self.phase == RunPhase::Starting {
            self.record(StepEvent::LaunchFailed { detail: detail.to_owned() }, out);
        }
        let cause = StepEnd::Job(JobState::Failed);
        self.end_job(now, JobState::Failed, Reason::JobLaunchFailure, ExitStatus { code: 1, signal: None }, cause, out);
        self.sweep(now, out);
    }

    fn lose_steps_on(&self, node: NodeSlot, out: &mut Vec<StepMgrEffect>) {
        for (step, record) in &self.steps {
            if let RecordState::Running { placement, .. } = &record.state
                && (placement.nodes.iter().any(|n| n.slot == node.0) || (*step == StepKey::BATCH && node.0 == 0))
            {
                out.push(StepMgrEffect::ToStep { step: *step, input: StepInput::NodeLost { node } });
            }
        }
    }

    /// Reports the job's end when this node is clean and its steps are over, and `Gone` when all nodes are clean.
    pub(super) fn look_for_end(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        let here = |(step, record): (&StepKey, &StepRecord)| {
            *step == StepKey::BATCH
                || record.state.placement().is_some_and(|placement| placement.nodes.iter().any(|n| n.slot == 0))
        };
        if self.phase == RunPhase::Sweeping && self.clean[0] && !self.steps.iter().any(here) {
            self.ended(now, out);
        }
        if self.phase == RunPhase::Ended && self.steps.is_empty() && self.clean.iter().all(|c| *c) {
            self.all_clean(out);
        }
    }

    fn ended(&mut self, at: Timestamp, out: &mut Vec<StepMgrEffect>) {
        self.phase = RunPhase::Ended;
        self.finish_waits(out);
        self.flush_reports(out);
        let report = match self.ledger.launch_failure.clone() {
            Some(detail) => StepdReport::LaunchFailed { reason: Reason::JobLaunchFailure, detail },
            None => {
                let (state, reason, exit) =
                    self.ledger.ending.clone().unwrap_or((JobState::Failed, Reason::None, ExitStatus::SUCCESS));
                // The end of the batch script decides the job's exit status, such as `0:15` for a cancelled one.
                let exit = match (state, &self.ledger.batch) {
                    (JobState::Completed | JobState::Failed | JobState::Timeout, _) | (_, None) => exit,
                    (_, Some(batch)) => batch.exit,
                };
                let lost = self.pool.nodes().iter().filter(|n| n.usage == NodeUse::Lost);
                let lost = lost.map(|n| n.name.clone()).collect();
                let cause = self.ledger.batch.as_ref().and_then(|batch| batch.detail.clone());
                StepdReport::Ended { state, reason, exit, derived: self.ledger.derived, at, lost, cause }
            }
        };
        self.report(report, out);
        let counts = self.counts();
        if counts != StepCounts::default() {
            out.push(StepMgrEffect::ToAgent(self.reports.last_tally(&self.ledger, counts)));
        }
        out.push(StepMgrEffect::SetTimer { timer: StepMgrTimer::Others, after: self.config.others_wait });
    }

    /// Other nodes did not report in time that nothing is left there. They are not waited for any longer. Steps that are not over
    /// because of them end here: their tasks will not be heard from.
    pub(super) fn others_late(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        if self.phase != RunPhase::Ended {
            return;
        }
        let left: Vec<StepKey> = self.steps.keys().copied().collect();
        for key in left {
            let cause = self.end_of_job();
            let state = cause.state().unwrap_or(StepState::Cancelled);
            let result = StepResult { state, ended: Some(cause), ..self.unheld(key) };
            self.step_over(now, result, out);
        }
        self.all_clean(out);
    }

    /// The end cause of steps that end with their job.
    pub(super) fn end_of_job(&self) -> StepEnd {
        match (&self.ledger.ending, &self.ledger.batch) {
            (Some((JobState::Completed | JobState::Failed, ..)), Some(_)) | (None, _) => StepEnd::BatchOver,
            (Some((state, ..)), _) => StepEnd::Job(*state),
        }
    }

    fn all_clean(&mut self, out: &mut Vec<StepMgrEffect>) {
        if self.phase != RunPhase::Ended {
            return;
        }
        self.phase = RunPhase::Gone;
        out.push(StepMgrEffect::ClearTimer(StepMgrTimer::Others));
        // Steps that ended after the run's end.
        self.flush_reports(out);
        self.report(StepdReport::Gone, out);
    }

    /// The journal is broken: nothing can be promised any more, so the job ends.
    pub(super) fn journal_failed(&mut self, now: Timestamp, detail: &str, out: &mut Vec<StepMgrEffect>) {
        out.push(StepMgrEffect::Log { text: format!("step journal: {detail}") });
        let reason = Reason::Other(format!("step journal: {detail}"));
        let exit = ExitStatus { code: 1, signal: None };
        self.end_job(now, JobState::Failed, reason, exit, StepEnd::Job(JobState::Failed), out);
    }
}

/// Which processes of a step a signal with this scope reaches.
fn reach_of(to: SignalScope, step: StepKey) -> Option<SignalReach> {
    match (to, step == StepKey::BATCH) {
        (SignalScope::Steps, true) | (SignalScope::BatchShell, false) => None,
        (SignalScope::BatchShell, true) => Some(SignalReach::Leaders),
        (SignalScope::Steps | SignalScope::Full, _) => Some(SignalReach::Groups),
    }
}

/// State and reason that follow from an exit status.
fn outcome(exit: ExitStatus) -> (JobState, Reason) {
    match exit {
        exit if exit.success() => (JobState::Completed, Reason::None),
        ExitStatus { signal: Some(signal), .. } => (JobState::Failed, Reason::RaisedSignal(i32::from(signal))),
        _ => (JobState::Failed, Reason::NonZeroExitCode),
    }
}

/// The batch step as `squeue -s` shows it.
fn batch_step_spec() -> StepSpec {
    StepSpec {
        name: "batch".into(),
        nodes: Some(NodeCount { min: 1, max: Some(1) }),
        tasks: Some(1),
        sharing: StepSharing::Overlap,
        cpu_bind: CpuBind::None,
        says_cpu_bind: false,
        within: Default::default(),
        stdin: StreamTarget::Null,
        stderr: StreamTarget::SameAsStdout,
        ..StepSpec::default()
    }
}
