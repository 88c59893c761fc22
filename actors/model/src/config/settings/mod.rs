//! What is set, typed: [`Config`](config::Config) and its parts, each with the words that it is read from.

pub(super) mod billing;
pub(super) mod config;
pub(super) mod debug_flags;
pub(super) mod gres;
pub(super) mod health;
pub(super) mod hres;
pub(super) mod job_defaults;
pub mod keys;
pub(super) mod mcs;
pub(super) mod node;
pub(super) mod partition;
pub(super) mod preempt;
pub(super) mod priority;
mod restricted;
pub(super) mod scheduling;
