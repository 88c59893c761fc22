//! The other side of the node's PMI: one request at a time, each with its answer.

use crate::PmixError;
use garrick_run::pmi::{VARIABLES, doubled, fields};
use std::{
    fmt::Write as _,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
};

/// The conversation with the node.
#[derive(Debug)]
pub struct Pmi {
    stream: UnixStream,
}

/// The fields of an answer.
#[derive(Debug)]
pub struct Answer(Vec<(String, String)>);

impl Answer {
    /// A field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// The descriptor that this process has for its node.
pub fn descriptor() -> Result<RawFd, PmixError> {
    let [name, ..] = VARIABLES;
    RawFd::try_from(crate::number(name)?).map_err(|_| PmixError::Variable(name))
}

impl Pmi {
    /// Takes the descriptor that is named in `PMI_FD`, and agrees on version 2.
    pub fn begin() -> Result<Self, PmixError> {
        let fd = descriptor()?;
        // SAFETY: the shepherd opened it for this process, which takes it once.
        let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut pmi = Self { stream };
        pmi.agree().map_err(|e| PmixError::Node(e.to_string()))?;
        Ok(pmi)
    }

    fn agree(&mut self) -> io::Result<()> {
        self.stream.write_all(b"cmd=init pmi_version=2 pmi_subversion=0\n")?;
        let mut byte = [0];
        while byte != *b"\n" {
            self.stream.read_exact(&mut byte)?;
        }
        Ok(())
    }

    /// Asks, and waits for the answer. An error for one that says no.
    pub fn ask(&mut self, command: &str, words: &[(&str, &str)]) -> Result<Answer, PmixError> {
        let answer = self.tell(command, words).and_then(|()| self.answer());
        let answer = answer.map_err(|e| PmixError::Node(e.to_string()))?;
        match answer.get("rc") {
            Some("0") => Ok(answer),
            _ => Err(PmixError::Node(answer.get("errmsg").unwrap_or("no").to_owned())),
        }
    }

    /// Says something that has no answer.
    pub fn tell(&mut self, command: &str, words: &[(&str, &str)]) -> io::Result<()> {
        let mut text = format!("cmd={command};");
        for (name, value) in words {
            let _ = write!(text, "{name}={};", doubled(value));
        }
        self.stream.write_all(format!("{:6}{text}", text.len()).as_bytes())
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let mut digits = [0; 6];
        self.stream.read_exact(&mut digits)?;
        let length = std::str::from_utf8(&digits).ok().and_then(|digits| digits.trim().parse::<usize>().ok());
        let mut text = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
        self.stream.read_exact(&mut text)?;
        let text = String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Answer(fields(&text)))
    }

    /// A value that was told, or a fact about the step.
    pub fn value(&mut self, command: &str, words: &[(&str, &str)]) -> Result<Option<String>, PmixError> {
        let answer = self.ask(command, words)?;
        Ok(answer.get("value").filter(|_| answer.get("found") == Some("TRUE")).map(str::to_owned))
    }
}

impl AsFd for Pmi {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
