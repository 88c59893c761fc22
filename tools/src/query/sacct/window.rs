//! The time window of `sacct` (sacct(1), DEFAULT TIME WINDOW).

use garrick_model::{
    date::{self, DateTextError},
    time::Timestamp,
};
use jiff::tz::TimeZone;
use std::fmt;

/// From when to when jobs are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its beginning; the epoch for no beginning.
    pub start: Timestamp,
    /// Its end, which is not in it.
    pub end: Timestamp,
}

/// What the defaults depend on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'t> {
    /// `--starttime`
    pub start: Option<&'t str>,
    /// `--endtime`
    pub end: Option<&'t str>,
    /// Jobs are named.
    pub jobs: bool,
    /// States are named.
    pub states: bool,
}

/// A window that cannot be.
#[derive(Debug, PartialEq, Eq)]
pub enum WindowError {
    /// A text that is no time.
    Text(String),
    /// It ends before it begins.
    Backwards(Window),
}

const SECOND_MS: i64 = 1000;

impl Window {
    /// The window that is asked for.
    ///
    /// # Errors
    /// A text that is no time, an end before the beginning.
    pub fn read(given: Given<'_>, now: Timestamp, zone: &TimeZone) -> Result<Self, WindowError> {
        let at = |text: Option<&str>| match text.filter(|text| !text.trim().is_empty()) {
            None => Ok(None),
            Some(text) => date::parse_past(text, now, zone)
                .map(Some)
                .map_err(|_: DateTextError| WindowError::Text(text.to_owned())),
        };
        let now = Timestamp::from_secs(now.secs());
        // The present second is part of it.
        let soon = Timestamp(now.0 + SECOND_MS);
        let (start, end) = (at(given.start)?, at(given.end)?);
        let end = end.unwrap_or_else(|| match start {
            Some(start) if given.states => Timestamp(start.0 + SECOND_MS),
            _ => soon,
        });
        let start = start.unwrap_or_else(|| match (given.jobs, given.states) {
            (true, _) => Timestamp(0),
            (false, true) => now,
            (false, false) => midnight(now, zone),
        });
        let window = Self { start, end };
        if start > end { Err(WindowError::Backwards(window)) } else { Ok(window) }
    }
}

fn midnight(now: Timestamp, zone: &TimeZone) -> Timestamp {
    let here = jiff::Timestamp::from_millisecond(now.0).map(|now| now.to_zoned(zone.clone()));
    here.and_then(|here| here.start_of_day()).map_or(now, |start| Timestamp(start.timestamp().as_millisecond()))
}

impl WindowError {
    /// What is said, in Slurm's words.
    pub fn text(&self, zone: &TimeZone) -> String {
        match self {
            Self::Text(text) => {
                format!("Invalid time specification (pos={}): {text}", date::wrong_in_past(text))
            }
            Self::Backwards(Window { start, end }) => {
                format!("Start time ({}) requested is after end time ({}).", start.text(zone), end.text(zone))
            }
        }
    }
}

/// A window in words: `from Epoch 0 to Fri Nov 27 10:00:00 2026`.
pub struct Words<'z>(pub Window, pub &'z TimeZone);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |at: Timestamp| match at.0 {
            0 => "Epoch 0".to_owned(),
            _ => at.strftime("%a %b %d %H:%M:%S %Y", self.1),
        };
        write!(f, "from {} to {}", text(self.0.start), text(self.0.end))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Fri Nov 27 23:02:01 2026 UTC.
    const NOW: Timestamp = Timestamp(1_795_820_521_500);

    fn window(given: Given<'_>) -> String {
        let zone = TimeZone::UTC;
        Window::read(given, NOW, &zone).map_or_else(|e| e.text(&zone), |window| Words(window, &zone).to_string())
    }

    /// As sacct of Slurm 26.05.3 said with -v.
    #[test]
    fn defaults_depend_on_jobs_and_states() {
        let none = Given::default();
        let (jobs, states) = (Given { jobs: true, ..none }, Given { states: true, ..none });
        let both = Given { jobs: true, ..states };
        let (now, soon) = ("Fri Nov 27 23:02:01 2026", "Fri Nov 27 23:02:02 2026");
        assert_eq!(window(none), format!("from Fri Nov 27 00:00:00 2026 to {soon}"));
        assert_eq!(window(jobs), format!("from Epoch 0 to {soon}"));
        assert_eq!(window(states), format!("from {now} to {soon}"));
        assert_eq!(window(both), format!("from Epoch 0 to {soon}"));
        let at = |given, start, end| window(Given { start, end, ..given });
        let eight = "Fri Nov 27 08:00:00 2026";
        assert_eq!(at(jobs, Some("08:00"), None), format!("from {eight} to {soon}"));
        assert_eq!(at(states, Some("08:00"), None), format!("from {eight} to Fri Nov 27 08:00:01 2026"));
        assert_eq!(at(both, Some("08:00"), None), format!("from {eight} to Fri Nov 27 08:00:01 2026"));
        assert_eq!(at(states, None, Some("23:59")), format!("from {now} to Fri Nov 27 23:59:00 2026"));
        assert_eq!(at(both, None, Some("10:00")), "from Epoch 0 to Fri Nov 27 10:00:00 2026");
        assert_eq!(at(none, None, Some("10:00")), "from Fri Nov 27 00:00:00 2026 to Fri Nov 27 10:00:00 2026");
        assert_eq!(at(none, Some(""), None), window(none));
    }

    #[test]
    fn what_is_no_window_is_refused_in_slurms_words() {
        let at = |start, end| window(Given { start, end, ..Given::default() });
        assert_eq!(at(Some("bogus"), None), "Invalid time specification (pos=0): bogus");
        assert_eq!(at(None, Some("2026-13-45")), "Invalid time specification (pos=5): 2026-13-45");
        assert_eq!(
            at(Some("now+1hour"), None),
            "Start time (2026-11-28T00:02:01) requested is after end time (2026-11-27T23:02:02)."
        );
        let states = Given { end: Some("10:00"), states: true, ..Given::default() };
        assert_eq!(
            window(states),
            "Start time (2026-11-27T23:02:01) requested is after end time (2026-11-27T10:00:00)."
        );
    }
}
