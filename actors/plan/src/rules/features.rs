//! Which nodes a request could ever use.

use crate::snapshot::{
    changes::{Fact, Reads},
    constraint::Wish,
    extra::Extra,
    facts::ClusterView,
    request::Request,
};
use fixedbitset::FixedBitSet;
use garrick_model::{ids::NodeIndex, view::NodeView};
use serde_json::Value;
use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap},
    rc::Rc,
    sync::Arc,
};

/// What the rule reads.
pub(crate) const READS: Reads = Reads::only("features", |_| &[Fact::Policy, Fact::Partitions]);

pub(crate) fn node_names(view: &ClusterView) -> HashMap<&str, NodeIndex> {
    view.nodes.iter().map(|n| (n.name.as_str(), n.index)).collect()
}

/// Candidate nodes by constraint, computed once a pass.
#[derive(Clone)]
pub(crate) struct Features<'a> {
    by_feature: BTreeMap<String, FixedBitSet>,
    known: HashMap<String, Option<FixedBitSet>>,
    by_extra: HashMap<String, FixedBitSet>,
    /// Each node's `Extra` data, parsed when it is first needed.
    said: OnceCell<Rc<Vec<Option<Value>>>>,
    /// Made when a job first names a node.
    names: OnceCell<HashMap<&'a str, NodeIndex>>,
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
        Self {
            by_feature,
            known: HashMap::new(),
            by_extra: HashMap::new(),
            said: OnceCell::new(),
            names: OnceCell::new(),
            view,
        }
    }

    /// The place of a node that a job names.
    pub fn index(&self, name: &str) -> Option<NodeIndex> {
        self.names.get_or_init(|| node_names(self.view)).get(name).copied()
    }

    /// Nodes of the partition that the request could ever use. A malformed expression matches no node.
    pub(crate) fn candidates(&mut self, request: &Request) -> FixedBitSet {
        let mut nodes = self.with_features(request);
        if let Some(text) = &request.extra {
            if !self.by_extra.contains_key(text) {
                let fitting = self.with_extra(text);
                self.by_extra.insert(text.clone(), fitting);
            }
            self.by_extra.get(text).into_iter().for_each(|fitting| nodes.intersect_with(fitting));
        }
        nodes
    }

    fn with_extra(&self, text: &str) -> FixedBitSet {
        let mut fitting = FixedBitSet::with_capacity(self.view.nodes.len());
        if let Ok(extra) = Extra::parse(text) {
            let says = |node: &Arc<NodeView>| serde_json::from_str(node.extra.as_deref()?).ok();
            let said = self.said.get_or_init(|| Rc::new(self.view.nodes.iter().map(says).collect()));
            let fits = |said: &Option<Value>| said.as_ref().is_some_and(|said| extra.fits(said));
            fitting.extend(said.iter().enumerate().filter(|(_, said)| fits(said)).map(|(place, _)| place));
        }
        fitting
    }

    fn with_features(&mut self, request: &Request) -> FixedBitSet {
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
