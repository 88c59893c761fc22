//! Plans of the scheduler, as pure functions: which jobs start on which nodes, and why the others wait. Nothing here is an actor.
//! The controller (or a simulator) decides when a plan is made and takes the snapshot that it is made from.
//!
//! | module | what it is |
//! |---|---|
//! | [`topology`] | which nodes are near each other, and which of them a job may get because of that |
//! | [`snapshot`] | what a plan is made from: facts only |
//! | [`proposals`] | what a plan proposes to the owners of jobs |
//! | [`room`] | free resources, now and later |
//! | [`rules`] | which jobs may start, one file a rule |
//! | [`plan`] | which jobs start, and why the others do not; kept plans and their repair |
//! | [`policy`] | the site's rules, from its configuration |
//! | `fixtures` | clusters with good defaults, with the feature `testing` |
//!
//! A module uses only those above it in this table (the tool `garrick-imports` checks that).

pub mod plan;
pub mod policy;
pub mod proposals;
pub mod room;
pub mod rules;
pub mod snapshot;
pub mod topology;

#[cfg(any(test, feature = "testing"))]
pub mod fixtures;
#[cfg(test)]
mod tests;
