//! `topology/torus3d`: boxes of the shapes that the site allows, which may wrap around the torus (Slurm's topology guide,
//! "3D Torus Topology").

use super::{Offer, Room, Topology, Units, Want};
use fixedbitset::FixedBitSet;
use garrick_model::{
    ids::NodeIndex,
    topology::{Placement, Torus, Xyz},
};
use std::collections::BTreeSet;

/// Tori with every box that jobs may get.
#[derive(Debug)]
pub(crate) struct Tori {
    units: Units,
    boxes: Vec<Cuboid>,
}

/// A box at one position.
#[derive(Debug)]
struct Cuboid {
    torus: usize,
    /// By position, x varying fastest.
    nodes: Vec<usize>,
}

/// Most boxes that a search for several of them examines. Boxes of one shape overlap only if the site spaces their corners more
/// closely than they are wide.
const MOST_LOOKS: usize = 20_000;

impl Tori {
    /// From checked tori. A box with a cell that has no node is left out.
    pub fn new(toruses: &[Torus], nodes: usize, index: &dyn Fn(&str) -> Option<NodeIndex>) -> Self {
        let units = Units::new(toruses.iter().map(|t| (t.name.as_str(), t.nodes())), nodes, index);
        let mut boxes = Vec::new();
        for (number, torus) in toruses.iter().enumerate() {
            let cells = cells(torus, index);
            for placement in &torus.placements {
                for corner in corners(torus.dims, placement) {
                    let at = |offset: Xyz| {
                        let along = |from: u32, by: u32, dim: u32| (from + by) % dim;
                        let (x, y, z) = (
                            along(corner.x, offset.x, torus.dims.x),
                            along(corner.y, offset.y, torus.dims.y),
                            along(corner.z, offset.z, torus.dims.z),
                        );
                        cells[((z * torus.dims.y + y) * torus.dims.x + x) as usize]
                    };
                    if let Some(nodes) = each(placement.dims).map(at).collect::<Option<Vec<usize>>>() {
                        boxes.push(Cuboid { torus: number, nodes });
                    }
                }
            }
        }
        // The same box may come from several shapes or corners (a shape as long as the torus).
        let mut seen = BTreeSet::new();
        boxes.retain(|cuboid| {
            let mut nodes = cuboid.nodes.clone();
            nodes.sort_unstable();
            seen.insert(nodes)
        });
        Self { units, boxes }
    }

    /// The open boxes of that size, ranked by how many larger open boxes each would break up.
    fn ranked<'t>(&'t self, size: usize, room: Room<'_>, required: &[usize]) -> Vec<&'t Cuboid> {
        let is_open = |cuboid: &&Cuboid| cuboid.nodes.iter().all(|node| room.open.contains(*node));
        let mut broken = vec![0u32; room.open.len()];
        for larger in self.boxes.iter().filter(|b| b.nodes.len() > size).filter(is_open) {
            larger.nodes.iter().for_each(|node| broken[*node] += 1);
        }
        let open = self.units.counts(room.open);
        let mut fit: Vec<&Cuboid> = self.boxes.iter().filter(|b| b.nodes.len() == size).filter(is_open).collect();
        // Stable: else the order of shapes, then of corners.
        fit.sort_by_key(|cuboid| {
            let missed = required.iter().filter(|node| !cuboid.nodes.contains(node)).count();
            let cost = cuboid.nodes.iter().map(|node| broken[*node]).max().unwrap_or(0);
            (missed, cost, open[cuboid.torus])
        });
        fit
    }

    /// Boxes that do not overlap.
    fn several<'t>(&self, fit: &[&'t Cuboid], count: usize) -> Option<Vec<&'t Cuboid>> {
        let mut taken = FixedBitSet::new();
        let mut chosen: Vec<usize> = Vec::new();
        let mut next = 0;
        for _ in 0..MOST_LOOKS {
            if chosen.len() == count {
                return Some(chosen.into_iter().map(|at| fit[at]).collect());
            }
            // Not enough boxes are left: take the last choice back.
            if fit.len() - next < count - chosen.len() {
                let last = chosen.pop()?;
                fit[last].nodes.iter().for_each(|node| taken.set(*node, false));
                next = last + 1;
                continue;
            }
            if fit[next].nodes.iter().all(|node| !taken.contains(*node)) {
                fit[next].nodes.iter().for_each(|node| taken.grow_and_insert(*node));
                chosen.push(next);
            }
            next += 1;
        }
        None
    }
}

/// Nodes of a torus by cell, x varying fastest.
fn cells(torus: &Torus, index: &dyn Fn(&str) -> Option<NodeIndex>) -> Vec<Option<usize>> {
    let mut cells = vec![None; usize::try_from(torus.dims.cells()).unwrap_or(0)];
    for region in &torus.regions {
        for (offset, name) in each(region.dims).zip(region.nodes.iter()) {
            let at =
                Xyz { x: region.anchor.x + offset.x, y: region.anchor.y + offset.y, z: region.anchor.z + offset.z };
            let cell = (at.z * torus.dims.y + at.y) * torus.dims.x + at.x;
            if let Some(cell) = cells.get_mut(cell as usize) {
                *cell = index(&name).map(|index| index.0 as usize);
            }
        }
    }
    cells
}

/// All offsets in a box.
fn each(dims: Xyz) -> impl Iterator<Item = Xyz> {
    (0..dims.z).flat_map(move |z| (0..dims.y).flat_map(move |y| (0..dims.x).map(move |x| Xyz { x, y, z })))
}

/// Corners of the boxes of a placement: a grid that begins at its seed.
fn corners(torus: Xyz, placement: &Placement) -> Vec<Xyz> {
    let along = |seed: u32, spacing: u32, dim: u32| -> Vec<u32> {
        (0..dim).step_by(spacing.max(1) as usize).map(|n| (seed + n) % dim.max(1)).collect()
    };
    let mut corners = Vec::new();
    for z in along(placement.seed.z, placement.spacing.z, torus.z) {
        for y in along(placement.seed.y, placement.spacing.y, torus.y) {
            corners.extend(along(placement.seed.x, placement.spacing.x, torus.x).into_iter().map(|x| Xyz { x, y, z }));
        }
    }
    corners
}

impl Topology for Tori {
    fn offer(&self, want: &Want, room: Room<'_>, take: &mut dyn FnMut(Offer) -> bool) -> bool {
        let Some((count, size)) = want.segments() else { return false };
        let fit = self.ranked(size as usize, room, &want.required);
        let has_required = |nodes: &[usize]| want.required.iter().all(|node| nodes.contains(node));
        if count == 1 {
            let mut fit = fit.into_iter().filter(|cuboid| has_required(&cuboid.nodes));
            return fit.any(|cuboid| take(Offer::These(cuboid.nodes.clone())));
        }
        let Some(chosen) = self.several(&fit, count as usize) else { return false };
        let nodes: Vec<usize> = chosen.into_iter().flat_map(|cuboid| cuboid.nodes.iter().copied()).collect();
        has_required(&nodes) && take(Offer::These(nodes))
    }

    fn units(&self) -> &Units {
        &self.units
    }

    fn counts(&self, want: &Want, least: u32, most: u32) -> Option<Vec<u32>> {
        let sizes: BTreeSet<u32> =
            self.boxes.iter().map(|cuboid| u32::try_from(cuboid.nodes.len()).unwrap_or(u32::MAX)).collect();
        let mut counts: BTreeSet<u32> = sizes.range(least..=most).copied().collect();
        if let Some(size) = want.segment.filter(|size| sizes.contains(size)) {
            let first = least.div_ceil(size).max(1) * size;
            counts.retain(|count| *count <= size);
            counts.extend((first..=most).step_by(size as usize).take(4096));
        }
        Some(counts.into_iter().collect())
    }
}
