//! A journal as its owner opens it: it is read, a torn end is cut off, and it may be replaced as a whole.

use crate::{
    Form, JournalError, Late, Reader,
    form::{HEADER_BYTES, READ_BYTES},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs::{File, OpenOptions},
    io::{BufReader, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// A journal read back.
#[derive(Debug)]
pub struct Opened<T> {
    /// Records in order.
    pub records: Vec<T>,
    /// Bytes of a torn last record that were cut off.
    pub torn_bytes: u64,
    /// The file, opened for appending.
    pub file: File,
}

/// Opens or creates a journal of version 1 and reads it back. A torn end is cut off on disk before this returns.
pub fn open<T: DeserializeOwned>(path: &Path) -> Result<Opened<T>, JournalError> {
    let mut records = Vec::new();
    let journal = open_as(path, Form::Plain, 0, |record| {
        records.push(record);
        Ok::<_, JournalError>(())
    })?;
    Ok(Opened { records, torn_bytes: journal.torn_bytes, file: journal.file })
}

/// A journal whose records follow those of others, read back.
#[derive(Debug)]
pub struct Journal {
    /// The file, opened for appending.
    pub file: File,
    /// Its version; only records of that one may be appended.
    pub version: u8,
    /// Bytes of a torn last record that were cut off.
    pub torn_bytes: u64,
    /// Bytes of it that were read and are kept.
    pub end: u64,
    /// Highest epoch so far.
    pub epoch: u64,
    /// Records of fenced writers, which were passed over.
    pub late: Late,
}

/// As [`open`] for a journal that follows others, in which `epoch` was the highest, handing over one record after the other
/// instead of holding all. Where there is none, one is begun whose records have epochs.
pub fn open_after<T: DeserializeOwned, E: From<JournalError>>(
    path: &Path,
    epoch: u64,
    each: impl FnMut(T) -> Result<(), E>,
) -> Result<Journal, E> {
    open_as(path, Form::Epoch(epoch), epoch, each)
}

fn open_as<T: DeserializeOwned, E: From<JournalError>>(
    path: &Path,
    form: Form,
    epoch: u64,
    mut each: impl FnMut(T) -> Result<(), E>,
) -> Result<Journal, E> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|e| JournalError::io("open", path, &e))?;
    let length = file.metadata().map_err(|e| JournalError::io("read", path, &e))?.len();
    let input = BufReader::with_capacity(READ_BYTES, &file);
    let mut reader = Reader::new(input, path, length)?.after_epoch(epoch);
    if reader.has_header() && form == Form::Plain && reader.version() != form.version() {
        // What is appended would be no records in it.
        let what = format!("its version is {}, and its records have epochs", reader.version());
        return Err(JournalError::Foreign { path: path.to_owned(), what }.into());
    }
    while let Some(record) = reader.next_record()? {
        each(record.decode()?)?;
    }
    let has_header = reader.has_header();
    let mut journal = Journal {
        version: reader.version(),
        torn_bytes: reader.torn_bytes(),
        end: reader.position(),
        epoch: reader.epoch(),
        late: reader.late().clone(),
        file,
    };
    if !has_header {
        let file = &mut journal.file;
        file.set_len(0).map_err(|e| JournalError::io("truncate", path, &e))?;
        file.write_all(&form.header()).map_err(|e| JournalError::io("write", path, &e))?;
        file.sync_all().map_err(|e| JournalError::io("sync", path, &e))?;
        sync_parent(path)?;
        return Ok(Journal { version: form.version(), torn_bytes: 0, end: HEADER_BYTES as u64, ..journal });
    }
    if journal.torn_bytes > 0 {
        journal.file.set_len(journal.end).map_err(|e| JournalError::io("truncate", path, &e))?;
        journal.file.sync_all().map_err(|e| JournalError::io("sync", path, &e))?;
    }
    Ok(journal)
}

/// Puts `records` in the journal's place in one step: temporary file, sync, rename, sync of the folder. Returns the length
/// of the file.
pub fn replace<T: Serialize>(path: &Path, records: impl IntoIterator<Item = T>) -> Result<u64, JournalError> {
    replace_as(path, Form::Plain, records)
}

/// The same with records of that form.
pub fn replace_as<T: Serialize>(
    path: &Path,
    form: Form,
    records: impl IntoIterator<Item = T>,
) -> Result<u64, JournalError> {
    let fresh = path.with_added_extension("new");
    let written = write_fresh(path, &fresh, form, records);
    if written.is_err() {
        // Of a disk that is full, perhaps; what is left of it would only take more room.
        let _ = std::fs::remove_file(&fresh);
    }
    let length = written?;
    std::fs::rename(&fresh, path).map_err(|e| JournalError::io("rename", &fresh, &e))?;
    sync_parent(path)?;
    Ok(length)
}

fn write_fresh<T: Serialize>(
    path: &Path,
    fresh: &Path,
    form: Form,
    records: impl IntoIterator<Item = T>,
) -> Result<u64, JournalError> {
    let created = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(fresh);
    let mut file = created.map_err(|e| JournalError::io("create", fresh, &e))?;
    let mut bytes = form.header().to_vec();
    let mut length = 0;
    for record in records {
        form.frame(path, &record, &mut bytes)?;
        if bytes.len() >= READ_BYTES {
            file.write_all(&bytes).map_err(|e| JournalError::io("write", fresh, &e))?;
            length += bytes.len() as u64;
            bytes.clear();
        }
    }
    file.write_all(&bytes).map_err(|e| JournalError::io("write", fresh, &e))?;
    file.sync_all().map_err(|e| JournalError::io("sync", fresh, &e))?;
    Ok(length + bytes.len() as u64)
}

/// Makes what was created, renamed or removed in the folder of `path` last.
pub fn sync_parent(path: &Path) -> Result<(), JournalError> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|f| f.sync_all()).map_err(|e| JournalError::io("sync the folder of", path, &e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::form::{self, frame};
    use std::path::PathBuf;

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
    fn a_length_that_is_wrong_is_damage_where_whole_records_follow() {
        let p = temp("length");
        write(&p, &["first", "second", "third"]);
        let bytes = std::fs::read(&p).unwrap();
        let second = HEADER_BYTES + 8 + "?first".len();
        for wrong in [0_u32, 1000, 1 << 20] {
            let mut changed = bytes.clone();
            changed[second..second + 4].copy_from_slice(&wrong.to_be_bytes());
            std::fs::write(&p, &changed).unwrap();
            let e = open::<String>(&p).unwrap_err();
            assert!(matches!(e, JournalError::Damaged { record: 1, .. }), "{wrong}: {e}");
            assert_eq!(std::fs::read(&p).unwrap(), changed, "nothing is cut off");
        }
    }

    #[test]
    fn zeros_at_the_end_are_cut_off_like_any_torn_end() {
        let p = temp("zeros");
        write(&p, &["first"]);
        let whole = std::fs::read(&p).unwrap();
        for zeros in [1, 8, 20, 200_000] {
            std::fs::write(&p, [&whole[..], &vec![0; zeros]].concat()).unwrap();
            let o = open::<String>(&p).unwrap();
            assert_eq!((o.records.as_slice(), o.torn_bytes), (&["first".to_owned()][..], zeros as u64));
            assert_eq!(std::fs::read(&p).unwrap(), whole);
        }
    }

    #[test]
    fn a_torn_record_may_hold_what_looks_like_one() {
        let p = temp("inner");
        let mut inner = Vec::new();
        frame(&p, &"inner", &mut inner).unwrap();
        inner.extend_from_slice(b"and more");
        let mut bytes = form::header().to_vec();
        bytes.extend_from_slice(&1000_u32.to_be_bytes());
        bytes.extend_from_slice(&[1, 2, 3, 4]);
        bytes.extend_from_slice(&inner);
        std::fs::write(&p, &bytes).unwrap();
        assert!(open::<String>(&p).unwrap().records.is_empty());
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

    fn append(path: &Path, epoch: u64, record: &str) {
        let mut bytes = Vec::new();
        Form::Epoch(epoch).frame(path, &record, &mut bytes).unwrap();
        OpenOptions::new().append(true).open(path).unwrap().write_all(&bytes).unwrap();
    }

    fn after(path: &Path, epoch: u64) -> (Vec<String>, Journal) {
        let mut records = Vec::new();
        let journal = open_after(path, epoch, |record: String| {
            records.push(record);
            Ok::<_, JournalError>(())
        });
        (records, journal.unwrap())
    }

    #[test]
    fn what_a_fenced_writer_appends_late_is_passed_over_and_named() {
        let p = temp("fenced");
        assert_eq!(after(&p, 0).1.version, 2);
        for (epoch, record) in [(5, "a"), (6, "b"), (5, "late"), (6, "c"), (3, "later")] {
            append(&p, epoch, record);
        }
        let (records, journal) = after(&p, 0);
        assert_eq!((records, journal.epoch, journal.late.records), (["a", "b", "c"].map(str::to_owned).to_vec(), 6, 2));
        let first = journal.late.first.unwrap();
        assert_eq!((first.epoch, first.highest), (5, 6));
        assert_eq!(after(&p, 7).0, Vec::<String>::new());
    }

    #[test]
    fn a_file_of_version_1_counts_behind_others_of_version_2() {
        let p = temp("restored");
        replace(&p, ["a"]).unwrap();
        let (records, journal) = after(&p, 5);
        assert_eq!((records, journal.version, journal.epoch, journal.late.records), (vec!["a".to_owned()], 1, 5, 0));
    }

    #[test]
    fn records_without_epochs_are_not_appended_to_a_file_of_records_that_have_them() {
        let p = temp("mixed");
        after(&p, 0);
        append(&p, 5, "a");
        let bytes = std::fs::read(&p).unwrap();
        // Nor is a torn end cut off for that.
        let torn = [&bytes[..], b"torn"].concat();
        std::fs::write(&p, &torn).unwrap();
        let e = open::<String>(&p).unwrap_err();
        assert!(e.to_string().contains("its version is 2, and its records have epochs"), "{e}");
        assert_eq!(std::fs::read(&p).unwrap(), torn);
        std::fs::write(&p, &bytes[..HEADER_BYTES]).unwrap();
        assert!(matches!(open::<String>(&p).unwrap_err(), JournalError::Foreign { .. }));
    }

    #[test]
    fn the_epoch_is_covered_by_the_checksum() {
        let p = temp("epoch");
        after(&p, 0);
        append(&p, 5, "a");
        append(&p, 5, "b");
        let mut bytes = std::fs::read(&p).unwrap();
        bytes[HEADER_BYTES + 15] ^= 1;
        std::fs::write(&p, &bytes).unwrap();
        let e = open_after(&p, 0, |_: String| Ok::<_, JournalError>(())).unwrap_err();
        assert!(matches!(e, JournalError::Damaged { offset: 16, record: 0, .. }), "{e}");
    }
}
