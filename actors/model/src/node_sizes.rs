//! Numbers of nodes that a job may have where they are no plain range: `--nodes=1,5,9` and `--nodes=1-15:4`.

use crate::spec::NodeCount;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Most ranges in one request.
const MOST_RANGES: usize = 64;

/// Inclusive ranges `(first, last, step)`, as written. Empty: whatever [`NodeCount`] says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeSizes(Vec<(u32, u32, u32)>);

/// Text that names no numbers of nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a valid node count")]
pub struct NodeSizesError(String);

impl NodeSizes {
    /// None are named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Least and most. What was read or decoded may come from anywhere: nothing useful or too many ranges, no bounds.
    pub fn bounds(&self) -> Option<NodeCount> {
        let sound = self.0.iter().all(|&(first, last, step)| first > 0 && first <= last && step > 0);
        let sound = sound && self.0.len() <= MOST_RANGES;
        let min = self.0.iter().map(|(first, ..)| *first).min().filter(|_| sound)?;
        let max = self.0.iter().map(|&(first, last, step)| last - (last - first) % step).max();
        Some(NodeCount { min, max })
    }

    /// Is it one of them?
    pub fn contains(&self, size: u32) -> bool {
        self.0
            .iter()
            .any(|&(first, last, step)| (first..=last).contains(&size) && (size - first).is_multiple_of(step.max(1)))
    }

    /// Those from `min` to `max`, the least first.
    pub fn ascending(&self, min: u32, max: u32) -> impl Iterator<Item = u32> {
        let least = move |min: u32| {
            let of_range = |&(first, last, step): &(u32, u32, u32)| {
                let steps = min.saturating_sub(first).div_ceil(step.max(1));
                first.checked_add(steps.checked_mul(step.max(1))?).filter(|size| *size <= last)
            };
            self.0.iter().filter_map(of_range).min().filter(|size| *size <= max)
        };
        std::iter::successors(least(min), move |size| size.checked_add(1).and_then(least))
    }

    /// Those from `min` to `max`, the greatest first.
    pub fn descending(&self, min: u32, max: u32) -> impl Iterator<Item = u32> {
        let greatest = move |max: u32| {
            let of_range = |&(first, last, step): &(u32, u32, u32)| {
                let top = last.min(max);
                top.checked_sub(first).map(|over| top - over % step.max(1))
            };
            self.0.iter().filter_map(of_range).max().filter(|size| *size >= min)
        };
        std::iter::successors(greatest(max), move |size| size.checked_sub(1).and_then(greatest))
    }
}

impl FromStr for NodeSizes {
    type Err = NodeSizesError;
    /// Empty for what is a plain count or range.
    fn from_str(text: &str) -> Result<Self, NodeSizesError> {
        if !text.contains([',', ':']) {
            return Ok(Self::default());
        }
        let wrong = || NodeSizesError(text.to_owned());
        let part = |part: &str| {
            let (range, step) = part.split_once(':').map_or((part, None), |(range, step)| (range, Some(step)));
            let NodeCount { min, max } = range.parse().ok()?;
            let step = step.map_or(Some(1), |step| step.trim().parse().ok())?;
            Some((min, max.unwrap_or(min), step))
        };
        let sizes = Self(text.split(',').map(part).collect::<Option<_>>().ok_or_else(wrong)?);
        if sizes.bounds().is_some() { Ok(sizes) } else { Err(wrong()) }
    }
}

impl fmt::Display for NodeSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |&(first, last, step): &(u32, u32, u32)| match step {
            _ if first == last => first.to_string(),
            1 => format!("{first}-{last}"),
            _ => format!("{first}-{last}:{step}"),
        };
        f.pad(&self.0.iter().map(part).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> NodeSizes {
        text.parse().unwrap()
    }

    #[test]
    fn lists_and_steps_are_sets_of_numbers() {
        let all = |text| sizes(text).descending(0, u32::MAX).collect::<Vec<_>>();
        assert_eq!(all("1-15:4"), [13, 9, 5, 1]);
        assert_eq!(all("1,5,9,13"), [13, 9, 5, 1]);
        assert_eq!(all("8,2-4,3-9:3"), [9, 8, 6, 4, 3, 2]);
        assert_eq!(all("1k,2"), [1024, 2]);
        let up = |text, min, max| sizes(text).ascending(min, max).take(4).collect::<Vec<_>>();
        assert_eq!(up("1-15:4", 0, u32::MAX), [1, 5, 9, 13]);
        assert_eq!(up("8,2-4,3-9:3", 3, 8), [3, 4, 6, 8]);
        assert_eq!(up("1-4294967295:2", 4_294_967_290, u32::MAX), [4_294_967_291, 4_294_967_293, 4_294_967_295]);
        assert_eq!(sizes("1-15:4").bounds(), Some(NodeCount { min: 1, max: Some(13) }));
        assert_eq!(sizes("1-15:4").descending(2, 12).collect::<Vec<_>>(), [9, 5]);
        assert!(sizes("1-15:4").contains(9) && !sizes("1-15:4").contains(14) && !sizes("4-8:2").contains(2));
    }

    #[test]
    fn counts_and_ranges_are_none() {
        assert!(sizes("4").is_empty() && sizes("2-4").is_empty());
        for wrong in ["1,", "0,2", "4-2,1", "1-4:0", "1-4:x", "1:2:3", ",", "a,b", "1-4:"] {
            assert!(wrong.parse::<NodeSizes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn there_are_not_too_many_ranges() {
        assert_eq!(sizes(&["7"; 64].join(",")).bounds(), Some(NodeCount { min: 7, max: Some(7) }));
        assert!(["7"; 65].join(",").parse::<NodeSizes>().is_err());
    }

    #[test]
    fn text_is_as_written() {
        for text in ["1-15:4", "1,5,9", "2-4,8"] {
            assert_eq!(sizes(text).to_string(), text);
        }
    }
}
