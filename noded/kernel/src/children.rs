//! A program that is waited for with all that it leaves: children that go on, in whatever session.

use crate::reap;
use garrick_model::state::ExitStatus;
use nix::{
    errno::Errno,
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, raise, sigaction},
    unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork},
};
use std::{fs::File, io};

/// A program could not be run, or not be waited for.
#[derive(Debug, thiserror::Error)]
#[error("waiting for the task's processes: {operation}: {cause}")]
pub struct ChildrenError {
    /// What was tried.
    pub operation: &'static str,
    /// Why not.
    #[source]
    pub cause: io::Error,
}

fn failed<E: Into<io::Error>>(operation: &'static str) -> impl FnOnce(E) -> ChildrenError {
    move |cause| ChildrenError { operation, cause: cause.into() }
}

/// Runs `begin` in a child, which ends with the code that it returns, and waits until neither it nor anything that it started is
/// left; `enough` says of the child's status that the rest is not waited for. Returns the child's status. Signals that can be caught
/// are the child's affair, and none of its standard files is kept open here.
///
/// # Safety
///
/// The process must have one thread.
pub unsafe fn run(
    begin: impl FnOnce() -> i32,
    enough: impl FnOnce(ExitStatus) -> bool,
) -> Result<ExitStatus, ChildrenError> {
    reap::become_subreaper().map_err(failed("PR_SET_CHILD_SUBREAPER"))?;
    // What comes meanwhile reaches both as it should.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(failed("sigprocmask"))?;
    // SAFETY: with one thread, the copy has everything that this process has.
    let forked = unsafe { fork() };
    if !matches!(forked, Ok(ForkResult::Child)) {
        pass_over_signals();
    }
    mask.thread_set_mask().map_err(failed("sigprocmask"))?;
    let child = match forked.map_err(failed("fork"))? {
        ForkResult::Child => std::process::exit(begin()),
        ForkResult::Parent { child } => child,
    };
    let null = File::options().read(true).write(true).open("/dev/null").map_err(failed("/dev/null"))?;
    let moved = dup2_stdin(&null).and_then(|()| dup2_stdout(&null)).and_then(|()| dup2_stderr(&null));
    moved.map_err(failed("standard files"))?;
    let (mut own, mut enough) = (None, Some(enough));
    loop {
        let Some((pid, status)) = reap::reap_next().map_err(failed("wait"))? else {
            return own.ok_or_else(|| failed("wait")(Errno::ECHILD));
        };
        if i32::try_from(pid) == Ok(child.as_raw()) {
            own = Some(status);
            if enough.take().is_some_and(|enough| enough(status)) {
                return Ok(status);
            }
        }
    }
}

extern "C" fn pass_over(_: i32) {}

/// Whoever signals the task's processes reaches the child too. Signals that are ignored stay so.
fn pass_over_signals() {
    // SAFETY: all zeros is a valid value of this plain C struct, and means an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = pass_over as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_RESTART;
    let others = [libc::SIGCHLD, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !others.contains(signal)) {
        // SAFETY: the handler does nothing, and all that is passed lives; signals that cannot be caught are refused.
        unsafe {
            let mut former: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, &action, &mut former) == 0 && former.sa_sigaction == libc::SIG_IGN {
                libc::sigaction(signal, &former, std::ptr::null_mut());
            }
        }
    }
}

/// Ends this process as that one ended, without another core file.
pub fn end_like(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal.and_then(|number| Signal::try_from(i32::from(number)).ok()) {
        // Where these fail, the exit code says the same below.
        let _ = reap::become_undumpable();
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: nothing of this process handles the signal.
        let _ = unsafe { sigaction(signal, &default) };
        let mut only = SigSet::empty();
        only.add(signal);
        let _ = only.thread_unblock();
        let _ = raise(signal);
    }
    std::process::exit(status.shell_code())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{
        io::Read,
        os::{fd::OwnedFd, unix::process::CommandExt as _},
        process::{Command, Stdio},
    };

    /// What a process with the line of a shell does.
    pub(crate) fn entry() -> ! {
        let variable = |name| std::env::var(name).unwrap();
        let line = variable("LINE");
        let begin = move || {
            let error = Command::new("/bin/sh").args(["-c", &line]).env_remove(crate::scratch::ENTRY).exec();
            panic!("no shell: {error}")
        };
        let failing_is_enough = variable("ENOUGH") == "failed";
        // SAFETY: this runs before there are threads.
        let status = unsafe { run(begin, |status| failing_is_enough && !status.success()) };
        end_like(status.unwrap())
    }

    /// Runs a shell's line in this test program as a process of its own (see [`crate::entry`]).
    fn ran(line: &str, enough: &str) -> (std::process::ExitStatus, String) {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(crate::scratch::ENTRY, "children").env("LINE", line).env("ENOUGH", enough);
        let status = command.stdout(Stdio::from(OwnedFd::from(writer))).status();
        drop(command);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        (status.unwrap(), text)
    }

    #[test]
    fn what_a_program_leaves_is_waited_for_in_whatever_session() {
        let line = "(setsid sh -c 'read x < F; echo left' &) ; echo first; echo > F; exit 3";
        let folder = crate::scratch::Scratch::new("children");
        let path = folder.join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (status, said) = ran(&line.replace('F', path.to_str().unwrap()), "never");
        assert_eq!((status.code(), said.as_str()), (Some(3), "first\nleft\n"));
    }

    #[test]
    fn a_failed_program_can_be_enough_and_a_signal_is_passed_on() {
        use std::os::unix::process::ExitStatusExt as _;
        let (status, said) = ran("sleep 1000 > /dev/null & echo $!; exit 4", "failed");
        assert_eq!(status.code(), Some(4));
        let left: i32 = said.trim().parse().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(left), Signal::SIGKILL).unwrap();
        let (status, _) = ran("kill -USR1 $PPID; kill -TERM $$", "never");
        assert_eq!(status.signal(), Some(libc::SIGTERM));
    }
}
