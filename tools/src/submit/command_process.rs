//! The command of `salloc`. At a terminal it gets a process group of its own in the foreground, so that a shell has job control
//! and Ctrl-C ends what runs in it and not the allocation. Otherwise it stays in `salloc`'s group.

use crate::waiting::terminal;
use nix::{
    sys::{
        signal::{SigSet, Signal, kill, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, getpgrp},
};
use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt as _,
    process::{Child, Command},
};

/// A command that runs.
#[derive(Debug)]
pub struct CommandProcess {
    pid: Pid,
    interactive: bool,
    /// Kept so that its handles live as long as the process; it is waited for by pid.
    _child: Child,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It runs.
    Running,
    /// It stopped itself (`suspend`).
    Stopped,
    /// It ended with this code, or as many above 128 as the signal that ended it.
    Ended(i32),
}

impl CommandProcess {
    /// Starts it.
    pub fn start(argv: &[OsString], set: &[(&str, String)], remove: &[OsString]) -> io::Result<Self> {
        let (program, args) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let interactive = terminal::input_is_terminal() && terminal::in_foreground();
        let mut command = Command::new(program);
        command.args(args);
        remove.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.envs(set.iter().map(|(name, value)| (name, value)));
        if interactive {
            command.process_group(0);
        }
        // What is blocked here stays blocked across exec, so the command must get its signals back. SIGTTOU is among them:
        // taking the terminal from the background would stop the process otherwise.
        let blocked = SigSet::thread_get_mask()?;
        // SAFETY: the closure runs between fork and exec and makes only async-signal-safe system calls; it allocates
        // nothing, and the signal set it reads is its own copy.
        unsafe {
            command.pre_exec(move || {
                if interactive {
                    libc::tcsetpgrp(0, libc::getpid());
                }
                match libc::pthread_sigmask(libc::SIG_UNBLOCK, blocked.as_ref(), std::ptr::null_mut()) {
                    0 => Ok(()),
                    errno => Err(io::Error::from_raw_os_error(errno)),
                }
            });
        }
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        Ok(Self { pid, interactive, _child: child })
    }

    /// It has a process group and the terminal.
    pub const fn is_interactive(&self) -> bool {
        self.interactive
    }

    /// Signals it, with its whole group where it has one.
    pub fn signal(&self, signal: i32) {
        let Ok(signal) = Signal::try_from(signal) else { return };
        // It may just have ended.
        let _ = if self.interactive { killpg(self.pid, signal) } else { kill(self.pid, signal) };
    }

    /// Looks at it, without waiting.
    pub fn look(&self) -> Outcome {
        match waitpid(self.pid, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Exited(_, code)) => Outcome::Ended(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => Outcome::Ended(128 + signal as i32),
            Ok(WaitStatus::Stopped(..)) => Outcome::Stopped,
            Ok(_) => Outcome::Running,
            // Somebody else waited for it (SIGCHLD ignored): how it ended is not known.
            Err(_) => Outcome::Ended(1),
        }
    }

    /// Takes the terminal back, after the command ended or stopped.
    pub fn take_terminal(&self) {
        if self.interactive {
            // The terminal may have gone with the command.
            let _ = terminal::give_to(getpgrp());
        }
    }

    /// Gives the terminal back to the command and lets it go on.
    pub fn resume(&self) {
        if self.interactive {
            let _ = terminal::give_to(self.pid);
        }
        self.signal(libc::SIGCONT);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_asking::signals::Signals;

    fn wait(process: &CommandProcess) -> Outcome {
        loop {
            match process.look() {
                Outcome::Running => std::thread::yield_now(),
                outcome => return outcome,
            }
        }
    }

    #[test]
    fn exit_codes_and_signals_are_told_apart() {
        let run = |script: &str| {
            let argv = ["sh", "-c", script].map(OsString::from);
            wait(&CommandProcess::start(&argv, &[("GARRICK_TEST", "5".to_owned())], &["HOME".into()]).unwrap())
        };
        assert_eq!(run("exit $GARRICK_TEST"), Outcome::Ended(5));
        assert_eq!(run("test -z \"$HOME\""), Outcome::Ended(0));
        assert_eq!(run("kill -9 $$"), Outcome::Ended(137));
    }

    #[test]
    fn signals_blocked_here_reach_the_command() {
        let _signals = Signals::block(&[Signal::SIGTERM]).unwrap();
        let process = CommandProcess::start(&["sleep".into(), "1000".into()], &[], &[]).unwrap();
        process.signal(libc::SIGTERM);
        assert_eq!(wait(&process), Outcome::Ended(128 + libc::SIGTERM));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert!(CommandProcess::start(&["/nosuch/program".into()], &[], &[]).is_err());
    }
}
