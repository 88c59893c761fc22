//! The commands of `scontrol`, for finding the one that is meant, for help, man page and completion.

use crate::query::arguments::{Word, unsupported_word, word};

const RECORDS: &str = "Records";
const JOBS: &str = "Jobs";
const NODES: &str = "Nodes";
const DAEMONS: &str = "Daemons";
const HERE: &str = "What runs on this host";
const PROMPT: &str = "How things are shown, and the prompt";

/// Every command.
pub const WORDS: &[Word] = &[
    word(
        RECORDS,
        "show",
        "ENTITY [NAME]",
        "show jobs, nodes, partitions, steps, reservations, licenses, the configuration",
    ),
    word(RECORDS, "update", "KEY=VALUE...", "change a job, step, node, partition or reservation"),
    word(RECORDS, "create", "KEY=VALUE...", "create a node, partition or reservation"),
    word(RECORDS, "delete", "KIND=NAME", "delete a node, partition or reservation"),
    word(
        RECORDS,
        "write",
        "batch_script JOB [FILE] | config [FILE]",
        "save the script of a job, or print it for the file -; save the running configuration as FILE.DATETIME",
    ),
    word(JOBS, "hold", "JOB...", "keep waiting jobs from starting, as an administrator may"),
    word(JOBS, "uhold", "JOB...", "keep waiting jobs from starting, so that their owners may release them"),
    word(JOBS, "release", "JOB...", "let held jobs start"),
    word(JOBS, "requeue", "[Incomplete] JOB...", "put jobs back into the queue"),
    word(JOBS, "requeuehold", "[Incomplete] [State=SpecialExit] JOB...", "put jobs back into the queue, held"),
    word(JOBS, "suspend", "JOB...", "stop the processes of jobs"),
    word(JOBS, "resume", "JOB...", "let suspended jobs go on"),
    word(JOBS, "top", "JOB...", "move waiting jobs before the others of their owner"),
    word(JOBS, "notify", "JOB MESSAGE", "send a line to the output of a job"),
    word(JOBS, "wait_job", "JOB", "wait until all nodes of a job are ready"),
    word(JOBS, "completing", "", "show jobs whose nodes are being cleaned"),
    word(NODES, "reboot", "[ASAP] [nextstate=STATE] [reason=TEXT] NODES", "reboot nodes when they are idle"),
    word(NODES, "reboot_nodes", "NODES", "the older name of reboot"),
    word(NODES, "cancel_reboot", "NODES", "forget a reboot that has not begun"),
    word(NODES, "power", "up|down [asap|force] NODES", "power nodes up or down"),
    word(NODES, "getaddrs", "NODES", "show the addresses of nodes"),
    unsupported_word(NODES, "gethost", "NAME", "show how the name of a host is resolved"),
    word(DAEMONS, "ping", "", "ask whether the controller answers"),
    word(DAEMONS, "reconfigure", "", "make all daemons read slurm.conf again"),
    word(DAEMONS, "shutdown", "[slurmctld|controller]", "end the daemons"),
    word(DAEMONS, "setdebug", "LEVEL [nodes=NODES]", "set how much daemons log"),
    word(DAEMONS, "setdebugflags", "+FLAG|-FLAG... [nodes=NODES]", "set which topics daemons log in more detail"),
    word(DAEMONS, "schedloglevel", "LEVEL", "switch the log of the scheduler on or off"),
    word(DAEMONS, "fsdampeningfactor", "FACTOR", "set FairShareDampeningFactor"),
    word(DAEMONS, "token", "[lifespan=SECONDS] [username=USER]", "make a token for a user"),
    word(DAEMONS, "takeover", "[INDEX]", "make the backup controller take over"),
    word(HERE, "listjobs", "[NODE]", "show the jobs that run here"),
    word(HERE, "liststeps", "[NODE]", "show the steps that run here"),
    word(HERE, "listpids", "[JOB[.STEP]] [NODE]", "show the processes of jobs and steps that run here"),
    word(HERE, "pidinfo", "PID", "show which job a process belongs to"),
    word(HERE, "getent", "[NODE]", "show users and groups of the steps that run here"),
    word(PROMPT, "all", "", "show hidden partitions too"),
    word(PROMPT, "hide", "", "do not show hidden partitions"),
    word(PROMPT, "details", "", "show more of jobs"),
    word(PROMPT, "oneliner", "", "show each record in one line"),
    word(PROMPT, "quiet", "", "print only errors"),
    word(PROMPT, "verbose", "", "print messages again"),
    word(PROMPT, "cluster", "NAME", "choose the cluster: this one, no other"),
    word(PROMPT, "errnumstr", "NUMBER", "show the text of an error number"),
    word(PROMPT, "version", "", "show the version"),
    word(PROMPT, "help", "", "show this help"),
    word(PROMPT, "quit", "", "end the prompt"),
    word(PROMPT, "exit", "", "end the prompt"),
];

/// Names of commands: of those that there are, or of those that there are not yet.
pub fn names(refused: bool) -> Vec<&'static str> {
    WORDS.iter().filter(|word| word.refused == refused).map(|word| word.name).collect()
}
