//! Parts of a daemon that have a thread of their own.

use actix_rt::Arbiter;

/// A thread at work for a part of the daemon. It ends, and is waited for, when this is dropped.
#[derive(Debug)]
pub struct Background {
    part: &'static str,
    arbiter: Option<Arbiter>,
}

impl Background {
    /// The thread of this part, such as `the door`.
    pub const fn new(part: &'static str, arbiter: Arbiter) -> Self {
        Self { part, arbiter: Some(arbiter) }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(arbiter) = self.arbiter.take() {
            arbiter.stop();
            if arbiter.join().is_err() {
                tracing::error!("the thread of {} panicked", self.part);
            }
        }
    }
}
