//! The form of `resources.yaml`: what was written, with the lines that it was written in.

use crate::config::syntax::{
    report::{ConfigReport, Place},
    yaml::entries,
};
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
    entries(text, super::FILE, "resource", file, report)
}
