//! `garrick journal show`.

use super::{
    MISUSE,
    describe::describe,
    events::{Event, Events, Kind},
    failed, say_torn,
};
use crate::output::{self, Console};
use garrick_journal::{JournalError, Late};
use garrick_model::ids::JobId;
use garrick_render::clock::Clock;
use std::{
    collections::VecDeque,
    io::{self, Write},
    path::Path,
};

/// Prints a line for each record, or for those about a job, or for the last of them.
pub fn run(path: &Path, job: Option<JobId>, lines: Option<usize>, console: &Console) -> i32 {
    let mut events = match Events::open(path) {
        Ok(events) => events,
        Err(error) => return failed(&error, console),
    };
    let clock = Clock::system();
    let mut outcome = Ok(());
    let written = output::stdout(|out| {
        outcome = print(&mut events, job, lines, &clock, out)?;
        Ok(())
    });
    let code = match outcome {
        Ok(()) if job.is_some() && events.kind() == Some(Kind::Steps) => {
            console.error("--job is for a controller's journal; this is a step manager's, which is of one job");
            MISUSE
        }
        Ok(()) => 0,
        Err(error) => failed(&error, console),
    };
    let reader = events.reader();
    if written.is_ok()
        && let Late { records, first: Some(first) } = reader.late()
    {
        console.line(format_args!("{records} left out: {first}"));
    }
    if written.is_ok() && code == 0 && reader.torn_bytes() > 0 {
        say_torn(reader.position(), reader.torn_bytes(), console);
    }
    output::finish(console, written, code)
}

/// What was read before an error is still printed.
fn print(
    events: &mut Events,
    job: Option<JobId>,
    lines: Option<usize>,
    clock: &Clock,
    out: &mut dyn Write,
) -> io::Result<Result<(), JournalError>> {
    let mut last = VecDeque::new();
    let outcome = loop {
        match events.next_event() {
            Err(error) => break Err(error),
            Ok(None) => break Ok(()),
            Ok(Some((_, Event::Steps(_)))) if job.is_some() => return Ok(Ok(())),
            Ok(Some((_, event))) if job.is_some_and(|job| !event.is_about(job)) => {}
            Ok(Some((offset, event))) => {
                let line = line(offset, &event, clock);
                match lines {
                    None => out.write_all(line.as_bytes())?,
                    Some(most) => {
                        last.push_back(line);
                        if last.len() > most {
                            last.pop_front();
                        }
                    }
                }
            }
        }
    };
    for line in last {
        out.write_all(line.as_bytes())?;
    }
    Ok(outcome)
}

fn line(offset: u64, event: &Event, clock: &Clock) -> String {
    let said = describe(event);
    let time = clock.at_or(event.time(), "-");
    let line = format!("{offset:>10}  {time:<19}  {:<16}  {:<16}  {}", said.subject, said.event, said.essentials);
    format!("{}\n", line.trim_end())
}
