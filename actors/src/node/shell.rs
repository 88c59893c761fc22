//! What a node's verbs come to in the controller, and the supervisor of all nodes.

use super::{
    core::NodeCore,
    messages::{NodeAsk, NodeErrand, NodeInput, NodeMsg, NodeSettings, NodeTimer, Registration},
};
use crate::{
    controller::{
        env::{Env, deliver},
        ports::AgentLink,
        setup::node_settings,
    },
    job::messages::{FreshIds, JobInput},
    owner::{
        Out, Owner,
        actor::{Came, Early, OwnerActor, Shell},
    },
};
use garrick_model::{messages::command::NodeChange, refusal::Refusal, time::Timestamp, view::NodeView};
use garrick_runtime::{
    Actor, ChildEvent, ChildSpec, Context, Message, Placement, ReplyTo, Restart, RestartLimits, TimerKey, WhenExceeded,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Every job of the node and its agent write here.
const NODE_MAILBOX: usize = 8_192;

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

/// What the shell of a node keeps: the open link and its number.
#[derive(Default)]
pub struct NodeHands(Option<(u64, Arc<dyn AgentLink>)>);

impl Shell for NodeCore {
    type Ask = NodeAsk;
    type Gift = (u64, Arc<dyn AgentLink>);
    type Hands = NodeHands;

    fn name(input: &NodeInput) -> &'static str {
        input.name()
    }

    fn ask_name(ask: &NodeAsk) -> &'static str {
        match ask {
            NodeAsk::Update { .. } => "Update",
            NodeAsk::Retire => "Retire",
        }
    }

    fn key(timer: NodeTimer) -> TimerKey {
        timer.key().into()
    }

    fn asked(request: u64, ask: NodeAsk) -> NodeInput {
        match ask {
            NodeAsk::Update { by, change } => NodeInput::Update { request, by, change },
            NodeAsk::Retire => NodeInput::Retire { request },
        }
    }

    fn begin(&mut self, _: &mut NodeHands, env: &Env, now: Timestamp, out: &mut Out<Self>) {
        if self.is_of_earlier_life()
            && let Some((_, link)) = env.links.get(&self.settings().name)
        {
            link.close();
        }
        self.resume(now, out);
    }

    fn keep(&self, env: &Env) {
        env.nodes.put(&self.settings().name, self);
    }

    fn hand(&self, hands: &mut NodeHands, link: (u64, Arc<dyn AgentLink>)) {
        if let Some((_, old)) = hands.0.replace(link) {
            old.close();
        }
    }

    fn run(&self, hands: &mut NodeHands, _: &Env, errand: NodeErrand) -> Came<NodeInput> {
        match errand {
            NodeErrand::Send { conn, frame } => {
                let link = hands.0.as_ref().filter(|(open, _)| *open == conn);
                let sent = link.map(|(_, link)| link.send(*frame));
                if !matches!(sent, Some(Ok(()))) {
                    // Whatever must arrive follows from the state at the next registration.
                    tracing::debug!(node = self.settings().name, "node.frame_without_link");
                }
            }
            NodeErrand::Close { conn } => {
                if let Some((_, link)) = hands.0.take_if(|(open, _)| *open == conn) {
                    link.close();
                }
            }
            NodeErrand::WarnOfConf { theirs, ours } => tracing::warn!(
                node = self.settings().name,
                node_has = format_args!("{theirs:08x}"),
                controller_has = format_args!("{ours:08x}"),
                "node.conf_differs: this node was started with another slurm.conf than the controller goes by; make \
                 the files the same and start its daemon again"
            ),
        }
        Came::Nothing
    }

    fn publish(&self, _: &mut NodeHands, env: &Env, view: Arc<NodeView>) {
        env.boards.nodes.publish(view.index, view);
    }

    fn forget(&self, _: &Env) {}

    fn ended(&self, hands: &mut NodeHands) {
        // Who deleted the node tells its daemon so, and closes the link.
        if let Some((_, link)) = hands.0.take().filter(|_| !self.is_retired()) {
            link.close();
        }
    }

    fn try_again(after: Duration) -> Result<(), Refusal> {
        Err(Refusal::RetryAfter { after })
    }

    fn label(&self) -> String {
        format!("node/{}", self.settings().name)
    }
}

/// Messages of the supervisor of nodes, all from the front.
pub enum NodesMsg {
    /// Start a node's actor.
    Start {
        /// Core, as the configuration makes it.
        core: Box<NodeCore>,
    },
    /// The agent of a node that may be only just being started connected.
    Connected {
        /// Name.
        name: String,
        /// Agent.
        agent: Connected,
    },
    /// An administrator's change of a node that may be only just being started.
    Update {
        /// Name.
        name: String,
        /// Who (uid, name).
        by: (u32, String),
        /// Change.
        change: Box<NodeChange>,
        /// Asker.
        reply: ReplyTo<Result<(), Refusal>>,
    },
    /// The node is to be deleted: its owner answers.
    Retire {
        /// Name.
        name: String,
        /// Asker.
        reply: ReplyTo<Result<(), Refusal>>,
    },
    /// The node is not configured any more.
    Stop {
        /// Name.
        name: String,
    },
}

impl Message for NodesMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } => "Start",
            Self::Connected { .. } => "Connected",
            Self::Update { .. } => "Update",
            Self::Retire { .. } => "Retire",
            Self::Stop { .. } => "Stop",
        }
    }
}

fn being_restarted(node: &str) -> Refusal {
    Refusal::Internal(format!("node {node} is being restarted"))
}

/// The agent of a node connected. Everything for the agent goes through this link from now on.
pub fn connected(registration: Box<Registration>, link: Arc<dyn AgentLink>) -> NodeMsg {
    NodeMsg::Hand { gift: (registration.conn, link), input: Some(NodeInput::Registered(registration)) }
}

/// An agent's registration and the way to it.
pub type Connected = (Box<Registration>, Arc<dyn AgentLink>);

/// The supervisor of nodes, at `/node`.
pub struct NodesSupervisor {
    env: Arc<Env>,
    /// Nodes whose actor has yet to end, and what is for the one in its place: first that it starts.
    ending: BTreeMap<String, Vec<NodesMsg>>,
}

/// Pause before a node that failed too often is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

impl NodesSupervisor {
    /// A supervisor.
    pub const fn new(env: Arc<Env>) -> Self {
        Self { env, ending: BTreeMap::new() }
    }

    /// Nothing is left of a node that is not configured any more.
    fn clear(&self, name: &str) {
        tracing::info!(node = name, "node.removed");
        let index = self.env.nodes.get(name).map(|core| core.settings().index);
        self.env.nodes.remove(name);
        // It may have shown itself once more since it was taken off the board, and the index may be another's by now.
        let boards = &self.env.boards.nodes;
        if let Some(index) = index
            && boards.get(&index).is_some_and(|view| view.name == name)
        {
            boards.remove(&index);
        }
    }

    /// Its actor has ended: what waited for that comes.
    fn ended(&mut self, cx: &mut Context<Self>, name: &str) {
        self.clear(name);
        for next in self.ending.remove(name).unwrap_or_default() {
            self.handle(cx, next);
        }
    }

    fn start(&self, cx: &mut Context<Self>, settings: &NodeSettings) {
        let (env, name) = (Arc::clone(&self.env), settings.name.clone());
        let early = Early::default();
        let factory = move || {
            let (name, again) = (name.clone(), env.nodes.get(&name).is_some_and(|core| core.is_of_earlier_life()));
            // Put there before the actor was started, and taken away after it was stopped.
            let make = move |env: &Env| {
                let mut core = env.nodes.get(&name)?;
                core.restore(env.committed.node(&name));
                let roster = env.roster();
                if let Some(node) = roster.config().node(&name) {
                    let settings = NodeSettings { neighbours: roster.neighbours(&name), ..node_settings(node) };
                    core.go_by(settings, env.node_site());
                }
                Some(core)
            };
            let actor = OwnerActor::new(make, NodeHands::default(), Arc::clone(&env));
            actor.behind_all_appended(again).with_early(early.clone())
        };
        let limits = RestartLimits { then: WhenExceeded::Stop, ..RestartLimits::default() };
        let spec = ChildSpec::new(settings.name.clone(), factory)
            .restart(Restart::OnPanic(limits))
            .placement(Placement::Hash(u64::from(settings.index.0)))
            .mailbox(NODE_MAILBOX);
        cx.start_child(spec);
    }
}

impl Actor for NodesSupervisor {
    type Msg = NodesMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        for core in self.env.nodes.names().iter().filter_map(|name| self.env.nodes.get(name)) {
            self.start(cx, core.settings());
        }
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: NodesMsg) {
        match message {
            NodesMsg::Start { core } => {
                let name = core.settings().name.clone();
                if let Some(next) = self.ending.get_mut(&name) {
                    next.retain(|message| !matches!(message, NodesMsg::Start { .. }));
                    next.insert(0, NodesMsg::Start { core });
                    return;
                }
                cx.clear_timer(format!("retry {name}"));
                let lives = self.env.node(&name).is_some();
                // What is kept of one that was given up, and of jobs there, stands.
                let known = lives || self.env.nodes.get(&name).is_some();
                if !known {
                    self.env.nodes.put(&name, &core);
                }
                if !lives {
                    self.start(cx, core.settings());
                }
                if known && let Some(owner) = self.env.node(&name) {
                    let (settings, site) = (Box::new(core.settings().clone()), core.site());
                    deliver(cx, &owner, NodeMsg::Input(NodeInput::Configure { settings, site }));
                }
            }
            NodesMsg::Connected { name, agent } => {
                if let Some(next) = self.ending.get_mut(&name) {
                    next.push(NodesMsg::Connected { name, agent });
                    return;
                }
                let (registration, link) = agent;
                let open = self.env.links.get(&name).is_some_and(|(open, _)| open == registration.conn);
                if let Some(owner) = self.env.node(&name).filter(|_| open) {
                    deliver(cx, &owner, connected(registration, link));
                }
            }
            NodesMsg::Update { name, by, change, reply } => {
                if let Some(next) = self.ending.get_mut(&name) {
                    next.push(NodesMsg::Update { name, by, change, reply });
                    return;
                }
                match self.env.node(&name) {
                    Some(owner) => {
                        deliver(cx, &owner, NodeMsg::Ask { ask: NodeAsk::Update { by, change: *change }, reply })
                    }
                    None => reply.reply(Err(being_restarted(&name))),
                }
            }
            NodesMsg::Retire { name, reply } => {
                if let Some(next) = self.ending.get_mut(&name) {
                    next.push(NodesMsg::Retire { name, reply });
                    return;
                }
                match self.env.node(&name) {
                    Some(owner) => deliver(cx, &owner, NodeMsg::Ask { ask: NodeAsk::Retire, reply }),
                    None => reply.reply(Err(being_restarted(&name))),
                }
            }
            NodesMsg::Stop { name } => {
                if let Some(next) = self.ending.get_mut(&name) {
                    next.clear();
                    return;
                }
                let holds = self.env.nodes.get(&name).map(|core| core.view().holds).unwrap_or_default();
                for hold in holds {
                    tracing::warn!(
                        node = name,
                        job_id = hold.job.0,
                        "node.removed_under_job: the configuration does not have this node any more, and its job counts \
                         as lost there"
                    );
                    let lost = JobInput::NodeLost { node: name.clone(), sluid: hold.sluid };
                    self.env.tell_job(cx, hold.job, lost);
                }
                // One that was given up has no end that would be told.
                if self.env.node(&name).is_none() {
                    return self.clear(&name);
                }
                let path = cx.path().child(&name);
                cx.stop_child(&path);
                self.ending.insert(name, Vec::new());
            }
        }
    }

    fn child_event(&mut self, cx: &mut Context<Self>, event: ChildEvent) {
        match event {
            ChildEvent::Restarted { path, panic, restarts } => {
                tracing::error!(%path, panic, restarts, "node.actor_restarted");
            }
            ChildEvent::Stopped { path } => {
                let name = path.as_str().rsplit('/').next().unwrap_or_default();
                self.ended(cx, name);
            }
            ChildEvent::GaveUp { path, reason } => {
                tracing::error!(%path, reason, "node.actor_gave_up");
                let name = path.as_str().rsplit('/').next().unwrap_or_default();
                if self.ending.contains_key(name) {
                    self.ended(cx, name);
                } else if let Some(core) = self.env.nodes.get(name) {
                    let again = NodesMsg::Start { core: Box::new(core) };
                    cx.set_timer(format!("retry {name}"), RETRY_AFTER, again);
                }
            }
        }
    }
}
