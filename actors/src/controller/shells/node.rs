//! How a node's effects are carried out in the controller, and how nodes' owners are supervised.

use super::{
    actor::{Came, OwnerMsg, Shell},
    env::Env,
    ports::AgentLink,
    supervisor::{Kind, SupervisorMsg},
};
use crate::{
    messages::{
        job::JobInput,
        letter::{Letter, end_of_lost},
        node::{NodeAsk, NodeInput, NodeTimer, Registration},
    },
    node::{core::NodeCore, effects::NodeErrand},
    owner::Out,
};
use garrick_model::{refusal::Refusal, time::Timestamp, view::NodeView};
use garrick_runtime::{Placement, TimerKey};
use std::{sync::Arc, time::Duration};

/// Every job of the node, and its agent, write here.
const NODE_MAILBOX: usize = 8_192;

/// Messages of the node actor. All may be delivered twice.
pub type NodeMsg = OwnerMsg<NodeCore>;

/// The state of a node's shell: the open connection and its number.
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
                    // What must arrive follows from the state at the next registration.
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
        if let Some(before) = env.boards.nodes.get(&view.index).filter(|before| before.name == view.name) {
            env.marks.note(&before, &view);
        }
        env.boards.nodes.publish(view.index, view);
    }

    fn ended(&self, hands: &mut NodeHands) {
        // The code that deletes the node tells its daemon so, and closes the connection.
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

/// Messages of the supervisor of nodes, at `/node`. An owner starts with a core made from the configuration.
pub type NodesMsg = SupervisorMsg<Nodes>;

fn being_restarted(node: &str) -> Refusal {
    Refusal::Internal(format!("node {node} is being restarted"))
}

/// The agent of a node connected. All messages to the agent go through this connection from now on.
pub fn connected(registration: Box<Registration>, link: Arc<dyn AgentLink>) -> NodeMsg {
    NodeMsg::Hand { gift: (registration.conn, link), input: Some(NodeInput::Registered(registration)) }
}

/// An agent's registration and the way to it.
pub type Connected = (Box<Registration>, Arc<dyn AgentLink>);

/// Owners of nodes.
pub struct Nodes;

impl Kind for Nodes {
    type Owner = NodeCore;
    type Key = String;
    type Seed = Box<NodeCore>;

    const NAME: &'static str = "node";
    const MAILBOX: usize = NODE_MAILBOX;

    fn all(env: &Env) -> Vec<String> {
        env.nodes.names()
    }

    fn is_there(env: &Env, node: &String) -> bool {
        env.nodes.look(node, |_| ()).is_some()
    }

    fn make(env: &Env, node: &String) -> Option<NodeCore> {
        // Put there before the actor was started, and removed after it stopped.
        let mut core = env.nodes.get(node)?;
        core.restore(env.committed.node(node));
        let roster = env.roster();
        if let Some(config) = roster.config().node(node) {
            core.go_by(roster.settings(config), env.node_site());
        }
        Some(core)
    }

    fn had_another(env: &Env, node: &String) -> bool {
        env.nodes.look(node, NodeCore::is_of_earlier_life).unwrap_or(false)
    }

    fn placement(env: &Env, node: &String) -> Placement {
        let index = env.nodes.look(node, |core| core.settings().index);
        index.map_or(Placement::Parent, |index| Placement::Hash(u64::from(index.0)))
    }

    fn begin(env: &Env, node: &String, core: Box<NodeCore>, _: bool) -> Option<NodeInput> {
        // The kept state of a node that was given up, and of its jobs, stays.
        if Self::is_there(env, node) {
            return Some(NodeInput::Configure { settings: Box::new(core.settings().clone()), site: core.site() });
        }
        env.nodes.put(node, &core);
        None
    }

    /// A connection that was closed meanwhile, or is not the newest, does not count.
    fn counts(env: &Env, node: &String, message: &NodeMsg) -> bool {
        match message {
            OwnerMsg::Hand { gift: (conn, _), .. } => env.links.get(node).is_some_and(|(open, _)| open == *conn),
            _ => true,
        }
    }

    fn missing(_: &Env, node: &String, message: NodeMsg) -> Vec<Letter> {
        if let OwnerMsg::Ask { reply, .. } = message {
            reply.reply(Err(being_restarted(node)));
        }
        Vec::new()
    }

    /// Its jobs count it as lost. Its daemon is told here, since nobody else can any more: the runs may be started elsewhere.
    fn ends(env: &Env, node: &String) -> Vec<Letter> {
        let holds = env.nodes.look(node, |core| core.view().holds).unwrap_or_default();
        let link = env.links.get(node);
        let lost = holds.into_iter().map(|hold| {
            if let Some((_, link)) = &link
                && link.send(end_of_lost(hold.job, hold.sluid)).is_err()
            {
                tracing::warn!(node, job_id = hold.job.0, "node.end_not_sent");
            }
            tracing::warn!(
                node,
                job_id = hold.job.0,
                "node.removed_under_job: the configuration does not have this node any more, and its job counts as lost \
                 there"
            );
            Letter::Job(hold.job, JobInput::NodeLost { node: node.clone(), sluid: hold.sluid })
        });
        lost.collect()
    }

    fn forget(env: &Env, node: &String) {
        tracing::info!(node, "node.removed");
        let index = env.nodes.look(node, |core| core.settings().index);
        env.nodes.remove(node);
        // It may have published itself after it was removed from the board, and another node may have its index by now.
        let boards = &env.boards.nodes;
        if let Some(index) = index
            && boards.get(&index).is_some_and(|view| view.name == *node)
        {
            boards.remove(&index);
        }
    }
}
