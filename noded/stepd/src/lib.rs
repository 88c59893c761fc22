//! The life of one run of a job on one node, in a process of its own: on the batch host the step manager and a shepherd, on
//! other nodes a shepherd that is linked to the step manager.
//!
//! | task | input | output |
//! |---|---|---|
//! | agent link | orders of the node's agent | the step manager's or shepherd's inputs; reconnects with backoff |
//! | door | commands of the job's user | conversations with the step manager, here or relayed |
//! | shepherd links | shepherds of other nodes (batch host) | the step manager's inputs; waits for unreachable ones |
//! | manager link | the step manager (other nodes) | the shepherd's inputs; retried while the step manager is unreachable |
//! | launcher link | the launcher | the shepherd's inputs |
//!
//! | module | what it is |
//! |---|---|
//! | [`start`] | from the orders in the run's folder to what lives |
//! | [`agent_link`] | the link to the node's agent |
//! | [`door`], [`handed`], [`light`] | commands of the job's user, descriptors that they hand over, and the light `srun` |
//! | [`manager_port`], [`shepherd_port`] | what the step manager and the shepherd want done |
//! | [`shepherd_links`], [`manager_link`] | the links between them where they are on different hosts |
//! | [`link_end`], [`session`], [`launches`] | one end of such a link, what it remembers, and what goes over it once only |
//! | [`launching`], [`launcher_link`] | how a shepherd comes by its launcher, and the socket to it |
//! | [`launcher`] | the keyless process that runs as the job's user, spawns its tasks and reaps them |
//! | [`task`] | what a task with prologs begins as |
//! | [`files`] | files on their way to the run's nodes |
//! | [`streams`] | a task's descriptors on this side |

pub mod agent_link;
pub mod door;
#[cfg(test)]
mod entry;
pub mod files;
pub mod handed;
pub mod launcher;
pub mod launcher_link;
pub mod launches;
pub mod launching;
pub mod light;
pub mod link_end;
pub mod manager_link;
pub mod manager_port;
pub mod pmi;
pub mod profile;
pub mod session;
pub mod shepherd_links;
pub mod shepherd_port;
pub mod start;
pub mod streams;
pub mod task;
