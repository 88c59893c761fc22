//! Runners of this package in their short form, as tests.

use garrick_sims::faults::site::Site;
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// What a runner prints in its short form, which has to be a success. `None`: it cannot run here, and that was said.
pub fn short_form(runner: &str) -> Option<String> {
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
    let ran = Command::new(runner).arg("--short").stdin(Stdio::null()).output().expect("it was built with this test");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{}\n{out}\n{err}", ran.status);
    Some(out.into_owned())
}
