//! The controller's journal as a series of files in one folder, so that its length stays bounded while it is written:
//!
//! | file | holds |
//! |---|---|
//! | `journal` | what was appended last; the only one that is written to |
//! | `journal.N` | what was appended before, closed as the N-th |
//! | `snapshot.N` | the shortest journal that comes to the same as all files up to `journal.N` |
//!
//! Reading back is: the newest snapshot, the closed files after it in order, `journal`. When `journal` has grown beyond a
//! limit its writer closes it and begins a new one, and a thread beside it makes the next snapshot out of the files alone:
//! nothing waits for it. The snapshot before and its files stay until the one after next is made, as a way back.

use garrick_journal::{JournalError, open_each, replace, sync_parent};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

/// What records come to, and the shortest sequence of records that comes to the same.
pub trait Fold: Default {
    /// A record.
    type Record: Serialize + DeserializeOwned + Send + 'static;
    /// A record that does not fit those before it.
    type Error: From<JournalError> + std::fmt::Display;
    /// Takes one more record in.
    fn fold(&mut self, record: Self::Record) -> Result<(), Self::Error>;
    /// The shortest sequence.
    fn shortest(self) -> impl Iterator<Item = Self::Record>;
}

/// The files of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Files {
    snapshots: BTreeMap<u64, PathBuf>,
    closed: BTreeMap<u64, PathBuf>,
}

impl Files {
    fn find(folder: &Path) -> Result<Self, JournalError> {
        let mut files = Self::default();
        let failed = |e: &std::io::Error| JournalError::io("list the folder of", &folder.join("journal"), e);
        for entry in fs::read_dir(folder).map_err(|e| failed(&e))? {
            let path = entry.map_err(|e| failed(&e))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('.'));
            let Some((kind, Ok(number))) = name.map(|(kind, number)| (kind, number.parse::<u64>())) else { continue };
            match kind {
                "journal" => files.closed.insert(number, path),
                "snapshot" => files.snapshots.insert(number, path),
                _ => None,
            };
        }
        Ok(files)
    }

    /// The newest snapshot, and the closed files after it: each with the next number.
    fn to_read(&self, folder: &Path) -> Result<Vec<&PathBuf>, JournalError> {
        let (mut last, mut files) = match self.snapshots.last_key_value() {
            Some((number, path)) => (*number, vec![path]),
            None => (0, Vec::new()),
        };
        for (number, path) in self.closed.range(last + 1..) {
            if *number != last + 1 {
                let missing = folder.join(format!("journal.{}", last + 1));
                return Err(JournalError::Missing { path: missing, next: path.clone() });
            }
            last = *number;
            files.push(path);
        }
        Ok(files)
    }

    fn last(&self) -> u64 {
        let last = |files: &BTreeMap<u64, PathBuf>| files.last_key_value().map_or(0, |(number, _)| *number);
        last(&self.snapshots).max(last(&self.closed))
    }
}

/// A series that was read back.
#[derive(Debug)]
pub struct Series {
    /// `journal`, opened for appending.
    pub file: File,
    /// Bytes of a torn last record that were cut off it.
    pub torn_bytes: u64,
    /// Bytes in `journal` and in closed files that are in no snapshot yet.
    pub unfolded: u64,
    /// Bytes of the snapshot.
    pub snapshot: u64,
}

/// `StateSaveLocation/journal`, and its relatives.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("journal")
}

/// Reads a series back. A torn last record of `journal` is cut off on disk; the other files have been closed whole.
pub fn open<F: Fold>(folder: &Path, state: &mut F) -> Result<Series, F::Error> {
    let files = Files::find(folder)?;
    let (mut unfolded, mut snapshot) = (0, 0);
    for path in files.to_read(folder)? {
        let length = read_closed(path, state)?;
        if files.snapshots.values().any(|s| s == path) { snapshot = length } else { unfolded += length }
    }
    let path = path(folder);
    let (torn_bytes, file) = open_each(&path, |record| state.fold(record))?;
    unfolded += file.metadata().map_err(|e| JournalError::io("read", &path, &e))?.len();
    Ok(Series { file, torn_bytes, unfolded, snapshot })
}

/// Reads a file that nobody appends to any more. Returns its length.
fn read_closed<F: Fold>(path: &Path, state: &mut F) -> Result<u64, F::Error> {
    let mut reader = garrick_journal::Reader::open(path)?;
    while let Some(record) = reader.next_record()? {
        let record = record.decode()?;
        state.fold(record)?;
    }
    if reader.torn_bytes() > 0 || !reader.has_header() {
        let damaged = JournalError::Damaged {
            path: path.to_owned(),
            offset: reader.position(),
            record: reader.records(),
            after: reader.torn_bytes(),
            what: "it was closed whole, and now its end is missing".into(),
        };
        return Err(damaged.into());
    }
    Ok(reader.length())
}

/// Begins `journal` anew behind whoever may still have the old one open and append to it: all that can be read now goes into a
/// snapshot, and what comes into the old file after that is read by nobody. To be called before [`open`].
pub fn leave_behind<F: Fold>(folder: &Path) -> Result<(), String> {
    let path = path(folder);
    if !path.exists() {
        return Ok(());
    }
    // A torn end is cut off first: closed files are whole.
    open_each(&path, |_: F::Record| Ok::<_, JournalError>(())).map_err(|e| e.to_string())?;
    let number = Files::find(folder).map_err(|e| e.to_string())?.last() + 1;
    let closed = folder.join(format!("journal.{number}"));
    fs::rename(&path, &closed).map_err(|e| JournalError::io("close", &path, &e).to_string())?;
    sync_parent(&path).map_err(|e| e.to_string())?;
    make_snapshot::<F>(folder, number).map(drop)
}

/// The files of a series that are there.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let found = Files::find(folder)?;
    let all = found.snapshots.into_values().chain(found.closed.into_values()).chain(Some(path(folder)));
    Ok(all.filter(|path| path.exists()).collect())
}

/// Puts all files of a series into a new folder beside them. Returns it, or `None` where there was nothing.
pub fn put_aside(folder: &Path, why: &str) -> std::io::Result<Option<PathBuf>> {
    let found = if folder.is_dir() { files(folder).map_err(std::io::Error::other)? } else { Vec::new() };
    if found.is_empty() {
        return Ok(None);
    }
    let free = |number: &u32| !folder.join(format!("{why}.{number}")).exists();
    let number = (1..=u32::MAX).find(free).unwrap_or(u32::MAX);
    let aside = folder.join(format!("{why}.{number}"));
    fs::create_dir(&aside)?;
    for file in found {
        fs::rename(&file, aside.join(file.file_name().unwrap_or_default()))?;
    }
    File::open(folder)?.sync_all()?;
    Ok(Some(aside))
}

/// Makes snapshots in threads of their own, one at a time. Held by the writer.
#[derive(Debug)]
pub struct Shortener {
    folder: PathBuf,
    /// Bytes that are appended before the next snapshot is worth it, at least.
    floor: u64,
    /// Bytes that are in no snapshot yet.
    unfolded: u64,
    /// Bytes of the last snapshot.
    snapshot: Arc<AtomicU64>,
    /// Makes a snapshot, or has.
    work: Option<JoinHandle<()>>,
    make: fn(&Path, u64) -> Result<u64, String>,
}

impl Shortener {
    /// For a series that was just read back. `floor`: bytes appended between two snapshots at least; a snapshot is also not
    /// made before as much was appended as the last one holds, so that writing them never costs more than the journal does.
    pub fn new<F: Fold>(folder: &Path, floor: u64, opened: &Series) -> Self {
        Self {
            folder: folder.to_owned(),
            floor,
            unfolded: opened.unfolded,
            snapshot: Arc::new(AtomicU64::new(opened.snapshot)),
            work: None,
            make: make_snapshot::<F>,
        }
    }

    /// So many bytes were appended. True when `journal` is to be closed now.
    pub fn appended(&mut self, bytes: u64) -> bool {
        self.unfolded += bytes;
        self.unfolded >= self.floor.max(self.snapshot.load(Ordering::Relaxed))
            && self.work.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Closes `journal`, which is on disk as a whole, begins a new one, and has the next snapshot made. On an error the
    /// journal goes on as it is, and this is tried again after as many bytes more.
    pub fn close(&mut self) -> Result<File, JournalError> {
        self.unfolded = 0;
        let (path, next) = (path(&self.folder), self.folder.join("journal.next"));
        let number = Files::find(&self.folder)?.last() + 1;
        let _ = fs::remove_file(&next);
        let file = garrick_journal::open::<()>(&next)?.file;
        let closed = self.folder.join(format!("journal.{number}"));
        fs::rename(&path, &closed).map_err(|e| JournalError::io("close", &path, &e))?;
        if let Err(e) = fs::rename(&next, &path) {
            // Back to how it was: what is appended must be where it is looked for.
            fs::rename(&closed, &path).map_err(|e| JournalError::io("reopen", &closed, &e))?;
            return Err(JournalError::io("begin", &path, &e));
        }
        sync_parent(&path)?;
        let (folder, make, snapshot) = (self.folder.clone(), self.make, Arc::clone(&self.snapshot));
        let work = move || match make(&folder, number) {
            Ok(bytes) => snapshot.store(bytes, Ordering::Relaxed),
            Err(error) => tracing::error!(error, "no snapshot of the journal was made; its files stay"),
        };
        match std::thread::Builder::new().name("snapshot".into()).spawn(work) {
            Ok(work) => self.work = Some(work),
            Err(e) => tracing::error!(error = %e, "no snapshot of the journal was made; its files stay"),
        }
        Ok(file)
    }
}

impl Drop for Shortener {
    fn drop(&mut self) {
        // A snapshot that is being made is made: whoever opens the series next finds its files at rest. A panic was told.
        let _ = self.work.take().map(JoinHandle::join);
    }
}

/// Makes `snapshot.N` and removes what it and the one before it make superfluous. Returns its length in bytes.
fn make_snapshot<F: Fold>(folder: &Path, number: u64) -> Result<u64, String> {
    let files = Files::find(folder).map_err(|e| e.to_string())?;
    let mut state = F::default();
    for path in files.to_read(folder).map_err(|e| e.to_string())? {
        read_closed(path, &mut state).map_err(|e| e.to_string())?;
    }
    let path = folder.join(format!("snapshot.{number}"));
    let bytes = replace(&path, state.shortest()).map_err(|e| e.to_string())?;
    let before = files.snapshots.last_key_value().map_or(0, |(number, _)| *number);
    let old = files.snapshots.range(..before).chain(files.closed.range(..=before));
    for (_, path) in old {
        fs::remove_file(path).map_err(|e| format!("cannot remove {}: {e}", path.display()))?;
    }
    tracing::info!(file = %path.display(), bytes, "the journal was shortened");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{journal::JournalWriter, kernel::scratch::Scratch};
    use std::sync::mpsc::channel;

    /// Sums by key: the shortest form has one record for each.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Sums(BTreeMap<u8, u64>);

    impl Fold for Sums {
        type Record = (u8, u64);
        type Error = JournalError;

        fn fold(&mut self, (key, value): Self::Record) -> Result<(), JournalError> {
            *self.0.entry(key).or_default() += value;
            Ok(())
        }

        fn shortest(self) -> impl Iterator<Item = Self::Record> {
            self.0.into_iter()
        }
    }

    #[test]
    fn what_a_writer_that_was_left_behind_appends_is_read_by_nobody() {
        let dir = Scratch::new("left-behind");
        append(dir.path(), u64::MAX, 10);
        let mut sums = Sums::default();
        let stale = open(dir.path(), &mut sums).unwrap();
        leave_behind::<Sums>(dir.path()).unwrap();
        assert_eq!(read(dir.path()), sums);
        let (writer, thread) = JournalWriter::start(&path(dir.path()), stale.file, None).unwrap();
        let (tell, told) = channel();
        writer.append(&[(9, 9)], Box::new(move |outcome| tell.send(outcome).unwrap()));
        told.recv().unwrap().unwrap();
        drop(writer);
        thread.join().unwrap();
        assert_eq!(read(dir.path()), sums);
        append(dir.path(), u64::MAX, 1);
        leave_behind::<Sums>(dir.path()).unwrap();
        assert_eq!(read(dir.path()), sums);
    }

    fn read(folder: &Path) -> Sums {
        let mut sums = Sums::default();
        open(folder, &mut sums).unwrap();
        sums
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Appends `records` of (number mod 4, number), with a snapshot every `floor` bytes at the soonest.
    fn append(folder: &Path, floor: u64, records: u64) {
        let mut sums = Sums::default();
        let opened = open(folder, &mut sums).unwrap();
        let shortener = Shortener::new::<Sums>(folder, floor, &opened);
        let (writer, thread) = JournalWriter::start(&path(folder), opened.file, Some(shortener)).unwrap();
        let (tell, told) = channel();
        for number in 0..records {
            let tell = tell.clone();
            writer.append(&[((number % 4) as u8, number)], Box::new(move |outcome| tell.send(outcome).unwrap()));
            // One at a time: many groups, and with them many chances to close a file.
            told.recv().unwrap().unwrap();
        }
        drop(writer);
        thread.join().unwrap();
    }

    #[test]
    fn a_series_comes_to_the_same_as_one_long_journal() {
        let (short, long) = (Scratch::new("series-short"), Scratch::new("series-long"));
        append(long.path(), u64::MAX, 2000);
        assert_eq!(names(long.path()), ["journal"]);
        for _ in 0..4 {
            append(short.path(), 300, 500);
        }
        let files = Files::find(short.path()).unwrap();
        assert!(files.last() > 3, "{:?}", names(short.path()));
        assert!(files.snapshots.len() <= 2, "{:?}", names(short.path()));
        let expected: u64 = 4 * (0..500).sum::<u64>();
        assert_eq!(read(short.path()).0.values().sum::<u64>(), expected);
        assert_eq!(read(long.path()).0.values().sum::<u64>(), (0..2000).sum::<u64>());
    }

    #[test]
    fn every_state_that_a_crash_can_leave_comes_to_the_same() {
        let folder = Scratch::new("series-crash");
        let at = |name: &str| folder.path().join(name);
        let put = |name: &str, records: &[(u8, u64)]| {
            replace(&at(name), records).unwrap();
        };
        put("journal", &[(1, 1), (2, 2)]);
        let whole = read(folder.path());
        // Closed, and the next not begun.
        fs::rename(at("journal"), at("journal.1")).unwrap();
        fs::write(at("journal.next"), b"GARR").unwrap();
        assert_eq!(read(folder.path()), whole);
        // A snapshot half written.
        fs::write(at("snapshot.1.new"), b"GARRICKJ").unwrap();
        assert_eq!(read(folder.path()), whole);
        // The snapshot there, and what it stands for not removed.
        make_snapshot::<Sums>(folder.path(), 1).unwrap();
        assert_eq!(names(folder.path()), ["journal", "journal.1", "journal.next", "snapshot.1"]);
        assert_eq!(read(folder.path()), whole);
        // The next closed file, before its snapshot.
        put("journal.2", &[(1, 1)]);
        assert_eq!(read(folder.path()).0, BTreeMap::from([(1, 2), (2, 2)]));
        make_snapshot::<Sums>(folder.path(), 2).unwrap();
        assert_eq!(read(folder.path()).0, BTreeMap::from([(1, 2), (2, 2)]));
        // The newest snapshot given up: the one before and its files say the same.
        fs::remove_file(at("snapshot.2")).unwrap();
        assert_eq!(read(folder.path()).0, BTreeMap::from([(1, 2), (2, 2)]));
    }

    #[test]
    fn a_missing_file_or_a_torn_closed_one_stops_the_start() {
        let folder = Scratch::new("series-missing");
        let at = |name: &str| folder.path().join(name);
        for name in ["journal.1", "journal.3"] {
            replace(&at(name), [(1_u8, 1_u64)]).unwrap();
        }
        let error = open(folder.path(), &mut Sums::default()).unwrap_err().to_string();
        assert!(error.contains("journal.2 is missing"), "{error}");
        replace(&at("journal.2"), [(1_u8, 1_u64)]).unwrap();
        let torn = fs::read(at("journal.2")).unwrap();
        fs::write(at("journal.2"), &torn[..torn.len() - 1]).unwrap();
        let error = open(folder.path(), &mut Sums::default()).unwrap_err().to_string();
        assert!(error.contains("journal.2 is damaged at byte 16"), "{error}");
        let aside = put_aside(folder.path(), "unreadable").unwrap().unwrap();
        assert_eq!(names(&aside), ["journal.1", "journal.2", "journal.3"]);
        assert_eq!(read(folder.path()), Sums::default());
    }
}
