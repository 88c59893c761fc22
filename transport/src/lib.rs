//! Links between Garrick's processes: QUIC between hosts, the local door on a host, and the identities that both use. For
//! daemons; commands use `garrick-frame` alone. `docs/transport.md` is an overview.
//!
//! | module | what it is |
//! |---|---|
//! | [`link`] | [`Sender`], [`Receiver`]: typed messages over either kind of link |
//! | [`class`] | [`Class`]: control, request, trace, each with its limits |
//! | [`door`] | [`DoorListener`], [`DoorConn`]: the Unix socket's async side |
//! | [`handed`] | [`HandedFd`]: descriptors that commands hand over at a door |
//! | [`quic`] | [`Endpoint`], [`Connection`], [`BulkStream`]: mutually authenticated connections |
//! | [`identity`] | cluster CA, certificates, credential signing |
//! | [`join`] | how a node without an identity gets one |
//! | [`reconnect`] | [`Reconnect`]: keeps a connection to one address |
//! | [`sparing`] | [`Sparing`]: limits log lines that strangers can cause |
//! | [`error`] | [`LinkError`]: errors of a link, in texts with cause and remedy |

pub mod class;
pub mod door;
pub mod error;
pub mod handed;
pub mod identity;
pub mod join;
pub mod link;
mod outbox;
pub mod quic;
pub mod reconnect;
pub mod sparing;
#[cfg(test)]
mod testing;

pub use class::Class;
pub use door::{DoorBindError, DoorConn, DoorListener};
pub use error::{LinkError, Whose};
pub use garrick_frame::{
    Decoder, FrameError, Hello, HelloReply, LinkKind, PROTOCOL, PeerCred, Traced, TunnelTo, VersionRange, encode,
};
pub use handed::{HandedFd, close_together};
pub use identity::{
    CertAuthority, ExpectPeer, IdentityError, IdentityStore, PeerIdentity, Role, SigningKey, VerifyKey,
    store::install_crypto_provider,
};
pub use join::{
    JoinError, JoinServer, enrol_with_shared_key, join_through_door, join_with_shared_key, join_with_token,
};
pub use link::{Receiver, Sender};
pub use quic::{BulkStream, Connection, Endpoint, EndpointOptions, LinkHandle, ResetKey, any_address, splice};
pub use reconnect::{Backoff, Reconnect, ReconnectEvent};
pub use sparing::Sparing;
