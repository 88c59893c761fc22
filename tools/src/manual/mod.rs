//! What there is to know of the commands: of each its options, words and variables. Help, man pages, completion and
//! docs/options.md are made of it.
//!
//! | module | what it is |
//! |---|---|
//! | [`commands`] | every command |
//! | [`find`], [`topics`] | `garrick help NAME` |
//! | [`man`] | manual pages |

pub mod commands;
pub mod find;
pub mod man;
pub mod topics;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod states_test;

/// The lines of a description as one text.
fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ").replace('`', "")
}
