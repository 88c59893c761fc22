//! `--retry-on`: the ends after which a step is tried again, `1-3,75,NODE_FAIL,TIMEOUT,SIGKILL`, and back. And
//! `--max-fails` and `--step-cgroup`.

use crate::{
    batch::{FailBound, FailLimit, RetryOn, StepCgroup},
    signal::{REAL_TIME, signal_name, signal_number},
};
use std::{fmt, str::FromStr};

/// Text that names no end of a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetryTextError {
    /// Nothing there.
    #[error("no exit codes given")]
    Empty,
    /// Not one of the forms.
    #[error(
        "\"{0}\" is neither an exit code (1 to 255), a range of them, NODE_FAIL, TIMEOUT, OUT_OF_MEMORY nor a signal \
         such as SIGKILL"
    )]
    Word(String),
    /// 0 in a range: what succeeded is not tried again.
    #[error("exit code 0 is success: \"{0}\"")]
    Success(String),
}

/// A list of them, separated by commas.
pub fn retry_list(text: &str) -> Result<Vec<RetryOn>, RetryTextError> {
    if text.trim().is_empty() {
        return Err(RetryTextError::Empty);
    }
    text.split(',').map(|word| word.trim().parse()).collect()
}

impl FromStr for RetryOn {
    type Err = RetryTextError;
    fn from_str(text: &str) -> Result<Self, RetryTextError> {
        match text.to_ascii_uppercase().as_str() {
            "NODE_FAIL" => return Ok(Self::NodeFail),
            "TIMEOUT" => return Ok(Self::Timeout),
            "OUT_OF_MEMORY" | "OOM" => return Ok(Self::OutOfMemory),
            upper if upper.starts_with("SIG") => {
                let number = signal_number(upper).and_then(|n| u8::try_from(n).ok());
                return number.map(Self::Signal).ok_or_else(|| RetryTextError::Word(text.to_owned()));
            }
            _ => {}
        }
        let code = |figures: &str| -> Result<u8, RetryTextError> {
            let digits = !figures.is_empty() && figures.bytes().all(|b| b.is_ascii_digit());
            let code = figures.parse().ok().filter(|_| digits);
            code.ok_or_else(|| RetryTextError::Word(text.to_owned()))
        };
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (code(first)?, code(last)?),
            None => (code(text)?, code(text)?),
        };
        if first == 0 {
            return Err(RetryTextError::Success(text.to_owned()));
        }
        if last < first {
            return Err(RetryTextError::Word(text.to_owned()));
        }
        Ok(Self::Codes(first, last))
    }
}

impl fmt::Display for RetryOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Codes(first, last) if first == last => write!(f, "{first}"),
            Self::Codes(first, last) => write!(f, "{first}-{last}"),
            Self::Signal(number) => match signal_name(i32::from(*number)) {
                Some(name) => write!(f, "SIG{name}"),
                None => write!(f, "SIGRTMIN+{}", i32::from(*number) - REAL_TIME.0),
            },
            Self::NodeFail => f.write_str("NODE_FAIL"),
            Self::Timeout => f.write_str("TIMEOUT"),
            Self::OutOfMemory => f.write_str("OUT_OF_MEMORY"),
        }
    }
}

/// Text that says no number of failures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is neither a number of steps (1 or more) nor a share of them (1% to 100%), with or without \",kill\" behind it"
)]
pub struct FailLimitError(String);

/// `--max-fails`: how many steps may fail, and whether those that run are ended then (`10`, `5%`, `10,kill`).
pub fn fail_limit(text: &str) -> Result<(FailBound, bool), FailLimitError> {
    let wrong = || FailLimitError(text.to_owned());
    let (bound, kill) = match text.split_once(',') {
        Some((bound, "kill")) => (bound, true),
        Some(_) => return Err(wrong()),
        None => (text, false),
    };
    let (figures, percent) = bound.strip_suffix('%').map_or((bound, false), |figures| (figures, true));
    let digits = !figures.is_empty() && figures.bytes().all(|b| b.is_ascii_digit());
    let number: u32 = figures.parse().ok().filter(|number| digits && *number > 0).ok_or_else(wrong)?;
    match u8::try_from(number) {
        _ if !percent => Ok((FailBound::Steps(number), kill)),
        Ok(number) if number <= 100 => Ok((FailBound::Percent(number), kill)),
        _ => Err(wrong()),
    }
}

impl fmt::Display for FailLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.most {
            FailBound::Steps(most) => write!(f, "{most}")?,
            FailBound::Percent(most) => write!(f, "{most}%")?,
        }
        f.write_str(if self.kill { ",kill" } else { "" })
    }
}

/// Text that is neither `auto` nor `always`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is neither auto nor always")]
pub struct StepCgroupError(String);

impl FromStr for StepCgroup {
    type Err = StepCgroupError;
    fn from_str(text: &str) -> Result<Self, StepCgroupError> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            _ => Err(StepCgroupError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ids::RequestId;
    use proptest::prelude::*;

    #[test]
    fn ends_read_back() {
        let text = "1-3,75,NODE_FAIL,TIMEOUT,OUT_OF_MEMORY,SIGKILL,SIGRTMIN+3";
        let list = retry_list(text).unwrap();
        assert_eq!(list[..3], [RetryOn::Codes(1, 3), RetryOn::Codes(75, 75), RetryOn::NodeFail]);
        assert_eq!(list[5], RetryOn::Signal(9));
        assert_eq!(list.iter().map(ToString::to_string).collect::<Vec<_>>().join(","), text);
        assert_eq!(retry_list("sigterm, oom").unwrap(), [RetryOn::Signal(15), RetryOn::OutOfMemory]);
    }

    #[test]
    fn limits_of_failures_read_back() {
        for (text, want) in [
            ("1", (FailBound::Steps(1), false)),
            ("100000,kill", (FailBound::Steps(100_000), true)),
            ("100%", (FailBound::Percent(100), false)),
            ("5%,kill", (FailBound::Percent(5), true)),
        ] {
            let (most, kill) = fail_limit(text).unwrap();
            assert_eq!((most, kill), want);
            assert_eq!(FailLimit { group: RequestId(1, 2), most, kill }.to_string(), text);
        }
        for text in ["", "0", "0%", "101%", "300%", "%", "-1", "+1", "1 ", "5,", "5,die", ",kill", "5%%", "99999999999"]
        {
            assert!(fail_limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", " ", "x", "256", "3-1", "1-", "-1", "1,,2", "SIGFOO", "SIG", "1-2-3", "+1", "0", "0-3"] {
            assert!(retry_list(text).is_err(), "{text}");
        }
        assert_eq!(retry_list("0-3").unwrap_err().to_string(), "exit code 0 is success: \"0-3\"");
        assert!("sometimes".parse::<StepCgroup>().is_err());
        assert_eq!("Always".parse::<StepCgroup>().unwrap(), StepCgroup::Always);
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_an_error(s in "\\PC{0,20}|[0-9,SIGNODE_-]{0,16}") {
            if let Ok(list) = retry_list(&s) {
                let text = list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
                prop_assert_eq!(retry_list(&text), Ok(list));
            }
        }
    }
}
