//! Runs that wait to be written. What waits longer than a moment is in files of the state folder, so that it is there after a
//! restart although its job was forgotten meanwhile, and so that the log need not keep it. A file has a part of the queue, and goes
//! when all of it is written: after a crash at most one part, and what was read since the last save, is written again.

use super::forms::Completed;
use garrick_events::progress::Position;
use garrick_kernel::files::{self, FileError};
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Runs of a part.
pub const PART: usize = 500;
/// Runs in memory beside the part that is being written, before they are saved.
pub const MOST_FRESH: usize = 5000;
/// Bytes of those, and of a part, at most: scripts may be long.
const MOST_BYTES: usize = 64 << 20;
/// What a run has besides its longest texts, about.
const OTHERS: usize = 2 << 10;

/// A run that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Where in the log it ended or started.
    pub position: Position,
    /// The run.
    pub run: Completed,
}

/// A file's contents.
#[derive(Serialize, Deserialize)]
struct Saved {
    /// Of all events up to this one, what waits is in this file and those before.
    covers: Position,
    runs: VecDeque<Arc<Waiting>>,
}

/// The part that is being written.
struct Part {
    path: PathBuf,
    left: VecDeque<Arc<Waiting>>,
}

/// Why the queue cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// What a run has cannot be written.
    #[error("a run that waits: {0}")]
    Form(#[from] rmp_serde::encode::Error),
    /// Its folder.
    #[error("{}: {cause}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
}

/// See the module.
pub struct Queue {
    folder: PathBuf,
    first: Option<Part>,
    /// Further files, in order.
    parts: VecDeque<PathBuf>,
    /// What came after them.
    fresh: VecDeque<Arc<Waiting>>,
    /// Their bytes.
    fresh_bytes: usize,
    covered: Position,
}

impl Queue {
    /// The queue in that folder, which is made if it is not there, with what was left in it.
    ///
    /// # Errors
    /// The folder.
    pub fn open(folder: &Path) -> Result<Self, QueueError> {
        files::create_folder(folder, 0o700)?;
        let failed = |cause| QueueError::Folder { path: folder.to_owned(), cause };
        let mut parts = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit()) {
                parts.push(path);
            }
        }
        parts.sort();
        let covered = parts.iter().rev().find_map(|part| read(part)).map(|saved| saved.covers).unwrap_or_default();
        let folder = folder.to_owned();
        Ok(Self { folder, first: None, parts: parts.into(), fresh: VecDeque::new(), fresh_bytes: 0, covered })
    }

    /// Takes a run. One that is in a file already came again with the log.
    pub fn push(&mut self, position: Position, run: Completed) {
        if position > self.covered {
            self.fresh_bytes += bytes(&run);
            self.fresh.push_back(Arc::new(Waiting { position, run }));
        }
    }

    /// Nothing more is to be taken before something is saved or written.
    pub fn is_full(&self) -> bool {
        self.fresh.len() >= MOST_FRESH || self.fresh_bytes >= MOST_BYTES
    }

    /// Something is in no file.
    pub fn is_unsaved(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// How many runs wait; a part that is not read again yet counts as whole.
    pub fn waiting(&self) -> usize {
        self.first.as_ref().map_or(0, |part| part.left.len()) + self.parts.len() * PART + self.fresh.len()
    }

    /// The first runs, at most so many. They stay until they are [`Self::written`].
    pub fn first(&mut self, most: usize) -> Vec<Arc<Waiting>> {
        while self.first.is_none()
            && let Some(path) = self.parts.pop_front()
        {
            let left = read(&path).map(|saved| saved.runs).unwrap_or_default();
            self.first = (!left.is_empty()).then_some(Part { path, left });
        }
        // No more than one part, which they may become meanwhile.
        let (from, all) = match &self.first {
            Some(part) => (&part.left, part.left.len()),
            None => (&self.fresh, self.next_part()),
        };
        from.iter().take(most.min(all)).map(Arc::clone).collect()
    }

    /// How many of those that are in no file make a part.
    fn next_part(&self) -> usize {
        let mut left = MOST_BYTES;
        let fits = |waiting: &&Arc<Waiting>| {
            let rest = left.checked_sub(bytes(&waiting.run));
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        // One that is longer than a part is one.
        self.fresh.iter().take(PART).take_while(fits).count().max(1).min(self.fresh.len())
    }

    /// The first ones are in no need of being saved any more.
    fn drop_fresh(&mut self, count: usize) {
        for waiting in self.fresh.drain(..count.min(self.fresh.len())) {
            self.fresh_bytes = self.fresh_bytes.saturating_sub(bytes(&waiting.run));
        }
    }

    /// So many of what [`Self::first`] gave last are written, the first ones.
    pub fn written(&mut self, count: usize) {
        let Some(part) = &mut self.first else {
            self.drop_fresh(count);
            return;
        };
        part.left.drain(..count.min(part.left.len()));
        if part.left.is_empty() {
            if let Err(error) = fs::remove_file(&part.path) {
                tracing::error!(file = %part.path.display(), %error, "runs that are recorded may be recorded again");
            }
            self.first = None;
        }
    }

    /// Saves what is in no file. All events up to that one have been taken.
    ///
    /// # Errors
    /// When it could not be saved: it is still there, and may be saved later.
    pub fn save(&mut self, upto: Position) -> Result<(), QueueError> {
        while !self.fresh.is_empty() {
            let count = self.next_part();
            let runs: VecDeque<_> = self.fresh.iter().take(count).map(Arc::clone).collect();
            let (first, last) = (runs.front(), runs.back());
            let first = first.map(|run| run.position).unwrap_or_default();
            let is_last = count == self.fresh.len();
            let covers = if is_last { upto } else { last.map(|run| run.position).unwrap_or_default() };
            let path = self.folder.join(format!("{:020}", first.0));
            let saved = Saved { covers, runs };
            let bytes = rmp_serde::to_vec_named(&saved)?;
            files::write_atomically(&path, &bytes, 0o600)?;
            self.drop_fresh(count);
            self.covered = covers;
            // What is being written now is the first part, if it was in none.
            if self.first.is_none() && self.parts.is_empty() {
                self.first = Some(Part { path, left: saved.runs });
            } else {
                self.parts.push_back(path);
            }
        }
        Ok(())
    }
}

/// Of a run, about.
fn bytes(run: &Completed) -> usize {
    let words: usize = run.more.argv.iter().map(String::len).sum();
    let script = run.more.script.as_ref().map_or(0, String::len);
    OTHERS + words + script + run.row.nodes.len()
}

/// A file that cannot be read is left there for whoever can.
fn read(path: &Path) -> Option<Saved> {
    let bytes = match files::read_if_there(path) {
        Ok(bytes) => bytes?,
        Err(error) => {
            tracing::error!(%error, "runs that were saved are not recorded");
            return None;
        }
    };
    match rmp_serde::from_slice(&bytes) {
        Ok(saved) => Some(saved),
        Err(error) => {
            tracing::error!(file = %path.display(), %error, "runs that were saved are not recorded");
            // It would be an error again at the next start.
            let _ = fs::rename(path, path.with_extension("unreadable"));
            None
        }
    }
}

#[cfg(test)]
#[path = "queue_test.rs"]
mod tests;
