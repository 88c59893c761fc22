//! A process's QUIC socket, which accepts and connects. Handshakes and greetings run in separate tasks, with a deadline and
//! limits, so that slow or hostile peers delay no others.

use super::{
    config,
    connection::Connection,
    greeting::{self, Greeted, peer_identity, shown_certificates},
    reset::{self, ResetKey},
};
use crate::{
    error::{LinkError, close_code, from_connection},
    identity::{ExpectPeer, IdentityStore, authority::COMMON_DNS_NAME},
};
use garrick_frame::LinkKind;
use nix::sys::socket::{setsockopt, sockopt};
use quinn::VarInt;
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout_at},
};

/// Asked of the kernel for the UDP socket, in bytes; it gives what its limits allow. Bursts of a wide fan-out fit.
const UDP_BUFFER: usize = 4 << 20;
/// Most handshakes at a time, in all and from one address; further ones are refused and try again.
const MOST_HANDSHAKES: usize = 512;
const MOST_HANDSHAKES_OF_ADDRESS: usize = 64;
/// From this many on a peer has to prove its address first (a QUIC Retry, RFC 9000 section 8.1.2).
const CROWDED: usize = 128;
/// Connections that wait to be accepted by this process.
const ACCEPT_QUEUE: usize = 64;

/// Answers nodes that want to join this cluster.
pub trait AnswerJoins: std::fmt::Debug + Send + Sync {
    /// Serves a connection of kind [`LinkKind::Join`], of which nothing is proven, until it ends.
    fn answer(self: Arc<Self>, connection: quinn::Connection, greeted: Greeted, peer: String) -> Answered;
}

/// Handles the connection of a node that wants to join.
pub type Answered = Pin<Box<dyn Future<Output = Result<(), LinkError>> + Send>>;

/// Choices for an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// Name and version of this program, told to peers.
    pub program: String,
    /// Answers nodes that want to join. Without it, a peer without a certificate does not get past the handshake.
    pub join: Option<Arc<dyn AnswerJoins>>,
    /// Time for connecting, greeting included. Default 5 s: a local network answers in milliseconds, and a dead peer must
    /// not be waited for.
    pub connect_time: Duration,
    /// For a process that is started again on the same port: its peers learn of it at once. Default: none, they learn of it
    /// when nothing was heard for [`crate::class::IDLE_LIMIT`].
    pub reset_key: Option<ResetKey>,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            program: concat!("garrick ", env!("CARGO_PKG_VERSION")).to_owned(),
            join: None,
            connect_time: Duration::from_secs(5),
            reset_key: None,
        }
    }
}

/// A bound UDP socket with this process's identity. Connections live on without it; dropping it ends accepting.
#[derive(Debug)]
pub struct Endpoint {
    quic: quinn::Endpoint,
    identity: Arc<IdentityStore>,
    options: EndpointOptions,
    local: SocketAddr,
    accepted: tokio::sync::Mutex<mpsc::Receiver<Result<Connection, LinkError>>>,
    accepting: JoinHandle<()>,
}

impl Endpoint {
    /// Binds to `address`; port 0 takes any. Needs a runtime.
    pub fn bind(address: SocketAddr, identity: Arc<IdentityStore>) -> Result<Self, LinkError> {
        Self::bind_with(address, identity, EndpointOptions::default())
    }

    /// The same with choices.
    pub fn bind_with(
        address: SocketAddr,
        identity: Arc<IdentityStore>,
        options: EndpointOptions,
    ) -> Result<Self, LinkError> {
        let failed = |doing| move |e: io::Error| LinkError::io(address.to_string(), doing, e);
        let server = config::server(&identity, options.join.is_some())
            .map_err(|e| LinkError::io(address.to_string(), "setting up TLS", io::Error::other(e)))?;
        let settings = options.reset_key.as_ref().map(reset::endpoint_config).unwrap_or_default();
        let quic = open_with(settings, address, Some(server)).map_err(failed("binding the UDP socket"))?;
        let local = quic.local_addr().map_err(failed("asking for the own address"))?;
        let (sender, accepted) = mpsc::channel(ACCEPT_QUEUE);
        let acceptor = Acceptor {
            quic: quic.clone(),
            options: options.clone(),
            cluster: identity.identity().cluster,
            accepted: sender,
            open: Arc::default(),
        };
        let accepting = tokio::spawn(acceptor.run());
        Ok(Self { quic, identity, options, local, accepted: tokio::sync::Mutex::new(accepted), accepting })
    }

    /// The address that it is bound to.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The identity that it shows.
    pub const fn identity(&self) -> &Arc<IdentityStore> {
        &self.identity
    }

    /// The next connection of a peer that authenticated and agreed on a version; `None` if the endpoint was closed. An error is
    /// about one peer that failed to, for the log; continue to accept. May be dropped and called again.
    pub async fn accept(&self) -> Option<Result<Connection, LinkError>> {
        self.accepted.lock().await.recv().await
    }

    /// Connects to `host:port` and verifies that the expected peer answers. A name is looked up; its addresses are tried in turn.
    pub async fn connect(
        &self,
        address: &str,
        link: LinkKind,
        program: &str,
        expect: &ExpectPeer,
    ) -> Result<Connection, LinkError> {
        let client = config::client(&self.identity)
            .map_err(|e| LinkError::io(address, "setting up TLS", io::Error::other(e)))?;
        let mut last = None;
        for remote in resolve(address, Some(self.local)).await? {
            match self.connect_to(remote, client.clone(), address, link, program, expect).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = Some(error),
            }
        }
        let nothing = || io::Error::new(io::ErrorKind::NotFound, "no address of this endpoint's family");
        Err(last.unwrap_or_else(|| LinkError::Resolve { peer: address.to_owned(), source: Arc::new(nothing()) }))
    }

    async fn connect_to(
        &self,
        remote: SocketAddr,
        client: quinn::ClientConfig,
        address: &str,
        link: LinkKind,
        program: &str,
        expect: &ExpectPeer,
    ) -> Result<Connection, LinkError> {
        let time = self.options.connect_time;
        let deadline = Instant::now() + time;
        let connection = handshake(&self.quic, client, remote, address, time).await?;
        let peer = peer_identity(&connection, address)?;
        let cluster = self.identity.identity().cluster;
        if peer.cluster != cluster || !expect.accepts(&peer) {
            let error = LinkError::WrongPeer {
                peer: address.to_owned(),
                expected: format!("{expect} of cluster {cluster}"),
                found: peer.to_string(),
            };
            connection.close(VarInt::from_u32(close_code::WRONG_PEER), error.to_string().as_bytes());
            return Err(error);
        }
        let greeted = timeout_at(deadline, greeting::as_client(&connection, link, program, address))
            .await
            .map_err(|_| LinkError::NoGreeting { peer: address.to_owned(), after: time })??;
        Ok(Connection::new(connection, peer, greeted))
    }

    /// Closes every connection and takes no new ones. Returns at once; the closing frames leave with the runtime's next
    /// turn.
    pub fn close(&self, reason: &str) {
        self.quic.close(VarInt::from_u32(close_code::NORMAL), reason.as_bytes());
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.accepting.abort();
        self.quic.set_server_config(None);
    }
}

/// Opens the UDP socket.
pub(crate) fn open(address: SocketAddr, server: Option<quinn::ServerConfig>) -> io::Result<quinn::Endpoint> {
    open_with(quinn::EndpointConfig::default(), address, server)
}

fn open_with(
    settings: quinn::EndpointConfig,
    address: SocketAddr,
    server: Option<quinn::ServerConfig>,
) -> io::Result<quinn::Endpoint> {
    let socket = UdpSocket::bind(address)?;
    // Best effort: the kernel's limits (net.core.rmem_max and wmem_max) cap both.
    let _ = setsockopt(&socket, sockopt::RcvBuf, &UDP_BUFFER);
    let _ = setsockopt(&socket, sockopt::SndBuf, &UDP_BUFFER);
    quinn::Endpoint::new(settings, server, socket, Arc::new(quinn::TokioRuntime))
}

/// The addresses of `host:port` that a socket bound to `local` can reach.
pub(crate) async fn resolve(address: &str, local: Option<SocketAddr>) -> Result<Vec<SocketAddr>, LinkError> {
    let found = tokio::net::lookup_host(address)
        .await
        .map_err(|e| LinkError::Resolve { peer: address.to_owned(), source: Arc::new(e) })?;
    Ok(found.filter_map(|found| reachable(found, local)).collect())
}

/// An address as a socket bound to `local` names it: one bound to every IPv6 address takes IPv4 ones in their mapped form
/// (RFC 4291, section 2.5.5.2), others only those of their own family.
fn reachable(found: SocketAddr, local: Option<SocketAddr>) -> Option<SocketAddr> {
    match (found, local) {
        (_, None) => Some(found),
        (SocketAddr::V4(v4), Some(SocketAddr::V6(local))) if local.ip().is_unspecified() => {
            Some(SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())))
        }
        (found, Some(local)) => (found.is_ipv4() == local.is_ipv4()).then_some(found),
    }
}

/// Every address of this host with a port: of both families where the host has IPv6.
pub fn any_address(port: u16) -> SocketAddr {
    let six = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0));
    if UdpSocket::bind(six).is_ok() {
        SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port))
    } else {
        SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, port))
    }
}

/// The TLS handshake, within `time`.
pub(crate) async fn handshake(
    quic: &quinn::Endpoint,
    client: quinn::ClientConfig,
    remote: SocketAddr,
    peer: &str,
    time: Duration,
) -> Result<quinn::Connection, LinkError> {
    let connecting = quic
        .connect_with(client, remote, COMMON_DNS_NAME)
        .map_err(|e| LinkError::io(peer, "connecting", io::Error::other(e)))?;
    match timeout_at(Instant::now() + time, connecting).await {
        Ok(connected) => connected.map_err(|e| from_connection(e, peer, time)),
        Err(_) => Err(LinkError::NoAnswer { peer: peer.to_owned(), after: time }),
    }
}

type OpenHandshakes = Arc<Mutex<BTreeMap<IpAddr, usize>>>;

struct Acceptor {
    quic: quinn::Endpoint,
    options: EndpointOptions,
    cluster: String,
    accepted: mpsc::Sender<Result<Connection, LinkError>>,
    open: OpenHandshakes,
}

/// Counts a handshake for as long as it runs.
struct Counted {
    open: OpenHandshakes,
    address: IpAddr,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

impl Acceptor {
    async fn run(self) {
        while let Some(incoming) = self.quic.accept().await {
            let address = incoming.remote_address();
            let (all, of_address) = {
                let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                (open.values().sum::<usize>(), open.get(&address.ip()).copied().unwrap_or(0))
            };
            if all >= CROWDED && !incoming.remote_address_validated() && incoming.may_retry() {
                let _ = incoming.retry();
                continue;
            }
            if all >= MOST_HANDSHAKES || of_address >= MOST_HANDSHAKES_OF_ADDRESS {
                incoming.refuse();
                continue;
            }
            *self.open.lock().unwrap_or_else(PoisonError::into_inner).entry(address.ip()).or_insert(0) += 1;
            let counted = Counted { open: Arc::clone(&self.open), address: address.ip() };
            let (options, cluster, accepted) = (self.options.clone(), self.cluster.clone(), self.accepted.clone());
            tokio::spawn(async move {
                // Counted until it is handed over (or the node has joined): what waits for this process is bounded too.
                let _counted = counted;
                if let Some(result) = welcome(incoming, &options, &cluster).await {
                    let _ = accepted.send(result).await;
                }
            });
        }
    }
}

/// Handshake and greeting of one peer. `None`: it joined, or tried to, and was served.
async fn welcome(
    incoming: quinn::Incoming,
    options: &EndpointOptions,
    cluster: &str,
) -> Option<Result<Connection, LinkError>> {
    let name = incoming.remote_address().to_string();
    let time = options.connect_time;
    let deadline = Instant::now() + time;
    let greeting = async {
        let connection = incoming.accept().map_err(|e| from_connection(e, &name, time))?;
        let connection = connection.await.map_err(|e| from_connection(e, &name, time))?;
        let asked = greeting::read_hello(&connection, &options.program, &name).await?;
        Ok::<_, LinkError>((connection, asked))
    };
    let (connection, asked) = match timeout_at(deadline, greeting).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(error)) => return Some(Err(error)),
        Err(_) => return Some(Err(LinkError::NoGreeting { peer: name, after: time })),
    };
    if asked.hello.link == LinkKind::Join {
        let Some(server) = &options.join else {
            return Some(Err(greeting::refuse(&connection, "nodes join at the controller, not here", &name)));
        };
        let served = async {
            let greeted = asked.welcome(&connection, &name).await?;
            Arc::clone(server).answer(connection, greeted, name.clone()).await
        };
        return served.await.err().map(Err);
    }
    if shown_certificates(&connection).is_none() {
        let reason = "no certificate was shown, and only joining is possible without one (join this cluster first)";
        greeting::refuse(&connection, reason, &name);
        return Some(Err(LinkError::NoCertificate { peer: name }));
    }
    let peer = match peer_identity(&connection, &name) {
        Ok(peer) if peer.cluster == cluster => peer,
        Ok(peer) => {
            greeting::refuse(&connection, &format!("this is cluster {cluster}"), &name);
            let expected = format!("a member of cluster {cluster}");
            return Some(Err(LinkError::WrongPeer { peer: name, expected, found: peer.to_string() }));
        }
        Err(error) => {
            greeting::refuse(&connection, &error.to_string(), &name);
            return Some(Err(error));
        }
    };
    match timeout_at(deadline, asked.welcome(&connection, &name)).await {
        Ok(greeted) => Some(greeted.map(|greeted| Connection::new(connection, peer, greeted))),
        Err(_) => Some(Err(LinkError::NoGreeting { peer: name, after: time })),
    }
}
