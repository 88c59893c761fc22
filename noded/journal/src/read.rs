//! Reads a journal record by record. The daemons use it when they start, and `garrick journal` for any journal.

use crate::{
    JournalError,
    form::{HEADER_BYTES, Head, MAGIC, MAX_RECORD_BYTES, READ_BYTES, VERSION, find_records, head_bytes, header_of},
};
use serde::de::DeserializeOwned;
use std::{
    fs::File,
    io::{self, BufReader, Read},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// Deepest nesting of what a record holds. What a daemon writes came in frames, which are no deeper.
const MAX_DEPTH: usize = 80;

/// Reads the records of one journal in order and changes nothing. Holds one record at a time.
///
/// The end is fixed when reading begins: what a daemon appends meanwhile is not read, and a record that it is just writing looks
/// like a torn one.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    path: PathBuf,
    /// Where the file ends.
    end: u64,
    /// Where the next record begins.
    at: u64,
    /// Its number.
    number: u64,
    payload: Vec<u8>,
    version: u8,
    /// Highest epoch so far.
    epoch: u64,
    late: Late,
    has_header: bool,
    /// Nothing more is read: the end, or an error.
    over: bool,
}

/// Records of fenced writers, which do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// How many.
    pub records: u64,
    /// The first of them.
    pub first: Option<Fenced>,
}

impl Late {
    /// Adds those of what was read after it.
    pub fn add(&mut self, later: &Self) {
        self.records += later.records;
        self.first = self.first.take().or_else(|| later.first.clone());
    }
}

/// A record of a writer that had been fenced: one with a higher epoch had written before. It was never acknowledged, and it
/// is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The file.
    pub path: PathBuf,
    /// Where it begins.
    pub offset: u64,
    /// Of its writer.
    pub epoch: u64,
    /// The highest before it.
    pub highest: u64,
}

impl std::fmt::Display for Fenced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, offset, epoch, highest } = self;
        write!(
            f,
            "the record at byte {offset} of {} is of epoch {epoch}, and {highest} had begun: its writer was fenced, and it does \
             not count",
            path.display()
        )
    }
}

/// Where a record stands whose payload is at hand.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    number: u64,
    epoch: u64,
    highest: u64,
    after: u64,
}

/// A record whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its number, from 0.
    pub number: u64,
    /// What was written, encoded.
    pub payload: &'a [u8],
    /// Of its writer; in a file of version 1, which has none, the highest so far or 0.
    pub epoch: u64,
    /// The highest epoch of the records before it.
    pub highest: u64,
    head_bytes: usize,
    after: u64,
    path: &'a Path,
}

impl Record<'_> {
    /// Bytes that it takes in the file.
    pub const fn bytes(&self) -> u64 {
        (self.head_bytes + self.payload.len()) as u64
    }

    /// Its writer had been fenced, and it does not count.
    pub const fn is_fenced(&self) -> bool {
        self.epoch < self.highest
    }

    /// What was written. Bytes that are no `T` are damage: nothing else is written to a journal of such.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, JournalError> {
        let mut reader = rmp_serde::Deserializer::from_read_ref(self.payload);
        reader.set_max_depth(MAX_DEPTH);
        T::deserialize(&mut reader).map_err(|e| self.damaged(e.to_string()))
    }

    /// This record is not what it should be.
    pub fn damaged(&self, what: String) -> JournalError {
        JournalError::Damaged {
            path: self.path.to_owned(),
            offset: self.offset,
            record: self.number,
            after: self.after,
            what,
        }
    }
}

impl Reader<BufReader<File>> {
    /// Opens a journal for reading only.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        // Asked before opening, which waits for the other end of a pipe.
        let found = std::fs::metadata(path).map_err(|e| JournalError::io("open", path, &e))?;
        if !found.is_file() {
            let what = if found.is_dir() { "it is a folder" } else { "it is not a regular file" };
            return Err(JournalError::Foreign { path: path.to_owned(), what: what.into() });
        }
        let file = File::open(path).map_err(|e| JournalError::io("open", path, &e))?;
        let length = file.metadata().map_err(|e| JournalError::io("read", path, &e))?.len();
        Self::new(BufReader::with_capacity(READ_BYTES, file), path, length)
    }
}

/// A file that is open, from one of its bytes on.
#[derive(Debug)]
pub struct Rest<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Rest<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read_at(into, self.at)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}

impl<'a> Reader<BufReader<Rest<'a>>> {
    /// Reads what stands in a journal of the newest version that is open, behind its first `at` bytes. Another file may have its
    /// name by now; `path` is for errors.
    pub fn behind(file: &'a File, path: &Path, at: u64) -> Result<Self, JournalError> {
        Self::behind_in(file, path, at, VERSION)
    }

    /// The same in a journal of that version.
    pub fn behind_in(file: &'a File, path: &Path, at: u64, version: u8) -> Result<Self, JournalError> {
        let length = file.metadata().map_err(|e| JournalError::io("read", path, &e))?.len();
        Ok(Self::from(BufReader::new(Rest { file, at }), path, version, at, length))
    }

    /// Reads a journal that is open from its beginning, wherever its descriptor stands.
    pub fn whole(file: &'a File, path: &Path) -> Result<Self, JournalError> {
        let length = file.metadata().map_err(|e| JournalError::io("read", path, &e))?.len();
        Self::new(BufReader::with_capacity(READ_BYTES, Rest { file, at: 0 }), path, length)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header of a journal of that length. `path` is for errors.
    pub fn new(mut input: R, path: &Path, length: u64) -> Result<Self, JournalError> {
        let mut head = Vec::with_capacity(HEADER_BYTES);
        read_up_to(&mut input, HEADER_BYTES, &mut head).map_err(|e| JournalError::io("read", path, &e))?;
        let foreign = |what: String| JournalError::Foreign { path: path.to_owned(), what };
        // A crash while creating the file leaves a prefix of the header and nothing that was promised.
        let has_header = head.len() == HEADER_BYTES;
        if !has_header && !(1..=VERSION).any(|version| header_of(version).starts_with(&head)) {
            return Err(foreign(format!("it has no header, but {} bytes: \"{}\"", head.len(), head.escape_ascii())));
        }
        if has_header && &head[..8] != MAGIC {
            return Err(foreign(format!("it begins with \"{}\"", head[..8].escape_ascii())));
        }
        let version = if has_header { head[8] } else { VERSION };
        if !(1..=VERSION).contains(&version) {
            return Err(foreign(format!("its version is {version}, this program's is {VERSION}")));
        }
        let at = head.len() as u64;
        Ok(Self { has_header, over: !has_header, ..Self::from(input, path, version, at, length) })
    }

    fn from(input: R, path: &Path, version: u8, at: u64, length: u64) -> Self {
        Self {
            input,
            path: path.to_owned(),
            end: length.max(at),
            at,
            number: 0,
            payload: Vec::new(),
            version,
            epoch: 0,
            late: Late::default(),
            has_header: true,
            over: false,
        }
    }

    /// Reads as one that follows others, in which this was the highest epoch.
    #[must_use]
    pub const fn after_epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }

    /// Highest epoch so far; 0: none.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Those so far that do not count.
    pub const fn late(&self) -> &Late {
        &self.late
    }

    /// False for a file whose creation was cut short by a crash: it is empty or holds a part of the header.
    pub const fn has_header(&self) -> bool {
        self.has_header
    }

    /// Version of the file.
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// Where the next record begins; after the last one, where the next will be appended.
    pub const fn position(&self) -> u64 {
        self.at
    }

    /// Records so far.
    pub const fn records(&self) -> u64 {
        self.number
    }

    /// Length of the file when reading began.
    pub const fn length(&self) -> u64 {
        self.end
    }

    /// After the last record: bytes of a record that was not written whole. The next start of a daemon cuts them off.
    pub const fn torn_bytes(&self) -> u64 {
        self.end - self.at
    }

    /// The next record that counts; `None` after the last whole one. Nothing comes after an error. What a writer appended that
    /// had been fenced is passed over.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, JournalError> {
        loop {
            match self.advance()? {
                None => return Ok(None),
                Some(place) if place.epoch < place.highest => {}
                Some(place) => return Ok(Some(self.record(place))),
            }
        }
    }

    /// The same with what does not count ([`Record::is_fenced`]).
    pub fn next_written(&mut self) -> Result<Option<Record<'_>>, JournalError> {
        let place = self.advance()?;
        Ok(place.map(|place| self.record(place)))
    }

    fn record(&self, place: Place) -> Record<'_> {
        let Place { offset, number, epoch, highest, after } = place;
        let head_bytes = head_bytes(self.version);
        Record { offset, number, payload: &self.payload, epoch, highest, head_bytes, after, path: &self.path }
    }

    fn advance(&mut self) -> Result<Option<Place>, JournalError> {
        if self.over {
            return Ok(None);
        }
        // Until it is known that there is another one.
        self.over = true;
        let before = head_bytes(self.version);
        let left = self.end - self.at;
        if left < before as u64 || !self.fill(0, before)? {
            return Ok(None);
        }
        let head = Head::read(self.version, &self.payload);
        let length = head.length;
        let left = left - before as u64;
        if length as usize > MAX_RECORD_BYTES {
            // The length itself is not to be believed, so neither is where the next record would begin.
            return self.bad(format!("a length of {length} bytes"), left);
        }
        if length == 0 {
            return self.nothing(left);
        }
        if left < u64::from(length) {
            return self.too_long(length, left);
        }
        if !self.fill(before, length as usize)? {
            return Ok(None);
        }
        let after = left - u64::from(length);
        if !head.fits(&self.payload) {
            return self.bad("its checksum does not match".into(), after);
        }
        let (offset, number) = (self.at, self.number);
        let highest = self.epoch;
        // Those of version 1 say nothing against themselves, wherever they stand.
        let epoch = head.epoch.unwrap_or(highest);
        self.over = false;
        self.at += before as u64 + u64::from(length);
        self.number += 1;
        self.epoch = highest.max(epoch);
        if epoch < highest {
            self.late.records += 1;
            let path = &self.path;
            self.late.first.get_or_insert_with(|| Fenced { path: path.clone(), offset, epoch, highest });
        }
        Ok(Some(Place { offset, number, epoch, highest, after }))
    }

    /// No record is empty. Zeros up to the end are what a file system may leave of an append that a crash cut short.
    fn nothing(&mut self, left: u64) -> Result<Option<Place>, JournalError> {
        let mut zeros = self.payload.iter().all(|byte| *byte == 0);
        let mut unread = left;
        while zeros && unread > 0 {
            let part = unread.min(READ_BYTES as u64);
            if !self.fill(head_bytes(self.version) + (left - unread) as usize, part as usize)? {
                return Ok(None);
            }
            zeros = self.payload.iter().all(|byte| *byte == 0);
            unread -= part;
        }
        if zeros { Ok(None) } else { self.bad("a length of 0 bytes".into(), left) }
    }

    /// A record that says that it is longer than the file: the torn end, unless its length is what is wrong.
    fn too_long(&mut self, length: u32, left: u64) -> Result<Option<Place>, JournalError> {
        if !self.fill(head_bytes(self.version), left as usize)? {
            return Ok(None);
        }
        match find_records(self.version, &self.payload) {
            None => Ok(None),
            Some(at) => {
                let at = self.at + (head_bytes(self.version) + at) as u64;
                let what =
                    format!("a length of {length} bytes, more than there are, and whole records follow at byte {at}");
                self.bad(what, left)
            }
        }
    }

    /// A record that is wrong: the torn end if nothing follows, else damage.
    fn bad(&self, what: String, after: u64) -> Result<Option<Place>, JournalError> {
        if after == 0 {
            return Ok(None);
        }
        Err(JournalError::Damaged { path: self.path.clone(), offset: self.at, record: self.number, after, what })
    }

    /// Reads so many bytes, those that stand so far behind the record's beginning. False when the file ends before them: it
    /// was cut since its length was asked.
    fn fill(&mut self, behind: usize, bytes: usize) -> Result<bool, JournalError> {
        self.payload.clear();
        read_up_to(&mut self.input, bytes, &mut self.payload).map_err(|e| JournalError::io("read", &self.path, &e))?;
        let whole = self.payload.len() == bytes;
        if !whole {
            self.end = self.at + (behind + self.payload.len()) as u64;
        }
        Ok(whole)
    }
}

fn read_up_to(input: &mut impl Read, bytes: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    input.by_ref().take(bytes as u64).read_to_end(into)
}
