//! `garrick`: the commands for clusters and sites that Slurm does not have, and every other command by its name (`garrick
//! squeue`).

use crate::{
    complete, graph, journal,
    manual::find,
    options::getopt,
    output::{self, Console},
    programs,
    query::{arguments, cat, profile, records, sacct::used},
    share,
    site::{SiteError, certs, check, down, init, install, run, status, token, up, why, words::TABLE},
};
use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

/// Runs `garrick`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let console = Console::new("garrick");
    let mut args = args.into_iter();
    let Some(first) = args.next() else {
        output::stderr(arguments::help(&TABLE).as_bytes());
        return 1;
    };
    let rest: Vec<OsString> = args.collect();
    let outcome = match first.to_str() {
        Some("up") => up::main(&rest, &console),
        Some("down") => down::main(&rest, &console),
        Some("status") => status::main(&rest, &console),
        Some("run") => run::main(&rest, &console),
        Some("init") => init::main(&rest, &console),
        Some("cat") => return cat::main(&rest, &Console::new("garrick cat")),
        Some("graph") => return graph::command::main(&rest, &Console::new("garrick graph")),
        Some("efficiency") => return used::main(&rest, &Console::new("garrick efficiency")),
        Some("profile") => return profile::main(&rest, &Console::new("garrick profile")),
        Some("steps") => return records::main(&rest, &Console::new("garrick steps")),
        Some("journal") => return journal::main(&rest, &Console::new("garrick journal")),
        Some("check") => check::main(&rest, &console),
        Some("install") => install::main(&rest, &share::files(), &console),
        Some("certs") => certs::main(&rest, &console),
        Some("token") => token::main(&rest, &console),
        Some(name @ ("sim" | "topology")) => become_planning(name, &rest),
        Some("why") => why::main(&rest, &console),
        Some("completion") => complete::shells::main(&rest, &console),
        Some("complete") => return complete::main(&rest, &console),
        Some("--help" | "-h") => return print_help(&console),
        Some("help") if rest.is_empty() => return print_help(&console),
        Some("help") => return find::main(&rest, &console),
        Some("--usage") => return output::finish(&console, output::print_line(arguments::usage(&TABLE)), 0),
        Some("version" | "--version" | "-V") => return output::finish(&console, output::print_own_version(), 0),
        other => {
            let typed = other.unwrap_or("that");
            let hint = getopt::nearest(typed, TABLE.words.iter().map(|word| word.name))
                .map(|c| format!(", did you mean '{c}'?"))
                .unwrap_or_default();
            Err(SiteError::Usage(format!("unknown command '{typed}'{hint}")))
        }
    };
    ended(outcome, &console)
}

fn print_help(console: &Console) -> i32 {
    output::finish(console, output::print_help(&arguments::help(&TABLE)), 0)
}

/// Goes on as the program of the commands that plan.
fn become_planning(command: &str, rest: &[OsString]) -> Result<i32, SiteError> {
    let program = programs::find(programs::PLANNING)?;
    let error = Command::new(&program).arg(command).args(rest).exec();
    Err(SiteError::Other(format!("cannot execute {}: {error}", program.display())))
}

/// The exit code of a command. Why it could not do its work is said.
pub fn ended(outcome: Result<i32, SiteError>, console: &Console) -> i32 {
    match outcome {
        Ok(code) => code,
        Err(error) => {
            error.to_string().lines().for_each(|line| console.error(line));
            if let SiteError::Usage(_) = error {
                output::stderr(b"Try \"garrick --help\" for more information\n");
            }
            1
        }
    }
}
