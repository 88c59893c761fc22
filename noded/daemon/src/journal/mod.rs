//! Writes journals: the append-only files for the controller's events and a step manager's accepted steps. [`garrick_journal`]
//! has the file format, reading and replacing.
//!
//! One writer thread per file takes all queued records, writes them in one go, calls `fdatasync` once, and only then answers:
//! group commit. It waits while the disk is full. Any other failed write or sync is final for that writer: the state of the page
//! cache is unknown after it, so nothing is retried and every later append is refused.

mod log;
mod segments;
pub mod series;
mod writer;

pub use garrick_journal::{Form, JournalError, Opened, VERSION, open, replace, replace_as};
pub use log::{Log, Synced, Written};
pub use segments::{Found, Segments};
pub use series::{Close, Fold, Series, Shortener, Standing};
pub use writer::{Begun, Done, Fence, JournalWriter, mark as failure_mark};
