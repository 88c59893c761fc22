//! Decides everything about one run of a job: who may ask, which steps are accepted, in which order and where they run, when the
//! job ends, and what is reported. It does not run steps (each has a [`crate::step::StepCore`] of its own), launch tasks
//! (shepherds do) or know other jobs. Called by the actor in [`crate::stepmgr::shell`], by the simulator and by tests, with the
//! time as an argument.
//!
//! | file | its part |
//! |---|---|
//! | this | the state, dispatch, shepherds, agent, timers |
//! | [`clients`](super::clients), [`enqueue`](super::enqueue) | conversations with commands |
//! | [`schedule`](super::schedule), [`holds`](super::holds) | the queue: which step starts when and where |
//! | [`lines`](super::lines) | short steps that are handed to their node ahead of time |
//! | [`endings`](super::endings) | how steps end |
//! | `failing` | arrays and lists that are given up because too many of their steps fail |
//! | `sampling` | what steps use, for `sstat` |
//! | `orders` | what `scontrol` has told the job or its steps |
//! | [`life`](super::life), [`takeover`](super::takeover) | begin and end of the run |

use crate::{
    step::{NodeSlot, StepInput, StepPlan, notice},
    stepmgr::{
        env,
        failing::Failing,
        holds::Holds,
        interning::{Environments, Shapes},
        journal::Ledger,
        launch,
        lines::Lines,
        messages::{ClientId, StepMgrEffect, StepMgrInput, StepMgrTimer},
        pool::{NodeUse, Pool},
        queue::StepQueue,
        reports::Reports,
        rows::Rows,
        run::{RunFacts, StepMgrConfig},
        schedule::numbered,
        shape::JobShape,
        state::{Blocked, Conversation, RecordState, RunPhase, StepRecord},
        view,
        waiters::Waiters,
    },
};
use garrick_events::steps::{batch::StoredBatch, end::StepEnd, event::StepEvent};
use garrick_model::{
    ids::{RequestId, StepKey},
    messages::{
        files::FileRequest,
        shepherd::{ShepherdToStepMgr, StepMgrToShepherd},
        step::StepMgrToCommand,
        stepd::{NodeToStepd, StepdReport, StepdToNode, StepsOrder},
    },
    refusal::Refusal,
    spec::{EnvEntry, StepSpec},
    state::{ExitStatus, JobState, Reason},
    time::{TimeLimit, Timestamp},
    view::StepCounts,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// An accepted request whose record is being written to disk.
#[derive(Clone, Debug)]
pub(super) struct Accepting {
    pub request: RequestId,
    pub first: u32,
    pub batch: Arc<StoredBatch>,
    pub at: Timestamp,
    /// Steps of the request that were declined.
    pub declined: Vec<(u32, Refusal)>,
    /// Commands that wait for the answer, including repeats of the request.
    pub clients: Vec<ClientId>,
}

/// The step manager's core.
#[derive(Debug)]
pub struct StepMgrCore {
    pub(super) facts: Arc<RunFacts>,
    pub(super) config: StepMgrConfig,
    pub(super) job_shape: JobShape,
    pub(super) pool: Pool,
    pub(super) ledger: Ledger,
    pub(super) phase: RunPhase,
    pub(super) time_limit: TimeLimit,
    /// Steps that run, and steps whose command waits with them.
    pub(super) steps: BTreeMap<StepKey, StepRecord>,
    /// Waiting minibatch steps.
    pub(super) rows: Rows,
    pub(super) holds: Holds,
    pub(super) failing: Failing,
    pub(super) queue: StepQueue,
    pub(super) blocked: Option<Blocked>,
    pub(super) lines: Lines,
    /// Nothing was freed since a pass over the queue started nothing.
    pub(super) settled: bool,
    /// Number of attended steps that wait.
    pub(super) attended_waiting: u64,
    /// Attended steps that wait and were not told so.
    pub(super) untold: Vec<u32>,
    /// Their requests.
    pub(super) asked_for: BTreeMap<RequestId, u32>,
    pub(super) next_step: u32,
    /// How many lower numbers have no step.
    pub(super) unused_numbers: u32,
    pub(super) shapes: Shapes,
    pub(super) environments: Environments,
    /// The batch script's environment: the default for steps without one.
    pub(super) batch_env: Option<Arc<Vec<EnvEntry>>>,
    pub(super) clients: BTreeMap<ClientId, Conversation>,
    pub(super) waiters: Waiters,
    pub(super) accepting: BTreeMap<u64, Accepting>,
    /// Files that wait for shepherds.
    pub(super) files: Vec<(ClientId, FileRequest)>,
    pub(super) next_record: u64,
    pub(super) reports: Reports,
    /// By node: clean, lost, or never started.
    pub(super) clean: Vec<bool>,
    /// An earlier step manager of this run died: nodes are asked for their tasks before anything is started on them.
    pub(super) taken_over: bool,
    /// How many times nodes were asked for their tasks.
    pub(super) asked: u64,
    /// The number of the last such question, by node.
    pub(super) asked_at: BTreeMap<u32, u64>,
    /// Records wait for space on the disk.
    pub(super) journal_behind: bool,
    begun: bool,
    /// The warning of `--signal` was sent.
    pub(super) warned: bool,
    /// Number of lines about single steps in the job's error file.
    pub(super) lines_noted: u32,
}

impl StepMgrCore {
    /// A step manager for a run. `ledger` is empty for a new run, otherwise replayed from its journal.
    pub fn new(facts: Arc<RunFacts>, config: StepMgrConfig, ledger: Ledger) -> Self {
        Self {
            job_shape: JobShape::new(&facts, config.pack_nodes, config.max_tasks_per_node),
            pool: Pool::new(&facts.nodes),
            phase: RunPhase::Starting,
            time_limit: ledger.time_limit.unwrap_or(facts.time_limit),
            steps: BTreeMap::new(),
            asked_for: BTreeMap::new(),
            rows: Rows::default(),
            holds: Holds::default(),
            failing: Failing::default(),
            queue: StepQueue::default(),
            blocked: None,
            lines: Lines::default(),
            settled: true,
            attended_waiting: 0,
            untold: Vec::new(),
            next_step: ledger.next,
            unused_numbers: 0,
            shapes: Shapes::default(),
            environments: Environments::default(),
            batch_env: None,
            clients: BTreeMap::new(),
            waiters: Waiters::default(),
            accepting: BTreeMap::new(),
            files: Vec::new(),
            next_record: 1,
            reports: Reports::new(ledger.restarts),
            clean: vec![false; facts.nodes.len()],
            taken_over: false,
            asked: 0,
            asked_at: BTreeMap::new(),
            journal_behind: false,
            begun: false,
            warned: false,
            lines_noted: 0,
            facts,
            config,
            ledger,
        }
    }

    /// The run's facts.
    pub fn facts(&self) -> &RunFacts {
        &self.facts
    }

    /// The phase of the run.
    pub const fn phase(&self) -> RunPhase {
        self.phase
    }

    /// Durable state.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Handles one input and appends its effects.
    pub fn handle(&mut self, now: Timestamp, input: StepMgrInput, out: &mut Vec<StepMgrEffect>) {
        match input {
            StepMgrInput::Begin => self.begin(now, out),
            StepMgrInput::ShepherdStart { node, result } => {
                if let Err(refusal) = result {
                    self.node_lost(now, node, &format!("no shepherd: {refusal}"), out);
                }
            }
            StepMgrInput::ShepherdUp { node } => self.shepherd_up(now, node, out),
            StepMgrInput::ShepherdAway { node, detail } => self.shepherd_away(node, &detail, out),
            StepMgrInput::ShepherdLost { node, detail } => self.node_lost(now, node, &detail, out),
            StepMgrInput::Shepherd { node, message } => self.on_shepherd(now, node, message, out),
            StepMgrInput::ClientOpened { client, caller } => self.client_opened(client, &caller),
            StepMgrInput::Client { client, message } => self.on_client(now, client, message, out),
            StepMgrInput::ClientClosed { client } => self.client_closed(now, client, out),
            StepMgrInput::StepSays { step, effects } => self.on_step(now, step, effects, out),
            StepMgrInput::StepCrashed { step } => self.step_crashed(now, step, out),
            StepMgrInput::Agent(message) => self.on_agent(now, message, out),
            StepMgrInput::AgentUp => {
                out.push(StepMgrEffect::OpenAgent);
                out.extend(self.reports.again().into_iter().map(StepMgrEffect::ToAgent));
                self.flush_reports(out);
            }
            StepMgrInput::Journaled { upto } => self.journaled(now, upto, out),
            StepMgrInput::JournalRefused { record, detail } => self.journal_refused(record, &detail, out),
            StepMgrInput::JournalBehind { detail } => {
                if !std::mem::replace(&mut self.journal_behind, true) {
                    let text = format!("step journal: {detail}: no step is started until there is room");
                    out.push(StepMgrEffect::Log { text });
                }
            }
            StepMgrInput::JournalCaughtUp => {
                self.journal_behind = false;
                self.schedule(now, out);
            }
            StepMgrInput::JournalFailed { detail } => self.journal_failed(now, &detail, out),
            StepMgrInput::Timer(timer) => self.timer(now, timer, out),
        }
        if !self.files.is_empty() {
            self.try_files(out);
        }
    }

    /// Counters as users see them: attended steps that wait are counted too, and so are steps that were handed over ahead of
    /// time.
    pub fn counts(&self) -> StepCounts {
        let counts = self.ledger.counts;
        let behind = self.lines.behind() as u64;
        let queued = counts.queued + self.attended_waiting + behind;
        StepCounts { queued, running: counts.running - behind, ..counts }
    }

    /// Nothing runs, and no minibatch step waits. A command that waits with its step does not count.
    pub fn is_drained(&self) -> bool {
        let counts = self.counts();
        counts.queued - self.attended_waiting + counts.running == 0
    }

    /// Checks the invariants: every CPU and megabyte is held at most once; queue, rows, records and ledger agree.
    pub fn check(&self) -> Result<(), String> {
        self.pool.check(self.steps.values().filter_map(|r| r.state.placement()).flat_map(|p| &p.claims))?;
        let queued = |r: &StepRecord| matches!(r.state, RecordState::Queued { .. });
        let attended = self.steps.values().filter(|r| queued(r)).count() as u64;
        if attended != self.attended_waiting {
            return Err(format!("{attended} steps wait with their commands and {} are counted", self.attended_waiting));
        }
        let in_rows: u64 = self.rows.iter().map(|(_, row)| row.pending()).sum();
        let in_ledger: u64 = self.ledger.batches.values().map(|b| b.waiting.len()).sum();
        if in_rows != in_ledger || in_ledger != self.ledger.counts.queued {
            let counted = self.ledger.counts.queued;
            return Err(format!("{in_rows} steps wait in rows, {in_ledger} in the ledger, and {counted} are counted"));
        }
        for (id, row) in self.rows.iter() {
            let running = self.steps.values().filter(|r| r.row.is_some_and(|(of, _)| of == id)).count();
            if running != row.running as usize {
                return Err(format!("{running} steps of row {} run and {} are counted", row.first, row.running));
            }
            let behind = |(key, r): &(&StepKey, &StepRecord)| {
                r.row.is_some_and(|(of, _)| of == id) && self.lines.is_behind(**key)
            };
            if self.steps.iter().filter(behind).count() != row.lined as usize {
                return Err(format!("not {} steps of row {} are lined up", row.lined, row.first));
            }
            if row.limit.is_some_and(|limit| row.running > limit) {
                return Err(format!("more tasks of array {} run than its limit", row.first));
            }
        }
        self.lines.check(|step| self.steps.get(&step)?.state.placement().map(|p| !p.claims.is_empty()))?;
        let running = self.steps.iter().filter(|(key, r)| numbered(**key) && !queued(r)).count() as u64;
        if self.ledger.counts.running != running {
            return Err(format!("{running} steps run and {} are counted", self.ledger.counts.running));
        }
        Ok(())
    }

    fn shepherd_up(&mut self, now: Timestamp, node: NodeSlot, out: &mut Vec<StepMgrEffect>) {
        let Some(was) = self.pool.nodes().get(node.0 as usize).map(|n| n.usage) else { return };
        if was == NodeUse::Lost || self.clean[node.0 as usize] {
            // A shepherd that was given up must not go on.
            out.push(StepMgrEffect::ToShepherd { node, message: StepMgrToShepherd::EndJob });
            return;
        }
        if was == NodeUse::Ready {
            return;
        }
        // This is recorded before the node gets work: from then on there is something to lose with it.
        if node.0 != 0 && !self.ledger.begun.contains(&node.0) {
            self.record(StepEvent::ShepherdUp { slot: node.0 }, out);
        }
        out.push(StepMgrEffect::ToShepherd { node, message: StepMgrToShepherd::Welcome });
        if was == NodeUse::Away || self.taken_over {
            // First it is asked what it has; then it gets more.
            self.asked += 1;
            self.asked_at.insert(node.0, self.asked);
            out.push(StepMgrEffect::ToShepherd { node, message: StepMgrToShepherd::ListTasks });
        } else {
            self.node_ready(now, node, out);
        }
        if matches!(self.phase, RunPhase::Sweeping | RunPhase::Ended | RunPhase::Gone) {
            out.push(StepMgrEffect::ToShepherd { node, message: StepMgrToShepherd::EndJob });
        }
    }

    /// A node's shepherd is there, and its tasks are known.
    pub(super) fn node_ready(&mut self, now: Timestamp, node: NodeSlot, out: &mut Vec<StepMgrEffect>) {
        self.pool.set_usage(node.0, NodeUse::Ready);
        self.start_batch(now, out);
        self.tell_node(node, out);
        self.settled = false;
        self.schedule(now, out);
    }

    /// A shepherd may come back: its node gets nothing new until then.
    fn shepherd_away(&mut self, node: NodeSlot, detail: &str, out: &mut Vec<StepMgrEffect>) {
        let Some(was) = self.pool.nodes().get(node.0 as usize).map(|n| n.usage) else { return };
        if was == NodeUse::Ready {
            let name = &self.pool.node(node.0).name;
            out.push(StepMgrEffect::Log { text: format!("node {name} is out of reach: {detail}") });
            self.pool.set_usage(node.0, NodeUse::Away);
        }
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
            | ShepherdToStepMgr::PmiFence { step, .. }
            | ShepherdToStepMgr::PmiAbort { step, .. }
            | ShepherdToStepMgr::StdinConsumed { step, .. }
            | ShepherdToStepMgr::NotStarted { step }
            | ShepherdToStepMgr::StepGone { step } => *step,
            ShepherdToStepMgr::Register { .. } => return,
            ShepherdToStepMgr::Sampled { step, query, tasks } => {
                return self.sampled(node, *step, *query, tasks.clone(), out);
            }
            ShepherdToStepMgr::Gone => return self.node_clean(now, node, out),
            ShepherdToStepMgr::Tasks { tasks, complete } => {
                return self.tasks_found(now, node, tasks, *complete, out);
            }
        };
        if let ShepherdToStepMgr::TaskFailed { message, untried: true, .. } = &message
            && step.key() == StepKey::BATCH
            && self.phase.takes_steps()
        {
            // All that is known of the script is that it did not run: the job is requeued and held.
            let detail = notice::without_time(message).to_owned();
            self.record(StepEvent::LaunchFailed { detail }, out);
        }
        if let ShepherdToStepMgr::TaskFailed { message, rank, .. } = &message
            && self.steps.get(&step.key()).is_some_and(|r| r.row.is_some())
        {
            // No command waits with it that could be told.
            let text = format!("step {step}, task {rank}: {}", notice::without_time(message));
            self.note_line(text, out);
        }
        match self.steps.get_mut(&step.key()).filter(|_| step.job == self.facts.job).map(|r| &mut r.state) {
            Some(RecordState::Running { .. }) => {
                out.push(StepMgrEffect::ToStep { step: step.key(), input: StepInput::Shepherd { node, message } });
            }
            // The step's state is not known yet: this is part of the answer.
            Some(RecordState::Unsure { findings, .. }) => findings.heard(node.0, &message),
            Some(RecordState::Queued { .. }) | None => {}
        }
    }

    /// An order for a step that does not wait: now, or when its state is known.
    pub(super) fn order_step(&mut self, step: StepKey, order: StepInput, out: &mut Vec<StepMgrEffect>) {
        match self.steps.get_mut(&step).map(|r| &mut r.state) {
            Some(RecordState::Unsure { findings, .. }) => findings.keep(order),
            Some(RecordState::Running { .. }) => out.push(StepMgrEffect::ToStep { step, input: order }),
            Some(RecordState::Queued { .. }) | None => {}
        }
    }

    fn on_agent(&mut self, now: Timestamp, message: NodeToStepd, out: &mut Vec<StepMgrEffect>) {
        match message {
            NodeToStepd::EndJob { state, reason, lost } => {
                self.given_up(now, &lost, out);
                self.end_job(now, state, reason, ExitStatus::SUCCESS, StepEnd::Job(state), out);
            }
            NodeToStepd::SignalJob { signal, to } => self.signal_run(now, signal, to, out),
            NodeToStepd::SetTimeLimit(limit) => {
                self.time_limit = limit;
                self.record(StepEvent::TimeLimit(limit), out);
                self.set_limit_timers(now, out);
            }
            NodeToStepd::FinishAllocation(exit) => self.finish_allocation(now, exit, out),
            NodeToStepd::SignalSteps { steps, pending_only, signal, by } => {
                // The controller has told the requester that the order was passed on; a refusal is not sent back.
                if let Err(refusal) = self.signal_named(now, &steps, pending_only, signal, by, out) {
                    out.push(StepMgrEffect::Log { text: format!("steps {steps} not signalled: {refusal}") });
                }
            }
            NodeToStepd::Order(StepsOrder::Notify(text)) => self.notify(now, &text, out),
            NodeToStepd::Order(StepsOrder::SetLimit { steps, limit }) => self.set_step_limit(now, &steps, limit, out),
            NodeToStepd::ListSteps { query } => {
                let (steps, left_out) = self.listing();
                out.push(StepMgrEffect::ToAgent(StepdToNode::Steps { query, steps, left_out }));
            }
            NodeToStepd::Ack { upto } => {
                let ends = self.reports.acknowledged(upto);
                if ends > 0 {
                    self.record(StepEvent::Reported { ends }, out);
                }
                if self.reports.stalled() {
                    self.flush_reports(out);
                }
                if self.phase == RunPhase::Gone && self.reports.is_empty() {
                    out.push(StepMgrEffect::Exit);
                }
            }
            // The process answers trace requests, not the job's manager.
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
            StepMgrTimer::Retry => self.delays_over(now, out),
            StepMgrTimer::Others => self.others_late(now, out),
            StepMgrTimer::Progress(client) => self.tell_progress(now, client, true, out),
            // For the shell.
            StepMgrTimer::Backlog | StepMgrTimer::Step(..) => {}
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

    /// Appends a record that need not be on disk before the next effects.
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
        let live = |step| steps.get(&step).map(|r| (r.origin.clone(), view::row(facts, step, r)));
        let messages = self.reports.flush(facts, &self.ledger, self.counts(), live);
        out.extend(messages.into_iter().map(StepMgrEffect::ToAgent));
    }

    pub(super) fn tell(client: ClientId, message: StepMgrToCommand, out: &mut Vec<StepMgrEffect>) {
        out.push(StepMgrEffect::ToClient { client, message });
    }

    pub(super) fn begin_once(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true)
    }

    /// From the run's start to its time limit, including grace.
    pub(super) fn limit_with_grace(&self) -> Option<Duration> {
        Some(self.time_limit.duration()? + self.config.over_time_limit?)
    }
}

#[cfg(test)]
#[path = "core_test.rs"]
mod tests;

#[cfg(test)]
#[path = "minibatch_test.rs"]
mod minibatch_tests;
