//! Faults against real processes, on one machine: every accepted job and step has exactly one final record in the end, and
//! nothing is left over. Needs root.
//!
//! ```text
//! garrick-faults --short                                                            a minute or less
//! garrick-faults [--seed S] [--kills N] [--compounds N] [--jobs N] [--steps-per-job N] [--nodes N]
//! garrick-faults controller-pause [--steps N] [--seconds N] [--nodes N]             the controller is stopped for a minute
//! ```
//!
//! The exit code is 0 when nothing was lost, duplicated, untrue or left over, 1 when something was (the logs are kept), and 2
//! when the run could not be carried through.

use garrick_sims::faults::{Setup, pause, report::Report, run};
use std::{error::Error, io::stdout, process::ExitCode, time::Duration};

const USAGE: &str = "usage: garrick-faults --short | [--seed S] [--kills N] [--compounds N] [--jobs N] [--steps-per-job N] [--nodes N]\n       \
                     garrick-faults controller-pause [--steps N] [--seconds N] [--nodes N]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "-h" || arg == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match act(&args) {
        Ok(report) if report.verdict.violations.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("garrick-faults: {error}");
            ExitCode::from(2)
        }
    }
}

fn act(args: &[String]) -> Result<Report, Box<dyn Error>> {
    match args.split_first() {
        Some((first, rest)) if first == "controller-pause" => paused(rest),
        _ => hurt(args),
    }
}

fn hurt(args: &[String]) -> Result<Report, Box<dyn Error>> {
    let mut setup =
        Setup { seed: 1, kills: 1_000, compounds: 100, late: true, jobs: 2_000, steps_per_job: 26, nodes: 6 };
    let mut args = args.iter();
    while let Some(name) = args.next() {
        if name == "--short" {
            setup = Setup::SHORT;
            continue;
        }
        let value = args.next().ok_or(USAGE)?;
        match name.as_str() {
            "--seed" => setup.seed = value.parse()?,
            "--kills" => setup.kills = value.parse()?,
            "--compounds" => setup.compounds = value.parse()?,
            "--jobs" => setup.jobs = value.parse()?,
            "--steps-per-job" => setup.steps_per_job = value.parse()?,
            "--nodes" => setup.nodes = value.parse()?,
            _ => return Err(USAGE.into()),
        }
    }
    let report = run::run(setup)?;
    report.render(&mut stdout().lock())?;
    println!("the same again: {}", setup.command());
    Ok(report)
}

fn paused(args: &[String]) -> Result<Report, Box<dyn Error>> {
    let mut setup = pause::Pause::default();
    for pair in args.chunks(2) {
        let [name, value] = pair else { return Err(USAGE.into()) };
        match name.as_str() {
            "--steps" => setup.steps = value.parse()?,
            "--seconds" => setup.length = Duration::from_secs(value.parse()?),
            "--nodes" => setup.nodes = value.parse()?,
            _ => return Err(USAGE.into()),
        }
    }
    let (report, meanwhile) = pause::run(setup)?;
    println!(
        "the controller stood still for {} s: {} steps were over before, {} when it went on",
        setup.length.as_secs(),
        meanwhile.before,
        meanwhile.after
    );
    report.render(&mut stdout().lock())?;
    Ok(report)
}
