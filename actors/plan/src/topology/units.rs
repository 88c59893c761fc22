//! The smallest units of a topology, and where each node is.

use fixedbitset::FixedBitSet;
use garrick_model::{hostlist::HostList, ids::NodeIndex};

/// Units in the order of the file. A node is in one or in none.
#[derive(Clone, Debug, Default)]
pub struct Units {
    names: Vec<String>,
    nodes: Vec<Vec<usize>>,
    of: Vec<Option<u32>>,
}

impl Units {
    /// From names and their nodes, in a cluster of so many nodes.
    pub fn new<'u>(
        units: impl Iterator<Item = (&'u str, HostList)>,
        count: usize,
        index: &dyn Fn(&str) -> Option<NodeIndex>,
    ) -> Self {
        let mut made = Self { of: vec![None; count], ..Self::default() };
        for (name, nodes) in units {
            let unit = u32::try_from(made.names.len()).unwrap_or(u32::MAX);
            let mut members = Vec::new();
            for place in nodes.iter().filter_map(|name| index(&name)).map(|index| index.0 as usize) {
                if let Some(of @ None) = made.of.get_mut(place) {
                    *of = Some(unit);
                    members.push(place);
                }
            }
            made.names.push(name.to_owned());
            made.nodes.push(members);
        }
        made
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.names.len()
    }

    /// Are there none?
    pub const fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Name of a unit.
    pub fn name(&self, unit: usize) -> &str {
        &self.names[unit]
    }

    /// Nodes of a unit, in the order of the file.
    pub fn nodes(&self, unit: usize) -> &[usize] {
        &self.nodes[unit]
    }

    /// The unit of a node.
    pub fn of(&self, node: usize) -> Option<usize> {
        self.of.get(node).copied().flatten().map(|unit| unit as usize)
    }

    /// How many nodes of the set each unit has.
    pub fn counts(&self, set: &FixedBitSet) -> Vec<u32> {
        let mut counts = vec![0; self.len()];
        for unit in set.ones().filter_map(|node| self.of(node)) {
            counts[unit] += 1;
        }
        counts
    }

    /// Nodes of that unit in the set, required ones first.
    pub fn open<'s>(&'s self, unit: usize, set: &'s FixedBitSet, required: &'s [usize]) -> Vec<usize> {
        let mut open: Vec<usize> = self.nodes[unit].iter().copied().filter(|node| set.contains(*node)).collect();
        if !required.is_empty() {
            open.sort_by_key(|node| !required.contains(node));
        }
        open
    }
}

/// The fewest of `parts` (with the amount of each) that together give `need`, required ones included: the largest ones, and at
/// the end the smallest that is enough for the rest. `None`: all together are not enough.
pub(crate) fn fewest(parts: &[(usize, u64)], required: &[usize], need: u64) -> Option<Vec<usize>> {
    let mut taken: Vec<usize> = Vec::new();
    let mut left = need;
    for (part, gives) in parts.iter().filter(|(part, _)| required.contains(part)) {
        taken.push(*part);
        left = left.saturating_sub(*gives);
    }
    if required.len() != taken.len() {
        return None;
    }
    let mut rest: Vec<(usize, u64)> = parts.iter().copied().filter(|(part, _)| !required.contains(part)).collect();
    rest.sort_by_key(|(part, gives)| (std::cmp::Reverse(*gives), *part));
    let mut rest = rest.into_iter().filter(|(_, gives)| *gives > 0).peekable();
    while left > 0 {
        let (part, gives) = rest.next()?;
        if gives < left {
            taken.push(part);
            left -= gives;
            continue;
        }
        // Descending: the last one that is still enough.
        let mut last = part;
        while let Some((smaller, _)) = rest.next_if(|(_, gives)| *gives >= left) {
            last = smaller;
        }
        taken.push(last);
        left = 0;
    }
    Some(taken)
}
