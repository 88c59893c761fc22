//! `topology.yaml`: a list of named topologies.

use super::conf::at;
use crate::{
    config::syntax::{
        report::{ConfigReport, Place, SettingError},
        yaml::{entries, line_of},
    },
    hostlist::HostList,
    topology::{Layout, NamedTopology, Placement, Region, Switch, Torus, Unit, Xyz},
};
use serde::Deserialize;
use serde_saphyr::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    topology: Spanned<String>,
    #[serde(default)]
    cluster_default: bool,
    flat: Option<Flat>,
    tree: Option<Tree>,
    block: Option<Block>,
    ring: Option<Ring>,
    torus3d: Option<Torus3d>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Flat {
    Is(bool),
    With(FlatOptions),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlatOptions {
    #[serde(default)]
    alpha_step_rank: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tree {
    switches: Vec<SwitchEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchEntry {
    switch: Spanned<String>,
    children: Option<Spanned<String>>,
    nodes: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    block_sizes: Vec<u32>,
    blocks: Vec<BlockEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockEntry {
    block: Spanned<String>,
    nodes: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ring {
    rings: Vec<RingEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RingEntry {
    ring: Spanned<String>,
    nodes: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Torus3d {
    toruses: Vec<TorusEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TorusEntry {
    name: Spanned<String>,
    dims: Xyz,
    nodes: Option<Spanned<String>>,
    #[serde(default)]
    regions: Vec<RegionEntry>,
    #[serde(default)]
    placements: Vec<PlacementEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionEntry {
    anchor: Xyz,
    dims: Xyz,
    nodes: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlacementEntry {
    dims: Xyz,
    anchor_seed: Option<Xyz>,
    anchor_spacing: Option<Xyz>,
}

/// What the text says; what is wrong with it goes into the report.
pub(super) fn read(text: &str, file: &Place, report: &mut ConfigReport) -> Vec<NamedTopology> {
    let entries: Vec<Entry> = entries(text, "topology.yaml", "topology", file, report);
    let mut reader = Reader { file, report };
    entries.into_iter().filter_map(|entry| reader.entry(entry)).collect()
}

struct Reader<'r> {
    file: &'r Place,
    report: &'r mut ConfigReport,
}

impl Reader<'_> {
    fn entry(&mut self, entry: Entry) -> Option<NamedTopology> {
        let line = line_of(&entry.topology);
        let what = format!("topology: {}", entry.topology.value);
        let mut layouts = Vec::new();
        match entry.flat {
            Some(Flat::Is(true)) => layouts.push(Layout::Flat { alpha_step_rank: false }),
            Some(Flat::With(options)) => layouts.push(Layout::Flat { alpha_step_rank: options.alpha_step_rank }),
            Some(Flat::Is(false)) | None => {}
        }
        layouts.extend(entry.tree.map(|tree| self.tree(tree)));
        layouts.extend(entry.block.map(|block| Layout::Block {
            sizes: block.block_sizes,
            blocks: block.blocks.into_iter().map(|b| self.unit(b.block, b.nodes)).collect(),
        }));
        layouts.extend(
            entry.ring.map(|ring| Layout::Ring {
                rings: ring.rings.into_iter().map(|r| self.unit(r.ring, r.nodes)).collect(),
            }),
        );
        layouts.extend(
            entry
                .torus3d
                .map(|torus| Layout::Torus3d { toruses: torus.toruses.into_iter().map(|t| self.torus(t)).collect() }),
        );
        if layouts.len() != 1 {
            let wrong = SettingError::new(format!("has {} kinds", layouts.len()))
                .suggest("one of flat, tree, block, ring and torus3d");
            self.report.error(&at(self.file, line), what, wrong);
            return None;
        }
        let layout = layouts.pop()?;
        Some(NamedTopology { name: entry.topology.value, cluster_default: entry.cluster_default, layout, line })
    }

    fn list(&mut self, key: &str, text: Option<&Spanned<String>>) -> HostList {
        let Some(text) = text else { return HostList::new() };
        text.value.parse().unwrap_or_else(|e: crate::hostlist::HostListError| {
            let what = format!("{key}: {}", text.value);
            self.report.error(&at(self.file, line_of(text)), what, SettingError::new(e.to_string()));
            HostList::new()
        })
    }

    fn tree(&mut self, tree: Tree) -> Layout {
        let mut switch = |entry: SwitchEntry| Switch {
            line: line_of(&entry.switch),
            children: self.list("children", entry.children.as_ref()),
            nodes: self.list("nodes", entry.nodes.as_ref()),
            name: entry.switch.value,
        };
        Layout::Tree { switches: tree.switches.into_iter().map(&mut switch).collect() }
    }

    fn unit(&mut self, name: Spanned<String>, nodes: Option<Spanned<String>>) -> Unit {
        Unit { line: line_of(&name), nodes: self.list("nodes", nodes.as_ref()), name: name.value }
    }

    fn torus(&mut self, entry: TorusEntry) -> Torus {
        let line = line_of(&entry.name);
        if entry.nodes.is_some() != entry.regions.is_empty() {
            let wrong = SettingError::new("needs either nodes or regions");
            self.report.error(&at(self.file, line), format!("name: {}", entry.name.value), wrong);
        }
        let mut regions: Vec<Region> = Vec::new();
        if let Some(nodes) = &entry.nodes {
            regions.push(Region { anchor: Xyz::default(), dims: entry.dims, nodes: self.list("nodes", Some(nodes)) });
        }
        for region in &entry.regions {
            let nodes = self.list("nodes", Some(&region.nodes));
            regions.push(Region { anchor: region.anchor, dims: region.dims, nodes });
        }
        let placement = |p: PlacementEntry| Placement {
            dims: p.dims,
            seed: p.anchor_seed.unwrap_or_default(),
            spacing: p.anchor_spacing.unwrap_or(p.dims),
        };
        let placements = entry.placements.into_iter().map(placement).collect();
        Torus { name: entry.name.value, dims: entry.dims, regions, placements, line }
    }
}
