//! `stepd`'s side of the socket to its launcher, on the arbiter's own thread. Sending never waits: messages are queued in order,
//! and written when the actors have nothing more to send for now, as many in one system call as possible (each message with
//! descriptors needs a call of its own). The queue is limited by the number of tasks that the job's CPUs allow at a time.

use crate::handed::{self, TaskFd};
use garrick_frame::{FdChannel, FdError};
use garrick_model::messages::{
    launch_failure::LaunchFailure,
    launcher::{FromLauncher, ToLauncher},
};
use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::Notify,
};

/// The sending side. Clones share the socket.
#[derive(Clone)]
pub struct LauncherLink(Rc<Shared>);

struct Shared {
    channel: RefCell<FdChannel>,
    kept: RefCell<VecDeque<(ToLauncher, Vec<TaskFd>)>>,
    more: Notify,
    deliver: RefCell<Box<dyn FnMut(FromLauncher)>>,
}

/// How the launcher's side ended.
#[derive(Debug, thiserror::Error)]
pub enum LauncherGone {
    /// The process ended or closed the socket.
    #[error("the launcher closed its socket")]
    Closed,
    /// It sent something that is not a message of its.
    #[error("the launcher's socket failed: {0}")]
    Broken(#[from] FdError),
    /// The socket could not be watched.
    #[error("the launcher's socket cannot be watched: {0}")]
    Watch(#[from] io::Error),
}

impl LauncherLink {
    /// Over the socket that `launcher::start` returned. `deliver` is called for each message, `ended` once, on this thread.
    pub fn start(
        channel: FdChannel,
        deliver: impl FnMut(FromLauncher) + 'static,
        ended: impl FnOnce(LauncherGone) + 'static,
    ) -> io::Result<Self> {
        nix::fcntl::fcntl(channel.as_fd(), nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
        let watched = channel.as_fd().try_clone_to_owned()?;
        let shared = Rc::new(Shared {
            channel: RefCell::new(channel),
            kept: RefCell::new(VecDeque::new()),
            more: Notify::new(),
            deliver: RefCell::new(Box::new(deliver)),
        });
        let link = Self(Rc::clone(&shared));
        let watch = Rc::new(garrick_kernel::watch::watch(watched, Interest::READABLE | Interest::WRITABLE)?);
        let (reader, writer) = (Rc::clone(&shared), shared);
        let writes = Rc::clone(&watch);
        let writing = actix_rt::spawn(async move { writer.write_kept(&writes).await });
        actix_rt::spawn(async move {
            let gone = reader.read(&watch).await;
            writing.abort();
            ended(gone);
        });
        Ok(link)
    }

    /// Sends a message with the descriptors that belong to it.
    pub fn send(&self, message: ToLauncher, fds: Vec<TaskFd>) {
        let mut kept = self.0.kept.borrow_mut();
        if !fds.is_empty() || !kept.is_empty() {
            kept.push_back((message, fds));
        } else if let Err(e) = self.0.channel.borrow_mut().queue(&message) {
            self.0.refused(&message, &e);
        }
        self.0.more.notify_one();
    }
}

impl Shared {
    /// A message is larger than a frame may be. Nothing of it was sent.
    fn refused(&self, message: &ToLauncher, e: &FdError) {
        tracing::error!(error = %e, "a message to the launcher cannot be sent");
        if let ToLauncher::Spawn(task) = message {
            // What the kernel says of such arguments.
            let program = task.argv.first().map(|a| String::from_utf8_lossy(a).into_owned()).unwrap_or_default();
            let failure = LaunchFailure::new("execve", program, libc::E2BIG);
            (self.deliver.borrow_mut())(FromLauncher::SpawnFailed { token: task.token, failure });
        }
    }

    /// Writes what there is; false when the socket takes no more for now.
    fn write(&self) -> bool {
        let mut channel = self.channel.borrow_mut();
        let mut kept = self.kept.borrow_mut();
        let mut passed = Vec::new();
        let sent = loop {
            let Some((message, fds)) = kept.front() else { break channel.flush() };
            let sent = if fds.is_empty() {
                channel.queue(message)
            } else {
                let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                channel.try_send(message, &borrowed)
            };
            match sent {
                Err(FdError::WouldBlock) => break Ok(false),
                Err(e @ FdError::Frame(_)) => self.refused(message, &e),
                Err(e) => break Err(e),
                Ok(()) => {}
            }
            passed.extend(kept.pop_front().into_iter().flat_map(|(_, fds)| fds));
        };
        handed::close(passed);
        sent.unwrap_or_else(|e| {
            // The reader reports the socket's end, which is expected when the job is being swept.
            tracing::debug!(error = %e, "messages to the launcher were not sent");
            kept.clear();
            true
        })
    }

    async fn write_kept(&self, watch: &AsyncFd<OwnedFd>) {
        loop {
            self.more.notified().await;
            while !self.write() {
                let Ok(mut ready) = watch.writable().await else { return };
                // Readiness may be old: look again before waiting anew.
                if self.write() {
                    break;
                }
                ready.clear_ready();
            }
        }
    }

    async fn read(&self, watch: &AsyncFd<OwnedFd>) -> LauncherGone {
        loop {
            let mut ready = match watch.readable().await {
                Ok(ready) => ready,
                Err(e) => return e.into(),
            };
            loop {
                let next = self.channel.borrow_mut().try_recv::<FromLauncher>();
                match next {
                    Ok(Some((message, _))) => (self.deliver.borrow_mut())(message),
                    Ok(None) => break,
                    Err(FdError::Closed) => return LauncherGone::Closed,
                    Err(e) => return e.into(),
                }
            }
            ready.clear_ready();
        }
    }
}
