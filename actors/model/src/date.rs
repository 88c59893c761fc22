//! Points in time as users write them, for `--begin`, `--deadline` and `scontrol update StartTime=`: `now+1hour`,
//! `16:00`, `tomorrow`, `2010-01-20T12:34:00` and the other forms of `sbatch(1)`. The clock and the zone are arguments.

use crate::time::Timestamp;
use jiff::{
    ToSpan,
    civil::{Date, Time, time},
    tz::TimeZone,
};

/// Text that names no point in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DateTextError {
    /// Nothing there.
    #[error("no time given")]
    Empty,
    /// A word that is neither a date nor a time of day.
    #[error("\"{text}\": \"{part}\" is neither a date (YYYY-MM-DD, MM/DD/YY, MMDD) nor a time (HH:MM[:SS])")]
    Unknown {
        /// The whole text.
        text: String,
        /// The word.
        part: String,
    },
    /// No such day or hour.
    #[error("\"{text}\": \"{part}\" does not exist")]
    OutOfRange {
        /// The whole text.
        text: String,
        /// The word.
        part: String,
    },
    /// `now+...` with something else than a number and a unit.
    #[error("\"{0}\": expected now, now+COUNT or now+COUNT with seconds, minutes, hours, days or weeks")]
    Relative(String),
    /// Two dates, or two times of day.
    #[error("\"{0}\" names more than one date or more than one time")]
    Twice(String),
}

/// Reads a point in time. A time of day that has passed means tomorrow, a day without a year that has passed means next
/// year, and a date alone means the start of that day.
pub fn parse_date(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, DateTextError> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(DateTextError::Empty);
    }
    let lower = trimmed.to_ascii_lowercase();
    if let Some(seconds) = lower.strip_prefix("uts") {
        let unknown = || DateTextError::Unknown { text: text.to_owned(), part: trimmed.to_owned() };
        return digits(seconds).map(Timestamp::from_secs).ok_or_else(unknown);
    }
    if let Some(rest) = lower.strip_prefix("now") {
        return relative(rest, now).ok_or_else(|| DateTextError::Relative(text.to_owned()));
    }
    let out_of_range = |part: &str| DateTextError::OutOfRange { text: text.to_owned(), part: part.to_owned() };
    let here = jiff::Timestamp::from_millisecond(now.0).map_err(|_| out_of_range("now"))?.to_zoned(zone.clone());
    let mut reader = Reader { text, today: here.date(), date: None, time: None };
    reader.read(&lower)?;
    let at = match (reader.date, reader.time) {
        (Some(day), time) => day.day.to_datetime(time.unwrap_or_default()),
        (None, Some(time)) if time > here.time() => reader.today.to_datetime(time),
        (None, Some(time)) => next_day(reader.today).ok_or_else(|| out_of_range(trimmed))?.to_datetime(time),
        (None, None) => return Err(DateTextError::Empty),
    };
    let passed_this_year = reader.date.is_some_and(|d| d.year_left_open) && at < here.datetime();
    let at = if passed_this_year { at.checked_add(1.year()).map_err(|_| out_of_range(trimmed))? } else { at };
    let at = at.to_zoned(zone.clone()).map_err(|_| out_of_range(trimmed))?;
    Ok(Timestamp(at.timestamp().as_millisecond()))
}

/// Reads a point in time for `--starttime` and `--endtime` of accounting commands, in the forms of sacct(1): those of
/// [`parse_date`], with `-` too between a date and a time of day. A time of day is today's, and a day without a year is of the last
/// twelve months: one of a later month than this is last year's.
///
/// # Errors
/// As [`parse_date`].
pub fn parse_past(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, DateTextError> {
    let lower = text.trim().to_ascii_lowercase();
    if lower.starts_with("now") || lower.starts_with("uts") || lower.is_empty() {
        return parse_date(text, now, zone);
    }
    let out_of_range = || DateTextError::OutOfRange { text: text.to_owned(), part: text.trim().to_owned() };
    let here = jiff::Timestamp::from_millisecond(now.0).map_err(|_| out_of_range())?.to_zoned(zone.clone());
    let mut reader = Reader { text, today: here.date(), date: None, time: None };
    reader.read(&apart(&lower))?;
    let day = match reader.date {
        None if reader.time.is_none() => return Err(DateTextError::Empty),
        None => reader.today,
        Some(Day { day, year_left_open: true }) if day.year() > here.year() || day.month() > here.month() => {
            day.checked_sub(1.year()).map_err(|_| out_of_range())?
        }
        Some(Day { day, .. }) => day,
    };
    let at = day.to_datetime(reader.time.unwrap_or_default()).to_zoned(zone.clone()).map_err(|_| out_of_range())?;
    Ok(Timestamp(at.timestamp().as_millisecond()))
}

/// A text with blanks for the dashes between its date and its time of day.
fn apart(lower: &str) -> String {
    let bytes = lower.as_bytes();
    let is_date = |at: usize| {
        let date = bytes.get(at..at + 10).is_some_and(|date| {
            date.iter().enumerate().all(|(i, b)| if i == 4 || i == 7 { *b == b'-' } else { b.is_ascii_digit() })
        });
        date && at.checked_sub(1).is_none_or(|before| !bytes[before].is_ascii_digit())
    };
    let date = (0..bytes.len()).find(|at| is_date(*at));
    let inside = |at: usize| date.is_some_and(|date| (date..date + 10).contains(&at));
    lower.char_indices().map(|(at, c)| if c == '-' && !inside(at) { ' ' } else { c }).collect()
}

/// Where a text that [`parse_past`] refuses stops being a point in time, in bytes from its beginning: for messages.
pub fn wrong_in_past(text: &str) -> usize {
    let lower = text.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("now") {
        let counts = rest.starts_with(['+', '-']) && rest[1..].starts_with(|c: char| c.is_ascii_digit());
        return 3 + usize::from(counts);
    }
    let apart = apart(&lower);
    let mut at = 0;
    for word in apart.split([' ', 't']) {
        const NAMES: [&str; 7] = ["today", "tomorrow", "midnight", "noon", "elevenses", "fika", "teatime"];
        // `today` and the others with a `t` in them are looked for in what is left of the text.
        if let Some(name) = NAMES.iter().find(|name| apart[at.min(apart.len())..].starts_with(**name)) {
            at += name.len();
            if !apart[at..].starts_with(' ') {
                return at;
            }
            return at + 1 + wrong_figures(&apart[at + 1..]);
        }
        let figures = word.bytes().all(|b| b.is_ascii_digit());
        let fine = parse_date(word, Timestamp(0), &TimeZone::UTC).is_ok();
        if !fine {
            return at + if figures { 0 } else { wrong_figures(word) };
        }
        at += word.len() + 1;
    }
    text.len()
}

/// Where a text that is no point in time stops being one, in bytes from its beginning: for messages.
pub fn wrong_at(text: &str) -> usize {
    let lower = text.to_ascii_lowercase();
    for word in ["now", "today", "tomorrow", "midnight", "noon", "elevenses", "fika", "teatime"] {
        let Some(rest) = lower.strip_prefix(word) else { continue };
        let count = rest.strip_prefix(['+', '-']).map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
        let unit = rest.get(count + 1..).unwrap_or_default();
        let known = ["seconds", "minutes", "hours", "days", "weeks"]
            .into_iter()
            .flat_map(|unit| [unit, &unit[..unit.len() - 1]]);
        let unit = known.filter(|known| unit.starts_with(known)).map(str::len).max().unwrap_or(0);
        return word.len() + if count > 0 { 1 + count + unit } else { 0 };
    }
    let time = match lower.split_once('t') {
        Some((date, _)) if date.ends_with(|c: char| c.is_ascii_digit()) => date.len() + 1,
        _ => 0,
    };
    if time > 0 {
        let in_date = wrong_figures(&lower[..time - 1]);
        return if in_date < time - 1 { in_date } else { time + wrong_figures(&lower[time..]) };
    }
    wrong_figures(&lower)
}

/// Where figures with `:`, `/`, `.` or `-` between them stop being a date or time of day.
fn wrong_figures(text: &str) -> usize {
    let mark = text.find(|c: char| !c.is_ascii_digit()).map_or(' ', |at| char::from(text.as_bytes()[at]));
    let limits: &[i64] = match mark {
        ':' => &[23, 59, 59],
        '/' | '.' => &[12, 31, 9999],
        '-' => &[9999, 12, 31],
        _ => &[],
    };
    let (mut at, mut first) = (0, 0);
    for (i, limit) in limits.iter().enumerate() {
        let figures = text[at..].bytes().take_while(u8::is_ascii_digit).count();
        let Some(number) = digits(&text[at..at + figures]).filter(|number| number <= limit) else { return at };
        first = if i == 0 { number } else { first };
        at += figures;
        if (mark, i) == ('-', 0) && figures != 4 {
            return at;
        }
        if !text[at..].starts_with(mark) || i + 1 == limits.len() {
            break;
        }
        at += 1;
    }
    let half = text[at..].starts_with("am") || text[at..].starts_with("pm");
    match mark {
        ':' if half && first <= 12 => at + 2,
        ':' | '/' | '.' | '-' => at,
        _ => text.bytes().take_while(u8::is_ascii_digit).count(),
    }
}

fn digits(s: &str) -> Option<i64> {
    (!s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok()).flatten()
}

fn next_day(day: Date) -> Option<Date> {
    day.tomorrow().ok()
}

/// What follows `now`.
fn relative(rest: &str, now: Timestamp) -> Option<Timestamp> {
    let rest = rest.trim();
    if rest.is_empty() {
        return Some(now);
    }
    let (sign, amount) =
        if let Some(amount) = rest.strip_prefix('+') { (1, amount) } else { (-1, rest.strip_prefix('-')?) };
    let amount = amount.trim();
    let count = amount.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = amount.split_at(count);
    let secs = match unit.trim() {
        "" | "second" | "seconds" => 1,
        "minute" | "minutes" => 60,
        "hour" | "hours" => 3600,
        "day" | "days" => 86_400,
        "week" | "weeks" => 7 * 86_400,
        _ => return None,
    };
    let ms = digits(count)?.checked_mul(secs * 1000)?;
    now.0.checked_add(sign * ms).map(Timestamp)
}

#[derive(Clone, Copy)]
struct Day {
    day: Date,
    year_left_open: bool,
}

/// Collects a date and a time of day, in either order.
struct Reader<'a> {
    text: &'a str,
    today: Date,
    date: Option<Day>,
    time: Option<Time>,
}

impl Reader<'_> {
    fn read(&mut self, lower: &str) -> Result<(), DateTextError> {
        let mut words = lower.split_ascii_whitespace().peekable();
        while let Some(word) = words.next() {
            // The T between a date and a time; the words today, tomorrow and teatime have theirs elsewhere.
            let (first, second) = match word.split_once('t') {
                Some((date, time)) if date.ends_with(|c: char| c.is_ascii_digit()) => (date, Some(time)),
                _ => (word, None),
            };
            for (part, last) in [(Some(first), second.is_none()), (second, true)] {
                let Some(part) = part else { continue };
                let half = if last { words.next_if(|next| matches!(*next, "am" | "pm")) } else { None };
                self.word(part, half)?;
            }
        }
        Ok(())
    }

    fn word(&mut self, part: &str, half: Option<&str>) -> Result<(), DateTextError> {
        let fixed = |day: Option<Date>| day.map(|day| Day { day, year_left_open: false });
        let day = match part {
            "today" => fixed(Some(self.today)),
            "tomorrow" => fixed(next_day(self.today)),
            _ if part.contains(':') => None,
            _ => self.date(part)?,
        };
        let time = match part {
            _ if day.is_some() => None,
            "midnight" => Some(Time::midnight()),
            "noon" => Some(time(12, 0, 0, 0)),
            "elevenses" => Some(time(11, 0, 0, 0)),
            "fika" => Some(time(15, 0, 0, 0)),
            "teatime" => Some(time(16, 0, 0, 0)),
            _ => Some(self.time(part, half)?),
        };
        if (day.is_some() && self.date.is_some()) || (time.is_some() && self.time.is_some()) {
            return Err(DateTextError::Twice(self.text.to_owned()));
        }
        self.date = self.date.or(day);
        self.time = self.time.or(time);
        Ok(())
    }

    fn unknown(&self, part: &str) -> DateTextError {
        DateTextError::Unknown { text: self.text.to_owned(), part: part.to_owned() }
    }

    /// A date in figures, or `None` when the word is none.
    fn date(&self, part: &str) -> Result<Option<Day>, DateTextError> {
        let numbers = |mark: char| part.split(mark).map(digits).collect::<Option<Vec<i64>>>().unwrap_or_default();
        let widths = |mark: char| part.split(mark).map(str::len).collect::<Vec<_>>();
        let (year, month, day) = if let (&[year, month, day], &[4, 2, 2]) = (&*numbers('-'), &*widths('-')) {
            (Some(year), month, day)
        } else if let (&[month, day, year], &[1..=2, 1..=2, 2 | 4]) = (&*numbers('/'), &*widths('/')) {
            (Some(year), month, day)
        } else if let (&[month, day], &[1..=2, 1..=2]) = (&*numbers('/'), &*widths('/')) {
            (None, month, day)
        } else if let (&[month, day, year], &[1..=2, 1..=2, 2 | 4]) = (&*numbers('.'), &*widths('.')) {
            (Some(year), month, day)
        } else if let (&[month, day], &[1..=2, 1..=2]) = (&*numbers('.'), &*widths('.')) {
            (None, month, day)
        } else {
            match (digits(part), part.len()) {
                (Some(n), 4) => (None, n / 100, n % 100),
                (Some(n), 6) => (Some(n % 100), n / 10_000, n / 100 % 100),
                _ => return Ok(None),
            }
        };
        let full_year = match year {
            None => i64::from(self.today.year()),
            Some(y) if y < 100 => 2000 + y,
            Some(y) => y,
        };
        let made = match (i16::try_from(full_year), i8::try_from(month), i8::try_from(day)) {
            (Ok(y), Ok(m), Ok(d)) => Date::new(y, m, d).ok(),
            _ => None,
        };
        // 29 February without a year may exist next year only; the nearest year that has it is meant.
        let made = made.or_else(|| {
            let leap = year.is_none() && (month, day) == (2, 29);
            (1..=8).map(|n| full_year + n).filter(|_| leap).find_map(|y| Date::new(i16::try_from(y).ok()?, 2, 29).ok())
        });
        let out_of_range = || DateTextError::OutOfRange { text: self.text.to_owned(), part: part.to_owned() };
        made.map(|day| Some(Day { day, year_left_open: year.is_none() })).ok_or_else(out_of_range)
    }

    /// `HH:MM[:SS]`, with `am` or `pm` attached or following.
    fn time(&self, part: &str, half: Option<&str>) -> Result<Time, DateTextError> {
        let (figures, half) = match (part.strip_suffix("am"), part.strip_suffix("pm")) {
            (Some(figures), _) => (figures, Some("am")),
            (_, Some(figures)) => (figures, Some("pm")),
            _ => (part, half),
        };
        let numbers = figures.split(':').map(|n| digits(n).filter(|_| n.len() <= 2)).collect::<Option<Vec<i64>>>();
        let (hour, minute, second) = match numbers.as_deref() {
            Some(&[hour, minute]) => (hour, minute, 0),
            Some(&[hour, minute, second]) => (hour, minute, second),
            _ => return Err(self.unknown(part)),
        };
        let out_of_range = || DateTextError::OutOfRange { text: self.text.to_owned(), part: part.to_owned() };
        let hour = match half {
            None => hour,
            Some(_) if !(1..=12).contains(&hour) => return Err(out_of_range()),
            Some("pm") => hour % 12 + 12,
            Some(_) => hour % 12,
        };
        // At most two digits each, so they fit.
        Time::new(hour as i8, minute as i8, second as i8, 0).map_err(|_| out_of_range())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// 2026-11-21T11:27:22 UTC, a Saturday.
    const NOW: Timestamp = Timestamp(1_795_260_442_000);

    fn at(text: &str) -> String {
        parse_date(text, NOW, &TimeZone::UTC).map_or_else(|e| e.to_string(), |t| t.text(&TimeZone::UTC))
    }

    #[test]
    fn relative_forms() {
        for (text, want) in [
            ("now", "2026-11-21T11:27:22"),
            ("now+1hour", "2026-11-21T12:27:22"),
            ("now+60", "2026-11-21T11:28:22"),
            ("now+2days", "2026-11-23T11:27:22"),
            ("now+1week", "2026-11-28T11:27:22"),
            ("NOW+5minutes", "2026-11-21T11:32:22"),
            ("now-1hour", "2026-11-21T10:27:22"),
            ("uts1830000000", "2027-12-28T13:20:00"),
        ] {
            assert_eq!(at(text), want, "{text}");
        }
        for text in ["now+1min", "now+1h", "nowx", "now+1month", "now+", "now+x", "now+99999999999999999999"] {
            assert!(at(text).contains("expected now"), "{text}");
        }
    }

    fn past(text: &str) -> String {
        parse_past(text, NOW, &TimeZone::UTC).map_or_else(|e| e.to_string(), |t| t.text(&TimeZone::UTC))
    }

    /// As `sacct -v -S` of Slurm 26.05.3 said.
    #[test]
    fn accounting_commands_look_back() {
        for (text, want) in [
            ("12:00", "2026-11-21T12:00:00"),
            ("8:46am", "2026-11-21T08:46:00"),
            ("12:00 PM", "2026-11-21T12:00:00"),
            ("1120-08:46", "2026-11-20T08:46:00"),
            ("112026-08:46", "2026-11-20T08:46:00"),
            ("11.20.26-08:46", "2026-11-20T08:46:00"),
            ("2026-11-20-08:46", "2026-11-20T08:46:00"),
            ("2026-11-20 08:46", "2026-11-20T08:46:00"),
            ("10:00-11/20", "2026-11-20T10:00:00"),
            ("10:00 2026-11-20", "2026-11-20T10:00:00"),
            ("11/20-noon", "2026-11-20T12:00:00"),
            ("fika 11/20", "2026-11-20T15:00:00"),
            ("2026-11-20T08:46:10", "2026-11-20T08:46:10"),
            ("11/30", "2026-11-30T00:00:00"),
            ("12/30", "2025-12-30T00:00:00"),
            ("10/31", "2026-10-31T00:00:00"),
            ("noon", "2026-11-21T12:00:00"),
            ("midnight", "2026-11-21T00:00:00"),
            ("tomorrow", "2026-11-22T00:00:00"),
            ("now-1hour", "2026-11-21T10:27:22"),
            ("now+2weeks", "2026-12-05T11:27:22"),
        ] {
            assert_eq!(past(text), want, "{text}");
        }
    }

    #[test]
    fn a_message_says_where_a_past_time_stops_being_one() {
        for (text, at) in [
            ("bogus", 0),
            ("1795423086", 0),
            ("2026-13-45", 5),
            ("99:99", 0),
            ("12:60", 3),
            ("12:30:99", 6),
            ("13:00pm", 5),
            ("2026-11-23tx", 11),
            ("1123-x", 5),
            ("1123x", 4),
            ("11/23-25:00", 6),
            ("now-x", 3),
            ("now-1month", 4),
            ("today-1hour", 7),
            ("midnight+1hour", 8),
            ("16", 0),
        ] {
            assert!(parse_past(text, NOW, &TimeZone::UTC).is_err(), "{text}: {}", past(text));
            assert_eq!(wrong_in_past(text), at, "{text}");
        }
    }

    #[test]
    fn times_of_day_are_the_next_such_time() {
        for (text, want) in [
            ("16:00", "2026-11-21T16:00:00"),
            ("10:00", "2026-11-22T10:00:00"),
            ("4:30pm", "2026-11-21T16:30:00"),
            ("04:30 PM", "2026-11-21T16:30:00"),
            ("12:05am", "2026-11-22T00:05:00"),
            ("12:34:56", "2026-11-21T12:34:56"),
            ("noon", "2026-11-21T12:00:00"),
            ("midnight", "2026-11-22T00:00:00"),
            ("teatime", "2026-11-21T16:00:00"),
            ("fika", "2026-11-21T15:00:00"),
            ("elevenses", "2026-11-22T11:00:00"),
            ("16:00 tomorrow", "2026-11-22T16:00:00"),
            ("tomorrow", "2026-11-22T00:00:00"),
            ("today", "2026-11-21T00:00:00"),
        ] {
            assert_eq!(at(text), want, "{text}");
        }
    }

    #[test]
    fn dates_in_every_documented_form() {
        for (text, want) in [
            ("2010-01-20T12:34:00", "2010-01-20T12:34:00"),
            ("2030-01-20T12:34", "2030-01-20T12:34:00"),
            ("2030-01-20", "2030-01-20T00:00:00"),
            ("2030-01-20 12:34", "2030-01-20T12:34:00"),
            ("2030-12-25T4:30pm", "2030-12-25T16:30:00"),
            ("12/25T10:00", "2026-12-25T10:00:00"),
            ("0120", "2027-01-20T00:00:00"),
            ("012030", "2030-01-20T00:00:00"),
            ("01/20/10", "2010-01-20T00:00:00"),
            ("1/2/30", "2030-01-02T00:00:00"),
            ("01.20.30", "2030-01-20T00:00:00"),
            ("03/05", "2027-03-05T00:00:00"),
            ("0229", "2028-02-29T00:00:00"),
        ] {
            assert_eq!(at(text), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            " ",
            "16",
            "20300120",
            "1830000000",
            "yesterday",
            "tomorrow+1hour",
            "noon+1",
            "Jan",
            "2030-1-2",
            "25:00",
            "13:00pm",
            "2030-02-30",
            "16:00 17:00",
            "today tomorrow",
            "uts",
            "12:34:56:78",
            "1-1-1",
            "pm",
        ] {
            assert!(parse_date(text, NOW, &TimeZone::UTC).is_err(), "{text}: {}", at(text));
        }
        assert_eq!(at("2030-02-30"), "\"2030-02-30\": \"2030-02-30\" does not exist");
    }

    #[test]
    fn a_message_says_where_a_text_stops_being_a_time() {
        for (text, at) in [
            ("x", 0),
            ("yesterday", 0),
            ("25:00", 0),
            ("1", 1),
            ("12", 2),
            ("1-2-3", 1),
            ("12:60", 3),
            ("12:30:99", 6),
            ("12:30pmx", 7),
            ("13:00pm", 5),
            ("2035-01-02Tx", 11),
            ("2035-01-99", 8),
            ("2035-13-01", 5),
            ("01/02/x", 6),
            ("noonx", 4),
            ("now+x", 3),
            ("now+1hourz", 9),
            ("", 0),
            ("é", 0),
            ("12:é", 3),
        ] {
            assert_eq!(wrong_at(text), at, "{text}");
        }
    }

    #[test]
    fn the_zone_decides_which_day_it_is() {
        let east = TimeZone::fixed(jiff::tz::offset(13));
        assert_eq!(parse_date("tomorrow", NOW, &east).unwrap().text(&east), "2026-11-23T00:00:00");
    }

    proptest! {
        #[test]
        fn any_text_is_a_date_or_an_error(s in "\\PC{0,24}|[0-9:/.tT apmno+-]{0,20}|now[+-][0-9]{0,22}[a-z]{0,8}") {
            let _ = parse_date(&s, NOW, &TimeZone::UTC);
            assert!(wrong_at(&s) <= s.len());
        }
    }
}
