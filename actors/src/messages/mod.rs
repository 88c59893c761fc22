//! Messages between the controller's owners. All owners know these types, and none knows the other owners that send them.
//!
//! | file | what it is |
//! |---|---|
//! | [`letter`] | receivers of messages; what is sent in place of an owner that is gone for good |
//! | [`job`] | to a job's owner, and its answers |
//! | [`het`] | between components of a heterogeneous job |
//! | [`node`] | to a node's owner |
//! | [`crontab`] | to the owner of crontabs |
//! | [`license`] | to the owner of licenses |
//! | [`steps`] | to the owner of steps |
//! | [`released`] | problems when a node released a run |
//! | [`names`] | names of messages of agents and commands |

pub mod crontab;
pub mod het;
pub mod job;
pub mod letter;
pub mod license;
pub mod names;
pub mod node;
pub mod released;
pub mod steps;
