//! One of many equal values in memory. Jobs that are submitted from one terminal have the same environment, and often the same
//! script: a controller that remembers a hundred thousand of them keeps those once.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// Fewer are not swept.
const SWEPT_FROM: usize = 256;

/// Values that are in use elsewhere. It keeps none of them alive.
#[derive(Debug)]
pub struct Shared<T> {
    hasher: RandomState,
    known: Mutex<Known<T>>,
}

#[derive(Debug)]
struct Known<T> {
    by_hash: HashMap<u64, Weak<T>>,
    /// As many are known when those that are gone are taken out.
    sweep_at: usize,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        let known = Known { by_hash: HashMap::new(), sweep_at: SWEPT_FROM };
        Self { hasher: RandomState::new(), known: Mutex::new(known) }
    }
}

impl<T: Hash + Eq> Shared<T> {
    /// The known one that equals this one. Where there is none, this one, which is known from now on.
    pub fn share(&self, one: Arc<T>) -> Arc<T> {
        let hash = self.hasher.hash_one(&*one);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.by_hash.get(&hash).and_then(Weak::upgrade) {
            Some(known) if known == one => known,
            // Two with the same hash: the first stays the known one.
            Some(_) => one,
            None => {
                if known.by_hash.len() >= known.sweep_at {
                    known.by_hash.retain(|_, known| known.strong_count() > 0);
                    known.sweep_at = SWEPT_FROM.max(known.by_hash.len() * 2);
                }
                known.by_hash.insert(hash, Arc::downgrade(&one));
                one
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn equal_values_become_one_and_live_no_longer_than_their_users() {
        let shared = Shared::default();
        let mut ones: Vec<Arc<Vec<u32>>> = (0..10).map(|n| shared.share(Arc::new(vec![n % 2]))).collect();
        assert!(Arc::ptr_eq(&ones[0], &ones[8]) && Arc::ptr_eq(&ones[1], &ones[9]) && !Arc::ptr_eq(&ones[0], &ones[1]));
        assert_eq!((Arc::strong_count(&ones[0]), Arc::strong_count(&ones[1])), (5, 5));
        let of_first = Arc::downgrade(&ones[0]);
        ones.clear();
        assert!(of_first.upgrade().is_none());
        assert_eq!(*shared.share(Arc::new(vec![0])), vec![0]);
    }

    #[test]
    fn those_that_are_gone_are_forgotten() {
        let shared = Shared::default();
        for n in 0..10_000 {
            shared.share(Arc::new(n));
        }
        let known = shared.known.lock().unwrap().by_hash.len();
        assert!(known <= SWEPT_FROM, "{known}");
    }
}
