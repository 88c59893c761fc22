//! How much of a node's generic resources is free, without saying which.

use super::{GPU, GresCount, GresEntry, GresPool, GresRequest, GresShare, Totals, devices_of, place_of, shards::Parts};
use std::sync::Arc;

/// What is free of a node's GRES in amounts, of the entries and, where a name has several types, of each such name. Two
/// kinds of holders are counted against it: those of certain types, and those of any. Cheap to copy, and nothing at all
/// for nodes without GRES.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GresAmounts(Option<Arc<[u64]>>, Option<Arc<Parts>>);

/// What somebody takes of a node's GRES in amounts, in the same places.
pub type GresTaken = GresAmounts;

/// Names with several entries, each with the places of those: behind the entries' own places comes one for each of these.
fn names_with_types(entries: &[GresEntry]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        let again = entries[..place].iter().any(|e| e.name == entry.name);
        if again && !names.contains(&entry.name.as_str()) {
            names.push(&entry.name);
        }
    }
    names
}

impl GresAmounts {
    pub(super) fn of(amounts: Vec<u64>) -> Self {
        Self((!amounts.is_empty()).then(|| amounts.into()), None)
    }

    /// All of a node's.
    pub fn all(entries: &[GresEntry]) -> Self {
        let all = Self::from_counts(entries, |place| entries[place].count);
        all.with_parts(Self::parts(entries))
    }

    fn parts(entries: &[GresEntry]) -> Option<Parts> {
        let types = names_with_types(entries).iter().position(|name| *name == GPU).map(|n| entries.len() + n);
        Parts::all(entries, types)
    }

    fn with_parts(mut self, parts: Option<Parts>) -> Self {
        self.1 = parts.map(Arc::new);
        self
    }

    /// The same with other free parts of GPUs, from which the number of whole ones and of shards follow.
    fn with_free(self, parts: &Parts, free: Vec<u64>) -> Self {
        let mut counts = self.0.iter().flat_map(|counts| counts.iter()).copied().collect::<Vec<u64>>();
        let parts = parts.with(free, &mut counts);
        Self::of(counts).with_parts(Some(parts))
    }

    /// Free shards of a GPU, and whether all of it is free.
    pub(super) fn shards_of(&self, gpu: u32) -> (u64, bool) {
        let parts = self.1.as_deref();
        parts.map_or((0, true), |parts| (parts.shards_left(gpu as usize), parts.is_whole(gpu as usize)))
    }

    /// What a pool has free.
    pub fn free(entries: &[GresEntry], pool: &GresPool) -> Self {
        let free = Self::from_counts(entries, |place| pool.count(place));
        free.with_parts(Self::parts(entries).map(|parts| parts.of_pool(pool)))
    }

    fn from_counts(entries: &[GresEntry], count: impl Fn(usize) -> u64) -> Self {
        if entries.is_empty() {
            return Self::default();
        }
        let mut amounts: Vec<u64> = (0..entries.len()).map(&count).collect();
        for name in names_with_types(entries) {
            let of_name = entries.iter().enumerate().filter(|(_, e)| e.name == name).map(|(place, _)| count(place));
            amounts.push(of_name.fold(0, u64::saturating_add));
        }
        Self::of(amounts)
    }

    /// Of the entry at a place.
    pub fn count(&self, place: usize) -> u64 {
        self.0.as_ref().and_then(|amounts| amounts.get(place)).copied().unwrap_or(0)
    }

    /// In which places a request is counted: its own entry, or the only entry of its name, or the name's place, or both.
    /// `None`: no such thing here.
    fn places(entries: &[GresEntry], asked: &GresCount) -> Option<(usize, Option<usize>)> {
        let of_name = || entries.iter().enumerate().filter(|(_, e)| e.name == asked.name);
        let total = names_with_types(entries).iter().position(|name| *name == asked.name).map(|n| entries.len() + n);
        match (&asked.kind, total) {
            (None, Some(total)) => Some((total, None)),
            (None, None) => of_name().next().map(|(place, _)| (place, None)),
            (Some(_), total) => of_name().find(|(_, e)| e.kind == asked.kind).map(|(place, _)| (place, total)),
        }
    }

    fn consumed(entries: &[GresEntry], asked: &GresCount) -> bool {
        !entries.iter().any(|e| asked.is_of(&e.name, e.kind.as_deref()) && e.no_consume)
    }

    /// Is so much free?
    pub fn has(&self, entries: &[GresEntry], need: &[GresCount]) -> bool {
        if self.1.is_some() {
            return self.resolved(entries, need).is_some();
        }
        let taken = self.taken(entries, need);
        let known = |asked: &GresCount| match Self::places(entries, asked) {
            Some((place, _)) if !Self::consumed(entries, asked) => {
                asked.count <= entries.get(place).map_or(u64::MAX, |e| e.count)
            }
            Some(_) => true,
            None => asked.count == 0,
        };
        need.iter().all(known) && self.covers(&taken)
    }

    /// How many of what is asked for on all nodes together this node could give.
    pub fn total_room(&self, entries: &[GresEntry], request: &GresRequest) -> Totals {
        let room = |asked: &GresCount| match Self::places(entries, asked) {
            Some((place, Some(total))) => self.count(place).min(self.count(total)),
            Some((place, None)) => self.count(place),
            None => 0,
        };
        let all = request.total.iter().enumerate();
        all.fold(Totals::NONE, |totals, (place, asked)| totals.with(place, room(asked)))
    }

    /// Certain shares for a need, where GPUs have shards: which GPUs are meant matters there.
    fn resolved(&self, entries: &[GresEntry], need: &[GresCount]) -> Option<Vec<GresShare>> {
        let mut pool = GresPool::all(entries);
        pool.take(entries, &self.shares_leaving(entries));
        pool.choose(entries, need, None)
    }

    /// What is taken for a need where this is free.
    pub fn taken(&self, entries: &[GresEntry], need: &[GresCount]) -> GresTaken {
        if self.1.is_some() {
            return Self::held(entries, &self.resolved(entries, need).unwrap_or_default());
        }
        if entries.is_empty() || need.is_empty() {
            return Self::default();
        }
        let mut amounts = vec![0u64; entries.len() + names_with_types(entries).len()];
        for asked in need.iter().filter(|asked| Self::consumed(entries, asked)) {
            if let Some((place, total)) = Self::places(entries, asked) {
                for at in std::iter::once(place).chain(total) {
                    amounts[at] = amounts[at].saturating_add(asked.count);
                }
            }
        }
        Self::of(amounts)
    }

    /// What certain shares take.
    pub fn held(entries: &[GresEntry], shares: &[GresShare]) -> GresTaken {
        if shares.is_empty() {
            return Self::default();
        }
        let held = Self::from_counts(entries, |place| {
            let here = |share: &&GresShare| !entries[place].no_consume && place_of(entries, share) == Some(place);
            shares.iter().filter(here).fold(0, |sum, share| sum.saturating_add(share.count))
        });
        held.with_parts(Self::parts(entries).map(|parts| parts.held(entries, shares)))
    }

    /// Is there as much in each place as in the other?
    pub fn covers(&self, taken: &GresTaken) -> bool {
        let counts = taken.0.iter().flat_map(|t| t.iter()).enumerate().all(|(at, n)| *n <= self.count(at));
        let parts = match (&self.1, &taken.1) {
            (Some(own), Some(taken)) => own.free.iter().zip(&taken.free).all(|(own, n)| own >= n),
            _ => true,
        };
        counts && parts
    }

    /// Without that.
    #[must_use]
    pub fn less(&self, taken: &GresTaken) -> Self {
        let taken_parts = taken;
        match (&self.0, &taken.0) {
            (Some(amounts), Some(taken)) => {
                let taken = taken.iter().copied().chain(std::iter::repeat(0));
                let counts = amounts.iter().zip(taken).map(|(free, n)| free.saturating_sub(n)).collect();
                self.both(Self(Some(counts), None), taken_parts, u64::saturating_sub)
            }
            _ => self.clone(),
        }
    }

    /// The least of both, place by place.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => {
                let counts = a.iter().zip(b.iter()).map(|(a, b)| *a.min(b)).collect();
                self.both(Self(Some(counts), None), other, u64::min)
            }
            _ => Self::default(),
        }
    }

    /// Counts with the parts of GPUs that come of both.
    fn both(&self, counts: Self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        match (&self.1, &other.1) {
            (Some(a), Some(b)) => {
                let free = a.free.iter().zip(&b.free).map(|(a, b)| of(*a, *b)).collect();
                counts.with_free(a, free)
            }
            (Some(a), None) => counts.with_free(a, a.free.clone()),
            _ => counts,
        }
    }

    /// Certain shares that leave no more free than this: what stands in for holders of which only amounts are known.
    pub fn shares_leaving(&self, entries: &[GresEntry]) -> Vec<GresShare> {
        let mut take: Vec<u64> =
            entries.iter().enumerate().map(|(at, e)| e.count.saturating_sub(self.count(at))).collect();
        for (n, name) in names_with_types(entries).into_iter().enumerate() {
            let of_name: Vec<usize> = (0..entries.len()).filter(|at| entries[*at].name == name).collect();
            let left: u64 = of_name.iter().map(|at| entries[*at].count - take[*at]).sum();
            let mut more = left.saturating_sub(self.count(entries.len() + n));
            for at in of_name {
                let some = more.min(entries[at].count - take[at]);
                take[at] += some;
                more -= some;
            }
        }
        let parts = self.1.as_deref();
        let by_gpu = |entry: &GresEntry| parts.is_some() && (entry.name == GPU || !entry.shards.is_empty());
        let taken = entries.iter().zip(take).enumerate();
        let taken = taken.filter(|(_, (e, n))| *n > 0 && !e.no_consume && !by_gpu(e));
        let gpus = parts.map(|parts| parts.shares_leaving(entries)).unwrap_or_default();
        taken
            .map(|(place, (e, count))| GresShare {
                name: e.name.clone(),
                kind: e.kind.clone(),
                count,
                devices: devices_of(entries, place).take(u32::try_from(count).unwrap_or(u32::MAX)),
            })
            .chain(gpus)
            .collect()
    }
}
