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

/// What a running task uses, with all processes that came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskSample {
    /// Rank.
    pub rank: u32,
    /// Its processes, the first one first.
    pub pids: Vec<u32>,
    /// CPU time so far, of ended processes that were waited for too, microseconds.
    pub cpu_us: u64,
    /// Greatest resident set that was seen: at least that of now, and the peak of each process; bytes.
    pub rss: u64,
    /// Virtual memory now, bytes.
    pub vsize: u64,
    /// Page faults that read from a disk.
    pub pages: u64,
    /// Bytes read so far, from whatever.
    pub read: u64,
    /// Bytes written so far.
    pub written: u64,
    /// The frequency of the CPU that it ran on last, kHz; 0: not known.
    pub frequency_khz: u64,
}

impl TaskUsage {
    /// Of several tasks: times add up, the peak is that of the greatest.
    pub fn add(&mut self, other: Self) {
        self.user_us += other.user_us;
        self.system_us += other.system_us;
        self.max_rss_kib = self.max_rss_kib.max(other.max_rss_kib);
    }
}
