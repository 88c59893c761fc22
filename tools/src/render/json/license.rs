//! Licenses as JSON.

use super::{Meta, document};
use garrick_model::{time::Timestamp, view::LicenseView};
use serde_json::{Value, json};

/// The document of licenses as of `at`.
pub fn licenses(licenses: &[LicenseView], at: Timestamp, meta: &Meta) -> Value {
    document("licenses", licenses.iter().map(license).collect(), Some(at), meta)
}

fn license(license: &LicenseView) -> Value {
    json!({
        "LicenseName": license.name,
        "Total": license.total,
        "Used": license.used,
        "Free": license.total.saturating_sub(license.used),
        "Remote": false,
        "Reserved": 0,
        "LastConsumed": 0,
        "LastDeficit": 0,
        "LastUpdate": 0,
        "Nodes": "",
    })
}
