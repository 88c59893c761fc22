//! What the benchmark programs have in common: help, errors and exit codes; figures for people and for programs.

use crate::minibatch::{figures::Figures, inside::Fallible};
use std::{io::stdout, process::ExitCode};

/// Runs a benchmark by its arguments. The exit code is 1 when it fails.
pub fn run(name: &str, usage: &str, play: impl FnOnce(&[String]) -> Fallible<()>) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "-h" || arg == "--help") {
        println!("{usage}");
        return ExitCode::SUCCESS;
    }
    match play(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{name}: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Prints figures, and writes them into that file as JSON.
pub fn tell(figures: &Figures, json: Option<&str>) -> Fallible<()> {
    figures.render(&mut stdout().lock())?;
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_vec_pretty(figures)?)?;
    }
    Ok(())
}
