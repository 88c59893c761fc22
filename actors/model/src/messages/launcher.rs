//! Shepherd and launcher: frames over a Unix stream socket, with descriptors passed beside them (`SCM_RIGHTS`). The launcher
//! runs as the job's user; nothing it says is trusted beyond its own job.
//!
//! A launcher outlives its `stepd`: it goes on reaping, and another `stepd` of the same run connects to it, asks with
//! [`ToLauncher::Adopt`] what it has, and goes on with it. Numbers of environments and settings hold for one connection.

use super::launch_failure::LaunchFailure;
use crate::{
    ids::StepId,
    profile::Profiling,
    spec::{EnvEntry, TaskNice},
    state::ExitStatus,
    usage::TaskUsage,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::sync::Arc;

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
    /// A file without a name, whose content goes into the task's output pack ([`SpawnTask::pack`]).
    Pack,
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

/// Which task a spawn is of. The launcher keeps it for a `stepd` that adopts the task, and for records in output packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLabel {
    /// Step.
    pub step: StepId,
    /// Tries of the step before this one.
    #[serde(default)]
    pub attempt: u32,
    /// Rank.
    pub rank: u32,
    /// The step has a cgroup of its own here.
    #[serde(default)]
    pub own_cgroup: bool,
    /// It is no task, but what runs after one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub epilog: bool,
    /// Which time series of its step are recorded, where the site records any.
    #[serde(default, skip_serializing_if = "Profiling::is_default")]
    pub profiling: Profiling,
}

/// What many tasks are started with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskSetting {
    /// Environment set earlier by `SetEnvironment`.
    pub environment: u32,
    /// Working directory; where it is out of reach, /tmp is taken and the task's standard error says so.
    pub work_dir: String,
    /// File mode creation mask.
    pub umask: u32,
    /// Nice value; `None`: the launcher's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nice: Option<TaskNice>,
    /// Soft limits `(resource, soft)`; `None` for infinity.
    pub rlimits: Vec<(u32, Option<u64>)>,
}

/// A task to spawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnTask {
    /// Names the task in later messages.
    pub token: u64,
    /// Whose it is.
    pub label: TaskLabel,
    /// Program and arguments; a bare program name is looked up in the task's `PATH`.
    pub argv: Arc<Vec<ByteBuf>>,
    /// Setting made earlier by `SetSetting`.
    pub setting: u32,
    /// Set over the setting's environment.
    pub extra_env: Vec<EnvEntry>,
    /// Descriptors 0, 1, 2.
    pub stdio: [FdSource; 3],
    /// File of the output pack, an absolute path, where one of them is [`FdSource::Pack`].
    #[serde(default)]
    pub pack: Option<String>,
    /// Descriptors 0 to 2 are a terminal: make it the controlling one.
    #[serde(default)]
    pub pty: bool,
    /// CPU numbers of the machine to bind to; empty: as the launcher.
    #[serde(default)]
    pub affinity: Vec<u32>,
    /// Written to its standard error before it runs, with its process id between the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<[ByteBuf; 2]>,
    /// Descriptors passed beside this message, from this index on, are open `cgroup.procs` files to enter.
    #[serde(default)]
    pub cgroups: Option<u8>,
    /// Only its end is of interest: `Spawned` is not sent.
    #[serde(default)]
    pub quiet: bool,
    /// Token of the task after whose end it is started; at once if that task is gone.
    #[serde(default)]
    pub after: Option<u64>,
    /// Where the kernel finds no program in an executable file, it is a script for `/bin/sh`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub or_shell: bool,
    /// Nobody asked for the file of its standard output, which only tasks of this launcher write: when the last of them is
    /// over and nothing is in it, it is removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unasked_output: bool,
    /// Index of a descriptor passed beside this message that becomes descriptor 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub third: Option<u8>,
}

impl SpawnTask {
    /// One that nobody talks to: without files, and with nothing beyond its setting.
    pub const fn bare(token: u64, label: TaskLabel, argv: Arc<Vec<ByteBuf>>, setting: u32) -> Self {
        Self {
            token,
            label,
            argv,
            setting,
            extra_env: Vec::new(),
            stdio: [const { FdSource::Null }; 3],
            pack: None,
            pty: false,
            affinity: Vec::new(),
            says: None,
            cgroups: None,
            quiet: false,
            after: None,
            or_shell: false,
            unasked_output: false,
            third: None,
        }
    }
}

/// To the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToLauncher {
    /// Keep an environment under a number.
    SetEnvironment {
        /// Number.
        id: u32,
        /// The environment that these entries are set over, which is kept already.
        #[serde(default)]
        over: Option<u32>,
        /// Entries.
        entries: Arc<Vec<EnvEntry>>,
    },
    /// Forget one. Others made over it stay as they are.
    DropEnvironment {
        /// Number.
        id: u32,
    },
    /// Keep a setting under a number (of its own kind).
    SetSetting {
        /// Number.
        id: u32,
        /// What.
        setting: TaskSetting,
    },
    /// Forget one.
    DropSetting {
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
    /// The first message of a `stepd` that connects to a launcher it has not started: what is there? Answered by `Held`.
    Adopt,
    /// What its children read and write is counted from here on, by the descriptor that comes with this: the launcher's own `io`
    /// of proc(5), which it may not open itself.
    Count,
}

/// A task that a launcher has running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskHeld {
    /// Its name in messages, which stays.
    pub token: u64,
    /// Process.
    pub pid: u32,
    /// Whose it is.
    pub label: TaskLabel,
    /// The file that its standard error goes to.
    pub error_path: Option<String>,
}

/// A task that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOver {
    /// Its name in messages.
    pub token: u64,
    /// Whose it was.
    pub label: TaskLabel,
    /// How it ended; what is recorded for it, where it could not be started.
    pub status: ExitStatus,
    /// With what use.
    pub usage: TaskUsage,
}

/// Ends that a launcher remembers for a `stepd` that adopts it. Those that nobody was told of are never forgotten: they are
/// as many as tasks ran when their `stepd` ended.
pub const ENDS_KEPT: usize = 4096;

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
        /// Why not.
        failure: LaunchFailure,
    },
    /// It ended.
    Exited {
        /// Task.
        token: u64,
        /// Its process, which is gone.
        pid: u32,
        /// How.
        status: ExitStatus,
        /// With what use.
        usage: TaskUsage,
        /// What is left of its process group is not the user's to kill.
        #[serde(default)]
        survivors: bool,
    },
    /// The same, found out about a group after its task's end was told.
    Survivors {
        /// The process that led it.
        pid: u32,
    },
    /// A task that was to start after another never did, and will not: a signal came for it, or the other took too long.
    NotStarted {
        /// Which.
        token: u64,
    },
    /// Answer to `Adopt`. There may be several; of the tasks that end while they are on their way, `Exited` follows.
    Held {
        /// What runs.
        tasks: Vec<TaskHeld>,
        /// What is over: the last [`ENDS_KEPT`], oldest first.
        ended: Vec<TaskOver>,
        /// It is the run's first launcher: there is no task of this run that it does not know of.
        first: bool,
        /// Another follows.
        more: bool,
    },
    /// Output or end of a task could not be written to its pack. What was kept for it is tried again with the next.
    PackFailed {
        /// Whose.
        label: TaskLabel,
        /// What and why: names the file.
        message: String,
    },
}
