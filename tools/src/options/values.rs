//! Texts of single options: thin adapters to the parsers of the model, and the few that only commands need.

use super::typed::{Given, OptionError};
use garrick_model::{
    date,
    resources::MemoryMib,
    spec::{ArraySpec, CpuBind, Dependencies, Distribution, NodeCount, OpenMode, SignalWarning},
    time::{TimeLimit, Timestamp},
};

/// `-N`: `4`, `2-4`, `2k`.
pub fn node_count(text: &str) -> Option<NodeCount> {
    text.parse().ok().filter(|count: &NodeCount| count.min > 0)
}

/// A time limit.
pub fn time_limit(text: &str) -> Option<TimeLimit> {
    text.parse().ok()
}

/// An amount of memory or disk.
pub fn memory(text: &str) -> Option<MemoryMib> {
    text.parse().ok()
}

/// A point in time, in the zone of the user.
pub fn date(text: &str, now: Timestamp) -> Option<Timestamp> {
    date::parse_date(text, now, &jiff::tz::TimeZone::system()).ok()
}

/// `--signal`.
pub fn signal_warning(text: &str) -> Option<SignalWarning> {
    text.parse().ok()
}

/// A signal by number or name.
pub fn signal(text: &str) -> Option<i32> {
    garrick_model::signal::signal_number(text)
}

/// `--array`.
pub fn array(text: &str) -> Option<ArraySpec> {
    text.parse().ok()
}

/// `--dependency`.
pub fn dependencies(text: &str) -> Option<Dependencies> {
    text.parse().ok()
}

/// `--open-mode`.
pub fn open_mode(text: &str) -> Option<OpenMode> {
    match text {
        "append" | "a" => Some(OpenMode::Append),
        "truncate" | "t" => Some(OpenMode::Truncate),
        _ => None,
    }
}

/// `--distribution`: the first word lays tasks out over nodes; what follows `:` says how they go to sockets within a node,
/// which the binding decides here.
pub fn distribution(given: &Given<'_>) -> Result<Option<Distribution>, OptionError> {
    let text = given.text()?.to_ascii_lowercase();
    let first = text.split([':', ',']).next().unwrap_or_default();
    match first {
        "*" => Ok(None),
        "block" => Ok(Some(Distribution::Block)),
        "cyclic" => Ok(Some(Distribution::Cyclic)),
        "arbitrary" => Err(given.not_supported()),
        plane if plane.starts_with("plane") => Err(given.not_supported()),
        _ => Err(given.invalid()),
    }
}

/// `--cpu-bind`: `[quiet|verbose,]type`.
pub fn cpu_bind(given: &Given<'_>) -> Result<CpuBind, OptionError> {
    let text = given.text()?.to_ascii_lowercase();
    let mut bind = CpuBind::Default;
    let mut words = text.split(',');
    while let Some(word) = words.next() {
        bind = match word {
            "" | "q" | "quiet" | "v" | "verbose" => continue,
            "none" | "no" => CpuBind::None,
            "cores" | "core" | "threads" | "thread" | "rank" | "y" | "yes" => CpuBind::Cores,
            "sockets" | "socket" | "ldoms" | "ldom" | "boards" => return Err(given.not_supported()),
            _ => match word.split_once(':') {
                // The rest of the list belongs to it.
                Some(("map_cpu", first)) => {
                    let cpus: Option<Vec<u32>> =
                        std::iter::once(first).chain(words.by_ref()).map(|cpu| cpu.parse().ok()).collect();
                    CpuBind::Map(given.checked(cpus)?)
                }
                Some(("mask_cpu" | "map_ldom" | "mask_ldom", _)) => return Err(given.not_supported()),
                _ if word == "rank_ldom" => return Err(given.not_supported()),
                _ => return Err(given.invalid()),
            },
        };
    }
    Ok(bind)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::typed::Source;
    use std::ffi::OsStr;

    fn given(name: &'static str, value: &'static str) -> Given<'static> {
        Given { name, value: Some(OsStr::new(value)), source: Source::CommandLine, now: Timestamp::from_secs(0) }
    }

    #[test]
    fn node_counts_are_one_number_or_a_range() {
        assert_eq!(node_count("4"), Some(NodeCount { min: 4, max: Some(4) }));
        assert_eq!(node_count("1-4"), Some(NodeCount { min: 1, max: Some(4) }));
        for wrong in ["", "0", "4-1", "x", "1-x"] {
            assert_eq!(node_count(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn cpu_bind_takes_its_forms() {
        let bind = |value| cpu_bind(&given("cpu-bind", value));
        assert_eq!(bind("none").unwrap(), CpuBind::None);
        assert_eq!(bind("verbose,cores").unwrap(), CpuBind::Cores);
        assert_eq!(bind("map_cpu:0,3,1").unwrap(), CpuBind::Map(vec![0, 3, 1]));
        assert_eq!(bind("q").unwrap(), CpuBind::Default);
        assert!(matches!(bind("mask_cpu:0x3"), Err(OptionError::NotSupported(_))));
        assert!(matches!(bind("bogus"), Err(OptionError::Invalid { .. })));
        assert!(matches!(bind("map_cpu:a"), Err(OptionError::Invalid { .. })));
    }

    #[test]
    fn distribution_takes_its_first_word() {
        let laid = |value| distribution(&given("distribution", value));
        assert_eq!(laid("cyclic:block").unwrap(), Some(Distribution::Cyclic));
        assert_eq!(laid("*").unwrap(), None);
        assert!(matches!(laid("plane=4"), Err(OptionError::NotSupported(_))));
        assert!(matches!(laid("bogus"), Err(OptionError::Invalid { .. })));
    }
}
