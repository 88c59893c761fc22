//! The descriptors of a step's relayed streams. Input is read without blocking, even if other processes read the same pipe or
//! terminal. Output is written in pieces that a pipe or terminal with space takes without blocking, so that `srun` handles
//! signals even with a slow reader.

use crate::options::stream_plan::{Input, Sink};
use garrick_model::{
    messages::shepherd::Stream,
    patterns::{self, PatternFacts},
    spec::OpenMode,
};
use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::{
        socket::{self, MsgFlags},
        stat::{Mode, SFlag, fstat},
    },
    unistd::{isatty, read, write},
};
use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// What a pipe that polls as writable takes without blocking (pipe(7)).
const PIPE_BUF: usize = 4096;
/// Most input in one message.
pub const INPUT_CHUNK: usize = 64 << 10;

/// A file that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("Could not open {stream} file {path}: {cause}")]
pub struct FileError {
    /// `stdin`, `stdout`, `stderr`
    pub stream: &'static str,
    /// Path.
    pub path: String,
    /// Why.
    pub cause: io::Error,
}

/// Where input comes from.
#[derive(Debug)]
pub struct InputFile {
    fd: OwnedFd,
    is_socket: bool,
    is_terminal: bool,
}

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// So many bytes.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The end.
    End,
}

impl InputFile {
    /// Opens it, when it is a file.
    pub fn open(input: &Input, facts: &PatternFacts<'_>) -> Result<Option<Self>, FileError> {
        match input {
            Input::None | Input::Own => Ok(None),
            Input::File(pattern) => {
                let path = patterns::fill(pattern, facts);
                match File::open(&path) {
                    Ok(file) => Ok(Some(Self { fd: file.into(), is_socket: false, is_terminal: false })),
                    Err(cause) => Err(FileError { stream: "stdin", path, cause }),
                }
            }
        }
    }

    /// Standard input; `None` when it cannot be read. A pipe or terminal is opened once more, because setting it non-blocking would do so for everyone
    /// who shares it.
    pub fn own() -> Option<Self> {
        let stdin = io::stdin();
        let kind = SFlag::from_bits_truncate(fstat(stdin.as_fd()).ok()?.st_mode) & SFlag::S_IFMT;
        let is_terminal = isatty(&stdin).unwrap_or(false);
        let again = || {
            let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
            nix::fcntl::open("/proc/self/fd/0", flags, Mode::empty()).ok()
        };
        let fd = if kind == SFlag::S_IFIFO || kind == SFlag::S_IFCHR { again() } else { None };
        let fd = fd.or_else(|| stdin.as_fd().try_clone_to_owned().ok())?;
        Some(Self { fd, is_socket: kind == SFlag::S_IFSOCK, is_terminal })
    }

    /// It is a terminal, which only the foreground may read.
    pub const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Reads what is there.
    pub fn read(&self, space: &mut [u8]) -> Got {
        let result = if self.is_socket {
            socket::recv(self.fd.as_raw_fd(), space, MsgFlags::MSG_DONTWAIT)
        } else {
            read(&self.fd, space)
        };
        match result {
            Ok(0) => Got::End,
            Ok(count) => Got::Bytes(count),
            Err(Errno::EAGAIN | Errno::EINTR) => Got::Nothing,
            // A terminal that hung up gives EIO: no more will come.
            Err(_) => Got::End,
        }
    }
}

impl AsFd for InputFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// Fine.
    Ok,
    /// The reader closed its end.
    Closed,
}

/// Where output goes.
#[derive(Debug)]
pub struct OutputFile {
    fd: OwnedFd,
    /// Never blocks for long: a file, or a device that is no terminal.
    direct: bool,
    closed: bool,
    pending: Vec<u8>,
    written: usize,
}

impl OutputFile {
    /// `srun`'s own; `None` when it cannot be written.
    pub fn own(stream: Stream) -> Option<Self> {
        let own = match stream {
            Stream::Stdout => io::stdout().as_fd().try_clone_to_owned(),
            Stream::Stderr => io::stderr().as_fd().try_clone_to_owned(),
        };
        own.ok().map(Self::over)
    }

    /// Opens it, when it is a file.
    pub fn open(
        sink: &Sink,
        stream: &'static str,
        mode: OpenMode,
        facts: &PatternFacts<'_>,
    ) -> Result<Option<Self>, FileError> {
        match sink {
            Sink::None | Sink::AsOutput | Sink::Own | Sink::OwnOf(_) => Ok(None),
            Sink::File(pattern) => {
                let path = patterns::fill(pattern, facts);
                let mut options = OpenOptions::new();
                options.create(true).append(true);
                let opened = options.open(&path).and_then(|file| {
                    if mode != OpenMode::Append && file.metadata()?.is_file() {
                        file.set_len(0)?;
                    }
                    Ok(file)
                });
                match opened {
                    Ok(file) => Ok(Some(Self::over(file.into()))),
                    Err(cause) => Err(FileError { stream, path, cause }),
                }
            }
        }
    }

    /// Writes to that descriptor.
    pub fn over(fd: OwnedFd) -> Self {
        let kind = fstat(&fd).map_or(SFlag::S_IFIFO, |s| SFlag::from_bits_truncate(s.st_mode) & SFlag::S_IFMT);
        let direct = kind == SFlag::S_IFREG || kind == SFlag::S_IFCHR && !isatty(&fd).unwrap_or(false);
        Self { fd, direct, closed: false, pending: Vec::new(), written: 0 }
    }

    /// Adds bytes; a file takes them at once.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<Wrote> {
        if self.closed {
            return Ok(Wrote::Ok);
        }
        self.pending.extend_from_slice(bytes);
        if self.direct {
            while self.is_pending() {
                if self.write_some()? == Wrote::Closed {
                    return Ok(Wrote::Closed);
                }
            }
        }
        Ok(Wrote::Ok)
    }

    /// Something is left to write.
    pub fn is_pending(&self) -> bool {
        self.written < self.pending.len()
    }

    /// Writes a piece. To be called when the descriptor polls as writable.
    pub fn write_some(&mut self) -> io::Result<Wrote> {
        let rest = &self.pending[self.written..];
        let piece = if self.direct { rest } else { &rest[..rest.len().min(PIPE_BUF)] };
        match write(&self.fd, piece) {
            Ok(count) => self.written += count,
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(Errno::EPIPE) => {
                self.close();
                return Ok(Wrote::Closed);
            }
            Err(errno) => {
                self.close();
                return Err(errno.into());
            }
        }
        if !self.is_pending() {
            self.pending.clear();
            self.written = 0;
        }
        Ok(Wrote::Ok)
    }

    /// Drops what is left, and everything that comes.
    pub fn close(&mut self) {
        self.closed = true;
        self.pending.clear();
        self.written = 0;
    }
}

impl AsFd for OutputFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::ids::{JobId, StepKey};
    use std::io::Read as _;

    const FACTS: PatternFacts<'static> = PatternFacts {
        job: JobId(7),
        array_task: None,
        step: Some(StepKey::number(3)),
        node: None,
        node_id: None,
        task: None,
        user: "alice",
        job_name: "demo",
    };

    #[test]
    fn files_are_truncated_or_appended_to_as_asked() {
        let path = std::env::temp_dir().join(format!("garrick-out-{}-%J", std::process::id()));
        let sink = Sink::File(path.to_str().unwrap().to_owned());
        let real = patterns::fill(path.to_str().unwrap(), &FACTS);
        assert!(real.ends_with("-7.3"));
        for (mode, want) in [(OpenMode::Default, "x"), (OpenMode::Append, "xx"), (OpenMode::Truncate, "x")] {
            let mut file = OutputFile::open(&sink, "stdout", mode, &FACTS).unwrap().unwrap();
            assert_eq!(file.push(b"x").unwrap(), Wrote::Ok);
            assert!(!file.is_pending());
            assert_eq!(std::fs::read_to_string(&real).unwrap(), want);
        }
        std::fs::remove_file(real).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_opened_names_path_and_stream() {
        let sink = Sink::File("/nonexistent/%J".to_owned());
        let error = OutputFile::open(&sink, "stdout", OpenMode::Default, &FACTS).unwrap_err();
        assert!(error.to_string().starts_with("Could not open stdout file /nonexistent/7.3: "), "{error}");
    }

    #[test]
    fn a_pipe_is_written_in_pieces_and_a_closed_one_is_noticed() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut file = OutputFile::over(writer.into());
        file.push(&[b'x'; 5000]).unwrap();
        assert!(file.is_pending());
        file.write_some().unwrap();
        assert!(file.is_pending());
        file.write_some().unwrap();
        assert!(!file.is_pending());
        let mut got = vec![0; 5000];
        reader.read_exact(&mut got).unwrap();
        drop(reader);
        // A child that another test starts in this moment has a copy of it until it executes its program.
        loop {
            file.push(b"y").unwrap();
            if file.write_some().unwrap() == Wrote::Closed {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(file.push(b"z").unwrap(), Wrote::Ok);
        assert!(!file.is_pending());
    }
}
