//! Asks other nodes of the cluster whether they are connected to the controller: so a node that is not finds out whether it or
//! the controller is cut off.

use garrick_agent::PeersSaid;
use garrick_daemon::links::traced;
use garrick_frame::LinkKind;
use garrick_model::{
    config::Config,
    ids::RequestId,
    messages::node::{AgentToStepMgr, Neighbour, StepMgrToAgent},
};
use garrick_transport::{
    Endpoint,
    identity::{ExpectPeer, Role},
};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::task::JoinSet;

/// So many are asked: enough that most of them answer where most of all nodes do.
const ASKED: usize = 16;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The other nodes.
#[derive(Clone)]
pub struct Neighbours {
    /// Connects to them.
    pub endpoint: Arc<Endpoint>,
    /// Where they are.
    pub config: Arc<Config>,
    /// This node.
    pub own: String,
    /// Those that came at run time, as the controller said last.
    pub joined: Arc<Mutex<Vec<Neighbour>>>,
}

impl Neighbours {
    /// Name and address of some of them, others every time.
    fn some(&self) -> Vec<(String, String)> {
        let of_file = self.config.nodes.iter().filter(|node| node.name != self.own);
        let mut others: Vec<(String, String)> =
            of_file.map(|node| (node.name.clone(), format!("{}:{}", node.address, node.port))).collect();
        let joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = joined.iter().filter(|node| self.config.node(&node.name).is_none());
        others.extend(unknown.map(|node| (node.name.clone(), node.address.clone())));
        drop(joined);
        let mut chosen = Vec::new();
        while !others.is_empty() && chosen.len() < ASKED {
            let at = usize::try_from(RequestId::random().0 % others.len() as u64).unwrap_or(0);
            chosen.push(others.swap_remove(at));
        }
        chosen
    }

    /// Where a node's daemon is, for a relay of a command that says that it is at `said`. Of nodes that came at run time, a
    /// daemon hears of a few only: where the site takes such, a command is believed about the others if it names a number and
    /// no name that would have to be looked up.
    pub fn address(&self, name: &str, said: &str) -> Option<String> {
        if let Some(node) = self.config.node(name) {
            return Some(format!("{}:{}", node.address, node.port));
        }
        let joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = joined.iter().find(|node| node.name == name).map(|node| node.address.clone());
        let believed = || said.parse::<SocketAddr>().ok().filter(|_| self.config.max_node_count.is_some());
        heard.or_else(|| believed().map(|address| address.to_string()))
    }

    /// The controller said which came at run time.
    pub fn told(&self, joined: Vec<Neighbour>) {
        *self.joined.lock().unwrap_or_else(PoisonError::into_inner) = joined;
    }

    /// Asks.
    pub async fn ask(self) -> PeersSaid {
        let mut asking = JoinSet::new();
        for (node, address) in self.some() {
            let endpoint = Arc::clone(&self.endpoint);
            asking.spawn(async move { tokio::time::timeout(PATIENCE, ask(&endpoint, &node, &address)).await });
        }
        let mut said = PeersSaid { asked: asking.len(), ..PeersSaid::default() };
        while let Some(answer) = asking.join_next().await {
            if let Ok(Ok(Some(connected))) = answer {
                said.reached += 1;
                said.with_controller += usize::from(connected);
            }
        }
        said
    }
}

/// Whether that node has the controller; `None`: it does not answer.
async fn ask(endpoint: &Endpoint, node: &str, address: &str) -> Option<bool> {
    let expect = ExpectPeer { role: Role::Node, name: Some(node.to_owned()) };
    let program = concat!("garrick ", env!("CARGO_PKG_VERSION"));
    let mut connection = endpoint.connect(address, LinkKind::StepMgrAgent, program, &expect).await.ok()?;
    let (sender, mut answers) = connection.split::<StepMgrToAgent, AgentToStepMgr>();
    sender.send(traced(StepMgrToAgent::AskController)).await.ok()?;
    let answer = answers.recv().await.ok()??;
    connection.close("answered");
    match answer.msg {
        AgentToStepMgr::Controller { connected } => Some(connected),
        AgentToStepMgr::Started | AgentToStepMgr::Failed(_) => None,
    }
}
