//! The writer thread: many appends, one `fdatasync`.

use crate::journal::Shortener;
use garrick_journal::{Form, JournalError, Reader, sync_parent};
use serde::Serialize;
use std::{
    fs::File,
    io::Write,
    marker::PhantomData,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
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

/// A file that a writer goes on with.
#[derive(Debug)]
pub struct Begun {
    /// Opened for appending.
    pub file: File,
    /// Its length, with all that was read of it.
    pub end: u64,
    /// The writer's.
    pub epoch: u64,
}

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
    waiting: Arc<AtomicUsize>,
    epoch: u64,
    records: PhantomData<fn(T)>,
}

impl<T> Clone for JournalWriter<T> {
    fn clone(&self) -> Self {
        let waits_for_room = Arc::clone(&self.waits_for_room);
        Self {
            path: self.path.clone(),
            queue: self.queue.clone(),
            waits_for_room,
            waiting: Arc::clone(&self.waiting),
            epoch: self.epoch,
            records: PhantomData,
        }
    }
}

impl<T: Serialize> JournalWriter<T> {
    /// Starts the writer on a file that others may come to write, too; with a `shortener`, the file is closed and begun anew from
    /// time to time. Once fenced, nothing more is written or acknowledged. The handle ends when every clone is gone and all is
    /// written.
    pub fn start(
        path: &Path,
        begun: Begun,
        shortener: Option<Shortener>,
        fence: Fence,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let Begun { file, end, epoch } = begun;
        let (queue, appends) = sync_channel(QUEUE_ENTRIES);
        let waits_for_room = Arc::new(AtomicBool::new(false));
        let waiting = Arc::new(AtomicUsize::new(0));
        let writing = Writing {
            path: path.to_owned(),
            file,
            end,
            shortener,
            waits_for_room: Arc::clone(&waits_for_room),
            waiting: Arc::clone(&waiting),
            epoch,
            fence,
        };
        let thread = std::thread::Builder::new().name("journal".into()).spawn(move || writing.run(&appends))?;
        Ok((Self { path: path.to_owned(), queue, waits_for_room, waiting, epoch, records: PhantomData }, thread))
    }

    /// The disk has no room: what was appended waits until it has.
    pub fn waits_for_room(&self) -> bool {
        self.waits_for_room.load(Ordering::Relaxed)
    }

    /// Half of those wait that may: no more should be begun.
    pub fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= QUEUE_ENTRIES / 2
    }

    /// The epoch of what it writes.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Queues records; `done` is called when they are on disk together, or not at all. Never blocks: a full queue, a
    /// closed writer or a record that cannot be encoded is answered through `done` at once.
    pub fn append(&self, records: &[T], done: Done) {
        self.queue(self.frame(records), done, false);
    }

    /// Records as bytes of the file.
    pub fn frame(&self, records: &[T]) -> Result<Vec<u8>, JournalError> {
        let mut bytes = Vec::new();
        for record in records {
            Form::Epoch(self.epoch).frame(&self.path, record, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Queues what [`Self::frame`] returned, as [`Self::append`].
    pub fn append_framed(&self, framed: Result<Vec<u8>, JournalError>, done: Done) {
        self.queue(framed, done, false);
    }

    /// The same for records whose loss in a crash of the machine would be no loss of a promise: they are written at once
    /// and synced with the next that are not lazy; `done` tells that they were written.
    pub fn append_lazily(&self, records: &[T], done: Done) {
        self.queue(self.frame(records), done, true);
    }

    fn queue(&self, framed: Result<Vec<u8>, JournalError>, done: Done, lazy: bool) {
        let bytes = match framed {
            Ok(bytes) => bytes,
            Err(e) => return done(Err(e)),
        };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = self.queue.try_send(Append { bytes, done, lazy });
        if sent.is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        match sent {
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
    /// Bytes in the file: all that it knows of.
    end: u64,
    shortener: Option<Shortener>,
    waits_for_room: Arc<AtomicBool>,
    waiting: Arc<AtomicUsize>,
    epoch: u64,
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
            self.waiting.fetch_sub(group.len(), Ordering::Relaxed);
            if failed.is_none() {
                failed = self.write(&bytes, lazy).err();
                if let Some(e) = &failed {
                    // The folder of one that was fenced is another's.
                    if !matches!(e, JournalError::Closed { .. }) {
                        leave_mark(&self.path);
                    }
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

    /// Looks for others before, and after: what one that has begun meanwhile does not read must not be acknowledged.
    fn write(&mut self, bytes: &[u8], lazy: bool) -> Result<(), JournalError> {
        self.pass(self.end)?;
        let from = self.end;
        self.put(from, bytes)?;
        if !lazy {
            self.file.sync_data().map_err(|e| JournalError::io("sync", &self.path, &e))?;
        }
        self.pass(from)
    }

    /// `from`: where what it has written since it passed last begins.
    fn pass(&mut self, from: u64) -> Result<(), JournalError> {
        (self.fence)().map_err(|cause| self.closed(cause))?;
        self.look_for_others(from)
    }

    fn closed(&self, cause: String) -> JournalError {
        JournalError::Closed { path: self.path.clone(), cause }
    }

    /// Others may have appended to the same file: one with a higher epoch has fenced this one, those of a lower one do not
    /// count. One that cut the file or gave its name to another has taken it.
    fn look_for_others(&mut self, from: u64) -> Result<(), JournalError> {
        let failed = |e: &std::io::Error| JournalError::io("read", &self.path, e);
        let found = self.file.metadata().map_err(|e| failed(&e))?;
        match std::fs::metadata(&self.path) {
            Ok(named) if (named.dev(), named.ino()) == (found.dev(), found.ino()) => {}
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(&e)),
            _ => return Err(self.closed("it is no longer the file of that name".into())),
        }
        if found.len() == self.end {
            return Ok(());
        }
        if found.len() < self.end {
            return Err(self.closed(format!("it was cut to {} of {} bytes", found.len(), self.end)));
        }
        let mut reader = Reader::behind(&self.file, &self.path, from)?.after_epoch(self.epoch);
        while let Some(record) = reader.next_record()? {
            // What bears its own epoch is its own, if it has written since.
            if record.epoch > self.epoch || from == self.end {
                let cause = format!("a writer of epoch {} is at it, and this one's is {}", record.epoch, self.epoch);
                return Err(self.closed(cause));
            }
        }
        if reader.torn_bytes() > 0 {
            // What is appended behind it would be lost with it.
            return Err(self.closed("a record of another writer in it is not whole".into()));
        }
        if let Some(late) = &reader.late().first {
            tracing::warn!("{late}");
        }
        self.end = reader.position();
        Ok(())
    }

    /// Writes, however long it takes until there is room. What is in the file of it stays there: to cut it off would take what
    /// another writer may have appended behind it.
    fn put(&mut self, from: u64, mut bytes: &[u8]) -> Result<(), JournalError> {
        while !bytes.is_empty() {
            let failure = match self.file.write(bytes) {
                Ok(written) if written > 0 => {
                    self.end += written as u64;
                    bytes = &bytes[written..];
                    continue;
                }
                Ok(_) => std::io::ErrorKind::WriteZero.into(),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => e,
            };
            let room = matches!(failure.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
            let failure = JournalError::io("write", &self.path, &failure);
            if !room {
                return Err(failure);
            }
            if !self.waits_for_room.swap(true, Ordering::Relaxed) {
                tracing::error!(error = %failure, "waiting for room; until then nothing new is accepted");
            }
            std::thread::sleep(ROOM_PAUSE);
            self.pass(from)?;
        }
        if self.waits_for_room.swap(false, Ordering::Relaxed) {
            tracing::info!(file = %self.path.display(), "there is room again");
        }
        Ok(())
    }

    fn shorten(&mut self, appended: u64) {
        let Some(shortener) = &mut self.shortener else { return };
        if !shortener.appended(appended) {
            return;
        }
        let synced = self.file.sync_data().map_err(|e| JournalError::io("sync", &self.path, &e).to_string());
        match synced.and_then(|()| shortener.close()) {
            Ok(file) => {
                self.end = file.metadata().map_or(0, |found| found.len());
                self.file = file;
            }
            Err(error) => tracing::error!(error, "the journal was not shortened; it goes on growing"),
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
    use garrick_journal::open_after;
    use garrick_kernel::scratch::{Scratch, SmallDisk};
    use serde::de::{DeserializeOwned, IgnoredAny};
    use std::sync::mpsc::channel;

    fn begin(path: &Path, epoch: u64) -> Begun {
        let journal = open_after(path, 0, |_: IgnoredAny| Ok::<_, JournalError>(())).unwrap();
        Begun { file: journal.file, end: journal.end, epoch }
    }

    fn start<T: Serialize>(path: &Path, begun: Begun) -> (JournalWriter<T>, JoinHandle<()>) {
        JournalWriter::start(path, begun, None, Box::new(|| Ok(()))).unwrap()
    }

    fn read<T: DeserializeOwned>(path: &Path) -> Vec<T> {
        let mut records = Vec::new();
        open_after(path, 0, |record| {
            records.push(record);
            Ok::<_, JournalError>(())
        })
        .unwrap();
        records
    }

    #[test]
    fn what_was_answered_is_in_the_file() {
        let dir = Scratch::new("writer");
        let path = dir.join("journal");
        let (writer, thread) = start::<u32>(&path, begin(&path, 1));
        let (tx, rx) = channel();
        for n in 0..1000u32 {
            let tx = tx.clone();
            writer.append(&[n], Box::new(move |r| tx.send((n, r.is_ok())).unwrap()));
        }
        let answered: Vec<_> = (0..1000).map(|_| rx.recv().unwrap()).collect();
        assert!(answered.iter().enumerate().all(|(i, (n, ok))| i as u32 == *n && *ok));
        assert_eq!(read::<u32>(&path), (0..1000).collect::<Vec<_>>());
        drop(writer);
        thread.join().unwrap();
    }

    #[test]
    fn after_a_failed_write_everything_is_refused() {
        // Opened for reading only: writes are refused, and not for want of room.
        let begun = Begun { file: File::open("/dev/null").unwrap(), end: 0, epoch: 1 };
        let (writer, thread) = start::<u32>(Path::new("/dev/null"), begun);
        let (tx, rx) = channel();
        for _ in 0..2 {
            let tx = tx.clone();
            writer.append(&[1], Box::new(move |r| tx.send(r).unwrap()));
            let answer = rx.recv().unwrap().unwrap_err();
            assert!(answer.to_string().contains("cannot write journal /dev/null"), "{answer}");
        }
        drop(writer);
        thread.join().unwrap();
    }

    #[test]
    fn a_full_disk_is_waited_for() {
        let Some(disk) = SmallDisk::mount("writer-full", 64 << 10) else { return };
        let path = disk.path().join("journal");
        let (writer, thread) = start::<String>(&path, begin(&path, 1));
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
        assert_eq!(read::<String>(&path), [long]);
        drop(writer);
        thread.join().unwrap();
    }

    #[test]
    fn what_stands_behind_anothers_beginning_is_not_acknowledged() {
        let dir = Scratch::new("writer-between");
        let path = dir.join("journal");
        let Begun { file, end, epoch } = begin(&path, 1);
        let (fence, waits_for_room, waiting) = (Box::new(|| Ok(())), Arc::default(), Arc::default());
        let mut first =
            Writing { path: path.clone(), file, end, shortener: None, waits_for_room, waiting, epoch, fence };
        let framed = |epoch, record: &str| {
            let mut bytes = Vec::new();
            Form::Epoch(epoch).frame(&path, &record, &mut bytes).unwrap();
            bytes
        };
        first.pass(end).unwrap();
        // Between its look and its write.
        begin(&path, 2).file.write_all(&framed(2, "saved")).unwrap();
        first.put(end, &framed(1, "late")).unwrap();
        let said = first.pass(end).unwrap_err().to_string();
        assert!(said.contains("a writer of epoch 2 is at it"), "{said}");
        assert_eq!(read::<String>(&path), ["saved"]);
    }

    /// It cut off what it had written of its record, and with that all that another one had been told was saved.
    #[test]
    fn what_another_one_wrote_meanwhile_outlasts_a_wait_for_room() {
        // Shorter than the part that the first has written, and longer.
        for (length, expected) in [(10, "it was cut to"), (5000, "a writer of epoch 2 is at it")] {
            let Some(disk) = SmallDisk::mount("writer-full-fenced", 64 << 10) else { return };
            let path = disk.path().join("journal");
            let ((at_fence, knocks), (let_go, gone)) = (sync_channel(0), sync_channel(0));
            let fence = move || {
                at_fence.send(()).unwrap();
                gone.recv().unwrap()
            };
            let (writer, thread) =
                JournalWriter::<String>::start(&path, begin(&path, 1), None, Box::new(fence)).unwrap();
            let filler = disk.fill();
            let (tx, rx) = channel();
            writer.append(&["x".repeat(8000)], Box::new(move |r| tx.send(r).unwrap()));
            knocks.recv().unwrap();
            let_go.send(Ok(())).unwrap();
            // Its next question is the one after the first try.
            knocks.recv().unwrap();
            assert!(writer.waits_for_room());
            assert!(std::fs::metadata(&path).unwrap().len() > 16, "a part of the record found room");
            std::fs::remove_file(filler).unwrap();
            let saved = "s".repeat(length);
            let mut newer = begin(&path, 2);
            let mut bytes = Vec::new();
            Form::Epoch(2).frame(&path, &saved, &mut bytes).unwrap();
            newer.file.write_all(&bytes).unwrap();
            let_go.send(Ok(())).unwrap();
            drop(knocks);
            let said = rx.recv().unwrap().unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
            assert_eq!(read::<String>(&path), [saved]);
            drop(writer);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_journal_that_could_not_be_synced_is_marked_for_the_next_start() {
        let dir = Scratch::new("writer-mark");
        let path = dir.join("journal");
        // Pipes take bytes and cannot be synced.
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let (writer, thread) = start::<u32>(&path, Begun { file, end: 0, epoch: 1 });
        let (tell, told) = sync_channel(1);
        writer.append(&[1], Box::new(move |outcome| tell.send(outcome).unwrap()));
        assert!(told.recv().unwrap().is_err());
        drop(writer);
        thread.join().unwrap();
        assert!(mark(&path).exists());
    }
}
