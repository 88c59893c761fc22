//! Crontabs of users (scrontab(1)): the text that a user wrote, and the job of each of its entries. One actor owns all of them.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | decides |
//!
//! The jobs are submitted by the frontend like others, and have owners of their own, who decide when each runs again
//! (`job/cron.rs`). A crontab is installed when its jobs are saved: jobs of a crontab that was never installed, because the controller
//! ended in between, are told to leave when the next one starts.

pub mod core;
#[cfg(test)]
mod core_test;
