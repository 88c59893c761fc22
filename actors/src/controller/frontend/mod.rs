//! The frontend, which accepts commands and agents' connections. It owns no job, node or partition. It decides whose request is
//! next, checks permissions, finds the objects that a request means, asks their owners, and makes one reply of the answers.
//! Queries are answered from views.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | which request is next, questions to owners, and their answers |
//! | `route` | which part handles a request, and who may make it |
//! | [`messages`] | the frontend's inputs, questions and effects |
//! | [`sight`] | what the frontend reads of others' state |
//! | `gather` | combines the answers of many owners into one reply |
//! | `selection` | which jobs a request means |
//! | `commands`, `updates`, `top`, `members`, `partitions`, `reservations` | changes |
//! | `crontabs`, `triggers` | crontabs, triggers |
//! | `queries`, `priorities`, `shares` | queries |
//! | [`fair_queue`] | limits the waiting requests of a user, and decides which request is next |
//! | [`vouching`] | for which users a node may speak |
//! | `agents` | agents' connections and their messages |
//! | `site_checks` | requests about jobs go through the site's own checks first |
//! | `submit`, `submit_het` | submissions, and when a job would start |
//! | `submit_limits` | limits of accounting on how many jobs there may be |
//! | [`shell`] | the actor: channels, ports, and connections to owners |
//! | `streams` | replies that continue until the command ends |

mod agents;
mod commands;
pub mod core;
mod crontabs;
pub mod fair_queue;
mod gather;
mod members;
pub mod messages;
mod partitions;
mod priorities;
mod privacy;
mod queries;
mod reservations;
mod route;
mod selection;
mod shares;
pub mod shell;
pub mod sight;
mod site_checks;
mod streams;
mod submit;
mod submit_het;
mod submit_limits;
mod top;
mod triggers;
mod updates;
pub mod vouching;

#[cfg(test)]
mod core_test;

pub use self::core::CROWDED;
