//! `Key=Value` words of `scontrol create` and `update`. A key is one row of a table: its name, and how its value changes a record.

use super::full_word;
use crate::{options::getopt, query::choices};
use garrick_model::{
    date, hostlist,
    time::{Timestamp, parse_duration_secs},
};
use jiff::tz::TimeZone;
use std::{fmt::Display, str::FromStr};

/// A word that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("Invalid input: {0}\nRequest aborted")]
    NoPair(String),
    #[error("Update of this parameter is not supported: {word}\nRequest aborted")]
    UnknownKey { word: String, hint: Option<String> },
    #[error("Unknown parameter {word}")]
    UnknownParameter { word: String, hint: Option<String> },
    #[error("scontrol: error: Invalid {key} value: {value}")]
    Value { key: &'static str, value: String, why: String },
    /// The same of a key whose values Slurm does not repeat.
    #[error("scontrol: error: Invalid {0} value")]
    Unnamed(&'static str),
    /// A key of nodes.
    #[error("scontrol: error: Invalid value {word} for {key}")]
    NodeValue { key: &'static str, word: String },
    /// A time, and where reading it ended.
    #[error("Invalid time specification (pos={at}): {value}\nNo changes specified")]
    Time { at: usize, value: String, why: String },
    #[error("Invalid MailType: {0}")]
    MailType(String),
    #[error("Invalid job id specified for job {0}")]
    JobId(String),
    #[error("Invalid StepID parameter: {0}\nRequest aborted")]
    StepId(String),
    #[error(
        "Invalid input: {0}\nRequest aborted\nValid states are: {1}\nNot all states are valid given a node's prior state"
    )]
    NodeState(String, &'static str),
    /// A key of partitions that is none.
    #[error("scontrol: error: Update of this parameter is not supported: {0}\n\nscontrol: error: Request aborted")]
    PartitionKey(String),
    /// A value of a partition: what is said of it.
    #[error("{text}")]
    PartitionValue { text: String, why: String },
    #[error("{key} value out of range (+/- {most}). Value ignored")]
    Range { key: &'static str, most: i64 },
    #[error("{0}")]
    Flag(#[from] garrick_model::reservation::FlagError),
    #[error(
        "No valid entity in update command\nInput line must include \"NodeName\", \"PartitionName\", \"Reservation\", \
         \"JobId\", or \"SlurmctldDebug\""
    )]
    NoEntity,
    #[error("{0} is not supported yet")]
    NotSupported(String),
    #[error("You must specify a reason when DOWNING or DRAINING a node. Request denied")]
    ReasonMissing,
    #[error("You can only specify a resume time when DOWNING or DRAINING a node. Request denied")]
    ResumeWithout,
    #[error("ReservationName must be given")]
    NoName,
    #[error("No changes specified")]
    Nothing,
}

pub(super) fn wrong(key: &'static str, value: &str, why: impl Display) -> KeyError {
    KeyError::Value { key, value: value.to_owned(), why: why.to_string() }
}

impl KeyError {
    /// For who sits at a terminal: what was probably meant.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::UnknownKey { hint, .. } | Self::UnknownParameter { hint, .. } => hint.as_deref(),
            _ => None,
        }
    }

    /// What Slurm's sentence leaves out, for those who ask with `-v`.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Value { why, .. } | Self::Time { why, .. } | Self::PartitionValue { why, .. } => {
                Some(why.as_str()).filter(|why| !why.is_empty())
            }
            _ => None,
        }
    }
}

/// Where reading a time ends that is none: behind `now`, at what is no clock time behind a date, else at its begin.
fn stop(text: &str) -> usize {
    match text.split_once('T') {
        _ if text.to_ascii_lowercase().starts_with("now") => 3,
        Some((date, time)) if date.contains(|c: char| c.is_ascii_digit()) => {
            date.len() + 1 + time.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(time.len())
        }
        _ => 0,
    }
}

/// `Key=Value`, `Key+=Value` or `Key-=Value`, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair<'w> {
    pub key: &'w str,
    /// `+` of `+=`, `-` of `-=`.
    pub sign: Option<char>,
    pub value: &'w str,
}

impl<'w> Pair<'w> {
    /// `alone` is the one key that means something without a value.
    pub fn split(word: &'w str, alone: &str) -> Option<Self> {
        let (key, value) = if word.eq_ignore_ascii_case(alone) { (word, "") } else { word.split_once('=')? };
        let signed = ['+', '-'].into_iter().find_map(|sign| Some((key.strip_suffix(sign)?, sign)));
        Some(match signed {
            Some((key, sign)) => Self { key, sign: Some(sign), value },
            None => Self { key, sign: None, value },
        })
    }

    /// The value with the sign of `+=` or `-=` before it.
    pub fn value_with_sign(&self) -> String {
        self.sign.map_or_else(|| self.value.to_owned(), |sign| format!("{sign}{}", self.value))
    }

    /// Is it one of these keys?
    pub fn is(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.key.eq_ignore_ascii_case(key))
    }
}

/// A value, and what it takes to read it.
pub(super) struct Given<'w> {
    /// The key, as messages name it.
    pub key: &'static str,
    pub value: &'w str,
    /// `+` of `+=`, `-` of `-=`.
    pub sign: Option<char>,
    pub now: Timestamp,
    pub zone: &'w TimeZone,
}

impl Given<'_> {
    pub fn wrong(&self, why: impl Display) -> KeyError {
        wrong(self.key, self.value, why)
    }
    pub fn text(&self) -> Result<String, KeyError> {
        Ok(self.value.to_owned())
    }
    /// Words between commas.
    pub fn words(&self) -> Result<Vec<String>, KeyError> {
        Ok(choices::words(self.value))
    }
    /// A number or another type that is read from a whole text.
    pub fn parsed<T: FromStr>(&self) -> Result<T, KeyError> {
        self.value.parse().map_err(|_| self.wrong(""))
    }
    /// The same of a part of the value.
    pub fn part<T: FromStr>(&self, part: &str) -> Result<T, KeyError> {
        part.parse().map_err(|_| wrong(self.key, part, ""))
    }
    /// The whole value, with what the type says is wrong.
    pub fn explained<T: FromStr<Err: Display>>(&self) -> Result<T, KeyError> {
        self.value.parse().map_err(|e| self.wrong(e))
    }
    pub fn time(&self) -> Result<Timestamp, KeyError> {
        date::parse_date(self.value, self.now, self.zone).map_err(|e| KeyError::Time {
            at: stop(self.value),
            value: self.value.to_owned(),
            why: e.to_string(),
        })
    }
    /// Seconds; `None`: without end.
    pub fn secs(&self, text: &str) -> Result<Option<u64>, KeyError> {
        parse_duration_secs(text).map_err(|e| self.wrong(e))
    }
    /// A host list, as names; none when it is empty.
    pub fn hosts(&self) -> Result<Vec<String>, KeyError> {
        if self.value.is_empty() { Ok(Vec::new()) } else { hostlist::expand(self.value).map_err(|e| self.wrong(e)) }
    }
    pub fn yes_or_no(&self) -> Result<bool, KeyError> {
        match self.value.to_ascii_lowercase().as_str() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(self.wrong("yes or no")),
        }
    }
}

/// Changes a record as a value says.
pub(super) type Read<C> = fn(&mut C, &Given<'_>) -> Result<(), KeyError>;

/// A key of a record whose changes are a `C`.
pub(super) struct Key<C: 'static> {
    pub name: &'static str,
    /// The key that messages name.
    shown: &'static str,
    /// `+=` and `-=` are taken too.
    pub signed: bool,
    /// `None`: Slurm has it and Garrick has not yet.
    pub read: Option<Read<C>>,
}

pub(super) const fn key<C>(name: &'static str, read: Read<C>) -> Key<C> {
    Key { name, shown: name, signed: false, read: Some(read) }
}

pub(super) const fn signed<C>(name: &'static str, read: Read<C>) -> Key<C> {
    Key { name, shown: name, signed: true, read: Some(read) }
}

/// Another word for the key `shown`.
pub(super) const fn synonym<C>(name: &'static str, shown: &'static str, read: Read<C>) -> Key<C> {
    Key { name, shown, signed: false, read: Some(read) }
}

pub(super) const fn not_yet<C>(name: &'static str) -> Key<C> {
    Key { name, shown: name, signed: false, read: None }
}

impl<C> Key<C> {
    /// The value of that pair.
    pub fn given<'w>(&self, pair: Pair<'w>, now: Timestamp, zone: &'w TimeZone) -> Given<'w> {
        Given { key: self.shown, value: pair.value, sign: pair.sign, now, zone }
    }
}

/// The key of that name, or the only one whose name begins so.
pub(super) fn find<C>(typed: &str, table: &'static [Key<C>]) -> Option<&'static Key<C>> {
    let names: Vec<&'static str> = table.iter().map(|row| row.name).collect();
    let full = full_word(typed, &names)?;
    table.iter().find(|row| row.name == full)
}

/// The key that was probably meant.
pub(super) fn hint<'k>(typed: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    Some(format!("did you mean {}=?", getopt::nearest(typed, known)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_wrong_time_is_told_with_where_it_went_wrong() {
        assert_eq!(["x", "20x0", "now+x", "2035-01-01T1x", "2035-01-01T"].map(stop), [0, 0, 3, 12, 11]);
    }

    #[test]
    fn words_are_taken_apart_at_the_first_sign_of_equality() {
        let pair = |word| Pair::split(word, "nice");
        assert_eq!(pair("Comment=a=b"), Some(Pair { key: "Comment", sign: None, value: "a=b" }));
        assert_eq!(pair("TimeLimit+=5"), Some(Pair { key: "TimeLimit", sign: Some('+'), value: "5" }));
        assert_eq!(pair("users-="), Some(Pair { key: "users", sign: Some('-'), value: "" }));
        assert_eq!((pair("NICE").unwrap().key, pair("foo")), ("NICE", None));
    }
}
