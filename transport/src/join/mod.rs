//! How a node without an identity gets one from the controller. There are three ways; in all of them both sides prove who they
//! are, and none leaves an opening for strangers.
//!
//! | way | the node proves | the controller proves |
//! |---|---|---|
//! | one-time token ([`join_with_token`]) | it knows the token's secret | its CA has the fingerprint in the token, and it knows the secret |
//! | shared key file ([`join_with_shared_key`]) | it has the site's file | it has the same file |
//! | the controller's door ([`join_through_door`]) | its process is root or the cluster's user (peer credentials) | likewise |
//!
//! Over the network, proofs are HMAC-SHA256 with the secret over both sides' nonces, the request, and a value that both take from
//! their TLS session. So a proof is valid in that connection only: a man in the middle, who has two different connections, cannot
//! pass one on, and neither side learns the secret from the other.
//!
//! A controller gets its identity towards the service of accounting in the second way. The service has an authority of its own
//! (role and rule of names of [`JoinServer`] say whom it serves), since it knows several clusters.
//!
//! | module | what it is |
//! |---|---|
//! | [`exchange`] | messages and both state machines, pure |
//! | [`token`] | one-time tokens: text form, list of the issued ones |
//! | [`server`] | [`JoinServer`] |
//! | [`client`] | the three `join_` functions, and [`enrol_with_shared_key`] |

pub mod client;
pub mod exchange;
pub mod server;
pub mod token;

pub use client::{enrol_with_shared_key, join_through_door, join_with_shared_key, join_with_token};
pub use exchange::{JoinReply, JoinRequest};
pub use server::JoinServer;

use crate::{error::LinkError, identity::IdentityError};

/// A node that could not join, or a controller that could not let it.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The controller said no.
    #[error("{peer} does not let this host join: {reason}")]
    Refused {
        /// Controller.
        peer: String,
        /// Its words.
        reason: String,
    },
    /// The other side did not prove that it knows the secret.
    #[error("{peer} does not know the secret that this host joins with (the wrong daemon, or something in between)")]
    Impostor {
        /// The peer that answered.
        peer: String,
    },
    /// The door's process is not one that may make identities.
    #[error("the door {peer} is served by uid {uid}, which is neither root, SlurmUser nor this user")]
    UntrustedDoor {
        /// Path.
        peer: String,
        /// Its user.
        uid: u32,
    },
    /// The token cannot be read.
    #[error("not a join token: {cause}")]
    BadToken {
        /// What is wrong with it.
        cause: &'static str,
    },
    /// Something came that does not belong to the conversation.
    #[error("{peer}: unexpected message while joining: {what}")]
    Unexpected {
        /// The sender.
        peer: String,
        /// What.
        what: String,
    },
    /// Identity or key could not be made or kept.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

#[cfg(test)]
mod join_test;
