//! The node's actor, and the supervisor of all nodes.

use super::{
    core::NodeCore,
    messages::{NodeEffect, NodeInput, NodeMsg, NodeNotice, NodeSettings, Registration},
};
use crate::{
    controller::{
        env::{Env, deliver, journal_outcome},
        event::ControllerEvent,
        outbox::Outbox,
        ports::AgentLink,
    },
    job::messages::JobInput,
};
use garrick_model::{messages::command::NodeChange, refusal::Refusal, time::Timestamp};
use garrick_runtime::{
    Actor, ChildEvent, ChildSpec, Context, Message, Placement, ReplyTo, Restart, RestartLimits, WhenExceeded,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Every job of the node and its agent write here.
const NODE_MAILBOX: usize = 8_192;

/// The actor of one node.
pub struct NodeActor {
    core: NodeCore,
    name: String,
    env: Arc<Env>,
    /// The open link and its number.
    link: Option<(u64, Arc<dyn AgentLink>)>,
    outbox: Outbox<NodeEffect>,
    requests: u64,
    answers: BTreeMap<u64, ReplyTo<Result<(), Refusal>>>,
}

impl NodeActor {
    /// From its core, as it was last.
    pub fn new(name: String, core: NodeCore, env: Arc<Env>) -> Self {
        Self { core, name, env, link: None, outbox: Outbox::default(), requests: 0, answers: BTreeMap::new() }
    }

    fn run(&mut self, cx: &mut Context<Self>, input: NodeInput) {
        let mut effects = Vec::new();
        self.core.handle(Timestamp::now(), input, &mut effects);
        self.env.nodes.put(&self.name, &self.core);
        self.take(cx, effects);
    }

    fn take(&mut self, cx: &mut Context<Self>, effects: Vec<NodeEffect>) {
        let mut events = Vec::new();
        let mut rest = Vec::with_capacity(effects.len());
        for effect in effects {
            match effect {
                NodeEffect::Record(saved) => {
                    events.push(ControllerEvent::Node { node: self.name.clone(), saved: Box::new(saved) });
                }
                other => rest.push(other),
            }
        }
        if events.is_empty() {
            self.outbox.push(rest);
        } else {
            let batch = self.outbox.push_unsaved(rest);
            let done = self.env.append(events);
            cx.pipe(done, move |answer| NodeMsg::Journaled { batch, result: journal_outcome(answer) });
        }
        self.flush(cx);
    }

    fn flush(&mut self, cx: &mut Context<Self>) {
        while let Some(effects) = self.outbox.take_ready() {
            for effect in effects {
                self.perform(cx, effect);
            }
        }
    }

    fn perform(&mut self, cx: &mut Context<Self>, effect: NodeEffect) {
        match effect {
            // Taken out before.
            NodeEffect::Record(_) => {}
            NodeEffect::Publish(view) => {
                self.env.boards.nodes.publish(view.index, view);
            }
            NodeEffect::ToJob { job, notice } => {
                let node = self.name.clone();
                let input = match notice {
                    NodeNotice::Reserved { attempt, result } => JobInput::Reserved { attempt, node, result },
                    NodeNotice::Unparked { attempt, granted } => JobInput::Unparked { attempt, node, granted },
                    NodeNotice::RunHeld { sluid, requeue } => JobInput::RunHeld { node, sluid, requeue },
                    NodeNotice::RunMissing { sluid } => JobInput::RunMissing { node, sluid },
                    NodeNotice::NodeLost { sluid } => JobInput::NodeLost { node, sluid },
                    NodeNotice::Report { seq, report } => JobInput::Report { node, seq, report },
                };
                let env = Arc::clone(&self.env);
                env.tell_job(cx, job, input);
            }
            NodeEffect::ToAgent { conn, frame } => {
                let link = self.link.as_ref().filter(|(open, _)| *open == conn);
                let sent = link.map(|(_, link)| link.send(*frame));
                if !matches!(sent, Some(Ok(()))) {
                    // Whatever must arrive follows from the state at the next registration.
                    tracing::debug!(node = self.name, "node.frame_without_link");
                }
            }
            NodeEffect::CloseLink { conn } => {
                if let Some((_, link)) = self.link.take_if(|(open, _)| *open == conn) {
                    link.close();
                }
            }
            NodeEffect::SetTimer { timer, at } => {
                let after = at.since(Timestamp::now());
                cx.set_timer(timer.key(), after, NodeMsg::Input(NodeInput::Timer(timer)));
            }
            NodeEffect::ConfDiffers { theirs, ours } => tracing::warn!(
                node = self.name,
                node_has = format_args!("{theirs:08x}"),
                controller_has = format_args!("{ours:08x}"),
                "node.conf_differs: this node was started with another slurm.conf than the controller goes by; make \
                 the files the same and start its daemon again"
            ),
            NodeEffect::Answer { request, result } => {
                if let Some(reply) = self.answers.remove(&request) {
                    reply.reply(result);
                }
            }
        }
    }
}

impl Actor for NodeActor {
    type Msg = NodeMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        let mut effects = Vec::new();
        if self.core.is_of_earlier_life() {
            // What follows from events of the owner that failed is not to overtake them on their way to the disk.
            let batch = self.outbox.push_unsaved(Vec::new());
            let done = self.env.append(Vec::new());
            cx.pipe(done, move |answer| NodeMsg::Journaled { batch, result: journal_outcome(answer) });
            if let Some((_, link)) = self.env.links.get(&self.name) {
                link.close();
            }
        }
        self.core.resume(Timestamp::now(), &mut effects);
        self.env.nodes.put(&self.name, &self.core);
        self.take(cx, effects);
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: NodeMsg) {
        match message {
            NodeMsg::Input(input) => self.run(cx, input),
            NodeMsg::Connected { registration, link } => {
                if let Some((_, old)) = self.link.replace((registration.conn, link)) {
                    old.close();
                }
                self.run(cx, NodeInput::Registered(registration));
            }
            NodeMsg::Update { by, change, reply } => {
                self.requests += 1;
                self.answers.insert(self.requests, reply);
                self.run(cx, NodeInput::Update { request: self.requests, by, change });
            }
            NodeMsg::Retire { reply } => {
                self.requests += 1;
                self.answers.insert(self.requests, reply);
                self.run(cx, NodeInput::Retire { request: self.requests });
            }
            NodeMsg::Journaled { batch, result } => {
                match result {
                    Ok(()) => self.outbox.saved(batch),
                    Err(error) => {
                        tracing::error!(node = self.name, error, "node.not_saved");
                        self.outbox.lost(batch);
                    }
                }
                self.flush(cx);
            }
        }
    }

    fn stopped(&mut self) {
        // Who deleted the node tells its daemon so, and closes the link.
        if let Some((_, link)) = self.link.take().filter(|_| !self.core.is_retired()) {
            link.close();
        }
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
        let factory = move || {
            // Put there before the actor was started, and taken away after it was stopped.
            let core = env.nodes.get(&name).expect("a node's state is on the shelf while its actor lives");
            NodeActor::new(name.clone(), core, Arc::clone(&env))
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
                    deliver(cx, &owner, NodeMsg::Connected { registration, link });
                }
            }
            NodesMsg::Update { name, by, change, reply } => {
                if let Some(next) = self.ending.get_mut(&name) {
                    next.push(NodesMsg::Update { name, by, change, reply });
                    return;
                }
                match self.env.node(&name) {
                    Some(owner) => deliver(cx, &owner, NodeMsg::Update { by, change: *change, reply }),
                    None => reply.reply(Err(being_restarted(&name))),
                }
            }
            NodesMsg::Retire { name, reply } => {
                if let Some(next) = self.ending.get_mut(&name) {
                    next.push(NodesMsg::Retire { name, reply });
                    return;
                }
                match self.env.node(&name) {
                    Some(owner) => deliver(cx, &owner, NodeMsg::Retire { reply }),
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
