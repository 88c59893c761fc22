//! CPU numbers of a machine as sysfs, cpusets and `taskset` write them: `0-3,7`.

use std::{collections::BTreeSet, fmt, str::FromStr};

/// A set of CPU (or memory node) numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(BTreeSet<u32>);

/// Text that is not a CPU list.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a CPU list: '{0}'")]
pub struct CpuListError(String);

/// Larger than any CPU number that Linux can be built for (8192), small enough that a bad range cannot fill memory.
const MOST: u32 = 65_536;

impl CpuList {
    /// Numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// No number.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Is it in?
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }
    /// Numbers in both.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let wrong = || CpuListError(text.trim().to_owned());
        let number = |s: &str| s.trim().parse::<u32>().ok().filter(|n| *n < MOST).ok_or_else(wrong);
        let mut set = BTreeSet::new();
        for part in text.trim().split(',').filter(|p| !p.is_empty()) {
            match part.split_once('-') {
                None => {
                    set.insert(number(part)?);
                }
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(wrong());
                    }
                    set.extend(first..=last);
                }
            }
        }
        Ok(Self(set))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if(|n| *n == last + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lists_read_back_folded() {
        for (text, folded) in [("0-3,7\n", "0-3,7"), ("1,0,2", "0-2"), ("", ""), ("5", "5"), ("0-0", "0")] {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), folded);
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["x", "3-1", "1-", "-1", "0-4000000000", "1;2"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }
}
