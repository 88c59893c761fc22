//! The daemons `noded` and `stepd`: wiring actors to a machine.
//!
//! | module | what it is |
//! |---|---|
//! | [`daemon`] | what every daemon does before it serves: command line, configuration, log, background |
//! | [`controller`] | the controller role |
//! | [`node`] | the node role |
//! | [`stepd`] | one run of a job on one node |
//! | [`launcher`] | the keyless process that runs as the job's user, spawns its tasks and reaps them |
//! | [`journal`] | the append-only file behind every promise |
//! | [`kernel`] | every kernel call and every `unsafe` block of the daemons |

pub mod controller;
pub mod daemon;
pub mod journal;
pub mod kernel;
pub mod launcher;
pub mod node;
pub mod stepd;
