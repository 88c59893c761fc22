//! One node's part of a run: tasks launched through the launcher, their standard files planned, their output read at the
//! pace at which it is taken, their ends reported. One per `stepd`.
//!
//! | file | what it is |
//! |---|---|
//! | [`messages`] | what a shepherd is told and what it wants done |
//! | [`core`] with [`tasks`], [`ending`] | decides |
//! | [`state`] | steps and tasks here |
//! | [`stdio`] | where descriptors 0, 1, 2 of a task go |
//! | [`environments`] | environments that the launcher keeps by number |
//! | [`shell`] | the actor, `/job/N/shepherd` |

pub mod core;
pub mod ending;
pub mod environments;
pub mod messages;
pub mod shell;
pub mod state;
pub mod stdio;
pub mod tasks;

pub use self::core::{ShepherdConfig, ShepherdCore};
pub use messages::{PassedFd, ShepherdEffect, ShepherdInput, ShepherdMsg, ShepherdTimer};
pub use shell::{Shepherd, ShepherdPort};
