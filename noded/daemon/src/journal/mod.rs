//! Writing journals: the append-only file behind every promise, the controller's events and a step manager's accepted steps.
//! The file's form, reading it back and replacing it are those of [`garrick_journal`].
//!
//! One writer thread per file drains what has queued up, writes it in one go, calls
//! `fdatasync` once, and only then answers: group commit. A disk without room is waited for. Any other failed write or sync
//! is final for that writer: the state of the page cache is unknown after it, so nothing is retried and every later append
//! is refused.

mod log;
mod segments;
pub mod series;
mod writer;

pub use garrick_journal::{Form, JournalError, Opened, VERSION, open, replace, replace_as};
pub use log::{Log, Synced, Written};
pub use segments::{Found, Segments};
pub use series::{Close, Fold, Series, Shortener, Standing};
pub use writer::{Begun, Done, Fence, JournalWriter, mark as failure_mark};
