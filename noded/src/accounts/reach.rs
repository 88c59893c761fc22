//! Where the service of accounting is: at a door of this host, or at a port of another one. There the controller shows a certificate
//! that the service made for its cluster, and trusts only a service of the same authority. It gets it, once, by the key file that
//! the site gives to its controllers and services (`slurmdbd.key` beside `slurm.conf`).

use crate::daemon::place::Cluster;
use garrick_frame::LinkKind;
use garrick_kernel::inventory;
use garrick_model::{config::slurmdbd::KEY_FILE, doors};
use garrick_transport::{
    Connection, DoorConn, Endpoint, IdentityError, IdentityStore, JoinError, LinkError, any_address,
    enrol_with_shared_key, identity::ExpectPeer,
};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

/// What daemons call themselves.
const PROGRAM: &str = concat!("garrick ", env!("CARGO_PKG_VERSION"));

/// The service was not reached.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// None has a door on this host.
    #[error("no slurmdbd serves on this host")]
    Absent,
    /// The way to it.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// It does not know this cluster, or is not the site's.
    #[error("enrolling this cluster: {0}")]
    Enrol(#[from] JoinError),
    /// What this process knows of itself.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// There is nothing to enrol with.
    #[error("{address}: this cluster is not enrolled there, and there is no key file {}", key.display())]
    NoKey {
        /// The service's.
        address: String,
        /// Where the file would be.
        key: PathBuf,
    },
    /// It is on its way.
    #[error("{address}: this cluster is being enrolled there: try again")]
    Enrolling {
        /// The service's.
        address: String,
    },
    /// None of several.
    #[error("{0}")]
    None(String),
}

/// A way to the service.
#[derive(Debug)]
pub enum Reached {
    /// Its door.
    Door(Box<DoorConn>),
    /// A connection to another host.
    Far(Box<Connection>),
}

/// Finds the service.
#[derive(Clone)]
pub struct Accounting {
    /// Root, `SlurmUser` and this process's user: whose doors are believed, and for whom ordinary hosts may not speak.
    pub(super) believed: Arc<[u32]>,
    /// In the order in which they are tried.
    places: Arc<[Place]>,
    /// The one that answered last: it is tried first, since only one of them serves at a time.
    answered: Arc<AtomicUsize>,
}

enum Place {
    /// On this host.
    Door(Vec<PathBuf>),
    /// On another.
    Far(Far),
    /// At an address or alias that this host had when this process started: at its door, or, where the address has moved on since,
    /// wherever it is now.
    Either(Vec<PathBuf>, Far),
}

impl Accounting {
    /// That of a cluster, for its controller.
    pub fn of(cluster: &Cluster) -> Self {
        let doors = || -> Vec<PathBuf> {
            let doors = cluster.controller_doors().into_iter();
            doors.map(|door| door.with_file_name(doors::ACCOUNTING)).collect()
        };
        let far = |host: &str, address: String| Far {
            address,
            cluster: cluster.config.cluster_name.clone(),
            own: cluster.config.state_save_location.join("accounting"),
            folder: cluster.config.state_save_location.join("accounting").join(host),
            key: cluster.config.path.with_file_name(KEY_FILE),
            endpoint: Mutex::default(),
            enrolling: tokio::sync::Mutex::default(),
        };
        // An embedded cluster's is a part of its controller.
        let embedded = cluster.home.is_some();
        let whereabouts = |host: &str| if embedded { Whereabouts::Here } else { whereabouts(host) };
        let place = |(host, address): (&str, String)| match whereabouts(host) {
            Whereabouts::Here => Place::Door(doors()),
            Whereabouts::Alias => Place::Either(doors(), far(host, address)),
            Whereabouts::Elsewhere => Place::Far(far(host, address)),
        };
        let places = cluster.config.accounting_places().into_iter().map(place).collect();
        Self { believed: cluster.believed().into(), places, answered: Arc::default() }
    }

    /// A connection to whoever serves.
    ///
    /// # Errors
    /// Nobody does, or not for this cluster.
    pub async fn connect(&self, link: LinkKind) -> Result<Reached, ReachError> {
        let (count, first) = (self.places.len(), self.answered.load(Ordering::Relaxed));
        let mut failed = Vec::new();
        for at in (first..first + count).map(|at| at % count) {
            let reached = match &self.places[at] {
                Place::Door(doors) => self.knock(doors, link).await,
                Place::Far(far) => far.reach(link).await,
                Place::Either(doors, far) => match self.knock(doors, link).await {
                    Err(ReachError::Absent) => far.reach_elsewhere(link).await,
                    reached => reached,
                },
            };
            match reached {
                Ok(reached) => {
                    self.answered.store(at, Ordering::Relaxed);
                    return Ok(reached);
                }
                Err(error) => failed.push(error),
            }
        }
        match failed.len() {
            1 => Err(failed.remove(0)),
            _ => Err(ReachError::None(failed.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))),
        }
    }

    /// The one that answered last does not serve this cluster: another one is tried first now.
    pub fn try_another(&self) {
        let next = |at: usize| Some((at + 1) % self.places.len().max(1));
        let _ = self.answered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    async fn knock(&self, doors: &[PathBuf], link: LinkKind) -> Result<Reached, ReachError> {
        for door in doors {
            match DoorConn::connect(door, link, PROGRAM).await {
                Ok(conn) if self.believed.contains(&conn.peer.uid) => return Ok(Reached::Door(Box::new(conn))),
                Ok(conn) => {
                    let (uid, door) = (conn.peer.uid, door.display());
                    tracing::warn!(uid, %door, "somebody else's process poses as accounting");
                }
                Err(e) => tracing::debug!(door = %door.display(), error = %e, "no accounting here"),
            }
        }
        Err(ReachError::Absent)
    }
}

/// Which host a name or address means, as seen from this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whereabouts {
    /// This one, by its own name.
    Here,
    /// This one now, by an address that it has, or a name that leads to one.
    Alias,
    /// Another one, or one that is not known.
    Elsewhere,
}

/// Where that host is. The name service may be asked, and may take its time.
fn whereabouts(host: &str) -> Whereabouts {
    let own = inventory::hostname().unwrap_or_default();
    let address = host.parse::<IpAddr>();
    let is_named_here = address.is_err() && (host == "localhost" || inventory::short_hostname(host) == own);
    if is_named_here || address.as_ref().is_ok_and(IpAddr::is_loopback) {
        return Whereabouts::Here;
    }
    let is_own = match address {
        Ok(address) => is_own(address),
        Err(_) => (host, 0).to_socket_addrs().is_ok_and(|mut found| found.any(|at| is_own(at.ip()))),
    };
    if is_own { Whereabouts::Alias } else { Whereabouts::Elsewhere }
}

/// Does that name or address mean this host?
pub(super) fn is_here(host: &str) -> bool {
    whereabouts(host) != Whereabouts::Elsewhere
}

/// Is it an address of this host? Only to these sockets can be bound, unless the host allows others too: then what it sends to one of
/// its own comes from there. Nothing is sent for that.
fn is_own(address: IpAddr) -> bool {
    const DISCARD: u16 = 9;
    let (any, family): (IpAddr, &str) = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), "ipv4"),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), "ipv6"),
    };
    if address.is_unspecified() || address.is_multicast() {
        return false;
    }
    let setting = std::fs::read_to_string(format!("/proc/sys/net/{family}/ip_nonlocal_bind"));
    let binds_to_others = setting.is_ok_and(|text| text.trim() == "1");
    if !binds_to_others {
        return UdpSocket::bind((address, 0)).is_ok();
    }
    let from = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(SocketAddr::from((address, DISCARD)))?;
        socket.local_addr()
    };
    from().is_ok_and(|from| from.ip() == address)
}

/// A service on another host.
struct Far {
    address: String,
    cluster: String,
    /// Of this process's key, to which the service binds the cluster's name.
    own: PathBuf,
    /// Of this process's identity towards it.
    folder: PathBuf,
    /// The site's key file.
    key: PathBuf,
    /// With that identity.
    endpoint: Mutex<Option<Arc<Endpoint>>>,
    /// One at a time, and nobody waits for it.
    enrolling: tokio::sync::Mutex<()>,
}

impl Far {
    async fn reach(&self, link: LinkKind) -> Result<Reached, ReachError> {
        self.connect(link).await.map(|connection| Reached::Far(Box::new(connection)))
    }

    /// The same, where nobody serves at the door of this host, whose address it has.
    async fn reach_elsewhere(&self, link: LinkKind) -> Result<Reached, ReachError> {
        match self.reach(link).await {
            // It was never meant to be anywhere else.
            Err(ReachError::NoKey { .. }) => Err(ReachError::Absent),
            reached => reached,
        }
    }

    async fn connect(&self, link: LinkKind) -> Result<Connection, ReachError> {
        let expect = ExpectPeer::accounting();
        let endpoint = self.endpoint().await?;
        match endpoint.connect(&self.address, link, PROGRAM, &expect).await {
            // The service was set up anew, or somebody poses as it: the site's key tells.
            Err(LinkError::ForeignCertificate { .. } | LinkError::ExpiredCertificate { .. }) if self.key.is_file() => {
                let endpoint = self.enrol().await?;
                Ok(endpoint.connect(&self.address, link, PROGRAM, &expect).await?)
            }
            outcome => Ok(outcome?),
        }
    }

    /// With the identity that there is, renewed where it ends soon.
    async fn endpoint(&self) -> Result<Arc<Endpoint>, ReachError> {
        let Some(ready) = self.ready()? else { return self.enrol().await };
        let now = SystemTime::now();
        if now < ready.identity().renew_at() {
            return Ok(ready);
        }
        match self.enrol().await {
            Err(error) if now < ready.identity().expiry() => {
                tracing::warn!(%error, "the certificate for accounting is not renewed");
                Ok(ready)
            }
            enrolled => enrolled,
        }
    }

    fn ready(&self) -> Result<Option<Arc<Endpoint>>, ReachError> {
        let mut endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        if endpoint.is_none() {
            match IdentityStore::load(&self.folder) {
                Ok(identity) => *endpoint = Some(Arc::new(Endpoint::bind(any_address(0), identity)?)),
                Err(IdentityError::Absent { .. }) => {}
                Err(error) => tracing::warn!(%error, "the identity for accounting cannot be used: enrolling anew"),
            }
        }
        Ok(endpoint.clone())
    }

    async fn enrol(&self) -> Result<Arc<Endpoint>, ReachError> {
        if !self.key.is_file() {
            return Err(ReachError::NoKey { address: self.address.clone(), key: self.key.clone() });
        }
        let Ok(_turn) = self.enrolling.try_lock() else {
            return Err(ReachError::Enrolling { address: self.address.clone() });
        };
        let (own, folder) = (&self.own, &self.folder);
        let identity = enrol_with_shared_key(&self.address, &self.key, &self.cluster, own, folder).await?;
        tracing::info!(service = self.address, cluster = self.cluster, "this cluster is enrolled at accounting");
        let enrolled = Arc::new(Endpoint::bind(any_address(0), identity)?);
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&enrolled));
        Ok(enrolled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_several_names_and_addresses() {
        let own = inventory::hostname().unwrap_or_default();
        for host in ["localhost", "127.0.0.1", "127.3.2.1", "::1", &own, &format!("{own}.example.org")] {
            assert_eq!(whereabouts(host), Whereabouts::Here, "{host}");
        }
        // Of addresses that are kept for documentation, and of none.
        for host in ["192.0.2.4", "2001:db8::7", "db1.example.invalid", "0.0.0.0", "224.0.0.1"] {
            assert_eq!(whereabouts(host), Whereabouts::Elsewhere, "{host}");
        }
        assert!(is_own(Ipv4Addr::LOCALHOST.into()) && !is_own(Ipv4Addr::new(192, 0, 2, 4).into()));
    }
}
