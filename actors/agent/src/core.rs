//! Decisions of the agent: registration, heartbeats, orders, reports. `runs.rs` has the life of a run, `restart.rs` what happens
//! when a `stepd` dies, `queries.rs` listings.

use crate::{
    messages::{AgentEffect, AgentInput, AgentTimer, FoundRun, RunKey},
    outbox::Outbox,
    queries::Queries,
    runs::StepdConn,
    state::{Run, RunPhase},
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::{
        node::{AgentReport, ControllerToNode, HeldRun, Joining, NodeToController},
        stepd::{NodeToStepd, StepdReport, StepdToNode},
    },
    time::Timestamp,
    view::{NodeFacts, NodeLoad},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Settings of the agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Node name.
    pub node: String,
    /// Random, new for each start of the agent.
    pub incarnation: u64,
    /// Time between two heartbeats: a third of SlurmdTimeout, after which the controller gives the node up, so that two may be
    /// lost.
    pub heartbeat: Duration,
    /// How long a `stepd` may take to connect after it was started (BatchStartTimeout).
    pub start_limit: Duration,
    /// How long a `stepd` that was told to end a run may take before it is killed itself: KillWait plus UnkillableStepTimeout.
    pub end_limit: Duration,
    /// How long a listing waits for `stepd`s.
    pub query_limit: Duration,
    /// How long this node works on without hearing from the controller before it asks other nodes, see
    /// [`lease_of`](super::lease_of); `None`: for ever.
    pub lease: Option<Duration>,
    /// `JobRequeue`. Used for runs that a controller of an earlier version launches, which does not say which runs it may start
    /// again.
    pub requeue: bool,
    /// The one user whose jobs this daemon can run; `None`: it runs as root and can become any user.
    pub only_uid: Option<u32>,
    /// What a dynamic node tells the controller about itself, since `slurm.conf` need not list it.
    pub joining: Option<Box<Joining>>,
}

/// The agent's core.
#[derive(Debug)]
pub struct NodeAgentCore {
    pub(super) config: AgentConfig,
    facts: Option<Box<NodeFacts>>,
    load: NodeLoad,
    pub(super) now: Timestamp,
    pub(super) connected: bool,
    welcome: bool,
    pub(super) runs: BTreeMap<RunKey, Run>,
    pub(super) outbox: Outbox,
    pub(super) queries: Queries,
    /// Other nodes were asked for the controller, which was not heard from since.
    pub(super) asks_peers: bool,
    /// Runs that were told to end on this connection and are not here: the order to start them may still arrive.
    pub(super) not_to_start: BTreeSet<RunKey>,
    /// Runs that ended here, each with the expiry of its credential: until then it could be presented again.
    pub(super) over: BTreeMap<RunKey, Timestamp>,
}

impl NodeAgentCore {
    /// Before `Begin`.
    pub fn new(config: AgentConfig) -> Self {
        Self {
            config,
            facts: None,
            load: NodeLoad::default(),
            now: Timestamp::default(),
            connected: false,
            welcome: false,
            runs: BTreeMap::new(),
            outbox: Outbox::default(),
            queries: Queries::default(),
            asks_peers: false,
            not_to_start: BTreeSet::new(),
            over: BTreeMap::new(),
        }
    }

    /// Runs on this node, for status listings.
    pub fn held(&self) -> Vec<HeldRun> {
        self.runs
            .iter()
            .filter(|(_, run)| !matches!(run.phase, RunPhase::Released))
            .map(|(key, run)| HeldRun {
                job: key.job,
                sluid: key.sluid,
                batch_host: run.batch_host,
                door: run.door.clone(),
                requeue: Some(run.noted),
            })
            .collect()
    }

    /// Handles one input and appends its effects.
    pub fn handle(&mut self, now: Timestamp, input: AgentInput, out: &mut Vec<AgentEffect>) {
        self.now = now;
        match input {
            AgentInput::Begin { found, over, facts, load } => {
                self.over = over.into_iter().filter(|(_, until)| *until > now).collect();
                self.begin(found, facts, load, out);
            }
            AgentInput::ControllerUp => {
                (self.connected, self.welcome) = (true, false);
                self.register(out);
                self.pass_held_commands(out);
            }
            AgentInput::ControllerGone => {
                if std::mem::take(&mut self.welcome) {
                    self.begin_lease(out);
                }
                self.connected = false;
                self.not_to_start.clear();
                self.fail_commands(out);
            }
            AgentInput::Controller(message) => self.controller(message, out),
            AgentInput::StartJob(order) => self.start_job(order, out),
            AgentInput::StartShepherd { query, order, manager, again } => {
                self.start_shepherd(query, order, manager, again, out);
            }
            AgentInput::Prepared { run, result } => self.prepared(run, result, out),
            AgentInput::RequeueNoted { run, policy } => self.requeue_noted(run, policy, out),
            AgentInput::Restarted { run, result } => self.restarted(run, result, out),
            AgentInput::StepdUp { run, conn, pid, door, batch_host } => {
                self.stepd_up(run, StepdConn { conn, pid, door, batch_host }, out);
            }
            AgentInput::Stepd { run, conn, message } => self.stepd(run, conn, message, out),
            AgentInput::StepdGone { run, conn } => self.stepd_gone(run, conn, out),
            AgentInput::StepdExited { run, pid, how } => self.stepd_exited(run, pid, &how, out),
            AgentInput::Swept { run, left } => self.swept(run, left.as_ref(), out),
            AgentInput::EpilogDone { run, failed } => self.epilog_done(run, failed, out),
            AgentInput::Command { query, caller, request } => self.command(query, caller, request, out),
            AgentInput::CommandGone { query } => self.command_gone(query, out),
            AgentInput::OwnTrace { query, records } => self.own_trace(query, records, out),
            AgentInput::PeersSaid(said) => self.peers_said(said, out),
            AgentInput::Timer { timer, load } => {
                if timer == AgentTimer::Heartbeat {
                    self.load = load;
                }
                self.timer(timer, out);
            }
        }
    }

    fn begin(&mut self, found: Vec<FoundRun>, facts: Box<NodeFacts>, load: NodeLoad, out: &mut Vec<AgentEffect>) {
        self.facts = Some(facts);
        self.load = load;
        for run in found {
            self.adopt(run, out);
        }
        out.push(AgentEffect::SetTimer { timer: AgentTimer::Heartbeat, after: self.config.heartbeat });
        self.begin_lease(out);
        self.register(out);
    }

    /// The controller has welcomed this node, and the connection is up.
    pub(super) const fn has_controller(&self) -> bool {
        self.connected && self.welcome
    }

    fn register(&self, out: &mut Vec<AgentEffect>) {
        let Some(facts) = self.facts.as_ref().filter(|_| self.connected) else { return };
        self.tell(
            NodeToController::Register {
                node: self.config.node.clone(),
                facts: facts.clone(),
                runs: self.held(),
                released: self.outbox.released().collect(),
                incarnation: self.config.incarnation,
                load: self.load,
                joining: self.config.joining.clone(),
            },
            out,
        );
    }

    pub(super) fn tell(&self, message: NodeToController, out: &mut Vec<AgentEffect>) {
        if self.connected {
            out.push(AgentEffect::ToController(Box::new(message)));
        }
    }

    /// Sends a report that must arrive. `from_stepd` is acknowledged together with it.
    pub(super) fn report(
        &mut self,
        report: AgentReport,
        from_stepd: Option<(RunKey, u64)>,
        last_of: Option<RunKey>,
        out: &mut Vec<AgentEffect>,
    ) {
        self.outbox.push(report, from_stepd, last_of);
        self.send_reports(out);
    }

    fn send_reports(&mut self, out: &mut Vec<AgentEffect>) {
        // Before `Welcome` the controller does not know this connection; everything is sent again after it.
        while self.welcome
            && let Some((seq, report)) = self.outbox.next()
        {
            self.tell(NodeToController::Report { seq, report }, out);
        }
    }

    fn controller(&mut self, message: ControllerToNode, out: &mut Vec<AgentEffect>) {
        match message {
            ControllerToNode::Welcome { credential_key, key_id, runs, neighbours, shape, .. } => {
                out.push(AgentEffect::Neighbours(neighbours));
                out.extend(shape.map(AgentEffect::CountAs));
                self.welcome = true;
                self.renew_lease(out);
                out.push(AgentEffect::TrustKey { key: credential_key.into_vec(), id: key_id });
                self.end_unknown(&runs, out);
                self.outbox.begin();
                self.send_reports(out);
            }
            ControllerToNode::Declined(refusal) => {
                out.push(log_warning(format!("the controller declined this node's registration: {refusal}")));
            }
            // The shell checks the credential first and sends `AgentInput::StartJob`.
            ControllerToNode::StartJob(_) => {}
            ControllerToNode::EndJob { job, sluid, state, reason, lost } => {
                let key = RunKey { job, sluid };
                self.order_end(key, NodeToStepd::EndJob { state, reason, lost }, out);
            }
            ControllerToNode::SignalJob { job, sluid, signal, to } => {
                self.order(RunKey { job, sluid }, NodeToStepd::SignalJob { signal, to }, out);
            }
            ControllerToNode::SetTimeLimit { job, sluid, limit } => {
                self.order(RunKey { job, sluid }, NodeToStepd::SetTimeLimit(limit), out);
            }
            ControllerToNode::FinishAllocation { job, sluid, exit } => {
                self.order(RunKey { job, sluid }, NodeToStepd::FinishAllocation(exit), out);
            }
            ControllerToNode::SetRequeue { job, sluid, policy } => self.set_requeue(RunKey { job, sluid }, policy, out),
            ControllerToNode::Ping { n, neighbours } => {
                out.extend(neighbours.map(AgentEffect::Neighbours));
                self.tell(NodeToController::Heartbeat { n, load: self.load }, out);
            }
            ControllerToNode::AckReports { upto } => self.acknowledged(upto, out),
            ControllerToNode::ListSteps { query, jobs } => self.list_steps(query, &jobs, out),
            ControllerToNode::FindRecords { query, job, run, task } => {
                out.push(AgentEffect::FindRecords { query, job, run, task });
            }
            // Steps belong to the step manager: a shepherd of the same run does not know them by name.
            ControllerToNode::SignalSteps { job, sluid, steps, pending_only, signal, by } => {
                let key = RunKey { job, sluid };
                if self.runs.get(&key).is_some_and(|run| run.batch_host) {
                    self.order(key, NodeToStepd::SignalSteps { steps, pending_only, signal, by }, out);
                }
            }
            ControllerToNode::OrderSteps { job, sluid, order } => {
                let key = RunKey { job, sluid };
                if self.runs.get(&key).is_some_and(|run| run.batch_host) {
                    self.order(key, NodeToStepd::Order(order), out);
                }
            }
            ControllerToNode::Trace { query, prefixes, follow } => self.trace(query, prefixes, follow, out),
            ControllerToNode::StopTrace { query } => self.stop_trace(query, out),
            ControllerToNode::CommandReply { query, reply } => self.command_reply(query, reply, out),
            // For the shell, which has the keys.
            ControllerToNode::Revoked { .. }
            | ControllerToNode::RenewCertificate
            | ControllerToNode::Certificate { .. } => {}
            ControllerToNode::ChangeLog(change) => out.push(AgentEffect::ChangeLog(change)),
            ControllerToNode::Reconfigure => out.push(AgentEffect::Reconfigure),
            ControllerToNode::Reboot => out.push(AgentEffect::Reboot),
            ControllerToNode::Shutdown => out.push(AgentEffect::Exit),
        }
    }

    fn acknowledged(&mut self, upto: u64, out: &mut Vec<AgentEffect>) {
        for p in self.outbox.acknowledge(upto) {
            if let Some((run, seq)) = p.from_stepd {
                self.safe(run, seq, out);
            }
            if let Some(run) = p.last_of {
                if self.runs.remove(&run).is_some_and(|run| !run.batch_host) {
                    self.note_over(run, out);
                }
                out.push(AgentEffect::RemoveSpool { run });
            }
        }
        self.send_reports(out);
    }

    /// Ends runs that the controller does not know: it finished them or gave them up while this node was away.
    fn end_unknown(&mut self, known: &[(JobId, Sluid)], out: &mut Vec<AgentEffect>) {
        let strangers: Vec<RunKey> = self.runs.keys().filter(|k| !known.contains(&(k.job, k.sluid))).copied().collect();
        for key in strangers {
            if self.runs.get(&key).is_some_and(|r| r.phase.works()) {
                out.push(log_warning(format!(
                    "the controller does not know run {} of job {}: ending it",
                    key.sluid, key.job
                )));
                let reason = garrick_model::state::Reason::NodeDown;
                let state = garrick_model::state::JobState::NodeFail;
                self.order_end(key, NodeToStepd::EndJob { state, reason, lost: Vec::new() }, out);
            }
        }
    }

    fn stepd(&mut self, key: RunKey, conn: u64, message: StepdToNode, out: &mut Vec<AgentEffect>) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        // A run that is leaving has reported that its processes are gone. Ends of steps for which there was no room in the outbox
        // still follow.
        if run.phase != (RunPhase::Held { conn: Some(conn) }) && run.phase != RunPhase::Leaving {
            return;
        }
        match message {
            StepdToNode::Hello { .. } => {}
            StepdToNode::Report { seq, report } if seq > run.passed => {
                run.passed = seq;
                self.stepd_report(key, seq, report, out);
            }
            // A repeat of a report that is on its way; its acknowledgement will come.
            StepdToNode::Report { .. } => {}
            StepdToNode::Steps { query, steps, left_out } => self.steps_from(query, key, steps, left_out, out),
            StepdToNode::Trace { query, records } => self.trace_from(query, key, records, out),
        }
    }

    fn stepd_report(&mut self, key: RunKey, seq: u64, report: StepdReport, out: &mut Vec<AgentEffect>) {
        let RunKey { job, sluid } = key;
        let from = Some((key, seq));
        let Some(run) = self.runs.get_mut(&key) else { return };
        match report {
            StepdReport::Started => {
                let door = run.door.clone();
                self.report(AgentReport::JobStarted { job, sluid, door }, from, None, out);
            }
            StepdReport::Ended { state, reason, exit, derived, at, lost, cause } => {
                run.end_reported = true;
                let report = AgentReport::JobEnded { job, sluid, state, reason, exit, derived, at, lost, cause };
                self.report(report, from, None, out);
            }
            StepdReport::LaunchFailed { reason, detail } => {
                run.end_reported = true;
                let report = AgentReport::JobLaunchFailed { job, sluid, reason, detail, drain_node: false };
                self.report(report, from, None, out);
            }
            StepdReport::Steps(steps) => {
                run.unreported = steps.tally.unreported;
                self.report(AgentReport::Steps { job, sluid, steps }, from, None, out);
            }
            StepdReport::Gone => self.gone(key, seq, out),
        }
    }

    fn timer(&mut self, timer: AgentTimer, out: &mut Vec<AgentEffect>) {
        match timer {
            AgentTimer::Heartbeat => {
                self.tell(NodeToController::Heartbeat { n: 0, load: self.load }, out);
                out.push(AgentEffect::SetTimer { timer: AgentTimer::Heartbeat, after: self.config.heartbeat });
            }
            AgentTimer::Start(key) => self.start_timed_out(key, out),
            AgentTimer::End(key) => self.end_timed_out(key, out),
            AgentTimer::Restart(key) => self.restart_now(key, out),
            AgentTimer::Command(query) => self.command_timed_out(query, out),
            AgentTimer::Query(query) => self.query_timed_out(query, out),
            AgentTimer::Lease => self.lease_ended(out),
        }
    }
}

pub(super) fn log_warning(text: String) -> AgentEffect {
    AgentEffect::Log { warning: true, text }
}

pub(super) fn log_info(text: String) -> AgentEffect {
    AgentEffect::Log { warning: false, text }
}
