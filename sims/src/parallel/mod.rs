//! What a parallel program waits for before it begins: its file on all nodes, and its tasks that find each other.
//!
//! | file | what |
//! |---|---|
//! | [`start`] | 64 tasks on four nodes, bare and as MPI programs, beside the MPI's own launcher |
//! | [`files`] | one file to many nodes, beside one copy over one connection |
//!
//! All nodes are on this machine and share its CPUs: what is measured is the work, not the network.

pub mod files;
pub mod start;

use crate::minibatch::{
    cluster::run,
    figures::{Figures, Findings},
    inside::Fallible,
};
use std::{process::Command, time::Instant};

/// Spawns of each way in which the floor is measured, before and after.
const FLOOR_SPAWNS: usize = 2_000;

/// What a scenario finds, with the spawn rates around it.
pub fn measured(scenario: String, of: impl FnOnce() -> Fallible<Findings>) -> Fallible<Figures> {
    Figures::around(scenario, FLOOR_SPAWNS, of)
}

/// Seconds that a command takes, which must end well.
fn seconds(command: &mut Command) -> Fallible<f64> {
    let began = Instant::now();
    run(command)?;
    Ok(began.elapsed().as_secs_f64())
}
