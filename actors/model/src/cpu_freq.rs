//! Frequencies and governors of CPUs that jobs and steps ask for (srun(1), `--cpu-freq`), and what the site allows (slurm.conf(5),
//! `CpuFreqDef` and `CpuFreqGovernors`).

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Who chooses the frequency of a CPU in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Governor {
    /// `conservative`
    Conservative,
    /// `ondemand`
    OnDemand,
    /// `performance`
    Performance,
    /// `powersave`
    PowerSave,
    /// `schedutil`
    SchedUtil,
    /// `userspace`: the frequency is set.
    UserSpace,
}

impl Governor {
    /// All.
    pub const ALL: [Self; 6] =
        [Self::Conservative, Self::OnDemand, Self::Performance, Self::PowerSave, Self::SchedUtil, Self::UserSpace];

    /// As Slurm names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conservative => "Conservative",
            Self::OnDemand => "OnDemand",
            Self::Performance => "Performance",
            Self::PowerSave => "PowerSave",
            Self::SchedUtil => "SchedUtil",
            Self::UserSpace => "UserSpace",
        }
    }
}

/// In any case of letters.
impl FromStr for Governor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|governor| governor.name().eq_ignore_ascii_case(text)).ok_or(())
    }
}

/// A frequency. Numbers are below names, as 26.05 compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Frequency {
    /// Kilohertz.
    Khz(u32),
    /// The lowest that there is.
    Low,
    /// In the middle of what there is.
    Medium,
    /// The highest.
    High,
    /// The highest but one.
    HighM1,
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Khz(khz) => write!(f, "{khz}"),
            Self::Low => f.write_str("Low"),
            Self::Medium => f.write_str("Medium"),
            Self::High => f.write_str("High"),
            Self::HighM1 => f.write_str("Highm1"),
        }
    }
}

/// `None`: it is no frequency, or 0.
impl FromStr for Frequency {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let named = [Self::Low, Self::Medium, Self::High, Self::HighM1];
        if let Some(named) = named.into_iter().find(|named| named.to_string().eq_ignore_ascii_case(text)) {
            return Ok(named);
        }
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        // More than any CPU has is its highest, however much more it is.
        let khz = if digits { text.parse().unwrap_or(u32::MAX) } else { 0 };
        if khz > 0 { Ok(Self::Khz(khz)) } else { Err(()) }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CpuFreq {
    /// That governor.
    Governed(Governor),
    /// That frequency, which is set once.
    Fixed(Frequency),
    /// That governor, between two frequencies.
    Range(Frequency, Frequency, Governor),
}

impl CpuFreq {
    /// The governor.
    pub const fn governor(&self) -> Governor {
        match self {
            Self::Governed(governor) | Self::Range(_, _, governor) => *governor,
            Self::Fixed(_) => Governor::UserSpace,
        }
    }

    /// The greatest frequency; `None`: the governor decides.
    pub const fn greatest(&self) -> Option<Frequency> {
        match self {
            Self::Governed(_) => None,
            Self::Fixed(max) | Self::Range(_, max, _) => Some(*max),
        }
    }

    /// The least frequency of a range.
    pub const fn least(&self) -> Option<Frequency> {
        match self {
            Self::Governed(_) | Self::Fixed(_) => None,
            Self::Range(min, ..) => Some(*min),
        }
    }

    /// As `scontrol show job` has it.
    pub fn record(&self) -> String {
        let governor = self.governor().name();
        match self {
            Self::Governed(_) => format!("Governor={governor}"),
            Self::Fixed(max) => format!("CPU_max_freq={max} Governor={governor}"),
            Self::Range(min, max, _) => format!("CPU_min_freq={min} CPU_max_freq={max} Governor={governor}"),
        }
    }
}

/// As `SLURM_CPU_FREQ_REQ` has it.
impl fmt::Display for CpuFreq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Governed(governor) => f.write_str(governor.name()),
            Self::Fixed(frequency) => write!(f, "{frequency}"),
            Self::Range(min, max, governor) => write!(f, "{min}-{max}:{}", governor.name()),
        }
    }
}

/// Why a request is none; the text is Slurm's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuFreqError {
    /// Neither frequency nor governor.
    #[error("unrecognized --cpu-freq argument \"{0}\"")]
    Unrecognized(String),
    /// There is nothing to be said of it.
    #[error("Invalid --cpu-freq argument")]
    Nothing,
    /// No governor behind the colon.
    #[error("illegal governor: {0} on --cpu-freq")]
    Governor(String),
    /// A governor before and behind the colon.
    #[error("governor cannot be specified twice {0}{{-}}:{1} in --cpu-freq")]
    Twice(String, String),
    /// A range, and no governor.
    #[error(
        "You must explicitly choose a governor when defining a range. Please specify only one value for the desired frequency \
         (p1) or choose a specific governor (p3)."
    )]
    NoGovernor,
    /// A range, and a governor for one frequency.
    #[error(
        "userspace governor does not support a range. Please specify only one value for the desired frequency (p1) or choose a \
         different governor."
    )]
    RangeOfOne,
    /// A governor that needs a range.
    #[error("gov on cpu-frec ({0}) illegal without max")]
    NoRange(String),
    /// The range is none.
    #[error("min cpu-frec ({0}) must be < max cpu-freq ({1})")]
    Order(String, String),
    /// `CpuFreqGovernors` does not have it.
    #[error("governor of {0} is not allowed in slurm.conf")]
    NotAllowed(String),
}

/// What the site has to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FrequencyRules {
    /// `CpuFreqDef`; `None`: what the CPUs have.
    pub default: Option<Governor>,
    /// `CpuFreqGovernors`.
    pub allowed: Vec<Governor>,
}

impl Default for FrequencyRules {
    fn default() -> Self {
        Self { default: None, allowed: vec![Governor::OnDemand, Governor::Performance, Governor::UserSpace] }
    }
}

/// Governors between commas.
pub fn governors(text: &str) -> Result<Vec<Governor>, String> {
    text.split(',').map(|word| word.trim().parse().map_err(|()| word.to_owned())).collect()
}

/// The names of governors between commas.
pub fn governor_names(governors: &[Governor]) -> String {
    governors.iter().map(|governor| governor.name()).collect::<Vec<_>>().join(",")
}

impl FrequencyRules {
    /// There is nothing to know.
    pub fn are_usual(&self) -> bool {
        *self == Self::default()
    }

    /// A request, as users type it.
    pub fn read(&self, text: &str) -> Result<CpuFreq, CpuFreqError> {
        let asked = self.form(text)?;
        if self.allowed.contains(&asked.governor()) {
            Ok(asked)
        } else {
            Err(CpuFreqError::NotAllowed(text.to_owned()))
        }
    }

    fn form(&self, text: &str) -> Result<CpuFreq, CpuFreqError> {
        let (frequencies, governor) = text.split_once(':').map_or((text, None), |(f, governor)| (f, Some(governor)));
        let (low, high) = frequencies.split_once('-').map_or((frequencies, None), |(low, high)| (low, Some(high)));
        if let Ok(alone) = low.parse::<Governor>() {
            return match (high, governor) {
                (_, Some(governor)) => Err(CpuFreqError::Twice(low.to_owned(), governor.to_owned())),
                (Some(high), None) => Err(CpuFreqError::Unrecognized(high.to_owned())),
                (None, None) => Ok(CpuFreq::Governed(alone)),
            };
        }
        let min = frequency(low)?;
        if high.is_some() && governor.is_none() && self.default.is_none() {
            return Err(CpuFreqError::NoGovernor);
        }
        let max = high.map(|high| Ok((high, frequency(high)?))).transpose()?;
        let named =
            governor.map(|name| name.parse().map_err(|()| CpuFreqError::Governor(name.to_owned()))).transpose()?;
        let Some((high, max)) = max else {
            return match (named, governor) {
                (None | Some(Governor::UserSpace), _) => Ok(CpuFreq::Fixed(min)),
                (Some(_), name) => Err(CpuFreqError::NoRange(name.unwrap_or_default().to_owned())),
            };
        };
        match named.or(self.default) {
            None => Err(CpuFreqError::NoGovernor),
            Some(Governor::UserSpace) => Err(CpuFreqError::RangeOfOne),
            Some(_) if min >= max => Err(CpuFreqError::Order(low.to_owned(), high.to_owned())),
            Some(governor) => Ok(CpuFreq::Range(min, max, governor)),
        }
    }
}

fn frequency(text: &str) -> Result<Frequency, CpuFreqError> {
    text.parse().map_err(|()| match text {
        "" => CpuFreqError::Nothing,
        _ if text.bytes().all(|b| b == b'0') => CpuFreqError::Nothing,
        _ => CpuFreqError::Unrecognized(text.to_owned()),
    })
}

/// `DEFAULT:ALLOWED`, for a variable.
impl fmt::Display for FrequencyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.default.map_or("", Governor::name), governor_names(&self.allowed))
    }
}

impl FromStr for FrequencyRules {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (default, allowed) = text.split_once(':').ok_or(())?;
        let default = if default.is_empty() { None } else { Some(default.parse()?) };
        Ok(Self { default, allowed: governors(allowed).map_err(|_| ())? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn said(rules: &FrequencyRules, text: &str) -> String {
        rules.read(text).map_or_else(|error| error.to_string(), |asked| asked.to_string())
    }

    #[test]
    fn requests_are_read_as_in_slurm() {
        let rules = FrequencyRules::default();
        for (text, meant) in [
            ("low", "Low"),
            ("HIGHM1", "Highm1"),
            ("2000000", "2000000"),
            ("low:userspace", "Low"),
            ("performance", "Performance"),
            ("low-high:performance", "Low-High:Performance"),
            ("1000-2000:ondemand", "1000-2000:OnDemand"),
            ("x", "unrecognized --cpu-freq argument \"x\""),
            ("low-x:performance", "unrecognized --cpu-freq argument \"x\""),
            ("low-performance:performance", "unrecognized --cpu-freq argument \"performance\""),
            ("", "Invalid --cpu-freq argument"),
            ("0", "Invalid --cpu-freq argument"),
            (":performance", "Invalid --cpu-freq argument"),
            ("-5", "Invalid --cpu-freq argument"),
            ("low:x", "illegal governor: x on --cpu-freq"),
            ("high:performance", "gov on cpu-frec (performance) illegal without max"),
            ("performance:performance", "governor cannot be specified twice performance{-}:performance in --cpu-freq"),
            ("high-low:performance", "min cpu-frec (high) must be < max cpu-freq (low)"),
            ("conservative", "governor of conservative is not allowed in slurm.conf"),
        ] {
            assert_eq!(said(&rules, text), meant, "{text}");
        }
        assert!(said(&rules, "low-high").starts_with("You must explicitly choose a governor"));
        assert!(said(&rules, "low-high:userspace").starts_with("userspace governor does not support a range"));
    }

    #[test]
    fn the_site_names_governors_and_the_usual_one() {
        let rules = FrequencyRules { default: Some(Governor::Conservative), allowed: vec![Governor::Conservative] };
        assert_eq!(said(&rules, "low-high"), "Low-High:Conservative");
        assert_eq!(said(&rules, "low"), "governor of low is not allowed in slurm.conf");
        assert_eq!(rules.to_string().parse(), Ok(rules));
        assert_eq!(FrequencyRules::default().to_string().parse(), Ok(FrequencyRules::default()));
    }

    #[test]
    fn a_record_has_what_was_asked_for() {
        let record = |text| FrequencyRules::default().read(text).unwrap().record();
        assert_eq!(record("low"), "CPU_max_freq=Low Governor=UserSpace");
        assert_eq!(record("1000-2000:ondemand"), "CPU_min_freq=1000 CPU_max_freq=2000 Governor=OnDemand");
    }
}
