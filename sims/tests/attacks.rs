//! The attacks of `docs/attacks.md` on real daemons, but for those that need a flood or a cable. Needs root, network namespaces,
//! and the workspace's programs beside it.

use garrick_sims::{attacks, faults::site::Site};
use std::{
    path::Path,
    process::{Command, Stdio},
};

#[test]
fn nobody_gets_what_is_not_theirs() {
    let runner = Path::new(env!("CARGO_BIN_EXE_garrick-attacks"));
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
    let short = attacks::all().iter().filter(|attack| !attack.long).count();
    assert!(out.contains(&format!("{short} held, 0 broken, 0 unclear")), "{out}");
}
