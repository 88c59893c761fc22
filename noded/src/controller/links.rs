//! QUIC connections of the nodes' agents to the controller. (The endpoint answers nodes that want to join.)

use garrick_actors::{
    controller::{
        frontend::{CROWDED, messages::FrontendInput},
        messages::ControllerMsg,
        shells::{
            env::Env,
            ports::{AgentLink, LinkClosed},
        },
    },
    messages::node::Registration,
};
use garrick_frame::{LinkKind, Traced};
use garrick_model::{
    messages::{
        command::{CommandReply, CommandRequest},
        node::{ControllerToNode, NodeToController},
    },
    refusal::Refusal,
};
use garrick_runtime::{Address, Lane, SendError, TraceContext};
use garrick_transport::{Class, Connection, Endpoint, LinkError, LinkHandle, Sender, Sparing, identity::Role};
use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    names::{Names, questions_of},
    tokens,
    trust::{Trust, TrustOrder, later},
};
use crate::{accounts::reach::Accounting, guests::Guests};
use garrick_daemon::links::traced;
use tokio::sync::{Semaphore, broadcast::error::RecvError, mpsc};

/// The sending side of a link to an agent.
struct Link {
    sender: Sender<ControllerToNode>,
    handle: LinkHandle,
}

impl AgentLink for Link {
    fn send(&self, frame: ControllerToNode) -> Result<(), LinkClosed> {
        let class = match frame {
            ControllerToNode::Ping { .. } | ControllerToNode::EndJob { .. } | ControllerToNode::Shutdown => {
                Class::Control
            }
            ControllerToNode::Trace { .. } | ControllerToNode::StopTrace { .. } => Class::Trace,
            _ => Class::Request,
        };
        self.sender.try_send_on(class, &traced(frame)).map_err(|e| {
            // What the agent misses now it is told only when it registers again: an acknowledgement, the end of a run.
            if matches!(e, LinkError::Busy { .. }) && class != Class::Trace {
                tracing::warn!(error = %e, "an agent does not take what it is sent: its link is closed");
                self.handle.close("its queue is full");
            }
            tracing::debug!(error = %e, "a frame to an agent was not sent");
            LinkClosed
        })
    }

    fn close(&self) {
        self.handle.close("the controller has a newer connection of this node");
    }
}

/// What connections need of the controller.
#[derive(Clone)]
pub struct Served {
    /// Where nodes are.
    pub env: Arc<Env>,
    /// Who is who.
    pub names: Names,
    /// Certificates.
    pub trust: Arc<Trust>,
    /// Where accounting is.
    pub accounting: Accounting,
    /// Commands that are connected, also those by way of nodes.
    pub guests: Guests,
}

/// Serves until the endpoint is closed.
pub async fn serve(endpoint: Arc<Endpoint>, frontend: Address<ControllerMsg>, served: Served) {
    let numbers = Arc::new(AtomicU64::new(1));
    while let Some(arrived) = endpoint.accept().await {
        match arrived {
            Ok(connection) => {
                let (frontend, served) = (frontend.clone(), served.clone());
                if (connection.link, connection.peer.role) == (LinkKind::CommandToAccounts, Role::Node) {
                    actix_rt::spawn(async move {
                        let config = served.env.config();
                        served.accounting.from_node(connection, &served.guests, &config).await;
                    });
                    continue;
                }
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                actix_rt::spawn(converse(connection, number, (frontend, served.env, served.names), served.trust));
            }
            Err(e) => {
                static TURNED_AWAY: Sparing = Sparing::new();
                if let Some(left_out) = TURNED_AWAY.due(Instant::now()) {
                    tracing::warn!(error = %e, left_out, "a peer was turned away");
                }
            }
        }
    }
}

/// How long whoever has something for the frontend waits where too much is before it.
const ROOM_PAUSE: Duration = Duration::from_millis(2);

/// Hands a message to the frontend; its inputs all keep their order. Where the frontend has too many it is given back.
pub fn try_tell(frontend: &Address<ControllerMsg>, cx: TraceContext, message: ControllerMsg) -> Option<ControllerMsg> {
    match frontend.deliver(cx, Lane::Control, message) {
        Ok(()) => None,
        Err(SendError::Full(message)) => Some(message),
        Err(e) => {
            // It has ended, with the process about to.
            tracing::debug!(error = %e, "the controller does not take messages");
            None
        }
    }
}

/// As [`try_tell`], and waits until there is room. Whoever sends on the connection behind it waits too.
pub async fn tell(frontend: &Address<ControllerMsg>, cx: TraceContext, mut message: ControllerMsg) {
    while let Some(back) = try_tell(frontend, cx, message) {
        message = back;
        tokio::time::sleep(ROOM_PAUSE).await;
    }
}

/// Tells a node of certificates what concerns it. An error: its link is to be closed.
fn carry_out(
    order: Result<TrustOrder, RecvError>,
    node: &str,
    link: &Sender<ControllerToNode>,
    trust: &Trust,
) -> Result<(), &'static str> {
    let frame = match order {
        _ if trust.is_barred(node) => return Err("its certificate was revoked"),
        Ok(TrustOrder::Revoked(list)) => ControllerToNode::Revoked { list },
        Ok(TrustOrder::Renew(nodes)) if nodes.is_empty() || nodes.iter().any(|one| one == node) => {
            ControllerToNode::RenewCertificate
        }
        Ok(TrustOrder::Renew(_)) => return Ok(()),
        Err(_) => return Err("it missed what it was to be told of certificates"),
    };
    link.try_send(&traced(frame)).map_err(|_| "it does not take what it is sent")
}

/// Commands whose user is asked for at a time; where there are more, they are handed over as they are, and told to come back
/// if that matters. Those with a token are not handed over then: they come back.
const MOST_ASKED_FOR: usize = 256;

/// Hands a command over once the name service said what it will need, or had its time. What else the agent says goes on.
fn tell_prepared(
    frontend: &Address<ControllerMsg>,
    names: &Names,
    env: &Arc<Env>,
    link: &Sender<ControllerToNode>,
    cx: TraceContext,
    mut message: ControllerMsg,
) -> Option<ControllerMsg> {
    static TURNS: Semaphore = Semaphore::const_new(MOST_ASKED_FOR);
    let ControllerMsg::Input(FrontendInput::AgentSaid { message: command, .. }) = &message else {
        return Some(message);
    };
    let NodeToController::Command { query, caller, request } = &**command else { return Some(message) };
    if matches!(**request, CommandRequest::WithToken { .. }) {
        let Ok(turn) = TURNS.try_acquire() else {
            let reply = CommandReply::Refused(Refusal::RetryAfter { after: CROWDED });
            // A link that has gone is noticed by whoever reads next.
            let _ = link.try_send(&traced(ControllerToNode::CommandReply { query: *query, reply }));
            return None;
        };
        let (frontend, names, config) = (frontend.clone(), names.clone(), env.config());
        actix_rt::spawn(async move {
            if let ControllerMsg::Input(FrontendInput::AgentSaid { message: command, .. }) = &mut message
                && let NodeToController::Command { caller, request, .. } = &mut **command
            {
                tokens::take_off(caller, request, &config, &names).await;
                names.prepare(&questions_of(caller, request)).await;
            }
            drop(turn);
            tell(&frontend, cx, message).await;
        });
        return None;
    }
    let questions = questions_of(caller, request);
    if names.are_fresh(&questions) {
        return Some(message);
    }
    let Ok(turn) = TURNS.try_acquire() else { return Some(message) };
    let (frontend, names) = (frontend.clone(), names.clone());
    actix_rt::spawn(async move {
        names.prepare(&questions).await;
        drop(turn);
        tell(&frontend, cx, message).await;
    });
    None
}

/// What a node says of certificates and is not answered yet.
const MOST_OF_CERTIFICATES: usize = 4;

/// Answers what a node says of certificates, one after the other, while its link goes on: what the authority does waits for the log.
async fn of_certificates(
    node: String,
    mut asked: mpsc::Receiver<NodeToController>,
    link: Sender<ControllerToNode>,
    trust: Arc<Trust>,
) {
    while let Some(said) = asked.recv().await {
        let (name, at_authority) = (node.clone(), Arc::clone(&trust));
        let answer = tokio::task::spawn_blocking(move || match said {
            NodeToController::Renew { request } => at_authority.renew(&name, &request).map(Some),
            NodeToController::Holds { issuer, trusted } => {
                Ok(at_authority.hear(&name, issuer, trusted).then_some(ControllerToNode::RenewCertificate))
            }
            _ => Ok(None),
        });
        match answer.await {
            // A link that has gone is noticed by whoever reads next.
            Ok(Ok(Some(answer))) => drop(link.try_send(&traced(answer))),
            Ok(Ok(None)) => {}
            Ok(Err(e)) => {
                tracing::warn!(node, error = %e, "a node asked for a certificate");
                if let Some(after) = later(&e) {
                    tokio::time::sleep(after).await;
                    let _ = link.try_send(&traced(ControllerToNode::RenewCertificate));
                }
            }
            Err(e) => tracing::error!(node, error = %e, "a node asked for a certificate"),
        }
    }
}

async fn converse(
    mut connection: Connection,
    number: u64,
    (frontend, env, names): (Address<ControllerMsg>, Arc<Env>, Names),
    trust: Arc<Trust>,
) {
    if connection.link != LinkKind::ControllerNode || connection.peer.role != Role::Node {
        tracing::warn!(peer = %connection.peer, link = ?connection.link, "a peer wanted what it may not have here");
        return connection.close("the controller serves node agents on this port");
    }
    let node = connection.peer.name.clone();
    let handle = connection.handle();
    let address = match connection.remote.ip().to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let (sender, mut frames) = connection.split::<ControllerToNode, NodeToController>();
    let first = match frames.recv().await {
        Ok(Some(first)) => first,
        Ok(None) => return,
        Err(e) => return tracing::warn!(node, error = %e, "an agent's first message"),
    };
    let NodeToController::Register { node: said, facts, runs, released, incarnation, load, joining } = first.msg else {
        return handle.close("the first message must be a registration");
    };
    if said != node {
        tracing::warn!(node, said, "an agent registered under a name that its certificate does not have");
        return handle.close("the name does not match the certificate");
    }
    let mut orders = trust.orders();
    let own = sender.clone();
    if let Some(revoked) = trust.revoked() {
        // A link that has gone is noticed by whoever reads next.
        let _ = own.try_send(&traced(revoked));
    }
    let (desk, asked) = mpsc::channel(MOST_OF_CERTIFICATES);
    actix_rt::spawn(of_certificates(node.clone(), asked, own.clone(), Arc::clone(&trust)));
    let link: Arc<dyn AgentLink> = Arc::new(Link { sender, handle: handle.clone() });
    let cx = TraceContext { trace: first.trace, cause: first.cause };
    let registration = Box::new(Registration {
        conn: number,
        facts: *facts,
        runs,
        released,
        incarnation,
        load,
        address: Some(address.clone()),
    });
    let joining = joining.map(|joining| (joining, address));
    let connected = ControllerMsg::agent_connected(node.clone(), registration, link, joining);
    tell(&frontend, if cx.trace == 0 { TraceContext::root() } else { cx }, connected).await;
    loop {
        let arrived = tokio::select! {
            arrived = frames.recv() => arrived,
            order = orders.recv() => match carry_out(order, &node, &own, &trust) {
                Ok(()) => continue,
                Err(why) => {
                    tracing::warn!(node, why, "a node is cut off");
                    handle.close(why);
                    break;
                }
            },
        };
        match arrived {
            Ok(Some(Traced {
                msg: msg @ (NodeToController::Renew { .. } | NodeToController::Holds { .. }), ..
            })) => {
                if desk.try_send(msg).is_err() {
                    tracing::warn!(node, "a node asks for certificates faster than it gets them");
                }
            }
            Ok(Some(frame)) => {
                let cx = TraceContext { trace: frame.trace, cause: frame.cause };
                let message = Box::new(frame.msg);
                if matches!(*message, NodeToController::Heartbeat { .. }) {
                    env.heartbeat(cx, &node, number, message);
                    continue;
                }
                let message = ControllerMsg::agent_message(node.clone(), number, message);
                if let Some(message) = tell_prepared(&frontend, &names, &env, &own, cx, message) {
                    tell(&frontend, cx, message).await;
                }
            }
            Ok(None) => break,
            Err(e) => {
                tracing::info!(node, error = %e, "the link to an agent ended");
                break;
            }
        }
    }
    handle.close("over");
    tell(&frontend, TraceContext::root(), ControllerMsg::agent_gone(node, number)).await;
}
