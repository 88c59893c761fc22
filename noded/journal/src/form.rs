//! The form of the file: header and records.

use crate::JournalError;
use serde::Serialize;
use std::path::Path;

/// Newest version of the record form: what controllers write. Those of earlier versions are read.
pub const VERSION: u8 = 2;
pub(crate) const MAGIC: &[u8; 8] = b"GARRICKJ";
pub(crate) const HEADER_BYTES: usize = 16;
/// A record holds at most one submitted job with its script and environment; the door refuses larger ones (16 MiB).
pub(crate) const MAX_RECORD_BYTES: usize = 32 << 20;
/// Read from the file at a time.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Version 1: length and checksum before the payload. For files that one host alone can write.
    Plain,
    /// Version 2: includes the writer's epoch. For files to which an earlier writer may still append without knowing that another
    /// took over.
    Epoch(u64),
}

impl Form {
    /// Version of a file of such records.
    pub const fn version(self) -> u8 {
        match self {
            Self::Plain => 1,
            Self::Epoch(_) => VERSION,
        }
    }

    /// What a file of such records begins with.
    pub fn header(self) -> [u8; HEADER_BYTES] {
        header_of(self.version())
    }

    /// Appends one record to `out`, encoded, with what stands before it. `path` is for the error.
    pub fn frame<T: Serialize>(self, path: &Path, record: &T, out: &mut Vec<u8>) -> Result<(), JournalError> {
        let payload = rmp_serde::to_vec_named(record)
            .map_err(|e| JournalError::Record { path: path.to_owned(), what: e.to_string() })?;
        if payload.len() > MAX_RECORD_BYTES {
            return Err(JournalError::Record {
                path: path.to_owned(),
                what: format!("{} bytes, the limit is {MAX_RECORD_BYTES}", payload.len()),
            });
        }
        let len = u32::try_from(payload.len()).expect("checked against the limit above");
        let epoch = match self {
            Self::Plain => None,
            Self::Epoch(epoch) => Some(epoch),
        };
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&checksum(epoch, &payload).to_be_bytes());
        if let Some(epoch) = epoch {
            out.extend_from_slice(&epoch.to_be_bytes());
        }
        out.extend_from_slice(&payload);
        Ok(())
    }
}

pub(crate) fn header_of(version: u8) -> [u8; HEADER_BYTES] {
    let mut h = [0u8; HEADER_BYTES];
    h[..8].copy_from_slice(MAGIC);
    h[8] = version;
    h
}

/// What stands before a payload in a file of that version.
pub(crate) const fn head_bytes(version: u8) -> usize {
    if version == 1 { 8 } else { 16 }
}

/// Over the epoch, where the version has one, and the payload.
pub(crate) fn checksum(epoch: Option<u64>, payload: &[u8]) -> u32 {
    match epoch {
        None => crc32c::crc32c(payload),
        Some(epoch) => crc32c::crc32c_append(crc32c::crc32c(&epoch.to_be_bytes()), payload),
    }
}

/// What every journal of version 1 begins with.
pub fn header() -> [u8; HEADER_BYTES] {
    Form::Plain.header()
}

/// Appends one record of version 1 to `out`. `path` is for the error.
pub fn frame<T: Serialize>(path: &Path, record: &T, out: &mut Vec<u8>) -> Result<(), JournalError> {
    Form::Plain.frame(path, record, out)
}

/// The head of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) length: u32,
    pub(crate) checksum: u32,
    /// Where the version has one.
    pub(crate) epoch: Option<u64>,
}

impl Head {
    /// From as many bytes as a head of that version has, or more.
    pub(crate) fn read(version: u8, bytes: &[u8]) -> Self {
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
        let epoch = (version > 1).then(|| u64::from(word(8)) << 32 | u64::from(word(12)));
        Self { length: word(0), checksum: word(4), epoch }
    }

    pub(crate) fn fits(&self, payload: &[u8]) -> bool {
        checksum(self.epoch, payload) == self.checksum
    }
}

/// Where in `bytes` records begin that are whole, have the right checksums and reach to the end of it. For finding out what
/// stands behind a length that is wrong. (One that only looks like a record, in the script of a job, does not reach there.)
pub(crate) fn find_records(version: u8, bytes: &[u8]) -> Option<usize> {
    // Lengths alone first: to follow them costs next to nothing, and by chance they hardly ever lead to the end.
    (0..bytes.len().saturating_sub(head_bytes(version))).find(|&at| {
        let rest = &bytes[at..];
        are_records(version, rest, |_, _| true) && are_records(version, rest, |payload, head| head.fits(payload))
    })
}

/// Whether records, all of them good, reach to the end.
fn are_records(version: u8, mut bytes: &[u8], good: impl Fn(&[u8], Head) -> bool) -> bool {
    while let Some((head, rest)) = bytes.split_at_checked(head_bytes(version)) {
        let head = Head::read(version, head);
        match rest.split_at_checked(head.length as usize) {
            Some((payload, after)) if !payload.is_empty() && good(payload, head) => bytes = after,
            _ => return false,
        }
    }
    bytes.is_empty()
}
