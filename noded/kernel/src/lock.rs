//! A file lock that shows that a process is alive. It belongs to the open descriptor, so a process that inherits it holds it from
//! its first instruction to its last, whatever happens to its parent, and the kernel releases it. Open file description locks
//! (fcntl(2), `F_OFD_SETLK`) are used, since they can be queried without being taken.

use super::files::FileError;
use nix::fcntl::{FcntlArg, fcntl};
use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
};

/// A lock that is held. Dropping it closes this process's descriptor; the lock stays for as long as a copy is open in another.
#[derive(Debug)]
pub struct LifeLock(File);

impl AsFd for LifeLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

impl LifeLock {
    /// Takes the lock of a file, which is made if need be; `None` while somebody holds it.
    pub fn take(path: &Path) -> Result<Option<Self>, FileError> {
        let failed = |operation| move |cause| FileError { operation, path: path.to_owned(), cause };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed("open"))?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file())) {
            Ok(_) => Ok(Some(Self(file))),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(None),
            Err(e) => Err(failed("lock")(e.into())),
        }
    }

    /// Somebody holds the lock of a file. Nobody does where there is no file.
    pub fn is_held(path: &Path) -> Result<bool, FileError> {
        let failed = |operation| move |cause| FileError { operation, path: path.to_owned(), cause };
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(failed("open")(e)),
        };
        let mut asked = whole_file();
        fcntl(&file, FcntlArg::F_OFD_GETLK(&mut asked)).map_err(|e| failed("ask for the lock of")(e.into()))?;
        Ok(asked.l_type != libc::F_UNLCK as libc::c_short)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{reap, scratch::Scratch, spawn};
    use std::borrow::Cow;

    #[test]
    fn a_lock_is_held_until_the_last_who_has_it_is_gone() {
        let dir = Scratch::new("lock");
        let path = dir.join("life");
        assert!(!LifeLock::is_held(&path).unwrap());
        let mine = LifeLock::take(&path).unwrap().unwrap();
        assert!(LifeLock::is_held(&path).unwrap());
        assert!(LifeLock::take(&path).unwrap().is_none());
        // Who asks does not take it, not even for a moment.
        drop(LifeLock::is_held(&path));
        let child = spawn::spawn(&spawn::SpawnSpec {
            programs: vec![c"/bin/sleep".to_owned()],
            argv: vec![Cow::Borrowed(c"sleep"), Cow::Borrowed(c"1000")],
            passed: vec![mine.as_fd()],
            ..spawn::SpawnSpec::default()
        })
        .unwrap();
        drop(mine);
        assert!(LifeLock::is_held(&path).unwrap(), "the child has it");
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(i32::try_from(child.pid).unwrap()),
            nix::sys::signal::Signal::SIGKILL,
        )
        .unwrap();
        reap::reap(child.pidfd.as_fd()).unwrap();
        // Children that other tests clone in this very moment have a copy until they exec.
        while LifeLock::is_held(&path).unwrap() {
            std::thread::yield_now();
        }
        assert!(LifeLock::take(&path).unwrap().is_some());
    }
}
