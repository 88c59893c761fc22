//! The port of the service (`DbdPort`), for controllers of other hosts. Whoever connects shows a certificate of the service's own
//! authority, which is made for controllers only: one gets it for the name of its cluster when it proves that it has the site's key
//! file, and then the name is bound to its key. So a cluster's controller feeds rows of its cluster only, another one cannot take its
//! name, and certificates of nodes, which are of their clusters' authorities, are worth nothing here.

use super::door::{Feeder, World, asker_of};
use crate::daemon::reset_key;
use garrick_accounts::messages::{AccountsReply, AccountsRequest, Feed, Kept, PassedOn};
use garrick_frame::{LinkKind, limits};
use garrick_kernel::{
    files::{self, FileError},
    inventory,
};
use garrick_model::config::slurmdbd::DbdConfig;
use garrick_transport::{
    CertAuthority, Connection, Endpoint, EndpointOptions, IdentityError, IdentityStore, JoinServer, LinkError, Role,
    Sparing, any_address,
    identity::{hex, is_name},
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

/// The cluster of which the service's certificates are: its name is not one of a cluster.
const SITE: &str = "accounting";
/// Clusters of a site at most.
const MOST_CLUSTERS: usize = 1000;
/// How often it is looked whether the service's own certificate ends.
const LOOK: Duration = Duration::from_secs(3600);

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
    let names = Names { path: keys.join("clusters"), changing: Mutex::default() };
    let join = JoinServer::new(Arc::clone(&authority))?
        .with_role(Role::Controller)
        .with_shared_key(&key_file)
        .with_keys(move |cluster, key| names.claim(cluster, key));
    let options =
        EndpointOptions { join: Some(Arc::new(join)), reset_key: reset_key::kept(&keys), ..EndpointOptions::default() };
    let endpoint = Endpoint::bind_with(any_address(settings.port), identity, options)?;
    tracing::info!(address = %endpoint.local_addr(), keys = %keys.display(), "controllers of other hosts are served");
    Ok(Some(Port { endpoint, authority, folder }))
}

fn enrol(authority: &CertAuthority, folder: &Path) -> Result<Arc<IdentityStore>, IdentityError> {
    let host = inventory::hostname().unwrap_or_else(|_| "localhost".into());
    authority.enrol(Role::Accounting, &host, folder)
}

impl Port {
    /// Serves until the port is closed.
    pub async fn serve(self, world: World) {
        let (identity, authority, folder) = (Arc::clone(self.endpoint.identity()), self.authority, self.folder);
        actix_rt::spawn(keep_valid(identity, authority, folder));
        while let Some(arrived) = self.endpoint.accept().await {
            match arrived {
                Ok(connection) => {
                    let world = world.clone();
                    actix_rt::spawn(async move { converse(connection, &world).await });
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
                let world = world.clone();
                let (replies, requests) = bulk.split::<AccountsReply, AccountsRequest>(limits::DOOR);
                let cluster = connection.peer.name.clone();
                actix_rt::spawn(async move {
                    world.answer_all(replies, requests, asker_of(passed, &cluster), false).await;
                });
            }
        }
        (link, role) => {
            tracing::warn!(%link, %role, name = connection.peer.name, "a peer wants what accounting does not serve");
            connection.close("accounting does not serve that");
        }
    }
}

/// Which cluster's name is bound to which controller's key: a line for each, with the key's SHA-256. An administrator removes the line
/// of a cluster whose controller lost its key.
struct Names {
    path: PathBuf,
    changing: Mutex<()>,
}

impl Names {
    /// Binds a name that is free; one that is bound is only its key's.
    fn claim(&self, cluster: &str, key: &[u8; 32]) -> Result<(), String> {
        if !is_name(cluster) || cluster.chars().any(char::is_uppercase) {
            return Err("that is no name of a cluster".to_owned());
        }
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: FileError| {
            tracing::error!(%error, "the names of clusters");
            "the service cannot read or write the names of its clusters (see its log)".to_owned()
        };
        let text = files::read_if_there(&self.path).map_err(failed)?.unwrap_or_default();
        let mut text = String::from_utf8_lossy(&text).into_owned();
        let bound: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(' ')).collect();
        let key = hex(key);
        match bound.iter().find(|(name, _)| *name == cluster) {
            Some((_, of)) if of.trim() == key => return Ok(()),
            Some(_) => {
                return Err(format!(
                    "cluster {cluster} is that of another controller. If that one lost its key, remove the cluster's line from {} on \
                     the service's host",
                    self.path.display()
                ));
            }
            None if bound.len() >= MOST_CLUSTERS => return Err(format!("{MOST_CLUSTERS} clusters are there already")),
            None => {}
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("{cluster} {key}\n"));
        files::replace_for_good(&self.path, text.as_bytes(), 0o600).map_err(failed)?;
        tracing::info!(cluster, key, "a cluster was enrolled");
        Ok(())
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
        let names = Names { path: dir.join("clusters"), changing: Mutex::default() };
        names.claim("maple", &[1; 32]).unwrap();
        names.claim("birch", &[2; 32]).unwrap();
        names.claim("maple", &[1; 32]).unwrap();
        let refused = names.claim("maple", &[3; 32]).unwrap_err();
        assert!(refused.starts_with("cluster maple is that of another controller"), "{refused}");
        let text = std::fs::read_to_string(dir.join("clusters")).unwrap();
        assert_eq!(text, format!("maple {}\nbirch {}\n", "01".repeat(32), "02".repeat(32)));
        std::fs::write(dir.join("clusters"), format!("birch {}\n", "02".repeat(32))).unwrap();
        names.claim("maple", &[3; 32]).unwrap();
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
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let port = open(&settings).unwrap().unwrap();
        let address = format!("127.0.0.1:{}", port.endpoint.local_addr().port());
        let (expect, link) = (ExpectPeer::accounting(), LinkKind::ControllerAccounts);
        let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));

        let enrolled = enrol_with_shared_key(&address, &key, "maple", &own, &own.join("here")).await.unwrap();
        let controller = Endpoint::bind(local, enrolled).unwrap();
        let (connected, came) =
            tokio::join!(controller.connect(&address, link, "test", &expect), port.endpoint.accept());
        connected.unwrap();
        assert_eq!(came.unwrap().unwrap().peer.to_string(), "controller maple of cluster accounting");

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
