//! Which message caused which.
//!
//! A context is a trace id and the id of the causing message. It is a thread-local value while a message is handled, so that
//! sends include it automatically; futures of an actor and [`TraceContext::carry`] keep it. Ids are always assigned, even while
//! no records are kept, so that a trace that passes through stays complete.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use serde::Serialize;

use crate::path::ActorPath;

/// A trace and the message within it that causes what is sent now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, serde::Deserialize)]
pub struct TraceContext {
    /// Shared by everything that one first cause set off; 0 for none.
    pub trace: u64,
    /// Id of the causing message; 0 for none.
    pub cause: u64,
}

thread_local! {
    static CURRENT: Cell<TraceContext> = const { Cell::new(TraceContext { trace: 0, cause: 0 }) };
    /// Next id and end of this thread's block.
    static BLOCK: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Ids are given out to threads in blocks, so that threads do not fight over the counter.
const BLOCK_LEN: u64 = 4096;
const COUNTER_BITS: u32 = 40;

/// The upper 24 bits of all ids of this process, so that ids of different processes rarely meet in one trace.
static PROCESS: LazyLock<u64> = LazyLock::new(|| {
    let random = RandomState::new().hash_one(std::process::id());
    (random | 1) << COUNTER_BITS
});
static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);

/// A fresh id, never 0.
pub(crate) fn next_id() -> u64 {
    BLOCK.with(|block| {
        let (mut next, mut end) = block.get();
        if next == end {
            next = NEXT_BLOCK.fetch_add(BLOCK_LEN, Ordering::Relaxed);
            end = next + BLOCK_LEN;
        }
        block.set((next + 1, end));
        *PROCESS | (next & ((1 << COUNTER_BITS) - 1))
    })
}

/// Puts the former context back, also when the body panics.
struct Restore(TraceContext);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

impl TraceContext {
    /// The context of the message that is being handled on this thread; zeros when there is none.
    pub fn current() -> Self {
        CURRENT.get()
    }

    /// A new trace without a cause.
    pub fn root() -> Self {
        Self { trace: next_id(), cause: 0 }
    }

    /// The current context, or a new trace when there is none.
    pub fn current_or_root() -> Self {
        let current = Self::current();
        if current.trace == 0 { Self::root() } else { current }
    }

    /// Runs `body` with this as the current context.
    pub fn enter<T>(self, body: impl FnOnce() -> T) -> T {
        let _restore = Restore(CURRENT.replace(self));
        body()
    }

    /// A future that is polled with this as the current context: for tasks that act on behalf of a message.
    pub fn carry<F: Future>(self, future: F) -> Carried<F> {
        Carried { cx: self, future: Box::pin(future) }
    }
}

/// See [`TraceContext::carry`].
#[derive(Debug)]
pub struct Carried<F> {
    cx: TraceContext,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Carried<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let context = self.cx;
        context.enter(|| self.future.as_mut().poll(cx))
    }
}

/// How a message was handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// Handled.
    Ok,
    /// Its handler panicked with this text.
    Panic(String),
    /// It was not handled: the actor, or the life that it was meant for, had ended.
    Dropped,
}

impl std::fmt::Display for Outcome {
    /// `ok`, `panic: TEXT` or `dropped`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Panic(text) => write!(f, "panic: {text}"),
            Self::Dropped => f.write_str("dropped"),
        }
    }
}

/// One message of one actor, as exported from the rings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceRecord {
    /// Order within the process in which handling began; a cause comes before its effects.
    pub seq: u64,
    /// Wall-clock microseconds since the Unix epoch at which handling began (or the message was dropped).
    pub at_us: i64,
    /// Trace id.
    pub trace: u64,
    /// The message's own id.
    pub id: u64,
    /// Id of the message whose handling sent this one; 0 for none.
    pub cause: u64,
    /// Whose message.
    pub actor: ActorPath,
    /// Which message.
    pub message: &'static str,
    /// Microseconds in the mailbox.
    pub queue_us: u64,
    /// Microseconds in the handler.
    pub handle_us: u64,
    /// How it was handled.
    pub outcome: Outcome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_nest_and_come_back_even_after_a_panic() {
        let a = TraceContext { trace: 1, cause: 2 };
        let b = TraceContext { trace: 1, cause: 3 };
        a.enter(|| {
            let panicked = std::panic::catch_unwind(|| b.enter(|| panic!("x")));
            assert!(panicked.is_err());
            assert_eq!(TraceContext::current(), a);
        });
        assert_eq!(TraceContext::current(), TraceContext::default());
    }

    #[test]
    fn ids_are_never_zero_and_never_repeat_across_threads() {
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..10_000).map(|_| next_id()).collect::<Vec<_>>())).collect();
        let mut ids: Vec<u64> = Vec::new();
        for thread in threads {
            ids.extend(thread.join().expect("the thread only counts"));
        }
        assert!(!ids.contains(&0));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 40_000);
    }
}
