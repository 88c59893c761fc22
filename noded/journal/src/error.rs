//! Errors of a journal.

use std::path::{Path, PathBuf};

/// What went wrong with a journal.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// The operating system refused.
    #[error("cannot {op} journal {path}: {cause}")]
    Io {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
    /// Not a journal, or one from a newer program.
    #[error(
        "{path} is not a journal this version reads: {what}; move it away to start empty, or run the version that wrote it"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// Damaged before its end.
    #[error(
        "journal {path} is damaged at byte {offset} (record {record}, {after} bytes follow): {what}; restore the file from a copy, or \
         truncate it there to give up what follows"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the bad record begins.
        offset: u64,
        /// Its number, from 0.
        record: u64,
        /// Bytes after it.
        after: u64,
        /// What is wrong.
        what: String,
    },
    /// A file of a series is missing.
    #[error(
        "{path} is missing, and {next} follows it; restore it from a copy, or move what follows it away to give that up"
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// The next one.
        next: PathBuf,
    },
    /// An earlier write failed, or another process writes there; no further writes are accepted.
    #[error("journal {path} takes nothing more: {cause}")]
    Closed {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// A record could not be encoded or is too large.
    #[error("record for journal {path} refused: {what}")]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        what: String,
    },
}

impl JournalError {
    /// From the system's answer to what was tried.
    pub fn io(op: &'static str, path: &Path, cause: &std::io::Error) -> Self {
        Self::Io { op, path: path.to_owned(), cause: cause.to_string() }
    }
}
