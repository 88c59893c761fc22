//! `topology/block`: base blocks, and the aggregated blocks of neighbouring ones of each size that the site enforces. A request
//! gets the smallest level that could ever hold it, even if it has to wait for it: so large blocks stay whole (Slurm's topology
//! guide, "Block Topology").
//!
//! A request that no aggregated block could hold may have nodes of several.

use super::{Offer, Room, Topology, Units, Want, units::fewest};
use fixedbitset::FixedBitSet;
use garrick_model::{ids::NodeIndex, topology::Unit};
use std::{collections::BTreeSet, ops::Range};

/// Blocks in their order.
#[derive(Debug)]
pub struct Blocks {
    units: Units,
    /// Base blocks in an aggregated block of each level, 1 first.
    levels: Vec<usize>,
}

/// Blocks in which a request is tried, best first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    level: usize,
    open: u64,
    first: usize,
}

impl Blocks {
    /// From checked sizes and blocks. A block without nodes keeps its place among its neighbours.
    pub fn new(sizes: &[u32], blocks: &[Unit], nodes: usize, index: &dyn Fn(&str) -> Option<NodeIndex>) -> Self {
        let base = sizes.first().copied().unwrap_or(1).max(1);
        let units = Units::new(blocks.iter().map(|b| (b.name.as_str(), b.nodes.clone())), nodes, index);
        let mut levels: Vec<usize> = sizes.iter().map(|size| (size / base).max(1) as usize).collect();
        if levels.is_empty() {
            levels.push(1);
        }
        Self { units, levels }
    }

    /// Aggregated blocks of a level, as ranges of base blocks; above the last level all of them together.
    fn areas(&self, level: usize) -> Vec<Range<usize>> {
        let all = self.units.len();
        let size = self.levels.get(level).copied().unwrap_or(all).max(1);
        (0..all).step_by(size).map(|first| first..(first + size).min(all)).collect()
    }

    /// The smallest level with a block that could hold so many nodes.
    fn level_for(&self, nodes: u32, members: &[u32]) -> usize {
        let holds = |level: &usize| {
            let in_area = |area: Range<usize>| area.map(|block| u64::from(members[block])).sum::<u64>();
            self.areas(*level).into_iter().any(|area| in_area(area) >= u64::from(nodes))
        };
        (0..self.levels.len()).find(holds).unwrap_or(self.levels.len())
    }

    fn offer_whole(&self, want: &Want, room: Room<'_>, take: &mut dyn FnMut(Offer) -> bool) -> bool {
        let (open, members) = (self.units.counts(room.open), self.units.counts(room.members));
        let Some(required) = self.blocks_of(&want.required) else { return false };
        let mut ways: Vec<(Way, Range<usize>)> = Vec::new();
        let level = self.level_for(want.nodes, &members);
        for area in self.areas(level) {
            let free: u64 = area.clone().map(|block| u64::from(open[block])).sum();
            if free >= u64::from(want.nodes) && required.iter().all(|block| area.contains(block)) {
                ways.push((Way { level, open: free, first: area.start }, area));
            }
        }
        ways.sort_by(|a, b| a.0.cmp(&b.0));
        for (_, area) in ways {
            let parts: Vec<(usize, u64)> = area.map(|block| (block, u64::from(open[block]))).collect();
            let Some(chosen) = fewest(&parts, &required, u64::from(want.nodes).max(1)) else { continue };
            let mut set = FixedBitSet::with_capacity(room.open.len());
            chosen.iter().for_each(|block| set.extend(self.units.nodes(*block).iter().copied()));
            set.intersect_with(room.open);
            if take(Offer::Among(set)) {
                return true;
            }
        }
        false
    }

    /// Segments of that size in the area, up to a number, with their nodes.
    fn pack(&self, area: Range<usize>, level: usize, room: Room<'_>, want: &Want, of: (u32, u32)) -> Vec<Vec<usize>> {
        let (count, size) = (of.0 as usize, of.1 as usize);
        // The fullest blocks first, so that idle ones stay whole.
        let mut places: Vec<(u64, Range<usize>)> = Vec::new();
        for place in self.areas(level).into_iter().filter(|p| p.start >= area.start && p.end <= area.end) {
            let free = place.clone().map(|block| self.units.open(block, room.open, &[]).len() as u64).sum::<u64>();
            if free >= size as u64 {
                places.push((free, place));
            }
        }
        let wanted = |place: &Range<usize>| {
            want.required.iter().filter(|n| self.units.of(**n).is_some_and(|block| place.contains(&block))).count()
        };
        places.sort_by_key(|(free, place)| (std::cmp::Reverse(wanted(place)), *free, place.start));
        let mut segments: Vec<Vec<usize>> = Vec::new();
        for (_, place) in places {
            let mut blocks: Vec<Vec<usize>> =
                place.map(|block| self.units.open(block, room.open, &want.required)).collect();
            while segments.len() < count {
                let parts: Vec<(usize, u64)> =
                    blocks.iter().enumerate().map(|(i, nodes)| (i, nodes.len() as u64)).collect();
                let Some(chosen) = fewest(&parts, &[], size as u64) else { break };
                let mut segment = Vec::with_capacity(size);
                for block in chosen {
                    let taken = blocks[block].len().min(size - segment.len());
                    segment.extend(blocks[block].drain(..taken));
                    if want.spread {
                        blocks[block].clear();
                    }
                }
                segments.push(segment);
            }
        }
        segments
    }

    fn offer_segments(
        &self,
        want: &Want,
        room: Room<'_>,
        (count, size): (u32, u32),
        take: &mut dyn FnMut(Offer) -> bool,
    ) -> bool {
        let (open, members) = (self.units.counts(room.open), self.units.counts(room.members));
        let base = self.level_for(size, &members);
        // No block could hold a segment.
        if base >= self.levels.len() {
            return false;
        }
        let top = if want.consolidate { self.levels.len().max(1) } else { self.levels.len() + 1 };
        let mut ways: Vec<(Way, Range<usize>)> = Vec::new();
        for level in base..top {
            for area in self.areas(level) {
                let free: u64 = area.clone().map(|block| u64::from(open[block])).sum();
                if free >= u64::from(want.nodes) {
                    ways.push((Way { level, open: free, first: area.start }, area));
                }
            }
        }
        ways.sort_by(|a, b| a.0.cmp(&b.0));
        for (_, area) in ways {
            let segments = self.pack(area, base, room, want, (count, size));
            if segments.len() < count as usize {
                continue;
            }
            let nodes: Vec<usize> = segments.into_iter().flatten().collect();
            if want.required.iter().all(|node| nodes.contains(node)) && take(Offer::These(nodes)) {
                return true;
            }
        }
        false
    }

    fn blocks_of(&self, nodes: &[usize]) -> Option<Vec<usize>> {
        let blocks = nodes.iter().map(|node| self.units.of(*node)).collect::<Option<BTreeSet<usize>>>()?;
        Some(blocks.into_iter().collect())
    }
}

impl Topology for Blocks {
    fn offer(&self, want: &Want, room: Room<'_>, take: &mut dyn FnMut(Offer) -> bool) -> bool {
        match want.segments() {
            None => false,
            Some((1, _)) => self.offer_whole(want, room, take),
            Some(segments) => self.offer_segments(want, room, segments, take),
        }
    }

    fn units(&self) -> &Units {
        &self.units
    }

    fn wholes(&self) -> Vec<Vec<Vec<usize>>> {
        let nodes = |area: Range<usize>| area.flat_map(|block| self.units.nodes(block)).copied().collect();
        (0..self.levels.len()).map(|level| self.areas(level).into_iter().map(nodes).collect()).collect()
    }
}
