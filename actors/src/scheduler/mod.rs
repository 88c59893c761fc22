//! Scheduling: reads what owners publish, has it planned ([`garrick_plan`]), and proposes starts to the jobs' owners.
//!
//! | | what it is |
//! |---|---|
//! | [`gather`] | a plan's snapshot, put together from what owners show |
//! | [`core`] | when plans are made, and who is told what |
//! | [`messages`] | what the core is told and has done |

pub mod core;
pub mod gather;
pub mod messages;

#[cfg(test)]
mod passes_test;
#[cfg(test)]
mod site_test;
