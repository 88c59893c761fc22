//! A file on its way to the nodes of a job (`sbcast`, `srun --bcast`): from the command to its step manager, from there along a
//! tree of `stepd`s, and on each node from its `stepd` to a process of the job's user, which writes it.
//!
//! On each of these ways first comes what file it is, then its [`FilePart`]s in order. Nothing is written under its name before the
//! last part, which has the sum of the whole.

use crate::ids::{Sluid, StepId};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Most bytes of a file in one part, unpacked.
pub const MOST_PART_BYTES: u32 = 512 << 10;
/// Fewest bytes of a part for which it is worth a message of its own.
pub const LEAST_PART_BYTES: u32 = 4 << 10;
/// Most children of a node in the tree (sbcast(1), `--treewidth`).
pub const MOST_WIDTH: u16 = 64;
/// Where nothing else is asked for.
pub const WIDTH: u16 = 8;

/// When a file was read and changed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTimes {
    /// Access: seconds and nanoseconds since 1970.
    pub accessed: (i64, u32),
    /// Modification, the same.
    pub modified: (i64, u32),
}

/// A file as a node is to have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOrder {
    /// Absolute path.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// The node's name is put behind the path, see [`named_by_node`].
    #[serde(default)]
    pub named_by_node: bool,
    /// A file of that name is replaced.
    pub force: bool,
    /// Permission bits.
    pub mode: u32,
    /// Instead of the time at which it is written.
    pub times: Option<FileTimes>,
    /// Folders above it, as many, are made where they are missing, for its owner alone.
    #[serde(default)]
    pub folders: bool,
}

/// The path of a file that has the name of its node at the end, after a `_`.
pub fn named_by_node(path: &[u8], node: &str) -> Vec<u8> {
    [path, b"_", node.as_bytes()].concat()
}

/// What a command asks its step manager for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRequest {
    /// For the nodes of this step; `None`: of the whole job.
    pub step: Option<StepId>,
    /// Only these of them; empty: all.
    pub nodes: Vec<String>,
    /// The file.
    pub file: FileOrder,
    /// Most children of a node in the tree; 0: the batch host sends to each node itself.
    pub width: u16,
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilePart {
    /// These bytes come next.
    Plain(ByteBuf),
    /// These, packed as an LZ4 block.
    Lz4 {
        /// Bytes when unpacked, [`MOST_PART_BYTES`] at most.
        size: u32,
        /// Packed.
        data: ByteBuf,
    },
    /// That was all of it.
    End {
        /// All its bytes.
        bytes: u64,
        /// CRC-32C of them.
        sum: u32,
    },
}

/// A node that is to get a file, and where its `stepd` is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStop {
    /// Name.
    pub node: String,
    /// `host:port`.
    pub address: String,
}

/// What one `stepd` asks another for: the first frame of a bulk stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTree {
    /// The run of the job.
    pub run: Sluid,
    /// The file.
    pub file: FileOrder,
    /// Nodes that get it from there.
    pub below: Vec<FileStop>,
    /// As in [`FileRequest`].
    pub width: u16,
}

/// Why a node did not get a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFailure {
    /// The node.
    pub node: String,
    /// What was tried: a system call's name, or words.
    pub operation: String,
    /// An error number, if the system said one; else 0.
    pub errno: i32,
}

/// Up the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReport {
    /// All nodes from here on are ready to write it.
    Ready,
    /// These of them did not get it; all others have it. Last message.
    Done(Vec<FileFailure>),
}

/// From a process that writes a file, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriterSays {
    /// It can be written.
    Ready,
    /// It is there.
    Done,
    /// It is not. Last message.
    Failed {
        /// As in [`FileFailure`].
        operation: String,
        /// As there.
        errno: i32,
    },
}
