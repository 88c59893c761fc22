//! The controller's journal as a series of files in one folder, so that its length stays bounded while it is written:
//!
//! | file | holds |
//! |---|---|
//! | `journal` | the latest records; the only file that is written to |
//! | `journal.N` | earlier records, closed as the N-th file |
//! | `snapshot.N` | the shortest journal that is equivalent to all files up to `journal.N` |
//!
//! It is read in this order: the newest snapshot, the closed files after it, `journal`. When `journal` exceeds a limit, its
//! writer closes it and begins a new one, and a thread writes the next snapshot from the state at that point ([`Standing`]):
//! nothing waits for it. The previous snapshot and its files stay until the one after next is made, as a fallback. Closed files
//! also stay for registered followers that have not read them yet.

use crate::journal::{Begun, segments::Segments};
use garrick_journal::{Form, Journal, JournalError, Late, Reader, VERSION, open_after, replace_as, sync_parent};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

/// What records come to, and the shortest sequence of records that comes to the same.
pub trait Fold: Clone + Default + Send + 'static {
    /// A record.
    type Record: Serialize + DeserializeOwned + Send + 'static;
    /// A record that does not fit those before it.
    type Error: From<JournalError> + std::fmt::Display;
    /// Takes one more record in.
    fn fold(&mut self, record: Self::Record) -> Result<(), Self::Error>;
    /// What a writer of that epoch writes first.
    fn began(epoch: u64) -> Self::Record;
    /// The shortest sequence.
    fn shortest(self) -> impl Iterator<Item = Self::Record>;
    /// Position of the last event.
    fn position(&self) -> u64 {
        0
    }
    /// What the next file begins with: it says the position.
    fn head(&self) -> Option<Self::Record> {
        None
    }
    /// The position that a record says which stands first in a file.
    fn says_position(_: &Self::Record) -> Option<u64> {
        None
    }
    /// Of those who follow by name the one that is the furthest behind, and up to which position it has dealt with all.
    fn slowest(&self) -> Option<(String, u64)> {
        None
    }
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
    fn to_read(&self, folder: &Path) -> Result<Vec<(u64, &PathBuf)>, JournalError> {
        let (mut last, mut files) = match self.snapshots.last_key_value() {
            Some((number, path)) => (*number, vec![(*number, path)]),
            None => (0, Vec::new()),
        };
        for (number, path) in self.closed.range(last + 1..) {
            if *number != last + 1 {
                let missing = folder.join(format!("journal.{}", last + 1));
                return Err(JournalError::Missing { path: missing, next: path.clone() });
            }
            last = *number;
            files.push((*number, path));
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
    /// Highest epoch of its records.
    pub epoch: u64,
    /// What writers appended that had been fenced.
    pub late: Late,
    /// Where positions are.
    pub segments: Arc<Segments>,
    /// `journal` says itself where it begins; in a file of an earlier version nothing does.
    says_position: bool,
    version: u8,
    /// Bytes of `journal` that were read.
    end: u64,
}

impl From<Series> for Begun {
    fn from(series: Series) -> Self {
        Self { file: series.file, end: series.end, epoch: series.epoch }
    }
}

/// What closed files said besides.
#[derive(Debug, Default)]
struct Closed {
    epoch: u64,
    late: Late,
}

impl Series {
    /// Takes an epoch, `least` or one above all that were read, and writes that down before anything else. What an earlier
    /// writer appended between the reading and that counts and is folded in; what it appends from then on does not, to whichever
    /// file. Returns the epoch.
    ///
    /// # Errors
    /// Also when another writer took that epoch or a higher one meanwhile: then this one must not answer anybody.
    pub fn begin<F: Fold>(&mut self, folder: &Path, state: &mut F, least: u64) -> Result<u64, F::Error> {
        // A file has records of one version.
        if self.version != VERSION
            && let Err(why) = self.leave_behind(folder, state)
        {
            if self.version != VERSION {
                return Err(JournalError::Closed { path: path(folder), cause: why }.into());
            }
            tracing::error!(why, "no snapshot of the journal was made; its files stay");
        }
        let path = path(folder);
        let epoch = least.max(self.epoch + 1);
        let mut seal = Vec::new();
        // The first file of all.
        let head = if self.end == Form::Epoch(epoch).header().len() as u64 { state.head() } else { None };
        let own = 1 + usize::from(head.is_some());
        self.says_position |= head.is_some();
        for record in head.into_iter().chain([F::began(epoch)]) {
            Form::Epoch(epoch).frame(&path, &record, &mut seal)?;
        }
        self.file.write_all(&seal).map_err(|e| JournalError::io("write", &path, &e))?;
        self.file.sync_data().map_err(|e| JournalError::io("sync", &path, &e))?;
        let mut reader = Reader::behind(&self.file, &path, self.end)?.after_epoch(self.epoch);
        let mut begun = 0;
        while let Some(record) = reader.next_record()? {
            begun += usize::from(record.epoch >= epoch);
            state.fold(record.decode()?)?;
        }
        if begun != own || reader.epoch() != epoch || reader.torn_bytes() > 0 {
            let cause = format!("another writer began epoch {} while this one began {epoch}", reader.epoch());
            return Err(JournalError::Closed { path, cause }.into());
        }
        self.late.add(reader.late());
        (self.epoch, self.end) = (epoch, reader.position());
        Ok(epoch)
    }

    /// Goes on in a new `journal` behind whoever may still have this one open and append to it, and puts all that the closed files
    /// say into a snapshot. On an error they stay as they are.
    pub fn leave_behind<F: Fold>(&mut self, folder: &Path, state: &F) -> Result<(), String> {
        let standing = Standing::of(state.clone(), folder, self.epoch).map_err(|e| e.to_string())?;
        let (number, journal) = close(folder, &standing, &self.segments).map_err(|e| e.to_string())?;
        (self.file, self.version, self.end) = (journal.file, journal.version, journal.end);
        self.says_position = !standing.head.is_empty();
        (self.snapshot, self.unfolded) = (make_snapshot(folder, number, standing, &self.segments)?, 0);
        Ok(())
    }

    /// Nobody can follow what an earlier version wrote once this `journal` is closed, unless that is done now.
    pub const fn says_position(&self) -> bool {
        self.says_position
    }
}

/// Writes a snapshot in that place. Returns its length in bytes.
type Write = Box<dyn FnOnce(&Path) -> Result<u64, JournalError> + Send>;

/// What all records of a series come to at a place between two of them.
pub struct Standing {
    /// Position of the last event.
    position: u64,
    /// What the next file begins with, as bytes.
    head: Vec<u8>,
    /// See [`Fold::slowest`].
    slowest: Option<(String, u64)>,
    write: Write,
}

impl Standing {
    /// As that value has it, for the series in that folder. What is written bears that epoch: a start from the snapshot alone knows it.
    pub fn of<F: Fold>(state: F, folder: &Path, epoch: u64) -> Result<Self, JournalError> {
        let (position, slowest) = (state.position(), state.slowest());
        let (form, mut head) = (Form::Epoch(epoch), Vec::new());
        if let Some(record) = state.head() {
            form.frame(&path(folder), &record, &mut head)?;
        }
        let write: Write = Box::new(move |snapshot| replace_as(snapshot, form, state.shortest()));
        Ok(Self { position, head, slowest, write })
    }
}

/// `StateSaveLocation/journal`, and its relatives.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("journal")
}

/// Reads a series back. A torn last record of `journal` is cut off on disk; the other files have been closed whole.
pub fn open<F: Fold>(folder: &Path, state: &mut F) -> Result<Series, F::Error> {
    let files = Files::find(folder)?;
    let segments = Arc::new(Segments::new(folder));
    let (mut unfolded, mut snapshot) = (0, 0);
    let mut closed = Closed::default();
    for (number, path) in files.to_read(folder)? {
        let counted = state.position();
        let (length, said) = read_closed(path, state, &mut closed)?;
        if files.snapshots.get(&number) == Some(path) {
            snapshot = length;
        } else {
            segments.add(Some(number), counted, said);
            unfolded += length;
        }
    }
    let path = path(folder);
    let (counted, mut said, mut first) = (state.position(), None, true);
    let journal = open_after(&path, closed.epoch, |record| {
        if std::mem::take(&mut first) {
            said = F::says_position(&record);
        }
        state.fold(record)
    })?;
    segments.add(None, counted, said);
    let since = files.snapshots.last_key_value().map_or(0, |(number, _)| *number);
    for (number, path) in files.closed.range(..=since).rev() {
        // Kept as a way back, or for somebody who has not read them. Nothing of them is needed to go on: what cannot be read counts
        // as purged, and so does what is older.
        let head = match read_head::<F>(path) {
            Ok(head) => head,
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "a closed file that is in a snapshot cannot be read");
                break;
            }
        };
        if !head.is_some_and(|before| segments.add_older(*number, before)) {
            break;
        }
    }
    let Journal { file, version, torn_bytes, end, epoch, late: last } = journal;
    unfolded += end;
    let mut late = closed.late;
    late.add(&last);
    let says_position = said.is_some();
    Ok(Series { file, torn_bytes, unfolded, snapshot, epoch, late, segments, says_position, version, end })
}

/// The position that a file says it begins behind.
fn read_head<F: Fold>(path: &Path) -> Result<Option<u64>, F::Error> {
    let mut reader = Reader::open(path)?;
    let Some(record) = reader.next_record()? else { return Ok(None) };
    Ok(F::says_position(&record.decode()?))
}

/// Reads a file that nobody appends to any more. Returns its length, and the position that it says it begins behind.
fn read_closed<F: Fold>(path: &Path, state: &mut F, closed: &mut Closed) -> Result<(u64, Option<u64>), F::Error> {
    let mut reader = Reader::open(path)?.after_epoch(closed.epoch);
    let (mut said, mut first) = (None, true);
    while let Some(record) = reader.next_record()? {
        let record = record.decode()?;
        if std::mem::take(&mut first) {
            said = F::says_position(&record);
        }
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
    closed.epoch = reader.epoch();
    closed.late.add(reader.late());
    Ok((reader.length(), said))
}

/// Closes `journal`, which is on disk as a whole, and begins a new one. Returns the number of the closed one. On an error the
/// journal goes on as it is.
fn close(folder: &Path, at: &Standing, segments: &Segments) -> Result<(u64, Journal), JournalError> {
    let (path, next) = (path(folder), folder.join("journal.next"));
    let number = Files::find(folder)?.last() + 1;
    let _ = fs::remove_file(&next);
    let mut journal = open_after(&next, 0, |()| Ok::<_, JournalError>(()))?;
    if !at.head.is_empty() {
        journal.file.write_all(&at.head).map_err(|e| JournalError::io("write", &next, &e))?;
        journal.file.sync_data().map_err(|e| JournalError::io("sync", &next, &e))?;
        journal.end += at.head.len() as u64;
    }
    let closed = folder.join(format!("journal.{number}"));
    segments.close(number, at.position, || {
        fs::rename(&path, &closed).map_err(|e| JournalError::io("close", &path, &e))?;
        if let Err(e) = fs::rename(&next, &path) {
            // Back to how it was: what is appended must be where it is looked for.
            fs::rename(&closed, &path).map_err(|e| JournalError::io("reopen", &closed, &e))?;
            return Err(JournalError::io("begin", &path, &e));
        }
        Ok(())
    })?;
    sync_parent(&path)?;
    Ok((number, journal))
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

/// Says what stands, when all that was appended has been answered.
pub type Close = Box<dyn FnMut() -> Result<Standing, String> + Send>;

/// Makes snapshots in threads of their own, one at a time. Held by the writer.
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
    segments: Arc<Segments>,
    standing: Close,
}

impl Shortener {
    /// For a series that was just read back. `floor`: bytes appended between two snapshots at least; a snapshot is also not
    /// made before as much was appended as the last one holds, so that writing them never costs more than the journal does.
    pub fn new(folder: &Path, floor: u64, opened: &Series, standing: Close) -> Self {
        Self {
            folder: folder.to_owned(),
            floor,
            unfolded: opened.unfolded,
            snapshot: Arc::new(AtomicU64::new(opened.snapshot)),
            work: None,
            segments: Arc::clone(&opened.segments),
            standing,
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
    pub fn close(&mut self) -> Result<File, String> {
        self.unfolded = 0;
        let standing = (self.standing)()?;
        let (number, journal) = close(&self.folder, &standing, &self.segments).map_err(|e| e.to_string())?;
        let (folder, snapshot) = (self.folder.clone(), Arc::clone(&self.snapshot));
        let segments = Arc::clone(&self.segments);
        let work = move || match make_snapshot(&folder, number, standing, &segments) {
            Ok(bytes) => snapshot.store(bytes, Ordering::Relaxed),
            Err(error) => tracing::error!(error, "no snapshot of the journal was made; its files stay"),
        };
        match std::thread::Builder::new().name("snapshot".into()).spawn(work) {
            Ok(work) => self.work = Some(work),
            Err(e) => tracing::error!(error = %e, "no snapshot of the journal was made; its files stay"),
        }
        Ok(journal.file)
    }
}

impl Drop for Shortener {
    fn drop(&mut self) {
        // A snapshot that is being made is made: whoever opens the series next finds its files at rest. A panic was told.
        let _ = self.work.take().map(JoinHandle::join);
    }
}

/// Makes `snapshot.N` of what stood when `journal.N` was closed, and removes what it and the one before it make superfluous, but for
/// what somebody has still to read. Returns its length in bytes.
fn make_snapshot(folder: &Path, number: u64, at: Standing, segments: &Segments) -> Result<u64, String> {
    let Standing { slowest, write, .. } = at;
    let path = folder.join(format!("snapshot.{number}"));
    let bytes = write(&path).map_err(|e| e.to_string())?;
    let mut files = Files::find(folder).map_err(|e| e.to_string())?;
    files.snapshots.remove(&number);
    let before = files.snapshots.last_key_value().map_or(0, |(number, _)| *number);
    let unlink = |path: &PathBuf| fs::remove_file(path).map_err(|e| format!("cannot remove {}: {e}", path.display()));
    files.snapshots.range(..before).try_for_each(|(_, path)| unlink(path))?;
    let old: Vec<u64> = files.closed.range(..=before).map(|(number, _)| *number).collect();
    let superfluous = match &slowest {
        None => old.clone(),
        Some((_, upto)) => segments.upto(*upto, old.iter().copied()),
    };
    if let Some((follower, upto)) = slowest.filter(|_| superfluous.len() < old.len()) {
        let files = old.len() - superfluous.len();
        tracing::warn!(follower, upto, files, "files of the journal stay for a follower that is behind");
    }
    for number in superfluous {
        segments.remove(number, || files.closed.get(&number).map_or(Ok(()), unlink))?;
    }
    tracing::info!(file = %path.display(), bytes, "the journal was shortened");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::journal::JournalWriter;
    use garrick_journal::replace;
    use garrick_kernel::scratch::Scratch;
    use std::sync::{Mutex, mpsc::channel};

    /// Sums by key: the shortest form has one record for each.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    struct Sums(BTreeMap<u8, u64>);

    impl Fold for Sums {
        type Record = (u8, u64);
        type Error = JournalError;

        fn fold(&mut self, (key, value): Self::Record) -> Result<(), JournalError> {
            *self.0.entry(key).or_default() += value;
            Ok(())
        }

        fn began(_: u64) -> Self::Record {
            (0, 0)
        }

        fn shortest(self) -> impl Iterator<Item = Self::Record> {
            self.0.into_iter()
        }
    }

    fn start(
        folder: &Path,
        series: Series,
        shortener: Option<Shortener>,
    ) -> (JournalWriter<(u8, u64)>, JoinHandle<()>) {
        JournalWriter::start(&path(folder), series.into(), shortener, Box::new(|| Ok(()))).unwrap()
    }

    /// Read back and begun.
    fn begin(folder: &Path) -> (Series, Sums) {
        let mut sums = Sums::default();
        let mut series = open(folder, &mut sums).unwrap();
        series.begin(folder, &mut sums, 0).unwrap();
        (series, sums)
    }

    fn put_late(file: &mut File, epoch: u64, record: (u8, u64)) {
        let mut bytes = Vec::new();
        Form::Epoch(epoch).frame(Path::new("late"), &record, &mut bytes).unwrap();
        file.write_all(&bytes).unwrap();
    }

    /// What its writer answers.
    fn answer(writer: &JournalWriter<(u8, u64)>, record: (u8, u64)) -> Result<(), String> {
        let (tell, told) = channel();
        writer.append(&[record], Box::new(move |outcome| tell.send(outcome).unwrap()));
        told.recv().unwrap().map_err(|e| e.to_string())
    }

    /// Without locks, as on a folder that two hosts mount: the newer one goes on in the same file.
    #[test]
    fn what_a_fenced_writer_appends_to_the_live_file_is_read_by_nobody_and_it_acknowledges_nothing() {
        let dir = Scratch::new("fenced-live");
        let (older, _) = begin(dir.path());
        let (mut late, epoch) = (older.file.try_clone().unwrap(), older.epoch);
        let (writer, thread) = start(dir.path(), older, None);
        answer(&writer, (1, 1)).unwrap();
        let mut sums = Sums::default();
        let mut newer = open(dir.path(), &mut sums).unwrap();
        // After the newer one has read and before it began: it was acknowledged, and counts.
        answer(&writer, (1, 10)).unwrap();
        assert_eq!(newer.begin(dir.path(), &mut sums, 0).unwrap(), epoch + 1);
        assert_eq!(sums.0[&1], 11);
        let said = answer(&writer, (1, 100)).unwrap_err();
        assert!(said.contains(&format!("a writer of epoch {} is at it", epoch + 1)), "{said}");
        assert!(!crate::journal::failure_mark(&path(dir.path())).exists(), "the folder is the newer one's");
        drop(writer);
        thread.join().unwrap();
        // As one that had looked just before the newer one began.
        put_late(&mut late, epoch, (1, 1000));
        let (writer, thread) = start(dir.path(), newer, None);
        answer(&writer, (1, 10_000)).unwrap();
        put_late(&mut late, epoch, (1, 100_000));
        answer(&writer, (2, 2)).unwrap();
        drop(writer);
        thread.join().unwrap();
        let mut again = Sums::default();
        let opened = open(dir.path(), &mut again).unwrap();
        assert_eq!((again.0[&1], again.0[&2], opened.epoch, opened.late.records), (10_011, 2, epoch + 1, 2));
        let first = opened.late.first.unwrap();
        assert_eq!((first.epoch, first.highest), (epoch, epoch + 1));
    }

    /// Also where the snapshot that was made of it is given up.
    #[test]
    fn what_a_fenced_writer_appends_to_a_closed_file_is_read_by_nobody_and_it_acknowledges_nothing() {
        let dir = Scratch::new("fenced-closed");
        let (older, _) = begin(dir.path());
        let (mut late, epoch) = (older.file.try_clone().unwrap(), older.epoch);
        let (writer, thread) = start(dir.path(), older, None);
        answer(&writer, (1, 1)).unwrap();
        let (mut newer, sums) = begin(dir.path());
        newer.leave_behind(dir.path(), &sums).unwrap();
        assert_eq!(names(dir.path()), ["journal", "journal.1", "snapshot.1"]);
        let said = answer(&writer, (1, 10)).unwrap_err();
        assert!(said.contains("it is no longer the file of that name"), "{said}");
        drop(writer);
        thread.join().unwrap();
        put_late(&mut late, epoch, (1, 100));
        let whole = read(dir.path());
        assert_eq!(whole.0[&1], 1);
        fs::remove_file(dir.path().join("snapshot.1")).unwrap();
        assert_eq!(read(dir.path()), whole);
        let mut again = Sums::default();
        assert_eq!(open(dir.path(), &mut again).unwrap().late.records, 1);
    }

    #[test]
    fn whoever_begins_while_another_one_does_stops() {
        let dir = Scratch::new("begun-twice");
        let mut sums = Sums::default();
        let mut one = open(dir.path(), &mut sums).unwrap();
        let mut two = open(dir.path(), &mut sums).unwrap();
        assert_eq!(one.begin(dir.path(), &mut sums, 0).unwrap(), 1);
        for least in [0, 1] {
            let said = two.begin(dir.path(), &mut sums, least).unwrap_err().to_string();
            assert!(said.contains("another writer began epoch 1 while this one began 1"), "{said}");
        }
        // The first finds that, too: nobody knows which of them a client spoke to.
        let (writer, thread) = start(dir.path(), one, None);
        put_late(&mut two.file, 1, (1, 1));
        answer(&writer, (1, 1)).unwrap_err();
        drop(writer);
        thread.join().unwrap();
    }

    #[test]
    fn a_writer_whose_file_somebody_cut_or_left_torn_stops() {
        let dir = Scratch::new("cut-by-another");
        for (change, expected) in [("cut", "it was cut"), ("torn", "a record of another writer in it is not whole")] {
            let (series, _) = begin(dir.path());
            let mut other = series.file.try_clone().unwrap();
            let (writer, thread) = start(dir.path(), series, None);
            answer(&writer, (1, 1)).unwrap();
            match change {
                "cut" => other.set_len(other.metadata().unwrap().len() - 1).unwrap(),
                _ => other.write_all(b"torn").unwrap(),
            }
            let said = answer(&writer, (1, 1)).unwrap_err();
            assert!(said.contains(expected), "{said}");
            drop(writer);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_file_of_version_1_is_closed_and_gone_on_from_in_another() {
        let dir = Scratch::new("version-1");
        replace(&path(dir.path()), [(1_u8, 1_u64)]).unwrap();
        let before = fs::read(path(dir.path())).unwrap();
        let mut sums = Sums::default();
        let mut opened = open(dir.path(), &mut sums).unwrap();
        assert_eq!(opened.begin(dir.path(), &mut sums, 7).unwrap(), 7);
        assert_eq!(fs::read(dir.path().join("journal.1")).unwrap(), before);
        assert_eq!(Reader::open(&path(dir.path())).unwrap().version(), VERSION);
        put_late(&mut opened.file, 7, (1, 2));
        assert_eq!(read(dir.path()).0[&1], 3);
    }

    #[test]
    fn a_start_from_the_snapshot_alone_knows_the_epoch() {
        let dir = Scratch::new("snapshot-epoch");
        let mut sums = Sums::default();
        let mut opened = open(dir.path(), &mut sums).unwrap();
        opened.begin(dir.path(), &mut sums, 42).unwrap();
        opened.leave_behind(dir.path(), &sums).unwrap();
        fs::remove_file(dir.path().join("journal.1")).unwrap();
        assert_eq!(open(dir.path(), &mut Sums::default()).unwrap().epoch, 42);
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
        let (opened, sums) = begin(folder);
        // Advanced as its records are answered.
        let (epoch, path, sums) = (opened.epoch, folder.to_owned(), Arc::new(Mutex::new(sums)));
        let stands = Arc::clone(&sums);
        let standing =
            move || Standing::of(stands.lock().unwrap().clone(), &path, epoch).map_err(|e: JournalError| e.to_string());
        let shortener = Shortener::new(folder, floor, &opened, Box::new(standing));
        let (writer, thread) = start(folder, opened, Some(shortener));
        let (tell, told) = channel();
        for number in 0..records {
            let (tell, sums, record) = (tell.clone(), Arc::clone(&sums), ((number % 4) as u8, number));
            let done = move |outcome: Result<(), JournalError>| {
                sums.lock().unwrap().fold(record).unwrap();
                tell.send(outcome).unwrap();
            };
            writer.append(&[record], Box::new(done));
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
        let snapshot = |number, sums: &Sums| {
            let standing = Standing::of(sums.clone(), folder.path(), 1).unwrap();
            make_snapshot(folder.path(), number, standing, &Segments::new(folder.path())).unwrap();
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
        snapshot(1, &whole);
        assert_eq!(names(folder.path()), ["journal", "journal.1", "journal.next", "snapshot.1"]);
        assert_eq!(read(folder.path()), whole);
        // The next closed file, before its snapshot.
        put("journal.2", &[(1, 1)]);
        assert_eq!(read(folder.path()).0, BTreeMap::from([(1, 2), (2, 2)]));
        snapshot(2, &read(folder.path()));
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
