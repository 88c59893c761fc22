//! Results of recent requests, for repeats: a command that lost its answer asks again within seconds.

use garrick_model::ids::RequestId;
use std::collections::{BTreeMap, VecDeque};

/// How many are kept; older ones are dropped.
const KEPT: usize = 10_000;

/// The latest requests and the result of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Recent<T> {
    by_request: BTreeMap<RequestId, T>,
    order: VecDeque<RequestId>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { by_request: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<T: Copy> Recent<T> {
    /// Keeps it.
    pub fn note(&mut self, request: RequestId, outcome: T) {
        if self.by_request.insert(request, outcome).is_none() {
            self.order.push_back(request);
        }
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_request.remove(&oldest);
        }
    }

    /// The result of this request.
    pub fn of(&self, request: &RequestId) -> Option<T> {
        self.by_request.get(request).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_the_oldest_forgotten() {
        let mut recent = Recent::default();
        for n in 0..=KEPT as u64 {
            recent.note(RequestId(1, n), n);
        }
        recent.note(RequestId(1, 5), 77);
        assert_eq!(recent.of(&RequestId(1, 0)), None);
        assert_eq!(recent.of(&RequestId(1, 1)), Some(1));
        assert_eq!(recent.of(&RequestId(1, 5)), Some(77));
        assert_eq!(recent.by_request.len(), KEPT);
    }
}
