//! What somebody has used: what fair shares, and limits of past use, go by.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name under which what is billed is counted.
pub const BILLING: &str = "billing";
/// Whose usage it is: names, since they outlive the numbers of associations.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Who {
    /// Account.
    pub account: String,
    /// User.
    pub user: String,
    /// Of an association for one partition: that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

/// What was used up to a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// Amounts times seconds, by the name of the TRES.
    pub tres: BTreeMap<String, f64>,
    /// Seconds of jobs.
    pub wall_secs: f64,
}

impl Used {
    /// What is billed: Slurm's `RawUsage`.
    pub fn billed(&self) -> f64 {
        self.tres.get(BILLING).copied().unwrap_or(0.0)
    }

    /// Adds that of another.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.tres {
            match self.tres.get_mut(name) {
                Some(own) => *own += amount,
                None => drop(self.tres.insert(name.clone(), *amount)),
            }
        }
        self.wall_secs += other.wall_secs;
    }
}
