//! One side's state of a link between step manager and shepherd on different hosts: sent messages that the other has not
//! confirmed, and how many of the other's were received. Decides what is sent again on a new connection, and which messages are
//! new. Pure.

use garrick_model::messages::shepherd_link::LinkFrame;
use std::collections::{BTreeSet, VecDeque};

/// Messages that are kept for the other side at most. A shepherd has a few messages for each running task, so this is far
/// above what a healthy link keeps; beyond it the session is given up, and the two start over.
pub const MOST_KEPT: usize = 100_000;
/// Bytes of these at most. Relayed output is bounded by the credit of each step long before.
pub const MOST_KEPT_BYTES: usize = 64 << 20;
/// The other side is told what was seen after so many messages, or a little later.
pub const SEEN_EVERY: u64 = 64;

/// The session was given up: too much was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuchKept;

/// How two sides met on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// Both sides know each other: unconfirmed messages are sent again.
    Again,
    /// At least one of them is new.
    Anew,
}

/// See the module. `K` is what a kept message is stored as.
#[derive(Debug)]
pub struct Session<K> {
    own: u64,
    peer: u64,
    kept: VecDeque<(usize, K)>,
    kept_bytes: usize,
    /// Number of the first one kept.
    first: u64,
    seen: u64,
    told: u64,
    /// Seen before their turn.
    ahead: BTreeSet<u64>,
}

impl<K> Session<K> {
    /// With a random name, which must not be 0.
    pub const fn new(own: u64) -> Self {
        Self { own, peer: 0, kept: VecDeque::new(), kept_bytes: 0, first: 1, seen: 0, told: 0, ahead: BTreeSet::new() }
    }

    /// Keeps a message for the other side and gives its number.
    pub fn keep(&mut self, bytes: usize, message: K) -> Result<u64, TooMuchKept> {
        if self.kept.len() >= MOST_KEPT || self.kept_bytes + bytes > MOST_KEPT_BYTES {
            return Err(TooMuchKept);
        }
        self.kept_bytes += bytes;
        self.kept.push_back((bytes, message));
        Ok(self.first + self.kept.len() as u64 - 1)
    }

    /// Gives the session up: the next meeting is one of strangers.
    pub fn give_up(&mut self, own: u64) {
        *self = Self::new(own);
    }

    /// A kept message by its number.
    pub fn get(&self, number: u64) -> Option<&K> {
        let at = number.checked_sub(self.first)?;
        self.kept.get(usize::try_from(at).ok()?).map(|(_, message)| message)
    }

    /// Number of the first message that the other side has not seen.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// How to begin on a new connection.
    pub const fn begin<M>(&self) -> LinkFrame<M> {
        LinkFrame::Begin { session: self.own, known: self.peer, seen: self.seen }
    }

    /// The other side's `Begin`, read after this side's own was made.
    pub fn meet(&mut self, session: u64, known: u64, seen: u64) -> Met {
        if self.peer != 0 && known == self.own && session == self.peer {
            self.seen_by_peer(seen);
            self.told = self.seen;
            return Met::Again;
        }
        // Messages from before the first connection are for any peer; those for another peer are dropped.
        if self.peer != 0 {
            self.kept.clear();
            self.kept_bytes = 0;
        }
        (self.peer, self.first, self.seen, self.told) = (session, 1, 0, 0);
        self.ahead.clear();
        Met::Anew
    }

    /// The other side has seen everything up to a number.
    pub fn seen_by_peer(&mut self, upto: u64) {
        while self.first <= upto {
            let Some((bytes, _)) = self.kept.pop_front() else { return };
            self.kept_bytes -= bytes;
            self.first += 1;
        }
    }

    /// The other side's next numbered message is here. False: it came ahead of its turn.
    pub fn said(&mut self) -> bool {
        self.seen += 1;
        !self.ahead.remove(&self.seen)
    }

    /// A message of the other side is here before its turn. False: it is known.
    pub fn said_ahead(&mut self, number: u64) -> bool {
        number > self.seen && self.ahead.insert(number)
    }

    /// Something was seen that the other side was not told of.
    pub const fn owes(&self) -> bool {
        self.seen > self.told
    }

    /// So much that it should be told now.
    pub const fn owes_much(&self) -> bool {
        self.seen - self.told >= SEEN_EVERY
    }

    /// What to tell it.
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// It was told.
    pub const fn told(&mut self) {
        self.told = self.seen;
    }
}

#[cfg(test)]
#[path = "session_test.rs"]
mod tests;
