//! The append-only file behind every promise: the controller's events and a step manager's accepted steps.
//!
//! A file is a header (`GARRICKJ`, a version byte, seven zero bytes) and records: length (4 bytes, big-endian), CRC-32C of the payload
//! (4 bytes, big-endian), payload. One writer thread per file drains what has queued up, writes it in one go, calls
//! `fdatasync` once, and only then answers: group commit. A failed write or sync is final for that writer: the state of
//! the page cache is unknown after it, so nothing is retried and every later append is refused.
//!
//! On opening, a last record that is cut short or whose checksum fails *at the very end of the file* is cut off and reported
//! ([`Opened::torn_bytes`]); damage before the end stops the start.

mod file;
mod writer;

pub use file::{JournalError, Opened, VERSION, open, replace};
pub use writer::{Done, JournalWriter};
