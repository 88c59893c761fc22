//! Which nodes a request could ever use.

use crate::scheduler::{constraint::Wish, facts::ClusterView, request::Request};
use fixedbitset::FixedBitSet;
use garrick_model::ids::NodeIndex;
use std::collections::{BTreeMap, HashMap};

pub(in crate::scheduler) fn node_names(view: &ClusterView) -> HashMap<&str, NodeIndex> {
    view.nodes.iter().map(|n| (n.name.as_str(), n.index)).collect()
}

/// Candidate nodes by constraint, computed once a pass.
#[derive(Clone)]
pub(in crate::scheduler) struct Features<'a> {
    by_feature: BTreeMap<String, FixedBitSet>,
    known: HashMap<String, Option<FixedBitSet>>,
    view: &'a ClusterView,
}

impl<'a> Features<'a> {
    pub fn new(view: &'a ClusterView) -> Self {
        let mut by_feature: BTreeMap<String, FixedBitSet> = BTreeMap::new();
        for (place, node) in view.nodes.iter().enumerate() {
            for feature in &node.features {
                match by_feature.get_mut(feature) {
                    Some(set) => set.insert(place),
                    None => {
                        let mut set = FixedBitSet::with_capacity(view.nodes.len());
                        set.insert(place);
                        by_feature.insert(feature.clone(), set);
                    }
                }
            }
        }
        Self { by_feature, known: HashMap::new(), view }
    }

    /// Nodes of the partition that the request could ever use. An expression that is not one has no nodes.
    pub fn candidates(&mut self, request: &Request) -> FixedBitSet {
        let members = &self.view.partitions[request.partition].nodes;
        let Some(text) = &request.constraint else { return request.candidates(members, None) };
        if !self.known.contains_key(text) {
            let nodes = Wish::parse(text).ok().map(|c| c.nodes(&self.by_feature, self.view.nodes.len()));
            self.known.insert(text.clone(), nodes);
        }
        match self.known.get(text) {
            Some(Some(nodes)) => request.candidates(members, Some(nodes)),
            _ => FixedBitSet::with_capacity(members.len()),
        }
    }
}
