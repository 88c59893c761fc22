//! Licenses as JSON.

use super::{Meta, document, warn};
use garrick_model::{time::Timestamp, view::LicenseView};
use serde_json::{Value, json};

/// The document of licenses as of `at`.
pub fn licenses(licenses: &[LicenseView], at: Timestamp, meta: &Meta) -> Value {
    let mut document = document("licenses", licenses.iter().map(license).collect(), Some(at), meta);
    if licenses.is_empty() {
        warn(&mut document, "Zero licenses to dump");
    }
    document
}

fn license(license: &LicenseView) -> Value {
    let layer = license.layer.as_ref();
    // As in resources.yaml.
    let endless = layer.is_some_and(|layer| layer.endless);
    let count = |count: u32| if endless { -1 } else { i64::from(count) };
    let remote = license.remote.as_ref();
    let kept_back = remote.map_or(0, |remote| remote.last_deficit);
    json!({
        "LicenseName": license.name,
        "Total": count(license.total),
        "Used": license.used,
        "Free": count(license.total.saturating_sub(license.used).saturating_sub(kept_back)),
        "Remote": remote.is_some(),
        "Reserved": license.reserved,
        "LastConsumed": remote.map_or(0, |remote| remote.last_consumed),
        "LastDeficit": kept_back,
        "LastUpdate": remote.map_or(0, |remote| remote.changed.secs()),
        "Nodes": layer.map_or("", |layer| &layer.nodes),
    })
}
