//! The cluster's certificate authority: one self-signed P-256 certificate. The controller keeps its key in a file of its
//! own folder (`ca.pem`, mode 0600); the certificate alone lies beside it in `ca.crt` for handing out.
//!
//! While one authority replaces another, both are trusted: the next one (`next.pem`) is announced to all before it issues
//! anything, and the previous one (`previous.pem`) is trusted until no process has a certificate of it any more ([`Rotation`]).
//!
//! The authority decides the content of a certificate: only the public key is taken from the request.

use super::{
    IdentityError, files, invalid,
    keep::{Change, Keep},
    peer::{PeerIdentity, Role, check_name},
    register::{Issued, Register, seconds},
    signing::random,
    store::{IdentityParts, IdentityStore},
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertificateSigningRequestParams,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    PublicKeyData as _, RevocationReason, RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, pem::PemObject as _};
use sha2::{Digest as _, Sha256};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Key and certificate of the authority.
const CA_FILE: &str = "ca.pem";
/// The one that is to come.
const NEXT_FILE: &str = "next.pem";
/// The one that was.
const PREVIOUS_FILE: &str = "previous.pem";
/// The certificate alone.
const CA_PUBLIC_FILE: &str = "ca.crt";
/// The name that every certificate has besides its own, and that TLS checks. The URI, which TLS does not know, identifies the
/// peer.
pub const COMMON_DNS_NAME: &str = "peer.garrick";

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Largest file of an authority.
const MOST_BYTES: usize = 64 << 10;
/// How long an authority is valid. Long, since replacing it takes all nodes.
pub const CA_LIFETIME: Duration = DAY.saturating_mul(3653);
/// How long a process's certificate is valid.
pub const LEAF_LIFETIME: Duration = DAY.saturating_mul(731);
/// Certificates begin to be valid this long before they are made: clocks of a cluster differ.
const CLOCK_SLACK: Duration = DAY;

/// How far the replacement of an authority has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// The next one is to be trusted, and issues nothing yet.
    Introduced,
    /// It issues, and the previous one is still trusted.
    Issuing,
}

/// An authority's key and certificate.
struct Signer {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
}

/// Those that are trusted.
#[derive(Clone)]
struct Signers {
    issuing: Arc<Signer>,
    /// Beside it, while one replaces another.
    other: Option<(Rotation, Arc<Signer>)>,
}

/// The cluster's certificate authority, with its key.
pub struct CertAuthority {
    cluster: String,
    folder: PathBuf,
    signers: Mutex<Signers>,
    /// One step at a time; readers do not wait until it is saved.
    rotating: Mutex<()>,
    register: Register,
}

impl std::fmt::Debug for CertAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertAuthority").field("cluster", &self.cluster).field("folder", &self.folder).finish()
    }
}

impl CertAuthority {
    /// Creates the authority of a new cluster in `folder`. An existing one is kept, and is an error.
    pub fn create(folder: &Path, cluster: &str) -> Result<Self, IdentityError> {
        check_name("cluster name", cluster)?;
        files::create_folder(folder)?;
        let path = folder.join(CA_FILE);
        if path.exists() {
            return Err(IdentityError::Exists { path });
        }
        let (private, public) = new_signer(cluster)?;
        files::write_whole(&folder.join(CA_PUBLIC_FILE), public.as_bytes(), files::PUBLIC)?;
        files::write_whole(&path, private.as_bytes(), files::PRIVATE)?;
        Self::open(folder)
    }

    /// Opens the authority in `folder`; [`IdentityError::Absent`] when there is none.
    pub fn open(folder: &Path) -> Result<Self, IdentityError> {
        let (issuing, cluster) = Signer::read(&folder.join(CA_FILE))?;
        let beside = |file: &str| match Signer::read(&folder.join(file)) {
            Ok((signer, _)) => Ok(Some(Arc::new(signer))),
            Err(IdentityError::Absent { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        // A crash amid the change of one for the other leaves both: then nothing was issued by the next one yet.
        let other = match beside(NEXT_FILE)? {
            // Unless what is left of it is what issues already.
            Some(next) if next.certificate != issuing.certificate => Some((Rotation::Introduced, next)),
            _ => beside(PREVIOUS_FILE)?.map(|previous| (Rotation::Issuing, previous)),
        };
        let signers = Mutex::new(Signers { issuing: Arc::new(issuing), other });
        Ok(Self {
            cluster,
            folder: folder.to_owned(),
            signers,
            rotating: Mutex::default(),
            register: Register::open(folder)?,
        })
    }

    /// From here on changes of its files are kept by that.
    #[must_use]
    pub fn kept_by(mut self, keep: Arc<dyn Keep>) -> Self {
        self.register.keep = keep;
        self
    }

    /// Keeps changes of files in its folder.
    pub(crate) fn keep(&self, changes: Vec<Change>) -> Result<(), IdentityError> {
        self.register.keep.keep(changes)
    }

    fn signers(&self) -> Signers {
        self.signers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state of a replacement; `None`: there is none in progress.
    pub fn rotation(&self) -> Option<Rotation> {
        self.signers().other.map(|(rotation, _)| rotation)
    }

    /// The next step of a replacement: a new authority is made and trusted; it issues; the previous one is forgotten. Saved before it
    /// counts.
    pub fn rotate(&self) -> Result<Option<Rotation>, IdentityError> {
        let _one_at_a_time = self.rotating.lock().unwrap_or_else(PoisonError::into_inner);
        let signers = self.signers();
        let [current, next, previous] = [CA_FILE, NEXT_FILE, PREVIOUS_FILE].map(|file| self.folder.join(file));
        let stepped = match &signers.other {
            None => {
                let (private, _) = new_signer(&self.cluster)?;
                self.keep(vec![Change::private(next.clone(), private.into_bytes())])?;
                let made = Arc::new(Signer::read(&next)?.0);
                Signers { issuing: Arc::clone(&signers.issuing), other: Some((Rotation::Introduced, made)) }
            }
            Some((Rotation::Introduced, made)) if Signer::read(&current)?.0.certificate == made.certificate => {
                // It was saved after all, although the result was unknown.
                let issuing = Arc::clone(made);
                Signers { issuing, other: Some((Rotation::Issuing, Arc::clone(&signers.issuing))) }
            }
            Some((Rotation::Introduced, made)) => {
                let (before, made_private) =
                    (files::read_secret(&current, MOST_BYTES)?, files::read_secret(&next, MOST_BYTES)?);
                self.keep(vec![
                    Change::private(previous, before),
                    Change::public(self.folder.join(CA_PUBLIC_FILE), made.certificate_pem.clone().into_bytes()),
                    Change::private(current, made_private),
                    Change::removed(next),
                ])?;
                let issuing = Arc::clone(made);
                Signers { issuing, other: Some((Rotation::Issuing, Arc::clone(&signers.issuing))) }
            }
            Some((Rotation::Issuing, _)) => {
                self.keep(vec![Change::removed(previous)])?;
                Signers { issuing: Arc::clone(&signers.issuing), other: None }
            }
        };
        let rotation = stepped.other.as_ref().map(|(rotation, _)| *rotation);
        *self.signers.lock().unwrap_or_else(PoisonError::into_inner) = stepped;
        Ok(rotation)
    }

    /// Opens it, or makes it where there is none (a controller started for the first time).
    pub fn open_or_create(folder: &Path, cluster: &str) -> Result<Self, IdentityError> {
        match Self::open(folder) {
            Err(IdentityError::Absent { .. }) => Self::create(folder, cluster),
            opened => opened,
        }
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The folder that it lives in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The certificates of the authorities that are trusted, in PEM, for handing out: that which issues first.
    pub fn trusted_pem(&self) -> Vec<String> {
        self.signers().all().map(|signer| signer.certificate_pem.clone()).collect()
    }

    /// Their fingerprints, hexadecimal.
    pub fn trusted(&self) -> Vec<String> {
        self.signers().all().map(|signer| hex(&fingerprint(&signer.certificate))).collect()
    }

    /// SHA-256 of the certificate of the authority that issues.
    pub fn fingerprint(&self) -> [u8; 32] {
        fingerprint(&self.signers().issuing.certificate)
    }

    /// When the certificate of the authority that issues ends.
    pub fn expiry(&self) -> Result<SystemTime, IdentityError> {
        expiry_of(&self.signers().issuing.certificate)
    }

    /// Issues a certificate (PEM) for the public key of a request (PKCS #10, DER). The request must be signed with that
    /// key; role and name are the caller's decision, whatever the request says.
    pub fn issue(&self, role: Role, name: &str, request: &[u8]) -> Result<String, IdentityError> {
        self.issue_for(role, name, request, SystemTime::now(), LEAF_LIFETIME)
    }

    /// [`CertAuthority::issue`] with a lifetime from `now`.
    pub fn issue_for(
        &self,
        role: Role,
        name: &str,
        request: &[u8],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<String, IdentityError> {
        check_name("name", name)?;
        let asked = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request))
            .map_err(|e| invalid(format!("certificate request of {role} {name}"), e))?;
        let identity = PeerIdentity { cluster: self.cluster.clone(), role, name: name.to_owned() };
        let bad_name = |e: rcgen::Error| invalid(format!("name {name}"), e);
        let mut params = CertificateParams::default();
        set_validity(&mut params, now, lifetime);
        // RFC 5280, 4.1.2.2: positive, at most 20 bytes.
        let mut serial = random::<16>()?;
        serial[0] = serial[0] & 0x7f | 0x40;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Both: every process connects and is connected to.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, self.cluster.as_str());
        params.distinguished_name.push(DnType::CommonName, format!("{role} {name}"));
        params.subject_alt_names = vec![
            SanType::DnsName(COMMON_DNS_NAME.try_into().map_err(bad_name)?),
            SanType::DnsName(name.try_into().map_err(bad_name)?),
            SanType::URI(identity.uri().try_into().map_err(bad_name)?),
        ];
        let signed = params.signed_by(&asked.public_key, &self.signers().issuing.issuer);
        let pem = signed.map_err(|e| invalid(format!("certificate of {role} {name}"), e))?.pem();
        // Known before it is handed out: what is not known cannot be revoked.
        let entry = Issued {
            serial: hex(&serial),
            role: role.to_string(),
            name: name.to_owned(),
            issued: seconds(now),
            expires: seconds(now + lifetime),
            revoked: None,
        };
        self.register.add(entry, now)?;
        Ok(pem)
    }

    /// What was issued, by role and name, the oldest first.
    pub fn issued(&self) -> Vec<Issued> {
        self.register.all()
    }

    /// Revokes the valid certificates of a process. Returns how many there were.
    pub fn revoke(&self, role: Role, name: &str) -> Result<usize, IdentityError> {
        self.register.revoke(&role.to_string(), name, SystemTime::now())
    }

    /// All certificates of this process are revoked: it gets a new one only if it is vouched for again.
    pub fn is_barred(&self, role: Role, name: &str) -> bool {
        self.register.is_barred(&role.to_string(), name)
    }

    /// The list of revoked certificates, signed by each authority that is trusted (PEM). `None`: none is revoked.
    pub fn revocation_list(&self) -> Result<Option<String>, IdentityError> {
        let now = SystemTime::now();
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let today = epoch + Duration::from_secs(seconds(now));
        let revoked: Vec<RevokedCertParams> = self
            .register
            .all()
            .into_iter()
            .filter_map(|one| {
                Some(RevokedCertParams {
                    serial_number: SerialNumber::from_slice(&unhex(&one.serial)?),
                    revocation_time: epoch + Duration::from_secs(one.revoked?),
                    reason_code: Some(RevocationReason::Unspecified),
                    invalidity_date: None,
                })
            })
            .collect();
        if revoked.is_empty() {
            return Ok(None);
        }
        let list = CertificateRevocationListParams {
            this_update: today - CLOCK_SLACK,
            next_update: today + CA_LIFETIME,
            crl_number: SerialNumber::from(seconds(now)),
            issuing_distribution_point: None,
            revoked_certs: revoked,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        // A list says nothing of another authority's certificates; whose each one is does not matter in it.
        let signed = |signer: &Arc<Signer>| list.signed_by(&signer.issuer)?.pem();
        let lists: Result<String, rcgen::Error> = self.signers().all().map(signed).collect();
        lists.map(Some).map_err(|e| invalid("revocation list", e))
    }

    /// Makes a key and a certificate for a process on this host and puts them into `folder`.
    pub fn enrol(&self, role: Role, name: &str, folder: &Path) -> Result<Arc<IdentityStore>, IdentityError> {
        let key = KeyPair::generate().map_err(|e| invalid("new key", e))?;
        let certificate = self.issue(role, name, &request_for(&key)?)?;
        let (authorities, revoked) = (self.trusted_pem(), self.revocation_list()?);
        let parts = IdentityParts { key: key.serialize_pem(), certificate, authorities, revoked };
        parts.save(folder)?;
        IdentityStore::from_parts(&parts)
    }
}

impl Signers {
    fn all(&self) -> impl Iterator<Item = &Arc<Signer>> {
        std::iter::once(&self.issuing).chain(self.other.as_ref().map(|(_, signer)| signer))
    }
}

impl Signer {
    /// With the name of its cluster.
    fn read(path: &Path) -> Result<(Self, String), IdentityError> {
        let text = String::from_utf8(files::read_secret(path, MOST_BYTES)?)
            .map_err(|e| invalid(path.display().to_string(), e))?;
        let bad = |cause: String| invalid(path.display().to_string(), cause);
        let (key_pem, certificate_pem) = text
            .find("-----BEGIN CERTIFICATE")
            .map(|at| text.split_at(at))
            .ok_or_else(|| bad("no certificate".into()))?;
        let key = KeyPair::from_pem(key_pem).map_err(|e| bad(e.to_string()))?;
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|e| bad(e.to_string()))?;
        let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|e| bad(e.to_string()))?;
        let cluster = parsed
            .subject()
            .iter_organization()
            .next()
            .and_then(|name| name.as_str().ok())
            .ok_or_else(|| bad("the certificate names no cluster".into()))?
            .to_owned();
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|e| bad(e.to_string()))?;
        Ok((Self { issuer, certificate, certificate_pem: certificate_pem.to_owned() }, cluster))
    }
}

/// A new authority: key and certificate, and the certificate alone.
fn new_signer(cluster: &str) -> Result<(String, String), IdentityError> {
    let key = KeyPair::generate().map_err(|e| invalid("new CA key", e))?;
    let mut params = CertificateParams::default();
    set_validity(&mut params, SystemTime::now(), CA_LIFETIME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // The key's own mark in the name: two clusters of one name, or two authorities of one cluster, must not look like one with a bad
    // signature.
    let mark = hex(&Sha256::digest(key.public_key_raw())[..8]);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, cluster);
    params.distinguished_name.push(DnType::CommonName, format!("Garrick cluster CA {mark}"));
    let pem = params.self_signed(&key).map_err(|e| invalid("new CA certificate", e))?.pem();
    Ok((format!("{}{pem}", key.serialize_pem()), pem))
}

/// A certificate request (PKCS #10, DER) for a key; it proves possession of the key and asks for nothing.
pub fn request_for(key: &KeyPair) -> Result<Vec<u8>, IdentityError> {
    let params = CertificateParams::default();
    Ok(params.serialize_request(key).map_err(|e| invalid("certificate request", e))?.der().to_vec())
}

/// SHA-256 of the public key in a request: the same for every request that is made with one key.
pub(crate) fn key_of_request(request: &[u8]) -> Result<[u8; 32], IdentityError> {
    let asked = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request))
        .map_err(|e| invalid("certificate request", e))?;
    Ok(Sha256::digest(asked.public_key.der_bytes()).into())
}

/// SHA-256 of the public key in a certificate (DER): that of the request for which it was made.
pub(crate) fn key_of_certificate(der: &[u8]) -> Result<[u8; 32], IdentityError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|e| invalid("certificate", e))?;
    Ok(Sha256::digest(&certificate.public_key().subject_public_key.data).into())
}

/// SHA-256 of a certificate in DER.
pub fn fingerprint(certificate: &[u8]) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

/// Did that authority make this certificate? By its name, which has its key's mark; the signature is checked at each handshake.
pub(crate) fn is_issuer(authority: &[u8], certificate: &[u8]) -> bool {
    let parsed = (X509Certificate::from_der(authority), X509Certificate::from_der(certificate));
    matches!(parsed, (Ok((_, authority)), Ok((_, leaf))) if authority.subject() == leaf.issuer())
}

pub(crate) fn expiry_of(certificate: &[u8]) -> Result<SystemTime, IdentityError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|e| invalid("certificate", e))?;
    let seconds = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
    Ok(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// When it was made: it is valid since a day earlier, for clocks that differ.
pub(crate) fn issued_of(certificate: &[u8]) -> Result<SystemTime, IdentityError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|e| invalid("certificate", e))?;
    let seconds = u64::try_from(parsed.validity().not_before.timestamp()).unwrap_or(0);
    Ok(UNIX_EPOCH + Duration::from_secs(seconds) + CLOCK_SLACK)
}

/// Hexadecimal, in small letters.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

fn set_validity(params: &mut CertificateParams, now: SystemTime, lifetime: Duration) {
    let now = rcgen::date_time_ymd(1970, 1, 1) + now.duration_since(UNIX_EPOCH).unwrap_or_default();
    params.not_before = now - CLOCK_SLACK;
    params.not_after = now + lifetime;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn an_authority_reopens_with_its_cluster_and_is_never_overwritten() {
        let folder = Folder::new();
        let made = CertAuthority::create(folder.path(), "c1").unwrap();
        let opened = CertAuthority::open(folder.path()).unwrap();
        assert_eq!((opened.cluster(), opened.fingerprint()), ("c1", made.fingerprint()));
        assert!(matches!(CertAuthority::create(folder.path(), "c1"), Err(IdentityError::Exists { .. })));
        assert!(opened.expiry().unwrap() > SystemTime::now() + Duration::from_secs(9 * 365 * 24 * 3600));
        let again = CertAuthority::open_or_create(folder.path(), "other").unwrap();
        assert_eq!(again.cluster(), "c1", "what is there is kept");
    }

    #[test]
    fn one_authority_replaces_another_step_by_step_also_over_restarts() {
        let folder = Folder::new();
        let (ca, node) = (folder.path().join("ca"), folder.path().join("node"));
        let first = CertAuthority::create(&ca, "c1").unwrap();
        let old = first.trusted();
        let held = |authority: &CertAuthority| {
            let store = authority.enrol(Role::Node, "n1", &node).unwrap();
            (store.issuer().unwrap(), store.trusted())
        };
        assert_eq!((first.rotation(), held(&first)), (None, (old[0].clone(), old.clone())));
        assert_eq!(first.rotate().unwrap(), Some(Rotation::Introduced));
        let open = || CertAuthority::open(&ca).unwrap();
        let both = open().trusted();
        assert_eq!((both.len(), &both[0]), (2, &old[0]));
        assert_eq!(held(&open()), (old[0].clone(), both.clone()));
        open().revoke(Role::Node, "n1").unwrap();
        assert_eq!(open().revocation_list().unwrap().unwrap().matches("BEGIN X509 CRL").count(), 2);
        // As a crash amid the change leaves it.
        std::fs::copy(ca.join(CA_FILE), ca.join(PREVIOUS_FILE)).unwrap();
        assert_eq!((open().rotation(), open().trusted()), (Some(Rotation::Introduced), both.clone()));
        assert_eq!(open().rotate().unwrap(), Some(Rotation::Issuing));
        let now = open();
        assert_eq!((now.rotation(), now.trusted()), (Some(Rotation::Issuing), vec![both[1].clone(), both[0].clone()]));
        assert_eq!((held(&now).0, hex(&now.fingerprint())), (both[1].clone(), both[1].clone()));
        assert_eq!(std::fs::read_to_string(ca.join(CA_PUBLIC_FILE)).unwrap(), now.trusted_pem()[0]);
        assert_eq!(now.rotate().unwrap(), None);
        assert_eq!((open().rotation(), open().trusted()), (None, vec![both[1].clone()]));
        assert_eq!(held(&open()), (both[1].clone(), vec![both[1].clone()]));
    }

    #[test]
    fn a_certificate_says_what_the_authority_decided() {
        let folder = Folder::new();
        let authority = CertAuthority::create(folder.path(), "c1").unwrap();
        let key = KeyPair::generate().unwrap();
        let mut asking = CertificateParams::new(vec!["evil.example".to_owned()]).unwrap();
        asking.subject_alt_names.push(SanType::URI("garrick://c1/controller/evil".try_into().unwrap()));
        asking.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        asking.use_authority_key_identifier_extension = false;
        // Whether or not a request with odd wishes is answered, none of them may come through.
        let odd = asking.serialize_request(&key).unwrap();
        if let Ok(pem) = authority.issue(Role::Node, "n1", odd.der()) {
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            assert_eq!(PeerIdentity::of_certificate(&der).unwrap().uri(), "garrick://c1/node/n1");
            assert!(!X509Certificate::from_der(&der).unwrap().1.is_ca());
        }
        let pem = authority.issue(Role::Node, "n1", &request_for(&key).unwrap()).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(PeerIdentity::of_certificate(&der).unwrap().uri(), "garrick://c1/node/n1");
        assert!(!X509Certificate::from_der(&der).unwrap().1.is_ca());
    }

    /// A node's request for a renewal is answered with the name of its link's certificate.
    #[test]
    fn a_name_in_a_request_is_not_what_the_certificate_is_for() {
        let folder = Folder::new();
        let authority = CertAuthority::create(folder.path(), "c1").unwrap();
        let key = KeyPair::generate().unwrap();
        let mut asking = CertificateParams::new(vec!["n2".to_owned()]).unwrap();
        asking.subject_alt_names.push(SanType::URI("garrick://c1/controller/head".try_into().unwrap()));
        asking.distinguished_name.push(DnType::CommonName, "controller head");
        let request = asking.serialize_request(&key).unwrap();
        let pem = authority.issue(Role::Node, "n1", request.der()).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(PeerIdentity::of_certificate(&der).unwrap().uri(), "garrick://c1/node/n1");
        let certificate = X509Certificate::from_der(&der).unwrap().1;
        let names = format!("{} {:?}", certificate.subject(), certificate.subject_alternative_name().unwrap());
        assert!(names.contains("n1") && !names.contains("n2") && !names.contains("head"), "{names}");
    }

    #[test]
    fn requests_that_prove_no_key_and_odd_names_are_refused() {
        let folder = Folder::new();
        let authority = CertAuthority::create(folder.path(), "c1").unwrap();
        let request = request_for(&KeyPair::generate().unwrap()).unwrap();
        let mut forged = request.clone();
        *forged.last_mut().unwrap() ^= 1;
        assert!(authority.issue(Role::Node, "n1", &forged).is_err());
        assert!(authority.issue(Role::Node, "n1", b"garbage").is_err());
        assert!(matches!(authority.issue(Role::Node, "n1/../x", &request), Err(IdentityError::Name { .. })));
    }

    #[test]
    fn hexadecimal_reads_back_and_refuses_the_rest() {
        assert_eq!(unhex(&hex(&[0, 255, 16])).unwrap(), [0, 255, 16]);
        assert!(unhex("abc").is_none() && unhex("+1").is_none() && unhex("zz").is_none());
    }
}
