//! The form of `resources.yaml`: what was written, with the lines that it was written in.

use super::super::report::{ConfigReport, Place, SettingError};
use serde::Deserialize;
use serde_saphyr::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub resource: Spanned<String>,
    pub mode: Spanned<String>,
    pub topology: Option<Spanned<String>>,
    #[serde(default)]
    pub variables: Vec<Valued>,
    pub layers: Vec<LayerEntry>,
}

/// A word and a number: a variable, or what is always in use.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Valued {
    pub name: Spanned<String>,
    pub value: Spanned<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LayerEntry {
    pub nodes: Vec<Spanned<String>>,
    pub count: Spanned<i64>,
    #[serde(default)]
    pub base: Vec<Valued>,
}

/// What the text says; what is wrong with its form goes into the report.
pub(super) fn read(text: &str, file: &Place, report: &mut ConfigReport) -> Vec<Entry> {
    serde_saphyr::from_str(text).unwrap_or_else(|e| {
        let line = e.location().map_or(0, |location| u32::try_from(location.line()).unwrap_or(0));
        // The library draws the line below its message, and says the place in its own way.
        let full = e.to_string();
        let first = full.lines().next().unwrap_or(&full).trim_start_matches("error: ");
        let cause = match first.split_once(": ") {
            Some((place, cause)) if place.starts_with("line ") => cause,
            _ => first,
        };
        let place = Place { line, ..file.clone() };
        report.error(&place, super::FILE, SettingError::new(cause).suggest("see resources.yaml(5)"));
        Vec::new()
    })
}

/// The line of something.
pub(super) fn line_of<T>(spanned: &Spanned<T>) -> u32 {
    u32::try_from(spanned.referenced.line()).unwrap_or(0)
}
