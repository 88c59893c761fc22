//! Amounts of trackable resources (TRES), as accounting keeps them.

use garrick_model::resources::MemoryMib;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Amounts by Slurm's names, in the order of the names, as `sacct` prints them: `billing`, `cpu`, `gres/gpu`, `license/matlab`,
/// `mem` (MiB), `node`. Nothing is kept of what there is nothing of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tres(BTreeMap<String, u64>);

/// The name for CPUs.
pub const CPU: &str = "cpu";
/// The name for memory, MiB.
pub const MEM: &str = "mem";
/// The name for nodes.
pub const NODE: &str = "node";
/// The name for joules: not an amount that is had for a time.
pub const ENERGY: &str = "energy";
/// The name for what is billed.
pub const BILLING: &str = "billing";

impl Tres {
    /// So many of a name; 0 where there are none.
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Sets an amount; 0 takes it out.
    pub fn set(&mut self, name: &str, count: u64) {
        if count == 0 {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), count);
        }
    }

    /// Adds to an amount.
    pub fn add(&mut self, name: &str, count: u64) {
        self.set(name, self.count(name).saturating_add(count));
    }

    /// Keeps the amounts of names for which that holds.
    pub fn retain(&mut self, holds: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| holds(name));
    }

    /// Names and amounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// There is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<(&'a str, u64)> for Tres {
    fn from_iter<I: IntoIterator<Item = (&'a str, u64)>>(amounts: I) -> Self {
        let mut tres = Self::default();
        amounts.into_iter().for_each(|(name, count)| tres.add(name, count));
        tres
    }
}

/// `billing=4,cpu=4,mem=2G,node=1`, as sacct(1) shows `AllocTRES`.
impl fmt::Display for Tres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, count)) in self.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match name {
                MEM => write!(f, "{comma}{name}={}", MemoryMib(count))?,
                _ => write!(f, "{comma}{name}={count}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_print_in_the_order_of_their_names() {
        let tres: Tres = [(NODE, 1), (CPU, 2), (CPU, 2), (MEM, 2048), ("gres/gpu", 0)].into_iter().collect();
        assert_eq!(tres.to_string(), "cpu=4,mem=2G,node=1");
        assert_eq!((tres.count(CPU), tres.count("gres/gpu")), (4, 0));
    }
}
