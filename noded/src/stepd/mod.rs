//! The life of one run of a job on one node, in a process of its own: on the batch host the step manager and a shepherd, on
//! other nodes a shepherd that is linked to the step manager.
//!
//! | task | input | output |
//! |---|---|---|
//! | agent link | orders of the node's agent | the step manager's or shepherd's inputs; reconnects with backoff |
//! | door | commands of the job's user | conversations with the step manager, here or relayed |
//! | shepherd links | shepherds of other nodes (batch host) | the step manager's inputs; waits for those that are away |
//! | manager link | the step manager (other nodes) | the shepherd's inputs; tried again while the step manager is away |
//! | launcher link | the launcher | the shepherd's inputs |

pub mod agent_link;
pub mod door;
pub mod handed;
pub mod launcher_link;
pub mod launches;
pub mod launching;
pub mod light;
pub mod link_end;
pub mod manager_link;
pub mod manager_port;
pub mod session;
pub mod shepherd_links;
pub mod shepherd_port;
pub mod start;
pub mod streams;
