//! Named timers of one actor, as plain data: which are set, which is next, which are due.
//!
//! No clock inside: the host passes the time and sleeps. A timer that is due but was not handled yet is still set, so clearing or
//! replacing it reliably cancels it.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use crate::trace::TraceContext;

/// Names a timer within its actor: a word, or a word and a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerKey(Cow<'static, str>, u64);

impl From<&'static str> for TimerKey {
    fn from(name: &'static str) -> Self {
        Self(Cow::Borrowed(name), 0)
    }
}

impl From<String> for TimerKey {
    fn from(name: String) -> Self {
        Self(Cow::Owned(name), 0)
    }
}

impl From<(&'static str, u64)> for TimerKey {
    fn from((name, number): (&'static str, u64)) -> Self {
        Self(Cow::Borrowed(name), number)
    }
}

/// Longest wait that is asked of the clock; longer ones come out as this, about 30 years, as tokio itself does.
const FAR_AWAY: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

struct Entry<K, P> {
    key: K,
    deadline: Instant,
    cx: TraceContext,
    payload: P,
}

/// Timers by key `K`, each with what it is for, `P`.
pub(crate) struct Timers<K, P> {
    ids: HashMap<K, u64>,
    entries: HashMap<u64, Entry<K, P>>,
    queue: BTreeSet<(Instant, u64)>,
    next_id: u64,
}

impl<K: Clone + Eq + std::hash::Hash, P> Timers<K, P> {
    pub(crate) fn new() -> Self {
        Self { ids: HashMap::new(), entries: HashMap::new(), queue: BTreeSet::new(), next_id: 0 }
    }

    /// Sets the timer of that key, replacing one that is set, even one that is due.
    pub(crate) fn set(&mut self, key: K, now: Instant, after: Duration, cx: TraceContext, payload: P) {
        self.clear(&key);
        let deadline = now + after.min(FAR_AWAY);
        let id = self.next_id;
        self.next_id += 1;
        self.ids.insert(key.clone(), id);
        self.entries.insert(id, Entry { key, deadline, cx, payload });
        self.queue.insert((deadline, id));
    }

    /// Clears it. False when it was not set.
    pub(crate) fn clear(&mut self, key: &K) -> bool {
        let Some(id) = self.ids.remove(key) else { return false };
        if let Some(entry) = self.entries.remove(&id) {
            self.queue.remove(&(entry.deadline, id));
        }
        true
    }

    /// Clears all. Ids are not used again, so that an old one finds nothing.
    pub(crate) fn clear_all(&mut self) {
        self.ids.clear();
        self.entries.clear();
        self.queue.clear();
    }

    /// When to call [`due`](Self::due) next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.queue.first().map(|(deadline, _)| *deadline)
    }

    /// Ids of the timers that have become due, earliest first; each is named once.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<u64> {
        let mut ids = Vec::new();
        while let Some((deadline, id)) = self.queue.first().copied() {
            if deadline > now {
                break;
            }
            self.queue.pop_first();
            ids.push(id);
        }
        ids
    }

    /// Takes a due timer's purpose; `None` when it was cleared or replaced meanwhile.
    pub(crate) fn take(&mut self, id: u64) -> Option<(TraceContext, P)> {
        let entry = self.entries.remove(&id)?;
        self.ids.remove(&entry.key);
        Some((entry.cx, entry.payload))
    }

    pub(crate) fn is_set(&self, key: &K) -> bool {
        self.ids.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn timers() -> (Timers<TimerKey, u32>, Instant) {
        (Timers::new(), Instant::now())
    }

    #[test]
    fn timers_fall_due_in_the_order_of_their_deadlines() {
        let (mut timers, t0) = timers();
        timers.set("late".into(), t0, 3 * SECOND, TraceContext::default(), 3);
        timers.set(("early", 1).into(), t0, SECOND, TraceContext::default(), 1);
        timers.set(("early", 2).into(), t0, 2 * SECOND, TraceContext::default(), 2);
        assert_eq!(timers.next_deadline(), Some(t0 + SECOND));
        let due: Vec<u32> = timers.due(t0 + 2 * SECOND).into_iter().map(|id| timers.take(id).unwrap().1).collect();
        assert_eq!(due, [1, 2]);
        assert_eq!(timers.next_deadline(), Some(t0 + 3 * SECOND));
    }

    #[test]
    fn a_timer_that_is_due_can_still_be_cleared_or_replaced() {
        let (mut timers, t0) = timers();
        timers.set("a".into(), t0, SECOND, TraceContext::default(), 1);
        timers.set("b".into(), t0, SECOND, TraceContext::default(), 2);
        let due = timers.due(t0 + SECOND);
        assert!(timers.clear(&"a".into()));
        timers.set("b".into(), t0 + SECOND, SECOND, TraceContext::default(), 3);
        assert!(due.into_iter().all(|id| timers.take(id).is_none()));
        assert!(timers.is_set(&"b".into()) && !timers.is_set(&"a".into()));
    }

    #[test]
    fn a_wait_beyond_the_clock_does_not_overflow_it() {
        let (mut timers, t0) = timers();
        timers.set("never".into(), t0, Duration::MAX, TraceContext::default(), 1);
        assert!(timers.next_deadline().unwrap() > t0 + 1000 * SECOND);
    }
}
