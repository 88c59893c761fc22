//! Values of settings: numbers with bounds, yes and no, words out of a list, times, memory.

use super::{
    nearest::nearest,
    report::{SettingError, not_yet},
};
use crate::{
    resources::MemoryMib,
    time::{TimeLimit, TimeTextError},
};
use serde::{Deserialize, Serialize};
use std::{
    fmt::{self, Display},
    str::FromStr,
};

pub(in crate::config) type Value<T> = Result<T, SettingError>;

/// A whole number within bounds.
pub(in crate::config) fn number<T>(text: &str, least: T, most: T) -> Value<T>
where
    T: FromStr + PartialOrd + Display + Copy,
{
    let wrong = || SettingError::new(format!("\"{text}\" is not a whole number from {least} to {most}"));
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    text.parse().ok().filter(|n| (least..=most).contains(n)).ok_or_else(wrong)
}

/// As above, where `UNLIMITED`, `INFINITE` and `-1` mean `None`.
pub(in crate::config) fn number_or_unlimited<T>(text: &str, least: T, most: T) -> Value<Option<T>>
where
    T: FromStr + PartialOrd + Display + Copy,
{
    if is_unlimited(text) {
        Ok(None)
    } else {
        number(text, least, most).map(Some).map_err(|e| e.suggest("or UNLIMITED"))
    }
}

pub(in crate::config) fn is_unlimited(text: &str) -> bool {
    text == "-1" || text.eq_ignore_ascii_case("unlimited") || text.eq_ignore_ascii_case("infinite")
}

/// Slurm's yes and no.
pub(in crate::config) fn yes_no(text: &str) -> Value<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "y" | "true" | "t" | "up" | "1" => Ok(true),
        "no" | "n" | "false" | "f" | "down" | "0" => Ok(false),
        _ => Err(SettingError::new(format!("\"{text}\" is neither YES nor NO"))),
    }
}

/// One word of a list, in any case; answers the list's spelling.
pub(in crate::config) fn choice(text: &str, words: &[&'static str]) -> Value<&'static str> {
    words.iter().find(|w| w.eq_ignore_ascii_case(text)).copied().ok_or_else(|| {
        let wrong = SettingError::new(format!("\"{text}\" is not one of {}", words.join(", ")));
        match nearest(text, words) {
            Some(word) => wrong.suggest(format!("did you mean {word}?")),
            None => wrong,
        }
    })
}

/// A time limit in Slurm's forms.
pub(in crate::config) fn time_limit(text: &str) -> Value<TimeLimit> {
    text.parse().map_err(|TimeTextError(_)| {
        SettingError::new(format!("\"{text}\" is not a time limit"))
            .suggest("minutes, hours:minutes:seconds, days-hours, days-hours:minutes:seconds or UNLIMITED")
    })
}

/// An amount of memory; `None` for `UNLIMITED` and 0, which mean that nothing is limited.
pub(in crate::config) fn memory_limit(text: &str) -> Value<Option<MemoryMib>> {
    if is_unlimited(text) {
        return Ok(None);
    }
    let amount = text.parse::<MemoryMib>().map_err(|e| SettingError::new(e.to_string()))?;
    Ok(Some(amount).filter(|m| m.0 > 0))
}

/// Text, or `None` for the empty one and Slurm's ways to say nothing.
pub(in crate::config) fn optional(text: &str) -> Option<String> {
    let nothing = text.is_empty() || text.eq_ignore_ascii_case("(null)") || text.eq_ignore_ascii_case("none");
    (!nothing).then(|| text.to_owned())
}

/// Parts between commas, empty ones left out.
pub(in crate::config) fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// As above, where `(null)` and `NONE` name none.
pub(in crate::config) fn list_or_none(text: &str) -> Vec<String> {
    optional(text).map(|text| list(&text)).unwrap_or_default()
}

/// As above, where `ALL` alone means `None`.
pub(in crate::config) fn list_or_all(text: &str) -> Option<Vec<String>> {
    let parts = list(text);
    let all = parts.is_empty() || parts.iter().any(|part| part.eq_ignore_ascii_case("all"));
    (!all).then_some(parts)
}

/// A port, or a range of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// First port.
    pub first: u16,
    /// Last port, the first one when there is one only.
    pub last: u16,
}

impl PortRange {
    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = Self { first: number(first.trim(), 1, u16::MAX)?, last: number(last.trim(), 1, u16::MAX)? };
        if range.last < range.first {
            return Err(SettingError::new(format!("the range of ports \"{text}\" runs backwards")));
        }
        Ok(range)
    }
}

impl Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// Options between commas, such as SchedulerParameters: words, some of them `name=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters(pub Vec<String>);

impl Parameters {
    pub(in crate::config) fn parse(text: &str) -> Self {
        Self(if optional(text).is_none() { Vec::new() } else { list(text) })
    }
    /// Is the word there, in any case?
    pub fn has(&self, word: &str) -> bool {
        self.0.iter().any(|w| w.eq_ignore_ascii_case(word))
    }
    /// What stands after `name=`.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().filter_map(|w| w.split_once('=')).find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }
}

impl Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.join(","))
    }
}

/// Exit codes, `1-9,18`, as inclusive ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitCodes(Vec<(u8, u8)>);

impl ExitCodes {
    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        let mut ranges = Vec::new();
        for part in list(text) {
            let (first, last) = part.split_once('-').unwrap_or((&part, &part));
            let range = (number(first, 0, u8::MAX)?, number(last, 0, u8::MAX)?);
            if range.0 > range.1 {
                return Err(SettingError::new(format!("\"{part}\" ends before it begins")));
            }
            ranges.push(range);
        }
        Ok(Self(ranges))
    }
    /// Is the code one of them?
    pub fn contains(&self, code: u8) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&code))
    }
    /// None at all.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Display for ExitCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |(first, last): &(u8, u8)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        f.pad(&self.0.iter().map(range).collect::<Vec<_>>().join(","))
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogLevel(u8);

const LEVELS: &[&str] =
    &["quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"];

impl LogLevel {
    /// `info`
    pub const INFO: Self = Self(3);

    /// `quiet`: nothing.
    pub const QUIET: Self = Self(0);

    /// The level of that word (`info`, `debug2`) or number (0 to 9).
    pub fn of(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|e| e.to_string())
    }

    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        let at = match text.parse::<u8>() {
            Ok(n) if usize::from(n) < LEVELS.len() => n,
            _ => {
                let word = choice(text, LEVELS)?;
                LEVELS.iter().position(|w| *w == word).unwrap_or_default() as u8
            }
        };
        Ok(Self(at))
    }
    /// Slurm's word.
    pub fn name(self) -> &'static str {
        LEVELS.get(usize::from(self.0)).copied().unwrap_or("info")
    }
    /// More by `n` levels (`-v` on a daemon's command line).
    #[must_use]
    pub fn louder(self, n: u8) -> Self {
        Self(self.0.saturating_add(n).min(9))
    }
    /// The level of the `tracing` crate that shows as much: `off`, `error`, `info`, `debug`, `trace`.
    pub fn tracing_name(self) -> &'static str {
        match self.0 {
            0 => "off",
            1 | 2 => "error",
            3 => "info",
            4 | 5 => "debug",
            _ => "trace",
        }
    }
}

/// Memory per node or per CPU, as DefMemPerNode and its kin say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryPer {
    /// Of each node.
    Node(MemoryMib),
    /// Of each CPU.
    Cpu(MemoryMib),
}

/// What a job is given, and whether memory is counted: SelectTypeParameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectParameters {
    /// The unit that jobs do not share.
    pub unit: SelectUnit,
    /// Memory is a consumable resource.
    pub memory: bool,
    /// `CR_ONE_TASK_PER_CORE`
    pub one_task_per_core: bool,
    /// `CR_LLN`
    pub least_loaded: bool,
    /// `CR_CORE_DEFAULT_DIST_BLOCK`
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub block_cores: bool,
    /// `CR_Pack_Nodes`
    pub pack_nodes: bool,
    /// `ENFORCE_BINDING_GRES`
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enforce_binding: bool,
    /// As `scontrol` shows it, `CR_CORE_MEMORY`.
    pub text: String,
}

/// The unit that jobs do not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SelectUnit {
    /// `CR_CPU`: each logical CPU.
    Cpu,
    /// `CR_Core`: cores with all their threads.
    Core,
    /// `CR_Socket`: sockets.
    Socket,
    /// `select/linear`: nodes.
    Node,
}

impl Default for SelectParameters {
    /// What `select/cons_tres` does unless told otherwise (`slurm.conf(5)`): cores and memory.
    fn default() -> Self {
        Self {
            unit: SelectUnit::Core,
            memory: true,
            one_task_per_core: false,
            least_loaded: false,
            block_cores: false,
            pack_nodes: false,
            enforce_binding: false,
            text: "CR_CORE_MEMORY".to_owned(),
        }
    }
}

const SELECT_WORDS: &[&str] = &[
    "CR_CPU",
    "CR_CPU_Memory",
    "CR_Core",
    "CR_Core_Memory",
    "CR_Socket",
    "CR_Socket_Memory",
    "CR_Memory",
    "CR_ONE_TASK_PER_CORE",
    "CR_CORE_DEFAULT_DIST_BLOCK",
    "CR_LLN",
    "CR_Pack_Nodes",
    "LL_SHARED_GRES",
    "MULTIPLE_SHARING_GRES_PJ",
    "ENFORCE_BINDING_GRES",
    "ONE_TASK_PER_SHARING_GRES",
];

/// Words that are known and not honoured.
const SELECT_NOT_YET: &[&str] = &["LL_SHARED_GRES", "MULTIPLE_SHARING_GRES_PJ", "ONE_TASK_PER_SHARING_GRES"];

impl SelectParameters {
    /// Which of its words are not honoured.
    pub(in crate::config) fn not_yet(&self) -> Option<SettingError> {
        let words: Vec<String> =
            list(&self.text).into_iter().filter(|w| SELECT_NOT_YET.contains(&w.as_str())).collect();
        (!words.is_empty()).then(|| not_yet(&words.join(",")))
    }

    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        let mut read = Self { memory: false, text: text.to_ascii_uppercase(), ..Self::default() };
        for word in list(text) {
            match choice(&word, SELECT_WORDS)? {
                "CR_CPU" => read.unit = SelectUnit::Cpu,
                "CR_CPU_Memory" => (read.unit, read.memory) = (SelectUnit::Cpu, true),
                "CR_Core" => read.unit = SelectUnit::Core,
                "CR_Core_Memory" => (read.unit, read.memory) = (SelectUnit::Core, true),
                "CR_Socket" => read.unit = SelectUnit::Socket,
                "CR_Socket_Memory" => (read.unit, read.memory) = (SelectUnit::Socket, true),
                "CR_Memory" => read.memory = true,
                "CR_ONE_TASK_PER_CORE" => read.one_task_per_core = true,
                "CR_LLN" => read.least_loaded = true,
                "CR_CORE_DEFAULT_DIST_BLOCK" => read.block_cores = true,
                "CR_Pack_Nodes" => read.pack_nodes = true,
                "ENFORCE_BINDING_GRES" => read.enforce_binding = true,
                _ => {}
            }
        }
        Ok(read)
    }
}
