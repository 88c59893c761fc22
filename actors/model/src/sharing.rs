//! One of many equal values in memory. Jobs that are submitted from one terminal have the same environment, and often the same
//! script: a controller that remembers a hundred thousand of them keeps those once.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// Fewer are not swept.
const SWEPT_FROM: usize = 256;

/// Values that are in use elsewhere, by their hashes. It keeps none of them alive.
#[derive(Debug)]
pub struct Shared<T> {
    hasher: RandomState,
    known: HashMap<u64, Weak<T>>,
    /// As many are known when those that are gone are taken out.
    sweep_at: usize,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { hasher: RandomState::new(), known: HashMap::new(), sweep_at: SWEPT_FROM }
    }
}

impl<T: Hash + Eq> Shared<T> {
    /// Puts an equal one that is known in the place of this one, or knows this one from now on.
    pub fn share(&mut self, one: &mut Arc<T>) {
        let hash = self.hasher.hash_one(&**one);
        match self.known.get(&hash).and_then(Weak::upgrade) {
            Some(known) if known == *one => *one = known,
            // Two with the same hash: the first stays the known one.
            Some(_) => {}
            None => {
                if self.known.len() >= self.sweep_at {
                    self.known.retain(|_, known| known.strong_count() > 0);
                    self.sweep_at = SWEPT_FROM.max(self.known.len() * 2);
                }
                self.known.insert(hash, Arc::downgrade(one));
            }
        }
    }
}

/// As [`Shared::share`], with one that everybody in this process shares.
pub fn share_with<T: Hash + Eq>(all: &Mutex<Option<Shared<T>>>, one: &mut Arc<T>) {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.get_or_insert_with(Shared::default).share(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_become_one_and_live_no_longer_than_their_users() {
        let mut shared = Shared::default();
        let mut ones: Vec<Arc<Vec<u32>>> = (0..10).map(|n| Arc::new(vec![n % 2])).collect();
        ones.iter_mut().for_each(|one| shared.share(one));
        assert!(Arc::ptr_eq(&ones[0], &ones[8]) && Arc::ptr_eq(&ones[1], &ones[9]) && !Arc::ptr_eq(&ones[0], &ones[1]));
        assert_eq!((Arc::strong_count(&ones[0]), Arc::strong_count(&ones[1])), (5, 5));
        let of_first = Arc::downgrade(&ones[0]);
        ones.clear();
        assert!(of_first.upgrade().is_none());
        let mut again = Arc::new(vec![0]);
        shared.share(&mut again);
        assert_eq!(*again, vec![0]);
    }

    #[test]
    fn those_that_are_gone_are_forgotten() {
        let mut shared = Shared::default();
        for n in 0..10_000 {
            shared.share(&mut Arc::new(n));
        }
        assert!(shared.known.len() <= SWEPT_FROM, "{}", shared.known.len());
    }
}
