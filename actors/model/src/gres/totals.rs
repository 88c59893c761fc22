//! Numbers of what is asked for on all nodes together (`--gpus=h100:2,a100:1`), type by type.

use super::GresRequest;

/// More types than these are not asked for in one `--gpus`.
pub const MOST_TYPES: usize = 4;

/// So many of each type, in the order of [`GresRequest::total`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Totals([u64; MOST_TYPES]);

impl Totals {
    /// Nothing.
    pub const NONE: Self = Self([0; MOST_TYPES]);
    /// More than anybody asks for.
    pub const ALL: Self = Self([u64::MAX; MOST_TYPES]);

    /// What is asked for.
    pub fn asked(request: &GresRequest) -> Self {
        let mut all = Self::NONE;
        for (one, asked) in all.0.iter_mut().zip(&request.total) {
            *one = asked.count;
        }
        all
    }

    /// Of the type at a place.
    pub fn at(&self, place: usize) -> u64 {
        self.0.get(place).copied().unwrap_or(0)
    }

    /// The same with so many of one type.
    #[must_use]
    pub fn with(mut self, place: usize, count: u64) -> Self {
        if let Some(one) = self.0.get_mut(place) {
            *one = count;
        }
        self
    }

    /// One of each type that there is any of: what every node must give (`--gpus` in sbatch(1)).
    #[must_use]
    pub fn one_each(self) -> Self {
        Self(self.0.map(|n| n.min(1)))
    }

    /// Nothing at all.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// All types together.
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Nodes that could have one of each type.
    pub fn most_nodes(&self) -> u64 {
        self.0.iter().copied().filter(|n| *n > 0).min().unwrap_or(0)
    }

    /// As many of each as in the other?
    pub fn holds(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, n)| *own >= n)
    }

    fn each(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        let mut all = self;
        for (one, n) in all.0.iter_mut().zip(other.0) {
            *one = of(*one, n);
        }
        all
    }

    /// Type by type the less.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.each(other, u64::min)
    }

    /// Type by type the more.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.each(other, u64::max)
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// Without the other, no less than nothing.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    /// So many times that.
    #[must_use]
    pub fn times(self, n: u64) -> Self {
        Self(self.0.map(|one| one.saturating_mul(n)))
    }

    /// An even part for each of so many nodes, rounded up.
    #[must_use]
    pub fn part(self, nodes: u64) -> Self {
        Self(self.0.map(|one| one.div_ceil(nodes.max(1))))
    }
}
