//! Topologies for `scontrol show topology` (a line for each unit) and `show topoconf` (as `topology.yaml(5)` has them).

use garrick_model::{
    hostlist::HostList,
    topology::{Layout, NamedTopology, Switch, Torus, Unit, Xyz},
};
use std::{
    collections::HashMap,
    io::{self, Write},
};

/// Only some units.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// The unit of this name.
    pub unit: Option<&'a str>,
    /// Those that this node is in.
    pub node: Option<&'a str>,
}

/// The lines of a topology. Blocks are followed by the aggregated blocks of each enforced size.
pub fn lines(topology: &NamedTopology, asked: Asked<'_>) -> Vec<String> {
    let mut lines: Vec<(String, HostList, String)> = Vec::new();
    let mut add = |name: &str, nodes: HostList, line: String| lines.push((name.to_owned(), nodes, line));
    match &topology.layout {
        Layout::Flat { .. } => {}
        Layout::Tree { switches } => tree(topology, switches, &mut add),
        Layout::Block { sizes, blocks } => block_lines(sizes, blocks, &mut add),
        Layout::Ring { rings } => {
            for (index, ring) in rings.iter().enumerate() {
                let size = ring.nodes.len();
                let line = format!("RingName={} RingIndex={index} Nodes={} RingSize={size}", ring.name, ring.nodes);
                add(&ring.name, ring.nodes.clone(), line);
            }
        }
        Layout::Torus3d { toruses } => {
            for (index, torus) in toruses.iter().enumerate() {
                let shapes: Vec<String> = torus.placements.iter().map(|p| p.dims.to_string()).collect();
                let line = format!(
                    "TorusName={} TorusIndex={index} Dims={} Nodes={} Placements={}",
                    torus.name,
                    torus.dims,
                    torus.nodes(),
                    shapes.join(",")
                );
                add(&torus.name, torus.nodes(), line);
            }
        }
    }
    let wanted = |name: &str, nodes: &HostList| {
        asked.unit.is_none_or(|unit| unit == name) && asked.node.is_none_or(|node| nodes.iter().any(|n| n == node))
    };
    lines.into_iter().filter(|(name, nodes, _)| wanted(name, nodes)).map(|(_, _, line)| line).collect()
}

fn tree(topology: &NamedTopology, switches: &[Switch], add: &mut dyn FnMut(&str, HostList, String)) {
    let levels = levels(switches);
    for switch in switches {
        let nodes = topology.layout.nodes_of(&switch.name).unwrap_or_default();
        let level = levels.get(switch.name.as_str()).copied().unwrap_or(0);
        let mut line = format!("SwitchName={} Level={level} LinkSpeed=1 Nodes={nodes}", switch.name);
        if !switch.children.is_empty() {
            line += &format!(" Switches={}", switch.children);
        }
        add(&switch.name, nodes, line);
    }
}

/// Blocks, and the aggregated blocks of each further size.
fn block_lines(sizes: &[u32], blocks: &[Unit], add: &mut dyn FnMut(&str, HostList, String)) {
    let base = sizes.first().copied().unwrap_or(1).max(1);
    for (index, block) in blocks.iter().enumerate() {
        let line = format!("BlockName={} BlockIndex={index} Nodes={} BlockSize={base}", block.name, block.nodes);
        add(&block.name, block.nodes.clone(), line);
    }
    let mut index = blocks.len();
    for size in sizes.iter().skip(1) {
        for group in blocks.chunks((size / base).max(1) as usize) {
            let names: HostList = group.iter().map(|b| b.name.as_str()).collect();
            let mut nodes = HostList::new();
            group.iter().for_each(|b| nodes.append(b.nodes.clone()));
            let line = format!("AggregatedBlock={names} BlockIndex={index} Nodes={nodes} BlockSize={size}");
            add(&names.to_string(), nodes, line);
            index += 1;
        }
    }
}

/// How high each switch is above its farthest leaf.
fn levels(switches: &[Switch]) -> HashMap<&str, u32> {
    let mut levels: HashMap<&str, u32> = HashMap::new();
    // Children before what is above them; a checked tree has no cycles, and is no higher than it has switches.
    for _ in 0..switches.len() {
        let known = levels.len();
        for switch in switches {
            let below: Option<Vec<u32>> = switch.children.iter().map(|c| levels.get(c.as_str()).copied()).collect();
            if let Some(below) = below {
                levels.insert(&switch.name, below.into_iter().max().map_or(0, |level| level + 1));
            }
        }
        if levels.len() == known {
            break;
        }
    }
    levels
}

/// Writes all of them as `topology.yaml`.
pub fn write_yaml(topologies: &[NamedTopology], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "---")?;
    for topology in topologies {
        writeln!(out, "- topology: {}\n  cluster_default: {}", quoted(&topology.name), topology.cluster_default)?;
        match &topology.layout {
            Layout::Flat { alpha_step_rank: false } => writeln!(out, "  flat: true")?,
            Layout::Flat { alpha_step_rank: true } => writeln!(out, "  flat:\n    alpha_step_rank: true")?,
            Layout::Tree { switches } => {
                writeln!(out, "  tree:\n    switches:")?;
                for switch in switches {
                    writeln!(out, "      - switch: {}", quoted(&switch.name))?;
                    list(out, "children", &switch.children)?;
                    list(out, "nodes", &switch.nodes)?;
                }
            }
            Layout::Block { sizes, blocks } => {
                writeln!(out, "  block:\n    block_sizes:")?;
                sizes.iter().try_for_each(|size| writeln!(out, "      - {size}"))?;
                writeln!(out, "    blocks:")?;
                for block in blocks {
                    writeln!(out, "      - block: {}", quoted(&block.name))?;
                    list(out, "nodes", &block.nodes)?;
                }
            }
            Layout::Ring { rings } => {
                writeln!(out, "  ring:\n    rings:")?;
                for ring in rings {
                    writeln!(out, "      - ring: {}", quoted(&ring.name))?;
                    list(out, "nodes", &ring.nodes)?;
                }
            }
            Layout::Torus3d { toruses } => {
                writeln!(out, "  torus3d:\n    toruses:")?;
                toruses.iter().try_for_each(|torus| write_torus(torus, out))?;
            }
        }
    }
    Ok(())
}

fn write_torus(torus: &Torus, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "      - name: {}\n        dims: {}", quoted(&torus.name), xyz(torus.dims))?;
    match torus.regions.as_slice() {
        [all] if all.dims == torus.dims => list(out, "nodes", &all.nodes)?,
        regions => {
            writeln!(out, "        regions:")?;
            for region in regions {
                let (anchor, dims) = (xyz(region.anchor), xyz(region.dims));
                let nodes = quoted(&region.nodes.to_string());
                writeln!(out, "          - anchor: {anchor}\n            dims: {dims}\n            nodes: {nodes}")?;
            }
        }
    }
    if !torus.placements.is_empty() {
        writeln!(out, "        placements:")?;
    }
    for placement in &torus.placements {
        writeln!(out, "          - dims: {}", xyz(placement.dims))?;
        if placement.seed != Xyz::default() {
            writeln!(out, "            anchor_seed: {}", xyz(placement.seed))?;
        }
        if placement.spacing != placement.dims {
            writeln!(out, "            anchor_spacing: {}", xyz(placement.spacing))?;
        }
    }
    Ok(())
}

fn xyz(dims: Xyz) -> String {
    format!("{{x: {}, y: {}, z: {}}}", dims.x, dims.y, dims.z)
}

fn list(out: &mut dyn Write, key: &str, names: &HostList) -> io::Result<()> {
    if names.is_empty() { Ok(()) } else { writeln!(out, "        {key}: {}", quoted(&names.to_string())) }
}

/// Names that YAML would take for something else, in quotes.
fn quoted(text: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-[],".contains(c);
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(is_name)
        && !["true", "false", "yes", "no", "null", "on", "off"].iter().any(|word| word.eq_ignore_ascii_case(text));
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::topology::{Placement, Region, Unit};

    fn named(layout: Layout) -> NamedTopology {
        NamedTopology { name: "t".to_owned(), cluster_default: true, layout, line: 0 }
    }

    fn switch(name: &str, children: &str, nodes: &str) -> Switch {
        Switch { name: name.to_owned(), children: children.parse().unwrap(), nodes: nodes.parse().unwrap(), line: 0 }
    }

    fn unit(name: &str, nodes: &str) -> Unit {
        Unit { name: name.to_owned(), nodes: nodes.parse().unwrap(), line: 0 }
    }

    #[test]
    fn switches_have_levels_and_all_nodes_below_them() {
        let switches = vec![switch("top", "s[1-2]", ""), switch("s1", "", "n[1-2]"), switch("s2", "", "n[3-4]")];
        let tree = named(Layout::Tree { switches });
        assert_eq!(
            lines(&tree, Asked::default()),
            [
                "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[1-2]",
                "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]",
                "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[3-4]",
            ]
        );
        let of_node = lines(&tree, Asked { node: Some("n3"), unit: None });
        assert_eq!(of_node.len(), 2);
        assert_eq!(lines(&tree, Asked { unit: Some("s9"), node: None }), Vec::<String>::new());
    }

    #[test]
    fn blocks_are_followed_by_aggregated_ones() {
        let blocks = vec![unit("b1", "n[1-2]"), unit("b2", "n[3-4]"), unit("b3", "")];
        let block = named(Layout::Block { sizes: vec![2, 4], blocks });
        assert_eq!(
            lines(&block, Asked::default()),
            [
                "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2",
                "BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2",
                "BlockName=b3 BlockIndex=2 Nodes= BlockSize=2",
                "AggregatedBlock=b[1-2] BlockIndex=3 Nodes=n[1-4] BlockSize=4",
                "AggregatedBlock=b3 BlockIndex=4 Nodes= BlockSize=4",
            ]
        );
    }

    #[test]
    fn the_file_is_written_as_it_is_read() {
        let cube = Xyz { x: 2, y: 1, z: 1 };
        let torus = Torus {
            name: "pod".to_owned(),
            dims: cube,
            regions: vec![Region { anchor: Xyz::default(), dims: cube, nodes: "n[1-2]".parse().unwrap() }],
            placements: vec![Placement { dims: cube, seed: Xyz { x: 1, ..Xyz::default() }, spacing: cube }],
            line: 0,
        };
        let mut out = Vec::new();
        write_yaml(&[named(Layout::Torus3d { toruses: vec![torus] })], &mut out).unwrap();
        let want = "---\n- topology: t\n  cluster_default: true\n  torus3d:\n    toruses:\n      - name: pod\n        \
                    dims: {x: 2, y: 1, z: 1}\n        nodes: n[1-2]\n        placements:\n          \
                    - dims: {x: 2, y: 1, z: 1}\n            anchor_seed: {x: 1, y: 0, z: 0}\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}
