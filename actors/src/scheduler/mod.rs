//! Scheduling: reads what owners publish, plans as a pure function, and proposes starts to the jobs' owners.
//!
//! | | what it is |
//! |---|---|
//! | [`snapshot`] | what a plan is made from: facts only |
//! | [`proposals`] | what a plan proposes to the owners of jobs |
//! | [`room`] | what is free, now and later |
//! | [`rules`] | who may start, one file a rule |
//! | [`plan`] | who starts, and why the others do not; a plan that is kept, and repaired |
//! | [`gather`] | a plan's snapshot, put together from what owners show |
//! | [`core`] | when plans are made, and who is told what |
//! | [`messages`] | what the core is told and has done |
//! | [`policy`] | the site's rules, from its configuration |
//!
//! Each knows those above it only (`garrick-imports` sees to that).

pub mod core;
pub mod gather;
pub mod messages;
pub mod plan;
pub mod policy;
pub mod proposals;
pub mod room;
pub mod rules;
pub mod snapshot;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
