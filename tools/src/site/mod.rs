//! `garrick`: the embedded cluster of one machine (`up`, `down`, `status`, `run`), a site's files (`init`, `check`,
//! `install`), and every other command by its name (`garrick squeue`).
//!
//! | module | what it does |
//! |---|---|
//! | [`home`] | where an embedded cluster's files are |
//! | [`conf`] | the `slurm.conf` that is written for it |
//! | [`doors`] | one daemon asked at its own door |
//! | [`programs`] | where the daemons' executables are |
//! | [`processes`] | which of its processes run: started, found, ended |
//! | [`up`], [`down`], [`status`] | start, end, list them |
//! | [`run`] | submit a script and stay with it |
//! | [`follow`], [`progress`] | its output files and the line about its steps |
//! | [`init`], [`check`], [`install`] | keys, configuration check, files of an installation |
//! | [`topology`] | where jobs would go in a topology, as a picture |
//! | [`token`] | how a node joins |
//! | [`why`] | what keeps jobs waiting |

pub mod certs;
mod check;
pub mod conf;
pub mod doors;
pub mod down;
pub mod follow;
pub mod home;
pub mod init;
pub mod install;
pub mod processes;
pub mod programs;
pub mod progress;
pub mod run;
pub mod status;
pub mod token;
pub mod topology;
pub mod up;
pub mod why;

use crate::{
    graph, journal,
    options::getopt,
    output::{self, Console},
    query::{cat, records},
    sim,
};
use std::{ffi::OsString, io};

const HELP: &str = "\
Usage: garrick COMMAND [OPTIONS]

The cluster of this machine (its files are under GARRICK_HOME):
  up [--nodes N] [--cpus C] [--memory M]   start it: one process, or a controller and N nodes
  down                                     end it and every job in it
  status [--json]                          its processes
  run [--keep] [SBATCH OPTIONS] SCRIPT [ARGUMENTS]
                                           submit a script, follow its output, exit with its exit code;
                                           starts the cluster if none runs, and ends what it started

Jobs that wait:
  why JOB[.STEP]...                        what stands first in their way, what would move that, and when;
                                           why a step ended as it did

Steps, also of jobs that are over:
  steps JOB[.STEP]... [--failed] [--summary] [--json] [--joblog FILE]
                                           every step: how it ended, where, how long it took, where its output is

  graph FILE [--svg FILE] [--json]         check and draw a graph of steps, for sbatch --graph and srun --graph

Output of steps:
  cat FILE... [--step LIST] [--stderr] [--list] [--follow]
                                           print what steps wrote to an output pack

A site:
  init [DIR|--home]                        write a configuration and make the cluster's keys
  check FILE                               every problem of a slurm.conf, with line, cause and suggestion
  install --prefix DIR                     lay out bin/ and sbin/ with every name
  token [--lifetime MINUTES] [--node NAME] a one-time token for a node to join with (slurmd --token-file FILE)
  certs list|revoke NODES|renew [NODES]    who has a certificate of the cluster, and until when; cut nodes off
  journal show|verify|export FILE          read the journal of a controller or of a job's step manager
  sim --trace FILE [--conf FILE] [--policy LIST]
                                           replay a workload: what would the scheduler have done with it?
  topology [FILE] [--job OPTIONS]... [--picture FILE]
                                           where jobs would go on the empty cluster of a slurm.conf

Any other command by its name: sbatch srun salloc sattach squeue sinfo scancel scontrol stail swait
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
        Some("sim") => return sim::main(&rest, &Console::new("garrick sim")),
        Some("check") => check::main(&rest, &console),
        Some("install") => install::main(&rest, &console),
        Some("certs") => certs::main(&rest, &console),
        Some("token") => token::main(&rest, &console),
        Some("topology") => topology::main(&rest, &console),
        Some("why") => why::main(&rest, &console),
        Some("help" | "--help" | "-h" | "--usage") => {
            return output::finish(&console, output::stdout(|out| out.write_all(HELP.as_bytes())), 0);
        }
        Some("version" | "--version" | "-V") => return output::finish(&console, output::print_version(), 0),
        other => {
            let typed = other.unwrap_or("that");
            let hint = getopt::nearest(typed, COMMANDS.into_iter())
                .map(|c| format!(", did you mean '{c}'?"))
                .unwrap_or_default();
            Err(SiteError::Usage(format!("unknown command '{typed}'{hint}")))
        }
    };
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

/// Why one of these commands could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The command line.
    #[error("{0}")]
    Usage(String),
    /// A file or folder.
    #[error("{doing} {path}: {source}")]
    File {
        /// `cannot write`, `cannot create`, ...
        doing: &'static str,
        /// Which.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// A program is not where it should be.
    #[error(transparent)]
    Program(#[from] programs::ProgramError),
    /// A daemon did not come to serve.
    #[error("{name} did not start: {why}{log}")]
    Start {
        /// Which.
        name: String,
        /// What happened.
        why: String,
        /// The end of its log.
        log: String,
    },
    /// The cluster does not answer, or refuses.
    #[error("{0}")]
    Cluster(String),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

impl SiteError {
    /// A failure with a file.
    pub fn file(doing: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::File { doing, path, source }
    }
}

impl From<crate::cluster::ClusterError> for SiteError {
    fn from(error: crate::cluster::ClusterError) -> Self {
        let mut lines = error.details();
        lines.push(error.to_string());
        Self::Cluster(lines.join("\n"))
    }
}
