//! Benchmark of whole jobs: an array of one-task jobs of `/bin/true`, beside this machine's raw spawn rate in the same minutes.
//!
//! ```text
//! cargo run --release -p garrick-sims --bin garrick-jobs -- [--jobs N] [--json FILE]
//! ```
//!
//! Starts a cluster of its own in a temporary folder and takes it away again (root: it hears from the kernel what ended
//! processes used). Prints jobs a second, the CPU time of one job by process, and the time of one job by layer. The exit code is
//! 1 when something failed; a goal that is not met is printed, and is no failure.

use garrick_sims::{
    jobs::measure,
    minibatch::inside::Fallible,
    program::{run, tell},
};
use std::process::ExitCode;

const JOBS: usize = 2_000;
const USAGE: &str = "usage: garrick-jobs [--jobs N] [--json FILE]";

fn main() -> ExitCode {
    run("garrick-jobs", USAGE, play)
}

fn play(args: &[String]) -> Fallible<()> {
    let (mut jobs, mut json) = (JOBS, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"))?;
        match arg.as_str() {
            "--jobs" => jobs = value.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("--jobs: {value}"))?,
            "--json" => json = Some(value.clone()),
            _ => return Err(USAGE.into()),
        }
    }
    let figures = measure(jobs)?;
    tell(&figures, json.as_deref())
}
