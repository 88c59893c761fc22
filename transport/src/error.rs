//! Errors of a link. There is a variant for each case that callers handle differently; the texts are for administrators, so they
//! name the peer, the cause, and the remedy if there is one.

use crate::class::Class;
use garrick_frame::{FrameError, VersionRange};
use quinn::{ConnectionError, VarInt};
use std::{io, sync::Arc, time::Duration};

/// Whose certificate is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The peer's: this process found the fault.
    Peers,
    /// This process's own: the peer found the fault.
    Ours,
}

impl Whose {
    const fn of(self) -> &'static str {
        match self {
            Self::Peers => "the certificate that the peer shows",
            Self::Ours => "the peer says that this process's certificate",
        }
    }
}

/// A link that could not be made, or broke.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LinkError {
    /// A certificate of another authority.
    #[error("{peer}: {} is not from this cluster's CA (a node of another cluster, or one that joined before the CA was made anew: let it join again)", whose.of())]
    ForeignCertificate {
        /// Address, or what is known of the peer.
        peer: String,
        /// Whose.
        whose: Whose,
    },
    /// A certificate that the cluster's authority has taken back.
    #[error("{peer}: {} was revoked (a node joins again with a new token: garrick token; remove its old identity folder first)", whose.of())]
    RevokedCertificate {
        /// Peer.
        peer: String,
        /// Whose.
        whose: Whose,
    },
    /// A certificate past its time.
    #[error("{peer}: {} has expired (issue a new one or join again; if it should be good, compare the clocks): {cause}", whose.of())]
    ExpiredCertificate {
        /// Peer.
        peer: String,
        /// Whose.
        whose: Whose,
        /// The verifier's words.
        cause: String,
    },
    /// A certificate from the future.
    #[error("{peer}: {} is not valid yet (compare the clocks of the two hosts): {cause}", whose.of())]
    NotYetValid {
        /// Peer.
        peer: String,
        /// Whose.
        whose: Whose,
        /// The verifier's words.
        cause: String,
    },
    /// Another fault of a certificate.
    #[error("{peer}: {} is not acceptable: {cause}", whose.of())]
    BadCertificate {
        /// Peer.
        peer: String,
        /// Whose.
        whose: Whose,
        /// The verifier's words.
        cause: String,
    },
    /// No certificate at all.
    #[error("{peer}: no certificate was shown, and only joining is possible without one (join this cluster first)")]
    NoCertificate {
        /// Peer.
        peer: String,
    },
    /// A valid certificate, but of another process.
    #[error("{peer}: expected {expected}, but {found} answers there")]
    WrongPeer {
        /// Address.
        peer: String,
        /// The expected peer.
        expected: String,
        /// The actual peer.
        found: String,
    },
    /// No version in common.
    #[error("{peer}: no common protocol version: this program speaks {ours}, the peer speaks {theirs}")]
    Version {
        /// Peer.
        peer: String,
        /// What this program speaks.
        ours: VersionRange,
        /// What the peer speaks.
        theirs: VersionRange,
    },
    /// The other end is QUIC, but not Garrick.
    #[error("{peer}: what answers there is not Garrick (no protocol `garrick/1`)")]
    NotGarrick {
        /// Peer.
        peer: String,
    },
    /// The peer does not want this link.
    #[error("{peer} refused the link: {reason}")]
    Refused {
        /// Peer.
        peer: String,
        /// Its words.
        reason: String,
    },
    /// A frame of a link was too large, cut off or unreadable.
    #[error("{peer}, {link}: {source}")]
    Frame {
        /// Peer.
        peer: String,
        /// Which link or class.
        link: String,
        /// What is wrong with it.
        source: FrameError,
    },
    /// No answer. With QUIC a closed port and a lost packet look the same.
    #[error("{peer}: no answer within {} s (is the daemon running there, and is this UDP port open?)", after.as_secs_f32())]
    NoAnswer {
        /// Address.
        peer: String,
        /// How long was waited.
        after: Duration,
    },
    /// A Unix socket without a daemon.
    #[error("{peer}: no daemon answers there: {source}")]
    Absent {
        /// Path.
        peer: String,
        /// Cause.
        source: Arc<io::Error>,
    },
    /// The peer connected but did not introduce itself.
    #[error("{peer}: no greeting within {} s", after.as_secs_f32())]
    NoGreeting {
        /// Peer.
        peer: String,
        /// How long was waited.
        after: Duration,
    },
    /// The name does not lead to an address.
    #[error("{peer}: the address cannot be found: {source}")]
    Resolve {
        /// `host:port` as given.
        peer: String,
        /// Cause.
        source: Arc<io::Error>,
    },
    /// The link was up and is lost.
    #[error("{peer}: the connection was lost: {cause}")]
    Lost {
        /// Peer.
        peer: String,
        /// The cause, if known.
        cause: String,
    },
    /// The link was closed on purpose.
    #[error("{peer}: the connection was closed: {reason}")]
    Closed {
        /// Peer.
        peer: String,
        /// The closing side's words.
        reason: String,
    },
    /// The sender's queue is full, or too many things are open at once: try later.
    #[error("{peer}: busy: {what}")]
    Busy {
        /// Peer.
        peer: String,
        /// What is full.
        what: String,
    },
    /// A system call or a configuration step failed.
    #[error("{peer}: {doing}: {source}")]
    Io {
        /// Peer or local address.
        peer: String,
        /// What was tried.
        doing: &'static str,
        /// Cause.
        source: Arc<io::Error>,
    },
}

impl LinkError {
    pub(crate) fn io(peer: impl Into<String>, doing: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { peer: peer.into(), doing, source: Arc::new(source.into()) }
    }

    pub(crate) fn lost(peer: impl Into<String>, cause: impl ToString) -> Self {
        Self::Lost { peer: peer.into(), cause: cause.to_string() }
    }

    pub(crate) fn frame(peer: impl Into<String>, link: impl ToString, source: FrameError) -> Self {
        Self::Frame { peer: peer.into(), link: link.to_string(), source }
    }

    pub(crate) fn full(peer: impl Into<String>, class: Class) -> Self {
        Self::Busy { peer: peer.into(), what: format!("the queue for {class} messages is full") }
    }

    /// The message was not of this link, and the link is still good: answer the error and go on.
    pub const fn is_malformed_message(&self) -> bool {
        matches!(self, Self::Frame { source: FrameError::Malformed { .. } | FrameError::Encode { .. }, .. })
    }
}

/// Codes with which Garrick closes a QUIC connection (the application's own number space, RFC 9000 section 20.2).
pub(crate) mod close_code {
    /// On purpose; the reason is text.
    pub const NORMAL: u32 = 0;
    /// Answer to a greeting; the reason is an encoded `HelloReply::Refused`.
    pub const REFUSED: u32 = 1;
    /// Not the expected peer; the reason is text.
    pub const WRONG_PEER: u32 = 2;
    /// A frame that cannot be read past; the reason is text.
    pub const BAD_FRAME: u32 = 3;
}

/// First code of TLS alerts among QUIC's error codes (RFC 9001 section 4.8).
const CRYPTO_ERROR: u64 = 0x100;
/// QUIC's CONNECTION_REFUSED (RFC 9000 section 20.1).
const CONNECTION_REFUSED: u64 = 0x2;

/// Puts QUIC's and TLS's words into ours.
pub(crate) fn from_connection(error: ConnectionError, peer: &str, handshake_time: Duration) -> LinkError {
    let peer = peer.to_owned();
    match error {
        ConnectionError::TransportError(error) => {
            tls_fault(error.code.into(), error.reason, Whose::Peers, &peer).unwrap_or_else(|e| LinkError::lost(peer, e))
        }
        ConnectionError::ConnectionClosed(close) => {
            let code = u64::from(close.error_code);
            if code == CONNECTION_REFUSED {
                return LinkError::Busy { peer, what: "it takes no more new connections for now".to_owned() };
            }
            let reason = String::from_utf8_lossy(&close.reason).into_owned();
            tls_fault(code, reason, Whose::Ours, &peer).unwrap_or_else(|e| LinkError::lost(peer, e))
        }
        ConnectionError::ApplicationClosed(close) => from_close(close.error_code, &close.reason, peer),
        ConnectionError::TimedOut if handshake_time.is_zero() => {
            let silence = crate::class::IDLE_LIMIT.as_secs();
            let cause =
                format!("nothing was heard from it for {silence} s (host down, network cut, or process stopped)");
            LinkError::lost(peer, cause)
        }
        ConnectionError::TimedOut => LinkError::NoAnswer { peer, after: handshake_time },
        ConnectionError::LocallyClosed => LinkError::Closed { peer, reason: "by this process".to_owned() },
        ConnectionError::Reset => LinkError::lost(peer, "the peer was restarted"),
        ConnectionError::VersionMismatch => LinkError::NotGarrick { peer },
        ConnectionError::CidsExhausted => LinkError::lost(peer, "connection ids exhausted"),
    }
}

fn from_close(code: VarInt, reason: &[u8], peer: String) -> LinkError {
    use garrick_frame::{HelloReply, PROTOCOL};
    let text = || String::from_utf8_lossy(reason).into_owned();
    if code == VarInt::from_u32(close_code::REFUSED)
        && let Ok(HelloReply::Refused { reason, versions }) = garrick_frame::decode_body(reason)
    {
        return refused(peer, reason, versions, PROTOCOL);
    }
    if code == VarInt::from_u32(close_code::WRONG_PEER) {
        return LinkError::Refused { peer, reason: text() };
    }
    LinkError::Closed { peer, reason: text() }
}

/// A refused greeting: about versions when there is none in common, else in the peer's words.
pub(crate) fn refused(peer: String, reason: String, theirs: VersionRange, ours: VersionRange) -> LinkError {
    if ours.common(theirs).is_none() {
        LinkError::Version { peer, ours, theirs }
    } else {
        LinkError::Refused { peer, reason }
    }
}

/// Reads a TLS alert. `Err` gives the plain words of what is none.
fn tls_fault(code: u64, reason: String, whose: Whose, peer: &str) -> Result<LinkError, String> {
    // Alert numbers: RFC 8446 section 6.
    const BAD_CERTIFICATE: u64 = 42;
    const UNSUPPORTED: u64 = 43;
    const REVOKED: u64 = 44;
    const EXPIRED: u64 = 45;
    const CERTIFICATE_UNKNOWN: u64 = 46;
    const UNKNOWN_CA: u64 = 48;
    const ACCESS_DENIED: u64 = 49;
    const DECRYPT_ERROR: u64 = 51;
    const CERTIFICATE_REQUIRED: u64 = 116;
    const NO_APPLICATION_PROTOCOL: u64 = 120;
    let peer = peer.to_owned();
    let cause = if reason.is_empty() { format!("code {code}") } else { reason };
    match code.checked_sub(CRYPTO_ERROR) {
        Some(UNKNOWN_CA) => Ok(LinkError::ForeignCertificate { peer, whose }),
        // rustls says "not valid yet" with the alert for expired, as RFC 8446 tells it to.
        Some(EXPIRED) if cause.contains("not valid yet") => Ok(LinkError::NotYetValid { peer, whose, cause }),
        Some(EXPIRED) => Ok(LinkError::ExpiredCertificate { peer, whose, cause }),
        Some(REVOKED) => Ok(LinkError::RevokedCertificate { peer, whose }),
        Some(CERTIFICATE_REQUIRED) => Ok(LinkError::NoCertificate { peer }),
        Some(NO_APPLICATION_PROTOCOL) => Ok(LinkError::NotGarrick { peer }),
        Some(BAD_CERTIFICATE | UNSUPPORTED | CERTIFICATE_UNKNOWN | ACCESS_DENIED | DECRYPT_ERROR) => {
            Ok(LinkError::BadCertificate { peer, whose, cause })
        }
        Some(_) if code < CRYPTO_ERROR + 0x100 => Err(format!("TLS: {cause}")),
        _ => Err(cause),
    }
}
