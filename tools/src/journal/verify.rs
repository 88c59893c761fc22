//! `garrick journal verify`.

use super::{DAMAGED, events::Events, failed};
use crate::output::{self, Console};
use garrick_journal::{JournalError, Late};
use garrick_model::time::Timestamp;
use garrick_render::clock::Clock;
use std::{
    io::{self, Write},
    path::Path,
};

/// What was found.
struct Found {
    events: Events,
    /// Earliest and latest time of its records.
    times: Option<(Timestamp, Timestamp)>,
    /// Why reading ended.
    outcome: Result<(), JournalError>,
}

/// Reads a whole journal and says what it is.
pub fn run(path: &Path, console: &Console) -> i32 {
    let mut events = match Events::open(path) {
        Ok(events) => events,
        Err(error) => return failed(&error, console),
    };
    let mut times: Option<(Timestamp, Timestamp)> = None;
    let outcome = loop {
        match events.next_event() {
            Err(error) => break Err(error),
            Ok(None) => break Ok(()),
            Ok(Some((_, event))) => {
                if let Some(at) = event.time() {
                    times = Some(times.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
                }
            }
        }
    };
    let found = Found { events, times, outcome };
    let written = output::stdout(|out| render(&found, path, &Clock::system(), out));
    let code = match &found.outcome {
        Ok(()) => 0,
        Err(JournalError::Damaged { .. }) => DAMAGED,
        Err(error) => failed(error, console),
    };
    output::finish(console, written, code)
}

fn render(found: &Found, path: &Path, clock: &Clock, out: &mut dyn Write) -> io::Result<()> {
    let reader = found.events.reader();
    writeln!(out, "file: {}", path.display())?;
    match found.events.kind() {
        Some(kind) => writeln!(out, "kind: {kind}")?,
        None => writeln!(out, "kind: not known, it has no records")?,
    }
    writeln!(out, "version: {}", reader.version())?;
    writeln!(out, "records: {}", reader.records())?;
    writeln!(out, "bytes: {}", reader.length())?;
    if let Some((first, last)) = found.times {
        writeln!(out, "first: {}", clock.at(first))?;
        writeln!(out, "last: {}", clock.at(last))?;
    }
    if reader.epoch() > 0 {
        writeln!(out, "epoch: {}", reader.epoch())?;
    }
    if let Late { records, first: Some(first) } = reader.late() {
        writeln!(out, "fenced: {records}: {first}")?;
    }
    let (at, torn) = (reader.position(), reader.torn_bytes());
    match &found.outcome {
        Ok(()) => {
            if !reader.has_header() {
                writeln!(out, "torn: its creation was cut short; its daemon begins it anew at its next start")?;
            } else if torn > 0 {
                writeln!(
                    out,
                    "torn: the last record, at byte {at}, is not whole; its daemon is writing it now, or cuts {torn} \
                     bytes off at its next start"
                )?;
            }
            writeln!(out, "ok")
        }
        Err(JournalError::Damaged { offset, record, after, what, .. }) => {
            writeln!(out, "damaged: record {record} at byte {offset}, {after} bytes follow it: {what}")?;
            ways_out(*offset, path, out)
        }
        Err(_) => Ok(()),
    }
}

fn ways_out(offset: u64, path: &Path, out: &mut dyn Write) -> io::Result<()> {
    let file = path.display();
    writeln!(out, "its daemon has to be down for either of these ways out:")?;
    writeln!(out, "- put a copy of the file in its place that is whole (garrick journal verify COPY)")?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.strip_prefix("snapshot.").is_some_and(|number| number.parse::<u64>().is_ok()) {
        writeln!(out, "- move it away: the snapshot before it and the closed journals after that say the same")?;
    }
    writeln!(
        out,
        "- keep a copy of it, then give up that record and what follows: truncate --size={offset} {file}; what the \
         records before it say: garrick journal show {file}"
    )
}
