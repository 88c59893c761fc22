//! What the controller's owners say to each other. All of them know these words, and none of the others who say them.
//!
//! | file | what it is |
//! |---|---|
//! | [`letter`] | to whom something is said; what is said in the place of an owner that is gone for good |
//! | [`job`] | to a job's owner, and what it answers |
//! | [`het`] | between components of a heterogeneous job |
//! | [`node`] | to a node's owner |
//! | [`license`] | to the owner of licenses |
//! | [`steps`] | to the owner of steps |
//! | [`released`] | what went wrong when a node let go of a run |
//! | [`names`] | names of what agents and commands send |

pub mod het;
pub mod job;
pub mod letter;
pub mod license;
pub mod names;
pub mod node;
pub mod released;
pub mod steps;
