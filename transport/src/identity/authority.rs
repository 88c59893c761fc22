//! The cluster's certificate authority: one self-signed P-256 certificate. The controller keeps its key in a file of its
//! own folder (`ca.pem`, mode 0600); the certificate alone lies beside it in `ca.crt` for handing out.
//!
//! A certificate says what the authority decides, never what the request asks for: only the public key is taken from it.

use super::{
    IdentityError, files, invalid,
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
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Key and certificate of the authority.
const CA_FILE: &str = "ca.pem";
/// The certificate alone.
const CA_PUBLIC_FILE: &str = "ca.crt";
/// The name that every certificate carries besides its own, and that TLS is asked for. Who exactly answers is checked by
/// the URI, which TLS knows nothing of.
pub const COMMON_DNS_NAME: &str = "peer.garrick";

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long an authority is valid. Long, since it cannot be replaced without touching every node.
pub const CA_LIFETIME: Duration = DAY.saturating_mul(3653);
/// How long a process's certificate is valid.
pub const LEAF_LIFETIME: Duration = DAY.saturating_mul(731);
/// Certificates begin to be valid this long before they are made: clocks of a cluster differ.
const CLOCK_SLACK: Duration = DAY;

/// The cluster's certificate authority, with its key.
pub struct CertAuthority {
    cluster: String,
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    register: Register,
}

impl std::fmt::Debug for CertAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertAuthority").field("cluster", &self.cluster).field("folder", &self.folder).finish()
    }
}

impl CertAuthority {
    /// Makes the authority of a new cluster in `folder`. One that is there is kept, and is an error.
    pub fn create(folder: &Path, cluster: &str) -> Result<Self, IdentityError> {
        check_name("cluster name", cluster)?;
        files::create_folder(folder)?;
        let path = folder.join(CA_FILE);
        if path.exists() {
            return Err(IdentityError::Exists { path });
        }
        let key = KeyPair::generate().map_err(|e| invalid("new CA key", e))?;
        let mut params = CertificateParams::default();
        set_validity(&mut params, SystemTime::now(), CA_LIFETIME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // The key's own mark in the name: two clusters of one name must not look like one authority with a bad signature.
        let mark = hex(&Sha256::digest(key.public_key_raw())[..8]);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, cluster);
        params.distinguished_name.push(DnType::CommonName, format!("Garrick cluster CA {mark}"));
        let certificate = params.self_signed(&key).map_err(|e| invalid("new CA certificate", e))?;
        let pem = certificate.pem();
        files::write_whole(&folder.join(CA_PUBLIC_FILE), pem.as_bytes(), files::PUBLIC)?;
        files::write_whole(&path, format!("{}{pem}", key.serialize_pem()).as_bytes(), files::PRIVATE)?;
        Self::open(folder)
    }

    /// Opens the authority in `folder`; [`IdentityError::Absent`] when there is none.
    pub fn open(folder: &Path) -> Result<Self, IdentityError> {
        let path = folder.join(CA_FILE);
        let text = String::from_utf8(files::read_secret(&path, 64 << 10)?)
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
        let certificate_pem = certificate_pem.to_owned();
        let register = Register::open(folder)?;
        Ok(Self { cluster, folder: folder.to_owned(), issuer, certificate, certificate_pem, register })
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

    /// The authority's certificate in PEM, for handing out.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// SHA-256 of the authority's certificate.
    pub fn fingerprint(&self) -> [u8; 32] {
        fingerprint(&self.certificate)
    }

    /// When the authority's certificate ends.
    pub fn expiry(&self) -> Result<SystemTime, IdentityError> {
        expiry_of(&self.certificate)
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
        let signed = params.signed_by(&asked.public_key, &self.issuer);
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

    /// Everything that this process ever had is revoked: it gets a new one only where somebody vouches for it anew.
    pub fn is_barred(&self, role: Role, name: &str) -> bool {
        self.register.is_barred(&role.to_string(), name)
    }

    /// The list of revoked certificates, signed (PEM). `None`: none is revoked.
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
        let signed = list.signed_by(&self.issuer).map_err(|e| invalid("revocation list", e))?;
        Ok(Some(signed.pem().map_err(|e| invalid("revocation list", e))?))
    }

    /// Makes a key and a certificate for a process on this host and puts them into `folder`.
    pub fn enrol(&self, role: Role, name: &str, folder: &Path) -> Result<Arc<IdentityStore>, IdentityError> {
        let key = KeyPair::generate().map_err(|e| invalid("new key", e))?;
        let certificate = self.issue(role, name, &request_for(&key)?)?;
        let (authorities, revoked) = (vec![self.certificate_pem.clone()], self.revocation_list()?);
        let parts = IdentityParts { key: key.serialize_pem(), certificate, authorities, revoked };
        parts.save(folder)?;
        IdentityStore::from_parts(&parts)
    }
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

/// SHA-256 of a certificate in DER.
pub fn fingerprint(certificate: &[u8]) -> [u8; 32] {
    Sha256::digest(certificate).into()
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

pub(crate) fn hex(bytes: &[u8]) -> String {
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
