//! Names in order, with repeats.

use super::{
    parse::{self, HostListError, MAX_HOSTS},
    run::{Piece, Run},
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Host names in their order, repeats kept, held as ranges: a million names in one pair of brackets cost one entry.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostList {
    runs: Vec<Run>,
    len: u64,
}

impl HostList {
    /// The empty list.
    pub fn new() -> Self {
        Self::default()
    }
    /// Reads a text that may stand for `limit` names at most.
    pub fn parse_limited(text: &str, limit: u64) -> Result<Self, HostListError> {
        parse::parse(text, limit)
    }
    /// How many names, repeats counted.
    pub const fn len(&self) -> u64 {
        self.len
    }
    /// No names.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Adds one name (not a text with brackets) at the end.
    pub fn push(&mut self, name: &str) {
        if self.runs.last_mut().is_some_and(|last| last.extend(name)) {
            self.len += 1;
        } else {
            self.push_run(Run::of_name(name));
        }
    }
    /// Adds another list at the end.
    pub fn append(&mut self, other: Self) {
        for run in other.runs {
            self.push_run(run);
        }
    }
    pub(super) fn push_run(&mut self, run: Run) {
        self.len += run.len();
        if !self.runs.last_mut().is_some_and(|last| last.join(&run)) {
            self.runs.push(run);
        }
    }
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }
    /// The names, made one at a time.
    pub fn iter(&self) -> impl Iterator<Item = String> + '_ {
        self.runs.iter().flat_map(|run| (0..run.len()).map(move |n| run.name(n)))
    }
    /// The n-th name, from 0.
    pub fn get(&self, n: u64) -> Option<String> {
        let mut n = n;
        for run in &self.runs {
            if n < run.len() {
                return Some(run.name(n));
            }
            n -= run.len();
        }
        None
    }
    /// The first name.
    pub fn first(&self) -> Option<String> {
        self.get(0)
    }
    /// Where a name comes first, from 0.
    pub fn position(&self, name: &str) -> Option<u64> {
        let mut before = 0;
        for run in &self.runs {
            if let Some(n) = run.position(name) {
                return Some(before + n);
            }
            before += run.len();
        }
        None
    }
    /// Is the name there?
    pub fn contains(&self, name: &str) -> bool {
        self.position(name).is_some()
    }
    /// The same names in order (`r2` before `r10`, short numbers before long ones), repeats kept.
    #[must_use]
    pub fn sorted(&self) -> Self {
        let mut pieces: Vec<Piece> = Vec::new();
        for piece in self.runs.iter().flat_map(Run::pieces) {
            pieces.extend((piece.first..=piece.last).map(|n| Piece { first: n, last: n, ..piece.clone() }));
        }
        pieces.sort_by(Piece::order);
        let mut list = Self::new();
        for piece in pieces {
            list.push_run(piece.run());
        }
        list
    }
    /// The same names in order, each once.
    #[must_use]
    pub fn sorted_unique(&self) -> Self {
        super::set::HostSet::from(self).to_list()
    }
}

impl PartialEq for HostList {
    /// The same names in the same order, however they were written.
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && (self.runs == other.runs || self.iter().eq(other.iter()))
    }
}
impl Eq for HostList {}

impl FromStr for HostList {
    type Err = HostListError;
    /// Up to [`MAX_HOSTS`] names.
    fn from_str(text: &str) -> Result<Self, HostListError> {
        parse::parse(text, MAX_HOSTS)
    }
}

impl TryFrom<String> for HostList {
    type Error = HostListError;
    fn try_from(text: String) -> Result<Self, HostListError> {
        text.parse()
    }
}

impl From<HostList> for String {
    fn from(list: HostList) -> Self {
        list.to_string()
    }
}

impl<S: AsRef<str>> FromIterator<S> for HostList {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let mut list = Self::new();
        for name in names {
            list.push(name.as_ref());
        }
        list
    }
}

impl fmt::Display for HostList {
    /// Folded: neighbours that differ in their number share brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        let mut text = String::new();
        for group in self.runs.chunk_by(Run::same_group) {
            let Some(one) = group.first() else { continue };
            if !text.is_empty() {
                text.push(',');
            }
            if group.len() == 1 && one.len() == 1 {
                text.push_str(&one.name(0));
                continue;
            }
            let mut separator = '[';
            text.push_str(&one.prefix);
            for run in group {
                text.push(separator);
                run.write_numbers(&mut text)?;
                separator = ',';
            }
            write!(text, "]{}", one.suffix)?;
        }
        f.pad(&text)
    }
}
