//! The blocking side of a local door: a command uses it to talk to a daemon on its host. No runtime and no threads of its own: it
//! connects, writes greeting and request in one call, and reads answers. The time to the first answer matters most here.
//!
//! The socket tells the identity of the daemon ([`DoorClient::peer`]), not the daemon's messages: check it before trusting a door
//! in a folder that others can write.
//!
//! Descriptors may be sent with a message ([`DoorClient::send_with_fds`]). Only a `stepd` of the same user accepts them; for
//! every other daemon the kernel closes them, so the message itself must say what to do without them.
//!
//! For a poll loop: watch [`DoorClient::as_fd`] for input, call [`DoorClient::try_next`] until it gives `None`; write with
//! [`DoorClient::enqueue`] and [`DoorClient::try_flush`], watching for output while [`DoorClient::wants_write`].

use crate::{
    codec::{Decoder, FrameError, encode_into},
    hello::{AccompaniedRef, Hello, HelloReply, LinkKind, PROTOCOL, Traced, TracedRef, TunnelTo, VersionRange},
    limits,
    rights::send_beside,
};
use nix::{
    errno::Errno,
    sys::{
        socket::{
            self, AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, getsockopt, setsockopt, sockopt,
        },
        time::TimeVal,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// Longest path of a Unix socket in bytes (`sun_path` is 108 with its final zero, unix(7)).
pub const MAX_PATH: usize = 107;

/// Most descriptors with one message at a door: a command's standard files.
pub const MAX_DOOR_FDS: usize = 3;

/// The process at the other end of a Unix socket, as the kernel recorded it when the connection was made (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCred {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Process. May be gone, and its number used again.
    pub pid: i32,
}

impl PeerCred {
    /// Asks the kernel.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let cred = getsockopt(&socket.as_fd(), sockopt::PeerCredentials)?;
        Ok(Self { uid: cred.uid(), gid: cred.gid(), pid: cred.pid() })
    }
}

/// A conversation at a door that failed.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The path does not fit into a socket address.
    #[error("socket path is {bytes} bytes long, the limit is {MAX_PATH}: {}", path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// No daemon serves there: no socket, or an abandoned one.
    #[error("no daemon answers at {}: {source}", path.display())]
    Absent {
        /// The door.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Something else kept us from connecting.
    #[error("cannot connect to {}: {source}", path.display())]
    Connect {
        /// The door.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// No answer in time. What has arrived is kept: another call goes on where this one stopped.
    #[error("{} took more than {} ms while {doing}", path.display(), after.as_millis())]
    Timeout {
        /// The door.
        path: PathBuf,
        /// The time that was allowed.
        after: Duration,
        /// What was going on.
        doing: &'static str,
    },
    /// The daemon closed the connection between two frames.
    #[error("{} closed the connection", path.display())]
    Closed {
        /// The door.
        path: PathBuf,
    },
    /// The daemon does not want to talk: versions, or a relay that failed.
    #[error("{} refused the connection: {reason}", path.display())]
    Refused {
        /// The door.
        path: PathBuf,
        /// The daemon's words.
        reason: String,
        /// The versions that it speaks.
        versions: VersionRange,
    },
    /// The kernel does not pass these descriptors now (too many are in flight, or one is not open), or they are too many. Nothing
    /// of their message was sent: it can be sent without them.
    #[error("{}: descriptors cannot be passed: {source}", path.display())]
    Descriptors {
        /// The door.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A frame could not be made or read.
    #[error("{}: {source}", path.display())]
    Frame {
        /// The door.
        path: PathBuf,
        /// What is wrong with it.
        source: FrameError,
    },
    /// A system call failed.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// The door.
        path: PathBuf,
        /// What was going on.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
}

impl DoorError {
    /// No daemon serves at that path: another candidate may be tried.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }

    /// The daemon would understand us and does not want to: it relays to another one that cannot be reached now.
    pub fn is_turned_away(&self) -> bool {
        matches!(self, Self::Refused { versions, .. } if versions.common(PROTOCOL).is_some())
    }

    /// The socket exists, but no daemon serves it: the daemon was killed, and may be restarting.
    pub fn is_deserted(&self) -> bool {
        matches!(self, Self::Absent { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused)
    }
}

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    peer: PeerCred,
    path: PathBuf,
}

impl Socket {
    fn io(&self, doing: &'static str, errno: Errno) -> DoorError {
        match errno {
            Errno::EPIPE | Errno::ECONNRESET => DoorError::Closed { path: self.path.clone() },
            errno => DoorError::Io { path: self.path.clone(), doing, source: errno.into() },
        }
    }

    fn unsent(&self, errno: Errno) -> DoorError {
        DoorError::Descriptors { path: self.path.clone(), source: errno.into() }
    }

    fn timeout(&self, after: Option<Duration>, doing: &'static str) -> DoorError {
        DoorError::Timeout { path: self.path.clone(), after: after.unwrap_or_default(), doing }
    }

    fn frame(&self, source: FrameError) -> DoorError {
        DoorError::Frame { path: self.path.clone(), source }
    }
}

/// A command's connection to a daemon. [`DoorClient::send`] and [`DoorClient::recv`] put the link's enum into a
/// [`Traced`] frame and take it out again.
#[derive(Debug)]
pub struct DoorClient {
    reader: DoorReader,
    writer: DoorWriter,
}

/// The receiving half.
#[derive(Debug)]
pub struct DoorReader {
    socket: Arc<Socket>,
    decoder: Decoder,
    welcomed: bool,
    timeout: Option<Duration>,
}

/// The sending half.
#[derive(Debug)]
pub struct DoorWriter {
    socket: Arc<Socket>,
    pending: Vec<u8>,
    written: usize,
    /// Bytes of the greeting at the front of `pending`, until the first write.
    greeting: usize,
    trace: u64,
    timeout: Option<Duration>,
}

impl DoorClient {
    /// Connects. `timeout` holds for connecting and then for each send and each message received; `None` waits for ever.
    /// The greeting leaves together with the first request, and its answer is read before the first answer, so a refusal
    /// is the error of the first [`DoorClient::recv`].
    pub fn connect(path: &Path, link: LinkKind, program: &str, timeout: Option<Duration>) -> Result<Self, DoorError> {
        Self::greet(path, &Hello::new(link, program), timeout)
    }

    /// The same, but asks the daemon to relay the connection to a `stepd`'s door on another node.
    pub fn connect_tunnel(
        path: &Path,
        link: LinkKind,
        program: &str,
        timeout: Option<Duration>,
        to: TunnelTo,
    ) -> Result<Self, DoorError> {
        Self::greet(path, &Hello { tunnel: Some(to), ..Hello::new(link, program) }, timeout)
    }

    /// Talks over a socket that is already connected (a socket pair in a test).
    pub fn over(socket: UnixStream, link: LinkKind, program: &str) -> Result<Self, DoorError> {
        Self::start(socket.into(), PathBuf::from("socket"), Some(&Hello::new(link, program)), None)
    }

    /// Goes on with a connection that was greeted before, between two messages. `welcomed`: the answer to the greeting was read.
    pub fn go_on(socket: OwnedFd, path: &Path, welcomed: bool, timeout: Option<Duration>) -> Result<Self, DoorError> {
        let mut client = Self::start(socket, path.to_owned(), None, timeout)?;
        client.reader.welcomed = welcomed;
        client.set_timeout(timeout)?;
        Ok(client)
    }

    fn greet(path: &Path, hello: &Hello, timeout: Option<Duration>) -> Result<Self, DoorError> {
        let bytes = path.as_os_str().as_bytes().len();
        if bytes > MAX_PATH {
            return Err(DoorError::PathTooLong { path: path.to_owned(), bytes });
        }
        let failed = |errno: Errno| {
            let (path, source) = (path.to_owned(), errno.into());
            match errno {
                Errno::ENOENT | Errno::ECONNREFUSED | Errno::ENOTDIR => DoorError::Absent { path, source },
                // A Unix socket whose backlog stays full makes connect wait for SO_SNDTIMEO and say EAGAIN, unix(7).
                Errno::EAGAIN => DoorError::Timeout { path, after: timeout.unwrap_or_default(), doing: "connecting" },
                _ => DoorError::Connect { path, source },
            }
        };
        let fd = socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).map_err(failed)?;
        if let Some(timeout) = timeout {
            setsockopt(&fd, sockopt::SendTimeout, &time_val(timeout)).map_err(failed)?;
        }
        let address = UnixAddr::new(path).map_err(failed)?;
        loop {
            match socket::connect(fd.as_raw_fd(), &address) {
                Ok(()) | Err(Errno::EISCONN) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        let mut client = Self::start(fd, path.to_owned(), Some(hello), timeout)?;
        if timeout.is_some() {
            client.reader.set_timeout(timeout)?;
        }
        Ok(client)
    }

    fn start(fd: OwnedFd, path: PathBuf, hello: Option<&Hello>, timeout: Option<Duration>) -> Result<Self, DoorError> {
        let peer = match PeerCred::of(&fd) {
            Ok(peer) => peer,
            Err(source) => return Err(DoorError::Io { path, doing: "asking who answers", source }),
        };
        let socket = Arc::new(Socket { fd, peer, path });
        let mut pending = Vec::with_capacity(1024);
        if let Some(hello) = hello {
            encode_into(hello, limits::HELLO, &mut pending).map_err(|e| socket.frame(e))?;
        }
        let greeting = pending.len();
        Ok(Self {
            reader: DoorReader {
                socket: Arc::clone(&socket),
                decoder: Decoder::new(limits::DOOR),
                welcomed: false,
                timeout,
            },
            writer: DoorWriter { socket, pending, written: 0, greeting, trace: 0, timeout },
        })
    }

    /// The process at this door.
    pub fn peer(&self) -> PeerCred {
        self.reader.socket.peer
    }

    /// The door.
    pub fn path(&self) -> &Path {
        &self.reader.socket.path
    }

    /// Time allowed for each later send and message; `None` waits for ever. Counts from 1 ms.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), DoorError> {
        self.reader.set_timeout(timeout)?;
        self.writer.set_timeout(timeout)
    }

    /// Trace id for the messages sent from here on.
    pub fn set_trace(&mut self, trace: u64) {
        self.writer.trace = trace;
    }

    /// Greets without a request, and waits for the answer, which shows that a daemon serves. (A connection alone does not: the
    /// kernel accepts one for a process that is just dying.) Nothing can be sent after it.
    pub fn greet_only(&mut self) -> Result<(), DoorError> {
        let result = self.writer.flush();
        self.refusal_or(result)?;
        self.writer.finish()?;
        match self.reader.recv::<serde::de::IgnoredAny>() {
            Err(DoorError::Closed { .. }) if self.reader.welcomed => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Sends one message, waiting until the kernel took all of it.
    pub fn send<T: Serialize + ?Sized>(&mut self, msg: &T) -> Result<(), DoorError> {
        let result = self.writer.send(msg);
        self.refusal_or(result)
    }

    /// Sends one message with descriptors beside it. See [`DoorWriter::send_with_fds`].
    pub fn send_with_fds<T: Serialize + ?Sized>(&mut self, msg: &T, fds: &[BorrowedFd<'_>]) -> Result<(), DoorError> {
        let result = self.writer.send_with_fds(msg, fds);
        self.refusal_or(result)
    }

    /// Waits for the next message.
    pub fn recv<T: DeserializeOwned>(&mut self) -> Result<T, DoorError> {
        if self.writer.wants_write() {
            let result = self.writer.flush();
            self.refusal_or(result)?;
        }
        self.reader.recv()
    }

    /// The next message if it is here, without waiting.
    pub fn try_next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, DoorError> {
        self.reader.try_next()
    }

    /// Puts a message into the sending buffer without writing. See [`DoorWriter::enqueue`].
    pub fn enqueue<T: Serialize + ?Sized>(&mut self, msg: &T) -> Result<(), DoorError> {
        self.writer.enqueue(msg)
    }

    /// Writes what the socket takes now. See [`DoorWriter::try_flush`].
    pub fn try_flush(&mut self) -> Result<bool, DoorError> {
        let result = self.writer.try_flush();
        self.refusal_or(result)
    }

    /// Something is left to write.
    pub fn wants_write(&self) -> bool {
        self.writer.wants_write()
    }

    /// Says that nothing more will be sent; answers still come.
    pub fn finish(&mut self) -> Result<(), DoorError> {
        self.writer.finish()
    }

    /// Two halves, for two threads. The greeting leaves with the writer's first message (or flush).
    pub fn split(self) -> (DoorReader, DoorWriter) {
        (self.reader, self.writer)
    }

    /// A daemon that refuses the greeting closes while a long request is still being written: then its words matter, not
    /// the broken pipe.
    fn refusal_or<T>(&mut self, result: Result<T, DoorError>) -> Result<T, DoorError> {
        if let Err(DoorError::Closed { .. }) = &result
            && !self.reader.welcomed
            && let Err(refused @ DoorError::Refused { .. }) = self.reader.try_next::<serde::de::IgnoredAny>()
        {
            return Err(refused);
        }
        result
    }
}

impl AsFd for DoorClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.socket.fd.as_fd()
    }
}

impl DoorReader {
    /// The process at this door.
    pub fn peer(&self) -> PeerCred {
        self.socket.peer
    }

    /// Time allowed for each later message; `None` waits for ever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), DoorError> {
        setsockopt(&self.socket.fd, sockopt::ReceiveTimeout, &time_val(timeout.unwrap_or_default()))
            .map_err(|e| self.socket.io("setting the time limit", e))?;
        self.timeout = timeout;
        Ok(())
    }

    /// Waits for the next message.
    pub fn recv<T: DeserializeOwned>(&mut self) -> Result<T, DoorError> {
        self.recv_traced().map(|traced| traced.msg)
    }

    /// Waits for the next message, with its trace.
    pub fn recv_traced<T: DeserializeOwned>(&mut self) -> Result<Traced<T>, DoorError> {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(msg) = self.decoded()? {
                return Ok(msg);
            }
            if !self.read(MsgFlags::empty())? || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                // What the read brought may complete the message even at the last moment.
                return match self.decoded()? {
                    Some(msg) => Ok(msg),
                    None => Err(self.socket.timeout(self.timeout, "waiting for an answer")),
                };
            }
        }
    }

    /// The next message if it is here, without waiting.
    pub fn try_next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, DoorError> {
        loop {
            if let Some(traced) = self.decoded::<T>()? {
                return Ok(Some(traced.msg));
            }
            if !self.read(MsgFlags::MSG_DONTWAIT)? {
                return Ok(None);
            }
        }
    }

    fn decoded<T: DeserializeOwned>(&mut self) -> Result<Option<Traced<T>>, DoorError> {
        if !self.welcomed {
            match self.decoder.next::<HelloReply>() {
                Ok(None) => return Ok(None),
                Ok(Some(HelloReply::Welcome { .. })) => self.welcomed = true,
                Ok(Some(HelloReply::Refused { reason, versions })) => {
                    return Err(DoorError::Refused { path: self.socket.path.clone(), reason, versions });
                }
                Err(e) => return Err(self.socket.frame(e)),
            }
        }
        self.decoder.next().map_err(|e| self.socket.frame(e))
    }

    /// One read; false when nothing came in time.
    fn read(&mut self, flags: MsgFlags) -> Result<bool, DoorError> {
        let fd = self.socket.fd.as_raw_fd();
        match self.decoder.fill(|space| socket::recv(fd, space, flags)) {
            Ok(0) | Err(Errno::ECONNRESET) => {
                self.decoder.finish().map_err(|e| self.socket.frame(e))?;
                Err(DoorError::Closed { path: self.socket.path.clone() })
            }
            Ok(_) | Err(Errno::EINTR) => Ok(true),
            Err(Errno::EAGAIN) => Ok(false),
            Err(errno) => Err(self.socket.io("reading", errno)),
        }
    }
}

impl AsFd for DoorReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }
}

impl DoorWriter {
    /// Time allowed for each later send; `None` waits for ever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), DoorError> {
        setsockopt(&self.socket.fd, sockopt::SendTimeout, &time_val(timeout.unwrap_or_default()))
            .map_err(|e| self.socket.io("setting the time limit", e))?;
        self.timeout = timeout;
        Ok(())
    }

    /// Sends one message, waiting until the kernel took all of it. After a timeout the rest of it is still to be sent:
    /// flush, or give the connection up.
    pub fn send<T: Serialize + ?Sized>(&mut self, msg: &T) -> Result<(), DoorError> {
        self.enqueue(msg)?;
        self.flush()
    }

    /// Sends one message with at most [`MAX_DOOR_FDS`] descriptors beside it, which stay open here, waiting until the kernel
    /// took all of it. After [`DoorError::Descriptors`], or a timeout before its first byte, nothing of the message is left.
    pub fn send_with_fds<T: Serialize + ?Sized>(&mut self, msg: &T, fds: &[BorrowedFd<'_>]) -> Result<(), DoorError> {
        let count = u8::try_from(fds.len())
            .ok()
            .filter(|_| fds.len() <= MAX_DOOR_FDS)
            .ok_or_else(|| self.socket.unsent(Errno::E2BIG))?;
        // They leave with the first byte of one write, which nothing but the greeting may precede: who reads it expects
        // them with the next message.
        if self.pending.len() > self.greeting {
            self.flush()?;
        }
        let start = self.pending.len();
        let counted = AccompaniedRef { trace: self.trace, cause: 0, fds: count, msg };
        encode_into(&counted, limits::DOOR, &mut self.pending).map_err(|e| self.socket.frame(e))?;
        let sent = send_beside(self.socket.fd.as_fd(), &self.pending, fds, MsgFlags::empty());
        let error = match sent {
            Ok(Some(bytes)) => {
                (self.written, self.greeting) = (bytes, 0);
                return self.flush();
            }
            Ok(None) => self.socket.timeout(self.timeout, "sending a request"),
            // Sending as such does not fail like this: it is about the descriptors.
            Err(errno @ (Errno::ETOOMANYREFS | Errno::EBADF | Errno::EPERM | Errno::EINVAL)) => {
                self.socket.unsent(errno)
            }
            Err(errno) => self.socket.io("writing", errno),
        };
        self.pending.truncate(start);
        Err(error)
    }

    /// Puts a message into the sending buffer without writing. The buffer has no limit of its own: whoever enqueues from
    /// an unlimited source stops while [`DoorWriter::wants_write`].
    pub fn enqueue<T: Serialize + ?Sized>(&mut self, msg: &T) -> Result<(), DoorError> {
        let traced = TracedRef { trace: self.trace, cause: 0, msg };
        encode_into(&traced, limits::DOOR, &mut self.pending).map_err(|e| self.socket.frame(e))
    }

    /// Writes everything that is pending.
    pub fn flush(&mut self) -> Result<(), DoorError> {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if self.write(MsgFlags::empty())? {
                return Ok(());
            }
            // EAGAIN here means that SO_SNDTIMEO ran out; a partial write or a signal means go on.
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(self.socket.timeout(self.timeout, "sending a request"));
            }
        }
    }

    /// Writes what the socket takes now; true when nothing is left.
    pub fn try_flush(&mut self) -> Result<bool, DoorError> {
        self.write(MsgFlags::MSG_DONTWAIT)
    }

    /// Something is left to write.
    pub fn wants_write(&self) -> bool {
        self.written < self.pending.len()
    }

    /// Says that nothing more will be sent (after flushing).
    pub fn finish(&mut self) -> Result<(), DoorError> {
        self.flush()?;
        match socket::shutdown(self.socket.fd.as_raw_fd(), Shutdown::Write) {
            Ok(()) | Err(Errno::ENOTCONN) => Ok(()),
            Err(errno) => Err(self.socket.io("closing", errno)),
        }
    }

    fn write(&mut self, flags: MsgFlags) -> Result<bool, DoorError> {
        while self.wants_write() {
            // No SIGPIPE: a command may have its default action restored for the sake of its standard output.
            let rest = &self.pending[self.written..];
            match socket::send(self.socket.fd.as_raw_fd(), rest, flags | MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => (self.written, self.greeting) = (self.written + count, 0),
                Err(Errno::EINTR | Errno::EAGAIN) => return Ok(false),
                Err(errno) => return Err(self.socket.io("writing", errno)),
            }
        }
        self.pending.clear();
        self.pending.shrink_to(64 << 10);
        self.written = 0;
        Ok(true)
    }
}

/// The kernel reads zero as "for ever", so a limit that would round to zero becomes the smallest one.
fn time_val(timeout: Duration) -> TimeVal {
    use nix::sys::time::TimeValLike as _;
    match i64::try_from(timeout.as_micros()) {
        Ok(0) if !timeout.is_zero() => TimeVal::microseconds(1),
        Ok(micros) => TimeVal::microseconds(micros),
        Err(_) => TimeVal::microseconds(0),
    }
}

#[cfg(test)]
#[path = "door_test.rs"]
mod tests;
