//! Converts a [`SpawnTask`] to arguments for the kernel.

use super::{environment::value, packs::Capture, settings::Setting};
use garrick_kernel::{
    files::open_standard_file,
    rlimits,
    spawn::{Session, SpawnError, SpawnSpec, Spawner, Stage, cstring, path_candidates},
};
use garrick_model::messages::{
    launch_failure::{LaunchFailure, moved_text},
    launcher::{FdSource, SpawnTask},
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::stat::{Mode, umask},
};
use std::{
    borrow::Cow,
    ffi::{CStr, CString},
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

fn invalid(stage: &str, subject: impl Into<String>) -> impl FnOnce(io::Error) -> LaunchFailure {
    move |e| LaunchFailure::new(stage, subject, e.raw_os_error().unwrap_or(libc::EINVAL))
}

fn failed(e: &SpawnError) -> LaunchFailure {
    LaunchFailure::new(e.stage.name(), e.subject.clone(), e.errno())
}

/// Descriptor 0, 1 or 2 of a task.
enum Stream<'a> {
    Borrowed(BorrowedFd<'a>),
    Opened(File),
    SameAsStdout,
}

/// As `env_vars::SLURM_TASK_PID` says it.
const TASK_PID: &CStr = c"SLURM_TASK_PID";
const STREAMS: [&str; 3] = ["stdin", "stdout", "stderr"];

fn stream<'a>(
    source: &FdSource,
    at: usize,
    passed: &'a [OwnedFd],
    null: &'a File,
    capture: Option<&'a Capture>,
) -> Result<Stream<'a>, LaunchFailure> {
    let which = STREAMS[at];
    match source {
        FdSource::Null => Ok(Stream::Borrowed(null.as_fd())),
        FdSource::Passed(n) => match passed.get(usize::from(*n)) {
            Some(fd) => Ok(Stream::Borrowed(fd.as_fd())),
            None => Err(LaunchFailure::new(format!("descriptor of {which}"), n.to_string(), libc::EBADF)),
        },
        FdSource::File { path, mode } => {
            let opened = open_standard_file(Path::new(path), *mode);
            opened.map(Stream::Opened).map_err(|e| invalid(&format!("open {which}"), path)(e))
        }
        FdSource::SameAsStdout => Ok(Stream::SameAsStdout),
        FdSource::Pack => match capture.and_then(|capture| capture.file(at)) {
            Some(file) => Ok(Stream::Borrowed(file)),
            None => Err(LaunchFailure::new("open output pack", "none is named", 0)),
        },
    }
}

/// What makes processes here.
pub(super) struct Maker {
    null: File,
    spawner: Spawner,
    /// This process's mask: that of the task that was started last. Files are created under their task's mask; the
    /// launcher has one thread, so nothing else is.
    umask: u32,
    /// What tasks get as their soft limit of open files, where they ask for nothing: this process's own was raised.
    open_files: Option<u64>,
}

impl Maker {
    pub(super) fn new() -> Result<Self, super::ServiceError> {
        let null = File::options().read(true).write(true).open("/dev/null");
        let null = null.map_err(super::service::call("open /dev/null"))?;
        let mask = umask(Mode::from_bits_truncate(0o022));
        umask(mask);
        // Two for each task that writes to a pack.
        let (open_files, _) = rlimits::get(libc::RLIMIT_NOFILE).map_err(super::service::call("getrlimit"))?;
        rlimits::raise_open_files().map_err(super::service::call("setrlimit"))?;
        Ok(Self { null, spawner: Spawner::new()?, umask: mask.bits(), open_files })
    }

    /// From here on files are made under a task's mask.
    pub(super) fn take_mask(&mut self, mask: u32) {
        if self.umask != mask {
            umask(Mode::from_bits_truncate(mask));
            self.umask = mask;
        }
    }

    /// Whether a child of [`Self::launch`] that ended had not got as far as its program. To be asked once for each.
    pub(super) fn fell_short(&mut self, pid: u32) -> bool {
        self.spawner.failed_ahead(pid)
    }

    /// Starts a task, under the mask that is taken. `passed`: what came beside the message; `capture`: where its output for
    /// a pack goes. Does not wait for its program with `ahead`: [`Self::fell_short`] tells then.
    pub(super) fn launch(
        &mut self,
        task: &SpawnTask,
        setting: &Setting,
        passed: &[OwnedFd],
        capture: Option<&Capture>,
        ahead: bool,
    ) -> Result<u32, LaunchFailure> {
        let mut streams = [const { Stream::SameAsStdout }; 3];
        for (i, source) in task.stdio.iter().enumerate() {
            streams[i] = stream(source, i, passed, &self.null, capture)?;
        }
        let mut stdio = [None; 3];
        for (i, stream) in streams.iter().enumerate() {
            stdio[i] = Some(match stream {
                Stream::Borrowed(fd) => *fd,
                Stream::Opened(file) => file.as_fd(),
                Stream::SameAsStdout => match stdio[1] {
                    Some(stdout) if i == 2 => stdout,
                    _ => return Err(LaunchFailure::new("descriptor", "same as stdout", libc::EBADF)),
                },
            });
        }
        let third = match task.third {
            None => Vec::new(),
            Some(at) => match passed.get(usize::from(at)) {
                Some(fd) => vec![fd.as_fd()],
                None => return Err(LaunchFailure::new("descriptor", at.to_string(), libc::EBADF)),
            },
        };
        let cgroup_procs = match task.cgroups {
            None => Vec::new(),
            Some(from) => match passed.get(usize::from(from)..) {
                Some(rest) => rest.iter().map(AsFd::as_fd).collect(),
                None => return Err(LaunchFailure::new("descriptor of cgroup", from.to_string(), libc::EBADF)),
            },
        };
        let program = task.argv.first().ok_or_else(|| LaunchFailure::new("execve", "empty command", libc::ENOENT))?;
        let name = || String::from_utf8_lossy(program).into_owned();
        let env = setting.environment.with(&task.extra_env).map_err(invalid("environment", "a variable"))?;
        let argv: io::Result<Vec<_>> = task.argv.iter().map(|a| cstring(a).map(Cow::Owned)).collect();
        let mut rlimits = setting.rlimits.clone();
        if !rlimits.iter().any(|(resource, _)| *resource == libc::RLIMIT_NOFILE) {
            rlimits.push((libc::RLIMIT_NOFILE, self.open_files));
        }
        let mut spec = SpawnSpec {
            programs: path_candidates(program, value(&env, b"PATH")).map_err(|e| invalid("execve", name())(e))?,
            argv: argv.map_err(|e| invalid("execve", name())(e))?,
            env,
            work_dir: Some(setting.work_dir.clone()),
            stdio,
            session: if task.pty { Session::OwnTerminal } else { Session::OwnGroup },
            nice: setting.nice,
            rlimits,
            affinity: task.affinity.clone(),
            pid_variable: Some(TASK_PID),
            says: task.says.as_ref().map(|says| says.each_ref().map(|part| Cow::Borrowed(part.as_slice()))),
            cgroup_procs,
            passed: third,
            ..SpawnSpec::default()
        };
        if ahead {
            return self.spawner.spawn_ahead(&spec).map_err(|e| failed(&e));
        }
        let spawned = match self.spawner.spawn_child(&spec) {
            Err(e) if e.stage == Stage::Chdir && setting.folder != "/tmp" => {
                spec.work_dir = Some(c"/tmp".to_owned());
                if let [_, _, Some(stderr)] = spec.stdio {
                    tell(stderr, &moved_text(&setting.folder, e.errno()));
                }
                self.spawner.spawn_child(&spec)
            }
            spawned => spawned,
        };
        match spawned {
            // As a shell does it.
            Err(e) if task.or_shell && e.stage == Stage::Exec && e.errno() == libc::ENOEXEC => {
                let script = as_operand(spec.programs.swap_remove(e.index));
                spec.programs = vec![c"/bin/sh".to_owned()];
                spec.argv.splice(..1, [Cow::Borrowed(c"sh"), Cow::Owned(script)]);
                self.spawner.spawn_child(&spec)
            }
            spawned => spawned,
        }
        .map_err(|e| failed(&e))
    }
}

/// A path as a program's argument, where it is not to be taken for an option.
fn as_operand(path: CString) -> CString {
    match path.as_bytes() {
        [b'-', ..] => cstring([b"./", path.as_bytes()].concat()).unwrap_or(path),
        _ => path,
    }
}

/// A line on a task's standard error, unless that would make us wait for its reader.
fn tell(stderr: BorrowedFd<'_>, line: &str) {
    let mut ready = [PollFd::new(stderr, PollFlags::POLLOUT)];
    if poll(&mut ready, PollTimeout::ZERO).is_ok_and(|n| n > 0) {
        // Nobody is left to be told of a failure.
        let _ = nix::unistd::write(stderr, format!("{line}\n").as_bytes());
    }
}
