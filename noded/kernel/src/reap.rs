//! How processes ended. Children are waited for through their descriptors, so that no wait can take the wrong one. Orphans of a
//! subreaper are reaped one by one, and the caller says which children it knows.

use garrick_model::{state::ExitStatus, usage::TaskUsage};
use nix::{
    errno::Errno,
    sys::{
        resource::{UsageWho, getrusage},
        signal::SigmaskHow,
    },
};
use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// How a child ended, and what it and the children it waited for used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exit code or signal.
    pub status: ExitStatus,
    /// CPU time and memory.
    pub usage: TaskUsage,
}

/// Orphaned descendants become children of this process (`PR_SET_CHILD_SUBREAPER`) instead of init's.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: no memory is involved.
    let rc = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// No core dumps, and no other process of the same user may attach or read its memory (`PR_SET_DUMPABLE` 0).
pub fn become_undumpable() -> io::Result<()> {
    // SAFETY: no memory is involved.
    let rc = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Others of the same user may attach to this process.
pub fn is_dumpable() -> bool {
    // SAFETY: no memory is involved.
    let rc = unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
    rc == 1
}

/// The name that `ps` shows of this thread, cut to 15 bytes.
pub fn name_process(name: &CStr) {
    // SAFETY: the name is terminated, and copied. Cannot fail.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// `waitid` as the kernel offers it: with the resource usage.
fn waitid(idtype: libc::idtype_t, id: i32, options: i32) -> io::Result<Option<(u32, Ended)>> {
    // SAFETY: all zero is valid for both structures.
    let (mut info, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    loop {
        // SAFETY: both structures live over the call.
        let rc = unsafe { libc::syscall(libc::SYS_waitid, idtype, id, &mut info, options, &mut usage) };
        if rc == 0 {
            break;
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
    // SAFETY: the kernel filled it in for a child, or left it zero with WNOHANG.
    let (pid, value) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let byte = |v: i32| (v & 0xff) as u8;
    let status = match info.si_code {
        libc::CLD_EXITED => ExitStatus { code: byte(value), signal: None },
        _ => ExitStatus { code: 0, signal: Some(byte(value)) },
    };
    let micros = |t: libc::timeval| u64::try_from(t.tv_sec * 1_000_000 + t.tv_usec).unwrap_or_default();
    let usage = TaskUsage {
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or_default(),
        pages: u64::try_from(usage.ru_majflt).unwrap_or_default(),
        ..TaskUsage::default()
    };
    Ok(Some((u32::try_from(pid).unwrap_or_default(), Ended { status, usage })))
}

/// Peak resident set of this process, KiB. The kernel counts it for each child that executes a program while it shares this process's
/// memory, or has a copy of it (`ru_maxrss` of getrusage(2) stays over execve): a child of which it tells no more had less than
/// that, and nobody knows how much.
pub fn own_peak_kib() -> u64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or_default())
}

/// Whether a child ended; it stays a zombie, and its number and process group stay its own.
pub fn peek(child: BorrowedFd<'_>) -> io::Result<Option<ExitStatus>> {
    let found = waitid(libc::P_PIDFD, child.as_raw_fd(), libc::WEXITED | libc::WNOWAIT | libc::WNOHANG)?;
    Ok(found.map(|(_, ended)| ended.status))
}

/// Waits for a child to end and takes it away.
pub fn reap(child: BorrowedFd<'_>) -> io::Result<Ended> {
    match waitid(libc::P_PIDFD, child.as_raw_fd(), libc::WEXITED)? {
        Some((_, ended)) => Ok(ended),
        None => Err(io::Error::from_raw_os_error(libc::ECHILD)),
    }
}

/// Takes a child away if it has ended.
pub fn try_reap(child: BorrowedFd<'_>) -> io::Result<Option<Ended>> {
    Ok(waitid(libc::P_PIDFD, child.as_raw_fd(), libc::WEXITED | libc::WNOHANG)?.map(|(_, ended)| ended))
}

/// Waits for a child's end, but not for ever. The child is left as a zombie. `None`: it still runs.
pub fn wait_timeout(child: BorrowedFd<'_>, limit: Duration) -> io::Result<Option<ExitStatus>> {
    use nix::poll::{PollFd, PollFlags, PollTimeout};
    let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
    match nix::poll::poll(&mut [PollFd::new(child, PollFlags::POLLIN)], timeout) {
        Ok(_) | Err(Errno::EINTR) => peek(child),
        Err(e) => Err(e.into()),
    }
}

/// Some child that ended, left as a zombie: its process id. `None`: no child has ended, or there is none.
pub fn peek_any() -> io::Result<Option<u32>> {
    match waitid(libc::P_ALL, 0, libc::WEXITED | libc::WNOWAIT | libc::WNOHANG) {
        Ok(found) => Ok(found.map(|(pid, _)| pid)),
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Waits until some child ends and takes it away: its process id, and how it ended. `None`: there is no child left.
pub fn reap_next() -> io::Result<Option<(u32, ExitStatus)>> {
    match waitid(libc::P_ALL, 0, libc::WEXITED) {
        Ok(found) => Ok(found.map(|(pid, ended)| (pid, ended.status))),
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Takes away a zombie found by [`peek_any`]. Only one thread of a process may do so.
pub fn reap_pid(pid: u32) -> io::Result<Ended> {
    let id = i32::try_from(pid).map_err(io::Error::other)?;
    match waitid(libc::P_PID, id, libc::WEXITED)? {
        Some((_, ended)) => Ok(ended),
        None => Err(io::Error::from_raw_os_error(libc::ECHILD)),
    }
}

/// Takes away ended children one at a time until one is found that `known` claims, or none is left. For a subreaper whose
/// own children are waited for elsewhere: those are left alone. Returns how many were taken away.
///
/// A known child that has ended but is not reaped yet hides those behind it; call this again after it was reaped.
pub fn reap_orphans(known: impl Fn(u32) -> bool) -> io::Result<u32> {
    let mut taken = 0;
    while let Some(pid) = peek_any()? {
        if known(pid) {
            break;
        }
        reap_pid(pid)?;
        taken += 1;
    }
    Ok(taken)
}

/// Lets all signals through in the calling thread. For programs that were started with some blocked.
pub fn unblock_signals() -> io::Result<()> {
    let none = nix::sys::signal::SigSet::empty();
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&none), None).map_err(Into::into)
}

/// Waits until a process ended and says how. One that is a child of ours is reaped.
pub async fn ended(pidfd: OwnedFd) -> String {
    let watch = match super::watch::watch(pidfd, tokio::io::Interest::READABLE) {
        Ok(watch) => watch,
        Err(e) => return format!("unknown: {e}"),
    };
    if let Err(e) = watch.readable().await {
        return format!("unknown: {e}");
    }
    match try_reap(watch.get_ref().as_fd()) {
        Ok(Some(ended)) => match ended.status.signal {
            Some(signal) => format!("signal {signal}"),
            None => format!("exit code {}", ended.status.code),
        },
        // Adopted: somebody else's child.
        Ok(None) | Err(_) => "not our child".into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::spawn::{KillOnDrop, SpawnSpec, spawn};
    use std::os::fd::AsFd;

    fn shell(script: &str) -> crate::spawn::Spawned {
        let arg = |s: &str| std::borrow::Cow::Owned(std::ffi::CString::new(s).unwrap());
        let spec = SpawnSpec {
            programs: vec![c"/bin/sh".to_owned()],
            argv: vec![arg("sh"), arg("-c"), arg(script)],
            ..SpawnSpec::default()
        };
        spawn(&spec).unwrap()
    }

    #[test]
    fn exit_codes_and_signals_are_told_apart() {
        let ended = reap(shell("exit 7").pidfd.as_fd()).unwrap();
        assert_eq!(ended.status, ExitStatus { code: 7, signal: None });
        let ended = reap(shell("kill -9 $$").pidfd.as_fd()).unwrap();
        assert_eq!(ended.status, ExitStatus { code: 0, signal: Some(9) });
    }

    #[test]
    fn peeking_leaves_the_child_to_be_reaped_with_its_usage() {
        let child = shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3");
        let seen = wait_timeout(child.pidfd.as_fd(), Duration::from_secs(600)).unwrap().unwrap();
        assert_eq!(seen.code, 3);
        assert_eq!(peek(child.pidfd.as_fd()).unwrap(), Some(seen));
        let ended = reap(child.pidfd.as_fd()).unwrap();
        assert_eq!(ended.status, seen);
        assert!(ended.usage.max_rss_kib > 0 && ended.usage.user_us + ended.usage.system_us > 0);
        assert!(try_reap(child.pidfd.as_fd()).is_err(), "a child is reaped once");
    }

    #[test]
    fn a_running_child_is_not_reported() {
        let child = KillOnDrop::new(shell("exec sleep 1000"));
        let pidfd = child.child().unwrap().pidfd.as_fd();
        assert_eq!(peek(pidfd).unwrap(), None);
        assert_eq!(try_reap(pidfd).unwrap(), None);
        assert_eq!(wait_timeout(pidfd, Duration::ZERO).unwrap(), None);
    }
}
