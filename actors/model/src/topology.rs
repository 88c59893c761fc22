//! Network topologies as configured: switches, blocks, rings and tori over node names, in the words of `topology.conf(5)` and
//! `topology.yaml(5)`. What they mean for the choice of nodes is the scheduler's; see `garrick-actors`' `topology`.

mod place;

use crate::hostlist::HostList;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of the topology that `topology.conf` describes.
pub const CONF_NAME: &str = "default";

/// A topology with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedTopology {
    /// `topology`: what `Topology=` of a partition names.
    pub name: String,
    /// `cluster_default`: for partitions that name none.
    #[serde(default)]
    pub cluster_default: bool,
    /// What it is made of.
    pub layout: Layout,
    /// Line in its file; 0: not known.
    #[serde(skip)]
    pub line: u32,
}

/// The kinds of topologies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// `topology/flat`: all nodes are equally near.
    Flat {
        /// `alpha_step_rank`
        #[serde(default)]
        alpha_step_rank: bool,
    },
    /// `topology/tree`
    Tree {
        /// In the order of the file.
        switches: Vec<Switch>,
    },
    /// `topology/block`
    Block {
        /// `BlockSizes`: nodes of a base block, then of each level above that is enforced.
        sizes: Vec<u32>,
        /// In the order of the file: neighbours there are neighbours.
        blocks: Vec<Unit>,
    },
    /// `topology/ring`
    Ring {
        /// Nodes in ring order.
        rings: Vec<Unit>,
    },
    /// `topology/torus3d`
    Torus3d {
        /// In the order of the file.
        toruses: Vec<Torus>,
    },
}

/// A switch: a leaf with nodes, or one with switches below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// Name.
    pub name: String,
    /// `Switches`
    #[serde(default)]
    pub children: HostList,
    /// `Nodes`
    #[serde(default)]
    pub nodes: HostList,
    /// Line in its file.
    #[serde(skip)]
    pub line: u32,
}

/// A block or a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Name.
    pub name: String,
    /// `Nodes`; a block may have none (a place that is kept for one).
    #[serde(default)]
    pub nodes: HostList,
    /// Line in its file.
    #[serde(skip)]
    pub line: u32,
}

/// Three numbers along x, y and z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Xyz {
    /// Along x, which varies fastest.
    pub x: u32,
    /// Along y.
    pub y: u32,
    /// Along z.
    pub z: u32,
}

impl Xyz {
    /// Cells of a box of this size.
    pub fn cells(self) -> u64 {
        u64::from(self.x) * u64::from(self.y) * u64::from(self.z)
    }
}

impl fmt::Display for Xyz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}x{}x{}", self.x, self.y, self.z))
    }
}

/// A torus in three dimensions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Torus {
    /// Name.
    pub name: String,
    /// `dims`
    pub dims: Xyz,
    /// Nodes of parts of it; one region over all of it when the file gives a plain list.
    pub regions: Vec<Region>,
    /// `placements`: the only shapes that jobs get.
    pub placements: Vec<Placement>,
    /// Line in its file.
    #[serde(skip)]
    pub line: u32,
}

/// A box of a torus with its nodes, x varying fastest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Its first corner.
    #[serde(default)]
    pub anchor: Xyz,
    /// Its size.
    pub dims: Xyz,
    /// Nodes.
    pub nodes: HostList,
}

/// A shape that jobs may get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Size.
    pub dims: Xyz,
    /// `anchor_seed`: where the grid of corners begins.
    #[serde(default)]
    pub seed: Xyz,
    /// `anchor_spacing`: steps of that grid.
    pub spacing: Xyz,
}

impl Layout {
    /// The plugin's name after `topology/`.
    pub const fn plugin(&self) -> &'static str {
        match self {
            Self::Flat { .. } => "flat",
            Self::Tree { .. } => "tree",
            Self::Block { .. } => "block",
            Self::Ring { .. } => "ring",
            Self::Torus3d { .. } => "torus3d",
        }
    }

    /// What a unit is called in messages and in host list functions.
    pub const fn unit_word(&self) -> &'static str {
        match self {
            Self::Flat { .. } => "node",
            Self::Tree { .. } => "switch",
            Self::Block { .. } => "block",
            Self::Ring { .. } => "ring",
            Self::Torus3d { .. } => "torus",
        }
    }

    /// Names of the units that hold nodes themselves (leaf switches, blocks, rings, tori), with those nodes.
    pub fn holders(&self) -> Vec<(&str, HostList)> {
        let unit = |unit: &'_ Unit| -> HostList { unit.nodes.clone() };
        match self {
            Self::Flat { .. } => Vec::new(),
            Self::Tree { switches } => switches.iter().map(|s| (s.name.as_str(), s.nodes.clone())).collect(),
            Self::Block { blocks: units, .. } | Self::Ring { rings: units } => {
                units.iter().map(|u| (u.name.as_str(), unit(u))).collect()
            }
            Self::Torus3d { toruses } => toruses.iter().map(|t| (t.name.as_str(), t.nodes())).collect(),
        }
    }

    /// All nodes of a unit, those of switches below it included; `None`: there is no such unit.
    pub fn nodes_of(&self, unit: &str) -> Option<HostList> {
        let Self::Tree { switches } = self else {
            return self.holders().into_iter().find(|(name, _)| *name == unit).map(|(_, nodes)| nodes);
        };
        let named = |name: &str| switches.iter().find(|s| s.name == name);
        let mut nodes = HostList::new();
        let mut seen = Vec::new();
        let mut open = vec![named(unit)?];
        while let Some(switch) = open.pop() {
            if seen.contains(&switch.name.as_str()) {
                continue;
            }
            seen.push(&switch.name);
            nodes.append(switch.nodes.clone());
            let mut below: Vec<&Switch> = switch.children.iter().filter_map(|child| named(&child)).collect();
            below.reverse();
            open.extend(below);
        }
        Some(nodes)
    }

    /// Nodes of the leaf switch, block, ring or torus that the node is in.
    pub fn nodes_with(&self, node: &str) -> Option<HostList> {
        self.holders().into_iter().map(|(_, nodes)| nodes).find(|nodes| nodes.iter().any(|name| name == node))
    }
}

impl Torus {
    /// All nodes, region by region.
    pub fn nodes(&self) -> HostList {
        let mut nodes = HostList::new();
        self.regions.iter().for_each(|region| nodes.append(region.nodes.clone()));
        nodes
    }
}
