//! The node's side of joining. Each function stores the new identity in the node's folder. The key is made before the first
//! attempt and kept (`joining.pem`), so that an attempt whose answer was lost can be repeated as the same request.

use super::{
    JoinError,
    exchange::{Asking, BINDING_LABEL, IssuedIdentity, JoinReply, JoinRequest, JoinWay, NodeSide, NodeStep, Secret},
    token::Token,
};
use crate::{
    class::Class,
    door::DoorConn,
    error::{LinkError, close_code},
    identity::{
        IdentityError, IdentityParts, IdentityStore, PeerIdentity, Role,
        authority::{COMMON_DNS_NAME, fingerprint, request_for},
        files, invalid,
        signing::random,
        store::crypto_provider,
    },
    link::over_classes,
    quic::{config, endpoint, greeting},
};
use garrick_frame::{LinkKind, Traced};
use quinn::VarInt;
use rcgen::KeyPair;
use rustls::{
    CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use serde_bytes::ByteBuf;
use sha2::{Digest as _, Sha256};
use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};
use tokio::time::timeout;

/// The key of a node that is joining, and that which a controller's name is bound to.
const JOINING_FILE: &str = "joining.pem";
/// Least length of a shared key file: 256 bits of a random one.
const LEAST_KEY: usize = 32;
/// Most (munge's key is at most 1 KiB).
const MOST_KEY: usize = 64 << 10;
/// Time for the handshake, and for the conversation.
const JOIN_TIME: Duration = Duration::from_secs(10);
/// What a joining node calls itself.
const PROGRAM: &str = concat!("garrick join ", env!("CARGO_PKG_VERSION"));

/// Joins with a one-time token; `address` is the controller's `host:port`. The identity is in `folder` afterwards.
pub async fn join_with_token(
    address: &str,
    token: &str,
    name: &str,
    folder: &Path,
) -> Result<Arc<IdentityStore>, JoinError> {
    let token = Token::parse(token)?;
    let way = JoinWay::Token { id: token.id.clone() };
    over_network(address, way, token.secret, Some(token.authority), Applicant::node(name, folder)).await
}

/// Joins with the key file that the site distributes to its hosts (at least 32 random bytes, not readable by others). The
/// key itself never travels.
pub async fn join_with_shared_key(
    address: &str,
    key_file: &Path,
    name: &str,
    folder: &Path,
) -> Result<Arc<IdentityStore>, JoinError> {
    let applicant = Applicant::node(name, folder);
    over_network(address, JoinWay::SharedKey, read_shared_key(key_file)?, None, applicant).await
}

/// The same for the controller of the cluster `name`, at the service of accounting. The service binds the name to the controller's own
/// key: that is in the folder `own`, made where there is none, and stays.
pub async fn enrol_with_shared_key(
    address: &str,
    key_file: &Path,
    name: &str,
    own: &Path,
    folder: &Path,
) -> Result<Arc<IdentityStore>, JoinError> {
    let applicant = Applicant { role: Role::Controller, name, key: own, folder };
    over_network(address, JoinWay::SharedKey, read_shared_key(key_file)?, None, applicant).await
}

/// Who joins.
#[derive(Clone, Copy)]
struct Applicant<'a> {
    role: Role,
    name: &'a str,
    /// Its key is there until it has joined, or stays there.
    key: &'a Path,
    /// Its identity will be there.
    folder: &'a Path,
}

impl<'a> Applicant<'a> {
    const fn node(name: &'a str, folder: &'a Path) -> Self {
        Self { role: Role::Node, name, key: folder, folder }
    }
}

/// Joins through the controller's local door, as root or the cluster's user. The user of the door's process has to be one of
/// `believed`: wherever the door is, only those may issue identities.
pub async fn join_through_door(
    door: &Path,
    believed: &[u32],
    name: &str,
    folder: &Path,
) -> Result<Arc<IdentityStore>, JoinError> {
    let key = joining_key(folder)?;
    let conn = DoorConn::connect(door, LinkKind::Join, PROGRAM).await?;
    let peer = door.display().to_string();
    let uid = conn.peer.uid;
    if !believed.contains(&uid) {
        return Err(JoinError::UntrustedDoor { peer, uid });
    }
    let (sender, mut receiver) = conn.split::<JoinRequest, JoinReply>();
    let begin = JoinRequest::Begin {
        way: JoinWay::Door,
        role: Role::Node,
        name: name.to_owned(),
        nonce: ByteBuf::from(random::<32>()?),
        csr: ByteBuf::from(request_for(&key)?),
    };
    sender.send(Traced::untraced(begin)).await?;
    let reply = timeout(JOIN_TIME, receiver.recv())
        .await
        .map_err(|_| LinkError::NoGreeting { peer: peer.clone(), after: JOIN_TIME })??;
    match reply.map(|reply| reply.msg) {
        Some(JoinReply::Issued { identity, .. }) => keep(&key, identity, Applicant::node(name, folder), None),
        Some(JoinReply::Refused { reason }) => Err(JoinError::Refused { peer, reason }),
        Some(JoinReply::Challenge { .. }) => Err(JoinError::Unexpected { peer, what: "a challenge".to_owned() }),
        None => Err(LinkError::Closed { peer, reason: "before it answered".to_owned() }.into()),
    }
}

async fn over_network(
    address: &str,
    way: JoinWay,
    secret: Secret,
    authority: Option<[u8; 32]>,
    applicant: Applicant<'_>,
) -> Result<Arc<IdentityStore>, JoinError> {
    let key = joining_key(applicant.key)?;
    let mut last = LinkError::Resolve {
        peer: address.to_owned(),
        source: Arc::new(std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address")),
    };
    for remote in endpoint::resolve(address, None).await? {
        match connect(remote, address, authority).await {
            Ok(connection) => {
                let issued = converse(&connection, address, way, secret, applicant, &key).await;
                connection.close(VarInt::from_u32(close_code::NORMAL), b"joined, or not");
                // Lets the closing frame out before a short-lived process ends.
                tokio::task::yield_now().await;
                return keep(&key, issued?, applicant, authority);
            }
            Err(error) => last = error,
        }
    }
    Err(last.into())
}

async fn connect(
    remote: SocketAddr,
    address: &str,
    authority: Option<[u8; 32]>,
) -> Result<quinn::Connection, LinkError> {
    let failed = |doing| move |e| LinkError::io(address, doing, e);
    let any: SocketAddr = if remote.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let quic = endpoint::open(any, None).map_err(failed("opening a UDP socket"))?;
    let verifier = Arc::new(JoinTrust { authority });
    let client = config::client_with(verifier, None)
        .map_err(|e| LinkError::io(address, "setting up TLS", std::io::Error::other(e)))?;
    endpoint::handshake(&quic, client, remote, address, JOIN_TIME).await
}

async fn converse(
    connection: &quinn::Connection,
    address: &str,
    way: JoinWay,
    secret: Secret,
    applicant: Applicant<'_>,
    key: &KeyPair,
) -> Result<IssuedIdentity, JoinError> {
    let talk = async {
        let greeted = greeting::as_client(connection, LinkKind::Join, PROGRAM, address).await?;
        let mut binding = [0; 32];
        connection
            .export_keying_material(&mut binding, BINDING_LABEL, b"")
            .map_err(|_| LinkError::lost(address, "the TLS session gives no binding"))?;
        let (sender, mut receiver) =
            over_classes::<JoinRequest, JoinReply>(connection.clone(), greeted.sending, greeted.lanes, address.into());
        let Applicant { role, name, .. } = applicant;
        let asking = Asking { way, role, name: name.to_owned(), csr: request_for(key)? };
        let (mut node, first) = NodeSide::begin(asking, secret, binding, random()?, address);
        sender.send_on(Class::Request, Traced::untraced(first)).await?;
        loop {
            let Some(reply) = receiver.recv().await? else {
                let reason = "before it answered".to_owned();
                return Err(LinkError::Closed { peer: address.to_owned(), reason }.into());
            };
            match node.handle(reply.msg)? {
                NodeStep::Send(next) => sender.send_on(Class::Request, Traced::untraced(next)).await?,
                NodeStep::Done(identity) => return Ok(identity),
            }
        }
    };
    match timeout(JOIN_TIME, talk).await {
        Ok(result) => result,
        Err(_) => Err(LinkError::NoAnswer { peer: address.to_owned(), after: JOIN_TIME }.into()),
    }
}

/// The key for this attempt: that of an earlier one which did not end, or a new one, kept before it is used.
fn joining_key(folder: &Path) -> Result<KeyPair, IdentityError> {
    files::create_folder(folder)?;
    let path = folder.join(JOINING_FILE);
    match files::read_secret(&path, 16 << 10) {
        Ok(pem) => {
            let pem = String::from_utf8(pem).map_err(|e| invalid(path.display().to_string(), e))?;
            KeyPair::from_pem(&pem).map_err(|e| invalid(path.display().to_string(), e))
        }
        Err(IdentityError::Absent { .. }) => {
            let key = KeyPair::generate().map_err(|e| invalid("new key", e))?;
            files::write_whole(&path, key.serialize_pem().as_bytes(), files::PRIVATE)?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

/// Checks what was issued before it replaces anything: it has to be the applicant's, for this key, by the named authority.
fn keep(
    key: &KeyPair,
    issued: IssuedIdentity,
    Applicant { role, name, folder, .. }: Applicant<'_>,
    authority: Option<[u8; 32]>,
) -> Result<Arc<IdentityStore>, JoinError> {
    if let Some(expected) = authority {
        let named = issued
            .authorities
            .iter()
            .any(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).is_ok_and(|der| fingerprint(&der) == expected));
        if !named {
            return Err(invalid("issued identity", "its authority is not the one that the token names").into());
        }
    }
    let parts = IdentityParts {
        key: key.serialize_pem(),
        certificate: issued.certificate,
        authorities: issued.authorities,
        revoked: None,
    };
    let store = IdentityStore::from_parts(&parts)?;
    let expected = PeerIdentity { cluster: issued.cluster, role, name: name.to_owned() };
    let found = store.identity();
    if found != expected {
        return Err(invalid("issued identity", format!("it is of {found}, not of {expected}")).into());
    }
    parts.save(folder)?;
    if role == Role::Node {
        let _ = std::fs::remove_file(folder.join(JOINING_FILE));
    }
    Ok(store)
}

/// The secret in a shared key file.
pub(super) fn read_shared_key(path: &Path) -> Result<Secret, IdentityError> {
    let bytes = files::read_secret(path, MOST_KEY)?;
    if bytes.len() < LEAST_KEY {
        let cause = format!("a shared key has at least {LEAST_KEY} random bytes, this one has {}", bytes.len());
        return Err(invalid(path.display().to_string(), cause));
    }
    let mut digest = Sha256::new_with_prefix(b"garrick shared key 1\0");
    digest.update(&bytes);
    Ok(digest.finalize().into())
}

/// What a joining node requires of the controller's certificate, before the proofs: with a token, that its authority is the named
/// one; with a shared key, nothing (the proof binds the session itself, whatever certificate it has).
#[derive(Debug)]
pub(super) struct JoinTrust {
    pub(super) authority: Option<[u8; 32]>,
}

impl ServerCertVerifier for JoinTrust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(expected) = self.authority else { return Ok(ServerCertVerified::assertion()) };
        let authority = intermediates
            .iter()
            .find(|shown| fingerprint(shown) == expected)
            .ok_or(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crypto_provider())
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))?;
        let common = ServerName::try_from(COMMON_DNS_NAME).map_err(|e| rustls::Error::General(e.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, &common, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &crypto_provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &crypto_provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        crypto_provider().signature_verification_algorithms.supported_schemes()
    }
}
