//! One partition's settings and state, and its members.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | decides |
//! | [`messages`] | what it accepts |

pub mod core;
#[cfg(test)]
mod core_test;
pub mod messages;
