//! What a command does while it waits.
//!
//! | module | what it is |
//! |---|---|
//! | [`terminal`] | terminal modes |
//! | [`wait_bar`], [`progress`] | how far a wait is: on a terminal, and in lines |

pub mod progress;
pub mod terminal;
pub mod wait_bar;
