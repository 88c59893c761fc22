//! Signals as input of a poll loop: the named ones are blocked and read from a descriptor. A signal that this process was started
//! to ignore (`nohup`) stays ignored. A child inherits the mask, so it has to be reset before starting one.

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

/// Signals that end or steer a command; `srun` passes them on.
pub const STEERING: &[Signal] = &[
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
    Signal::SIGALRM,
    Signal::SIGTSTP,
];

/// Who sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The kernel: a key pressed at the terminal, which reaches every process of the foreground group.
    Terminal,
    /// A process, to this process alone.
    Process,
}

/// Blocked signals and the descriptor that gives them.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// Blocks the signals in this thread (to be called while it is the only one).
    pub fn block(signals: &[Signal]) -> io::Result<Self> {
        Self::block_but(signals, &[])
    }

    /// As [`Signals::block`]; of those that are `unheard`, by number, nothing is heard, and they do nothing.
    pub fn block_but(signals: &[Signal], unheard: &[i32]) -> io::Result<Self> {
        let blocked: SigSet = signals.iter().copied().filter(|s| *s == Signal::SIGCHLD || !is_ignored(*s)).collect();
        blocked.thread_block()?;
        let mask: SigSet = blocked.iter().filter(|signal| !unheard.contains(&(*signal as i32))).collect();
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { fd })
    }

    /// Waits until one comes, or something else wakes us, but not longer than that.
    pub fn wait(&self, most: Duration) {
        let timeout = PollTimeout::try_from(most.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], timeout);
    }

    /// The next signal that came, if one did.
    pub fn next(&self) -> Option<i32> {
        self.next_with_origin().map(|(signal, _)| signal)
    }

    /// The next signal, and who sent it.
    pub fn next_with_origin(&self) -> Option<(i32, Origin)> {
        loop {
            match self.fd.read_signal() {
                Ok(None) => return None,
                Ok(Some(info)) => {
                    let origin = if info.ssi_code == libc::SI_KERNEL { Origin::Terminal } else { Origin::Process };
                    return i32::try_from(info.ssi_signo).ok().map(|signal| (signal, origin));
                }
                Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// True when the signal is set to be ignored.
fn is_ignored(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only asks; `action` has room for the answer, and is read only when the call says that it
    // was filled in.
    unsafe {
        libc::sigaction(signal as i32, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn blocked_signals_are_read_in_turn() {
        let signals = Signals::block(&[Signal::SIGUSR1]).unwrap();
        assert_eq!(signals.next(), None);
        nix::sys::signal::raise(Signal::SIGUSR1).unwrap();
        assert_eq!(signals.next(), Some(libc::SIGUSR1));
        assert_eq!(signals.next(), None);
    }

    #[test]
    fn unheard_signals_do_nothing() {
        let signals = Signals::block_but(&[Signal::SIGUSR1, Signal::SIGUSR2], &[libc::SIGUSR1]).unwrap();
        nix::sys::signal::raise(Signal::SIGUSR1).unwrap();
        nix::sys::signal::raise(Signal::SIGUSR2).unwrap();
        assert_eq!((signals.next(), signals.next()), (Some(libc::SIGUSR2), None));
    }
}
