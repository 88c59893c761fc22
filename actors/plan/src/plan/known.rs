//! What a plan has found out already, and how much more it may look for.

use crate::snapshot::request::{Request, without_limit};
use garrick_model::{state::Reason, time::Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Times at which a request for named or neighbouring nodes, or for so many of each kind, is tried in a pass, at most. Each
/// is a look at every node.
const MOST_LOOKS_AHEAD: usize = 200;
/// The same for those of whom amounts say most: they have another way when it is spent.
const MOST_LOOKS_BY_AMOUNTS: usize = 50;

/// It.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Requests that found no room now. Room only shrinks while a pass goes on.
    pub failed: FxHashSet<Request>,
    /// Before that time they find none later either.
    pub not_before: FxHashMap<Request, Timestamp>,
    /// Whether requests, whatever their time limit, would find room if nobody else were there, and why not.
    possible: FxHashMap<Request, Result<(), Reason>>,
    looks_left: usize,
    /// The same for those of whom amounts say when they fit at the earliest.
    pub looks_left_by_amounts: usize,
    /// Times at which hierarchical resources alone said no.
    pub glances_ahead: usize,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            failed: FxHashSet::default(),
            not_before: FxHashMap::default(),
            possible: FxHashMap::default(),
            looks_left: MOST_LOOKS_AHEAD,
            looks_left_by_amounts: MOST_LOOKS_BY_AMOUNTS,
            glances_ahead: 0,
        }
    }
}

impl Known {
    /// Room is looked for anew.
    pub fn forget_searches(&mut self) {
        self.failed.clear();
        self.not_before.clear();
    }

    /// Is it known that it would find no room on an idle cluster?
    pub fn gate(&self, request: &Request) -> Result<(), Reason> {
        if self.possible.is_empty() {
            return Ok(());
        }
        self.possible(request).unwrap_or(Ok(()))
    }

    /// What is known of that; `None`: nothing.
    pub fn possible(&self, request: &Request) -> Option<Result<(), Reason>> {
        self.possible.get(&without_limit(request)).cloned()
    }

    /// That is so.
    pub fn note_possible(&mut self, request: &Request, could: Result<(), Reason>) {
        self.possible.insert(without_limit(request), could);
    }

    /// How many more times are tried in this pass for such as it.
    pub fn looks_left(&mut self, request: &Request) -> &mut usize {
        if request.fits_by_amounts_first() { &mut self.looks_left_by_amounts } else { &mut self.looks_left }
    }
}
