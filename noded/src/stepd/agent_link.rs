//! The link from a `stepd` to its node's agent: kept up with backoff for as long as the run lasts.

use crate::node::conversations::traced;
use garrick_frame::LinkKind;
use garrick_model::messages::stepd::{NodeToStepd, StepdToNode};
use garrick_runtime::TraceContext;
use garrick_transport::{Backoff, DoorConn, Sender};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The sending side. Clones share it; while the agent is away, and on a new connection until it is opened, messages are
/// dropped (reports are repeated by their owner).
#[derive(Clone, Default)]
pub struct AgentLink(Arc<Mutex<Option<Connection>>>);

struct Connection {
    sender: Sender<StepdToNode>,
    open: bool,
}

impl AgentLink {
    fn connection(&self) -> MutexGuard<'_, Option<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agent is there.
    pub fn is_up(&self) -> bool {
        self.connection().is_some()
    }

    /// From now on messages go over the newest connection: what its agent has to be told again comes next.
    pub fn open(&self) {
        if let Some(connection) = self.connection().as_mut() {
            connection.open = true;
        }
    }

    /// Sends if the agent is there.
    pub fn send(&self, message: StepdToNode) {
        if let Some(connection) = self.connection().as_ref().filter(|connection| connection.open)
            && let Err(e) = connection.sender.try_send(&traced(message))
        {
            tracing::debug!(error = %e, "a message to the agent was not sent");
        }
    }

    /// Keeps the link up. `hello` is said first on every connection; `deliver` gets what the agent says.
    pub async fn keep(self, door: PathBuf, hello: StepdToNode, mut deliver: impl FnMut(TraceContext, NodeToStepd)) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        loop {
            match DoorConn::connect(&door, LinkKind::NodeStepd, concat!("garrick ", env!("CARGO_PKG_VERSION"))).await {
                Ok(conn) => {
                    backoff.reset();
                    let (sender, mut orders) = conn.split::<StepdToNode, NodeToStepd>();
                    if sender.try_send(&traced(hello.clone())).is_ok() {
                        *self.connection() = Some(Connection { sender, open: false });
                        while let Ok(Some(order)) = orders.recv().await {
                            deliver(TraceContext { trace: order.trace, cause: order.cause }, order.msg);
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
