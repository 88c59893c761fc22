//! Nodes that join and leave: questions to the roster's owner, and what follows from its answers.

use super::{
    core::{FrontendCore, Reply, Then, Turn},
    messages::{AgentErrand, Ask, FrontendErrand, Said},
};
use crate::{
    messages::{job::Authority, node::Registration},
    roster::{core::RosterAsk, nodes::reserved},
};
use garrick_model::{
    config::Config,
    messages::command::{CommandReply, NodeChange},
    refusal::Refusal,
};

/// What follows the answer of the roster's owner.
pub(super) enum RosterAsked {
    /// An agent is to join as this node.
    Join {
        /// Node.
        node: String,
        /// Agent.
        registration: Box<Registration>,
    },
    /// A reply to the requester.
    Answer,
    /// A reply to the requester, after that partition is made the default one.
    NewDefault(String),
    /// A reply to the requester, after these nodes are changed further.
    Update {
        /// Nodes.
        names: Vec<String>,
        /// Who.
        by: Authority,
        /// Change.
        then: Box<NodeChange>,
    },
}

impl FrontendCore {
    pub(super) fn ask_roster(&mut self, turn: &mut Turn<'_>, request: u64, ask: RosterAsk, asked: RosterAsked) {
        self.ask(turn, request, vec![Ask::Roster(ask)], Then::Roster(asked));
    }

    pub(super) fn roster_answered(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        asked: RosterAsked,
        said: Option<Said>,
    ) {
        let answer = match said {
            Some(Said::Gone(error)) => Err(Refusal::Internal(format!("the roster of nodes: {error}"))),
            said => {
                let nobody = || Err(Refusal::Internal("the roster of nodes: it has no owner".to_owned()));
                said.and_then(Said::done).unwrap_or_else(nobody)
            }
        };
        // Partitions may be changed by others, and a configuration that is read again discards such changes.
        if !matches!(asked, RosterAsked::Join { .. }) {
            self.forget_feasibility();
        }
        match (asked, answer) {
            (RosterAsked::Join { node, registration }, Ok(())) => {
                self.declined.remove(&node);
                let conn = registration.conn;
                turn.run(if self.sight.link(&node) == Some(conn) {
                    // The node's owner may still be starting: the message goes through the supervisor and arrives after that.
                    FrontendErrand::Agent(AgentErrand::Welcome { node, registration, starting: true })
                } else {
                    FrontendErrand::Agent(AgentErrand::LetGo { conn })
                });
            }
            (RosterAsked::Join { node, registration }, Err(refusal)) => {
                self.decline(turn, node, registration.conn, refusal, Vec::new());
            }
            (RosterAsked::Update { names, by, then }, Ok(())) => {
                if let Err(refusal) = self.update_nodes(turn, request, by, names, *then) {
                    turn.refuse(request, refusal);
                }
            }
            (RosterAsked::NewDefault(partition), Ok(())) => {
                let fields = vec![("Default".to_owned(), "YES".to_owned())];
                if let Err(refusal) = self.update_partition(turn, request, partition, fields) {
                    turn.refuse(request, refusal);
                }
            }
            (RosterAsked::Answer, Err(refusal)) if request == 0 => tracing::error!("config.not_taken: {refusal}"),
            (RosterAsked::Answer, Ok(())) => turn.answer(request, CommandReply::Done),
            (RosterAsked::Answer | RosterAsked::NewDefault(_) | RosterAsked::Update { .. }, Err(refusal)) => {
                turn.refuse(request, refusal)
            }
        }
    }

    /// Deletes nodes whose owners have released them.
    pub(super) fn delete_nodes(&mut self, turn: &mut Turn<'_>, request: u64, nodes: Vec<String>) -> Reply {
        let roster = self.sight.roster();
        let config = roster.config();
        let nodes = match &nodes[..] {
            [all] if all.eq_ignore_ascii_case("all") => {
                let unfit = roster.nodes().keys().filter(|name| config.node(name).is_none()).cloned();
                config.nodes.iter().map(|node| node.name.clone()).chain(unfit).collect()
            }
            _ => {
                let is_known = |name: &str| config.node(name).is_some() || roster.get(name).is_some();
                without_sets(&config, &is_known, self.nodes_named(nodes)?)?
            }
        };
        let reserved = reserved(&self.sight.committed().reservations());
        self.ask_roster(turn, request, RosterAsk::Delete { nodes, reserved }, RosterAsked::Answer);
        Ok(None)
    }
}

/// Replaces names of node sets by names of nodes.
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
