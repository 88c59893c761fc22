//! Shepherd and launcher: frames over a socket pair, with descriptors passed beside them (`SCM_RIGHTS`). The launcher runs
//! as the job's user; nothing it says is trusted beyond its own job.

use crate::{spec::EnvEntry, state::ExitStatus};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Where one of a task's descriptors 0, 1, 2 comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FdSource {
    /// `/dev/null`.
    Null,
    /// The n-th descriptor passed beside this message.
    Passed(u8),
    /// A file the launcher opens as the user.
    File {
        /// Absolute path.
        path: String,
        /// How.
        mode: FileMode,
    },
    /// The same as descriptor 1 (for descriptor 2).
    SameAsStdout,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileMode {
    /// Read.
    Read,
    /// Create, truncate, then append.
    Truncate,
    /// Create, append.
    Append,
}

/// A task to spawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnTask {
    /// Names the task in later messages.
    pub token: u64,
    /// Program and arguments; a bare program name is looked up in the task's `PATH`.
    pub argv: Vec<ByteBuf>,
    /// Environment set earlier by `SetEnvironment`.
    pub environment: u32,
    /// Set over it.
    pub extra_env: Vec<EnvEntry>,
    /// Working directory.
    pub work_dir: String,
    /// Descriptors 0, 1, 2.
    pub stdio: [FdSource; 3],
    /// Descriptors 0 to 2 are a terminal: make it the controlling one.
    pub pty: bool,
    /// File mode creation mask.
    pub umask: u32,
    /// Soft limits `(resource, soft)`; `None` for infinity.
    pub rlimits: Vec<(u32, Option<u64>)>,
    /// CPU numbers of the machine to bind to; empty: as the launcher.
    pub affinity: Vec<u32>,
    /// Descriptors passed beside this message, from this index on, are open `cgroup.procs` files to enter.
    pub cgroups: Option<u8>,
}

/// To the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToLauncher {
    /// Keep an environment under a number.
    SetEnvironment {
        /// Number.
        id: u32,
        /// Entries.
        entries: Vec<EnvEntry>,
    },
    /// Forget one.
    DropEnvironment {
        /// Number.
        id: u32,
    },
    /// Spawn.
    Spawn(Box<SpawnTask>),
    /// Signal a task.
    Signal {
        /// Task.
        token: u64,
        /// Signal number.
        signal: i32,
        /// The task's whole process group.
        group: bool,
    },
    /// End when no task is left.
    Finish,
    /// Append text to a file as the user, creating it if need be. Failures are not reported.
    AppendText {
        /// Absolute path.
        path: String,
        /// What to write.
        text: ByteBuf,
    },
}

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

/// From the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromLauncher {
    /// It runs.
    Spawned {
        /// Task.
        token: u64,
        /// Process.
        pid: u32,
    },
    /// It does not.
    SpawnFailed {
        /// Task.
        token: u64,
        /// What failed: `execve`, `chdir`, `open stdout`, ...
        stage: String,
        /// On what.
        subject: String,
        /// Error number.
        errno: i32,
    },
    /// It ended.
    Exited {
        /// Task.
        token: u64,
        /// How.
        status: ExitStatus,
        /// With what use.
        usage: TaskUsage,
    },
}
