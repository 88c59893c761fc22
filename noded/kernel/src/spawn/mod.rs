//! Starts a program. One `clone3(CLONE_VM | CLONE_VFORK | CLONE_PIDFD)`, with `CLONE_INTO_CGROUP` if requested, on a stack of its
//! own: the parent's memory is not copied, however much it has, and the parent continues when the child has executed its program
//! or failed. What the child does is prepared beforehand ([`SpawnSpec`]), so that between clone and exec there are only raw
//! system calls; an error is reported as the stage that failed and its error number. A process that launches many children need
//! not wait for the exec ([`Spawner::spawn_ahead`]): without `CLONE_VFORK` both run at the same time.
//!
//! Where `clone3` is refused (old kernels, sandboxes), a plain `fork` does the same, at the cost of copying page tables.
//!
//! A part of this same program needs no exec ([`divide`]): the child continues with a copy of the memory.
//!
//! Called by the launcher for tasks, by `stepd` for its launcher, and by the agent for `stepd`, prolog and epilog.
//!
//! Changing the user: until its exec the child shares the caller's memory under the user's ids. Whether the user can then attach
//! to it depends on `fs.suid_dumpable`, and the user may stop the child there, which suspends the calling thread. So a process
//! with secrets in its memory never changes the user this way: the copy of [`divide`] has memory of its own without secrets, and
//! a program that is executed as root changes the user itself ([`become_user`]).

mod child;
mod clone;
mod guard;
mod spec;

pub use guard::KillOnDrop;
pub use spec::{Identity, Session, SpawnSpec, cstring, path_candidates};

use child::{Orders, Plan, Report};
use clone::{Child, Mapping};
use std::{
    ffi::{CStr, c_int},
    fmt, io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr::NonNull,
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
    /// `capset`.
    Capabilities,
    /// `sched_setaffinity`.
    Affinity,
    /// Descriptors 0 to 2, and those passed.
    Descriptors,
    /// Making descriptor 0 the controlling terminal.
    Terminal,
    /// `chdir`.
    Chdir,
    /// `setpriority`.
    Nice,
    /// `setrlimit`.
    Rlimit,
    /// `execve`.
    Exec,
}

impl Stage {
    const ALL: [Self; 16] = [
        Self::Prepare,
        Self::Clone,
        Self::Cgroup,
        Self::SetSid,
        Self::SetPgid,
        Self::SetGroups,
        Self::SetResGid,
        Self::SetResUid,
        Self::Capabilities,
        Self::Affinity,
        Self::Descriptors,
        Self::Terminal,
        Self::Chdir,
        Self::Nice,
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
            Self::Capabilities => "capset",
            Self::Affinity => "sched_setaffinity",
            Self::Descriptors => "dup",
            Self::Terminal => "controlling terminal",
            Self::Chdir => "chdir",
            Self::Nice => "setpriority",
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
    /// On which of several of its kind; of programs: in the order in which they were tried.
    pub index: usize,
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
        Self { stage, subject: subject.into(), index: 0, cause: io::Error::last_os_error() }
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

/// Starts programs. Keeps the stacks that its children run on; each thread that launches has its own spawner.
///
/// Which signals a child has to reset is found out when it is made: a process that handles or ignores others later makes
/// another.
#[derive(Debug)]
pub struct Spawner {
    /// For children that are waited for.
    room: Room,
    /// For those that are not.
    ahead: Vec<Room>,
    /// Children of [`Self::spawn_ahead`] that failed, whose rooms others have taken.
    failed: Vec<u32>,
    method: Method,
    signals: Vec<c_int>,
}

/// Enough for the raw calls of [`child`], unoptimised.
const STACK_BYTES: usize = 64 * 1024;

/// Children not waited for that may be before their exec at a time. Usually there are as many as CPUs; more means that exec
/// takes long, and one that waits for it does no harm.
const MOST_AHEAD: usize = 32;

/// What one child before its exec uses.
struct Room {
    stack: Mapping,
    /// Holds a [`Report`].
    report: Mapping,
    orders: Box<Orders>,
    /// The last child that had it.
    pid: u32,
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("pid", &self.pid).finish_non_exhaustive()
    }
}

// SAFETY: the pointers in it point into what it owns itself.
unsafe impl Send for Room {}

impl Room {
    fn new(signals: &[c_int]) -> Result<Self, SpawnError> {
        let failed = |what: &str| SpawnError::last(Stage::Prepare, what);
        let stack = Mapping::stack(STACK_BYTES).ok_or_else(|| failed("stack for children"))?;
        let report = Mapping::shared(size_of::<Report>()).ok_or_else(|| failed("report page"))?;
        let place = NonNull::new(report.base().cast::<Report>()).ok_or_else(|| failed("report page"))?;
        Ok(Self { stack, report, orders: Box::new(Orders { plan: Plan::new(signals), report: place }), pid: 0 })
    }

    fn report(&self) -> &Report {
        // SAFETY: the mapping is page-aligned, at least as large as a report, zero or a former report (all bit patterns
        // are valid for its atomics), and lives as long as `self`.
        unsafe { &*self.report.base().cast::<Report>() }
    }

    /// Stage, index within it and error number of the child's failure.
    fn failure(&self) -> Option<(u32, u32, i32)> {
        self.report().failure()
    }
}

impl Spawner {
    /// Sets memory aside.
    pub fn new() -> Result<Self, SpawnError> {
        let signals = child::changed_signals();
        let room = Room::new(&signals)?;
        let method = if clone::HAVE_CLONE3 { Method::Clone3 } else { Method::Fork };
        Ok(Self { room, ahead: Vec::new(), failed: Vec::new(), method, signals })
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
        match self.start(spec, true)? {
            (pid, Some(pidfd)) => Ok(Spawned { pid, pidfd }),
            (_, None) => Err(SpawnError {
                stage: Stage::Clone,
                subject: spec.name(),
                index: 0,
                cause: io::Error::from_raw_os_error(libc::EBADF),
            }),
        }
    }

    /// The same without a descriptor, which a caller does not need that alone reaps its children: the number is the child's
    /// until then.
    pub fn spawn_child(&mut self, spec: &SpawnSpec<'_>) -> Result<u32, SpawnError> {
        self.start(spec, false).map(|(pid, _)| pid)
    }

    /// The same, and returns as soon as there is a child, which works its way to its program beside the caller. One that
    /// fails before it is there ends, with exit code 127: ask [`Self::failed_ahead`] about each that ended. Descriptors of
    /// `spec` may be closed at once. Where no child can be made that way, this waits as [`Self::spawn_child`] does.
    pub fn spawn_ahead(&mut self, spec: &SpawnSpec<'_>) -> Result<u32, SpawnError> {
        if self.method != Method::Clone3 {
            return self.spawn_child(spec);
        }
        let at = match self.ahead.iter().position(|room| !room.report().is_read()) {
            Some(at) => at,
            None if self.ahead.len() < MOST_AHEAD => {
                self.ahead.push(Room::new(&self.signals)?);
                self.ahead.len() - 1
            }
            None => return self.spawn_child(spec),
        };
        let room = &mut self.ahead[at];
        if room.failure().is_some() {
            self.failed.push(room.pid);
            room.report().clear(false);
        }
        room.pid = 0;
        let lifted = room.orders.plan.prepare(spec)?;
        room.report().clear(true);
        let made = clone::clone3(&room.stack, spec.into_cgroup, false, &room.orders, false);
        drop(lifted);
        match made {
            Ok((pid, _)) => {
                room.pid = pid;
                Ok(pid)
            }
            // Whether it can be done at all is found out there.
            Err(_) => {
                room.report().clear(false);
                self.spawn_child(spec)
            }
        }
    }

    /// Whether a child of [`Self::spawn_ahead`] that has ended did so before it executed its program: nothing of it ran then.
    /// To be asked once for each, before another can have its number.
    pub fn failed_ahead(&mut self, pid: u32) -> bool {
        if let Some(room) = self.ahead.iter_mut().find(|room| room.pid == pid) {
            let failed = room.failure().is_some();
            room.report().clear(false);
            room.pid = 0;
            return failed;
        }
        let place = self.failed.iter().position(|failed| *failed == pid);
        place.is_some_and(|at| self.failed.swap_remove(at) == pid)
    }

    fn start(&mut self, spec: &SpawnSpec<'_>, with_pidfd: bool) -> Result<Child, SpawnError> {
        let room = &mut self.room;
        room.report().clear(false);
        let lifted = room.orders.plan.prepare(spec)?;
        let (pid, pidfd) = match self.method {
            Method::Clone3 => match clone::clone3(&room.stack, spec.into_cgroup, with_pidfd, &room.orders, true) {
                Ok(made) => made,
                Err(e) if clone::refused(&e) => {
                    let made = fork(spec, &mut room.orders, with_pidfd)?;
                    self.method = Method::Fork;
                    made
                }
                Err(cause) => return Err(SpawnError { stage: Stage::Clone, subject: spec.name(), index: 0, cause }),
            },
            Method::Fork => fork(spec, &mut room.orders, with_pidfd)?,
        };
        drop(lifted);
        match room.failure() {
            None => Ok((pid, pidfd)),
            Some((stage, index, errno)) => {
                // The child is on its way out and nobody else knows it. An error here would mean it is reaped already.
                let _ = super::reap::reap_pid(pid);
                let stage = Stage::from_word(stage).unwrap_or(Stage::Exec);
                Err(SpawnError {
                    stage,
                    subject: spec.subject(stage, index as usize),
                    index: index as usize,
                    cause: io::Error::from_raw_os_error(errno),
                })
            }
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // A child may need its room longer than we do.
        for room in self.ahead.drain(..).filter(|room| room.report().is_read()) {
            Box::leak(Box::new(room));
        }
    }
}

fn fork(spec: &SpawnSpec<'_>, orders: &mut Orders, with_pidfd: bool) -> Result<Child, SpawnError> {
    let failed = |cause| SpawnError { stage: Stage::Clone, subject: spec.name(), index: 0, cause };
    // Only `clone3` starts a process inside a cgroup; here the child moves itself.
    let procs = spec.into_cgroup.map(|dir| open_at(dir.as_raw_fd(), c"cgroup.procs")).transpose().map_err(failed)?;
    if let Some(procs) = &procs {
        orders.plan.enter_cgroup(procs.as_raw_fd());
    }
    clone::fork(orders, spec.descriptor_floor(), with_pidfd).map_err(failed)
}

fn open_at(dir: RawFd, name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: `dir` is open for the duration of the call and `name` is terminated.
    let fd = unsafe { libc::openat(dir, name.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A child that goes on in this program ([`divide`]), on its way to where it begins.
#[derive(Debug)]
pub struct Divided {
    child: Spawned,
    /// The child writes a byte when it is there.
    arranged: io::PipeReader,
    room: Room,
    name: String,
}

impl Divided {
    /// Waits until it is where it begins. One that did not get there is reaped.
    pub fn arranged(mut self) -> Result<Spawned, SpawnError> {
        let mut byte = [0];
        let told = loop {
            match io::Read::read(&mut self.arranged, &mut byte) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome.unwrap_or_default(),
            }
        };
        let (stage, index, errno) = match self.room.failure() {
            Some(failure) => failure,
            None if told == 1 => return Ok(self.child),
            // It was killed on its way.
            None => (Stage::Prepare as u32, 0, libc::ESRCH),
        };
        let _ = super::reap::reap(self.child.pidfd.as_fd());
        Err(SpawnError {
            stage: Stage::from_word(stage).unwrap_or(Stage::Prepare),
            subject: self.name,
            index: index as usize,
            cause: io::Error::from_raw_os_error(errno),
        })
    }
}

/// A child that goes on in this program, with a copy of its memory, instead of executing one: the loader, its relocations and the
/// first touch of every page are saved. It calls `run` once it is as `spec` says, and ends where that returns: nothing of the
/// caller's is dropped in it. Its arguments are shown in place of this process's; its programs, environment and last words are of no
/// account. `ps` shows it as `called`. To be called while this process has one thread.
pub fn divide(spec: SpawnSpec<'_>, called: &CStr, run: impl FnOnce()) -> Result<Divided, SpawnError> {
    let name = spec.name();
    let failed = |stage, cause| SpawnError { stage, subject: name.clone(), index: 0, cause };
    let (arranged, childs_end) = io::pipe().map_err(|e| failed(Stage::Prepare, e))?;
    // The last of its descriptors.
    let told_by = spec.descriptor_floor();
    let mut spec = spec;
    spec.passed.push(childs_end.as_fd());
    let mut room = Room::new(&[])?;
    room.report().clear(false);
    let lifted = room.orders.plan.prepare(&spec)?;
    let blocked = clone::SignalsBlocked::new();
    let made = clone::divide(spec.into_cgroup).map_err(|e| failed(Stage::Clone, e))?;
    let Some((pid, pidfd)) = made else {
        child::begin(&room.orders);
        super::reap::name_process(called);
        // SAFETY: the plan put it there, and nobody else knows it.
        let mut told = io::PipeWriter::from(unsafe { OwnedFd::from_raw_fd(told_by) });
        // A parent that has ended is found out by other means.
        let _ = io::Write::write(&mut told, &[1]);
        drop(told);
        // Nothing below this frame is the child's.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        std::process::exit(if outcome.is_ok() { 0 } else { 101 })
    };
    drop((blocked, lifted));
    Ok(Divided { child: Spawned { pid, pidfd }, arranged, room, name })
}

/// This process gets the ids of that user for good, and keeps nothing that goes with its own: no group, capability or key. For a
/// process of one thread.
pub fn become_user(user: &Identity) -> Result<(), SpawnError> {
    child::become_user(user).map_err(|(stage, errno)| SpawnError {
        stage,
        subject: format!("uid {}", user.uid),
        index: 0,
        cause: io::Error::from_raw_os_error(errno),
    })
}

/// Starts one program with a spawner of its own.
pub fn spawn(spec: &SpawnSpec<'_>) -> Result<Spawned, SpawnError> {
    Spawner::new()?.spawn(spec)
}

#[cfg(test)]
mod tests;
