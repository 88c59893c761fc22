//! Power saving (slurm.conf(5), power_save.html): the site's programs that switch nodes on and off, when they are called, and
//! which nodes are left alone.

use super::kinds::{NULL, or_null};
use crate::{
    config::syntax::{
        report::SettingError,
        values::{self, Value, choice, list},
    },
    hostlist::HostList,
};
use serde::{Deserialize, Serialize};
use std::{
    fmt::{self, Display},
    path::{Path, PathBuf},
    time::Duration,
};

/// Greatest number of seconds of such a time (`ResumeTimeout` in slurm.conf(5)).
const MOST_SECS: u32 = 65_533;

/// A time in seconds, or `INFINITE` (also written -1): never. In messages it is text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "SpanText", try_from = "SpanText")]
pub enum Span {
    /// So many seconds.
    Secs(u32),
    /// For ever.
    #[default]
    Infinite,
}

impl Span {
    fn parse_up_to(text: &str, most: u32) -> Value<Self> {
        if text == "-1" {
            return Ok(Self::Infinite);
        }
        Ok(values::number_or_unlimited(text, 0, most)?.map_or(Self::Infinite, Self::Secs))
    }

    /// `SuspendTimeout`, `ResumeTimeout`.
    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        Self::parse_up_to(text, MOST_SECS)
    }

    /// `SuspendTime`.
    pub(in crate::config) fn parse_long(text: &str) -> Value<Self> {
        Self::parse_up_to(text, u32::MAX - 2)
    }

    /// With its unit, as among the settings.
    pub(in crate::config) fn with_unit(&self) -> String {
        match self {
            Self::Secs(secs) => format!("{secs} sec"),
            Self::Infinite => "INFINITE".to_owned(),
        }
    }

    /// `None`: for ever.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::Secs(secs) => Some(Duration::from_secs(secs.into())),
            Self::Infinite => None,
        }
    }
}

impl Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secs(secs) => write!(f, "{secs}"),
            Self::Infinite => f.write_str("INFINITE"),
        }
    }
}

/// As it travels. It has a name, so that whoever traces the forms of messages knows that not any text will do.
#[derive(Serialize, Deserialize)]
struct SpanText(String);

impl From<Span> for SpanText {
    fn from(span: Span) -> Self {
        Self(span.to_string())
    }
}

impl TryFrom<SpanText> for Span {
    type Error = SettingError;

    fn try_from(SpanText(text): SpanText) -> Result<Self, SettingError> {
        Self::parse_long(&text)
    }
}

/// Nodes of `SuspendExcNodes` that stand together: all of them stay on, or so many that could be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptOn {
    /// Which.
    pub nodes: HostList,
    /// How many of them; `None`: all.
    pub count: Option<u32>,
}

/// `SuspendExcNodes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptNodes(pub Vec<KeptOn>);

impl KeptNodes {
    /// `tux[0-9],nid[10-20]:4`: commas in brackets belong to a list.
    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        let (mut depth, mut parts, mut part) = (0_u32, Vec::new(), String::new());
        for letter in text.chars() {
            match letter {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    parts.push(std::mem::take(&mut part));
                    continue;
                }
                _ => {}
            }
            part.push(letter);
        }
        parts.push(part);
        let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty() && *part != NULL);
        parts.map(Self::part).collect::<Value<Vec<_>>>().map(Self)
    }

    fn part(text: &str) -> Value<KeptOn> {
        let (nodes, count) = match text.rsplit_once(':') {
            Some((nodes, count)) => (nodes, Some(values::number(count, 0, u32::MAX)?)),
            None => (text, None),
        };
        let nodes = nodes.parse().map_err(|e: crate::hostlist::HostListError| SettingError::new(e.to_string()))?;
        Ok(KeptOn { nodes, count })
    }
}

impl Display for KeptNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |kept: &KeptOn| match kept.count {
            Some(count) => format!("{}:{count}", kept.nodes),
            None => kept.nodes.to_string(),
        };
        f.write_str(&self.0.iter().map(part).collect::<Vec<_>>().join(","))
    }
}

/// States of `SuspendExcStates`.
const STATES: &[&str] = &[
    "CLOUD",
    "DOWN",
    "DRAIN",
    "DYNAMIC_FUTURE",
    "DYNAMIC_NORM",
    "FAIL",
    "INVALID_REG",
    "MAINTENANCE",
    "NOT_RESPONDING",
    "PLANNED",
    "RESERVED",
];

/// `SuspendExcStates`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptStates(pub Vec<&'static str>);

impl KeptStates {
    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        list(text).iter().filter(|word| *word != NULL).map(|word| choice(word, STATES)).collect::<Value<_>>().map(Self)
    }

    /// Whether nodes in that state stay on.
    pub fn has(&self, state: &str) -> bool {
        self.0.contains(&state)
    }
}

impl Display for KeptStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// A `PowerAction` line: a program of the controller's host, by a name that stands for it elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerAction {
    /// Its name.
    pub name: String,
    /// `Program`: path and arguments.
    pub program: Vec<String>,
}

/// What the site says about power saving.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerSettings {
    /// `ResumeProgram`: switches nodes on.
    pub resume_program: Option<PathBuf>,
    /// `SuspendProgram`: switches nodes off.
    pub suspend_program: Option<PathBuf>,
    /// `ResumeFailProgram`: told of nodes that did not come in time.
    pub resume_fail_program: Option<PathBuf>,
    /// `ResumeRate`: most nodes that are switched on in a minute; 0: any number.
    pub resume_rate: u32,
    /// `SuspendRate`: most nodes that are switched off in a minute; 0: any number.
    pub suspend_rate: u32,
    /// `ResumeTimeout`: how long a node may take to come.
    pub resume_timeout: Span,
    /// `SuspendTimeout`: how long it takes to switch a node off.
    pub suspend_timeout: Span,
    /// `SuspendTime`: how long a node is idle before it is switched off.
    pub suspend_time: Span,
    /// `SuspendExcNodes`.
    pub kept_nodes: KeptNodes,
    /// `SuspendExcParts`: partitions whose nodes stay on.
    pub kept_partitions: Vec<String>,
    /// `SuspendExcStates`.
    pub kept_states: KeptStates,
    /// `PowerAction` lines.
    pub actions: Vec<PowerAction>,
}

impl PowerSettings {
    /// Path and arguments of a program that is named by its path or by a power action.
    pub fn command(&self, program: &Path) -> Vec<String> {
        let named = self.actions.iter().find(|action| program == Path::new(&action.name));
        named.map_or_else(|| vec![program.display().to_string()], |action| action.program.clone())
    }
}

/// Nodes in a minute, as shown.
pub(in crate::config) fn rate(nodes: &u32) -> String {
    format!("{nodes} nodes/min")
}

/// Names of partitions.
pub(in crate::config) fn shown_list(names: &[String]) -> String {
    or_null(&names.join(","))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nodes_that_stay_on_are_counted_or_all() {
        let kept = KeptNodes::parse("tux[0-3,7],nid[10-20]:4, nid[80-90]:2").unwrap();
        let counts: Vec<_> = kept.0.iter().map(|kept| (kept.nodes.to_string(), kept.count)).collect();
        let of = |nodes: &str, count| (nodes.to_owned(), count);
        assert_eq!(counts, [of("tux[0-3,7]", None), of("nid[10-20]", Some(4)), of("nid[80-90]", Some(2))]);
        assert_eq!(kept.to_string(), "tux[0-3,7],nid[10-20]:4,nid[80-90]:2");
        assert_eq!(KeptNodes::parse("(null)").unwrap(), KeptNodes::default());
        assert!(KeptNodes::parse("a[1-2]:x").is_err() && KeptNodes::parse("a[1-").is_err());
    }

    #[test]
    fn times_are_seconds_or_for_ever() {
        assert_eq!(Span::parse_long("600").unwrap(), Span::Secs(600));
        for never in ["INFINITE", "-1", "infinite"] {
            assert_eq!(Span::parse_long(never).unwrap().duration(), None, "{never}");
        }
        assert!(Span::parse("65534").is_err() && Span::parse_long("soon").is_err());
        assert!(Span::Secs(u32::MAX) < Span::Infinite, "the highest of several partitions counts");
        assert_eq!((Span::Secs(7).with_unit(), Span::Secs(7).to_string()), ("7 sec".to_owned(), "7".to_owned()));
    }

    #[test]
    fn states_that_keep_a_node_on_are_those_of_the_man_page() {
        assert_eq!(KeptStates::parse("down,Drain").unwrap().to_string(), "DOWN,DRAIN");
        assert!(KeptStates::parse("IDLE").is_err());
        assert!(KeptStates::parse("MAINTENANCE").unwrap().has("MAINTENANCE"));
    }
}
