//! The part of a license request that is for hierarchical resources.

use garrick_model::{config::Hres, spec_text::licenses::Licenses};
use std::sync::Arc;

/// An amount of a resource: for the job, or with mode 3 for each of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HresAsk {
    /// Index of the resource in the configuration.
    pub resource: usize,
    /// How much.
    pub count: u32,
}

impl HresAsk {
    /// Splits a request into licenses and hierarchical resources.
    pub fn of(hres: &Hres, text: Option<&str>) -> (Option<String>, Option<Arc<[Self]>>) {
        let Some(text) = text else { return (None, None) };
        if hres.is_empty() {
            return (Some(text.to_owned()), None);
        }
        let Ok(licenses) = text.parse::<Licenses>() else { return (Some(text.to_owned()), None) };
        let mut asks = Vec::new();
        let mut others = Licenses::default();
        for license in licenses.0 {
            match hres.resource(&license.name) {
                Some((resource, _)) => asks.push(Self { resource, count: license.count }),
                None => others.0.push(license),
            }
        }
        if asks.is_empty() {
            return (Some(text.to_owned()), None);
        }
        asks.sort_unstable_by_key(|ask| ask.resource);
        (Some(others.to_string()).filter(|text| !text.is_empty()), Some(asks.into()))
    }
}
