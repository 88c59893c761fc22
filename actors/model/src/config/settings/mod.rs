//! What is set, typed: [`Config`](config::Config) and its parts, each with the words that it is read from. A new key is a
//! row of its table (`global`, `partition`, `node`) and a field: the row has its name, default, kind (how it is read and
//! shown) and effect. `row` says what a row has, `kinds` are the kinds of values there are.

pub(super) mod auth;
pub(super) mod billing;
pub(super) mod cli_filter;
pub(super) mod completion;
pub(super) mod config;
pub(super) mod debug_flags;
pub(super) mod described;
pub(super) mod enforce;
pub(super) mod gathering;
pub(super) mod global;
pub(super) mod gres;
pub(super) mod health;
pub(super) mod hres;
pub(super) mod job_defaults;
pub(super) mod job_submit;
pub(super) mod kinds;
pub(super) mod mcs;
pub(super) mod metrics;
pub(super) mod node;
pub(super) mod partition;
pub(super) mod power;
pub(super) mod preempt;
pub(super) mod priority;
pub(super) mod private;
pub(super) mod prolog_flags;
mod restricted;
pub(super) mod row;
pub(super) mod scheduling;
pub mod storage;
pub(super) mod store_flags;
pub(super) mod tracked;

#[cfg(test)]
mod effects_test;
#[cfg(test)]
mod rows_test;
