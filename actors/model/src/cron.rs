//! When entries of a crontab are due: the five fields of scrontab(1), and the next time that they name.
//!
//! Fields are read as scrontab(1) describes them: numbers, names of months and days, ranges, lists and steps. Where both the day of
//! the month and the day of the week are restricted, one of them is enough, as crontab(5) says.
//!
//! When clocks are put forward, an entry whose time does not exist that day is due at the end of the gap; when they are put back, it
//! is due once. An entry of every hour goes by the hours that there really are: it is not due in the gap, and due in both of the
//! doubled hours.

use crate::time::Timestamp;
use jiff::{
    ToSpan as _, civil,
    tz::{AmbiguousOffset, AmbiguousTimestamp, TimeZone},
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The 29th of February comes again after eight years at most (1896, 1904). With a day of the week beside it, either is enough.
const LONGEST_SEARCH_YEARS: i32 = 8;

/// What stands for five fields (scrontab(1)).
const SHORTCUTS: [(&str, &str); 10] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 0-23 * * *"),
    ("@elevenses", "0 11 * * *"),
    ("@fika", "0 15 * * *"),
    ("@teatime", "0 16 * * *"),
];

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The five fields that a shortcut such as `@daily` stands for.
#[must_use]
pub fn shortcut(word: &str) -> Option<&'static str> {
    SHORTCUTS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, fields)| *fields)
}

/// Text that is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A step that is no number, or too large for its field.
    #[error("{0:?} is not a schedule: bad step value")]
    Step(String),
    /// What stands for months is neither a number nor a name.
    #[error("{0:?} is not a schedule: bad month")]
    Month(String),
    /// What stands for days of the week is neither a number nor a name.
    #[error("{0:?} is not a schedule: bad day of the week")]
    Day(String),
    /// Anything else.
    #[error("{0:?} is not a schedule: expected minute, hour, day of month, month and day of week")]
    Other(String),
}

/// When an entry of a crontab is due.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "ScheduleText", into = "ScheduleText")]
pub struct Schedule {
    /// The five fields, one blank between them: `*`, or numbers and ranges of them.
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
}

/// The fields of a schedule: least and greatest number, names, and the number of the first name.
struct Field {
    least: u8,
    most: u8,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { least: 0, most: 59, names: &[] },
    Field { least: 0, most: 23, names: &[] },
    Field { least: 1, most: 31, names: &[] },
    Field { least: 1, most: 12, names: &MONTHS },
    Field { least: 0, most: 7, names: &DAYS },
];

impl Field {
    fn number(&self, text: &str) -> Option<u8> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let number = match named {
            Some(at) => u8::try_from(at).ok()?.checked_add(self.least)?,
            None if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok()?,
            None => return None,
        };
        (self.least..=self.most).contains(&number).then_some(number)
    }

    /// The numbers of one item of a list, as bits.
    fn item(&self, text: &str) -> Result<u64, Wrong> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step).ok_or(Wrong::Step)?)),
            None => (text, None),
        };
        let number = |text: &str| self.number(text).ok_or(Wrong::Item);
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.least, self.most),
            Some((first, last)) => (number(first)?, number(last)?),
            // A step without a range has nothing to step over.
            None if step.is_some() => return Err(Wrong::Item),
            None => {
                let one = number(range).map_err(|_| self.unknown(range))?;
                (one, one)
            }
        };
        if first > last {
            return Err(Wrong::Item);
        }
        Ok((first..=last).step_by(step.unwrap_or(1).into()).fold(0, |bits, number| bits | 1 << number))
    }

    fn step(&self, text: &str) -> Option<u8> {
        text.parse().ok().filter(|step| (1..=self.most + 1).contains(step))
    }

    /// What is wrong with something that is neither a number nor a name.
    fn unknown(&self, text: &str) -> Wrong {
        let begins = |name: &&str| text.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name));
        let looks_known = text.starts_with(|c: char| c.is_ascii_digit() || c == '*') || self.names.iter().any(begins);
        if looks_known || self.names.is_empty() { Wrong::Item } else { Wrong::Name }
    }

    fn bits(&self, text: &str) -> Result<u64, Wrong> {
        // All numbers stand alone.
        let in_list = text.contains(',');
        text.split(',').try_fold(0, |bits, item| match in_list && item.starts_with('*') {
            true => Err(Wrong::Item),
            false => Ok(bits | self.item(item)?),
        })
    }
}

/// What is wrong with an item of a list.
#[derive(Clone, Copy)]
enum Wrong {
    Step,
    Name,
    Item,
}

/// A field as it is shown: `*` where it was written so, else its numbers, those that follow each other as a range.
fn shown(text: &str, bits: u64) -> String {
    if text == "*" {
        return text.to_owned();
    }
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for number in (0..64).filter(|number| bits >> number & 1 == 1) {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => spans.push((number, number)),
        }
    }
    let text = spans.into_iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    text.collect::<Vec<_>>().join(",")
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let other = || ScheduleError::Other(text.to_owned());
        let fields: Vec<&str> = shortcut(text.trim()).unwrap_or(text).split_ascii_whitespace().collect();
        if fields.len() != FIELDS.len() {
            return Err(other());
        }
        let mut bits = [0; 5];
        for (place, (bits, field)) in bits.iter_mut().zip(&FIELDS).enumerate() {
            *bits = field.bits(fields[place]).map_err(|wrong| match (wrong, place) {
                (Wrong::Step, _) => ScheduleError::Step(text.to_owned()),
                (Wrong::Name, 3) => ScheduleError::Month(text.to_owned()),
                (Wrong::Name, _) => ScheduleError::Day(text.to_owned()),
                (Wrong::Item, _) => other(),
            })?;
        }
        // 0 and 7 are Sunday.
        bits[4] = (bits[4] | bits[4] >> 7) & ALL_WEEKDAYS;
        let text: Vec<String> = fields.iter().zip(bits).map(|(text, bits)| shown(text, bits)).collect();
        let [minutes, hours, days, months, weekdays] = bits;
        let schedule = Self { text: text.join(" "), minutes, hours, days, months, weekdays };
        if schedule.is_ever_due() { Ok(schedule) } else { Err(other()) }
    }
}

/// As it travels: plain text. It has a name, so that whoever traces the forms of messages knows that not any text will do.
#[derive(Serialize, Deserialize)]
struct ScheduleText(String);

impl TryFrom<ScheduleText> for Schedule {
    type Error = ScheduleError;

    fn try_from(ScheduleText(text): ScheduleText) -> Result<Self, ScheduleError> {
        text.parse()
    }
}

impl From<Schedule> for ScheduleText {
    fn from(schedule: Schedule) -> Self {
        Self(schedule.text)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The most days that each month has.
const LONGEST_MONTHS: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

const ALL_HOURS: u64 = 0xff_ffff;
const ALL_DAYS: u64 = 0xffff_fffe;
const ALL_WEEKDAYS: u64 = 0x7f;

fn is_gap(when: &AmbiguousTimestamp) -> bool {
    matches!(when.offset(), AmbiguousOffset::Gap { .. })
}

const fn has(bits: u64, number: i8) -> bool {
    bits >> number & 1 == 1
}

impl Schedule {
    /// The first time after `now` at which it is due, in a zone. `None`: beyond what times can say.
    #[must_use]
    pub fn next(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let begin = jiff::Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone());
        // A day before: in a doubled hour past midnight, times of yesterday may be ahead.
        let mut day = begin.date().checked_sub(1.day()).ok()?;
        let last = begin.date().checked_add(LONGEST_SEARCH_YEARS.years()).ok()?;
        while day <= last {
            if self.has_day(day)
                && let Some(at) = self.next_on(day, now, zone)
            {
                return Some(at);
            }
            day = day.tomorrow().ok()?;
        }
        None
    }

    /// False on the 30th of February.
    fn is_ever_due(&self) -> bool {
        let has_its_days = |(month, most): (i8, u8)| has(self.months, month) && self.days & ((2 << most) - 1) != 0;
        self.weekdays != ALL_WEEKDAYS || (1..).zip(LONGEST_MONTHS).any(has_its_days)
    }

    fn has_day(&self, day: civil::Date) -> bool {
        let of_month = has(self.days, day.day());
        let of_week = has(self.weekdays, day.weekday().to_sunday_zero_offset());
        let either = self.days != ALL_DAYS && self.weekdays != ALL_WEEKDAYS;
        has(self.months, day.month()) && if either { of_month || of_week } else { of_month && of_week }
    }

    /// The first time of that day that is after `now`.
    fn next_on(&self, day: civil::Date, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let hours = (0..24).filter(|hour| has(self.hours, *hour));
        let times = hours.flat_map(|hour| (0..60).filter(|minute| has(self.minutes, *minute)).map(move |m| (hour, m)));
        let found = times.flat_map(|(hour, minute)| self.instants(day.at(hour, minute, 0, 0), zone));
        found.filter(|at| *at > now).min()
    }

    /// When a clock on the wall shows that.
    fn instants(&self, time: civil::DateTime, zone: &TimeZone) -> Vec<Timestamp> {
        let at = |found: Result<jiff::Timestamp, jiff::Error>| found.ok().map(|at| Timestamp(at.as_millisecond()));
        let when = zone.to_ambiguous_timestamp(time);
        let found = match (self.hours == ALL_HOURS, when.is_ambiguous()) {
            (_, false) | (false, true) => vec![at(self.once(time, zone))],
            (true, true) if is_gap(&when) => Vec::new(),
            (true, true) => vec![at(when.earlier()), at(when.later())],
        };
        found.into_iter().flatten().collect()
    }

    /// The only time of that day: of two the first, and of none the end of the gap.
    fn once(&self, time: civil::DateTime, zone: &TimeZone) -> Result<jiff::Timestamp, jiff::Error> {
        let when = zone.to_ambiguous_timestamp(time);
        if is_gap(&when) {
            let before = when.earlier()?;
            return zone.following(before).next().map_or(Ok(before), |change| Ok(change.timestamp()));
        }
        when.compatible()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn next(schedule: &str, now: &str, zone: &str) -> String {
        let zone = TimeZone::get(zone).unwrap();
        let now: civil::DateTime = now.parse().unwrap();
        let now = Timestamp(zone.to_timestamp(now).unwrap().as_millisecond());
        let at = schedule.parse::<Schedule>().unwrap().next(now, &zone);
        at.map_or("never".to_owned(), |at| {
            jiff::Timestamp::from_millisecond(at.0).unwrap().to_zoned(zone).strftime("%F %H:%M %z").to_string()
        })
    }

    #[test]
    fn times_are_found_by_minute_hour_day_and_month() {
        for (schedule, now, want) in [
            ("* * * * *", "2026-11-23T09:23:24", "2026-11-23 09:24 +0000"),
            ("*/10 * * * *", "2026-11-23T09:23:24", "2026-11-23 09:30 +0000"),
            ("0 0 * * *", "2026-11-23T00:00:00", "2026-11-24 00:00 +0000"),
            ("1-5,30 8-17/2 * * wed", "2026-11-23T09:23:24", "2026-11-25 08:01 +0000"),
            ("1-5,30 8-17/2 * * wed", "2026-11-25T08:05:00", "2026-11-25 08:30 +0000"),
            ("0 0 29 2 *", "2026-11-23T09:23:24", "2028-02-29 00:00 +0000"),
            ("0 12 1 JAN *", "2026-11-23T09:23:24", "2027-01-01 12:00 +0000"),
            ("0 0 * * 7", "2026-11-23T09:23:24", "2026-11-29 00:00 +0000"),
            ("0 0 * * 0", "2026-11-23T09:23:24", "2026-11-29 00:00 +0000"),
            // The 25th, or a Friday.
            ("0 0 25 * fri", "2026-11-23T09:23:24", "2026-11-25 00:00 +0000"),
            ("0 0 25 * fri", "2026-11-25T09:23:24", "2026-11-27 00:00 +0000"),
        ] {
            assert_eq!(next(schedule, now, "UTC"), want, "{schedule} after {now}");
        }
    }

    #[test]
    fn where_clocks_are_put_forward_a_missing_time_comes_at_the_end_of_the_gap() {
        let berlin = |schedule, now| next(schedule, now, "Europe/Berlin");
        assert_eq!(berlin("30 2 * * *", "2026-03-29T00:00:00"), "2026-03-29 03:00 +0200");
        assert_eq!(berlin("30 2 * * *", "2026-03-29T03:00:00"), "2026-03-30 02:30 +0200");
        assert_eq!(berlin("30 * * * *", "2026-03-29T01:30:00"), "2026-03-29 03:30 +0200");
    }

    #[test]
    fn where_clocks_are_put_back_a_time_comes_once_and_each_hour_counts() {
        let berlin = |schedule, now| next(schedule, now, "Europe/Berlin");
        assert_eq!(berlin("30 2 * * *", "2026-10-25T00:00:00"), "2026-10-25 02:30 +0200");
        assert_eq!(berlin("30 2 * * *", "2026-10-25T02:30:00"), "2026-10-26 02:30 +0100");
        assert_eq!(berlin("30 * * * *", "2026-10-25T02:30:00"), "2026-10-25 02:30 +0100");
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in [
            "",
            "*",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 13 *",
            "*,5 * * * *",
            "0 0 30 2 *",
            "0 0 31 feb,apr *",
            "* * * * 8",
            "5/10 * * * *",
            "*/61 * * * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "x * * * *",
            "* * * foo *",
            "1, * * * *",
            "-1 * * * *",
            "@never",
        ] {
            assert!(text.parse::<Schedule>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn shortcuts_stand_for_fields() {
        for (name, fields) in SHORTCUTS {
            assert_eq!(name.parse::<Schedule>().unwrap().to_string(), fields);
        }
    }

    #[test]
    fn a_schedule_is_shown_as_numbers_and_ranges() {
        for (text, shown) in [
            ("0-59 * * * *", "0-59 * * * *"),
            ("*/20 8-17/2 * jan,feb wed", "0,20,40 8,10,12,14,16 * 1-2 3"),
            ("00 4 1,2,3,5 * 0-7", "0 4 1-3,5 * 0-6"),
            ("5 4 * * Sun", "5 4 * * 0"),
        ] {
            let schedule: Schedule = text.parse().unwrap();
            assert_eq!(schedule.to_string(), shown);
            assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
        }
    }
}
