//! Pieces that are kept beside the log: secrets and what belongs to them. The log says only which version of each is valid
//! ([`ControllerEvent::Beside`]). A piece is a file in the controller's state folder, known by its name there. A new version is
//! first written under its digest, then the log names it, then it replaces the old file: after a crash between any two of these
//! steps, the log decides.
//!
//! When the controller starts, this module decides which pieces agree with the log, which are to be recorded, and which are
//! wrong.
//!
//! [`ControllerEvent::Beside`]: crate::event::ControllerEvent::Beside

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// A version of a piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// SHA-256 of its content, hexadecimal.
    pub digest: String,
    /// Its length.
    pub bytes: u64,
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA-256 {}, {} bytes", self.digest, self.bytes)
    }
}

/// Pieces by name: a path below the state folder, such as `ca/ca.pem`.
pub type Pieces = BTreeMap<String, Piece>;

/// A piece that disagrees with the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The log names it, and it is missing.
    Missing {
        /// The version in the log.
        named: Piece,
    },
    /// It is another version than the one in the log.
    Other {
        /// The version in the log.
        named: Piece,
        /// The version found.
        found: Piece,
    },
    /// It exists, but the log says that it was removed, or names other pieces of its folder and not this one.
    Unnamed {
        /// The version found.
        found: Piece,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { named } => write!(f, "it is missing, and the log names it ({named})"),
            Self::Other { named, found } => {
                write!(f, "it is not the version that the log names: that has {named}; what is there has {found}")
            }
            Self::Unnamed { found } => {
                write!(f, "it is there ({found}), and the log names none: it was put back by hand")
            }
        }
    }
}

/// What to do with the pieces that were found at a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// To be recorded: an earlier version left them, or a crash came before the log named them.
    pub record: Pieces,
    /// Those that disagree with the log.
    pub wrong: BTreeMap<String, Wrong>,
}

/// The folder of a piece. The authority's pieces belong together; pieces in the state folder itself are independent.
fn folder(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(folder, _)| folder)
}

/// Compares the pieces in the log with those found.
pub fn compare(named: &Pieces, found: &Pieces) -> Verdict {
    let mut verdict = Verdict::default();
    for (name, version) in named {
        let wrong = match found.get(name) {
            None => Wrong::Missing { named: version.clone() },
            Some(found) if found != version => Wrong::Other { named: version.clone(), found: found.clone() },
            Some(_) => continue,
        };
        verdict.wrong.insert(name.clone(), wrong);
    }
    for (name, version) in found.iter().filter(|(name, _)| !named.contains_key(*name)) {
        let of_its_folder = |other: &String| folder(name).is_some() && folder(other) == folder(name);
        if named.keys().any(of_its_folder) {
            verdict.wrong.insert(name.clone(), Wrong::Unnamed { found: version.clone() });
        } else {
            verdict.record.insert(name.clone(), version.clone());
        }
    }
    verdict
}

/// Events that make the log agree with the pieces found: a version of each, or that it is gone.
pub fn as_found(named: &Pieces, found: &Pieces) -> BTreeMap<String, Option<Piece>> {
    let gone = named.keys().filter(|name| !found.contains_key(*name)).map(|name| (name.clone(), None));
    let there = found.iter().filter(|(name, version)| named.get(*name) != Some(version));
    gone.chain(there.map(|(name, version)| (name.clone(), Some(version.clone())))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(of: &[(&str, &str)]) -> Pieces {
        of.iter().map(|(name, digest)| ((*name).to_owned(), piece(digest))).collect()
    }

    fn piece(digest: &str) -> Piece {
        Piece { digest: digest.to_owned(), bytes: digest.len() as u64 }
    }

    #[test]
    fn what_an_earlier_version_left_is_recorded_and_what_is_as_the_log_says_is_not_mentioned() {
        let found = pieces(&[("ca/ca.pem", "a"), ("ca/issued", "b"), ("credential.key", "c")]);
        let verdict = compare(&Pieces::new(), &found);
        assert_eq!((&verdict.record, verdict.wrong.len()), (&found, 0));
        assert_eq!(compare(&found, &found), Verdict::default());
        assert!(as_found(&found, &found).is_empty());
        // A later piece, in a folder that the log does not mention.
        let more = pieces(&[("ca/ca.pem", "a"), ("ca/issued", "b"), ("credential.key", "c"), ("reset.key", "d")]);
        assert_eq!(compare(&found, &more), Verdict { record: pieces(&[("reset.key", "d")]), ..Verdict::default() });
    }

    #[test]
    fn missing_other_and_unnamed_pieces_are_wrong_and_say_what_they_are() {
        let named = pieces(&[("ca/ca.pem", "a"), ("ca/issued", "new"), ("credential.key", "c")]);
        let found = pieces(&[("ca/ca.pem", "a"), ("ca/issued", "old"), ("ca/next.pem", "n")]);
        let verdict = compare(&named, &found);
        assert!(verdict.record.is_empty());
        let said: Vec<String> = verdict.wrong.iter().map(|(name, wrong)| format!("{name}: {wrong}")).collect();
        assert_eq!(
            said,
            [
                "ca/issued: it is not the version that the log names: that has SHA-256 new, 3 bytes; what is there has SHA-256 old, 3 bytes",
                "ca/next.pem: it is there (SHA-256 n, 1 bytes), and the log names none: it was put back by hand",
                "credential.key: it is missing, and the log names it (SHA-256 c, 1 bytes)",
            ]
        );
        let told = as_found(&named, &found);
        assert_eq!(
            told,
            BTreeMap::from([
                ("ca/issued".to_owned(), Some(piece("old"))),
                ("ca/next.pem".to_owned(), Some(piece("n"))),
                ("credential.key".to_owned(), None),
            ])
        );
    }
}
