//! Import cycles.

use crate::Edges;
use std::collections::{BTreeMap, BTreeSet};

/// A shortest circle that leads through one of these, which is at both its ends. `None`: there is none.
pub fn circle(edges: &Edges, through: &BTreeSet<String>) -> Option<Vec<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    edges.keys().for_each(|(from, to)| _ = next.entry(from).or_default().insert(to));
    let all = through.iter().filter_map(|at| way_back(&next, at));
    all.min_by_key(Vec::len).map(|way| way.into_iter().map(str::to_owned).collect())
}

/// A shortest way from there and back.
fn way_back<'e>(next: &BTreeMap<&'e str, BTreeSet<&'e str>>, home: &'e str) -> Option<Vec<&'e str>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut row = vec![home];
    while !row.is_empty() {
        let mut later = Vec::new();
        for at in row {
            for there in next.get(at).into_iter().flatten().copied() {
                if there == home {
                    let mut way = vec![home, at];
                    while let Some(earlier) = way.last().and_then(|at| before.get(at)) {
                        way.push(earlier);
                    }
                    way.reverse();
                    return Some(way);
                }
                if !before.contains_key(there) {
                    before.insert(there, at);
                    later.push(there);
                }
            }
        }
        row = later;
    }
    None
}

/// Imports without which the others lead through none of these in a circle: one of each shortest circle, that which most
/// others have in common.
pub fn against(edges: &Edges, through: &BTreeSet<String>) -> Vec<(String, String)> {
    let mut left = edges.clone();
    let mut all = Vec::new();
    while let Some(way) = circle(&left, through) {
        let steps = way.windows(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        // Few import from what is above: the fewer do, the more likely is that import the wrong one.
        let weight = |(from, to): &(String, String)| {
            let into = left.keys().filter(|(_, other)| other == to).count();
            let out = left.keys().filter(|(other, _)| other == from).count();
            (into, usize::MAX - out)
        };
        let Some(edge) = steps.min_by_key(weight) else { break };
        left.remove(&edge);
        all.push(edge);
    }
    all
}
