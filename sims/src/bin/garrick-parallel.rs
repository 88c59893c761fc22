//! Benchmark of what a parallel program waits for before it begins.
//!
//! ```text
//! cargo run --release -p garrick-sims --bin garrick-parallel -- start [--json FILE]
//! cargo run --release -p garrick-sims --bin garrick-parallel -- files [--mib N] [--nodes N] [--json FILE]
//! ```
//!
//! `start`: 64 tasks on four nodes, bare and as programs of MPICH and Open MPI where these are installed. `files`: a file to many
//! nodes, beside one copy over one connection; all copies together have to fit into `/dev/shm`. Each starts a cluster of its own
//! and takes it away again. The exit code is 1 when something failed.

use garrick_sims::{
    minibatch::inside::Fallible,
    parallel::{files::files, measured, start::start},
    program::{run, tell},
};
use std::process::ExitCode;

const MIB: usize = 128;
const NODES: usize = 64;
const USAGE: &str = "usage: garrick-parallel start|files [--mib N] [--nodes N] [--json FILE]";

fn main() -> ExitCode {
    run("garrick-parallel", USAGE, play)
}

fn play(args: &[String]) -> Fallible<()> {
    let (mut mib, mut nodes, mut json) = (MIB, NODES, None);
    let (what, rest) = args.split_first().ok_or(USAGE)?;
    let mut rest = rest.iter();
    while let Some(arg) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"))?;
        let number = || value.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("{arg}: {value}"));
        match arg.as_str() {
            "--mib" => mib = number()?,
            "--nodes" => nodes = number()?,
            "--json" => json = Some(value.clone()),
            _ => return Err(USAGE.into()),
        }
    }
    let figures = match what.as_str() {
        "start" => measured("start: tasks that find each other".to_owned(), start)?,
        "files" => measured(format!("files: {mib} MiB to {nodes} nodes"), || files(mib, nodes))?,
        _ => return Err(USAGE.into()),
    };
    tell(&figures, json.as_deref())
}
