//! Which generic resources of a node are free, one by one.

use super::{GPU, GresCount, GresEntry, GresShare, devices_of, first_device, place_of};
use crate::resources::CpuSet;
use std::cmp::Reverse;

/// What is free of each entry of a node: amounts, and which devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GresPool {
    free: Vec<FreeEntry>,
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
        }
    }

    /// What somebody holds, as all that there is: for sharing it out further. The entries say what it consists of.
    pub fn of_shares(shares: &[GresShare]) -> (Vec<GresEntry>, Self) {
        let entries = shares.iter().map(|share| GresEntry {
            name: share.name.clone(),
            kind: share.kind.clone(),
            count: share.count,
            no_consume: false,
            devices: !share.devices.is_empty(),
            places: Vec::new(),
        });
        let free = shares.iter().map(|share| FreeEntry { count: share.count, devices: share.devices.clone() });
        (entries.collect(), Self { free: free.collect() })
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
            let (entry, free) = (&entries[place], &mut left.free[place]);
            if entry.no_consume {
                return share.count <= entry.count;
            }
            let sound = share.count <= free.count
                && share.devices.is_subset(&free.devices)
                && (share.devices.is_empty() || u64::from(share.devices.len()) == share.count)
                && (share.devices.is_empty() != entry.devices || share.count == 0);
            free.take(share);
            sound
        })
    }

    /// Takes shares. What is not there is passed over: an allocation that was made stands, whatever the configuration says
    /// now.
    pub fn take(&mut self, entries: &[GresEntry], shares: &[GresShare]) {
        for share in shares {
            if let Some(place) = place_of(entries, share).filter(|place| !entries[*place].no_consume) {
                self.free[place].take(share);
            }
        }
    }

    /// Gives shares back.
    pub fn give(&mut self, entries: &[GresEntry], shares: &[GresShare]) {
        for share in shares {
            if let Some(place) = place_of(entries, share).filter(|place| !entries[*place].no_consume) {
                self.free[place].count = (self.free[place].count + share.count).min(entries[place].count);
                self.free[place].devices.add(&share.devices);
            }
        }
    }

    /// Shares for what is asked for, of what is free; `None`: it is not there. Of an entry the lowest devices go first,
    /// without a type the first entries. `most` bounds what may be taken of each entry.
    pub fn choose(
        &self,
        entries: &[GresEntry],
        need: &[GresCount],
        most: impl Fn(usize) -> u64,
    ) -> Option<Vec<GresShare>> {
        self.choose_among(entries, need, most, None)
    }

    /// The same of certain GPUs only. Of GPUs with links those go first that are linked best.
    pub fn choose_among(
        &self,
        entries: &[GresEntry],
        need: &[GresCount],
        most: impl Fn(usize) -> u64,
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
        for (place, free) in left.free.iter_mut().enumerate() {
            free.count = free.count.min(most(place));
        }
        let mut shares: Vec<GresShare> = Vec::new();
        // What names a type is served first: the rest may have any.
        let (typed, any): (Vec<_>, Vec<_>) = need.iter().partition(|asked| asked.kind.is_some());
        for asked in typed.into_iter().chain(any) {
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
        // In the order of the node's own list, whatever was asked for first.
        shares.sort_by_key(|share| place_of(entries, share));
        Some(shares)
    }

    /// All that is free, but for what nobody takes away.
    pub fn everything(&self, entries: &[GresEntry]) -> Vec<GresShare> {
        let all = entries.iter().zip(&self.free).filter(|(entry, free)| !entry.no_consume && free.count > 0);
        all.map(|(entry, free)| GresShare {
            name: entry.name.clone(),
            kind: entry.kind.clone(),
            count: free.count,
            devices: free.devices.clone(),
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
