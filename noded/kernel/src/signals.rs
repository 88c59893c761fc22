//! Signals: as a descriptor for poll loops, and sent through process descriptors, which cannot refer to another process that got
//! the same id later.

use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// A descriptor for a process that exists now. `ESRCH` when there is none.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: just opened (close-on-exec by definition), owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether a signal found its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Sent.
    Sent,
    /// No such process is left.
    Gone,
}

fn delivery(rc: i64) -> io::Result<Delivery> {
    if rc == 0 {
        return Ok(Delivery::Sent);
    }
    let e = io::Error::last_os_error();
    if e.raw_os_error() == Some(libc::ESRCH) { Ok(Delivery::Gone) } else { Err(e) }
}

/// Sends to one process. Signal 0 only asks.
pub fn send(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<Delivery> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: no information is passed along; the descriptor is open.
    delivery(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, none, 0) })
}

/// Sends to a child that this process alone reaps and has not reaped: the number is still the child's.
pub fn send_child(pid: u32, signal: i32) -> io::Result<Delivery> {
    let Some(pid) = i32::try_from(pid).ok().filter(|p| *p > 1) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    // SAFETY: no memory is involved.
    delivery(i64::from(unsafe { libc::kill(pid, signal) }))
}

/// Sends to a process group. The caller makes sure that the number still means that group: its leader is a child not yet
/// reaped. Signal 0 only asks.
pub fn send_group(pgid: u32, signal: i32) -> io::Result<Delivery> {
    let Some(pgid) = i32::try_from(pgid).ok().filter(|p| *p > 1) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    // SAFETY: no memory is involved.
    delivery(i64::from(unsafe { libc::kill(-pgid, signal) }))
}

/// A signal set that is blocked in this thread and read from a descriptor.
#[derive(Debug)]
pub struct SignalDescriptor(SignalFd);

impl SignalDescriptor {
    /// Blocks `signals` in the calling thread (call it before there are others) and opens the descriptor.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let set: SigSet = signals.iter().copied().collect();
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// Takes one signal, if one is pending. Enough where the descriptor is for one ordinary signal, of which no more than
    /// one is ever pending.
    pub fn take_one(&self) -> io::Result<bool> {
        loop {
            match self.0.read_signal() {
                Ok(found) => return Ok(found.is_some()),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Takes all that is pending. Signals of one kind may have been merged.
    pub fn drain(&self) -> io::Result<Vec<i32>> {
        let mut found = Vec::new();
        loop {
            match self.0.read_signal() {
                Ok(Some(info)) => found.push(i32::try_from(info.ssi_signo).unwrap_or_default()),
                Ok(None) => return Ok(found),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl AsFd for SignalDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_process_that_never_was_cannot_be_opened() {
        // Above the largest pid_max of Linux.
        let e = pidfd_open(0x7fff_fff0).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn groups_that_would_mean_everybody_are_refused() {
        for pgid in [0, 1, u32::MAX] {
            assert!(send_group(pgid, 0).is_err());
        }
    }

    #[test]
    fn asking_finds_this_process() {
        let me = pidfd_open(std::process::id()).unwrap();
        assert_eq!(send(me.as_fd(), 0).unwrap(), Delivery::Sent);
    }
}
