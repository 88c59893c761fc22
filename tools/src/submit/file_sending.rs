//! Sends a file to nodes of a job by way of its step manager: for `sbcast` and `srun --bcast`.

use garrick_asking::cluster::ClusterError;
use garrick_frame::{DoorClient, DoorError};
use garrick_model::{
    messages::{
        files::{FileFailure, FileOrder, FilePart, FileRequest, FileTimes, LEAST_PART_BYTES, MOST_PART_BYTES},
        launch_failure::errno_text,
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    refusal::Refusal,
};
use serde_bytes::ByteBuf;
use std::{
    fs::{File, Metadata},
    io::{self, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::Path,
    time::{Duration, Instant},
};

/// How a file is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Packed with LZ4.
    pub packed: bool,
    /// Bytes sent at a time; rounded to what a message may hold.
    pub block_bytes: u32,
    /// Longest that nothing may happen while it is being sent.
    pub limit: Duration,
}

/// Why a file was not sent.
#[derive(Debug)]
pub enum Unsent {
    /// It cannot be read.
    Source(io::Error),
    /// The connection to the step manager.
    Door(DoorError),
    /// The step manager declined.
    Refused(Refusal),
    /// These nodes do not have it.
    Nodes(Vec<FileFailure>),
}

impl From<Unsent> for ClusterError {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::Door(error) => error.into(),
            Unsent::Refused(refusal) => refusal.into(),
            Unsent::Source(_) | Unsent::Nodes(_) => Self::Unexpected("asked for a file to be sent"),
        }
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes that went to the step manager.
    pub packed_bytes: u64,
    /// Time for packing.
    pub packing: Duration,
}

/// A failure as Slurm says it, after `error: `.
pub fn failure_text(failure: &FileFailure) -> String {
    let why = match failure.errno {
        0 => failure.operation.clone(),
        libc::ECOMM => format!("Communication connection failure: {}", failure.operation),
        errno => errno_text(errno),
    };
    format!("REQUEST_FILE_BCAST({}): {why}", failure.node)
}

/// The order for a file: `to` is an absolute path.
pub fn order(to: &Path, found: &Metadata, force: bool, preserve: bool) -> FileOrder {
    let nanos = |value: i64| u32::try_from(value).unwrap_or(0);
    let times = FileTimes {
        accessed: (found.atime(), nanos(found.atime_nsec())),
        modified: (found.mtime(), nanos(found.mtime_nsec())),
    };
    FileOrder {
        path: to.as_os_str().as_bytes().to_vec(),
        named_by_node: false,
        force,
        // Not what makes a program another user's.
        mode: found.mode() & 0o777,
        times: preserve.then_some(times),
        folders: false,
    }
}

/// Sends a file. Returns when all nodes have it.
/// `ready` is told the nodes, before anything is sent.
pub fn send(
    door: &mut DoorClient,
    request: FileRequest,
    from: &mut File,
    manner: Manner,
    ready: impl FnOnce(&[String]),
) -> Result<Sent, Unsent> {
    // Nodes may have to be prepared for the job first, and that takes its time.
    door.set_timeout(None).map_err(Unsent::Door)?;
    door.send(&CommandToStepMgr::SendFile(Box::new(request))).map_err(Unsent::Door)?;
    loop {
        match door.recv().map_err(Unsent::Door)? {
            StepMgrToCommand::FileReady { nodes } => break ready(&nodes),
            other => ended(other)?,
        }
    }
    door.set_timeout(Some(manner.limit)).map_err(Unsent::Door)?;
    let sent = send_parts(door, from, manner)?;
    loop {
        match door.recv().map_err(Unsent::Door)? {
            StepMgrToCommand::FileDone(failures) if failures.is_empty() => return Ok(sent),
            other => ended(other)?,
        }
    }
}

/// An error, if it is the end.
fn ended(message: StepMgrToCommand) -> Result<(), Unsent> {
    match message {
        StepMgrToCommand::FileDone(failures) => Err(Unsent::Nodes(failures)),
        StepMgrToCommand::Refused(refusal) => Err(Unsent::Refused(refusal)),
        _ => Ok(()),
    }
}

fn send_parts(door: &mut DoorClient, from: &mut File, manner: Manner) -> Result<Sent, Unsent> {
    let size = match manner.block_bytes {
        0 => MOST_PART_BYTES,
        bytes => bytes.clamp(LEAST_PART_BYTES, MOST_PART_BYTES),
    };
    let (mut sent, mut sum) = (Sent::default(), 0);
    loop {
        let mut piece = Vec::with_capacity(size as usize);
        from.by_ref().take(size.into()).read_to_end(&mut piece).map_err(Unsent::Source)?;
        if piece.is_empty() {
            break;
        }
        sent.bytes += piece.len() as u64;
        sum = crc32c::crc32c_append(sum, &piece);
        let part = if manner.packed { packed(&piece, &mut sent) } else { plain(piece, &mut sent) };
        door.send(&CommandToStepMgr::FilePart(part)).map_err(Unsent::Door)?;
        if let Some(message) = door.try_next().map_err(Unsent::Door)? {
            ended(message)?;
        }
    }
    let end = FilePart::End { bytes: sent.bytes, sum };
    door.send(&CommandToStepMgr::FilePart(end)).map_err(Unsent::Door)?;
    Ok(sent)
}

fn plain(piece: Vec<u8>, sent: &mut Sent) -> FilePart {
    sent.packed_bytes += piece.len() as u64;
    FilePart::Plain(ByteBuf::from(piece))
}

fn packed(piece: &[u8], sent: &mut Sent) -> FilePart {
    let began = Instant::now();
    let data = lz4_flex::block::compress(piece);
    sent.packing += began.elapsed();
    sent.packed_bytes += data.len() as u64;
    FilePart::Lz4 { size: u32::try_from(piece.len()).unwrap_or(u32::MAX), data: ByteBuf::from(data) }
}
