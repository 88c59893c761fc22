//! The real owner of the roster, daemons that join, administrators who delete nodes and change the configuration file, and the
//! resulting announcements.

use super::{
    disk::Writer,
    lives::{Life, Saved},
    machine::Machine,
    mutation::Mutation,
    rules::ensure,
    site::{self, Draw},
    world::{Happening, Place, World},
};
use garrick_actors::{
    controller::shells::sites::job_site,
    messages::{
        job::JobInput,
        letter::{ConfigNews, Letter},
        node::{NodeInput, NodeSettings, Registration},
    },
    node::core::NodeCore,
    owner::{EffectOf, Owner, Stage, Turn, outbox::Outbox, perform},
    partition::messages::PartitionInput,
    roster::{
        core::{RosterAsk, RosterCore, RosterErrand, RosterInput, RosterShown, RosterTimer},
        nodes::{Roster, Spoken, reserved, spoken_of},
    },
    scheduler::messages::SchedulerInput,
};
use garrick_events::{event::ControllerEvent, records::node::SavedNode};
use garrick_model::{
    config::{self, Config, DynamicNode},
    ids::NodeIndex,
    messages::node::{ControllerToNode, Joining},
    node_shape::NodeShape,
    refusal::Refusal,
    state::NodeBase,
    time::Timestamp,
};
use garrick_plan::policy::policy;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

/// What daemons that join say of their machines.
const LINES: [&str; 3] = [
    "CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=1600 Gres=probe:2",
    "CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=3200 Features=big Gres=gpu:old:2,gpu:new:2,probe:3",
    "CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=800",
];
/// Of nodes that an administrator makes.
const FUTURE: &str = "State=FUTURE";
/// A link is closed so long after the last word on it.
const LAST_WORD_MS: u64 = 5_000;
/// Whoever goes by the configuration has heard of a new one by then.
pub(super) const TOLD: Duration = Duration::from_secs(120);

const ON_DISK: &str = "a_node_that_joins_is_on_disk_before_it_is_welcome";
const MOVES: &str = "a_configuration_that_is_read_again_moves_no_job";

/// The owner of the roster, and what is around it.
pub(super) struct Members {
    core: RosterCore,
    outbox: Outbox<EffectOf<RosterCore>>,
    life: Life<RosterInput>,
    /// As everybody sees it.
    pub(super) shown: Arc<Roster>,
    /// The file as it is.
    file: Arc<Config>,
    /// What the owner has read of it last, whatever became of that.
    read: Arc<Config>,
    /// Since when everybody has been told of what is shown.
    pub(super) told: Timestamp,
    /// Agents that wait for the roster, by request.
    joins: BTreeMap<u64, (usize, Box<Registration>)>,
    retiring: BTreeMap<u64, Retiring>,
    /// Nodes whose owners were asked whether they let them go, by the number of that request; and for which request.
    asked: BTreeMap<u64, (usize, u64)>,
    /// Nodes that came at run time and are on disk.
    saved: BTreeSet<String>,
    /// What nodes have to give.
    pub(super) shapes: BTreeMap<usize, Gives>,
}

/// What a node has to give.
#[derive(Clone, Debug)]
pub(super) struct Gives {
    /// As its owner was told.
    pub(super) shape: NodeShape,
    /// MiB, of which some may have been given before that was less.
    pub(super) most: u64,
    /// The same of CPUs.
    pub(super) most_cpus: u32,
}

/// A deletion, while owners are asked.
struct Retiring {
    deletions: u64,
    /// With the connections that they had then.
    gone: Vec<(String, Option<u64>)>,
    stay: Option<Refusal>,
    waits: BTreeSet<u64>,
}

fn owner(saved: (Roster, Vec<String>), shown: &Arc<Roster>) -> RosterCore {
    RosterCore::new(saved, Arc::clone(shown), Arc::new(|_| true))
}

impl Members {
    pub(super) fn new(file: Arc<Config>, saved: BTreeMap<String, DynamicNode>) -> Self {
        let (roster, _) = Roster::restored(Arc::clone(&file), saved, BTreeMap::new());
        let shown = Arc::new(roster);
        Self {
            core: owner(((*shown).clone(), Vec::new()), &shown),
            outbox: Outbox::default(),
            life: Life::default(),
            shown,
            read: Arc::clone(&file),
            file,
            told: Timestamp::default(),
            joins: BTreeMap::new(),
            retiring: BTreeMap::new(),
            asked: BTreeMap::new(),
            saved: BTreeSet::new(),
            shapes: BTreeMap::new(),
        }
    }

    /// A node that came at run time, or went, is on disk.
    pub(super) fn is_on_disk(&mut self, node: &str, there: bool) {
        if there {
            self.saved.insert(node.to_owned());
        } else {
            self.saved.remove(node);
        }
    }
}

/// What the roster's verbs come to in the world, and what comes of its errands at once.
struct RosterStage<'w>(&'w mut World, &'w mut VecDeque<RosterInput>);

impl Stage<RosterCore> for RosterStage<'_> {
    fn tell(&mut self, letter: Letter) {
        self.0.post(Place::Roster, letter);
    }

    fn run(&mut self, errand: RosterErrand) {
        let Self(world, again) = self;
        match errand {
            RosterErrand::Look => again.push_back(RosterInput::Seen(world.spoken_of())),
            RosterErrand::Next => again.push_back(RosterInput::Next),
            RosterErrand::Retire { request, asked, nodes, gone, stay } => {
                let gone = gone.into_iter().map(|name| (name, None)).collect();
                let retiring = Retiring { deletions: asked, gone, stay, waits: BTreeSet::new() };
                world.retire(request, retiring, nodes);
            }
            RosterErrand::Spare { .. } => {}
            RosterErrand::End { node, conn } => {
                world.ledger.counts.add("node deleted");
                if let (Some(node), Some(conn)) = (machine_of(&node), conn) {
                    world.say_last(node, conn, ControllerToNode::Shutdown);
                }
            }
            RosterErrand::Reread => {}
        }
    }

    fn set_timer(&mut self, timer: RosterTimer, _: Timestamp) {
        match timer {}
    }

    fn clear_timer(&mut self, timer: RosterTimer) {
        match timer {}
    }

    fn publish(&mut self, shown: RosterShown) {
        self.0.show_roster(shown);
    }

    fn answer(&mut self, request: u64, answer: Result<(), Refusal>) {
        self.0.roster_answered(request, answer);
    }

    fn stop(&mut self) {}
}

/// Which machine is called so.
pub(super) fn machine_of(name: &str) -> Option<usize> {
    name.strip_prefix('n')?.parse().ok()
}

impl World {
    /// The controller has read its file and its journal.
    pub(super) fn start_roster(&mut self) {
        let file = Arc::clone(&self.members.file);
        let saved = std::mem::take(&mut self.members.saved);
        let members = Members::new(file, self.replayed.dynamic_nodes.clone());
        self.members = Members { saved, told: self.now, ..members };
        self.take_config();
    }

    fn take_config(&mut self) {
        self.config = self.members.shown.config();
        self.forget_feasibility();
        self.touched.all = true;
    }

    fn begin_roster(&mut self) {
        let nodes = self.replayed.dynamic_nodes.clone();
        let saved = Roster::restored(Arc::clone(&self.members.read), nodes, self.replayed.partition_changes.clone());
        self.members.core = owner(saved, &self.members.shown);
        self.roster_goes_on(RosterInput::Begun);
        while let Some(early) = self.members.life.next_early() {
            self.tell_roster(early);
        }
    }

    pub(super) fn tell_roster(&mut self, input: RosterInput) {
        if let Some(input) = self.members.life.wait(input) {
            self.roster_goes_on(input);
        }
    }

    fn roster_goes_on(&mut self, input: RosterInput) {
        let mut again = VecDeque::from([input]);
        while let Some(input) = again.pop_front() {
            if !matches!(input, RosterInput::Begun) && self.fails_over_it(5) {
                return self.roster_fails();
            }
            let (mut out, clock) = (Vec::new(), self.clock());
            Owner::handle(&mut self.members.core, clock, &mut self.ids, input, &mut out);
            self.members.read = self.members.core.roster().base();
            if let Some((batch, events)) = Turn::<RosterCore>::of(out).queue(&mut self.members.outbox) {
                if self.has(Mutation::JoinsAreAnsweredEarly) {
                    self.members.outbox.saved(batch);
                }
                let batch = self.members.life.number_of(batch);
                self.append(Writer::Roster, batch, events);
            }
            self.flush_roster(&mut again);
        }
    }

    fn flush_roster(&mut self, again: &mut VecDeque<RosterInput>) {
        while let Some(effects) = self.members.outbox.take_ready() {
            perform(effects, &mut RosterStage(self, again));
        }
    }

    /// The owner panics over what it is told. Another begins once all that this one appended is committed; whoever waits for an
    /// answer is told that there is none.
    fn roster_fails(&mut self) {
        self.meets_all("owner of the roster failed");
        self.members.outbox = Outbox::default();
        (self.members.retiring, self.members.asked) = Default::default();
        for (node, registration) in std::mem::take(&mut self.members.joins).into_values() {
            self.say_last(
                node,
                registration.conn,
                ControllerToNode::Declined(Refusal::Internal("the roster".to_owned())),
            );
        }
        let batch = self.members.life.fail();
        self.append(Writer::Roster, batch, Vec::new());
    }

    pub(super) fn roster_is_saved(&mut self, batch: u64) {
        match self.members.life.saved(batch) {
            Saved::All => self.begin_roster(),
            Saved::Batch(batch) => {
                self.members.outbox.saved(batch);
                let mut again = VecDeque::new();
                self.flush_roster(&mut again);
                again.into_iter().for_each(|input| self.tell_roster(input));
            }
            Saved::OfEarlierLife => {}
        }
    }

    /// Places of nodes in allocations that are shown, also of jobs that are over.
    fn spoken_of(&self) -> Spoken {
        if self.has(Mutation::IndexesAreReusedEarly) {
            return Spoken::new();
        }
        spoken_of(self.shown_jobs.values().map(|job| &**job))
    }

    fn show_roster(&mut self, RosterShown { roster, read_again }: RosterShown) {
        self.members.shown = roster;
        self.members.told = self.now;
        self.take_config();
        let config = Arc::clone(&self.config);
        if read_again {
            self.ledger.counts.add("configuration read again");
            self.licenses.configure(&config.licenses, &config.hres);
            let shown = |name: &String| {
                let mut core = self.partition_core(name)?;
                core.reconfigure(&config);
                Some(Arc::new(core.view()))
            };
            let views: Vec<_> = config.partitions.iter().filter_map(|p| shown(&p.name)).collect();
            self.partitions = views;
            self.is_shown(|seen| &mut seen.partitions);
        }
        let there = |index: &NodeIndex| config.node_at(*index).is_some();
        self.shown_nodes.retain(|index, _| there(index));
        self.earlier_nodes.retain(|index, _| there(index));
        self.is_shown(|seen| &mut seen.nodes);
    }

    /// To who goes by the configuration.
    pub(super) fn news(&mut self, news: ConfigNews) {
        match news {
            ConfigNews::Node(settings) => self.configure_node(*settings),
            ConfigNews::NoNode(name) => {
                if let Some(node) = machine_of(&name) {
                    self.stop_node(node);
                }
            }
            ConfigNews::Partitions { read_again } => {
                for partition in 0..self.partition_cores.len() {
                    let config = Arc::clone(&self.config);
                    let input = if read_again {
                        PartitionInput::Configure(config)
                    } else {
                        PartitionInput::NodesChanged(config)
                    };
                    self.send(Place::Roster, Happening::Partition(partition, input));
                }
            }
            ConfigNews::Jobs => {
                let site = Arc::new(job_site(&self.config, self.epoch));
                for job in self.jobs.keys().copied().collect::<Vec<_>>() {
                    self.send(Place::Jobs, Happening::Job(job, JobInput::Site(Arc::clone(&site))));
                }
            }
            ConfigNews::Policy => {
                let policy = Box::new(policy(&self.config));
                self.tell_scheduler(SchedulerInput::Policy(policy));
            }
        }
    }

    /// A node has an owner from now on, or its owner is told what is new of it.
    fn configure_node(&mut self, settings: NodeSettings) {
        let Some(node) = machine_of(&settings.name) else { return };
        if self.nodes.contains_key(&node) {
            let (settings, site) = (Box::new(settings), Arc::clone(&self.node_site));
            return self.send(Place::Roster, Happening::Node(node, NodeInput::Configure { settings, site }));
        }
        let saved = self.replayed.nodes.get(&settings.name).cloned();
        self.start_node(node, settings, saved, Vec::new());
    }

    /// Nothing is left of a node. What was on its way to its owner is lost with that.
    fn stop_node(&mut self, node: usize) {
        let Some(core) = self.nodes.remove(&node) else { return };
        self.touched.all = true;
        let name = core.settings().name.clone();
        for kept in core.kept() {
            let lost = JobInput::NodeLost { node: name.clone(), sluid: kept.hold.sluid };
            self.send(Place::Roster, Happening::Job(kept.hold.job, lost));
        }
        self.lives.nodes[node] += 1;
        self.outboxes.nodes[node] = Outbox::default();
        self.lose_messages_to_owner(node);
        self.held_at_drain[node] = None;
        self.unheard.retain(|(_, of)| *of != node);
        self.members.shapes.remove(&node);
        self.owner_does_not_answer(node);
        let index = core.settings().index;
        if self.shown_nodes.get(&index).is_some_and(|view| view.name == name) {
            self.shown_nodes.remove(&index);
            self.is_shown(|seen| &mut seen.nodes);
        }
        if self.has(Mutation::DeletedNodesAreSavedOn) {
            let saved = Box::new(SavedNode { drain: true, ..SavedNode::default() });
            let (node, event) = (node, ControllerEvent::Node { node: name, saved });
            self.append(Writer::Node(node), u64::MAX, vec![event]);
        }
    }

    /// Asks the owners of nodes whether they let them go.
    fn retire(&mut self, request: u64, mut retiring: Retiring, nodes: Vec<String>) {
        for name in nodes {
            let Some(node) = machine_of(&name).filter(|node| self.nodes.contains_key(node)) else {
                retiring.stay.get_or_insert_with(|| Refusal::Internal(format!("node {name} is being restarted")));
                continue;
            };
            self.requests += 1;
            retiring.waits.insert(self.requests);
            self.members.asked.insert(self.requests, (node, request));
            self.send(Place::Roster, Happening::Node(node, NodeInput::Retire { request: self.requests }));
        }
        self.members.retiring.insert(request, retiring);
        self.retired(request);
    }

    /// A node's owner answers.
    pub(super) fn node_answered(&mut self, number: u64, mut answer: Result<(), Refusal>) {
        let Some((node, request)) = self.members.asked.remove(&number) else { return };
        if answer.is_err() && self.has(Mutation::NodesAreDeletedUnderJobs) {
            answer = Ok(());
        }
        let name = self.machines[node].name.clone();
        let Some(retiring) = self.members.retiring.get_mut(&request) else { return };
        retiring.waits.remove(&number);
        match answer {
            Ok(()) => {
                retiring.gone.push((name, self.machines[node].link));
            }
            Err(refusal) => retiring.stay = retiring.stay.take().or(Some(refusal)),
        }
        self.retired(request);
    }

    /// The node's owner has failed, or is gone.
    pub(super) fn owner_does_not_answer(&mut self, node: usize) {
        let open: Vec<u64> = self.members.asked.iter().filter(|(_, (of, _))| *of == node).map(|(n, _)| *n).collect();
        for number in open {
            let Some((_, request)) = self.members.asked.remove(&number) else { continue };
            if let Some(retiring) = self.members.retiring.get_mut(&request) {
                retiring.waits.remove(&number);
                retiring.stay.get_or_insert_with(|| Refusal::Internal(format!("n{node}: no answer")));
                self.retired(request);
            }
        }
    }

    fn retired(&mut self, request: u64) {
        if self.members.retiring.get(&request).is_some_and(|retiring| retiring.waits.is_empty())
            && let Some(Retiring { deletions, gone, stay, .. }) = self.members.retiring.remove(&request)
        {
            let input = RosterInput::Retired { request, asked: deletions, gone, stay };
            self.send(Place::Frontend, Happening::Roster(Box::new(input)));
        }
    }

    /// An agent says what node it is.
    pub(super) fn joins(&mut self, node: usize, registration: Box<Registration>, joining: Box<Joining>) {
        let conn = registration.conn;
        if self.machines[node].link != Some(conn) {
            return;
        }
        let name = self.machines[node].name.clone();
        if let Err(refusal) = self.members.shown.may_join(&name, &joining) {
            return self.say_last(node, conn, ControllerToNode::Declined(refusal));
        }
        let (hostname, address) = (name.clone(), format!("10.0.0.{node}"));
        let request = self.ask_roster(RosterAsk::Join { node: name, joining, hostname, address });
        self.members.joins.insert(request, (node, registration));
    }

    fn roster_answered(&mut self, request: u64, answer: Result<(), Refusal>) {
        let Some((node, registration)) = self.members.joins.remove(&request) else {
            let what = if answer.is_ok() { "roster changed" } else { "change of the roster refused" };
            return self.ledger.counts.add(what);
        };
        match answer {
            Ok(()) => {
                self.ledger.counts.add("node joined");
                let name = &self.machines[node].name;
                if !self.members.saved.contains(name) {
                    self.broken = Some((ON_DISK, format!("{name} is welcome, and is not on disk")));
                }
                if self.machines[node].link == Some(registration.conn) && !self.has(Mutation::JoinsAreForgotten) {
                    self.send(Place::Frontend, Happening::Node(node, NodeInput::Registered(registration)));
                }
            }
            Err(refusal) => {
                self.ledger.counts.add("join declined");
                self.say_last(node, registration.conn, ControllerToNode::Declined(refusal));
            }
        }
    }

    /// The last frame of a link, which is closed behind it.
    fn say_last(&mut self, node: usize, conn: u64, frame: ControllerToNode) {
        if self.machines[node].link == Some(conn) {
            self.send(Place::Node(node), Happening::Frame(node, conn, frame));
            self.after(LAST_WORD_MS, Happening::Close(node, conn));
        }
    }

    pub(super) fn close(&mut self, node: usize, conn: u64) {
        if self.machines[node].link == Some(conn) {
            self.break_link(node);
        }
    }

    /// The agent ends, since its node was deleted. Somebody may start it again, on another machine by that name.
    pub(super) fn agent_exits(&mut self, node: usize) {
        self.ledger.counts.add("agent of a deleted node ended");
        if let Some(conn) = self.lose_link(node) {
            self.send(Place::Agent(node), Happening::Node(node, NodeInput::LinkGone { conn }));
        }
        self.machines[node].life += 1;
        self.machines[node].off = true;
        let pause = self.random.between(5_000, 90_000);
        self.after(u64::from(pause), Happening::Join(node));
    }

    /// A daemon is started that is to be this node.
    pub(super) fn start_joining(&mut self, node: usize) {
        if self.is_calm() || !self.machines[node].off || self.machines[node].dead {
            return;
        }
        let drawn = LINES[self.random.between(0, 2) as usize];
        let port = 6_818;
        let machine = &mut self.machines[node];
        // Who sets a machine up for a node that an administrator made takes one that has as much.
        let created = self.members.shown.get(&machine.name).filter(|known| known.created);
        let line = created.map_or(drawn, |known| known.line.trim_end_matches(FUTURE).trim_end()).to_owned();
        let Some(shape) = shape_of(&self.members.file, &machine.name, &line) else { return };
        machine.facts.shape = shape;
        machine.joining = Some(Box::new(Joining { line, port }));
        machine.off = false;
        self.begin_agent(node);
        self.after(50, Happening::Connect(node));
    }

    /// An administrator deletes a node, which may be in use.
    pub(super) fn delete_some_node(&mut self) {
        let names: Vec<String> = self.members.shown.nodes().keys().cloned().collect();
        let Some(name) = self.random.pick(&names).cloned() else { return };
        let reserved = reserved(&self.replayed.reservations);
        self.ask_roster(RosterAsk::Delete { nodes: vec![name], reserved });
    }

    /// An administrator makes a node whose daemon comes later, or just now.
    pub(super) fn create_some_node(&mut self) {
        let later = |machine: &&Machine| machine.off && self.members.file.node(&machine.name).is_none();
        let names: Vec<String> = self.machines.iter().filter(later).map(|machine| machine.name.clone()).collect();
        let Some(names) = self.random.pick(&names).cloned() else { return };
        let line = LINES[self.random.between(0, 2) as usize];
        self.ledger.counts.add("creation of a node asked for");
        self.ask_roster(RosterAsk::Create { names, line: format!("{line} {FUTURE}") });
    }

    /// An administrator changes the file and has it read.
    pub(super) fn change_file(&mut self) {
        self.meets_all("configuration changed");
        let draw = Draw::some(&mut self.random);
        let file = Arc::new(site::config(self.setup().nodes.max(2), &self.mix, &draw));
        self.members.file = Arc::clone(&file);
        self.ask_roster(RosterAsk::Read(file));
    }

    /// The number of the request.
    fn ask_roster(&mut self, ask: RosterAsk) -> u64 {
        self.requests += 1;
        let request = self.requests;
        self.send(Place::Frontend, Happening::Roster(Box::new(RosterInput::Asked { request, ask })));
        request
    }

    /// The owner has heard of a configuration that was read again: it has what it had.
    pub(super) fn against_moves(&mut self, node: usize, before: usize) {
        let Some(core) = self.nodes.get(&node) else { return };
        let after = core.kept().len();
        if before != after {
            self.broken = Some((MOVES, format!("n{node} holds something for {after} runs, and did for {before}")));
        }
    }

    /// What a node may be seen to give: what its owner was told, and no less than was given by then until nothing of it is held.
    pub(super) fn note_shape(&mut self, node: usize, told: Option<NodeShape>) {
        let Some(core) = self.nodes.get(&node) else { return };
        let held = || core.kept().iter().filter_map(|kept| kept.hold.share.memory).map(|memory| memory.0).sum();
        match (told, self.members.shapes.get_mut(&node)) {
            (Some(shape), _) => {
                let before = self.members.shapes.get(&node).filter(|_| !core.kept().is_empty());
                let last = core.kept().iter().filter_map(|kept| kept.hold.share.cpus.iter().last()).max();
                let held_cpus = last.map_or(0, |last| last + 1).max(before.map_or(0, |gives| gives.most_cpus));
                let most_cpus = held_cpus.max(shape.cpus);
                // What a run has in place of another may be the other's again.
                let most = shape.memory.0.max(held()).max(before.map_or(0, |gives| gives.most));
                self.members.shapes.insert(node, Gives { shape, most, most_cpus });
            }
            // What a run has in place of another may be the other's again.
            (None, Some(gives)) if core.kept().is_empty() => {
                (gives.most, gives.most_cpus) = (gives.shape.memory.0, gives.shape.cpus);
            }
            (None, _) => {}
        }
    }

    /// See the rule of this name.
    pub(super) fn shares_are_of_nodes_that_are_there(&self, held: &[(&str, NodeIndex)]) -> Result<(), String> {
        for (name, index) in held {
            let known = self.config.node(name).map(|node| node.index);
            ensure(known == Some(*index), || format!("{name} at {index:?}, and the roster has {known:?}"))?;
        }
        Ok(())
    }

    /// See the rule of this name.
    pub(super) fn indexes_have_one_name(&self) -> Result<(), String> {
        let mut names: BTreeMap<NodeIndex, &str> =
            self.config.nodes.iter().map(|node| (node.index, node.name.as_str())).collect();
        let allocations = self.shown_jobs.values().filter_map(|job| Some((job.id, job.allocation.as_ref()?)));
        for (job, allocation) in allocations {
            for node in &allocation.nodes {
                let other = *names.entry(node.index).or_insert(&node.name);
                ensure(other == node.name, || {
                    format!("job {} is shown on {} at {:?}, which is {other}'s", job.0, node.name, node.index)
                })?;
            }
        }
        Ok(())
    }

    /// See the rule of this name.
    pub(super) fn nothing_is_saved_of_nodes_that_are_gone(&self) -> Result<(), String> {
        let there = |name: &String| {
            self.members.shown.base().node(name).is_some() || self.replayed.dynamic_nodes.contains_key(name)
        };
        let left = self.replayed.nodes.keys().find(|name| !there(name));
        ensure(left.is_none(), || format!("{left:?} is gone, and its state is saved"))
    }

    /// See the rule of this name. Whoever had to be told has been told by then.
    pub(super) fn shows_what_the_file_says(&self) -> Result<(), String> {
        if self.now.since(self.members.told) < TOLD {
            return Ok(());
        }
        for (partition, wanted) in self.partitions.iter().zip(&self.config.partitions) {
            let changed = self.replayed.partitions.get(&wanted.name).is_some_and(|saved| !saved.fields.is_empty());
            let (shown, wanted) = (&partition.config, wanted);
            let same = (shown.max_time, &shown.nodes) == (wanted.max_time, &wanted.nodes);
            ensure(same || changed, || {
                format!(
                    "{} shows {:?} and {:?}, the file says {:?} and {:?}",
                    wanted.name, shown.max_time, shown.nodes, wanted.max_time, wanted.nodes
                )
            })?;
        }
        for (index, view) in &self.shown_nodes {
            let Some(wanted) = self.config.node_at(*index) else { continue };
            let same = view.weight == wanted.settings.weight && view.features == wanted.settings.features;
            let same =
                same && (view.shape.memory == wanted.settings.shape.memory || self.has(Mutation::MemoryIsNotCounted));
            ensure(same, || {
                let (shown, said) = (&view.shape.memory, &wanted.settings.shape.memory);
                format!(
                    "{} shows weight {}, features {:?} and {shown:?}, the file says {}, {:?} and {said:?}",
                    view.name, view.weight, view.features, wanted.settings.weight, wanted.settings.features
                )
            })?;
        }
        Ok(())
    }

    /// Does every daemon that wants to be a node have one?
    pub(super) fn all_have_joined(&self) -> bool {
        let joined = |node: usize, machine: &Machine| {
            let is_in_use = |core: &NodeCore| core.view().base == NodeBase::Up;
            // An administrator made a node of that name while the daemon was starting.
            let is_another = |core: &NodeCore| machine.facts.shape.cpus != core.settings().shape.cpus;
            machine.joining.is_none()
                || machine.off
                || machine.dead
                || self.nodes.get(&node).is_some_and(|core| is_in_use(core) || is_another(core))
        };
        self.machines.iter().enumerate().all(|(node, machine)| joined(node, machine))
    }
}

fn shape_of(config: &Config, name: &str, line: &str) -> Option<NodeShape> {
    let read = config::read_line(config, name, line);
    let read = read.expect("the lines of daemons that join are right");
    read.node(name).map(|node| node.settings.shape.clone())
}
