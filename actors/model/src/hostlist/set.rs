//! Names sorted, each once.

use super::{
    list::HostList,
    parse::HostListError,
    run::{Piece, Run, natural},
};
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, collections::BTreeMap, fmt, str::FromStr, sync::Arc};

/// Host names without order or repeats, held as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostSet {
    /// Sorted, disjoint ranges that do not touch.
    groups: BTreeMap<Group, Vec<(u64, u64)>>,
}

/// Names with one prefix and numbers of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    prefix: Arc<str>,
    figures: usize,
}

impl Ord for Group {
    fn cmp(&self, other: &Self) -> Ordering {
        natural(&self.prefix, &other.prefix).then(self.figures.cmp(&other.figures))
    }
}
impl PartialOrd for Group {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl HostSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }
    /// How many names.
    pub fn len(&self) -> u64 {
        self.groups.values().flatten().map(|(first, last)| last - first + 1).sum()
    }
    /// No names.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
    /// Adds a name (not a text with brackets); true when it was not there.
    pub fn insert(&mut self, name: &str) -> bool {
        let before = self.contains(name);
        self.insert_run(&Run::of_name(name));
        !before
    }
    /// Adds all names of a list.
    pub fn insert_list(&mut self, list: &HostList) {
        for run in list.runs() {
            self.insert_run(run);
        }
    }
    fn insert_run(&mut self, run: &Run) {
        for Piece { prefix, figures, first, last } in run.pieces() {
            let ranges = self.groups.entry(Group { prefix, figures }).or_default();
            // All ranges that touch or overlap the new one become one with it.
            let from = ranges.partition_point(|&(_, end)| end.saturating_add(1) < first);
            let to = ranges.partition_point(|&(start, _)| start <= last.saturating_add(1));
            let merged = match ranges.get(from..to) {
                Some(&[(start, _), .., (_, end)]) | Some(&[(start, end)]) => (start.min(first), end.max(last)),
                _ => (first, last),
            };
            ranges.splice(from..to.max(from), [merged]);
        }
    }
    /// Takes a name out; true when it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(piece) = Run::of_name(name).pieces().pop() else { return false };
        let group = Group { prefix: piece.prefix, figures: piece.figures };
        let Some(ranges) = self.groups.get_mut(&group) else { return false };
        let at = ranges.partition_point(|&(_, end)| end < piece.first);
        let Some(&(start, end)) = ranges.get(at).filter(|(start, _)| *start <= piece.first) else { return false };
        let below = (start < piece.first).then(|| (start, piece.first - 1));
        let above = (piece.first < end).then(|| (piece.first + 1, end));
        ranges.splice(at..=at, below.into_iter().chain(above));
        if ranges.is_empty() {
            self.groups.remove(&group);
        }
        true
    }
    /// Is the name there?
    pub fn contains(&self, name: &str) -> bool {
        Run::of_name(name).pieces().into_iter().all(|piece| {
            self.groups.get(&Group { prefix: piece.prefix, figures: piece.figures }).is_some_and(|ranges| {
                let at = ranges.partition_point(|&(_, end)| end < piece.first);
                ranges.get(at).is_some_and(|(start, _)| *start <= piece.first)
            })
        })
    }
    /// The names in order.
    pub fn to_list(&self) -> HostList {
        let mut list = HostList::new();
        for (group, ranges) in &self.groups {
            for &(first, last) in ranges {
                list.push_run(Piece { prefix: group.prefix.clone(), figures: group.figures, first, last }.run());
            }
        }
        list
    }
    /// The names in order, one at a time.
    pub fn iter(&self) -> impl Iterator<Item = String> + '_ {
        self.groups.iter().flat_map(|(group, ranges)| {
            ranges.iter().flat_map(move |&(first, last)| {
                let run = Piece { prefix: group.prefix.clone(), figures: group.figures, first, last }.run();
                (0..run.len()).map(move |n| run.name(n))
            })
        })
    }
}

impl From<&HostList> for HostSet {
    fn from(list: &HostList) -> Self {
        let mut set = Self::new();
        set.insert_list(list);
        set
    }
}

impl FromStr for HostSet {
    type Err = HostListError;
    fn from_str(text: &str) -> Result<Self, HostListError> {
        Ok(Self::from(&text.parse::<HostList>()?))
    }
}

impl TryFrom<String> for HostSet {
    type Error = HostListError;
    fn try_from(text: String) -> Result<Self, HostListError> {
        text.parse()
    }
}

impl From<HostSet> for String {
    fn from(set: HostSet) -> Self {
        set.to_string()
    }
}

impl<S: AsRef<str>> FromIterator<S> for HostSet {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let mut set = Self::new();
        for name in names {
            set.insert_run(&Run::of_name(name.as_ref()));
        }
        set
    }
}

impl fmt::Display for HostSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_list().fmt(f)
    }
}
