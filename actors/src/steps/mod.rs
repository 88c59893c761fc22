//! Steps, as far as the controller knows any: what their managers reported, and lists of them that somebody asked for. One owner,
//! on a thread of its own at `/steps`, so that neither thousands of reported steps nor long lists hold up anything else. It
//! decides nothing about jobs and saves nothing; nobody waits for it but who asked for a list.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | gathers and answers |
//! | [`ended`] | steps that are over, as they were reported |
//! | [`effects`] | what it causes |

pub mod core;
pub mod effects;
pub mod ended;

#[cfg(test)]
mod core_test;
