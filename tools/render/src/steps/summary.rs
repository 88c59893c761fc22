//! Summary of a job's steps: counts by state and exit code, percentiles of time and memory, the slowest, steps an hour, and how
//! busy the job's CPUs were. Keeps some twenty bytes of each step.

use super::{Row, chart, fields};
use crate::words;
use garrick_model::{
    ids::StepNum,
    messages::records::RecordedRun,
    state::{JobState, Reason, StepState},
    time::{Timestamp, short_duration},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    io::{self, Write},
};

/// How many of the slowest are named.
const SLOWEST: usize = 10;
/// Columns of the picture in a terminal.
const COLUMNS: usize = 60;
const PERCENTILES: [(u64, &str); 5] = [(0, "least"), (50, "median"), (90, "90 %"), (99, "99 %"), (100, "most")];

/// CPUs that a step held, and when: milliseconds since the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    from: u32,
    to: u32,
    cpus: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Summary {
    states: BTreeMap<StepState, u64>,
    exits: BTreeMap<(u8, Option<u8>), u64>,
    elapsed: Vec<u32>,
    rss: Vec<u32>,
    held: Vec<Held>,
    slowest: BinaryHeap<Reverse<(u64, String)>>,
    retries: u64,
    ending: Option<(JobState, Reason)>,
    cpus: u32,
    begun: Timestamp,
    ended: Timestamp,
    now: Timestamp,
}

/// How busy a job's CPUs were.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// From 0 to 1, in equal parts of the time.
    pub busy: Vec<f64>,
    /// The job's CPUs.
    pub cpus: u32,
    /// All of the time, milliseconds.
    pub ms: u64,
}

impl Summary {
    /// Steps of this run follow. Of several runs the picture shows the last.
    pub fn begin(&mut self, run: &RecordedRun, now: Timestamp) {
        (self.cpus, self.begun, self.now) = (run.cpus, run.start, now);
        self.ended = run.end.unwrap_or(now);
        self.held.clear();
    }

    /// What the run came to an end with.
    pub fn end(&mut self, ending: Option<(JobState, Reason)>) {
        self.ending = ending.or(self.ending.take());
    }

    /// One more step, or several that never began.
    pub fn add(&mut self, row: &Row<'_>) {
        let step = row.step;
        if !matches!(step.key.step, StepNum::Number(_)) {
            return;
        }
        self.hold(row);
        if step.again {
            self.retries += 1;
            return;
        }
        let count = step.all_of.as_ref().map_or(1, |all| all.keys().count() as u64);
        *self.states.entry(step.state).or_default() += count;
        let (Some(_), Some(_), Some(ms)) = (step.start, step.end, step.elapsed_ms(self.now)) else { return };
        *self.exits.entry((step.exit.code, step.exit.signal)).or_default() += 1;
        self.elapsed.push(u32::try_from(ms).unwrap_or(u32::MAX));
        self.rss.push(u32::try_from(step.usage.max_rss_kib).unwrap_or(u32::MAX));
        if self.slowest.len() < SLOWEST || self.slowest.peek().is_some_and(|Reverse((least, _))| *least < ms) {
            let text = format!(
                "{:<16} {:>10}  {:<12} {}",
                fields::step(row),
                fields::duration(ms),
                words::step_state(step.state),
                fields::command(row)
            );
            self.slowest.push(Reverse((ms, text)));
            if self.slowest.len() > SLOWEST {
                self.slowest.pop();
            }
        }
    }

    fn hold(&mut self, row: &Row<'_>) {
        let Some(start) = row.step.start else { return };
        let since = |at: Timestamp| u32::try_from(at.0.saturating_sub(self.begun.0).max(0)).unwrap_or(u32::MAX);
        let to = since(row.step.end.unwrap_or(self.now));
        self.held.push(Held { from: since(start), to, cpus: row.step.cpus });
    }

    /// How busy the CPUs were, in as many parts as the picture in a file has.
    pub fn usage(&self) -> Usage {
        self.usage_in(chart::PARTS)
    }

    fn usage_in(&self, parts: usize) -> Usage {
        let ms = u64::try_from(self.ended.0.saturating_sub(self.begun.0)).unwrap_or(0).max(1);
        let mut busy = vec![0.0; parts];
        let part = ms as f64 / parts as f64;
        for held in &self.held {
            let (from, to) = (f64::from(held.from), f64::from(held.to).min(ms as f64));
            let (first, last) = ((from / part) as usize, (to / part) as usize);
            for (at, share) in busy.iter_mut().enumerate().take(last + 1).skip(first) {
                let begin = at as f64 * part;
                let overlap = (to.min(begin + part) - from.max(begin)).max(0.0);
                *share += overlap * f64::from(held.cpus);
            }
        }
        let all = part * f64::from(self.cpus.max(1));
        busy.iter_mut().for_each(|share| *share /= all);
        Usage { busy, cpus: self.cpus, ms }
    }

    /// Writes it.
    pub fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let all: u64 = self.states.values().sum();
        writeln!(out, "Steps: {all}")?;
        if let Some((state, reason)) = &self.ending {
            let why = if *reason == Reason::None { String::new() } else { format!(" ({})", words::reason(reason)) };
            writeln!(out, "Job: {}{why}", words::job_state(*state))?;
        }
        for (state, count) in &self.states {
            writeln!(out, "  {:<14} {count:>9}", words::step_state(*state))?;
        }
        if self.retries > 0 {
            writeln!(out, "  {:<14} {:>9}", "(tries before)", self.retries)?;
        }
        let wrong: Vec<_> = self.exits.iter().filter(|((code, signal), _)| *code != 0 || signal.is_some()).collect();
        if !wrong.is_empty() {
            writeln!(out, "Exit codes other than 0:")?;
            for ((code, signal), count) in wrong {
                let text = signal.map_or_else(|| format!("{code}"), |signal| format!("signal {signal}"));
                writeln!(out, "  {text:<14} {count:>9}")?;
            }
        }
        if self.elapsed.is_empty() {
            return Ok(());
        }
        self.elapsed.sort_unstable();
        self.rss.sort_unstable();
        writeln!(out, "{:<16} {}", "", PERCENTILES.map(|(_, name)| format!("{name:>10}")).join(" "))?;
        let at = |sorted: &[u32], percent: u64| {
            let rank = (sorted.len() as u64 * percent).div_ceil(100).max(1) - 1;
            sorted.get(rank as usize).copied().unwrap_or(0)
        };
        let times =
            PERCENTILES.map(|(percent, _)| format!("{:>10}", fields::duration(at(&self.elapsed, percent).into())));
        let sizes = PERCENTILES.map(|(percent, _)| format!("{:>10}", fields::memory(at(&self.rss, percent).into())));
        writeln!(out, "{:<16} {}", "Elapsed", times.join(" "))?;
        writeln!(out, "{:<16} {}", "Peak memory", sizes.join(" "))?;
        let usage = self.usage_in(COLUMNS);
        let hours = usage.ms as f64 / 3_600_000.0;
        writeln!(out, "Steps an hour: {:.0}", self.elapsed.len() as f64 / hours)?;
        let mean = usage.busy.iter().sum::<f64>() / usage.busy.len() as f64;
        writeln!(
            out,
            "Use of {} CPUs in {}: {:.0} %\n  {}",
            usage.cpus,
            short_duration(usage.ms.div_ceil(1000)),
            100.0 * mean,
            chart::line(&usage.busy)
        )?;
        writeln!(out, "Slowest:")?;
        for Reverse((_, text)) in std::mem::take(&mut self.slowest).into_sorted_vec() {
            writeln!(out, "  {text}")?;
        }
        Ok(())
    }
}
