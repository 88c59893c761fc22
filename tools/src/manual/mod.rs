//! What there is to know of the commands: of each its options, words and variables. Help, man pages, completion and
//! docs/options.md are made of it.
//!
//! | module | what it is |
//! |---|---|
//! | [`commands`] | every command |

pub mod commands;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod states_test;
