//! `garrick`: the commands for clusters and sites that Slurm does not have, and every other command by its name (`garrick
//! squeue`).

use crate::{
    graph, journal,
    manual::{complete, find},
    options::{getopt, table::Arg},
    output::{self, Console},
    query::{
        arguments::{self, Table, Word, option},
        cat, records,
    },
    site::{SiteError, certs, check, down, init, install, programs, run, status, token, up, why},
};
use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

const fn word(subject: &'static str, name: &'static str, operands: &'static str, help: &'static str) -> Word {
    Word { subject, name, operands, help, refused: false }
}

const MACHINE: &str = "The cluster of this machine (its files are under GARRICK_HOME)";
const JOBS: &str = "Jobs and steps";
const SITE: &str = "A site";
const FINDING: &str = "Finding out";

pub(crate) static TABLE: Table = Table {
    program: "garrick",
    purpose: "Commands for clusters and sites that Slurm does not have, and every other command by its name (garrick squeue).",
    operands: "COMMAND [ARGUMENTS...]",
    words: &[
        word(MACHINE, "up", "[OPTIONS]", "start the cluster: one process, or a controller and nodes"),
        word(MACHINE, "down", "[OPTIONS]", "end the cluster and every job in it"),
        word(MACHINE, "status", "[--json]", "list its processes"),
        word(
            MACHINE,
            "run",
            "[--keep] [SBATCH OPTIONS] SCRIPT [ARGUMENTS]",
            "submit a script, follow its output, exit with its exit code; starts and ends a cluster if none runs",
        ),
        word(JOBS, "why", "JOB[.STEP]...", "what a waiting job waits for, and until when; why a step ended as it did"),
        word(
            JOBS,
            "steps",
            "JOB[.STEP]... [OPTIONS]",
            "every step of jobs, also of ended ones: how it ended, when and where",
        ),
        word(JOBS, "graph", "FILE [OPTIONS]", "check and draw a graph of steps, for sbatch --graph and srun --graph"),
        word(JOBS, "cat", "FILE... [OPTIONS]", "print the output of steps from an output pack"),
        word(SITE, "init", "[DIR|--home]", "write a configuration and create the cluster's keys"),
        word(SITE, "check", "[FILE]", "list all problems of a slurm.conf, with line, cause and suggestion"),
        word(
            SITE,
            "install",
            "--prefix DIR",
            "create bin/, sbin/ and share/ with all programs, man pages and completions",
        ),
        word(SITE, "token", "[OPTIONS]", "a one-time token with which a node joins (slurmd --token-file FILE)"),
        word(SITE, "certs", "list|revoke NODES|renew [NODES]", "list certificates; exclude nodes; renew certificates"),
        word(SITE, "journal", "show|verify|export FILE", "read the journal of a controller or of a step manager"),
        word(SITE, "sim", "--trace FILE [OPTIONS]", "replay a workload: what would the scheduler have done with it?"),
        word(SITE, "topology", "[FILE] [OPTIONS]", "which nodes jobs would get on the empty cluster of a slurm.conf"),
        word(FINDING, "help", "[NAME]", "explain a command, option, setting, variable, state, reason or topic"),
        word(FINDING, "completion", "bash|zsh|fish", "print the completion of all commands for a shell"),
        word(FINDING, "complete", "LINE", "list what may stand at the end of a command line, for those completions"),
        word(FINDING, "version", "", "show the version"),
    ],
    options: &[
        option("help", Some('h'), Arg::None, "show this help"),
        option("version", Some('V'), Arg::None, "show the version"),
    ],
    misuse: 1,
};

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
        Some("steps") => return records::main(&rest, &Console::new("garrick steps")),
        Some("journal") => return journal::main(&rest, &Console::new("garrick journal")),
        Some("check") => check::main(&rest, &console),
        Some("install") => install::main(&rest, &console),
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
