//! What `swait` shows on a terminal: how many steps wait, run and are over, how fast, and how long it will take at that
//! rate; and a bar as long as there is room. Drawn on standard error and gone at the end.

use crate::render::words::step_counts;
use garrick_model::{time::short_duration, view::StepCounts};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The rate is that of the last so many seconds: what steps took at the beginning says little about those at the end.
const WINDOW: Duration = Duration::from_secs(10);
/// Samples kept of that time.
const SAMPLES: usize = 50;

/// How fast steps end.
#[derive(Debug)]
pub struct Pace {
    /// When, and how many were over by then; oldest first.
    samples: Vec<(Duration, u64)>,
}

const fn over(counts: &StepCounts) -> u64 {
    counts.done + counts.failed
}

impl Pace {
    /// Nothing seen yet.
    pub const fn new() -> Self {
        Self { samples: Vec::new() }
    }

    /// Counts at a time, counted from the beginning.
    pub fn saw(&mut self, at: Duration, counts: &StepCounts) {
        self.samples.retain(|(then, _)| at.saturating_sub(*then) <= WINDOW);
        if self.samples.len() >= SAMPLES {
            self.samples.remove(1);
        }
        self.samples.push((at, over(counts)));
    }

    /// Steps a second, in thousandths; `None`: too early to say.
    fn milli_rate(&self) -> Option<u64> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        let millis = u64::try_from((last.0.checked_sub(first.0)?).as_millis()).ok().filter(|ms| *ms > 0)?;
        Some((last.1.saturating_sub(first.1)).saturating_mul(1_000_000) / millis)
    }

    /// `3 queued, 2 running, 10 done, 1 failed, 5.0/s, 0:01 left`; with `2 cancelled` behind those that failed if there are any.
    pub fn line(&self, counts: &StepCounts) -> String {
        let mut text = step_counts(counts);
        if let Some(rate) = self.milli_rate() {
            text.push_str(&format!(", {}.{}/s", rate / 1000, rate % 1000 / 100));
            let left = counts.queued + counts.running;
            if let Some(secs) = left.saturating_mul(1000).checked_div(rate)
                && left > 0
            {
                text.push_str(&format!(", {} left", short_duration(secs)));
            }
        }
        text
    }
}

/// The bar.
pub struct WaitBar {
    bar: ProgressBar,
    /// What stands before it. Shared, so that text and bar change in one stroke.
    text: Arc<Mutex<String>>,
    pace: Pace,
    start: Instant,
}

impl WaitBar {
    /// Draws nothing yet.
    pub fn new() -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&text);
        let counts = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            // Where it cannot be written, nothing can be said either.
            let _ = out.write_str(&shown.lock().unwrap_or_else(PoisonError::into_inner));
        };
        let style =
            ProgressStyle::with_template("{counts} [{wide_bar}]").unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style.with_key("counts", counts).progress_chars("=> "));
        Self { bar, text, pace: Pace::new(), start: Instant::now() }
    }

    /// Draws.
    pub fn show(&mut self, counts: &StepCounts) {
        self.pace.saw(self.start.elapsed(), counts);
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = self.pace.line(counts);
        self.bar.update(|state| {
            state.set_len(counts.queued + counts.running + over(counts));
            state.set_pos(over(counts));
        });
    }
}

impl Drop for WaitBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counts(queued: u64, running: u64, done: u64, failed: u64) -> StepCounts {
        StepCounts { queued, running, done, failed, cancelled: 0 }
    }

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn every_kind_is_counted_and_nothing_is_foretold_from_one_look() {
        let mut pace = Pace::new();
        assert_eq!(pace.line(&counts(3, 2, 10, 1)), "3 queued, 2 running, 10 done, 1 failed");
        pace.saw(at(0), &counts(3, 2, 10, 1));
        assert_eq!(pace.line(&counts(3, 2, 10, 1)), "3 queued, 2 running, 10 done, 1 failed");
    }

    #[test]
    fn rate_and_time_left_are_those_of_the_last_seconds() {
        let mut pace = Pace::new();
        pace.saw(at(0), &counts(1000, 0, 0, 0));
        pace.saw(at(2000), &counts(990, 0, 8, 2));
        assert_eq!(pace.line(&counts(990, 0, 8, 2)), "990 queued, 0 running, 8 done, 2 failed, 5.0/s, 3:18 left");
        // The slow start is forgotten.
        (3..=20).for_each(|s| pace.saw(at(s * 1000), &counts(0, 1, s * 100, 0)));
        assert_eq!(pace.line(&counts(0, 1, 2000, 0)), "0 queued, 1 running, 2000 done, 0 failed, 100.0/s, 0:00 left");
    }

    #[test]
    fn nothing_is_foretold_while_nothing_ends_or_nothing_is_left() {
        let mut pace = Pace::new();
        pace.saw(at(0), &counts(5, 5, 0, 0));
        pace.saw(at(1000), &counts(5, 5, 0, 0));
        assert_eq!(pace.line(&counts(5, 5, 0, 0)), "5 queued, 5 running, 0 done, 0 failed, 0.0/s");
        pace.saw(at(2000), &counts(0, 0, 10, 0));
        assert_eq!(pace.line(&counts(0, 0, 10, 0)), "0 queued, 0 running, 10 done, 0 failed, 5.0/s");
    }

    #[test]
    fn many_looks_are_not_all_kept() {
        let mut pace = Pace::new();
        (0..1000).for_each(|ms| pace.saw(at(ms), &counts(0, 0, ms, 0)));
        assert!(pace.samples.len() <= SAMPLES);
        assert_eq!(pace.line(&counts(0, 1, 999, 0)), "0 queued, 1 running, 999 done, 0 failed, 1000.0/s, 0:00 left");
    }
}
