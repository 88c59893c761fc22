//! All output of commands. Results go to standard output in one buffered write, messages to standard error as `program: error:
//! text`. A reader that closed its end of the pipe (`squeue | head`) is a normal end, not an error.

use crate::colour;
use garrick_asking::Asker;
use garrick_model::visible::{masked, written_out};
use garrick_render::words::SLURM_VERSION;
use std::{
    fmt::Display,
    io::{self, BufWriter, IsTerminal as _, Write},
};

/// How much a command says about itself: `-Q`, nothing, `-v`, `-vv`, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verbosity {
    /// Errors and warnings only.
    Quiet,
    /// And what happens.
    #[default]
    Normal,
    /// And how: the number of `-v`.
    Verbose(u8),
}

/// Messages of one command, each line with the command's name in front.
#[derive(Clone, Debug)]
pub struct Console {
    program: String,
    verbosity: Verbosity,
}

impl Console {
    /// For the command of that name.
    pub fn new(program: &str) -> Self {
        Self { program: program.to_owned(), verbosity: Verbosity::Normal }
    }

    /// The command's name.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Sets how much is said from here on.
    pub fn set_verbosity(&mut self, verbosity: Verbosity) {
        self.verbosity = verbosity;
    }

    /// `program: error: text`, always.
    pub fn error(&self, text: impl Display) {
        self.line(format_args!("error: {text}"));
    }

    /// `program: fatal: text`, always.
    pub fn fatal(&self, text: impl Display) {
        self.line(format_args!("fatal: {text}"));
    }

    /// `program: warning: text`, always.
    pub fn warning(&self, text: impl Display) {
        self.line(format_args!("warning: {text}"));
    }

    /// `program: text`, unless quiet.
    pub fn info(&self, text: impl Display) {
        if self.verbosity > Verbosity::Quiet {
            self.line(text);
        }
    }

    /// `program: text`, with at least one `-v`.
    pub fn verbose(&self, text: impl Display) {
        if matches!(self.verbosity, Verbosity::Verbose(_)) {
            self.line(text);
        }
    }

    /// `program: debug:  text`, with at least two `-v`.
    pub fn debug(&self, text: impl Display) {
        if self.verbosity >= Verbosity::Verbose(2) {
            self.line(format_args!("debug:  {text}"));
        }
    }

    /// `program: text` for who sits at a terminal: programs get the words that they know from Slurm.
    pub fn hint(&self, text: impl Display) {
        if io::stderr().is_terminal() {
            self.line(text);
        }
    }

    /// `program: text` for every line of `text`, always.
    pub fn line(&self, text: impl Display) {
        let text = without_numbers(&text.to_string());
        let coloured = colour::wanted(io::stderr().is_terminal());
        let mut out = String::with_capacity(text.len() + 32);
        for line in text.lines() {
            out.push_str(&self.program);
            out.push_str(": ");
            let line = written_out(line);
            out.push_str(&if coloured { colour::message(&line) } else { line });
            out.push('\n');
        }
        stderr(out.as_bytes());
    }
}

/// A text without the numbers that the standard library puts behind errors of the operating system: ` (os error 2)`.
fn without_numbers(text: &str) -> String {
    let mut pieces = text.split(" (os error ");
    let mut kept = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => kept.push_str(rest),
            _ => kept.extend([" (os error ", piece]),
        }
    }
    kept
}

impl Asker for Console {
    fn program(&self) -> &str {
        self.program()
    }

    fn info(&self, text: &dyn Display) {
        self.info(text);
    }

    fn warning(&self, text: &dyn Display) {
        self.warning(text);
    }
}

/// Bytes to standard error, whole and at once. That standard error is gone is nothing a command could tell anyone.
pub fn stderr(bytes: &[u8]) {
    let _ = io::stderr().lock().write_all(bytes);
}

/// Runs a rendering into a buffered standard output and flushes it. At a terminal, control characters in it are shown as `?`: names
/// and comments are other users' texts. Elsewhere the bytes are those that were rendered.
pub fn stdout(render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    if !io::stdout().is_terminal() {
        return stdout_as_is(render);
    }
    stdout_as_is(|out| {
        let mut lines = Masked { out, begun: Vec::new() };
        let rendered = render(&mut lines);
        rendered.and(lines.end())
    })
}

/// Writes lines with their control characters masked, each when it is whole.
struct Masked<'o> {
    out: &'o mut dyn Write,
    /// A line that is not whole.
    begun: Vec<u8>,
}

impl Masked<'_> {
    fn end(&mut self) -> io::Result<()> {
        self.out.write_all(&masked(&std::mem::take(&mut self.begun)))
    }
}

impl Write for Masked<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        // What has begun has no end of a line in it.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        if whole > 0 {
            self.begun.extend_from_slice(&text[..whole]);
            self.end()?;
        }
        self.begun.extend_from_slice(&text[whole..]);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// As [`stdout`], with every byte as it is: for the output of jobs and steps.
pub fn stdout_as_is(render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    render(&mut out)?;
    out.flush()
}

/// A text of our own about a command, its names and headings in colours at a terminal.
pub fn print_help(text: &str) -> io::Result<()> {
    if colour::wanted(io::stdout().is_terminal()) {
        return stdout_as_is(|out| out.write_all(colour::help(text).as_bytes()));
    }
    stdout(|out| out.write_all(text.as_bytes()))
}

/// A line to standard output, newline added.
pub fn print_line(text: impl Display) -> io::Result<()> {
    stdout(|out| writeln!(out, "{text}"))
}

/// What `-V` prints: the compatibility level first, then our own version.
pub fn print_version() -> io::Result<()> {
    // Programs take the second word for the version.
    print_line(SLURM_VERSION)
}

/// What `garrick --version` prints.
pub fn print_own_version() -> io::Result<()> {
    stdout(|out| writeln!(out, "garrick {}\n{SLURM_VERSION}", env!("CARGO_PKG_VERSION")))
}

/// Exit code of a command whose output ended so: `code` when it was written or its reader went away, 1 (with a message)
/// when it could not be written (a full disk).
pub fn finish(console: &Console, written: io::Result<()>, code: i32) -> i32 {
    match written {
        Ok(()) => code,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => code,
        Err(error) => {
            console.error(format_args!("standard output: {error}"));
            1
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_of_errors_are_not_shown() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(
            without_numbers(&format!("a: {error}, b: {error}")),
            "a: No such file or directory, b: No such file or directory"
        );
        for text in ["", "as it is", " (os error x)", "ends (os error 2"] {
            assert_eq!(without_numbers(text), text);
        }
    }

    #[test]
    fn lines_are_masked_as_they_come() {
        let hostile = "a\u{1b}]0;x\u{7}b\nc\td\u{9b}31m é\r\nlast\u{1b}";
        for at in 0..=hostile.len() {
            let mut written = Vec::new();
            let mut lines = Masked { out: &mut written, begun: Vec::new() };
            let (first, second) = hostile.as_bytes().split_at(at);
            lines.write_all(first).and_then(|()| lines.write_all(second)).and_then(|()| lines.end()).unwrap();
            assert_eq!(written, masked(hostile.as_bytes()));
        }
    }

    #[test]
    fn closed_pipe_is_a_normal_end() {
        let console = Console::new("squeue");
        assert_eq!(finish(&console, Err(io::ErrorKind::BrokenPipe.into()), 0), 0);
        assert_eq!(finish(&console, Err(io::ErrorKind::StorageFull.into()), 0), 1);
        assert_eq!(finish(&console, Ok(()), 3), 3);
    }

    #[test]
    fn verbosity_is_ordered_from_quiet_to_verbose() {
        assert!(Verbosity::Quiet < Verbosity::Normal && Verbosity::Normal < Verbosity::Verbose(1));
    }
}
