//! Runners of this package in their short form, as tests.

use garrick_sims::faults::site::Site;
use std::{
    io::{BufRead as _, BufReader, Write as _, stderr},
    path::Path,
    process::{Command, Stdio},
};

/// What a runner prints in its short form, which has to be a success. `None`: it cannot run here, and that was said.
pub fn short_form(runner: &str) -> Option<String> {
    short_form_of(runner, &["--short"])
}

/// The same, with the words for it.
pub fn short_form_of(runner: &str, words: &[&str]) -> Option<String> {
    let runner = Path::new(runner);
    if !Site::possible() {
        eprintln!("skipped: needs root and network namespaces");
        return None;
    }
    for program in ["garrick", "noded", "stepd"] {
        if !runner.with_file_name(program).exists() {
            eprintln!("skipped: {program} is not built: cargo build --workspace");
            return None;
        }
    }
    let started = Command::new(runner).args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut ran = started.expect("it was built with this test");
    let (mut out, said) = (String::new(), ran.stdout.take().expect("it is piped"));
    // Shown at once, past what the test harness keeps back: of a runner that never ends, this is all that is known.
    for line in BufReader::new(said).lines().map_while(Result::ok) {
        let _ = writeln!(stderr(), "{line}");
        out.push_str(&line);
        out.push('\n');
    }
    let status = ran.wait().expect("it is this process's child");
    assert!(status.success(), "{status}\n{out}");
    Some(out)
}
