//! The port of the service (`DbdPort`), for controllers of other hosts. Whoever connects shows a certificate of the service's own
//! authority, which is made for controllers only: one gets it for the name of its cluster when it proves that it has the site's key
//! file, and then the name is bound to its key. So a cluster's controller feeds rows of its cluster only, another one cannot take its
//! name, and certificates of nodes, which are of their clusters' authorities, are worth nothing here. The binding holds as long as its
//! line is there: without it the cluster's connections end, and its certificate, which may be valid for years, opens none.

use super::door::{Feeder, World, asker_of, not_known};
use crate::daemon::reset_key;
use garrick_accounts::messages::{AccountsReply, AccountsRequest, Feed, Kept, PassedOn};
use garrick_daemon::links::traced;
use garrick_frame::{LinkKind, limits};
use garrick_kernel::{
    files::{self, FileError},
    inventory,
};
use garrick_model::{config::slurmdbd::DbdConfig, entities::Entities};
use garrick_transport::{
    CertAuthority, Connection, Endpoint, EndpointOptions, IdentityError, IdentityStore, JoinServer, LinkError, Role,
    Sparing, any_address,
    identity::{hex, is_name},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};
use tokio::sync::watch;

/// The cluster of which the service's certificates are: its name is not one of a cluster.
const SITE: &str = "accounting";
/// Clusters of a site at most.
const MOST_CLUSTERS: usize = 1000;
/// How often it is looked whether the service's own certificate ends.
const LOOK: Duration = Duration::from_secs(3600);
/// How often it is looked whether an administrator changed the names of clusters.
const LOOK_AT_NAMES: Duration = Duration::from_secs(1);

/// The port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// Keys and certificates.
    #[error("the identity of accounting: {0}")]
    Identity(#[from] IdentityError),
    /// The port itself.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// The port, with what keeps its certificate valid.
pub struct Port {
    endpoint: Endpoint,
    authority: Arc<CertAuthority>,
    folder: PathBuf,
    names: Arc<Names>,
}

/// Opens the port, where the site has a key file, or controllers were enrolled before.
///
/// # Errors
/// See [`NetworkError`].
pub fn open(settings: &DbdConfig) -> Result<Option<Port>, NetworkError> {
    let (keys, key_file) = (settings.keys_folder(), settings.key_file());
    let folder = keys.join("identity");
    if !key_file.is_file() && !keys.join("ca").exists() {
        tracing::info!(
            key = %key_file.display(),
            "controllers of other hosts are not served: there is no key file"
        );
        return Ok(None);
    }
    let authority = Arc::new(CertAuthority::open_or_create(&keys.join("ca"), SITE)?);
    let identity = match IdentityStore::load(&folder) {
        Ok(identity) if identity.renew_at() > SystemTime::now() => identity,
        _ => enrol(&authority, &folder)?,
    };
    let names = Arc::new(Names::kept_in(&keys));
    let claimed = Arc::clone(&names);
    let join = JoinServer::new(Arc::clone(&authority))?
        .with_role(Role::Controller)
        .with_shared_key(&key_file)
        .with_keys(move |cluster, key| claimed.claim(cluster, key));
    let options =
        EndpointOptions { join: Some(Arc::new(join)), reset_key: reset_key::kept(&keys), ..EndpointOptions::default() };
    let endpoint = Endpoint::bind_with(any_address(settings.port), identity, options)?;
    tracing::info!(address = %endpoint.local_addr(), keys = %keys.display(), "controllers of other hosts are served");
    Ok(Some(Port { endpoint, authority, folder, names }))
}

fn enrol(authority: &CertAuthority, folder: &Path) -> Result<Arc<IdentityStore>, IdentityError> {
    let host = inventory::hostname().unwrap_or_else(|_| "localhost".into());
    authority.enrol(Role::Accounting, &host, folder)
}

impl Port {
    /// Serves until the port is closed.
    pub async fn serve(self, world: World) {
        let (identity, authority, folder) = (Arc::clone(self.endpoint.identity()), self.authority, self.folder);
        let names = self.names;
        actix_rt::spawn(keep_valid(identity, authority, folder));
        actix_rt::spawn(forget_deleted(Arc::clone(&names), world.store.watch_entities()));
        actix_rt::spawn(look_at_names(Arc::clone(&names)));
        while let Some(arrived) = self.endpoint.accept().await {
            match arrived {
                Ok(connection) => {
                    let (world, names) = (world.of_now(), Arc::clone(&names));
                    actix_rt::spawn(async move { admit(connection, &names, &world).await });
                }
                Err(error) => {
                    static TURNED_AWAY: Sparing = Sparing::new();
                    if let Some(left_out) = TURNED_AWAY.due(Instant::now()) {
                        tracing::warn!(%error, left_out, "a peer was turned away");
                    }
                }
            }
        }
    }
}

/// Renews the service's own certificate in time.
async fn keep_valid(identity: Arc<IdentityStore>, authority: Arc<CertAuthority>, folder: PathBuf) {
    loop {
        tokio::time::sleep(LOOK).await;
        if identity.renew_at() <= SystemTime::now()
            && let Err(error) = enrol(&authority, &folder).and_then(|_| identity.reload(&folder))
        {
            tracing::error!(%error, "the certificate of accounting is not renewed");
        }
    }
}

/// Notices what an administrator does to the file of names.
async fn look_at_names(names: Arc<Names>) {
    let mut seen = names.mark();
    loop {
        tokio::time::sleep(LOOK_AT_NAMES).await;
        let now = names.mark();
        if now != seen {
            seen = now;
            names.look();
        }
    }
}

/// The names of clusters that are deleted (`sacctmgr delete cluster`) are free again.
async fn forget_deleted(names: Arc<Names>, mut entities: watch::Receiver<Arc<Entities>>) {
    // It may have ended between the two.
    let mut known = deleted(&entities.borrow_and_update());
    names.release(&known);
    while entities.changed().await.is_ok() {
        let now = deleted(&entities.borrow_and_update());
        names.release(&now.difference(&known).cloned().collect());
        known = now;
    }
}

/// Those that are marked so. One that is not there at all may be missing in a backup of the database only.
fn deleted(entities: &Entities) -> BTreeSet<String> {
    let deleted = entities.clusters.values().filter(|cluster| cluster.deleted);
    deleted.map(|cluster| cluster.name.clone()).collect()
}

/// Converses with a controller as long as its cluster's name is bound to its key.
async fn admit(connection: Connection, names: &Names, world: &World) {
    let (name, handle) = (connection.peer.name.clone(), connection.handle());
    if connection.peer.role != Role::Controller {
        return converse(connection, world).await;
    }
    let key = match connection.peer_key() {
        Ok(key) => hex(&key),
        Err(error) => return tracing::warn!(%error, "a controller's key is not known"),
    };
    names.look();
    tokio::select! {
        biased;
        () = names.until_released(&name, &key) => {
            static NOT_ENROLLED: Sparing = Sparing::new();
            if let Some(left_out) = NOT_ENROLLED.due(Instant::now()) {
                tracing::warn!(cluster = name, key, left_out, "a controller's key is not, or no more, that of its cluster");
            }
            handle.turn_away(&format!(
                "cluster {name} is not enrolled with this controller's key. To enrol it again, remove the folder accounting in its \
                 StateSaveLocation and start slurmctld anew"
            ));
            // The conversation was dropped, with what counts it.
            world.note_gone().await;
        }
        () = converse(connection, world) => {}
    }
}

async fn converse(mut connection: Connection, world: &World) {
    match (connection.link, connection.peer.role) {
        (LinkKind::ControllerAccounts, Role::Controller) => {
            let feeder = Feeder {
                cluster: Some(connection.peer.name.clone()),
                address: Some(connection.remote.ip().to_canonical()),
                ..Feeder::default()
            };
            let (replies, messages) = connection.split::<Kept, Feed>();
            world.be_fed(replies, messages, feeder).await;
        }
        (LinkKind::CommandToAccounts, Role::Controller) => {
            while let Ok(Some((passed, bulk))) = connection.accept_bulk::<PassedOn>().await {
                let world = world.of_now();
                let (replies, requests) = bulk.split::<AccountsReply, AccountsRequest>(limits::DOOR);
                let cluster = connection.peer.name.clone();
                actix_rt::spawn(async move {
                    match asker_of(passed, &cluster).await {
                        Ok(asker) => world.answer_all(replies, requests, asker, false).await,
                        Err(error) => drop(replies.send(traced(not_known(&error))).await),
                    }
                });
            }
        }
        (link, role) => {
            tracing::warn!(%link, %role, name = connection.peer.name, "a peer wants what accounting does not serve");
            connection.close("accounting does not serve that");
        }
    }
}

/// Names of clusters, and the keys that they are bound to, in hexadecimal.
type Bound = BTreeMap<String, String>;

/// What tells one state of a file from another.
type Mark = Option<(u64, i64, i64, u64)>;

/// Which cluster's name is bound to which controller's key: a line for each, with the key's SHA-256. An administrator removes the line
/// of a cluster whose controller lost its key, or shall not come any more.
struct Names {
    path: PathBuf,
    changing: Mutex<()>,
    /// As the file had them when it was last looked at.
    bound: watch::Sender<Bound>,
}

impl Names {
    fn kept_in(keys: &Path) -> Self {
        let names = Self { path: keys.join("clusters"), changing: Mutex::default(), bound: watch::Sender::default() };
        names.look();
        names
    }

    /// Binds a name that is free; one that is bound is only its key's.
    fn claim(&self, cluster: &str, key: &[u8; 32]) -> Result<(), String> {
        if !is_name(cluster) || cluster.chars().any(char::is_uppercase) {
            return Err("that is no name of a cluster".to_owned());
        }
        let key = hex(key);
        self.change(|bound| match bound.get(cluster) {
            Some(of) if *of == key => Ok(()),
            Some(_) => Err(format!(
                "cluster {cluster} is that of another controller. If that one lost its key, remove the cluster's line from {} on the \
                 service's host",
                self.path.display()
            )),
            None if bound.len() >= MOST_CLUSTERS => Err(format!("{MOST_CLUSTERS} clusters are there already")),
            None => {
                tracing::info!(cluster, key, "a cluster is enrolled");
                bound.insert(cluster.to_owned(), key.clone());
                Ok(())
            }
        })
    }

    /// These names are free again.
    fn release(&self, clusters: &BTreeSet<String>) {
        if clusters.is_empty() {
            return;
        }
        let released = self.change(|bound| {
            for cluster in clusters.iter().filter(|cluster| bound.contains_key(*cluster)) {
                tracing::info!(cluster, "a cluster was deleted: its controller is not let in any more");
            }
            bound.retain(|name, _| !clusters.contains(name));
            Ok(())
        });
        // The log has it.
        drop(released);
    }

    /// Changes the file, and whoever waits for that hears of it.
    fn change(&self, change: impl FnOnce(&mut Bound) -> Result<(), String>) -> Result<(), String> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: FileError| {
            tracing::error!(%error, "the names of clusters");
            "the service cannot read or write the names of its clusters (see its log)".to_owned()
        };
        let before = self.read().map_err(failed)?;
        let mut bound = before.clone();
        change(&mut bound)?;
        if bound != before {
            let text: String = bound.iter().map(|(name, key)| format!("{name} {key}\n")).collect();
            files::write_atomically(&self.path, text.as_bytes(), 0o600).map_err(failed)?;
        }
        self.tell(bound);
        Ok(())
    }

    fn read(&self) -> Result<Bound, FileError> {
        let text = files::read_if_there(&self.path)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let bound = text.lines().filter_map(|line| line.trim().split_once(' '));
        Ok(bound.map(|(name, key)| (name.to_owned(), key.trim().to_owned())).collect())
    }

    /// Looks at the file. What was known stays where it cannot be read.
    fn look(&self) {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        match self.read() {
            Ok(bound) => self.tell(bound),
            Err(error) => tracing::error!(%error, "the names of clusters"),
        }
    }

    fn tell(&self, bound: Bound) {
        self.bound.send_if_modified(|known| {
            let is_other = *known != bound;
            *known = bound;
            is_other
        });
    }

    /// Changes with the file.
    fn mark(&self) -> Mark {
        match fs::metadata(&self.path) {
            Ok(found) => Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // It is looked at, and that says why it cannot be read.
            Err(_) => Some((0, 0, 0, 0)),
        }
    }

    /// Waits until that name is not, or not any more, bound to that key.
    async fn until_released(&self, cluster: &str, key: &str) {
        let mut bound = self.bound.subscribe();
        // Its sender is this.
        let _ = bound.wait_for(|bound| bound.get(cluster).is_none_or(|of| of != key)).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_kernel::scratch::Scratch;

    #[test]
    fn a_clusters_name_is_its_first_controllers() {
        let dir = Scratch::new("cluster-names");
        let names = Names::kept_in(dir.path());
        names.claim("maple", &[1; 32]).unwrap();
        names.claim("birch", &[2; 32]).unwrap();
        names.claim("maple", &[1; 32]).unwrap();
        let refused = names.claim("maple", &[3; 32]).unwrap_err();
        assert!(refused.starts_with("cluster maple is that of another controller"), "{refused}");
        let text = fs::read_to_string(dir.join("clusters")).unwrap();
        assert_eq!(text, format!("birch {}\nmaple {}\n", "02".repeat(32), "01".repeat(32)));
        fs::write(dir.join("clusters"), format!("birch {}\n", "02".repeat(32))).unwrap();
        names.claim("maple", &[3; 32]).unwrap();
    }

    #[tokio::test]
    async fn a_name_that_is_released_is_noticed() {
        let dir = Scratch::new("cluster-names-released");
        let names = Names::kept_in(dir.path());
        let (old, new) = (hex(&[1; 32]), hex(&[3; 32]));
        names.until_released("maple", &old).await;
        names.claim("maple", &[1; 32]).unwrap();
        let released = names.until_released("maple", &old);
        tokio::pin!(released);
        assert!(is_pending(&mut released).await, "it is bound");
        // By hand, and for a controller that came anew.
        let before = names.mark();
        fs::write(dir.join("clusters"), format!("maple {new}\n")).unwrap();
        assert_ne!(names.mark(), before);
        names.look();
        released.await;
        let released = names.until_released("maple", &new);
        tokio::pin!(released);
        assert!(is_pending(&mut released).await);
        names.release(&["maple".to_owned()].into());
        released.await;
        assert_eq!(fs::read_to_string(dir.join("clusters")).unwrap(), "");
    }

    /// Polls it once.
    async fn is_pending(future: &mut (impl Future<Output = ()> + Unpin)) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
        })
        .await
    }

    #[tokio::test]
    async fn only_controllers_that_were_enrolled_are_let_in() {
        use garrick_model::config::storage::Storage;
        use garrick_transport::{enrol_with_shared_key, identity::ExpectPeer};
        garrick_transport::install_crypto_provider();
        let dir = Scratch::new("accounting-port");
        let (key, own) = (dir.join("slurmdbd.key"), dir.join("state"));
        let settings = DbdConfig {
            storage: Storage::in_file(&dir.join("acct/accounting.db")),
            port: 0,
            ..DbdConfig::at(&dir.join("slurmdbd.conf"))
        };
        assert!(open(&settings).unwrap().is_none(), "without a key nobody is served");
        dir.put("slurmdbd.key", "0123456789abcdef0123456789abcdef");
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let port = open(&settings).unwrap().unwrap();
        let address = format!("127.0.0.1:{}", port.endpoint.local_addr().port());
        let (expect, link) = (ExpectPeer::accounting(), LinkKind::ControllerAccounts);
        let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));

        let enrolled = enrol_with_shared_key(&address, &key, "maple", &own, &own.join("here")).await.unwrap();
        let controller = Endpoint::bind(local, enrolled).unwrap();
        let (connected, came) =
            tokio::join!(controller.connect(&address, link, "test", &expect), port.endpoint.accept());
        connected.unwrap();
        let came = came.unwrap().unwrap();
        assert_eq!(came.peer.to_string(), "controller maple of cluster accounting");
        // It is known by the key that it enrolled with.
        let bound = fs::read_to_string(settings.keys_folder().join("clusters")).unwrap();
        assert_eq!(bound, format!("maple {}\n", hex(&came.peer_key().unwrap())));

        // A node and a controller of a cluster whose own authority calls itself the same.
        let other = CertAuthority::create(&dir.join("ca"), SITE).unwrap();
        for role in [Role::Node, Role::Controller] {
            let identity = other.enrol(role, "maple", &dir.join("identity")).unwrap();
            let stranger = Endpoint::bind(local, identity).unwrap();
            let refused = stranger.connect(&address, link, "test", &expect).await;
            assert!(matches!(refused, Err(LinkError::ForeignCertificate { .. })), "{refused:?}");
        }
    }
}
