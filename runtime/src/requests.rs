//! Bookkeeping of requests, on both sides.
//!
//! [`Requests`] is for the requester: outstanding requests, whom to answer, and until when. [`Answered`] is for the receiver: the
//! first answer to each id, for repeats. Both are plain data with the time as an argument.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    hash::Hash,
    time::{Duration, Instant},
};

use crate::{address::AskError, reply::ReplyTo};

/// A request that was not taken up; the reply is handed back to be answered in some other way.
pub enum BeginError<R> {
    /// As many requests are outstanding as there may be: answer "busy".
    Full(ReplyTo<R>),
    /// A request of that key is outstanding.
    Duplicate(ReplyTo<R>),
}

impl<R> BeginError<R> {
    /// The reply.
    pub fn into_reply(self) -> ReplyTo<R> {
        match self {
            Self::Full(reply) | Self::Duplicate(reply) => reply,
        }
    }
}

impl<R> fmt::Display for BeginError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "too many outstanding requests",
            Self::Duplicate(_) => "a request of that id is outstanding",
        })
    }
}

impl<R> fmt::Debug for BeginError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Duplicate(_) => "Duplicate",
        })
    }
}

impl<R> std::error::Error for BeginError<R> {}

/// Outstanding requests by key, each with a deadline and the reply it owes. Bounded.
pub struct Requests<K, R> {
    outstanding: HashMap<K, (Instant, u64, ReplyTo<R>)>,
    deadlines: BTreeMap<(Instant, u64), K>,
    next: u64,
    limit: usize,
}

impl<K: Eq + Hash + Clone, R> Requests<K, R> {
    /// At most `limit` outstanding at once.
    pub fn new(limit: usize) -> Self {
        Self { outstanding: HashMap::new(), deadlines: BTreeMap::new(), next: 0, limit }
    }

    /// Takes up a request.
    ///
    /// # Errors
    /// At the limit, or when the key is outstanding; with the reply.
    pub fn begin(&mut self, key: K, deadline: Instant, reply: ReplyTo<R>) -> Result<(), BeginError<R>> {
        if self.outstanding.contains_key(&key) {
            return Err(BeginError::Duplicate(reply));
        }
        if self.outstanding.len() >= self.limit {
            return Err(BeginError::Full(reply));
        }
        let number = self.next;
        self.next += 1;
        self.deadlines.insert((deadline, number), key.clone());
        self.outstanding.insert(key, (deadline, number, reply));
        Ok(())
    }

    /// Answers a request. False when it is not outstanding (any more).
    pub fn finish(&mut self, key: &K, answer: R) -> bool {
        self.take(key).map(|reply| reply.reply(answer)).is_some()
    }

    /// Ends a request without an answer. False when it is not outstanding.
    pub fn fail(&mut self, key: &K, error: AskError) -> bool {
        self.take(key).map(|reply| reply.fail(error)).is_some()
    }

    /// Takes a request out, to be answered by the caller.
    pub fn take(&mut self, key: &K) -> Option<ReplyTo<R>> {
        let (deadline, number, reply) = self.outstanding.remove(key)?;
        self.deadlines.remove(&(deadline, number));
        Some(reply)
    }

    /// Ends what is past its deadline with [`AskError::Timeout`]; returns the keys, earliest deadline first.
    pub fn expire(&mut self, now: Instant) -> Vec<K> {
        let mut expired = Vec::new();
        while let Some(entry) = self.deadlines.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            if let Some((_, _, reply)) = self.outstanding.remove(&key) {
                reply.fail(AskError::Timeout);
            }
            expired.push(key);
        }
        expired
    }

    /// Ends everything without an answer, as when a link goes down; returns how many there were.
    pub fn fail_all(&mut self, error: AskError) -> usize {
        self.deadlines.clear();
        self.outstanding.drain().map(|(_, (_, _, reply))| reply.fail(error)).count()
    }

    /// When to call [`expire`](Self::expire) next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Whether a request of that key is outstanding.
    pub fn contains(&self, key: &K) -> bool {
        self.outstanding.contains_key(key)
    }

    /// How many are outstanding.
    pub fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether none is outstanding.
    pub fn is_empty(&self) -> bool {
        self.outstanding.is_empty()
    }
}

impl<K, R> fmt::Debug for Requests<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Requests({} of {})", self.outstanding.len(), self.limit)
    }
}

/// First answers by request id, so that a repeat gets the same one. Bounded by number and age. Time is counted from any
/// beginning.
#[derive(Debug)]
pub struct Answered<K, R> {
    answers: HashMap<K, R>,
    order: VecDeque<(Duration, K)>,
    limit: usize,
    max_age: Duration,
}

impl<K: Eq + Hash + Clone, R> Answered<K, R> {
    /// Keeps at most `limit` answers, none longer than `max_age` (looked at when one is put in).
    pub fn new(limit: usize, max_age: Duration) -> Self {
        Self { answers: HashMap::new(), order: VecDeque::new(), limit: limit.max(1), max_age }
    }

    /// The first answer to that id, if it is still known.
    pub fn get(&self, key: &K) -> Option<&R> {
        self.answers.get(key)
    }

    /// Keeps an answer, unless the id has one: the first answer stays.
    pub fn put(&mut self, key: K, answer: R, now: Duration) {
        self.forget_old(now);
        if self.answers.contains_key(&key) {
            return;
        }
        while self.answers.len() >= self.limit {
            self.forget_first();
        }
        self.order.push_back((now, key.clone()));
        self.answers.insert(key, answer);
    }

    /// Forgets answers past their age.
    pub fn forget_old(&mut self, now: Duration) {
        while self.order.front().is_some_and(|(at, _)| now.saturating_sub(*at) >= self.max_age) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.answers.remove(&key);
        }
    }

    /// How many answers are kept.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}
