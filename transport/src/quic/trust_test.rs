#![allow(clippy::unwrap_used)]
//! Who may talk to whom: certificates of all kinds, none, and peers that are not Garrick.

use super::{
    quic_test::{Ends, address, any, attempt, endpoint, text},
    *,
};
use crate::{
    LinkError, Whose,
    identity::{ExpectPeer, IdentityParts, IdentityStore, Role},
    testing::{Cluster, Folder},
};
use garrick_frame::LinkKind;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn store(parts: &IdentityParts) -> Arc<IdentityStore> {
    IdentityStore::from_parts(parts).unwrap()
}

#[tokio::test]
async fn foreign_authorities_are_named_on_both_sides() {
    let (ours, theirs) = (Cluster::new("c1"), Cluster::new("c1"));
    let controller = endpoint(ours.controller());
    // The node trusts another CA: it refuses the controller.
    let (client, server) = attempt(&endpoint(theirs.node("n1")), &controller, &ExpectPeer::controller()).await;
    let error = client.unwrap_err();
    assert!(matches!(error, LinkError::ForeignCertificate { whose: Whose::Peers, .. }), "{error}");
    assert!(error.to_string().contains("is not from this cluster's CA"), "{error}");
    let error = server.unwrap_err();
    assert!(matches!(error, LinkError::ForeignCertificate { whose: Whose::Ours, .. }), "{error}");
    // The node trusts the right CA but shows a certificate of another: the controller refuses it.
    let mut parts = theirs.good(Role::Node, "n1");
    parts.authorities = ours.authority.trusted_pem();
    let (client, server) = attempt(&endpoint(store(&parts)), &controller, &ExpectPeer::controller()).await;
    let error = client.unwrap_err();
    assert!(matches!(error, LinkError::ForeignCertificate { whose: Whose::Ours, .. }), "{error}");
    let error = server.unwrap_err();
    assert!(matches!(error, LinkError::ForeignCertificate { whose: Whose::Peers, .. }), "{error}");
}

#[tokio::test]
async fn expired_and_future_certificates_are_told_apart_on_both_sides() {
    let cluster = Cluster::new("c1");
    let now = SystemTime::now();
    let expired = cluster.parts(Role::Node, "n1", now - 10 * DAY, DAY);
    let future = cluster.parts(Role::Node, "n1", now + 10 * DAY, DAY);
    let controller = endpoint(cluster.controller());
    let node = ExpectPeer::node("n1");
    // As the one who connects.
    let (client, server) = attempt(&endpoint(store(&expired)), &controller, &ExpectPeer::controller()).await;
    let error = client.unwrap_err();
    assert!(matches!(error, LinkError::ExpiredCertificate { whose: Whose::Ours, .. }), "{error}");
    let error = server.unwrap_err();
    assert!(matches!(error, LinkError::ExpiredCertificate { whose: Whose::Peers, .. }), "{error}");
    assert!(error.to_string().contains("has expired"), "{error}");
    // As the one who is connected to.
    let (client, server) = attempt(&controller, &endpoint(store(&expired)), &node).await;
    let error = client.unwrap_err();
    assert!(matches!(error, LinkError::ExpiredCertificate { whose: Whose::Peers, .. }), "{error}");
    assert!(matches!(server.unwrap_err(), LinkError::ExpiredCertificate { whose: Whose::Ours, .. }));
    let (client, server) = attempt(&controller, &endpoint(store(&future)), &node).await;
    let error = client.unwrap_err();
    assert!(matches!(error, LinkError::NotYetValid { whose: Whose::Peers, .. }), "{error}");
    assert!(error.to_string().contains("clocks"), "{error}");
    assert!(matches!(server.unwrap_err(), LinkError::NotYetValid { whose: Whose::Ours, .. }));
}

#[tokio::test]
async fn another_role_or_name_than_expected_is_refused() {
    let cluster = Cluster::new("c1");
    let (one, two) = (endpoint(cluster.node("n1")), endpoint(cluster.node("n2")));
    for expect in [ExpectPeer::controller(), ExpectPeer::node("n3")] {
        let (client, server) = attempt(&one, &two, &expect).await;
        let error = client.unwrap_err();
        assert!(matches!(error, LinkError::WrongPeer { .. }), "{error}");
        assert!(error.to_string().contains("node n2 of cluster c1 answers there"), "{error}");
        let error = server.unwrap_err();
        assert!(matches!(error, LinkError::Refused { .. }), "{error}");
    }
    let (client, _server) = attempt(&one, &two, &ExpectPeer::node("n2")).await;
    client.unwrap();
}

/// A connection without certificate whose greeting is up to the test.
async fn anonymous(to: &Endpoint) -> (quinn::Endpoint, Result<quinn::Connection, LinkError>) {
    let quic = endpoint::open(any(), None).unwrap();
    let client = config::client_with(Arc::new(Gullible), None).unwrap();
    let connected = endpoint::handshake(&quic, client, to.local_addr(), &address(to), Duration::from_secs(5)).await;
    (quic, connected)
}

#[derive(Debug)]
struct Gullible;

impl rustls::client::danger::ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        crate::identity::store::crypto_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[tokio::test]
async fn without_a_certificate_nothing_but_joining_is_possible() {
    let cluster = Cluster::new("c1");
    // Where nobody can join, the handshake itself fails.
    let node = endpoint(cluster.node("n1"));
    let (_quic, connected) = anonymous(&node).await;
    let error = match connected {
        Ok(connection) => {
            greeting::as_client(&connection, LinkKind::ControllerNode, "stranger", "n1").await.unwrap_err()
        }
        Err(error) => error,
    };
    assert!(matches!(error, LinkError::NoCertificate { .. }), "{error}");
    assert!(matches!(node.accept().await.unwrap().unwrap_err(), LinkError::NoCertificate { .. }));
    // Where nodes join, every other link is refused in words.
    let join = Arc::new(crate::JoinServer::new(Arc::clone(&cluster.authority)).unwrap());
    let options = EndpointOptions { join: Some(join), ..EndpointOptions::default() };
    let controller = Endpoint::bind_with(any(), cluster.controller(), options).unwrap();
    for link in [LinkKind::ControllerNode, LinkKind::CommandToDaemon, LinkKind::StepMgrAgent] {
        let (_quic, connected) = anonymous(&controller).await;
        let connected = connected.unwrap();
        let error = greeting::as_client(&connected, link, "stranger", "ctl").await.unwrap_err();
        assert!(error.to_string().contains("only joining is possible"), "{error}");
        assert!(matches!(controller.accept().await.unwrap().unwrap_err(), LinkError::NoCertificate { .. }));
    }
    // And where nobody can join, asking for it is refused as well.
    let (client, server) = {
        let from = endpoint(cluster.node("n2"));
        let to = address(&node);
        let expect = ExpectPeer::node("n1");
        let connecting = from.connect(&to, LinkKind::Join, "n2", &expect);
        tokio::join!(connecting, node.accept())
    };
    assert!(client.unwrap_err().to_string().contains("join at the controller"));
    assert!(server.unwrap().is_err());
}

#[tokio::test]
async fn silence_strange_protocols_and_stray_packets() {
    let cluster = Cluster::new("c1");
    let options = EndpointOptions { connect_time: Duration::from_millis(300), ..EndpointOptions::default() };
    let hasty = Endpoint::bind_with(any(), cluster.node("n1"), options).unwrap();
    // A socket that takes packets and never answers.
    let silent = std::net::UdpSocket::bind(any()).unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let error = hasty.connect(&address, LinkKind::ControllerNode, "t", &ExpectPeer::controller()).await.unwrap_err();
    assert!(matches!(error, LinkError::NoAnswer { .. }), "{error}");
    drop(silent);
    // The same port, closed.
    let error = hasty.connect(&address, LinkKind::ControllerNode, "t", &ExpectPeer::controller()).await.unwrap_err();
    assert!(matches!(error, LinkError::NoAnswer { .. }), "{error}");
    assert!(error.to_string().contains("is the daemon running there"), "{error}");
    // Not even a name, so that no name server is asked.
    let error = hasty.connect("no such host:1", LinkKind::ControllerNode, "t", &ExpectPeer::controller()).await;
    assert!(matches!(error.unwrap_err(), LinkError::Resolve { .. }));
    let node = endpoint(cluster.node("n1"));
    // Another protocol over QUIC.
    let quic = endpoint::open(any(), None).unwrap();
    let mut tls = rustls::ClientConfig::builder_with_provider(crate::identity::store::crypto_provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let client = quinn::ClientConfig::new(Arc::new(tls));
    let time = Duration::from_secs(5);
    let error = endpoint::handshake(&quic, client, node.local_addr(), "n1", time).await.unwrap_err();
    assert!(matches!(error, LinkError::NotGarrick { .. }), "{error}");
    assert!(matches!(node.accept().await.unwrap().unwrap_err(), LinkError::NotGarrick { .. }));
    // Stray packets change nothing.
    let stray = std::net::UdpSocket::bind(any()).unwrap();
    for length in [1usize, 20, 1200] {
        for byte in [0u8, 0x40, 0xc0, 0xff] {
            stray.send_to(&vec![byte; length], node.local_addr()).unwrap();
        }
    }
    let (client, server) = attempt(&endpoint(cluster.controller()), &node, &ExpectPeer::node("n1")).await;
    client.unwrap();
    server.unwrap();
}

#[tokio::test]
async fn a_rotated_identity_serves_the_next_connection_and_keeps_this_one() {
    let (old, new) = (Cluster::new("c1"), Cluster::new("c1"));
    let both = [new.authority.trusted_pem(), old.authority.trusted_pem()].concat();
    let (controller_id, node_id) = (old.controller(), old.node("n1"));
    let (controller, node) = (endpoint(Arc::clone(&controller_id)), endpoint(Arc::clone(&node_id)));
    let (client, server) = attempt(&node, &controller, &ExpectPeer::controller()).await;
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    // First everyone trusts both, then each changes its own certificate.
    let mut parts = old.good(Role::Node, "n1");
    parts.authorities = both.clone();
    node_id.rotate(&parts).unwrap();
    let mut parts = new.good(Role::Controller, "ctl");
    parts.authorities = both;
    controller_id.rotate(&parts).unwrap();
    let (again, accepted) = attempt(&node, &controller, &ExpectPeer::controller()).await;
    again.unwrap();
    accepted.unwrap();
    let (sender, _in): Ends = client.split();
    let (_out, mut receiver): Ends = server.split();
    sender.send(text("still here")).await.unwrap();
    assert_eq!(receiver.recv().await.unwrap().unwrap().msg, "still here");
    let other = new.good(Role::Node, "n2");
    assert!(node_id.rotate(&other).is_err());
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_on_both_sides_and_another_of_the_same_name_is_not() {
    let cluster = Cluster::new("c1");
    let (home, own) = (Folder::new(), Folder::new());
    let kept = cluster.authority.enrol(Role::Node, "n2", home.path()).unwrap();
    let stolen = cluster.node("n1");
    let node = ExpectPeer { role: Role::Node, name: Some("n1".into()) };
    assert!(!cluster.authority.is_barred(Role::Node, "n1"));
    let (client, _) = attempt(&endpoint(Arc::clone(&kept)), &endpoint(Arc::clone(&stolen)), &node).await;
    client.unwrap();
    assert_eq!(cluster.authority.revoke(Role::Node, "n1").unwrap(), 1);
    assert!(cluster.authority.is_barred(Role::Node, "n1"));
    // A controller that starts now finds it in its folder, a node is told.
    let again = crate::identity::CertAuthority::open(cluster.authority.folder()).unwrap();
    assert!(again.is_barred(Role::Node, "n1") && !again.is_barred(Role::Node, "n2"));
    kept.set_revoked(home.path(), again.revocation_list().unwrap().as_deref()).unwrap();
    for kept in [kept, IdentityStore::load(home.path()).unwrap()] {
        let (client, server) = attempt(&endpoint(Arc::clone(&kept)), &endpoint(Arc::clone(&stolen)), &node).await;
        let error = client.unwrap_err();
        assert!(matches!(error, LinkError::RevokedCertificate { whose: Whose::Peers, .. }), "{error}");
        assert!(matches!(server.unwrap_err(), LinkError::RevokedCertificate { whose: Whose::Ours, .. }));
        let n2 = ExpectPeer { role: Role::Node, name: Some("n2".into()) };
        let (client, server) = attempt(&endpoint(Arc::clone(&stolen)), &endpoint(kept), &n2).await;
        assert!(matches!(client.unwrap_err(), LinkError::RevokedCertificate { whose: Whose::Ours, .. }));
        assert!(matches!(server.unwrap_err(), LinkError::RevokedCertificate { whose: Whose::Peers, .. }));
    }
    let anew = again.enrol(Role::Node, "n1", own.path()).unwrap();
    assert!(!again.is_barred(Role::Node, "n1"));
    let kept = IdentityStore::load(home.path()).unwrap();
    let (client, _) = attempt(&endpoint(kept), &endpoint(anew), &node).await;
    client.unwrap();
}

#[tokio::test]
async fn a_certificate_is_renewed_in_its_last_third_and_keeps_what_is_revoked() {
    let (cluster, home) = (Cluster::new("c1"), Folder::new());
    let now = SystemTime::now();
    let parts = cluster.parts(Role::Node, "n1", now - 7 * DAY, 10 * DAY);
    parts.save(home.path()).unwrap();
    let own = IdentityStore::load(home.path()).unwrap();
    assert!(own.renew_at() <= now, "seven days of ten are over");
    cluster.good(Role::Node, "n2");
    cluster.authority.revoke(Role::Node, "n2").unwrap();
    let list = cluster.authority.revocation_list().unwrap();
    own.set_revoked(home.path(), list.as_deref()).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let request = crate::identity::request_for(&key).unwrap();
    let certificate = cluster.authority.issue(Role::Node, "n1", &request).unwrap();
    let authorities = cluster.authority.trusted_pem();
    let other = cluster.authority.issue(Role::Node, "n3", &request).unwrap();
    assert!(own.renew(home.path(), &key.serialize_pem(), &other, &authorities).is_err(), "another's");
    own.renew(home.path(), &key.serialize_pem(), &certificate, &authorities).unwrap();
    assert!(own.renew_at() > now);
    let text = std::fs::read_to_string(home.path().join("identity.pem")).unwrap();
    assert!(text.contains("X509 CRL"));
    assert!(IdentityStore::load(home.path()).unwrap().expiry() > now + 700 * DAY);
}
