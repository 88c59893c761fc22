//! Relays a command's conversation to a step manager on another host: the command's local daemon opens a bulk stream to the
//! daemon of the batch host, names the user, and copies bytes in both directions.

use crate::guests::Guests;
use garrick_daemon::links::{RelayHeader, caller_of};
use garrick_frame::{Hello, LinkKind, TracedRef, encode, limits};
use garrick_model::{ids::JobId, messages::step::CommandToStepMgr};
use garrick_transport::{
    DoorConn, Endpoint,
    identity::{ExpectPeer, Role},
    quic::BulkStream,
    splice,
};
use std::path::Path;
use tokio::io::AsyncWriteExt;

/// From the command's side: `door` asked for a tunnel. Only nodes of the cluster are dialled, and where `known` says that they
/// are: a daemon knocks nowhere for a user who names an address. Each relay counts among its user's connections.
pub async fn outward(
    endpoint: &Endpoint,
    guests: &Guests,
    door: DoorConn,
    host: &str,
    known: impl Fn(&str, &str) -> Option<String>,
) {
    let Some(tunnel) = door.hello.tunnel.clone() else { return door.refuse("no tunnel was asked for") };
    let Some(_guest) = guests.enter(door.peer.uid) else {
        return door.refuse("busy: too many connections of this user are open, try again");
    };
    let Some(address) = known(&tunnel.node, &tunnel.address) else {
        return door.refuse(&format!("node {} cannot be reached: no node of that name is known here", tunnel.node));
    };
    let caller = caller_of(&door, host);
    let header = RelayHeader { job: JobId(tunnel.job), caller };
    let expect = ExpectPeer { role: Role::Node, name: Some(tunnel.node.clone()) };
    let program = concat!("garrick ", env!("CARGO_PKG_VERSION"));
    let connection = match endpoint.connect(&address, door.hello.link, program, &expect).await {
        Ok(c) => c,
        Err(e) => return door.refuse(&format!("node {} cannot be reached: {e}", tunnel.node)),
    };
    match connection.open_bulk(&header).await {
        Ok(bulk) => {
            if let Err(e) = splice(door, bulk).await {
                tracing::debug!(error = %e, "a relayed conversation broke off");
            }
        }
        Err(e) => door.refuse(&format!("node {} cannot be reached: {e}", tunnel.node)),
    }
    connection.close("the conversation is over");
}

/// To a `stepd` on this host: `stepd_door` is where the run's step manager listens.
pub async fn inward(mut bulk: BulkStream, header: RelayHeader, stepd_door: &Path) -> std::io::Result<()> {
    // The greeting of the command went to its own daemon; this side greets the stepd anew.
    let program = concat!("garrick ", env!("CARGO_PKG_VERSION"));
    let stepd =
        DoorConn::connect(stepd_door, LinkKind::CommandToStepMgr, program).await.map_err(std::io::Error::other)?;
    let (mut stream, leading) = stepd.into_raw();
    let introduction = CommandToStepMgr::OnBehalfOf(header.caller);
    let frame =
        encode(&TracedRef { trace: 0, cause: 0, msg: &introduction }, limits::DOOR).map_err(std::io::Error::other)?;
    stream.write_all(&frame).await?;
    bulk.write_all(&leading).await?;
    tokio::io::copy_bidirectional(&mut stream, &mut bulk).await?;
    Ok(())
}

/// It is for this node itself: none is named, or this one.
pub fn is_for(hello: &Hello, node: &str) -> bool {
    hello.tunnel.as_ref().is_none_or(|to| to.node == node)
}

/// A greeting is all that a relay needs to know of a command.
pub fn wants_relay(hello: &Hello) -> bool {
    matches!(hello.link, LinkKind::CommandToStepMgr | LinkKind::CommandToRecords) && hello.tunnel.is_some()
}
