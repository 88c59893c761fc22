//! What a plan is made from: facts only. Nothing here knows what is free, or what is planned.
//!
//! | file | what it is |
//! |---|---|
//! | [`facts`] | nodes, partitions, jobs and the site's policy at one time |
//! | [`request`] | what a job asks of a partition, in numbers |
//! | [`layout`] | what is asked of sockets, cores and threads |
//! | [`constraint`] | `-C` and `--prefer` expressions |
//! | [`extra`] | `--extra` requests |
//! | [`hres`] | what is asked of hierarchical resources |
//! | [`licenses`] | licenses, and who has them |
//! | [`reservations`] | advance reservations: when their nodes are closed to whom |
//! | [`caps`] | the most CPUs of a node that jobs of a partition have together |
//! | [`bounds`] | bounds of a plan that few sites set |
//! | [`preempt`] | who may preempt whom |
//! | [`qos`] | what is known of qualities of service |
//! | [`changes`] | what rules read, and whether that is the same in two snapshots |
//! | `units` | what keeps others away from those that have leaf switches or blocks of their own |

pub mod bounds;
pub mod caps;
pub mod changes;
pub mod constraint;
pub mod extra;
pub mod facts;
pub mod hres;
pub mod layout;
pub mod licenses;
pub mod preempt;
pub mod qos;
pub mod request;
pub mod reservations;
mod units;
