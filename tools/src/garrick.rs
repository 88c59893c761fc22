//! `garrick`: the commands for clusters and sites that Slurm does not have, and every other command by its name (`garrick
//! squeue`).

use crate::{
    graph, journal,
    options::getopt,
    output::{self, Console},
    query::{cat, records},
    site::{SiteError, certs, check, down, init, install, programs, run, status, token, up, why},
};
use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

const HELP: &str = "\
Usage: garrick COMMAND [OPTIONS]

The cluster of this machine (its files are under GARRICK_HOME):
  up [--nodes N] [--cpus C] [--memory M]   start the cluster: one process, or a controller and N nodes
  down                                     end the cluster and every job in it
  status [--json]                          list its processes
  run [--keep] [SBATCH OPTIONS] SCRIPT [ARGUMENTS]
                                           submit a script, follow its output, exit with its exit code;
                                           starts the cluster if none runs, and then ends it again

Waiting jobs:
  why JOB[.STEP]...                        the first obstacle, what would remove it, and when;
                                           why a step ended as it did

Steps, also of ended jobs:
  steps JOB[.STEP]... [--failed] [--summary] [--json] [--joblog FILE]
                                           every step: how it ended, where, how long it took, where its output is

  graph FILE [--svg FILE] [--json]         check and draw a graph of steps, for sbatch --graph and srun --graph

Output of steps:
  cat FILE... [--step LIST] [--stderr] [--list] [--follow]
                                           print the output of steps from an output pack

A site:
  init [DIR|--home]                        write a configuration and create the cluster's keys
  check FILE                               list all problems of a slurm.conf, with line, cause and suggestion
  install --prefix DIR                     create bin/ and sbin/ with all programs
  token [--lifetime MINUTES] [--node NAME] a one-time token with which a node joins (slurmd --token-file FILE)
  certs list|revoke NODES|renew [NODES]    list certificates and their expiry; exclude nodes; renew certificates
  journal show|verify|export FILE          read the journal of a controller or of a step manager
  sim --trace FILE [--conf FILE] [--policy LIST]
                                           replay a workload: what would the scheduler have done with it?
  topology [FILE] [--job OPTIONS]... [--picture FILE]
                                           which nodes jobs would get on the empty cluster of a slurm.conf

All other commands by their names: sbatch srun salloc sattach sbcast sgather scrontab squeue sinfo scancel scontrol strigger stail swait
";

const COMMANDS: [&str; 16] = [
    "up", "down", "status", "run", "cat", "init", "check", "install", "token", "certs", "journal", "sim", "topology",
    "why", "steps", "graph",
];

/// Runs `garrick`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let console = Console::new("garrick");
    let mut args = args.into_iter();
    let Some(first) = args.next() else {
        output::stderr(HELP.as_bytes());
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
        Some("help" | "--help" | "-h" | "--usage") => {
            return output::finish(&console, output::stdout(|out| out.write_all(HELP.as_bytes())), 0);
        }
        Some("version" | "--version" | "-V") => return output::finish(&console, output::print_own_version(), 0),
        other => {
            let typed = other.unwrap_or("that");
            let hint = getopt::nearest(typed, COMMANDS.into_iter())
                .map(|c| format!(", did you mean '{c}'?"))
                .unwrap_or_default();
            Err(SiteError::Usage(format!("unknown command '{typed}'{hint}")))
        }
    };
    ended(outcome, &console)
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
