//! Steps as far as the controller knows them: reports of their managers, and lists of them for queries. One owner, on a thread of
//! its own at `/steps`, so that neither thousands of reported steps nor long lists delay anything else. It decides nothing about
//! jobs and saves nothing; only requesters of lists wait for it.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | collects lists and answers queries |
//! | [`ended`] | steps that are over, as reported |
//! | [`effects`] | effects |

pub mod core;
pub mod effects;
pub mod ended;

#[cfg(test)]
mod core_test;
