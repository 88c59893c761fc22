//! Certificates of a server and a client, and an authority that signed neither.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

/// Writes `ca.pem`, `other-ca.pem`, `server.pem`, `server.key`, `client.pem` and `client.key`.
pub(crate) fn make(folder: &Path) {
    let authority = authority(folder, "ca");
    self::authority(folder, "other-ca");
    signed(folder, "server", &authority);
    signed(folder, "client", &authority);
}

fn write(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
}

fn named(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(folder: &Path, name: &str) -> Issuer<'static, KeyPair> {
    let key = KeyPair::generate().unwrap();
    let mut params = named(name, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    write(folder, &format!("{name}.pem"), &certificate.pem());
    Issuer::new(params, key)
}

fn signed(folder: &Path, name: &str, by: &Issuer<'_, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let certificate = named(name, &["localhost", "127.0.0.1"]).signed_by(&key, by).unwrap();
    write(folder, &format!("{name}.pem"), &certificate.pem());
    write(folder, &format!("{name}.key"), &key.serialize_pem());
}
