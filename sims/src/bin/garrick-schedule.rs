//! `garrick-schedule`: how long plans take. See [`garrick_sims::schedule`].

use garrick_sims::{
    minibatch::figures::{Finding, Findings},
    schedule,
};
use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

/// Of the cluster that is planned for.
const NODES: u32 = 15_000;

const HELP: &str = "Usage: garrick-schedule [WAITING...]
       garrick-schedule --growth FILE.svg
       garrick-schedule --memory-of nodes|cores WAITING
Measures first plans for 15000 nodes and queues of these lengths (1000 10000 100000), repairs of these plans, and their memory;
or how the time for a plan grows, as a table and a picture; or the peak memory of one plan in bytes, and its memory while it is
kept. Build it with --release.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if matches!(arguments.first().map(String::as_str), Some("-h" | "--help")) {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    if arguments.first().is_some_and(|first| first == "--growth") {
        let [_, file] = arguments.as_slice() else {
            eprintln!("garrick-schedule: --growth takes the name of a file to be written");
            return ExitCode::FAILURE;
        };
        return ended(grow(file));
    }
    if arguments.first().is_some_and(|first| first == "--memory-of") {
        return ended(
            schedule::of_one(NODES, &arguments[1..])
                .map_err(Into::into)
                .and_then(|memory| writeln!(io::stdout(), "{} {}", memory.peak, memory.kept).map_err(Into::into)),
        );
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
    ended(measure(&queues))
}

fn measure(queues: &[u32]) -> Result<(), Box<dyn Error>> {
    print(&schedule::first_plans(NODES, queues))?;
    print(&schedule::repairs(NODES, queues))?;
    Ok(print(&schedule::memory(&std::env::current_exe()?, NODES, queues)?)?)
}

fn grow(file: &str) -> Result<(), Box<dyn Error>> {
    let growth = schedule::growth();
    std::fs::write(file, growth.svg()?)?;
    Ok(print(&growth.findings())?)
}

fn ended(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
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
