//! Environments that the launcher keeps under numbers, so that one is encoded and sent once for many tasks.

use garrick_model::spec::EnvEntry;
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

/// Environments kept at the launcher; each is some kilobytes there.
const KEPT: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct LauncherEnvironments {
    hasher: RandomState,
    known: HashMap<u64, Known>,
    next: u32,
    uses: u64,
    last: Option<(Arc<Vec<EnvEntry>>, u32)>,
}

#[derive(Debug)]
struct Known {
    entries: Arc<Vec<EnvEntry>>,
    id: u32,
    used: u64,
}

/// What the launcher must be told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The environment's number.
    pub id: u32,
    /// It must be set first.
    pub new: bool,
    /// This one is to be dropped.
    pub dropped: Option<u32>,
}

impl LauncherEnvironments {
    /// The number of an environment.
    pub fn get(&mut self, entries: &Arc<Vec<EnvEntry>>) -> Lookup {
        self.uses += 1;
        if let Some((last, id)) = &self.last
            && Arc::ptr_eq(last, entries)
        {
            return Lookup { id: *id, new: false, dropped: None };
        }
        let hash = self.hasher.hash_one(entries.as_ref());
        let found = match self.known.get_mut(&hash) {
            Some(known) if known.entries == *entries => {
                known.used = self.uses;
                Lookup { id: known.id, new: false, dropped: None }
            }
            _ => {
                let oldest = self.known.iter().min_by_key(|(_, k)| k.used).map(|(h, _)| *h);
                let full = self.known.len() >= KEPT;
                let dropped = oldest.filter(|_| full).and_then(|h| self.known.remove(&h)).map(|k| k.id);
                self.next += 1;
                let known = Known { entries: entries.clone(), id: self.next, used: self.uses };
                // Two environments of one hash are as good as impossible; the older is forgotten, not mixed up.
                self.known.insert(hash, known);
                Lookup { id: self.next, new: true, dropped }
            }
        };
        self.last = Some((entries.clone(), found.id));
        found
    }

    /// A new launcher knows none.
    pub fn forget(&mut self) {
        self.known.clear();
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stepmgr::builders::bytes;

    #[test]
    fn equal_environments_have_one_number() {
        let mut environments = LauncherEnvironments::default();
        let a = Arc::new(vec![bytes("A=1")]);
        assert_eq!(environments.get(&a), Lookup { id: 1, new: true, dropped: None });
        assert_eq!(environments.get(&Arc::new(vec![bytes("A=1")])), Lookup { id: 1, new: false, dropped: None });
        assert!(environments.get(&Arc::new(vec![bytes("A=2")])).new);
    }

    #[test]
    fn the_least_used_is_dropped_when_many_are_kept() {
        let mut environments = LauncherEnvironments::default();
        for n in 0..KEPT {
            assert_eq!(environments.get(&Arc::new(vec![bytes(&format!("A={n}"))])).dropped, None);
        }
        assert_eq!(environments.get(&Arc::new(vec![bytes("A=0")])).dropped, None);
        assert_eq!(environments.get(&Arc::new(vec![bytes("A=new")])).dropped, Some(2));
    }
}
