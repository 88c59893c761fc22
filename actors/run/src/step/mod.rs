//! One running step: hands tasks to their nodes, relays their output to the waiting `srun`, and collects their ends.
//!
//! | file | what it is |
//! |---|---|
//! | [`state`] | why a step is ended early, how it ended, states of its tasks |
//! | [`messages`] | inputs and effects |
//! | [`core`] | decides |
//! | [`notice`] | what users read when something is ended early |
//! | [`relay`] | output and input in flight, with their limits |
//! | [`backlog`] | sending between shells without loss |
//!
//! Its actor, `/job/N/step/M`, belongs to its step manager: [`crate::stepmgr::step_shell`].

pub mod backlog;
pub mod core;
pub mod messages;
pub mod notice;
pub mod relay;
pub mod state;

pub use self::core::StepCore;
pub use messages::{NodeSlot, PlannedNode, StepEffect, StepInput, StepMsg, StepPlan, StepTimer};
