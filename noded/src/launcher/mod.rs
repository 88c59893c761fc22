//! The launcher: a small process without keys that runs as the job's user, spawns tasks on its `stepd`'s orders and reaps
//! them. What it decides: how a [`SpawnTask`](garrick_model::messages::launcher::SpawnTask) becomes a process. Everything
//! else (which task, where, with what limits) is `stepd`'s.
//!
//! One thread, one loop over the socket to `stepd` and the signals of its children. It opens task files under the user's
//! rights. It is a subreaper, so that what tasks leave behind is taken away. When a task's first process ends, what is left
//! of its process group is killed before the process is reaped, while its number is still its own. When the socket closes,
//! `stepd` is gone, and with it the job: everything below the launcher is killed.
//!
//! [`start`] is called by `stepd`, [`main`] by `stepd launcher`.

mod environment;
mod orders;
mod process;
mod service;

pub use process::{LauncherError, LauncherHandle, LauncherSpec, start};
pub use service::{ServiceError, serve};

use crate::kernel::{reap, sockets};
use garrick_frame::{FdChannel, limits};
use std::{io::Write, os::fd::RawFd};

/// The program `stepd launcher --fd N`.
pub fn main(fd: RawFd) -> ! {
    let outcome = prepare(fd).and_then(|channel| serve(channel).map_err(|e| e.to_string()));
    let code = match outcome {
        Ok(()) => 0,
        Err(e) => {
            // Without a log there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "launcher: {e}");
            1
        }
    };
    std::process::exit(code)
}

fn prepare(fd: RawFd) -> Result<FdChannel, String> {
    // First of all: other processes of this user must not get at the socket.
    reap::become_undumpable().map_err(|e| format!("PR_SET_DUMPABLE: {e}"))?;
    reap::become_subreaper().map_err(|e| format!("PR_SET_CHILD_SUBREAPER: {e}"))?;
    let socket = sockets::inherited(fd).map_err(|e| format!("descriptor {fd}: {e}"))?;
    Ok(FdChannel::new(socket, limits::LAUNCHER))
}

#[cfg(test)]
mod tests;
