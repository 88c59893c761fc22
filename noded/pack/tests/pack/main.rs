//! Packs written and read through the crate's own door.

#![allow(clippy::unwrap_used, missing_docs)]

mod crash;
mod processes;
mod reading;
mod samples;
mod support;
mod writing;
