//! What is free, now and later, and which nodes a request gets of it. Knows the snapshot, and no rules of who goes first.
//!
//! | file | what it is |
//! |---|---|
//! | [`node`] | what is free on one node, and what fits into it |
//! | [`machine`] | free room now, to the single CPU |
//! | [`horizon`] | free room from now on, in amounts |
//! | [`space`] | all of it, as a plan under way goes by it |
//! | [`licenses`] | licenses from now on |
//! | [`reservations`] | the future as those see it who may use a reservation |
//! | `promises` | what partitions with limits of CPUs have, and have reserved |
//! | [`reserved`] | room that is reserved |
//! | [`select`] | which nodes, how many tasks on each |
//! | `sizes` | one of several numbers of nodes |
//! | `mixed` | nodes for an expression that is about nodes together |
//! | [`hres`] | nodes that leave hierarchical resources within their amounts |
//! | [`topology`] | which nodes where there is a network topology |

pub mod horizon;
pub mod hres;
pub mod licenses;
pub mod machine;
mod mixed;
pub mod node;
pub mod promises;
pub mod reservations;
pub mod reserved;
pub mod select;
mod sizes;
pub mod space;
pub mod topology;
