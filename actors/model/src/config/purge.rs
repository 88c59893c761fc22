//! What of accounting is purged when, and archived before: `PurgeJobAfter` and its relatives of slurmdbd.conf(5).

use crate::{
    config::syntax::{report::SettingError, values::Value},
    time::Timestamp,
};
use jiff::{RoundMode, ToSpan as _, Unit, Zoned, ZonedRound, tz::TimeZone};
use std::path::PathBuf;

/// The unit of an age. Purges happen when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeUnit {
    /// Hours.
    Hours,
    /// Days.
    Days,
    /// Months.
    Months,
}

/// `12months`, `30days`, `4hours`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// How many.
    pub count: u32,
    /// Of what.
    pub unit: AgeUnit,
}

/// Most units of an age: a century of days.
const MOST: u32 = 36_600;

impl Age {
    /// An age, as in the file; `None`: it is none.
    pub fn of(text: &str) -> Option<Self> {
        Self::parse(text).ok()
    }

    /// Takes an age; months where no unit is named.
    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        let wrong = || {
            SettingError::new(format!("\"{text}\" is not an age")).suggest("for example 12months, 30days or 12hours")
        };
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
        let unit = match lower[digits.len()..].trim() {
            "" | "month" | "months" => AgeUnit::Months,
            "day" | "days" => AgeUnit::Days,
            "hour" | "hours" => AgeUnit::Hours,
            _ => return Err(wrong()),
        };
        let count = digits.parse().ok().filter(|count| (1..=MOST).contains(count)).ok_or_else(wrong)?;
        Ok(Self { count, unit })
    }

    /// What ended before that is so old, in this time zone: counted from the beginning of the hour, day or month.
    pub fn before(self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let now = jiff::Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone());
        let begun: Zoned = match self.unit {
            AgeUnit::Hours => now.round(ZonedRound::new().smallest(Unit::Hour).mode(RoundMode::Trunc)).ok()?,
            AgeUnit::Days => now.start_of_day().ok()?,
            AgeUnit::Months => now.first_of_month().ok()?.start_of_day().ok()?,
        };
        let span = match self.unit {
            AgeUnit::Hours => i64::from(self.count).hours(),
            AgeUnit::Days => i64::from(self.count).days(),
            AgeUnit::Months => i64::from(self.count).months(),
        };
        let at = begun.checked_sub(span).ok()?;
        Some(Timestamp(at.timestamp().as_millisecond()))
    }
}

/// What is purged. `None`: never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeSettings {
    /// `PurgeJobAfter`.
    pub jobs: Option<Age>,
    /// `PurgeStepAfter`; steps go with their job at the latest.
    pub steps: Option<Age>,
    /// `PurgeTXNAfter`.
    pub transactions: Option<Age>,
    /// `PurgeEventAfter`.
    pub events: Option<Age>,
    /// `PurgeResvAfter`.
    pub reservations: Option<Age>,
    /// `PurgeJobScriptAfter`; a script goes with its job at the latest.
    pub scripts: Option<Age>,
    /// `PurgeJobEnvAfter`.
    pub environments: Option<Age>,
    /// `ArchiveJobs`: jobs are written to a file before.
    pub archive_jobs: bool,
    /// `ArchiveSteps`.
    pub archive_steps: bool,
    /// `ArchiveTXN`.
    pub archive_transactions: bool,
    /// `ArchiveEvents`.
    pub archive_events: bool,
    /// `ArchiveResvs`.
    pub archive_reservations: bool,
    /// `ArchiveJobScript`.
    pub archive_scripts: bool,
    /// `ArchiveJobEnv`.
    pub archive_environments: bool,
    /// `ArchiveDir`; `None`: `archive` beside the database. Slurm's default is `/tmp`, where others write too.
    pub folder: Option<PathBuf>,
    /// `MaxPurgeLimit`: most rows that are purged at a time. Whoever stores something waits for so long.
    pub at_a_time: u32,
}

impl Default for PurgeSettings {
    fn default() -> Self {
        Self {
            jobs: None,
            steps: None,
            transactions: None,
            events: None,
            reservations: None,
            scripts: None,
            environments: None,
            archive_jobs: false,
            archive_steps: false,
            archive_transactions: false,
            archive_events: false,
            archive_reservations: false,
            archive_scripts: false,
            archive_environments: false,
            folder: None,
            at_a_time: 1_000,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_age_counts_from_the_beginning_of_its_unit() {
        let now: jiff::Timestamp = "2026-11-28T10:30:00Z".parse().unwrap();
        let before = |text: &str| {
            let at = Age::parse(text).unwrap().before(Timestamp(now.as_millisecond()), &TimeZone::UTC).unwrap();
            jiff::Timestamp::from_millisecond(at.0).unwrap().to_string()
        };
        assert_eq!(before("2"), "2026-09-01T00:00:00Z");
        assert_eq!(before("1month"), "2026-10-01T00:00:00Z");
        assert_eq!(before("60Days"), "2026-09-29T00:00:00Z");
        assert_eq!(before("12 hours"), "2026-11-27T22:00:00Z");
        for wrong in ["", "0", "-1days", "3weeks", "months", "99999999days"] {
            assert!(Age::parse(wrong).is_err(), "{wrong}");
        }
    }
}
