//! Preemption: `PreemptType`, `PreemptMode` and what else says who gives way to whom.

use super::kinds::NULL;
use crate::{
    config::syntax::{
        report::SettingError,
        values::{self, Parameters, Value},
    },
    time::parse_duration_secs,
};
use serde::{Deserialize, Serialize};

/// How a job gives way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreemptMode {
    /// OFF: it does not.
    #[default]
    Off,
    /// CANCEL: it is ended.
    Cancel,
    /// REQUEUE: it goes back to the queue if it may be requeued, and is ended otherwise.
    Requeue,
    /// SUSPEND: it stands still and keeps all but its CPUs, and is resumed when they are free again.
    Suspend,
}

/// How jobs give way, with what restricts or widens that, as the words of a `PreemptMode` say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreemptWords {
    /// How; `None`: they name no way.
    pub mode: Option<PreemptMode>,
    /// WITHIN: with `preempt/qos`, to jobs of the same QOS too.
    pub within: bool,
    /// PRIORITY: to jobs of a higher priority only.
    pub by_priority: bool,
}

/// Who may preempt whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptType {
    /// `preempt/none`: nobody.
    #[default]
    None,
    /// `preempt/partition_prio`: jobs of a partition with a higher `PriorityTier` those of one with a lower.
    PartitionPrio,
    /// `preempt/qos`: jobs of a QOS those of the ones that it names.
    Qos,
}

/// Settings of preemption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreemptSettings {
    /// `PreemptType`.
    pub kind: PreemptType,
    /// `PreemptType` as written; `None`: not at all.
    kind_text: Option<String>,
    /// `PreemptMode`: of partitions that have none of their own.
    pub mode: PreemptWords,
    /// `PreemptMode`, in Slurm's words.
    mode_text: Option<String>,
    /// `PreemptExemptTime`, seconds: a job is not preempted before it has run for so long. Default 0.
    pub exempt_secs: u64,
    /// `PreemptParameters`.
    pub parameters: Parameters,
    /// `SchedulerTimeSlice`, seconds; `None`: 30.
    time_slice_secs: Option<u32>,
}

/// Options of `PreemptParameters`, and whether they have a number.
const PARAMETERS: &[(&str, Option<&str>)] = &[
    ("min_exempt_priority", Some("PRIORITY")),
    ("reclaim_licenses", None),
    ("reorder_count", Some("COUNT")),
    ("send_user_signal", None),
    ("strict_order", None),
    ("suspend_grace_time", Some("SECONDS")),
    ("youngest_first", None),
];

/// Default of `SchedulerTimeSlice`, seconds.
const TIME_SLICE: u32 = 30;
/// Bounds of `SchedulerTimeSlice`, seconds (`slurm.conf(5)`).
const TIME_SLICES: (u32, u32) = (5, 65_533);

/// Default of `suspend_grace_time`, seconds.
const SUSPEND_GRACE: u64 = 2;

const WORDS: &[&str] = &["OFF", "CANCEL", "GANG", "REQUEUE", "SUSPEND", "WITHIN", "PRIORITY"];

impl PreemptSettings {
    /// `youngest_first`: of jobs of one tier, those that started last give way first.
    pub fn youngest_first(&self) -> bool {
        self.parameters.has("youngest_first")
    }

    /// `min_exempt_priority`: jobs of that priority and above are left alone.
    pub fn exempt_from(&self) -> Option<u32> {
        self.number("min_exempt_priority")
    }

    /// `reclaim_licenses`: jobs give way for their licenses too.
    pub fn reclaims_licenses(&self) -> bool {
        self.parameters.has("reclaim_licenses")
    }

    /// `send_user_signal`: a run that has to give way gets the signal of `--signal`.
    pub fn sends_user_signal(&self) -> bool {
        self.parameters.has("send_user_signal")
    }

    /// `reorder_count`: how many other orders of those who may give way are tried, for fewer of them; as in Slurm none with
    /// `GANG` and `preempt/partition_prio`.
    pub fn reorders(&self) -> u32 {
        let ignored = self.is_gang() && self.kind == PreemptType::PartitionPrio;
        self.number("reorder_count").filter(|_| !ignored).unwrap_or(0)
    }

    /// `strict_order`: in those orders whoever was found to be needed last comes first.
    pub fn is_strict_order(&self) -> bool {
        self.parameters.has("strict_order")
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.parameters.value(name)?.parse().ok()
    }

    /// `suspend_grace_time`, seconds: from SIGTSTP to SIGSTOP.
    pub fn suspend_grace_secs(&self) -> u64 {
        self.parameters.value("suspend_grace_time").and_then(|text| text.parse().ok()).unwrap_or(SUSPEND_GRACE)
    }

    /// `SchedulerTimeSlice`, seconds: how long a job has its CPUs before another that shares them has them.
    pub fn time_slice_secs(&self) -> u32 {
        self.time_slice_secs.unwrap_or(TIME_SLICE)
    }

    /// `GANG` is part of the cluster's `PreemptMode`: jobs that share CPUs take turns, and what was suspended is resumed.
    pub fn is_gang(&self) -> bool {
        self.mode_text.as_deref().is_some_and(|text| text.split(',').any(|word| word == "GANG"))
    }

    /// Takes a `PreemptMode`.
    pub(super) fn set_mode(&mut self, text: &str) -> Value<()> {
        let (mode, text) = mode(text)?;
        if mode.mode == Some(PreemptMode::Suspend) && !text.contains("GANG") {
            return Err(SettingError::new("PreemptMode=SUSPEND needs GANG, which resumes what was suspended")
                .suggest("PreemptMode=SUSPEND,GANG"));
        }
        self.mode = mode;
        self.mode_text = Some(text);
        Ok(())
    }

    /// Takes a `PreemptType`. Inside, what there is to say about it.
    pub(super) fn set_kind(&mut self, text: &str) -> Value<Option<SettingError>> {
        let words = ["preempt/none", "preempt/partition_prio", "preempt/qos"];
        let word = values::choice(text, &words)?;
        self.kind = match word {
            "preempt/partition_prio" => PreemptType::PartitionPrio,
            "preempt/qos" => PreemptType::Qos,
            _ => PreemptType::None,
        };
        self.kind_text = Some(word.to_owned());
        Ok((self.kind == PreemptType::Qos).then(|| {
            SettingError::new("there is no accounting database that knows any QOS: nobody is preempted")
                .suggest("preempt/partition_prio goes by the PriorityTier of partitions")
        }))
    }

    /// Takes a `SchedulerTimeSlice`.
    pub(super) fn set_time_slice(&mut self, text: &str) -> Value<()> {
        self.time_slice_secs = Some(values::number(text, TIME_SLICES.0, TIME_SLICES.1)?);
        Ok(())
    }

    /// What does not go together, by the key that it is about.
    pub(in crate::config) fn conflict(&self) -> Option<(&'static str, SettingError)> {
        let kind = self.kind_text.as_deref().unwrap_or("preempt/none");
        let mode = self.mode_text.as_deref().unwrap_or("OFF");
        match kind {
            "preempt/none" if !matches!(mode, "OFF" | "GANG") => Some((
                "PreemptMode",
                SettingError::new(format!("PreemptMode={mode} needs a PreemptType other than preempt/none"))
                    .suggest("PreemptType=preempt/partition_prio, or PreemptMode=OFF"),
            )),
            "preempt/partition_prio" | "preempt/qos" if self.mode.mode.is_none_or(|m| m == PreemptMode::Off) => Some((
                "PreemptType",
                SettingError::new(format!("PreemptType={kind} does not go with PreemptMode={mode}")).suggest(
                    "PreemptMode=REQUEUE or PreemptMode=CANCEL; PreemptMode=OFF on the lines of partitions to be spared",
                ),
            )),
            _ => None,
        }
    }

    /// The mode of partitions that name none, in words; `None`: nobody is preempted.
    pub(in crate::config) fn partition_default(&self) -> Option<&str> {
        let preempts = self.kind != PreemptType::None && self.mode.mode.is_some_and(|mode| mode != PreemptMode::Off);
        self.mode_text.as_deref().filter(|_| preempts)
    }

    /// `PreemptMode` as `scontrol show config` has it.
    pub(super) fn shown_mode(&self) -> String {
        self.mode_text.clone().unwrap_or_else(|| "OFF".to_owned())
    }

    /// `PreemptType` as `scontrol show config` has it.
    pub(super) fn shown_kind(&self) -> String {
        let kind = self.kind_text.as_deref().filter(|kind| *kind != "preempt/none");
        kind.unwrap_or(NULL).to_owned()
    }
}

impl PreemptWords {
    /// From the words of a `PreemptMode`, as `mode` left them.
    pub fn of(text: &str) -> Self {
        mode(text).map_or_else(|_| Self { mode: Some(PreemptMode::Off), ..Self::default() }, |(words, _)| words)
    }
}

/// A `PreemptMode`: what it comes to, and in Slurm's words.
pub(in crate::config) fn mode(text: &str) -> Value<(PreemptWords, String)> {
    let mut words = values::list(text).iter().map(|word| values::choice(word, WORDS)).collect::<Value<Vec<_>>>()?;
    words.dedup();
    let has = |word: &str| words.contains(&word);
    let ways = [
        ("OFF", PreemptMode::Off),
        ("CANCEL", PreemptMode::Cancel),
        ("REQUEUE", PreemptMode::Requeue),
        ("SUSPEND", PreemptMode::Suspend),
    ];
    let named: Vec<PreemptMode> = ways.iter().filter(|(word, _)| has(word)).map(|(_, mode)| *mode).collect();
    if named.len() > 1 || (has("OFF") && words.len() > 1) {
        return Err(
            SettingError::new(format!("\"{text}\" says several modes")).suggest("OFF, CANCEL, REQUEUE or SUSPEND,GANG")
        );
    }
    let read = PreemptWords {
        mode: named.first().copied().or(words.is_empty().then_some(PreemptMode::Off)),
        within: has("WITHIN"),
        by_priority: has("PRIORITY"),
    };
    // Slurm names GANG first.
    words.sort_by_key(|word| *word != "GANG");
    Ok((read, if words.is_empty() { "OFF".to_owned() } else { words.join(",") }))
}

pub(super) fn parameters(text: &str) -> Value<Parameters> {
    let known: Vec<&'static str> = PARAMETERS.iter().map(|(name, _)| *name).collect();
    let given = values::optional(text).map(|text| values::list(&text)).unwrap_or_default();
    for word in &given {
        let (name, number) = word.split_once('=').map_or((word.as_str(), None), |(name, number)| (name, Some(number)));
        let name = values::choice(name, &known)?;
        let wanted = PARAMETERS.iter().find(|(known, _)| *known == name).and_then(|(_, wanted)| *wanted);
        if let Some(wanted) = wanted.filter(|_| number.is_none_or(|number| number.parse::<u32>().is_err())) {
            return Err(SettingError::new(format!("\"{word}\" has no number")).suggest(format!("{name}={wanted}")));
        }
    }
    Ok(Parameters(given))
}

/// As a time limit; -1 is 0.
pub(super) fn exempt_time(text: &str) -> Value<u64> {
    if text.trim() == "-1" {
        return Ok(0);
    }
    match parse_duration_secs(text) {
        Ok(Some(secs)) => Ok(secs),
        _ => Err(SettingError::new(format!("\"{text}\" is not a time"))
            .suggest("minutes, minutes:seconds, hours:minutes:seconds, days-hours or -1 for none")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn modes_are_one_way_each() {
        let way = |mode| PreemptWords { mode: Some(mode), ..PreemptWords::default() };
        assert_eq!(mode("requeue").unwrap(), (way(PreemptMode::Requeue), "REQUEUE".to_owned()));
        assert_eq!(mode("OFF").unwrap(), (way(PreemptMode::Off), "OFF".to_owned()));
        assert!(mode("CANCEL,REQUEUE").is_err() && mode("OFF,GANG").is_err() && mode("KILL").is_err());
        for text in ["SUSPEND,GANG", "gang,suspend"] {
            assert_eq!(mode(text).unwrap(), (way(PreemptMode::Suspend), "GANG,SUSPEND".to_owned()));
        }
        assert_eq!(mode("SUSPEND").unwrap(), (way(PreemptMode::Suspend), "SUSPEND".to_owned()), "of a partition");
        let mut settings = PreemptSettings::default();
        assert!(settings.set_mode("SUSPEND").is_err(), "the cluster's needs GANG");
        assert_eq!(mode("REQUEUE,GANG").unwrap(), (way(PreemptMode::Requeue), "GANG,REQUEUE".to_owned()));
        let (words, text) = mode("CANCEL,WITHIN,PRIORITY").unwrap();
        assert_eq!((words.mode, words.within, words.by_priority), (Some(PreemptMode::Cancel), true, true));
        assert_eq!(PreemptWords::of(&text), words);
        assert_eq!(mode("PRIORITY").unwrap().0.mode, None, "how is the cluster's to say");
        settings.set_mode("GANG").unwrap();
        assert!(settings.is_gang() && settings.conflict().is_none(), "with PreemptType=preempt/none");
        assert_eq!(settings.shown_mode(), "GANG");
    }

    #[test]
    fn a_time_slice_has_at_least_five_seconds() {
        let mut settings = PreemptSettings::default();
        assert_eq!(settings.time_slice_secs(), 30);
        settings.set_time_slice("5").unwrap();
        assert_eq!(settings.time_slice_secs(), 5);
        for wrong in ["4", "65534", "soon"] {
            assert!(settings.set_time_slice(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_time_from_the_first_signal_to_the_stop_is_a_number() {
        let mut settings = PreemptSettings::default();
        assert_eq!(settings.suspend_grace_secs(), 2);
        settings.parameters = parameters("youngest_first,suspend_grace_time=30").unwrap();
        assert_eq!(settings.suspend_grace_secs(), 30);
        settings.parameters = parameters("min_exempt_priority=500,reorder_count=3,strict_order").unwrap();
        assert_eq!((settings.exempt_from(), settings.reorders(), settings.is_strict_order()), (Some(500), 3, true));
        for wrong in
            ["suspend_grace_time", "suspend_grace_time=soon", "min_exempt_priority", "reorder_count=-1", "other"]
        {
            assert!(parameters(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn type_and_mode_must_agree() {
        let with = |pairs: &[(&str, &str)]| {
            let mut settings = PreemptSettings::default();
            for (key, value) in pairs {
                if *key == "PreemptMode" {
                    settings.set_mode(value).unwrap();
                } else {
                    settings.set_kind(value).unwrap();
                }
            }
            settings.conflict().map(|(key, _)| key)
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("PreemptMode", "REQUEUE")]), Some("PreemptMode"));
        assert_eq!(with(&[("PreemptType", "preempt/partition_prio")]), Some("PreemptType"));
        for (kind, mode, wrong) in [
            ("preempt/partition_prio", "CANCEL", None),
            ("preempt/qos", "REQUEUE,WITHIN", None),
            ("preempt/qos", "GANG", Some("PreemptType")),
            ("preempt/partition_prio", "PRIORITY", Some("PreemptType")),
        ] {
            assert_eq!(with(&[("PreemptType", kind), ("PreemptMode", mode)]), wrong, "{kind} {mode}");
        }
    }
}
