//! Lines of a file or a pipe as they come, one at a time, holding only a piece of it.

use super::list_line::LONGEST;
use nix::{errno::Errno, unistd::read};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

/// Read at a time.
const PIECE: usize = 64 << 10;

/// A file that is read by lines.
#[derive(Debug)]
pub struct Lines {
    fd: OwnedFd,
    /// All of it is there: a file, not a pipe that somebody may still be writing.
    all_there: bool,
    held: Vec<u8>,
    /// What of `held` has been given.
    given: usize,
    /// What of `held` has been searched for a line end.
    searched: usize,
    ended: bool,
    /// The rest of a line that is too long.
    skipping: bool,
    number: u64,
}

/// A line, as far as it is here.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A whole one: its number, from 1, and its text without its end.
    Whole(u64, &'a [u8]),
    /// One that is longer than [`LONGEST`]: its number.
    TooLong(u64),
    /// More must be read.
    More,
    /// There are no more.
    End,
}

impl Lines {
    /// A file by name; `-` is standard input.
    pub fn open(name: &Path) -> io::Result<Self> {
        let file =
            if name == Path::new("-") { io::stdin().as_fd().try_clone_to_owned()?.into() } else { File::open(name)? };
        let all_there = file.metadata()?.is_file();
        Ok(Self::of(file.into(), all_there))
    }

    const fn of(fd: OwnedFd, all_there: bool) -> Self {
        Self { fd, all_there, held: Vec::new(), given: 0, searched: 0, ended: false, skipping: false, number: 0 }
    }

    /// Is all of it there to be read, without waiting?
    pub const fn all_there(&self) -> bool {
        self.all_there
    }

    /// The number of the line that was given last, from 1.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The next line of what was read.
    pub fn next(&mut self) -> Line<'_> {
        let found = self.held[self.searched..].iter().position(|b| *b == b'\n').map(|at| self.searched + at);
        let (end, next) = match found {
            Some(end) => (end, end + 1),
            None if self.ended && (self.given < self.held.len() || self.skipping) => (self.held.len(), self.held.len()),
            None if self.ended => return Line::End,
            None => {
                self.searched = self.held.len();
                if self.searched - self.given > LONGEST {
                    // Its beginning need not be kept.
                    self.skipping = true;
                    self.given = self.searched;
                }
                return Line::More;
            }
        };
        let begin = self.given;
        (self.given, self.searched) = (next, next);
        self.number += 1;
        if std::mem::take(&mut self.skipping) || end - begin > LONGEST {
            return Line::TooLong(self.number);
        }
        Line::Whole(self.number, &self.held[begin..end])
    }

    /// Reads a piece. To be called after [`Line::More`], when the descriptor polls as readable.
    pub fn read(&mut self) -> io::Result<()> {
        self.held.drain(..self.given);
        self.searched -= self.given;
        self.given = 0;
        let begin = self.held.len();
        self.held.resize(begin + PIECE, 0);
        let result = read(&self.fd, &mut self.held[begin..]);
        self.held.truncate(begin + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => self.ended = true,
            Ok(_) | Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}

impl AsFd for Lines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// Every line of a text, with its number; `None`: too long.
    fn all(text: &[u8]) -> Vec<(u64, Option<Vec<u8>>)> {
        use std::io::Write as _;
        let (reader, mut writer) = io::pipe().unwrap();
        let text = text.to_vec();
        let feeder = std::thread::spawn(move || writer.write_all(&text).unwrap());
        let mut lines = Lines::of(reader.into(), false);
        let mut got = Vec::new();
        loop {
            got.push(match lines.next() {
                Line::Whole(number, line) => (number, Some(line.to_vec())),
                Line::TooLong(number) => (number, None),
                Line::More => {
                    lines.read().unwrap();
                    assert!(lines.held.len() <= LONGEST + 2 * PIECE);
                    continue;
                }
                Line::End => break,
            });
        }
        feeder.join().unwrap();
        got
    }

    #[test]
    fn lines_that_are_too_long_are_passed_over_and_counted() {
        let long = "x".repeat(LONGEST + 1);
        let fits = "y".repeat(LONGEST);
        let much = "z".repeat(10 * LONGEST);
        let text = format!("a\n{long}\n{fits}\n{much}\nb");
        let got = all(text.as_bytes());
        let want = [Some("a".to_owned()), None, Some(fits), None, Some("b".to_owned())];
        assert_eq!(got.len(), want.len());
        for ((number, line), (n, want)) in got.into_iter().zip((1..).zip(want)) {
            assert!((number, line.as_deref()) == (n, want.as_deref().map(str::as_bytes)), "line {n}");
        }
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_text(text in "[ab\\n]{0,40}") {
            let got: Vec<Vec<u8>> = all(text.as_bytes()).into_iter().map(|(_, l)| l.unwrap()).collect();
            let want: Vec<Vec<u8>> = text.lines().map(|l| l.as_bytes().to_vec()).collect();
            prop_assert_eq!(got, want);
        }
    }
}
