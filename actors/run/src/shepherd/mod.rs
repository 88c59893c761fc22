//! One node's part of a run: it launches tasks through the launcher, plans their standard files, reads their output at the pace
//! at which it is taken, and reports their ends. One per `stepd`.
//!
//! | file | what it is |
//! |---|---|
//! | [`messages`] | inputs and effects |
//! | [`core`] with [`tasks`], [`ending`], [`adoption`] | decides |
//! | `binding` | which CPUs a task is bound to |
//! | `looks` | what running tasks use is looked at from time to time |
//! | [`series`] | time series of what tasks and the node use |
//! | [`gpus`] | variables that tell a task its GPUs |
//! | [`state`] | steps and tasks here |
//! | [`stdio`] | where descriptors 0, 1, 2 of a task go |
//! | [`pmi`] | what the tasks of an MPI program tell each other |
//! | [`task_scripts`] | what runs before and after each task |
//! | [`settings`] | environments and settings of tasks, which the launcher keeps under numbers |
//! | [`shell`] | the actor, `/job/N/shepherd` |

pub mod adoption;
mod binding;
pub mod core;
pub mod ending;
pub mod gpus;
mod looks;
pub mod messages;
pub mod pmi;
pub mod series;
pub mod settings;
pub mod shell;
pub mod state;
pub mod stdio;
pub mod task_scripts;
pub mod tasks;

pub use self::core::{ShepherdConfig, ShepherdCore};
pub use messages::{LookedAt, PassedFd, ShepherdEffect, ShepherdInput, ShepherdMsg, ShepherdTimer};
pub use shell::{Shepherd, ShepherdPort};
