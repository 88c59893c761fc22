//! The identity of a process, and how others check it: the cluster's certificate authority, the certificate of one process, and
//! the key that signs job credentials. Files are written whole (temporary file, fsync, rename); keys have mode 0600.
//!
//! | module | what it is |
//! |---|---|
//! | [`peer`] | role and name, from the certificate's URI |
//! | [`authority`] | [`CertAuthority`]: makes the cluster's CA and issues certificates |
//! | `register` | issued and revoked certificates |
//! | [`store`] | [`IdentityStore`]: this process's certificate and key and the CAs it trusts; rotates while links are up |
//! | [`signing`] | [`SigningKey`], [`VerifyKey`]: ed25519 for job credentials |
//! | [`keep`] | [`Keep`]: where an authority's files are kept |
//! | [`files`] | writing and reading secret files |

pub mod authority;
pub mod files;
pub mod keep;
pub mod peer;
mod register;
pub mod signing;
pub mod store;

pub(crate) use authority::key_of_certificate;
pub use authority::{CertAuthority, Rotation, fingerprint, hex, request_for};
pub use keep::{Change, Keep, KeepError};
pub use peer::{ExpectPeer, PeerIdentity, Role, is_name};
pub use register::Issued;
pub use signing::{SigningKey, VerifyKey};
pub use store::{IdentityParts, IdentityStore};

use std::{io, path::PathBuf};

/// An identity that cannot be made, read or believed.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// There is no identity (yet).
    #[error("no identity in {}: it has to be made (controller) or joined for (node)", path.display())]
    Absent {
        /// The file that was looked for.
        path: PathBuf,
    },
    /// There is one already; it is never overwritten.
    #[error("{} exists already and is kept", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A secret that others can read.
    #[error("{} can be read by others (mode {mode:o}); give it mode 600", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file operation failed.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file or message that is not what it should be.
    #[error("{subject}: {cause}")]
    Invalid {
        /// Which file or message.
        subject: String,
        /// What is wrong.
        cause: String,
    },
    /// A change that was not kept.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// A name that cannot stand in a certificate.
    #[error(
        "{what} `{name}` cannot stand in a certificate: letters, digits, '-', '_' and '.', up to 63, starting and ending with a letter or digit"
    )]
    Name {
        /// Cluster or peer.
        what: &'static str,
        /// The name.
        name: String,
    },
}

pub(crate) fn invalid(subject: impl Into<String>, cause: impl ToString) -> IdentityError {
    IdentityError::Invalid { subject: subject.into(), cause: cause.to_string() }
}
