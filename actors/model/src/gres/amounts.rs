//! How much of a node's generic resources is free, without saying which.

use super::{GresCount, GresEntry, GresPool, GresRequest, GresShare, Totals, devices_of, place_of};

/// What is free of a node's GRES in amounts, of the entries and, where a name has several types, of each such name. Two
/// kinds of holders are counted against it: those of certain types, and those of any. Cheap to copy, and nothing at all
/// for nodes without GRES.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GresAmounts(Option<std::sync::Arc<[u64]>>);

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
        Self((!amounts.is_empty()).then(|| amounts.into()))
    }

    /// All of a node's.
    pub fn all(entries: &[GresEntry]) -> Self {
        Self::from_counts(entries, |place| entries[place].count)
    }

    /// What a pool has free.
    pub fn free(entries: &[GresEntry], pool: &GresPool) -> Self {
        Self::from_counts(entries, |place| pool.count(place))
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
        let taken = Self::taken(entries, need);
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

    /// What is taken for a need.
    pub fn taken(entries: &[GresEntry], need: &[GresCount]) -> GresTaken {
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
        Self::from_counts(entries, |place| {
            let here = |share: &&GresShare| !entries[place].no_consume && place_of(entries, share) == Some(place);
            shares.iter().filter(here).fold(0, |sum, share| sum.saturating_add(share.count))
        })
    }

    /// Is there as much in each place as in the other?
    pub fn covers(&self, taken: &GresTaken) -> bool {
        taken.0.iter().flat_map(|t| t.iter()).enumerate().all(|(at, n)| *n <= self.count(at))
    }

    /// Without that.
    #[must_use]
    pub fn less(&self, taken: &GresTaken) -> Self {
        match (&self.0, &taken.0) {
            (Some(amounts), Some(taken)) => {
                let taken = taken.iter().copied().chain(std::iter::repeat(0));
                Self(Some(amounts.iter().zip(taken).map(|(free, n)| free.saturating_sub(n)).collect()))
            }
            _ => self.clone(),
        }
    }

    /// The least of both, place by place.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Self(Some(a.iter().zip(b.iter()).map(|(a, b)| *a.min(b)).collect())),
            _ => Self::default(),
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
        let taken = entries.iter().zip(take).enumerate().filter(|(_, (e, n))| *n > 0 && !e.no_consume);
        taken
            .map(|(place, (e, count))| GresShare {
                name: e.name.clone(),
                kind: e.kind.clone(),
                count,
                devices: devices_of(entries, place).take(u32::try_from(count).unwrap_or(u32::MAX)),
            })
            .collect()
    }
}
