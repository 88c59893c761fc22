//! Decides everything about one run of a job: who may ask, which steps are accepted, in which order and where they run,
//! when the job ends, and what is reported. It does not run steps (each has a [`crate::step::StepCore`] of its own),
//! launch tasks (shepherds do) or know of other jobs. Called by the actor in [`crate::stepmgr::shell`], by the simulator
//! and by tests, with the time as an argument.
//!
//! | file | what of it |
//! |---|---|
//! | this | the state, dispatch, shepherds, agent, timers |
//! | [`clients`](super::clients) | conversations with commands |
//! | [`schedule`](super::schedule) | the queue: which step starts when and where, and how steps end |
//! | [`life`](super::life) | begin and end of the run |

use crate::{
    step::{NodeSlot, StepEnd, StepInput, StepPlan},
    stepmgr::{
        env,
        interning::{Environments, Shapes},
        journal::{Ledger, StepEvent},
        launch,
        messages::{ClientId, StepMgrEffect, StepMgrInput, StepMgrTimer},
        pool::{NodeUse, Pool},
        queue::{QueueKey, StepQueue},
        reports::Reports,
        run::{RunFacts, StepMgrConfig},
        shape::JobShape,
        state::{Blocked, Conversation, RecordState, RunPhase, StepRecord},
        view,
        waiters::Waiters,
    },
};
use garrick_model::{
    ids::{RequestId, StepNum},
    messages::{
        shepherd::{ShepherdToStepMgr, StepMgrToShepherd},
        step::StepMgrToCommand,
        stepd::{NodeToStepd, StepdReport, StepdToNode},
    },
    spec::{EnvEntry, StepSpec},
    state::{ExitStatus, JobState, Reason},
    time::{TimeLimit, Timestamp},
    view::{StepCounts, StepView},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// An accepted request whose record is on its way to the disk.
#[derive(Clone, Debug)]
pub(super) struct Accepting {
    pub event: StepEvent,
    pub request: RequestId,
    pub first: u32,
    pub count: u32,
    /// Who waits for the answer: repeats of the request join.
    pub clients: Vec<ClientId>,
}

/// See the module.
#[derive(Debug)]
pub struct StepMgrCore {
    pub(super) facts: Arc<RunFacts>,
    pub(super) config: StepMgrConfig,
    pub(super) job_shape: JobShape,
    pub(super) pool: Pool,
    pub(super) ledger: Ledger,
    pub(super) phase: RunPhase,
    pub(super) time_limit: TimeLimit,
    pub(super) steps: BTreeMap<StepNum, StepRecord>,
    pub(super) queue: StepQueue,
    pub(super) blocked: Option<Blocked>,
    /// Nothing was freed since a pass over the queue left everything waiting.
    pub(super) settled: bool,
    /// Attended steps that wait.
    pub(super) attended_waiting: u64,
    /// Attended steps that wait and were not told so.
    pub(super) untold: Vec<u32>,
    pub(super) next_step: u32,
    pub(super) shapes: Shapes,
    pub(super) environments: Environments,
    /// The batch script's environment, the default for steps that bring none.
    pub(super) batch_env: Option<Arc<Vec<EnvEntry>>>,
    pub(super) clients: BTreeMap<ClientId, Conversation>,
    pub(super) waiters: Waiters,
    pub(super) accepting: BTreeMap<u64, Accepting>,
    pub(super) next_record: u64,
    pub(super) reports: Reports,
    /// By node: clean, lost, or never started.
    pub(super) clean: Vec<bool>,
    pub(super) launch_failure: Option<String>,
    begun: bool,
}

impl StepMgrCore {
    /// A step manager for a run. `ledger` is empty for a new run, else what its journal replays to.
    pub fn new(facts: Arc<RunFacts>, config: StepMgrConfig, ledger: Ledger) -> Self {
        Self {
            job_shape: JobShape::new(&facts),
            pool: Pool::new(&facts.nodes),
            phase: RunPhase::Starting,
            time_limit: facts.time_limit,
            steps: BTreeMap::new(),
            queue: StepQueue::default(),
            blocked: None,
            settled: true,
            attended_waiting: 0,
            untold: Vec::new(),
            next_step: ledger.next,
            shapes: Shapes::default(),
            environments: Environments::default(),
            batch_env: None,
            clients: BTreeMap::new(),
            waiters: Waiters::default(),
            accepting: BTreeMap::new(),
            next_record: 1,
            reports: Reports::new(ledger.restarts, config.report_backlog),
            clean: vec![false; facts.nodes.len()],
            launch_failure: None,
            begun: false,
            facts,
            config,
            ledger,
        }
    }

    /// The run's facts.
    pub fn facts(&self) -> &RunFacts {
        &self.facts
    }

    /// Where the run is.
    pub const fn phase(&self) -> RunPhase {
        self.phase
    }

    /// Durable state.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// One input, its effects appended.
    pub fn handle(&mut self, now: Timestamp, input: StepMgrInput, out: &mut Vec<StepMgrEffect>) {
        match input {
            StepMgrInput::Begin => self.begin(now, out),
            StepMgrInput::ShepherdStart { node, result } => {
                if let Err(refusal) = result {
                    self.node_lost(now, node, &format!("no shepherd: {refusal}"), out);
                }
            }
            StepMgrInput::ShepherdUp { node } => self.shepherd_up(now, node, out),
            StepMgrInput::ShepherdLost { node, detail } => self.node_lost(now, node, &detail, out),
            StepMgrInput::Shepherd { node, message } => self.on_shepherd(now, node, message, out),
            StepMgrInput::ClientOpened { client, caller } => self.client_opened(client, &caller),
            StepMgrInput::Client { client, message } => self.on_client(now, client, message, out),
            StepMgrInput::ClientClosed { client } => self.client_closed(now, client, out),
            StepMgrInput::StepSays { step, effects } => self.on_step(now, step, effects, out),
            StepMgrInput::StepCrashed { step } => self.step_crashed(now, step, out),
            StepMgrInput::Agent(message) => self.on_agent(now, message, out),
            StepMgrInput::AgentUp => {
                out.extend(self.reports.again().into_iter().map(StepMgrEffect::ToAgent));
                self.flush_reports(out);
            }
            StepMgrInput::Journaled { upto } => self.journaled(now, upto, out),
            StepMgrInput::JournalFailed { detail } => self.journal_failed(now, &detail, out),
            StepMgrInput::Timer(timer) => self.timer(now, timer, out),
        }
    }

    /// Counters as users see them: attended steps that wait are counted too.
    pub fn counts(&self) -> StepCounts {
        let counts = self.ledger.counts;
        StepCounts { queued: counts.queued + self.attended_waiting, ..counts }
    }

    /// Steps that are not over, the batch step included.
    pub fn views(&self) -> Vec<StepView> {
        self.steps.iter().map(|(step, record)| view::live(&self.facts, *step, record)).collect()
    }

    /// Recounts the invariants: every CPU and megabyte held at most once, queue and records agree.
    pub fn check(&self) -> Result<(), String> {
        let placements = self.steps.values().filter_map(|r| match &r.state {
            RecordState::Running { placement, .. } => Some(placement),
            _ => None,
        });
        self.pool.check(placements.flat_map(|p| &p.claims))?;
        let queued = self.steps.values().filter(|r| matches!(r.state, RecordState::Queued { .. })).count();
        if queued != self.queue.len() {
            return Err(format!("{queued} steps wait and {} are queued", self.queue.len()));
        }
        let counts = self.counts();
        if counts.queued != queued as u64 {
            return Err(format!("{queued} steps wait and {} are counted", counts.queued));
        }
        let numbered = |n: &StepNum| matches!(n, StepNum::Number(_));
        let running = self.steps.iter().filter(|(n, r)| numbered(n) && !matches!(r.state, RecordState::Queued { .. }));
        let running = running.count() as u64;
        if counts.running != running {
            return Err(format!("{running} steps run and {} are counted", counts.running));
        }
        Ok(())
    }

    fn shepherd_up(&mut self, now: Timestamp, node: NodeSlot, out: &mut Vec<StepMgrEffect>) {
        let Some(was) = self.pool.nodes().get(node.0 as usize).map(|n| n.usage) else { return };
        if was != NodeUse::Awaited || self.clean[node.0 as usize] {
            // A shepherd that was given up on must not go on.
            out.push(StepMgrEffect::ToShepherd { node, message: StepMgrToShepherd::EndJob });
            return;
        }
        self.pool.set_usage(node.0, NodeUse::Ready);
        out.push(StepMgrEffect::ToShepherd { node, message: StepMgrToShepherd::Welcome });
        if self.ledger.restarts > 0 {
            out.push(StepMgrEffect::ToShepherd { node, message: StepMgrToShepherd::ListTasks });
        }
        match self.phase {
            RunPhase::Starting if node.0 == 0 => self.batch_host_up(now, out),
            RunPhase::Starting | RunPhase::Running | RunPhase::Ending => {}
            RunPhase::Sweeping | RunPhase::Ended | RunPhase::Gone => {
                out.push(StepMgrEffect::ToShepherd { node, message: StepMgrToShepherd::EndJob });
            }
        }
        self.settled = false;
        self.schedule(now, out);
    }

    fn on_shepherd(
        &mut self,
        now: Timestamp,
        node: NodeSlot,
        message: ShepherdToStepMgr,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let step = match &message {
            ShepherdToStepMgr::TaskStarted { step, .. }
            | ShepherdToStepMgr::TaskFailed { step, .. }
            | ShepherdToStepMgr::Output { step, .. }
            | ShepherdToStepMgr::TaskExited { step, .. }
            | ShepherdToStepMgr::StdinConsumed { step, .. }
            | ShepherdToStepMgr::StepGone { step } => *step,
            ShepherdToStepMgr::Register { .. } => return,
            ShepherdToStepMgr::Gone => return self.node_clean(now, node, out),
            ShepherdToStepMgr::Tasks(tasks) => return self.tasks_found(now, node, tasks, out),
        };
        if step.job == self.facts.job && self.steps.contains_key(&step.step) {
            out.push(StepMgrEffect::ToStep { step: step.step, input: StepInput::Shepherd { node, message } });
        }
    }

    fn on_agent(&mut self, now: Timestamp, message: NodeToStepd, out: &mut Vec<StepMgrEffect>) {
        match message {
            NodeToStepd::EndJob { state, reason } => {
                self.end_job(now, state, reason, ExitStatus::SUCCESS, StepEnd::Job(state), out);
            }
            NodeToStepd::SignalJob { signal, to } => self.signal_job(signal, to, out),
            NodeToStepd::SetTimeLimit(limit) => {
                self.time_limit = limit;
                self.set_limit_timers(now, out);
            }
            NodeToStepd::FinishAllocation(exit) => self.finish_allocation(now, exit, out),
            NodeToStepd::SignalStep { step, signal } => {
                // The asker is told by the controller that it was passed on; what it finds here is not sent back.
                if let Err(refusal) = self.signal_step(now, step, signal, out) {
                    out.push(StepMgrEffect::Log { text: format!("step {step} not signalled: {refusal}") });
                }
            }
            NodeToStepd::ListSteps { query } => {
                out.push(StepMgrEffect::ToAgent(StepdToNode::Steps { query, steps: self.views() }));
            }
            NodeToStepd::Ack { upto } => {
                self.reports.acknowledged(upto);
                if self.reports.stalled() {
                    self.flush_reports(out);
                }
                if self.phase == RunPhase::Gone && self.reports.is_empty() {
                    out.push(StepMgrEffect::Exit);
                }
            }
            // Trace requests are answered by the process, not by the job's manager.
            NodeToStepd::Welcome | NodeToStepd::Trace { .. } | NodeToStepd::StopTrace { .. } => {}
        }
    }

    fn timer(&mut self, now: Timestamp, timer: StepMgrTimer, out: &mut Vec<StepMgrEffect>) {
        match timer {
            StepMgrTimer::TimeLimit => {
                let cause = StepEnd::Job(JobState::Timeout);
                self.end_job(now, JobState::Timeout, Reason::TimeLimit, ExitStatus::SUCCESS, cause, out);
            }
            StepMgrTimer::Warning => self.warn(out),
            StepMgrTimer::KillWait => self.sweep(now, out),
            StepMgrTimer::Report => self.flush_reports(out),
            StepMgrTimer::Others => self.all_clean(out),
            StepMgrTimer::Progress(client) => self.tell_progress(now, client, true, out),
            StepMgrTimer::Backlog => {}
        }
    }

    /// A node's shepherd says which tasks it has, after this step manager took over from one that died. Numbered steps
    /// lost their commands and relays: they are ended. The batch script goes on.
    fn tasks_found(
        &mut self,
        now: Timestamp,
        node: NodeSlot,
        tasks: &[(garrick_model::ids::StepId, Vec<u32>)],
        out: &mut Vec<StepMgrEffect>,
    ) {
        for (step, live) in tasks {
            let unsure = self.steps.get(&step.step).is_some_and(|r| matches!(r.state, RecordState::Unsure { .. }));
            if step.step == StepNum::Batch && unsure && !live.is_empty() {
                let plan = Box::new(self.plan_of_batch());
                let since = now;
                if let Some(record) = self.steps.get_mut(&StepNum::Batch) {
                    let placement = crate::stepmgr::placement::Placement { nodes: Vec::new(), claims: Vec::new() };
                    record.state = RecordState::Running { placement, since };
                }
                out.push(StepMgrEffect::ResumeStep { plan, live: live.clone() });
            } else if step.step != StepNum::Batch {
                out.push(StepMgrEffect::ToShepherd { node, message: StepMgrToShepherd::Kill { step: *step } });
            }
        }
        if node.0 == 0 && self.steps.get(&StepNum::Batch).is_some_and(|r| matches!(r.state, RecordState::Unsure { .. }))
        {
            self.step_lost_hold(now, StepNum::Batch, out);
        }
    }

    pub(super) fn plan_of_batch(&mut self) -> StepPlan {
        let environment = self.batch_environment();
        launch::batch_plan(&self.facts, &self.pool, &self.config, environment)
    }

    pub(super) fn batch_environment(&mut self) -> Arc<Vec<EnvEntry>> {
        self.batch_env.get_or_insert_with(|| Arc::new(env::batch_environment(&self.facts))).clone()
    }

    /// The first layer of a step's environment.
    pub(super) fn environment_for(&mut self, own: &StepSpec, before: Option<&StepSpec>) -> Arc<Vec<EnvEntry>> {
        let passed_on =
            if own.environment.is_empty() { before.map(|s| &s.environment) } else { Some(&own.environment) };
        match passed_on {
            Some(entries) if !entries.is_empty() => self.environments.get(&self.facts, entries),
            _ => self.batch_environment(),
        }
    }

    /// Appends a record that need not be on disk before anything goes on.
    pub(super) fn record(&mut self, event: StepEvent, out: &mut Vec<StepMgrEffect>) {
        self.ledger.apply(&event);
        out.push(StepMgrEffect::Journal { event, durable: None });
    }

    pub(super) fn report(&mut self, report: StepdReport, out: &mut Vec<StepMgrEffect>) {
        let message = self.reports.push(report);
        out.push(StepMgrEffect::ToAgent(message));
    }

    pub(super) fn report_later(&self, first: bool, out: &mut Vec<StepMgrEffect>) {
        if first {
            out.push(StepMgrEffect::SetTimer { timer: StepMgrTimer::Report, after: self.config.report_delay });
        }
    }

    pub(super) fn flush_reports(&mut self, out: &mut Vec<StepMgrEffect>) {
        let (facts, steps) = (&self.facts, &self.steps);
        let messages = self.reports.flush(|step| steps.get(&step).map(|r| view::live(facts, step, r)));
        out.extend(messages.into_iter().map(StepMgrEffect::ToAgent));
    }

    pub(super) fn tell(client: ClientId, message: StepMgrToCommand, out: &mut Vec<StepMgrEffect>) {
        out.push(StepMgrEffect::ToClient { client, message });
    }

    /// Puts a step into the queue.
    pub(super) fn enqueue_key(&mut self, now: Timestamp, step: u32, attended: bool) -> QueueKey {
        let urgency =
            if attended { crate::stepmgr::queue::Urgency::Blocking } else { crate::stepmgr::queue::Urgency::Minibatch };
        self.queue.push(now, urgency, self.config.minibatch_age, step)
    }

    pub(super) fn begin_once(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true)
    }

    /// From the run's start to its limit, grace included.
    pub(super) fn limit_with_grace(&self) -> Option<Duration> {
        Some(self.time_limit.duration()? + self.config.over_time_limit?)
    }
}

#[cfg(test)]
#[path = "core_test.rs"]
mod tests;
