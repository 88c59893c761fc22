//! Time as it travels between processes and into journals: wall-clock milliseconds. Cores get `now` as an argument.
//! Run-time limits in Slurm's forms are read and printed here, and points in time printed; dates as users write them
//! (`--begin`) are read in [`crate::date`].

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::{
    fmt::Write,
    str::FromStr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// From whole seconds since the Unix epoch; from what is beyond it, the greatest or least there is.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1000))
    }
    /// Whole seconds since the Unix epoch, rounded down.
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1000)
    }
    /// This time plus `d`.
    pub fn plus(self, d: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
    /// How long after `earlier` this is; zero when it is not after.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
    /// Number of its day since the Unix epoch, UTC.
    pub const fn utc_day(self) -> i64 {
        self.secs().div_euclid(86_400)
    }
    /// The system's clock. Shells call this; cores never do.
    pub fn now() -> Self {
        let d = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A duration in microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A run-time limit. Slurm counts limits in minutes; on the wire they are seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TimeLimit {
    /// `UNLIMITED`, `INFINITE`
    #[default]
    Unlimited,
    /// Seconds of wall-clock time.
    Secs(u64),
}

impl TimeLimit {
    /// The smaller of two limits.
    pub fn min(self, other: Self) -> Self {
        match (self, other) {
            (Self::Secs(a), Self::Secs(b)) => Self::Secs(a.min(b)),
            (Self::Unlimited, x) | (x, Self::Unlimited) => x,
        }
    }
    /// When a run that starts then has to be over: without a limit a year later, as programs see it (seen in 26.05.3).
    pub fn end_of_run(self, start: Timestamp) -> Timestamp {
        start.plus(self.duration().unwrap_or(Duration::from_hours(365 * 24)))
    }
    /// The limit as a duration; `None` when unlimited.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::Unlimited => None,
            Self::Secs(s) => Some(Duration::from_secs(s)),
        }
    }
}

/// Text that is not a run-time limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a time limit: expected minutes, minutes:seconds, hours:minutes:seconds, days-hours, \
     days-hours:minutes, days-hours:minutes:seconds or UNLIMITED"
)]
pub struct TimeTextError(pub String);

/// The time that a limit's text means, in seconds; `None` for `UNLIMITED`, `INFINITE` and `-1`.
pub fn parse_duration_secs(text: &str) -> Result<Option<u64>, TimeTextError> {
    let wrong = || TimeTextError(text.to_owned());
    let trimmed = text.trim();
    if trimmed == "-1" || trimmed.eq_ignore_ascii_case("unlimited") || trimmed.eq_ignore_ascii_case("infinite") {
        return Ok(None);
    }
    let number = |digits: &str| -> Result<u64, TimeTextError> {
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        digits.parse().map_err(|_| wrong())
    };
    let (days, rest) = match trimmed.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, trimmed),
    };
    let mut parts = [0u64; 3];
    let mut count = 0;
    // "1-" is one day.
    if !(days.is_some() && rest.is_empty()) {
        for part in rest.split(':') {
            *parts.get_mut(count).ok_or_else(wrong)? = number(part)?;
            count += 1;
        }
    }
    let (hours, minutes, seconds) = match (days, count) {
        (Some(_), _) | (None, 3) => (parts[0], parts[1], parts[2]),
        (None, _) => (0, parts[0], parts[1]),
    };
    [(days.unwrap_or(0), 86_400), (hours, 3600), (minutes, 60), (seconds, 1)]
        .into_iter()
        .try_fold(0u64, |sum, (n, unit)| sum.checked_add(n.checked_mul(unit)?))
        .map(Some)
        .ok_or_else(wrong)
}

impl FromStr for TimeLimit {
    type Err = TimeTextError;
    /// As Slurm means it: limits have a resolution of one minute, seconds are rounded up; 0 asks for no limit.
    fn from_str(text: &str) -> Result<Self, TimeTextError> {
        match parse_duration_secs(text)? {
            None | Some(0) => Ok(Self::Unlimited),
            Some(secs) => {
                let minutes = secs.div_ceil(60);
                minutes.checked_mul(60).map(Self::Secs).ok_or_else(|| TimeTextError(text.to_owned()))
            }
        }
    }
}

impl TimeLimit {
    /// As `squeue -o %l` prints it: `10:00`, `1:00:00`, `1-00:00:00`, `UNLIMITED`.
    pub fn squeue_text(self) -> String {
        match self {
            Self::Unlimited => "UNLIMITED".to_owned(),
            Self::Secs(secs) => short_duration(secs),
        }
    }
    /// As `sinfo` prints a partition's limit: as above, but `infinite`.
    pub fn sinfo_text(self) -> String {
        match self {
            Self::Unlimited => "infinite".to_owned(),
            Self::Secs(secs) => short_duration(secs),
        }
    }
    /// As `scontrol` prints it: `00:10:00`, `1-00:00:00`, `UNLIMITED`.
    pub fn scontrol_text(self) -> String {
        match self {
            Self::Unlimited => "UNLIMITED".to_owned(),
            Self::Secs(secs) => long_duration(secs),
        }
    }
}

/// Elapsed or limiting time in `squeue`'s form: `0:04`, `10:00`, `1:00:00`, `1-00:00:00`.
pub fn short_duration(secs: u64) -> String {
    let (days, hours, minutes, secs) = split_duration(secs);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{secs:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{secs:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{secs:02}"),
    }
}

/// Elapsed or limiting time in `scontrol`'s form: `00:00:04`, `00:10:00`, `1-00:00:00`.
pub fn long_duration(secs: u64) -> String {
    let (days, hours, minutes, secs) = split_duration(secs);
    let mut text = String::new();
    if days > 0 {
        text = format!("{days}-");
    }
    let _ = write!(text, "{hours:02}:{minutes:02}:{secs:02}");
    text
}

fn split_duration(secs: u64) -> (u64, u64, u64, u64) {
    (secs / 86_400, secs / 3600 % 24, secs / 60 % 60, secs % 60)
}

impl Timestamp {
    /// In Slurm's form in a zone, `2026-11-21T10:00:51`. Years outside 1..=9999 give `Unknown`.
    pub fn text(self, zone: &TimeZone) -> String {
        self.strftime("%Y-%m-%dT%H:%M:%S", zone)
    }
    /// With milliseconds, as log lines have it: `2026-11-21T10:01:00.528`.
    pub fn text_with_millis(self, zone: &TimeZone) -> String {
        self.strftime("%Y-%m-%dT%H:%M:%S.%3f", zone)
    }
    /// In a format of `strftime`, as `SLURM_TIME_FORMAT` names one. An unusable format gives `Unknown`.
    pub fn strftime(self, format: &str, zone: &TimeZone) -> String {
        let text = jiff::Timestamp::from_millisecond(self.0)
            .ok()
            .and_then(|t| jiff::fmt::strtime::format(format, &t.to_zoned(zone.clone())).ok());
        text.unwrap_or_else(|| UNKNOWN.to_owned())
    }
}

/// How long what was read of the zone is believed, as in jiff.
const ZONE_AGE: Duration = Duration::from_secs(300);

/// This machine's time zone: `TZ`, or else `/etc/localtime`. Of the latter `TimeZone::system` would ask for its name and list all
/// zones that the system has to find that: more than the rest of what a short command does.
pub fn system_zone() -> TimeZone {
    static KNOWN: Mutex<Option<(Instant, TimeZone)>> = Mutex::new(None);
    if std::env::var_os("TZ").is_some() {
        return TimeZone::system();
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some((read, zone)) if read.elapsed() < ZONE_AGE => zone.clone(),
        _ => {
            let zone = zone_of("/etc/localtime").unwrap_or_else(TimeZone::system);
            *known = Some((Instant::now(), zone.clone()));
            zone
        }
    }
}

/// What a file of `tzfile(5)` says.
fn zone_of(file: &str) -> Option<TimeZone> {
    TimeZone::tzif("Local", &std::fs::read(file).ok()?).ok()
}

/// What stands for a point in time that is not known (yet).
pub const UNKNOWN: &str = "Unknown";
/// What stands for a point in time that does not apply.
pub const NOT_APPLICABLE: &str = "N/A";

/// A point in time, or `otherwise` ([`UNKNOWN`], [`NOT_APPLICABLE`], `None`).
pub fn time_or(at: Option<Timestamp>, otherwise: &str, zone: &TimeZone) -> String {
    at.map_or_else(|| otherwise.to_owned(), |t| t.text(zone))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_zone_read_from_its_file_tells_the_times_of_the_one_found_by_name() {
        let at = |secs| Timestamp::from_secs(secs);
        for name in ["Europe/Berlin", "America/New_York", "Asia/Kathmandu"] {
            let Some(read) = zone_of(&format!("/usr/share/zoneinfo/{name}")) else { continue };
            let named = TimeZone::get(name).unwrap();
            for secs in [1_795_644_000, 1_782_000_000, 4_102_444_800] {
                let form = "%Y-%m-%dT%H:%M:%S %Z";
                assert_eq!(at(secs).strftime(form, &read), at(secs).strftime(form, &named), "{name}");
            }
        }
        assert!(zone_of("/etc/hostname").is_none() && zone_of("/nonexistent").is_none());
        assert_eq!(at(0).text(&system_zone()), at(0).text(&TimeZone::system()));
    }

    #[test]
    fn limits_read_in_every_documented_form() {
        let minutes = |text: &str| match text.parse::<TimeLimit>().unwrap() {
            TimeLimit::Unlimited => None,
            TimeLimit::Secs(s) => Some(s / 60),
        };
        for (text, want) in [
            ("1", 1),
            ("90", 90),
            ("1:30", 2),
            ("0:10", 1),
            ("1:90", 3),
            ("1:2:3", 63),
            ("100:00", 100),
            ("1-2", 26 * 60),
            ("1-", 24 * 60),
            ("1-25", 49 * 60),
            ("1-2:3", 26 * 60 + 3),
            ("1-2:3:4", 26 * 60 + 4),
        ] {
            assert_eq!(minutes(text), Some(want), "{text}");
        }
        for text in ["UNLIMITED", "infinite", "-1", "0"] {
            assert_eq!(minutes(text), None, "{text}");
        }
        for text in ["", "1x", ":30", "1:", "1-2:", "1::2", "1:2:3:4", "1-2:3:4:5", "-", "-2", "99999999999999999999"] {
            assert!(text.parse::<TimeLimit>().is_err(), "{text}");
        }
        assert_eq!(parse_duration_secs("1:30"), Ok(Some(90)));
    }

    #[test]
    fn durations_print_in_both_forms() {
        for (secs, short, long) in [
            (4, "0:04", "00:00:04"),
            (600, "10:00", "00:10:00"),
            (3600, "1:00:00", "01:00:00"),
            (86_400, "1-00:00:00", "1-00:00:00"),
            (90_061, "1-01:01:01", "1-01:01:01"),
        ] {
            assert_eq!((short_duration(secs).as_str(), long_duration(secs).as_str()), (short, long));
        }
        assert_eq!(TimeLimit::Unlimited.sinfo_text(), "infinite");
        assert_eq!(TimeLimit::Unlimited.scontrol_text(), "UNLIMITED");
        assert_eq!(TimeLimit::Secs(600).squeue_text(), "10:00");
    }

    #[test]
    fn points_in_time_print_in_the_zone_asked_for() {
        let t = Timestamp(1_795_255_251_528);
        assert_eq!(t.text(&TimeZone::UTC), "2026-11-21T10:00:51");
        let east = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(t.text(&east), "2026-11-21T12:00:51");
        assert_eq!(t.text_with_millis(&TimeZone::UTC), "2026-11-21T10:00:51.528");
        assert_eq!(time_or(None, NOT_APPLICABLE, &east), "N/A");
        assert_eq!(Timestamp(i64::MAX).text(&east), "Unknown");
    }

    proptest! {
        #[test]
        fn whole_minutes_survive_both_forms(minutes in 1u64..10_000_000) {
            let limit = TimeLimit::Secs(minutes * 60);
            prop_assert_eq!(limit.scontrol_text().parse::<TimeLimit>(), Ok(limit));
            prop_assert_eq!(limit.squeue_text().parse::<TimeLimit>(), Ok(limit));
        }

        #[test]
        fn any_text_is_a_limit_or_an_error(s in "\\PC{0,20}|[0-9:-]{0,30}") {
            let _ = s.parse::<TimeLimit>();
        }
    }
}
