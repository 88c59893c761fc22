//! The controller's door: commands of users on this host, nodes of this host that join, and relays to step managers. It has a
//! thread of its own, where users' messages are read and decoded, so that they do not delay those of nodes.

use super::{
    links::tell,
    names::{Names, questions_of},
    start::ControllerStartError,
    tokens,
};
use crate::{
    accounts::reach::Accounting,
    background::Background,
    guests::{self, Guests, UnderWay},
    relay,
};
use actix_rt::Arbiter;
use garrick_actors::controller::{
    frontend::{CROWDED, fair_queue},
    messages::ControllerMsg,
    shells::{env::Env, ports::ReplySink},
};
use garrick_daemon::links::{caller_of, traced};
use garrick_frame::{FrameError, LinkKind};
use garrick_model::{
    config::NodeConfig,
    messages::{
        command::{CommandReply, CommandRequest},
        encoded_bytes,
    },
    refusal::Refusal,
};
use garrick_runtime::{Address, TraceContext};
use garrick_transport::{DoorConn, DoorListener, Endpoint, JoinServer, LinkError, Sender, Sparing};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use tokio::sync::oneshot;

/// An open door. Dropped, it is closed, and its socket is gone.
pub struct Door {
    _thread: Background,
    /// Where it is told whom to serve; `None` once it was.
    world: Option<oneshot::Sender<DoorWorld>>,
}

/// What the door's tasks share.
#[derive(Clone)]
pub struct DoorWorld {
    /// Where requests go.
    pub frontend: Address<ControllerMsg>,
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
    /// Where accounting is.
    pub accounting: Accounting,
}

/// Replies to one request.
pub struct DoorReplies {
    sender: Sender<CommandReply>,
    gone: Arc<AtomicBool>,
    answered: bool,
    /// Until the request has come where users take turns.
    under_way: Option<UnderWay>,
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

    fn taken(&mut self) {
        self.under_way = None;
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

impl Door {
    /// Opens it on a thread of its own. Commands that come wait until it is served.
    pub async fn open(path: PathBuf) -> Result<Self, ControllerStartError> {
        let arbiter = Arbiter::new();
        let (bound, is_bound) = oneshot::channel();
        let (world, begins) = oneshot::channel();
        arbiter.spawn(async move {
            // Here, so that this thread hears of those who come.
            match DoorListener::bind(&path, concat!("garrick ", env!("CARGO_PKG_VERSION"))) {
                Ok(listener) => {
                    let told = bound.send(Ok(()));
                    if let (Ok(()), Ok(world)) = (told, begins.await) {
                        serve(listener, world).await;
                    }
                }
                Err(e) => drop(bound.send(Err(e))),
            }
        });
        let ended = |_| ControllerStartError::Thread(std::io::Error::other("the door's ended"));
        is_bound.await.map_err(ended)??;
        Ok(Self { _thread: Background::new("the door", arbiter), world: Some(world) })
    }

    /// Serves, until it is dropped or breaks.
    pub fn serve(&mut self, world: DoorWorld) {
        if self.world.take().is_none_or(|begin| begin.send(world).is_err()) {
            tracing::error!("the door's thread has ended");
        }
    }
}

/// Serves until the door breaks.
async fn serve(mut listener: DoorListener, world: DoorWorld) {
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
        LinkKind::CommandToAccounts => world.accounting.at_door(conn, &world.guests, &world.host).await,
        _ if relay::wants_relay(&conn.hello) => {
            let at = |node: &NodeConfig| format!("{}:{}", node.address, node.port);
            let known = |name: &str, _: &str| world.env.config().node(name).map(at);
            relay::outward(&world.endpoint, &world.guests, conn, &world.host, known).await;
        }
        other => conn.refuse(&format!("the controller's door does not serve {other:?}")),
    }
}

async fn command(conn: DoorConn, world: DoorWorld) {
    let Some(guest) = world.guests.enter(conn.peer.uid) else { return guests::turn_away(conn).await };
    let caller = caller_of(&conn, &world.host);
    let (sender, mut requests) = conn.split::<CommandReply, CommandRequest>();
    let gone = Arc::new(AtomicBool::new(false));
    loop {
        match requests.recv().await {
            Ok(Some(mut request)) => {
                let cx = TraceContext { trace: request.trace, cause: request.cause };
                let cx = if cx.trace == 0 { TraceContext::root() } else { cx };
                let mut caller = caller.clone();
                tokens::take_off(&mut caller, &mut request.msg, &world.env.config(), &world.names).await;
                world.names.prepare(&questions_of(&caller, &request.msg)).await;
                let (bytes, request) = (encoded_bytes(&request.msg), Box::new(request.msg));
                let under_way = guest.set_out(fair_queue::goes_ahead(&request), bytes).await;
                let crowded = under_way.is_none();
                let (sender, gone) = (sender.clone(), Arc::clone(&gone));
                let mut replies = Box::new(DoorReplies { sender, gone, answered: false, under_way });
                if crowded {
                    tracing::debug!(uid = caller.uid, "command.turned_away");
                    replies.send(CommandReply::Refused(Refusal::RetryAfter { after: CROWDED }));
                } else {
                    tell(&world.frontend, cx, ControllerMsg::command(caller, request, bytes, replies)).await;
                }
                // Of a connection on which many have arrived one is read, and then others have their turn.
                tokio::task::yield_now().await;
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
