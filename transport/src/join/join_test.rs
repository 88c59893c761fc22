#![allow(clippy::unwrap_used)]
//! Joining between a real controller and nodes.

use super::*;
use crate::{
    DoorListener, Endpoint, EndpointOptions, ExpectPeer, IdentityStore, LinkKind,
    identity::{CertAuthority, Change, Keep, KeepError, Role, files, keep::InFolder},
    testing::{Cluster, Folder},
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

const HOUR: Duration = Duration::from_secs(3600);

struct Site {
    cluster: Cluster,
    server: Arc<JoinServer>,
    endpoint: Endpoint,
    address: String,
    key: PathBuf,
}

fn site() -> Site {
    site_kept_by(None)
}

/// From its start on changes of the authority are kept by that.
fn site_kept_by(keep: Option<Arc<dyn Keep>>) -> Site {
    let mut cluster = Cluster::new("c1");
    let controller = cluster.controller();
    if let Some(keep) = keep {
        cluster.authority = Arc::new(CertAuthority::open(cluster.authority.folder()).unwrap().kept_by(keep));
    }
    let key = cluster.folder.path().join("site.key");
    files::write_whole(&key, &[9; 64], files::PRIVATE).unwrap();
    let server = JoinServer::new(Arc::clone(&cluster.authority)).unwrap().with_shared_key(&key).with_names(|name| {
        if name.starts_with('n') { Ok(()) } else { Err(format!("{name} is not a node of this cluster")) }
    });
    let server = Arc::new(server);
    let options = EndpointOptions { join: Some(Arc::<JoinServer>::clone(&server)), ..EndpointOptions::default() };
    let endpoint = Endpoint::bind_with(([127, 0, 0, 1], 0).into(), controller, options).unwrap();
    let address = endpoint.local_addr().to_string();
    Site { cluster, server, endpoint, address, key }
}

/// The new node can do what members can.
async fn is_member(site: &Site, identity: Arc<IdentityStore>, name: &str) {
    let node = Endpoint::bind(([127, 0, 0, 1], 0).into(), identity).unwrap();
    let expect = ExpectPeer::controller();
    let connecting = node.connect(&site.address, LinkKind::ControllerNode, "slurmd", &expect);
    let (client, server) = tokio::join!(connecting, site.endpoint.accept());
    client.unwrap();
    assert_eq!(server.unwrap().unwrap().peer.name, name);
}

#[tokio::test]
async fn a_controller_is_enrolled_under_the_name_that_its_key_had_first() {
    let (folder, own) = (Folder::new(), Folder::new());
    let at = |name: &str| folder.path().join(name);
    let authority = Arc::new(CertAuthority::create(&at("ca"), "accounting").unwrap());
    let service = authority.enrol(Role::Accounting, "db1", &at("identity")).unwrap();
    let (key, other) = (at("site.key"), at("other.key"));
    files::write_whole(&key, &[9; 64], files::PRIVATE).unwrap();
    files::write_whole(&other, &[8; 64], files::PRIVATE).unwrap();
    let bound: std::sync::Mutex<Option<[u8; 32]>> = std::sync::Mutex::default();
    let rule = move |_: &str, key: &[u8; 32]| {
        let mut bound = bound.lock().unwrap();
        if *bound.get_or_insert(*key) == *key { Ok(()) } else { Err("it is another's".to_owned()) }
    };
    let server = JoinServer::new(authority).unwrap().with_role(Role::Controller).with_shared_key(&key).with_keys(rule);
    let options = EndpointOptions { join: Some(Arc::new(server)), ..EndpointOptions::default() };
    let endpoint = Endpoint::bind_with(([127, 0, 0, 1], 0).into(), service, options).unwrap();
    let address = endpoint.local_addr().to_string();
    let refused = |outcome: Result<Arc<IdentityStore>, JoinError>| match outcome {
        Err(JoinError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };

    let without = enrol_with_shared_key(&address, &other, "maple", own.path(), &at("m")).await;
    assert!(refused(without).contains("the proof is wrong"));
    let node = join_with_shared_key(&address, &key, "n1", &at("n")).await;
    assert_eq!(refused(node), "a controller joins here, not a node");
    for _ in 0..2 {
        let identity = enrol_with_shared_key(&address, &key, "maple", own.path(), &at("m")).await.unwrap();
        let controller = Endpoint::bind(([127, 0, 0, 1], 0).into(), identity).unwrap();
        let expect = ExpectPeer::accounting();
        let connecting = controller.connect(&address, LinkKind::ControllerAccounts, "slurmctld", &expect);
        // Those that were refused are told first.
        let accepting = async {
            loop {
                if let Ok(connection) = endpoint.accept().await.unwrap() {
                    break connection;
                }
            }
        };
        let (client, server) = tokio::join!(connecting, accepting);
        client.unwrap();
        let peer = server.peer;
        assert_eq!((peer.role, peer.name.as_str()), (Role::Controller, "maple"));
    }
    let taken = enrol_with_shared_key(&address, &key, "maple", &at("another"), &at("x")).await;
    assert!(refused(taken).contains("it is another's"));
}

#[tokio::test]
async fn a_node_that_comes_before_the_controller_can_serve_it_joins_as_soon_as_it_can() {
    let (cluster, folder) = (Cluster::new("c1"), Folder::new());
    let (set_ready, ready) = tokio::sync::watch::channel(false);
    let known = ready.clone();
    let rule = move |_: &str| if *known.borrow() { Ok(()) } else { Err("no node is known yet".to_owned()) };
    let server = JoinServer::new(Arc::clone(&cluster.authority)).unwrap().once(ready).with_names(rule);
    let server = Arc::new(server);
    let token = server.create_token(HOUR, None).unwrap();
    let options = EndpointOptions { join: Some(Arc::<JoinServer>::clone(&server)), ..EndpointOptions::default() };
    let endpoint = Endpoint::bind_with(([127, 0, 0, 1], 0).into(), cluster.controller(), options).unwrap();
    let address = endpoint.local_addr().to_string();
    let mut joining = Box::pin(join_with_token(&address, &token, "n1", folder.path()));
    // Its connection has come before the controller is ready, and looks out for that.
    let lookouts = set_ready.receiver_count();
    while set_ready.receiver_count() == lookouts {
        tokio::select! {
            outcome = &mut joining => panic!("{:?}", outcome.map(|_| ())),
            () = tokio::task::yield_now() => {}
        }
    }
    set_ready.send(true).unwrap();
    assert_eq!(joining.await.unwrap().identity().name, "n1");
}

/// Keeps what it is asked to, and waits for the test each time.
struct Gate(tokio::sync::mpsc::UnboundedSender<std::sync::mpsc::Sender<()>>);

impl Keep for Gate {
    fn keep(&self, changes: Vec<Change>) -> Result<(), IdentityError> {
        let (open, opened) = std::sync::mpsc::channel();
        self.0.send(open).unwrap();
        opened.recv().unwrap();
        InFolder.keep(changes)
    }
}

/// On one thread: it would never be done if that waited for what is kept.
#[tokio::test]
async fn others_are_served_while_a_certificate_is_kept() {
    let (waits, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let (site, folder) = (site_kept_by(Some(Arc::new(Gate(waits)))), Folder::new());
    let mut joining = Box::pin(join_with_shared_key(&site.address, &site.key, "n1", folder.path()));
    let gate = tokio::select! {
        outcome = &mut joining => panic!("{:?}", outcome.map(|_| ())),
        gate = kept.recv() => gate.unwrap(),
    };
    let error = join_with_shared_key(&site.address, &site.key, "stranger", &folder.path().join("s")).await.unwrap_err();
    assert!(error.to_string().contains("is not a node of this cluster"), "{error}");
    gate.send(()).unwrap();
    assert_eq!(joining.await.unwrap().identity().name, "n1");
}

/// Keeps the last of so many changes that it is asked for.
struct Busy(AtomicUsize, Duration);

impl Keep for Busy {
    fn keep(&self, changes: Vec<Change>) -> Result<(), IdentityError> {
        match self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Err(KeepError::Later { after: self.1 }.into()),
            Err(_) => InFolder.keep(changes),
        }
    }
}

#[tokio::test]
async fn a_node_that_joins_waits_for_a_log_that_is_busy_and_is_told_where_that_takes_too_long() {
    let busy = Arc::new(Busy(AtomicUsize::new(3), Duration::from_millis(1)));
    let (site, folder) = (site_kept_by(Some(Arc::clone(&busy) as _)), Folder::new());
    let identity = join_with_shared_key(&site.address, &site.key, "n1", &folder.path().join("n1")).await.unwrap();
    is_member(&site, identity, "n1").await;
    busy.0.store(3, Relaxed);
    through_door(&site, folder.path(), "n2").await.unwrap();
    assert_eq!(busy.0.load(Relaxed), 0, "each was tried");
    let site = site_kept_by(Some(Arc::new(Busy(AtomicUsize::new(1), Duration::from_secs(60)))));
    let error = join_with_shared_key(&site.address, &site.key, "n3", &folder.path().join("n3")).await.unwrap_err();
    assert!(error.to_string().contains("try again in 60 s"), "{error}");
}

#[tokio::test]
async fn a_token_lets_one_node_in_once() {
    let (site, folder) = (site(), Folder::new());
    let token = site.server.create_token(HOUR, None).unwrap();
    let (one, two) = (folder.path().join("n1"), folder.path().join("n2"));
    let identity = join_with_token(&site.address, &token, "n1", &one).await.unwrap();
    is_member(&site, identity, "n1").await;
    is_member(&site, IdentityStore::load(&one).unwrap(), "n1").await;
    assert!(!one.join("joining.pem").exists());
    let error = join_with_token(&site.address, &token, "n2", &two).await.unwrap_err();
    assert!(error.to_string().contains("used already, by n1"), "{error}");
    assert!(matches!(IdentityStore::load(&two), Err(IdentityError::Absent { .. })));
}

#[tokio::test]
async fn a_node_whose_answer_was_lost_may_ask_again() {
    let (site, folder) = (site(), Folder::new());
    let token = site.server.create_token(HOUR, None).unwrap();
    join_with_token(&site.address, &token, "n1", folder.path()).await.unwrap();
    // As if the answer had not come: the key of the attempt is there, the identity is not.
    let identity = std::fs::read_to_string(folder.path().join("identity.pem")).unwrap();
    let key = &identity[..identity.find("-----BEGIN CERTIFICATE").unwrap()];
    std::fs::remove_file(folder.path().join("identity.pem")).unwrap();
    files::write_whole(&folder.path().join("joining.pem"), key.as_bytes(), files::PRIVATE).unwrap();
    // ECDSA requests differ in their signature, so the repeat is known by the key alone.
    let again = join_with_token(&site.address, &token, "n1", folder.path()).await.unwrap();
    is_member(&site, again, "n1").await;
}

/// A revoked node with its old token, or with another's, was on record with a certificate that holds: the site's key let it in.
#[tokio::test]
async fn a_token_that_is_refused_issues_nothing_and_a_revoked_node_stays_out() {
    let (site, folder) = (site(), Folder::new());
    let authority = &site.cluster.authority;
    let token = site.server.create_token(HOUR, Some("n1")).unwrap();
    let of_other = site.server.create_token(HOUR, Some("n2")).unwrap();
    let (own, new) = (folder.path().join("own"), folder.path().join("new"));
    join_with_token(&site.address, &token, "n1", &own).await.unwrap();
    assert_eq!(authority.revoke(Role::Node, "n1").unwrap(), 1);
    let issued = authority.issued().len();
    // The same key again: as if the first answer had not come.
    let identity = std::fs::read_to_string(own.join("identity.pem")).unwrap();
    let key = &identity[..identity.find("-----BEGIN CERTIFICATE").unwrap()];
    std::fs::remove_file(own.join("identity.pem")).unwrap();
    files::write_whole(&own.join("joining.pem"), key.as_bytes(), files::PRIVATE).unwrap();
    for (token, folder) in [(&token, &own), (&token, &new), (&of_other, &new)] {
        join_with_token(&site.address, token, "n1", folder).await.unwrap_err();
    }
    assert_eq!(authority.issued().len(), issued);
    assert!(authority.is_barred(Role::Node, "n1"));
    let fresh = site.server.create_token(HOUR, Some("n1")).unwrap();
    join_with_token(&site.address, &fresh, "n1", &new).await.unwrap();
    assert!(!authority.is_barred(Role::Node, "n1"));
}

#[tokio::test]
async fn tokens_survive_a_restart_and_wrong_ones_are_refused() {
    let (site, folder) = (site(), Folder::new());
    let token = site.server.create_token(HOUR, None).unwrap();
    let reopened = JoinServer::new(Arc::clone(&site.cluster.authority)).unwrap();
    let options = EndpointOptions { join: Some(Arc::new(reopened)), ..EndpointOptions::default() };
    let restarted = Endpoint::bind_with(([127, 0, 0, 1], 0).into(), site.cluster.controller(), options).unwrap();
    let address = restarted.local_addr().to_string();
    let parts: Vec<&str> = token.split('.').collect();
    let wrong_secret = [parts[0], parts[1], &"00".repeat(32), parts[3]].join(".");
    let error = join_with_token(&address, &wrong_secret, "n1", folder.path()).await.unwrap_err();
    assert!(error.to_string().contains("the proof is wrong"), "{error}");
    let unknown = [parts[0], &"00".repeat(8), parts[2], parts[3]].join(".");
    let error = join_with_token(&address, &unknown, "n1", folder.path()).await.unwrap_err();
    assert!(error.to_string().contains("not known"), "{error}");
    let expired = site.server.create_token(Duration::ZERO, None).unwrap();
    let error = join_with_token(&site.address, &expired, "n1", folder.path()).await.unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
    join_with_token(&address, &token, "n1", folder.path()).await.unwrap();
}

#[tokio::test]
async fn a_token_is_not_shown_to_another_authority() {
    let (ours, theirs, folder) = (site(), site(), Folder::new());
    let token = ours.server.create_token(HOUR, None).unwrap();
    let error = join_with_token(&theirs.address, &token, "n1", folder.path()).await.unwrap_err();
    assert!(matches!(&error, JoinError::Link(LinkError::ForeignCertificate { .. })), "{error}");
}

#[tokio::test]
async fn names_and_token_texts_are_checked() {
    let (site, folder) = (site(), Folder::new());
    let token = site.server.create_token(HOUR, None).unwrap();
    let error = join_with_token(&site.address, &token, "stranger", folder.path()).await.unwrap_err();
    assert!(error.to_string().contains("stranger is not a node of this cluster"), "{error}");
    let error = join_with_token(&site.address, &token[..30], "n1", folder.path()).await.unwrap_err();
    assert!(matches!(error, JoinError::BadToken { .. }), "{error}");
    join_with_token(&site.address, &token, "n1", folder.path()).await.unwrap();
}

#[tokio::test]
async fn the_shared_key_lets_nodes_in_and_another_key_does_not() {
    let (site, folder) = (site(), Folder::new());
    let identity = join_with_shared_key(&site.address, &site.key, "n1", &folder.path().join("n1")).await.unwrap();
    is_member(&site, identity, "n1").await;
    join_with_shared_key(&site.address, &site.key, "n2", &folder.path().join("n2")).await.unwrap();
    let other = folder.path().join("other.key");
    files::write_whole(&other, &[8; 64], files::PRIVATE).unwrap();
    let error = join_with_shared_key(&site.address, &other, "n3", &folder.path().join("n3")).await.unwrap_err();
    assert!(error.to_string().contains("the proof is wrong"), "{error}");
    files::write_whole(&other, &[8; 31], files::PRIVATE).unwrap();
    let error = join_with_shared_key(&site.address, &other, "n3", &folder.path().join("n3")).await.unwrap_err();
    assert!(error.to_string().contains("at least 32"), "{error}");
    files::write_whole(&other, &[8; 64], files::PUBLIC).unwrap();
    let error = join_with_shared_key(&site.address, &other, "n3", &folder.path().join("n3")).await.unwrap_err();
    assert!(matches!(error, JoinError::Identity(IdentityError::Exposed { .. })), "{error}");
}

/// Passes every message on between a node and the controller, over two TLS sessions of its own.
async fn man_in_the_middle(own: &Cluster, controller: &str, name: &str) -> (String, tokio::task::JoinHandle<()>) {
    use crate::quic::{config, endpoint, greeting};
    let identity = own.controller();
    let quic = endpoint::open(([127, 0, 0, 1], 0).into(), Some(config::server(&identity, true).unwrap())).unwrap();
    let address = quic.local_addr().unwrap().to_string();
    let (controller, name) = (controller.to_owned(), name.to_owned());
    let task = tokio::spawn(async move {
        let towards_node = quic.accept().await.unwrap().await.unwrap();
        let asked = greeting::read_hello(&towards_node, "slurmctld", "node").await.unwrap();
        let node = asked.welcome(&towards_node, "node").await.unwrap();
        let client = config::client_with(Arc::new(client::JoinTrust { authority: None }), None).unwrap();
        let remote = controller.parse().unwrap();
        let towards_controller =
            endpoint::handshake(&quic, client, remote, &name, Duration::from_secs(5)).await.unwrap();
        let ctl = greeting::as_client(&towards_controller, LinkKind::Join, "x", "ctl").await.unwrap();
        let (to_node, mut from_node) = crate::link::over_classes::<JoinReply, JoinRequest>(
            towards_node.clone(),
            node.sending,
            node.lanes,
            "node".into(),
        );
        let (to_ctl, mut from_ctl) = crate::link::over_classes::<JoinRequest, JoinReply>(
            towards_controller.clone(),
            ctl.sending,
            ctl.lanes,
            "ctl".into(),
        );
        while let Ok(Some(request)) = from_node.recv().await {
            to_ctl.send(request).await.unwrap();
            let Ok(Some(reply)) = from_ctl.recv().await else { break };
            to_node.send(reply).await.unwrap();
        }
    });
    (address, task)
}

#[tokio::test]
async fn a_man_in_the_middle_gets_nothing_issued() {
    let (site, folder, evil) = (site(), Folder::new(), Cluster::new("c1"));
    let (address, task) = man_in_the_middle(&evil, &site.address, "middle").await;
    let error = join_with_shared_key(&address, &site.key, "n1", folder.path()).await.unwrap_err();
    assert!(error.to_string().contains("the proof is wrong"), "{error}");
    assert!(matches!(IdentityStore::load(folder.path()), Err(IdentityError::Absent { .. })));
    task.abort();
}

async fn through_door(site: &Site, folder: &Path, name: &str) -> Result<Arc<IdentityStore>, JoinError> {
    let path = folder.join("ctl.sock");
    let mut listener = DoorListener::bind(&path, "slurmctld").unwrap();
    let server = Arc::clone(&site.server);
    let serving = async {
        let conn = listener.accept().await.unwrap();
        assert_eq!(conn.hello.link, LinkKind::Join);
        let _ = server.serve_door(conn).await;
    };
    let home = folder.join(name);
    let believed = [0, nix::unistd::geteuid().as_raw()];
    tokio::join!(join_through_door(&path, &believed, name, &home), serving).0
}

#[tokio::test]
async fn at_the_door_peer_credentials_suffice_for_root_and_the_clusters_user() {
    let (site, folder) = (site(), Folder::new());
    let identity = through_door(&site, folder.path(), "n1").await.unwrap();
    is_member(&site, identity, "n1").await;
    let error = through_door(&site, folder.path(), "stranger").await.unwrap_err();
    assert!(error.to_string().contains("not a node of this cluster"), "{error}");
}

#[test]
fn at_the_door_other_users_are_refused() {
    use super::exchange::{JoinWay, Registrar};
    use crate::Role;
    let cluster = Cluster::new("c1");
    let server = JoinServer::new(Arc::clone(&cluster.authority)).unwrap().with_cluster_uid(64030);
    let desk = |uid, way: &JoinWay, role| server::Desk { server: &server, door_uid: uid }.admit(way, role, "n1");
    assert_eq!(desk(Some(0), &JoinWay::Door, Role::Node), Ok(None));
    assert_eq!(desk(Some(64030), &JoinWay::Door, Role::Node), Ok(None));
    assert!(desk(Some(1000), &JoinWay::Door, Role::Node).unwrap_err().contains("not uid 1000"));
    assert!(desk(None, &JoinWay::Door, Role::Node).is_err(), "the network has no peer credentials");
    assert!(desk(None, &JoinWay::SharedKey, Role::Node).unwrap_err().contains("no shared key file"));
    assert!(desk(Some(0), &JoinWay::Door, Role::Controller).is_err());
    assert!(desk(Some(0), &JoinWay::SharedKey, Role::Node).is_err());
}
