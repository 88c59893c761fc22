//! A field's value as scripts have it. Numbers are floating-point, and what is not set is one of the `NO_VAL`s, as in Slurm's Lua
//! interface.

use garrick_model::{
    resources::{MemoryMib, MemoryRequest},
    spec::EnvEntry,
    time::{TimeLimit, Timestamp},
};

pub use garrick_lua::numbers::{INFINITE, MEM_PER_CPU, NICE_OFFSET, NO_VAL, NO_VAL16, NO_VAL64};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `nil`.
    Nil,
    /// A number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// Text, in the user's bytes.
    Text(Vec<u8>),
    /// Words by position, from 0.
    Words(Vec<Vec<u8>>),
    /// Environment variables: `NAME=value`.
    Environment(Vec<EnvEntry>),
}

/// Why a field cannot have a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(pub String);

/// A wrong kind of value, or one out of range.
pub fn bad(expected: &str, value: &Value) -> BadValue {
    let shown = match value {
        Value::Nil => "nil".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Text(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
        Value::Words(_) | Value::Environment(_) => "a table".to_owned(),
    };
    BadValue(format!("{shown} is not {expected}"))
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(f64::from(number))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into_bytes())
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        text.filter(|text| !text.is_empty()).map_or(Self::Nil, Self::from)
    }
}

impl From<Timestamp> for Value {
    /// Seconds since 1970.
    fn from(at: Timestamp) -> Self {
        Self::from_i64(at.secs())
    }
}

#[expect(clippy::cast_precision_loss, reason = "scripts have floating-point numbers, which hold integers to 2^53")]
const fn wide(number: i64) -> f64 {
    number as f64
}

impl Value {
    /// A whole number.
    pub const fn from_i64(number: i64) -> Self {
        Self::Number(wide(number))
    }

    /// A whole number, as far as 2^63.
    pub fn from_u64(number: u64) -> Self {
        Self::from_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// A number, or what stands for none.
    pub fn or(number: Option<u32>, none: u32) -> Self {
        Self::from(number.unwrap_or(none))
    }

    /// A limit in minutes, rounded up.
    pub fn minutes(limit: Option<TimeLimit>) -> Self {
        match limit {
            None => Self::from(NO_VAL),
            Some(TimeLimit::Unlimited) => Self::from(INFINITE),
            Some(TimeLimit::Secs(secs)) => Self::from_u64(secs.div_ceil(60)),
        }
    }

    /// `pn_min_memory`.
    pub fn memory(request: MemoryRequest) -> Self {
        let number = |mib: MemoryMib| wide(i64::try_from(mib.0).unwrap_or(i64::MAX));
        Self::Number(match request {
            MemoryRequest::Default => NO_VAL64,
            MemoryRequest::PerNode(mib) => number(mib),
            MemoryRequest::PerCpu(mib) => MEM_PER_CPU + number(mib),
            MemoryRequest::All => 0.0,
        })
    }

    /// A whole number from 0.
    pub fn whole(&self) -> Result<u64, BadValue> {
        let wrong = || bad("a whole number", self);
        match self {
            Self::Number(number) if *number >= 0.0 && number.fract() == 0.0 && *number < 9.1e18 =>
            {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and in range")]
                Ok(*number as u64)
            }
            Self::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }

    /// A number of 32 bits; `None`: one that stands for none.
    pub fn number(&self) -> Result<Option<u32>, BadValue> {
        if *self == Self::Nil {
            return Ok(None);
        }
        let number = u32::try_from(self.whole()?).map_err(|_| bad("a number of 32 bits", self))?;
        Ok(Some(number).filter(|number| ![NO_VAL, NO_VAL16].contains(number)))
    }

    /// Text; `None`: none.
    pub fn text(&self) -> Result<Option<String>, BadValue> {
        match self {
            Self::Nil => Ok(None),
            Self::Text(text) if text.is_empty() => Ok(None),
            Self::Text(text) => String::from_utf8(text.clone()).map(Some).map_err(|_| bad("text in UTF-8", self)),
            Self::Number(number) => Ok(Some(number.to_string())),
            _ => Err(bad("text", self)),
        }
    }

    /// Text that is read as something; `None`: none.
    pub fn read<T>(&self, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, BadValue> {
        self.text()?.map(|text| read(&text).ok_or_else(|| bad(what, self))).transpose()
    }

    /// A limit of time; `None`: none is set.
    pub fn limit(&self) -> Result<Option<TimeLimit>, BadValue> {
        let minutes = self.number()?;
        Ok(minutes.map(|minutes| match minutes {
            INFINITE => TimeLimit::Unlimited,
            minutes => TimeLimit::Secs(u64::from(minutes) * 60),
        }))
    }

    /// A point in time; `None`: none.
    pub fn time(&self) -> Result<Option<Timestamp>, BadValue> {
        if *self == Self::Nil {
            return Ok(None);
        }
        let secs = i64::try_from(self.whole()?).map_err(|_| bad("seconds since 1970", self))?;
        Ok(Some(secs).filter(|secs| *secs != 0 && *secs != i64::from(NO_VAL)).map(Timestamp::from_secs))
    }

    /// Yes or no; `None`: not said.
    pub fn flag(&self) -> Result<Option<bool>, BadValue> {
        match self {
            Self::Flag(flag) => Ok(Some(*flag)),
            other => other.number().map(|number| number.map(|number| number != 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_stand_for_none_are_none() {
        assert_eq!(Value::from(NO_VAL).number(), Ok(None));
        assert_eq!(Value::from(NO_VAL16).number(), Ok(None));
        assert_eq!(Value::from(7).number(), Ok(Some(7)));
        assert_eq!(Value::from("7").number(), Ok(Some(7)));
        assert_eq!(Value::Number(1.5).number(), Err(BadValue("1.5 is not a whole number".to_owned())));
        assert_eq!(Value::from(true).number(), Err(BadValue("true is not a whole number".to_owned())));
        assert_eq!(Value::from(90).limit(), Ok(Some(TimeLimit::Secs(5400))));
        assert_eq!(Value::from(INFINITE).limit(), Ok(Some(TimeLimit::Unlimited)));
        assert_eq!(Value::from(0).time(), Ok(None));
    }
}
