//! What `swait`, `garrick run` and `garrick steps --follow` show on a terminal: how many steps wait, run and are over, their
//! rate, and the estimated remaining time; and a bar if there is room. If several arrays and lists are not over, each has a bar
//! too. Drawn on standard error and removed at the end.

use super::terminal;
use garrick_model::{
    ids::JobId, messages::step::StepGroup, time::short_duration, view::StepCounts, visible::written_out,
};
use garrick_render::words::step_counts;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::{
    cmp::Reverse,
    fmt, io,
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

/// Bars that are drawn at most, however large the terminal is.
const MOST_BARS: usize = 16;
/// Lines of the terminal that are left to others: that of all steps, and the one that the cursor is on.
const OTHER_LINES: usize = 2;
/// Longest name beside a bar.
const MOST_NAME: usize = 20;
/// Draws a second that indicatif lets pass: each change of each bar is one.
const DRAWS: u8 = 250;

/// How far a step manager's steps are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// All of them.
    pub counts: StepCounts,
    /// Arrays and lists that are not over.
    pub groups: Vec<StepGroup>,
    /// How many more of those there are.
    pub left_out: u64,
    /// Counts of their steps.
    pub rest: StepCounts,
}

impl From<StepCounts> for Standing {
    fn from(counts: StepCounts) -> Self {
        Self { counts, ..Self::default() }
    }
}

/// A bar beside that of all steps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    text: String,
    counts: StepCounts,
}

/// `5609.7`, `5609.[8-1007]`, with the steps' name.
fn title(job: JobId, group: &StepGroup) -> String {
    let StepGroup { first, last, .. } = group;
    let which = if first == last { format!("{job}.{first}") } else { format!("{job}.[{first}-{last}]") };
    let name = written_out(&group.name);
    match name.char_indices().nth(MOST_NAME) {
        Some((at, _)) => format!("{which} {}...", &name[..at]),
        None => format!("{which} {name}"),
    }
}

/// A line for each array and list where there are several, in their order; of more than there is room for the busiest, and one
/// line for the rest.
fn lines(job: JobId, standing: &Standing, room: usize) -> Vec<Line> {
    let Standing { groups, left_out, .. } = standing;
    if groups.len() < 2 || room == 0 {
        return Vec::new();
    }
    let mut shown: Vec<&StepGroup> = groups.iter().collect();
    let mut rest: Vec<&StepGroup> = Vec::new();
    if groups.len() > room || *left_out > 0 {
        shown.sort_by_key(|group| (Reverse((group.counts.running, group.counts.queued)), group.first));
        rest = shown.split_off(room.saturating_sub(1).min(shown.len()));
        shown.sort_by_key(|group| group.first);
    }
    let line = |text: String, counts: StepCounts| Line { text, counts };
    let mut all: Vec<Line> = shown.iter().map(|group| line(title(job, group), group.counts)).collect();
    if !rest.is_empty() || *left_out > 0 {
        let more = rest.len() as u64 + left_out;
        let counts = rest.iter().map(|group| group.counts).chain([standing.rest]).sum();
        all.push(line(format!("{more} more"), counts));
    }
    // The bars begin in one column.
    let width = |of: &dyn Fn(&Line) -> String| all.iter().map(|line| of(line).chars().count()).max().unwrap_or(0);
    let counts = |line: &Line| step_counts(&line.counts);
    let (titles, numbers) = (width(&|line| line.text.clone()), width(&counts));
    for line in &mut all {
        line.text = format!("{:titles$}  {:numbers$}", line.text, counts(line));
    }
    all
}

/// A bar of indicatif's, with text before it.
struct Drawn {
    bar: ProgressBar,
    /// Shared, so that text and bar change in one stroke.
    text: Arc<Mutex<String>>,
    is_bar: bool,
}

impl Drawn {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let drawn = Self { bar, text: Arc::new(Mutex::new(String::new())), is_bar: true };
        drawn.bar.set_style(drawn.style());
        drawn
    }

    fn style(&self) -> ProgressStyle {
        let shown = Arc::clone(&self.text);
        let text = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            // Where it cannot be written, nothing can be said either.
            let _ = out.write_str(&shown.lock().unwrap_or_else(PoisonError::into_inner));
        };
        let template = if self.is_bar { "{text} [{wide_bar}]" } else { "{text}" };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        style.with_key("text", text).progress_chars("=> ")
    }

    fn show(&mut self, text: String, counts: Option<&StepCounts>) {
        let before = std::mem::replace(&mut *self.text.lock().unwrap_or_else(PoisonError::into_inner), text);
        if self.is_bar != counts.is_some() {
            self.is_bar = counts.is_some();
            self.bar.set_style(self.style());
        }
        let (len, pos) = counts.map_or((1, 0), |counts| (counts.queued + counts.running + over(counts), over(counts)));
        let same = before == *self.text.lock().unwrap_or_else(PoisonError::into_inner);
        if !same || self.bar.length() != Some(len) || self.bar.position() != pos {
            self.bar.update(|state| {
                state.set_len(len);
                state.set_pos(pos);
            });
        }
    }
}

/// A bar for all steps, and above it one for each array and list where several are not over.
pub struct WaitBar {
    job: JobId,
    multi: MultiProgress,
    all: Drawn,
    each: Vec<Drawn>,
    pace: Pace,
    start: Instant,
}

impl WaitBar {
    /// Of the steps of that job. Draws nothing yet.
    pub fn new(job: JobId) -> Self {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS));
        let mut all = Drawn::new();
        all.bar = multi.add(all.bar);
        Self { job, multi, all, each: Vec::new(), pace: Pace::new(), start: Instant::now() }
    }

    /// Draws, with what it says of all steps by itself.
    pub fn show(&mut self, standing: &Standing) {
        self.pace.saw(self.start.elapsed(), &standing.counts);
        let text = self.pace.line(&standing.counts);
        self.draw(text, standing);
    }

    /// Draws, with that text about all of them.
    pub fn draw(&mut self, text: String, standing: &Standing) {
        let rows = terminal::size(io::stderr()).map_or(0, |(rows, _)| usize::from(rows));
        let lines = lines(self.job, standing, rows.saturating_sub(OTHER_LINES).min(MOST_BARS));
        while self.each.len() > lines.len() {
            if let Some(gone) = self.each.pop() {
                gone.bar.finish_and_clear();
                self.multi.remove(&gone.bar);
            }
        }
        while self.each.len() < lines.len() {
            let mut drawn = Drawn::new();
            drawn.bar = self.multi.insert_before(&self.all.bar, drawn.bar);
            self.each.push(drawn);
        }
        for (drawn, line) in self.each.iter_mut().zip(lines) {
            drawn.show(line.text, Some(&line.counts));
        }
        let counts = (standing.counts != StepCounts::default()).then_some(&standing.counts);
        self.all.show(text, counts);
    }

    /// Has something written while nothing is drawn.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.multi.suspend(write)
    }

    /// Takes everything away until something is shown again.
    pub fn clear(&self) {
        // A terminal that takes nothing shows nothing either.
        let _ = self.multi.clear();
    }
}

impl Drop for WaitBar {
    fn drop(&mut self) {
        self.each.iter().for_each(|drawn| drawn.bar.finish_and_clear());
        self.all.bar.finish_and_clear();
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

    fn group(first: u32, last: u32, running: u64, queued: u64) -> StepGroup {
        let counts = counts(queued, running, 2, 1);
        StepGroup { first, last, array: first == last, name: format!("s{first}"), counts }
    }

    fn texts(standing: &Standing, room: usize) -> Vec<String> {
        lines(JobId(5), standing, room).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn each_array_and_list_has_a_line_where_there_are_several() {
        let groups = vec![group(0, 0, 2, 100), group(3, 12, 1, 7)];
        let standing = Standing { groups, ..Standing::default() };
        let expected = [
            "5.0 s0       100 queued, 2 running, 2 done, 1 failed",
            "5.[3-12] s3  7 queued, 1 running, 2 done, 1 failed  ",
        ];
        assert_eq!(texts(&standing, 2), expected);
        let one = Standing { groups: standing.groups[..1].to_vec(), ..Standing::default() };
        assert_eq!((texts(&one, 9), texts(&standing, 0)), (vec![], vec![]));
    }

    #[test]
    fn of_more_than_there_is_room_for_the_busiest_are_shown_and_the_rest_together() {
        let groups = (0..10).map(|n| group(n, n, u64::from(n % 5), u64::from(n))).collect();
        let standing = Standing { groups, left_out: 3, rest: counts(30, 0, 6, 3), ..Standing::default() };
        let shown = texts(&standing, 4);
        let titles: Vec<&str> = shown.iter().map(|text| text.split("  ").next().unwrap_or_default()).collect();
        assert_eq!(titles, ["5.4 s4", "5.8 s8", "5.9 s9", "10 more"]);
        assert!(shown[3].ends_with("54 queued, 9 running, 20 done, 10 failed"), "{shown:?}");
        let fits = Standing { left_out: 0, rest: StepCounts::default(), ..standing };
        assert_eq!(texts(&fits, 10).len(), 10);
    }

    #[test]
    fn what_steps_are_called_does_nothing_to_the_terminal() {
        let odd = StepGroup { name: "a\u{1b}[2J and much more than there is room for".to_owned(), ..group(1, 1, 1, 1) };
        assert_eq!(title(JobId(5), &odd), "5.1 a\\u{1b}[2J and much ...");
    }
}
