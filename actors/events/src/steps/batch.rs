//! Steps that were accepted together, as the step manager and its journal hold them: shared data are stored once.
//!
//! The *member* number of a step in its batch is the task's index in a step array, otherwise its index in the batch. Members of a
//! batch that is no array have consecutive step numbers.

use garrick_model::{
    batch::{BatchMembers, CommandList, StepBatch},
    ids::{StepKey, StepNum},
    spec::{ArraySpec, StepSpec},
    step_selector::WhichSteps,
};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

/// An accepted batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBatch {
    /// The requests. An empty environment: that of the previous spec.
    pub specs: Vec<Arc<StepSpec>>,
    /// Which steps are made of them.
    pub members: StoredMembers,
    #[serde(skip)]
    found: Found,
}

/// Values derived from a batch, computed once: lists have as many specs as lines, and each line is looked up.
#[derive(Clone, Debug, Default)]
struct Found {
    /// The first member of each row of a list.
    rows: OnceLock<Vec<u32>>,
    /// The spec that each spec's environment comes from.
    environments: OnceLock<Vec<u32>>,
}

/// These caches do not count for equality.
impl PartialEq for Found {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Found {}

/// The steps of a batch, see [`BatchMembers`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredMembers {
    /// Each spec is one step.
    Each,
    /// Tasks of one step array.
    Array(Arc<ArraySpec>),
    /// Each command is one step.
    Commands(Arc<CommandList>),
}

impl From<StepBatch> for StoredBatch {
    fn from(batch: StepBatch) -> Self {
        let members = match batch.members {
            BatchMembers::Each => StoredMembers::Each,
            BatchMembers::Array(tasks) => StoredMembers::Array(Arc::new(tasks)),
            BatchMembers::Commands(list) => StoredMembers::Commands(Arc::new(list)),
        };
        Self::new(batch.specs.into_iter().map(Arc::new).collect(), members)
    }
}

impl StoredBatch {
    /// Steps made of these.
    pub fn new(specs: Vec<Arc<StepSpec>>, members: StoredMembers) -> Self {
        Self { specs, members, found: Found::default() }
    }

    /// Number of steps.
    pub fn len(&self) -> u32 {
        match &self.members {
            StoredMembers::Each => self.specs.len() as u32,
            StoredMembers::Array(tasks) => tasks.count(),
            StoredMembers::Commands(list) => list.len() as u32,
        }
    }

    /// Is it empty? Never once accepted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tasks, of an array.
    pub const fn array(&self) -> Option<&Arc<ArraySpec>> {
        match &self.members {
            StoredMembers::Array(tasks) => Some(tasks),
            _ => None,
        }
    }

    /// How many step numbers it takes.
    pub fn numbers(&self) -> u32 {
        if self.array().is_some() { 1 } else { self.len() }
    }

    /// All members.
    pub fn all(&self) -> RoaringBitmap {
        match &self.members {
            StoredMembers::Array(tasks) => tasks.indices().collect(),
            _ => (0..self.len()).collect(),
        }
    }

    /// The key of a member when the batch's first number is `first`.
    pub const fn key(&self, first: u32, member: u32) -> StepKey {
        match self.members {
            StoredMembers::Array(_) => StepKey::task(first, member),
            _ => StepKey::number(first + member),
        }
    }

    /// The member with that key, if there is one.
    pub fn member(&self, first: u32, key: StepKey) -> Option<u32> {
        let StepNum::Number(number) = key.step else { return None };
        match (&self.members, key.array) {
            (StoredMembers::Array(tasks), Some(task)) if number == first && tasks.contains(task) => Some(task),
            (StoredMembers::Array(_), _) | (_, Some(_)) => None,
            (_, None) => number.checked_sub(first).filter(|member| *member < self.len()),
        }
    }

    /// Members in rows: consecutive members with the same spec, with the index of that spec. An array is one row, which begins at
    /// 0 whatever its first task is.
    pub fn rows(&self) -> Vec<(Range<u32>, usize)> {
        match &self.members {
            StoredMembers::Each => (0..self.len()).map(|n| (n..n + 1, n as usize)).collect(),
            StoredMembers::Array(_) => vec![(0..u32::MAX, 0)],
            StoredMembers::Commands(list) => {
                let starts = self.starts(list);
                let row = |(at, (count, spec)): (usize, &(u32, u32))| (starts[at]..starts[at] + count, *spec as usize);
                list.specs.iter().enumerate().map(row).collect()
            }
        }
    }

    /// The first member of each row of a list.
    fn starts(&self, list: &CommandList) -> &[u32] {
        let count = || {
            let mut next = 0;
            let start = |(count, _): &(u32, u32)| {
                next += count;
                next - count
            };
            list.specs.iter().map(start).collect()
        };
        self.found.rows.get_or_init(count)
    }

    /// The rows with some of these members. Visits no others.
    pub fn rows_of<'a>(&'a self, members: &'a RoaringBitmap) -> impl Iterator<Item = Range<u32>> + 'a {
        let mut next = members.min();
        std::iter::from_fn(move || {
            let member = next?;
            let row = match &self.members {
                StoredMembers::Each => member..member + 1,
                StoredMembers::Array(_) => 0..u32::MAX,
                StoredMembers::Commands(list) => {
                    let starts = self.starts(list);
                    let at = starts.partition_point(|start| *start <= member).checked_sub(1)?;
                    starts[at]..starts.get(at + 1).copied().unwrap_or(u32::MAX)
                }
            };
            next = members.range(row.end..).next();
            Some(row)
        })
    }

    /// The spec of a member.
    pub fn spec_of(&self, member: u32) -> Option<&Arc<StepSpec>> {
        self.specs.get(self.spec_index(member)?)
    }

    /// The index of its spec.
    pub fn spec_index(&self, member: u32) -> Option<usize> {
        match &self.members {
            StoredMembers::Each => Some(member as usize),
            StoredMembers::Array(_) => Some(0),
            StoredMembers::Commands(list) => {
                let at = self.starts(list).partition_point(|start| *start <= member).checked_sub(1)?;
                let (_, spec) = list.specs.get(at).filter(|_| (member as usize) < list.len())?;
                Some(*spec as usize)
            }
        }
    }

    /// Members by name, when the batch's first number is `first`; `None` for a single step.
    pub fn name(&self, first: u32, members: &[(u32, u32)]) -> Option<WhichSteps> {
        if matches!(members, [(from, to)] if from == to) || members.is_empty() {
            return None;
        }
        let named = |offset: u32| ArraySpec {
            ranges: members.iter().map(|(from, to)| (from + offset, to + offset, 1)).collect(),
            limit: None,
        };
        Some(match self.members {
            StoredMembers::Array(_) => WhichSteps::Tasks { step: first, tasks: named(0) },
            _ => WhichSteps::Numbers(named(first)),
        })
    }

    /// Program and arguments of a member.
    pub fn argv(&self, spec: &StepSpec, member: u32) -> Vec<ByteBuf> {
        match &self.members {
            StoredMembers::Commands(list) => list.argv(member as usize),
            _ => spec.argv.clone(),
        }
    }

    const fn commands(&self) -> Option<&Arc<CommandList>> {
        match &self.members {
            StoredMembers::Commands(list) => Some(list),
            _ => None,
        }
    }

    /// The line of the list's file that a member comes from, counted from 1.
    pub fn line(&self, member: u32) -> Option<u32> {
        self.commands()?.line(member as usize)
    }

    /// The values that a member was made from, for display: `seed=1 size=small`.
    pub fn values(&self, member: u32) -> Option<&str> {
        self.commands()?.values(member as usize)
    }

    /// A member's own name.
    pub fn own_name(&self, member: u32) -> Option<&str> {
        self.commands()?.name(member as usize)
    }

    /// The spec that a spec's environment comes from: itself, or the nearest before it that brings one.
    pub fn environment_of(&self, spec: usize) -> Option<&Arc<StepSpec>> {
        self.specs.get(self.environment_index(spec)?).filter(|spec| !spec.environment.is_empty())
    }

    /// Its index; the first if no spec has one.
    pub fn environment_index(&self, spec: usize) -> Option<usize> {
        let find = || {
            let mut last = 0;
            let from = |(at, spec): (usize, &Arc<StepSpec>)| {
                if !spec.environment.is_empty() {
                    last = at as u32;
                }
                last
            };
            self.specs.iter().enumerate().map(from).collect()
        };
        self.found.environments.get_or_init(find).get(spec).map(|from| *from as usize)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::testing::commands;

    fn bytes(text: &str) -> ByteBuf {
        ByteBuf::from(text)
    }

    fn step(name: &str) -> StepSpec {
        StepSpec { name: name.into(), tasks: Some(1), argv: vec![bytes(name)], ..StepSpec::default() }
    }

    #[test]
    fn members_and_keys_belong_together() {
        let tasks = ArraySpec { ranges: vec![(2, 8, 3)], limit: None };
        let array: StoredBatch = StepBatch { specs: vec![step("a")], members: BatchMembers::Array(tasks) }.into();
        assert_eq!((array.len(), array.numbers()), (3, 1));
        assert_eq!(array.all().iter().collect::<Vec<u32>>(), [2, 5, 8]);
        assert_eq!(array.member(7, StepKey::task(7, 5)), Some(5));
        assert_eq!(array.member(7, StepKey::task(7, 3)), None);
        assert_eq!(array.member(7, StepKey::number(7)), None);
        let lines: StoredBatch = commands(&[("a", 0), ("b", 0), ("c", 1)], vec![step("x"), step("y")]).into();
        assert_eq!(lines.rows(), [(0..2, 0), (2..3, 1)]);
        assert_eq!((lines.key(10, 2), lines.member(10, StepKey::number(12))), (StepKey::number(12), Some(2)));
        assert_eq!(lines.member(10, StepKey::number(13)), None);
        assert_eq!(lines.argv(&lines.specs[1], 2), [bytes("c")]);
    }

    #[test]
    fn lines_with_options_of_their_own_are_found_without_looking_at_the_others() {
        const LINES: u32 = 10_000;
        let mut list = CommandList::default();
        (0..LINES).for_each(|n| list.push(["a"], n));
        let env = |n: u32| if n.is_multiple_of(100) { vec![bytes("A=1")] } else { Vec::new() };
        let specs = (0..LINES).map(|n| StepSpec { environment: env(n), ..step("x") }).collect();
        let stored: StoredBatch = StepBatch { specs, members: BatchMembers::Commands(list) }.into();
        // Successive withdrawals see each row once, not each row each time.
        let visits: usize = (0..LINES).map(|n| stored.rows_of(&RoaringBitmap::from_iter([n])).count()).sum();
        assert_eq!(visits, LINES as usize);
        let some = RoaringBitmap::from_iter([3, 4, 9_999]);
        assert_eq!(stored.rows_of(&some).map(|row| row.start).collect::<Vec<_>>(), [3, 4, 9_999]);
        assert_eq!(stored.rows_of(&stored.all()).count(), stored.rows().len());
        for member in [0, 1, 5_050, LINES - 1] {
            assert_eq!(stored.spec_index(member), Some(member as usize));
            assert_eq!(stored.environment_index(member as usize), Some(member as usize / 100 * 100));
        }
        assert_eq!((stored.spec_index(LINES), stored.environment_index(LINES as usize)), (None, None));
    }
}
