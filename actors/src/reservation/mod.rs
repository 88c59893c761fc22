//! Advance reservations: nodes kept for some users or accounts for some time. One actor owns all of them, since what one
//! may have depends on what others have.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | decides |
//! | `cores` | the part of it about single cores of nodes |
//! | `change` | the part of it about what changes come to |
//! | `replace` | the part of it about nodes that make way for others |
//! | [`owner`] | what it is told, and what it has happen |
//!
//! Who starts where is the scheduler's to plan: [`garrick_plan::snapshot::reservations`].

mod change;
pub mod core;
mod cores;
pub mod owner;
mod replace;
