//! The commands of `garrick`, for finding the one that is meant, for help, man page and completion.

use crate::{
    options::table::Arg,
    query::arguments::{Table, option, word},
};

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
        word(JOBS, "efficiency", "JOB...|--user NAME [OPTIONS]", "what jobs used of what they asked for, with advice"),
        word(JOBS, "profile", "JOB[.STEP]... [OPTIONS]", "time series of jobs: join their files, also as CSV"),
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
