//! Starts a launcher, or finds that of an earlier `stepd` of the run. Used by `stepd`.

use super::Arguments;
use garrick_frame::{FdChannel, FdError, limits};
use garrick_kernel::{
    reap, signals, sockets,
    spawn::{self, Identity, Session, SpawnSpec, Spawned, cstring},
};
use std::{
    borrow::Cow,
    ffi::{CString, OsStr},
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

/// How to start one. [`LauncherSpec::new`] is right for `stepd`; the rest is filled in.
#[derive(Debug)]
pub struct LauncherSpec<'a> {
    /// Ids to run under; `None`: those of the caller (unprivileged daemons).
    pub user: Option<Identity>,
    /// Open files of the job's `tasks`, to enter first.
    pub cgroup_procs: Vec<OwnedFd>,
    /// Version 2: open folder of that cgroup, to be started in.
    pub into_cgroup: Option<OwnedFd>,
    /// Where another `stepd` finds it after its own has died. `None`: it ends with its own.
    pub listen_at: Option<&'a Path>,
    /// The run had a launcher before it.
    pub successor: bool,
    /// Where its complaints go; `None`: nowhere.
    pub log: Option<BorrowedFd<'a>>,
    /// Its environment: nothing. Tasks get theirs by message.
    pub env: Vec<CString>,
}

impl LauncherSpec<'_> {
    /// This program as `stepd launcher`, the run's first.
    pub fn new(user: Option<Identity>) -> Self {
        Self {
            user,
            cgroup_procs: Vec::new(),
            into_cgroup: None,
            listen_at: None,
            successor: false,
            log: None,
            env: Vec::new(),
        }
    }
}

/// A launcher at work. Whoever started it reaps it ([`garrick_kernel::reap`]).
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
    /// It is not there to be connected to, or is not whom it should be.
    #[error("connecting to the launcher at {path}: {cause}", path = path.display())]
    Connect {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
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

impl LauncherError {
    /// There is no such socket: it is made before a launcher is, so there never was one.
    pub fn is_none_there(&self) -> bool {
        matches!(self, Self::Connect { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }

    /// Nobody listens there: not yet, or not any more.
    pub fn is_nobody_listening(&self) -> bool {
        matches!(self, Self::Connect { cause, .. } if cause.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// Starts a launcher in its cgroup, with its user's ids and nothing else of the caller's. It executes this program as the caller's
/// user and changes its ids itself, once it is not dumpable: the caller's memory is never shared with a process of the job's user.
pub fn start(mut spec: LauncherSpec<'_>) -> Result<LauncherHandle, LauncherError> {
    let user = spec.user.take();
    let (channel, Spawned { pid, pidfd }) = start_with(spec, user, |spec, _| spawn::spawn(&spec))?;
    Ok(LauncherHandle { channel, pid, pidfd })
}

/// A launcher that may still be on its way.
#[derive(Debug)]
pub struct LauncherAhead {
    channel: FdChannel,
    child: spawn::Divided,
    listens_at: Option<PathBuf>,
}

impl LauncherAhead {
    /// Waits until it has its user's ids and nothing else of the caller's.
    pub fn ready(self) -> Result<LauncherHandle, LauncherError> {
        match self.child.arranged() {
            Ok(Spawned { pid, pidfd }) => Ok(LauncherHandle { channel: self.channel, pid, pidfd }),
            Err(e) => {
                remove_socket(self.listens_at.as_deref());
                Err(e.into())
            }
        }
    }
}

/// The run's first launcher, as a copy of this process that goes on as [`super::main`]: no program is loaded once more, and it is on
/// its way while this process goes on. Its memory has what this one's has now, and its user cannot read it: this process is not
/// dumpable, its copy is not either, and a change of ids makes no process dumpable where `fs.suid_dumpable` is 0 or 2; anything else
/// is refused. To be called while this process has one thread, and no key in its memory.
pub fn start_ahead(spec: LauncherSpec<'_>) -> Result<LauncherAhead, LauncherError> {
    let refused = |what: &'static str| LauncherError::Prepare { what, cause: io::ErrorKind::Unsupported.into() };
    if reap::is_dumpable() {
        return Err(refused("a copy of a process that can be dumped"));
    }
    let suid_dumpable = fs::read("/proc/sys/fs/suid_dumpable").unwrap_or_default();
    if spec.user.is_some() && !matches!(suid_dumpable.trim_ascii(), b"0" | b"2") {
        return Err(refused("fs.suid_dumpable is neither 0 nor 2"));
    }
    let listens_at = spec.listen_at.map(Path::to_owned);
    let (channel, child) = start_with(spec, None, |spec, arguments| {
        spawn::divide(spec, c"launcher", move || {
            // What this process logs to is closed in its copy.
            let _quiet = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
            super::main(&arguments)
        })
    })?;
    Ok(LauncherAhead { channel, child, listens_at })
}

fn remove_socket(path: Option<&Path>) {
    if let Some(path) = path {
        // Made for nobody.
        let _ = fs::remove_file(path);
    }
}

/// `told`: whose ids it is told to take itself, where they are not those of `spec` before it begins.
fn start_with<R>(
    spec: LauncherSpec<'_>,
    told: Option<Identity>,
    start: impl FnOnce(SpawnSpec<'_>, Arguments) -> Result<R, spawn::SpawnError>,
) -> Result<(FdChannel, R), LauncherError> {
    let failed = |what: &'static str| move |cause| LauncherError::Prepare { what, cause };
    let text = |bytes: &OsStr| cstring(bytes.as_bytes()).map_err(failed("arguments"));
    let (channel, its_end) = FdChannel::pair(limits::LAUNCHER)?;
    let listener = spec.listen_at.map(sockets::bind_private).transpose().map_err(failed("its own socket"))?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(failed("/dev/null"))?;
    let mut passed = vec![its_end.as_fd()];
    passed.extend(listener.as_ref().map(AsFd::as_fd));
    let arguments = Arguments {
        fd: 3,
        listen: spec.listen_at.map(|path| (4, path.to_owned())),
        successor: spec.successor,
        user: told,
    };
    let words = arguments.words().into_iter().map(|word| Ok(Cow::Owned(text(&word)?)));
    let order = SpawnSpec {
        // This one, whatever its file is called by now.
        programs: vec![c"/proc/self/exe".to_owned()],
        argv: [c"stepd", c"launcher"]
            .map(|word| Ok(Cow::Borrowed(word)))
            .into_iter()
            .chain(words)
            .collect::<Result<_, LauncherError>>()?,
        env: spec.env.iter().map(|e| Cow::Borrowed(e.as_c_str())).collect(),
        work_dir: Some(c"/".to_owned()),
        stdio: [Some(null.as_fd()), Some(null.as_fd()), Some(spec.log.unwrap_or(null.as_fd()))],
        passed,
        // Out of reach of the terminal's signals.
        session: Session::OwnSession,
        user: spec.user,
        umask: Some(0o022),
        cgroup_procs: spec.cgroup_procs.iter().map(AsFd::as_fd).collect(),
        into_cgroup: spec.into_cgroup.as_ref().map(AsFd::as_fd),
        ..SpawnSpec::default()
    };
    match start(order, arguments) {
        Ok(started) => Ok((channel, started)),
        Err(e) => {
            remove_socket(spec.listen_at);
            Err(e.into())
        }
    }
}

/// Connects to a launcher that a former `stepd` of the run started, which must be run by `uid`: the kernel says who made
/// the socket listen. The caller asks it what it has ([`ToLauncher::Adopt`](garrick_model::messages::launcher::ToLauncher));
/// until it has answered it may be another process by the same number.
pub fn adopt(path: &Path, uid: u32) -> Result<LauncherHandle, LauncherError> {
    let failed = |cause| LauncherError::Connect { path: path.to_owned(), cause };
    let socket = sockets::connect(path).map_err(failed)?;
    let peer = sockets::peer(socket.as_fd()).map_err(failed)?;
    if peer.uid != uid {
        return Err(failed(io::Error::other(format!("it is run by user {}, not {uid}", peer.uid))));
    }
    let pidfd = signals::pidfd_open(peer.pid).map_err(failed)?;
    Ok(LauncherHandle { channel: FdChannel::new(socket, limits::LAUNCHER), pid: peer.pid, pidfd })
}
