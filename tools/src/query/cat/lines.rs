//! Passes output on in whole lines: output of different tasks is mixed between lines, not within them. The output of one task
//! keeps every byte and its order.

use garrick_pack::{Stream, TaskRun};
use std::{collections::BTreeMap, fmt::Write as _, io};

/// Longest piece of a line that is held back for its end.
const LONGEST: usize = 64 << 10;
/// Pieces of lines that are held back at most. Steps that ended have none, so more are there only after crashes.
const MOST: usize = 4096;

/// Where output goes.
pub(super) trait Sink {
    /// Bytes to one of the streams.
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()>;
    /// Everything on its way.
    fn flush(&mut self) -> io::Result<()>;
}

/// Beginnings of lines, by task and by the stream that they go to.
#[derive(Debug)]
pub(super) struct Lines {
    label: bool,
    held: BTreeMap<(TaskRun, bool), Vec<u8>>,
}

impl Lines {
    /// With the step's id before each line, or without.
    pub(super) fn new(label: bool) -> Self {
        Self { label, held: BTreeMap::new() }
    }

    /// A task wrote.
    pub(super) fn output(
        &mut self,
        sink: &mut dyn Sink,
        task: &TaskRun,
        stream: Stream,
        bytes: &[u8],
    ) -> io::Result<()> {
        let key = (*task, stream == Stream::Stderr);
        let mut joined = self.held.remove(&key).unwrap_or_default();
        let text = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined
        };
        let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let (lines, begun) = text.split_at(whole);
        self.lines(sink, task, stream, lines)?;
        if begun.len() > LONGEST {
            return self.lines(sink, task, stream, begun);
        }
        if !begun.is_empty() {
            if self.held.len() >= MOST {
                self.finish(sink)?;
            }
            self.held.insert(key, begun.to_vec());
        }
        Ok(())
    }

    /// A task ended: its last line may have no end.
    pub(super) fn end(&mut self, sink: &mut dyn Sink, task: &TaskRun) -> io::Result<()> {
        for (stderr, stream) in [(false, Stream::Stdout), (true, Stream::Stderr)] {
            if let Some(begun) = self.held.remove(&(*task, stderr)) {
                self.lines(sink, task, stream, &begun)?;
            }
        }
        Ok(())
    }

    /// No more lines follow.
    pub(super) fn finish(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        for ((task, stderr), begun) in std::mem::take(&mut self.held) {
            self.lines(sink, &task, if stderr { Stream::Stderr } else { Stream::Stdout }, &begun)?;
        }
        Ok(())
    }

    fn lines(&self, sink: &mut dyn Sink, task: &TaskRun, stream: Stream, text: &[u8]) -> io::Result<()> {
        if !self.label || text.is_empty() {
            return if text.is_empty() { Ok(()) } else { sink.write(stream, text) };
        }
        let label = label(task);
        let mut labelled = Vec::with_capacity(text.len() + 2 * label.len());
        for line in text.split_inclusive(|b| *b == b'\n') {
            labelled.extend_from_slice(label.as_bytes());
            labelled.extend_from_slice(line);
        }
        if !labelled.ends_with(b"\n") {
            labelled.push(b'\n');
        }
        sink.write(stream, &labelled)
    }
}

/// `5609.7_3: `, with the attempt and the rank where they are not 0: `5609.7_3#1-2: `.
fn label(task: &TaskRun) -> String {
    let mut text = task.step.to_string();
    for (mark, n) in [('#', task.attempt), ('-', task.rank)] {
        if n > 0 {
            let _ = write!(text, "{mark}{n}");
        }
    }
    text.push_str(": ");
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::ids::{JobId, StepId, StepKey};

    #[derive(Default)]
    struct Both {
        out: Vec<u8>,
        err: Vec<u8>,
    }

    impl Sink for Both {
        fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
            match stream {
                Stream::Stdout => self.out.extend_from_slice(bytes),
                Stream::Stderr => self.err.extend_from_slice(bytes),
            }
            Ok(())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn run(step: u32) -> TaskRun {
        TaskRun { step: StepId::of(JobId(5609), StepKey::number(step)), attempt: 0, rank: 0 }
    }

    #[test]
    fn tasks_are_mixed_between_lines_only() {
        let mut sink = Both::default();
        let mut lines = Lines::new(false);
        for (step, text) in [(1, "on"), (2, "tw"), (1, "e\nmo"), (2, "o\n"), (1, "re\n"), (3, "no end")] {
            lines.output(&mut sink, &run(step), Stream::Stdout, text.as_bytes()).unwrap();
        }
        assert_eq!(String::from_utf8_lossy(&sink.out), "one\ntwo\nmore\n");
        lines.output(&mut sink, &run(3), Stream::Stderr, b"errors apart").unwrap();
        lines.end(&mut sink, &run(3)).unwrap();
        lines.output(&mut sink, &run(4), Stream::Stdout, b"|left").unwrap();
        lines.finish(&mut sink).unwrap();
        assert_eq!(String::from_utf8_lossy(&sink.out), "one\ntwo\nmore\nno end|left");
        assert_eq!(String::from_utf8_lossy(&sink.err), "errors apart");
    }

    #[test]
    fn labels_name_the_step_and_what_is_not_0() {
        let mut sink = Both::default();
        let mut lines = Lines::new(true);
        let other = TaskRun { step: StepId::of(JobId(5609), StepKey::task(7, 3)), attempt: 1, rank: 2 };
        lines.output(&mut sink, &run(1), Stream::Stdout, b"a\n\nb").unwrap();
        lines.output(&mut sink, &other, Stream::Stdout, b"c\n").unwrap();
        lines.end(&mut sink, &run(1)).unwrap();
        let expected = "5609.1: a\n5609.1: \n5609.7_3#1-2: c\n5609.1: b\n";
        assert_eq!(String::from_utf8_lossy(&sink.out), expected);
    }

    #[test]
    fn what_is_held_back_is_bounded() {
        let mut sink = Both::default();
        let mut lines = Lines::new(false);
        let long = vec![b'x'; LONGEST];
        lines.output(&mut sink, &run(0), Stream::Stdout, &long).unwrap();
        assert_eq!(sink.out.len(), 0);
        lines.output(&mut sink, &run(0), Stream::Stdout, b"y").unwrap();
        assert_eq!(sink.out.len(), LONGEST + 1);
        for step in 0..u32::try_from(MOST).unwrap() + 1 {
            lines.output(&mut sink, &run(step), Stream::Stdout, b"z").unwrap();
        }
        assert_eq!((sink.out.len(), lines.held.len()), (LONGEST + 1 + MOST, 1));
    }
}
