//! One writer at a time: a write lock over the whole file that belongs to the open file, not to the process
//! (`F_OFD_SETLK`, `fcntl(2)`). It goes when the writer ends, however it ends. Unlike a lock of `flock(2)`, readers can
//! ask for it without taking one themselves, and it holds between hosts where the file system can do that.

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
};
use std::{fs::File, io};

/// Is there a writer?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A process has the file open for writing records.
    Present,
    /// None has.
    Absent,
    /// The file system has no locks.
    Unknown,
}

/// A lock over the whole file, of a type: `F_WRLCK` or `F_UNLCK`.
fn whole_file(of: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: of as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

fn without_locks(errno: Errno) -> bool {
    // Lustre without `flock`, file systems in user space, kernels before 3.15, a lock daemon that is away.
    matches!(errno, Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOLCK)
}

/// Takes the lock: `Present` if another process has it, `Unknown` if there are no locks here.
pub(crate) fn take(file: &File) -> io::Result<Presence> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
        Ok(_) => Ok(Presence::Absent),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(Presence::Present),
        Err(errno) if without_locks(errno) => Ok(Presence::Unknown),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives the lock back. Closing the file would do it later: when the last child that is still between fork and exec has
/// closed its copy.
pub(crate) fn release(file: &File) {
    // A lock that cannot be given back goes with the descriptor.
    let _ = fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_UNLCK)));
}

/// Does a process have the lock?
pub(crate) fn ask(file: &File) -> io::Result<Presence> {
    let mut lock = whole_file(libc::F_WRLCK);
    match fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)) {
        Ok(_) if lock.l_type == libc::F_UNLCK as libc::c_short => Ok(Presence::Absent),
        Ok(_) => Ok(Presence::Present),
        Err(errno) if without_locks(errno) => Ok(Presence::Unknown),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Presence, release, take};
    use std::fs::OpenOptions;

    #[test]
    fn a_copy_that_a_child_still_has_does_not_keep_the_lock() {
        let path = std::env::temp_dir().join(format!("garrick-pack-lock-{}", std::process::id()));
        let open = || OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        let (first, second) = (open(), open());
        assert_eq!(take(&first).unwrap(), Presence::Absent);
        let copy = first.try_clone().unwrap();
        assert_eq!(take(&second).unwrap(), Presence::Present);
        release(&first);
        drop(first);
        assert_eq!(take(&second).unwrap(), Presence::Absent);
        drop(copy);
        std::fs::remove_file(&path).unwrap();
    }
}
