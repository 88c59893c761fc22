//! What tasks used.

use serde::{Deserialize, Serialize};

/// Resources a task used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskUsage {
    /// User CPU time, microseconds.
    pub user_us: u64,
    /// System CPU time, microseconds.
    pub system_us: u64,
    /// Peak resident set, KiB.
    pub max_rss_kib: u64,
}

impl TaskUsage {
    /// Of several tasks: times add up, the peak is that of the greatest.
    pub fn add(&mut self, other: Self) {
        self.user_us += other.user_us;
        self.system_us += other.system_us;
        self.max_rss_kib = self.max_rss_kib.max(other.max_rss_kib);
    }
}
