//! One partition's settings and state, and its members.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | decides |
//! | [`messages`] | inputs and effects |

pub mod core;
#[cfg(test)]
mod core_test;
pub mod messages;
