//! Output packs: the output and the ends of any number of steps in one indexed, append-only file per node (`--output-pack FILE`),
//! so that ten thousand small steps do not make twenty thousand small files. The launcher writes it in one thread as the job's
//! user; `garrick cat` reads it. No async, no clock: `now` is an argument.
//!
//! | module | what it is |
//! |---|---|
//! | `write` | [`PackWriter`]: appends records, continues a file, repairs its end |
//! | `read` | [`PackReader`]: records in the order written, or those of a [`Selection`]; existing and new ones |
//! | `record` | [`Record`]: a piece of output, or how a task ended |
//! | `block` | the unit in which a file is written: header, checksum, compression |
//! | `index` | which steps are in which block |
//! | `select` | [`Selection`]: requested steps |
//! | `tail` | finds blocks from the end, and after damage |
//! | `lock` | one writer at a time |
//! | `watch` | [`Watch`]: waiting until a file grows |
//! | `names` | `FILE.NODE`: one file per node |
//! | `error` | [`PackError`] |
//!
//! # A launcher's use
//!
//! One [`PackWriter`] per file. Tasks write to files without a name (`O_TMPFILE`), not to pipes. At the end of a task, and from
//! time to time before that if readers follow it, [`PackWriter::take_file`] copies what is new in them; then [`PackWriter::end`]
//! records how the task ended, which is its last record. Between events the launcher waits at most until [`PackWriter::due`] and
//! then calls [`PackWriter::flush`]. With its last task it calls [`PackWriter::close`].
//!
//! A call that fails has copied nothing (or says how much), what was copied before is kept for another try, and the file ends
//! with a whole block. So after "no space left" the launcher reports the step whose output could not be kept, continues with the
//! others, and later calls try again.
//!
//! After a crash of the writer, every block that was written is there; after a crash of the machine, what the kernel had written
//! to disk by then (nothing is synced, as with any output file). Records wait for at most [`FLUSH_AFTER`] before they are
//! written. Blocks are checked when read, and [`PackWriter::open`] cuts off an incomplete block.
//!
//! # Format, version 1
//!
//! Numbers are little-endian; checksums are CRC-32C. *Varint* is LEB128: seven bits a byte, the lowest first, the high bit
//! set on all but the last. A file is a file header and blocks without gaps.
//!
//! File header, 16 bytes:
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic, `89 47 52 4B 50 4B 0D 0A` (`\x89GRKPK\r\n`) |
//! | 8 | 1 | version, 1 |
//! | 9 | 3 | zero |
//! | 12 | 4 | checksum of bytes 0 to 11 |
//!
//! Block header, 72 bytes, followed by the payload:
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | marker, `47 42 6C 6B` (`GBlk`) |
//! | 4 | 1 | kind: 1 records, 2 index; a reader skips others |
//! | 5 | 1 | flags: 1 the payload is an LZ4 block (else as it is), 2 the writer closed the file with this block |
//! | 6 | 2 | zero |
//! | 8 | 8 | offset of this header in the file: bytes of another pack inside a payload are not taken for blocks |
//! | 16 | 4 | length of the payload as stored |
//! | 20 | 4 | length of the payload unpacked, at most 1 MiB |
//! | 24 | 4 | checksum of the payload as stored |
//! | 28 | 4 | number of records or entries |
//! | 32 | 4 | records: job; all records of a block are of one job |
//! | 36 | 4 | records: offset of the heterogeneous component plus 1, or 0 |
//! | 40 | 4 + 4 | records: least step and task in it, compared in that order |
//! | 48 | 4 + 4 | records: greatest step and task |
//! | 56 | 8 | offset of the last index block before this block, or 0 |
//! | 64 | 4 | zero |
//! | 68 | 4 | checksum of bytes 0 to 67 |
//!
//! A *step* is its number; steps without one have Slurm's codes, `FFFFFFFB` batch, `FFFFFFFC` extern, `FFFFFFFA`
//! interactive. A *task* (of a step array) is its index plus 1, or 0 for a step that is no array.
//!
//! Payload of records, one after the other; bytes behind the known ones of a body and records of other kinds are skipped:
//!
//! | what | as |
//! |---|---|
//! | kind: 0 standard output, 1 standard error, 2 end | byte |
//! | length of the body | varint |
//! | step, task, attempt (tries before this one), rank | 4 varints |
//! | kinds 0 and 1: the bytes of output | to the end of the body |
//! | kind 2: exit code, signal or 0 | 2 bytes |
//! | kind 2: start, end: milliseconds since the Unix epoch | 2 varints, zigzag |
//! | kind 2: user CPU µs, system CPU µs, peak resident set KiB | 3 varints |
//!
//! Payload of an index: the offset from which on it covers the file, the length of what it covers (2 varints), then an
//! entry for every block of records there, in their order:
//!
//! | what | as |
//! |---|---|
//! | offset of the block, less that of the entry before (of the covered part for the first) | varint |
//! | form: 0 what is in it follows, 1 it could not be read: any step may be in it, and nothing follows | byte |
//! | job; offset of the heterogeneous component plus 1, or 0 | 2 varints |
//! | number of spans | varint |
//! | span: first step, less the last step of the span before (0 before the first) | varint |
//! | span: first task, less the last task of the span before if the step is the same | varint |
//! | span: (members less 1) × 2, plus 1 if they are consecutive steps without tasks, else consecutive tasks | varint |
//!
//! A writer adds an index when enough blocks have accumulated, and when it closes the file. Blocks after the last index are found
//! by following the block headers.
//!
//! `tests/data/` has files of every version; later versions read them.

mod block;
mod error;
mod index;
mod lock;
mod names;
mod read;
mod record;
mod select;
mod tail;
mod watch;
mod write;

pub use error::PackError;
pub use garrick_model::messages::shepherd::Stream;
pub use lock::Presence;
pub use names::{is_pack, of_nodes, on_node};
pub use read::{PackReader, Tail};
pub use record::{Content, EndRecord, Record, TaskRun};
pub use select::{Pick, Selection};
pub use watch::Watch;
pub use write::{FLUSH_AFTER, PackWriter, Refused, Taken};

/// The version that is written.
pub const VERSION: u8 = 1;
