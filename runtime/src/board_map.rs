//! A board with many entries, each published by an owner of its own: the jobs or nodes of a cluster.
//!
//! Keys are spread over shards. A shard is an immutable ordered map from key to cell; a cell holds the newest value.
//! Publishing a known key swaps one pointer; a new or removed key copies its shard. Readers load pointers and never
//! wait; writers of one shard take turns.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;

use crate::board::Generation;

/// At 50,000 entries a new key copies about 400 pointers.
const SHARDS: usize = 128;

type Cells<K, V> = BTreeMap<K, Arc<ArcSwap<V>>>;

struct Shard<K, V> {
    cells: ArcSwap<Cells<K, V>>,
    writing: Mutex<()>,
}

impl<K, V> Shard<K, V> {
    fn write(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Inner<K, V> {
    shards: Vec<Shard<K, V>>,
    hasher: RandomState,
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

impl<K: Ord + Hash + Clone, V> BoardMap<K, V> {
    /// An empty board of generation 0.
    pub fn new() -> Self {
        let shard = |_| Shard { cells: ArcSwap::from_pointee(Cells::new()), writing: Mutex::new(()) };
        Self(Arc::new(Inner {
            shards: (0..SHARDS).map(shard).collect(),
            hasher: RandomState::new(),
            generation: Generation::default(),
        }))
    }

    fn shard(&self, key: &K) -> &Shard<K, V> {
        let index = self.0.hasher.hash_one(key) % SHARDS as u64;
        &self.0.shards[usize::try_from(index).unwrap_or(0)]
    }

    /// Shows a value for a key, and returns the board's new generation. For the owner of the key alone.
    pub fn publish(&self, key: K, value: Arc<V>) -> u64 {
        let shard = self.shard(&key);
        let guard = shard.write();
        let cells = shard.cells.load();
        match cells.get(&key) {
            Some(cell) => cell.store(value),
            None => {
                let mut grown = Cells::clone(&cells);
                grown.insert(key, Arc::new(ArcSwap::new(value)));
                shard.cells.store(Arc::new(grown));
            }
        }
        drop(guard);
        self.0.generation.advance()
    }

    /// Takes a key off. False, with no new generation, when it was not there.
    pub fn remove(&self, key: &K) -> bool {
        let shard = self.shard(key);
        let guard = shard.write();
        let cells = shard.cells.load();
        if !cells.contains_key(key) {
            return false;
        }
        let mut shrunk = Cells::clone(&cells);
        shrunk.remove(key);
        shard.cells.store(Arc::new(shrunk));
        drop(guard);
        self.0.generation.advance();
        true
    }

    /// The newest value of a key.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        self.shard(key).cells.load().get(key).map(|cell| cell.load_full())
    }

    /// All values, sorted by key.
    pub fn list(&self) -> Vec<Arc<V>> {
        let shards: Vec<Arc<Cells<K, V>>> = self.0.shards.iter().map(|shard| shard.cells.load_full()).collect();
        let mut cells: Vec<(&K, &Arc<ArcSwap<V>>)> = shards.iter().flat_map(|cells| cells.iter()).collect();
        cells.sort_by_key(|(key, _)| *key);
        cells.into_iter().map(|(_, cell)| cell.load_full()).collect()
    }

    /// All keys with their values, sorted by key.
    pub fn entries(&self) -> Vec<(K, Arc<V>)> {
        let mut entries: Vec<(K, Arc<V>)> = Vec::new();
        for shard in &self.0.shards {
            let cells = shard.cells.load();
            entries.extend(cells.iter().map(|(key, cell)| (key.clone(), cell.load_full())));
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.cells.load().len()).sum()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.shards.iter().all(|shard| shard.cells.load().is_empty())
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

impl<K: Ord + Hash + Clone, V> Default for BoardMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> fmt::Debug for BoardMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoardMap(generation {})", self.0.generation.get())
    }
}
