//! Manages corpora: `list`, `unpack TARGET FOLDER`, `keep TARGET FOLDER`, `try TARGET FILE`; `sims/fuzz/run` calls it. Also sends
//! requests: `send DOOR`, which a test runs as several users.

use garrick_fuzz::{corpus, requests, target, target::Target, targets};
use std::{io::Write, path::Path, process::ExitCode};

const USAGE: &str =
    "usage: garrick-fuzz list | unpack TARGET FOLDER | keep TARGET FOLDER | try TARGET FILE | send DOOR";

/// Sends the requests that lines of hexadecimal digits choose, one after the other, and writes a line for each: what came
/// back and how many bytes it had.
fn send(door: &Path) -> Result<(), String> {
    for line in std::io::stdin().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let digit = |at: usize| u8::from_str_radix(line.get(at..at + 2)?, 16).ok();
        let choices: Vec<u8> = (0..line.len() / 2).map_while(|n| digit(2 * n)).collect();
        let said = match requests::make(&choices) {
            None => "none 0".to_owned(),
            Some(request) => match requests::answer(door, &request) {
                Ok((kind, bytes)) => format!("{kind} {bytes}"),
                Err(error) => format!("ERROR {error}").replace('\n', " "),
            },
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{said}").and_then(|()| out.flush()).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn run(words: &[String]) -> Result<String, String> {
    let named = |name: &str| -> Result<&'static Target, String> { target(name).ok_or(format!("no target {name}")) };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["-h" | "--help"] => Ok(format!("{USAGE}\n")),
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
        ["send", door] => send(Path::new(door)).map(|()| String::new()),
        _ => Err(USAGE.to_owned()),
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
