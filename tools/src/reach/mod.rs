//! The way to a job's step manager, and what a command does while it waits.
//!
//! | module | what it is |
//! |---|---|
//! | [`manager`], [`search`] | the way; looking for a step manager that does not answer |
//! | [`patience`] | asking again |
//! | [`signals`], [`terminal`] | signals as input; terminal modes |
//! | [`wait_bar`], [`progress`] | how far a wait is: on a terminal, and in lines |

pub mod manager;
pub mod patience;
pub mod progress;
pub mod search;
pub mod signals;
pub mod terminal;
pub mod wait_bar;
