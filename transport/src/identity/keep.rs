//! Where the files of an authority are kept. The trait is for owners that have more to do than to write a changed file (a
//! controller whose log names the valid version).

use super::{IdentityError, files};
use std::{path::PathBuf, time::Duration};

/// What a file is to be from now on.
#[derive(Clone, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub path: PathBuf,
    /// What is in it; `None`: it is removed.
    pub bytes: Option<Vec<u8>>,
    /// Its permission bits.
    pub mode: u32,
}

impl Change {
    /// A file with a secret in it.
    pub const fn private(path: PathBuf, bytes: Vec<u8>) -> Self {
        Self { path, bytes: Some(bytes), mode: files::PRIVATE }
    }

    /// A file that all users may read.
    pub const fn public(path: PathBuf, bytes: Vec<u8>) -> Self {
        Self { path, bytes: Some(bytes), mode: files::PUBLIC }
    }

    /// It is removed.
    pub const fn removed(path: PathBuf) -> Self {
        Self { path, bytes: None, mode: files::PRIVATE }
    }
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What is in it may be a secret.
        let bytes = self.bytes.as_ref().map(Vec::len);
        f.debug_struct("Change").field("path", &self.path).field("bytes", &bytes).finish_non_exhaustive()
    }
}

/// Why changes were not kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// They can be asked for again after that time. Nothing was changed.
    #[error("it cannot be saved now; try again in {} s", after.as_secs())]
    Later {
        /// When.
        after: Duration,
    },
    /// They cannot be saved, or it is unknown whether they were.
    #[error("{0}")]
    Failed(String),
}

/// See the module.
pub trait Keep: Send + Sync + 'static {
    /// Keeps these changes, together and for good, before it returns; those of an error do not count. Blocks.
    ///
    /// # Errors
    /// See [`KeepError`].
    fn keep(&self, changes: Vec<Change>) -> Result<(), IdentityError>;
}

/// Each file is replaced whole, one after the other: for an authority without a log.
#[derive(Clone, Copy, Debug)]
pub struct InFolder;

impl Keep for InFolder {
    fn keep(&self, changes: Vec<Change>) -> Result<(), IdentityError> {
        for Change { path, bytes, mode } in changes {
            match bytes {
                Some(bytes) => files::write_whole(&path, &bytes, mode)?,
                None if path.exists() => files::remove(&path)?,
                None => {}
            }
        }
        Ok(())
    }
}
