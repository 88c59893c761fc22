//! A task's descriptors on `stepd`'s side: read and written on request, without blocking, on the arbiter's thread. Data that is
//! not requested stays in the pipe, so that a slow `srun` stops its own tasks and no others.

use garrick_model::messages::shepherd::Stream;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
};
use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};
use tokio::io::{Interest, unix::AsyncFd};

/// Most bytes handed on in one piece: what a pipe holds by default (pipe(7)).
const PIECE_BYTES: usize = 64 << 10;

/// One of our ends, watched.
pub type Watched = Rc<AsyncFd<OwnedFd>>;

/// Our ends of one task.
#[derive(Default)]
struct Ends {
    input: Option<Watched>,
    stdout: Option<Watched>,
    stderr: Option<Watched>,
}

/// Our ends of all tasks, by token.
#[derive(Default)]
pub struct Streams(HashMap<u64, Ends>);

/// What reading came to.
pub enum ReadNow {
    /// Bytes; empty: the end.
    Done(Vec<u8>),
    /// Nothing yet; wait on this.
    Later(Watched),
}

impl Streams {
    /// A pipe whose read end goes to the task.
    pub fn input(&mut self, token: u64) -> io::Result<OwnedFd> {
        let (theirs, ours) = pipe()?;
        self.0.entry(token).or_default().input = Some(watched(ours)?);
        Ok(theirs)
    }

    /// A pipe whose write end goes to the task.
    pub fn output(&mut self, token: u64, stream: Stream) -> io::Result<OwnedFd> {
        let (ours, theirs) = pipe()?;
        let ours = Some(watched(ours)?);
        let ends = self.0.entry(token).or_default();
        match stream {
            Stream::Stdout => ends.stdout = ours,
            Stream::Stderr => ends.stderr = ours,
        }
        Ok(theirs)
    }

    /// The controlling side of a terminal.
    pub fn terminal(&mut self, token: u64, master: OwnedFd) -> io::Result<()> {
        let master = watched(master)?;
        let ends = self.0.entry(token).or_default();
        (ends.input, ends.stdout) = (Some(Rc::clone(&master)), Some(master));
        Ok(())
    }

    /// Reads the available data.
    pub fn read(&self, token: u64, stream: Stream) -> ReadNow {
        let ends = self.0.get(&token);
        let watch = ends.and_then(|e| match stream {
            Stream::Stdout => e.stdout.as_ref(),
            Stream::Stderr => e.stderr.as_ref(),
        });
        let Some(watch) = watch else { return ReadNow::Done(Vec::new()) };
        match read_now(watch) {
            Some(data) => ReadNow::Done(data),
            None => ReadNow::Later(Rc::clone(watch)),
        }
    }

    /// The end to write a task's input to.
    pub fn input_of(&self, token: u64) -> Option<Watched> {
        self.0.get(&token).and_then(|e| e.input.clone())
    }

    /// The terminal of a task.
    pub fn terminal_of(&self, token: u64) -> Option<Watched> {
        self.0.get(&token).and_then(|e| e.stdout.clone())
    }

    /// End of a task's input. On a terminal that is the end-of-file character, since closing it would hang the task up.
    pub fn close_input(&mut self, token: u64) {
        let Some(ends) = self.0.get_mut(&token) else { return };
        let Some(input) = ends.input.take() else { return };
        if ends.stdout.as_ref().is_some_and(|out| Rc::ptr_eq(out, &input)) {
            // Ctrl-D; a full terminal queue loses it, as it would lose a key press.
            let _ = nix::unistd::write(input.get_ref(), &[4]);
        }
    }

    /// Drops all our ends of a task.
    pub fn close(&mut self, token: u64) {
        self.0.remove(&token);
    }
}

/// Waits for something to read.
pub async fn read_later(watch: Watched) -> Vec<u8> {
    loop {
        let Ok(mut ready) = watch.readable().await else { return Vec::new() };
        match read_now(&watch) {
            Some(data) => return data,
            None => ready.clear_ready(),
        }
    }
}

/// Writes all; false if the reader is gone.
pub async fn write_all(watch: Watched, data: &[u8]) -> bool {
    let mut at = 0;
    while at < data.len() {
        match nix::unistd::write(watch.get_ref(), &data[at..]) {
            Ok(n) => at += n,
            Err(Errno::EAGAIN) => {
                let Ok(mut ready) = watch.writable().await else { return false };
                // Readiness may be old: look again before waiting anew.
                match nix::unistd::write(watch.get_ref(), &data[at..]) {
                    Ok(n) => at += n,
                    Err(Errno::EAGAIN) => ready.clear_ready(),
                    Err(Errno::EINTR) => {}
                    Err(_) => return false,
                }
            }
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
    true
}

fn read_now(watch: &AsyncFd<OwnedFd>) -> Option<Vec<u8>> {
    let mut buffer = vec![0u8; PIECE_BYTES];
    loop {
        match nix::unistd::read(watch.get_ref(), &mut buffer) {
            Ok(n) => {
                buffer.truncate(n);
                return Some(buffer);
            }
            Err(Errno::EAGAIN) => return None,
            Err(Errno::EINTR) => {}
            // A terminal whose other side is closed answers EIO: that is its end.
            Err(_) => return Some(Vec::new()),
        }
    }
}

/// Reading and writing end, both closed at exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(nix::unistd::pipe2(OFlag::O_CLOEXEC)?)
}

/// The other end of a pipe or terminal is another open file and keeps blocking, as tasks expect.
pub fn watched(fd: OwnedFd) -> io::Result<Watched> {
    let flags = OFlag::from_bits_retain(fcntl(fd.as_fd(), FcntlArg::F_GETFL)?);
    fcntl(fd.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    let writable = flags & OFlag::O_ACCMODE != OFlag::O_RDONLY;
    let readable = flags & OFlag::O_ACCMODE != OFlag::O_WRONLY;
    let interest = match (readable, writable) {
        (true, true) => Interest::READABLE | Interest::WRITABLE,
        (true, false) => Interest::READABLE,
        _ => Interest::WRITABLE,
    };
    Ok(Rc::new(garrick_kernel::watch::watch(fd, interest)?))
}
