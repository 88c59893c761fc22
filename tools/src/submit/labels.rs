//! `srun -l`: the task's number before every line of its output. A line is held back until it is complete, so that lines of
//! several tasks do not mix; with `-u` a part of a line is written at once, with a label of its own.

use garrick_model::messages::shepherd::Stream;
use std::collections::BTreeMap;

/// A task's line that is not whole yet is cut here, so that a task without line ends cannot fill the memory.
const LONGEST_LINE: usize = 64 << 10;

/// Puts labels in front of lines.
#[derive(Debug, Default)]
pub struct Labels {
    width: usize,
    whole_lines: bool,
    held: BTreeMap<(u32, bool), Vec<u8>>,
}

impl Labels {
    /// For a step of that many tasks. `whole_lines`: hold back what is not whole.
    pub fn new(tasks: usize, whole_lines: bool) -> Self {
        Self { width: tasks.saturating_sub(1).max(1).ilog10() as usize + 1, whole_lines, held: BTreeMap::new() }
    }

    /// The step turned out to have that many tasks.
    pub fn set_tasks(&mut self, tasks: usize) {
        self.width = tasks.saturating_sub(1).max(1).ilog10() as usize + 1;
    }

    /// Labels what a task wrote; an empty piece is the end of the stream.
    pub fn label(&mut self, rank: u32, stream: Stream, data: &[u8], out: &mut Vec<u8>) {
        let key = (rank, stream == Stream::Stderr);
        let mut held = self.held.remove(&key).unwrap_or_default();
        if data.is_empty() {
            if !held.is_empty() {
                self.line(rank, &held, out);
            }
            return;
        }
        let mut rest = data;
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            held.extend_from_slice(&rest[..end]);
            self.line(rank, &held, out);
            held.clear();
            rest = &rest[end + 1..];
        }
        held.extend_from_slice(rest);
        if held.is_empty() {
        } else if self.whole_lines && held.len() < LONGEST_LINE {
            self.held.insert(key, held);
        } else {
            self.line(rank, &held, out);
        }
    }

    /// What is still held back.
    pub fn finish(&mut self, stream: Stream, out: &mut Vec<u8>) {
        let of_stream = stream == Stream::Stderr;
        let keys: Vec<_> = self.held.keys().filter(|(_, error)| *error == of_stream).copied().collect();
        for key in keys {
            if let Some(held) = self.held.remove(&key) {
                self.line(key.0, &held, out);
            }
        }
    }

    fn line(&self, rank: u32, line: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{rank:>width$}: ", width = self.width).as_bytes());
        out.extend_from_slice(line);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(out: Vec<u8>) -> String {
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_line_gets_its_label() {
        let (mut labels, mut out) = (Labels::new(4, true), Vec::new());
        labels.label(3, Stream::Stdout, b"one\n\ntwo\n", &mut out);
        assert_eq!(text(out), "3: one\n3: \n3: two\n");
    }

    #[test]
    fn labels_are_as_wide_as_the_largest_rank() {
        for (tasks, want) in [(1, "0: x\n"), (10, "0: x\n"), (11, " 0: x\n"), (101, "  0: x\n")] {
            let (mut labels, mut out) = (Labels::new(tasks, true), Vec::new());
            labels.label(0, Stream::Stdout, b"x\n", &mut out);
            assert_eq!(text(out), want, "{tasks} tasks");
        }
    }

    #[test]
    fn lines_of_two_tasks_do_not_mix() {
        let (mut labels, mut out) = (Labels::new(2, true), Vec::new());
        labels.label(0, Stream::Stdout, b"hel", &mut out);
        labels.label(1, Stream::Stdout, b"world\n", &mut out);
        labels.label(0, Stream::Stderr, b"error\n", &mut out);
        labels.label(0, Stream::Stdout, b"lo\nrest", &mut out);
        labels.label(0, Stream::Stdout, b"", &mut out);
        assert_eq!(text(out), "1: world\n0: error\n0: hello\n0: rest\n");
    }

    #[test]
    fn unbuffered_pieces_go_out_at_once() {
        let (mut labels, mut out) = (Labels::new(1, false), Vec::new());
        labels.label(0, Stream::Stdout, b"50%", &mut out);
        assert_eq!(text(out), "0: 50%\n");
    }

    #[test]
    fn what_is_left_comes_out_at_the_end_and_endless_lines_are_cut() {
        let (mut labels, mut out) = (Labels::new(1, true), Vec::new());
        labels.label(0, Stream::Stdout, b"no newline", &mut out);
        assert!(out.is_empty());
        labels.finish(Stream::Stdout, &mut out);
        assert_eq!(text(out), "0: no newline\n");
        let mut out = Vec::new();
        labels.label(0, Stream::Stdout, &vec![b'x'; LONGEST_LINE], &mut out);
        assert!(out.len() > LONGEST_LINE);
    }
}
