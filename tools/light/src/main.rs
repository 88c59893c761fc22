//! `srun` inside a job. Thousands of them are started there, most of them with a program to run and little else, and most of
//! what one costs is its own start: the C library's, and that of a program which is all commands. So this one has neither.
//! It hands what it was given to the job's step manager, its standard files too ([`garrick_frame::light`]), and ends when
//! told that the step did, well.
//!
//! It is the whole command, `garrick` beside this file, that does everything else, in this process (`execve`): outside a job,
//! on a terminal, when the step manager says that what is asked for is not usual, when a signal comes, when a task fails.
//! What was begun goes on there, with this connection. `GARRICK_SRUN=whole` in the environment asks for it at once.
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
