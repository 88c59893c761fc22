//! Identities: keys and certificates in PEM, certificates of peers and certificate requests in DER, join tokens.

use super::{choice, plain, text};
use crate::target::Target;
use garrick_transport::{
    CertAuthority, IdentityStore, PeerIdentity, Role, VerifyKey,
    identity::{IdentityParts, Issued},
    join::token::{Token, TokenBook},
};
use std::{
    path::PathBuf,
    sync::LazyLock,
    time::{Duration, UNIX_EPOCH},
};

/// An authority of this process's own, in a folder that goes when it is made.
struct Authority {
    authority: CertAuthority,
    folder: PathBuf,
    identity: String,
    request: Vec<u8>,
}

/// Made once for all inputs: the key of it is another one each time, which no finding depends on.
static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("garrick-fuzz-ca-{}", std::process::id()));
    let failed = |e: garrick_transport::IdentityError| -> ! { panic!("{e}") };
    let authority = CertAuthority::create(&folder, "c1").unwrap_or_else(|e| failed(e));
    let own = folder.join("n1");
    authority.enrol(Role::Node, "n1", &own).unwrap_or_else(|e| failed(e));
    let identity = std::fs::read_to_string(own.join("identity.pem")).unwrap_or_default();
    let key = rcgen::KeyPair::generate().unwrap_or_else(|e| panic!("{e}"));
    let request = garrick_transport::identity::request_for(&key).unwrap_or_else(|e| failed(e));
    let _ = std::fs::remove_dir_all(&folder);
    Authority { authority, folder, identity, request }
});

/// `identity.pem`: key, certificate, authorities, revocation lists.
pub(super) const PEM: Target = Target {
    name: "pem",
    read: |input| {
        if let Some(text) = text(input) {
            let (key, certificate) = text.split_at(text.find("-----BEGIN CERT").unwrap_or(0));
            let parts = |authorities: &str| IdentityParts {
                key: key.to_owned(),
                certificate: certificate.to_owned(),
                authorities: vec![authorities.to_owned()],
                revoked: None,
            };
            let _ = IdentityStore::from_parts(&parts(""));
            let _ = IdentityStore::from_parts(&parts(&AUTHORITY.identity));
        }
    },
    bytes_per_byte: 200,
    base_bytes: 1 << 20,
    seeds: || {
        let whole = AUTHORITY.identity.as_str();
        let mut seeds = plain(&[whole, "-----BEGIN PRIVATE KEY-----\n", "-----BEGIN CERTIFICATE-----\nAAAA\n"]);
        seeds.extend(whole.split_inclusive("-----END").map(|part| part.as_bytes().to_vec()));
        seeds
    },
};

/// What a stranger may send before anything is proven: its certificate and its request for one. And the register, keys and
/// signatures, which are files of the authority's or come beside credentials.
pub(super) const CERTIFICATES: Target = Target {
    name: "certificates",
    read: |input| {
        let (kind, bytes) = choice(input);
        match kind % 5 {
            0 => {
                let _ = PeerIdentity::of_certificate(bytes);
            }
            1 => {
                // The key is the authority's choice, and so are names and times: only whether it is a request counts.
                let _ = std::fs::create_dir_all(&AUTHORITY.folder);
                let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
                let life = Duration::from_secs(3600);
                let _ = AUTHORITY.authority.issue_for(Role::Node, "n2", bytes, now, life);
                let _ = std::fs::remove_dir_all(&AUTHORITY.folder);
            }
            2 => {
                if let Some(uri) = text(bytes)
                    && let Some(peer) = PeerIdentity::from_uri(uri)
                {
                    assert_eq!(PeerIdentity::from_uri(&peer.uri()), Some(peer));
                }
            }
            3 => {
                if let Ok(key) = VerifyKey::from_bytes(bytes.get(..32).unwrap_or(bytes)) {
                    assert!(
                        !key.verify_strict(b"credential", bytes.get(32..).unwrap_or_default()),
                        "a signature was guessed"
                    );
                }
            }
            _ => {
                let _ = serde_json::from_slice::<Issued>(bytes);
            }
        }
    },
    bytes_per_byte: 200,
    base_bytes: 1 << 20,
    seeds: || {
        let (mut request, mut uri) = (vec![1], vec![2]);
        request.extend(&AUTHORITY.request);
        uri.extend(b"garrick://c1/node/n1");
        // The base point of the curve is a key.
        let mut key = vec![0x66; 33];
        (key[0], key[1]) = (3, 0x58);
        vec![request, uri, key]
    },
};

/// Join tokens as typed, and the controller's book of them.
pub(super) const TOKENS: Target = Target {
    name: "tokens",
    read: |input| {
        if let Some(text) = text(input)
            && let Ok(token) = Token::parse(text)
        {
            assert_eq!(Token::parse(&token.text()).ok(), Some(token), "a token changes when it is written");
        }
        let _ = garrick_frame::decode_body::<TokenBook>(input);
    },
    bytes_per_byte: 200,
    base_bytes: 8 << 20,
    seeds: || plain(&[&Token::new([1; 8], [2; 32], [3; 32]).text(), "garrick-join-1.", "garrick-join-1.00.00.00"]),
};
