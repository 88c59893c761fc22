//! The parts of a run of a job that live in the `stepd`s of its nodes. One folder per actor, each with a core that decides and a
//! shell that acts: `core.rs` decides, `state.rs` holds its state, `messages.rs` its inputs and effects, `shell.rs` the actor.
//!
//! | module | what it is |
//! |---|---|
//! | [`stepmgr`] | the step manager: the owner of what runs inside one run of a job |
//! | [`step`] | one running step |
//! | [`shepherd`] | one node's part of a run: launches tasks, relays their output, reports their ends |
//! | [`pmi`] | how the processes of MPI programs talk to their node |
//! | [`env_entry`] | entries of environments |

pub mod env_entry;
pub mod pmi;
pub mod shepherd;
pub mod step;
pub mod stepmgr;
