//! `garrick-records`: what durability costs. See [`garrick_sims::records`].

use garrick_sims::{
    minibatch::figures::{Finding, Findings, number},
    records,
};
use std::{io::Write, process::ExitCode};

const HELP: &str = "Usage: garrick-records COMMAND [--jobs N]
Measures the cost of durability and planning on a real controller (needs root, and programs built with --release):
  rates     submissions a second, beside raw fdatasync and a disk in memory (50000 jobs)
  restart   time from the kill of a controller with this number of jobs until it answers for them (100000 jobs)
  queries   commands with short answers beside this number of jobs, and /bin/true (20000 jobs)
  planning  queries and submissions while plans for this number of different jobs are made (10000 jobs)
  priorities  the longest time to an answer while priorities of this number of waiting jobs are calculated (100000 jobs)
  crowd     one user's single submissions beside this number of another user's at once (10000 jobs)
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (command, jobs) = match words.as_slice() {
        ["-h" | "--help"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        // One of the users of `crowd`.
        ["ask", words @ ..] => {
            return match records::ask(words) {
                Ok(()) => ExitCode::SUCCESS,
                Err(e) => {
                    eprintln!("garrick-records: {e}");
                    ExitCode::FAILURE
                }
            };
        }
        [command] => (*command, None),
        [command, "--jobs", jobs] => match jobs.parse::<usize>() {
            Ok(jobs) if jobs >= 100 => (*command, Some(jobs)),
            _ => return misused(&format!("--jobs: \"{jobs}\" is no number of 100 or more")),
        },
        _ => return misused("expected a command"),
    };
    let outcome = match command {
        "rates" => records::rates(jobs.unwrap_or(50_000)),
        "restart" => records::restart(jobs.unwrap_or(100_000)),
        "queries" => records::queries(jobs.unwrap_or(20_000)),
        "planning" => records::planning(jobs.unwrap_or(10_000)),
        "priorities" => records::priorities(jobs.unwrap_or(100_000)),
        "crowd" => records::crowd(jobs.unwrap_or(10_000)),
        other => {
            return misused(&format!("\"{other}\" is none of rates, restart, queries, planning, priorities, crowd"));
        }
    };
    match outcome.and_then(|found| print(&found)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("garrick-records: {e}");
            ExitCode::FAILURE
        }
    }
}

fn print(found: &Findings) -> records::Fallible<()> {
    let mut out = std::io::stdout().lock();
    for finding in &found.0 {
        match finding {
            Finding::Table(table) => table.render(&mut out)?,
            Finding::Note(text) => writeln!(out, "    {text}")?,
            Finding::Amount(a) => writeln!(out, "    {}: {} {}", a.what, number(a.value), a.unit)?,
            Finding::Pace(pace) => writeln!(out, "    {}: {}/s", pace.what, number(pace.rate()))?,
        }
    }
    Ok(out.flush()?)
}

fn misused(text: &str) -> ExitCode {
    eprint!("garrick-records: {text}\n{HELP}");
    ExitCode::from(2)
}
