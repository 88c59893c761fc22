//! Settings of QUIC and TLS. Every number here is a choice of this project unless it names its source.

use crate::{
    class::IDLE_LIMIT,
    identity::{
        IdentityStore,
        store::{Identity, crypto_provider},
    },
};
use quinn::{IdleTimeout, TransportConfig, VarInt, crypto::rustls as quic_tls};
use rustls::{
    DigitallySignedStruct, DistinguishedName, SignatureScheme,
    client::{
        ResolvesClientCert,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};
use std::{sync::Arc, time::Duration};

/// The protocol's name in TLS. Versions within it are agreed by the greeting.
pub const ALPN: &[u8] = b"garrick/1";
/// A quiet connection is tried this often, so that an idle peer stays connected and a dead one is noticed.
pub const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// Bulk streams that the peer may have open at a time; the next one waits for its turn.
pub const MOST_BULK: u32 = 256;
/// Long-lived streams of the peer: one per class, and room for classes to come.
const MOST_CLASSES: u32 = 8;
/// Unread bytes that one stream may hold at the receiver. At 0.2 ms round trip it lets a stream carry 1.3 GB/s.
const STREAM_WINDOW: u32 = 256 << 10;
/// Unread bytes of all streams together, and sent bytes not acknowledged: as much as all streams can have together, so
/// that only a stream's own window ever stops it. Otherwise bulk data that nobody reads would stop control too. Worst
/// case of memory for a connection whose every stream is full and unread; a healthy one holds next to nothing.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * (2 * MOST_BULK + MOST_CLASSES);
/// Every path carries this (RFC 9000 section 14); QUIC finds out more by itself.
const FIRST_MTU: u16 = 1200;

/// Limits of a connection between daemons.
pub(crate) fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(MOST_BULK))
        .max_concurrent_uni_streams(VarInt::from_u32(MOST_CLASSES))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(u64::from(CONNECTION_WINDOW))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_LIMIT.as_millis() as u32))))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .datagram_receive_buffer_size(None)
        .initial_mtu(FIRST_MTU);
    Arc::new(config)
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// For accepting. `join`: peers without a certificate are allowed up to the greeting, after which they can only join.
pub(crate) fn server(identity: &Arc<IdentityStore>, join: bool) -> Result<quinn::ServerConfig, Fault> {
    let trust = Arc::new(ClusterTrust { identity: Arc::clone(identity), anonymous: join });
    let mut tls = rustls::ServerConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::clone(&trust) as Arc<dyn ClientCertVerifier>)
        .with_cert_resolver(trust);
    tls.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session would skip the check of the certificate, which may have expired or been replaced since.
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(quic_tls::QuicServerConfig::try_from(tls)?));
    config.transport_config(transport());
    Ok(config)
}

/// For connecting as a member of the cluster.
pub(crate) fn client(identity: &Arc<IdentityStore>) -> Result<quinn::ClientConfig, Fault> {
    let trust = Arc::new(ClusterTrust { identity: Arc::clone(identity), anonymous: false });
    client_with(Arc::clone(&trust) as Arc<dyn ServerCertVerifier>, Some(trust))
}

/// For connecting with a verifier of one's own; `None` shows no certificate.
pub(crate) fn client_with(
    verifier: Arc<dyn ServerCertVerifier>,
    certificate: Option<Arc<dyn ResolvesClientCert>>,
) -> Result<quinn::ClientConfig, Fault> {
    let builder = rustls::ClientConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut tls = match certificate {
        Some(resolver) => builder.with_client_cert_resolver(resolver),
        None => builder.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.resumption = rustls::client::Resumption::disabled();
    tls.enable_early_data = false;
    let mut config = quinn::ClientConfig::new(Arc::new(quic_tls::QuicClientConfig::try_from(tls)?));
    config.transport_config(transport());
    Ok(config)
}

/// Certificates shown and accepted, always as the identity store has them at this moment. The checks themselves are
/// rustls' own.
#[derive(Debug)]
struct ClusterTrust {
    identity: Arc<IdentityStore>,
    anonymous: bool,
}

impl ClusterTrust {
    fn now(&self) -> Arc<Identity> {
        self.identity.current()
    }
}

impl ResolvesServerCert for ClusterTrust {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.now().as_server))
    }
}

impl ResolvesClientCert for ClusterTrust {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.now().as_client))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ServerCertVerifier for ClusterTrust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.now().verify_server.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.now().verify_server.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.now().verify_server.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.now().verify_server.supported_verify_schemes()
    }
}

impl ClientCertVerifier for ClusterTrust {
    fn client_auth_mandatory(&self) -> bool {
        !self.anonymous
    }

    /// None: every process has exactly one certificate to show, and hints would tell strangers the cluster's name.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.now().verify_client.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.now().verify_client.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.now().verify_client.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.now().verify_client.supported_verify_schemes()
    }
}
