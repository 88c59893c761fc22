//! Whoever asks a program how it is used is told on standard output, and nothing is begun.
#![allow(clippy::unwrap_used)]

use std::process::Command;

#[test]
fn help_goes_to_standard_output_and_is_no_failure() {
    for (name, program) in [
        ("garrick-accounting", env!("CARGO_BIN_EXE_garrick-accounting")),
        ("garrick-attacks", env!("CARGO_BIN_EXE_garrick-attacks")),
        ("garrick-faults", env!("CARGO_BIN_EXE_garrick-faults")),
        ("garrick-minibatch", env!("CARGO_BIN_EXE_garrick-minibatch")),
        ("garrick-records", env!("CARGO_BIN_EXE_garrick-records")),
        ("garrick-requeue", env!("CARGO_BIN_EXE_garrick-requeue")),
        ("garrick-schedule", env!("CARGO_BIN_EXE_garrick-schedule")),
    ] {
        for option in ["--help", "-h"] {
            let said = Command::new(program).arg(option).output().unwrap();
            let (out, err) = (String::from_utf8(said.stdout).unwrap(), String::from_utf8(said.stderr).unwrap());
            assert_eq!((said.status.code(), err.as_str()), (Some(0), ""), "{name} {option}");
            assert!(out.to_lowercase().starts_with(&format!("usage: {name}")) && out.ends_with('\n'), "{out}");
        }
    }
}
