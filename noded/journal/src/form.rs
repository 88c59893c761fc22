//! The form of the file: header and records.

use crate::JournalError;
use serde::Serialize;
use std::path::Path;

/// Version of the record form, in the header.
pub const VERSION: u8 = 1;
pub(crate) const MAGIC: &[u8; 8] = b"GARRICKJ";
pub(crate) const HEADER_BYTES: usize = 16;
/// Length and checksum before a payload.
pub(crate) const HEAD_BYTES: usize = 8;
/// A record holds at most one submitted job with its script and environment; the door refuses larger ones (16 MiB).
pub(crate) const MAX_RECORD_BYTES: usize = 32 << 20;
/// Read from the file at a time.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// What every journal begins with.
pub fn header() -> [u8; HEADER_BYTES] {
    let mut h = [0u8; HEADER_BYTES];
    h[..8].copy_from_slice(MAGIC);
    h[8] = VERSION;
    h
}

/// Appends one record to `out`, encoded, with its length and checksum. `path` is for the error.
pub fn frame<T: Serialize>(path: &Path, record: &T, out: &mut Vec<u8>) -> Result<(), JournalError> {
    let payload = rmp_serde::to_vec_named(record)
        .map_err(|e| JournalError::Record { path: path.to_owned(), what: e.to_string() })?;
    if payload.len() > MAX_RECORD_BYTES {
        return Err(JournalError::Record {
            path: path.to_owned(),
            what: format!("{} bytes, the limit is {MAX_RECORD_BYTES}", payload.len()),
        });
    }
    let len = u32::try_from(payload.len()).expect("checked against the limit above");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&crc32c::crc32c(&payload).to_be_bytes());
    out.extend_from_slice(&payload);
    Ok(())
}

/// Where in `bytes` records begin that are whole, have the right checksums and reach to the end of it. For finding out what
/// stands behind a length that is wrong. (One that only looks like a record, in the script of a job, does not reach there.)
pub(crate) fn find_records(bytes: &[u8]) -> Option<usize> {
    // Lengths alone first: to follow them costs next to nothing, and by chance they hardly ever lead to the end.
    (0..bytes.len().saturating_sub(HEAD_BYTES)).find(|&at| {
        let rest = &bytes[at..];
        are_records(rest, |_, _| true) && are_records(rest, |payload, checksum| crc32c::crc32c(payload) == checksum)
    })
}

/// Whether records, all of them good, reach to the end.
fn are_records(mut bytes: &[u8], good: impl Fn(&[u8], u32) -> bool) -> bool {
    while let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) {
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| head[at + n]));
        match rest.split_at_checked(word(0) as usize) {
            Some((payload, after)) if !payload.is_empty() && good(payload, word(4)) => bytes = after,
            _ => return false,
        }
    }
    bytes.is_empty()
}
