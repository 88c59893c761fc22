//! A journal that its owner writes itself. Records are written before an effect leaves the process, so they survive if the
//! process is killed right after that, whatever is synced later. A thread calls `fdatasync` for those that wait for the disk:
//! group commit. Used by `stepd`, whose starts of steps the next `stepd` must find.
//!
//! If the disk is full, the part that did not fit is cut off again, kept in memory in order, and written when there is space.
//! Until then [`Log::append`] refuses and [`Log::is_behind`] returns true. Any other failure is final, as for
//! [`super::JournalWriter`].

use garrick_journal::{JournalError, frame};
use serde::Serialize;
use std::{
    cell::RefCell,
    fs::File,
    io::Write,
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender, channel},
};

/// Called by the sync thread once the records are on disk, or cannot be.
pub type Synced = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

/// Bytes that wait for room on the disk at most. A step manager that starts nothing while it is behind writes some hundred
/// bytes for each step that still ends.
const KEPT_BYTES: usize = 64 << 20;

/// See the module. Lives on its owner's thread.
pub struct Log<T> {
    path: PathBuf,
    state: RefCell<State>,
    syncs: Sender<Synced>,
    records: PhantomData<fn(T)>,
}

struct State {
    file: File,
    /// Bytes of whole records in the file.
    end: u64,
    /// Whole records that found no room.
    kept: Vec<u8>,
    buffer: Vec<u8>,
    failed: Option<JournalError>,
}

/// What became of a write.
#[derive(Debug)]
pub enum Written {
    /// In the file.
    Done,
    /// Kept in memory until there is room.
    Kept(JournalError),
}

impl<T: Serialize> Log<T> {
    /// Takes over a file that [`super::open`] returned.
    pub fn start(path: &Path, file: File) -> std::io::Result<Self> {
        let (syncs, waiting) = channel();
        let (name, other) = (path.to_owned(), file.try_clone()?);
        let end = file.metadata()?.len();
        std::thread::Builder::new().name("journal".into()).spawn(move || sync_loop(&name, &other, &waiting))?;
        let state = State { file, end, kept: Vec::new(), buffer: Vec::new(), failed: None };
        Ok(Self { path: path.to_owned(), state: RefCell::new(state), syncs, records: PhantomData })
    }

    /// Writes a record before it returns; it is on disk with the next that is synced.
    pub fn write(&self, record: &T) -> Result<Written, JournalError> {
        let state = &mut *self.state.borrow_mut();
        if let Some(e) = &state.failed {
            return Err(JournalError::Closed { path: self.path.clone(), cause: e.to_string() });
        }
        let mut buffer = std::mem::take(&mut state.buffer);
        buffer.clear();
        frame(&self.path, record, &mut buffer)?;
        let outcome = self.put(state, &buffer);
        let outcome = match outcome {
            Err(e) if state.failed.is_none() && state.kept.len() + buffer.len() <= KEPT_BYTES => {
                state.kept.extend_from_slice(&buffer);
                Ok(Written::Kept(e))
            }
            Err(e) => {
                state.failed.get_or_insert_with(|| e.clone());
                Err(e)
            }
            Ok(()) => Ok(Written::Done),
        };
        state.buffer = buffer;
        outcome
    }

    /// Writes a record, or refuses it; `done` is called once it is on disk.
    pub fn append(&self, record: &T, done: Synced) {
        let written = {
            let state = &mut *self.state.borrow_mut();
            match &state.failed {
                Some(e) => Err(JournalError::Closed { path: self.path.clone(), cause: e.to_string() }),
                None => {
                    let mut bytes = Vec::new();
                    frame(&self.path, record, &mut bytes).and_then(|()| self.put(state, &bytes))
                }
            }
        };
        match written {
            Err(e) => done(Err(e)),
            Ok(()) => {
                if let Err(unsent) = self.syncs.send(done) {
                    let cause = "its sync thread has ended".to_owned();
                    (unsent.0)(Err(JournalError::Closed { path: self.path.clone(), cause }));
                }
            }
        }
    }

    /// Records wait for room on the disk.
    pub fn is_behind(&self) -> bool {
        !self.state.borrow().kept.is_empty()
    }

    /// Tries to write what waits. True once nothing does.
    pub fn catch_up(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        state.failed.is_none() && self.put(state, &[]).is_ok()
    }

    /// The failure, if it is a final one.
    pub fn failure(&self) -> Option<JournalError> {
        self.state.borrow().failed.clone()
    }

    /// Writes what was kept, then `bytes`. On an error nothing of them is in the file.
    fn put(&self, state: &mut State, bytes: &[u8]) -> Result<(), JournalError> {
        if !state.kept.is_empty() {
            let kept = std::mem::take(&mut state.kept);
            if let Err(e) = self.put_whole(state, &kept) {
                state.kept = kept;
                return Err(e);
            }
        }
        if bytes.is_empty() { Ok(()) } else { self.put_whole(state, bytes) }
    }

    fn put_whole(&self, state: &mut State, bytes: &[u8]) -> Result<(), JournalError> {
        match state.file.write_all(bytes) {
            Ok(()) => {
                state.end += bytes.len() as u64;
                Ok(())
            }
            Err(e) => {
                let failure = JournalError::io("write", &self.path, &e);
                let room = matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
                // A part of it may be in the file.
                let cut = state.file.set_len(state.end);
                if !room || cut.is_err() {
                    state.failed = Some(failure.clone());
                }
                Err(failure)
            }
        }
    }
}

fn sync_loop(path: &Path, file: &File, waiting: &Receiver<Synced>) {
    let mut failed: Option<JournalError> = None;
    while let Ok(first) = waiting.recv() {
        let mut group = vec![first];
        group.extend(waiting.try_iter());
        if failed.is_none() {
            failed = file.sync_data().map_err(|e| JournalError::io("sync", path, &e)).err();
        }
        for done in group {
            done(failed.clone().map_or(Ok(()), Err));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::journal::open;
    use garrick_kernel::scratch::{Scratch, SmallDisk};
    use std::sync::mpsc::channel;

    #[test]
    fn what_was_written_is_in_the_file_at_once_and_what_was_appended_on_disk_when_told() {
        let folder = Scratch::new("log");
        let path = folder.path().join("journal");
        let log = Log::<u32>::start(&path, open::<u32>(&path).unwrap().file).unwrap();
        assert!(matches!(log.write(&1), Ok(Written::Done)));
        assert_eq!(open::<u32>(&path).unwrap().records, [1]);
        let (tell, told) = channel();
        log.append(&2, Box::new(move |outcome| tell.send(outcome.is_ok()).unwrap()));
        assert!(told.recv().unwrap());
        assert_eq!(open::<u32>(&path).unwrap().records, [1, 2]);
    }

    #[test]
    fn a_full_disk_refuses_appends_keeps_writes_and_is_caught_up_with() {
        let Some(disk) = SmallDisk::mount("log-full", 64 << 10) else { return };
        let path = disk.path().join("journal");
        let log = Log::<String>::start(&path, open::<String>(&path).unwrap().file).unwrap();
        assert!(matches!(log.write(&"before".to_owned()), Ok(Written::Done)));
        let filler = disk.fill();
        // What is left of the last page is used up too.
        let long = "x".repeat(8000);
        assert!(matches!(log.write(&long), Ok(Written::Kept(_))));
        assert!(matches!(log.write(&"kept".to_owned()), Ok(Written::Kept(_))));
        assert!(log.is_behind() && !log.catch_up());
        let (tell, told) = channel();
        log.append(&"refused".to_owned(), Box::new(move |outcome| tell.send(outcome.is_err()).unwrap()));
        assert!(told.recv().unwrap());
        std::fs::remove_file(&filler).unwrap();
        assert!(log.catch_up() && !log.is_behind());
        assert!(matches!(log.write(&"after".to_owned()), Ok(Written::Done)));
        assert_eq!(open::<String>(&path).unwrap().records, ["before", &long, "kept", "after"]);
    }
}
