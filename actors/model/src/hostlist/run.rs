//! Consecutive names: a prefix, a range of numbers with their width, and what follows the number.

use std::{
    cmp::Ordering,
    fmt,
    sync::{Arc, LazyLock},
};

/// Longer numbers at the end of a name count as part of its prefix, so that numbers fit 64 bits.
pub(super) const MAX_DIGITS: usize = 18;

/// Names that differ in one number only. `width` 0: a single name without a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub prefix: Arc<str>,
    pub suffix: Arc<str>,
    pub first: u64,
    pub last: u64,
    /// Figures are filled up with zeros to this width; 1 when there are no leading zeros.
    pub width: usize,
}

/// What follows the number of nearly every name, kept once.
static NOTHING: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// A name in its prefix and the number at its end, as text.
fn split(name: &str) -> (&str, &str) {
    let figures = name.bytes().rev().take_while(u8::is_ascii_digit).count().min(MAX_DIGITS);
    name.split_at(name.len() - figures)
}

pub(super) fn figures(n: u64) -> usize {
    n.checked_ilog10().map_or(1, |log| log as usize + 1)
}

impl Run {
    /// `width` is that of the first number as written.
    pub fn new(prefix: Arc<str>, suffix: Arc<str>, first: u64, last: u64, width: usize) -> Self {
        let width = if figures(first) >= width { 1 } else { width };
        Self { prefix, suffix, first, last, width }
    }

    /// A single name: its number is the last one, if the name ends in one.
    pub fn of_name(name: &str) -> Self {
        let (prefix, number) = split(name);
        let none = NOTHING.clone();
        match number.parse() {
            Ok(n) => Self::new(Arc::from(prefix), none, n, n, number.len()),
            Err(_) => Self { prefix: Arc::from(name), suffix: none, first: 0, last: 0, width: 0 },
        }
    }

    /// Takes a name into this run if it follows directly; the same as joining [`Self::of_name`], without allocating.
    pub fn extend(&mut self, name: &str) -> bool {
        let (prefix, number) = split(name);
        let follows = self.width > 0
            && self.suffix.is_empty()
            && *self.prefix == *prefix
            && self
                .last
                .checked_add(1)
                .is_some_and(|next| number.parse() == Ok(next) && number.len() == figures(next).max(self.width));
        if follows {
            self.last += 1;
        }
        follows
    }

    pub fn len(&self) -> u64 {
        self.last - self.first + 1
    }

    /// The n-th name from 0.
    pub fn name(&self, n: u64) -> String {
        match self.width {
            0 => self.prefix.to_string(),
            width => format!("{}{:0width$}{}", self.prefix, self.first + n, self.suffix),
        }
    }

    /// Which of its names this is.
    pub fn position(&self, name: &str) -> Option<u64> {
        if self.width == 0 {
            return (*self.prefix == *name).then_some(0);
        }
        let number = name.strip_prefix(&*self.prefix)?.strip_suffix(&*self.suffix)?;
        if number.is_empty() || number.len() > MAX_DIGITS || !number.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let n: u64 = number.parse().ok()?;
        let as_written = number.len() == figures(n).max(self.width);
        ((self.first..=self.last).contains(&n) && as_written).then(|| n - self.first)
    }

    /// May both stand in one pair of brackets?
    pub fn same_group(&self, other: &Self) -> bool {
        self.width > 0 && other.width > 0 && self.prefix == other.prefix && self.suffix == other.suffix
    }

    /// Takes the run that follows directly into this one, when all names stay what they were.
    pub fn join(&mut self, next: &Self) -> bool {
        let follows = self.same_group(next) && self.last.checked_add(1) == Some(next.first);
        let same_figures = next.width == self.width || (next.width == 1 && figures(next.first) >= self.width);
        if follows && same_figures {
            self.last = next.last;
        }
        follows && same_figures
    }

    /// `3`, `0003-0005`: what stands between brackets.
    pub fn write_numbers(&self, f: &mut impl fmt::Write) -> fmt::Result {
        let width = self.width;
        write!(f, "{:0width$}", self.first)?;
        if self.last > self.first { write!(f, "-{:0width$}", self.last) } else { Ok(()) }
    }

    /// The same names in pieces whose numbers are as long as they can be and all of one length; a name has one such form
    /// only, however it was written.
    pub fn pieces(&self) -> Vec<Piece> {
        if self.width == 0 {
            return vec![Piece { prefix: self.prefix.clone(), figures: 0, first: 0, last: 0 }];
        }
        if !self.suffix.is_empty() {
            return (0..self.len()).flat_map(|n| Self::of_name(&self.name(n)).pieces()).collect();
        }
        let mut pieces = Vec::new();
        let mut first = self.first;
        loop {
            let length = figures(first).max(self.width);
            // The last number of that length.
            let bound = 10u64.checked_pow(length as u32).map_or(u64::MAX, |power| power - 1);
            let last = self.last.min(bound);
            pieces.push(Piece { prefix: self.prefix.clone(), figures: length, first, last }.absorb());
            if last == self.last {
                return pieces;
            }
            first = last + 1;
        }
    }
}

/// Consecutive names whose numbers have one length. `figures` 0: a name without a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub prefix: Arc<str>,
    pub figures: usize,
    pub first: u64,
    pub last: u64,
}

impl Piece {
    /// Figures at the end of the prefix belong to the number.
    fn absorb(mut self) -> Self {
        let room = MAX_DIGITS.saturating_sub(self.figures);
        let more = self.prefix.bytes().rev().take_while(u8::is_ascii_digit).count().min(room);
        if more == 0 {
            return self;
        }
        let (prefix, number) = self.prefix.split_at(self.prefix.len() - more);
        let shift = 10u64.pow(self.figures as u32);
        let ahead: u64 = number.parse().unwrap_or(0);
        self.first += ahead * shift;
        self.last += ahead * shift;
        self.figures += more;
        self.prefix = Arc::from(prefix);
        self
    }

    pub fn run(&self) -> Run {
        let none = NOTHING.clone();
        match self.figures {
            0 => Run { prefix: self.prefix.clone(), suffix: none, first: 0, last: 0, width: 0 },
            width => Run::new(self.prefix.clone(), none, self.first, self.last, width),
        }
    }

    /// The order in which lists are sorted: prefixes with their numbers counted as numbers, then short numbers before
    /// long ones (`n[9,08,10]`).
    pub fn order(&self, other: &Self) -> Ordering {
        natural(&self.prefix, &other.prefix)
            .then(self.figures.cmp(&other.figures))
            .then(self.first.cmp(&other.first))
            .then(self.last.cmp(&other.last))
    }
}

/// Text order in which `r2` comes before `r10`.
pub(super) fn natural(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a.as_bytes(), b.as_bytes());
    while let (Some(&c), Some(&d)) = (x.first(), y.first()) {
        if c.is_ascii_digit() && d.is_ascii_digit() {
            let (m, after_x) = leading_number(x);
            let (n, after_y) = leading_number(y);
            match m.len().cmp(&n.len()).then(m.cmp(n)) {
                Ordering::Equal => (x, y) = (after_x, after_y),
                unequal => return unequal,
            }
        } else if c == d {
            (x, y) = (&x[1..], &y[1..]);
        } else {
            return c.cmp(&d);
        }
    }
    x.len().cmp(&y.len()).then_with(|| a.cmp(b))
}

/// The number at the start without its leading zeros, and what follows it.
fn leading_number(s: &[u8]) -> (&[u8], &[u8]) {
    let end = s.iter().take_while(|b| b.is_ascii_digit()).count();
    let zeros = s[..end].iter().take_while(|&&b| b == b'0').count();
    (&s[zeros..end], &s[end..])
}
