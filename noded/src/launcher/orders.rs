//! From a [`SpawnTask`] to what the kernel is asked for.

use super::environment::{Environment, value};
use crate::kernel::{
    files::open_standard_file,
    spawn::{Session, SpawnError, SpawnSpec, Spawned, Spawner, cstring, path_candidates},
};
use garrick_model::messages::launcher::{FdSource, SpawnTask};
use nix::sys::stat::{Mode, umask};
use std::{
    borrow::Cow,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

/// A task that could not be started: what failed, on what, why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) stage: String,
    pub(super) subject: String,
    pub(super) errno: i32,
}

impl Refusal {
    pub(super) fn new(stage: impl Into<String>, subject: impl Into<String>, errno: i32) -> Self {
        Self { stage: stage.into(), subject: subject.into(), errno }
    }

    fn invalid(stage: &str, subject: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let (stage, subject) = (stage.to_owned(), subject.into());
        move |e| Self { stage, subject, errno: e.raw_os_error().unwrap_or(libc::EINVAL) }
    }
}

impl From<SpawnError> for Refusal {
    fn from(e: SpawnError) -> Self {
        Self::new(e.stage.name(), e.subject.clone(), e.errno())
    }
}

/// Descriptor 0, 1 or 2 of a task.
enum Stream<'a> {
    Borrowed(BorrowedFd<'a>),
    Opened(File),
    SameAsStdout,
}

const STREAMS: [&str; 3] = ["stdin", "stdout", "stderr"];

fn open_stream<'a>(
    source: &FdSource,
    which: &str,
    passed: &'a [OwnedFd],
    null: BorrowedFd<'a>,
) -> Result<Stream<'a>, Refusal> {
    match source {
        FdSource::Null => Ok(Stream::Borrowed(null)),
        FdSource::Passed(n) => match passed.get(usize::from(*n)) {
            Some(fd) => Ok(Stream::Borrowed(fd.as_fd())),
            None => Err(Refusal::new(format!("descriptor of {which}"), n.to_string(), libc::EBADF)),
        },
        FdSource::File { path, mode } => {
            let opened = open_standard_file(Path::new(path), *mode);
            opened.map(Stream::Opened).map_err(Refusal::invalid(&format!("open {which}"), path))
        }
        FdSource::SameAsStdout => Ok(Stream::SameAsStdout),
    }
}

/// Starts a task. `passed`: what came beside the message.
pub(super) fn launch(
    task: &SpawnTask,
    environment: &Environment,
    passed: &[OwnedFd],
    null: &OwnedFd,
    spawner: &mut Spawner,
) -> Result<Spawned, Refusal> {
    let streams = {
        // Files are created under the task's mask. The launcher has one thread, so nothing else is.
        let former = umask(Mode::from_bits_truncate(task.umask));
        let opened: Result<Vec<Stream<'_>>, Refusal> =
            task.stdio.iter().zip(STREAMS).map(|(s, which)| open_stream(s, which, passed, null.as_fd())).collect();
        umask(former);
        opened?
    };
    let mut stdio = [None; 3];
    for (i, stream) in streams.iter().enumerate() {
        let fd = match stream {
            Stream::Borrowed(fd) => *fd,
            Stream::Opened(file) => file.as_fd(),
            Stream::SameAsStdout => match stdio.get(1).copied().flatten() {
                Some(stdout) if i == 2 => stdout,
                _ => return Err(Refusal::new("descriptor", "same as stdout", libc::EBADF)),
            },
        };
        if let Some(slot) = stdio.get_mut(i) {
            *slot = Some(fd);
        }
    }
    let cgroup_procs = match task.cgroups {
        None => Vec::new(),
        Some(from) => match passed.get(usize::from(from)..) {
            Some(rest) => rest.iter().map(AsFd::as_fd).collect(),
            None => return Err(Refusal::new("descriptor of cgroup", from.to_string(), libc::EBADF)),
        },
    };
    let program = task.argv.first().ok_or_else(|| Refusal::new("execve", "empty command", libc::ENOENT))?;
    let program_name = String::from_utf8_lossy(program).into_owned();
    let env = environment.with(&task.extra_env).map_err(Refusal::invalid("environment", "a variable"))?;
    let argv: io::Result<Vec<_>> = task.argv.iter().map(|a| cstring(a).map(Cow::Owned)).collect();
    let spec = SpawnSpec {
        programs: path_candidates(program, value(&env, b"PATH"))
            .map_err(Refusal::invalid("execve", program_name.clone()))?,
        argv: argv.map_err(Refusal::invalid("execve", program_name))?,
        env,
        work_dir: Some(cstring(&task.work_dir).map_err(Refusal::invalid("chdir", &task.work_dir))?),
        stdio,
        session: if task.pty { Session::OwnTerminal } else { Session::OwnSession },
        umask: Some(task.umask),
        rlimits: task.rlimits.clone(),
        affinity: task.affinity.clone(),
        cgroup_procs,
        ..SpawnSpec::default()
    };
    spawner.spawn(&spec).map_err(Refusal::from)
}
