//! Free resources, now and later, and which of them a request gets. It knows the snapshot, but no rules about the order of jobs.
//!
//! | file | what it is |
//! |---|---|
//! | [`node`] | what is free on one node, and what fits into it |
//! | [`machine`] | free resources now, by single CPU |
//! | [`horizon`] | free resources from now on, in amounts |
//! | [`space`] | all of it together, for a plan in progress |
//! | [`licenses`] | licenses from now on |
//! | [`reservations`] | the future as jobs see it that may use an advance reservation |
//! | `promises` | what jobs of partitions with CPU limits hold, and have reserved |
//! | [`reserved`] | reserved resources |
//! | [`select`] | which nodes, how many tasks on each |
//! | `sizes` | requests for one of several numbers of nodes |
//! | `mixed` | nodes for an expression that is about nodes together |
//! | [`hres`] | nodes that keep hierarchical resources within their amounts |
//! | [`topology`] | choice of nodes with a network topology |

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
