//! Role and name of a process in its cluster. A certificate carries them as a URI among its alternative names,
//! `garrick://<cluster>/<role>/<name>`; only the cluster's CA can put them there.

use super::IdentityError;
use std::{fmt, str::FromStr};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What a process is to its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Role {
    /// Owns jobs and nodes.
    Controller,
    /// A compute host: its agent and the `stepd`s there.
    Node,
    /// Sends commands from a host without a daemon.
    Client,
    /// Keeps the records of a site's clusters.
    Accounting,
}

impl Role {
    const fn word(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Node => "node",
            Self::Client => "client",
            Self::Accounting => "accounting",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Controller, Self::Node, Self::Client, Self::Accounting]
            .into_iter()
            .find(|role| role.word() == text)
            .ok_or(())
    }
}

/// A process, as its certificate names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerIdentity {
    /// Cluster name.
    pub cluster: String,
    /// Role.
    pub role: Role,
    /// Name within the role: a node's name, a controller's host. Towards accounting, a controller's is that of its cluster.
    pub name: String,
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of cluster {}", self.role, self.name, self.cluster)
    }
}

impl PeerIdentity {
    /// The URI that stands in the certificate.
    pub fn uri(&self) -> String {
        format!("garrick://{}/{}/{}", self.cluster, self.role, self.name)
    }

    /// Reads the URI.
    pub fn from_uri(uri: &str) -> Option<Self> {
        let mut parts = uri.strip_prefix("garrick://")?.splitn(3, '/');
        let (cluster, role, name) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        (is_name(cluster) && is_name(name)).then(|| Self { cluster: cluster.to_owned(), role, name: name.to_owned() })
    }

    /// Reads the identity out of a certificate. It is to be believed only after the certificate was verified.
    pub fn of_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        let bad = |cause: String| super::invalid("certificate", cause);
        let (_, certificate) = X509Certificate::from_der(der).map_err(|e| bad(e.to_string()))?;
        let names = certificate.subject_alternative_name().map_err(|e| bad(e.to_string()))?;
        let mut found = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
            GeneralName::URI(uri) => Self::from_uri(uri),
            _ => None,
        });
        match (found.next(), found.next()) {
            (Some(identity), None) => Ok(identity),
            (None, _) => Err(bad("it names no role (no garrick:// address among its names)".to_owned())),
            (Some(_), Some(_)) => Err(bad("it names more than one role".to_owned())),
        }
    }
}

/// The peer that must answer a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectPeer {
    /// Role.
    pub role: Role,
    /// Name; `None`: any of that role.
    pub name: Option<String>,
}

impl ExpectPeer {
    /// The controller, whatever its host.
    pub const fn controller() -> Self {
        Self { role: Role::Controller, name: None }
    }

    /// The service of accounting, whatever its host.
    pub const fn accounting() -> Self {
        Self { role: Role::Accounting, name: None }
    }

    /// One node.
    pub fn node(name: &str) -> Self {
        Self { role: Role::Node, name: Some(name.to_owned()) }
    }

    /// Is it the expected peer?
    pub fn accepts(&self, peer: &PeerIdentity) -> bool {
        peer.role == self.role && self.name.as_ref().is_none_or(|name| *name == peer.name)
    }
}

impl fmt::Display for ExpectPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} {name}", self.role),
            None => write!(f, "a {}", self.role),
        }
    }
}

/// Checks a name before it goes into a certificate.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), IdentityError> {
    if is_name(name) { Ok(()) } else { Err(IdentityError::Name { what, name: name.to_owned() }) }
}

/// May a certificate carry this name? Fit for a URI and for a DNS name (RFC 1035's 63 bytes of a label), and for nothing that needs quoting.
pub fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && !name.contains("..")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn uri_reads_back_and_foreign_ones_do_not() {
        let node = PeerIdentity { cluster: "c1".into(), role: Role::Node, name: "lx_0003".into() };
        assert_eq!(node.uri(), "garrick://c1/node/lx_0003");
        assert_eq!(PeerIdentity::from_uri(&node.uri()), Some(node));
        for bad in [
            "garrick://c1/node",
            "garrick://c1/root/n1",
            "garrick:///node/n1",
            "garrick://c1/node/n1/x",
            "garrick://c1/node/",
            "spiffe://c1/node/n1",
        ] {
            assert_eq!(PeerIdentity::from_uri(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_that_would_need_quoting_are_refused() {
        for good in ["n1", "lx_0003", "a.b-c"] {
            check_name("node", good).unwrap();
        }
        for bad in ["", "-n", "n-", "a/b", "a b", "a..b", "ä", &"x".repeat(64)] {
            assert!(check_name("node", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn expectation_may_leave_the_name_open() {
        let peer = PeerIdentity { cluster: "c".into(), role: Role::Node, name: "n1".into() };
        assert!(ExpectPeer::node("n1").accepts(&peer));
        assert!(ExpectPeer { role: Role::Node, name: None }.accepts(&peer));
        assert!(!ExpectPeer::node("n2").accepts(&peer));
        assert!(!ExpectPeer::controller().accepts(&peer));
    }
}
