//! Words of `sacctmgr`: `key=value`, `key+=value`, `key-=value`, names, `set` and `where`; and the values behind them.

use garrick_accounts::change::edit::{ListEdit, TresEdit};
use garrick_model::{
    date,
    entities::Entities,
    time::{Timestamp, parse_duration_secs, system_zone},
};
use std::collections::{BTreeMap, BTreeSet};

/// How a key and its value are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Is,
    /// `+=`
    Add,
    /// `-=`
    Subtract,
}

/// A word taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'w> {
    /// As it was typed.
    pub whole: &'w str,
    /// Before the operator; `None`: a name, or a key without a value.
    pub key: Option<&'w str>,
    /// Between.
    pub operator: Operator,
    /// Behind it, or the whole word.
    pub value: &'w str,
}

/// Why a word is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WordError {
    /// There is no such option.
    Unknown,
    /// A number is none: what is set, and the value.
    Number(&'static str, String),
    /// A factor is no number.
    Factor(&'static str, String),
    /// A time is none: what is set.
    Time(&'static str),
    /// Text of the library about TRES.
    Tres(String),
    /// A number with something else behind it.
    Unit(char),
    /// No such QOS: the name, and those that there are.
    Qos(String, String),
    /// `+=` or `-=` where there is only `=`.
    Operator,
    /// No such flag.
    Flag(String),
    /// No such way to preempt.
    PreemptMode,
    /// `RawUsage` of something else than 0.
    RawUsage,
    /// Not here.
    NotYet,
}

impl<'w> Word<'w> {
    /// Takes a word apart.
    pub fn of(whole: &'w str) -> Self {
        let Some(at) = whole.find('=') else { return Self { whole, key: None, operator: Operator::Is, value: whole } };
        let (key, value) = (&whole[..at], unquoted(&whole[at + 1..]));
        let (key, operator) = match key.as_bytes().last() {
            Some(b'+') => (&key[..at - 1], Operator::Add),
            Some(b'-') => (&key[..at - 1], Operator::Subtract),
            _ => (key, Operator::Is),
        };
        Self { whole, key: Some(key), operator, value }
    }

    /// The option of the table that the key means: that name, or the first that begins so.
    pub fn find<T: Copy>(&self, table: &[(&str, T)]) -> Option<T> {
        let key = self.key?.to_ascii_lowercase();
        let exact = table.iter().find(|(name, _)| name.eq_ignore_ascii_case(&key));
        let begins = || table.iter().find(|(name, _)| key.len() >= 3 && name.to_ascii_lowercase().starts_with(&key));
        exact.or_else(begins).map(|(_, option)| *option)
    }

    /// Only `=`.
    pub fn only_is(&self) -> Result<(), WordError> {
        if self.operator == Operator::Is { Ok(()) } else { Err(WordError::Operator) }
    }

    /// Names that are separated by commas.
    pub fn names(&self) -> Vec<String> {
        names(self.value)
    }

    /// A list that is set, or changed.
    pub fn list(&self) -> ListEdit<String> {
        let all: BTreeSet<String> = self.names().into_iter().map(|name| name.to_lowercase()).collect();
        // As in `QOS=+high,-low`.
        if self.operator == Operator::Is && all.iter().any(|name| name.starts_with(['+', '-'])) {
            let of = |sign: char| all.iter().filter_map(|name| name.strip_prefix(sign).map(str::to_owned)).collect();
            return ListEdit::Change { added: of('+'), removed: of('-') };
        }
        match self.operator {
            Operator::Is => ListEdit::Set(all),
            Operator::Add => ListEdit::Change { added: all, removed: BTreeSet::new() },
            Operator::Subtract => ListEdit::Change { added: BTreeSet::new(), removed: all },
        }
    }

    /// QOS that are there.
    pub fn qos_list(&self, entities: &Entities) -> Result<ListEdit<String>, WordError> {
        let list = self.list();
        for name in list.named() {
            known_qos(name, entities)?;
        }
        Ok(list)
    }

    /// A number; `None`: it is unset.
    pub fn number(&self, what: &'static str) -> Result<Option<u64>, WordError> {
        self.only_is()?;
        let bad = || WordError::Number(what, self.value.to_owned());
        let number: i64 = self.value.trim().parse().map_err(|_| bad())?;
        // Slurm has two numbers that mean "none" at the end of 32 bits.
        if number >= i64::from(u32::MAX) - 1 { Err(bad()) } else { Ok(u64::try_from(number).ok()) }
    }

    /// Minutes, rounded up; `None`: unset.
    pub fn minutes(&self, what: &'static str) -> Result<Option<u64>, WordError> {
        self.only_is()?;
        let secs = parse_duration_secs(self.value).map_err(|_| WordError::Time(what))?;
        Ok(secs.map(|secs| secs.div_ceil(60)))
    }

    /// Amounts by the name of a TRES.
    pub fn tres(&self, entities: &Entities) -> Result<BTreeMap<String, TresEdit>, WordError> {
        self.only_is()?;
        names(self.value).iter().map(|part| tres_edit(part, entities)).collect()
    }
}

/// Is it the name of a QOS?
pub fn known_qos(name: &str, entities: &Entities) -> Result<(), WordError> {
    if entities.qos.get(name).is_some_and(|qos| !qos.deleted) {
        return Ok(());
    }
    let mut there: Vec<_> = entities.qos.values().filter(|qos| !qos.deleted).collect();
    there.sort_by_key(|qos| qos.id);
    let there = there.into_iter().map(|qos| qos.name.as_str()).collect::<Vec<_>>().join(",");
    Err(WordError::Qos(name.to_owned(), there))
}

/// A time that somebody typed. The error is what is said of one that is none.
pub fn past(text: &str) -> Result<Timestamp, String> {
    date::parse_past(text, Timestamp::now(), &system_zone())
        .map_err(|_| format!("Invalid time specification (pos={}): {text}", date::wrong_in_past(text)))
}

/// A value without quotes around it.
pub fn unquoted(value: &str) -> &str {
    let quoted = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    quoted('\'').or_else(|| quoted('"')).unwrap_or(value)
}

/// Names that are separated by commas.
pub fn names(text: &str) -> Vec<String> {
    text.split(',').map(|name| unquoted(name.trim()).to_owned()).filter(|name| !name.is_empty()).collect()
}

/// `cpu=4`, `cpu+=4`, `cpu-=4`, `cpu=-1`, `mem=4G`, also with the number of the TRES.
fn tres_edit(part: &str, entities: &Entities) -> Result<(String, TresEdit), WordError> {
    let word = Word::of(part);
    let unknown = |name: &str| WordError::Tres(format!("no TRES known by type {name}"));
    let Some(key) = word.key else {
        return Err(match tres_name(part, entities) {
            Some(_) => WordError::Tres(format!("no TRES id found for {part}")),
            None => unknown(part),
        });
    };
    let name = tres_name(key, entities).ok_or_else(|| unknown(key))?;
    if word.operator == Operator::Is && word.value.parse::<i64>().is_ok_and(|number| number < 0) {
        return Ok((name, TresEdit::Clear));
    }
    let number = amount(word.value, &name)?;
    let edit = match word.operator {
        Operator::Is => TresEdit::Set(number),
        Operator::Add => TresEdit::Add(number),
        Operator::Subtract => TresEdit::Subtract(number),
    };
    Ok((name, edit))
}

/// The name of a TRES, from its name in any case or its number.
fn tres_name(text: &str, entities: &Entities) -> Option<String> {
    let id: Option<u32> = text.parse().ok();
    let full = |kind: &str, name: &str| if name.is_empty() { kind.to_owned() } else { format!("{kind}/{name}") };
    let is_it = |(known, name): &(u32, String)| id.map_or_else(|| name.eq_ignore_ascii_case(text), |id| id == *known);
    entities.tres.values().map(|tres| (tres.id, full(&tres.kind, &tres.name))).find(is_it).map(|(_, name)| name)
}

/// An amount with a unit behind it: of memory MiB where there is none, of others 1.
fn amount(text: &str, name: &str) -> Result<u64, WordError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit = text[digits..].chars().next();
    let power = match unit.map(|unit| unit.to_ascii_uppercase()) {
        None => return text.parse().map_err(|_| WordError::Unit(' ')),
        Some(unit) => "KMGTP"
            .find(unit)
            .filter(|_| digits > 0)
            .ok_or(WordError::Unit(text[digits..].chars().next().unwrap_or(' ')))?,
    };
    let number: u64 = text[..digits].parse().map_err(|_| WordError::Unit(' '))?;
    let factor = 1024_u64.pow(u32::try_from(power).unwrap_or(0) + 1);
    let number = u128::from(number) * u128::from(factor);
    let scaled = if name == "mem" { number.div_ceil(1024 * 1024) } else { number };
    u64::try_from(scaled).map_err(|_| WordError::Unit(unit.unwrap_or(' ')))
}

/// Amounts as they are told: `cpu=3,mem=500M`.
pub fn amounts_text(edits: &BTreeMap<String, TresEdit>) -> String {
    let text = |(name, edit): (&String, &TresEdit)| match edit {
        TresEdit::Clear => format!("{name}=-1"),
        TresEdit::Set(number) => format!("{name}={}", amount_text(name, *number)),
        TresEdit::Add(number) => format!("{name}+={}", amount_text(name, *number)),
        TresEdit::Subtract(number) => format!("{name}-={}", amount_text(name, *number)),
    };
    edits.iter().map(text).collect::<Vec<_>>().join(",")
}

fn amount_text(name: &str, number: u64) -> String {
    if name != "mem" {
        return number.to_string();
    }
    let mut units = "MGTP".chars();
    let (mut number, mut unit) = (number, units.next().unwrap_or('M'));
    while number >= 1024 && number % 1024 == 0 {
        let Some(next) = units.next() else { break };
        (number, unit) = (number / 1024, next);
    }
    format!("{number}{unit}")
}

/// The words of a command by the part that they are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts<'w> {
    /// Before `set`, and behind `where`.
    pub conditions: Vec<Word<'w>>,
    /// Behind `set`.
    pub set: Vec<Word<'w>>,
}

/// Divides the words of `modify` and `delete`.
pub fn parts(words: &[String]) -> Parts<'_> {
    let mut parts = Parts::default();
    let mut setting = false;
    for word in words {
        if word.eq_ignore_ascii_case("set") {
            setting = true;
        } else if word.eq_ignore_ascii_case("where") {
            setting = false;
        } else if setting {
            parts.set.push(Word::of(word));
        } else {
            parts.conditions.push(Word::of(word));
        }
    }
    parts
}
