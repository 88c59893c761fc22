//! Advance reservations: nodes kept for some users or accounts for some time. One actor owns all of them, since what one may have
//! depends on the others.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | decides |
//! | `cores` | decides about single cores of nodes |
//! | `change` | the result of a change |
//! | `replace` | replacement of nodes |
//! | [`owner`] | inputs and effects |
//!
//! The scheduler plans which jobs start in them: [`garrick_plan::snapshot::reservations`].

mod change;
pub mod core;
mod cores;
pub mod owner;
mod replace;
