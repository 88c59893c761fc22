//! A whole run in one thread: the cores of step manager, steps and shepherds wired together with made-up launchers, for
//! tests here and, as a part of simulated jobs, in `sims`. Messages wait in channels that keep their order; which channel is served next can be drawn.

use crate::{
    shepherd::{LookedAt, PassedFd, ShepherdConfig, ShepherdCore, ShepherdEffect, ShepherdInput, ShepherdTimer},
    step::{NodeSlot, StepCore, StepEffect, StepInput, StepTimer},
    stepmgr::{ClientId, Ledger, RunFacts, StepMgrConfig, StepMgrCore, StepMgrEffect, StepMgrInput, StepMgrTimer},
};
use garrick_events::steps::event::StepEvent;
use garrick_model::{
    batch::{BatchMembers, StepBatch},
    ids::{RequestId, StepKey, StepNum},
    messages::{
        command::Caller,
        launch_failure::LaunchFailure,
        launcher::{FdSource, FromLauncher, SpawnTask, TaskHeld, TaskOver, ToLauncher},
        shepherd::{ShepherdToStepMgr, StepMgrToShepherd, Stream},
        step::{CommandToStepMgr, StepMgrToCommand},
        stepd::{NodeToStepd, StepdReport, StepdToNode},
    },
    spec::StepSpec,
    state::{ExitStatus, StepState},
    time::Timestamp,
    usage::{TaskSample, TaskUsage},
};
use serde_bytes::ByteBuf;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Channel {
    Journal,
    Client(u64),
    StepsToManager,
    ToStep(StepKey),
    FromShepherd(usize),
    ToShepherd(usize),
    Launcher(usize),
    Descriptors(usize),
    Agent,
}

#[derive(Debug)]
enum Delivery {
    Manager(StepMgrInput),
    Step(StepKey, StepInput),
    Shepherd(usize, ShepherdInput),
}

/// A process that a made-up launcher started.
#[derive(Debug)]
pub struct Process {
    pub spawn: SpawnTask,
    pub reads: BTreeSet<u8>,
    pub unread: [VecDeque<ByteBuf>; 2],
    pub ended: bool,
    pub got: Vec<ByteBuf>,
}

/// A node with its shepherd.
#[derive(Debug)]
pub struct FakeNode {
    pub shepherd: ShepherdCore,
    pub processes: BTreeMap<u64, Process>,
    /// Tasks behind one that runs.
    pub lines: Vec<(u64, VecDeque<SpawnTask>)>,
    pub lost: bool,
    /// Its link is broken.
    pub away: bool,
    /// Its shepherd came up.
    pub up: bool,
    kept: Vec<ShepherdToStepMgr>,
    next_pid: u32,
    /// What its launcher remembers for a shepherd that takes it over.
    over: Vec<TaskOver>,
    /// It is the run's first launcher there.
    first: bool,
}

/// The run.
#[derive(Debug)]
pub struct Harness {
    pub now: Timestamp,
    pub core: StepMgrCore,
    pub steps: BTreeMap<StepKey, StepCore>,
    pub nodes: Vec<FakeNode>,
    pub journal: Vec<StepEvent>,
    pub heard: BTreeMap<ClientId, Vec<StepMgrToCommand>>,
    pub agent: Vec<StepdToNode>,
    /// How much of that had been said when the newest connection to an agent was opened; none of that goes over it.
    pub agent_opened: Option<usize>,
    pub files: Vec<(String, String)>,
    pub exited: bool,
    /// No script can be written.
    pub disk_full: bool,
    /// Ignore SIGTERM.
    pub stubborn: bool,
    /// Signals that launchers were told to send: number, whole groups.
    pub signals: Vec<(i32, bool)>,
    /// Signals to everything of the run on a node.
    pub run_signals: Vec<(usize, i32)>,
    /// Reports are acknowledged as soon as they are made.
    pub acknowledges: bool,
    /// How often a process was started for each task of each step.
    pub spawned: BTreeMap<(StepKey, u32), u32>,
    config: StepMgrConfig,
    channels: BTreeMap<Channel, VecDeque<Delivery>>,
    manager_timers: BTreeMap<StepMgrTimer, Timestamp>,
    step_timers: BTreeMap<(StepKey, StepTimer), Timestamp>,
    shepherd_timers: BTreeMap<(usize, ShepherdTimer), Timestamp>,
    /// Files that were sent: whose, and to which nodes.
    pub sent_files: Vec<(ClientId, Vec<u32>)>,
    next_client: u64,
    next_request: u64,
}

impl Harness {
    /// A run that has begun; no shepherd is up.
    pub fn new(facts: RunFacts, config: StepMgrConfig) -> Self {
        let nodes = facts
            .nodes
            .iter()
            .map(|n| FakeNode {
                shepherd: ShepherdCore::new(ShepherdConfig {
                    cpu_map: (0..64).collect(),
                    ..ShepherdConfig::new(facts.job, &n.name, "/run/door", n.share.cpus.clone())
                }),
                processes: BTreeMap::new(),
                lines: Vec::new(),
                lost: false,
                away: false,
                up: false,
                kept: Vec::new(),
                next_pid: 1000,
                over: Vec::new(),
                first: true,
            })
            .collect();
        let now = facts.start_time;
        let mut harness = Self {
            now,
            core: StepMgrCore::new(Arc::new(facts), config.clone(), Ledger::default()),
            config,
            steps: BTreeMap::new(),
            nodes,
            journal: Vec::new(),
            heard: BTreeMap::new(),
            agent: Vec::new(),
            agent_opened: None,
            files: Vec::new(),
            exited: false,
            disk_full: false,
            stubborn: false,
            signals: Vec::new(),
            run_signals: Vec::new(),
            acknowledges: true,
            spawned: BTreeMap::new(),
            channels: BTreeMap::new(),
            manager_timers: BTreeMap::new(),
            step_timers: BTreeMap::new(),
            shepherd_timers: BTreeMap::new(),
            sent_files: Vec::new(),
            next_client: 1,
            next_request: 1,
        };
        harness.manager(StepMgrInput::Begin);
        harness
    }

    /// The same with all shepherds up.
    pub fn ready(facts: RunFacts, config: StepMgrConfig) -> Self {
        let mut harness = Self::new(facts, config);
        for node in 0..harness.nodes.len() {
            harness.shepherd_up(node);
        }
        harness.settle();
        harness
    }

    /// A node's launcher runs and its shepherd registers.
    pub fn shepherd_up(&mut self, node: usize) {
        self.launcher_up(node);
        self.manager(StepMgrInput::ShepherdUp { node: NodeSlot(node as u32) });
    }

    /// A node's launcher runs, and its shepherd has not found the step manager.
    pub fn launcher_up(&mut self, node: usize) {
        self.nodes[node].up = true;
        self.shepherd(node, ShepherdInput::LauncherUp { first: true });
    }

    /// A node and all on it disappears.
    pub fn lose(&mut self, node: usize) {
        self.nodes[node].lost = true;
        self.nodes[node].processes.clear();
        self.nodes[node].lines.clear();
        let lost = StepMgrInput::ShepherdLost { node: NodeSlot(node as u32), detail: "timed out".into() };
        self.channels.entry(Channel::FromShepherd(node)).or_default().push_back(Delivery::Manager(lost));
    }

    /// A command of the job's user connects.
    pub fn connect(&mut self) -> ClientId {
        self.connect_as(self.core.facts().uid)
    }

    /// A command of some user connects.
    pub fn connect_as(&mut self, uid: u32) -> ClientId {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        let caller = Caller { uid, gid: uid, pid: 1, host: "n1".into() };
        self.on_client(client, StepMgrInput::ClientOpened { client, caller });
        client
    }

    fn on_client(&mut self, client: ClientId, input: StepMgrInput) {
        self.channels.entry(Channel::Client(client.0)).or_default().push_back(Delivery::Manager(input));
    }

    /// A command says something.
    pub fn say(&mut self, client: ClientId, message: CommandToStepMgr) {
        self.on_client(client, StepMgrInput::Client { client, message });
    }

    /// A command goes away.
    pub fn hang_up(&mut self, client: ClientId) {
        self.on_client(client, StepMgrInput::ClientClosed { client });
    }

    /// `srun`.
    pub fn srun(&mut self, spec: StepSpec) -> ClientId {
        let client = self.connect();
        let request = self.request();
        self.say(client, CommandToStepMgr::Launch { request, spec: Box::new(spec), descriptors: [false; 3] });
        client
    }

    /// `srun --async`.
    pub fn enqueue(&mut self, specs: Vec<StepSpec>) -> ClientId {
        self.enqueue_batch(StepBatch { specs, members: BatchMembers::Each })
    }

    /// `srun --async --array`.
    pub fn enqueue_array(&mut self, spec: StepSpec, tasks: &str) -> ClientId {
        let tasks = tasks.parse().expect("a test's array is one");
        self.enqueue_batch(StepBatch { specs: vec![spec], members: BatchMembers::Array(tasks) })
    }

    /// Steps in one message.
    pub fn enqueue_batch(&mut self, batch: StepBatch) -> ClientId {
        let client = self.connect();
        let request = self.request();
        self.say(client, CommandToStepMgr::Enqueue { request, batch: Box::new(batch) });
        client
    }

    /// `swait`.
    pub fn wait(&mut self, steps: &[&str], progress_ms: u32) -> ClientId {
        let client = self.connect();
        let steps = steps.iter().map(|s| s.parse().expect("a test's step is one")).collect();
        self.say(client, CommandToStepMgr::Wait { steps, any: false, progress_ms, groups: false, stay: false });
        client
    }

    /// From the node's agent.
    pub fn tell(&mut self, message: NodeToStepd) {
        self.channels.entry(Channel::Agent).or_default().push_back(Delivery::Manager(StepMgrInput::Agent(message)));
    }

    /// True while the step manager has not had all that its agent has said.
    // Simulated worlds ask for it.
    #[allow(dead_code)]
    pub fn agent_is_unheard(&self) -> bool {
        self.channels.get(&Channel::Agent).is_some_and(|waiting| !waiting.is_empty())
    }

    /// A new request id.
    pub fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(0, self.next_request)
    }

    /// Processes that run now: node, token, step, rank as the environment has it.
    pub fn running(&self) -> Vec<(usize, u64, StepKey, u32)> {
        let mut all = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            for (token, process) in node.processes.iter().filter(|(_, p)| !p.ended) {
                let (step, rank) = identity(&process.spawn);
                all.push((n, *token, step, rank));
            }
        }
        all.sort_by_key(|(n, token, ..)| (*n, *token));
        all
    }

    /// Steps that have processes, the batch script left out.
    pub fn running_keys(&self) -> Vec<String> {
        let numbered = |key: &StepKey| *key != StepKey::BATCH;
        let steps: BTreeSet<StepKey> = self.running().iter().map(|(_, _, key, _)| *key).filter(numbered).collect();
        steps.into_iter().map(|key| key.to_string()).collect()
    }

    /// Numbers of the steps that have processes.
    pub fn running_steps(&self) -> Vec<u32> {
        let steps: BTreeSet<u32> = self.running().iter().filter_map(|(_, _, key, _)| key.step.number()).collect();
        steps.into_iter().collect()
    }

    /// Ends all processes of a step.
    pub fn exit(&mut self, step: StepKey, status: ExitStatus) {
        for (node, token, of, _) in self.running() {
            if of == step {
                self.end_process(node, token, status);
            }
        }
        self.settle();
    }

    /// Ends a numbered step with a code.
    pub fn exit_code(&mut self, step: u32, code: u8) {
        self.exit(StepKey::number(step), ExitStatus { code, signal: None });
    }

    /// A process ends: the launcher tells, and its streams are at their end.
    pub fn end_process(&mut self, node: usize, token: u64, status: ExitStatus) {
        let Some(process) = self.nodes[node].processes.get_mut(&token) else { return };
        if std::mem::replace(&mut process.ended, true) {
            return;
        }
        let (label, usage) = (process.spawn.label, TaskUsage::default());
        self.nodes[node].over.push(TaskOver { token, label, status, usage });
        let message = FromLauncher::Exited { token, pid: 1, status, usage, survivors: false };
        self.on_launcher(node, message);
        self.serve_reads(node, token);
        self.go_on_after(node, token);
    }

    fn go_on_after(&mut self, node: usize, over: u64) {
        let lines = &mut self.nodes[node].lines;
        let Some(at) = lines.iter().position(|(first, _)| *first == over) else { return };
        let (_, mut line) = lines.swap_remove(at);
        if let Some(next) = line.pop_front() {
            let token = next.token;
            self.nodes[node].lines.push((token, line));
            self.spawn_process(node, next);
        }
    }

    /// A node's launcher gives back what is behind tasks that take too long.
    pub fn give_back(&mut self, node: usize) {
        for (_, line) in std::mem::take(&mut self.nodes[node].lines) {
            for task in line {
                self.on_launcher(node, FromLauncher::NotStarted { token: task.token });
            }
        }
    }

    /// A process writes.
    pub fn print(&mut self, node: usize, token: u64, stream: Stream, text: &[u8]) {
        let at = usize::from(stream == Stream::Stderr);
        if let Some(process) = self.nodes[node].processes.get_mut(&token) {
            process.unread[at].push_back(ByteBuf::from(text.to_vec()));
        }
        self.serve_reads(node, token);
    }

    fn serve_reads(&mut self, node: usize, token: u64) {
        let Some(process) = self.nodes[node].processes.get_mut(&token) else { return };
        for at in process.reads.clone() {
            let stream = if at == 0 { Stream::Stdout } else { Stream::Stderr };
            let data = match process.unread[usize::from(at)].pop_front() {
                Some(data) => data,
                None if process.ended => ByteBuf::new(),
                None => continue,
            };
            process.reads.remove(&at);
            let input = ShepherdInput::Data { token, stream, data };
            self.channels.entry(Channel::Descriptors(node)).or_default().push_back(Delivery::Shepherd(node, input));
        }
    }

    fn on_launcher(&mut self, node: usize, message: FromLauncher) {
        let input = ShepherdInput::Launcher(message);
        self.channels.entry(Channel::Launcher(node)).or_default().push_back(Delivery::Shepherd(node, input));
    }

    /// Delivers everything, channel by channel.
    pub fn settle(&mut self) {
        while self.deliver(0) {}
    }

    /// Delivers the first message of the n-th channel that has one; false when none has.
    pub fn deliver(&mut self, n: usize) -> bool {
        // Over a broken link nothing goes either way.
        let broken = |c: &Channel| matches!(c, Channel::ToShepherd(node) if self.nodes[*node].away);
        let ready = self.channels.iter().filter(|(c, q)| !q.is_empty() && !broken(c));
        let busy: Vec<Channel> = ready.map(|(c, _)| *c).collect();
        if busy.is_empty() {
            return false;
        }
        let channel = busy[n % busy.len()];
        let Some(delivery) = self.channels.get_mut(&channel).and_then(VecDeque::pop_front) else { return false };
        match delivery {
            Delivery::Manager(input) => self.manager(input),
            Delivery::Step(step, input) => self.step(step, input),
            Delivery::Shepherd(node, input) => self.shepherd(node, input),
        }
        self.core.check().expect("invariants hold after every message");
        true
    }

    /// Time passes; timers fire in their order.
    pub fn advance(&mut self, by: Duration) {
        let end = self.now.plus(by);
        loop {
            let due = [
                self.manager_timers.values().min().copied(),
                self.step_timers.values().min().copied(),
                self.shepherd_timers.values().min().copied(),
            ];
            let Some(at) = due.into_iter().flatten().min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            if let Some((timer, _)) = self.manager_timers.iter().find(|(_, t)| **t == at).map(|(k, t)| (*k, *t)) {
                self.manager_timers.remove(&timer);
                self.manager(StepMgrInput::Timer(timer));
            } else if let Some(key) = self.step_timers.iter().find(|(_, t)| **t == at).map(|(k, _)| *k) {
                self.step_timers.remove(&key);
                self.step(key.0, StepInput::Timer(key.1));
            } else if let Some(key) = self.shepherd_timers.iter().find(|(_, t)| **t == at).map(|(k, _)| *k) {
                self.shepherd_timers.remove(&key);
                self.shepherd(key.0, ShepherdInput::Timer(key.1));
            }
            self.settle();
        }
        self.now = end;
    }

    /// Time passes; what is due happens, and messages stay where they are. For the simulation, which moves them itself.
    #[allow(dead_code)]
    pub fn fire_due(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        let due = |at: &Timestamp| *at <= now;
        while let Some(timer) = self.manager_timers.iter().find(|(_, at)| due(at)).map(|(timer, _)| *timer) {
            self.manager_timers.remove(&timer);
            self.manager(StepMgrInput::Timer(timer));
        }
        while let Some(key) = self.step_timers.iter().find(|(_, at)| due(at)).map(|(key, _)| *key) {
            self.step_timers.remove(&key);
            self.step(key.0, StepInput::Timer(key.1));
        }
        while let Some(key) = self.shepherd_timers.iter().find(|(_, at)| due(at)).map(|(key, _)| *key) {
            self.shepherd_timers.remove(&key);
            self.shepherd(key.0, ShepherdInput::Timer(key.1));
        }
    }

    /// The manager's actor restarts: steps' actors are gone, the ledger is read again.
    pub fn restart_manager(&mut self) {
        let facts = Arc::new(self.core.facts().clone());
        self.core = StepMgrCore::new(facts, self.config.clone(), Ledger::replay(self.journal.iter().cloned()));
        // What was said over a broken link was said to the manager before, or by it. What it has said over the others arrives
        // before the next one says anything, and is answered to nobody.
        for node in 0..self.nodes.len() {
            if self.nodes[node].away {
                self.forget_words(node);
            } else if node > 0 {
                for word in self.channels.remove(&Channel::ToShepherd(node)).into_iter().flatten() {
                    if let Delivery::Shepherd(node, input) = word {
                        self.shepherd(node, input);
                    }
                }
            }
        }
        self.steps.clear();
        self.manager_timers.clear();
        self.step_timers.clear();
        let gone = |c: &Channel| {
            matches!(c, Channel::ToStep(_) | Channel::StepsToManager | Channel::FromShepherd(_) | Channel::Journal)
        };
        self.channels.retain(|c, _| !gone(c));
        self.manager(StepMgrInput::Begin);
        for node in 0..self.nodes.len() {
            let FakeNode { lost, away, up, .. } = self.nodes[node];
            if up && !lost && !away {
                self.manager(StepMgrInput::ShepherdUp { node: NodeSlot(node as u32) });
            }
        }
    }

    /// Delivers what nodes and their launchers say to each other, and nothing to the manager.
    pub fn settle_nodes(&mut self) {
        loop {
            let own = |c: &Channel| matches!(c, Channel::Launcher(_) | Channel::Descriptors(_));
            let Some(channel) = self.channels.iter().find(|(c, q)| own(c) && !q.is_empty()).map(|(c, _)| *c) else {
                return;
            };
            if let Some(Delivery::Shepherd(node, input)) = self.channels.get_mut(&channel).and_then(VecDeque::pop_front)
            {
                self.shepherd(node, input);
            }
        }
    }

    /// Another process takes over on the batch host: its own shepherd is new too, and finds its launcher there. Of what was
    /// on its way to the other nodes only so many words arrive.
    pub fn restart_process(&mut self, words: usize) {
        for node in 1..self.nodes.len() {
            if let Some(waiting) = self.channels.get_mut(&Channel::ToShepherd(node)) {
                waiting.truncate(words);
            }
        }
        self.adopt(0);
        self.restart_manager();
    }

    /// A node's shepherd died, and the next one takes its launcher over. What was on its way to or from the first is lost.
    pub fn adopt(&mut self, node: usize) {
        let FakeNode { processes, over, first, .. } = &self.nodes[node];
        let held = processes.iter().filter(|(_, p)| !p.ended).map(|(token, p)| TaskHeld {
            token: *token,
            pid: 1,
            label: p.spawn.label,
            error_path: None,
        });
        let input = ShepherdInput::Adopted { tasks: held.collect(), ended: over.clone(), complete: *first };
        // Those that were to start after others are not its any more.
        self.nodes[node].lines.clear();
        self.new_shepherd(node, input);
    }

    /// A node's shepherd and launcher both died and were started anew: nothing is known of what ran.
    pub fn forget_node(&mut self, node: usize) {
        self.clear_launcher(node);
        self.nodes[node].first = false;
        self.new_shepherd(node, ShepherdInput::LauncherUp { first: false });
    }

    /// A node's shepherd died before it handed its orders on, and the next one has its launcher, which had none of them.
    pub fn lose_orders(&mut self, node: usize) {
        self.clear_launcher(node);
        let first = self.nodes[node].first;
        self.new_shepherd(node, ShepherdInput::LauncherUp { first });
    }

    /// A node's launcher dies, and what it had running with it. Its shepherd starts another.
    pub fn lose_launcher(&mut self, node: usize) {
        self.clear_launcher(node);
        self.nodes[node].first = false;
        let down = ShepherdInput::LauncherDown { detail: "killed".into(), for_memory: false };
        self.channels.entry(Channel::Launcher(node)).or_default().push_back(Delivery::Shepherd(node, down));
    }

    fn clear_launcher(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.processes.clear();
        node.lines.clear();
        node.over.clear();
    }

    fn new_shepherd(&mut self, node: usize, first_words: ShepherdInput) {
        let facts = self.core.facts().clone();
        let share = &facts.nodes[node];
        let config = ShepherdConfig {
            cpu_map: (0..64).collect(),
            ..ShepherdConfig::new(facts.job, &share.name, "/run/door", share.share.cpus.clone())
        };
        self.forget_words(node);
        self.channels.retain(|c, _| *c != Channel::Launcher(node) && *c != Channel::Descriptors(node));
        self.shepherd_timers.retain(|(of, _), _| *of != node);
        self.nodes[node].processes.values_mut().for_each(|p| p.reads.clear());
        self.nodes[node].shepherd = ShepherdCore::new(config);
        self.shepherd(node, first_words);
    }

    /// One side of a link is another than before: what was kept for the other is for nobody.
    fn forget_words(&mut self, node: usize) {
        self.nodes[node].kept.clear();
        self.channels.remove(&Channel::ToShepherd(node));
    }

    /// Anything else.
    pub fn tell_manager(&mut self, input: StepMgrInput) {
        self.manager(input);
    }

    /// The link to a node's shepherd breaks.
    pub fn away(&mut self, node: usize) {
        self.nodes[node].away = true;
        let away = StepMgrInput::ShepherdAway { node: NodeSlot(node as u32), detail: "timed out".into() };
        self.channels.entry(Channel::FromShepherd(node)).or_default().push_back(Delivery::Manager(away));
    }

    /// And is made again: what was not delivered is.
    pub fn back(&mut self, node: usize) {
        self.nodes[node].away = false;
        let up = StepMgrInput::ShepherdUp { node: NodeSlot(node as u32) };
        self.channels.entry(Channel::FromShepherd(node)).or_default().push_back(Delivery::Manager(up));
        for message in std::mem::take(&mut self.nodes[node].kept) {
            self.shepherd_effect(node, ShepherdEffect::ToManager(message));
        }
    }

    /// A node's agent ends the run there: the controller said so, to all agents that it reaches.
    pub fn end_by_agent(&mut self, node: usize) {
        self.shepherd(node, ShepherdInput::Manager(StepMgrToShepherd::EndJob));
    }

    /// One that is away is not waited for any longer. It goes on all the same, and may come back.
    pub fn give_up(&mut self, node: usize) {
        self.forget_words(node);
        let lost = StepMgrInput::ShepherdLost { node: NodeSlot(node as u32), detail: "it was away for 30 s".into() };
        self.channels.entry(Channel::FromShepherd(node)).or_default().push_back(Delivery::Manager(lost));
    }

    fn manager(&mut self, input: StepMgrInput) {
        let mut out = Vec::new();
        self.core.handle(self.now, input, &mut out);
        for effect in out {
            self.manager_effect(effect);
        }
    }

    fn manager_effect(&mut self, effect: StepMgrEffect) {
        match effect {
            StepMgrEffect::Journal { event, durable } => {
                self.journal.push(event);
                if let Some(upto) = durable {
                    let input = StepMgrInput::Journaled { upto };
                    self.channels.entry(Channel::Journal).or_default().push_back(Delivery::Manager(input));
                }
            }
            // Its agent is asked, and has nothing of the run any more, or does not answer.
            StepMgrEffect::StartShepherd { node, .. } if self.nodes[node.0 as usize].lost => self.lose(node.0 as usize),
            StepMgrEffect::StartShepherd { .. } | StepMgrEffect::Log { .. } => {}
            StepMgrEffect::ToShepherd { node, message } => self.tell_shepherd(node, message),
            StepMgrEffect::StartStep { plan } => {
                let step = plan.id.key();
                assert!(self.steps.insert(step, StepCore::new(*plan)).is_none(), "step started twice");
                self.tell_step(step, StepInput::Begin);
            }
            StepMgrEffect::ResumeStep { plan, live } => {
                let step = plan.id.key();
                self.steps.insert(step, StepCore::new(*plan));
                self.tell_step(step, StepInput::Resume { live });
            }
            StepMgrEffect::ToStep { step, input } => self.tell_step(step, input),
            StepMgrEffect::ToClient { client, message } => self.heard.entry(client).or_default().push(message),
            StepMgrEffect::SendFile { client, nodes, .. } => {
                self.sent_files.push((client, nodes.into_iter().map(|node| node.0).collect()));
            }
            StepMgrEffect::CloseClient { client } => self.hang_up(client),
            StepMgrEffect::OpenAgent => self.agent_opened = Some(self.agent.len()),
            StepMgrEffect::ToAgent(message) => {
                if let StepdToNode::Report { seq, .. } = &message
                    && self.acknowledges
                {
                    self.tell(NodeToStepd::Ack { upto: *seq });
                }
                self.agent.push(message);
            }
            StepMgrEffect::SetTimer { timer, after } => {
                self.manager_timers.insert(timer, self.now.plus(after));
            }
            StepMgrEffect::ClearTimer(timer) => {
                self.manager_timers.remove(&timer);
            }
            StepMgrEffect::Exit => self.exited = true,
        }
    }

    fn tell_step(&mut self, step: StepKey, input: StepInput) {
        self.channels.entry(Channel::ToStep(step)).or_default().push_back(Delivery::Step(step, input));
    }

    fn tell_shepherd(&mut self, node: NodeSlot, message: StepMgrToShepherd) {
        let node = node.0 as usize;
        let input = ShepherdInput::Manager(message);
        self.channels.entry(Channel::ToShepherd(node)).or_default().push_back(Delivery::Shepherd(node, input));
    }

    fn step(&mut self, step: StepKey, input: StepInput) {
        let Some(core) = self.steps.get_mut(&step) else { return };
        let mut out = Vec::new();
        core.handle(self.now, input, &mut out);
        if core.is_over() {
            self.steps.remove(&step);
            self.step_timers.retain(|(s, _), _| *s != step);
        }
        let mut effects = Vec::new();
        for effect in out {
            match effect {
                StepEffect::SetTimer { timer, after } => {
                    self.step_timers.insert((step, timer), self.now.plus(after));
                }
                other => effects.push(other),
            }
        }
        if !effects.is_empty() {
            let says = Delivery::Manager(StepMgrInput::StepSays { step, effects });
            self.channels.entry(Channel::StepsToManager).or_default().push_back(says);
        }
    }

    fn shepherd(&mut self, n: usize, input: ShepherdInput) {
        if self.nodes[n].lost {
            return;
        }
        let mut out = Vec::new();
        self.nodes[n].shepherd.handle(self.now, input, &mut out);
        for effect in out {
            self.shepherd_effect(n, effect);
        }
    }

    fn shepherd_effect(&mut self, n: usize, effect: ShepherdEffect) {
        match effect {
            ShepherdEffect::ToManager(message) if self.nodes[n].away => self.nodes[n].kept.push(message),
            ShepherdEffect::ToManager(message) => {
                let input = StepMgrInput::Shepherd { node: NodeSlot(n as u32), message };
                self.channels.entry(Channel::FromShepherd(n)).or_default().push_back(Delivery::Manager(input));
            }
            ShepherdEffect::ToLauncher { message, passed } => self.launcher(n, message, &passed),
            ShepherdEffect::Prepare { step, script, .. } => {
                let result = match script {
                    Some(_) if self.disk_full => Err("write /spool: No space left on device".to_owned()),
                    script => Ok(script.map(|_| format!("/spool/{step}"))),
                };
                let input = ShepherdInput::Prepared { step, result };
                self.channels.entry(Channel::Descriptors(n)).or_default().push_back(Delivery::Shepherd(n, input));
            }
            ShepherdEffect::Read { token, stream } => {
                if let Some(process) = self.nodes[n].processes.get_mut(&token) {
                    assert!(process.reads.insert(u8::from(stream == Stream::Stderr)), "two reads of one stream");
                    self.serve_reads(n, token);
                }
            }
            ShepherdEffect::Write { token, data } => {
                if let Some(process) = self.nodes[n].processes.get_mut(&token) {
                    process.got.push(data);
                    let input = ShepherdInput::Written { token, taken: !process.ended };
                    self.channels.entry(Channel::Descriptors(n)).or_default().push_back(Delivery::Shepherd(n, input));
                }
            }
            ShepherdEffect::CloseInput { token } => {
                if let Some(process) = self.nodes[n].processes.get_mut(&token) {
                    process.got.push(ByteBuf::new());
                }
            }
            ShepherdEffect::Close { token } => {
                self.nodes[n].processes.retain(|t, p| *t != token || !p.ended);
            }
            ShepherdEffect::Sample { step, query, tasks } => {
                let of = |(rank, pid): (u32, Option<u32>)| TaskSample {
                    rank,
                    pids: pid.into_iter().collect(),
                    ..TaskSample::default()
                };
                let sampled = ShepherdInput::Sampled { step, query, tasks: tasks.into_iter().map(of).collect() };
                self.channels.entry(Channel::Launcher(n)).or_default().push_back(Delivery::Shepherd(n, sampled));
            }
            ShepherdEffect::Look { tasks } => {
                let of = |task: LookedAt| {
                    let pids = task.pid.into_iter().collect();
                    (task.token, TaskSample { rank: task.rank, pids, ..TaskSample::default() })
                };
                let looked = ShepherdInput::Looked { seen: tasks.into_iter().map(of).collect() };
                self.channels.entry(Channel::Launcher(n)).or_default().push_back(Delivery::Shepherd(n, looked));
            }
            ShepherdEffect::ReadMeter { token, .. } => {
                let read = ShepherdInput::MeterRead { token, joules: 0 };
                self.channels.entry(Channel::Launcher(n)).or_default().push_back(Delivery::Shepherd(n, read));
            }
            ShepherdEffect::AskOom { token, .. } => {
                let input = ShepherdInput::Oom { token, killed: false };
                self.channels.entry(Channel::Descriptors(n)).or_default().push_back(Delivery::Shepherd(n, input));
            }
            ShepherdEffect::Sweep { step } => {
                let input = ShepherdInput::Swept { step };
                self.channels.entry(Channel::Descriptors(n)).or_default().push_back(Delivery::Shepherd(n, input));
            }
            ShepherdEffect::SweepJob => {
                let tokens: Vec<u64> = self.nodes[n].processes.keys().copied().collect();
                for token in tokens {
                    self.end_process(n, token, ExitStatus { code: 0, signal: Some(9) });
                }
                self.channels
                    .entry(Channel::Descriptors(n))
                    .or_default()
                    .push_back(Delivery::Shepherd(n, ShepherdInput::JobSwept));
            }
            ShepherdEffect::SetTimer { timer, after } => {
                self.shepherd_timers.insert((n, timer), self.now.plus(after));
            }
            ShepherdEffect::SignalRun { signal } => self.run_signals.push((n, signal)),
            ShepherdEffect::StartLauncher => {
                let up = ShepherdInput::LauncherUp { first: false };
                self.channels.entry(Channel::Launcher(n)).or_default().push_back(Delivery::Shepherd(n, up));
            }
            ShepherdEffect::Resize { .. }
            | ShepherdEffect::PmiAnswer { .. }
            | ShepherdEffect::SetFrequency { .. }
            | ShepherdEffect::PutFrequencyBack { .. }
            | ShepherdEffect::SetGpuClocks { .. }
            | ShepherdEffect::PutGpuClocksBack { .. }
            | ShepherdEffect::StartMeter { .. }
            | ShepherdEffect::Record { .. }
            | ShepherdEffect::RecordEnd { .. }
            | ShepherdEffect::KillGroups { .. }
            | ShepherdEffect::Log { .. }
            | ShepherdEffect::Finished => {}
        }
    }

    fn spawn_process(&mut self, n: usize, spawn: SpawnTask) {
        let token = spawn.token;
        let no_program = spawn.argv[0].starts_with(b"/nosuch").then(|| {
            let subject = String::from_utf8_lossy(&spawn.argv[0]).into_owned();
            LaunchFailure::new("execve", subject, 2)
        });
        let no_output = match &spawn.stdio[1] {
            FdSource::File { path, .. } if path.starts_with("/nosuch") => {
                Some(LaunchFailure::new("open stdout", path, 2))
            }
            _ => None,
        };
        if let Some(failure) = no_output.or(no_program) {
            let (label, status, usage) = (spawn.label, failure.status(), TaskUsage::default());
            self.nodes[n].over.push(TaskOver { token, label, status, usage });
            self.on_launcher(n, FromLauncher::SpawnFailed { token, failure });
            return self.go_on_after(n, token);
        }
        *self.spawned.entry(identity(&spawn)).or_default() += 1;
        let node = &mut self.nodes[n];
        node.next_pid += 1;
        let (pid, quiet) = (node.next_pid, spawn.quiet);
        let process = Process {
            spawn,
            reads: BTreeSet::new(),
            unread: [VecDeque::new(), VecDeque::new()],
            ended: false,
            got: Vec::new(),
        };
        node.processes.insert(token, process);
        if !quiet {
            self.on_launcher(n, FromLauncher::Spawned { token, pid });
        }
    }

    fn launcher(&mut self, n: usize, message: ToLauncher, _passed: &[PassedFd]) {
        match message {
            ToLauncher::Spawn(spawn) => {
                let node = &mut self.nodes[n];
                let in_line = |(first, line): &&mut (u64, VecDeque<SpawnTask>)| {
                    spawn.after.is_some_and(|after| *first == after || line.iter().any(|t| t.token == after))
                };
                if let Some((_, line)) = node.lines.iter_mut().find(in_line) {
                    line.push_back(*spawn);
                } else if let Some(after) = spawn.after
                    && node.processes.get(&after).is_some_and(|p| !p.ended)
                {
                    node.lines.push((after, VecDeque::from([*spawn])));
                } else {
                    self.spawn_process(n, *spawn);
                }
            }
            ToLauncher::Signal { token, signal, group } => {
                self.signals.push((signal, group));
                for (_, line) in &mut self.nodes[n].lines {
                    if let Some(at) = line.iter().position(|t| t.token == token) {
                        line.remove(at);
                        return self.on_launcher(n, FromLauncher::NotStarted { token });
                    }
                }
                if signal == 9 || (signal == 15 && !self.stubborn) {
                    self.end_process(n, token, ExitStatus { code: 0, signal: Some(signal as u8) });
                }
            }
            ToLauncher::AppendText { path, text } => {
                self.files.push((path, String::from_utf8_lossy(&text).into_owned()));
            }
            ToLauncher::SetEnvironment { .. }
            | ToLauncher::DropEnvironment { .. }
            | ToLauncher::SetSetting { .. }
            | ToLauncher::DropSetting { .. }
            | ToLauncher::Adopt
            | ToLauncher::Count => {}
            ToLauncher::Finish => {
                let down = ShepherdInput::LauncherDown { detail: "told to finish".into(), for_memory: false };
                self.channels.entry(Channel::Launcher(n)).or_default().push_back(Delivery::Shepherd(n, down));
            }
        }
    }

    /// What a command was told last.
    pub fn last(&self, client: ClientId) -> Option<&StepMgrToCommand> {
        self.heard.get(&client).and_then(|h| h.last())
    }

    /// State and exit that an `srun` was told.
    pub fn finished(&self, client: ClientId) -> Option<(StepState, ExitStatus)> {
        match self.last(client) {
            Some(StepMgrToCommand::Finished { exit, state }) => Some((*state, *exit)),
            _ => None,
        }
    }

    /// Reports that the agent got, step batches left out.
    pub fn job_reports(&self) -> Vec<StepdReport> {
        self.agent
            .iter()
            .filter_map(|m| match m {
                StepdToNode::Report { report, .. } if !matches!(report, StepdReport::Steps(_)) => Some(report.clone()),
                _ => None,
            })
            .collect()
    }
}

/// Which task of which step a process is, as its environment has it.
fn identity(spawn: &SpawnTask) -> (StepKey, u32) {
    let value = |name: &str| {
        let prefix = format!("{name}=");
        let of = |e: &'_ ByteBuf| std::str::from_utf8(e).ok()?.strip_prefix(prefix.as_str())?.parse::<i64>().ok();
        spawn.extra_env.iter().rev().find_map(of).unwrap_or(-1)
    };
    let array = u32::try_from(value("SLURM_STEP_ARRAY_TASK_ID")).ok();
    let step =
        u32::try_from(value("SLURM_STEP_ID")).map_or(StepKey::BATCH, |n| StepKey { step: StepNum::Number(n), array });
    (step, value("SLURM_PROCID") as u32)
}
