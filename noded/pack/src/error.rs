//! Errors of a pack.

use std::{
    io,
    path::{Path, PathBuf},
};

/// A pack that cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The kernel refused: no such file, no space left, ...
    #[error("{operation} {path}: {source}", path = path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A folder, a pipe, a device.
    #[error("{path}: not a plain file", path = .0.display())]
    NotAFile(PathBuf),
    /// A file of another kind. It is left as it is.
    #[error("{path}: not an output pack", path = .0.display())]
    NotAPack(PathBuf),
    /// A pack of a version that this program does not know.
    #[error("{path}: an output pack of version {found}; this program knows version {known}", path = path.display(), known = crate::VERSION)]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u8,
    },
    /// Another process is writing it.
    #[error("{path}: another process is writing this output pack", path = .0.display())]
    Locked(PathBuf),
    /// Not as long as it was left: someone else writes to it, cut it off or emptied it.
    #[error("{path}: changed by another program: {found} bytes long, not {expected}", path = path.display())]
    Changed {
        /// Which file.
        path: PathBuf,
        /// Length that it should have, bytes.
        expected: u64,
        /// Length that it has, bytes.
        found: u64,
    },
    /// A block that does not read back. Reading can go on behind it.
    #[error("{path}: damaged block at offset {offset}: {why}", path = path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What does not fit.
        why: &'static str,
    },
}

impl PackError {
    /// A failed system call.
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { operation, path, source }
    }

    /// There is no room for it: the disk or the user's share of it is full, or the file has become as long as it may.
    pub fn is_full(&self) -> bool {
        let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
        matches!(self, Self::File { source, .. } if kinds.contains(&source.kind()))
    }

    /// There is no such file.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
