//! Generic resources (GRES): countable things of a node such as GPUs, by name and type. What nodes have ([`GresEntry`]),
//! what is asked for ([`GresRequest`]), what a job or step holds of a node ([`GresShare`]), and what of a node is free
//! ([`GresPool`]). One rule for the scheduler, the node's owner and the step manager.
//!
//! Devices of a name are numbered from 0 on their node, over all types, in the order of `Gres=`. A GRES that stands for
//! no devices is only counted.

use crate::resources::{CpuSet, MemoryMib};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of the GRES that options such as `--gpus` ask for.
pub const GPU: &str = "gpu";

/// More devices of a name than this are only counted.
pub const MOST_DEVICES: u64 = 1024;

/// So many things of a name and type on a node, as configured or found.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GresEntry {
    /// `gpu`
    pub name: String,
    /// `h100`
    #[serde(default)]
    pub kind: Option<String>,
    /// How many.
    pub count: u64,
    /// Asking for it takes nothing away (`no_consume`).
    #[serde(default)]
    pub no_consume: bool,
    /// They are devices: holders get numbers, not only a count.
    #[serde(default)]
    pub devices: bool,
}

/// So many of a name, and of a type where one is named.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GresCount {
    /// Name.
    pub name: String,
    /// Type; `None`: any.
    #[serde(default)]
    pub kind: Option<String>,
    /// How many.
    pub count: u64,
}

/// What a job or step holds of a node, of one name and type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GresShare {
    /// Name.
    pub name: String,
    /// Type.
    #[serde(default)]
    pub kind: Option<String>,
    /// How many.
    pub count: u64,
    /// Which devices of that name; empty where they are only counted.
    #[serde(default)]
    pub devices: CpuSet,
}

/// How tasks are bound to the GPUs of their step, `--gpu-bind`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GpuBind {
    /// Every task sees all GPUs of its step on the node.
    #[default]
    None,
    /// So many GPUs to each task, each GPU to one task.
    PerTask(u32),
    /// One GPU to each task, so many tasks to a GPU.
    Single(u32),
    /// The GPU with this number among those of the step, by local task id, from the front again when it ends.
    Map(Vec<u32>),
    /// The GPUs of this mask, likewise.
    Mask(Vec<u64>),
}

/// What a job or step asks for, with the options about GPUs. The default asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct GresRequest {
    /// `--gres`: on each node.
    pub per_node: Vec<GresCount>,
    /// `--gpus-per-node`: on each node.
    pub gpus_per_node: Vec<GresCount>,
    /// `--gpus`: on all nodes together. At most one.
    pub total: Vec<GresCount>,
    /// `--gpus-per-task`, `--tres-per-task`: for each task.
    pub per_task: Vec<GresCount>,
    /// `--gres=none`: none of what a step would get unasked.
    pub none: bool,
    /// `--cpus-per-gpu`
    pub cpus_per_gpu: Option<u32>,
    /// `--mem-per-gpu`
    pub mem_per_gpu: Option<MemoryMib>,
    /// `--ntasks-per-gpu`
    pub tasks_per_gpu: Option<u32>,
    /// `--gpu-bind`; `None`: with `--gpus-per-task` each task to its own, else none.
    pub bind: Option<GpuBind>,
}

/// `gpu`, `gpu:h100`
fn write_kind(f: &mut fmt::Formatter<'_>, name: &str, kind: Option<&str>) -> fmt::Result {
    f.write_str(name)?;
    kind.map_or(Ok(()), |kind| write!(f, ":{kind}"))
}

impl fmt::Display for GresCount {
    /// `gpu:h100:2`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_kind(f, &self.name, self.kind.as_deref())?;
        write!(f, ":{}", self.count)
    }
}

impl fmt::Display for GresEntry {
    /// As `scontrol show node` prints it: `gpu:h100:4`, `bandwidth:lustre:no_consume:4G`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_kind(f, &self.name, self.kind.as_deref())?;
        if self.no_consume {
            f.write_str(":no_consume")?;
        }
        write!(f, ":{}", count_text(self.count))
    }
}

impl fmt::Display for GresShare {
    /// As `scontrol show job -d` prints it: `gpu:h100:2(IDX:0-1)`, `craynetwork:1(CNT:1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, count, devices } = self;
        write_kind(f, name, kind.as_deref())?;
        if devices.is_empty() {
            write!(f, ":{0}(CNT:{0})", count_text(*count))
        } else {
            write!(f, ":{}(IDX:{devices})", count_text(*count))
        }
    }
}

/// A count with the largest unit (powers of 1024) that leaves it whole: `4`, `4G`.
pub fn count_text(count: u64) -> String {
    let mut left = count;
    let mut units = ["", "K", "M", "G", "T", "P"].iter();
    let mut unit = units.next().copied().unwrap_or_default();
    while left >= 1024 && left.is_multiple_of(1024) {
        let Some(next) = units.next() else { break };
        unit = next;
        left /= 1024;
    }
    format!("{left}{unit}")
}

/// Anything with a printed form, as a comma separated list.
pub fn list<T: fmt::Display>(all: &[T]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl GresCount {
    /// Is that what is asked for?
    fn is_of(&self, name: &str, kind: Option<&str>) -> bool {
        self.name == name && self.kind.as_deref().is_none_or(|wanted| kind == Some(wanted))
    }
}

impl GresRequest {
    /// Nothing that nodes must have is asked for.
    pub fn is_empty(&self) -> bool {
        self.all().all(|asked| asked.count == 0)
    }

    /// Everything that is named in it.
    pub fn all(&self) -> impl Iterator<Item = &GresCount> {
        self.per_node.iter().chain(&self.gpus_per_node).chain(&self.total).chain(&self.per_task)
    }

    /// What a node must give for so many tasks, and for a part of what is asked for in all.
    pub fn on_node(&self, tasks: u32, of_total: u64) -> Vec<GresCount> {
        let mut need: Vec<GresCount> = self.per_node.iter().filter(|asked| asked.count > 0).cloned().collect();
        // Asked for in two ways, the greater counts.
        let mut at_least = |asked: &GresCount, count: u64| match need
            .iter_mut()
            .find(|known| known.name == asked.name && known.kind == asked.kind)
        {
            Some(known) => known.count = known.count.max(count),
            None if count > 0 => need.push(GresCount { count, ..asked.clone() }),
            None => {}
        };
        for asked in &self.gpus_per_node {
            at_least(asked, asked.count);
        }
        for asked in &self.per_task {
            at_least(asked, asked.count.saturating_mul(u64::from(tasks)));
        }
        if let Some(asked) = self.total.first() {
            at_least(asked, of_total);
        }
        need
    }

    /// What is asked for on all nodes together; 0: nothing is.
    pub fn total_count(&self) -> u64 {
        self.total.first().map_or(0, |asked| asked.count)
    }

    /// `SLURM_*` variables by which a job tells what it was asked for with (`sbatch(1)`, "output environment variables").
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let gpus = |list: &[GresCount]| {
            let own: Vec<String> = list
                .iter()
                .filter(|asked| asked.name == GPU)
                .map(|asked| match &asked.kind {
                    Some(kind) => format!("{kind}:{}", asked.count),
                    None => asked.count.to_string(),
                })
                .collect();
            (!own.is_empty()).then(|| own.join(","))
        };
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        let all = [
            ("SLURM_GPUS", gpus(&self.total)),
            ("SLURM_GPUS_PER_NODE", gpus(&self.gpus_per_node)),
            ("SLURM_GPUS_PER_TASK", gpus(&self.per_task)),
            ("SLURM_CPUS_PER_GPU", number(self.cpus_per_gpu)),
            ("SLURM_MEM_PER_GPU", self.mem_per_gpu.map(|m| m.0.to_string())),
            ("SLURM_NTASKS_PER_GPU", number(self.tasks_per_gpu)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// GPUs among what a node gives.
    pub fn gpus(need: &[GresCount]) -> u64 {
        need.iter().filter(|asked| asked.name == GPU).map(|asked| asked.count).sum()
    }
}

/// What a node has, as text for `Gres=`; empty for nothing.
pub fn entries_text(entries: &[GresEntry]) -> String {
    list(entries)
}

/// Number of the first device of an entry among those of its name.
pub fn first_device(entries: &[GresEntry], place: usize) -> u64 {
    let name = entries.get(place).map(|entry| entry.name.as_str());
    entries[..place.min(entries.len())].iter().filter(|e| Some(e.name.as_str()) == name).map(|e| e.count).sum()
}

/// The devices of an entry; empty where they are only counted.
pub fn devices_of(entries: &[GresEntry], place: usize) -> CpuSet {
    match entries.get(place) {
        Some(entry) if entry.devices && !entry.no_consume => {
            let first = u32::try_from(first_device(entries, place)).unwrap_or(u32::MAX);
            CpuSet::from(first..first.saturating_add(u32::try_from(entry.count).unwrap_or(0)))
        }
        _ => CpuSet::new(),
    }
}

/// Place of a share among a node's entries.
pub fn place_of(entries: &[GresEntry], share: &GresShare) -> Option<usize> {
    entries.iter().position(|entry| entry.name == share.name && entry.kind == share.kind)
}

/// Devices of a name among shares.
pub fn devices_in(shares: &[GresShare], name: &str) -> CpuSet {
    let mut devices = CpuSet::new();
    for share in shares.iter().filter(|share| share.name == name) {
        devices.add(&share.devices);
    }
    devices
}

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
        let mut left = self.clone();
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
                let devices = free.devices.take(u32::try_from(count).unwrap_or(u32::MAX));
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
    fn of(amounts: Vec<u64>) -> Self {
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
    pub fn total_room(&self, entries: &[GresEntry], request: &GresRequest) -> u64 {
        let Some(asked) = request.total.first() else { return 0 };
        match Self::places(entries, asked) {
            Some((place, Some(total))) => self.count(place).min(self.count(total)),
            Some((place, None)) => self.count(place),
            None => 0,
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn entry(name: &str, kind: Option<&str>, count: u64) -> GresEntry {
        GresEntry { name: name.into(), kind: kind.map(Into::into), count, no_consume: false, devices: name == GPU }
    }

    fn count(name: &str, kind: Option<&str>, count: u64) -> GresCount {
        GresCount { name: name.into(), kind: kind.map(Into::into), count }
    }

    fn node() -> Vec<GresEntry> {
        let bandwidth = GresEntry { no_consume: true, ..entry("bandwidth", Some("lustre"), 4 << 30) };
        vec![entry(GPU, Some("a100"), 2), entry(GPU, Some("h100"), 2), entry("craynetwork", None, 4), bandwidth]
    }

    #[test]
    fn devices_are_numbered_over_all_types_of_a_name() {
        let node = node();
        let pool = GresPool::all(&node);
        let text = |need: &[GresCount]| pool.choose(&node, need, |_| u64::MAX).map(|shares| list(&shares));
        assert_eq!(text(&[count(GPU, Some("h100"), 2)]).unwrap(), "gpu:h100:2(IDX:2-3)");
        assert_eq!(text(&[count(GPU, None, 3)]).unwrap(), "gpu:a100:2(IDX:0-1),gpu:h100:1(IDX:2)");
        assert_eq!(
            text(&[count(GPU, None, 1), count(GPU, Some("a100"), 2)]).unwrap(),
            "gpu:a100:2(IDX:0-1),gpu:h100:1(IDX:2)"
        );
        assert_eq!(text(&[count("craynetwork", None, 1)]).unwrap(), "craynetwork:1(CNT:1)");
        assert_eq!(text(&[count(GPU, None, 5)]), None);
        assert_eq!(text(&[count(GPU, Some("v100"), 1)]), None);
        assert_eq!(list(&node), "gpu:a100:2,gpu:h100:2,craynetwork:4,bandwidth:lustre:no_consume:4G");
    }

    #[test]
    fn what_is_not_consumed_is_there_for_everybody() {
        let node = node();
        let mut pool = GresPool::all(&node);
        let share = pool.choose(&node, &[count("bandwidth", None, 4 << 30)], |_| u64::MAX).unwrap();
        pool.take(&node, &share);
        assert!(pool.has(&node, &share));
        assert_eq!(GresAmounts::held(&node, &share), GresAmounts::of(vec![0; 5]));
        assert!(GresAmounts::all(&node).has(&node, &[count("bandwidth", None, 4 << 30)]));
        assert!(!GresAmounts::all(&node).has(&node, &[count("bandwidth", None, 5 << 30)]));
    }

    #[test]
    fn a_device_is_refused_a_second_time() {
        let node = node();
        let mut pool = GresPool::all(&node);
        let one = pool.choose(&node, &[count(GPU, None, 1)], |_| u64::MAX).unwrap();
        assert!(pool.has(&node, &one));
        pool.take(&node, &one);
        assert!(!pool.has(&node, &one));
        pool.give(&node, &one);
        assert_eq!(pool, GresPool::all(&node));
        let bare = vec![GresShare { devices: CpuSet::new(), ..one[0].clone() }];
        assert!(!pool.has(&node, &bare), "a share of devices says which");
    }

    #[test]
    fn the_greater_of_two_wishes_counts() {
        let request = GresRequest {
            per_node: vec![count(GPU, None, 2)],
            per_task: vec![count(GPU, None, 1)],
            ..GresRequest::default()
        };
        assert_eq!(request.on_node(1, 0), [count(GPU, None, 2)]);
        assert_eq!(request.on_node(3, 0), [count(GPU, None, 3)]);
    }

    proptest! {
        /// Amounts say yes exactly when devices can be handed out, and stay in step with them.
        #[test]
        fn amounts_agree_with_devices(asks in prop::collection::vec((0usize..3, 0u64..4), 1..6)) {
            let node = node();
            let (mut pool, mut amounts) = (GresPool::all(&node), GresAmounts::all(&node));
            for (kind, n) in asks {
                let need = [count(GPU, [None, Some("a100"), Some("h100")][kind], n)];
                let chosen = pool.choose(&node, &need, |_| u64::MAX);
                prop_assert_eq!(chosen.is_some(), amounts.has(&node, &need));
                if let Some(shares) = chosen {
                    prop_assert!(pool.has(&node, &shares));
                    pool.take(&node, &shares);
                    amounts = amounts.less(&GresAmounts::held(&node, &shares));
                    prop_assert_eq!(&amounts, &GresAmounts::free(&node, &pool));
                }
            }
        }
    }
}
