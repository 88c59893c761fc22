//! Unsaved state that must survive a panic: for each job the requests of its owner, for each node its core after the last handled
//! message. Only the owner writes it, and its next life reads it.

use crate::{job::core::Leftover, node::core::NodeCore};
use garrick_model::ids::JobId;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Of all jobs. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct JobLeftovers(Arc<Mutex<BTreeMap<JobId, Leftover>>>);

impl JobLeftovers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Leftover>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job after a turn.
    pub fn put(&self, job: JobId, leftover: Leftover) {
        self.lock().insert(job, leftover);
    }

    /// That of a job; empty if it has had no owner yet.
    pub fn get(&self, job: JobId) -> Leftover {
        self.lock().get(&job).cloned().unwrap_or_default()
    }

    /// Forgets a job.
    pub fn remove(&self, job: JobId) {
        self.lock().remove(&job);
    }
}

/// All nodes. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct NodeCores(Arc<Mutex<BTreeMap<String, NodeCore>>>);

impl NodeCores {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, NodeCore>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node after a message.
    pub fn put(&self, name: &str, core: &NodeCore) {
        let mut nodes = self.lock();
        match nodes.get_mut(name) {
            Some(kept) => kept.clone_from(core),
            None => {
                nodes.insert(name.to_owned(), core.clone());
            }
        }
    }

    /// A node.
    pub fn get(&self, name: &str) -> Option<NodeCore> {
        self.lock().get(name).cloned()
    }

    /// Reads a node's core without copying it. `None`: it does not exist.
    pub fn look<T>(&self, name: &str, at: impl FnOnce(&NodeCore) -> T) -> Option<T> {
        self.lock().get(name).map(at)
    }

    /// All names.
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Forgets a node.
    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }
}
