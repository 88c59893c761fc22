//! Starting a program. One `clone3(CLONE_VM | CLONE_VFORK | CLONE_PIDFD)`, with `CLONE_INTO_CGROUP` where asked, on a
//! stack of its own: the parent's memory is not copied, however much it has, and the parent goes on once the child
//! has executed its program or failed. What the child does is prepared beforehand ([`SpawnSpec`]), so that between
//! clone and exec there are raw system calls only; a failure comes back as the stage that failed and its error number.
//!
//! Where `clone3` is refused (old kernels, sandboxes) a plain `fork` does the same, at the cost of copying page tables.
//!
//! Called by the launcher for tasks, by `stepd` for its launcher, and by the agent for `stepd`, prolog and epilog.
//!
//! On user switches: until its exec the child shares the caller's memory under the user's ids. The kernel clears the
//! dumpable flag of that memory at the switch, so the user cannot attach to it, and every signal that can be blocked is.
//! What remains is that the user may stop the child there, which suspends the calling thread; so only a process that
//! serves this user alone (`stepd`) should ask for a switch this way.

mod child;
mod clone;
mod spec;

pub use spec::{Identity, Session, SpawnSpec, cstring, path_candidates};

use child::{Plan, Report};
use clone::Mapping;
use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// Step of a launch at which it failed. Printed as the system call's name where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    /// Preparing, in the parent.
    Prepare = 1,
    /// `clone3` or `fork`.
    Clone,
    /// Entering a cgroup.
    Cgroup,
    /// `setsid`.
    SetSid,
    /// `setpgid`.
    SetPgid,
    /// `setgroups`.
    SetGroups,
    /// `setresgid`.
    SetResGid,
    /// `setresuid`.
    SetResUid,
    /// `sched_setaffinity`.
    Affinity,
    /// Descriptors 0 to 2, and those passed.
    Descriptors,
    /// Making descriptor 0 the controlling terminal.
    Terminal,
    /// `chdir`.
    Chdir,
    /// `setrlimit`.
    Rlimit,
    /// `execve`.
    Exec,
}

impl Stage {
    const ALL: [Self; 14] = [
        Self::Prepare,
        Self::Clone,
        Self::Cgroup,
        Self::SetSid,
        Self::SetPgid,
        Self::SetGroups,
        Self::SetResGid,
        Self::SetResUid,
        Self::Affinity,
        Self::Descriptors,
        Self::Terminal,
        Self::Chdir,
        Self::Rlimit,
        Self::Exec,
    ];

    fn from_word(word: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|s| *s as u32 == word)
    }

    /// Name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Clone => "clone",
            Self::Cgroup => "cgroup.procs",
            Self::SetSid => "setsid",
            Self::SetPgid => "setpgid",
            Self::SetGroups => "setgroups",
            Self::SetResGid => "setresgid",
            Self::SetResUid => "setresuid",
            Self::Affinity => "sched_setaffinity",
            Self::Descriptors => "dup",
            Self::Terminal => "controlling terminal",
            Self::Chdir => "chdir",
            Self::Rlimit => "setrlimit",
            Self::Exec => "execve",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A program that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{stage} {subject}: {cause}")]
pub struct SpawnError {
    /// What was tried.
    pub stage: Stage,
    /// On what: program, folder, user, resource.
    pub subject: String,
    /// Why not.
    #[source]
    pub cause: io::Error,
}

impl SpawnError {
    /// Error number of the cause; `EINVAL` for an argument that cannot be given to the kernel.
    pub fn errno(&self) -> i32 {
        self.cause.raw_os_error().unwrap_or(libc::EINVAL)
    }

    fn last(stage: Stage, subject: impl Into<String>) -> Self {
        Self { stage, subject: subject.into(), cause: io::Error::last_os_error() }
    }
}

/// A started program. Dropping it does not end the process; whoever started it has to reap it.
#[derive(Debug)]
pub struct Spawned {
    /// Process id; cannot be taken by another process before this one is reaped.
    pub pid: u32,
    /// The process.
    pub pidfd: OwnedFd,
}

/// How children are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `clone3`, memory shared until exec.
    Clone3,
    /// `fork`.
    Fork,
}

/// Starts programs, one after another. Keeps the stack its children run on; each thread that launches has its own.
#[derive(Debug)]
pub struct Spawner {
    stack: Mapping,
    report: Mapping,
    method: Method,
}

/// Enough for the raw calls of [`child`], unoptimised.
const STACK_BYTES: usize = 64 * 1024;

impl Spawner {
    /// Sets memory aside.
    pub fn new() -> Result<Self, SpawnError> {
        let failed = |what: &str| SpawnError::last(Stage::Prepare, what);
        let stack = Mapping::stack(STACK_BYTES).ok_or_else(|| failed("stack for children"))?;
        let report = Mapping::shared(size_of::<Report>()).ok_or_else(|| failed("report page"))?;
        let method = if clone::HAVE_CLONE3 { Method::Clone3 } else { Method::Fork };
        Ok(Self { stack, report, method })
    }

    /// Chooses how children are made, for tests and sandboxes.
    pub fn with_method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// How the next child will be made. Changes to [`Method::Fork`] once `clone3` was refused.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Starts a program and returns once it executes.
    pub fn spawn(&mut self, spec: &SpawnSpec<'_>) -> Result<Spawned, SpawnError> {
        // SAFETY: the mapping is page-aligned, at least as large as a report, zero or a former report (all bit patterns
        // are valid for its atomics), and lives as long as `self`.
        let report = unsafe { &*self.report.base().cast::<Report>() };
        report.clear();
        let mut plan = Plan::prepare(spec, report)?;
        let (pid, pidfd) = match self.method {
            Method::Clone3 => match clone::clone3(&self.stack, spec.into_cgroup, &plan) {
                Ok(made) => made,
                Err(e) if clone::refused(&e) => {
                    let made = Self::fork(spec, &mut plan)?;
                    self.method = Method::Fork;
                    made
                }
                Err(cause) => return Err(SpawnError { stage: Stage::Clone, subject: spec.name(), cause }),
            },
            Method::Fork => Self::fork(spec, &mut plan)?,
        };
        match report.failure() {
            None => Ok(Spawned { pid, pidfd }),
            Some((stage, index, errno)) => {
                // The child is on its way out and nobody else knows it. An error here would mean it is reaped already.
                let _ = super::reap::reap(pidfd.as_fd());
                let stage = Stage::from_word(stage).unwrap_or(Stage::Exec);
                Err(SpawnError {
                    stage,
                    subject: spec.subject(stage, index as usize),
                    cause: io::Error::from_raw_os_error(errno),
                })
            }
        }
    }

    fn fork(spec: &SpawnSpec<'_>, plan: &mut Plan<'_>) -> Result<(u32, OwnedFd), SpawnError> {
        let failed = |cause| SpawnError { stage: Stage::Clone, subject: spec.name(), cause };
        // Only `clone3` starts a process inside a cgroup; here the child moves itself.
        let procs =
            spec.into_cgroup.map(|dir| open_at(dir.as_raw_fd(), c"cgroup.procs")).transpose().map_err(failed)?;
        if let Some(procs) = &procs {
            plan.enter_cgroup(procs.as_raw_fd());
        }
        clone::fork(plan, spec.descriptor_floor()).map_err(failed)
    }
}

fn open_at(dir: RawFd, name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    // SAFETY: `dir` is open for the duration of the call and `name` is terminated.
    let fd = unsafe { libc::openat(dir, name.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Starts one program with a spawner of its own.
pub fn spawn(spec: &SpawnSpec<'_>) -> Result<Spawned, SpawnError> {
    Spawner::new()?.spawn(spec)
}

#[cfg(test)]
mod tests;
