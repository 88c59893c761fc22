//! The command family: one program under many names. It is the command that it is called by (`squeue`), or the one that its
//! first argument names (`garrick squeue`).
//!
//! | module | what it is |
//! |---|---|
//! | [`options`], `submit` | `sbatch`, `salloc`, `srun`, `swait`, `sattach`, `sbcast`, `sgather`, `scrontab` |
//! | `query` | `squeue`, `sinfo`, `sprio`, `sdiag`, `sshare`, `sstat`, `sacct`, `sreport`, `seff` |
//! | `control` | `scancel`, `scontrol`, `sacctmgr`, `strigger`, `stail` |
//! | `graph`, `step_lists` | graphs and lists of steps |
//! | `executable` | which files are programs, and where they are in `PATH` |
//! | `programs` | where other programs of Garrick are |
//! | `batch_script` | finding and checking a batch script |
//! | `waiting` | what a command does while it waits |
//! | `garrick`, `site` | `garrick`, and its commands for a cluster and a site |
//! | `journal` | `garrick journal` |
//! | `manual` | all commands with their options: help and man pages |
//! | `complete` | completion in shells |
//! | `share` | files of an installation that are no programs |
//! | [`grammar`] | what users write, taken apart and not carried out |
//! | [`output`], `colour`, `telling` | the one way out; colours at a terminal; how failures are told |

mod batch_script;
mod colour;
mod complete;
mod control;
mod executable;
mod garrick;
pub mod grammar;
mod graph;
mod journal;
mod manual;
use garrick_options as options;
pub mod output;
mod programs;
mod query;
mod share;
mod site;
mod step_lists;
mod submit;
mod telling;
mod waiting;

pub use garrick::ended;
pub use query::arguments;
pub use site::SiteError;
use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

type Command = fn(Vec<OsString>) -> i32;

/// Every command.
const COMMANDS: [(&str, Command); 23] = [
    ("sbatch", submit::sbatch::main),
    ("srun", submit::srun::main),
    ("sattach", submit::attach::main),
    ("salloc", submit::salloc::main),
    ("squeue", query::squeue::main),
    ("sinfo", query::sinfo::main),
    ("sprio", query::sprio::main),
    ("sdiag", query::sdiag::main),
    ("sshare", query::sshare::main),
    ("sstat", query::sstat::main),
    ("sacct", query::sacct::main),
    ("sreport", query::sreport::main),
    ("seff", query::sacct::used::seff),
    ("sacctmgr", control::sacctmgr::main),
    ("scancel", control::scancel::main),
    ("scontrol", control::scontrol::main),
    ("strigger", control::strigger::main),
    ("stail", control::stail::main),
    ("swait", submit::swait::main),
    ("sbcast", submit::sbcast::main),
    ("sgather", submit::sgather::main),
    ("scrontab", submit::scrontab::main),
    ("garrick", garrick::main),
];

fn named(name: &OsStr) -> Option<Command> {
    COMMANDS.iter().find(|(known, _)| name == *known).map(|(_, command)| *command)
}

/// Runs the command that the arguments name, the program's own name first. Returns its exit code.
pub fn run(args: Vec<OsString>) -> i32 {
    let mut args = args.into_iter();
    let called = args.next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default();
    let rest: Vec<OsString> = args.collect();
    // `garrick squeue -l` is `squeue -l`.
    let by_argument =
        rest.first().and_then(|first| named(first)).filter(|_| name == "garrick" || named(name).is_none());
    match (by_argument, named(name)) {
        (Some(command), _) => command(rest.into_iter().skip(1).collect()),
        (None, Some(command)) => command(rest),
        (None, None) => {
            let names: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
            let name = name.to_string_lossy();
            output::stderr(
                format!("{name}: not a command of Garrick; call this program as one of: {}\n", names.join(" "))
                    .as_bytes(),
            );
            1
        }
    }
}
