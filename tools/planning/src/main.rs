//! The commands of `garrick` that plan: what the scheduler would do with a workload (`garrick sim`), and where it would put jobs
//! (`garrick topology`). A program of its own, which `garrick` becomes: the other commands are without a scheduler.
//!
//! | module | what it is |
//! |---|---|
//! | [`sim`] | `garrick sim` |
//! | [`topology`] | `garrick topology` |

mod sim;
mod topology;

use garrick_tools::{SiteError, ended, output::Console};
use std::{ffi::OsString, process::exit};

fn main() {
    let mut args = std::env::args_os().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<OsString> = args.collect();
    exit(match command.to_str() {
        Some("sim") => sim::main(&rest, &Console::new("garrick sim")),
        Some("topology") => {
            let console = Console::new("garrick");
            let outcome = topology::main(&rest, &console);
            ended(outcome, &console)
        }
        _ => {
            let usage = SiteError::Usage("is started by garrick: garrick sim, garrick topology".to_owned());
            ended(Err(usage), &Console::new("garrick-planning"))
        }
    })
}
