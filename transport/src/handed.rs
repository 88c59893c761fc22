//! Descriptors that a command hands over to a daemon at its door, for the daemon to pass on to processes of that command's user.
//!
//! They belong to that user: the daemon runs as root, and the sender chooses what is behind a descriptor (a pipe without a
//! reader, a file system served by the sender, a terminal). So a daemon never reads, writes, examines or waits on one. It keeps
//! it, passes it on by `SCM_RIGHTS`, and closes it. Since even closing may wait (flushing to a file server, a lingering socket),
//! a thread of its own does that ([`HandedFd`]'s drop).
//!
//! They are only accepted at a door that says so
//! ([`DoorListener::take_descriptors_of`](crate::DoorListener::take_descriptors_of)), from that one user, and limited: at most
//! [`MAX_DOOR_FDS`] a message, two messages' worth waiting on a connection, and a quarter of the process's limit of open files in
//! all. Otherwise the kernel closes them before they become this process's. A connection whose descriptors do not match its
//! frames loses them, now and later; its messages continue.

use garrick_frame::{
    Decoder,
    door::MAX_DOOR_FDS,
    rights::{Received, recv_beside},
};
use nix::{
    errno::Errno,
    sys::{
        resource::{Resource, getrlimit},
        socket::{self, MsgFlags},
    },
};
use std::{
    collections::VecDeque,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};
use tokio::net::UnixStream;

/// Most that wait on one connection for the rest of their frames.
const MOST_WAITING: usize = 2 * MAX_DOOR_FDS;

/// A descriptor that a command handed over. Close-on-exec. Dropping it closes it on another thread.
#[derive(Debug)]
pub struct HandedFd {
    /// Taken when this is dropped.
    fd: Option<OwnedFd>,
    held: Arc<Held>,
}

impl AsFd for HandedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("it leaves only when this is dropped").as_fd()
    }
}

impl Drop for HandedFd {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.held.close(vec![fd]);
        }
    }
}

/// Drops them together, which wakes the other thread once and not for each.
pub fn close_together(mut fds: Vec<HandedFd>) {
    while let Some(held) = fds.last().map(|fd| Arc::clone(&fd.held)) {
        let of_one_door = fds.extract_if(.., |fd| Arc::ptr_eq(&fd.held, &held));
        held.close(of_one_door.filter_map(|mut fd| fd.fd.take()).collect());
    }
}

/// The descriptors that one door has taken and that are open still.
#[derive(Debug)]
pub(crate) struct Held {
    count: Arc<AtomicUsize>,
    most: usize,
    closer: OnceLock<Option<mpsc::Sender<Vec<OwnedFd>>>>,
}

impl Held {
    /// With the limit that this process's limit of open files gives.
    pub fn new() -> Arc<Self> {
        let open_files = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        Self::with_limit(usize::try_from(open_files / 4).unwrap_or(usize::MAX))
    }

    pub fn with_limit(most: usize) -> Arc<Self> {
        Arc::new(Self { count: Arc::default(), most, closer: OnceLock::new() })
    }

    /// So many more may come with one message now.
    fn room(&self) -> usize {
        let left = self.most.saturating_sub(self.count.load(Ordering::Relaxed));
        if left < MAX_DOOR_FDS { 0 } else { MAX_DOOR_FDS }
    }

    fn hold(self: &Arc<Self>, fd: OwnedFd) -> HandedFd {
        self.count.fetch_add(1, Ordering::Relaxed);
        HandedFd { fd: Some(fd), held: Arc::clone(self) }
    }

    /// Counted as held until it is closed, so that a close that hangs makes the door take fewer, not the process grow.
    fn close(&self, fds: Vec<OwnedFd>) {
        let closer = self.closer.get_or_init(|| start_closer(Arc::clone(&self.count)));
        let left = match closer {
            Some(closer) => closer.send(fds).err().map(|unsent| unsent.0),
            None => Some(fds),
        };
        left.into_iter().for_each(|fds| close_all(fds, &self.count));
    }
}

fn close_all(fds: Vec<OwnedFd>, count: &AtomicUsize) {
    for fd in fds {
        drop(fd);
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `None`: no thread could be started, and descriptors are closed where they are dropped.
fn start_closer(count: Arc<AtomicUsize>) -> Option<mpsc::Sender<Vec<OwnedFd>>> {
    let (sender, batches) = mpsc::channel();
    let close = move || batches.into_iter().for_each(|fds| close_all(fds, &count));
    let started = std::thread::Builder::new().name("closer".to_owned()).stack_size(64 << 10).spawn(close);
    started
        .inspect_err(|error| tracing::warn!(%error, "starting the thread that closes commands' descriptors"))
        .ok()?;
    Some(sender)
}

/// Descriptors that arrive with the bytes of one connection.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// `None`: none are taken here, or no more.
    held: Option<Arc<Held>>,
    waiting: VecDeque<HandedFd>,
    of_last: Vec<HandedFd>,
    /// A message came. Before that, descriptors may come with the greeting's bytes, which are sent together with the first
    /// message's.
    begun: bool,
}

impl Arrivals {
    /// For a connection whose descriptors are taken.
    pub fn taken(held: Arc<Held>) -> Self {
        Self { held: Some(held), ..Self::default() }
    }

    /// One receive without waiting; `None` if nothing has arrived, `Some(0)` at the end.
    pub fn recv(&mut self, stream: &UnixStream, decoder: &mut Decoder) -> Result<Option<usize>, Errno> {
        if self.begun && !self.waiting.is_empty() && decoder.buffered().is_empty() {
            self.refuse("that no message announced");
        }
        let result = match &self.held {
            Some(held) => {
                let held = Arc::clone(held);
                self.recv_taking(&held, stream, decoder)
            }
            // Without room for control messages the kernel closes descriptors that came.
            None => decoder.fill(|space| {
                loop {
                    match socket::recv(stream.as_raw_fd(), space, MsgFlags::MSG_DONTWAIT) {
                        Err(Errno::EINTR) => {}
                        result => return result,
                    }
                }
            }),
        };
        match result {
            Ok(count) => Ok(Some(count)),
            Err(Errno::EAGAIN) => Ok(None),
            Err(Errno::ECONNRESET) => Ok(Some(0)),
            Err(errno) => Err(errno),
        }
    }

    fn recv_taking(&mut self, held: &Arc<Held>, stream: &UnixStream, decoder: &mut Decoder) -> Result<usize, Errno> {
        let mut arrived = VecDeque::new();
        let mut lost = false;
        let result = decoder.fill(|space| {
            let received = recv_beside(stream.as_fd(), space, held.room(), &mut arrived)?;
            let Received { bytes, lost: some } = received.ok_or(Errno::EAGAIN)?;
            lost = some;
            Ok(bytes)
        });
        self.waiting.extend(arrived.into_iter().map(|fd| held.hold(fd)));
        if lost {
            self.refuse("more than are taken now");
        } else if self.waiting.len() > MOST_WAITING {
            self.refuse("without the messages that they belong to");
        }
        result
    }

    /// A message was read, with so many descriptors announced. What belongs to the one before is closed.
    pub fn delivered(&mut self, announced: u8) {
        self.begun = true;
        self.of_last.clear();
        let announced = usize::from(announced);
        if announced > self.waiting.len() || announced > MAX_DOOR_FDS {
            // A honest peer's went with whatever made this connection lose its own.
            if self.held.is_some() {
                self.refuse("fewer than were announced");
            }
        } else {
            self.of_last.extend(self.waiting.drain(..announced));
        }
    }

    /// A frame could not be read: which descriptors were its own is not known.
    pub fn lost_track(&mut self) {
        self.of_last.clear();
        if !self.waiting.is_empty() {
            self.refuse("of a message that cannot be read");
        }
    }

    /// Those of the message that was read last.
    pub fn take(&mut self) -> Vec<HandedFd> {
        std::mem::take(&mut self.of_last)
    }

    fn refuse(&mut self, what: &str) {
        tracing::debug!("descriptors {what} came over a door; its peer's descriptors are not taken any more");
        self.held = None;
        self.waiting.clear();
    }
}

#[cfg(test)]
#[path = "handed_test.rs"]
mod tests;
