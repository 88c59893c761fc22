//! The parts of a file: its header, and block headers with their payloads. The crate's documentation has the layout.

use crate::{VERSION, error::PackError, record::Group};
use garrick_model::ids::{JobId, StepKey};
use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// Bytes of the file header, and offset of the first block.
pub(crate) const FILE_HEADER: usize = 16;
pub(crate) const FIRST: u64 = FILE_HEADER as u64;
/// Bytes of a block header.
pub(crate) const HEADER: usize = 72;
/// Longest payload, unpacked or stored. A reader allocates no more than that, whatever a header says.
pub(crate) const MAX_PAYLOAD: usize = 1 << 20;

const MAGIC: [u8; 8] = *b"\x89GRKPK\r\n";
pub(crate) const MARKER: [u8; 4] = *b"GBlk";
const LZ4: u8 = 1;
const CLOSING: u8 = 2;

/// The header that a file of this version begins with.
pub(crate) fn file_header() -> [u8; FILE_HEADER] {
    let mut bytes = [0; FILE_HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8] = VERSION;
    let sum = crc32c::crc32c(&bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Does a file begin as a pack of any version does?
pub(crate) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Is it a pack of a version that this program reads and continues?
pub(crate) fn check_file_header(path: &Path, bytes: &[u8; FILE_HEADER]) -> Result<(), PackError> {
    if !has_magic(bytes) {
        return Err(PackError::NotAPack(path.to_owned()));
    }
    if bytes[8] != VERSION {
        return Err(PackError::Version { path: path.to_owned(), found: bytes[8] });
    }
    match u32_at(bytes, 12) == crc32c::crc32c(&bytes[..12]) {
        true => Ok(()),
        false => Err(PackError::Damaged { path: path.to_owned(), offset: 0, why: "checksum of the file header" }),
    }
}

/// A step and its task of a step array, as numbers that can be compared and counted on: the task is its index plus 1, or 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub step: u32,
    pub task: u32,
}

impl Mark {
    pub fn of(key: StepKey) -> Self {
        let task = key.array.map_or(0, |index| index.saturating_add(1));
        Self { step: crate::record::code_of(key.step), task }
    }
}

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Records of a group, of steps and tasks between two marks.
    Records { group: Group, first: Mark, last: Mark },
    /// An index; `closing` when the writer closed the file with it.
    Index { closing: bool },
    /// One of a later version.
    Unknown,
}

/// A block's header, in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub offset: u64,
    pub kind: Kind,
    lz4: bool,
    stored: u32,
    raw: u32,
    payload_sum: u32,
    /// Records or entries.
    pub count: u32,
    /// The last index before it, or 0.
    pub index: u64,
}

impl BlockHeader {
    /// Where the next block begins.
    pub fn end(&self) -> u64 {
        self.offset + HEADER as u64 + u64::from(self.stored)
    }

    fn decode(bytes: &[u8; HEADER], offset: u64) -> Option<Self> {
        let sound =
            bytes[..4] == MARKER && u64_at(bytes, 8) == offset && u32_at(bytes, 68) == crc32c::crc32c(&bytes[..68]);
        if !sound {
            return None;
        }
        let mark = |at| Mark { step: u32_at(bytes, at), task: u32_at(bytes, at + 4) };
        let kind = match bytes[4] {
            1 => Kind::Records {
                group: Group { job: JobId(u32_at(bytes, 32)), het: u32_at(bytes, 36).checked_sub(1) },
                first: mark(40),
                last: mark(48),
            },
            2 => Kind::Index { closing: bytes[5] & CLOSING != 0 },
            _ => Kind::Unknown,
        };
        let header = Self {
            offset,
            kind,
            lz4: bytes[5] & LZ4 != 0,
            stored: u32_at(bytes, 16),
            raw: u32_at(bytes, 20),
            payload_sum: u32_at(bytes, 24),
            count: u32_at(bytes, 28),
            index: u64_at(bytes, 56),
        };
        let fits = |length: u32| length as usize <= MAX_PAYLOAD;
        (fits(header.stored) && fits(header.raw) && header.index < offset).then_some(header)
    }

    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MARKER);
        let (kind, flags) = match self.kind {
            Kind::Records { group, first, last } => {
                let het = group.het.map_or(0, |offset| offset.saturating_add(1));
                let fields = [group.job.0, het, first.step, first.task, last.step, last.task];
                for (at, field) in (32..).step_by(4).zip(fields) {
                    put(at, &field.to_le_bytes());
                }
                (1, 0)
            }
            Kind::Index { closing } => (2, if closing { CLOSING } else { 0 }),
            Kind::Unknown => (0, 0),
        };
        put(4, &[kind, flags | if self.lz4 { LZ4 } else { 0 }]);
        put(8, &self.offset.to_le_bytes());
        for (at, field) in (16..).step_by(4).zip([self.stored, self.raw, self.payload_sum, self.count]) {
            put(at, &field.to_le_bytes());
        }
        put(56, &self.index.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..68]);
        bytes[68..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Makes the block that is to stand at `offset`, in `out`: header and payload, packed if that makes it shorter.
pub(crate) fn build(out: &mut Vec<u8>, offset: u64, kind: Kind, count: u32, index: u64, raw: &[u8]) {
    out.resize(HEADER + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
    // The buffer is as large as packing can need, so that a failure means the same as no gain.
    let packed = lz4_flex::block::compress_into(raw, &mut out[HEADER..]).ok().filter(|length| *length < raw.len());
    let stored = packed.unwrap_or(raw.len());
    if packed.is_none() {
        out[HEADER..HEADER + raw.len()].copy_from_slice(raw);
    }
    out.truncate(HEADER + stored);
    let length = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let header = BlockHeader {
        offset,
        kind,
        lz4: packed.is_some(),
        stored: length(stored),
        raw: length(raw.len()),
        payload_sum: crc32c::crc32c(&out[HEADER..]),
        count,
        index,
    };
    out[..HEADER].copy_from_slice(&header.encode());
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The block header at an offset, if there is one.
pub(crate) fn header_at(file: &File, offset: u64) -> io::Result<Option<BlockHeader>> {
    let mut bytes = [0; HEADER];
    let whole = read_at(file, &mut bytes, offset)? == HEADER;
    Ok(whole.then(|| BlockHeader::decode(&bytes, offset)).flatten())
}

/// The header in bytes that stand at an offset of a file.
pub(crate) fn header_in(bytes: &[u8], offset: u64) -> Option<BlockHeader> {
    bytes.first_chunk().and_then(|bytes| BlockHeader::decode(bytes, offset))
}

/// Reads a block's payload into `raw`, by way of `stored`. The inner error says what does not fit; `raw` is empty then.
pub(crate) fn payload(
    file: &File,
    header: &BlockHeader,
    stored: &mut Vec<u8>,
    raw: &mut Vec<u8>,
) -> io::Result<Result<(), &'static str>> {
    raw.clear();
    stored.resize(header.stored as usize, 0);
    if read_at(file, stored, header.offset + HEADER as u64)? < stored.len() {
        return Ok(Err("it is cut off"));
    }
    if crc32c::crc32c(stored) != header.payload_sum {
        return Ok(Err("its checksum does not fit"));
    }
    if !header.lz4 {
        std::mem::swap(stored, raw);
        return Ok(Ok(()));
    }
    raw.resize(header.raw as usize, 0);
    let unpacked = lz4_flex::block::decompress_into(stored, raw).is_ok_and(|length| length == raw.len());
    if !unpacked {
        raw.clear();
        return Ok(Err("it does not unpack"));
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn records() -> Kind {
        let group = Group { job: JobId(5609), het: Some(0) };
        Kind::Records { group, first: Mark { step: 1, task: 2 }, last: Mark { step: u32::MAX, task: 0 } }
    }

    fn read_back(raw: &[u8], kind: Kind) -> (BlockHeader, Vec<u8>, usize) {
        let mut block = Vec::new();
        build(&mut block, 16, kind, 3, 0, raw);
        let mut file = tempfile();
        file.write_all(&file_header()).unwrap();
        file.write_all(&block).unwrap();
        let header = header_at(&file, 16).unwrap().unwrap();
        let (mut stored, mut again) = (Vec::new(), Vec::new());
        payload(&file, &header, &mut stored, &mut again).unwrap().unwrap();
        (header, again, block.len())
    }

    fn tempfile() -> File {
        let path = std::env::temp_dir().join(format!(
            "garrick-block-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn blocks_read_back_packed_or_as_they_are() {
        let text = b"all work and no play ".repeat(100);
        let (header, again, length) = read_back(&text, records());
        assert_eq!((header.kind, header.count, again), (records(), 3, text));
        assert!(header.lz4 && length < 300);
        assert_eq!(header.end(), 16 + length as u64);
        let (header, again, length) = read_back(b"short", Kind::Index { closing: true });
        assert_eq!((header.kind, again.as_slice()), (Kind::Index { closing: true }, b"short".as_slice()));
        assert!(!header.lz4);
        assert_eq!(length, HEADER + 5);
    }

    #[test]
    fn a_header_counts_only_at_its_own_place() {
        let mut block = Vec::new();
        build(&mut block, 100, records(), 1, 0, b"x");
        assert!(header_in(&block, 100).is_some());
        assert!(header_in(&block, 101).is_none());
        assert!(header_in(&block[..HEADER - 1], 100).is_none());
        for at in 0..HEADER {
            let mut bad = block.clone();
            bad[at] ^= 4;
            assert!(header_in(&bad, 100).is_none(), "byte {at}");
        }
    }

    #[test]
    fn files_of_other_kinds_and_versions_are_told_apart() {
        let path = Path::new("/p");
        let said = |bytes| check_file_header(path, &bytes).map_err(|e| e.to_string());
        assert_eq!(said(file_header()), Ok(()));
        assert_eq!(said(*b"#!/bin/bash\nsrun"), Err("/p: not an output pack".to_owned()));
        let mut later = file_header();
        later[8] = 2;
        assert_eq!(said(later), Err("/p: an output pack of version 2; this program knows version 1".to_owned()));
        let mut damaged = file_header();
        damaged[10] = 1;
        assert_eq!(said(damaged), Err("/p: damaged block at offset 0: checksum of the file header".to_owned()));
    }

    proptest! {
        #[test]
        fn any_payload_reads_back(raw in proptest::collection::vec(0u8..4, 0..3000)) {
            prop_assert_eq!(read_back(&raw, records()).1, raw);
        }
    }
}
