//! How the daemons of a host pass the questions of commands on to the service: the controller to the door beside its own, a node's
//! daemon through the controller's.

use crate::{daemon::place::Cluster, guests::Guests};
use garrick_accounts::messages::AccountsRequest;
use garrick_daemon::links::{RelayHeader, caller_of};
use garrick_frame::{LinkKind, TracedRef, encode, limits};
use garrick_model::{config::Config, doors, ids::JobId, messages::command::Caller};
use garrick_transport::{Connection, DoorConn, Endpoint, identity::ExpectPeer, splice};
use std::{path::PathBuf, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

const PROGRAM: &str = concat!("garrick ", env!("CARGO_PKG_VERSION"));

/// Finds the service.
#[derive(Clone)]
pub struct Accounting {
    /// Where its door can be, and whose is believed.
    doors: Arc<[PathBuf]>,
    believed: Arc<[u32]>,
}

impl Accounting {
    /// That of a cluster, on this host.
    pub fn of(cluster: &Cluster) -> Self {
        let doors = cluster.controller_doors().into_iter().map(|door| door.with_file_name(doors::ACCOUNTING));
        Self { doors: doors.collect(), believed: cluster.believed().into() }
    }

    /// A connection to its door, if it serves here.
    pub async fn connect(&self, link: LinkKind) -> Option<DoorConn> {
        for door in &*self.doors {
            match DoorConn::connect(door, link, PROGRAM).await {
                Ok(conn) if self.believed.contains(&conn.peer.uid) => return Some(conn),
                Ok(conn) => {
                    let (uid, door) = (conn.peer.uid, door.display());
                    tracing::warn!(uid, %door, "somebody else's process poses as accounting");
                }
                Err(e) => tracing::debug!(door = %door.display(), error = %e, "no accounting here"),
            }
        }
        None
    }

    /// A command at the controller's door.
    pub async fn at_door(&self, door: DoorConn, guests: &Guests, host: &str) {
        let Some(_guest) = guests.enter(door.peer.uid) else {
            return door.refuse("busy: too many connections of this user are open, try again");
        };
        let caller = caller_of(&door, host);
        let Some(service) = self.connect(LinkKind::CommandToAccounts).await else {
            return door.refuse("the service of accounting (slurmdbd) cannot be reached");
        };
        let (stream, leading) = door.into_raw();
        report(pass_on(service, stream, leading, AccountsRequest::OnBehalfOf(caller)).await);
    }

    /// Commands that the daemons of nodes speak for.
    pub async fn from_node(&self, connection: Connection, guests: &Guests, config: &Config) {
        while let Ok(Some((header, bulk))) = connection.accept_bulk::<RelayHeader>().await {
            // His commands on all nodes together, so that one user's do not take all connections.
            let Some(guest) = guests.enter(header.caller.uid) else {
                tracing::debug!(uid = header.caller.uid, "too many questions to accounting at a time");
                continue;
            };
            let Some(service) = self.connect(LinkKind::CommandToAccounts).await else {
                // The command hears that the conversation ended.
                tracing::debug!("a node asks for accounting, which does not serve");
                continue;
            };
            let introduction = self.believable(header.caller, &connection.peer.name, config);
            actix_rt::spawn(async move {
                report(pass_on(service, bulk, Vec::new(), introduction).await);
                drop(guest);
            });
        }
    }

    /// A node speaks for ordinary users only, unless the site trusts it.
    fn believable(&self, caller: Caller, node: &str, config: &Config) -> AccountsRequest {
        let caller = Caller { host: node.to_owned(), ..caller };
        match (config.admin_host(node), self.believed.contains(&caller.uid)) {
            (true, _) => AccountsRequest::OnBehalfOf(caller),
            (false, true) => AccountsRequest::OnBehalfOfOrdinary(caller.as_nobody()),
            (false, false) => AccountsRequest::OnBehalfOfOrdinary(caller),
        }
    }
}

fn report(outcome: std::io::Result<()>) {
    if let Err(e) = outcome {
        tracing::debug!(error = %e, "a relayed question to accounting broke off");
    }
}

/// Goes on with the service, in the name of that caller.
async fn pass_on(
    service: DoorConn,
    mut from: impl AsyncRead + AsyncWrite + Unpin,
    leading: Vec<u8>,
    introduction: AccountsRequest,
) -> std::io::Result<()> {
    let (mut stream, said) = service.into_raw();
    let frame =
        encode(&TracedRef { trace: 0, cause: 0, msg: &introduction }, limits::DOOR).map_err(std::io::Error::other)?;
    stream.write_all(&frame).await?;
    stream.write_all(&leading).await?;
    from.write_all(&said).await?;
    let ((mut answers, mut questions), (mut asked, mut told)) = (tokio::io::split(stream), tokio::io::split(from));
    let ask = async {
        tokio::io::copy(&mut asked, &mut questions).await?;
        questions.shutdown().await
    };
    let answer = async {
        tokio::io::copy(&mut answers, &mut told).await?;
        told.shutdown().await
    };
    tokio::pin!(answer);
    // When the service ends it, it is over, whatever the other end keeps open.
    tokio::select! {
        over = &mut answer => over,
        asked = ask => {
            asked?;
            answer.await
        }
    }
}

/// A command at a node's door, by way of the controller.
pub async fn through_controller(door: DoorConn, guests: &Guests, endpoint: &Endpoint, node: &str, controller: &str) {
    let Some(_guest) = guests.enter(door.peer.uid) else {
        return door.refuse("busy: too many connections of this user are open, try again");
    };
    let header = RelayHeader { job: JobId(0), caller: caller_of(&door, node) };
    let expect = ExpectPeer::controller();
    let connection = match endpoint.connect(controller, LinkKind::CommandToAccounts, PROGRAM, &expect).await {
        Ok(connection) => connection,
        Err(e) => return door.refuse(&format!("the controller cannot be reached: {e}")),
    };
    match connection.open_bulk(&header).await {
        Ok(bulk) => {
            if let Err(e) = splice(door, bulk).await {
                tracing::debug!(error = %e, "a relayed question to accounting broke off");
            }
        }
        Err(e) => door.refuse(&format!("the controller cannot be reached: {e}")),
    }
    connection.close("the conversation is over");
}
