//! The shepherds of other nodes, on the batch host: started through their agents, connected to this process's endpoint.

use crate::{
    node::{conversations::traced, relay::RelayHeader},
    stepd::{
        door::converse,
        manager_port::{Clients, tell_manager},
    },
};
use garrick_actors::{
    step::NodeSlot,
    stepmgr::{StepMgrInput, StepMgrMsg},
};
use garrick_frame::{LinkKind, limits};
use garrick_model::{
    messages::{
        node::{AgentToStepMgr, JobCredential, JobLaunch, StepMgrToAgent},
        shepherd::{ShepherdToStepMgr, StepMgrToShepherd},
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    refusal::Refusal,
};
use garrick_runtime::{Address, TraceContext};
use garrick_transport::{
    Class, Connection, Endpoint, Sender,
    identity::{ExpectPeer, Role},
};
use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Duration};

/// How long a node's prolog and the start of its `stepd` may take before the step manager gives up on the node. Prologs
/// that stage data take minutes; the job's own time limit is the other bound.
const START_LIMIT: Duration = Duration::from_secs(600);

/// The links.
pub struct ShepherdLinks {
    endpoint: Option<Arc<Endpoint>>,
    /// What other nodes are told: the launch order without the script.
    launch: JobLaunch,
    credential: JobCredential,
    /// `host:port` at which this process's endpoint is reached.
    own_address: String,
    senders: RefCell<HashMap<NodeSlot, Sender<StepMgrToShepherd>>>,
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
        spec.environment = Vec::new();
        launch.spec = Arc::new(spec);
        Self { endpoint, launch, credential: credential.clone(), own_address, senders: RefCell::default() }
    }

    /// Sends to a shepherd; one whose link is gone was reported as lost.
    pub fn send(&self, node: NodeSlot, message: StepMgrToShepherd) {
        let class = match message {
            StepMgrToShepherd::Kill { .. } | StepMgrToShepherd::EndJob => Class::Control,
            _ => Class::Request,
        };
        if let Some(sender) = self.senders.borrow().get(&node)
            && let Err(e) = sender.try_send_on(class, &traced(message))
        {
            tracing::warn!(node = node.0, error = %e, "a message to a shepherd was not sent");
        }
    }

    /// Asks a node's agent to start a shepherd; the answer goes to the step manager.
    pub fn start(&self, node: NodeSlot, manager: &Address<StepMgrMsg>) {
        let (manager, endpoint) = (manager.clone(), self.endpoint.clone());
        let launch = Box::new(self.launch.clone());
        let (address, name) =
            (self.credential.addresses.get(node.0 as usize), self.credential.nodes.get(node.0 as usize));
        let place = address.cloned().zip(name.map(|n| n.name.clone()));
        let own = self.own_address.clone();
        actix_rt::spawn(async move {
            let result = match (endpoint, place) {
                (Some(endpoint), Some((address, name))) => {
                    let asked = ask(&endpoint, &address, &name, launch, own);
                    match tokio::time::timeout(START_LIMIT, asked).await {
                        Ok(answer) => answer,
                        Err(_) => Err(Refusal::Unreachable(name, "its agent did not answer in time".into())),
                    }
                }
                _ => Err(Refusal::Internal("the allocation has no such node".into())),
            };
            tell_manager(&manager, TraceContext::root(), StepMgrInput::ShepherdStart { node, result });
        });
    }

    /// Nodes whose shepherd is connected.
    pub fn connected(&self) -> Vec<NodeSlot> {
        self.senders.borrow().keys().copied().collect()
    }

    fn slot(&self, name: &str) -> Option<NodeSlot> {
        let place = self.credential.nodes.iter().position(|n| n.name == name)?;
        u32::try_from(place).ok().map(NodeSlot)
    }
}

async fn ask(
    endpoint: &Endpoint,
    address: &str,
    node: &str,
    launch: Box<JobLaunch>,
    manager: String,
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
        .send(traced(StepMgrToAgent::StartShepherd { launch, manager }))
        .await
        .map_err(|e| unreachable(e.to_string()))?;
    let answer = match answers.recv().await {
        Ok(Some(answer)) => match answer.msg {
            AgentToStepMgr::Started => Ok(()),
            AgentToStepMgr::Failed(refusal) => Err(refusal),
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

async fn shepherd(
    mut connection: Connection,
    links: Rc<ShepherdLinks>,
    manager: Address<StepMgrMsg>,
    clients: Rc<Clients>,
) {
    let handle = connection.handle();
    let peer = connection.peer.name.clone();
    let (sender, mut messages) = connection.split::<StepMgrToShepherd, ShepherdToStepMgr>();
    let first = match messages.recv().await {
        Ok(Some(first)) => first.msg,
        Ok(None) | Err(_) => return,
    };
    // The peer's certificate says which node it is; the credential must be this run's own.
    let known = matches!(&first, ShepherdToStepMgr::Register { credential, sluid, node }
        if *node == peer && *sluid == links.credential.sluid && credential.payload == links.launch.credential.payload);
    let Some(slot) = links.slot(&peer).filter(|_| known) else {
        tracing::warn!(peer, "a shepherd that does not belong to this run was turned away");
        return handle.close("this is not your run's step manager");
    };
    links.senders.borrow_mut().insert(slot, sender);
    links.send(slot, StepMgrToShepherd::Welcome);
    tell_manager(&manager, TraceContext::root(), StepMgrInput::ShepherdUp { node: slot });
    let relays = handle.clone();
    let (relay_manager, relay_clients) = (manager.clone(), clients);
    let relaying = actix_rt::spawn(async move {
        while let Ok(Some((header, bulk))) = relays.accept_bulk::<RelayHeader>().await {
            let (sender, receiver) = bulk.split::<StepMgrToCommand, CommandToStepMgr>(limits::DOOR);
            // Trusted to speak for the job's user only: the step manager checks who is named.
            let relay = converse(sender, receiver, header.caller, relay_manager.clone(), Rc::clone(&relay_clients));
            actix_rt::spawn(relay);
        }
    });
    let detail = loop {
        match messages.recv().await {
            Ok(Some(message)) => {
                let cx = TraceContext { trace: message.trace, cause: message.cause };
                tell_manager(&manager, cx, StepMgrInput::Shepherd { node: slot, message: message.msg });
            }
            Ok(None) => break "it closed the connection".to_owned(),
            Err(e) => break e.to_string(),
        }
    };
    relaying.abort();
    links.senders.borrow_mut().remove(&slot);
    tell_manager(&manager, TraceContext::root(), StepMgrInput::ShepherdLost { node: slot, detail });
}
