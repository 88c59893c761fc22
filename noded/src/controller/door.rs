//! The controller's door: commands of users on this host, nodes of this host that join, and relays to step managers.

use crate::{
    controller::{
        links::tell,
        names::{Names, questions_of},
    },
    daemon::guests::{self, Guests},
    node::{conversations::traced, relay},
};
use garrick_actors::controller::{env::Env, messages::ControllerMsg, ports::ReplySink};
use garrick_frame::{FrameError, LinkKind};
use garrick_model::{
    config::NodeConfig,
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
};
use garrick_runtime::{Address, TraceContext};
use garrick_transport::{DoorConn, DoorListener, Endpoint, JoinServer, LinkError, Sender, Sparing};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// What the door's tasks share.
#[derive(Clone)]
pub struct DoorWorld {
    /// Where requests go.
    pub front: Address<ControllerMsg>,
    /// For relays.
    pub endpoint: Arc<Endpoint>,
    /// Where nodes are.
    pub env: Arc<Env>,
    /// Who is who.
    pub names: Names,
    /// For nodes that join.
    pub join: Arc<JoinServer>,
    /// This host's name.
    pub host: String,
    /// Commands that are connected.
    pub guests: Guests,
}

/// Replies to one request.
pub struct DoorReplies {
    sender: Sender<CommandReply>,
    gone: Arc<AtomicBool>,
    answered: bool,
}

impl ReplySink for DoorReplies {
    fn send(&mut self, reply: CommandReply) -> bool {
        if self.is_gone() {
            return false;
        }
        self.answered = true;
        match self.sender.try_send(&traced(reply)) {
            Ok(()) => true,
            Err(LinkError::Frame { source: FrameError::TooLarge { size, limit }, .. }) => {
                let text = format!("the answer has {size} bytes, and {limit} fit into one: ask for less at a time");
                tracing::warn!(size, limit, "door.reply_too_large");
                self.sender.try_send(&traced(CommandReply::Refused(Refusal::Internal(text)))).is_ok()
            }
            Err(e) => {
                tracing::debug!(error = %e, "a command did not take its reply");
                false
            }
        }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

impl Drop for DoorReplies {
    fn drop(&mut self) {
        if !self.answered {
            let failed = Refusal::Internal("the controller failed while it handled this request; see its log".into());
            self.send(CommandReply::Refused(failed));
        }
    }
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
        LinkKind::Join => {
            if let Err(e) = world.join.serve_door(conn).await {
                tracing::warn!(error = %e, "a node on this host did not join");
            }
        }
        _ if relay::wants_relay(&conn.hello) => {
            let at = |node: &NodeConfig| format!("{}:{}", node.address, node.port);
            let known = |name: &str, _: &str| world.env.config().node(name).map(at);
            relay::outward(&world.endpoint, &world.guests, conn, &world.host, known).await;
        }
        other => conn.refuse(&format!("the controller's door does not serve {other:?}")),
    }
}

async fn command(conn: DoorConn, world: DoorWorld) {
    let Some(_guest) = world.guests.enter(conn.peer.uid) else { return guests::turn_away(conn).await };
    let caller = relay::caller_of(&conn, &world.host);
    let (sender, mut requests) = conn.split::<CommandReply, CommandRequest>();
    let gone = Arc::new(AtomicBool::new(false));
    loop {
        match requests.recv().await {
            Ok(Some(request)) => {
                let cx = TraceContext { trace: request.trace, cause: request.cause };
                let cx = if cx.trace == 0 { TraceContext::root() } else { cx };
                world.names.prepare(&questions_of(&caller, &request.msg)).await;
                let replies =
                    Box::new(DoorReplies { sender: sender.clone(), gone: Arc::clone(&gone), answered: false });
                tell(
                    &world.front,
                    cx,
                    ControllerMsg::Command { caller: caller.clone(), request: Box::new(request.msg), replies },
                )
                .await;
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
    gone.store(true, Ordering::Relaxed);
}
