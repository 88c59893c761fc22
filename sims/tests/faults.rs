//! The short form of the fault runner: real processes that are killed, stopped and cut off while they work. Needs root,
//! network namespaces, and the workspace's programs beside it.

use garrick_sims::faults::site::Site;
use std::{
    path::Path,
    process::{Command, Stdio},
};

#[test]
fn nothing_is_lost_and_nothing_runs_twice_whatever_is_killed() {
    let runner = Path::new(env!("CARGO_BIN_EXE_garrick-faults"));
    if !Site::possible() {
        eprintln!("skipped: needs root and network namespaces");
        return;
    }
    for program in ["garrick", "noded", "stepd"] {
        if !runner.with_file_name(program).exists() {
            eprintln!("skipped: {program} is not built: cargo build --workspace");
            return;
        }
    }
    let ran = Command::new(runner).arg("--short").stdin(Stdio::null()).output().expect("it was built with this test");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{}\n{out}\n{err}", ran.status);
    assert!(out.contains("0 lost, 0 duplicated, 0 leaked, 0 untrue"), "{out}");
}
