//! What `priority/multifactor` goes by: `PriorityWeight...`, `PriorityFlags` and the like.

use super::{
    billing::BilledTerms,
    kinds::{Number, number},
};
use crate::{
    config::syntax::{
        report::SettingError,
        values::{self, Value},
    },
    time::parse_duration_secs,
};
use std::fmt::Write as _;

/// Longest `PriorityCalcPeriod`, minutes: a year.
const PERIOD_LIMIT: u32 = 366 * 24 * 60;
const MINUTE: u64 = 60;
const DAY: u64 = 24 * 3600;

/// A kind of resource that `PriorityWeightTRES` may name, in the order in which it is shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WeighedTres {
    /// `CPU`
    Cpu,
    /// `Mem`, MiB.
    Mem,
    /// `Node`
    Node,
    /// `Billing`: by the partition's `TRESBillingWeights`, CPUs without them.
    Billing,
    /// `GRES/gpu`, `GRES/gpu:h100`: the name, with its type.
    Gres(String),
    /// `license/matlab`: the name.
    License(String),
}

impl WeighedTres {
    /// That of a name; `None`: there is no weight for such.
    fn of(name: &str) -> Option<Self> {
        let (kind, rest) = name.split_once('/').unwrap_or((name, ""));
        match (kind.to_ascii_lowercase().as_str(), rest) {
            ("cpu", "") => Some(Self::Cpu),
            ("mem", "") => Some(Self::Mem),
            ("node", "") => Some(Self::Node),
            ("billing", "") => Some(Self::Billing),
            (_, "") => None,
            ("gres", rest) => Some(Self::Gres(rest.to_owned())),
            ("license", rest) => Some(Self::License(rest.to_owned())),
            _ => None,
        }
    }

    /// Slurm's word.
    pub fn name(&self) -> String {
        match self {
            Self::Cpu => "cpu".to_owned(),
            Self::Mem => "mem".to_owned(),
            Self::Node => "node".to_owned(),
            Self::Billing => "billing".to_owned(),
            Self::Gres(name) => format!("gres/{name}"),
            Self::License(name) => format!("license/{name}"),
        }
    }
}

/// `PriorityFlags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "flags as Slurm has them, each by itself")]
pub struct PriorityFlags {
    /// `ACCRUE_ALWAYS`: jobs age from their submission on, eligible or not.
    pub accrue_always: bool,
    /// `CALCULATE_RUNNING`: running and suspended jobs too.
    pub calculate_running: bool,
    /// `DEPTH_OBLIVIOUS`: fair shares by an algorithm that does not go by the depth of the tree, instead of `FAIR_TREE`.
    pub depth_oblivious: bool,
    /// `INCR_ONLY`: never less than before.
    pub incr_only: bool,
    /// `MAX_TRES`: billing is the greatest of its terms, not their sum.
    pub max_tres: bool,
    /// `MAX_TRES_GRES`: the same, with generic resources added to the greatest.
    pub max_tres_gres: bool,
    /// `NO_FAIR_TREE`: fair shares by the classic algorithm.
    pub no_fair_tree: bool,
    /// `NO_NORMAL_ASSOC`: association priorities as they are.
    pub no_normal_assoc: bool,
    /// `NO_NORMAL_PART`: partitions' factors as they are.
    pub no_normal_part: bool,
    /// `NO_NORMAL_QOS`: QOS priorities as they are.
    pub no_normal_qos: bool,
    /// `NO_NORMAL_TRES`: amounts, not shares of the partition.
    pub no_normal_tres: bool,
    /// `SMALL_RELATIVE_TO_TIME`: size by time limit.
    pub small_relative_to_time: bool,
}

const FLAGS: &[&str] = &[
    "ACCRUE_ALWAYS",
    "CALCULATE_RUNNING",
    "DEPTH_OBLIVIOUS",
    "FAIR_TREE",
    "NO_FAIR_TREE",
    "INCR_ONLY",
    "MAX_TRES",
    "MAX_TRES_GRES",
    "NO_NORMAL_ALL",
    "NO_NORMAL_ASSOC",
    "NO_NORMAL_PART",
    "NO_NORMAL_QOS",
    "NO_NORMAL_TRES",
    "SMALL_RELATIVE_TO_TIME",
];

impl PriorityFlags {
    fn parse(text: &str) -> Value<Self> {
        let mut flags = Self::default();
        for word in values::list(text) {
            match values::choice(&word, FLAGS)? {
                "ACCRUE_ALWAYS" => flags.accrue_always = true,
                "CALCULATE_RUNNING" => flags.calculate_running = true,
                "DEPTH_OBLIVIOUS" => flags.depth_oblivious = true,
                "INCR_ONLY" => flags.incr_only = true,
                "MAX_TRES" => flags.max_tres = true,
                "MAX_TRES_GRES" => flags.max_tres_gres = true,
                // Fair Tree is the default.
                "FAIR_TREE" => {}
                "NO_FAIR_TREE" => flags.no_fair_tree = true,
                "NO_NORMAL_ASSOC" => flags.no_normal_assoc = true,
                "NO_NORMAL_PART" => flags.no_normal_part = true,
                "NO_NORMAL_QOS" => flags.no_normal_qos = true,
                "NO_NORMAL_TRES" => flags.no_normal_tres = true,
                "NO_NORMAL_ALL" => {
                    (flags.no_normal_assoc, flags.no_normal_part) = (true, true);
                    (flags.no_normal_qos, flags.no_normal_tres) = (true, true);
                }
                "SMALL_RELATIVE_TO_TIME" => flags.small_relative_to_time = true,
                // The list has no other words.
                _ => {}
            }
        }
        Ok(flags)
    }

    /// What is billed.
    pub const fn billed_terms(self) -> BilledTerms {
        match (self.max_tres, self.max_tres_gres) {
            (true, _) => BilledTerms::Greatest,
            (false, true) => BilledTerms::GreatestAndGres,
            (false, false) => BilledTerms::All,
        }
    }

    pub(super) fn words(self) -> String {
        let all = self.no_normal_assoc && self.no_normal_part && self.no_normal_qos && self.no_normal_tres;
        let given = [
            (self.accrue_always, "ACCRUE_ALWAYS"),
            (self.calculate_running, "CALCULATE_RUNNING"),
            (self.depth_oblivious, "DEPTH_OBLIVIOUS"),
            (self.incr_only, "INCR_ONLY"),
            (self.max_tres, "MAX_TRES"),
            (self.max_tres_gres, "MAX_TRES_GRES"),
            (self.no_fair_tree, "NO_FAIR_TREE"),
            (all, "NO_NORMAL_ALL"),
            (self.no_normal_assoc && !all, "NO_NORMAL_ASSOC"),
            (self.no_normal_part && !all, "NO_NORMAL_PART"),
            (self.no_normal_qos && !all, "NO_NORMAL_QOS"),
            (self.no_normal_tres && !all, "NO_NORMAL_TRES"),
            (self.small_relative_to_time, "SMALL_RELATIVE_TO_TIME"),
        ];
        given.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect::<Vec<_>>().join(",")
    }
}

/// Settings of `priority/multifactor`. Weights are what a factor of 1.0 adds to a job's priority; 0 leaves the factor out.
/// Defaults are those of [`Config`](crate::config::Config); by itself this has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrioritySettings {
    /// `PriorityWeightAge`.
    pub age: u32,
    /// `PriorityWeightAssoc`.
    pub assoc: u32,
    /// `PriorityWeightFairshare`.
    pub fairshare: u32,
    /// `PriorityWeightJobSize`.
    pub job_size: u32,
    /// `PriorityWeightPartition`.
    pub partition: u32,
    /// `PriorityWeightQOS`.
    pub qos: u32,
    /// `PriorityWeightTRES`, each kind once, in order; may be negative.
    pub tres: Vec<(WeighedTres, f64)>,
    /// That, as written.
    pub tres_text: Option<String>,
    /// `PriorityMaxAge`, seconds of waiting that make the age factor 1.0.
    pub max_age_secs: u64,
    /// `PriorityCalcPeriod`, seconds (in minutes in the file) between calculations for all jobs. A shorter
    /// one costs a message to each waiting job whose priority changed.
    pub calc_period_secs: u64,
    /// `PriorityDecayHalfLife`, seconds; 0: past use does not decay.
    pub half_life_secs: u64,
    /// `PriorityUsageResetPeriod`.
    pub reset_period: ResetPeriod,
    /// `FairShareDampeningFactor`, for the classic algorithm.
    pub dampening: u32,
    /// `PriorityFavorSmall`.
    pub favor_small: bool,
    /// `PriorityFlags`.
    pub flags: PriorityFlags,
}

impl PrioritySettings {
    /// Takes `PriorityFlags`.
    pub(super) fn set_flags(&mut self, text: &str) -> Value<()> {
        self.flags = PriorityFlags::parse(text)?;
        Ok(())
    }

    /// Takes a `PriorityWeightTRES`. Inside, what there is to say about it.
    pub(super) fn set_tres(&mut self, text: &str) -> Value<Option<SettingError>> {
        let (weights, note) = tres_weights(text)?;
        self.tres = weights;
        self.tres_text = values::optional(text);
        Ok(note)
    }
}

/// What a factor counts.
pub(super) const WEIGHT: Number<u32> = number(0, u32::MAX);

/// `PriorityUsageResetPeriod`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetPeriod {
    /// Never.
    #[default]
    None,
    /// At each start and reconfiguration.
    Now,
    /// At midnight.
    Daily,
    /// At the beginning of Sunday.
    Weekly,
    /// At the beginning of a month.
    Monthly,
    /// At the beginning of January, April, July and October.
    Quarterly,
    /// At the beginning of a year.
    Yearly,
}

const PERIODS: [(&str, ResetPeriod); 7] = [
    ("NONE", ResetPeriod::None),
    ("NOW", ResetPeriod::Now),
    ("DAILY", ResetPeriod::Daily),
    ("WEEKLY", ResetPeriod::Weekly),
    ("MONTHLY", ResetPeriod::Monthly),
    ("QUARTERLY", ResetPeriod::Quarterly),
    ("YEARLY", ResetPeriod::Yearly),
];

impl ResetPeriod {
    pub(super) fn parse(text: &str) -> Value<Self> {
        let words = PERIODS.map(|(word, _)| word);
        let word = values::choice(text, &words)?;
        Ok(PERIODS.iter().find(|(known, _)| *known == word).map(|(_, period)| *period).unwrap_or_default())
    }

    pub(super) fn word(&self) -> String {
        PERIODS.iter().find(|(_, period)| period == self).map_or("NONE", |(word, _)| word).to_owned()
    }
}

/// A time after which half is left; 0: nothing decays.
pub(super) fn half_life(text: &str) -> Value<u64> {
    match parse_duration_secs(text) {
        Ok(Some(secs)) => Ok(secs),
        _ => Err(SettingError::new(format!("\"{text}\" is not a half-life"))
            .suggest("minutes, hours:minutes:seconds, days-hours or days-hours:minutes:seconds; 0 for none")),
    }
}

/// Minutes, in seconds.
pub(super) fn period(text: &str) -> Value<u64> {
    Ok(MINUTE * u64::from(values::number(text, 1, PERIOD_LIMIT)?))
}

pub(super) fn max_age(text: &str) -> Value<u64> {
    match parse_duration_secs(text) {
        Ok(Some(secs)) if secs > 0 => Ok(secs),
        _ => Err(SettingError::new(format!("\"{text}\" is not an age"))
            .suggest("minutes, hours:minutes:seconds, days-hours or days-hours:minutes:seconds")),
    }
}

/// Weights, and what there is to say about them.
type Weighed = (Vec<(WeighedTres, f64)>, Option<SettingError>);

fn tres_weights(text: &str) -> Value<Weighed> {
    let mut weights: Vec<(WeighedTres, f64)> = Vec::new();
    let mut later = Vec::new();
    for part in values::list(text) {
        let wrong = || {
            SettingError::new(format!("\"{part}\" is not a TRES with its weight"))
                .suggest("for example CPU=1000,Mem=2000")
        };
        let (name, number) = part.split_once('=').ok_or_else(wrong)?;
        let weight = amount(number).ok_or_else(wrong)?;
        let Some(kind) = WeighedTres::of(name.trim()) else {
            later.push(name.trim().to_owned());
            continue;
        };
        weights.retain(|(known, _)| *known != kind);
        weights.push((kind, weight));
    }
    weights.sort_by(|(a, _), (b, _)| a.cmp(b));
    let note = (!later.is_empty()).then(|| {
        SettingError::new(format!("a weight for {} is not supported yet", later.join(",")))
            .suggest("cpu, mem, node, billing, gres/NAME, gres/NAME:TYPE and license/NAME are")
    });
    Ok((weights, note))
}

/// A number, with or without a fraction, a sign, or one of Slurm's units K, M, G, T, P (1024 each).
pub fn amount(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, times) = match text.chars().last()?.to_ascii_uppercase() {
        'K' => (&text[..text.len() - 1], 1024_f64),
        'M' => (&text[..text.len() - 1], 1024_f64.powi(2)),
        'G' => (&text[..text.len() - 1], 1024_f64.powi(3)),
        'T' => (&text[..text.len() - 1], 1024_f64.powi(4)),
        'P' => (&text[..text.len() - 1], 1024_f64.powi(5)),
        _ => (text, 1.0),
    };
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+'));
    digits.parse::<f64>().ok().filter(|n| plain && n.is_finite()).map(|n| n * times)
}

/// `7-00:00:00`, `00:05:00`.
pub(in crate::config) fn days_and_time(secs: u64) -> String {
    let mut text = String::new();
    if secs >= DAY {
        let _ = write!(text, "{}-", secs / DAY);
    }
    let _ = write!(text, "{:02}:{:02}:{:02}", secs % DAY / 3600, secs % 3600 / 60, secs % 60);
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{
        super::{config::Config, global::GLOBAL, row},
        *,
    };

    fn set(key: &str, value: &str) -> Value<(PrioritySettings, Option<SettingError>)> {
        let mut config = Config::default();
        let note = row::find(GLOBAL, key).and_then(|row| row.read).unwrap()(&mut config, value)?;
        Ok((config.priority, note))
    }

    #[test]
    fn settings_are_shown_as_slurm_shows_them() {
        for (key, value, want) in [
            ("PriorityMaxAge", "0-1", "01:00:00"),
            ("PriorityMaxAge", "7-0", "7-00:00:00"),
            ("PriorityCalcPeriod", "5", "00:05:00"),
            ("PriorityDecayHalfLife", "14-0", "14-00:00:00"),
            ("PriorityDecayHalfLife", "0", "00:00:00"),
            ("PriorityUsageResetPeriod", "monthly", "MONTHLY"),
            ("FairShareDampeningFactor", "5", "5"),
            ("PriorityFlags", "NO_FAIR_TREE,max_tres", "MAX_TRES,NO_FAIR_TREE"),
            ("PriorityFlags", "max_tres,depth_oblivious", "DEPTH_OBLIVIOUS,MAX_TRES"),
            ("PriorityFlags", "max_tres_gres", "MAX_TRES_GRES"),
            ("PriorityFavorSmall", "yes", "Yes"),
            ("PriorityFlags", "no_normal_all,max_tres", "MAX_TRES,NO_NORMAL_ALL"),
            ("PriorityWeightTRES", "CPU=1000,Mem=2000", "CPU=1000,Mem=2000"),
            ("PriorityWeightTRES", "", "(null)"),
        ] {
            let row = row::find(GLOBAL, key).unwrap();
            let config = Config { priority: set(key, value).unwrap().0, ..Config::default() };
            let row::Show::Value(shown) = row.show else { panic!("{key} is not shown") };
            assert_eq!(shown(&config), want, "{key}={value}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert!(set("PriorityWeightTRES", "CPU=5,energy=3000").unwrap().1.is_some());
        assert!(set("PriorityWeightTRES", "CPU=5,GRES/gpu=3000,license/a=1").unwrap().1.is_none());
        for (key, value) in [
            ("PriorityWeightFairshare", "10"),
            ("PriorityFlags", "NO_FAIR_TREE"),
            ("PriorityFlags", "FAIR_TREE"),
            ("PriorityFlags", "MAX_TRES,DEPTH_OBLIVIOUS"),
        ] {
            assert!(set(key, value).unwrap().1.is_none(), "{key}={value}");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for (key, value) in [
            ("PriorityFlags", "FOO"),
            ("PriorityMaxAge", "foo"),
            ("PriorityMaxAge", "0"),
            ("PriorityDecayHalfLife", "soon"),
            ("PriorityDecayHalfLife", "UNLIMITED"),
            ("PriorityUsageResetPeriod", "HOURLY"),
            ("FairShareDampeningFactor", "0"),
            ("PriorityCalcPeriod", "0"),
            ("PriorityWeightAge", "-1"),
            ("PriorityWeightTRES", "CPU=abc"),
            ("PriorityWeightTRES", "CPU"),
            ("PriorityWeightTRES", "CPU=nan"),
            ("PriorityWeightTRES", "CPU=inf"),
        ] {
            assert!(set(key, value).is_err(), "{key}={value}");
        }
    }

    #[test]
    fn weights_of_tres_come_in_order_with_units_and_signs() {
        let weights = set("PriorityWeightTRES", "mem=-0.5,CPU=2K,mem=3").unwrap().0.tres;
        assert_eq!(weights, [(WeighedTres::Cpu, 2048.0), (WeighedTres::Mem, 3.0)]);
        let weights = set("PriorityWeightTRES", "license/a=2,GRES/gpu:H100=3,gres/gpu=1,node=4").unwrap().0.tres;
        let names: Vec<String> = weights.iter().map(|(kind, _)| kind.name()).collect();
        assert_eq!(names, ["node", "gres/gpu", "gres/gpu:H100", "license/a"]);
    }
}
