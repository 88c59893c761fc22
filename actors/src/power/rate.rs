//! How many nodes may be switched in a minute (`SuspendRate`, `ResumeRate`).

use garrick_model::time::Timestamp;
use std::{collections::VecDeque, time::Duration};

const MINUTE: Duration = Duration::from_secs(60);

/// Nodes that were switched in the last minute.
#[derive(Clone, Debug, Default)]
pub struct Rate(VecDeque<Timestamp>);

impl Rate {
    /// How many more may be switched now; `most` is for a minute, and 0 is any number.
    pub fn left(&mut self, now: Timestamp, most: u32) -> usize {
        // The clock may have been set back.
        while self.0.front().is_some_and(|first| first.plus(MINUTE) <= now || *first > now) {
            self.0.pop_front();
        }
        if most == 0 { usize::MAX } else { (most as usize).saturating_sub(self.0.len()) }
    }

    /// One was switched.
    pub fn count(&mut self, now: Timestamp) {
        self.0.push_back(now);
    }

    /// When there is room again.
    pub fn next(&self) -> Option<Timestamp> {
        self.0.front().map(|first| first.plus(MINUTE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_nodes_are_switched_in_a_minute() {
        let mut rate = Rate::default();
        let begin = Timestamp::from_secs(1000);
        assert_eq!(rate.left(begin, 0), usize::MAX);
        rate.count(begin);
        rate.count(begin.plus(Duration::from_secs(20)));
        assert_eq!(rate.left(begin.plus(Duration::from_secs(59)), 3), 1);
        assert_eq!(rate.next(), Some(begin.plus(MINUTE)));
        assert_eq!(rate.left(begin.plus(MINUTE), 3), 2);
        assert_eq!(rate.left(begin, 3), 3, "the clock was set back");
    }
}
