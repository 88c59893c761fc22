//! `sinfo -T`: one line for each reservation.

use crate::{
    output::{self, Console},
    telling::Tell as _,
};
use garrick_asking::contact::{Contact, reservations};
use garrick_model::{
    hostlist,
    reservation::Reservation,
    time::{Timestamp, long_duration},
};
use garrick_render::clock::Clock;
use std::{
    io::{self, Write},
    sync::Arc,
};

/// Lists them. Returns the exit code.
pub fn list(console: &Console, heading: bool) -> i32 {
    let (shown, at) = match Contact::open(console).and_then(|mut cluster| reservations(&mut cluster)) {
        Ok(answer) => answer,
        Err(error) => return error.tell("slurm_load_reservations", console),
    };
    let clock = Clock::system();
    output::finish(console, output::stdout(|out| render(&shown, at, heading, &clock, out)), 0)
}

fn render(
    shown: &[Arc<Reservation>],
    at: Timestamp,
    heading: bool,
    clock: &Clock,
    out: &mut dyn Write,
) -> io::Result<()> {
    if shown.is_empty() {
        return writeln!(out, "No reservations in the system");
    }
    let width = shown.iter().map(|r| r.name.len()).max().unwrap_or(0).max(10);
    let mut line = |cells: [&str; 6]| {
        let [name, state, start, end, length, nodes] = cells;
        writeln!(out, "{name:<width$} {state:>8}  {start:>19}  {end:>19}  {length:>11}  {nodes}")
    };
    if heading {
        line(["RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST"])?;
    }
    shown.iter().try_for_each(|r| {
        let state = if r.is_active(at) { "ACTIVE" } else { "INACTIVE" };
        let length = long_duration(r.end.since(r.start).as_secs());
        line([&r.name, state, &clock.at(r.start), &clock.at(r.end), &length, &hostlist::fold(&r.nodes)])
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use jiff::tz::TimeZone;

    #[test]
    fn lines_are_in_columns() {
        let one = Reservation {
            name: "m".into(),
            start: Timestamp::from_secs(1_795_255_200),
            end: Timestamp::from_secs(1_795_262_400),
            nodes: vec!["n1".into(), "n2".into()],
            ..Reservation::default()
        };
        let clock = Clock { zone: TimeZone::UTC, now: one.start, format: None };
        let mut out = Vec::new();
        render(&[Arc::new(one)], Timestamp(0), true, &clock, &mut out).unwrap();
        let want = "RESV_NAME     STATE           START_TIME             END_TIME     DURATION  NODELIST\n\
                    m          INACTIVE  2026-11-21T10:00:00  2026-11-21T12:00:00     02:00:00  n[1-2]\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}
