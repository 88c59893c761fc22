//! `topology/ring`: contiguous arcs of ordered rings, which may wrap at the end (Slurm's topology guide, "Ring Topology").

use super::{Offer, Room, Topology, Units, Want};
use fixedbitset::FixedBitSet;
use garrick_model::{ids::NodeIndex, topology::Unit};

/// Rings; the order of their nodes is the order around them.
#[derive(Debug)]
pub(crate) struct Rings {
    units: Units,
}

/// A run of open nodes.
struct Arc {
    ring: usize,
    first: usize,
    length: usize,
}

impl Rings {
    /// From checked rings.
    pub fn new(rings: &[Unit], nodes: usize, index: &dyn Fn(&str) -> Option<NodeIndex>) -> Self {
        Self { units: Units::new(rings.iter().map(|r| (r.name.as_str(), r.nodes.clone())), nodes, index) }
    }

    /// The longest arcs of open nodes.
    fn arcs(&self, open: &FixedBitSet) -> Vec<Arc> {
        let mut arcs = Vec::new();
        for ring in 0..self.units.len() {
            let nodes = self.units.nodes(ring);
            let is_open = |at: usize| open.contains(nodes[at % nodes.len()]);
            let Some(closed) = (0..nodes.len()).find(|at| !is_open(*at)) else {
                if !nodes.is_empty() {
                    arcs.push(Arc { ring, first: 0, length: nodes.len() });
                }
                continue;
            };
            // Once around, beginning behind a closed node.
            let mut at = closed + 1;
            while at < closed + nodes.len() {
                let length = (at..closed + nodes.len()).take_while(|at| is_open(*at)).count();
                if length > 0 {
                    arcs.push(Arc { ring, first: at % nodes.len(), length });
                }
                at += length + 1;
            }
        }
        arcs
    }

    fn nodes(&self, arc: &Arc, from: usize, count: usize) -> Vec<usize> {
        let nodes = self.units.nodes(arc.ring);
        (0..count).map(|n| nodes[(arc.first + from + n) % nodes.len()]).collect()
    }
}

impl Topology for Rings {
    fn offer(&self, want: &Want, room: Room<'_>, take: &mut dyn FnMut(Offer) -> bool) -> bool {
        let Some((count, size)) = want.segments() else { return false };
        let (count, size) = (count as usize, size as usize);
        let mut arcs: Vec<Arc> =
            self.arcs(room.open).into_iter().filter(|arc| arc.length >= size && size > 0).collect();
        // The shortest arc that is enough; with several segments, the one that leaves the fewest nodes over.
        arcs.sort_by_key(|arc| {
            (if count == 1 { arc.length } else { arc.length % size }, arc.length, arc.ring, arc.first)
        });
        if count > 1 {
            let has_required =
                |arc: &Arc| self.nodes(arc, 0, arc.length).iter().any(|node| want.required.contains(node));
            arcs.sort_by_key(|arc| !has_required(arc));
            let whole = |arc: &Arc| self.nodes(arc, 0, arc.length - arc.length % size);
            let nodes: Vec<usize> = arcs.iter().flat_map(whole).take(count * size).collect();
            let enough = nodes.len() == count * size && want.required.iter().all(|node| nodes.contains(node));
            return enough && take(Offer::These(nodes));
        }
        for arc in &arcs {
            // On a completely open ring, an arc may begin anywhere.
            let whole = arc.length == self.units.nodes(arc.ring).len();
            let starts = if whole { arc.length } else { arc.length - size + 1 };
            for from in 0..starts {
                let nodes = self.nodes(arc, from, size);
                if !want.required.iter().all(|node| nodes.contains(node)) {
                    continue;
                }
                if take(Offer::These(nodes)) {
                    return true;
                }
                if want.required.is_empty() && from >= 1 && !want.all_offers {
                    break;
                }
            }
        }
        false
    }

    fn units(&self) -> &Units {
        &self.units
    }

    /// No arc is longer than its ring.
    fn counts(&self, want: &Want, least: u32, most: u32) -> Option<Vec<u32>> {
        let longest = (0..self.units.len()).map(|ring| self.units.nodes(ring).len()).max().unwrap_or(0);
        let longest = u32::try_from(longest).unwrap_or(u32::MAX);
        let fits = |nodes: &u32| {
            Want { nodes: *nodes, segment: want.segment, ..Want::default() }
                .segments()
                .is_some_and(|(_, s)| s <= longest)
        };
        let all = u32::try_from(self.units.len()).unwrap_or(u32::MAX).saturating_mul(longest);
        Some((least..=most.min(all)).filter(fits).collect())
    }
}
