//! This process's own certificate and key, and the authorities that it trusts. Endpoints read it at every handshake, so a
//! rotation affects new connections only.

use super::{
    IdentityError,
    authority::{expiry_of, fingerprint, hex, is_issuer, issued_of},
    files, invalid,
    peer::{PeerIdentity, Role},
};
use arc_swap::ArcSwap;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::SystemTime,
};

/// The file with key, certificate and trusted authorities. One file, so that they change together.
const IDENTITY_FILE: &str = "identity.pem";

/// Largest identity file: a list of revoked certificates has some 40 bytes for each.
const MOST_BYTES: usize = 16 << 20;

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));

/// The one crypto provider that Garrick uses.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::clone(&PROVIDER)
}

/// Makes that provider the process's default, for libraries that ask for one. To be called first in every daemon's `main`;
/// a second call changes nothing.
pub fn install_crypto_provider() {
    let _ = ring::default_provider().install_default();
}

/// What an identity is made of, in PEM.
#[derive(Clone)]
pub struct IdentityParts {
    /// Private key.
    pub key: String,
    /// Certificate for it.
    pub certificate: String,
    /// Authorities to trust, the cluster's newest first. Several while one replaces another.
    pub authorities: Vec<String>,
    /// The authority's list of revoked certificates.
    pub revoked: Option<String>,
}

impl IdentityParts {
    /// Writes them as the identity in `folder`, replacing an existing one.
    pub fn save(&self, folder: &Path) -> Result<(), IdentityError> {
        files::create_folder(folder)?;
        let mut text = String::new();
        for part in [&self.key, &self.certificate].into_iter().chain(&self.authorities).chain(&self.revoked) {
            text.push_str(part.trim_end());
            text.push('\n');
        }
        files::write_whole(&folder.join(IDENTITY_FILE), text.as_bytes(), files::PRIVATE)
    }
}

/// One consistent state of an identity.
#[derive(Debug)]
pub(crate) struct Identity {
    pub me: PeerIdentity,
    pub expiry: SystemTime,
    pub issued: SystemTime,
    /// Fingerprints of the authorities that it trusts, hexadecimal.
    pub trusted: Vec<String>,
    /// Which of them made its certificate.
    pub issuer: Option<String>,
    /// Leaf and authority: a server shows both, so that a joining node can compare the authority with its token.
    pub as_server: Arc<CertifiedKey>,
    /// Leaf alone.
    pub as_client: Arc<CertifiedKey>,
    pub verify_server: Arc<dyn ServerCertVerifier>,
    pub verify_client: Arc<dyn ClientCertVerifier>,
}

/// A process's identity, shared by its endpoints.
#[derive(Debug)]
pub struct IdentityStore {
    current: ArcSwap<Identity>,
    /// The file that another process keeps, and what it was when it was read.
    followed: Option<(PathBuf, Mutex<Version>)>,
}

/// Device, inode, seconds and nanoseconds of the last change: a file is replaced whole.
type Version = Option<(u64, u64, i64, i64)>;

fn version(path: &Path) -> Version {
    let about = std::fs::metadata(path).ok()?;
    Some((about.dev(), about.ino(), about.mtime(), about.mtime_nsec()))
}

impl IdentityStore {
    /// Reads the identity in `folder`; [`IdentityError::Absent`] when the process has to get one first.
    pub fn load(folder: &Path) -> Result<Arc<Self>, IdentityError> {
        Ok(Arc::new(Self { current: ArcSwap::from_pointee(read(folder)?), followed: None }))
    }

    /// As [`Self::load`], for a process besides the one that owns the folder: changes by the owner take effect at the next
    /// handshake.
    pub fn follow(folder: &Path) -> Result<Arc<Self>, IdentityError> {
        let path = folder.join(IDENTITY_FILE);
        let seen = version(&path);
        Ok(Arc::new(Self { current: ArcSwap::from_pointee(read(folder)?), followed: Some((path, Mutex::new(seen))) }))
    }

    /// From parts that are not (yet) in a file.
    pub fn from_parts(parts: &IdentityParts) -> Result<Arc<Self>, IdentityError> {
        Ok(Arc::new(Self { current: ArcSwap::from_pointee(parse_parts(parts)?), followed: None }))
    }

    /// Changes to new parts. They must be of the same process: a role or name never changes while links are up.
    pub fn rotate(&self, parts: &IdentityParts) -> Result<(), IdentityError> {
        self.change(parse_parts(parts)?)
    }

    /// Reads the folder again.
    pub fn reload(&self, folder: &Path) -> Result<(), IdentityError> {
        self.change(read(folder)?)
    }

    fn change(&self, new: Identity) -> Result<(), IdentityError> {
        let me = self.identity();
        if new.me != me {
            return Err(invalid("new identity", format!("it is of {}, this process is {me}", new.me)));
        }
        self.current.store(Arc::new(new));
        Ok(())
    }

    /// The identity of this process.
    pub fn identity(&self) -> PeerIdentity {
        self.current.load().me.clone()
    }

    /// Its role.
    pub fn role(&self) -> Role {
        self.current.load().me.role
    }

    /// Fingerprints of the authorities that it trusts, hexadecimal.
    pub fn trusted(&self) -> Vec<String> {
        self.current.load().trusted.clone()
    }

    /// Fingerprint of the authority that made its certificate; `None`: not one that it trusts.
    pub fn issuer(&self) -> Option<String> {
        self.current.load().issuer.clone()
    }

    /// When its certificate ends.
    pub fn expiry(&self) -> SystemTime {
        self.current.load().expiry
    }

    /// When two thirds of its certificate's life are over: it is to be renewed.
    pub fn renew_at(&self) -> SystemTime {
        let now = self.current.load();
        now.issued + now.expiry.duration_since(now.issued).unwrap_or_default() * 2 / 3
    }

    /// Goes by another list of revoked certificates (PEM; `None`: an empty one), also after restarts.
    pub fn set_revoked(&self, folder: &Path, list: Option<&str>) -> Result<(), IdentityError> {
        let path = folder.join(IDENTITY_FILE);
        let text = String::from_utf8(files::read_secret(&path, MOST_BYTES)?)
            .map_err(|e| invalid(path.display().to_string(), e))?;
        let kept = text.split("-----BEGIN X509 CRL").next().unwrap_or_default();
        let new = format!("{kept}{}", list.unwrap_or_default());
        let identity = parse(new.as_bytes(), "identity")?;
        files::write_whole(&path, new.as_bytes(), files::PRIVATE)?;
        self.change(identity)
    }

    /// Goes by a certificate that the authority made for `key` (PEM), also after restarts. The list of what is revoked stays.
    pub fn renew(
        &self,
        folder: &Path,
        key: &str,
        certificate: &str,
        authorities: &[String],
    ) -> Result<(), IdentityError> {
        let path = folder.join(IDENTITY_FILE);
        let text = String::from_utf8(files::read_secret(&path, MOST_BYTES)?)
            .map_err(|e| invalid(path.display().to_string(), e))?;
        let revoked = text.find("-----BEGIN X509 CRL").map(|at| text[at..].to_owned());
        let parts = IdentityParts {
            key: key.to_owned(),
            certificate: certificate.to_owned(),
            authorities: authorities.to_vec(),
            revoked,
        };
        let identity = parse_parts(&parts)?;
        if identity.me != self.identity() {
            return Err(invalid("new certificate", format!("it is of {}", identity.me)));
        }
        parts.save(folder)?;
        self.change(identity)
    }

    /// For a handshake.
    pub(crate) fn current(&self) -> Arc<Identity> {
        if let Some((path, seen)) = &self.followed {
            let now = version(path);
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if now.is_some() && *seen != now {
                *seen = now;
                let read = path.parent().map(read).unwrap_or_else(|| read(Path::new(".")));
                if let Err(error) = read.and_then(|new| self.change(new)) {
                    tracing::error!(%error, "the identity that was changed is not read");
                }
            }
        }
        self.current.load_full()
    }
}

fn read(folder: &Path) -> Result<Identity, IdentityError> {
    let path = folder.join(IDENTITY_FILE);
    let bytes = files::read_secret(&path, MOST_BYTES)?;
    parse(&bytes, &path.display().to_string())
}

fn parse_parts(parts: &IdentityParts) -> Result<Identity, IdentityError> {
    let revoked = parts.revoked.as_deref().unwrap_or_default();
    let text = format!("{}\n{}\n{}\n{revoked}", parts.key, parts.certificate, parts.authorities.join("\n"));
    parse(text.as_bytes(), "identity")
}

/// Key, certificate, authorities, in that order, and lists of what is revoked.
fn parse(pem: &[u8], subject: &str) -> Result<Identity, IdentityError> {
    let bad = |cause: &dyn ToString| invalid(subject, cause.to_string());
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|e| bad(&format!("private key: {e}")))?;
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        certificates.push(certificate.map_err(|e| bad(&format!("certificate: {e}")))?);
    }
    let mut certificates = certificates.into_iter();
    let leaf: CertificateDer<'static> = certificates.next().ok_or_else(|| bad(&"no certificate"))?;
    let authorities: Vec<CertificateDer<'static>> = certificates.collect();
    if authorities.is_empty() {
        return Err(bad(&"no certificate of an authority"));
    }
    let mut roots = RootCertStore::empty();
    for authority in &authorities {
        roots.add(authority.clone()).map_err(|e| bad(&format!("authority: {e}")))?;
    }
    let roots = Arc::new(roots);
    let mut revoked = Vec::new();
    for list in CertificateRevocationListDer::pem_slice_iter(pem) {
        revoked.push(list.map_err(|e| bad(&format!("list of revoked certificates: {e}")))?);
    }
    let provider = crypto_provider();
    let signer = provider.key_provider.load_private_key(key).map_err(|e| bad(&format!("private key: {e}")))?;
    let mut chain = vec![leaf.clone()];
    chain.extend(authorities.iter().cloned());
    let as_client = CertifiedKey::new(vec![leaf.clone()], Arc::clone(&signer));
    as_client.keys_match().map_err(|_| bad(&"the key does not belong to the certificate"))?;
    let issued_by = |authority: &&CertificateDer<'static>| is_issuer(authority, &leaf);
    let issuer = authorities.iter().find(issued_by).map(|issuer| hex(&fingerprint(issuer)));
    Ok(Identity {
        trusted: authorities.iter().map(|authority| hex(&fingerprint(authority))).collect(),
        issuer,
        me: PeerIdentity::of_certificate(&leaf)?,
        expiry: expiry_of(&leaf)?,
        as_server: Arc::new(CertifiedKey::new(chain, signer)),
        as_client: Arc::new(as_client),
        issued: issued_of(&leaf)?,
        // A list is of one authority; of another one's certificates it says nothing.
        verify_server: WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .with_crls(revoked.iter().cloned())
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status()
            .build()
            .map_err(|e| bad(&e))?,
        verify_client: WebPkiClientVerifier::builder_with_provider(roots, provider)
            .with_crls(revoked)
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status()
            .build()
            .map_err(|e| bad(&e))?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{identity::CertAuthority, testing::Folder};

    #[test]
    fn an_identity_reads_back_from_its_folder() {
        let folder = Folder::new();
        let authority = CertAuthority::create(&folder.path().join("ca"), "c1").unwrap();
        let own = folder.path().join("node");
        assert!(matches!(IdentityStore::load(&own), Err(IdentityError::Absent { .. })));
        authority.enrol(Role::Node, "n1", &own).unwrap();
        let store = IdentityStore::load(&own).unwrap();
        assert_eq!(store.identity().uri(), "garrick://c1/node/n1");
        assert!(store.expiry() > SystemTime::now());
        authority.enrol(Role::Node, "n1", &own).unwrap();
        store.reload(&own).unwrap();
        authority.enrol(Role::Node, "n2", &own).unwrap();
        assert!(store.reload(&own).is_err(), "another name is another process");
        assert_eq!(store.identity().name, "n1");
    }

    #[test]
    fn an_identity_that_another_process_keeps_is_read_again_when_it_changed() {
        let folder = Folder::new();
        let authority = CertAuthority::create(&folder.path().join("ca"), "c1").unwrap();
        let own = folder.path().join("node");
        authority.enrol(Role::Node, "n1", &own).unwrap();
        let (store, beside) = (IdentityStore::load(&own).unwrap(), IdentityStore::follow(&own).unwrap());
        let revoked = "revoked";
        authority.enrol(Role::Node, revoked, &folder.path().join("other")).unwrap();
        authority.revoke(Role::Node, revoked).unwrap();
        authority.rotate().unwrap();
        store.set_revoked(&own, authority.revocation_list().unwrap().as_deref()).unwrap();
        assert_eq!(beside.current().trusted, authority.trusted()[..1]);
        authority.enrol(Role::Node, "n1", &own).unwrap();
        assert_eq!(beside.current().trusted, authority.trusted());
        // What cannot be read changes nothing.
        std::fs::write(own.join(IDENTITY_FILE), "damaged").unwrap();
        assert_eq!(beside.current().trusted, authority.trusted());
    }

    /// The answer to a request for a renewal comes over the link; whoever gives it must not make this process another one.
    #[test]
    fn a_renewal_under_another_name_is_refused_and_changes_nothing() {
        let folder = Folder::new();
        let authority = CertAuthority::create(&folder.path().join("ca"), "c1").unwrap();
        let own = folder.path().join("node");
        let store = authority.enrol(Role::Node, "n1", &own).unwrap();
        let before = std::fs::read_to_string(own.join(IDENTITY_FILE)).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let request = crate::identity::authority::request_for(&key).unwrap();
        for (role, name) in [(Role::Node, "n2"), (Role::Controller, "n1")] {
            let certificate = authority.issue(role, name, &request).unwrap();
            let refused = store.renew(&own, &key.serialize_pem(), &certificate, &authority.trusted_pem()).unwrap_err();
            assert!(refused.to_string().contains(&format!("it is of {role} {name} ")), "{refused}");
        }
        assert_eq!(store.identity().uri(), "garrick://c1/node/n1");
        assert_eq!(std::fs::read_to_string(own.join(IDENTITY_FILE)).unwrap(), before);
        let certificate = authority.issue(Role::Node, "n1", &request).unwrap();
        store.renew(&own, &key.serialize_pem(), &certificate, &authority.trusted_pem()).unwrap();
        assert_ne!(std::fs::read_to_string(own.join(IDENTITY_FILE)).unwrap(), before);
    }

    #[test]
    fn damaged_identities_say_what_is_wrong() {
        let folder = Folder::new();
        let authority = CertAuthority::create(&folder.path().join("ca"), "c1").unwrap();
        let key = || rcgen::KeyPair::generate().unwrap();
        let (one, two) = (key(), key());
        let request = crate::identity::authority::request_for(&one).unwrap();
        let certificate = authority.issue(Role::Node, "n1", &request).unwrap();
        let good = IdentityParts {
            key: one.serialize_pem(),
            certificate,
            authorities: authority.trusted_pem(),
            revoked: None,
        };
        let wrong_key = IdentityParts { key: two.serialize_pem(), ..good.clone() };
        let no_ca = IdentityParts { authorities: Vec::new(), ..good.clone() };
        let no_key = IdentityParts { key: String::new(), ..good.clone() };
        for (parts, word) in [(wrong_key, "does not belong"), (no_ca, "authority"), (no_key, "private key")] {
            let error = IdentityStore::from_parts(&parts).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        IdentityStore::from_parts(&good).unwrap();
    }
}
