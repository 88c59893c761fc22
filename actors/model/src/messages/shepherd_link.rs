//! What step manager and shepherd say to each other when they are on different hosts: their messages, numbered, so that a
//! link that breaks and comes back loses nothing and doubles nothing. Cores see the messages only.
//!
//! Each side numbers what it says, from 1, in the order in which it says it, and keeps it until the other has seen it. On a
//! new connection both begin with [`LinkFrame::Begin`]. When each still is in the session that the other knows, both say
//! again what was not seen; otherwise (one of them is a new process, or gave up keeping) they start over at 1, and the step
//! manager asks with `ListTasks` what is true.

use serde::{Deserialize, Serialize};

/// A frame of the link, in either direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LinkFrame<M> {
    /// First frame of each side on a connection.
    Begin {
        /// Names the sender's memory of what it said: random, and new with every process.
        session: u64,
        /// The other side's session that it knows; 0: none.
        known: u64,
        /// Messages of that session that it saw.
        seen: u64,
    },
    /// What a side says for itself at this connection: not numbered, not repeated (`Register`, `Keep`).
    Aside(M),
    /// The next numbered message.
    Say(M),
    /// A message that could not be sent (too large). It has its number, and no content.
    Nothing,
    /// A numbered message that must not wait behind others; it comes a second time when it is its turn.
    Ahead {
        /// Its number.
        number: u64,
        /// It.
        message: M,
    },
    /// Messages up to this number were seen.
    Seen {
        /// Number.
        upto: u64,
    },
}
