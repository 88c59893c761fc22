//! `srun` inside a job. Thousands of them are started there, most of them with a program to run and few options, and most of the
//! cost is their own start: that of the C library, and that of a program with all commands. So this program has neither. It
//! passes its arguments and its standard files to the job's step manager ([`garrick_frame::light`]), and ends when it is told
//! that the step ended successfully.
//!
//! In all other cases it becomes the whole command, `garrick` beside this file, in this process (`execve`): outside a job, on a
//! terminal, when the step manager says that the request is unusual, when a signal comes, when a task fails. The whole command
//! continues what was begun, with this connection. `GARRICK_SRUN=whole` in the environment requests it at once.
#![cfg_attr(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"), no_main)]

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod bare;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod kernel;

/// Where there is no entry without a C library, the whole command is started at once.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
fn main() {
    use std::os::unix::process::CommandExt as _;
    let whole = std::env::current_exe().map(|own| own.with_file_name("garrick"));
    let error = match whole {
        Ok(whole) => std::process::Command::new(whole).arg0("srun").args(std::env::args_os().skip(1)).exec(),
        Err(error) => error,
    };
    eprintln!("srun: error: cannot start the program garrick, which belongs beside this one: {error}");
    std::process::exit(1);
}
