//! One node's part of a run: tasks launched through the launcher, their standard files planned, their output read at the
//! pace at which it is taken, their ends reported. One per `stepd`.
//!
//! | file | what it is |
//! |---|---|
//! | [`messages`] | what a shepherd is told and what it wants done |
//! | [`core`] with [`tasks`], [`ending`], [`adoption`] | decides |
//! | [`binding`] | which CPUs a task is bound to |
//! | [`gpus`] | what a task is told of its GPUs |
//! | [`state`] | steps and tasks here |
//! | [`stdio`] | where descriptors 0, 1, 2 of a task go |
//! | [`settings`] | what tasks are started with, kept by the launcher under numbers |
//! | [`shell`] | the actor, `/job/N/shepherd` |

pub mod adoption;
mod binding;
pub mod core;
pub mod ending;
pub mod gpus;
pub mod messages;
pub mod settings;
pub mod shell;
pub mod state;
pub mod stdio;
pub mod tasks;

pub use self::core::{ShepherdConfig, ShepherdCore};
pub use messages::{PassedFd, ShepherdEffect, ShepherdInput, ShepherdMsg, ShepherdTimer};
pub use shell::{Shepherd, ShepherdPort};
