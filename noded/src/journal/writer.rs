//! The writer thread: many appends, one `fdatasync`.

use garrick_journal::{JournalError, frame};
use serde::Serialize;
use std::{
    fs::File,
    io::Write,
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::JoinHandle,
};

/// Called by the writer thread once the records are on disk, or have been refused.
pub type Done = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

/// Appends waiting at a time before senders are refused. One entry is a batch from one caller.
const QUEUE_ENTRIES: usize = 65_536;
/// Bytes written before a sync is forced, so that one sync never covers unbounded data.
const GROUP_BYTES: usize = 4 << 20;

struct Append {
    bytes: Vec<u8>,
    done: Done,
    /// May wait for the next one that may not.
    lazy: bool,
}

/// Appends records of one type to one file. Clones share the writer thread, which ends with the last clone.
pub struct JournalWriter<T> {
    path: PathBuf,
    queue: SyncSender<Append>,
    records: PhantomData<fn(T)>,
}

impl<T> Clone for JournalWriter<T> {
    fn clone(&self) -> Self {
        Self { path: self.path.clone(), queue: self.queue.clone(), records: PhantomData }
    }
}

impl<T: Serialize> JournalWriter<T> {
    /// Starts the writer on a file that [`super::open`] returned. The handle ends when every clone is gone and all is written.
    pub fn start(path: &Path, file: File) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (queue, appends) = sync_channel(QUEUE_ENTRIES);
        let name = path.to_owned();
        let thread =
            std::thread::Builder::new().name("journal".into()).spawn(move || write_loop(&name, file, &appends))?;
        Ok((Self { path: path.to_owned(), queue, records: PhantomData }, thread))
    }

    /// Queues records; `done` is called when they are on disk together, or not at all. Never blocks: a full queue, a
    /// closed writer or a record that cannot be encoded is answered through `done` at once.
    pub fn append(&self, records: &[T], done: Done) {
        self.queue(records, done, false);
    }

    /// The same for records whose loss in a crash of the machine would be no loss of a promise: they are written at once
    /// and synced with the next that are not lazy; `done` tells that they were written.
    pub fn append_lazily(&self, records: &[T], done: Done) {
        self.queue(records, done, true);
    }

    fn queue(&self, records: &[T], done: Done, lazy: bool) {
        let mut bytes = Vec::new();
        for record in records {
            if let Err(e) = frame(&self.path, record, &mut bytes) {
                return done(Err(e));
            }
        }
        match self.queue.try_send(Append { bytes, done, lazy }) {
            Ok(()) => {}
            Err(TrySendError::Full(a)) => {
                (a.done)(Err(JournalError::Record { path: self.path.clone(), what: "the write queue is full".into() }));
            }
            Err(TrySendError::Disconnected(a)) => {
                (a.done)(Err(JournalError::Closed { path: self.path.clone(), cause: "its writer has ended".into() }));
            }
        }
    }
}

fn write_loop(path: &Path, mut file: File, appends: &Receiver<Append>) {
    let mut failed: Option<JournalError> = None;
    while let Ok(first) = appends.recv() {
        let mut group = vec![first.done];
        let (mut bytes, mut lazy) = (first.bytes, first.lazy);
        while bytes.len() < GROUP_BYTES {
            match appends.try_recv() {
                Ok(a) => {
                    bytes.extend_from_slice(&a.bytes);
                    lazy &= a.lazy;
                    group.push(a.done);
                }
                Err(_) => break,
            }
        }
        if failed.is_none() {
            let written = file.write_all(&bytes).map_err(|e| JournalError::io("write", path, &e)).and_then(|()| {
                if lazy { Ok(()) } else { file.sync_data().map_err(|e| JournalError::io("sync", path, &e)) }
            });
            failed = written.err();
            if let Some(e) = &failed {
                tracing::error!(error = %e, "journal write failed; nothing more will be accepted");
                for done in group {
                    done(Err(e.clone()));
                }
                continue;
            }
        }
        for done in group {
            done(match &failed {
                None => Ok(()),
                Some(e) => Err(JournalError::Closed { path: path.to_owned(), cause: e.to_string() }),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::journal::open;
    use std::sync::mpsc::channel;

    #[test]
    fn what_was_answered_is_in_the_file() {
        let dir = std::env::temp_dir().join(format!("garrick-writer-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("journal");
        let opened = open::<u32>(&path).unwrap();
        let (writer, thread) = JournalWriter::<u32>::start(&path, opened.file).unwrap();
        let (tx, rx) = channel();
        for n in 0..1000u32 {
            let tx = tx.clone();
            writer.append(&[n], Box::new(move |r| tx.send((n, r.is_ok())).unwrap()));
        }
        let answered: Vec<_> = (0..1000).map(|_| rx.recv().unwrap()).collect();
        assert!(answered.iter().enumerate().all(|(i, (n, ok))| i as u32 == *n && *ok));
        assert_eq!(open::<u32>(&path).unwrap().records, (0..1000).collect::<Vec<_>>());
        drop(writer);
        thread.join().unwrap();
    }

    #[test]
    fn after_a_failed_write_everything_is_refused() {
        // /dev/full answers every write with "no space left on device".
        let file = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (writer, thread) = JournalWriter::<u32>::start(Path::new("/dev/full"), file).unwrap();
        let (tx, rx) = channel();
        for _ in 0..2 {
            let tx = tx.clone();
            writer.append(&[1], Box::new(move |r| tx.send(r).unwrap()));
            let answer = rx.recv().unwrap().unwrap_err();
            assert!(matches!(answer, JournalError::Io { .. } | JournalError::Closed { .. }), "{answer}");
        }
        drop(writer);
        thread.join().unwrap();
    }
}
