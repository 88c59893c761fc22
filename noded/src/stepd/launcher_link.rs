//! `stepd`'s side of the socket to its launcher, on the arbiter's own thread. Sending never waits: a message that the
//! socket does not take at once is kept in order and written when there is room. What bounds the number kept is the
//! number of tasks that the job's CPUs allow at a time.

use garrick_frame::{FdChannel, FdError};
use garrick_model::messages::launcher::{FromLauncher, ToLauncher};
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
    kept: RefCell<VecDeque<(ToLauncher, Vec<OwnedFd>)>>,
    more: Notify,
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
        mut deliver: impl FnMut(FromLauncher) + 'static,
        ended: impl FnOnce(LauncherGone) + 'static,
    ) -> io::Result<Self> {
        nix::fcntl::fcntl(channel.as_fd(), nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
        let watched = channel.as_fd().try_clone_to_owned()?;
        let shared = Rc::new(Shared {
            channel: RefCell::new(channel),
            kept: RefCell::new(VecDeque::new()),
            more: Notify::new(),
        });
        let link = Self(Rc::clone(&shared));
        let watch = Rc::new(crate::kernel::watch::watch(watched, Interest::READABLE | Interest::WRITABLE)?);
        let (reader, writer) = (Rc::clone(&shared), shared);
        let writes = Rc::clone(&watch);
        let writing = actix_rt::spawn(async move { writer.write_kept(&writes).await });
        actix_rt::spawn(async move {
            let gone = reader.read(&watch, &mut deliver).await;
            writing.abort();
            ended(gone);
        });
        Ok(link)
    }

    /// Sends a message with the descriptors that belong to it.
    pub fn send(&self, message: ToLauncher, fds: Vec<OwnedFd>) {
        let mut kept = self.0.kept.borrow_mut();
        if kept.is_empty() && self.0.try_send(&message, &fds) {
            // A part may be left in the channel for the writer.
            if self.0.channel.borrow().wants_write() {
                self.0.more.notify_one();
            }
            return;
        }
        kept.push_back((message, fds));
        self.0.more.notify_one();
    }
}

impl Shared {
    /// True when the message needs no further care: sent, or lost with a socket whose end the reader reports.
    fn try_send(&self, message: &ToLauncher, fds: &[OwnedFd]) -> bool {
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        match self.channel.borrow_mut().try_send(message, &borrowed) {
            Err(FdError::WouldBlock) => false,
            Ok(()) => true,
            Err(e) => {
                // Its end is reported by the reader, and expected when the job is being swept.
                tracing::debug!(error = %e, "a message to the launcher was not sent");
                true
            }
        }
    }

    async fn write_kept(&self, watch: &AsyncFd<OwnedFd>) {
        loop {
            self.more.notified().await;
            while !self.kept.borrow().is_empty() || self.channel.borrow().wants_write() {
                let Ok(mut ready) = watch.writable().await else { return };
                if !self.channel.borrow_mut().flush().unwrap_or(true) {
                    ready.clear_ready();
                    continue;
                }
                let Some((message, fds)) = self.kept.borrow_mut().pop_front() else { break };
                if !self.try_send(&message, &fds) {
                    self.kept.borrow_mut().push_front((message, fds));
                    ready.clear_ready();
                }
            }
        }
    }

    async fn read(&self, watch: &AsyncFd<OwnedFd>, deliver: &mut impl FnMut(FromLauncher)) -> LauncherGone {
        loop {
            let mut ready = match watch.readable().await {
                Ok(ready) => ready,
                Err(e) => return e.into(),
            };
            loop {
                let next = self.channel.borrow_mut().try_recv::<FromLauncher>();
                match next {
                    Ok(Some((message, _))) => deliver(message),
                    Ok(None) => break,
                    Err(FdError::Closed) => return LauncherGone::Closed,
                    Err(e) => return e.into(),
                }
            }
            ready.clear_ready();
        }
    }
}
