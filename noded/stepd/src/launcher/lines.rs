//! Tasks that start one after the other, each the moment the one before has ended. `stepd` hands them over ahead of time, so that
//! no CPU is idle while `stepd` learns of an end and sends the next task.
//!
//! Reports of ends in a line may wait a little ([`TELL_WITHIN`]), as long as enough tasks are left in it: one message for several
//! ends costs both sides little more than a message for one.

use super::settings::Setting;
use garrick_model::messages::launcher::SpawnTask;
use std::{
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

/// A task with others behind it that runs so long is not one of the short ones that lines are for: those behind it are
/// given back. (Tests of the process do not hang on how fast the machine is.)
const PATIENCE: Duration = if cfg!(test) { Duration::from_secs(3600) } else { Duration::from_millis(50) };

/// Ends are told within so much time.
pub(super) const TELL_WITHIN: Duration = Duration::from_millis(2);

/// A line with fewer tasks left is refilled at once.
const LOW: usize = 3;

/// A task that waits, with what it is started with.
pub(super) type Waiting = (SpawnTask, Rc<Setting>);

struct Line {
    /// The task that runs.
    first: u64,
    since: Instant,
    waiting: VecDeque<Waiting>,
}

/// Tasks taken out that are remembered: what was sent behind them may still be on its way.
const TAKEN_KEPT: usize = 256;

/// See the module. There are about as many as CPUs at most.
#[derive(Default)]
pub(super) struct Lines {
    lines: Vec<Line>,
    taken: VecDeque<u64>,
}

impl Lines {
    /// Puts a task behind another, which runs (`runs`) or waits itself. Given back: the other is not here any more.
    pub(super) fn join(&mut self, after: u64, task: Waiting, runs: bool) -> Option<Waiting> {
        let is_in = |line: &Line| line.first == after || line.waiting.iter().any(|(t, _)| t.token == after);
        match self.lines.iter_mut().find(|line| is_in(line)) {
            Some(line) => line.waiting.push_back(task),
            None if runs => {
                let waiting = VecDeque::from([task]);
                self.lines.push(Line { first: after, since: Instant::now(), waiting });
            }
            None => return Some(task),
        }
        None
    }

    /// A task is over: the one to start now, which is the first of its line from here on.
    pub(super) fn next(&mut self, over: u64) -> Option<Waiting> {
        let at = self.lines.iter().position(|line| line.first == over)?;
        let line = &mut self.lines[at];
        let next = line.waiting.pop_front();
        match &next {
            Some((task, _)) => (line.first, line.since) = (task.token, Instant::now()),
            None => drop(self.lines.swap_remove(at)),
        }
        next
    }

    /// Takes out a task that waits.
    pub(super) fn take(&mut self, token: u64) -> Option<Waiting> {
        let taken = self.lines.iter_mut().find_map(|line| {
            let at = line.waiting.iter().position(|(task, _)| task.token == token)?;
            line.waiting.remove(at)
        })?;
        self.note_taken(token);
        Some(taken)
    }

    /// A task is not started although it was to be after another.
    pub(super) fn note_taken(&mut self, token: u64) {
        if self.taken.len() >= TAKEN_KEPT {
            self.taken.pop_front();
        }
        self.taken.push_back(token);
    }

    /// Whether it was taken out lately.
    pub(super) fn was_taken(&self, token: u64) -> bool {
        self.taken.contains(&token)
    }

    /// Takes out all that wait.
    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        let all: Vec<Waiting> = self.lines.drain(..).flat_map(|line| line.waiting).collect();
        all.iter().for_each(|(task, _)| self.note_taken(task.token));
        all
    }

    /// Takes out those behind tasks that take too long.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<Waiting> {
        let mut late = Vec::new();
        self.lines.retain_mut(|line| {
            let is_late = line.since + PATIENCE <= now;
            if is_late {
                late.extend(line.waiting.drain(..));
            }
            !is_late
        });
        late.iter().for_each(|(task, _): &Waiting| self.note_taken(task.token));
        late
    }

    /// When that is to be looked at next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.lines.iter().map(|line| line.since + PATIENCE).min()
    }

    /// True while none is about to run out. (A task that is in none is told of at once when it ends.)
    pub(super) fn are_long(&self) -> bool {
        self.lines.iter().all(|line| line.waiting.len() >= LOW)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::{
        ids::{JobId, StepId, StepNum},
        messages::launcher::TaskLabel,
    };

    fn task(token: u64) -> Waiting {
        let step = StepId::new(JobId(1), StepNum::Number(0));
        let label =
            TaskLabel { step, attempt: 0, rank: 0, own_cgroup: false, epilog: false, profiling: Default::default() };
        let task = SpawnTask { quiet: true, ..SpawnTask::bare(token, label, Default::default(), 1) };
        (task, Rc::default())
    }

    fn tokens(waiting: Vec<Waiting>) -> Vec<u64> {
        waiting.into_iter().map(|(task, _)| task.token).collect()
    }

    #[test]
    fn what_is_behind_a_task_that_takes_long_is_given_back() {
        let mut lines = Lines::default();
        assert!(lines.join(1, task(2), true).is_none() && lines.join(2, task(3), false).is_none());
        assert!(lines.join(7, task(8), true).is_none());
        assert!(lines.join(9, task(10), false).is_some(), "nobody is there to wait for");
        let later = Instant::now() + PATIENCE;
        assert!(lines.take_late(later - PATIENCE).is_empty());
        assert!(lines.due().is_some_and(|due| due <= later));
        assert_eq!(tokens(lines.take_late(later)), [2, 3, 8]);
        assert!(lines.is_empty() && lines.next(1).is_none());
    }

    #[test]
    fn there_is_no_hurry_while_all_that_run_have_enough_behind_them() {
        let mut lines = Lines::default();
        for token in 2..6 {
            lines.join(1, task(token), true);
        }
        assert!(lines.are_long());
        assert_eq!(lines.next(1).map(|(t, _)| t.token), Some(2));
        assert!(lines.are_long());
        assert_eq!(lines.take(4).map(|(t, _)| t.token), Some(4));
        assert!(!lines.are_long() && lines.was_taken(4) && !lines.was_taken(3));
        assert_eq!(tokens(lines.take_all()), [3, 5]);
    }
}
