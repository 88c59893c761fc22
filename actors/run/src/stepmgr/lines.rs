//! Steps lined up behind running ones. If steps are so short that the round trip to the step manager would leave a CPU idle
//! between two of them, some of the next steps in the queue are handed to the node ahead of time: each takes over the place of
//! the step before it the moment that one ends. They are steps of the same row, so place and share are the same.
//!
//! How many: as many as take `AHEAD` together, by the run time of the latest steps of the row; none if they take longer than
//! `SHORT`. So a later step of higher priority waits for them no longer than it would for one running step. If a step takes
//! long after all, its launcher gives the steps behind it back, and they wait like the others.
//!
//! For the ledger they are started when they are handed over. They hold nothing until they get the place, and users see them as
//! pending until then.

use crate::stepmgr::{
    core::StepMgrCore,
    journal::RunningStep,
    messages::StepMgrEffect,
    pool::NodeUse,
    queue::Waiting,
    rows::{Row, RowId},
    state::{RecordState, StepRecord},
};
use garrick_events::steps::end::{StepEnd, StepResult};
use garrick_model::{
    ids::StepKey,
    state::{ExitStatus, StepState},
    time::Timestamp,
};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// Steps that take longer have none lined up behind them: for those, the round trip is only a few per cent.
const SHORT: Duration = Duration::from_millis(4);

/// About how long a line lasts.
const AHEAD: Duration = Duration::from_millis(5);

/// The run time of the latest steps of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    since: Option<Timestamp>,
    ends: u32,
    mean: Option<Duration>,
}

impl Pace {
    /// Counts a step that ended, when `places` were busy with such steps. Ends are counted over `window`.
    fn count(&mut self, now: Timestamp, places: u32, window: Duration) {
        let since = *self.since.get_or_insert(now);
        self.ends += 1;
        let passed = now.since(since);
        if passed >= window {
            *self = Self { since: Some(now), ends: 0, mean: Some(passed * places.max(1) / self.ends) };
        }
    }

    /// Forgets all ends.
    fn forget(&mut self) {
        *self = Self::default();
    }

    /// How many steps take [`AHEAD`] together.
    fn ahead(&self) -> usize {
        let Some(mean) = self.mean.filter(|mean| *mean <= SHORT) else { return 0 };
        let steps = AHEAD.as_nanos() / mean.as_nanos().max(1) + 1;
        usize::try_from(steps).unwrap_or(usize::MAX)
    }
}

/// Which steps wait behind which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// By the running step.
    behind: BTreeMap<StepKey, VecDeque<StepKey>>,
    /// The running step, by each step behind it.
    first: BTreeMap<StepKey, StepKey>,
    /// Steps that began to hold a place, and whose lines are to be checked.
    fresh: Vec<StepKey>,
}

impl Lines {
    /// A step has a place of its own.
    pub fn begin(&mut self, step: StepKey) {
        self.fresh.push(step);
    }

    /// How many steps wait behind others.
    pub fn behind(&self) -> usize {
        self.first.len()
    }

    /// Steps that wait behind others.
    pub fn all_behind(&self) -> impl Iterator<Item = StepKey> + '_ {
        self.first.keys().copied()
    }

    /// Does the step wait behind another?
    pub fn is_behind(&self, step: StepKey) -> bool {
        self.first.contains_key(&step)
    }

    fn join(&mut self, first: StepKey, step: StepKey) {
        self.behind.entry(first).or_default().push_back(step);
        self.first.insert(step, first);
    }

    fn line(&self, first: StepKey) -> impl DoubleEndedIterator<Item = StepKey> + '_ {
        self.behind.get(&first).into_iter().flatten().copied()
    }

    /// Removes a step from behind another. False: it was not behind any.
    fn leave(&mut self, step: StepKey) -> bool {
        let Some(first) = self.first.remove(&step) else { return false };
        if let Some(line) = self.behind.get_mut(&first) {
            line.retain(|other| *other != step);
            if line.is_empty() {
                self.behind.remove(&first);
            }
        }
        true
    }

    /// A running step is over. Returns the step that gets its place.
    fn advance(&mut self, first: StepKey) -> Option<StepKey> {
        let mut line = self.behind.remove(&first)?;
        let next = line.pop_front()?;
        self.first.remove(&next);
        for step in &line {
            self.first.insert(*step, next);
        }
        if !line.is_empty() {
            self.behind.insert(next, line);
        }
        self.begin(next);
        Some(next)
    }

    /// Checks the lines; `holds`: whether a step holds resources.
    pub fn check(&self, holds: impl Fn(StepKey) -> Option<bool>) -> Result<(), String> {
        for (first, line) in &self.behind {
            if holds(*first) != Some(true) {
                return Err(format!("step {first} has steps behind it and no place"));
            }
            for step in line {
                if self.first.get(step) != Some(first) || holds(*step) != Some(false) {
                    return Err(format!("step {step} is not as it should be behind step {first}"));
                }
            }
        }
        let behind: usize = self.behind.values().map(VecDeque::len).sum();
        if behind == self.first.len() { Ok(()) } else { Err("steps are behind nothing".into()) }
    }
}

impl StepMgrCore {
    /// Frees a step's place, or gives it to the next step.
    pub(super) fn leave_place(&mut self, now: Timestamp, step: StepKey, out: &mut Vec<StepMgrEffect>) {
        let Some(record) = self.steps.get_mut(&step) else { return };
        let row = record.row;
        let claims = match &mut record.state {
            RecordState::Queued { .. } => return,
            RecordState::Running { placement, .. } | RecordState::Unsure { placement, .. } => {
                std::mem::take(&mut placement.claims)
            }
        };
        if self.lines.leave(step) {
            return self.lined(row, -1);
        }
        if let Some(row) = row.and_then(|(id, _)| self.rows.get_mut(id)) {
            let places = row.running - row.lined;
            row.pace.count(now, places, self.config.pace_window);
        }
        let next = self.lines.advance(step);
        match next.and_then(|next| self.steps.get_mut(&next)) {
            Some(StepRecord {
                row,
                state: RecordState::Running { placement, since } | RecordState::Unsure { placement, since, .. },
                ..
            }) => {
                placement.claims = claims;
                *since = now;
                let row = *row;
                self.lined(row, -1);
                if let Some(next) = next {
                    let first = self.reports.step_started(next);
                    self.report_later(first, out);
                }
            }
            _ => self.pool.give(&claims),
        }
    }

    /// Restores the lines of the ledger after a restart.
    pub(super) fn line_up_again(&mut self, running: &BTreeMap<StepKey, RunningStep>) {
        let next: BTreeMap<StepKey, StepKey> = running.iter().filter_map(|(step, r)| Some((r.after?, *step))).collect();
        for (first, _) in running.iter().filter(|(_, r)| r.after.is_none()) {
            let mut last = *first;
            while let Some(step) = next.get(&last).copied() {
                last = step;
                if let Some(row) = self.steps.get(&step).map(|r| r.row) {
                    self.lines.join(*first, step);
                    self.lined(row, 1);
                }
            }
        }
    }

    fn lined(&mut self, row: Option<(RowId, u32)>, by: i32) {
        if let Some(row) = row.and_then(|(id, _)| self.rows.get_mut(id)) {
            row.lined = row.lined.saturating_add_signed(by);
        }
    }

    /// Lines up steps behind those that began recently, as far as they are next in the queue.
    pub(super) fn line_up(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        let mut fresh = std::mem::take(&mut self.lines.fresh);
        for first in fresh.drain(..) {
            while let Some(id) = self.row_to_line_up(first) {
                let after = self.lines.line(first).next_back().unwrap_or(first);
                let Some(RecordState::Running { placement, .. }) = self.steps.get(&first).map(|r| &r.state) else {
                    break;
                };
                let mut placement = placement.clone();
                placement.claims.clear();
                let Some(step) = self.rows.get(id).and_then(|row| Some(row.step(row.next()?))) else { break };
                self.lines.join(first, step);
                if let Some(row) = self.rows.get_mut(id) {
                    row.lined += 1;
                }
                self.start_member(now, id, placement, Some(after), out);
            }
        }
        self.lines.fresh = fresh;
    }

    /// The row whose next step may be lined up behind a running step.
    fn row_to_line_up(&self, first: StepKey) -> Option<RowId> {
        let record = self.steps.get(&first)?;
        let (id, _) = record.row?;
        let (_, next) = self.queue.next(None)?;
        let row = self.rows.get(id).filter(|_| next == Waiting::Row(id))?;
        let RecordState::Running { placement, .. } = &record.state else { return None };
        let ready = |slot: u32| self.pool.node(slot).usage == NodeUse::Ready;
        let alone = matches!(placement.nodes.as_slice(), [only] if only.ranks.len() == 1 && ready(only.slot));
        let plain = alone && !placement.claims.is_empty() && !row.shape.own_cgroup;
        (plain && self.lines.line(first).count() < self.line_length(row)).then_some(id)
    }

    fn line_length(&self, row: &Row) -> usize {
        let places = u64::from((row.running - row.lined).max(1));
        // Towards the end of a row its lines get shorter, so that no line has steps while another place is free.
        let share = usize::try_from(row.waiting.len() / places).unwrap_or(usize::MAX);
        row.pace.ahead().min(self.config.line_length).min(share)
    }

    /// A step that was ordered or lined up did not start: it waits again, unless its job ends or it can never start any more.
    pub(super) fn not_started(&mut self, now: Timestamp, step: StepKey, out: &mut Vec<StepMgrEffect>) {
        let Some(record) = self.steps.get(&step) else { return };
        let (row, tries) = (record.row, record.attempt);
        if !self.phase.takes_steps() {
            let (state, exit) = (StepState::Cancelled, ExitStatus::SUCCESS);
            let result = StepResult { state, exit, ended: Some(StepEnd::Cancelled), ..self.unheld(step) };
            return self.step_over(now, result, out);
        }
        if self.is_too_large(&record.shape) {
            let result = StepResult { state: StepState::NodeFail, exit: ExitStatus::SUCCESS, ..self.unheld(step) };
            return self.step_over(now, result, out);
        }
        self.leave_place(now, step, out);
        if let Some(row) = row.and_then(|(id, _)| self.rows.get_mut(id)) {
            row.pace.forget();
        }
        self.try_again(now, step, Duration::ZERO, tries, None, out);
        self.settled = false;
        self.schedule(now, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> StepKey {
        StepKey::number(n)
    }

    #[test]
    fn a_line_moves_up_and_can_be_left_anywhere() {
        let mut lines = Lines::default();
        for step in [2, 3, 4] {
            lines.join(key(1), key(step));
        }
        assert!(lines.leave(key(3)) && !lines.leave(key(3)) && !lines.leave(key(1)));
        assert_eq!(lines.advance(key(1)), Some(key(2)));
        assert!(!lines.is_behind(key(2)) && lines.is_behind(key(4)));
        assert_eq!(lines.line(key(2)).collect::<Vec<_>>(), [key(4)]);
        assert_eq!((lines.advance(key(2)), lines.advance(key(4))), (Some(key(4)), None));
        assert_eq!(lines.fresh, [key(2), key(4)]);
        assert!(lines.behind.is_empty() && lines.first.is_empty());
    }

    #[test]
    fn lines_last_for_milliseconds_and_long_steps_have_none() {
        let mut pace = Pace::default();
        let start = Timestamp::now();
        let count = |pace: &mut Pace, ms: u64| {
            pace.count(start.plus(Duration::from_millis(ms)), 2, Duration::from_millis(50));
        };
        (0..99).for_each(|n| count(&mut pace, n / 2));
        assert_eq!(pace.ahead(), 0, "nothing is known yet");
        count(&mut pace, 50);
        assert_eq!(pace.ahead(), 6, "a millisecond each");
        count(&mut pace, 1000);
        assert_eq!(pace.ahead(), 0);
    }
}
