//! What a plan has found out already, and how many more searches it may do.

use crate::snapshot::request::{Request, without_limit};
use garrick_model::{state::Reason, time::Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Most times that one pass tries for requests for named or neighbouring nodes, or with counts of features. Each try looks at
/// every node.
const MOST_LOOKS_AHEAD: usize = 200;
/// The same for requests that are mostly decided by amounts: when these are used up, there is another way.
const MOST_LOOKS_BY_AMOUNTS: usize = 50;

/// What is known.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Requests that did not fit now. Free resources only shrink during a pass.
    pub failed: FxHashSet<Request>,
    /// Requests do not fit before these times.
    pub not_before: FxHashMap<Request, Timestamp>,
    /// Whether requests, whatever their time limit, would fit on an empty cluster, and why not.
    possible: FxHashMap<Request, Result<(), Reason>>,
    looks_left: usize,
    /// The same for requests whose amounts tell when they fit at the earliest.
    pub looks_left_by_amounts: usize,
    /// Times at which hierarchical resources alone ruled a start out.
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
    /// Forgets results of searches for resources.
    pub(crate) fn forget_searches(&mut self) {
        self.failed.clear();
        self.not_before.clear();
    }

    /// Fails if it is known that the request does not fit on an idle cluster.
    pub(crate) fn gate(&self, request: &Request) -> Result<(), Reason> {
        if self.possible.is_empty() {
            return Ok(());
        }
        self.possible(request).unwrap_or(Ok(()))
    }

    /// What is known of that; `None`: nothing.
    pub fn possible(&self, request: &Request) -> Option<Result<(), Reason>> {
        self.possible.get(&without_limit(request)).cloned()
    }

    /// Notes that result.
    pub(crate) fn note_possible(&mut self, request: &Request, could: Result<(), Reason>) {
        self.possible.insert(without_limit(request), could);
    }

    /// How many more times this pass tries for such a request.
    pub(crate) fn looks_left(&mut self, request: &Request) -> &mut usize {
        if request.fits_by_amounts_first() { &mut self.looks_left_by_amounts } else { &mut self.looks_left }
    }
}
