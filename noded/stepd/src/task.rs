//! `stepd task`: how a task with prologs or PMIx begins, or one that is over with the last of its processes. Runs in the task's
//! place, as the job's user, with the task's environment and files: runs each prolog, does what its output says (slurm.conf(5),
//! `TaskProlog`), and becomes the task's program, or runs it and waits for all that it leaves (srun(1), `--wait-for-children`).

use garrick_kernel::children;
use garrick_model::{
    env_vars::SLURM_TASK_PID,
    messages::launch_failure::{LaunchFailure, errno_text},
    spec::TaskOverWith,
    state::ExitStatus,
    time::{Timestamp, system_zone},
};
use std::{
    ffi::OsStr,
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    process::{Command, Stdio},
};

/// What there is to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// Programs that run before it, in this order, each with whether it is the site's.
    prologs: Vec<(&'a OsStr, bool)>,
    /// It speaks PMIx.
    pmix: bool,
    /// An executable file in which the kernel finds no program is a script for `/bin/sh`.
    or_shell: bool,
    /// When it is over.
    over_with: TaskOverWith,
    /// The task's program and its arguments.
    argv: &'a [&'a OsStr],
}

impl<'a> Arguments<'a> {
    /// From the words after `stepd task`. `None`: they are not as the shepherd writes them.
    pub fn parse(words: &'a [&'a OsStr]) -> Option<Self> {
        let mut arguments = Self::default();
        let mut rest = words;
        loop {
            match rest {
                [dashes, argv @ ..] if *dashes == "--" => {
                    return (!argv.is_empty()).then_some(Self { argv, ..arguments });
                }
                [flag, program, more @ ..] if *flag == "--prolog" || *flag == "--site-prolog" => {
                    arguments.prologs.push((program, *flag == "--site-prolog"));
                    rest = more;
                }
                [flag, with, more @ ..] if *flag == "--over-with" => {
                    arguments.over_with = match with.to_str()? {
                        "last" => TaskOverWith::Last,
                        "last-or-failed" => TaskOverWith::LastOrFailed,
                        _ => return None,
                    };
                    rest = more;
                }
                [flag, more @ ..] if *flag == "--pmix" => {
                    arguments.pmix = true;
                    rest = more;
                }
                [flag, more @ ..] if *flag == "--or-shell" => {
                    arguments.or_shell = true;
                    rest = more;
                }
                _ => return None,
            }
        }
    }
}

/// A line of a prolog's output that means something.
#[derive(Debug, PartialEq, Eq)]
enum Order<'a> {
    Export(&'a OsStr, &'a OsStr),
    Unset(&'a OsStr),
    Print(&'a [u8]),
}

impl<'a> Order<'a> {
    /// Other lines mean nothing.
    fn parse(line: &'a [u8]) -> Option<Self> {
        if let Some(text) = line.strip_prefix(b"print ") {
            return Some(Self::Print(text));
        }
        if let Some(entry) = line.strip_prefix(b"export ") {
            let entry = entry.trim_ascii_start();
            let equals = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
            return Some(Self::Export(OsStr::from_bytes(&entry[..equals]), OsStr::from_bytes(&entry[equals + 1..])));
        }
        let name = line.strip_prefix(b"unset ")?.trim_ascii();
        (!name.is_empty() && !name.contains(&b'=')).then(|| Self::Unset(OsStr::from_bytes(name)))
    }
}

/// Runs a task. Returns the exit code of one that could not be started.
pub fn main(arguments: &Arguments<'_>) -> i32 {
    for (prolog, of_site) in &arguments.prologs {
        let status = run(prolog, if *of_site { "site" } else { "user" });
        if status != 0 {
            let option = if *of_site { "TaskProlog" } else { "--task-prolog" };
            complain(&format!("{option} failed status={status}"));
            return status;
        }
    }
    if arguments.pmix {
        // SAFETY: this process has one thread.
        if let Err(why) = unsafe { garrick_pmix::join() } {
            complain(&format!("PMIx: {why}"));
            return 1;
        }
    }
    let status = match arguments.over_with {
        TaskOverWith::First => return become_program(arguments),
        // SAFETY: this process has one thread.
        TaskOverWith::Last => unsafe { children::run(|| begin_child(arguments), |_| false) },
        // SAFETY: this process has one thread.
        TaskOverWith::LastOrFailed => unsafe { children::run(|| begin_child(arguments), |status| !status.success()) },
    };
    match status {
        Ok(status) => children::end_like(status),
        Err(why) => {
            complain(&why.to_string());
            1
        }
    }
}

/// The task's program as a child of this process, which is the task's first process for whoever asks the program.
fn begin_child(arguments: &Arguments<'_>) -> i32 {
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var(SLURM_TASK_PID, std::process::id().to_string()) };
    become_program(arguments)
}

/// Returns the exit code if that cannot be.
fn become_program(arguments: &Arguments<'_>) -> i32 {
    let [program, args @ ..] = arguments.argv else { return 1 };
    let mut error = Command::new(program).args(args).exec();
    if arguments.or_shell && error.raw_os_error() == Some(libc::ENOEXEC) {
        error = Command::new("/bin/sh").arg("--").args(arguments.argv).exec();
    }
    let failure = LaunchFailure::new("execve", program.to_string_lossy(), error.raw_os_error().unwrap_or(libc::EIO));
    let _ = writeln!(io::stderr(), "slurmstepd: error: {}", failure.text());
    failure.status().shell_code()
}

/// Runs a prolog and does what it says. Returns its exit code, or as many above 128 as the signal that ended it; 1 where it
/// cannot be executed.
fn run(prolog: &OsStr, whose: &str) -> i32 {
    let output = match Command::new(prolog).stdin(Stdio::null()).stderr(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => {
            let (path, why) = (prolog.display(), errno_text(error.raw_os_error().unwrap_or(libc::EIO)));
            complain(&format!("{whose} task_prolog can not be executed ({path}) {why}"));
            return 1;
        }
    };
    if !output.status.success() {
        return ExitStatus::from(output.status).shell_code();
    }
    let mut stdout = io::stdout().lock();
    for order in output.stdout.split(|byte| *byte == b'\n').filter_map(Order::parse) {
        match order {
            // SAFETY: this process has one thread.
            Order::Export(name, value) => unsafe { std::env::set_var(name, value) },
            // SAFETY: this process has one thread.
            Order::Unset(name) => unsafe { std::env::remove_var(name) },
            Order::Print(text) => {
                // A reader that is gone is the task's own affair.
                let _ = stdout.write_all(&[text, b"\n"].concat());
            }
        }
    }
    let _ = stdout.flush();
    0
}

fn complain(text: &str) {
    let at = Timestamp::now().text_with_millis(&system_zone());
    let _ = writeln!(io::stderr(), "[{at}] error: {text}");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn words_are_taken_apart() {
        let words = |text: &'static str| text.split(' ').map(OsStr::new).collect::<Vec<_>>();
        let line = words("--site-prolog /a --prolog /b --or-shell --over-with last -- prog --prolog x");
        let arguments = Arguments::parse(&line).unwrap();
        assert_eq!(arguments.prologs, [(OsStr::new("/a"), true), (OsStr::new("/b"), false)]);
        assert_eq!((arguments.or_shell, arguments.argv), (true, &words("prog --prolog x")[..]));
        assert_eq!(arguments.over_with, TaskOverWith::Last);
        for wrong in ["--", "--over-with x -- prog", "--prolog --", "prog", "--prolog"] {
            assert_eq!(Arguments::parse(&words(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn lines_of_a_prolog_mean_what_slurm_says() {
        let order = |line: &'static str| Order::parse(line.as_bytes());
        assert_eq!(order("export A=b=c d"), Some(Order::Export(OsStr::new("A"), OsStr::new("b=c d"))));
        assert_eq!(order("export A="), Some(Order::Export(OsStr::new("A"), OsStr::new(""))));
        assert_eq!(order("unset A"), Some(Order::Unset(OsStr::new("A"))));
        assert_eq!(order("print hello  there"), Some(Order::Print(b"hello  there")));
        for nothing in ["export A", "export =b", "unset ", "hello", "", "PATH=/bin", "unset A=b"] {
            assert_eq!(order(nothing), None, "{nothing:?}");
        }
    }
}
