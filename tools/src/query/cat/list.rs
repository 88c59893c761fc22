//! `--list`: a line for each task of each step, by their ids.

use super::{Request, lines::Sink, read_all};
use garrick_model::time::long_duration;
use garrick_pack::{Content, EndRecord, Record, Stream, TaskRun};
use std::{collections::BTreeMap, io};

/// What a pack holds of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    stdout_bytes: u64,
    stderr_bytes: u64,
    end: Option<EndRecord>,
}

#[derive(Debug, Default)]
struct Tallies(BTreeMap<TaskRun, Tally>);

const COLUMNS: usize = 8;
const HEAD: [&str; COLUMNS] = ["STEP", "RANK", "ATTEMPT", "EXIT", "ELAPSED", "MAXRSS", "STDOUT", "STDERR"];

pub(super) fn run(request: &Request, sink: &mut dyn Sink, report: &mut dyn FnMut(String)) -> io::Result<()> {
    let mut tallies = Tallies::default();
    read_all(request, sink, report, |_, record| {
        tallies.count(record);
        Ok(())
    })?;
    tallies.render(sink)
}

impl Tallies {
    fn count(&mut self, record: &Record<'_>) {
        let tally = self.0.entry(record.task).or_default();
        match record.content {
            Content::Output { stream: Stream::Stdout, bytes } => tally.stdout_bytes += bytes.len() as u64,
            Content::Output { stream: Stream::Stderr, bytes } => tally.stderr_bytes += bytes.len() as u64,
            Content::End(end) => tally.end = Some(end),
        }
    }

    /// Twice through the tasks, once for the widths: a million of them are not kept as text.
    fn render(&self, sink: &mut dyn Sink) -> io::Result<()> {
        let mut widths = HEAD.map(str::len);
        for (task, tally) in &self.0 {
            for (width, cell) in widths.iter_mut().zip(cells(task, tally)) {
                *width = (*width).max(cell.len());
            }
        }
        sink.write(Stream::Stdout, line(&HEAD.map(str::to_owned), &widths).as_bytes())?;
        self.0
            .iter()
            .try_for_each(|(task, tally)| sink.write(Stream::Stdout, line(&cells(task, tally), &widths).as_bytes()))
    }
}

/// The id to the left, numbers to the right.
fn line(cells: &[String; COLUMNS], widths: &[usize; COLUMNS]) -> String {
    let mut text = format!("{:<width$}", cells[0], width = widths[0]);
    for (cell, width) in cells.iter().zip(widths).skip(1) {
        text.push_str(&format!(" {cell:>width$}"));
    }
    text.push('\n');
    text
}

/// Of a task without an end, because it runs or because nobody was left to see it end, only the output is known.
fn cells(task: &TaskRun, tally: &Tally) -> [String; COLUMNS] {
    let of_end = |text: fn(&EndRecord) -> String| tally.end.as_ref().map_or_else(|| "-".to_owned(), text);
    [
        task.step.to_string(),
        task.rank.to_string(),
        task.attempt.to_string(),
        of_end(|end| end.status.to_string()),
        of_end(|end| {
            let elapsed = end.ended.since(end.started);
            // Two digits to each part, so that ` 0:0` is found in the exit column alone.
            format!("{}.{:03}", long_duration(elapsed.as_secs()), elapsed.subsec_millis())
        }),
        of_end(|end| format!("{}K", end.usage.max_rss_kib)),
        tally.stdout_bytes.to_string(),
        tally.stderr_bytes.to_string(),
    ]
}
