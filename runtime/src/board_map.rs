//! A board with many entries, each published by an owner of its own: the jobs or nodes of a cluster.
//!
//! The keys are in an immutable ordered map from key to cell; a cell holds the newest value. Publishing a known key swaps one
//! pointer; a new or removed key makes another map, which shares all but one path with the previous one. Readers load pointers
//! and never wait; writers of new and removed keys are serialised.

use std::{
    fmt,
    ops::RangeBounds,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use rpds::RedBlackTreeMapSync;

use crate::board::Generation;

type Cells<K, V> = RedBlackTreeMapSync<K, Arc<ArcSwap<V>>>;

struct Inner<K, V> {
    cells: ArcSwap<Cells<K, V>>,
    /// Serialises writers that add or remove keys.
    growing: Mutex<()>,
    generation: Generation,
}

/// Newest values by key. Clones are the same board.
///
/// A list is not a cut through time: each entry is the newest at some moment of the listing.
pub struct BoardMap<K, V>(Arc<Inner<K, V>>);

impl<K, V> Clone for BoardMap<K, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Ord + Clone, V> BoardMap<K, V> {
    /// An empty board of generation 0.
    pub fn new() -> Self {
        let (cells, growing) = (ArcSwap::from_pointee(Cells::new_sync()), Mutex::new(()));
        Self(Arc::new(Inner { cells, growing, generation: Generation::default() }))
    }

    /// Shows a value for a key, and returns the board's new generation. For the owner of the key alone.
    pub fn publish(&self, key: K, value: Arc<V>) -> u64 {
        if let Some(cell) = self.0.cells.load().get(&key) {
            cell.store(value);
            return self.0.generation.advance();
        }
        let growing = self.0.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let cells = self.0.cells.load();
        match cells.get(&key) {
            Some(cell) => cell.store(value),
            None => self.0.cells.store(Arc::new(cells.insert(key, Arc::new(ArcSwap::new(value))))),
        }
        drop(growing);
        self.0.generation.advance()
    }

    /// Takes a key off. False, with no new generation, when it was not there.
    pub fn remove(&self, key: &K) -> bool {
        let growing = self.0.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let cells = self.0.cells.load();
        if !cells.contains_key(key) {
            return false;
        }
        self.0.cells.store(Arc::new(cells.remove(key)));
        drop(growing);
        self.0.generation.advance();
        true
    }

    /// The newest value of a key.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        self.0.cells.load().get(key).map(|cell| cell.load_full())
    }

    /// All values, sorted by key.
    pub fn list(&self) -> Vec<Arc<V>> {
        self.0.cells.load_full().values().map(|cell| cell.load_full()).collect()
    }

    /// The values of a range of keys that pass, sorted by key, at most so many.
    pub fn some(&self, keys: impl RangeBounds<K>, passes: impl Fn(&V) -> bool, most: usize) -> Vec<Arc<V>> {
        let cells = self.0.cells.load_full();
        let values = cells.range(keys).map(|(_, cell)| cell.load_full());
        values.filter(|value| passes(value)).take(most).collect()
    }

    /// All keys with their values, sorted by key.
    pub fn entries(&self) -> Vec<(K, Arc<V>)> {
        let cells = self.0.cells.load_full();
        cells.iter().map(|(key, cell)| (key.clone(), cell.load_full())).collect()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.cells.load().size()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.cells.load().is_empty()
    }

    /// Counts publications and removals.
    pub fn generation(&self) -> u64 {
        self.0.generation.get()
    }

    /// Waits until something changed after that generation; returns the newest generation. A reader takes the
    /// generation before it lists, so that what changes meanwhile wakes it again.
    pub async fn changed(&self, after: u64) -> u64 {
        self.0.generation.beyond(after).await
    }
}

impl<K: Ord + Clone, V> Default for BoardMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> fmt::Debug for BoardMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoardMap(generation {})", self.0.generation.get())
    }
}
