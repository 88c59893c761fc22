//! What a plan is made from: facts only. Nothing here knows what is free or planned.
//!
//! | file | what it is |
//! |---|---|
//! | [`facts`] | nodes, partitions, jobs and the site's policy at one time |
//! | [`request`] | what a job requests of a partition, in numbers |
//! | [`layout`] | requested sockets, cores and threads |
//! | [`constraint`] | `-C` and `--prefer` expressions |
//! | [`extra`] | `--extra` requests |
//! | [`hres`] | requested hierarchical resources |
//! | [`licenses`] | licenses, and which jobs hold them |
//! | [`reservations`] | advance reservations: when their nodes are closed, and to which jobs |
//! | [`caps`] | the most CPUs of a node that jobs of a partition may have together |
//! | [`bounds`] | optional bounds of a plan |
//! | [`preempt`] | which jobs may preempt which |
//! | [`qos`] | qualities of service |
//! | [`accounting`] | associations and QOS with their limits, and what jobs have of them |
//! | [`affiliation`] | what decides under which of these a job is |
//! | [`changes`] | what rules read, and whether that is equal in two snapshots |
//! | `units` | keeps other jobs away from those with exclusive leaf switches or blocks |

pub mod accounting;
pub mod affiliation;
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
