//! The front's part for nodes that come and go: changes of the roster wait for each other, are journaled, and then everyone
//! who goes by the nodes is told. An agent that joins is welcomed after that.

use super::{
    env::{Env, OpenLink, deliver, journal_outcome},
    event::ControllerEvent,
    front::ControllerActor,
    messages::ControllerMsg,
    ports::{AgentLink, ReplySink},
    roster::{Roster, Spoken},
    setup,
};
use crate::{
    job::messages::Authority,
    node::{
        core::NodeCore,
        messages::{NodeSettings, NodeSite},
        shell::{Connected, NodesMsg},
    },
    partition::shell::PartitionsMsg,
    scheduler::{core::SchedulerInput, shell::policy},
};
use garrick_model::{
    config::{Config, NodeConfig},
    messages::{
        command::{CommandReply, NodeChange},
        node::{ControllerToNode, Joining},
    },
    refusal::Refusal,
    time::Timestamp,
};
use garrick_runtime::{ActorPath, Address, Context, ReplyTo};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

/// An agent that was declined, or is to end, has so long to read so; who was declined tries again after that.
const DECLINED: Duration = Duration::from_secs(5);

/// A change of the roster that waits for its turn.
pub(super) enum RosterChange {
    /// An agent that says what node it is.
    Join { node: String, joining: Box<Joining>, address: String, agent: Connected },
    /// `scontrol create`
    Create { names: String, line: String, replies: Box<dyn ReplySink> },
    /// `scontrol delete`, of nodes whose owners let them go, with the links that are to end with them; how many deletions
    /// were before they were asked; and why others stay.
    Delete {
        names: Vec<String>,
        links: BTreeMap<String, OpenLink>,
        asked: u64,
        stay: Option<Refusal>,
        replies: Box<dyn ReplySink>,
    },
    /// `scontrol update ... Topology=`, and what else is to be changed then.
    Place { names: Vec<String>, place: String, by: Authority, then: Box<NodeChange>, replies: Box<dyn ReplySink> },
}

impl RosterChange {
    /// Is it about making one of these nodes?
    fn brings(&self, names: &BTreeSet<String>) -> bool {
        match self {
            _ if names.is_empty() => false,
            Self::Join { node, .. } => names.contains(node),
            // Names are only read later.
            Self::Create { .. } => true,
            Self::Delete { .. } | Self::Place { .. } => false,
        }
    }
}

/// What happens once changes are on disk.
enum Done {
    Joined { node: String, agent: Connected },
    Answer { result: Result<(), Refusal>, replies: Box<dyn ReplySink> },
    Update { names: Vec<String>, by: Authority, then: Box<NodeChange>, replies: Box<dyn ReplySink> },
}

/// A lot that is being saved.
struct Saving {
    /// If anything is new.
    roster: Option<Arc<Roster>>,
    /// What comes then.
    done: Vec<Done>,
    deleted: Vec<String>,
}

/// The roster's changes, one lot at a time.
#[derive(Default)]
pub(super) struct RosterChanges {
    waiting: VecDeque<RosterChange>,
    saving: Option<Saving>,
    /// How often it was told that nodes are gone, and for each name at which time last.
    deletions: u64,
    deleted: BTreeMap<String, u64>,
    /// Links of nodes that are being deleted. A daemon that comes by another one meanwhile is a new node's.
    ending: BTreeMap<String, OpenLink>,
    /// Agents that were declined, so that the trace says it once however often they try.
    declined: BTreeMap<String, Refusal>,
}

impl ControllerActor {
    /// An agent said what node it is.
    pub(super) fn joins(
        &mut self,
        cx: &mut Context<Self>,
        node: String,
        joining: Box<Joining>,
        address: String,
        agent: Connected,
    ) {
        // One that cannot be that node does not take the link from the one that is.
        if let Err(refusal) = self.env.roster().may_join(&node, &joining) {
            return self.decline(cx, node, agent, refusal);
        }
        // What it sends meanwhile is taken, and its end noticed.
        self.env.links.open(&node, agent.0.conn, Arc::clone(&agent.1));
        self.change_roster(cx, RosterChange::Join { node, joining, address, agent });
    }

    pub(super) fn change_roster(&mut self, cx: &mut Context<Self>, change: RosterChange) {
        self.roster.waiting.push_back(change);
        self.next_lot(cx);
    }

    /// Deletes nodes whose owners let them go.
    pub(super) fn delete_nodes(&mut self, cx: &mut Context<Self>, nodes: Vec<String>, mut replies: Box<dyn ReplySink>) {
        let roster = self.env.roster();
        let config = roster.config();
        let named = match &nodes[..] {
            [all] if all.eq_ignore_ascii_case("all") => {
                let unfit = roster.nodes().keys().filter(|name| config.node(name).is_none()).cloned();
                Ok(config.nodes.iter().map(|node| node.name.clone()).chain(unfit).collect())
            }
            _ => self.nodes_named(nodes).and_then(|names| without_sets(&config, &roster, names)),
        };
        let names: Vec<String> = match named {
            Ok(names) => names,
            Err(refusal) => {
                replies.send(CommandReply::Refused(refusal));
                return;
            }
        };
        let reserved = self.env.committed.reservations();
        let mut stay = None;
        let (mut asked, mut gone) = (Vec::new(), Vec::new());
        for name in names {
            let reservation = reserved.iter().find(|(_, reservation)| reservation.nodes.contains(&name));
            let may = roster.may_go(&name).and_then(|()| match reservation {
                Some((reservation, _)) => {
                    let said = format!("Requested nodes are busy: {name} is in reservation {reservation}");
                    Err(Refusal::InvalidUpdate(said))
                }
                None => Ok(()),
            });
            match may {
                // One that does not fit into the configuration has no owner.
                Ok(()) if config.node(&name).is_none() => gone.push(name),
                Ok(()) => {
                    let (reply, answer) = ReplyTo::channel();
                    if let Some(supervisor) = self.nodes_supervisor() {
                        deliver(cx, &supervisor, NodesMsg::Retire { name: name.clone(), reply });
                    }
                    asked.push((name, answer));
                }
                Err(refusal) => stay = stay.or(Some(refusal)),
            }
        }
        let all = async move {
            for (name, answer) in asked {
                match answer.await {
                    Ok(Ok(())) => gone.push(name),
                    Ok(Err(refusal)) => stay = stay.or(Some(refusal)),
                    Err(error) => stay = stay.or_else(|| Some(Refusal::Internal(format!("node {name}: {error}")))),
                }
            }
            (gone, stay)
        };
        let asked = self.roster.deletions;
        cx.pipe(all, move |(names, stay)| ControllerMsg::Retired { names, asked, stay, replies });
    }

    pub(super) fn retired(
        &mut self,
        cx: &mut Context<Self>,
        names: Vec<String>,
        asked: u64,
        stay: Option<Refusal>,
        replies: Box<dyn ReplySink>,
    ) {
        let link = |name: &String| Some((name.clone(), self.env.links.get(name)?));
        let links = names.iter().filter_map(link).collect();
        self.change_roster(cx, RosterChange::Delete { names, links, asked, stay, replies });
    }

    /// Takes all that wait, unless some are being saved.
    fn next_lot(&mut self, cx: &mut Context<Self>) {
        if self.roster.saving.is_some() || self.roster.waiting.is_empty() {
            return;
        }
        let before = self.env.roster();
        let mut roster = Arc::clone(&before);
        let mut done = Vec::new();
        let spoken = OnceCell::new();
        let mut deleted = BTreeSet::new();
        let mut gone = Vec::new();
        while let Some(change) = self.roster.waiting.pop_front() {
            // A node of that name is another one, with an owner of its own once the owner of this one has ended.
            if change.brings(&deleted) {
                self.roster.waiting.push_front(change);
                break;
            }
            if let RosterChange::Delete { names, .. } = &change {
                deleted.extend(names.iter().cloned());
            }
            done.extend(self.apply(cx, &mut roster, change, &spoken, &mut gone));
        }
        let mut events = Vec::new();
        if !Arc::ptr_eq(&before, &roster) {
            Arc::make_mut(&mut roster).settle();
            events = difference(&before, &roster);
        }
        if events.is_empty() {
            self.roster.saving = Some(Saving { roster: None, done, deleted: gone });
            return self.roster_saved(cx, Ok(()));
        }
        self.roster.saving = Some(Saving { roster: Some(roster), done, deleted: gone });
        let saved = self.env.append(events);
        cx.pipe(saved, |answer| ControllerMsg::RosterSaved { result: journal_outcome(answer) });
    }

    fn apply(
        &mut self,
        cx: &mut Context<Self>,
        roster: &mut Arc<Roster>,
        change: RosterChange,
        known: &OnceCell<Spoken>,
        gone: &mut Vec<String>,
    ) -> Option<Done> {
        let env = Arc::clone(&self.env);
        let spoken = || known.get_or_init(|| spoken_of(&env)).clone();
        Some(match change {
            RosterChange::Join { node, joining, address, agent } => {
                let hostname = agent.0.facts.hostname.clone();
                let news = roster.joined(&node, &joining, &hostname, &address, &spoken);
                match news.and_then(|news| news.map_or(Ok(()), |node| Arc::make_mut(roster).put(vec![node]))) {
                    Ok(()) => {
                        self.roster.declined.remove(&node);
                        Done::Joined { node, agent }
                    }
                    Err(refusal) => {
                        self.decline(cx, node, agent, refusal);
                        return None;
                    }
                }
            }
            RosterChange::Create { names, line, replies } => Done::Answer {
                result: Arc::make_mut(roster)
                    .create(&names, &line, &spoken, &|name| env.ports.host.may_be_named(name))
                    .map(drop),
                replies,
            },
            RosterChange::Delete { mut names, mut links, asked, stay, replies } => {
                // One that went meanwhile and came again was not asked.
                names.retain(|name| self.roster.deleted.get(name).is_none_or(|last| *last <= asked));
                if names.iter().any(|name| roster.get(name).is_some()) {
                    for name in Arc::make_mut(roster).delete(&names) {
                        self.roster.ending.extend(links.remove_entry(&name));
                        gone.push(name);
                    }
                }
                Done::Answer { result: stay.map_or(Ok(()), Err), replies }
            }
            RosterChange::Place { names, place, by, then, replies } => {
                match Arc::make_mut(roster).place(&names, &place) {
                    Ok(()) if *then != NodeChange::default() => Done::Update { names, by, then, replies },
                    result => Done::Answer { result, replies },
                }
            }
        })
    }

    pub(super) fn decline(
        &mut self,
        cx: &mut Context<Self>,
        node: String,
        (registration, link): Connected,
        refusal: Refusal,
    ) {
        if self.roster.declined.get(&node) != Some(&refusal) {
            tracing::error!(node, "node.declined: {refusal}");
        }
        // The agent logs it and tries again.
        say_last(cx, link, ControllerToNode::Declined(refusal.clone()));
        self.env.links.close(&node, registration.conn);
        self.roster.declined.insert(node, refusal);
    }

    pub(super) fn roster_saved(&mut self, cx: &mut Context<Self>, result: Result<(), String>) {
        let Some(Saving { roster, done, deleted }) = self.roster.saving.take() else { return };
        let ending = std::mem::take(&mut self.roster.ending);
        if let Err(error) = result {
            tracing::error!(error, "node.roster_not_saved");
            for done in done {
                match done {
                    Done::Joined { node, agent } => self.decline(cx, node, agent, Refusal::Internal(error.clone())),
                    Done::Answer { mut replies, .. } | Done::Update { mut replies, .. } => {
                        replies.send(CommandReply::Refused(Refusal::Internal(error.clone())));
                    }
                }
            }
            return self.next_lot(cx);
        }
        if let Some(roster) = roster {
            self.publish(cx, roster, ending);
        }
        // From here on another one of that name may be asked.
        self.roster.deletions += 1;
        self.roster.deleted.extend(deleted.into_iter().map(|name| (name, self.roster.deletions)));
        for done in done {
            match done {
                Done::Joined { node, agent } => self.welcome(cx, &node, agent),
                Done::Answer { result, mut replies } => {
                    replies.send(result.map_or_else(CommandReply::Refused, |()| CommandReply::Done));
                }
                Done::Update { names, by, then, replies } => self.update_nodes(cx, by, names, *then, replies),
            }
        }
        self.next_lot(cx);
    }

    /// Hands a registration to the node's owner.
    fn welcome(&self, cx: &mut Context<Self>, node: &str, (registration, link): Connected) {
        if self.env.links.get(node).is_none_or(|(open, _)| open != registration.conn) {
            return;
        }
        // Its owner may be only just being started: by way of the supervisor it comes after that.
        if let Some(supervisor) = self.nodes_supervisor() {
            deliver(cx, &supervisor, NodesMsg::Connected { name: node.to_owned(), agent: (registration, link) });
        }
    }

    pub(super) fn nodes_supervisor(&self) -> Option<Address<NodesMsg>> {
        self.env.system.find::<NodesMsg>(&ActorPath::root().child("node"))
    }

    /// The roster is on disk: owners of nodes are started, told and stopped, and whoever goes by the nodes is told.
    fn publish(&mut self, cx: &mut Context<Self>, roster: Arc<Roster>, mut ending: BTreeMap<String, OpenLink>) {
        let before = self.env.config();
        let mut roster = roster;
        // The file may have been read again while it was being saved.
        let base = self.env.roster().base();
        if !Arc::ptr_eq(&base, &roster.base()) {
            let of_file = Arc::make_mut(&mut roster).read_again(base);
            if !of_file.is_empty() {
                // A journal that fails ends the process by itself, and the next start finds the same.
                drop(self.env.append(of_file.into_iter().map(ControllerEvent::node_of_file).collect()));
            }
        }
        let config = roster.config();
        let known = self.env.roster();
        let moved = !known.whereabouts().eq(roster.whereabouts());
        let others = |node: &NodeConfig| known.neighbours(&node.name) != roster.neighbours(&node.name);
        let changed = |node: &&NodeConfig| before.node(&node.name) != Some(*node) || (moved && others(node));
        let changed: Vec<&NodeConfig> = config.nodes.iter().filter(changed).collect();
        self.env.set_roster(roster.clone());
        if Arc::ptr_eq(&before, &config) {
            return;
        }
        let site = Arc::new(setup::node_site(&config, self.env.job_site().epoch, &self.env.ports));
        for node in changed {
            self.configure_node(cx, node, &site);
        }
        for node in before.nodes.iter().filter(|node| config.node(&node.name).is_none()) {
            tracing::info!(node = node.name, "node.deleted");
            // Its daemon would only come again.
            if let Some((_, link)) = ending.remove(&node.name) {
                say_last(cx, link, ControllerToNode::Shutdown);
            }
            self.stop_node(cx, &node.name);
        }
        self.clear_board(&config);
        self.forget_feasibility();
        if let Some(partitions) = self.env.system.find(&ActorPath::root().child("partition")) {
            deliver(cx, &partitions, PartitionsMsg::NodesChanged);
        }
        if let Some(scheduler) = self.env.scheduler() {
            deliver(cx, &scheduler, SchedulerInput::Policy(Box::new(policy(&config))).into());
        }
    }

    /// Tells a node's owner what the configuration says, or has it started.
    pub(super) fn configure_node(&self, cx: &mut Context<Self>, node: &NodeConfig, site: &Arc<NodeSite>) {
        // The supervisor knows whether the owner of that name is one that is to end: that one would not read it.
        if let Some(supervisor) = self.nodes_supervisor() {
            let neighbours = self.env.roster().neighbours(&node.name);
            let settings = NodeSettings { neighbours, ..setup::node_settings(node) };
            let core = NodeCore::new(Timestamp::now(), settings, Arc::clone(site), None, []);
            // Who asked for it looks at once; its owner publishes over it.
            if self.env.nodes.get(&node.name).is_none() {
                self.env.boards.nodes.publish(node.index, Arc::new(core.view()));
            }
            deliver(cx, &supervisor, NodesMsg::Start { core: Box::new(core) });
        }
    }

    pub(super) fn stop_node(&self, cx: &mut Context<Self>, name: &str) {
        if let Some(supervisor) = self.nodes_supervisor() {
            deliver(cx, &supervisor, NodesMsg::Stop { name: name.to_owned() });
        }
    }

    /// Nothing is shown in places of nodes that are gone.
    pub(super) fn clear_board(&self, config: &Config) {
        let board = &self.env.boards.nodes;
        for (index, _) in board.entries() {
            if config.node_at(index).is_none() {
                board.remove(&index);
            }
        }
    }
}

/// Sends the last frame of a link. What is still on its way when a link is closed is lost, so that happens later; when even
/// this does not arrive nothing more can be done.
fn say_last(cx: &mut Context<ControllerActor>, link: Arc<dyn AgentLink>, frame: ControllerToNode) {
    if link.send(frame).is_err() {
        tracing::debug!("node.last_frame_not_sent");
    }
    cx.spawn(async move {
        tokio::time::sleep(DECLINED).await;
        link.close();
    });
}

/// Names of nodes in place of names of node sets.
fn without_sets(config: &Config, roster: &Roster, names: Vec<String>) -> Result<Vec<String>, Refusal> {
    let mut nodes = Vec::with_capacity(names.len());
    for name in names {
        if config.node(&name).is_some() || roster.get(&name).is_some() {
            nodes.push(name);
            continue;
        }
        let (members, _) = config.members(&name).map_err(|_| Refusal::InvalidNode(name.clone()))?;
        nodes.extend(members.into_iter().filter_map(|index| Some(config.node_at(index)?.name.clone())));
    }
    Ok(nodes)
}

/// Places of nodes in allocations that are shown, also of jobs that are over.
fn spoken_of(env: &Env) -> Spoken {
    let jobs = env.boards.jobs.list();
    let allocations = jobs.iter().filter_map(|job| job.allocation.as_ref());
    allocations.flat_map(|allocation| allocation.nodes.iter().map(|node| node.index.0)).collect()
}

/// What the journal has to know.
pub(super) fn difference(before: &Roster, after: &Roster) -> Vec<ControllerEvent> {
    let gone = before.nodes().keys().filter(|name| after.get(name).is_none());
    let about = |name: &String, saved| ControllerEvent::DynamicNode { node: name.clone(), saved, of_file: false };
    let mut events: Vec<ControllerEvent> = gone.map(|name| about(name, None)).collect();
    let news = after.nodes().iter().filter(|(name, node)| before.get(name) != Some(*node));
    events.extend(news.map(|(name, node)| about(name, Some(Box::new(node.clone())))));
    events
}
