//! Kinds of values: how each is read and shown.

use crate::{
    config::{
        settings::partition::OverTime,
        syntax::{
            report::SettingError,
            values::{self, ExitCodes, LogLevel, MemoryPer, Parameters, Value},
        },
    },
    resources::MemoryMib,
};
use std::{
    fmt::Display,
    path::{Path, PathBuf},
    str::FromStr,
};

/// What Slurm shows for nothing.
pub(in crate::config) const NULL: &str = "(null)";

/// A way to read and to show a `T`.
pub(super) trait Kind<T> {
    fn read(&self, text: &str) -> Value<T>;
    fn show(&self, value: &T) -> String;
}

/// A whole number within bounds, shown with its unit.
pub(super) struct Number<T>(T, T, &'static str);

pub(super) const fn number<T: Copy>(least: T, most: T) -> Number<T> {
    Number(least, most, "")
}

pub(super) const fn secs(least: u32, most: u32) -> Number<u32> {
    Number(least, most, " sec")
}

impl<T: FromStr + PartialOrd + Display + Copy> Kind<T> for Number<T> {
    fn read(&self, text: &str) -> Value<T> {
        values::number(text, self.0, self.1)
    }
    fn show(&self, value: &T) -> String {
        format!("{value}{}", self.2)
    }
}

/// A number, or none for `UNLIMITED`, which is shown as the third says.
pub(super) struct Limit(pub u32, pub u32, pub &'static str);

impl Kind<Option<u32>> for Limit {
    fn read(&self, text: &str) -> Value<Option<u32>> {
        values::number_or_unlimited(text, self.0, self.1)
    }
    fn show(&self, value: &Option<u32>) -> String {
        value.map_or_else(|| self.2.to_owned(), |n| n.to_string())
    }
}

/// Yes and no, and how no and yes are shown.
pub(super) struct YesNo(pub &'static str, pub &'static str);

/// `No` and `Yes`.
pub(super) const YES_NO: YesNo = YesNo("No", "Yes");
/// 0 and 1.
pub(super) const BIT: YesNo = YesNo("0", "1");

impl Kind<bool> for YesNo {
    fn read(&self, text: &str) -> Value<bool> {
        values::yes_no(text)
    }
    fn show(&self, value: &bool) -> String {
        if *value { self.1 } else { self.0 }.to_owned()
    }
}

/// Any text; none for the empty one, `(null)` and `none`, which is shown as this says.
pub(super) struct Text(pub &'static str);

impl Kind<Option<String>> for Text {
    fn read(&self, text: &str) -> Value<Option<String>> {
        Ok(values::optional(text))
    }
    fn show(&self, value: &Option<String>) -> String {
        value.as_deref().unwrap_or(self.0).to_owned()
    }
}

impl Kind<Option<PathBuf>> for Text {
    fn read(&self, text: &str) -> Value<Option<PathBuf>> {
        Ok(values::optional(text).map(PathBuf::from))
    }
    fn show(&self, value: &Option<PathBuf>) -> String {
        value.as_deref().map_or_else(|| self.0.to_owned(), |path| path.display().to_string())
    }
}

/// An absolute path, which may have `%n` and the like in it.
pub(super) struct AbsolutePath;

impl Kind<String> for AbsolutePath {
    fn read(&self, text: &str) -> Value<String> {
        if text.starts_with('/') {
            Ok(text.to_owned())
        } else {
            Err(SettingError::new(format!("\"{text}\" is not an absolute path")).suggest("begin it with a slash"))
        }
    }
    fn show(&self, value: &String) -> String {
        value.clone()
    }
}

impl Kind<PathBuf> for AbsolutePath {
    fn read(&self, text: &str) -> Value<PathBuf> {
        <Self as Kind<String>>::read(self, text).map(PathBuf::from)
    }
    fn show(&self, value: &PathBuf) -> String {
        value.display().to_string()
    }
}

impl Kind<Option<PathBuf>> for AbsolutePath {
    fn read(&self, text: &str) -> Value<Option<PathBuf>> {
        values::optional(text).map(|text| self.read(&text)).transpose()
    }
    fn show(&self, value: &Option<PathBuf>) -> String {
        value.as_deref().map_or(Path::new(NULL), |path| path).display().to_string()
    }
}

/// Words between commas, some of them `name=value`.
pub(super) struct Words;

impl Kind<Parameters> for Words {
    fn read(&self, text: &str) -> Value<Parameters> {
        Ok(Parameters::parse(text))
    }
    fn show(&self, value: &Parameters) -> String {
        or_null(value)
    }
}

/// Exit codes.
pub(super) struct Codes;

impl Kind<ExitCodes> for Codes {
    fn read(&self, text: &str) -> Value<ExitCodes> {
        ExitCodes::parse(text)
    }
    fn show(&self, value: &ExitCodes) -> String {
        or_null(value)
    }
}

/// How much is logged.
pub(super) struct Level;

impl Kind<LogLevel> for Level {
    fn read(&self, text: &str) -> Value<LogLevel> {
        LogLevel::parse(text)
    }
    fn show(&self, value: &LogLevel) -> String {
        value.name().to_owned()
    }
}

impl Kind<Option<LogLevel>> for Level {
    fn read(&self, text: &str) -> Value<Option<LogLevel>> {
        LogLevel::parse(text).map(Some)
    }
    fn show(&self, value: &Option<LogLevel>) -> String {
        value.map_or(NULL, LogLevel::name).to_owned()
    }
}

/// Minutes, or `UNLIMITED`.
pub(super) struct Minutes;

impl Kind<OverTime> for Minutes {
    fn read(&self, text: &str) -> Value<OverTime> {
        OverTime::parse(text)
    }
    fn show(&self, value: &OverTime) -> String {
        match value {
            OverTime::Minutes(n) => format!("{n} min"),
            OverTime::Unlimited => "UNLIMITED".to_owned(),
        }
    }
}

/// One word of several, in any case. Of words that mean the same, the last is shown.
pub(super) struct OneOf<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy + PartialEq + Default> Kind<T> for OneOf<T> {
    fn read(&self, text: &str) -> Value<T> {
        let words: Vec<&'static str> = self.0.iter().map(|(word, _)| *word).collect();
        let word = values::choice(text, &words)?;
        Ok(self.0.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning).unwrap_or_default())
    }
    fn show(&self, value: &T) -> String {
        self.0.iter().rfind(|(_, meaning)| meaning == value).map_or(NULL, |(word, _)| word).to_owned()
    }
}

/// One of several by its number, from 0.
pub(super) struct Numbered<T: 'static>(pub &'static [T]);

impl<T: Copy + PartialEq + Default> Kind<T> for Numbered<T> {
    fn read(&self, text: &str) -> Value<T> {
        let at = values::number(text, 0, self.0.len().saturating_sub(1))?;
        Ok(self.0.get(at).copied().unwrap_or_default())
    }
    fn show(&self, value: &T) -> String {
        self.0.iter().position(|one| one == value).unwrap_or_default().to_string()
    }
}

/// The name of a plugin of those that there are, with or without its kind before it.
pub(super) struct Plugin(pub &'static str, pub &'static [&'static str]);

impl Kind<String> for Plugin {
    fn read(&self, text: &str) -> Value<String> {
        let Self(kind, known) = self;
        let lower = text.to_ascii_lowercase();
        Ok(format!("{kind}{}", values::choice(lower.strip_prefix(kind).unwrap_or(&lower), known)?))
    }
    fn show(&self, value: &String) -> String {
        value.clone()
    }
}

/// What is read and shown like nothing else.
pub(super) struct Own<T>(pub fn(&str) -> Value<T>, pub fn(&T) -> String);

impl<T> Kind<T> for Own<T> {
    fn read(&self, text: &str) -> Value<T> {
        self.0(text)
    }
    fn show(&self, value: &T) -> String {
        self.1(value)
    }
}

/// Nothing is shown as `(null)`.
pub(super) fn or_null(value: &impl Display) -> String {
    let text = value.to_string();
    if text.is_empty() { NULL.to_owned() } else { text }
}

/// Takes a value where there may be none.
pub(super) fn some<T>(field: &mut Option<T>, kind: &impl Kind<T>, text: &str) -> Value<Option<SettingError>> {
    *field = Some(kind.read(text)?);
    Ok(None)
}

/// Takes an amount of memory of each node or CPU; 0 and `UNLIMITED` are none.
pub(super) fn set_memory(
    field: &mut Option<MemoryPer>,
    per: fn(MemoryMib) -> MemoryPer,
    text: &str,
) -> Value<Option<SettingError>> {
    *field = values::memory_limit(text)?.map(per);
    Ok(None)
}

/// Under the name of the key that says it: `what` is `Def` or `Max`.
pub(super) fn shown_memory(what: &str, amount: Option<MemoryPer>) -> (String, String) {
    match amount {
        None => (format!("{what}MemPerNode"), "UNLIMITED".to_owned()),
        Some(MemoryPer::Node(m)) => (format!("{what}MemPerNode"), m.0.to_string()),
        Some(MemoryPer::Cpu(m)) => (format!("{what}MemPerCPU"), m.0.to_string()),
    }
}
