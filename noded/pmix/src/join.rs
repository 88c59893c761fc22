//! What a task does before its program begins: the first of a node starts the server, and all take the variables by which
//! `libpmix` in their program finds it.

use crate::{
    PmixError, number,
    pmi::{Pmi, descriptor},
    variables_key,
};
use garrick_run::pmi::VARIABLES;
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    unistd::setsid,
};
use std::{
    io,
    os::{fd::BorrowedFd, unix::process::CommandExt as _},
    process::{Command, Stdio},
};

/// What separates variables, and precedes an error.
pub const BETWEEN: char = '\x1f';
/// Begins the text of an error in place of variables.
pub const ERROR: char = '!';

/// Prepares this process, which becomes a task's program, for PMIx.
///
/// # Errors
/// The server cannot be started, or says why it cannot serve.
///
/// # Safety
/// The process has one thread: its environment changes.
pub unsafe fn join() -> Result<(), PmixError> {
    let fd = descriptor()?;
    let (rank, place) = (number("SLURM_PROCID")?, number("SLURM_LOCALID")?);
    let text = if place == 0 {
        let text = started_server().inspect_err(end_step)?;
        // The server has a copy; the program has nothing to do with it.
        // SAFETY: it is open, as the shepherd's contract says; `fcntl` reports it if not.
        let node = unsafe { BorrowedFd::borrow_raw(fd) };
        fcntl(node, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(PmixError::system("fcntl"))?;
        text
    } else {
        let key = variables_key(rank);
        let mut node = Pmi::begin()?;
        let told = node.value("info-getnodeattr", &[("key", &key), ("wait", "TRUE")])?;
        told.ok_or_else(|| PmixError::Node(format!("{key} is missing")))?
    };
    if let Some(why) = text.strip_prefix(ERROR) {
        return Err(PmixError::Server(why.to_owned()));
    }
    for name in VARIABLES {
        // SAFETY: one thread, says the caller.
        unsafe { std::env::remove_var(name) };
    }
    for (name, value) in text.split(BETWEEN).filter_map(|entry| entry.split_once('=')) {
        // SAFETY: one thread, says the caller.
        unsafe { std::env::set_var(name, value) };
    }
    Ok(())
}

/// Nobody serves the tasks of this node: they and all others would wait for ever.
fn end_step(why: &PmixError) {
    if let Ok(mut node) = Pmi::begin() {
        let _ = node.tell("abort", &[("msg", &why.to_string())]);
    }
}

/// Starts the server, which goes its own ways: it is no child of the task's program. Returns what it says to this task.
fn started_server() -> Result<String, PmixError> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("pmix-server").stdin(Stdio::null()).stderr(Stdio::null());
    // SAFETY: setsid is one system call.
    unsafe { command.pre_exec(|| setsid().map(drop).map_err(io::Error::from)) };
    let output = command.output().map_err(PmixError::system("starting the PMIx server"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.is_empty() {
        return Err(PmixError::Server(format!("the PMIx server ended without a word: {}", output.status)));
    }
    Ok(text)
}
