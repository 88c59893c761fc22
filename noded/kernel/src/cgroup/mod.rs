//! The job's cgroup: all processes of its user are in `tasks`, apart from its manager, so that killing, freezing and limiting
//! tasks never affects the manager.
//!
//! ```text
//! garrick/<cluster id>/<node>/job_<id>.<run>/mgr            stepd
//!                                           /tasks          limits of the job; kill and freeze
//!                                           /tasks/main     version 2 only: launcher, and tasks without a cgroup of their own
//!                                           /tasks/step_<n> a step with limits of its own
//! ```
//!
//! The same path is made in each hierarchy in use (in version 1, `tasks` is called `user`, because every folder there has a file
//! named `tasks`). There are three cases ([`Kind`]): version 2 alone; version 1 alone, where the freezer hierarchy tracks
//! processes; or both (hybrid), where version 2 tracks, kills and freezes, and version 1 limits. In version 2, a folder that
//! passes controllers to its children may not contain processes, hence `main`.
//!
//! cgroups-rs writes the controllers' files; it creates folders, passes cpusets on, and ignores refusals when it enables
//! controllers, so the result is checked here. Nothing outside `garrick/<cluster id>/<node>` is ever changed, except the
//! `cgroup.subtree_control` files above it.
//!
//! Called by the agent (creation, clean-up, stale runs), `stepd` (limits, steps, kill, freeze) and its shepherd (OOM counts).

mod device_filter;
mod files;
mod group;
mod hierarchy;
mod job;
mod mounts;

pub use group::{Entry, Group, MemoryLimit, Swap, Usage};
pub use hierarchy::{Cgroups, Constraints, Kind};
pub use job::JobCgroup;
pub use mounts::{Mount, Mounts};

use std::{io, path::PathBuf};

/// A cgroup operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A file or folder of the kernel's.
    #[error("{operation} {path}: {cause}", path = path.display())]
    File {
        /// What was tried, with the value where one was written.
        operation: String,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// Through cgroups-rs.
    #[error("{operation} in {path}: {cause}", path = path.display())]
    Controller {
        /// What was tried.
        operation: String,
        /// Folder.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: cgroups_rs::fs::error::Error,
    },
    /// The kernel took the request and did not do it.
    #[error("the {controller} controller is not available in {path}", path = path.display())]
    NotEnabled {
        /// Which.
        controller: &'static str,
        /// Folder.
        path: PathBuf,
    },
    /// Processes are left in it.
    #[error("{path} still holds processes: {pids:?}", path = path.display())]
    Busy {
        /// Folder.
        path: PathBuf,
        /// Who.
        pids: Vec<u32>,
    },
    /// A name that would lead out of our own folder.
    #[error("'{0}' cannot name a cgroup")]
    Name(String),
    /// No hierarchy is mounted, or none may be written.
    #[error("{0}")]
    Unavailable(String),
}

impl CgroupError {
    fn file(operation: impl Into<String>, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let (operation, path) = (operation.into(), path.into());
        move |cause| Self::File { operation, path, cause }
    }
}

/// How the processes of jobs are kept track of on this node.
#[derive(Clone, Debug)]
pub enum Tracking {
    /// By cgroup.
    Cgroups(Cgroups),
    /// By session, process group and environment ([`super::proc_tree`]); no limits.
    ProcessGroups {
        /// Why no cgroups.
        why: String,
    },
}

impl Tracking {
    /// Looks at this machine. `cluster` and `node` name the folder.
    pub fn detect(cluster: &str, node: &str, constraints: Constraints) -> Self {
        let mounts = match Mounts::of_this_process() {
            Ok(mounts) => mounts,
            Err(e) => return Self::ProcessGroups { why: format!("/proc/self/mountinfo: {e}") },
        };
        // Missing only where there are no cgroups at all, which `open` says.
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        match Cgroups::open(&mounts, &own, cluster, node, constraints) {
            Ok(cgroups) => Self::Cgroups(cgroups),
            Err(e) => Self::ProcessGroups { why: e.to_string() },
        }
    }

    /// The cgroups, if that is how.
    pub fn cgroups(&self) -> Option<&Cgroups> {
        match self {
            Self::Cgroups(cgroups) => Some(cgroups),
            Self::ProcessGroups { .. } => None,
        }
    }

    /// For the node's registration: `cgroup/v1`, `cgroup/v2`, `cgroup/v1+v2`, `process groups`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cgroups(cgroups) => cgroups.kind().name(),
            Self::ProcessGroups { .. } => "process groups",
        }
    }

    /// What an operator should know, to be said once at start; `None` when everything asked for is there.
    pub fn notice(&self) -> Option<String> {
        match self {
            Self::ProcessGroups { why } => Some(format!(
                "no cgroups for jobs ({why}): processes are tracked by process group, CPU and memory limits are not enforced"
            )),
            Self::Cgroups(cgroups) if !cgroups.missing().is_empty() => {
                Some(format!("jobs are tracked by {}, without: {}", self.name(), cgroups.missing().join("; ")))
            }
            Self::Cgroups(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
