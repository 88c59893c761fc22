//! Licenses: countable resources that belong to no node. One [`account`] in the controller knows which job holds how many.
//!
//! It is no actor: a request locks it briefly, is answered at once, and saves nothing. The records of the jobs that hold licenses
//! are the durable state, and the account is built from them when the controller starts. So there is no mailbox to wait in, no
//! turn that a crash could interrupt, and no second record of who holds what.

pub mod account;

#[cfg(test)]
mod plan_test;
