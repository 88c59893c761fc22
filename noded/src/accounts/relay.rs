//! How the daemons of a host pass the questions of commands on to the service: the controller to its door or its port, a node's
//! daemon through the controller's.

use super::reach::{Accounting, Reached};
use crate::guests::Guests;
use garrick_accounts::messages::{AccountsRefusal, AccountsReply, AccountsRequest, PassedOn};
use garrick_daemon::links::{RelayHeader, caller_of, traced};
use garrick_frame::{LinkKind, TracedRef, encode, limits};
use garrick_kernel::users::{self, UserError};
use garrick_model::{config::Config, doors, ids::JobId, messages::command::Caller};
use garrick_transport::{BulkStream, Connection, DoorConn, Endpoint, LinkError, identity::ExpectPeer, splice};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

const PROGRAM: &str = concat!("garrick ", env!("CARGO_PKG_VERSION"));

/// For whom a daemon speaks.
struct OnBehalf {
    caller: Caller,
    /// Vouched for by a host that the site trusts with ordinary users only.
    ordinary: bool,
}

impl OnBehalf {
    /// As the service is told at its door.
    fn request(self) -> AccountsRequest {
        match self.ordinary {
            true => AccountsRequest::OnBehalfOfOrdinary(self.caller),
            false => AccountsRequest::OnBehalfOf(self.caller),
        }
    }

    /// As it is told at its port. The name service may take its time. Where it fails nothing is passed on: without his name the
    /// number would not be compared.
    async fn passed_on(self) -> std::io::Result<PassedOn> {
        let Self { caller, ordinary } = self;
        let uid = caller.uid;
        let named = tokio::task::spawn_blocking(move || match users::by_uid(uid) {
            Ok(account) => Ok(Some(account.name)),
            Err(UserError::UnknownUid(_) | UserError::UnknownName(_)) => Ok(None),
            Err(error) => Err(std::io::Error::other(error)),
        });
        let user = named.await.map_err(std::io::Error::other)??;
        Ok(PassedOn { caller, user, ordinary })
    }
}

impl Accounting {
    /// A command at the controller's door.
    pub async fn at_door(&self, door: DoorConn, guests: &Guests, host: &str) {
        let Some(_guest) = guests.enter(door.peer.uid) else {
            return door.refuse(doors::TOO_MANY);
        };
        let who = OnBehalf { caller: caller_of(&door, host), ordinary: false };
        match self.connect(LinkKind::CommandToAccounts).await {
            Ok(Reached::Door(service)) => {
                let (stream, leading) = door.into_raw();
                report(pass_on(*service, stream, leading, who.request()).await);
            }
            Ok(Reached::Far(connection)) => {
                match who.passed_on().await {
                    Ok(passed) => match connection.open_bulk(&passed).await {
                        Ok(bulk) => report(splice(door, bulk).await.map(|_| ())),
                        Err(e) => door.refuse(&unreachable(&e)),
                    },
                    Err(e) => door.refuse(&format!("{e}: try again")),
                }
                connection.close("the conversation is over");
            }
            Err(e) => {
                tracing::debug!(error = %e, "a command asks for accounting, which is not reached");
                door.refuse(&unreachable(&e));
            }
        }
    }

    /// Commands that the daemons of nodes speak for.
    pub async fn from_node(&self, connection: Connection, guests: &Guests, config: &Config) {
        while let Ok(Some((header, bulk))) = connection.accept_bulk::<RelayHeader>().await {
            // His commands on all nodes together, so that one user's do not take all connections.
            let Some(guest) = guests.enter(header.caller.uid) else {
                tracing::debug!(uid = header.caller.uid, "too many questions to accounting at a time");
                let (replies, _requests) = bulk.split::<AccountsReply, AccountsRequest>(limits::DOOR);
                let busy = AccountsReply::Refused(AccountsRefusal::Busy);
                // One that is gone needs no answer.
                let _ = replies.send(traced(busy)).await;
                continue;
            };
            let (who, service) = (self.believable(header.caller, &connection.peer.name, config), self.clone());
            actix_rt::spawn(async move {
                // Otherwise the command hears that the conversation ended.
                match service.connect(LinkKind::CommandToAccounts).await {
                    Ok(Reached::Door(service)) => report(pass_on(*service, bulk, Vec::new(), who.request()).await),
                    Ok(Reached::Far(connection)) => report(pass_far(&connection, bulk, who).await),
                    Err(e) => tracing::debug!(error = %e, "a node asks for accounting, which is not reached"),
                }
                drop(guest);
            });
        }
    }

    /// A node speaks for ordinary users only, unless the site trusts it.
    fn believable(&self, caller: Caller, node: &str, config: &Config) -> OnBehalf {
        let caller = Caller { host: node.to_owned(), ..caller };
        match (config.admin_host(node), self.believed.contains(&caller.uid)) {
            (true, _) => OnBehalf { caller, ordinary: false },
            (false, true) => OnBehalf { caller: caller.as_nobody(), ordinary: true },
            (false, false) => OnBehalf { caller, ordinary: true },
        }
    }
}

fn unreachable(error: &dyn std::fmt::Display) -> String {
    format!("the service of accounting (slurmdbd) cannot be reached: {error}")
}

/// Goes on with the service on another host.
async fn pass_far(connection: &Connection, bulk: BulkStream, who: OnBehalf) -> std::io::Result<()> {
    let failed = |e: LinkError| std::io::Error::other(e);
    let service = connection.open_bulk(&who.passed_on().await?).await.map_err(failed)?;
    let passed = between(service, bulk).await;
    connection.close("the conversation is over");
    passed
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
    between(stream, from).await
}

/// Carries questions and answers until both have ended, or the service has.
async fn between(
    service: impl AsyncRead + AsyncWrite + Unpin,
    from: impl AsyncRead + AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let ((mut answers, mut questions), (mut asked, mut told)) = (tokio::io::split(service), tokio::io::split(from));
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
