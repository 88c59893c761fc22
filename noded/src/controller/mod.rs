//! The controller role: wiring between the controller's actors and the machine.
//!
//! | task | input | output |
//! |---|---|---|
//! | door, on a thread of its own | commands on this host, nodes of this host that join | messages to the frontend |
//! | peers | QUIC connections of node agents | messages to the frontend |
//! | names | questions to the name service | answers, which are cached |
//! | programs of the site | rows of programs from the actors | how each row ended |
//! | completion | events of the log | lines of a file, runs of a script, documents, messages and rows for servers |
//! | journal | events in groups | answers once they are on disk |

pub mod accounting;
pub mod audit;
pub mod beside;
pub mod completion;
pub mod door;
pub mod host;
pub mod http;
pub mod links;
pub mod log;
pub mod metrics;
pub mod names;
pub mod ports;
pub mod primary;
pub mod programs;
pub mod start;
pub mod tenure;
pub mod tokens;
pub mod trust;

#[cfg(test)]
mod beside_test;
#[cfg(test)]
mod log_test;
#[cfg(test)]
mod trust_test;
