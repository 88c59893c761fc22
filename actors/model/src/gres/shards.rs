//! Parts of GPUs. A GPU is given whole, to one holder, or in shards, to several.

use super::{GPU, GresEntry, GresPool, GresShare, SHARD, devices_of, place_of};
use std::ops::Range;

/// What is free of a GPU that may be given in shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SharedGpu {
    /// Shards of it.
    pub all: u64,
    /// Those that are free: none while it is given whole.
    pub free: u64,
    /// The entry that it is given whole from.
    pub whole: Option<usize>,
}

/// The GPUs of a node that has shards.
pub(super) fn gpus(entries: &[GresEntry]) -> Vec<SharedGpu> {
    let Some(shard) = entries.iter().find(|entry| !entry.shards.is_empty()) else { return Vec::new() };
    let of = |(gpu, all): (u32, &u64)| SharedGpu {
        all: *all,
        free: *all,
        whole: (0..entries.len()).find(|at| entries[*at].name == GPU && devices_of(entries, *at).contains(gpu)),
    };
    (0u32..).zip(&shard.shards).map(of).collect()
}

/// Free parts of each GPU of a node that has shards, for amounts: a GPU without shards is one part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Parts {
    all: Vec<u64>,
    pub free: Vec<u64>,
    /// Shards of each.
    shards: Vec<u64>,
    /// Places of the entries that GPUs are given whole from, each with that of all types together.
    whole: Vec<(usize, Option<usize>, Range<usize>)>,
    /// Place of the shards' entry.
    place: usize,
}

impl Parts {
    /// All free; `None`: the node has no shards. `types`: the place of all types of GPUs together.
    pub fn all(entries: &[GresEntry], types: Option<usize>) -> Option<Self> {
        let place = entries.iter().position(|entry| !entry.shards.is_empty())?;
        let shards = entries[place].shards.clone();
        let all: Vec<u64> = shards.iter().map(|n| (*n).max(1)).collect();
        let entry = |at: usize| {
            let devices = devices_of(entries, at);
            let first = devices.first()? as usize;
            Some((at, types, first..first + devices.len() as usize))
        };
        let whole = (0..entries.len()).filter(|at| entries[*at].name == GPU).filter_map(entry).collect();
        Some(Self { free: all.clone(), all, shards, whole, place })
    }

    /// What shares take.
    pub fn held(mut self, entries: &[GresEntry], shares: &[GresShare]) -> Self {
        self.free.fill(0);
        for share in shares.iter().filter(|share| place_of(entries, share).is_some()) {
            for gpu in share.devices.iter().map(|gpu| gpu as usize).filter(|gpu| *gpu < self.all.len()) {
                let parts = if share.name == SHARD { share.count } else { self.all[gpu] };
                if share.name == SHARD || share.name == GPU {
                    self.free[gpu] = self.free[gpu].saturating_add(parts);
                }
            }
        }
        self
    }

    /// What a pool has free.
    pub fn of_pool(mut self, pool: &GresPool) -> Self {
        for (gpu, free) in self.free.iter_mut().enumerate() {
            *free = match pool.shards_of(gpu) {
                Some((_, true)) => self.all[gpu],
                Some((free, false)) => free,
                None => 0,
            };
        }
        self
    }

    /// The same with other free parts, and what follows for the counts.
    pub fn with(&self, free: Vec<u64>, counts: &mut [u64]) -> Self {
        let parts = Self { free, ..self.clone() };
        let whole = |gpus: &Range<usize>| gpus.clone().filter(|gpu| parts.is_whole(*gpu)).count() as u64;
        parts.whole.iter().filter_map(|(_, types, _)| *types).for_each(|types| counts[types] = 0);
        for (place, types, gpus) in &parts.whole {
            counts[*place] = whole(gpus);
            if let Some(types) = types {
                counts[*types] += whole(gpus);
            }
        }
        counts[parts.place] = (0..parts.free.len()).map(|gpu| parts.shards_left(gpu)).sum();
        parts
    }

    pub fn is_whole(&self, gpu: usize) -> bool {
        self.free.get(gpu).is_some_and(|free| *free == self.all[gpu])
    }

    pub fn shards_left(&self, gpu: usize) -> u64 {
        self.free.get(gpu).map_or(0, |free| (*free).min(self.shards[gpu]))
    }

    /// Shares that leave just that.
    pub fn shares_leaving(&self, entries: &[GresEntry]) -> Vec<GresShare> {
        let of = |gpu: usize| {
            let whole = self.whole.iter().find(|(_, _, gpus)| gpus.contains(&gpu)).map(|(place, ..)| *place);
            let (place, count) = match self.free[gpu] {
                0 => (whole?, 1),
                _ => (self.place, self.all[gpu] - self.free[gpu]),
            };
            let GresEntry { name, kind, .. } = &entries[place];
            let devices = [u32::try_from(gpu).unwrap_or(u32::MAX)].into_iter().collect();
            Some(GresShare { name: name.clone(), kind: kind.clone(), count, devices })
        };
        (0..self.all.len()).filter(|gpu| !self.is_whole(*gpu)).filter_map(of).collect()
    }
}
