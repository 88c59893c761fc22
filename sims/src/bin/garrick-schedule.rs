//! `garrick-schedule`: how long plans take. See [`garrick_sims::schedule`].

use garrick_sims::{
    minibatch::figures::{Finding, Findings},
    schedule,
};
use std::{
    io::{self, Write},
    process::ExitCode,
};

const HELP: &str = "Usage: garrick-schedule [WAITING...]
First plans over 15000 nodes for queues of these lengths (1000 10000 100000). Build it with --release.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if matches!(arguments.first().map(String::as_str), Some("-h" | "--help")) {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let mut queues = Vec::new();
    for argument in &arguments {
        match argument.parse::<u32>() {
            Ok(waiting) if (1..=1_000_000).contains(&waiting) => queues.push(waiting),
            _ => {
                eprintln!("garrick-schedule: \"{argument}\" is not a number of jobs from 1 to 1000000");
                return ExitCode::FAILURE;
            }
        }
    }
    if queues.is_empty() {
        queues = vec![1_000, 10_000, 100_000];
    }
    match print(&schedule::first_plans(15_000, &queues)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("garrick-schedule: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print(found: &Findings) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for finding in &found.0 {
        match finding {
            Finding::Table(table) => table.render(&mut out)?,
            Finding::Note(text) => writeln!(out, "    {text}")?,
            Finding::Amount(_) | Finding::Pace(_) => {}
        }
    }
    out.flush()
}
