//! Benchmark of accounting: what it takes in, and how quickly it answers.
//!
//! ```text
//! cargo run --release -p garrick-sims --bin garrick-accounting -- [--jobs N] [--steps N] [--folder DIR] [--json FILE]
//! ```
//!
//! Makes a database in a new folder below DIR, and removes it. The exit code is 1 when something failed.

use garrick_sims::{
    accounting::{Amounts, accounting},
    minibatch::{figures::Figures, inside::Fallible},
    program::{run, tell},
};
use std::{path::PathBuf, process::ExitCode};

/// Spawns of each way in which the floor is measured, before and after.
const FLOOR_SPAWNS: usize = 500;
const USAGE: &str = "usage: garrick-accounting [--jobs N] [--steps N] [--folder DIR] [--json FILE]";

fn main() -> ExitCode {
    run("garrick-accounting", USAGE, play)
}

fn play(args: &[String]) -> Fallible<()> {
    let mut amounts = Amounts { jobs: 100_000, steps: 10 };
    let (mut folder, mut json) = (std::env::temp_dir(), None);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"))?;
        let number = || value.parse().map_err(|_| format!("{arg}: {value}"));
        match arg.as_str() {
            "--jobs" => amounts.jobs = number()?,
            "--steps" => amounts.steps = number()?,
            "--folder" => folder = PathBuf::from(value),
            "--json" => json = Some(value.clone()),
            _ => return Err(USAGE.into()),
        }
    }
    let folder = folder.join(format!("garrick-accounting-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let scenario = format!("accounting: {} jobs of {} steps", amounts.jobs, amounts.steps);
    let figures = Figures::around(scenario, FLOOR_SPAWNS, || accounting(&folder, amounts));
    std::fs::remove_dir_all(&folder)?;
    tell(&figures?, json.as_deref())
}
