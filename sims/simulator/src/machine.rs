//! A node's machine around the core of its agent: carries out the agent's effects, and has its spool folder.

use super::{
    mutation::Mutation,
    stepds::{Folder, Launch, ToStepd, others},
    world::{Happening, PATIENCE, Place, World},
};
use garrick_actors::messages::node::{NodeInput, Registration};
use garrick_agent::{
    AgentConfig, AgentEffect, AgentInput, AgentTimer, FoundRun, NodeAgentCore, RunKey, StartOrder, StepdState, lease_of,
};
use garrick_model::{
    config::NodeConfig,
    messages::node::{AgentToStepMgr, ControllerToNode, Joining, NodeToController},
    time::Timestamp,
    view::NodeFacts,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A node's machine.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) facts: NodeFacts,
    pub(super) agent: NodeAgentCore,
    /// Counts starts of the agent.
    pub(super) life: u64,
    /// Counts starts of the machine.
    pub(super) boot: u64,
    /// Connection to the controller.
    pub(super) link: Option<u64>,
    /// The controller's link to it takes nothing until then.
    pub(super) busy_until: Timestamp,
    /// Between its clock and the time that has passed.
    pub(super) clock_ahead_ms: i64,
    /// No network reaches it until then, but that of nodes that were cut off together with it.
    pub(super) cut_until: Timestamp,
    /// Number of that partition.
    pub(super) partition: u64,
    /// Its agent has no controller since then; `None`: it was welcomed.
    pub(super) without_since: Option<Timestamp>,
    /// When the agent was started last.
    pub(super) agent_start: Timestamp,
    /// An administrator has set it DOWN then, and it may not have been told to end what is to be elsewhere at once.
    pub(super) set_down: Option<Timestamp>,
    /// When it was welcomed last.
    pub(super) welcomed: Timestamp,
    /// Runs that the agent was told, or has decided, to end.
    pub(super) ending: BTreeSet<RunKey>,
    /// It is gone for good.
    pub(super) dead: bool,
    /// No daemon is started on it.
    pub(super) off: bool,
    /// What its daemon says it is, where the configuration file does not.
    pub(super) joining: Option<Box<Joining>>,
    pub(super) spool: BTreeMap<RunKey, Folder>,
    /// Runs that are over, as the spool remembers them.
    pub(super) over: BTreeMap<RunKey, Timestamp>,
    /// Who waits for an answer to `StartShepherd`.
    pub(super) askers: BTreeMap<u64, (usize, RunKey)>,
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
            conf_hash: None,
        };
        let (name, agent) = (node.name.clone(), agent(&node.name, 0, lease_of(Some(PATIENCE)), None));
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
            off: false,
            joining: None,
            spool: BTreeMap::new(),
            over: BTreeMap::new(),
            askers: BTreeMap::new(),
        }
    }

    /// One that may become a node: like another, until its daemon says what it is.
    pub(super) fn not_there(number: usize, like: &NodeConfig) -> Self {
        let node = NodeConfig { name: format!("n{number}"), ..like.clone() };
        Self { off: true, ..Self::new(&node) }
    }

    /// Nothing of any run is left, or it can no longer be found out.
    pub(super) fn is_empty(&self) -> bool {
        self.dead || self.off || self.spool.is_empty()
    }

    /// Its daemon is there, or will be.
    pub(super) const fn is_on(&self) -> bool {
        !self.dead && !self.off
    }

    /// Runs with a living `stepd`.
    pub(super) fn living(&self) -> Vec<RunKey> {
        self.spool.iter().filter(|(_, folder)| folder.stepd.is_some()).map(|(run, _)| *run).collect()
    }
}

fn agent(name: &str, life: u64, lease: Option<Duration>, joining: Option<Box<Joining>>) -> NodeAgentCore {
    NodeAgentCore::new(AgentConfig {
        node: name.to_owned(),
        incarnation: life,
        heartbeat: Duration::from_secs(40),
        start_limit: Duration::from_secs(30),
        end_limit: Duration::from_secs(90),
        query_limit: Duration::from_secs(10),
        lease,
        requeue: true,
        only_uid: None,
        joining,
    })
}

impl World {
    /// The agent starts (again), with what the spool says.
    pub(super) fn begin_agent(&mut self, node: usize) {
        self.break_link(node);
        let early = self.has(Mutation::LeasesEndEarly);
        let machine = &mut self.machines[node];
        machine.life += 1;
        let lease = lease_of(Some(if early { PATIENCE / 4 } else { PATIENCE }));
        machine.agent = agent(&machine.name, machine.life, lease, machine.joining.clone());
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
                requeue: folder.requeue,
            });
        }
        let facts = Box::new(machine.facts.clone());
        let over = machine.over.iter().map(|(run, until)| (*run, *until)).collect();
        for run in machine.living() {
            self.send(Place::Machine(node), Happening::StepdConnects(node, run));
        }
        self.agent(node, AgentInput::Begin { found, over, facts, load: Default::default() });
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
                self.step_sides.remove(&run);
            } else if let Some(batch_host) = self.step_sides.get(&run).map(|step_side| step_side.nodes[0]) {
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
        self.machines[node].over.clear();
        for run in std::mem::take(&mut self.machines[node].spool).into_keys() {
            // That its time was over is not known any more: an order that nobody is known to have followed is given again.
            self.timed_out.remove(&run.sluid);
        }
        self.begin_agent(node);
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
                self.overhear_controller(node, &other);
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

    pub(super) fn agent(&mut self, node: usize, input: AgentInput) {
        if self.machines[node].dead || self.machines[node].off {
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

    pub(super) fn agent_effect(&mut self, node: usize, life: u64, effect: AgentEffect) {
        match effect {
            AgentEffect::ToController(frame) => self.to_controller(node, *frame),
            AgentEffect::Prepare { run, launch, credential, manager } => {
                let prolog = self.random.between(50, 2_500);
                let launch = Launch { run, order: launch, credential, manager };
                self.after(u64::from(prolog), Happening::Prepared(node, life, Box::new(launch)));
            }
            AgentEffect::ToStepd { run, message } => {
                self.send(Place::Machine(node), Happening::Stepd(node, run, ToStepd::Agent(message)));
            }
            AgentEffect::KillStepd { run, .. } => self.try_to_kill(node, life, run),
            AgentEffect::Restart { run } => self.restart_stepd(node, life, run),
            AgentEffect::Sweep { run } => {
                self.abandon(node, run);
                self.later(node, life, 1_000, AgentInput::Swept { run, left: None });
            }
            // No sweep leaves anything here.
            AgentEffect::RunUnkillable { .. } | AgentEffect::Reboot => {}
            AgentEffect::MarkClean { run } => {
                if let Some(folder) = self.machines[node].spool.get_mut(&run) {
                    folder.clean = true;
                }
            }
            AgentEffect::NoteRequeue { run, policy } => {
                if let Some(folder) = self.machines[node].spool.get_mut(&run) {
                    folder.requeue = policy;
                    self.later(node, life, 5, AgentInput::RequeueNoted { run, policy });
                }
            }
            AgentEffect::RunEpilog { run } => {
                let fails = !self.is_calm() && self.random.one_in_thousand(4);
                let failed = fails.then(|| "made to fail".to_owned());
                self.later(node, life, 1_500, AgentInput::EpilogDone { run, failed });
            }
            AgentEffect::NoteOver { run, until } => drop(self.machines[node].over.insert(run, until)),
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
            AgentEffect::AskPeers if self.has(Mutation::LeasesAreForgotten) => {}
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
            | AgentEffect::Neighbours(_)
            | AgentEffect::CountAs(_)
            | AgentEffect::TrustKey { .. }
            | AgentEffect::FindRecords { .. }
            | AgentEffect::AnswerCommand { .. }
            | AgentEffect::OwnTrace { .. }
            | AgentEffect::StopOwnTrace { .. }
            | AgentEffect::Log { .. }
            | AgentEffect::Reconfigure
            | AgentEffect::ChangeLog(_) => {}
            AgentEffect::Exit => self.agent_exits(node),
        }
    }

    fn to_controller(&mut self, node: usize, frame: NodeToController) {
        let Some(conn) = self.machines[node].link else { return };
        self.overhear(node, &frame);
        let input = match frame {
            NodeToController::Register { facts, runs, released, incarnation, load, joining, .. } => {
                let mut registration =
                    Registration { conn, facts: *facts, runs, released, incarnation, load, address: None };
                self.forge_registration(node, &mut registration);
                if let Some(joining) = joining {
                    let joins = Happening::Joins(node, Box::new(registration), joining);
                    return self.send(Place::Agent(node), joins);
                }
                NodeInput::Registered(Box::new(registration))
            }
            other => NodeInput::Frame { conn, frame: Box::new(other) },
        };
        self.send(Place::Agent(node), Happening::Node(node, input));
    }

    fn try_to_kill(&mut self, node: usize, life: u64, run: RunKey) {
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

    pub(super) fn later(&mut self, node: usize, life: u64, most_ms: u32, input: AgentInput) {
        let ms = self.random.between(1, most_ms);
        self.after(u64::from(ms), Happening::Agent(node, life, input));
    }
}
