//! Resources as integers: CPU sets as bitmaps over a node's CPUs, memory in MiB.

use fixedbitset::FixedBitSet;
use serde::{Deserialize, Serialize};
use std::{fmt, hash, ops::Range, str::FromStr};

/// Memory in MiB (what Slurm calls megabytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemoryMib(pub u64);

/// Memory as a job or step asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryRequest {
    /// Nothing said: the partition's or cluster's default applies.
    #[default]
    Default,
    /// `--mem=N`: per node.
    PerNode(MemoryMib),
    /// `--mem-per-cpu=N`.
    PerCpu(MemoryMib),
    /// `--mem=0`: all of the node's (job) or of the allocation's (step) memory.
    All,
}

/// A set of abstract CPU numbers of one node. Travels as sorted ranges, `0-3,7`.
#[derive(Clone, Default)]
pub struct CpuSet(FixedBitSet);

/// CPU numbers in text end here, so that a mistyped range cannot ask for gigabytes.
pub const MAX_CPU: u32 = 65_535;

/// Text that is not an amount or a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceTextError {
    /// Not a number with an optional unit.
    #[error("\"{0}\" is not an amount of memory: expected a whole number with K, M, G or T (megabytes without one)")]
    Memory(String),
    /// More than can be counted.
    #[error("\"{0}\" is more memory than can be counted")]
    TooMuch(String),
    /// Not numbers and ranges.
    #[error("\"{text}\" is not a list of CPUs: \"{part}\" is neither a number nor a range")]
    Cpus {
        /// The whole text.
        text: String,
        /// The part that is wrong.
        part: String,
    },
    /// Beyond [`MAX_CPU`].
    #[error("CPU number {0} is above {MAX_CPU}")]
    CpuTooLarge(String),
}

impl MemoryMib {
    /// None.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Text with a unit (`K`, `M`, `G`, `T`, either case, a `B` after it allowed), or a bare number in `bare_unit_kib` KiB.
    fn parse_in(text: &str, bare_unit_kib: u64) -> Result<Self, ResourceTextError> {
        let wrong = || ResourceTextError::Memory(text.to_owned());
        let text_trimmed = text.trim();
        let digits = text_trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text_trimmed.split_at(digits);
        if number.is_empty() {
            return Err(wrong());
        }
        let number: u64 = number.parse().map_err(|_| ResourceTextError::TooMuch(text.to_owned()))?;
        let kib: u64 = match unit.to_ascii_uppercase().as_str() {
            "" => bare_unit_kib,
            "K" | "KB" => 1,
            "M" | "MB" => 1 << 10,
            "G" | "GB" => 1 << 20,
            "T" | "TB" => 1 << 30,
            _ => return Err(wrong()),
        };
        let kib = number.checked_mul(kib).ok_or_else(|| ResourceTextError::TooMuch(text.to_owned()))?;
        Ok(Self(kib.div_ceil(1024)))
    }
}

impl FromStr for MemoryMib {
    type Err = ResourceTextError;
    /// A bare number is megabytes; what is not whole megabytes is rounded up.
    fn from_str(text: &str) -> Result<Self, ResourceTextError> {
        Self::parse_in(text, 1024)
    }
}

impl fmt::Display for MemoryMib {
    /// As `squeue` and `scontrol` print memory: the next unit as long as whole or half ones come out (`1000M`, `1G`,
    /// `1.50G`, `187.50G`, `1088M`), and a bare `0`. Seen with Slurm: above 1 TiB a half is dropped (1049088M is `1.00T`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.pad("0");
        }
        let mut units = ["M", "G", "T", "P", "E"].iter();
        let mut unit = units.next().copied().unwrap_or_default();
        let mut amount = self.0 as f64;
        while amount >= 1024.0 && (amount as u64).is_multiple_of(512) {
            let Some(next) = units.next() else { break };
            unit = next;
            amount /= 1024.0;
        }
        let decimals = if amount.fract() == 0.0 { 0 } else { 2 };
        let text = format!("{amount:.decimals$}{unit}");
        f.pad(&text)
    }
}

impl CpuSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }
    /// How many CPUs.
    pub fn len(&self) -> u32 {
        u32::try_from(self.0.count_ones(..)).unwrap_or(u32::MAX)
    }
    /// No CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_clear()
    }
    /// Adds a CPU; true when it was not there.
    pub fn insert(&mut self, cpu: u32) -> bool {
        self.0.grow(cpu as usize + 1);
        !self.0.put(cpu as usize)
    }
    /// Takes a CPU out; true when it was there.
    pub fn remove(&mut self, cpu: u32) -> bool {
        let there = self.contains(cpu);
        if there {
            self.0.set(cpu as usize, false);
        }
        there
    }
    /// Is it there?
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(cpu as usize)
    }
    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.ones().map(|cpu| cpu as u32)
    }
    /// In one or the other.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.0.union_with(&other.0);
        all
    }
    /// In this one and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.0.difference_with(&other.0);
        rest
    }
    /// In both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.0.intersect_with(&other.0);
        both
    }
    /// Nothing in common?
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.0.is_disjoint(&other.0)
    }
    /// All of these in the other?
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
    /// Adds all of the other's.
    pub fn add(&mut self, other: &Self) {
        self.0.union_with(&other.0);
    }
    /// Takes all of the other's out.
    pub fn subtract(&mut self, other: &Self) {
        self.0.difference_with(&other.0);
    }
    /// The `n` lowest, or all when there are fewer.
    #[must_use]
    pub fn take(&self, n: u32) -> Self {
        self.iter().take(n as usize).collect()
    }
    /// The lowest.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }
    /// The highest.
    pub fn last(&self) -> Option<u32> {
        self.0.maximum().map(|cpu| cpu as u32)
    }
}

impl From<Range<u32>> for CpuSet {
    fn from(range: Range<u32>) -> Self {
        let mut set = FixedBitSet::with_capacity(range.end.max(range.start) as usize);
        set.insert_range(range.start as usize..range.end.max(range.start) as usize);
        Self(set)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::new();
        set.extend(cpus);
        set
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

// By members: the bitmap's own equality would also compare its spare room.
impl PartialEq for CpuSet {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}
impl Eq for CpuSet {}
impl hash::Hash for CpuSet {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        for cpu in self.iter() {
            cpu.hash(state);
        }
        self.len().hash(state);
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut cpus = self.iter().peekable();
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&first.to_string());
            if last > first {
                text.push('-');
                text.push_str(&last.to_string());
            }
        }
        f.pad(&text)
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = ResourceTextError;
    fn from_str(text: &str) -> Result<Self, ResourceTextError> {
        let mut set = Self::new();
        if text.trim().is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let wrong = || ResourceTextError::Cpus { text: text.to_owned(), part: part.to_owned() };
            let number = |digits: &str| {
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(wrong());
                }
                digits
                    .parse::<u32>()
                    .ok()
                    .filter(|&n| n <= MAX_CPU)
                    .ok_or_else(|| ResourceTextError::CpuTooLarge(digits.to_owned()))
            };
            let part = part.trim();
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(wrong());
            }
            set.extend(first..=last);
        }
        Ok(set)
    }
}

impl Serialize for CpuSet {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Ranges;
        impl serde::de::Visitor<'_> for Ranges {
            type Value = CpuSet;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("CPU numbers and ranges such as \"0-3,7\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<CpuSet, E> {
                text.parse().map_err(E::custom)
            }
        }
        d.deserialize_str(Ranges)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_forms_are_slurms() {
        let mib = |text: &str| text.parse::<MemoryMib>().map(|m| m.0);
        assert_eq!(mib("1000"), Ok(1000));
        assert_eq!(mib("1G"), Ok(1024));
        assert_eq!(mib("1gb"), Ok(1024));
        assert_eq!(mib("573M"), Ok(573));
        assert_eq!(mib("2T"), Ok(2 << 20));
        assert_eq!(mib("512K"), Ok(1));
        assert_eq!(mib("1025K"), Ok(2));
        assert_eq!(mib(" 5"), Ok(5));
        for wrong in ["", "G", "1.5G", "2P", "3M5", "5X", "-3", "+1", "99999999999999999999", "18446744073709551615T"] {
            assert!(mib(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn memory_prints_as_slurm_does() {
        let cases = [
            (0, "0"),
            (1, "1M"),
            (512, "512M"),
            (1000, "1000M"),
            (1024, "1G"),
            (1088, "1088M"),
            (1152, "1152M"),
            (1280, "1280M"),
            (1536, "1.50G"),
            (1792, "1792M"),
            (4000, "4000M"),
            (191_000, "191000M"),
            (192_000, "187.50G"),
            (1_048_577, "1048577M"),
            (1_049_088, "1.00T"),
            (1_049_600, "1025G"),
            (1_572_864, "1.50T"),
            (2 << 20, "2T"),
        ];
        for (mib, text) in cases {
            assert_eq!(MemoryMib(mib).to_string(), text, "{mib}");
        }
    }

    #[test]
    fn cpu_sets_read_and_print_ranges() {
        let set: CpuSet = "0-3,7,9-10".parse().unwrap();
        assert_eq!(set.len(), 7);
        assert_eq!(set.to_string(), "0-3,7,9-10");
        assert_eq!(set.take(5).to_string(), "0-3,7");
        assert_eq!(CpuSet::from(2..5).intersection(&set).to_string(), "2-3");
        assert_eq!("".parse::<CpuSet>().unwrap(), CpuSet::new());
        for wrong in ["1-", "-1", "3-1", "a", "1,,2", "0-65536", "4294967296"] {
            assert!(wrong.parse::<CpuSet>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sets_with_the_same_cpus_are_equal_whatever_their_past() {
        let mut a = CpuSet::from(0..100);
        a.subtract(&CpuSet::from(4..100));
        assert_eq!(a, CpuSet::from(0..4));
        assert!(!a.remove(70) && a.remove(3));
        assert_eq!(a.last(), Some(2));
    }

    proptest! {
        #[test]
        fn cpu_sets_survive_text(cpus in proptest::collection::vec(0u32..300, 0..80)) {
            let set: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(&set.to_string().parse::<CpuSet>().unwrap(), &set);
            let distinct: std::collections::BTreeSet<u32> = cpus.into_iter().collect();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), distinct.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn set_algebra_holds(a in proptest::collection::vec(0u32..90, 0..40), b in proptest::collection::vec(0u32..200, 0..40)) {
            let (a, b): (CpuSet, CpuSet) = (a.into_iter().collect(), b.into_iter().collect());
            prop_assert!(a.difference(&b).is_disjoint(&b));
            prop_assert!(a.intersection(&b).is_subset(&a) && a.intersection(&b).is_subset(&b));
            prop_assert_eq!(a.union(&b).len(), a.len() + b.difference(&a).len());
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a);
        }

        #[test]
        fn any_text_is_an_amount_or_an_error(s in "\\PC{0,20}|[0-9kKmMgGtT,-]{0,24}") {
            let _ = s.parse::<MemoryMib>();
            let _ = s.parse::<CpuSet>();
        }

        #[test]
        fn printing_any_amount_does_not_panic(n: u64) {
            prop_assert!(!MemoryMib(n).to_string().is_empty());
        }
    }
}
