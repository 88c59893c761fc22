//! Torn ends and flipped bytes, in journals of either kind.

use crate::samples::sample;
use garrick_journal::{JournalError, Reader};
use serde::{Serialize, Serializer, de::IgnoredAny};
use std::path::Path;

/// Reads bytes as a journal: whole records, bytes of a torn end.
fn read(bytes: &[u8]) -> Result<(u64, u64), JournalError> {
    let mut reader = Reader::new(bytes, Path::new("journal"), bytes.len() as u64)?;
    while reader.next_record()?.is_some() {}
    Ok((reader.records(), reader.torn_bytes()))
}

/// Where each record begins, and the end.
fn offsets(bytes: &[u8]) -> Vec<usize> {
    let mut reader = Reader::new(bytes, Path::new("journal"), bytes.len() as u64).unwrap();
    let mut offsets = Vec::new();
    while let Some(record) = reader.next_written().unwrap() {
        offsets.push(record.offset as usize);
    }
    offsets.push(bytes.len());
    offsets
}

const SAMPLES: [&str; 3] = ["version-1-controller.journal", "version-1-steps.journal", "version-2-controller.journal"];

#[test]
fn wherever_the_end_is_torn_the_records_before_it_are_read() {
    for name in SAMPLES {
        let bytes = std::fs::read(sample(name)).unwrap();
        let offsets = offsets(&bytes);
        for cut in offsets[0]..=bytes.len() {
            let whole = offsets.iter().filter(|offset| **offset <= cut).count() - 1;
            assert_eq!(
                read(&bytes[..cut]).unwrap(),
                (whole as u64, (cut - offsets[whole]) as u64),
                "{name} cut at {cut}"
            );
        }
        for cut in 0..offsets[0] {
            let reader = Reader::new(&bytes[..cut], Path::new("journal"), cut as u64).unwrap();
            assert!(!reader.has_header());
        }
    }
}

#[test]
fn a_flipped_byte_before_the_last_record_is_damage_there() {
    for name in SAMPLES {
        let bytes = std::fs::read(sample(name)).unwrap();
        let offsets = offsets(&bytes);
        let record = offsets.len() / 2;
        let (from, to) = (offsets[record], offsets[record + 1]);
        for at in from..to {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x11;
            match read(&bytes) {
                Err(JournalError::Damaged { offset, record: number, .. }) => {
                    assert_eq!((offset, number), (from as u64, record as u64), "{name} flipped at {at}");
                }
                other => panic!("{name} flipped at {at}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_flipped_byte_in_the_last_record_tears_it() {
    for name in SAMPLES {
        let bytes = std::fs::read(sample(name)).unwrap();
        let offsets = offsets(&bytes);
        let last = offsets[offsets.len() - 2];
        for at in last + 4..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x11;
            assert_eq!(read(&bytes).unwrap(), (offsets.len() as u64 - 2, (bytes.len() - last) as u64));
        }
    }
}

#[test]
fn what_is_appended_while_reading_is_not_looked_at_and_what_is_cut_is_no_error() {
    let bytes = std::fs::read(sample(SAMPLES[1])).unwrap();
    let offsets = offsets(&bytes);
    let then = |length: usize, now: &[u8]| {
        let mut reader = Reader::new(now, Path::new("journal"), length as u64).unwrap();
        while reader.next_record().unwrap().is_some() {}
        (reader.records(), reader.torn_bytes(), reader.length())
    };
    assert_eq!(then(offsets[3], &bytes), (3, 0, offsets[3] as u64));
    assert_eq!(then(bytes.len(), &bytes[..offsets[3] + 20]), (3, 20, offsets[3] as u64 + 20));
    assert_eq!(then(bytes.len(), &bytes[..offsets[3] + 2]), (3, 2, offsets[3] as u64 + 2));
}

/// It took the thread's stack, and the process with it.
#[test]
fn a_record_that_is_nested_deeply_is_an_error() {
    let nested = (0..1000).fold(Nested(None), |inner, _| Nested(Some(Box::new(inner))));
    let mut bytes = garrick_journal::header().to_vec();
    garrick_journal::frame(Path::new("journal"), &nested, &mut bytes).unwrap();
    let mut reader = Reader::new(bytes.as_slice(), Path::new("journal"), bytes.len() as u64).unwrap();
    let said = reader.next_record().unwrap().unwrap().decode::<IgnoredAny>().unwrap_err().to_string();
    assert!(said.contains("depth limit exceeded"), "{said}");
}

/// A list in a list in a list.
struct Nested(Option<Box<Self>>);

impl Serialize for Nested {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}
