//! Plans of the scheduler, as pure functions: who starts where, and why the others wait. Nothing here is an actor; when plans
//! are made, and from whose words, the controller decides, or a simulator.
//!
//! | module | what it is |
//! |---|---|
//! | [`topology`] | which nodes are near each other, and which of them a job may get for that |
//! | [`snapshot`] | what a plan is made from: facts only |
//! | [`proposals`] | what a plan proposes to the owners of jobs |
//! | [`room`] | what is free, now and later |
//! | [`rules`] | who may start, one file a rule |
//! | [`plan`] | who starts, and why the others do not; a plan that is kept, and repaired |
//! | [`policy`] | the site's rules, from its configuration |
//! | `fixtures` | clusters with good defaults, with the feature `testing` |
//!
//! Each knows those above it only (`garrick-imports` sees to that).

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
