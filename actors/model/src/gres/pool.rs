//! Which generic resources of a node are free, one by one.

use super::{
    GPU, GresAmounts, GresCount, GresEntry, GresShare, SHARD, devices_of, first_device, place_of,
    shards::{self, SharedGpu},
};
use crate::resources::CpuSet;
use std::cmp::Reverse;

/// What is free of each entry of a node: amounts, and which devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GresPool {
    free: Vec<FreeEntry>,
    /// GPUs that may be given in shards, by number.
    gpus: Vec<SharedGpu>,
}

/// Of one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FreeEntry {
    count: u64,
    devices: CpuSet,
}

impl GresPool {
    /// Everything free.
    pub fn all(entries: &[GresEntry]) -> Self {
        let free = entries.iter().enumerate();
        Self {
            free: free.map(|(place, e)| FreeEntry { count: e.count, devices: devices_of(entries, place) }).collect(),
            gpus: shards::gpus(entries),
        }
    }

    /// What somebody holds, as all that there is: for sharing it out further. The entries say what it consists of.
    pub fn of_shares(shares: &[GresShare]) -> (Vec<GresEntry>, Self) {
        let (mut entries, mut free): (Vec<GresEntry>, Vec<FreeEntry>) = (Vec::new(), Vec::new());
        for share in shares {
            let GresShare { name, kind, count, devices } = share.clone();
            let is_shard = name == SHARD;
            let place = place_of(&entries, share).unwrap_or_else(|| {
                let devices = !is_shard && !devices.is_empty();
                let places = Vec::new();
                entries.push(GresEntry {
                    name,
                    kind,
                    count: 0,
                    no_consume: false,
                    devices,
                    places,
                    shards: Vec::new(),
                });
                free.push(FreeEntry::default());
                entries.len() - 1
            });
            entries[place].count += count;
            free[place].count += count;
            if let Some(gpu) = share.devices.first().filter(|_| is_shard) {
                let shards = &mut entries[place].shards;
                shards.resize(shards.len().max(gpu as usize + 1), 0);
                shards[gpu as usize] += count;
            } else {
                free[place].devices.add(&devices);
            }
        }
        // What is held whole here is not held in shards.
        let gpus = shards::gpus(&entries).into_iter().map(|gpu| SharedGpu { whole: None, ..gpu }).collect();
        (entries, Self { free, gpus })
    }

    /// Free shards of a GPU, and whether all of it is free; `None`: there are no shards here.
    pub(super) fn shards_of(&self, gpu: usize) -> Option<(u64, bool)> {
        let shared = self.gpus.get(gpu)?;
        let number = u32::try_from(gpu).ok()?;
        let whole = shared.whole.is_some_and(|place| self.free[place].devices.contains(number));
        Some((shared.free, whole))
    }

    /// Takes shards of a GPU, of which then nothing is to be had whole.
    fn take_shards(&mut self, place: usize, gpu: u32, count: u64) {
        let Some(shared) = self.gpus.get_mut(gpu as usize) else { return };
        let count = count.min(shared.free);
        shared.free -= count;
        self.free[place].count = self.free[place].count.saturating_sub(count);
        if let Some(whole) = shared.whole.filter(|_| count > 0)
            && self.free[whole].devices.remove(gpu)
        {
            self.free[whole].count = self.free[whole].count.saturating_sub(1);
        }
    }

    /// Gives them back.
    fn give_shards(&mut self, place: usize, gpu: u32, count: u64) {
        let Some(shared) = self.gpus.get_mut(gpu as usize) else { return };
        let count = count.min(shared.all - shared.free);
        shared.free += count;
        self.free[place].count += count;
        if let Some(whole) = shared.whole.filter(|_| shared.free == shared.all)
            && self.free[whole].devices.insert(gpu)
        {
            self.free[whole].count += 1;
        }
    }

    /// After GPUs were taken or given back whole: their shards went with them.
    fn follow(&mut self, entries: &[GresEntry], share: &GresShare, taken: bool) {
        let Some(place) = entries.iter().position(|entry| !entry.shards.is_empty()) else { return };
        if share.name != GPU {
            return;
        }
        for gpu in share.devices.iter() {
            if let Some(shared) = self.gpus.get_mut(gpu as usize) {
                shared.free = if taken { 0 } else { shared.all };
            }
        }
        self.free[place].count = self.gpus.iter().map(|gpu| gpu.free).sum();
    }

    /// The GPU for so many shards: rather one that others have shards of already, of these the fullest. `bound`: what is to
    /// be had of each.
    fn gpu_for_shards(&self, count: u64, allowed: impl Fn(u32) -> bool, bound: impl Fn(u32) -> u64) -> Option<u32> {
        let fits = |(number, gpu): &(u32, &SharedGpu)| gpu.free.min(bound(*number)) >= count && allowed(*number);
        let fitting = (0u32..).zip(&self.gpus).filter(fits);
        fitting.min_by_key(|(number, gpu)| (gpu.free == gpu.all, gpu.free, *number)).map(|(number, _)| number)
    }

    /// Free of the entry at a place.
    pub fn count(&self, place: usize) -> u64 {
        self.free.get(place).map_or(0, |free| free.count)
    }

    /// Are shares free as they stand: each device, and as many?
    pub fn has(&self, entries: &[GresEntry], shares: &[GresShare]) -> bool {
        let mut left = self.clone();
        shares.iter().all(|share| {
            let Some(place) = place_of(entries, share) else { return false };
            if !entries[place].shards.is_empty() {
                let gpu = share.devices.first().filter(|_| share.devices.len() == 1);
                let Some(gpu) = gpu else { return share.count == 0 };
                let sound = left.gpus.get(gpu as usize).is_some_and(|shared| share.count <= shared.free);
                left.take_shards(place, gpu, share.count);
                return sound;
            }
            let (entry, free) = (&entries[place], &mut left.free[place]);
            if entry.no_consume {
                return share.count <= entry.count;
            }
            let sound = share.count <= free.count
                && share.devices.is_subset(&free.devices)
                && (share.devices.is_empty() || u64::from(share.devices.len()) == share.count)
                && (share.devices.is_empty() != entry.devices || share.count == 0);
            free.take(share);
            left.follow(entries, share, true);
            sound
        })
    }

    /// Takes shares. What is not there is passed over: an allocation that was made stands, whatever the configuration says
    /// now.
    pub fn take(&mut self, entries: &[GresEntry], shares: &[GresShare]) {
        for share in shares {
            match place_of(entries, share).filter(|place| !entries[*place].no_consume) {
                Some(place) if !entries[place].shards.is_empty() => {
                    share.devices.iter().for_each(|gpu| self.take_shards(place, gpu, share.count));
                }
                Some(place) => {
                    self.free[place].take(share);
                    self.follow(entries, share, true);
                }
                None => {}
            }
        }
    }

    /// Gives shares back.
    pub fn give(&mut self, entries: &[GresEntry], shares: &[GresShare]) {
        for share in shares {
            let place = place_of(entries, share).filter(|place| !entries[*place].no_consume);
            if let Some(place) = place.filter(|place| !entries[*place].shards.is_empty()) {
                share.devices.iter().for_each(|gpu| self.give_shards(place, gpu, share.count));
            } else if let Some(place) = place {
                self.free[place].count = (self.free[place].count + share.count).min(entries[place].count);
                self.free[place].devices.add(&share.devices);
                self.follow(entries, share, false);
            }
        }
    }

    /// Shares for what is asked for, of what is free; `None`: it is not there. Of an entry the lowest devices go first,
    /// without a type the first entries. Shards come from one GPU. `bound`: no more than is free there.
    pub fn choose(
        &self,
        entries: &[GresEntry],
        need: &[GresCount],
        bound: Option<&GresAmounts>,
    ) -> Option<Vec<GresShare>> {
        self.choose_among(entries, need, bound, None)
    }

    /// The same of certain GPUs only. Of GPUs with links those go first that are linked best.
    pub fn choose_among(
        &self,
        entries: &[GresEntry],
        need: &[GresCount],
        bound: Option<&GresAmounts>,
        gpus: Option<&CpuSet>,
    ) -> Option<Vec<GresShare>> {
        let mut left = self.clone();
        if let Some(gpus) = gpus {
            let devices = left.free.iter_mut().zip(entries).filter(|(_, e)| e.name == GPU && e.devices);
            for (free, _) in devices {
                free.devices = free.devices.intersection(gpus);
                free.count = free.devices.len().into();
            }
        }
        if let Some(bound) = bound {
            for (place, free) in left.free.iter_mut().enumerate() {
                free.count = free.count.min(bound.count(place));
                if !self.gpus.is_empty() && entries[place].name == GPU {
                    free.devices = free.devices.iter().filter(|gpu| bound.shards_of(*gpu).1).collect();
                    free.count = free.count.min(free.devices.len().into());
                }
            }
        }
        let mut shares: Vec<GresShare> = Vec::new();
        // What names a type is served first: the rest may have any.
        let (typed, any): (Vec<_>, Vec<_>) = need.iter().partition(|asked| asked.kind.is_some());
        let (shards, others): (Vec<_>, Vec<_>) = typed.into_iter().chain(any).partition(|asked| asked.name == SHARD);
        for asked in others {
            let mut missing = asked.count;
            for (place, entry) in entries.iter().enumerate() {
                if missing == 0 || !asked.is_of(&entry.name, entry.kind.as_deref()) {
                    continue;
                }
                let free = &mut left.free[place];
                let count = missing.min(if entry.no_consume { entry.count } else { free.count });
                if count == 0 {
                    continue;
                }
                missing -= count;
                let devices = best_linked(entry, first_device(entries, place), &free.devices, count);
                let share = GresShare { name: entry.name.clone(), kind: entry.kind.clone(), count, devices };
                if !entry.no_consume {
                    free.take(&share);
                    left.follow(entries, &share, true);
                }
                match shares.iter_mut().find(|s| s.name == share.name && s.kind == share.kind) {
                    Some(known) => {
                        known.count += share.count;
                        known.devices.add(&share.devices);
                    }
                    None => shares.push(share),
                }
            }
            if missing > 0 {
                return None;
            }
        }
        for asked in shards.into_iter().filter(|asked| asked.count > 0) {
            let place = entries.iter().position(|e| !e.shards.is_empty() && asked.is_of(&e.name, e.kind.as_deref()))?;
            let allowed = |gpu: u32| gpus.is_none_or(|gpus| gpus.contains(gpu));
            let most = |gpu: u32| bound.map_or(u64::MAX, |bound| bound.shards_of(gpu).0);
            let gpu = left.gpu_for_shards(asked.count, allowed, most)?;
            left.take_shards(place, gpu, asked.count);
            let GresEntry { name, kind, .. } = &entries[place];
            let devices = [gpu].into_iter().collect();
            shares.push(GresShare { name: name.clone(), kind: kind.clone(), count: asked.count, devices });
        }
        // In the order of the node's own list, whatever was asked for first.
        shares.sort_by_key(|share| place_of(entries, share));
        Some(shares)
    }

    /// All that is free, without what is not consumed.
    pub fn everything(&self, entries: &[GresEntry]) -> Vec<GresShare> {
        let all = entries.iter().zip(&self.free).filter(|(entry, free)| !entry.no_consume && free.count > 0);
        let share = |entry: &GresEntry, count: u64, devices: CpuSet| GresShare {
            name: entry.name.clone(),
            kind: entry.kind.clone(),
            count,
            devices,
        };
        all.flat_map(|(entry, free)| {
            if entry.shards.is_empty() {
                return vec![share(entry, free.count, free.devices.clone())];
            }
            // Of a GPU that is there whole the shards are part of it.
            let left = (0u32..).zip(&self.gpus).filter(|(number, gpu)| {
                let whole = gpu.whole.is_some_and(|place| self.free[place].devices.contains(*number));
                gpu.free > 0 && !whole
            });
            left.map(|(number, gpu)| share(entry, gpu.free, [number].into_iter().collect())).collect()
        })
        .collect()
    }
}

impl FreeEntry {
    fn take(&mut self, share: &GresShare) {
        self.count = self.count.saturating_sub(share.count);
        self.devices.subtract(&share.devices);
    }
}

/// So many of the free devices of an entry: those with the most connections among each other, the lowest among equals.
fn best_linked(entry: &GresEntry, first: u64, free: &CpuSet, count: u64) -> CpuSet {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let linked = entry.places.iter().any(|place| !place.links.is_empty());
    if !linked || count < 2 || count >= free.len() {
        return free.take(count);
    }
    let links = |a: u32, b: u32| -> i64 {
        let at = u64::from(a).checked_sub(first).and_then(|at| usize::try_from(at).ok());
        let place = at.and_then(|at| entry.places.get(at));
        place.and_then(|place| place.links.get(b as usize)).map_or(0, |n| i64::from(*n).max(0))
    };
    // From each device on, the one that is linked best to those before.
    let from = |start: u32| {
        let (mut set, mut sum) = (CpuSet::from_iter([start]), 0);
        while set.len() < count {
            let to = |device: u32| set.iter().map(|own| links(own, device)).sum::<i64>();
            let others = free.iter().filter(|device| !set.contains(*device));
            let Some((more, next)) = others.map(|device| (to(device), device)).max_by_key(|(n, d)| (*n, Reverse(*d)))
            else {
                break;
            };
            set.insert(next);
            sum += more;
        }
        (sum, set)
    };
    let best = free.iter().map(|start| (from(start), start)).max_by_key(|((sum, _), start)| (*sum, Reverse(*start)));
    best.map_or_else(|| free.take(count), |((_, set), _)| set)
}
