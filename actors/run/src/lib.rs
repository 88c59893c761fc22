//! What runs inside one run of a job, in the `stepd`s of its nodes. A folder per actor, each a core that decides and a shell
//! that acts: `core.rs` decides, `state.rs` holds what it remembers, `messages.rs` says what it accepts, `shell.rs` is the actor.
//!
//! | module | what it is |
//! |---|---|
//! | [`stepmgr`] | the step manager: the owner of what runs inside one run of a job |
//! | [`step`] | one running step |
//! | [`shepherd`] | one node's part of a run: tasks launched, relayed and counted out |
//! | [`env_entry`] | entries of environments |

pub mod env_entry;
pub mod shepherd;
pub mod step;
pub mod stepmgr;
