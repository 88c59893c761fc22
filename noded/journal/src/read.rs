//! Reading a journal record by record. The daemons read theirs with this at their start, and `garrick journal` reads any.

use crate::{
    JournalError,
    form::{HEAD_BYTES, HEADER_BYTES, MAGIC, MAX_RECORD_BYTES, READ_BYTES, VERSION, find_records, header},
};
use serde::de::DeserializeOwned;
use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

/// Deepest nesting of what a record holds. What a daemon writes came in frames, which are no deeper.
const MAX_DEPTH: usize = 80;

/// Reads the records of one journal in order and changes nothing. Holds one record at a time.
///
/// The end is where it was when reading began: what a daemon appends meanwhile is not looked at, and a record that it is
/// just writing looks like a torn one.
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
    has_header: bool,
    /// Nothing more is read: the end, or an error.
    over: bool,
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
    after: u64,
    path: &'a Path,
}

impl Record<'_> {
    /// Bytes that it takes in the file.
    pub const fn bytes(&self) -> u64 {
        (HEAD_BYTES + self.payload.len()) as u64
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

impl<R: Read> Reader<R> {
    /// Reads the header of a journal of that length. `path` is for errors.
    pub fn new(mut input: R, path: &Path, length: u64) -> Result<Self, JournalError> {
        let mut head = Vec::with_capacity(HEADER_BYTES);
        read_up_to(&mut input, HEADER_BYTES, &mut head).map_err(|e| JournalError::io("read", path, &e))?;
        let foreign = |what: String| JournalError::Foreign { path: path.to_owned(), what };
        // A crash while creating the file leaves a prefix of the header and nothing that was promised.
        let has_header = head.len() == HEADER_BYTES;
        if !has_header && !header().starts_with(&head) {
            return Err(foreign(format!("it has no header, but {} bytes: \"{}\"", head.len(), head.escape_ascii())));
        }
        if has_header && &head[..8] != MAGIC {
            return Err(foreign(format!("it begins with \"{}\"", head[..8].escape_ascii())));
        }
        if has_header && head[8] != VERSION {
            return Err(foreign(format!("its version is {}, this program's is {VERSION}", head[8])));
        }
        let at = head.len() as u64;
        let (path, end) = (path.to_owned(), length.max(at));
        Ok(Self {
            input,
            path,
            end,
            at,
            number: 0,
            payload: Vec::new(),
            version: VERSION,
            has_header,
            over: !has_header,
        })
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

    /// The next record; `None` after the last whole one. Nothing comes after an error.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, JournalError> {
        if self.over {
            return Ok(None);
        }
        // Until it is known that there is another one.
        self.over = true;
        let left = self.end - self.at;
        if left < HEAD_BYTES as u64 || !self.fill(0, HEAD_BYTES)? {
            return Ok(None);
        }
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| self.payload[at + n]));
        let (length, checksum) = (word(0), word(4));
        let left = left - HEAD_BYTES as u64;
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
        if !self.fill(HEAD_BYTES, length as usize)? {
            return Ok(None);
        }
        let after = left - u64::from(length);
        if crc32c::crc32c(&self.payload) != checksum {
            return self.bad("its checksum does not match".into(), after);
        }
        let (offset, number) = (self.at, self.number);
        self.over = false;
        self.at += HEAD_BYTES as u64 + u64::from(length);
        self.number += 1;
        Ok(Some(Record { offset, number, payload: &self.payload, after, path: &self.path }))
    }

    /// No record is empty. Zeros up to the end are what a file system may leave of an append that a crash cut short.
    fn nothing(&mut self, left: u64) -> Result<Option<Record<'_>>, JournalError> {
        let mut zeros = self.payload.iter().all(|byte| *byte == 0);
        let mut unread = left;
        while zeros && unread > 0 {
            let part = unread.min(READ_BYTES as u64);
            if !self.fill(HEAD_BYTES + (left - unread) as usize, part as usize)? {
                return Ok(None);
            }
            zeros = self.payload.iter().all(|byte| *byte == 0);
            unread -= part;
        }
        if zeros { Ok(None) } else { self.bad("a length of 0 bytes".into(), left) }
    }

    /// A record that says that it is longer than the file: the torn end, unless its length is what is wrong.
    fn too_long(&mut self, length: u32, left: u64) -> Result<Option<Record<'_>>, JournalError> {
        if !self.fill(HEAD_BYTES, left as usize)? {
            return Ok(None);
        }
        match find_records(&self.payload) {
            None => Ok(None),
            Some(at) => {
                let at = self.at + (HEAD_BYTES + at) as u64;
                let what =
                    format!("a length of {length} bytes, more than there are, and whole records follow at byte {at}");
                self.bad(what, left)
            }
        }
    }

    /// A record that is wrong: the torn end if nothing follows, else damage.
    fn bad(&self, what: String, after: u64) -> Result<Option<Record<'_>>, JournalError> {
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
