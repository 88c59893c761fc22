//! Journals of either kind read through the crate's own door.

#![allow(clippy::unwrap_used, missing_docs)]

mod controller_events;
mod damage;
mod samples;
mod step_events;
