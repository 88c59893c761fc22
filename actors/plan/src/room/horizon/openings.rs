//! When single nodes have enough free: for requests that need certain nodes or combinations of nodes.

use super::{Horizon, Query, Sought, first_window};
use crate::snapshot::{
    facts::NEVER,
    request::{Part, Request},
};
use fixedbitset::FixedBitSet;
use garrick_model::time::Timestamp;
use std::time::Duration;

/// Nodes that have enough free for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    /// From when on, for the requested time.
    pub begin: Timestamp,
    /// Since when that much is free.
    pub since: Timestamp,
    /// Their weight.
    pub weight: u64,
    /// Nodes by index, ascending.
    pub nodes: Vec<usize>,
}

impl Horizon {
    /// From when on, between `from` and `until`, each of the candidates has room for `level` during `length`. Nodes without such
    /// a time are left out. A node that has room at one time may have lost it at a later one.
    pub(crate) fn openings(
        &self,
        request: &Request,
        candidates: &FixedBitSet,
        level: Part,
        (from, until): (Timestamp, Timestamp),
        length: Duration,
    ) -> Vec<Opening> {
        let query = Query { request, candidates, length };
        let mut openings = Vec::new();
        for class in self.classes.iter().filter(|class| !class.members.is_empty()) {
            let kind = &self.kinds[class.kind as usize];
            if !Self::takes(kind, &query) {
                continue;
            }
            if let Some((begin, since)) = Sought::on(kind, &query, level).window(class, (from, until)) {
                let members = class.members.iter().map(|node| *node as usize).filter(|node| candidates.contains(*node));
                openings.push(Opening { begin, since, weight: kind.weight, nodes: members.collect() });
            }
        }
        openings
    }

    /// From when on, not before `from`, the node is idle for `length`.
    pub(crate) fn idle_from(&self, node: usize, from: Timestamp, length: Duration) -> Option<Timestamp> {
        let brief = &self.classes[self.class_of(node)].brief;
        first_window(brief, |place| brief[place].is_idle(), (from, NEVER), length).map(|(begin, _)| begin)
    }

    /// The time at which the horizon begins.
    pub const fn begins(&self) -> Timestamp {
        self.now
    }
}
