//! `topology/tree`: the lowest switch in the hierarchy that can satisfy a request, then as few leaf switches below it as
//! possible, best fit (Slurm's topology guide). Switches without a common one above them are never combined.

use super::{Offer, Room, Topology, Units, Want, units::fewest};
use fixedbitset::FixedBitSet;
use garrick_model::{ids::NodeIndex, topology::Switch};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
};

/// A tree of switches.
#[derive(Debug)]
pub struct Tree {
    leaves: Units,
    /// Ascending height.
    subtrees: Vec<Subtree>,
    /// Names from the top to each leaf, and their number.
    paths: Vec<(String, usize)>,
}

#[derive(Debug)]
struct Subtree {
    /// 0 for a leaf.
    height: u32,
    leaves: Vec<usize>,
}

impl Tree {
    /// From checked switches. A switch below several others counts as below the first of them for its address; for placement,
    /// each of those contains it.
    pub fn new(switches: &[Switch], nodes: usize, index: &dyn Fn(&str) -> Option<NodeIndex>) -> Self {
        let leaf_switches: Vec<&Switch> = switches.iter().filter(|s| s.children.is_empty()).collect();
        let leaves = Units::new(leaf_switches.iter().map(|s| (s.name.as_str(), s.nodes.clone())), nodes, index);
        let by_name: HashMap<&str, usize> = switches.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
        let leaf_of: HashMap<&str, usize> =
            leaf_switches.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
        let mut known: Vec<Option<(u32, BTreeSet<usize>)>> = vec![None; switches.len()];
        let mut parent: Vec<Option<usize>> = vec![None; switches.len()];
        // Children before their parents: one round for each level of the tree.
        let mut waiting: Vec<usize> = (0..switches.len()).collect();
        while !waiting.is_empty() {
            let before = waiting.len();
            waiting.retain(|&at| {
                let switch = &switches[at];
                if let Some(leaf) = leaf_of.get(switch.name.as_str()) {
                    known[at] = Some((0, BTreeSet::from([*leaf])));
                    return false;
                }
                let children: Vec<usize> =
                    switch.children.iter().filter_map(|c| by_name.get(c.as_str()).copied()).collect();
                let Some(below) = children.iter().map(|c| known[*c].clone()).collect::<Option<Vec<_>>>() else {
                    return true;
                };
                for child in children {
                    parent[child].get_or_insert(at);
                }
                let height = below.iter().map(|(height, _)| height + 1).max().unwrap_or(0);
                known[at] = Some((height, below.into_iter().flat_map(|(_, leaves)| leaves).collect()));
                false
            });
            // A cycle: reading the file has refused those.
            if waiting.len() == before {
                break;
            }
        }
        let paths = leaf_switches
            .iter()
            .map(|leaf| {
                let mut names = vec![leaf.name.as_str()];
                let mut at = by_name.get(leaf.name.as_str()).copied();
                while let Some(above) = at.and_then(|at| parent[at]) {
                    names.push(&switches[above].name);
                    at = Some(above);
                }
                names.reverse();
                (names.join("."), names.len())
            })
            .collect();
        let mut seen = BTreeSet::new();
        let mut subtrees: Vec<Subtree> = known
            .into_iter()
            .flatten()
            .filter(|known| seen.insert(known.clone()))
            .map(|(height, leaves)| Subtree { height, leaves: leaves.into_iter().collect() })
            .collect();
        subtrees.sort_by_key(|subtree| subtree.height);
        Self { leaves, subtrees, paths }
    }
}

/// A way to serve a request, best first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    height: u32,
    leaves: usize,
    /// Open nodes below the switch: the fewest are preferred, so that large switches stay whole.
    open: u64,
    subtree: usize,
}

impl Topology for Tree {
    fn offer(&self, want: &Want, room: Room<'_>, take: &mut dyn FnMut(Offer) -> bool) -> bool {
        let nodes: Vec<u64> = self.leaves.counts(room.open).into_iter().map(u64::from).collect();
        let mut tasks = vec![0u64; self.leaves.len()];
        if want.tasks > 0 {
            for node in room.open.ones() {
                if let Some(leaf) = self.leaves.of(node) {
                    tasks[leaf] += u64::from(room.tasks.get(node).copied().unwrap_or(0));
                }
            }
        }
        let Some(required) = want.required.iter().map(|n| self.leaves.of(*n)).collect::<Option<BTreeSet<usize>>>()
        else {
            return false;
        };
        let required: Vec<usize> = required.into_iter().collect();
        let most = want.switches.map_or(usize::MAX, |n| n as usize);
        let mut ways: Vec<(Way, Vec<usize>)> = Vec::new();
        for (number, subtree) in self.subtrees.iter().enumerate() {
            let sum = |of: &[u64]| subtree.leaves.iter().map(|leaf| of[*leaf]).sum::<u64>();
            let open = sum(&nodes);
            if open < u64::from(want.nodes) || sum(&tasks) < want.tasks {
                continue;
            }
            let parts = |of: &[u64]| subtree.leaves.iter().map(|leaf| (*leaf, of[*leaf])).collect::<Vec<_>>();
            let Some(mut chosen) = fewest(&parts(&nodes), &required, u64::from(want.nodes).max(1)) else { continue };
            if chosen.iter().map(|leaf| tasks[*leaf]).sum::<u64>() < want.tasks {
                let Some(more) = fewest(&parts(&tasks), &required, want.tasks) else { continue };
                chosen = more;
                // Few nodes with many tasks: take the leaves with most open nodes for the rest.
                let mut rest: Vec<usize> = subtree.leaves.iter().copied().filter(|l| !chosen.contains(l)).collect();
                rest.sort_by_key(|leaf| Reverse(nodes[*leaf]));
                for leaf in rest {
                    if chosen.iter().map(|leaf| nodes[*leaf]).sum::<u64>() >= u64::from(want.nodes) {
                        break;
                    }
                    chosen.push(leaf);
                }
            }
            if chosen.len() <= most {
                let way = Way { height: subtree.height, leaves: chosen.len(), open, subtree: number };
                ways.push((way, chosen));
            }
        }
        ways.sort();
        let among = |leaves: &[usize]| {
            let mut set = FixedBitSet::with_capacity(room.open.len());
            leaves.iter().for_each(|leaf| set.extend(self.leaves.nodes(*leaf).iter().copied()));
            set.intersect_with(room.open);
            Offer::Among(set)
        };
        for (way, chosen) in &ways {
            if take(among(chosen)) {
                return true;
            }
            // The chosen leaves were enough in sum only: try a few more leaves, then all that are allowed.
            let mut more = self.subtrees[way.subtree].leaves.clone();
            more.sort_by_key(|leaf| (!chosen.contains(leaf), Reverse(nodes[*leaf])));
            more.truncate(most);
            if more.len() > chosen.len() && take(among(&more)) {
                return true;
            }
        }
        false
    }

    fn units(&self) -> &Units {
        &self.leaves
    }

    fn mixes(&self) -> bool {
        true
    }

    fn address(&self, node: usize) -> Option<(String, String)> {
        let (path, switches) = &self.paths[self.leaves.of(node)?];
        // A name may contain dots, but each switch is one component of the pattern.
        Some((path.clone(), "switch.".repeat(*switches) + "node"))
    }
}
