//! The terminal behind standard input: raw mode for `srun --pty`, its size, and its foreground process group.

use nix::{
    sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr},
    unistd::{Pid, getpgrp, isatty, tcgetpgrp, tcsetpgrp},
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Size of a terminal that has none (of a VT100).
pub const DEFAULT_SIZE: (u16, u16) = (24, 80);

/// A terminal in raw mode; dropped, it is as before.
#[derive(Debug)]
pub struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Puts standard input's terminal into raw mode.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before);
    }
}

/// True when standard input is a terminal.
pub fn input_is_terminal() -> bool {
    isatty(io::stdin()).unwrap_or(false)
}

/// True when standard file 0, 1 or 2 is a terminal.
pub fn is_terminal(fd: u8) -> bool {
    match fd {
        0 => isatty(io::stdin()),
        1 => isatty(io::stdout()),
        _ => isatty(io::stderr()),
    }
    .unwrap_or(false)
}

/// Rows and columns of a terminal.
pub fn size(fd: impl AsFd) -> Option<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize, which is what the pointer refers to; the descriptor is open as long as `fd`.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

/// True when this process group is the one that the terminal of standard input listens to.
pub fn in_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// Gives the terminal of standard input to a process group. SIGTTOU must be blocked or ignored, since the caller may be in
/// the background.
pub fn give_to(group: Pid) -> io::Result<()> {
    Ok(tcsetpgrp(io::stdin(), group)?)
}
