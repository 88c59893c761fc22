//! Frequencies of GPUs that jobs and steps ask for (srun(1), `--gpu-freq`).

use crate::cpu_freq::Frequency;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// One clock of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GpuClock {
    /// Megahertz; the nearest that there is.
    Mhz(u32),
    /// The lowest that there is.
    Low,
    /// In the middle of what there is.
    Medium,
    /// The highest.
    High,
    /// The highest but one.
    HighM1,
}

impl GpuClock {
    /// The one that is meant of what there is, ascending; `None`: there is nothing.
    pub fn of(self, all: &[u32]) -> Option<u32> {
        let last = all.len().checked_sub(1)?;
        match self {
            Self::Mhz(mhz) => all.iter().copied().min_by_key(|there| there.abs_diff(mhz)),
            Self::Low => all.first().copied(),
            Self::Medium => all.get(last / 2).copied(),
            Self::High => all.get(last).copied(),
            Self::HighM1 => all.get(last.saturating_sub(1)).copied(),
        }
    }
}

impl fmt::Display for GpuClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mhz(mhz) => write!(f, "{mhz}"),
            Self::Low => f.write_str("low"),
            Self::Medium => f.write_str("medium"),
            Self::High => f.write_str("high"),
            Self::HighM1 => f.write_str("highm1"),
        }
    }
}

impl FromStr for GpuClock {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        // The words are those of CPUs; numbers are megahertz here, and 0 is one.
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(Self::Mhz(text.parse().unwrap_or(u32::MAX)));
        }
        Ok(match text.parse::<Frequency>()? {
            Frequency::Khz(_) => return Err(()),
            Frequency::Low => Self::Low,
            Frequency::Medium => Self::Medium,
            Frequency::High => Self::High,
            Frequency::HighM1 => Self::HighM1,
        })
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GpuFreq {
    /// Of the GPU; `None`: as it is.
    #[serde(default)]
    pub gpu: Option<GpuClock>,
    /// Of its memory; `None`: as it is.
    #[serde(default)]
    pub memory: Option<GpuClock>,
    /// What they are set to is logged.
    #[serde(default)]
    pub verbose: bool,
}

/// As `SLURM_GPU_FREQ` has it.
impl fmt::Display for GpuFreq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.gpu.map(|clock| clock.to_string()),
            self.memory.map(|clock| format!("memory={clock}")),
            self.verbose.then(|| "verbose".to_owned()),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

/// `high`, `900,memory=low,verbose`; of one that is named twice, the last.
impl FromStr for GpuFreq {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut asked = Self::default();
        for word in text.split(',') {
            match word.strip_prefix("memory=") {
                Some(clock) => asked.memory = Some(clock.parse()?),
                None if word.eq_ignore_ascii_case("verbose") => asked.verbose = true,
                None => asked.gpu = Some(word.parse()?),
            }
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn requests_are_read_as_the_manual_page_says() {
        for (text, meant) in [
            ("low", "low"),
            ("450", "450"),
            ("Medium,memory=HIGH", "medium,memory=high"),
            ("memory=900,verbose,highm1", "highm1,memory=900,verbose"),
            ("verbose", "verbose"),
            ("99999999999", "4294967295"),
        ] {
            assert_eq!(text.parse::<GpuFreq>().map(|asked| asked.to_string()), Ok(meant.to_owned()), "{text}");
        }
        for text in ["", "bad", "low,", "memory=", "memory", "-5", "gpu=low", "1.5"] {
            assert_eq!(text.parse::<GpuFreq>(), Err(()), "{text}");
        }
    }

    #[test]
    fn a_word_means_one_of_the_clocks_that_there_are_and_a_number_the_nearest() {
        let all = [300, 600, 900, 1200, 1500];
        let of = |text: &str| text.parse::<GpuClock>().unwrap().of(&all).unwrap();
        assert_eq!(["low", "medium", "high", "highm1"].map(of), [300, 900, 1500, 1200]);
        assert_eq!(["0", "700", "800", "9999"].map(of), [300, 600, 900, 1500]);
        assert_eq!((GpuClock::HighM1.of(&[300]), GpuClock::High.of(&[])), (Some(300), None));
    }
}
