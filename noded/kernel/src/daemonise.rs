//! Runs a daemon in the background, as `slurmctld` and `slurmd` do: the command returns 0 when the daemon is ready, or prints the
//! error and returns another code. Also pid files that a second daemon cannot take over.
//!
//! The daemon is a fork of the command, so that process lists show the command line as typed.

use nix::{
    fcntl::{Flock, FlockArg},
    sys::wait::waitpid,
    unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid},
};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Could not go into the background, or take the pid file.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A system call.
    #[error("{operation}: {cause}")]
    Call {
        /// Which.
        operation: &'static str,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A file.
    #[error("{operation} {path}: {cause}", path = path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// Another daemon holds the pid file.
    #[error("{path}: already running{}", pid.map(|p| format!(", pid {p}")).unwrap_or_default(), path = path.display())]
    Running {
        /// Which file.
        path: PathBuf,
        /// Who.
        pid: Option<u32>,
    },
}

fn call<E: Into<io::Error>>(operation: &'static str) -> impl FnOnce(E) -> DaemonError {
    move |e| DaemonError::Call { operation, cause: e.into() }
}

fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DaemonError {
    move |cause| DaemonError::File { operation, path: path.to_owned(), cause }
}

/// On which side of the fork the caller is.
#[derive(Debug)]
pub enum Side {
    /// The command: `Ok` once the daemon serves, else what it said.
    Command(Result<(), String>),
    /// The daemon: tells the command how it went.
    Daemon(Readiness),
}

/// The daemon's word to the command that waits. Dropped without a word: the command reports a failed start.
#[derive(Debug)]
pub struct Readiness(File);

const READY: u8 = b'R';
const FAILED: u8 = b'E';

impl Readiness {
    /// The daemon serves: output from now on goes to `log`, or nowhere, and the command returns.
    pub fn ready(mut self, log: Option<&Path>) -> Result<(), DaemonError> {
        let path = log.unwrap_or(Path::new("/dev/null"));
        let output = open_log(path)?;
        dup2_stdout(&output).map_err(call("dup2"))?;
        dup2_stderr(&output).map_err(call("dup2"))?;
        // A command that was interrupted does not wait any more.
        let _ = self.0.write_all(&[READY]);
        Ok(())
    }

    /// The daemon gives up; the command prints this.
    pub fn failed(mut self, why: &str) {
        let _ = self.0.write_all(&[FAILED]).and_then(|()| self.0.write_all(why.as_bytes()));
    }
}

/// Opens a log file for appending.
pub fn open_log(path: &Path) -> Result<File, DaemonError> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640).custom_flags(libc::O_NOCTTY);
    options.open(path).map_err(file("open", path))
}

/// Forks. The daemon's side returns in a session of its own, in `/`, with no input; its output stays where it was until it
/// is ready, so that what it says at start is seen. The command's side returns when the daemon has said how it went.
///
/// Call it before there are threads: only the calling one comes along.
pub fn into_background() -> Result<Side, DaemonError> {
    let (mut word, daemons_end) = io::pipe().map_err(call("pipe"))?;
    // SAFETY: the process has one thread, as the caller was told, so the child may do as it likes.
    match unsafe { fork() }.map_err(call("fork"))? {
        ForkResult::Parent { child } => {
            drop(daemons_end);
            // The one between, which ends at once.
            waitpid(child, None).map_err(call("waitpid"))?;
            let mut said = Vec::new();
            word.read_to_end(&mut said).map_err(call("read"))?;
            Ok(Side::Command(match said.split_first() {
                Some((&READY, _)) => Ok(()),
                Some((_, why)) => Err(String::from_utf8_lossy(why).into_owned()),
                None => Err("the daemon ended before it was ready".to_owned()),
            }))
        }
        ForkResult::Child => {
            drop(word);
            let readiness = Readiness(File::from(std::os::fd::OwnedFd::from(daemons_end)));
            match detach() {
                Ok(()) => Ok(Side::Daemon(readiness)),
                Err(e) => {
                    readiness.failed(&e.to_string());
                    Err(e)
                }
            }
        }
    }
}

fn detach() -> Result<(), DaemonError> {
    setsid().map_err(call("setsid"))?;
    // Once more: who leads a session can come by a controlling terminal by opening one.
    // SAFETY: still one thread.
    if let ForkResult::Parent { .. } = unsafe { fork() }.map_err(call("fork"))? {
        // Not by `exit`: what is buffered and registered belongs to the two others.
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    std::env::set_current_dir("/").map_err(call("chdir /"))?;
    let null = File::open("/dev/null").map_err(file("open", Path::new("/dev/null")))?;
    dup2_stdin(&null).map_err(call("dup2"))
}

/// A pid file, locked for as long as this lives and removed with it.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    _locked: Flock<File>,
}

impl PidFile {
    /// Writes this process's number. Fails if a living daemon holds the file; a stale one is taken over.
    pub fn create(path: &Path) -> Result<Self, DaemonError> {
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o644).open(path);
        let opened = opened.map_err(file("open", path))?;
        let mut locked = match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => locked,
            Err((mut held, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                // Without the number the message is still right.
                let _ = held.read_to_string(&mut text);
                return Err(DaemonError::Running { path: path.to_owned(), pid: text.trim().parse().ok() });
            }
            Err((_, e)) => return Err(file("lock", path)(e.into())),
        };
        locked.set_len(0).map_err(file("truncate", path))?;
        locked.rewind().map_err(file("seek", path))?;
        writeln!(locked, "{}", std::process::id()).map_err(file("write", path))?;
        Ok(Self { path: path.to_owned(), _locked: locked })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Someone may have removed it already, which is what is wanted.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
pub(crate) use tests::background_entry;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scratch::{ENTRY, Scratch};

    /// What the tests below run as a process of its own.
    pub(crate) fn background_entry() -> ! {
        let mode = std::env::var_os("GARRICK_TEST_MODE").unwrap();
        let dir = PathBuf::from(std::env::var_os("GARRICK_TEST_DIR").unwrap());
        match into_background().unwrap() {
            Side::Command(Ok(())) => std::process::exit(0),
            Side::Command(Err(why)) => {
                std::fs::write(dir.join("why"), why).unwrap();
                std::process::exit(3);
            }
            Side::Daemon(readiness) => {
                let pid = PidFile::create(&dir.join("pid")).unwrap();
                match mode.to_str() {
                    Some("serve") => {
                        readiness.ready(Some(&dir.join("log"))).unwrap();
                        let cwd = std::env::current_dir().unwrap();
                        io::stderr().write_all(format!("serving in {}\n", cwd.display()).as_bytes()).unwrap();
                    }
                    Some("fail") => readiness.failed("port 6817 is in use"),
                    _ => drop(readiness),
                }
                drop(pid);
                // Tells the test that the daemon is gone too.
                std::fs::write(dir.join("ended.tmp"), "").unwrap();
                std::fs::rename(dir.join("ended.tmp"), dir.join("ended")).unwrap();
                std::process::exit(0);
            }
        }
    }

    fn background(dir: &Scratch, mode: &str) -> Option<i32> {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.env(ENTRY, "background").env("GARRICK_TEST_MODE", mode).env("GARRICK_TEST_DIR", dir.path());
        // Ends when the daemon, which holds the output until it is ready and its log afterwards, has let go.
        let code = command.output().unwrap().status.code();
        while !dir.join("ended").exists() {
            std::thread::yield_now();
        }
        code
    }

    #[test]
    fn the_command_returns_zero_once_the_daemon_serves() {
        let dir = Scratch::new("background");
        assert_eq!(background(&dir, "serve"), Some(0));
        let log = std::fs::read_to_string(dir.join("log")).unwrap();
        assert_eq!(log, "serving in /\n");
        assert!(!dir.join("pid").exists());
    }

    #[test]
    fn the_command_tells_why_the_daemon_does_not_serve() {
        let dir = Scratch::new("background");
        assert_eq!(background(&dir, "fail"), Some(3));
        assert_eq!(std::fs::read_to_string(dir.join("why")).unwrap(), "port 6817 is in use");
        let dir = Scratch::new("background");
        assert_eq!(background(&dir, "vanish"), Some(3));
        assert!(std::fs::read_to_string(dir.join("why")).unwrap().contains("before it was ready"));
    }

    #[test]
    fn a_held_pid_file_names_its_holder() {
        let dir = Scratch::new("pidfile");
        let path = dir.join("slurmd.pid");
        std::fs::write(&path, "99999999\n").unwrap();
        let held = PidFile::create(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        match PidFile::create(&path) {
            Err(DaemonError::Running { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(held);
        assert!(!path.exists());
    }
}
