//! The socket to `stepd`, and, after its death, the socket at which another `stepd` may take over.

use super::service::{ServiceError, call};
use garrick_frame::{FdChannel, limits};
use garrick_kernel::sockets;
use nix::poll::PollFlags;
use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long a launcher waits for another `stepd`. Long enough for a node's agent that is itself being restarted or
/// upgraded, short enough that tasks which nobody will ever ask for do not hold a node.
pub const ADOPTION_LIMIT: Duration = Duration::from_secs(600);
/// How often a launcher without a `stepd` looks whether its run is over: then its socket's file is gone.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// While so many bytes of answers wait to be sent, no orders are read: a `stepd` that does not read cannot make us keep
/// more than these and the ends of what runs.
const MOST_QUEUED: usize = 1 << 20;

/// Where a launcher is found by a `stepd` that did not start it.
#[derive(Debug)]
pub struct Listener {
    /// Bound, and not listening yet: the kernel tells those who connect the user of whoever makes it listen.
    pub socket: OwnedFd,
    /// Its file. When that is gone, so is the run.
    pub path: PathBuf,
}

/// Which file it is: device and inode.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()))
}

enum Stepd {
    Here(FdChannel),
    Away { since: Instant },
}

pub(super) struct Connection {
    stepd: Stepd,
    listener: Option<Listener>,
    file: Option<(u64, u64)>,
    /// Who may connect: the user of the `stepd` that started this launcher.
    owner: u32,
}

impl Connection {
    pub(super) fn new(channel: FdChannel, listener: Option<Listener>) -> Result<Self, ServiceError> {
        let owner = sockets::peer(channel.as_fd()).map_err(call("SO_PEERCRED"))?.uid;
        if let Some(listener) = &listener {
            sockets::listen(listener.socket.as_fd()).map_err(call("listen"))?;
        }
        let file = listener.as_ref().and_then(|listener| identity(&listener.path).ok());
        Ok(Self { stepd: Stepd::Here(channel), listener, file, owner })
    }

    pub(super) fn channel(&mut self) -> Option<&mut FdChannel> {
        match &mut self.stepd {
            Stepd::Here(channel) => Some(channel),
            Stepd::Away { .. } => None,
        }
    }

    /// Somebody is there to be told.
    pub(super) const fn is_here(&self) -> bool {
        matches!(self.stepd, Stepd::Here(_))
    }

    /// Room for answers.
    pub(super) fn takes_orders(&self) -> bool {
        matches!(&self.stepd, Stepd::Here(channel) if channel.queued_bytes() < MOST_QUEUED)
    }

    /// Orders are here that were not read yet.
    pub(super) fn has_orders(&self) -> bool {
        self.takes_orders() && matches!(&self.stepd, Stepd::Here(channel) if channel.has_frame())
    }

    /// What to wait for, and on what. `holding`: what there is to write may wait.
    pub(super) fn wanted(&self, holding: bool) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.stepd {
            Stepd::Here(channel) => {
                let mut wanted = PollFlags::empty();
                wanted.set(PollFlags::POLLIN, self.takes_orders());
                wanted.set(PollFlags::POLLOUT, !holding && channel.wants_write());
                Some((channel.as_fd(), wanted))
            }
            Stepd::Away { .. } => self.listener.as_ref().map(|l| (l.socket.as_fd(), PollFlags::POLLIN)),
        }
    }

    /// `stepd` is gone. True when another may come.
    pub(super) fn lost(&mut self, now: Instant) -> bool {
        self.stepd = Stepd::Away { since: now };
        self.listener.is_some()
    }

    /// When [`Connection::look`] is to be called.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        match self.stepd {
            Stepd::Here(_) => None,
            Stepd::Away { .. } => Some(now + LOOK_AGAIN),
        }
    }

    /// Whether somebody may still come.
    pub(super) fn look(&self, now: Instant) -> Result<(), ServiceError> {
        let (Stepd::Away { since }, Some(listener)) = (&self.stepd, &self.listener) else { return Ok(()) };
        let over = match identity(&listener.path) {
            // Another launcher's is in its place.
            Ok(file) => self.file.is_some_and(|own| own != file),
            // A folder that may not be looked into says nothing.
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        };
        if over {
            return Err(ServiceError::RunOver);
        }
        if now.duration_since(*since) >= ADOPTION_LIMIT {
            return Err(ServiceError::NotAdopted);
        }
        Ok(())
    }

    /// Takes a connection, from this launcher's owner only. Others are hung up on. True when `stepd` is here.
    pub(super) fn accept(&mut self) -> Result<bool, ServiceError> {
        let (Stepd::Away { .. }, Some(listener)) = (&self.stepd, &self.listener) else { return Ok(false) };
        let Some(socket) = sockets::accept(listener.socket.as_fd()).map_err(call("accept"))? else { return Ok(false) };
        match sockets::peer(socket.as_fd()) {
            Ok(peer) if peer.uid == self.owner => {
                self.stepd = Stepd::Here(FdChannel::new(socket, limits::LAUNCHER));
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
