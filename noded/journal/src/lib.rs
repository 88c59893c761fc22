//! The append-only file behind every promise: the controller's events and a step manager's accepted steps. This crate knows
//! the file; what writes to it with which syncs is the daemons' (`noded/daemon/src/journal`), what the records mean is the actors'.
//!
//! A file is a header (`GARRICKJ`, a version byte, seven zero bytes) and records: length of the payload (4 bytes, big-endian),
//! CRC-32C (4 bytes, big-endian), in version 2 the epoch of the writer (8 bytes, big-endian), payload (MessagePack with named
//! fields). The checksum covers the epoch and the payload. A record with a lower epoch than an earlier record is ignored
//! ([`Fenced`]).
//!
//! On opening, a last record that is cut short or whose checksum fails *at the very end of the file* is cut off and reported
//! ([`Opened::torn_bytes`]); damage before the end stops the start. [`Reader`] detects the same and changes nothing.
//!
//! | module | what it is |
//! |---|---|
//! | `form` | header and record, as bytes |
//! | `read` | record by record, read-only |
//! | `file` | opened by its owner, replaced by its shortest equivalent |
//! | `error` | errors |
//!
//! `tests/data/` has files of every version; later versions read them.

mod error;
mod file;
mod form;
mod read;

pub use error::JournalError;
pub use file::{Journal, Opened, open, open_after, replace, replace_as, sync_parent};
pub use form::{Form, VERSION, frame, header};
pub use read::{Fenced, Late, Reader, Record, Rest};
