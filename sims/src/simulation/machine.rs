//! A node's machine around the core of its agent: the link to the controller, the spool folder, and `stepd`s, which are
//! made up: they start, work for a while, report, die when they are killed, and go on when they are started again.

use super::{
    crew::{Crew, FIRST_TURN},
    world::{Happening, PATIENCE, Place, World},
};
use garrick_actors::{
    node::messages::{NodeInput, Registration},
    node_agent::{
        AgentConfig, AgentEffect, AgentInput, AgentTimer, FoundRun, NodeAgentCore, PeersSaid, PrepareFailure, RunKey,
        StartOrder, StepdState, lease_of,
    },
};
use garrick_model::{
    config::NodeConfig,
    ids::{JobId, Sluid},
    messages::{
        node::{AgentToStepMgr, ControllerToNode, JobCredential, JobLaunch, NodeToController},
        stepd::{NodeToStepd, StepdReport, StepdToNode},
    },
    spec::JobKind,
    state::{ExitStatus, JobState, Reason},
    time::Timestamp,
    view::NodeFacts,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// So many other nodes are asked whether they have the controller, as by real agents.
const PEERS_ASKED: usize = 16;
/// How long their answers are waited for, as by real agents.
const PEERS_PATIENCE_MS: u32 = 5_000;
/// The links of a node that is cut off are given up after this at most.
const SILENCE_NOTICED_MS: u32 = 10_000;
/// A node that has had the controller for so long was told what an administrator's word means for its jobs.
const TOLD_AFTER: Duration = Duration::from_secs(30);
/// Name of the rule that a lease is kept.
const LEASE: &str = "a_lease_ends_no_earlier_than_it_may";

/// An order that is being prepared, and later what a `stepd` was told.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) run: RunKey,
    order: Box<JobLaunch>,
    credential: Box<JobCredential>,
    /// Name of the batch host, where this is another node.
    manager: Option<String>,
}

/// What a `stepd` hears.
#[derive(Clone, Debug)]
pub(super) enum ToStepd {
    Agent(NodeToStepd),
    /// Its tasks are done.
    WorkDone(JobState),
    /// Its time is over.
    LimitOver,
    /// The step manager ended the run, or is gone.
    ManagerEnds,
    /// This other node's part is lost or did not start.
    PeerLost(usize),
}

impl Launch {
    pub(super) fn order(&self) -> &JobLaunch {
        &self.order
    }

    pub(super) fn credential(&self) -> &JobCredential {
        &self.credential
    }
}

#[derive(Clone, Debug)]
struct Stepd {
    launch: Launch,
    conn: Option<u64>,
    seq: u64,
    unacknowledged: Vec<(u64, StepdReport)>,
    started: bool,
    ended: bool,
    left: bool,
    /// It lives and does nothing.
    hung: bool,
    /// When its time is over, on the batch host from the moment when it began.
    limit: Option<Timestamp>,
}

impl Stepd {
    /// A step manager's numbers start behind those of the one before it, whose reports it makes its own; that its run is gone
    /// it finds out itself.
    fn renumber(&mut self) {
        self.seq = ((self.seq >> 32) + 1) << 32;
        let mut reports: Vec<StepdReport> =
            std::mem::take(&mut self.unacknowledged).into_iter().map(|(_, r)| r).collect();
        if self.left && !reports.contains(&StepdReport::Gone) {
            reports.push(StepdReport::Gone);
        }
        for report in reports {
            self.seq += 1;
            self.unacknowledged.push((self.seq, report));
        }
    }
}

/// A run's folder.
#[derive(Clone, Debug)]
struct Folder {
    batch_host: bool,
    /// Its job is started again elsewhere when this node is given up.
    may_be_elsewhere: bool,
    clean: bool,
    /// Boot of the machine in which it was made.
    boot: u64,
    stepd: Option<Stepd>,
    /// What the next `stepd` will know of one that died.
    journal: Option<Stepd>,
}

impl Folder {
    /// Nobody works on the run here any more.
    fn is_over(&self) -> bool {
        self.stepd.as_ref().or(self.journal.as_ref()).is_none_or(|stepd| stepd.ended)
    }
}

/// A node's machine.
#[derive(Debug)]
pub(super) struct Machine {
    name: String,
    facts: NodeFacts,
    agent: NodeAgentCore,
    /// Counts starts of the agent.
    life: u64,
    /// Counts starts of the machine.
    boot: u64,
    /// Connection to the controller.
    pub(super) link: Option<u64>,
    /// The controller's link to it takes nothing until then.
    pub(super) busy_until: Timestamp,
    /// Between its clock and the time that has passed.
    pub(super) clock_ahead_ms: i64,
    /// No network reaches it until then, but that of nodes that were cut off together with it.
    pub(super) cut_until: Timestamp,
    /// Number of that partition.
    partition: u64,
    /// Its agent has no controller since then; `None`: it was welcomed.
    without_since: Option<Timestamp>,
    /// When the agent was started last.
    agent_start: Timestamp,
    /// An administrator has set it DOWN then, and it may not have been told to end what is to be elsewhere at once.
    pub(super) set_down: Option<Timestamp>,
    /// When it was welcomed last.
    welcomed: Timestamp,
    /// Runs that the agent was told, or has decided, to end.
    ending: BTreeSet<RunKey>,
    /// It is gone for good.
    pub(super) dead: bool,
    spool: BTreeMap<RunKey, Folder>,
    /// Who waits for an answer to `StartShepherd`.
    askers: BTreeMap<u64, (usize, RunKey)>,
}

impl Machine {
    pub(super) fn new(node: &NodeConfig) -> Self {
        let facts = NodeFacts {
            hostname: node.name.clone(),
            shape: node.settings.shape.clone(),
            arch: "x86_64".to_owned(),
            os: "Linux".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_time: Default::default(),
            agent_start: Default::default(),
            tracking: "made up".to_owned(),
            boot_id: None,
        };
        let (name, agent) = (node.name.clone(), agent(&node.name, 0));
        Self {
            name,
            facts,
            agent,
            life: 0,
            boot: 0,
            link: None,
            busy_until: Timestamp::default(),
            clock_ahead_ms: 0,
            cut_until: Timestamp::default(),
            partition: 0,
            without_since: Some(Timestamp::default()),
            agent_start: Timestamp::default(),
            set_down: None,
            welcomed: Timestamp::default(),
            ending: BTreeSet::new(),
            dead: false,
            spool: BTreeMap::new(),
            askers: BTreeMap::new(),
        }
    }

    /// Nothing of any run is left, or nobody will ever know.
    pub(super) fn is_empty(&self) -> bool {
        self.dead || self.spool.is_empty()
    }

    /// Runs with a living `stepd`.
    pub(super) fn living(&self) -> Vec<RunKey> {
        self.spool.iter().filter(|(_, folder)| folder.stepd.is_some()).map(|(run, _)| *run).collect()
    }
}

fn agent(name: &str, life: u64) -> NodeAgentCore {
    NodeAgentCore::new(AgentConfig {
        node: name.to_owned(),
        incarnation: life,
        heartbeat: Duration::from_secs(40),
        start_limit: Duration::from_secs(30),
        end_limit: Duration::from_secs(90),
        query_limit: Duration::from_secs(10),
        lease: lease_of(Some(PATIENCE)),
        requeue: true,
    })
}

impl World {
    /// The agent starts (again), with what the spool says.
    pub(super) fn begin_agent(&mut self, node: usize) {
        self.break_link(node);
        let machine = &mut self.machines[node];
        machine.life += 1;
        machine.agent = agent(&machine.name, machine.life);
        machine.askers.clear();
        machine.agent_start = self.now;
        let mut found = Vec::new();
        for (run, folder) in &mut machine.spool {
            let stepd = match &mut folder.stepd {
                Some(stepd) => {
                    stepd.conn = None;
                    StepdState::Alive { pid: Some(1), clean: folder.clean }
                }
                None if folder.clean => StepdState::Clean,
                None if folder.boot != machine.boot => StepdState::Rebooted,
                None => StepdState::Dead,
            };
            found.push(FoundRun {
                run: *run,
                batch_host: folder.batch_host,
                uid: 0,
                stepd,
                door: String::new(),
                may_be_elsewhere: folder.may_be_elsewhere,
            });
        }
        let facts = Box::new(machine.facts.clone());
        for run in machine.living() {
            self.send(Place::Machine(node), Happening::StepdConnects(node, run));
        }
        self.agent(node, AgentInput::Begin { found, facts, load: Default::default() });
    }

    /// The network between some nodes and all others, and the controller, is gone for a while. Both ends of a link notice
    /// when they hear nothing for long.
    pub(super) fn cut(&mut self, nodes: &[usize], secs: u32) {
        self.connections += 1;
        let (partition, ms) = (self.connections, u64::from(secs) * 1_000);
        for &node in nodes {
            self.machines[node].cut_until = self.now.plus(Duration::from_millis(ms));
            self.machines[node].partition = partition;
            let Some(conn) = self.lose_link(node) else { continue };
            let there = self.random.between(5_000, 40_000);
            self.after(u64::from(there), Happening::Node(node, NodeInput::LinkGone { conn }));
            let here = u64::from(self.random.between(0, SILENCE_NOTICED_MS)).min(ms);
            let life = self.machines[node].life;
            self.after(here, Happening::Agent(node, life, AgentInput::ControllerGone));
            self.after(ms + 1_000, Happening::Connect(node));
        }
    }

    /// What is under way on the link is lost with it.
    fn lose_link(&mut self, node: usize) -> Option<u64> {
        let conn = self.machines[node].link.take()?;
        self.lose_frames(conn);
        let (now, machine) = (self.now, &mut self.machines[node]);
        if machine.without_since.is_none() {
            machine.set_down.take_if(|at| now.since(machine.welcomed.max(*at)) > TOLD_AFTER);
            machine.without_since = Some(now);
        }
        Some(conn)
    }

    fn is_cut(&self, node: usize) -> bool {
        self.machines[node].cut_until > self.now
    }

    /// Does a network reach from the one to the other?
    fn reaches(&self, node: usize, other: usize) -> bool {
        let together = self.machines[node].partition == self.machines[other].partition;
        match (self.is_cut(node), self.is_cut(other)) {
            (false, false) => !self.machines[other].dead,
            (true, true) => together && !self.machines[other].dead,
            _ => false,
        }
    }

    /// Asks some other nodes whether they have the controller.
    fn ask_peers(&mut self, node: usize, life: u64) {
        self.ledger.counts.add("lease over");
        let mut others: Vec<usize> = (0..self.machines.len()).filter(|other| *other != node).collect();
        let mut said = PeersSaid::default();
        while said.asked < PEERS_ASKED
            && let Some(&other) = self.random.pick(&others)
        {
            others.retain(|o| *o != other);
            said.asked += 1;
            if self.reaches(node, other) {
                said.reached += 1;
                said.with_controller += usize::from(self.machines[other].link.is_some());
            }
        }
        let quickest = if said.reached < said.asked { PEERS_PATIENCE_MS } else { 5 };
        let pause = self.random.between(quickest, PEERS_PATIENCE_MS);
        self.after(u64::from(pause), Happening::Agent(node, life, AgentInput::PeersSaid(said)));
    }

    /// Runs were ended because this node has no controller: it has been without one for as long as it is to wait.
    fn against_lease(&mut self, node: usize, ended: usize) {
        (0..ended).for_each(|_| self.ledger.counts.add("run ended by a lease"));
        let machine = &self.machines[node];
        let since = machine.without_since.map(|since| self.now.since(since));
        if since.is_none() || since < lease_of(Some(PATIENCE)) {
            let what = format!("{} has ended {ended} runs after {since:?} without a controller", machine.name);
            self.broken = Some((LEASE, what));
        }
    }

    /// A node that was given up, where an earlier run of a job goes on than this one. Who was given up at an
    /// administrator's word has to be told first, an agent counts from its own start, and a stepped clock is believed a
    /// ping too early: none of these counts.
    pub fn goes_on_elsewhere(&self, job: JobId, run: Sluid) -> Option<String> {
        let earlier = RunKey { job, sluid: Sluid(0) }..RunKey { job, sluid: run };
        self.machines.iter().find_map(|machine| {
            let since = machine.without_since.filter(|since| {
                !machine.dead
                    && machine.set_down.is_none()
                    && machine.agent_start <= *since
                    && self.clock_stepped < *since
            })?;
            let works = |stepd: &Stepd| !stepd.ended && !stepd.left;
            let runs = machine.spool.range(earlier.clone()).filter(|(run, _)| !machine.ending.contains(run));
            let mut works = runs.filter(|(_, folder)| folder.stepd.as_ref().is_some_and(works));
            let (run, _) = works.next()?;
            Some(format!("run {} on {}, {:?} without a controller", run.sluid, machine.name, self.now.since(since)))
        })
    }

    /// Nodes that work together with this one on a run whose step manager is here.
    pub(super) fn peers_of(&self, node: usize) -> Vec<usize> {
        let folders = self.machines[node].spool.values().filter(|folder| folder.batch_host);
        let stepds = folders.filter_map(|folder| folder.stepd.as_ref());
        stepds.flat_map(|stepd| others(&stepd.launch, node)).collect()
    }

    /// The machine is gone and does not come back; nobody is told. Sometimes not even its link breaks.
    pub(super) fn die(&mut self, node: usize) {
        if self.random.one_in_thousand(500) {
            self.break_link(node);
        } else {
            self.lose_link(node);
        }
        let machine = &mut self.machines[node];
        machine.dead = true;
        machine.life += 1;
        for (run, folder) in std::mem::take(&mut machine.spool) {
            if folder.batch_host {
                self.crews.remove(&run);
            } else if let Some(batch_host) = self.crews.get(&run).map(|crew| crew.nodes[0]) {
                // Its step manager waits for it for a while.
                self.after(60_000, Happening::Stepd(batch_host, run, ToStepd::PeerLost(node)));
            }
        }
    }

    /// The machine is set up anew: nothing that was on its disk is there.
    pub(super) fn wipe(&mut self, node: usize) {
        self.reboot(node);
        let life = self.machines[node].life + 1;
        self.machines[node].life = life;
        self.machines[node].spool.clear();
        self.begin_agent(node);
    }

    pub(super) fn connect(&mut self, node: usize) {
        let left = self.machines[node].cut_until.since(self.now);
        if !left.is_zero() {
            return self.after(u64::try_from(left.as_millis()).unwrap_or(0) + 1_000, Happening::Connect(node));
        }
        if self.machines[node].link.is_none() && !self.machines[node].dead {
            self.connections += 1;
            self.machines[node].link = Some(self.connections);
            self.agent(node, AgentInput::ControllerUp);
        }
    }

    /// The link breaks; frames on it are lost. The agent connects again after a while, mostly a short one.
    pub(super) fn break_link(&mut self, node: usize) {
        let Some(conn) = self.lose_link(node) else { return };
        self.send(Place::Agent(node), Happening::Node(node, NodeInput::LinkGone { conn }));
        self.agent(node, AgentInput::ControllerGone);
        let long = !self.is_calm() && self.random.one_in_thousand(150);
        let pause = self.random.between(1_000, if long { 400_000 } else { 15_000 });
        self.after(u64::from(pause), Happening::Connect(node));
    }

    pub(super) fn frame_for_agent(&mut self, node: usize, conn: u64, frame: ControllerToNode) {
        if self.machines[node].link != Some(conn) {
            return;
        }
        match frame {
            ControllerToNode::StartJob(launch) => {
                let read = serde_json::from_slice(&launch.credential.payload);
                let credential = read.map_err(|error| error.to_string());
                self.agent(node, AgentInput::StartJob(StartOrder { launch, credential }));
            }
            other => {
                if matches!(other, ControllerToNode::Welcome { .. }) {
                    (self.machines[node].without_since, self.machines[node].welcomed) = (None, self.now);
                }
                self.agent(node, AgentInput::Controller(other));
            }
        }
    }

    /// Told to one life of the agent; a later one does not hear it.
    pub(super) fn tell_agent(&mut self, node: usize, life: u64, input: AgentInput) {
        if self.machines[node].life != life {
            return;
        }
        let of_lease = matches!(input, AgentInput::PeersSaid(_));
        let before = self.machines[node].ending.len();
        self.agent(node, input);
        let ended = self.machines[node].ending.len() - before;
        if of_lease && ended > 0 {
            self.against_lease(node, ended);
        }
    }

    fn agent(&mut self, node: usize, input: AgentInput) {
        if self.machines[node].dead {
            return;
        }
        let mut out = Vec::new();
        let clock = Timestamp(self.now.0 + self.machines[node].clock_ahead_ms);
        self.machines[node].agent.handle(clock, input, &mut out);
        let life = self.machines[node].life;
        for effect in out {
            self.agent_effect(node, life, effect);
        }
    }

    fn agent_effect(&mut self, node: usize, life: u64, effect: AgentEffect) {
        match effect {
            AgentEffect::ToController(frame) => {
                let Some(conn) = self.machines[node].link else { return };
                let input = match *frame {
                    NodeToController::Register { facts, runs, incarnation, load, .. } => {
                        NodeInput::Registered(Box::new(Registration { conn, facts: *facts, runs, incarnation, load }))
                    }
                    other => NodeInput::Frame { conn, frame: Box::new(other) },
                };
                self.send(Place::Agent(node), Happening::Node(node, input));
            }
            AgentEffect::Prepare { run, launch, credential, manager } => {
                let prolog = self.random.between(50, 2_500);
                let launch = Launch { run, order: launch, credential, manager };
                self.after(u64::from(prolog), Happening::Prepared(node, life, Box::new(launch)));
            }
            AgentEffect::ToStepd { run, message } => {
                self.send(Place::Machine(node), Happening::Stepd(node, run, ToStepd::Agent(message)));
            }
            AgentEffect::KillStepd { run, .. } => {
                // One that hangs may be in the kernel's hands for now.
                let hung = self.stepd(node, run).is_some_and(|stepd| stepd.hung);
                if hung && self.random.one_in_thousand(500) {
                    return self.ledger.counts.add("kill of a stepd came to nothing");
                }
                if !self.kill_stepd(node, run) {
                    let how = "it is not there".to_owned();
                    self.later(node, life, 10, AgentInput::StepdExited { run, pid: None, how });
                }
            }
            AgentEffect::Restart { run } => self.restart_stepd(node, life, run),
            AgentEffect::Sweep { run } => {
                self.abandon(node, run);
                self.later(node, life, 1_000, AgentInput::Swept { run, stubborn: Vec::new() });
            }
            AgentEffect::MarkClean { run } => {
                if let Some(folder) = self.machines[node].spool.get_mut(&run) {
                    folder.clean = true;
                }
            }
            AgentEffect::RunEpilog { run } => {
                let fails = !self.is_calm() && self.random.one_in_thousand(4);
                let failed = fails.then(|| "made to fail".to_owned());
                self.later(node, life, 1_500, AgentInput::EpilogDone { run, failed });
            }
            AgentEffect::RemoveSpool { run } => {
                self.machines[node].spool.remove(&run);
                self.machines[node].ending.remove(&run);
            }
            AgentEffect::AnswerShepherd { query, answer } => {
                let asker = self.machines[node].askers.remove(&query);
                if let (Some((batch_host, run)), AgentToStepMgr::Failed(_)) = (asker, answer) {
                    self.send(Place::Agent(node), Happening::Stepd(batch_host, run, ToStepd::PeerLost(node)));
                }
            }
            AgentEffect::AskPeers => self.ask_peers(node, life),
            AgentEffect::SetTimer { timer, after } => {
                if let AgentTimer::End(run) = timer {
                    self.machines[node].ending.insert(run);
                }
                self.set_timer(self.now.plus(after), Happening::AgentTimer(node, life, timer));
            }
            AgentEffect::ClearTimer(timer) => self.clear_timer(&Happening::AgentTimer(node, life, timer)),
            AgentEffect::Watch { .. }
            | AgentEffect::NoteManager { .. }
            | AgentEffect::TrustKey { .. }
            | AgentEffect::AnswerCommand { .. }
            | AgentEffect::OwnTrace { .. }
            | AgentEffect::StopOwnTrace { .. }
            | AgentEffect::Log { .. }
            | AgentEffect::Reconfigure
            | AgentEffect::Exit => {}
        }
    }

    fn later(&mut self, node: usize, life: u64, most_ms: u32, input: AgentInput) {
        let ms = self.random.between(1, most_ms);
        self.after(u64::from(ms), Happening::Agent(node, life, input));
    }

    /// Prolog and folder are done: a `stepd` starts, or not.
    pub(super) fn prepared(&mut self, node: usize, life: u64, launch: Launch) {
        if self.machines[node].life != life {
            return;
        }
        let run = launch.run;
        if !self.is_calm() && self.random.one_in_thousand(8) {
            self.ledger.counts.add("launch failure");
            let prolog = self.random.one_in_thousand(300);
            let what = "made to fail".to_owned();
            let failure = if prolog { PrepareFailure::Prolog(what) } else { PrepareFailure::Start(what) };
            return self.agent(node, AgentInput::Prepared { run, result: Err(failure) });
        }
        let (batch_host, may_be_elsewhere) = (launch.manager.is_none(), launch.order.spec.may_run_again(true));
        let (conn, unacknowledged) = (None, Vec::new());
        let stepd = Stepd {
            launch,
            conn,
            seq: 0,
            unacknowledged,
            started: false,
            ended: false,
            left: false,
            hung: false,
            limit: None,
        };
        let boot = self.machines[node].boot;
        let folder = Folder { batch_host, may_be_elsewhere, clean: false, boot, stepd: Some(stepd), journal: None };
        self.machines[node].spool.insert(run, folder);
        self.agent(node, AgentInput::Prepared { run, result: Ok(1) });
        self.send(Place::Machine(node), Happening::StepdConnects(node, run));
    }

    fn stepd(&mut self, node: usize, run: RunKey) -> Option<&mut Stepd> {
        self.machines[node].spool.get_mut(&run)?.stepd.as_mut()
    }

    pub(super) fn stepd_connects(&mut self, node: usize, run: RunKey) {
        self.connections += 1;
        let conn = self.connections;
        let Some(stepd) = self.stepd(node, run) else { return };
        stepd.conn = Some(conn);
        let batch_host = stepd.launch.manager.is_none();
        self.agent(node, AgentInput::StepdUp { run, conn, pid: 1, door: format!("n{node}.sock"), batch_host });
    }

    pub(super) fn tell_stepd(&mut self, node: usize, run: RunKey, what: ToStepd) {
        let Some(stepd) = self.stepd(node, run).filter(|stepd| !stepd.hung) else { return };
        let batch_host = stepd.launch.manager.is_none();
        if batch_host && self.crews.contains_key(&run) {
            return self.tell_crewed(node, run, what);
        }
        let Some(stepd) = self.stepd(node, run) else { return };
        match what {
            ToStepd::Agent(NodeToStepd::Welcome) => {
                let (first, again) = (!stepd.started, stepd.unacknowledged.clone());
                stepd.started = true;
                for (seq, report) in again {
                    self.stepd_says(node, run, seq, report);
                }
                if first {
                    self.stepd_begins(node, run);
                }
            }
            ToStepd::Agent(NodeToStepd::Ack { upto }) => {
                let is_end =
                    |(seq, report): &(u64, StepdReport)| *seq <= upto && matches!(report, StepdReport::Ended { .. });
                let ended = stepd.unacknowledged.iter().any(is_end);
                stepd.unacknowledged.retain(|(seq, _)| *seq > upto);
                if ended {
                    self.promises.end(run.sluid);
                }
                let Some(stepd) = self.stepd(node, run) else { return };
                if stepd.left && stepd.unacknowledged.is_empty() {
                    self.kill_stepd(node, run);
                }
            }
            ToStepd::Agent(NodeToStepd::EndJob { state, reason, .. }) if batch_host => {
                self.end_run(node, run, state, reason);
            }
            ToStepd::Agent(NodeToStepd::FinishAllocation(_)) if batch_host => {
                self.end_run(node, run, JobState::Completed, Reason::None);
            }
            // Its owner says that it is done, again and again until that is heard.
            ToStepd::WorkDone(_) if stepd.launch.order.spec.kind == JobKind::Allocation && !stepd.ended => {
                self.finish_allocation(run);
                self.after(60_000, Happening::Stepd(node, run, ToStepd::WorkDone(JobState::Completed)));
            }
            ToStepd::WorkDone(state) => self.end_run(node, run, state, Reason::None),
            ToStepd::LimitOver => self.end_run(node, run, JobState::Timeout, Reason::TimeLimit),
            ToStepd::PeerLost(_) if batch_host => self.end_run(node, run, JobState::NodeFail, Reason::NodeDown),
            ToStepd::ManagerEnds | ToStepd::Agent(NodeToStepd::EndJob { .. }) => self.leave(node, run),
            ToStepd::PeerLost(_) | ToStepd::Agent(_) => {}
        }
    }

    /// As [`Self::tell_stepd`], for the batch host of a run with steps.
    fn tell_crewed(&mut self, node: usize, run: RunKey, what: ToStepd) {
        let allocation = self.stepd(node, run).is_some_and(|s| s.launch.order.spec.kind == JobKind::Allocation);
        match what {
            ToStepd::Agent(message) => self.tell_crew(run, message),
            ToStepd::WorkDone(state) => {
                if allocation {
                    self.finish_allocation(run);
                } else if let Some(crew) = self.crews.get_mut(&run) {
                    crew.end_script(u8::from(state == JobState::Failed));
                }
                self.after(60_000, Happening::Stepd(node, run, ToStepd::WorkDone(state)));
            }
            ToStepd::PeerLost(other) => self.with_crew(run, other, |company, slot| {
                if !company.nodes[slot].lost {
                    company.lose(slot);
                }
            }),
            // Its step manager has a timer of its own.
            ToStepd::ManagerEnds | ToStepd::LimitOver => {}
        }
    }

    /// The step manager has said that the run is over.
    pub(super) fn tell_shepherds_of_end(&mut self, node: usize, run: RunKey) {
        let Some(stepd) = self.stepd(node, run) else { return };
        stepd.ended = true;
        for other in others(&stepd.launch, node) {
            self.send(Place::Stepd(node, run), Happening::Stepd(other, run, ToStepd::ManagerEnds));
        }
    }

    fn stepd_begins(&mut self, node: usize, run: RunKey) {
        let Some(launch) = self.stepd(node, run).map(|stepd| stepd.launch.clone()) else { return };
        let index = |name: &str| launch.credential.nodes.iter().find(|n| n.name == name).map(|n| n.index.0 as usize);
        if let Some(manager) = &launch.manager {
            // A shepherd that finds no step manager, and none that will be started again, ends itself.
            let folder = index(manager).and_then(|at| self.machines[at].spool.get(&run));
            if folder.is_none_or(Folder::is_over) {
                self.leave(node, run);
            }
            let dead = self.crews.get(&run).is_some_and(|crew| crew.dead);
            self.with_crew(run, node, |company, slot| match (company.nodes[slot].lost, company.nodes[slot].away) {
                (true, _) => {}
                (false, true) => company.back(slot),
                (false, false) if dead => company.launcher_up(slot),
                (false, false) => company.shepherd_up(slot),
            });
            return;
        }
        if self.random.one_in_thousand(350) {
            self.ledger.counts.add("run with steps");
            self.crews.insert(run, Crew::new(self.now, &launch));
            let first = u64::try_from(FIRST_TURN.as_millis()).unwrap_or(100);
            self.after(first, Happening::Crew(run));
            self.after_crew(run);
        } else {
            self.stepd_reports(node, run, StepdReport::Started);
        }
        for other in others(&launch, node) {
            if self.machines[other].dead {
                // Nobody answers there.
                self.after(30_000, Happening::Stepd(node, run, ToStepd::PeerLost(other)));
                continue;
            }
            self.connections += 1;
            let query = self.connections;
            self.machines[other].askers.insert(query, (node, run));
            let order = StartOrder { launch: launch.order.clone(), credential: Ok(launch.credential.clone()) };
            let input = AgentInput::StartShepherd { query, order, manager: self.machines[node].name.clone() };
            let life = self.machines[other].life;
            self.send(Place::Stepd(node, run), Happening::Agent(other, life, input));
        }
        let state = if self.random.one_in_thousand(120) { JobState::Failed } else { JobState::Completed };
        let work = self.random.between(2_000, 300_000);
        self.after(u64::from(work), Happening::Stepd(node, run, ToStepd::WorkDone(state)));
        let (now, limit) = (self.now, launch.order.time_limit.duration());
        if let Some(stepd) = self.stepd(node, run) {
            stepd.limit = limit.map(|limit| now.plus(limit));
        }
        self.wait_for_limit(node, run);
    }

    /// As a step manager's timer, which the next one sets again.
    fn wait_for_limit(&mut self, node: usize, run: RunKey) {
        let left = self.stepd(node, run).and_then(|stepd| stepd.limit).map(|at| at.since(self.now));
        if let Some(left) = left {
            let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            self.after(ms, Happening::Stepd(node, run, ToStepd::LimitOver));
        }
    }

    fn stepd_reports(&mut self, node: usize, run: RunKey, report: StepdReport) {
        let Some(stepd) = self.stepd(node, run) else { return };
        stepd.seq += 1;
        let seq = stepd.seq;
        stepd.unacknowledged.push((seq, report.clone()));
        self.stepd_says(node, run, seq, report);
    }

    pub(super) fn stepd_says(&mut self, node: usize, run: RunKey, seq: u64, report: StepdReport) {
        let life = self.machines[node].life;
        if let Some(conn) = self.stepd(node, run).and_then(|stepd| stepd.conn) {
            let input = AgentInput::Stepd { run, conn, message: StepdToNode::Report { seq, report } };
            self.send(Place::Stepd(node, run), Happening::Agent(node, life, input));
        }
    }

    /// The step manager ends the run everywhere.
    fn end_run(&mut self, node: usize, run: RunKey, state: JobState, reason: Reason) {
        let at = self.now;
        let Some(stepd) = self.stepd(node, run).filter(|stepd| !stepd.ended) else { return };
        stepd.ended = true;
        let others = others(&stepd.launch, node);
        let exit = ExitStatus { code: u8::from(state == JobState::Failed), signal: None };
        let gone = |other: &&usize| self.machines[**other].spool.get(&run).is_none_or(Folder::is_over);
        let lost =
            others.iter().filter(|_| state == JobState::NodeFail).filter(gone).map(|at| format!("n{at}")).collect();
        self.note_end(run, state);
        self.stepd_reports(node, run, StepdReport::Ended { state, reason, exit, derived: exit, at, lost });
        for other in others {
            self.send(Place::Stepd(node, run), Happening::Stepd(other, run, ToStepd::ManagerEnds));
        }
        self.leave(node, run);
    }

    fn leave(&mut self, node: usize, run: RunKey) {
        if let Some(stepd) = self.stepd(node, run).filter(|stepd| !stepd.left) {
            stepd.left = true;
            self.stepd_reports(node, run, StepdReport::Gone);
        }
    }

    /// The process lives on and does nothing more.
    pub(super) fn hang_stepd(&mut self, node: usize, run: RunKey) {
        if let Some(stepd) = self.stepd(node, run) {
            stepd.hung = true;
        }
    }

    /// Does the run's step manager hang?
    pub(super) fn hangs(&self, node: usize, run: RunKey) -> bool {
        let folder = self.machines[node].spool.get(&run);
        folder.and_then(|folder| folder.stepd.as_ref()).is_some_and(|stepd| stepd.hung)
    }

    /// The process ends, by a signal or because all is said. Its journal stays. False: there was none.
    pub(super) fn kill_stepd(&mut self, node: usize, run: RunKey) -> bool {
        let Some(folder) = self.machines[node].spool.get_mut(&run) else { return false };
        let Some(stepd) = folder.stepd.take() else { return false };
        folder.journal = Some(Stepd { conn: None, hung: false, ..stepd });
        let life = self.machines[node].life;
        if let Some(crew) = self.crews.get_mut(&run) {
            match crew.slot(node) {
                Some(0) => crew.dead = true,
                Some(slot) if crew.company.nodes[slot].up && !crew.company.nodes[slot].lost => crew.company.away(slot),
                Some(_) | None => {}
            }
        }
        let exited = AgentInput::StepdExited { run, pid: None, how: "made up".to_owned() };
        self.send(Place::Stepd(node, run), Happening::Agent(node, life, exited));
        true
    }

    /// The machine is started anew: its processes are gone, and none is taken up again.
    pub(super) fn reboot(&mut self, node: usize) {
        self.machines[node].boot += 1;
        for run in self.machines[node].living() {
            self.abandon(node, run);
        }
        self.begin_agent(node);
    }

    /// Nobody will work on the run here any more; the others of the run notice.
    fn abandon(&mut self, node: usize, run: RunKey) {
        self.kill_stepd(node, run);
        let Some(stepd) = self.machines[node].spool.get_mut(&run).and_then(|folder| folder.journal.take()) else {
            return;
        };
        let batch_host = stepd.launch.credential.nodes.first().map(|n| n.index.0 as usize);
        if stepd.launch.manager.is_none() {
            self.crews.remove(&run);
            for other in others(&stepd.launch, node) {
                self.send(Place::Stepd(node, run), Happening::Stepd(other, run, ToStepd::ManagerEnds));
            }
        } else if let Some(batch_host) = batch_host {
            self.send(Place::Stepd(node, run), Happening::Stepd(batch_host, run, ToStepd::PeerLost(node)));
        }
    }

    /// Starts the `stepd` of a run again, from what its journal says; or not.
    fn restart_stepd(&mut self, node: usize, life: u64, run: RunKey) {
        let fails = !self.is_calm() && self.random.one_in_thousand(50);
        let folder = self.machines[node].spool.get_mut(&run).filter(|_| !fails);
        let Some(mut stepd) = folder.and_then(|folder| folder.journal.take()) else {
            let result = Err("made to fail".to_owned());
            return self.later(node, life, 500, AgentInput::Restarted { run, result });
        };
        self.ledger.counts.add("stepd restarted");
        let batch_host = stepd.launch.manager.is_none();
        let (working, peers) = (batch_host && stepd.started && !stepd.ended, others(&stepd.launch, node));
        // A shepherd looks for its step manager anew; a step manager goes on where it was.
        stepd.started &= batch_host;
        if batch_host {
            stepd.renumber();
        }
        if let Some(folder) = self.machines[node].spool.get_mut(&run) {
            folder.stepd = Some(stepd);
        }
        if batch_host && let Some(crew) = self.crews.get_mut(&run) {
            self.ledger.counts.add("step manager taken over");
            crew.take_over(self.now);
        }
        self.later(node, life, 500, AgentInput::Restarted { run, result: Ok(1) });
        self.send(Place::Machine(node), Happening::StepdConnects(node, run));
        if working {
            // What happened while it was away it finds out now.
            let over = |other: &&usize| self.machines[**other].spool.get(&run).is_none_or(Folder::is_over);
            let lost = peers.iter().find(over);
            let next = lost.map_or(ToStepd::WorkDone(JobState::Completed), |other| ToStepd::PeerLost(*other));
            let work = self.random.between(2_000, 60_000);
            self.after(u64::from(work), Happening::Stepd(node, run, next));
            self.wait_for_limit(node, run);
        }
    }
}

/// The run's nodes but this one.
fn others(launch: &Launch, but: usize) -> Vec<usize> {
    launch.credential.nodes.iter().map(|n| n.index.0 as usize).filter(|node| *node != but).collect()
}
