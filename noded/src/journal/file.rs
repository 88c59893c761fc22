//! The file's form: reading it back, cutting a torn end, replacing it whole.

use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    path::{Path, PathBuf},
};

/// Version of the record form, in the header.
pub const VERSION: u8 = 1;
const MAGIC: &[u8; 8] = b"GARRICKJ";
pub(super) const HEADER_BYTES: usize = 16;
/// A record holds at most one submitted job with its script and environment; the door refuses larger ones (16 MiB).
const MAX_RECORD_BYTES: usize = 32 << 20;

/// What went wrong with a journal.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// The operating system refused.
    #[error("cannot {op} journal {path}: {cause}")]
    Io {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
    /// Not a journal, or one from a newer program.
    #[error(
        "{path} is not a journal this version reads: {what}; move it away to start empty, or run the version that wrote it"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// Damaged before its end.
    #[error(
        "journal {path} is damaged at byte {offset} (record {record}, {after} bytes follow): {what}; restore the file from a copy, or \
         truncate it there to give up what follows"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the bad record begins.
        offset: u64,
        /// Its number, from 0.
        record: u64,
        /// Bytes after it.
        after: u64,
        /// What is wrong.
        what: String,
    },
    /// An earlier write failed; nothing is accepted any more.
    #[error("journal {path} is closed after an earlier failure: {cause}")]
    Closed {
        /// The file.
        path: PathBuf,
        /// The earlier failure.
        cause: String,
    },
    /// A record could not be encoded or is too large.
    #[error("record for journal {path} refused: {what}")]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        what: String,
    },
}

impl JournalError {
    pub(super) fn io(op: &'static str, path: &Path, cause: &std::io::Error) -> Self {
        Self::Io { op, path: path.to_owned(), cause: cause.to_string() }
    }
}

/// A journal read back.
#[derive(Debug)]
pub struct Opened<T> {
    /// Records in order.
    pub records: Vec<T>,
    /// Bytes of a torn last record that were cut off.
    pub torn_bytes: u64,
    /// The file, positioned at its end.
    pub file: File,
}

pub(super) fn header() -> [u8; HEADER_BYTES] {
    let mut h = [0u8; HEADER_BYTES];
    h[..8].copy_from_slice(MAGIC);
    h[8] = VERSION;
    h
}

/// Encodes one record with its length and checksum.
pub(super) fn frame<T: Serialize>(path: &Path, record: &T, out: &mut Vec<u8>) -> Result<(), JournalError> {
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

/// Opens or creates a journal and reads it back. A torn end is cut off on disk before this returns.
pub fn open<T: DeserializeOwned>(path: &Path) -> Result<Opened<T>, JournalError> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|e| JournalError::io("open", path, &e))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|e| JournalError::io("read", path, &e))?;
    if bytes.len() < HEADER_BYTES {
        // A crash while creating the file leaves a prefix of the header and nothing that was promised.
        if !header().starts_with(&bytes) {
            return Err(JournalError::Foreign { path: path.to_owned(), what: "it has no header".into() });
        }
        file.set_len(0).map_err(|e| JournalError::io("truncate", path, &e))?;
        file.write_all(&header()).map_err(|e| JournalError::io("write", path, &e))?;
        file.sync_all().map_err(|e| JournalError::io("sync", path, &e))?;
        sync_parent(path)?;
        return Ok(Opened { records: Vec::new(), torn_bytes: 0, file });
    }
    if &bytes[..8] != MAGIC || bytes[8] != VERSION {
        let what =
            if &bytes[..8] == MAGIC { format!("its version is {}", bytes[8]) } else { "its first bytes differ".into() };
        return Err(JournalError::Foreign { path: path.to_owned(), what });
    }
    let mut records = Vec::new();
    let mut at = HEADER_BYTES;
    let keep = loop {
        match next_record(&bytes[at..]) {
            Next::End => break at,
            Next::Torn => break at,
            Next::Bad { what, len } => {
                let after = bytes.len() - (at + len).min(bytes.len());
                if after == 0 {
                    break at;
                }
                return Err(damaged(path, at, records.len(), after, what));
            }
            Next::Record { payload, len } => {
                let record = rmp_serde::from_slice(payload)
                    .map_err(|e| damaged(path, at, records.len(), bytes.len() - at - len, e.to_string()))?;
                records.push(record);
                at += len;
            }
        }
    };
    let torn_bytes = (bytes.len() - keep) as u64;
    if torn_bytes > 0 {
        file.set_len(keep as u64).map_err(|e| JournalError::io("truncate", path, &e))?;
        file.sync_all().map_err(|e| JournalError::io("sync", path, &e))?;
    }
    Ok(Opened { records, torn_bytes, file })
}

/// Puts `records` in the journal's place in one step: temporary file, sync, rename, sync of the folder.
pub fn replace<T: Serialize>(path: &Path, records: &[T]) -> Result<(), JournalError> {
    let fresh = path.with_extension("new");
    let mut bytes = header().to_vec();
    for r in records {
        frame(path, r, &mut bytes)?;
    }
    let mut file = File::create(&fresh).map_err(|e| JournalError::io("create", &fresh, &e))?;
    file.write_all(&bytes).map_err(|e| JournalError::io("write", &fresh, &e))?;
    file.sync_all().map_err(|e| JournalError::io("sync", &fresh, &e))?;
    std::fs::rename(&fresh, path).map_err(|e| JournalError::io("rename", &fresh, &e))?;
    sync_parent(path)
}

fn sync_parent(path: &Path) -> Result<(), JournalError> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|f| f.sync_all()).map_err(|e| JournalError::io("sync the folder of", path, &e))
}

fn damaged(path: &Path, offset: usize, record: usize, after: usize, what: String) -> JournalError {
    JournalError::Damaged {
        path: path.to_owned(),
        offset: offset as u64,
        record: record as u64,
        after: after as u64,
        what,
    }
}

enum Next<'a> {
    End,
    Torn,
    Bad { what: String, len: usize },
    Record { payload: &'a [u8], len: usize },
}

fn next_record(bytes: &[u8]) -> Next<'_> {
    if bytes.is_empty() {
        return Next::End;
    }
    let Some((head, rest)) = bytes.split_at_checked(8) else { return Next::Torn };
    let len = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let crc = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    if len > MAX_RECORD_BYTES {
        // The length itself is not to be believed, so neither is where the next record would begin.
        return Next::Bad { what: format!("a length of {len} bytes"), len: 8 };
    }
    let Some(payload) = rest.get(..len) else { return Next::Torn };
    if crc32c::crc32c(payload) != crc {
        return Next::Bad { what: "its checksum does not match".into(), len: 8 + len };
    }
    Next::Record { payload, len: 8 + len }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn temp(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("garrick-journal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir.join("journal")
    }

    fn write(path: &Path, records: &[&str]) {
        let mut o = open::<String>(path).unwrap();
        let mut bytes = Vec::new();
        for r in records {
            frame(path, r, &mut bytes).unwrap();
        }
        o.file.write_all(&bytes).unwrap();
    }

    #[test]
    fn records_come_back_in_order() {
        let p = temp("order");
        write(&p, &["a", "b"]);
        write(&p, &["c"]);
        assert_eq!(open::<String>(&p).unwrap().records, ["a", "b", "c"]);
    }

    #[test]
    fn every_torn_end_is_cut_off_and_reported() {
        let p = temp("torn");
        write(&p, &["first"]);
        let whole = std::fs::read(&p).unwrap().len();
        write(&p, &["second record"]);
        let bytes = std::fs::read(&p).unwrap();
        for cut in whole + 1..bytes.len() {
            std::fs::write(&p, &bytes[..cut]).unwrap();
            let o = open::<String>(&p).unwrap();
            assert_eq!(o.records, ["first"]);
            assert_eq!(o.torn_bytes, (cut - whole) as u64);
            assert_eq!(std::fs::metadata(&p).unwrap().len(), whole as u64);
        }
    }

    #[test]
    fn a_damaged_middle_stops_the_start_and_names_the_place() {
        let p = temp("middle");
        write(&p, &["first", "second", "third"]);
        let mut bytes = std::fs::read(&p).unwrap();
        bytes[HEADER_BYTES + 10] ^= 0x40;
        std::fs::write(&p, &bytes).unwrap();
        let e = open::<String>(&p).unwrap_err();
        assert!(matches!(e, JournalError::Damaged { offset: 16, record: 0, .. }), "{e}");
        assert!(e.to_string().contains("damaged at byte 16"), "{e}");
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let p = temp("foreign");
        std::fs::write(&p, b"PK\x03\x04 something else entirely").unwrap();
        assert!(matches!(open::<String>(&p).unwrap_err(), JournalError::Foreign { .. }));
    }

    #[test]
    fn replacing_leaves_only_the_new_records() {
        let p = temp("replace");
        write(&p, &["a", "b"]);
        replace(&p, &["c".to_string()]).unwrap();
        write(&p, &["d"]);
        assert_eq!(open::<String>(&p).unwrap().records, ["c", "d"]);
    }

    #[test]
    fn a_file_of_version_1_still_reads() {
        let p = temp("sample");
        let sample: &[u8] = b"GARRICKJ\x01\0\0\0\0\0\0\0\0\0\0\x04\xe5\x30\x0e\xd9\xa3one";
        std::fs::write(&p, sample).unwrap();
        assert_eq!(open::<String>(&p).unwrap().records, ["one"]);
    }
}
