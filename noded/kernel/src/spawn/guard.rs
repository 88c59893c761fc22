//! Children that end when their parent does.

use super::Spawned;
use crate::{reap, signals};
use std::os::fd::AsFd;

/// A child that is killed and reaped when its holder goes away.
#[derive(Debug)]
pub struct KillOnDrop(Option<Spawned>);

impl KillOnDrop {
    /// Takes charge of a child.
    pub fn new(child: Spawned) -> Self {
        Self(Some(child))
    }

    /// The child.
    pub fn child(&self) -> Option<&Spawned> {
        self.0.as_ref()
    }

    /// Gives the child back, alive.
    pub fn release(mut self) -> Option<Spawned> {
        self.0.take()
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            // Both fail only when it was reaped by someone else, which is as good.
            let _ = signals::send(child.pidfd.as_fd(), libc::SIGKILL);
            let _ = reap::reap(child.pidfd.as_fd());
        }
    }
}
