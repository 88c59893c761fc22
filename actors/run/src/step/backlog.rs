//! Sending from one shell to another without loss: messages that a full mailbox refuses wait here, in order, and are sent again.
//! The protocol between the two (grants, running steps) limits how many can wait, not this module.

use garrick_runtime::{Address, Message, SendError};
use std::{collections::VecDeque, time::Duration};

/// When to try again: about the time in which a busy actor handles some hundreds of messages.
pub const RETRY: Duration = Duration::from_millis(1);

/// An address and the messages that it has not accepted yet.
#[derive(Debug)]
pub struct Backlog<M: Message> {
    to: Address<M>,
    waiting: VecDeque<M>,
}

impl<M: Message> Backlog<M> {
    /// For an address.
    pub const fn new(to: Address<M>) -> Self {
        Self { to, waiting: VecDeque::new() }
    }

    /// Sends, or keeps. True: call [`retry`](Self::retry) after [`RETRY`].
    #[must_use]
    pub fn send(&mut self, msg: M) -> bool {
        if self.waiting.is_empty() {
            match self.to.try_send(msg) {
                Err(SendError::Full(msg)) => self.waiting.push_back(msg),
                // A receiver that has ended needs no messages.
                Ok(()) | Err(_) => return false,
            }
        } else {
            self.waiting.push_back(msg);
        }
        true
    }

    /// Sends what waits. True: call it again later.
    #[must_use]
    pub fn retry(&mut self) -> bool {
        while let Some(msg) = self.waiting.pop_front() {
            match self.to.try_send(msg) {
                Ok(()) => {}
                Err(SendError::Full(msg)) => {
                    self.waiting.push_front(msg);
                    return true;
                }
                Err(_) => self.waiting.clear(),
            }
        }
        false
    }
}
