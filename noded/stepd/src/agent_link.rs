//! The link from a `stepd` to its node's agent: kept up with backoff as long as the run lasts.

use garrick_daemon::links::traced;
use garrick_frame::LinkKind;
use garrick_model::messages::stepd::{NodeToStepd, StepdToNode};
use garrick_runtime::{System, TraceContext};
use garrick_traces::answers::Traces;
use garrick_transport::{Backoff, DoorConn, Sender};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// The sending side. Clones share it; while the agent is away, and on a new connection until it is opened, messages are
/// dropped (reports are repeated by their owner).
#[derive(Clone, Default)]
pub struct AgentLink {
    connection: Arc<Mutex<Option<Connection>>>,
    /// The agent did not take a message: it is told again over another connection.
    missed: Arc<Notify>,
}

struct Connection {
    sender: Sender<StepdToNode>,
    open: bool,
}

impl AgentLink {
    fn connection(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is the agent connected?
    pub fn is_up(&self) -> bool {
        self.connection().is_some()
    }

    /// From now on messages go over the newest connection: what its agent has to be told again comes next.
    pub fn open(&self) {
        if let Some(connection) = self.connection().as_mut() {
            connection.open = true;
        }
    }

    /// Sends if the agent is connected.
    pub fn send(&self, message: StepdToNode) {
        if let Some(connection) = self.connection().as_ref().filter(|connection| connection.open)
            && let Err(e) = connection.sender.try_send(&traced(message))
        {
            tracing::warn!(error = %e, "the agent does not take what it is told: another connection is made");
            self.missed.notify_one();
        }
    }

    /// Keeps the link up. `hello` is sent first on every connection; `deliver` gets the agent's messages.
    pub async fn keep(self, door: PathBuf, hello: StepdToNode, mut deliver: impl FnMut(TraceContext, NodeToStepd)) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        loop {
            match DoorConn::connect(&door, LinkKind::NodeStepd, concat!("garrick ", env!("CARGO_PKG_VERSION"))).await {
                Ok(conn) => {
                    backoff.reset();
                    let (sender, mut orders) = conn.split::<StepdToNode, NodeToStepd>();
                    if sender.try_send(&traced(hello.clone())).is_ok() {
                        *self.connection() = Some(Connection { sender, open: false });
                        loop {
                            tokio::select! {
                                order = orders.recv() => match order {
                                    Ok(Some(order)) => {
                                        deliver(TraceContext { trace: order.trace, cause: order.cause }, order.msg);
                                    }
                                    _ => break,
                                },
                                () = self.missed.notified() => break,
                            }
                        }
                    }
                    *self.connection() = None;
                    tracing::info!("the node's agent is gone; going on without it");
                }
                Err(e) => tracing::debug!(error = %e, "the node's agent does not answer"),
            }
            let random = u32::try_from(garrick_model::ids::RequestId::random().0 & 0xffff_ffff).unwrap_or(0);
            tokio::time::sleep(backoff.next(random)).await;
        }
    }
}

/// Answers the agent's requests for this process's traces, which no actor here handles.
pub struct OwnTraces {
    traces: Traces,
    agent: AgentLink,
}

impl OwnTraces {
    /// Of that system; `process` is its name in traces.
    pub fn new(system: &System, process: &str, agent: &AgentLink) -> Self {
        Self { traces: Traces::new(system.clone(), process.to_owned()), agent: agent.clone() }
    }

    /// Answers an order that is about traces; gives back one that is not.
    pub fn take(&mut self, order: NodeToStepd) -> Option<NodeToStepd> {
        match order {
            NodeToStepd::Trace { query, prefixes, follow } => {
                let agent = self.agent.clone();
                let tell = move |records| agent.send(StepdToNode::Trace { query, records });
                self.traces.serve(query, prefixes, follow, tell);
                None
            }
            NodeToStepd::StopTrace { query } => {
                self.traces.stop(query);
                None
            }
            other => Some(other),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_frame::Traced;
    use garrick_kernel::scratch::Scratch;
    use garrick_model::ids::{JobId, Sluid};
    use garrick_transport::DoorListener;

    #[tokio::test(flavor = "current_thread")]
    async fn an_agent_that_takes_nothing_is_told_again_over_another_connection() {
        tokio::task::LocalSet::new()
            .run_until(async {
                let dir = Scratch::new("agent-link");
                let door = dir.join("n1.sock");
                let mut listener = DoorListener::bind(&door, "test").unwrap();
                let link = AgentLink::default();
                let hello = StepdToNode::Trace { query: 0, records: Vec::new() };
                tokio::task::spawn_local(link.clone().keep(door, hello.clone(), |_, _| {}));
                for _ in 0..2 {
                    let (_sender, mut said) = listener.accept().await.unwrap().split::<NodeToStepd, StepdToNode>();
                    let first: Traced<StepdToNode> = said.recv().await.unwrap().unwrap();
                    assert_eq!(first.msg, hello);
                    while !link.is_up() {
                        tokio::task::yield_now().await;
                    }
                    link.open();
                    // It says more and more, and this side reads nothing of it.
                    while link.is_up() {
                        link.send(StepdToNode::Hello {
                            job: JobId(1),
                            sluid: Sluid(1),
                            pid: 1,
                            door: "x".repeat(64 << 10),
                            batch_host: true,
                        });
                        tokio::task::yield_now().await;
                    }
                }
            })
            .await;
    }
}
