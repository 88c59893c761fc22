//! Watches for the ends (or starts) of named steps, for `swait` and for dependencies. The number of outstanding steps is counted
//! once and then decremented, so that an end costs a look-up however many steps were named.

use garrick_model::{
    ids::{StepKey, StepNum},
    step_selector::WhichSteps,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

/// Names with more numbers than this are tested one by one instead of being found by number.
const INDEXED: u64 = 256;

/// Which watchers wait for which steps.
#[derive(Clone, Debug)]
pub struct Lookouts<W> {
    by_number: BTreeMap<u32, BTreeSet<W>>,
    wide: BTreeSet<W>,
}

impl<W> Default for Lookouts<W> {
    fn default() -> Self {
        Self { by_number: BTreeMap::new(), wide: BTreeSet::new() }
    }
}

fn numbers(steps: &[WhichSteps]) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for named in steps {
        match named {
            WhichSteps::All => return None,
            WhichSteps::Special(_) => {}
            WhichSteps::Numbers(numbers) if u64::from(numbers.count()) > INDEXED => return None,
            WhichSteps::Numbers(numbers) => all.extend(numbers.indices()),
            WhichSteps::Tasks { step, .. } => all.push(*step),
        }
    }
    Some(all)
}

impl<W: Copy + Ord + Debug> Lookouts<W> {
    /// `who` waits for these.
    pub fn add(&mut self, who: W, steps: &[WhichSteps]) {
        match numbers(steps) {
            None => {
                self.wide.insert(who);
            }
            Some(numbers) => numbers.into_iter().for_each(|n| {
                self.by_number.entry(n).or_default().insert(who);
            }),
        }
    }

    /// `who`, who named these, no longer waits.
    pub fn remove(&mut self, who: W, steps: &[WhichSteps]) {
        self.wide.remove(&who);
        for n in numbers(steps).into_iter().flatten() {
            if let Some(all) = self.by_number.get_mut(&n) {
                all.remove(&who);
                if all.is_empty() {
                    self.by_number.remove(&n);
                }
            }
        }
    }

    /// Watchers that may have named this step: each has to check whether it really did.
    pub fn of(&self, step: StepKey) -> Vec<W> {
        if self.wide.is_empty() && self.by_number.is_empty() {
            return Vec::new();
        }
        let StepNum::Number(n) = step.step else { return Vec::new() };
        self.by_number.get(&n).into_iter().flatten().chain(&self.wide).copied().collect()
    }
}
