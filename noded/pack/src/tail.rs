//! Finds block headers without reading a file from its beginning: the last one, and the next one after damage.

use crate::block::{BlockHeader, FIRST, HEADER, MARKER, header_in, read_at};
use std::{fs::File, io};

/// Bytes looked through at a time.
const WINDOW: u64 = 64 << 10;

/// The header that is nearest before `limit` and ends there at the latest. Its payload may go on behind.
pub(crate) fn last_before(file: &File, limit: u64) -> io::Result<Option<BlockHeader>> {
    let mut high = limit;
    while high > FIRST {
        let low = high.saturating_sub(WINDOW).max(FIRST);
        // A header that begins in this window may end in the one behind it.
        let bytes = window(file, low, (high + HEADER as u64 - 1).min(limit))?;
        let found = headers(&bytes, low).rfind(|header| header.offset < high);
        if found.is_some() {
            return Ok(found);
        }
        high = low;
    }
    Ok(None)
}

/// The nearest block from `from` on that is whole before `limit`.
pub(crate) fn next_from(file: &File, from: u64, limit: u64) -> io::Result<Option<BlockHeader>> {
    let mut low = from;
    while low < limit {
        let high = (low + WINDOW).min(limit);
        let bytes = window(file, low, (high + HEADER as u64 - 1).min(limit))?;
        let found = headers(&bytes, low).find(|header| header.end() <= limit);
        if found.is_some() {
            return Ok(found);
        }
        low = high;
    }
    Ok(None)
}

fn window(file: &File, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(usize::MAX)];
    let filled = read_at(file, &mut bytes, from)?;
    bytes.truncate(filled);
    Ok(bytes)
}

/// Headers in bytes that stand at an offset.
fn headers(bytes: &[u8], offset: u64) -> impl DoubleEndedIterator<Item = BlockHeader> {
    bytes
        .windows(MARKER.len())
        .enumerate()
        .filter(|(_, four)| **four == MARKER)
        .filter_map(move |(at, _)| header_in(&bytes[at..], offset + at as u64))
}
