//! The front's part for nodes that come and go: it passes what is asked on to the roster's owner, and an agent on to its node's
//! owner once the roster has it.

use super::{agents::say_last, env::deliver, front::ControllerActor, messages::ControllerMsg, ports::ReplySink};
use crate::{
    job::messages::Authority,
    node::shell::{Connected, NodesMsg, connected},
    owner::actor::OwnerMsg,
    roster::{core::RosterAsk, nodes::reserved},
};
use garrick_model::{
    config::Config,
    messages::{
        command::{CommandReply, NodeChange},
        node::{ControllerToNode, Joining},
    },
    refusal::Refusal,
};
use garrick_runtime::{Context, ReplyTo};
use std::sync::Arc;

/// Who waits for an answer of the roster's owner.
pub enum RosterAsked {
    /// An agent that is to be that node.
    Join {
        /// Node.
        node: String,
        /// Agent.
        agent: Connected,
    },
    /// A command, or nobody.
    Answer(Option<Box<dyn ReplySink>>),
    /// A command, which is to change these nodes otherwise, too.
    Update {
        /// Nodes.
        names: Vec<String>,
        /// Who.
        by: Authority,
        /// Change.
        then: Box<NodeChange>,
        /// Where the reply goes.
        replies: Box<dyn ReplySink>,
    },
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
        let hostname = agent.0.facts.hostname.clone();
        let ask = RosterAsk::Join { node: node.clone(), joining, hostname, address };
        self.ask_roster(cx, ask, RosterAsked::Join { node, agent });
    }

    pub(super) fn ask_roster(&self, cx: &mut Context<Self>, ask: RosterAsk, asked: RosterAsked) {
        let (reply, answer) = ReplyTo::channel();
        if let Some(owner) = self.env.roster_owner() {
            deliver(cx, &owner, OwnerMsg::Ask { ask, reply });
        }
        cx.pipe(answer, |answer| {
            let answer = answer.unwrap_or_else(|error| Err(Refusal::Internal(format!("the roster of nodes: {error}"))));
            ControllerMsg::RosterAnswered { asked, answer }
        });
    }

    pub(super) fn roster_answered(&mut self, cx: &mut Context<Self>, asked: RosterAsked, answer: Result<(), Refusal>) {
        // What nodes are is the configuration's; what partitions are may be others' to say, and a file that is read again ends that.
        if !matches!(asked, RosterAsked::Join { .. }) {
            self.forget_feasibility();
        }
        match (asked, answer) {
            (RosterAsked::Join { node, agent }, Ok(())) => {
                self.declined.remove(&node);
                self.welcome(cx, node, agent);
            }
            (RosterAsked::Join { node, agent }, Err(refusal)) => self.decline(cx, node, agent, refusal),
            (RosterAsked::Update { names, by, then, replies }, Ok(())) => {
                self.update_nodes(cx, by, names, *then, replies);
            }
            (RosterAsked::Update { mut replies, .. }, Err(refusal)) => {
                replies.send(CommandReply::Refused(refusal));
            }
            (RosterAsked::Answer(Some(mut replies)), answer) => {
                replies.send(answer.map_or_else(CommandReply::Refused, |()| CommandReply::Done));
            }
            (RosterAsked::Answer(None), Err(refusal)) => tracing::error!("config.not_taken: {refusal}"),
            (RosterAsked::Answer(None), Ok(())) => {}
        }
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
            _ => self.nodes_named(nodes).and_then(|names| {
                let is_known = |name: &str| config.node(name).is_some() || roster.get(name).is_some();
                without_sets(&config, &is_known, names)
            }),
        };
        let nodes: Vec<String> = match named {
            Ok(names) => names,
            Err(refusal) => {
                replies.send(CommandReply::Refused(refusal));
                return;
            }
        };
        let reserved = reserved(&self.env.committed.reservations());
        self.ask_roster(cx, RosterAsk::Delete { nodes, reserved }, RosterAsked::Answer(Some(replies)));
    }

    /// The agent logs why, and tries again.
    pub(super) fn decline(
        &mut self,
        cx: &mut Context<Self>,
        node: String,
        (registration, link): Connected,
        refusal: Refusal,
    ) {
        // However often it tries.
        if self.declined.get(&node) != Some(&refusal) {
            tracing::error!(node, "node.declined: {refusal}");
        }
        cx.spawn(say_last(link, ControllerToNode::Declined(refusal.clone())));
        self.env.links.close(&node, registration.conn);
        self.declined.insert(node, refusal);
    }

    /// Hands a registration to the node's owner.
    fn welcome(&self, cx: &mut Context<Self>, node: String, (registration, link): Connected) {
        if self.env.links.get(&node).is_none_or(|(open, _)| open != registration.conn) {
            return;
        }
        // Its owner may be only just being started: by way of the supervisor it comes after that.
        if let Some(supervisor) = self.env.nodes_supervisor() {
            deliver(cx, &supervisor, NodesMsg::Deliver { key: node, message: Box::new(connected(registration, link)) });
        }
    }
}

/// Names of nodes in place of names of node sets.
fn without_sets(config: &Config, is_known: &dyn Fn(&str) -> bool, names: Vec<String>) -> Result<Vec<String>, Refusal> {
    let mut nodes = Vec::with_capacity(names.len());
    for name in names {
        if is_known(&name) {
            nodes.push(name);
            continue;
        }
        let (members, _) = config.members(&name).map_err(|_| Refusal::InvalidNode(name.clone()))?;
        nodes.extend(members.into_iter().filter_map(|index| Some(config.node_at(index)?.name.clone())));
    }
    Ok(nodes)
}
