//! Waits until a file grows, without polling all the time.

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::inotify::{AddWatchFlags, InitFlags, Inotify},
};
use std::{os::fd::AsFd as _, path::Path, time::Duration};

/// Files and folders that are watched. What another host writes to a shared file system goes unseen, and a kernel may have
/// no watches left; so a wait always has an end, and the caller looks then.
#[derive(Debug)]
pub struct Watch {
    inotify: Option<Inotify>,
}

impl Default for Watch {
    fn default() -> Self {
        Self { inotify: Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok() }
    }
}

impl Watch {
    /// Wakes when the file grows, or a writer closes it. Again for the same file changes nothing.
    pub fn file(&self, path: &Path) {
        self.add(path, AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE);
    }

    /// Wakes when a file comes into the folder.
    pub fn folder(&self, path: &Path) {
        self.add(path, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO);
    }

    fn add(&self, path: &Path, what: AddWatchFlags) {
        if let Some(inotify) = &self.inotify {
            // Without it the wait ends with its time.
            let _ = inotify.add_watch(path, what);
        }
    }

    /// Waits for something to happen, `at_most` so long.
    pub fn wait(&self, at_most: Duration) {
        let Some(inotify) = &self.inotify else { return std::thread::sleep(at_most) };
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        // A signal ends the wait as well.
        let _ = poll(&mut [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)], timeout);
        // What it was does not matter: the caller looks at its files.
        while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
    }
}
