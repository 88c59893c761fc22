//! The daemons `noded` and `stepd`: wiring actors to a machine.
//!
//! | module | what it is |
//! |---|---|
//! | [`daemon`] | what every daemon does before it serves: command line, configuration, log, background |
//! | [`serve`] | the life of a `noded`, from its command line to its end |
//! | [`controller`] | the controller role |
//! | [`node`] | the node role |
//! | [`stepd`] | one run of a job on one node |
//! | [`run`] | what the agent of a node and the `stepd` of a run share of that run |
//! | [`links`] | what doors and links of all daemons share |
//! | [`launcher`] | the keyless process that runs as the job's user, spawns its tasks and reaps them |
//! | [`journal`] | the append-only file behind every promise |
//! | [`kernel`] | every kernel call and every `unsafe` block of the daemons |

pub mod controller;
pub mod daemon;
pub mod journal;
pub mod kernel;
pub mod launcher;
pub mod links;
pub mod node;
pub mod run;
pub mod serve;
pub mod stepd;
