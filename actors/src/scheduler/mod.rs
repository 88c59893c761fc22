//! Scheduling: reads what owners publish, has a plan made ([`garrick_plan`]), and proposes starts to the jobs' owners.
//!
//! | | what it is |
//! |---|---|
//! | [`gather`] | a plan's snapshot, from the owners' views |
//! | [`core`] | when plans are made, and what follows from them |
//! | [`messages`] | inputs and effects |
//! | [`statistics`] | what is counted of passes |

pub mod core;
pub mod gather;
pub mod messages;
pub mod statistics;

#[cfg(test)]
mod passes_test;
#[cfg(test)]
mod site_test;
