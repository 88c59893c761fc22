//! Pseudo-terminals for `srun --pty`. The shepherd keeps the master; the task gets the terminal as descriptors 0 to 2 and
//! makes it its controlling one (`Session::OwnTerminal` of [`super::spawn`]).

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// Both ends.
#[derive(Debug)]
pub struct Pty {
    /// The shepherd's end.
    pub master: OwnedFd,
    /// The task's end.
    pub terminal: OwnedFd,
}

/// A terminal that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("pseudo-terminal: {operation}: {cause}")]
pub struct PtyError {
    /// What was tried.
    pub operation: &'static str,
    /// Why not.
    #[source]
    pub cause: io::Error,
}

fn last(operation: &'static str) -> PtyError {
    PtyError { operation, cause: io::Error::last_os_error() }
}

/// Size of a window in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// Opens a pair, both ends closed at exec. `owner`: whom the terminal is given, as root, so that programs may open it by its
/// name.
pub fn open(size: WindowSize, owner: Option<u32>) -> Result<Pty, PtyError> {
    // SAFETY: no memory is involved.
    let master = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
    if master < 0 {
        return Err(last("posix_openpt"));
    }
    // SAFETY: just opened, owned by nobody else.
    let master = unsafe { OwnedFd::from_raw_fd(master) };
    // SAFETY: the descriptor is an unused master.
    if unsafe { libc::unlockpt(master.as_raw_fd()) } != 0 {
        return Err(last("unlockpt"));
    }
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the argument is a number; the kernel opens the other end without going by a name that may mean another mount.
    let terminal = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    if terminal < 0 {
        return Err(last("TIOCGPTPEER"));
    }
    // SAFETY: just opened, owned by nobody else.
    let terminal = unsafe { OwnedFd::from_raw_fd(terminal) };
    if let Some(uid) = owner {
        use nix::unistd::{Uid, fchown};
        fchown(&terminal, Some(Uid::from_raw(uid)), None)
            .map_err(|e| PtyError { operation: "fchown", cause: e.into() })?;
    }
    let pty = Pty { master, terminal };
    set_size(std::os::fd::AsFd::as_fd(&pty.master), size)?;
    Ok(pty)
}

/// Tells the terminal its size; the processes in its foreground get SIGWINCH.
pub fn set_size(master: BorrowedFd<'_>, size: WindowSize) -> Result<(), PtyError> {
    let value = libc::winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the size lives over the call.
    let rc = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const value) };
    if rc == 0 { Ok(()) } else { Err(last("TIOCSWINSZ")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        reap::reap,
        spawn::{Session, SpawnSpec, cstring, spawn},
    };
    use std::{borrow::Cow, fs::File, io::Read, os::fd::AsFd};

    #[test]
    fn a_task_on_a_terminal_controls_it_and_knows_its_size() {
        let pty = open(WindowSize { rows: 33, cols: 101 }, None).unwrap();
        let arg = |s: &str| Cow::Owned(cstring(s).unwrap());
        let end = Some(pty.terminal.as_fd());
        // /dev/tty opens only for a process with a controlling terminal.
        let spec = SpawnSpec {
            programs: vec![c"/bin/sh".to_owned()],
            argv: vec![arg("sh"), arg("-c"), arg("stty size </dev/tty; tty >/dev/null && echo terminal")],
            env: vec![arg("PATH=/usr/bin:/bin")],
            stdio: [end, end, end],
            session: Session::OwnTerminal,
            ..SpawnSpec::default()
        };
        let child = spawn(&spec).unwrap();
        drop(pty.terminal);
        let mut text = Vec::new();
        // The master reads EIO once the last holder of the terminal is gone.
        let end = File::from(pty.master).read_to_end(&mut text);
        assert!(end.is_err_and(|e| e.raw_os_error() == Some(libc::EIO)));
        assert!(reap(child.pidfd.as_fd()).unwrap().status.success());
        assert_eq!(String::from_utf8_lossy(&text), "33 101\r\nterminal\r\n");
    }

    #[test]
    fn no_terminal_is_an_error_of_that_stage() {
        let null = File::open("/dev/null").unwrap();
        let spec = SpawnSpec {
            programs: vec![c"/bin/true".to_owned()],
            argv: vec![Cow::Borrowed(c"true")],
            stdio: [Some(null.as_fd()), None, None],
            session: Session::OwnTerminal,
            ..SpawnSpec::default()
        };
        let e = spawn(&spec).unwrap_err();
        assert_eq!(e.stage, crate::spawn::Stage::Terminal);
        assert_eq!(e.errno(), libc::ENOTTY);
    }
}
