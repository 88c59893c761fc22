//! A board: the newest snapshot of something, published by its owner and read by all without waiting.

use std::{
    fmt,
    ops::Deref,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use tokio::sync::Notify;

/// A published value. Never changes; readers may keep it as long as they like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot<T> {
    /// Counts publications; 0 is the value that the board began with.
    pub generation: u64,
    /// What was published.
    pub value: T,
}

impl<T> Deref for Snapshot<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A counter of publications that can be waited for.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    number: AtomicU64,
    grown: Notify,
}

impl Generation {
    pub(crate) fn get(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Called after what it counts has become visible.
    pub(crate) fn advance(&self) -> u64 {
        let number = self.number.fetch_add(1, Ordering::AcqRel) + 1;
        self.grown.notify_waiters();
        number
    }

    pub(crate) async fn beyond(&self, after: u64) -> u64 {
        loop {
            let mut grown = pin!(self.grown.notified());
            // Counted as waiting before the look, so that nothing falls between the two.
            grown.as_mut().enable();
            let number = self.get();
            if number > after {
                return number;
            }
            grown.await;
        }
    }
}

struct Inner<T> {
    snapshot: ArcSwap<Snapshot<T>>,
    generation: Generation,
    /// Orders publishers among themselves. There should be one; readers never take it.
    publishing: Mutex<()>,
}

/// The newest snapshot of a value. Clones are the same board.
pub struct Board<T>(Arc<Inner<T>>);

impl<T> Clone for Board<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Board<T> {
    /// A board that shows `value` as generation 0.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Inner {
            snapshot: ArcSwap::from_pointee(Snapshot { generation: 0, value }),
            generation: Generation::default(),
            publishing: Mutex::new(()),
        }))
    }

    /// Shows a new value, and returns its generation. For the owner of the value alone.
    pub fn publish(&self, value: T) -> u64 {
        let guard = self.0.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.0.generation.get() + 1;
        self.0.snapshot.store(Arc::new(Snapshot { generation, value }));
        let counted = self.0.generation.advance();
        drop(guard);
        debug_assert_eq!(counted, generation, "publishers take turns");
        generation
    }

    /// The newest snapshot. Never waits, whatever the publisher does.
    pub fn read(&self) -> Arc<Snapshot<T>> {
        self.0.snapshot.load_full()
    }

    /// The newest generation.
    pub fn generation(&self) -> u64 {
        self.0.generation.get()
    }

    /// Waits until there is a snapshot newer than `after`, and returns the newest. Those in between are passed over.
    pub async fn changed(&self, after: u64) -> Arc<Snapshot<T>> {
        self.0.generation.beyond(after).await;
        self.read()
    }
}

impl<T: Default> Default for Board<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Board<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Board(generation {})", self.generation())
    }
}
