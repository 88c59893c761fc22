//! The link to the controller: it is kept up with backoff, and its messages are passed to the agent.

use super::{membership::Membership, peers::PeerWorld};
use crate::node::conversations::tell_agent;
use garrick_agent::{AgentInput, StartOrder};
use garrick_frame::LinkKind;
use garrick_model::messages::node::{ControllerToNode, NodeToController};
use garrick_runtime::TraceContext;
use garrick_transport::{
    Connection, Endpoint, Reconnect, ReconnectEvent,
    identity::{ExpectPeer, Role},
};
use std::{sync::Arc, time::Duration};

/// How often a node looks whether its certificate is to be renewed.
const LOOK: Duration = Duration::from_secs(600);

/// Serves for the life of the process.
pub async fn serve(endpoint: Arc<Endpoint>, address: String, world: PeerWorld) {
    let program = concat!("garrick ", env!("CARGO_PKG_VERSION"));
    let expect = ExpectPeer { role: Role::Controller, name: None };
    let mut link = Reconnect::new(endpoint, &address, LinkKind::ControllerNode, program, expect);
    let mut said = String::new();
    loop {
        match link.next().await {
            ReconnectEvent::Up(connection) => {
                said.clear();
                tracing::info!(controller = %connection.peer, address, "connected to the controller");
                converse(*connection, &world).await;
            }
            ReconnectEvent::Down { reason, .. } => {
                // One line for a cause, however often it is tried.
                let reason = reason.to_string();
                if reason != said {
                    tracing::warn!(address, "no controller: {reason}; trying on");
                    said = reason;
                }
            }
        }
    }
}

async fn converse(mut connection: Connection, world: &PeerWorld) {
    let handle = connection.handle();
    let (sender, mut frames) = connection.split::<NodeToController, ControllerToNode>();
    let number = world.conversations.number();
    world.conversations.controller_up(number, sender);
    tell_agent(&world.agent, TraceContext::root(), AgentInput::ControllerUp);
    let mut looks = tokio::time::interval(LOOK);
    loop {
        let arrived = tokio::select! {
            arrived = frames.recv() => arrived,
            _ = looks.tick() => {
                if world.membership.is_due() && let Some(asked) = world.membership.ask() {
                    world.conversations.tell_controller(asked);
                }
                continue;
            }
        };
        match arrived {
            Ok(Some(frame)) => {
                let cx = TraceContext { trace: frame.trace, cause: frame.cause };
                if Membership::concerns(&frame.msg) {
                    if let Some(answer) = world.membership.told(frame.msg) {
                        world.conversations.tell_controller(answer);
                    }
                    continue;
                }
                if let ControllerToNode::Welcome { credential_key, .. } = &frame.msg {
                    world.trust_key(credential_key);
                    world.conversations.tell_controller(world.membership.holds());
                }
                let input = match frame.msg {
                    ControllerToNode::StartJob(launch) => {
                        let credential = world.check(&launch.credential);
                        AgentInput::StartJob(StartOrder { launch, credential })
                    }
                    other => AgentInput::Controller(other),
                };
                tell_agent(&world.agent, cx, input);
            }
            Ok(None) => break,
            Err(e) => {
                tracing::warn!(error = %e, "the link to the controller broke off");
                break;
            }
        }
    }
    handle.close("reconnecting");
    if world.conversations.controller_gone(number) {
        tell_agent(&world.agent, TraceContext::root(), AgentInput::ControllerGone);
    }
}
