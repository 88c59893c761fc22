//! Text forms of what users ask for: `--nodes` and `--signal` here; `--array` in [`mod@array`] and `--dependency` in
//! [`dependency`] (between jobs) and [`step_dependency`] (between steps of a job), `--retry-on` and `--step-cgroup` in
//! [`retry`], `--licenses` in [`licenses`], `--gres` in
//! [`gres`]. Used by the commands for options, environment and script lines, and for `scontrol update`.

pub mod array;
pub mod dependency;
pub mod gres;
pub mod licenses;
pub mod retry;
pub mod step_dependency;

use crate::{
    signal::{signal_number, signal_text},
    spec::{NodeCount, SignalWarning},
};
use std::{fmt, str::FromStr};

/// Text that is no node count; Slurm's sentences.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeCountError {
    /// Not a number or two.
    #[error("\"{0}\" is not a valid node count")]
    Invalid(String),
    /// `4-2`
    #[error("Maximum node count {max} is less than minimum node count {min}")]
    Backwards {
        /// Least.
        min: u32,
        /// Most.
        max: u32,
    },
}

impl FromStr for NodeCount {
    type Err = NodeCountError;
    /// `2` is exactly two, `1-4` a range; `2k` is 2048, `1m` is 1048576.
    fn from_str(text: &str) -> Result<Self, NodeCountError> {
        let count = |part: &str| -> Result<u32, NodeCountError> {
            let wrong = || NodeCountError::Invalid(part.to_owned());
            let part = part.trim();
            let (digits, unit) = match part.char_indices().last() {
                Some((at, 'k' | 'K')) => (&part[..at], 1 << 10),
                Some((at, 'm' | 'M')) => (&part[..at], 1 << 20),
                _ => (part, 1),
            };
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(wrong());
            }
            digits.parse::<u32>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)
        };
        match text.split_once('-') {
            None => {
                let n = count(text)?;
                Ok(Self { min: n, max: Some(n) })
            }
            Some((min, max)) => {
                let (min, max) = (count(min)?, count(max)?);
                if max < min {
                    return Err(NodeCountError::Backwards { min, max });
                }
                Ok(Self { min, max: Some(max) })
            }
        }
    }
}

impl fmt::Display for NodeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.max {
            Some(max) if max != self.min => format!("{}-{max}", self.min),
            Some(_) | None => self.min.to_string(),
        };
        f.pad(&text)
    }
}

/// Seconds before the end at which a warning comes when `--signal` names none (`sbatch(1)`).
pub const DEFAULT_WARNING_SECS: u32 = 60;
/// Most seconds that `--signal` may name (`sbatch(1)`).
pub const MAX_WARNING_SECS: u32 = 65_535;

/// Text that is no `--signal`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignalWarningError {
    /// No such signal.
    #[error("\"{0}\" is not a signal")]
    Signal(String),
    /// Not a time.
    #[error("\"{0}\" is not a number of seconds from 0 to {MAX_WARNING_SECS}")]
    Seconds(String),
    /// Something other than `B` and `R` before the colon.
    #[error("\"{0}\" is not a known option of --signal: expected B or R")]
    Option(String),
}

impl FromStr for SignalWarning {
    type Err = SignalWarningError;
    fn from_str(text: &str) -> Result<Self, SignalWarningError> {
        let (options, rest) = text.split_once(':').map_or((None, text), |(options, rest)| (Some(options), rest));
        let (batch_only, overlaps) = match options.map(str::to_ascii_uppercase).as_deref() {
            None => (false, false),
            Some("B") => (true, false),
            Some("R") => (false, true),
            Some("RB" | "BR") => (true, true),
            Some(_) => return Err(SignalWarningError::Option(options.unwrap_or_default().to_owned())),
        };
        let (signal, secs) = rest.split_once('@').map_or((rest, None), |(signal, secs)| (signal, Some(secs)));
        let signal = signal_number(signal).ok_or_else(|| SignalWarningError::Signal(signal.to_owned()))?;
        let before_secs = match secs {
            None => DEFAULT_WARNING_SECS,
            Some("") => 0,
            Some(secs) => secs
                .parse()
                .ok()
                .filter(|&n| n <= MAX_WARNING_SECS && secs.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| SignalWarningError::Seconds(secs.to_owned()))?,
        };
        Ok(Self { signal, before_secs, batch_only, overlaps })
    }
}

impl fmt::Display for SignalWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = match (self.overlaps, self.batch_only) {
            (true, true) => "RB:",
            (true, false) => "R:",
            (false, true) => "B:",
            (false, false) => "",
        };
        f.pad(&format!("{target}{}@{}", signal_text(self.signal), self.before_secs))
    }
}

/// Counts per node as Slurm writes them, `72(x2),36`: `SLURM_JOB_CPUS_PER_NODE`, `SLURM_TASKS_PER_NODE`.
pub fn counts_per_node(counts: impl IntoIterator<Item = u32>) -> String {
    let mut groups: Vec<(u32, u32)> = Vec::new();
    for count in counts {
        match groups.last_mut() {
            Some((last, times)) if *last == count => *times += 1,
            _ => groups.push((count, 1)),
        }
    }
    let texts = groups.into_iter().map(|(count, times)| match times {
        1 => count.to_string(),
        _ => format!("{count}(x{times})"),
    });
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn node_counts_read_as_slurms() {
        let read = |text: &str| text.parse::<NodeCount>().map(|n| (n.min, n.max.unwrap()));
        assert_eq!(read("2"), Ok((2, 2)));
        assert_eq!(read("1-4"), Ok((1, 4)));
        assert_eq!(read("1k-2K"), Ok((1024, 2048)));
        assert_eq!(read("1m"), Ok((1 << 20, 1 << 20)));
        assert_eq!(read("4-2").unwrap_err().to_string(), "Maximum node count 2 is less than minimum node count 4");
        assert_eq!(read("x").unwrap_err().to_string(), "\"x\" is not a valid node count");
        for text in ["", "1-", "-3", "1,2", "1-5:2", "k", "4294967296", "5000m"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!("3-3".parse::<NodeCount>().unwrap().to_string(), "3");
    }

    #[test]
    fn warnings_read_as_slurms() {
        let read = |text: &str| text.parse::<SignalWarning>().map(|w| w.to_string());
        assert_eq!(read("USR2@30"), Ok("USR2@30".to_owned()));
        assert_eq!(read("B:SIGTERM"), Ok("B:TERM@60".to_owned()));
        assert_eq!(read("10@60"), Ok("USR1@60".to_owned()));
        assert_eq!(read("b:rtmin@65535"), Ok("B:34@65535".to_owned()));
        assert_eq!(read("USR1@"), Ok("USR1@0".to_owned()));
        assert_eq!((read("R:USR1"), read("br:USR1@9")), (Ok("R:USR1@60".to_owned()), Ok("RB:USR1@9".to_owned())));
        for text in ["", "0", "foo", "@10", "USR1@x", "USR1@65536", "X:USR1", ":USR1", "USR1@-1", "99"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn equal_counts_in_a_row_are_written_once() {
        assert_eq!(counts_per_node([72, 72, 36]), "72(x2),36");
        assert_eq!(counts_per_node([1, 2, 1]), "1,2,1");
        assert_eq!(counts_per_node([]), "");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_an_error(s in "\\PC{0,20}|[0-9kmBRSIG:@-]{0,16}") {
            let _ = s.parse::<NodeCount>();
            if let Ok(w) = s.parse::<SignalWarning>() {
                prop_assert_eq!(w.to_string().parse::<SignalWarning>(), Ok(w));
            }
        }
    }
}
