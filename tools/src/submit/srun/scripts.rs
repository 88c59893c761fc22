//! `--prolog` and `--epilog`: programs that `srun` itself runs, before and after its step.

use crate::{options::typed::Typed, output::Console, submit::startup};
use garrick_model::state::ExitStatus;
use nix::{
    sys::signal::SigSet,
    unistd::{AccessFlags, access},
};
use std::{ffi::OsStr, io, os::unix::process::CommandExt as _, process::Command};

/// Runs the prolog. A step whose prolog fails is not started: that is the error, as an exit code.
pub fn prolog(typed: &Typed, console: &Console) -> Result<(), i32> {
    match typed.prolog.as_deref().and_then(|program| run(program, console)) {
        None | Some(0) => Ok(()),
        Some(code) => {
            console.error(format_args!("srun prolog failed rc = {code}. Aborting step."));
            Err(startup::exit_code(1))
        }
    }
}

/// Runs the epilog. Its failure is told.
pub fn epilog(typed: &Typed, console: &Console) {
    if let Some(code) = typed.epilog.as_deref().and_then(|program| run(program, console)).filter(|code| *code != 0) {
        console.error(format_args!("srun epilog failed status={code}"));
    }
}

/// The exit code of a program, or as many above 128 as the signal that ended it. `None`: it may not be executed, as is said.
fn run(program: &OsStr, console: &Console) -> Option<i32> {
    if let Err(why) = access(program, AccessFlags::X_OK) {
        console.info(format_args!("Access denied for {}: {}", program.display(), why.desc()));
        return None;
    }
    let mut command = Command::new(program);
    // SAFETY: between fork and exec this makes one system call that is safe there, and allocates nothing.
    unsafe {
        command.pre_exec(|| SigSet::empty().thread_set_mask().map_err(io::Error::from));
    }
    match command.status() {
        Ok(status) => Some(ExitStatus::from(status).shell_code()),
        Err(error) => {
            console.error(format_args!("{}: {error}", program.display()));
            Some(1)
        }
    }
}
