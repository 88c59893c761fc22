//! Corpora by hand: `list`, `unpack TARGET FOLDER`, `keep TARGET FOLDER`, `try TARGET FILE`. `sims/fuzz/run` calls it.

use garrick_fuzz::{Target, corpus, target, targets};
use std::{io::Write, path::Path, process::ExitCode};

fn run(words: &[String]) -> Result<String, String> {
    let named = |name: &str| -> Result<&'static Target, String> { target(name).ok_or(format!("no target {name}")) };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] => Ok(targets::ALL.iter().map(|target| format!("{}\n", target.name)).collect()),
        ["unpack", name, folder] => {
            let count = corpus::unpack(named(name)?, Path::new(folder)).map_err(|e| format!("{folder}: {e}"))?;
            Ok(format!("{name}: {count} inputs\n"))
        }
        ["keep", name, folder] => {
            let count = corpus::keep(named(name)?.name, Path::new(folder)).map_err(|e| format!("{folder}: {e}"))?;
            Ok(format!("{name}: {count} inputs kept\n"))
        }
        ["try", name, file] => {
            named(name)?.run(&std::fs::read(file).map_err(|e| format!("{file}: {e}"))?);
            Ok(String::new())
        }
        _ => Err("usage: garrick-fuzz list | unpack TARGET FOLDER | keep TARGET FOLDER | try TARGET FILE".to_owned()),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(text) => {
            eprintln!("garrick-fuzz: {text}");
            ExitCode::FAILURE
        }
    }
}
