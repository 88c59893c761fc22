//! The local door's async side: a Unix socket that every user of the host may connect to. File modes admit all users; the kernel
//! identifies the user (`SO_PEERCRED`), and the daemon decides by that.
//!
//! A listener hands out connections whose greeting was read and whose version is agreed. The answer to the greeting
//! leaves with the first message when the client has already sent its request, at once otherwise; until then the daemon
//! may still refuse ([`DoorConn::refuse`]), for instance when a tunnel cannot be made.

use crate::{
    error::{LinkError, refused},
    handed::{Arrivals, Held},
    link::{DOOR_LIMIT, Receiver, Sender, door_error, over_door, recv_more, send_now},
};
use garrick_frame::{
    Decoder, FrameError, Hello, HelloReply, LinkKind, PROTOCOL, PeerCred, TunnelTo, codec::PREFIX, decode_body,
    door::MAX_PATH, encode, hello::HelloVersions, limits,
};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener as StdListener, UnixStream as StdStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinSet,
    time::timeout,
};

/// Time for a client to introduce itself.
pub const HELLO_TIME: Duration = Duration::from_secs(5);
/// Clients that may be introducing themselves at the same time, over all and for one user (root is not counted).
const MOST_GREETING: usize = 512;
const MOST_GREETING_OF_USER: usize = 128;

/// A door that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DoorBindError {
    /// Does not fit into a socket address.
    #[error("socket path is {bytes} bytes long, the limit is {MAX_PATH} (choose a shorter run folder): {}", path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// Another process serves there.
    #[error("{} is served by another process{}", path.display(), pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Live {
        /// The path.
        path: PathBuf,
        /// Which, if it could be asked.
        pid: Option<i32>,
    },
    /// Something that is not a socket of ours is in the way.
    #[error("{} is in the way: {what}", path.display())]
    InTheWay {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Others could put another socket in its place.
    #[error("{} belongs to user {uid} and has mode {mode:04o}: a door's folder has to be this user's or root's, and nobody else's to \
             write (remove it, or give it to user {own})", path.display(), own = nix::unistd::geteuid())]
    Open {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its mode.
        mode: u32,
    },
    /// A system call failed.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// A daemon's open door. The socket file is removed when this is dropped.
#[derive(Debug)]
pub struct DoorListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of our socket: one that replaced it is not ours to remove.
    file: (u64, u64),
    program: Arc<str>,
    greeting: JoinSet<(u32, Result<DoorConn, LinkError>)>,
    greeting_of: BTreeMap<u32, usize>,
    /// Of descriptors or memory, to take clients in; that has been said.
    short: bool,
    /// Whose descriptors are taken, and how many are held.
    descriptors: Option<(u32, Arc<Held>)>,
}

impl DoorListener {
    /// Opens the door at `path`: creates the folder (mode 0755) if it is missing, refuses a folder of another user, replaces a
    /// socket that a dead process of ours left, refuses a live one. `program` (name and version) is sent to clients. Needs a
    /// runtime.
    pub fn bind(path: &Path, program: &str) -> Result<Self, DoorBindError> {
        let bytes = path.as_os_str().as_bytes().len();
        if bytes > MAX_PATH {
            return Err(DoorBindError::PathTooLong { path: path.to_owned(), bytes });
        }
        let failed = |doing, on: &Path| {
            let path = on.to_owned();
            move |source: io::Error| DoorBindError::Io { doing, path, source }
        };
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed("creating", folder))?;
        check_folder(folder)?;
        // Two daemons that start together must not both find the old socket dead and remove each other's new one.
        let lock = lock_folder(folder);
        clear_stale(path)?;
        let listener = StdListener::bind(path).map_err(failed("binding", path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(failed("opening to all users", path))?;
        let meta = fs::symlink_metadata(path).map_err(failed("examining", path))?;
        drop(lock);
        listener.set_nonblocking(true).map_err(failed("making non-blocking", path))?;
        Ok(Self {
            listener: UnixListener::from_std(listener).map_err(failed("registering", path))?,
            path: path.to_owned(),
            file: (meta.dev(), meta.ino()),
            program: program.into(),
            greeting: JoinSet::new(),
            greeting_of: BTreeMap::new(),
            short: false,
            descriptors: None,
        })
    }

    /// Accepts descriptors that this user's commands send with their messages ([`Receiver::take_descriptors`]). Those of other
    /// users are refused: only their sender may use them, so not even root's descriptors go to the user's processes.
    #[must_use]
    pub fn take_descriptors_of(mut self, uid: u32) -> Self {
        self.descriptors = Some((uid, Held::new()));
        self
    }

    #[cfg(test)]
    pub(crate) fn set_descriptor_limit(&mut self, most: usize) {
        self.descriptors = self.descriptors.take().map(|(uid, _)| (uid, Held::with_limit(most)));
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next client with a valid greeting. Others are answered and dropped here: a slow or broken one delays no others. May be
    /// dropped and called again. An error means that the door itself is broken.
    pub async fn accept(&mut self) -> Result<DoorConn, LinkError> {
        loop {
            tokio::select! {
                Some(done) = self.greeting.join_next() => {
                    // A greeting that panicked has no user to give back; its slot is found again when all are done.
                    let Ok((uid, greeted)) = done else { continue };
                    if let Some(count) = self.greeting_of.get_mut(&uid) {
                        *count -= 1;
                    }
                    self.greeting_of.retain(|_, count| *count > 0);
                    match greeted {
                        Ok(conn) => return Ok(conn),
                        Err(error) => tracing::debug!(%error, "door.greeting refused"),
                    }
                }
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        if std::mem::take(&mut self.short) {
                            tracing::info!(door = %self.path.display(), "clients are let in again");
                        }
                        if let Some(conn) = self.greet(stream) { return Ok(conn) }
                    }
                    Err(error) if is_passing(&error) => {
                        if !std::mem::replace(&mut self.short, true) {
                            tracing::warn!(door = %self.path.display(), %error, "no client is let in until this passes");
                        }
                        // Out of descriptors or memory: give others time to return some, instead of spinning.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    Err(error) => {
                        return Err(LinkError::io(self.path.display().to_string(), "accepting clients", error));
                    }
                },
            }
        }
    }

    /// A greeting that is already here is read on the spot; otherwise it is waited for aside.
    fn greet(&mut self, stream: UnixStream) -> Option<DoorConn> {
        let peer = PeerCred::of(&stream).ok()?;
        let name: Arc<str> = format!("uid {} (pid {})", peer.uid, peer.pid).into();
        let mut decoder = Decoder::new(limits::HELLO);
        // The first request, with its descriptors, comes in one piece with the greeting.
        let mut arrivals = match &self.descriptors {
            Some((uid, held)) if *uid == peer.uid => Arrivals::taken(Arc::clone(held)),
            _ => Arrivals::default(),
        };
        // Faults of this read are found again by the next.
        let _ = arrivals.recv(&stream, &mut decoder);
        let greeting = Greeting { name, stream, peer, decoder, arrivals, program: Arc::clone(&self.program) };
        if greeting.decoder.is_ready() {
            return greeting.answer_now();
        }
        let of_user = self.greeting_of.entry(peer.uid).or_insert(0);
        if self.greeting.len() >= MOST_GREETING || (*of_user >= MOST_GREETING_OF_USER && peer.uid != 0) {
            let reason = "busy: too many clients are connecting, try again".to_owned();
            answer(&greeting.stream, &HelloReply::Refused { reason, versions: PROTOCOL });
            return None;
        }
        *of_user += 1;
        self.greeting.spawn(async move { (peer.uid, greeting.wait().await) });
        None
    }
}

impl Drop for DoorListener {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
    matches!(errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM | Errno::ECONNABORTED | Errno::EINTR)
}

/// Best effort: anyone who can read the folder could hold its lock, so starting does not depend on getting it.
fn lock_folder(folder: &Path) -> Option<Flock<File>> {
    let mut file = File::open(folder).ok()?;
    for _ in 0..100 {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((back, _)) => file = back,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    tracing::warn!(folder = %folder.display(), "the folder's lock is held by another process; going on without");
    None
}

fn clear_stale(path: &Path) -> Result<(), DoorBindError> {
    let own = path.to_owned();
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(DoorBindError::Io { doing: "examining", path: own, source }),
    };
    if !meta.file_type().is_socket() {
        return Err(DoorBindError::InTheWay { path: own, what: "it is not a socket" });
    }
    match StdStream::connect(path) {
        Ok(stream) => Err(DoorBindError::Live { path: own, pid: PeerCred::of(&stream).ok().map(|peer| peer.pid) }),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            let me = nix::unistd::geteuid();
            if !me.is_root() && meta.uid() != me.as_raw() {
                return Err(DoorBindError::InTheWay { path: own, what: "it is a socket of another user" });
            }
            fs::remove_file(path).map_err(|source| DoorBindError::Io { doing: "removing", path: own, source })
        }
        Err(source) => Err(DoorBindError::Io { doing: "asking who serves", path: own, source }),
    }
}

/// A connection at a door, after its greeting.
#[derive(Debug)]
pub struct DoorConn {
    /// The process at the other end, according to the kernel.
    pub peer: PeerCred,
    /// What the client wants (on the connecting side: what was sent).
    pub hello: Hello,
    /// Version that both speak.
    pub version: u16,
    name: Arc<str>,
    stream: UnixStream,
    decoder: Decoder,
    arrivals: Arrivals,
    /// The answer to the greeting, while it may still become a refusal.
    welcome: Vec<u8>,
}

impl DoorConn {
    /// Connects to a daemon's door and waits for its answer.
    pub async fn connect(path: &Path, link: LinkKind, program: &str) -> Result<Self, LinkError> {
        Self::connect_with(path, Hello::new(link, program)).await
    }

    /// The same, asking for a relay to a `stepd` elsewhere.
    pub async fn connect_tunnel(
        path: &Path,
        link: LinkKind,
        program: &str,
        tunnel: TunnelTo,
    ) -> Result<Self, LinkError> {
        Self::connect_with(path, Hello { tunnel: Some(tunnel), ..Hello::new(link, program) }).await
    }

    async fn connect_with(path: &Path, hello: Hello) -> Result<Self, LinkError> {
        let name: Arc<str> = path.display().to_string().into();
        let failed = |source: io::Error| LinkError::Absent { peer: name.to_string(), source: Arc::new(source) };
        let greeting = async {
            let stream = UnixStream::connect(path).await.map_err(failed)?;
            let peer = PeerCred::of(&stream).map_err(|e| LinkError::io(&*name, "asking who answers", e))?;
            let frame = encode(&hello, limits::HELLO).map_err(|e| LinkError::frame(&*name, "greeting", e))?;
            // A fresh socket takes these few bytes at once.
            send_now(&stream, &frame).map_err(|e| door_error(&name, e))?;
            let mut decoder = Decoder::new(limits::HELLO);
            let reply = loop {
                if let Some(reply) =
                    decoder.next().map_err(|e| LinkError::frame(&*name, "answer to the greeting", e))?
                {
                    break reply;
                }
                let more = recv_more(&stream, &mut decoder, &mut Arrivals::default()).await;
                if more.map_err(|e| door_error(&name, e))? == 0 {
                    return Err(door_error(&name, Errno::ECONNRESET));
                }
            };
            decoder.set_limit(DOOR_LIMIT);
            match reply {
                HelloReply::Welcome { version, .. } => Ok((stream, peer, version, decoder)),
                HelloReply::Refused { reason, versions } => {
                    Err(refused(name.to_string(), reason, versions, hello.versions))
                }
            }
        };
        let (stream, peer, version, decoder) = timeout(HELLO_TIME, greeting)
            .await
            .map_err(|_| LinkError::NoGreeting { peer: name.to_string(), after: HELLO_TIME })??;
        let arrivals = Arrivals::default();
        Ok(Self { peer, hello, version, name, stream, decoder, arrivals, welcome: Vec::new() })
    }

    /// The two ends for the link's enums. On the listening side this says welcome. Needs a runtime.
    pub fn split<Out, In>(mut self) -> (Sender<Out>, Receiver<In>) {
        // A client that has sent its request already reads the welcome before the answer: one write for both.
        let pipelined = !self.decoder.buffered().is_empty();
        let held = if pipelined { std::mem::take(&mut self.welcome) } else { Vec::new() };
        self.say_welcome();
        over_door(self.stream, self.decoder, self.arrivals, self.name, held)
    }

    /// The bare socket and what was already read from it, for relaying. On the listening side this says welcome. What was
    /// handed over is closed: descriptors do not travel further than the host.
    pub fn into_raw(mut self) -> (UnixStream, Vec<u8>) {
        self.say_welcome();
        let leading = self.decoder.buffered().to_vec();
        (self.stream, leading)
    }

    /// Refuses a client after its greeting, in words for people.
    pub fn refuse(self, reason: &str) {
        if !self.welcome.is_empty() {
            answer(&self.stream, &HelloReply::Refused { reason: reason.to_owned(), versions: PROTOCOL });
        }
    }

    fn say_welcome(&mut self) {
        let welcome = std::mem::take(&mut self.welcome);
        if !welcome.is_empty() {
            // The socket's buffer contains nothing else; the next reader notices a client that is gone.
            let _ = send_now(&self.stream, &welcome);
        }
    }
}

/// Sends a short answer on a fresh connection; one that is gone needs none.
fn answer(stream: &UnixStream, reply: &HelloReply) {
    if let Ok(frame) = encode(reply, limits::HELLO) {
        let _ = send_now(stream, &frame);
    }
}

/// A client that is introducing itself.
struct Greeting {
    name: Arc<str>,
    stream: UnixStream,
    peer: PeerCred,
    decoder: Decoder,
    arrivals: Arrivals,
    program: Arc<str>,
}

impl Greeting {
    fn answer_now(self) -> Option<DoorConn> {
        match self.decide() {
            Ok(conn) => Some(conn),
            Err(error) => {
                tracing::debug!(%error, "door.greeting refused");
                None
            }
        }
    }

    async fn wait(mut self) -> Result<DoorConn, LinkError> {
        let read = async {
            while !self.decoder.is_ready() {
                let more = recv_more(&self.stream, &mut self.decoder, &mut self.arrivals).await;
                if more.map_err(|e| door_error(&self.name, e))? == 0 {
                    self.decoder.finish().map_err(|e| LinkError::frame(&*self.name, "greeting", e))?;
                    return Err(door_error(&self.name, Errno::ECONNRESET));
                }
            }
            Ok(())
        };
        match timeout(HELLO_TIME, read).await {
            Ok(Ok(())) => self.decide(),
            Ok(Err(error)) => Err(self.refuse(error)),
            Err(_) => {
                let peer = self.name.to_string();
                Err(self.refuse(LinkError::NoGreeting { peer, after: HELLO_TIME }))
            }
        }
    }

    fn refuse(&self, error: LinkError) -> LinkError {
        answer(&self.stream, &HelloReply::Refused { reason: error.to_string(), versions: PROTOCOL });
        error
    }

    /// The greeting is here, or what is here can be none.
    fn decide(mut self) -> Result<DoorConn, LinkError> {
        let bad = |name: &str, e| LinkError::frame(name, "greeting", e);
        let read = match self.decoder.next_body() {
            Ok(Some(body)) => read_hello(body, &self.program),
            Ok(None) => Err(FrameError::Truncated { have: 0, want: PREFIX }),
            Err(error) => Err(error),
        };
        let (hello, reply) = match read {
            Ok(read) => read,
            Err(error) => return Err(self.refuse(bad(&self.name, error))),
        };
        match (hello, &reply) {
            (Some(hello), HelloReply::Welcome { version, .. }) => {
                let version = *version;
                let welcome = encode(&reply, limits::HELLO).map_err(|e| bad(&self.name, e))?;
                let Self { name, stream, peer, mut decoder, arrivals, .. } = self;
                decoder.set_limit(DOOR_LIMIT);
                decoder.distrust();
                Ok(DoorConn { peer, hello, version, name, stream, decoder, arrivals, welcome })
            }
            (_, reply) => {
                answer(&self.stream, reply);
                Err(LinkError::Refused { peer: self.name.to_string(), reason: format!("{reply:?}") })
            }
        }
    }
}

/// A folder that another user owns or may write to is refused, except one in which users may only remove their own files (such as
/// `/tmp`). A folder of this user is closed to others.
fn check_folder(folder: &Path) -> Result<(), DoorBindError> {
    let failed = |doing| move |source: io::Error| DoorBindError::Io { doing, path: folder.to_owned(), source };
    let about = fs::metadata(folder).map_err(failed("examining"))?;
    let (uid, mode) = (about.uid(), about.mode() & 0o7777);
    let own = nix::unistd::geteuid().as_raw();
    match mode & 0o022 == 0 || mode & 0o1000 != 0 {
        true if uid == own || uid == 0 => Ok(()),
        false if uid == own => {
            tracing::warn!(folder = %folder.display(), "others could write to the folder of a door: it is closed to them");
            fs::set_permissions(folder, fs::Permissions::from_mode(mode & !0o022)).map_err(failed("closing"))
        }
        _ => Err(DoorBindError::Open { path: folder.to_owned(), uid, mode }),
    }
}

/// Reads a greeting and decides about its versions. One that this build cannot read whole still gets an answer that says
/// which versions it would need.
pub(crate) fn read_hello(body: &[u8], program: &str) -> Result<(Option<Hello>, HelloReply), FrameError> {
    match decode_body::<Hello>(body) {
        Ok(hello) => {
            let reply = HelloReply::to_versions(hello.versions, PROTOCOL, program);
            Ok((Some(hello), reply))
        }
        Err(error) => match decode_body::<HelloVersions>(body) {
            Ok(found) => {
                let reply = match HelloReply::to_versions(found.versions, PROTOCOL, program) {
                    HelloReply::Welcome { .. } => HelloReply::Refused {
                        reason: format!("{program} does not know what is asked of it: {error}"),
                        versions: PROTOCOL,
                    },
                    refused => refused,
                };
                Ok((None, reply))
            }
            Err(_) => Err(error),
        },
    }
}

#[cfg(test)]
#[path = "door_test.rs"]
mod tests;
