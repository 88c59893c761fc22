//! Which nodes are near each other, and which of the free ones a job may get because of that. Pure: all input is in the
//! arguments. Called by [`room`](crate::room); `garrick-model`'s `config` reads the files.
//!
//! | part | what it decides |
//! |---|---|
//! | [`tree`] | the lowest switch with room, and few leaf switches below it |
//! | [`block`] | whole segments inside blocks, large blocks kept whole |
//! | [`ring`] | arcs of rings |
//! | [`torus`] | boxes of tori, of the shapes that the site allows |
//!
//! Without a topology (`topology/flat`) nothing here is called.

pub mod block;
pub mod ring;
pub mod torus;
pub mod tree;
mod units;

#[cfg(test)]
mod tests;

pub use units::Units;

use fixedbitset::FixedBitSet;
use garrick_model::{
    config::Config,
    ids::NodeIndex,
    topology::{Layout, NamedTopology},
};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// What a request needs of the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// Nodes: at least these for a tree, exactly these for all others.
    pub nodes: u32,
    /// Tasks that the nodes have to hold together; 0: not considered.
    pub tasks: u64,
    /// `--segment`
    pub segment: Option<u32>,
    /// `--spread-segments`
    pub spread: bool,
    /// `--consolidate-segments`
    pub consolidate: bool,
    /// `--switches`: no more leaf switches than these.
    pub switches: Option<u32>,
    /// Nodes that have to be among them.
    pub required: Vec<usize>,
    /// The caller may reject offers for other reasons than a lack of resources, so all of them must be offered.
    pub all_offers: bool,
}

impl Want {
    /// How many segments of which size; `None`: the number of nodes is not divisible by the requested size. A request that fits
    /// into one segment has none (`sbatch(1)`, `--segment`).
    pub fn segments(&self) -> Option<(u32, u32)> {
        match self.segment.filter(|size| *size > 0 && *size < self.nodes) {
            None => Some((1, self.nodes)),
            Some(size) if self.nodes.is_multiple_of(size) => Some((self.nodes / size, size)),
            Some(_) => None,
        }
    }
}

/// The available nodes.
#[derive(Clone, Copy)]
pub struct Room<'r> {
    /// Nodes that the request could ever use: they decide how large a block is for it.
    pub members: &'r FixedBitSet,
    /// Those with room for it.
    pub open: &'r FixedBitSet,
    /// Tasks that fit on each node of `open`, by place; empty where [`Want::tasks`] is 0.
    pub tasks: &'r [u32],
}

/// Nodes that a topology offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Any of these, as many as the request needs.
    Among(FixedBitSet),
    /// These, in this order.
    These(Vec<usize>),
}

/// A network topology.
///
/// The set of offers only grows with the set of open nodes: the planner relies on that when it searches the earliest time.
pub trait Topology: fmt::Debug + Send + Sync {
    /// Offers nodes, the best ones first, until `take` returns true. Returns whether it did.
    fn offer(&self, want: &Want, room: Room<'_>, take: &mut dyn FnMut(Offer) -> bool) -> bool;

    /// Leaf switches, blocks, rings or tori: what `--exclusive=topo` is about.
    fn units(&self) -> &Units;

    /// Nodes of the parts that should stay whole, by level, the smallest first: units, and groups of several units.
    fn wholes(&self) -> Vec<Vec<Vec<usize>>> {
        let units = self.units();
        vec![(0..units.len()).map(|unit| units.nodes(unit).to_vec()).collect()]
    }

    /// Counts of nodes, ascending, that a request for `least` to `most` of them may have; `None`: any.
    fn counts(&self, _want: &Want, _least: u32, _most: u32) -> Option<Vec<u32>> {
        None
    }

    /// May nodes hold different numbers of tasks? If not, each of them has to hold the even share.
    fn mixes(&self) -> bool {
        false
    }

    /// Names from the top switch down to the leaf and the node, and the pattern of these names: `SLURM_TOPOLOGY_ADDR` and its
    /// pattern.
    fn address(&self, _node: usize) -> Option<(String, String)> {
        None
    }
}

/// The topologies of a cluster, by name.
#[derive(Clone, Debug, Default)]
pub struct Topologies {
    by_name: BTreeMap<String, Arc<dyn Topology>>,
    default: Option<Arc<dyn Topology>>,
    /// Nodes of one leaf switch or base block have one rank (`SwitchAsNodeRank`, `BlockAsNodeRank`).
    by_unit: bool,
    /// Only jobs that ask for it are bound to the topology (`TopoOptional`).
    optional: bool,
    source: Vec<NamedTopology>,
}

impl PartialEq for Topologies {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source && (self.by_unit, self.optional) == (other.by_unit, other.optional)
    }
}

impl Eq for Topologies {}

impl Topologies {
    /// From a checked configuration. Unknown nodes are left out.
    pub fn new(config: &Config) -> Self {
        if config.topologies.is_empty() {
            return Self::default();
        }
        let index = |name: &str| config.node(name).map(|node| node.index);
        let mut made = Self::of(&config.topologies, config.node_places(), &index);
        let is = |word: &str, plugin: &str| {
            config.topology_param.has(word) && config.default_topology().is_some_and(|t| t.layout.plugin() == plugin)
        };
        made.by_unit = is("SwitchAsNodeRank", "tree") || is("BlockAsNodeRank", "block");
        made.optional = config.topology_param.has("TopoOptional");
        made
    }

    /// Over so many nodes.
    pub fn of(topologies: &[NamedTopology], nodes: usize, index: &dyn Fn(&str) -> Option<NodeIndex>) -> Self {
        let mut made = Self { source: topologies.to_vec(), ..Self::default() };
        let default = topologies.iter().find(|t| t.cluster_default).or_else(|| topologies.first());
        for topology in topologies {
            let Some(built) = build(&topology.layout, nodes, index) else { continue };
            if default.is_some_and(|d| d.name == topology.name) {
                made.default = Some(Arc::clone(&built));
            }
            made.by_name.insert(topology.name.clone(), built);
        }
        made
    }

    /// The topology of a partition whose `Topology=` is this; `None`: all nodes are equally near.
    pub fn get(&self, named: Option<&str>) -> Option<&Arc<dyn Topology>> {
        named.map_or(self.default.as_ref(), |name| self.by_name.get(name))
    }

    /// Are jobs free of the topology unless they request switches or segments?
    pub(crate) const fn optional(&self) -> bool {
        self.optional
    }

    /// The first sort key of an allocation's nodes, before their position in the configuration.
    pub fn rank(&self, node: usize) -> u32 {
        let unit = self.default.as_ref().filter(|_| self.by_unit).and_then(|t| t.units().of(node));
        unit.map_or(0, |unit| u32::try_from(unit).unwrap_or(u32::MAX))
    }

    /// Is there no topology?
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

fn build(layout: &Layout, nodes: usize, index: &dyn Fn(&str) -> Option<NodeIndex>) -> Option<Arc<dyn Topology>> {
    Some(match layout {
        Layout::Flat { .. } => return None,
        Layout::Tree { switches } => Arc::new(tree::Tree::new(switches, nodes, index)),
        Layout::Block { sizes, blocks } => Arc::new(block::Blocks::new(sizes, blocks, nodes, index)),
        Layout::Ring { rings } => Arc::new(ring::Rings::new(rings, nodes, index)),
        Layout::Torus3d { toruses } => Arc::new(torus::Tori::new(toruses, nodes, index)),
    })
}
