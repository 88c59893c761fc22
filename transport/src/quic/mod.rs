//! QUIC between hosts: one connection per pair of processes; both ends authenticate with certificates of the cluster's CA.
//!
//! On a connection, each class of traffic has one unidirectional stream in each direction, opened once and kept; bulk data has
//! bidirectional streams of its own. Limits are chosen so that unread data can never use up what control messages need (see
//! [`config`]).
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | transport limits and TLS settings |
//! | [`endpoint`] | [`Endpoint`]: binding, connecting, accepting |
//! | [`connection`] | [`Connection`], [`LinkHandle`] |
//! | [`bulk`] | [`BulkStream`], [`splice`] |
//! | [`reset`] | [`ResetKey`]: peers of a restarted process learn of the restart at once |
//! | `greeting` | versions, classes and the peer's identity, right after the handshake |

pub mod bulk;
pub mod config;
pub mod connection;
pub mod endpoint;
pub(crate) mod greeting;
pub mod reset;

pub use bulk::{BulkStream, splice};
pub use connection::{Connection, LinkHandle};
pub use endpoint::{Endpoint, EndpointOptions, any_address};
pub use reset::ResetKey;

#[cfg(test)]
mod quic_test;
#[cfg(test)]
mod trust_test;
