//! The node's door: commands of users on this host, the `stepd`s of its runs, and relays to step managers elsewhere.

use super::{neighbours::Neighbours, records_link::RecordsWorld};
use crate::{
    accounts::relay::through_controller,
    guests::{self, Guests},
    node::conversations::{Conversations, tell_agent},
    relay,
};
use garrick_agent::{AgentInput, AgentMsg, RunKey};
use garrick_daemon::links::caller_of;
use garrick_frame::LinkKind;
use garrick_kernel::users;
use garrick_model::messages::{
    command::{CommandReply, CommandRequest},
    stepd::{NodeToStepd, StepdToNode},
};
use garrick_runtime::{Address, TraceContext};
use garrick_transport::{DoorConn, DoorListener, Endpoint, Sparing};
use std::{sync::Arc, time::Instant};

/// What the door's tasks share.
#[derive(Clone)]
pub struct DoorWorld {
    /// Where inputs go.
    pub agent: Address<AgentMsg>,
    /// Open connections.
    pub conversations: Arc<Conversations>,
    /// For relays.
    pub endpoint: Arc<Endpoint>,
    /// Where other nodes are.
    pub neighbours: Neighbours,
    /// This node's name.
    pub node: String,
    /// Commands that are connected.
    pub guests: Guests,
    /// Records of steps.
    pub records: RecordsWorld,
    /// `host:port` of the controller.
    pub controller: Arc<str>,
}

/// Serves until the door breaks.
pub async fn serve(mut listener: DoorListener, world: DoorWorld) {
    loop {
        match listener.accept().await {
            Ok(conn) => {
                let world = world.clone();
                actix_rt::spawn(async move { converse(conn, world).await });
            }
            Err(e) => {
                tracing::error!(error = %e, "the door is broken");
                return;
            }
        }
    }
}

async fn converse(conn: DoorConn, world: DoorWorld) {
    match conn.hello.link {
        LinkKind::CommandToDaemon => command(conn, world).await,
        LinkKind::NodeStepd => stepd(conn, world).await,
        LinkKind::CommandToRecords if relay::is_for(&conn.hello, &world.node) => {
            let Some(_guest) = world.guests.enter(conn.peer.uid) else {
                return conn.refuse("busy: too many connections of this user are open, try again");
            };
            let caller = caller_of(&conn, &world.node);
            world.records.at_door(conn, caller).await;
        }
        LinkKind::CommandToAccounts => {
            through_controller(conn, &world.guests, &world.endpoint, &world.node, &world.controller).await;
        }
        _ if relay::wants_relay(&conn.hello) => {
            let known = |name: &str, said: &str| world.neighbours.address(name, said);
            relay::outward(&world.endpoint, &world.guests, conn, &world.node, known).await;
        }
        other => conn.refuse(&format!("a node agent's door does not serve {other:?}")),
    }
}

async fn command(conn: DoorConn, world: DoorWorld) {
    let Some(_guest) = world.guests.enter(conn.peer.uid) else { return guests::turn_away(conn).await };
    let caller = caller_of(&conn, &world.node);
    let (replies, mut requests) = conn.split::<CommandReply, CommandRequest>();
    let mut open = Vec::new();
    loop {
        match requests.recv().await {
            Ok(Some(request)) => {
                let query = world.conversations.number();
                open.push(query);
                world.conversations.command_up(query, replies.clone());
                let cx = TraceContext { trace: request.trace, cause: request.cause };
                let cx = if cx.trace == 0 { TraceContext::root() } else { cx };
                let input = AgentInput::Command { query, caller: caller.clone(), request: Box::new(request.msg) };
                tell_agent(&world.agent, cx, input);
            }
            Ok(None) => break,
            Err(e) => {
                static NOT_UNDERSTOOD: Sparing = Sparing::new();
                let (uid, pid) = (caller.uid, caller.pid);
                if let Some(left_out) = NOT_UNDERSTOOD.due(Instant::now()) {
                    tracing::warn!(uid, pid, error = %e, left_out, "a command's request was not understood");
                }
                break;
            }
        }
    }
    for query in open {
        world.conversations.command_gone(query);
        tell_agent(&world.agent, TraceContext::root(), AgentInput::CommandGone { query });
    }
}

async fn stepd(conn: DoorConn, world: DoorWorld) {
    let own = users::effective_uid();
    if conn.peer.uid != own && conn.peer.uid != 0 {
        tracing::warn!(uid = conn.peer.uid, pid = conn.peer.pid, "somebody else's process posed as a stepd");
        return conn.refuse("only this daemon's own stepds are served here");
    }
    let (number, pid) = (world.conversations.number(), u32::try_from(conn.peer.pid).unwrap_or(0));
    let (orders, mut messages) = conn.split::<NodeToStepd, StepdToNode>();
    let Ok(Some(first)) = messages.recv().await else { return };
    let StepdToNode::Hello { job, sluid, door, batch_host, .. } = first.msg else {
        return tracing::warn!("a stepd did not begin with its name");
    };
    let run = RunKey { job, sluid };
    world.conversations.stepd_up(run, number, orders);
    let up = AgentInput::StepdUp { run, conn: number, pid, door, batch_host };
    tell_agent(&world.agent, TraceContext::root(), up);
    while let Ok(Some(message)) = messages.recv().await {
        let cx = TraceContext { trace: message.trace, cause: message.cause };
        tell_agent(&world.agent, cx, AgentInput::Stepd { run, conn: number, message: message.msg });
    }
    world.conversations.stepd_gone(run, number);
    tell_agent(&world.agent, TraceContext::root(), AgentInput::StepdGone { run, conn: number });
}
