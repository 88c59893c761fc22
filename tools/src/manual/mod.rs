//! What there is to know of the commands: of each its options, words and variables. Help, man pages, completion and
//! docs/options.md are made of it.
//!
//! | module | what it is |
//! |---|---|
//! | [`commands`] | every command |
//! | [`complete`] | completion in shells |
//! | [`find`], [`topics`] | `garrick help NAME` |
//! | [`man`] | manual pages |

pub mod commands;
pub mod complete;
pub mod find;
pub mod man;
pub mod topics;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod states_test;

/// The files of an installation: paths below `share`, and what is in them.
pub fn files() -> Vec<(String, String)> {
    let pages = man::pages().into_iter().map(|page| (format!("man/{}", page.path), page.text));
    let topics = topics::PAGES.iter().map(|(name, text)| (format!("doc/garrick/{name}.md"), (*text).to_owned()));
    pages.chain(complete::shells::files()).chain(topics).collect()
}

/// The lines of a description as one text.
fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ").replace('`', "")
}
