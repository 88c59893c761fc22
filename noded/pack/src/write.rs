//! Writes a pack: records are collected in memory until they fill a block, blocks are appended whole, and an existing file is
//! continued where its last whole block ends.

use crate::{
    Stream,
    block::{self, FILE_HEADER, FIRST, Kind, Mark, read_at},
    error::PackError,
    index::{self, Entry, Pending},
    lock::{self, Presence},
    record::{self, EndRecord, Group, MAX_OVERHEAD, TaskRun},
    tail,
};
use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    os::{fd::AsFd, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long a record waits at most for others that form a block with it. Followers of a file see events this much later, and a
/// job that writes a little all the time makes one block in each such time.
pub const FLUSH_AFTER: Duration = Duration::from_millis(500);
/// How long after a failed write [`PackWriter::due`] asks for the next try.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Bytes of records at which a block is full. LZ4 gains little from more, and a reader of one step reads a whole block.
const BLOCK: usize = 256 << 10;
/// Bytes of output in a record at most.
const PIECE: usize = 64 << 10;
/// Blocks, and bytes of entries, after which an index is written. Opening a file reads that many blocks at most.
const INDEX_BLOCKS: u32 = 64;
const INDEX_BYTES: usize = 256 << 10;

/// What could not be taken over, and what could.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct Refused {
    /// So many bytes were taken before: for another try, the rest is to be given.
    pub taken: u64,
    /// What went wrong.
    #[source]
    pub cause: PackError,
}

/// How far a file was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Offset in the file at which the next [`PackWriter::take_file`] goes on.
    pub next: u64,
    /// There is more: the call took as much as it was allowed to.
    pub more: bool,
}

/// The block that records gather in.
#[derive(Debug, Default)]
struct Filling {
    group: Option<Group>,
    raw: Vec<u8>,
    count: u32,
    marks: Vec<Mark>,
    since: Option<Instant>,
}

/// The writer of a pack. See the crate's text for how a launcher uses it.
///
/// Dropped without [`PackWriter::close`], it writes what it holds, but the file is not marked as closed.
#[derive(Debug)]
pub struct PackWriter {
    path: PathBuf,
    file: File,
    exclusive: bool,
    cut: u64,
    /// End of the last whole block, and of the file.
    end: u64,
    /// There is a piece of a block behind the end that could not be cut off yet.
    ragged: bool,
    closed: bool,
    filling: Filling,
    not_before: Option<Instant>,
    pending: Pending,
    last_index: u64,
    block: Vec<u8>,
    piece: Vec<u8>,
}

impl PackWriter {
    /// Opens a pack, or makes it with the process's rights and mask. A block at its end that is not whole is cut off.
    /// A file that is not a pack is left as it is, and so is one that another process writes.
    ///
    /// After a writer's death its lock may stand for an instant longer, in a child between fork and exec.
    pub fn open(path: &Path) -> Result<Self, PackError> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .custom_flags(libc::O_NOCTTY)
            .open(path)
            .map_err(PackError::file("cannot open", path))?;
        if !file.metadata().map_err(PackError::file("cannot stat", path))?.is_file() {
            return Err(PackError::NotAFile(path.to_owned()));
        }
        let exclusive = match lock::take(&file).map_err(PackError::file("cannot lock", path))? {
            Presence::Present => return Err(PackError::Locked(path.to_owned())),
            Presence::Absent => true,
            Presence::Unknown => false,
        };
        let mut writer = Self {
            path: path.to_owned(),
            file,
            exclusive,
            cut: 0,
            end: 0,
            ragged: false,
            closed: false,
            filling: Filling::default(),
            not_before: None,
            pending: Pending::from(FIRST),
            last_index: 0,
            block: Vec::new(),
            piece: Vec::new(),
        };
        writer.begin()?;
        Ok(writer)
    }

    /// How many bytes at the end of the file were cut off when it was opened: a block that a crash had left unfinished.
    pub fn cut_bytes(&self) -> u64 {
        self.cut
    }

    /// False on a file system without locks: there the caller ensures that there is only one writer.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// A piece of a task's output. Up to 64 KiB are taken whole or not at all.
    pub fn output(&mut self, task: &TaskRun, stream: Stream, bytes: &[u8], now: Instant) -> Result<(), Refused> {
        let mut taken = 0;
        for piece in bytes.chunks(PIECE) {
            self.room_for(task, piece.len(), now).map_err(|cause| Refused { taken, cause })?;
            record::put_output(&mut self.filling.raw, task, stream, piece);
            self.added(task, now);
            taken += piece.len() as u64;
        }
        Ok(())
    }

    /// Output that a task writes, or wrote, to a file: what stands there from an offset on, but not more than `most` bytes
    /// at a time, so that a huge output does not hold up everything else. The file's own position is not used or moved.
    pub fn take_file(
        &mut self,
        task: &TaskRun,
        stream: Stream,
        file: impl AsFd,
        from: u64,
        most: u64,
        now: Instant,
    ) -> Result<Taken, Refused> {
        let mut piece = std::mem::take(&mut self.piece);
        piece.resize(PIECE, 0);
        let mut taken = 0;
        let outcome = loop {
            let wanted = usize::try_from(most - taken).unwrap_or(PIECE).min(PIECE);
            if wanted == 0 {
                break Ok(Taken { next: from + taken, more: true });
            }
            let offset = i64::try_from(from + taken).unwrap_or(i64::MAX);
            let read = match nix::sys::uio::pread(file.as_fd(), &mut piece[..wanted], offset) {
                Err(nix::errno::Errno::EINTR) => continue,
                Err(errno) => {
                    let cause = PackError::file("cannot read a task's output for", &self.path)(errno.into());
                    break Err(Refused { taken, cause });
                }
                Ok(read) => read,
            };
            if let Err(refused) = self.output(task, stream, &piece[..read], now) {
                break Err(Refused { taken: taken + refused.taken, cause: refused.cause });
            }
            taken += read as u64;
            if read < wanted {
                break Ok(Taken { next: from + taken, more: false });
            }
        };
        self.piece = piece;
        outcome
    }

    /// How a task ended: its last record.
    pub fn end(&mut self, task: &TaskRun, end: &EndRecord, now: Instant) -> Result<(), PackError> {
        // Two bytes and five numbers of up to ten.
        self.room_for(task, 2 + 5 * 10, now)?;
        record::put_end(&mut self.filling.raw, task, end);
        self.added(task, now);
        Ok(())
    }

    /// When [`PackWriter::flush`] is to be called; `None` while nothing waits.
    pub fn due(&self) -> Option<Instant> {
        let due = self.filling.since? + FLUSH_AFTER;
        Some(self.not_before.map_or(due, |not_before| due.max(not_before)))
    }

    /// Writes the block that waits, full or not. When that fails, its records are kept for another try.
    pub fn flush(&mut self, now: Instant) -> Result<(), PackError> {
        let written = self.write_block();
        self.not_before = written.is_err().then(|| now + RETRY_AFTER);
        written
    }

    /// [`PackWriter::flush`], if it is due.
    pub fn flush_if_due(&mut self, now: Instant) -> Result<(), PackError> {
        if self.due().is_some_and(|due| due <= now) { self.flush(now) } else { Ok(()) }
    }

    /// Tasks of which records wait to be written: whose output is not in the file if the writer ends now.
    pub fn waiting(&self) -> Vec<TaskRun> {
        let Some(group) = self.filling.group else { return Vec::new() };
        let (mut tasks, mut at) = (Vec::new(), 0);
        while let Some(found) = record::find(&self.filling.raw, &mut at, group) {
            tasks.extend(found.map(|found| found.task));
        }
        tasks.sort_unstable();
        tasks.dedup();
        tasks
    }

    /// Writes everything, and marks the file as closed, so that followers stop. Writing may continue nevertheless. If it fails,
    /// it can be tried again.
    pub fn close(&mut self) -> Result<(), PackError> {
        self.write_block()?;
        if self.closed && self.pending.count() == 0 {
            return Ok(());
        }
        self.write_index(true, self.end)
    }

    /// Sees to it that there is room in the block for a record of that size, by writing the block if need be.
    fn room_for(&mut self, task: &TaskRun, bytes: usize, now: Instant) -> Result<(), PackError> {
        let group = Group::of(&task.step);
        let fits = self.filling.raw.len() + MAX_OVERHEAD + bytes <= BLOCK;
        if self.filling.count > 0 && !(fits && self.filling.group == Some(group)) {
            self.flush(now)?;
        }
        self.filling.group = Some(group);
        Ok(())
    }

    fn added(&mut self, task: &TaskRun, now: Instant) {
        let filling = &mut self.filling;
        let mark = Mark::of(task.step.key());
        if filling.marks.last() != Some(&mark) {
            filling.marks.push(mark);
        }
        filling.count += 1;
        filling.since.get_or_insert(now);
    }

    fn write_block(&mut self) -> Result<(), PackError> {
        if self.filling.count == 0 {
            return Ok(());
        }
        let Some(group) = self.filling.group else { return Ok(()) };
        if self.index_is_due() {
            self.write_index(false, self.end)?;
        }
        let spans = index::spans(&mut self.filling.marks);
        let marks = &self.filling.marks;
        let (first, last) = (marks.first().copied().unwrap_or_default(), marks.last().copied().unwrap_or_default());
        let kind = Kind::Records { group, first, last };
        let offset = self.end;
        block::build(&mut self.block, offset, kind, self.filling.count, self.last_index, &self.filling.raw);
        self.append()?;
        self.closed = false;
        self.pending.add(&Entry { offset, holds: Some((group, spans)) });
        self.filling.group = None;
        self.filling.raw.clear();
        self.filling.marks.clear();
        self.filling.count = 0;
        self.filling.since = None;
        Ok(())
    }

    fn index_is_due(&self) -> bool {
        self.pending.count() >= INDEX_BLOCKS || self.pending.len() >= INDEX_BYTES
    }

    /// Writes the entries that wait as an index of the file up to there.
    fn write_index(&mut self, closing: bool, to: u64) -> Result<(), PackError> {
        let offset = self.end;
        let kind = Kind::Index { closing };
        block::build(&mut self.block, offset, kind, self.pending.count(), self.last_index, &self.pending.payload(to));
        self.append()?;
        self.last_index = offset;
        self.pending = Pending::from(self.end);
        self.closed = closing;
        Ok(())
    }

    /// Appends the block that was built. When that fails, what was written of it is cut off again.
    fn append(&mut self) -> Result<(), PackError> {
        if self.ragged {
            self.file.set_len(self.end).map_err(PackError::file("cannot cut off", &self.path))?;
            self.ragged = false;
        }
        let found = self.file.metadata().map_err(PackError::file("cannot stat", &self.path))?.len();
        if found != self.end {
            return Err(PackError::Changed { path: self.path.clone(), expected: self.end, found });
        }
        if let Err(error) = self.file.write_all(&self.block) {
            self.ragged = self.file.set_len(self.end).is_err();
            return Err(PackError::file("cannot write", &self.path)(error));
        }
        self.end += self.block.len() as u64;
        Ok(())
    }

    /// Finds out how far the file is whole, and which of its blocks no index names yet.
    fn begin(&mut self) -> Result<(), PackError> {
        let length = self.file.metadata().map_err(PackError::file("cannot stat", &self.path))?.len();
        let mut header = [0; FILE_HEADER];
        let read = read_at(&self.file, &mut header, 0).map_err(PackError::file("cannot read", &self.path))?;
        if read < FILE_HEADER {
            if !block::file_header().starts_with(&header[..read]) {
                return Err(PackError::NotAPack(self.path.clone()));
            }
            self.cut = length;
            self.ragged = length > 0;
            self.block.clear();
            self.block.extend_from_slice(&block::file_header());
            return self.append();
        }
        block::check_file_header(&self.path, &header)?;
        self.mend(length)?;
        // Where the file has no index that can be found, a new one is made for all of it.
        let index = block::header_at(&self.file, self.last_index)
            .map_err(PackError::file("cannot read", &self.path))?
            .filter(|header| matches!(header.kind, Kind::Index { .. }));
        let from = index.map_or(FIRST, |header| header.end());
        self.last_index = index.map_or(0, |header| header.offset);
        self.pending = Pending::from(from);
        let end = self.end;
        self.index_again(from, end)
    }

    /// Cuts off what stands behind the last whole block.
    fn mend(&mut self, length: u64) -> Result<(), PackError> {
        let reading = || PackError::file("cannot read", &self.path);
        let (mut stored, mut raw) = (Vec::new(), Vec::new());
        let mut limit = length;
        self.end = FIRST;
        while let Some(header) = tail::last_before(&self.file, limit).map_err(reading())? {
            let whole = header.end() <= length
                && block::payload(&self.file, &header, &mut stored, &mut raw).map_err(reading())?.is_ok();
            if whole {
                self.end = header.end();
                self.closed = matches!(header.kind, Kind::Index { closing: true });
                let is_index = matches!(header.kind, Kind::Index { .. });
                self.last_index = if is_index { header.offset } else { header.index };
                break;
            }
            limit = header.offset;
        }
        self.cut = length - self.end;
        if self.cut > 0 {
            self.file.set_len(self.end).map_err(PackError::file("cannot cut off", &self.path))?;
        }
        Ok(())
    }

    /// Notes which steps are in the blocks of a part of the file.
    fn index_again(&mut self, mut at: u64, end: u64) -> Result<(), PackError> {
        let path = self.path.clone();
        let reading = || PackError::file("cannot read", &path);
        let (mut stored, mut raw) = (Vec::new(), Vec::new());
        while at < end {
            let header = block::header_at(&self.file, at).map_err(reading())?.filter(|header| header.end() <= end);
            let holds = match header.map(|header| (header, header.kind)) {
                Some((header, Kind::Records { group, .. })) => {
                    let read = block::payload(&self.file, &header, &mut stored, &mut raw).map_err(reading())?;
                    Some(read.ok().map(|()| (group, index::spans(&mut marks(&raw, group)))))
                }
                Some(_) => None,
                None => Some(None),
            };
            if let Some(holds) = holds {
                if self.index_is_due() {
                    self.write_index(false, at)?;
                    self.pending = Pending::from(at);
                }
                self.pending.add(&Entry { offset: at, holds });
            }
            at = match header {
                Some(header) => header.end(),
                None => tail::next_from(&self.file, at + 1, end).map_err(reading())?.map_or(end, |next| next.offset),
            };
        }
        Ok(())
    }
}

fn marks(raw: &[u8], group: Group) -> Vec<Mark> {
    let (mut marks, mut at) = (Vec::new(), 0);
    while let Some(found) = record::find(raw, &mut at, group) {
        marks.extend(found.map(|found| Mark::of(found.task.step.key())));
    }
    marks
}

impl Drop for PackWriter {
    fn drop(&mut self) {
        // No caller is left to get the error.
        let _ = self.write_block();
        if self.exclusive {
            lock::release(&self.file);
        }
    }
}
