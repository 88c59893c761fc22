//! `add qos`, `modify qos`, `delete qos`.

use super::{
    assoc_words::{limit_lines, list_text, number_edit, raw_usage, set_limit},
    session::{Code, Session},
    told,
    words::{Operator, Word, WordError, parts},
};
use garrick_accounts::change::{
    Action, Applied, ChangeRefusal,
    edit::{Edit, ListEdit, QosEdit},
};
use garrick_model::{
    entities::{
        Entities,
        limits::{Count, TresLimit},
        qos::{QosFlag, QosPreemptMode},
    },
    time::{long_duration, parse_duration_secs},
};
use garrick_render::sacctmgr::limit_words::{Limit, Of};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug)]
enum Setting {
    Description,
    Flags,
    GraceTime,
    LimitFactor,
    Preempt,
    PreemptExemptTime,
    PreemptMode,
    Priority,
    RawUsage,
    UsageFactor,
    UsageThreshold,
}

/// Words of sacctmgr(1) for QOS, apart from limits.
const SETTINGS: &[(&str, Setting)] = &[
    ("Description", Setting::Description),
    ("Flags", Setting::Flags),
    ("GraceTime", Setting::GraceTime),
    ("LimitFactor", Setting::LimitFactor),
    ("Preempt", Setting::Preempt),
    ("PreemptExemptTime", Setting::PreemptExemptTime),
    ("PreemptMode", Setting::PreemptMode),
    ("Priority", Setting::Priority),
    ("RawUsage", Setting::RawUsage),
    ("UsageFactor", Setting::UsageFactor),
    ("UsageThreshold", Setting::UsageThreshold),
];

/// Flags in the order in which they are told.
pub const FLAGS: [(&str, QosFlag); 11] = [
    ("DenyOnLimit", QosFlag::DenyOnLimit),
    ("EnforceUsageThreshold", QosFlag::EnforceUsageThreshold),
    ("PartitionMinNodes", QosFlag::PartitionMinNodes),
    ("PartitionMaxNodes", QosFlag::PartitionMaxNodes),
    ("PartitionTimeLimit", QosFlag::PartitionTimeLimit),
    ("RequiresReservation", QosFlag::RequiresReservation),
    ("OverPartQOS", QosFlag::OverPartQos),
    ("NoReserve", QosFlag::NoReserve),
    ("NoDecay", QosFlag::NoDecay),
    ("Relative", QosFlag::Relative),
    ("UsageFactorSafe", QosFlag::UsageFactorSafe),
];

const MODES: [(&str, QosPreemptMode); 5] = [
    ("SUSPEND", QosPreemptMode::Suspend),
    ("REQUEUE", QosPreemptMode::Requeue),
    ("CANCEL", QosPreemptMode::Cancel),
    ("WITHIN", QosPreemptMode::Within),
    ("PRIORITY", QosPreemptMode::Priority),
];

/// Sets what the word says.
pub fn set(edit: &mut QosEdit, word: &Word<'_>, entities: &Entities) -> Result<(), WordError> {
    let Some(setting) = word.find(SETTINGS) else {
        return set_limit(&mut edit.counts, &mut edit.tres, word, Of::Qos, entities);
    };
    match setting {
        Setting::Description => edit.description = Some(word.value.to_owned()),
        Setting::Flags => edit.flags = flags(word)?,
        Setting::GraceTime => edit.grace_secs = word.number("GraceTime")?.map_or(Edit::Clear, Edit::Set),
        Setting::LimitFactor => edit.limit_factor = factor(word, "LimitFactor")?,
        Setting::Preempt => edit.preempt = word.qos_list(entities)?,
        Setting::PreemptExemptTime => {
            word.only_is()?;
            let secs = parse_duration_secs(word.value).map_err(|_| WordError::Time("PreemptExemptTime"))?;
            edit.preempt_exempt_secs = secs.map_or(Edit::Clear, Edit::Set);
        }
        Setting::PreemptMode => edit.preempt_mode = Some(modes(word)?),
        Setting::Priority => edit.priority = number_edit(word, "Priority")?,
        Setting::RawUsage => edit.reset_usage = raw_usage(word)?,
        Setting::UsageFactor => edit.usage_factor = factor(word, "UsageFactor")?,
        Setting::UsageThreshold => edit.usage_threshold = factor(word, "UsageThreshold")?,
    }
    Ok(())
}

fn factor(word: &Word<'_>, what: &'static str) -> Result<Edit<f64>, WordError> {
    word.only_is()?;
    let bad = || WordError::Factor(what, word.value.to_owned());
    let number: f64 = word.value.parse().map_err(|_| bad())?;
    match number {
        number if !number.is_finite() => Err(bad()),
        number if number < 0.0 => Ok(Edit::Clear),
        number => Ok(Edit::Set(number)),
    }
}

fn flags(word: &Word<'_>) -> Result<ListEdit<QosFlag>, WordError> {
    if word.value == "-1" && word.operator == Operator::Is {
        return Ok(ListEdit::Set(BTreeSet::new()));
    }
    let find = |name: &String| {
        let found = FLAGS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, flag)| *flag).ok_or_else(|| WordError::Flag(word.value.to_owned()))
    };
    let all = word.names().iter().map(find).collect::<Result<BTreeSet<_>, _>>()?;
    Ok(match word.operator {
        Operator::Is => ListEdit::Set(all),
        Operator::Add => ListEdit::Change { added: all, removed: BTreeSet::new() },
        Operator::Subtract => ListEdit::Change { added: BTreeSet::new(), removed: all },
    })
}

/// `PreemptMode`: empty for the cluster's.
fn modes(word: &Word<'_>) -> Result<BTreeSet<QosPreemptMode>, WordError> {
    word.only_is()?;
    let mut modes = BTreeSet::new();
    for name in word.names() {
        let known = MODES.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name));
        match (known, name.to_ascii_lowercase().as_str()) {
            (Some((_, mode)), _) => drop(modes.insert(*mode)),
            (None, "cluster" | "off") => {}
            (None, _) => return Err(WordError::PreemptMode),
        }
    }
    Ok(modes)
}

impl Session<'_> {
    /// `add qos`.
    pub fn add_qos(&mut self, words: &[String]) -> Code {
        let (mut names, mut edit) = (Vec::new(), QosEdit::default());
        for word in words.iter().map(|word| Word::of(word)) {
            if is_name(&word) {
                names.extend(word.names().into_iter().map(|name| name.to_lowercase()));
            } else if let Err(error) = set(&mut edit, &word, &self.entities)
                && let Some(code) = self.qos_error(&word, &error, " Nothing new added.\n")
            {
                return Ok(code);
            }
        }
        let Some(last) = names.last().cloned() else { return self.fail(" Need name of qos to add.\n") };
        let new = |names: &[&str]| format!(" Adding QOS(s)\n{} Settings\n{}", told::lines(names), lines(&edit, &last));
        let asked: Vec<&str> = names.iter().map(String::as_str).collect();
        let change = Action::AddQos { names: names.clone(), edit: edit.clone() };
        self.carry_out(
            change,
            |applied| new(&told::names(&applied.affected, told::qos)),
            |world, refusal| {
                match refusal {
                    ChangeRefusal::NothingAdded { .. } => world.out(" Nothing new added.\n"),
                    other => {
                        world.err(&format!(" Problem adding QOS: {}\n", told::sentence(other)));
                        world.out(&new(&asked));
                    }
                }
                1
            },
        )
    }

    /// Tells of a word that is not understood. `None`: the rest is done all the same, as by Slurm.
    fn qos_error(&mut self, word: &Word<'_>, error: &WordError, nothing: &str) -> Option<i32> {
        match error {
            WordError::Number("Priority", _) => {
                told::library(self.world, error);
                return None;
            }
            WordError::Number(..) | WordError::Factor(..) | WordError::Unit(_) => {
                told::library(self.world, error);
                self.world.out(nothing);
            }
            WordError::Tres(_) | WordError::Qos(..) => told::library(self.world, error),
            other => told::word_error(self.world, word, other),
        }
        Some(1)
    }

    /// `modify qos`.
    pub fn modify_qos(&mut self, words: &[String]) -> Code {
        let parts = parts(words);
        let mut names = Vec::new();
        for word in &parts.conditions {
            if !is_name(word) {
                told::unknown_condition(self.world, word);
                return Ok(1);
            }
            names.extend(word.names());
        }
        let mut edit = QosEdit::default();
        // Slurm passes over a name behind `set`.
        for word in parts.set.iter().filter(|word| !is_name(word)) {
            if let Err(error) = set(&mut edit, word, &self.entities)
                && let Some(code) = self.qos_error(word, &error, "  Nothing modified\n")
            {
                return Ok(code);
            }
        }
        if edit == QosEdit::default() {
            return self.nothing_to_set();
        }
        let here = self.world.cluster();
        let change = Action::ModifyQos { names, edit };
        self.carry_out(
            change,
            |applied| modified(applied, &here),
            |world, refusal| {
                if *refusal == ChangeRefusal::NothingModified {
                    world.out("  Nothing modified\n");
                } else {
                    told::refused(world, refusal, "");
                }
                1
            },
        )
    }

    /// `delete qos`.
    pub fn delete_qos(&mut self, words: &[String]) -> Code {
        let deleted = (" Deleting QOS(s)...\n", "  Nothing deleted\n");
        self.delete_named(words, is_name, Action::DeleteQos, told::qos, deleted)
    }
}

fn is_name(word: &Word<'_>) -> bool {
    word.find(&[("Names", ())]).is_some() || (word.key.is_none() && word.operator == Operator::Is)
}

fn modified(applied: &Applied, here: &str) -> String {
    let names = told::names(&applied.affected, told::qos);
    let mut text = String::new();
    if !told::resets(&applied.affected).is_empty() {
        text += &format!("No cluster specified, resetting on local cluster {here}\n");
    }
    if !names.is_empty() {
        text += &format!(" Modified qos...\n{}", told::lines(&names));
    }
    text
}

/// Values that `add qos` is about to set.
fn lines(edit: &QosEdit, name: &str) -> String {
    let description = edit.description.as_deref().unwrap_or(name).to_lowercase();
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
    if let ListEdit::Set(flags) = &edit.flags {
        let set = FLAGS.iter().filter(|(_, flag)| flags.contains(flag)).map(|(name, _)| *name);
        line("Flags", set.collect::<Vec<_>>().join(","));
    }
    number(&mut lines, "GraceTime", edit.grace_secs);
    let [of_groups, others] = LIMITS.map(|limits| limit_lines(limits, &edit.counts, &edit.tres));
    lines.extend(of_groups);
    factor_line(&mut lines, "LimitFactor", edit.limit_factor);
    lines.extend(others);
    lines.extend(list_text(&edit.preempt).map(|text| ("Preempt".to_owned(), text)));
    if let Edit::Set(secs) = edit.preempt_exempt_secs {
        lines.push(("PreemptExemptTime".to_owned(), long_duration(secs)));
    }
    lines.extend(edit.preempt_mode.as_ref().map(|modes| ("PreemptMode".to_owned(), mode_text(modes))));
    number(&mut lines, "Priority", edit.priority);
    factor_line(&mut lines, "UsageFactor", edit.usage_factor);
    factor_line(&mut lines, "UsageThreshold", edit.usage_threshold);
    let wide = |(name, value): &(String, String)| match name.as_str() {
        // Slurm's own column for this one.
        "MaxJobsPerUser" => format!("  {name:<14} = {value}\n"),
        _ => format!("  {name:<24} = {value}\n"),
    };
    format!("  Description    = {description}\n{}", lines.iter().map(wide).collect::<String>())
}

/// Limits in the order in which they are told, before `LimitFactor` and behind it.
const LIMITS: [&[Limit]; 2] = [
    &[
        Limit::Count(Count::GrpJobs),
        Limit::Count(Count::GrpJobsAccrue),
        Limit::Count(Count::GrpSubmit),
        Limit::Tres(TresLimit::GrpTres),
        Limit::Tres(TresLimit::GrpTresMins),
        Limit::Tres(TresLimit::GrpTresRunMins),
        Limit::Count(Count::GrpWall),
    ],
    &[
        Limit::Count(Count::MaxJobsAccruePerAccount),
        Limit::Count(Count::MaxJobsAccruePerUser),
        Limit::Count(Count::MaxJobsPerAccount),
        Limit::Count(Count::MaxJobsPerUser),
        Limit::Count(Count::MaxSubmitPerAccount),
        Limit::Count(Count::MaxSubmitPerUser),
        Limit::Tres(TresLimit::MaxTresPerAccount),
        Limit::Tres(TresLimit::MaxTresPerJob),
        Limit::Tres(TresLimit::MaxTresPerNode),
        Limit::Tres(TresLimit::MaxTresPerUser),
        Limit::Tres(TresLimit::MaxTresRunMinsPerAccount),
        Limit::Tres(TresLimit::MaxTresRunMinsPerUser),
        Limit::Tres(TresLimit::MinTresPerJob),
        Limit::Tres(TresLimit::MaxTresMinsPerJob),
        Limit::Count(Count::MaxWall),
        Limit::Count(Count::MinPrioThreshold),
    ],
];

fn mode_text(modes: &BTreeSet<QosPreemptMode>) -> String {
    let set: Vec<&str> = MODES.iter().filter(|(_, mode)| modes.contains(mode)).map(|(name, _)| *name).collect();
    if set.is_empty() { "CLUSTER".to_owned() } else { set.join(",") }
}

fn number<T: ToString>(lines: &mut Vec<(String, String)>, name: &str, edit: Edit<T>) {
    match edit {
        Edit::Keep => {}
        Edit::Clear => lines.push((name.to_owned(), "NONE".to_owned())),
        Edit::Set(number) => lines.push((name.to_owned(), number.to_string())),
    }
}

fn factor_line(lines: &mut Vec<(String, String)>, name: &str, edit: Edit<f64>) {
    match edit {
        Edit::Keep => {}
        Edit::Clear => lines.push((name.to_owned(), "NONE".to_owned())),
        Edit::Set(factor) => lines.push((name.to_owned(), format!("{factor:.4}"))),
    }
}
