//! Single nodes put into a topology and taken out of it, for nodes that come and go: the places of `Topology=` in slurm.conf(5)
//! and of `scontrol update NodeName=`.

use super::{Layout, Region, Switch, Torus, Unit, Xyz};
use crate::hostlist::HostList;

/// Most nodes of a ring (`topology.conf(5)`).
const RING_LIMIT: u64 = 16;

impl Layout {
    /// Takes a node out of the unit that it is in.
    pub(crate) fn take_out(&mut self, node: &str) {
        let without = |nodes: &mut HostList| {
            if nodes.contains(node) {
                *nodes = nodes.iter().filter(|name| name != node).collect();
            }
        };
        match self {
            Self::Flat { .. } => {}
            Self::Tree { switches } => switches.iter_mut().for_each(|switch| without(&mut switch.nodes)),
            Self::Block { blocks: units, .. } | Self::Ring { rings: units } => {
                units.iter_mut().for_each(|unit| without(&mut unit.nodes));
            }
            Self::Torus3d { toruses } => toruses.iter_mut().for_each(|torus| torus.take_out(node)),
        }
    }

    /// Puts a node, which is in no unit, into the one that these words name: a leaf switch with switches above it, a block, a
    /// ring and a position, a torus and a cell.
    pub(crate) fn put_in(&mut self, node: &str, place: &[&str]) -> Result<(), String> {
        match self {
            Self::Flat { .. } => Err("the topology is flat: all nodes count as equally near".to_owned()),
            Self::Tree { switches } => put_below(switches, node, place),
            Self::Block { blocks, .. } => match place {
                [block] => {
                    let found = blocks.iter_mut().find(|unit| unit.name == *block);
                    found.ok_or_else(|| format!("no block is called {block}"))?.nodes.push(node);
                    Ok(())
                }
                _ => Err("a block is named alone: TOPOLOGY:BLOCK".to_owned()),
            },
            Self::Ring { rings } => put_into_ring(rings, node, place),
            Self::Torus3d { toruses } => {
                let [torus, x, y, z] = place else {
                    return Err("a torus is named with a cell: TOPOLOGY:TORUS:X:Y:Z".to_owned());
                };
                let number = |text: &str| text.parse().map_err(|_| format!("\"{text}\" is not a number"));
                let cell = Xyz { x: number(x)?, y: number(y)?, z: number(z)? };
                let found = toruses.iter_mut().find(|unit| unit.name == *torus);
                found.ok_or_else(|| format!("no torus is called {torus}"))?.put_in(node, cell)
            }
        }
    }
}

/// The last switch gets the node; those between it and the first are made where they are not there.
fn put_below(switches: &mut Vec<Switch>, node: &str, path: &[&str]) -> Result<(), String> {
    let place = |switches: &[Switch], name: &str| switches.iter().position(|switch| switch.name == name);
    let (first, below) = path.split_first().ok_or("no switch is named")?;
    let mut at = place(switches, first).ok_or_else(|| format!("no switch is called {first}"))?;
    // Before any is made.
    if below.contains(&"") {
        return Err("a switch has no name".to_owned());
    }
    for name in below {
        let above = switches[at].name.clone();
        match place(switches, name) {
            Some(_) if !switches[at].children.contains(name) => {
                return Err(format!("switch {name} is not below switch {above}"));
            }
            Some(known) => at = known,
            None if !switches[at].nodes.is_empty() => {
                return Err(format!("switch {above} has nodes, so it can have no switch {name} below it"));
            }
            None => {
                switches[at].children.push(name);
                at = switches.len();
                switches.push(Switch { name: (*name).to_owned(), ..Switch::default() });
            }
        }
    }
    let switch = &mut switches[at];
    if !switch.children.is_empty() {
        let (name, children) = (&switch.name, &switch.children);
        return Err(format!("switch {name} has switches below it ({children}): nodes belong to leaf switches"));
    }
    switch.nodes.push(node);
    Ok(())
}

/// A ring that is not there begins with its first node.
fn put_into_ring(rings: &mut Vec<Unit>, node: &str, place: &[&str]) -> Result<(), String> {
    let [name, position] = place else {
        return Err("a ring is named with a position: TOPOLOGY:RING:POSITION".to_owned());
    };
    let position: usize = position.parse().map_err(|_| format!("\"{position}\" is not a number"))?;
    let known = rings.iter_mut().find(|ring| ring.name == *name);
    let Some(ring) = known else {
        if position > 0 {
            return Err(format!("no ring is called {name}; a new one begins at position 0"));
        }
        rings.push(Unit { name: (*name).to_owned(), nodes: [node].iter().collect(), line: 0 });
        return Ok(());
    };
    if ring.nodes.len() >= RING_LIMIT {
        return Err(format!("ring {name} has {RING_LIMIT} nodes, which is the most"));
    }
    let mut nodes: Vec<String> = ring.nodes.iter().collect();
    // Those before it may have left since.
    nodes.insert(position.min(nodes.len()), node.to_owned());
    ring.nodes = nodes.iter().collect();
    Ok(())
}

impl Torus {
    fn take_out(&mut self, node: &str) {
        let Some(at) = self.regions.iter().position(|region| region.nodes.contains(node)) else { return };
        let region = self.regions.remove(at);
        let cells = region.cells().zip(region.nodes.iter()).filter(|(_, name)| name != node);
        let apart = cells.map(|(anchor, name)| one_cell(anchor, &name)).collect::<Vec<_>>();
        self.regions.splice(at..at, apart);
    }

    fn put_in(&mut self, node: &str, cell: Xyz) -> Result<(), String> {
        let (name, dims) = (&self.name, self.dims);
        if cell.x >= dims.x || cell.y >= dims.y || cell.z >= dims.z {
            return Err(format!("torus {name} is {dims}: it has no cell {},{},{}", cell.x, cell.y, cell.z));
        }
        if let Some(other) = self.regions.iter().find_map(|region| region.node_at(cell)) {
            return Err(format!("cell {},{},{} of torus {name} is that of node {other}", cell.x, cell.y, cell.z));
        }
        self.regions.push(one_cell(cell, node));
        Ok(())
    }
}

fn one_cell(anchor: Xyz, node: &str) -> Region {
    Region { anchor, dims: Xyz { x: 1, y: 1, z: 1 }, nodes: [node].iter().collect() }
}

impl Region {
    /// Whose cell it is, in a region that has it.
    fn node_at(&self, cell: Xyz) -> Option<String> {
        let (a, d) = (self.anchor, self.dims);
        let along = |at: u32, from: u32, most: u32| at.checked_sub(from).filter(|place| *place < most);
        let (x, y, z) = (along(cell.x, a.x, d.x)?, along(cell.y, a.y, d.y)?, along(cell.z, a.z, d.z)?);
        self.nodes.iter().nth((x + d.x * (y + d.y * z)) as usize)
    }

    /// Its cells, in the order of its nodes.
    fn cells(&self) -> impl Iterator<Item = Xyz> {
        let (a, d) = (self.anchor, self.dims);
        let along_x = move |y: u32, z: u32| (0..d.x).map(move |x| Xyz { x: a.x + x, y: a.y + y, z: a.z + z });
        (0..d.z).flat_map(move |z| (0..d.y).flat_map(move |y| along_x(y, z)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(text: &str) -> HostList {
        text.parse().unwrap()
    }

    fn tree() -> Layout {
        let switch = |name: &str, children: &str, nodes: &str| Switch {
            name: name.to_owned(),
            children: names(children),
            nodes: names(nodes),
            line: 0,
        };
        Layout::Tree {
            switches: vec![switch("root", "s1,s2", ""), switch("s1", "", "n[1-2]"), switch("s2", "", "n[3-4]")],
        }
    }

    #[test]
    fn switches_on_the_way_are_made() {
        let mut tree = tree();
        tree.put_in("d1", &["s1"]).unwrap();
        tree.put_in("d2", &["root", "s2"]).unwrap();
        tree.put_in("d3", &["root", "x", "y"]).unwrap();
        tree.put_in("d4", &["root", "x", "y"]).unwrap();
        assert_eq!(tree.nodes_of("root").unwrap().sorted().to_string(), "d[1-4],n[1-4]");
        assert_eq!(tree.nodes_of("x").unwrap().to_string(), "d[3-4]");
        assert_eq!(tree.nodes_with("d3").unwrap().to_string(), "d[3-4]");
        tree.take_out("d3");
        assert_eq!(tree.nodes_with("d3"), None);
    }

    #[test]
    fn a_switch_that_cannot_have_nodes_is_refused() {
        let mut made = tree();
        let refused: Vec<String> = [&["s9"][..], &["root"], &["s1", "x"], &["s1", "s2"], &["root", ""], &[]]
            .iter()
            .map(|place| made.put_in("d1", place).unwrap_err())
            .collect();
        assert_eq!(
            refused,
            [
                "no switch is called s9",
                "switch root has switches below it (s[1-2]): nodes belong to leaf switches",
                "switch s1 has nodes, so it can have no switch x below it",
                "switch s2 is not below switch s1",
                "a switch has no name",
                "no switch is named",
            ]
        );
        assert_eq!(made, tree());
    }

    #[test]
    fn blocks_rings_and_tori_have_places() {
        let unit = |name: &str, nodes: &str| Unit { name: name.to_owned(), nodes: names(nodes), line: 0 };
        let mut blocks = Layout::Block { sizes: vec![2], blocks: vec![unit("b1", "n1"), unit("b2", "")] };
        blocks.put_in("d1", &["b2"]).unwrap();
        assert_eq!(blocks.put_in("d2", &["b3"]), Err("no block is called b3".to_owned()));
        assert_eq!(blocks.nodes_of("b2").unwrap().to_string(), "d1");

        let mut rings = Layout::Ring { rings: vec![unit("r1", "n[1-3]")] };
        rings.put_in("d1", &["r1", "1"]).unwrap();
        rings.put_in("d2", &["r2", "0"]).unwrap();
        assert_eq!(
            rings.put_in("d3", &["r3", "1"]),
            Err("no ring is called r3; a new one begins at position 0".to_owned())
        );
        assert_eq!(rings.nodes_of("r1").unwrap().to_string(), "n1,d1,n[2-3]");
        assert_eq!(rings.nodes_of("r2").unwrap().to_string(), "d2");

        let region = Region { anchor: Xyz::default(), dims: Xyz { x: 2, y: 1, z: 1 }, nodes: names("n[1-2]") };
        let torus =
            Torus { name: "t".to_owned(), dims: Xyz { x: 2, y: 2, z: 1 }, regions: vec![region], ..Torus::default() };
        let mut tori = Layout::Torus3d { toruses: vec![torus] };
        assert_eq!(
            tori.put_in("d1", &["t", "1", "0", "0"]),
            Err("cell 1,0,0 of torus t is that of node n2".to_owned())
        );
        assert_eq!(tori.put_in("d1", &["t", "2", "0", "0"]), Err("torus t is 2x2x1: it has no cell 2,0,0".to_owned()));
        tori.take_out("n2");
        tori.put_in("d1", &["t", "1", "0", "0"]).unwrap();
        assert_eq!(tori.nodes_of("t").unwrap().to_string(), "n1,d1");
    }
}
