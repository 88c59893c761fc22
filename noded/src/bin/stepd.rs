//! The `stepd` daemon.

use std::{io::Write, process::ExitCode};

fn main() -> ExitCode {
    // A closed stderr is no reason to end differently.
    let _ = writeln!(std::io::stderr(), "stepd: not supported yet");
    ExitCode::FAILURE
}
