//! `--array`: `1-20%2`, `0-15:4`, `1,3,5-7`, and back.

use crate::spec::ArraySpec;
use fixedbitset::FixedBitSet;
use std::{fmt, str::FromStr};

/// Greatest index: Slurm allows MaxArraySize up to 4000001 (`slurm.conf(5)`).
pub const MAX_INDEX: u32 = 4_000_000;

/// Most indices that a text may name, those counted that are named again: each costs a little.
const MOST_NAMED: usize = 4 * MAX_INDEX as usize;

/// Is each range behind the one before it? Those of texts that were parsed are.
pub fn are_sorted(ranges: &[(u32, u32, u32)]) -> bool {
    ranges.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

/// Is this index in one of the sorted ranges?
pub fn contains_index(ranges: &[(u32, u32, u32)], index: u32) -> bool {
    let behind = ranges.partition_point(|range| range.0 <= index);
    behind
        .checked_sub(1)
        .and_then(|at| ranges.get(at))
        .is_some_and(|&(first, last, step)| index <= last && (index - first).is_multiple_of(step.max(1)))
}

/// Text that is no array specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayTextError {
    /// Nothing there.
    #[error("no array indices given")]
    Empty,
    /// Not an index, a range or a range with a step.
    #[error("array \"{text}\": \"{part}\" is neither an index nor a range FIRST-LAST[:STEP]")]
    Part {
        /// The whole text.
        text: String,
        /// What is wrong.
        part: String,
    },
    /// `5-1`
    #[error("array \"{text}\": the range \"{part}\" runs backwards")]
    Backwards {
        /// The whole text.
        text: String,
        /// What is wrong.
        part: String,
    },
    /// Beyond [`MAX_INDEX`].
    #[error("array \"{text}\": index {part} is above {MAX_INDEX}")]
    TooLarge {
        /// The whole text.
        text: String,
        /// The index.
        part: String,
    },
    /// The same indices again and again.
    #[error("array \"{0}...\" names more than {MOST_NAMED} indices, repeated ones counted")]
    TooMany(String),
    /// `%x`
    #[error("array \"{text}\": \"{part}\" is not a number of tasks")]
    Limit {
        /// The whole text.
        text: String,
        /// What stands after the `%`.
        part: String,
    },
}

impl ArraySpec {
    /// From indices in any order.
    pub fn from_indices(indices: impl IntoIterator<Item = u32>, limit: Option<u32>) -> Self {
        let mut set = FixedBitSet::new();
        for index in indices {
            set.grow_and_insert(index as usize);
        }
        Self { ranges: ranges_of(&set), limit }
    }
    /// For what came from elsewhere: are the ranges sorted, disjoint and below `MaxArraySize`, with at least one index?
    /// The other methods take that for granted.
    pub fn is_sound(&self, max_array_size: u32) -> bool {
        let fits = |&(first, last, step): &(u32, u32, u32)| step > 0 && first <= last && last < max_array_size;
        are_sorted(&self.ranges) && !self.ranges.is_empty() && self.ranges.iter().all(fits)
    }
    /// How many tasks.
    pub fn count(&self) -> u32 {
        let counts = self.ranges.iter().map(|&(first, last, step)| last.saturating_sub(first) / step.max(1));
        counts.fold(0, |sum, more| more.saturating_add(1).saturating_add(sum))
    }
    /// The indices, range by range: ascending, since ranges are sorted.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|&(first, last, step)| (first..=last).step_by(step.max(1) as usize))
    }
    /// Is this one of the tasks?
    pub fn contains(&self, index: u32) -> bool {
        contains_index(&self.ranges, index)
    }
    /// Smallest index.
    pub fn min(&self) -> Option<u32> {
        self.ranges.first().map(|r| r.0)
    }
    /// Greatest index.
    pub fn max(&self) -> Option<u32> {
        self.ranges.last().map(|&(first, last, step)| first + (last - first) / step.max(1) * step.max(1))
    }
    /// The step between the first two indices where it is the same throughout, else 1 (`SLURM_ARRAY_TASK_STEP`).
    pub fn step(&self) -> u32 {
        match *self.ranges {
            [(first, last, step)] if last > first => step.max(1),
            _ => 1,
        }
    }
    /// No task is left.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
    /// Takes a task out; true when it was there.
    pub fn remove(&mut self, index: u32) -> bool {
        let there = self.contains(index);
        if there {
            *self = Self::from_indices(self.indices().filter(|&i| i != index), self.limit);
        }
        there
    }
    /// Takes the task with the smallest index out.
    pub fn take_first(&mut self) -> Option<u32> {
        let (first, last, step) = self.ranges.first_mut()?;
        let taken = *first;
        match taken.checked_add((*step).max(1)).filter(|next| next <= last) {
            Some(next) => {
                *first = next;
                if next.checked_add((*step).max(1)).is_none_or(|after| after > *last) {
                    (*last, *step) = (next, 1);
                }
            }
            None => {
                self.ranges.remove(0);
            }
        }
        Some(taken)
    }
}

/// Sorted, disjoint ranges: whole runs first, then equal steps of three indices or more.
fn ranges_of(set: &FixedBitSet) -> Vec<(u32, u32, u32)> {
    let indices: Vec<u32> = set.ones().map(|bit| bit as u32).collect();
    let mut ranges = Vec::new();
    let mut rest = indices.as_slice();
    while let [first, after @ ..] = rest {
        let step = after.first().map_or(1, |next| next - first);
        let mut length = 1;
        while rest.get(length).is_some_and(|&next| next - rest[length - 1] == step) {
            length += 1;
        }
        // Two indices that happen to be apart are two ranges; the second may begin a run of its own.
        if step > 1 && length < 3 {
            length = 1;
        }
        let last = rest[length - 1];
        ranges.push((*first, last, if length > 1 { step } else { 1 }));
        rest = &rest[length..];
    }
    ranges
}

impl FromStr for ArraySpec {
    type Err = ArrayTextError;
    /// Brackets around the whole are allowed, and repeated indices count once. A limit of 0 is no limit.
    fn from_str(text: &str) -> Result<Self, ArrayTextError> {
        let inside = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        let (list, limit) = match inside.split_once('%') {
            None => (inside, None),
            Some((list, limit)) => {
                let wrong = || ArrayTextError::Limit { text: text.to_owned(), part: limit.to_owned() };
                (list, Some(digits(limit).ok_or_else(wrong)?))
            }
        };
        if list.is_empty() {
            return Err(ArrayTextError::Empty);
        }
        let mut set = FixedBitSet::new();
        let mut named = 0;
        for part in list.split(',') {
            let wrong = || ArrayTextError::Part { text: text.to_owned(), part: part.to_owned() };
            let index = |figures: &str| match digits(figures) {
                Some(n) if n <= MAX_INDEX => Ok(n),
                None if figures.is_empty() || !figures.bytes().all(|b| b.is_ascii_digit()) => Err(wrong()),
                _ => Err(ArrayTextError::TooLarge { text: text.to_owned(), part: figures.to_owned() }),
            };
            let (range, step) = match part.split_once(':') {
                None => (part, 1),
                Some((range, step)) => (range, index(step)?),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (index(first)?, index(last)?),
                None if part.contains(':') => return Err(wrong()),
                None => (index(range)?, index(range)?),
            };
            if step == 0 {
                return Err(wrong());
            }
            if last < first {
                return Err(ArrayTextError::Backwards { text: text.to_owned(), part: part.to_owned() });
            }
            named += (last - first) as usize / step as usize + 1;
            if named > MOST_NAMED {
                return Err(ArrayTextError::TooMany(text[..text.floor_char_boundary(64)].to_owned()));
            }
            set.grow(last as usize + 1);
            for i in (first..=last).step_by(step as usize) {
                set.insert(i as usize);
            }
        }
        Ok(Self { ranges: ranges_of(&set), limit: limit.filter(|&n| n > 0) })
    }
}

fn digits(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) { None } else { text.parse().ok() }
}

impl ArraySpec {
    /// The indices without the limit, as `squeue` and `scontrol` print them: runs as ranges, all else one by one, except
    /// that one step throughout is written `0-15:3` when there are six indices or more spanning more than ten (seen with
    /// Slurm: shorter ones are listed).
    pub fn indices_text(&self) -> String {
        if let [(first, last, step)] = *self.ranges
            && step > 1
            && self.count() >= 6
            && last - first > 10
        {
            let last = first + (last - first) / step * step;
            return format!("{first}-{last}:{step}");
        }
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for &(first, last, step) in &self.ranges {
            if step <= 1 {
                push_run(&mut runs, first, last);
            } else {
                (first..=last).step_by(step as usize).for_each(|i| push_run(&mut runs, i, i));
            }
        }
        let texts = runs.into_iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
        texts.collect::<Vec<_>>().join(",")
    }
}

fn push_run(runs: &mut Vec<(u32, u32)>, first: u32, last: u32) {
    match runs.last_mut() {
        Some((_, end)) if end.checked_add(1) == Some(first) => *end = last,
        _ => runs.push((first, last)),
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.indices_text();
        if let Some(limit) = self.limit {
            text.push_str(&format!("%{limit}"));
        }
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn arrays_print_as_slurm_prints_them() {
        for (text, want) in [
            ("1-20%2", "1-20%2"),
            ("0-15:4", "0,4,8,12"),
            ("1,3,5-7", "1,3,5-7"),
            ("1-3,2-5", "1-5"),
            ("3", "3"),
            ("7%0", "7"),
            ("1,1", "1"),
            ("[1-3]", "1-3"),
            ("1-5:9", "1"),
            ("1-5:2,2", "1-3,5"),
            ("1-7:2,9-15:2%4", "1-15:2%4"),
            ("1-20:3%2", "1-19:3%2"),
            ("0-10:2", "0,2,4,6,8,10"),
            ("0-12:2", "0-12:2"),
            ("0-40:10", "0,10,20,30,40"),
            ("0-15:3", "0-15:3"),
            ("1-9:2,20-30:2", "1,3,5,7,9,20,22,24,26,28,30"),
            ("1-4,8-20:2", "1-4,8,10,12,14,16,18,20"),
            ("5,6", "5-6"),
        ] {
            assert_eq!(text.parse::<ArraySpec>().unwrap().to_string(), want, "{text}");
        }
    }

    #[test]
    fn malformed_arrays_are_refused() {
        for text in [
            "",
            "5-1",
            "1-10:0",
            "1 - 3",
            "1-",
            "-3",
            "x",
            "1,",
            "%3",
            "1%x",
            "1%",
            "0-9%3%2",
            "4000001",
            "1-2-3",
            "3:2",
            "99999999999",
            "[1-3",
            "1-4:",
        ] {
            assert!(text.parse::<ArraySpec>().is_err(), "{text}");
        }
        assert_eq!(
            "5-1".parse::<ArraySpec>().unwrap_err().to_string(),
            "array \"5-1\": the range \"5-1\" runs backwards"
        );
    }

    #[test]
    fn tasks_split_off_one_by_one() {
        let mut array: ArraySpec = "1-5:2,8-9%2".parse().unwrap();
        assert_eq!((array.count(), array.min(), array.max()), (5, Some(1), Some(9)));
        let mut taken = Vec::new();
        while let Some(index) = array.take_first() {
            taken.push((index, array.to_string()));
        }
        let want = [(1, "3,5,8-9%2"), (3, "5,8-9%2"), (5, "8-9%2"), (8, "9%2"), (9, "%2")];
        assert_eq!(taken, want.map(|(index, left)| (index, left.to_owned())));
    }

    #[test]
    fn arrays_from_elsewhere_are_checked() {
        let of = |ranges: &[(u32, u32, u32)]| ArraySpec { ranges: ranges.to_vec(), limit: None };
        assert!("1-9:2,20-30".parse::<ArraySpec>().unwrap().is_sound(31));
        assert!(!of(&[(0, 31, 1)]).is_sound(31) && !of(&[]).is_sound(31));
        assert!(!of(&[(5, 1, 1)]).is_sound(31) && !of(&[(0, 4, 0)]).is_sound(31));
        assert!(!of(&[(0, 8, 2), (1, 9, 2)]).is_sound(31));
        assert_eq!(of(&[(0, u32::MAX, 1), (0, u32::MAX, 1)]).count(), u32::MAX);
    }

    /// A line of a hundred thousand bytes took minutes.
    #[test]
    fn the_same_indices_can_be_named_a_few_times_only() {
        assert_eq!(["0-4000000:2"; 7].join(",").parse::<ArraySpec>().unwrap().count(), 2_000_001);
        let said = ["0-4000000:2"; 8].join(",").parse::<ArraySpec>().unwrap_err().to_string();
        assert!(said.contains("names more than 16000000 indices"), "{said}");
    }

    #[test]
    fn the_largest_array_is_one_range() {
        let array: ArraySpec = "0-4000000".parse().unwrap();
        assert_eq!((array.ranges.len(), array.count(), array.step()), (1, 4_000_001, 1));
    }

    proptest! {
        #[test]
        fn indices_survive_text(indices in proptest::collection::btree_set(0u32..60, 1..30), gone in 0u32..60) {
            let mut array = ArraySpec::from_indices(indices.iter().copied(), Some(3));
            let again: ArraySpec = array.to_string().parse().unwrap();
            prop_assert_eq!(&again.indices().collect::<BTreeSet<_>>(), &indices);
            prop_assert_eq!(array.indices().collect::<Vec<_>>(), indices.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(array.count() as usize, indices.len());
            prop_assert!((0..60).all(|i| array.contains(i) == indices.contains(&i)));
            prop_assert_eq!(array.remove(gone), indices.contains(&gone));
            prop_assert!(!array.contains(gone));
            while let Some(first) = array.take_first() {
                prop_assert!(indices.contains(&first) && array.min().is_none_or(|next| next > first));
            }
        }

        #[test]
        fn any_text_is_an_array_or_an_error(s in "\\PC{0,20}|[0-9,%:\\[\\]-]{0,16}") {
            let _ = s.parse::<ArraySpec>();
        }
    }
}
