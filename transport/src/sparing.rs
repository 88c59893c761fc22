//! Limits log lines that strangers can cause: a few at once, then one from time to time with the number of omitted ones.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// So many lines are written at once.
const BURST: u32 = 10;
/// After those, one in this time.
const PAUSE: Duration = Duration::from_secs(10);

/// One kind of line.
#[derive(Debug, Default)]
pub struct Sparing(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Lines written since they were last fewer.
    written: u32,
    /// When one was written, or one fewer counted.
    since: Option<Instant>,
    left_out: u64,
}

impl Sparing {
    /// None was written yet.
    pub const fn new() -> Self {
        Self(Mutex::new(State { written: 0, since: None, left_out: 0 }))
    }

    /// Whether a line may be written now: how many were left out before it. `None`: it is left out itself.
    pub fn due(&self, now: Instant) -> Option<u64> {
        let state = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *state.since.get_or_insert(now);
        let quiet = now.saturating_duration_since(since).as_secs() / PAUSE.as_secs();
        if quiet > 0 {
            state.written = state.written.saturating_sub(u32::try_from(quiet).unwrap_or(u32::MAX));
            state.since = Some(now);
        }
        if state.written >= BURST {
            state.left_out += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_and_then_one_now_and_then_that_counts_the_rest() {
        let (sparing, begin) = (Sparing::new(), Instant::now());
        let at = |secs| begin + Duration::from_secs(secs);
        let written = (0..1000).filter(|_| sparing.due(at(0)).is_some()).count();
        assert_eq!(written, 10);
        assert_eq!(sparing.due(at(9)), None);
        assert_eq!(sparing.due(at(10)), Some(991));
        assert_eq!((sparing.due(at(11)), sparing.due(at(20))), (None, Some(1)));
        // After a long time without any it is as in the beginning.
        let written = (0..1000).filter(|_| sparing.due(at(2000)).is_some()).count();
        assert_eq!(written, 10);
    }
}
