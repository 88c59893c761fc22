//! Licenses: counted things that belong to no node. One [`account`] in the controller owns who has how many.
//!
//! It is no actor of its own: a question to it is one short turn under a lock, answered at once, and it saves nothing. What
//! lasts stands in the records of the jobs that have licenses, and it is made from those when the controller starts. So
//! there is no mailbox to wait in, no turn that a crash could cut in two, and no second place that says who has what.

pub mod account;

#[cfg(test)]
mod plan_test;
