//! Replies to commands that came through a node's door: sent over the agent's connection until the command goes away.

use super::ports::{AgentLink, ReplySink};
use garrick_model::{
    messages::{command::CommandReply, node::ControllerToNode},
    refusal::Refusal,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long an agent has to read the last message before its connection is closed.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Sends the last message of a connection. Closing a connection discards what is in flight, so it is closed later; if even this
/// message does not arrive, nothing more can be done.
pub fn say_last(link: Arc<dyn AgentLink>, frame: ControllerToNode) -> impl Future<Output = ()> + 'static {
    if link.send(frame).is_err() {
        tracing::debug!("node.last_frame_not_sent");
    }
    async move {
        tokio::time::sleep(LAST_WORD).await;
        link.close();
    }
}

/// Commands in progress at nodes' doors.
#[derive(Default)]
pub struct AgentReplies {
    open: HashMap<(String, u64), Weak<AtomicBool>>,
    /// Answered commands are removed when the map has doubled since the last removal.
    sweep_at: usize,
}

impl AgentReplies {
    /// Where the replies to that command go.
    pub fn sink(&mut self, node: &str, query: u64, link: Arc<dyn AgentLink>) -> Box<dyn ReplySink> {
        if self.open.len() >= self.sweep_at.max(1024) {
            self.open.retain(|_, gone| gone.strong_count() > 0);
            self.sweep_at = self.open.len() * 2;
        }
        let gone = Arc::new(AtomicBool::new(false));
        self.open.insert((node.to_owned(), query), Arc::downgrade(&gone));
        Box::new(AgentSink { query, link, gone, answered: false })
    }

    /// The command went away.
    pub fn gone(&mut self, node: &str, query: u64) {
        if let Some(gone) = self.open.remove(&(node.to_owned(), query)).and_then(|weak| weak.upgrade()) {
            gone.store(true, Ordering::Relaxed);
        }
    }

    /// The node's connection went away, and its commands with it.
    pub fn node_gone(&mut self, node: &str) {
        self.open.retain(|(name, _), weak| {
            if name == node
                && let Some(gone) = weak.upgrade()
            {
                gone.store(true, Ordering::Relaxed);
            }
            name != node
        });
    }

    /// All of them went away.
    pub fn all_gone(&mut self, ordering: Ordering) {
        for (_, weak) in self.open.drain() {
            if let Some(gone) = weak.upgrade() {
                gone.store(true, ordering);
            }
        }
    }
}

struct AgentSink {
    query: u64,
    link: Arc<dyn AgentLink>,
    gone: Arc<AtomicBool>,
    answered: bool,
}

impl ReplySink for AgentSink {
    fn send(&mut self, reply: CommandReply) -> bool {
        self.answered = true;
        !self.is_gone() && self.link.send(ControllerToNode::CommandReply { query: self.query, reply }).is_ok()
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

impl Drop for AgentSink {
    fn drop(&mut self) {
        if !self.answered {
            let refusal = Refusal::Internal("the controller dropped the request".to_owned());
            self.send(CommandReply::Refused(refusal));
        }
    }
}
