//! The promises of `docs/runtime.md`, one test each, named after the rule.
//!
//! Nothing here sleeps to synchronise: time is tokio's paused clock, and everything else is waited for by name. With
//! the clock paused, a wait for something that will never come fails at once instead of hanging.
#![allow(clippy::unwrap_used)]

#[path = "promises/asking.rs"]
mod asking;
#[path = "promises/boards.rs"]
mod boards;
#[path = "promises/futures.rs"]
mod futures;
#[path = "promises/names.rs"]
mod names;
#[path = "promises/puppet.rs"]
mod puppet;
#[path = "promises/requests.rs"]
mod requests;
#[path = "promises/sending.rs"]
mod sending;
#[path = "promises/stopping.rs"]
mod stopping;
#[path = "promises/supervision.rs"]
mod supervision;
#[path = "promises/timers.rs"]
mod timers;
#[path = "promises/traces.rs"]
mod traces;
#[path = "promises/turns.rs"]
mod turns;
