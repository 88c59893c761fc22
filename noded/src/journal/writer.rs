//! The writer thread: many appends, one `fdatasync`.

use crate::journal::Shortener;
use garrick_journal::{JournalError, frame, sync_parent};
use serde::Serialize;
use std::{
    fs::File,
    io::Write,
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Called by the writer thread once the records are on disk, or have been refused.
pub type Done = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

/// Asked before anything is written and before it is called written; an error: somebody else writes now.
pub type Fence = Box<dyn Fn() -> Result<(), String> + Send>;

/// Appends waiting at a time before senders are refused. One entry is a batch from one caller.
const QUEUE_ENTRIES: usize = 65_536;
/// Bytes written before a sync is forced, so that one sync never covers unbounded data.
const GROUP_BYTES: usize = 4 << 20;

/// Between two tries to write to a disk without room.
const ROOM_PAUSE: Duration = Duration::from_millis(500);

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
    waits_for_room: Arc<AtomicBool>,
    records: PhantomData<fn(T)>,
}

impl<T> Clone for JournalWriter<T> {
    fn clone(&self) -> Self {
        let waits_for_room = Arc::clone(&self.waits_for_room);
        Self { path: self.path.clone(), queue: self.queue.clone(), waits_for_room, records: PhantomData }
    }
}

impl<T: Serialize> JournalWriter<T> {
    /// Starts the writer on a file that [`super::open`] or [`super::series::open`] returned; with a `shortener`, the file is
    /// closed and begun anew from time to time. The handle ends when every clone is gone and all is written.
    pub fn start(path: &Path, file: File, shortener: Option<Shortener>) -> std::io::Result<(Self, JoinHandle<()>)> {
        Self::start_fenced(path, file, shortener, Box::new(|| Ok(())))
    }

    /// The same for a file that others may come to write. Once fenced, nothing more is written or acknowledged.
    pub fn start_fenced(
        path: &Path,
        file: File,
        shortener: Option<Shortener>,
        fence: Fence,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (queue, appends) = sync_channel(QUEUE_ENTRIES);
        let waits_for_room = Arc::new(AtomicBool::new(false));
        let end = file.metadata()?.len();
        let writing =
            Writing { path: path.to_owned(), file, end, shortener, waits_for_room: Arc::clone(&waits_for_room), fence };
        let thread = std::thread::Builder::new().name("journal".into()).spawn(move || writing.run(&appends))?;
        Ok((Self { path: path.to_owned(), queue, waits_for_room, records: PhantomData }, thread))
    }

    /// The disk has no room: what was appended waits until it has.
    pub fn waits_for_room(&self) -> bool {
        self.waits_for_room.load(Ordering::Relaxed)
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
                let cause = format!("{QUEUE_ENTRIES} appends wait for the disk");
                (a.done)(Err(JournalError::Closed { path: self.path.clone(), cause }));
            }
            Err(TrySendError::Disconnected(a)) => {
                (a.done)(Err(JournalError::Closed { path: self.path.clone(), cause: "its writer has ended".into() }));
            }
        }
    }
}

struct Writing {
    path: PathBuf,
    file: File,
    /// Bytes of whole records in the file.
    end: u64,
    shortener: Option<Shortener>,
    waits_for_room: Arc<AtomicBool>,
    fence: Fence,
}

impl Writing {
    fn run(mut self, appends: &Receiver<Append>) {
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
                let written = self.pass().and_then(|()| self.put(&bytes, lazy)).and_then(|()| self.pass());
                failed = written.err();
                if let Some(e) = &failed {
                    leave_mark(&self.path);
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
                    Some(e) => Err(JournalError::Closed { path: self.path.clone(), cause: e.to_string() }),
                });
            }
            if failed.is_none() {
                self.shorten(bytes.len() as u64);
            }
        }
    }

    fn pass(&self) -> Result<(), JournalError> {
        (self.fence)().map_err(|cause| JournalError::Closed { path: self.path.clone(), cause })
    }

    /// Writes and syncs, however long it takes until there is room.
    fn put(&mut self, bytes: &[u8], lazy: bool) -> Result<(), JournalError> {
        while let Err(e) = self.file.write_all(bytes) {
            let failure = JournalError::io("write", &self.path, &e);
            let room = matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
            // A part of it may be in the file.
            if !room || self.file.set_len(self.end).is_err() {
                return Err(failure);
            }
            if !self.waits_for_room.swap(true, Ordering::Relaxed) {
                tracing::error!(error = %failure, "waiting for room; until then nothing new is accepted");
            }
            std::thread::sleep(ROOM_PAUSE);
        }
        if self.waits_for_room.swap(false, Ordering::Relaxed) {
            tracing::info!(file = %self.path.display(), "there is room again");
        }
        self.end += bytes.len() as u64;
        if lazy { Ok(()) } else { self.file.sync_data().map_err(|e| JournalError::io("sync", &self.path, &e)) }
    }

    fn shorten(&mut self, appended: u64) {
        let Some(shortener) = &mut self.shortener else { return };
        if !shortener.appended(appended) {
            return;
        }
        let synced = self.file.sync_data().map_err(|e| JournalError::io("sync", &self.path, &e));
        match synced.and_then(|()| shortener.close()) {
            Ok(file) => {
                self.end = file.metadata().map_or(0, |found| found.len());
                self.file = file;
            }
            Err(e) => tracing::error!(error = %e, "the journal was not shortened; it goes on growing"),
        }
    }
}

/// Beside a journal of which a write or sync failed. What can be read of it is not therefore on disk: after a failed `fsync` the
/// kernel may hold pages that it never wrote and will not write (fsync(2), errors).
pub fn mark(journal: &Path) -> PathBuf {
    journal.with_added_extension("failed")
}

fn leave_mark(journal: &Path) {
    let marked = File::create(mark(journal)).and_then(|file| file.sync_all());
    if let Err(e) = marked.and_then(|()| sync_parent(journal).map_err(std::io::Error::other)) {
        tracing::error!(error = %e, "no mark was left that the journal failed");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{journal::open, kernel::scratch::SmallDisk};
    use std::sync::mpsc::channel;

    #[test]
    fn what_was_answered_is_in_the_file() {
        let dir = std::env::temp_dir().join(format!("garrick-writer-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("journal");
        let opened = open::<u32>(&path).unwrap();
        let (writer, thread) = JournalWriter::<u32>::start(&path, opened.file, None).unwrap();
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
        // Opened for reading only: writes are refused, and not for want of room.
        let file = File::open("/dev/null").unwrap();
        let (writer, thread) = JournalWriter::<u32>::start(Path::new("/dev/null"), file, None).unwrap();
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

    #[test]
    fn a_full_disk_is_waited_for() {
        let Some(disk) = SmallDisk::mount("writer-full", 64 << 10) else { return };
        let path = disk.path().join("journal");
        let (writer, thread) =
            JournalWriter::<String>::start(&path, open::<String>(&path).unwrap().file, None).unwrap();
        let filler = disk.fill();
        let (tx, rx) = channel();
        let long = "x".repeat(8000);
        writer.append(std::slice::from_ref(&long), Box::new(move |r| tx.send(r).unwrap()));
        while !writer.waits_for_room() {
            std::thread::yield_now();
        }
        assert!(rx.try_recv().is_err());
        std::fs::remove_file(filler).unwrap();
        rx.recv().unwrap().unwrap();
        assert_eq!(open::<String>(&path).unwrap().records, [long]);
        drop(writer);
        thread.join().unwrap();
    }

    #[test]
    fn a_journal_that_could_not_be_synced_is_marked_for_the_next_start() {
        let dir = std::env::temp_dir().join(format!("garrick-writer-mark-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("journal");
        // Pipes take bytes and cannot be synced.
        let (_read, write) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(write));
        let (writer, thread) = JournalWriter::<u32>::start(&path, file, None).unwrap();
        let (tell, told) = sync_channel(1);
        writer.append(&[1], Box::new(move |outcome| tell.send(outcome).unwrap()));
        assert!(told.recv().unwrap().is_err());
        drop(writer);
        thread.join().unwrap();
        assert!(mark(&path).exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
