//! The daemon `noded`: wiring the actors of a controller and of a node's agent to a machine.
//!
//! | module | what it is |
//! |---|---|
//! | [`daemon`] | what it does before it serves: command line, configuration, its place on this host |
//! | [`serve`] | its life, from its command line to its end |
//! | [`controller`] | the controller role |
//! | [`accounts`] | the role of accounting |
//! | [`node`] | the node role |
//! | [`background`] | parts with a thread of their own |
//! | [`relay`] | conversations that go on with another daemon |
//! | [`scripts`] | running the programs of the site, for both roles |
//! | [`guests`] | how many connections and requests of a user there may be at a door |

pub mod accounts;
pub mod background;
pub mod controller;
pub mod daemon;
pub mod guests;
mod log_identity;
pub mod node;
pub mod relay;
pub mod scripts;
pub mod serve;
