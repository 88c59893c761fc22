//! Generic resources (GRES): countable things of a node such as GPUs, by name and type. What nodes have ([`GresEntry`]),
//! what is asked for ([`GresRequest`]), what a job or step holds of a node ([`GresShare`]), and what of a node is free
//! ([`GresPool`]). One rule for the scheduler, the node's owner and the step manager.
//!
//! Devices of a name are numbered from 0 on their node, over all types, in the order of `Gres=`. A GRES that stands for
//! no devices is only counted.

mod amounts;
mod pool;
mod request;
mod shards;
mod totals;

pub use amounts::{GresAmounts, GresTaken};
pub use pool::GresPool;
pub use request::{GpuBind, GresBinding, GresRequest};
pub use totals::{MOST_TYPES, Totals};

use crate::resources::CpuSet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of the GRES that options such as `--gpus` ask for.
pub const GPU: &str = "gpu";

/// The name of the GRES that stands for parts of GPUs, which jobs share.
pub const SHARD: &str = "shard";

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
    /// Where each device is, in their order; empty where nothing is known of that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<DevicePlace>,
    /// They are parts of the node's GPUs ([`SHARD`]): how many of each, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<u64>,
}

/// Where a device is in its node (`Cores` and `Links` of `gres.conf`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DevicePlace {
    /// CPUs near to it; empty: all are.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub cpus: CpuSet,
    /// Connections to each device of its name, by number; -1 is the device itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<i32>,
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
    /// Which devices of that name, of shards the one GPU that they are of; empty where they are only counted.
    #[serde(default)]
    pub devices: CpuSet,
}

/// Generic resources on several nodes together.
pub fn counted<'s>(shares: impl Iterator<Item = &'s GresShare>) -> Vec<GresCount> {
    let mut all: Vec<GresCount> = Vec::new();
    for share in shares {
        match all.iter_mut().find(|one| one.name == share.name && one.kind == share.kind) {
            Some(one) => one.count = one.count.saturating_add(share.count),
            None => all.push(GresCount { name: share.name.clone(), kind: share.kind.clone(), count: share.count }),
        }
    }
    all
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

/// As TRES: `gres/gpu:h100:2,gres/craynetwork:1`; `None` for nothing.
pub fn tres_text<'a>(asked: impl IntoIterator<Item = &'a GresCount>) -> Option<String> {
    let parts: Vec<String> = asked.into_iter().map(|one| format!("gres/{one}")).collect();
    (!parts.is_empty()).then(|| parts.join(","))
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

/// Devices of a name that the holder of these shares may use: of GPUs also those that it has shards of.
pub fn devices_used(shares: &[GresShare], name: &str) -> CpuSet {
    let devices = devices_in(shares, name);
    if name == GPU { devices.union(&devices_in(shares, SHARD)) } else { devices }
}

/// Where a device of a name is.
pub fn place_of_device<'a>(entries: &'a [GresEntry], name: &str, number: u32) -> Option<&'a DevicePlace> {
    let of_name = entries.iter().enumerate().filter(|(_, entry)| entry.name == name);
    of_name
        .filter_map(|(place, entry)| {
            let at = u64::from(number).checked_sub(first_device(entries, place))?;
            entry.places.get(usize::try_from(at).ok()?)
        })
        .next()
}

/// CPUs near to any of these devices of a name; `None`: all are.
pub fn near_cpus(entries: &[GresEntry], name: &str, devices: &CpuSet) -> Option<CpuSet> {
    let mut near = CpuSet::new();
    for device in devices.iter() {
        let cpus = place_of_device(entries, name, device).map(|place| &place.cpus).filter(|cpus| !cpus.is_empty())?;
        near.add(cpus);
    }
    Some(near)
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

#[cfg(test)]
mod tests;
