//! Equal environments and shapes of steps, stored once. A script that starts a thousand steps passes the same environment a
//! thousand times; stored once, it is completed once and sent to a launcher once.

use crate::stepmgr::{env, run::RunFacts, shape::StepShape};
use garrick_model::spec::EnvEntry;
use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

/// Entries that are kept although no step uses them; above that they are dropped.
const KEPT: usize = 64;

/// Environments as passed on, with the result for this job.
#[derive(Debug, Default)]
pub struct Environments {
    hasher: RandomState,
    known: HashMap<u64, Known>,
}

#[derive(Debug)]
struct Known {
    passed_on: Vec<EnvEntry>,
    complete: Arc<Vec<EnvEntry>>,
}

impl Environments {
    /// The first layer of environment for steps that pass this on.
    pub fn get(&mut self, facts: &RunFacts, passed_on: &[EnvEntry]) -> Arc<Vec<EnvEntry>> {
        let hash = self.hasher.hash_one(passed_on);
        if let Some(known) = self.known.get(&hash)
            && known.passed_on == passed_on
        {
            return known.complete.clone();
        }
        if self.known.len() >= KEPT {
            self.known.retain(|_, k| Arc::strong_count(&k.complete) > 1);
        }
        let complete = Arc::new(env::job_environment(facts, passed_on));
        self.known.insert(hash, Known { passed_on: passed_on.to_vec(), complete: complete.clone() });
        complete
    }
}

/// Shapes of steps.
#[derive(Debug, Default)]
pub struct Shapes {
    known: HashSet<Arc<StepShape>>,
}

impl Shapes {
    /// The stored shape that equals this one, and whether it was known (so it was found feasible before).
    pub fn get(&mut self, shape: StepShape) -> (Arc<StepShape>, bool) {
        if let Some(known) = self.known.get(&shape) {
            return (known.clone(), true);
        }
        if self.known.len() >= KEPT {
            self.known.retain(|s| Arc::strong_count(s) > 1);
        }
        (Arc::new(shape), false)
    }

    /// Remembers a shape that was found feasible.
    pub fn keep(&mut self, shape: Arc<StepShape>) {
        self.known.insert(shape);
    }

    /// The job lost a node: feasible shapes may not be feasible any more.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}
