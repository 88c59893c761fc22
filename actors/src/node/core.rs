//! Decides about one node: which jobs get what of it, and whether it is in service. Called by the node's shell, by recovery and
//! by simulations.
//!
//! A reservation names the generation of the view that it was planned on. It is accepted if the node is in service and the share
//! is free, whatever the generation: an older generation only changes the reason of a refusal.

use super::{
    account::{Account, Reserved},
    effects::{KeptHold, NodeEffect, NodeErrand},
    service::TICKS,
    view,
};
use crate::{
    messages::{
        job::JobInput,
        letter::Letter,
        node::{Grant, InitialState, NodeInput, NodeSettings, NodeSite, NodeTimer, ReserveAsk, ReserveRefusal},
    },
    owner::{FreshIds, Out, Owner},
};
use garrick_events::{
    event::ControllerEvent,
    records::node::{DownCause, SavedNode, SavedService},
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::node::{AgentReport, ControllerToNode, NodeToController},
    node_shape::NodeShape,
    refusal::Refusal,
    state::{NodeBase, NodeFlags, NodePower, PowerRequest},
    time::Timestamp,
    view::{NodeFacts, NodeHold, NodeLoad, NodeReason, NodeView},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Slurm's reason for a node that is DOWN because its daemon does not respond.
pub const NOT_RESPONDING: &str = "Not responding";

const BEING_DELETED: &str = "being deleted";

/// A connection to the agent, as far as decisions need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) conn: u64,
    pub(super) incarnation: u64,
}

/// Bits for report numbers: more than an agent sends in one life.
pub(super) const SEQ_BITS: u32 = 44;

/// Reports of one life of the agent: which are acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reports {
    incarnation: u64,
    /// Number of earlier lives: what jobs' owners say about their reports must not be taken for reports of this life.
    earlier: u64,
    /// All up to here are safe (on disk).
    upto: u64,
    /// Safe reports beyond that.
    beyond: BTreeSet<u64>,
    /// Passed to a job's owner and not safe yet.
    waiting: BTreeMap<u64, JobId>,
}

/// The owner of one node's state.
#[derive(Clone, Debug)]
pub struct NodeCore {
    pub(super) settings: NodeSettings,
    pub(super) site: Arc<NodeSite>,
    pub(super) saved: SavedNode,
    /// When the input came that is being handled.
    now: Timestamp,
    pub(super) generation: u64,
    pub(super) account: Account,
    pub(super) link: Option<Link>,
    /// It has registered since the controller started.
    pub(super) registered: bool,
    pub(super) invalid: Option<String>,
    pub(super) facts: Option<Arc<NodeFacts>>,
    /// Differing hashes of the node's and the controller's `slurm.conf` that were reported.
    pub(super) conf_differs: Option<(u32, u32)>,
    pub(super) load: NodeLoad,
    pub(super) last_heard: Timestamp,
    /// Ticks of the ping timer since then: they are regular even if the clock is set.
    pub(super) quiet: u32,
    pub(super) last_busy: Option<Timestamp>,
    /// Since when it has had no jobs, if it has none, and was on.
    pub(super) idle_from: Timestamp,
    pub(super) reports: Reports,
    /// Runs that the agent has and for which nothing is held any more: they were given up while it was away.
    pub(super) remains: BTreeSet<(JobId, Sluid)>,
    pub(super) pings: u64,
    pub(super) touched: bool,
    /// It is being deleted; the reason that is shown.
    pub(super) retired: Option<NodeReason>,
}

impl NodeCore {
    /// It is being deleted, and accepts no work.
    pub const fn is_retired(&self) -> bool {
        self.retired.is_some()
    }

    /// A node with its saved state and the jobs' holds.
    pub fn new(
        now: Timestamp,
        settings: NodeSettings,
        site: Arc<NodeSite>,
        saved: Option<SavedNode>,
        holds: impl IntoIterator<Item = KeptHold>,
    ) -> Self {
        let saved = saved.unwrap_or_else(|| first_state(now, &settings, &site));
        let mut account = Account::default();
        for hold in holds {
            account.restore(hold);
        }
        Self {
            settings,
            site,
            saved,
            now,
            generation: 0,
            account,
            link: None,
            registered: false,
            invalid: None,
            facts: None,
            conf_differs: None,
            load: NodeLoad::default(),
            last_heard: now,
            quiet: 0,
            last_busy: None,
            idle_from: now,
            reports: Reports::default(),
            remains: BTreeSet::new(),
            pings: 0,
            touched: true,
            retired: None,
        }
    }

    /// The view as of now.
    pub fn view(&self) -> NodeView {
        view::of(self)
    }

    /// The durable state.
    pub const fn saved(&self) -> &SavedNode {
        &self.saved
    }

    pub(super) fn name(&self) -> String {
        self.settings.name.clone()
    }

    pub(super) fn saved_event(&self) -> NodeEffect {
        NodeEffect::Save(ControllerEvent::Node { node: self.name(), saved: Box::new(self.saved.clone()) })
    }

    /// Uses the committed state, whatever an earlier life had decided. `None`: nothing was ever saved.
    pub fn restore(&mut self, saved: Option<SavedNode>) {
        if let Some(saved) = saved {
            self.saved = saved;
        }
    }

    /// Uses the current configuration, which an earlier life may have missed. Before [`NodeCore::resume`].
    pub fn go_by(&mut self, settings: NodeSettings, site: Arc<NodeSite>) {
        (self.settings, self.site) = (settings, site);
        self.touched = true;
    }

    /// Settings.
    pub const fn settings(&self) -> &NodeSettings {
        &self.settings
    }

    /// Settings for all nodes.
    pub fn site(&self) -> Arc<NodeSite> {
        Arc::clone(&self.site)
    }

    /// Did an earlier owner fail?
    pub const fn is_of_earlier_life(&self) -> bool {
        self.generation > 0
    }

    /// Its holds, for rebuilding this node.
    pub fn kept(&self) -> Vec<KeptHold> {
        self.account.kept().collect()
    }

    /// First call after [`NodeCore::new`], and again after a restart of the actor, whose connection must be closed then: what the
    /// earlier life had not handled (reports, releases) or not sent yet (notices, messages) follows from a registration. What it
    /// recorded has to be on disk before any effect of this one is carried out.
    pub fn resume(&mut self, now: Timestamp, out: &mut Vec<NodeEffect>) {
        self.now = now;
        self.heard(now);
        if let Some(silence) = self.site.silence {
            out.push(NodeEffect::SetTimer { timer: NodeTimer::Silence, at: now.plus(silence) });
            out.push(NodeEffect::SetTimer { timer: NodeTimer::Ping, at: now.plus(silence / TICKS) });
        }
        self.limit_reboot(out);
        self.await_resume(out);
        if self.is_of_earlier_life() {
            self.link = None;
            if self.saved.down.is_some() {
                self.lose_jobs(out);
            }
            for hold in self.account.all_kept() {
                out.push(to_job(hold.job, JobInput::RunMissing { node: self.name(), sluid: hold.sluid }));
            }
        }
        self.note_service(out);
        self.touched = true;
        self.publish(out);
    }

    /// One input.
    pub fn handle(&mut self, now: Timestamp, input: NodeInput, out: &mut Vec<NodeEffect>) {
        self.now = now;
        match input {
            NodeInput::Reserve(ask) => self.reserve(now, &ask, out),
            NodeInput::Release { job, sluid, attempt, drain } => {
                let of_run = |hold: &&NodeHold| (hold.job, hold.sluid) == (job, sluid);
                let partition = self.account.holds().find(of_run).and_then(|hold| hold.partition.clone());
                if self.account.release(job, sluid, attempt) {
                    self.last_busy = Some(now);
                    self.idle_from = now;
                    self.touched = true;
                    self.power_down_after(partition.as_deref().filter(|_| attempt.is_none()), out);
                    self.forget_reboot_of(sluid, out);
                }
                if let Some(why) = drain {
                    self.drain_by_controller(now, &why, out);
                }
            }
            NodeInput::Reboot { job, sluid } => self.reboot_for(job, sluid, out),
            NodeInput::Keep { job, sluid } => self.touched |= self.account.keep(job, sluid),
            NodeInput::Completing { job, sluid } => self.touched |= self.account.completing(job, sluid, now),
            NodeInput::Park { job, sluid } => self.touched |= self.account.park(job, sluid),
            NodeInput::Unpark { job, sluid, attempt } => {
                let granted = self.account.unpark(&self.settings.shape, job, sluid);
                self.touched |= granted == Some(true);
                self.publish(out);
                let (node, granted) = (self.name(), granted.is_some());
                out.push(to_job(job, JobInput::Unparked { attempt, node, granted }));
            }
            NodeInput::MoveEnd { job, sluid, expected_end } => {
                self.touched |= self.account.move_end(job, sluid, expected_end);
            }
            NodeInput::Registered(registration) => self.registered(now, *registration, out),
            NodeInput::LinkGone { conn } => {
                if self.link.as_ref().is_some_and(|l| l.conn == conn) {
                    // The connection was up until now, however long it was silent: the agent's lease began no earlier.
                    self.heard(now);
                    self.link = None;
                    self.touched = true;
                }
            }
            NodeInput::Frame { conn, frame } => {
                if self.link.as_ref().is_some_and(|l| l.conn == conn) {
                    self.heard(now);
                    self.frame(*frame, out);
                }
            }
            NodeInput::ReportSafe { seq } => self.report_safe(seq, out),
            NodeInput::OwnerIsNew { job } => self.owner_is_new(now, job, out),
            NodeInput::Send(frame) => self.to_agent(*frame, out),
            NodeInput::Update { request, by, change } => {
                let result = self.update(now, by, change, out);
                self.answer(request, result, out);
            }
            NodeInput::Power(what) => self.power_move(now, what, out),
            NodeInput::Retire { request } => {
                let jobs: BTreeSet<JobId> = self.account.holds().map(|hold| hold.job).collect();
                let result = if jobs.is_empty() { Ok(()) } else { Err(still_busy(&self.settings.name, &jobs)) };
                if result.is_ok() && self.retired.is_none() {
                    self.retired = Some(self.own_reason(now, BEING_DELETED));
                    self.touched = true;
                }
                self.answer(request, result, out);
            }
            NodeInput::Configure { settings, site } => self.configure(now, *settings, site, out),
            NodeInput::Timer(NodeTimer::Silence) => self.silence(now, out),
            NodeInput::Timer(NodeTimer::Ping) => self.ping(now, out),
            NodeInput::Timer(NodeTimer::Resume) => self.resume_if_due(now, out),
            NodeInput::Timer(NodeTimer::Reboot) => self.reboot_timed_out(now, out),
        }
        self.reboot_if_idle(now, out);
        self.note_service(out);
        self.publish(out);
    }

    /// Publishes first: a requester with an answer may query at once.
    fn answer(&mut self, request: u64, result: Result<(), Refusal>, out: &mut Vec<NodeEffect>) {
        self.publish(out);
        out.push(NodeEffect::Answer { request, answer: result });
    }

    pub(super) fn publish(&mut self, out: &mut Vec<NodeEffect>) {
        if self.touched {
            self.touched = false;
            self.generation += 1;
            out.push(NodeEffect::Publish(Arc::new(self.view())));
        }
    }

    /// Can nothing run on it with that state?
    fn is_out(&self, saved: &SavedNode) -> bool {
        saved.down.is_some() || (saved.is_held_back() && self.account.holds().next().is_none())
    }

    /// A drained node is out of service when its last job leaves it.
    fn note_service(&mut self, out: &mut Vec<NodeEffect>) {
        if self.is_out(&self.saved) != self.saved.is_out() {
            self.save(self.saved.clone(), out);
        }
    }

    pub(super) fn save(&mut self, mut saved: SavedNode, out: &mut Vec<NodeEffect>) {
        let is_out = self.is_out(&saved);
        // What is shown of it is another event too.
        let is_other =
            is_out && (saved.down, saved.drain, saved.fail) != (self.saved.down, self.saved.drain, self.saved.fail);
        if is_out != saved.is_out() || is_other {
            saved.service = Some(SavedService { out: is_out, since: self.now });
        }
        if saved != self.saved {
            tracing::info!(node = self.settings.name, down = ?saved.down, drain = saved.drain, fail = saved.fail, reason = saved.reason.as_ref().map(|r| r.text.as_str()), "node.move");
            self.saved = saved;
            self.touched = true;
            // After the message that this node is gone, it would apply to the next node of that name.
            if !self.is_retired() {
                out.push(self.saved_event());
            }
        }
    }

    /// Base state, from the saved state and the reports.
    pub(super) fn base(&self) -> NodeBase {
        if self.saved.down.is_some() {
            NodeBase::Down
        } else if self.settings.initial == InitialState::Future && !self.registered {
            NodeBase::Future
        } else if self.registered || !self.power().state.is_on() {
            NodeBase::Up
        } else {
            NodeBase::Unknown
        }
    }

    pub(super) fn flags(&self) -> NodeFlags {
        let power = self.power();
        NodeFlags {
            drain: self.saved.drain || self.is_retired(),
            fail: self.saved.fail,
            not_responding: match power.state {
                NodePower::On => self.link.is_none() && self.base() != NodeBase::Future,
                NodePower::PoweringUp => true,
                NodePower::PoweringDown | NodePower::PoweredDown => false,
            },
            completing: !self.remains.is_empty() || self.account.holds().any(|h| h.completing),
            remains: !self.remains.is_empty(),
            invalid: self.invalid.is_some(),
            cloud: self.settings.cloud,
            dynamic: self.settings.dynamic,
            power: power.state,
            power_request: power.request,
            reboot_requested: self.saved.reboot.is_some_and(|reboot| reboot.issued.is_none()),
            reboot_issued: self.saved.reboot.is_some_and(|reboot| reboot.issued.is_some()),
            ..NodeFlags::default()
        }
    }

    fn out_of_service(&self) -> Option<&'static str> {
        if self.is_retired() {
            return Some(BEING_DELETED);
        }
        let flags = self.flags();
        match self.base() {
            NodeBase::Down => Some("down"),
            NodeBase::Future => Some("planned"),
            NodeBase::Unknown => Some("unknown"),
            NodeBase::Up if flags.power == NodePower::PoweringDown => Some("being powered down"),
            NodeBase::Up if flags.power_request == Some(PowerRequest::Down) => Some("to be powered down"),
            NodeBase::Up if self.saved.reboot.is_some_and(|reboot| reboot.run.is_some()) => Some("being rebooted"),
            NodeBase::Up if flags.drain => Some("drained"),
            NodeBase::Up if flags.fail => Some("expected to fail"),
            NodeBase::Up if flags.is_silent() => Some("not responding"),
            NodeBase::Up if flags.invalid => Some("invalid"),
            NodeBase::Up if flags.remains => Some("ending runs that were given up"),
            NodeBase::Up => None,
        }
    }

    fn reserve(&mut self, now: Timestamp, ask: &ReserveAsk, out: &mut Vec<NodeEffect>) {
        let result = match self.out_of_service() {
            Some(why) => Err(ReserveRefusal::OutOfService(why)),
            None => match self.account.reserve(&self.settings.shape, ask) {
                Reserved::Taken => {
                    self.last_busy = Some(now);
                    self.touched = true;
                    Ok(())
                }
                Reserved::Already => Ok(()),
                Reserved::Refused if ask.generation == self.generation => Err(ReserveRefusal::DoesNotFit),
                Reserved::Refused => Err(ReserveRefusal::Stale { planned: ask.generation, current: self.generation }),
            },
        };
        // Published before the answer: a plan made after all answers must see all holds.
        self.publish(out);
        let boots = self.power().state.must_boot() || (ask.reboot && self.may_reboot_for(ask.sluid));
        let result = result.map(|()| Grant { address: self.target(), boots });
        out.push(to_job(ask.job, JobInput::Reserved { node: self.name(), attempt: ask.attempt, result }));
    }

    /// The address of its agent.
    pub(super) fn target(&self) -> String {
        let address = self.saved.address.as_deref().unwrap_or(&self.settings.address);
        format!("{address}:{}", self.settings.port)
    }

    fn frame(&mut self, frame: NodeToController, out: &mut Vec<NodeEffect>) {
        match frame {
            NodeToController::Heartbeat { load, .. } => {
                self.touched |= self.load != load;
                self.load = load;
            }
            NodeToController::Report { seq, report } => self.report(seq, report, out),
            // Registration is an input of its own; the frontend handles queries and commands.
            _ => {}
        }
    }

    pub(super) const fn heard(&mut self, now: Timestamp) {
        (self.last_heard, self.quiet) = (now, 0);
    }

    fn report(&mut self, seq: u64, report: AgentReport, out: &mut Vec<NodeEffect>) {
        let Some(link) = &self.link else { return };
        if self.reports.incarnation != link.incarnation {
            // Acknowledgements count from the agent's own start: it has those before its first report here.
            let (incarnation, earlier) = (link.incarnation, self.reports.earlier + 1);
            self.reports = Reports { incarnation, earlier, upto: seq.saturating_sub(1), ..Reports::default() };
        }
        if self.is_safe(seq) {
            self.to_agent(ControllerToNode::AckReports { upto: self.reports.upto }, out);
            return;
        }
        if let AgentReport::NodeReleased { job, sluid, .. } = &report {
            self.touched |= self.remains.remove(&(*job, *sluid));
        }
        let job = report.job();
        self.reports.waiting.insert(seq, job);
        let seq = seq | self.reports.earlier << SEQ_BITS;
        out.push(to_job(job, JobInput::Report { node: self.name(), seq, report: Box::new(report) }));
    }

    /// That report of the connected agent was handled.
    pub(super) fn is_safe(&self, seq: u64) -> bool {
        let of_link = self.link.as_ref().is_some_and(|link| link.incarnation == self.reports.incarnation);
        of_link && (seq <= self.reports.upto || self.reports.beyond.contains(&seq))
    }

    fn report_safe(&mut self, seq: u64, out: &mut Vec<NodeEffect>) {
        let seq = seq ^ self.reports.earlier << SEQ_BITS;
        // Reports of an agent that is gone need no acknowledgement; the current one would take it for its own.
        let of_link = self.link.as_ref().is_none_or(|link| link.incarnation == self.reports.incarnation);
        if !of_link || self.reports.waiting.remove(&seq).is_none() {
            return;
        }
        self.reports.beyond.insert(seq);
        let before = self.reports.upto;
        while self.reports.beyond.remove(&(self.reports.upto + 1)) {
            self.reports.upto += 1;
        }
        if self.reports.upto != before {
            self.to_agent(ControllerToNode::AckReports { upto: self.reports.upto }, out);
        }
    }

    /// What the job's earlier owner had not handled (reports, news of its runs) or not sent yet (orders, releases) all follows
    /// from a registration: the agent is made to register again. The agent knows nothing of kept shares.
    fn owner_is_new(&mut self, now: Timestamp, job: JobId, out: &mut Vec<NodeEffect>) {
        let holds = || self.account.holds().filter(|hold| hold.job == job);
        if self.saved.down.is_some() {
            for hold in holds() {
                out.push(to_job(job, JobInput::NodeLost { node: self.name(), sluid: hold.sluid }));
            }
        }
        for hold in self.account.all_kept().filter(|hold| hold.job == job) {
            out.push(to_job(job, JobInput::RunMissing { node: self.name(), sluid: hold.sluid }));
        }
        if (holds().next().is_some() || self.reports.waiting.values().any(|of| *of == job))
            && let Some(Link { conn, .. }) = self.link.take()
        {
            // The agent's lease does not begin before it is closed.
            self.heard(now);
            self.touched = true;
            out.push(NodeEffect::Do(NodeErrand::Close { conn }));
        }
    }

    /// Sends over the current connection only: with a slow disk it may be sent after another agent has connected, which must not
    /// take it for its own.
    pub(super) fn to_agent(&self, frame: ControllerToNode, out: &mut Vec<NodeEffect>) {
        if let Some(Link { conn, .. }) = self.link {
            out.push(NodeEffect::Do(NodeErrand::Send { conn, frame: Box::new(frame) }));
        }
    }

    fn drain_by_controller(&mut self, now: Timestamp, why: &str, out: &mut Vec<NodeEffect>) {
        let reason = self.saved.reason.clone().filter(|_| self.saved.is_held_back());
        let reason = reason.or_else(|| Some(self.own_reason(now, why)));
        self.save(SavedNode { drain: true, reason, ..self.saved.clone() }, out);
    }

    pub(super) fn own_reason(&self, now: Timestamp, text: &str) -> NodeReason {
        let (uid, user) = self.site.slurm_user.clone();
        NodeReason { text: text.to_owned(), uid, user, at: now }
    }

    /// Tells every holder that the node is lost. Holds stay until the jobs' owners release them.
    pub(super) fn lose_jobs(&self, out: &mut Vec<NodeEffect>) {
        for hold in self.account.holds() {
            out.push(to_job(hold.job, JobInput::NodeLost { node: self.name(), sluid: hold.sluid }));
        }
    }

    /// Checks all invariants.
    pub fn sanity_check(&self) -> Result<(), String> {
        self.sanity_check_in(&self.settings.shape)
    }

    /// The same for a node of that shape, which may be larger than its settings if the configuration was reduced.
    pub fn sanity_check_in(&self, shape: &NodeShape) -> Result<(), String> {
        self.account.sanity_check(shape).map_err(|what| format!("{}: {what}", self.settings.name))
    }
}

pub(super) fn to_job(job: JobId, input: JobInput) -> NodeEffect {
    NodeEffect::Tell(Letter::Job(job, input))
}

fn first_state(now: Timestamp, settings: &NodeSettings, site: &NodeSite) -> SavedNode {
    let (uid, user) = site.slurm_user.clone();
    let reason = settings.initial_reason.clone().map(|text| NodeReason { text, uid, user, at: now });
    match settings.initial {
        InitialState::Unknown | InitialState::Future => SavedNode::default(),
        InitialState::Down => SavedNode { down: Some(DownCause::Admin), reason, ..SavedNode::default() },
        InitialState::Drain => SavedNode { drain: true, reason, ..SavedNode::default() },
        InitialState::Fail => SavedNode { fail: true, reason, ..SavedNode::default() },
    }
}

/// Slurm's message for why a node cannot be deleted, with the jobs that are in the way.
fn still_busy(name: &str, jobs: &BTreeSet<JobId>) -> Refusal {
    let some: Vec<String> = jobs.iter().take(5).map(|job| job.0.to_string()).collect();
    let more = if jobs.len() > some.len() { ",..." } else { "" };
    Refusal::InvalidUpdate(format!("Requested nodes are busy: {name} has jobs {}{more}", some.join(",")))
}

impl Owner for NodeCore {
    type Input = NodeInput;
    type Timer = NodeTimer;
    type Shown = Arc<NodeView>;
    type Answer = Result<(), Refusal>;
    type Errand = NodeErrand;

    fn handle(&mut self, now: Timestamp, _: &mut dyn FreshIds, input: NodeInput, out: &mut Out<Self>) {
        Self::handle(self, now, input, out);
    }

    fn timer(timer: NodeTimer) -> NodeInput {
        NodeInput::Timer(timer)
    }
}
