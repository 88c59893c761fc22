//! The way to a `stepd` that is below this one in the tree, and what comes from one above.

use super::{spread, tree::Branch};
use crate::shepherd_port::ShepherdPlace;
use garrick_daemon::links::traced;
use garrick_frame::{LinkKind, Traced, limits};
use garrick_model::{
    ids::Sluid,
    messages::files::{FileFailure, FileOrder, FilePart, FileReport, FileTree},
};
use garrick_transport::{
    Connection, Endpoint, LinkError, Receiver, Sender,
    identity::{ExpectPeer, Role},
};
use std::{rc::Rc, sync::Arc};
use tokio::sync::mpsc;

/// Parts that wait between two ends of a `stepd`.
pub const PARTS_KEPT: usize = 2;

/// What a `stepd` has to hand files on.
pub struct Station {
    /// This node's name.
    pub node: String,
    /// The run.
    pub run: Sluid,
    /// Names of the run's nodes.
    pub nodes: Vec<String>,
    /// As whom it writes, and where.
    pub place: ShepherdPlace,
    /// For the way to others; `None`: the run has one node.
    pub endpoint: Option<Arc<Endpoint>>,
}

/// A `stepd` below, and all those behind it.
pub(super) struct Below {
    /// Their names.
    nodes: Vec<String>,
    /// Held open.
    _connection: Connection,
    sender: Sender<FilePart>,
    reports: Receiver<FileReport>,
}

impl Below {
    /// Connects and says what is to come.
    pub async fn open(
        station: &Station,
        branch: Branch,
        file: &FileOrder,
        width: u16,
    ) -> Result<Self, Vec<FileFailure>> {
        let Branch { first, below } = branch;
        let nodes: Vec<String> =
            std::iter::once(first.node.clone()).chain(below.iter().map(|s| s.node.clone())).collect();
        let header = FileTree { run: station.run, file: file.clone(), below, width };
        let opened = async {
            let endpoint = station.endpoint.as_ref().ok_or("there is no way to it")?;
            let expect = ExpectPeer { role: Role::Node, name: Some(first.node.clone()) };
            let program = concat!("garrick ", env!("CARGO_PKG_VERSION"));
            let reached = |e: LinkError| e.to_string();
            let connection =
                endpoint.connect(&first.address, LinkKind::BetweenStepds, program, &expect).await.map_err(reached)?;
            let bulk = connection.open_bulk(&header).await.map_err(reached)?;
            Ok::<_, String>((connection, bulk.split(limits::BULK)))
        };
        match opened.await {
            Ok((connection, (sender, reports))) => Ok(Self { nodes, _connection: connection, sender, reports }),
            Err(why) => Err(unreached(&nodes, &why)),
        }
    }

    /// Hands on a part. If it does not arrive, the report says so.
    pub async fn part(&self, part: &Traced<FilePart>) {
        if let Err(e) = self.sender.send(part).await {
            tracing::debug!(error = %e, "a part of a file was not sent on");
        }
    }

    /// What comes next from there.
    pub async fn report(&mut self) -> FileReport {
        match self.reports.recv().await {
            Ok(Some(report)) => report.msg,
            Ok(None) => FileReport::Done(unreached(&self.nodes, "its stepd gave up")),
            Err(e) => FileReport::Done(unreached(&self.nodes, &e.to_string())),
        }
    }
}

/// The first of them could not be reached, nor could those behind it.
fn unreached(nodes: &[String], why: &str) -> Vec<FileFailure> {
    let failure = |node: &String| FileFailure { node: node.clone(), operation: why.to_owned(), errno: libc::ECOMM };
    nodes.iter().map(failure).collect()
}

/// Serves the endpoint of a `stepd` that hosts no step manager: files from other nodes of its run.
pub async fn serve(station: Rc<Station>) {
    let Some(endpoint) = station.endpoint.clone() else { return };
    while let Some(arrived) = endpoint.accept().await {
        match arrived {
            // The peer's certificate says which node it is.
            Ok(connection)
                if connection.link == LinkKind::BetweenStepds
                    && connection.peer.role == Role::Node
                    && station.nodes.contains(&connection.peer.name) =>
            {
                actix_rt::spawn(receive(Rc::clone(&station), connection));
            }
            Ok(connection) => connection.close("a shepherd takes files from nodes of its run on this port"),
            Err(e) => tracing::warn!(error = %e, "a peer was turned away"),
        }
    }
}

/// Files that come over a connection.
async fn receive(station: Rc<Station>, connection: Connection) {
    loop {
        match connection.accept_bulk::<FileTree>().await {
            Ok(Some((tree, bulk))) if tree.run == station.run => {
                let (sender, receiver) = bulk.split::<FileReport, FilePart>(limits::BULK);
                actix_rt::spawn(receive_one(Rc::clone(&station), tree, sender, receiver));
            }
            Ok(Some(_)) => tracing::warn!(peer = connection.peer.name, "a file for another run was turned away"),
            Ok(None) => return,
            Err(e) => return tracing::debug!(error = %e, "a node that sent files is gone"),
        }
    }
}

async fn receive_one(
    station: Rc<Station>,
    tree: FileTree,
    sender: Sender<FileReport>,
    mut receiver: Receiver<FilePart>,
) {
    let (parts, coming) = mpsc::channel(PARTS_KEPT);
    let reading = actix_rt::spawn(async move {
        while let Ok(Some(part)) = receiver.recv().await {
            if parts.send(part.msg).await.is_err() {
                return;
            }
        }
    });
    let FileTree { file, below, width, .. } = tree;
    let job = spread::Spread { file, here: true, below, width };
    let ready = async || drop(sender.send(traced(FileReport::Ready)).await);
    let failures = spread::spread(&station, job, coming, ready).await;
    if let Err(e) = sender.send(traced(FileReport::Done(failures))).await {
        tracing::debug!(error = %e, "what became of a file was not told");
    }
    reading.abort();
}
