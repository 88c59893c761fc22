//! Starting a launcher, from `stepd`.

use crate::kernel::spawn::{self, Identity, Session, SpawnSpec, Spawned, cstring};
use garrick_frame::{FdChannel, FdError, limits};
use std::{
    borrow::Cow,
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

/// How to start one. [`LauncherSpec::new`] is right for `stepd`; the rest is filled in.
#[derive(Debug)]
pub struct LauncherSpec<'a> {
    /// Ids to run under; `None`: those of the caller (unprivileged daemons).
    pub user: Option<Identity>,
    /// Open `cgroup.procs` files of the job's `tasks`, to enter first.
    pub cgroup_procs: Vec<OwnedFd>,
    /// Version 2: open folder of that cgroup, instead of the above.
    pub into_cgroup: Option<OwnedFd>,
    /// Where its complaints go; `None`: nowhere.
    pub log: Option<BorrowedFd<'a>>,
    /// The program: this one, whatever its file is called by now, and whether the user may reach the file or not.
    pub program: PathBuf,
    /// Its arguments; the socket is descriptor 3.
    pub args: Vec<CString>,
    /// Its environment: nothing. Tasks get theirs by message.
    pub env: Vec<CString>,
}

impl LauncherSpec<'_> {
    /// This program as `stepd launcher --fd 3`.
    pub fn new(user: Option<Identity>) -> Self {
        Self {
            user,
            cgroup_procs: Vec::new(),
            into_cgroup: None,
            log: None,
            program: PathBuf::from("/proc/self/exe"),
            args: [c"stepd", c"launcher", c"--fd", c"3"].map(Into::into).into(),
            env: Vec::new(),
        }
    }
}

/// A launcher at work. The caller reaps it ([`crate::kernel::reap`]); when the channel closes, it kills its tasks and ends.
#[derive(Debug)]
pub struct LauncherHandle {
    /// Orders and answers.
    pub channel: FdChannel,
    /// Its process id.
    pub pid: u32,
    /// The process; readable once it ended.
    pub pidfd: OwnedFd,
}

/// A launcher that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// Its socket.
    #[error("launcher's socket: {0}")]
    Channel(#[from] FdError),
    /// Its process.
    #[error("starting the launcher: {0}")]
    Spawn(#[from] spawn::SpawnError),
    /// Something it needs.
    #[error("starting the launcher: {what}: {cause}")]
    Prepare {
        /// What.
        what: &'static str,
        /// Why not.
        #[source]
        cause: io::Error,
    },
}

/// Starts a launcher in its cgroup, with its user's ids and nothing else of the caller's.
pub fn start(spec: LauncherSpec<'_>) -> Result<LauncherHandle, LauncherError> {
    let failed = |what: &'static str| move |cause| LauncherError::Prepare { what, cause };
    let (channel, its_end) = FdChannel::pair(limits::LAUNCHER)?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(failed("/dev/null"))?;
    let program = cstring(std::os::unix::ffi::OsStrExt::as_bytes(spec.program.as_os_str()));
    let Spawned { pid, pidfd } = spawn::spawn(&SpawnSpec {
        programs: vec![program.map_err(failed("program"))?],
        argv: spec.args.iter().map(|a| Cow::Borrowed(a.as_c_str())).collect(),
        env: spec.env.iter().map(|e| Cow::Borrowed(e.as_c_str())).collect(),
        work_dir: Some(c"/".to_owned()),
        stdio: [Some(null.as_fd()), Some(null.as_fd()), Some(spec.log.unwrap_or(null.as_fd()))],
        passed: vec![its_end.as_fd()],
        // Out of reach of the terminal's signals.
        session: Session::OwnSession,
        user: spec.user,
        umask: Some(0o022),
        cgroup_procs: spec.cgroup_procs.iter().map(AsFd::as_fd).collect(),
        into_cgroup: spec.into_cgroup.as_ref().map(AsFd::as_fd),
        ..SpawnSpec::default()
    })?;
    Ok(LauncherHandle { channel, pid, pidfd })
}
