//! Values of single options: thin adapters to the parsers of the model, and a few parsers that only commands need.

use super::typed::{FirstLine, Given, OptionError};
use garrick_model::{
    cpu_freq::{CpuFreq, CpuFreqError, FrequencyRules},
    date,
    gpu_freq::GpuFreq,
    node_sizes::NodeSizes,
    profile::SeriesSet,
    refusal::Refusal,
    resources::MemoryMib,
    sampling::Periods,
    spec::{ArraySpec, CpuBind, CpuOrder, Dependencies, Distribution, NodeCount, OpenMode, SignalWarning, WithinNode},
    time::{TimeLimit, Timestamp, system_zone},
};
use std::time::Duration;

/// `-N`: `4`, `2-4`, `2k`; with the numbers of `1,5,9` or `1-15:4` also these.
pub fn node_count(text: &str) -> Result<(NodeCount, NodeSizes), OptionError> {
    let none = |part: &str| OptionError::Text(format!("\"{part}\" is not a valid node count"));
    if text.contains([',', ':']) {
        let sizes: NodeSizes = text.parse().map_err(|_| none(text))?;
        return Ok((sizes.bounds().ok_or_else(|| none(text))?, sizes));
    }
    let one = |part: &str| part.parse::<NodeCount>().map(|count| count.min).map_err(|_| none(part));
    let (min, max) = match text.split_once('-') {
        Some((least, most)) if !least.is_empty() => (one(least)?, one(most)?),
        Some((_, rest)) => return Err(none(if one(rest).is_ok() { text } else { rest })),
        None => (one(text)?, one(text)?),
    };
    if max < min {
        let text = format!("Maximum node count {max} is less than minimum node count {min}");
        return Err(OptionError::Text(text));
    }
    if min == 0 {
        return Err(OptionError::Refused(Refusal::BadNodeCount));
    }
    Ok((NodeCount { min, max: Some(max) }, NodeSizes::default()))
}

/// `--acctg-freq`: seconds, or a list of `type=seconds`.
pub fn sampling(given: &Given<'_>) -> Result<Periods, OptionError> {
    let wrong = |part: &str| OptionError::Text(format!("Invalid --acctg-freq specification: {part}"));
    Periods::parse(given.text()?).map_err(wrong)
}

/// `--mem-bind`; whether it asks for more than what the kernel does: memory is taken near the CPU that first touches it.
pub fn mem_bind(given: &Given<'_>) -> Result<bool, OptionError> {
    let text = given.text()?.to_ascii_lowercase();
    let mut asks_more = false;
    for word in text.split(',') {
        match word {
            "q" | "quiet" | "v" | "verbose" | "no" | "none" | "local" => {}
            "rank" | "p" | "prefer" | "sort" | "nosort" => asks_more = true,
            // The rest of the list belongs to it.
            _ => match word.split_once(':') {
                Some((kind @ ("map_mem" | "mask_mem"), "")) => {
                    return Err(OptionError::Text(format!("missing list for \"--mem-bind={kind}:<list>\"")));
                }
                Some(("map_mem" | "mask_mem", _)) => return Ok(true),
                _ => return Err(OptionError::Text(format!("unrecognized --mem-bind argument \"{word}\""))),
            },
        }
    }
    Ok(asks_more)
}

/// `--profile`: which time series are recorded.
pub fn profile(given: &Given<'_>) -> Result<SeriesSet, OptionError> {
    let text = given.text()?;
    SeriesSet::parse(text).ok_or_else(|| OptionError::Text(format!("invalid --profile={text} option")))
}

/// `--cpu-freq`, where the site has these rules.
pub fn cpu_frequency(text: &str, rules: &FrequencyRules) -> Result<CpuFreq, OptionError> {
    rules.read(text).map_err(|error| {
        let invalid = OptionError::Text(CpuFreqError::Nothing.to_string());
        if error == CpuFreqError::Nothing { invalid } else { invalid.after(error.to_string()) }
    })
}

/// `--gpu-freq`: `high`, `900,memory=low,verbose`.
pub fn gpu_frequency(given: &Given<'_>) -> Result<GpuFreq, OptionError> {
    let text = given.text()?;
    text.parse().map_err(|()| OptionError::Text(format!("Invalid --gpu-freq argument: gpu:{text}")))
}

/// Form of `--mem-update`: `20@10:00`.
pub fn memory_update(given: &Given<'_>) -> Result<(), OptionError> {
    let Some((margin, delay)) = given.text()?.split_once('@') else {
        return Err(OptionError::Text("--mem-update requires MARGIN@DELAY format".to_owned()));
    };
    let fits = margin.parse::<u32>().is_ok() && matches!(time_limit(delay), Some(TimeLimit::Secs(_)));
    if fits { Ok(()) } else { Err(given.invalid()) }
}

/// A file of burst buffer directives must be there, whatever it says.
pub fn burst_buffer_file(given: &Given<'_>) -> Result<(), OptionError> {
    let readable = std::fs::read(given.text()?).is_ok();
    if readable { Ok(()) } else { Err(OptionError::Declined("Invalid --bbf specification".to_owned())) }
}

/// A time limit.
pub fn time_limit(text: &str) -> Option<TimeLimit> {
    text.parse().ok()
}

/// Seconds: a number, or a time with colons or days as time limits are written.
pub fn seconds(text: &str) -> Option<u32> {
    let number = |part: &str| -> Option<u32> {
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        part.parse().ok().filter(|_| digits)
    };
    // Not as a time limit, which has whole minutes.
    let sum = |parts: &[(&str, u32)]| {
        parts.iter().try_fold(0u32, |sum, (part, secs)| sum.checked_add(number(part)?.checked_mul(*secs)?))
    };
    const DAY: u32 = 86_400;
    let (days, rest) = text.split_once('-').map_or((None, text), |(days, rest)| (Some(days), rest));
    let parts: Vec<&str> = rest.split(':').collect();
    match (days, parts.as_slice()) {
        (None, [s]) => number(s),
        (None, [m, s]) => sum(&[(m, 60), (s, 1)]),
        (None, [h, m, s]) => sum(&[(h, 3600), (m, 60), (s, 1)]),
        (Some(d), [h]) => sum(&[(d, DAY), (h, 3600)]),
        (Some(d), [h, m]) => sum(&[(d, DAY), (h, 3600), (m, 60)]),
        (Some(d), [h, m, s]) => sum(&[(d, DAY), (h, 3600), (m, 60), (s, 1)]),
        _ => None,
    }
}

/// A time as [`seconds`] reads it; the seconds at its end may have a fraction.
pub fn duration(text: &str) -> Option<Duration> {
    let Some((whole, fraction)) = text.split_once('.') else {
        return seconds(text).map(|secs| Duration::from_secs(secs.into()));
    };
    let digits = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    // Before `1-0` and `1-0:0` there are hours and minutes, not seconds.
    let ends_in_seconds = !whole.contains('-') || whole.matches(':').count() == 2;
    let whole = if whole.is_empty() { Some(0) } else { seconds(whole) };
    let nanos: u32 = format!("{fraction:0<9.9}").parse().ok().filter(|_| digits)?;
    whole.filter(|_| ends_in_seconds).map(|secs| Duration::new(secs.into(), nanos))
}

/// An amount of memory or disk.
pub fn memory(text: &str) -> Option<MemoryMib> {
    text.parse().ok()
}

/// A point in time, in the zone of the user.
pub fn date(given: &Given<'_>) -> Result<Timestamp, OptionError> {
    let text = given.text()?;
    date::parse_date(text, given.now, &system_zone()).map_err(|_| match text {
        "" => given.invalid(),
        _ => {
            let at = date::wrong_at(text);
            let line = FirstLine::Bare(format!("Invalid time specification (pos={at}): {text}"));
            OptionError::After { line, error: Box::new(given.invalid()) }
        }
    })
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

/// `--distribution`: over nodes, and over the sockets and cores of a node.
pub fn distribution(given: &Given<'_>) -> Result<(Option<Distribution>, WithinNode), OptionError> {
    let text = given.text()?.to_ascii_lowercase();
    let (levels, packing) = text.split_once(',').map_or((text.as_str(), None), |(levels, pack)| (levels, Some(pack)));
    let mut levels = levels.split(':');
    let node = match levels.next().unwrap_or_default() {
        "*" => None,
        "block" => Some(Distribution::Block),
        "cyclic" => Some(Distribution::Cyclic),
        "arbitrary" => Some(Distribution::Arbitrary),
        // Its size may be in a variable: filled in when all is known.
        "plane" => Some(Distribution::Plane(0)),
        plane => {
            let size = plane.strip_prefix("plane=").and_then(|size| size.parse().ok()).filter(|size| *size > 0);
            Some(Distribution::Plane(given.checked(size)?))
        }
    };
    let order = |word: &str| {
        Ok(Some(match word {
            "*" => return Ok(None),
            "block" => CpuOrder::Block,
            "cyclic" => CpuOrder::Cyclic,
            "fcyclic" => CpuOrder::Fcyclic,
            _ => return Err(given.invalid()),
        }))
    };
    let within = WithinNode {
        sockets: levels.next().map(order).transpose()?.flatten(),
        cores: levels.next().map(order).transpose()?.flatten(),
    };
    // Nothing is combined with a plane (srun(1)).
    if levels.next().is_some() || (matches!(node, Some(Distribution::Plane(_))) && !within.is_default()) {
        return Err(given.invalid());
    }
    let node = match (packing, node) {
        (None, node) => node,
        (Some("pack"), None | Some(Distribution::Block)) => Some(Distribution::BlockPack),
        (Some("nopack"), None | Some(Distribution::Block)) => Some(Distribution::BlockNoPack),
        // It only applies to blocks (srun(1)).
        (Some("pack" | "nopack"), node) => node,
        (Some(_), _) => return Err(given.invalid()),
    };
    Ok((node, within))
}

/// `--cpu-bind`: `[quiet|verbose,]type`, and whether it is verbose.
pub fn cpu_bind(given: &Given<'_>) -> Result<(CpuBind, bool), OptionError> {
    let text = given.text()?.to_ascii_lowercase();
    let (mut bind, mut verbose) = (CpuBind::Default, false);
    let mut words = text.split(',');
    while let Some(word) = words.next() {
        bind = match word {
            "" => continue,
            "q" | "quiet" | "v" | "verbose" => {
                verbose = word.starts_with('v');
                continue;
            }
            "none" | "no" => CpuBind::None,
            "cores" | "core" | "y" | "yes" => CpuBind::Cores,
            "threads" | "thread" | "rank" => CpuBind::Threads,
            "sockets" | "socket" => CpuBind::Sockets,
            "ldoms" | "ldom" | "boards" => return Err(given.not_supported()),
            _ => match word.split_once(':') {
                // The rest of the list belongs to it.
                Some(("map_cpu", first)) => {
                    let cpus: Option<Vec<u32>> =
                        std::iter::once(first).chain(words.by_ref()).map(|cpu| cpu.parse().ok()).collect();
                    CpuBind::Map(given.checked(cpus)?)
                }
                Some(("mask_cpu" | "map_ldom" | "mask_ldom", _)) => return Err(given.not_supported()),
                _ if word == "rank_ldom" => return Err(given.not_supported()),
                _ => {
                    let error = OptionError::Fatal("Failed to parse --cpu-bind= values.".to_owned());
                    return Err(error.after(format!("unrecognized --cpu-bind argument \"{word}\"")));
                }
            },
        };
    }
    Ok((bind, verbose))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::typed::Source;
    use std::ffi::OsStr;

    fn given(name: &'static str, value: &'static str) -> Given<'static> {
        let now = Timestamp::from_secs(0);
        Given { name, value: Some(OsStr::new(value)), source: Source::CommandLine, variable: None, now }
    }

    #[test]
    fn node_counts_are_one_number_or_a_range() {
        let plain = |min, max| Ok((NodeCount { min, max: Some(max) }, NodeSizes::default()));
        assert_eq!(node_count("4"), plain(4, 4));
        assert_eq!(node_count("1-4"), plain(1, 4));
        let (count, sizes) = node_count("1-15:4").unwrap();
        assert_eq!((count, sizes.to_string().as_str()), (NodeCount { min: 1, max: Some(13) }, "1-15:4"));
        for (wrong, why) in [
            ("", "\"\" is not a valid node count"),
            ("0", "Node count specification invalid"),
            ("4-1", "Maximum node count 1 is less than minimum node count 4"),
            ("x", "\"x\" is not a valid node count"),
            ("1-x", "\"x\" is not a valid node count"),
            ("5-1:2", "\"5-1:2\" is not a valid node count"),
        ] {
            assert_eq!(node_count(wrong).unwrap_err().to_string(), why, "{wrong}");
        }
    }

    #[test]
    fn a_duration_may_have_a_fraction_of_a_second() {
        let of = |text| duration(text).map(|d| (d.as_secs(), d.subsec_nanos()));
        for (text, want) in [
            ("90", (90, 0)),
            ("1:30", (90, 0)),
            ("1-0", (86_400, 0)),
            ("0.5", (0, 500_000_000)),
            (".25", (0, 250_000_000)),
            ("1:30.125", (90, 125_000_000)),
            ("1-1:1:1.5", (90_061, 500_000_000)),
            ("2.0000000019", (2, 1)),
        ] {
            assert_eq!(of(text), Some(want), "{text}");
        }
        for wrong in ["", ".", "1.", "1.x", "1.-5", "1.5.5", "-1.5", "1-1.5", "1-1:1.5", "1e3", "x.5"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn seconds_are_a_number_or_a_time() {
        assert_eq!(
            ["90", "0", "1:30", "1:00:00", "1-0", "1-1:1:1"].map(seconds),
            [90, 0, 90, 3600, 86_400, 90_061].map(Some)
        );
        for wrong in ["", "x", "1x", "+5", "UNLIMITED", "-", "1:x", "99999999999", "1:2:3:4", "-5"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn cpu_bind_takes_its_forms() {
        let bind = |value| cpu_bind(&given("cpu-bind", value));
        assert_eq!(bind("none").unwrap(), (CpuBind::None, false));
        assert_eq!(bind("verbose,cores").unwrap(), (CpuBind::Cores, true));
        assert_eq!(bind("v,map_cpu:0,3,1").unwrap(), (CpuBind::Map(vec![0, 3, 1]), true));
        assert_eq!(bind("q").unwrap(), (CpuBind::Default, false));
        assert!(matches!(bind("mask_cpu:0x3"), Err(OptionError::NotSupported(_))));
        let bogus = bind("bogus").unwrap_err();
        assert_eq!((bogus.to_string().as_str(), bogus.exit_code()), ("Failed to parse --cpu-bind= values.", 1));
        let line = FirstLine::Error("unrecognized --cpu-bind argument \"bogus\"".to_owned());
        assert!(matches!(bogus, OptionError::After { line: first, .. } if first == line));
        assert!(matches!(bind("map_cpu:a"), Err(OptionError::Invalid { .. })));
    }

    #[test]
    fn distribution_is_over_nodes_within_them_and_packed_or_not() {
        let laid = |value| distribution(&given("distribution", value));
        let within = |sockets, cores| WithinNode { sockets, cores };
        let block = within(Some(CpuOrder::Block), None);
        assert_eq!(laid("cyclic:block").unwrap(), (Some(Distribution::Cyclic), block));
        assert_eq!(laid("block:*:*").unwrap(), (Some(Distribution::Block), within(None, None)));
        let both = within(Some(CpuOrder::Cyclic), Some(CpuOrder::Fcyclic));
        assert_eq!(laid("*:cyclic:fcyclic").unwrap(), (None, both));
        assert!(laid("block:block:block:block").is_err());
        assert!(laid("plane=2:block").is_err());
        assert_eq!(laid("*").unwrap(), (None, within(None, None)));
        assert_eq!(laid("plane=4").unwrap().0, Some(Distribution::Plane(4)));
        assert_eq!(laid("block,Pack").unwrap().0, Some(Distribution::BlockPack));
        assert_eq!(laid("*:*,NoPack").unwrap().0, Some(Distribution::BlockNoPack));
        for wrong in ["bogus", "plane=0", "plane=x", "block:arbitrary", "block:*:*:*", "block,tight"] {
            assert!(matches!(laid(wrong), Err(OptionError::Invalid { .. })), "{wrong}");
        }
    }
}
