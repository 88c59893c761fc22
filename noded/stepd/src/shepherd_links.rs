//! The shepherds of other nodes, on the batch host: started through their agents, connected to this process's endpoint.
//!
//! A shepherd whose connection breaks is away: the same process, or a new one that its agent started, may come back within
//! [`SHEPHERD_AWAY_LIMIT`]. Meanwhile its agent is asked. When the agent says that the run is over there, or the time is up, the
//! shepherd is lost.

use super::{
    door::converse,
    link_end::LinkEnd,
    manager_port::{Clients, tell_manager},
};
use garrick_daemon::links::{RelayHeader, traced};
use garrick_frame::{LinkKind, Traced, limits};
use garrick_model::{
    messages::{
        files::FileStop,
        node::{AgentToStepMgr, JobCredential, JobLaunch, StepMgrToAgent},
        shepherd::{ShepherdToStepMgr, StepMgrToShepherd, StepStart},
        shepherd_link::LinkFrame,
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    refusal::Refusal,
    state::ExitStatus,
};
use garrick_run::{
    step::NodeSlot,
    stepmgr::{StepMgrInput, StepMgrMsg},
};
use garrick_runtime::{Address, TraceContext};
use garrick_transport::{
    Connection, Endpoint, LinkError, LinkHandle, Receiver, Sender,
    identity::{ExpectPeer, Role},
};
use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Duration};
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

/// How long a node's prolog and the start of its `stepd` may take before the step manager gives up on the node. Prologs
/// that stage data take minutes; the job's own time limit is the other bound.
const START_LIMIT: Duration = Duration::from_secs(600);
/// A shepherd that did not come back in this time is lost: what ran there counts as ended, and may run again elsewhere where
/// that was asked for. Its tasks can outlive that: a shepherd that comes back later is told to end everything, and one that
/// does not ends it after [`crate::manager_link::MANAGER_AWAY_LIMIT`].
pub const SHEPHERD_AWAY_LIMIT: Duration = Duration::from_secs(30);
/// The agent of a node whose shepherd is away is asked this often.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Agents that cannot be reached are tried for so long: one that is being started again, or whose link is cut for a moment, is
/// no reason to lose the job. As long as shepherds try to come back by themselves.
const RETURN_LIMIT: Duration = crate::manager_link::MANAGER_AWAY_LIMIT;
/// Pause between two such attempts.
const RETURN_PAUSE: Duration = Duration::from_secs(1);

/// Where a shepherd is.
enum Standing {
    /// Not seen yet, or lost.
    Apart,
    /// Connected, over a connection with this number.
    Here { number: u64, handle: LinkHandle },
    /// Away; the task waits for its return.
    Away(AbortHandle),
}

struct Peer {
    end: LinkEnd<StepMgrToShepherd>,
    standing: Standing,
    /// It said that nothing of the job is left there.
    gone: bool,
}

/// The links.
pub struct ShepherdLinks {
    endpoint: Option<Arc<Endpoint>>,
    /// What other nodes are told: the launch order without the script.
    launch: JobLaunch,
    credential: JobCredential,
    /// `host:port` at which this process's endpoint is reached.
    own_address: String,
    peers: RefCell<HashMap<NodeSlot, Peer>>,
}

impl ShepherdLinks {
    /// For a run; `endpoint` is `None` for one with a single node.
    pub fn new(
        endpoint: Option<Arc<Endpoint>>,
        launch: &JobLaunch,
        credential: &JobCredential,
        own_address: String,
    ) -> Self {
        let mut launch = launch.clone();
        let mut spec = (*launch.spec).clone();
        spec.script = None;
        spec.environment = Arc::default();
        launch.spec = Arc::new(spec);
        Self { endpoint, launch, credential: credential.clone(), own_address, peers: RefCell::default() }
    }

    /// Says a message to a shepherd, now or when it comes back; one that was never there or is lost does not hear it.
    pub fn send(&self, node: NodeSlot, message: StepMgrToShepherd) {
        match self.peers.borrow().get(&node) {
            Some(Peer { end, standing: Standing::Here { .. } | Standing::Away(_), .. }) => end.send(message),
            _ => tracing::debug!(node = node.0, "a message to a shepherd that is not there"),
        }
    }

    /// Asks a node's agent to start a shepherd, or for the one that it has; the answer goes to the step manager.
    pub fn start(self: &Rc<Self>, node: NodeSlot, again: bool, manager: &Address<StepMgrMsg>) {
        let (links, manager) = (Rc::clone(self), manager.clone());
        actix_rt::spawn(async move {
            let result = match links.start_or_find(node, again).await {
                Ok(()) => links.await_coming(node).await,
                refused => refused,
            };
            tell_manager(&manager, TraceContext::root(), StepMgrInput::ShepherdStart { node, result });
        });
    }

    /// After a restart of the step manager a shepherd may be there already.
    async fn start_or_find(&self, node: NodeSlot, again: bool) -> Result<(), Refusal> {
        let until = Instant::now() + RETURN_LIMIT;
        loop {
            if self.is_here(node) {
                return Ok(());
            }
            // One that was here meanwhile is not begun anew.
            let again = again || self.peers.borrow().contains_key(&node);
            match self.ask(node, again, START_LIMIT).await {
                Err(Refusal::Unreachable(_, why)) if Instant::now() < until => {
                    tracing::info!(node = node.0, "asking its agent for a shepherd again: {why}");
                    sleep(RETURN_PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    /// One that its agent has is on its way here, and may end before it comes: when the job is ended just as its step manager
    /// is replaced, the agents tell the shepherds, and none of them says so here.
    async fn await_coming(&self, node: NodeSlot) -> Result<(), Refusal> {
        let (mut heard, mut pause) = (Instant::now(), RETURN_PAUSE);
        loop {
            sleep(pause).await;
            pause = ASK_AGAIN;
            if self.peers.borrow().contains_key(&node) {
                return Ok(());
            }
            match self.ask(node, true, START_LIMIT).await {
                Ok(()) => heard = Instant::now(),
                Err(Refusal::Unreachable(..)) if heard.elapsed() < RETURN_LIMIT => {}
                Err(refusal) => return Err(refusal),
            }
        }
    }

    fn is_here(&self, node: NodeSlot) -> bool {
        matches!(self.peers.borrow().get(&node), Some(Peer { standing: Standing::Here { .. }, .. }))
    }

    /// Has the node's agent start a shepherd, unless the run has one there; `again`: unless it had one there.
    async fn ask(&self, node: NodeSlot, again: bool, limit: Duration) -> Result<(), Refusal> {
        let at = node.0 as usize;
        let place = self.credential.addresses.get(at).zip(self.credential.nodes.get(at));
        let (Some(endpoint), Some((address, allocated))) = (&self.endpoint, place) else {
            return Err(Refusal::Internal("the allocation has no such node".into()));
        };
        let (launch, own) = (Box::new(self.launch.clone()), self.own_address.clone());
        match timeout(limit, ask(endpoint, address, &allocated.name, launch, own, again)).await {
            Ok(answer) => answer,
            Err(_) => Err(Refusal::Unreachable(allocated.name.clone(), "its agent did not answer in time".into())),
        }
    }

    /// Where another `stepd` reaches that of a node: at the node's address, and the port over which it is connected here.
    pub fn stop(&self, node: NodeSlot) -> FileStop {
        let at = node.0 as usize;
        let name = self.credential.nodes.get(at).map(|n| n.name.clone()).unwrap_or_default();
        let host =
            self.credential.addresses.get(at).and_then(|address| address.rsplit_once(':')).map_or("", |(host, _)| host);
        let port = match self.peers.borrow().get(&node) {
            Some(Peer { standing: Standing::Here { handle, .. }, .. }) => handle.remote_address().port(),
            _ => 0,
        };
        FileStop { node: name, address: format!("{host}:{port}") }
    }

    /// Nodes whose shepherd is connected.
    pub fn connected(&self) -> Vec<NodeSlot> {
        self.peers.borrow().keys().copied().filter(|node| self.is_here(*node)).collect()
    }

    fn slot(&self, name: &str) -> Option<NodeSlot> {
        let place = self.credential.nodes.iter().position(|n| n.name == name)?;
        u32::try_from(place).ok().map(NodeSlot)
    }

    /// A shepherd registered over a connection; gives its end of the link and the number of the connection.
    fn arrived(
        &self,
        node: NodeSlot,
        arrival: Arrival,
        handle: &LinkHandle,
        manager: &Address<StepMgrMsg>,
    ) -> (LinkEnd<StepMgrToShepherd>, u64) {
        let mut peers = self.peers.borrow_mut();
        let peer = peers.entry(node).or_insert_with(|| Peer {
            end: LinkEnd::new(unsendable(node, manager.clone())),
            standing: Standing::Apart,
            gone: false,
        });
        let number = garrick_model::ids::RequestId::random().0;
        let here = Standing::Here { number, handle: handle.clone() };
        match std::mem::replace(&mut peer.standing, here) {
            Standing::Apart => {}
            Standing::Away(waiting) => waiting.abort(),
            // It noticed the end of that connection before this side did.
            Standing::Here { handle, .. } => {
                handle.close("there is a newer connection");
                let detail = "it connected again".into();
                tell_manager(manager, TraceContext::root(), StepMgrInput::ShepherdAway { node, detail });
            }
        }
        let begin = peer.end.begin();
        // The writer's first frame comes behind it.
        if let Err(e) = arrival.sender.try_send(&Traced::untraced(begin)) {
            tracing::debug!(error = %e, "a shepherd's connection takes nothing");
        }
        peer.end.connected(arrival.sender, arrival.session, arrival.known, arrival.seen);
        (peer.end.clone(), number)
    }

    /// A connection ended. Unless a newer one took its place, its shepherd is away, or lost when it had said that it is done.
    fn departed(self: &Rc<Self>, node: NodeSlot, number: u64, detail: String, manager: &Address<StepMgrMsg>) {
        let mut peers = self.peers.borrow_mut();
        let Some(peer) = peers.get_mut(&node) else { return };
        if !matches!(peer.standing, Standing::Here { number: n, .. } if n == number) {
            return;
        }
        peer.end.disconnected();
        if peer.gone {
            peer.standing = Standing::Apart;
            let detail = "it is done".into();
            return tell_manager(manager, TraceContext::root(), StepMgrInput::ShepherdLost { node, detail });
        }
        tracing::warn!(node = node.0, "a shepherd is away: {detail}");
        let (links, told) = (Rc::clone(self), manager.clone());
        let waiting = actix_rt::spawn(async move {
            let detail = links.await_return(node).await;
            if let Some(peer) = links.peers.borrow_mut().get_mut(&node) {
                peer.standing = Standing::Apart;
                peer.end.start_over();
            }
            tell_manager(&told, TraceContext::root(), StepMgrInput::ShepherdLost { node, detail });
        });
        peer.standing = Standing::Away(waiting.abort_handle());
        tell_manager(manager, TraceContext::root(), StepMgrInput::ShepherdAway { node, detail });
    }

    /// Ends, with the reason, when a shepherd that is away will not come back.
    async fn await_return(&self, node: NodeSlot) -> String {
        let deadline = Instant::now() + SHEPHERD_AWAY_LIMIT;
        loop {
            let pause = ASK_AGAIN.min(deadline.saturating_duration_since(Instant::now()));
            if pause.is_zero() {
                return format!("it was away for {} s", SHEPHERD_AWAY_LIMIT.as_secs());
            }
            match self.ask(node, true, pause).await {
                Ok(()) | Err(Refusal::Unreachable(..)) => sleep(pause).await,
                Err(refusal) => return format!("its node says: {refusal}"),
            }
        }
    }

    fn said_gone(&self, node: NodeSlot) {
        if let Some(peer) = self.peers.borrow_mut().get_mut(&node) {
            peer.gone = true;
        }
    }
}

/// What a shepherd's first frames were.
struct Arrival {
    sender: Sender<LinkFrame<StepMgrToShepherd>>,
    session: u64,
    known: u64,
    seen: u64,
}

/// A step whose description is too large for the link fails on that node, and says why.
fn unsendable(node: NodeSlot, manager: Address<StepMgrMsg>) -> impl Fn(&StepMgrToShepherd, LinkError) + 'static {
    move |message, error| {
        tracing::error!(node = node.0, error = %error, "a message to a shepherd cannot be sent");
        let StepMgrToShepherd::Launch(start) = message else { return };
        let StepStart { step, tasks, .. } = start.as_ref();
        for task in tasks {
            let message = ShepherdToStepMgr::TaskFailed {
                step: *step,
                rank: task.rank,
                message: format!("it cannot be sent to its node: {error}"),
                status: ExitStatus { code: 1, signal: None },
                unknown: false,
                untried: false,
            };
            tell_manager(&manager, TraceContext::root(), StepMgrInput::Shepherd { node, message });
        }
        let message = ShepherdToStepMgr::StepGone { step: *step };
        tell_manager(&manager, TraceContext::root(), StepMgrInput::Shepherd { node, message });
    }
}

async fn ask(
    endpoint: &Endpoint,
    address: &str,
    node: &str,
    launch: Box<JobLaunch>,
    manager: String,
    again: bool,
) -> Result<(), Refusal> {
    let unreachable = |e: String| Refusal::Unreachable(node.to_owned(), e);
    let expect = ExpectPeer { role: Role::Node, name: Some(node.to_owned()) };
    let program = concat!("garrick ", env!("CARGO_PKG_VERSION"));
    let mut connection = endpoint
        .connect(address, LinkKind::StepMgrAgent, program, &expect)
        .await
        .map_err(|e| unreachable(e.to_string()))?;
    let (sender, mut answers) = connection.split::<StepMgrToAgent, AgentToStepMgr>();
    sender
        .send(traced(StepMgrToAgent::StartShepherd { launch, manager, again }))
        .await
        .map_err(|e| unreachable(e.to_string()))?;
    let answer = match answers.recv().await {
        Ok(Some(answer)) => match answer.msg {
            AgentToStepMgr::Started => Ok(()),
            AgentToStepMgr::Failed(refusal) => Err(refusal),
            AgentToStepMgr::Controller { .. } => Err(unreachable("its agent answered another question".into())),
        },
        Ok(None) => Err(unreachable("its agent closed the connection".into())),
        Err(e) => Err(unreachable(e.to_string())),
    };
    connection.close("answered");
    answer
}

/// Serves the endpoint of a batch host's `stepd`: shepherds that register.
pub async fn serve(
    endpoint: Arc<Endpoint>,
    links: Rc<ShepherdLinks>,
    manager: Address<StepMgrMsg>,
    clients: Rc<Clients>,
) {
    while let Some(arrived) = endpoint.accept().await {
        match arrived {
            Ok(connection) if connection.link == LinkKind::StepMgrShepherd && connection.peer.role == Role::Node => {
                let (links, manager, clients) = (Rc::clone(&links), manager.clone(), Rc::clone(&clients));
                actix_rt::spawn(shepherd(connection, links, manager, clients));
            }
            Ok(connection) => connection.close("a step manager serves shepherds on this port"),
            Err(e) => tracing::warn!(error = %e, "a peer was turned away"),
        }
    }
}

type Frames = Receiver<LinkFrame<ShepherdToStepMgr>>;

/// The session that a shepherd begins with, and its registration.
async fn first_words(frames: &mut Frames) -> Option<(u64, u64, u64, ShepherdToStepMgr)> {
    let LinkFrame::Begin { session, known, seen } = frames.recv().await.ok()??.msg else { return None };
    let LinkFrame::Aside(register) = frames.recv().await.ok()??.msg else { return None };
    Some((session, known, seen, register))
}

async fn shepherd(
    mut connection: Connection,
    links: Rc<ShepherdLinks>,
    manager: Address<StepMgrMsg>,
    clients: Rc<Clients>,
) {
    let handle = connection.handle();
    let peer = connection.peer.name.clone();
    let (sender, mut frames) = connection.split::<LinkFrame<StepMgrToShepherd>, LinkFrame<ShepherdToStepMgr>>();
    let Some((session, known, seen, register)) = first_words(&mut frames).await else { return };
    // The peer's certificate says which node it is; the credential must be this run's own.
    let of_run = matches!(&register, ShepherdToStepMgr::Register { credential, sluid, node }
        if *node == peer && *sluid == links.credential.sluid && credential.payload == links.launch.credential.payload);
    let Some(slot) = links.slot(&peer).filter(|_| of_run) else {
        tracing::warn!(peer, "a shepherd that does not belong to this run was turned away");
        return handle.close("this is not your run's step manager");
    };
    let (end, number) = links.arrived(slot, Arrival { sender, session, known, seen }, &handle, &manager);
    tell_manager(&manager, TraceContext::root(), StepMgrInput::ShepherdUp { node: slot });
    let relaying = actix_rt::spawn(relays(handle.clone(), manager.clone(), clients));
    let detail = hear(&mut frames, &end, slot, &links, &manager).await;
    handle.close("reconnecting");
    relaying.abort();
    links.departed(slot, number, detail, &manager);
}

/// Hands a shepherd's messages to the step manager until the connection is gone, and says why it is.
async fn hear(
    frames: &mut Frames,
    end: &LinkEnd<StepMgrToShepherd>,
    node: NodeSlot,
    links: &ShepherdLinks,
    manager: &Address<StepMgrMsg>,
) -> String {
    loop {
        let frame = tokio::select! {
            biased;
            frame = frames.recv() => frame,
            () = end.owes() => {
                end.tell_seen();
                continue;
            }
            () = end.given_up() => return "it does not take what it is told".into(),
        };
        match frame {
            Ok(Some(Traced { trace, cause, msg })) => {
                let Some(message) = end.hear(msg) else { continue };
                if message == ShepherdToStepMgr::Gone {
                    links.said_gone(node);
                }
                tell_manager(manager, TraceContext { trace, cause }, StepMgrInput::Shepherd { node, message });
            }
            Ok(None) => return "it closed the connection".into(),
            Err(e) => {
                if e.is_malformed_message() {
                    end.start_over();
                }
                return e.to_string();
            }
        }
    }
}

/// Conversations of commands on the shepherd's node with the step manager.
async fn relays(handle: LinkHandle, manager: Address<StepMgrMsg>, clients: Rc<Clients>) {
    while let Ok(Some((header, bulk))) = handle.accept_bulk::<RelayHeader>().await {
        let (sender, receiver) = bulk.split::<StepMgrToCommand, CommandToStepMgr>(limits::DOOR);
        // Trusted to speak for the job's user only: the step manager checks the named caller.
        actix_rt::spawn(converse(sender, receiver, header.caller, manager.clone(), Rc::clone(&clients)));
    }
}
