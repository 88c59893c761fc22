//! `garrick journal export`: all content of the records, with the field names of the model, including events that this version
//! does not know.

use super::{
    events::{Event, Kind},
    failed, say_torn,
    value::Value,
};
use crate::output::{self, Console};
use garrick_journal::{JournalError, Reader};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, BufReader, Write},
    path::Path,
};

#[derive(Serialize)]
struct Exported<'a> {
    /// Number of the record, from 0.
    record: u64,
    /// Where it begins.
    offset: u64,
    /// What it takes in the file.
    bytes: u64,
    /// `controller`, `steps`, or null when the first record is of neither.
    journal: Option<&'a str>,
    /// Of its writer; 0 in a file of version 1.
    epoch: u64,
    /// Its writer had been fenced: it does not count.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    fenced: bool,
    event: &'a Value,
}

/// Prints a JSON object for each record.
pub fn run(path: &Path, console: &Console) -> i32 {
    let mut reader = match Reader::open(path) {
        Ok(reader) => reader,
        Err(error) => return failed(&error, console),
    };
    let mut outcome = Ok(());
    let written = output::stdout(|out| {
        outcome = print(&mut reader, out)?;
        Ok(())
    });
    let code = match outcome {
        Ok(()) => 0,
        Err(error) => failed(&error, console),
    };
    if written.is_ok() && code == 0 && reader.torn_bytes() > 0 {
        say_torn(reader.position(), reader.torn_bytes(), console);
    }
    output::finish(console, written, code)
}

fn print(reader: &mut Reader<BufReader<File>>, out: &mut dyn Write) -> io::Result<Result<(), JournalError>> {
    let mut kind: Option<Kind> = None;
    loop {
        let record = match reader.next_written() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        if record.number == 0 {
            kind = Event::first(&record).ok().map(|event| event.kind());
        }
        let event: Value = match record.decode() {
            Ok(event) => event,
            Err(error) => return Ok(Err(error)),
        };
        let journal = kind.map(|kind| kind.to_string());
        let exported = Exported {
            record: record.number,
            offset: record.offset,
            bytes: record.bytes(),
            journal: journal.as_deref(),
            epoch: record.epoch,
            fenced: record.is_fenced(),
            event: &event,
        };
        serde_json::to_writer(&mut *out, &exported)?;
        out.write_all(b"\n")?;
    }
}
