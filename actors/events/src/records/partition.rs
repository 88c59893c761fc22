//! Durable state of a partition beyond its configuration: what administrators changed.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The saved part of a partition. An event contains all of it, so that the last one is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPartition {
    /// Settings by update, by key in lower case; applied over the configuration in key order.
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
}
