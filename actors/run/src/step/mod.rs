//! One running step: tasks handed to their nodes, their output relayed to the `srun` that waits, their ends collected.
//!
//! | file | what it is |
//! |---|---|
//! | [`state`] | why a step is ended early, how it ended, what became of its tasks |
//! | [`messages`] | what a step is told and what it wants done |
//! | [`core`] | decides |
//! | [`notice`] | what users read when something is ended early |
//! | [`relay`] | output and input under way, with their limits |
//! | [`backlog`] | sending between shells without loss |
//!
//! Its actor, `/job/N/step/M`, is its step manager's: [`crate::stepmgr::step_shell`].

pub mod backlog;
pub mod core;
pub mod messages;
pub mod notice;
pub mod relay;
pub mod state;

pub use self::core::StepCore;
pub use messages::{NodeSlot, PlannedNode, StepEffect, StepInput, StepMsg, StepPlan, StepTimer};
pub use state::{StepEnd, StepResult};
