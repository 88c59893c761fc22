//! The door to commands and agents' connections. It owns no job, node or partition: it says whose turn it is, who may, whom a
//! request means and who is asked what, and makes one reply of the owners' answers. Questions are answered from boards.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | whose turn it is, what owners are asked, and what becomes of their answers |
//! | `route` | where a request goes, and who may make it |
//! | [`messages`] | what the frontend is told, what it asks owners, and what it has done |
//! | [`sight`] | what it sees of others |
//! | `gather` | the answers of many owners as one reply |
//! | `selection` | whom a request means |
//! | `commands`, `updates`, `top`, `members`, `reservations` | changes |
//! | `queries`, `priorities` | questions |
//! | [`fair_queue`] | how many requests of a user are under way, and whose turn it is |
//! | [`vouching`] | in whose name a node may speak, pure |
//! | `agents` | what agents' connections lead to, and whom their frames are for |
//! | `submit`, `submit_het` | submissions, and when a job would start |
//! | [`shell`] | the actor: channels, ports, and the way to owners |
//! | `streams` | of that: replies that go on until the command ends |

mod agents;
mod commands;
pub mod core;
pub mod fair_queue;
mod gather;
mod members;
pub mod messages;
mod priorities;
mod queries;
mod reservations;
mod route;
mod selection;
pub mod shell;
pub mod sight;
mod streams;
mod submit;
mod submit_het;
mod top;
mod updates;
pub mod vouching;

#[cfg(test)]
mod core_test;

pub use self::core::CROWDED;
