//! Values of associations: the words that set them, and how they are told.

use super::words::{Operator, Word, WordError, amounts_text, known_qos};
use garrick_accounts::change::edit::{AssocEdit, AssocFilter, CountEdits, Edit, ListEdit, TresEdits};
use garrick_model::{
    entities::{
        Entities,
        association::Shares,
        limits::{Count, TresLimit},
    },
    time::long_duration,
};
use garrick_render::sacctmgr::limit_words::{self, Limit, Of, is_time};

/// What a word sets, apart from limits.
#[derive(Clone, Copy, Debug)]
enum Setting {
    Shares,
    Priority,
    Qos,
    DefaultQos,
    Comment,
    RawUsage,
}

/// Words of sacctmgr(1) for associations, apart from limits.
const SETTINGS: &[(&str, Setting)] = &[
    ("Comment", Setting::Comment),
    ("DefaultQOS", Setting::DefaultQos),
    ("Fairshare", Setting::Shares),
    ("Share", Setting::Shares),
    ("Priority", Setting::Priority),
    ("QosLevel", Setting::Qos),
    ("QOS", Setting::Qos),
    ("RawUsage", Setting::RawUsage),
];

/// Sets what the word says. `Unknown`: it is no word for associations.
pub fn set(edit: &mut AssocEdit, word: &Word<'_>, entities: &Entities) -> Result<(), WordError> {
    let Some(setting) = word.find(SETTINGS) else {
        return set_limit(&mut edit.counts, &mut edit.tres, word, Of::Associations, entities);
    };
    match setting {
        Setting::Shares => edit.shares = shares(word)?,
        Setting::Priority => edit.priority = number_edit(word, "Priority")?,
        Setting::Qos => edit.qos = word.qos_list(entities)?,
        Setting::DefaultQos => edit.default_qos = default_qos(word, entities)?,
        Setting::Comment => edit.comment = Some(word.value.to_owned()),
        Setting::RawUsage => edit.reset_usage = raw_usage(word)?,
    }
    Ok(())
}

/// Sets a limit of associations or QOS. `Unknown`: it is none.
pub fn set_limit(
    counts: &mut CountEdits,
    tres: &mut TresEdits,
    word: &Word<'_>,
    of: Of,
    entities: &Entities,
) -> Result<(), WordError> {
    let limit = word.key.and_then(|key| limit_words::find(key, of)).ok_or(WordError::Unknown)?;
    let name = limit_words::told(limit);
    match limit {
        Limit::Count(count) if is_time(count) => drop(counts.insert(count, word.minutes(name)?)),
        Limit::Count(count) => drop(counts.insert(count, word.number(name)?)),
        Limit::Tres(limit) => drop(tres.insert(limit, word.tres(entities)?)),
    }
    Ok(())
}

fn shares(word: &Word<'_>) -> Result<Edit<Shares>, WordError> {
    if word.value.eq_ignore_ascii_case("parent") && word.operator == Operator::Is {
        return Ok(Edit::Set(Shares::Parent));
    }
    let number = word.number("FairShare")?;
    Ok(number.and_then(|number| u32::try_from(number).ok()).map_or(Edit::Clear, |n| Edit::Set(Shares::Number(n))))
}

/// A number of 32 bits; negative: unset.
pub fn number_edit(word: &Word<'_>, what: &'static str) -> Result<Edit<u32>, WordError> {
    let number = word.number(what)?;
    Ok(number.and_then(|number| u32::try_from(number).ok()).map_or(Edit::Clear, Edit::Set))
}

fn default_qos(word: &Word<'_>, entities: &Entities) -> Result<Edit<String>, WordError> {
    word.only_is()?;
    if word.value == "-1" || word.value.is_empty() {
        return Ok(Edit::Clear);
    }
    let name = word.value.to_lowercase();
    known_qos(&name, entities)?;
    Ok(Edit::Set(name))
}

/// `RawUsage=0`.
pub fn raw_usage(word: &Word<'_>) -> Result<bool, WordError> {
    if word.value.parse() == Ok(0_u8) && word.operator == Operator::Is { Ok(true) } else { Err(WordError::RawUsage) }
}

/// What a condition is about.
#[derive(Clone, Copy, Debug)]
enum Condition {
    Clusters,
    Accounts,
    Users,
    Partitions,
    Parents,
}

const CONDITIONS: &[(&str, Condition)] = &[
    ("Clusters", Condition::Clusters),
    ("Accounts", Condition::Accounts),
    ("Users", Condition::Users),
    ("Partitions", Condition::Partitions),
    ("Parents", Condition::Parents),
];

/// Names that a word without a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Accounts,
    Users,
}

/// Narrows the filter as the word says. `Unknown`: it is no condition.
pub fn narrow(filter: &mut AssocFilter, word: &Word<'_>, names: Names) -> Result<(), WordError> {
    let own = match word.key {
        None => true,
        Some(key) => key.len() >= 3 && "names".starts_with(&key.to_ascii_lowercase()),
    };
    word.only_is()?;
    let list = match (own, word.find(CONDITIONS)) {
        (true, _) if names == Names::Users => &mut filter.users,
        (true, _) => &mut filter.accounts,
        (false, Some(Condition::Clusters)) => &mut filter.clusters,
        (false, Some(Condition::Accounts)) => &mut filter.accounts,
        (false, Some(Condition::Users)) => &mut filter.users,
        (false, Some(Condition::Partitions)) => &mut filter.partitions,
        (false, Some(Condition::Parents)) => &mut filter.parents,
        (false, None) => return Err(WordError::Unknown),
    };
    list.extend(word.names());
    Ok(())
}

/// Limits as they are told, in this order.
pub fn limit_lines(limits: &[Limit], counts: &CountEdits, tres: &TresEdits) -> Vec<(String, String)> {
    let number = |count: Count, new: &Option<u64>| match new {
        None => "NONE".to_owned(),
        Some(minutes) if is_time(count) => long_duration(minutes.saturating_mul(60)),
        Some(number) => number.to_string(),
    };
    let text = |limit: Limit| match limit {
        Limit::Count(count) => counts.get(&count).map(|new| number(count, new)),
        Limit::Tres(limit) => tres.get(&limit).map(amounts_text),
    };
    limits.iter().filter_map(|limit| Some((limit_words::told(*limit).to_owned(), text(*limit)?))).collect()
}

/// Limits of associations, in the order in which `add` tells them.
const LIMITS: [Limit; 14] = [
    Limit::Tres(TresLimit::GrpTresMins),
    Limit::Tres(TresLimit::GrpTresRunMins),
    Limit::Tres(TresLimit::GrpTres),
    Limit::Count(Count::GrpJobs),
    Limit::Count(Count::GrpJobsAccrue),
    Limit::Count(Count::GrpSubmit),
    Limit::Count(Count::GrpWall),
    Limit::Tres(TresLimit::MaxTresMinsPerJob),
    Limit::Tres(TresLimit::MaxTresPerJob),
    Limit::Tres(TresLimit::MaxTresPerNode),
    Limit::Count(Count::MaxJobs),
    Limit::Count(Count::MaxJobsAccrue),
    Limit::Count(Count::MaxSubmit),
    Limit::Count(Count::MaxWall),
];

/// Values of an association that `add` is about to set, as it tells them.
pub fn lines(edit: &AssocEdit, parent: Option<&str>) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let line = |name: &str, value: String| (name.to_owned(), value);
    match edit.shares {
        Edit::Keep => {}
        Edit::Clear => lines.push(line("Fairshare", "NONE".to_owned())),
        Edit::Set(Shares::Parent) => lines.push(line("Fairshare", "parent".to_owned())),
        Edit::Set(Shares::Number(number)) => lines.push(line("Fairshare", number.to_string())),
    }
    lines.extend(limit_lines(&LIMITS, &edit.counts, &edit.tres));
    lines.extend(parent.map(|parent| line("Parent", parent.to_owned())));
    match edit.priority {
        Edit::Keep => {}
        Edit::Clear => lines.push(line("Priority", "NONE".to_owned())),
        Edit::Set(number) => lines.push(line("Priority", number.to_string())),
    }
    lines.extend(list_text(&edit.qos).map(|text| line("QOS", text)));
    match &edit.default_qos {
        Edit::Keep => {}
        Edit::Clear => lines.push(line("DefQOS", "NONE".to_owned())),
        Edit::Set(name) => lines.push(line("DefQOS", name.clone())),
    }
    lines
}

/// A list as it is told.
pub fn list_text(list: &ListEdit<String>) -> Option<String> {
    let join = |sign: &str, names: &std::collections::BTreeSet<String>| {
        names.iter().map(|name| format!("{sign}{name}")).collect::<Vec<_>>().join(",")
    };
    match list {
        ListEdit::Keep => None,
        ListEdit::Set(names) => Some(join("", names)),
        ListEdit::Change { added, removed } => {
            let both = [join("+", added), join("-", removed)];
            Some(both.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(","))
        }
    }
}

/// Lines under a heading, names in a column of that width.
pub fn table(lines: &[(String, String)], width: usize) -> String {
    lines.iter().map(|(name, value)| format!("  {name:<width$} = {value}\n")).collect()
}
