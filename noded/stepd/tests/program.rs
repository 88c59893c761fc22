//! The program as its users see it, who are not meant to start it.

use std::process::Command;

fn stepd(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_stepd")).args(words).output().expect("stepd can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("stepd writes text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn it_says_its_version_and_who_starts_it() {
    let (code, out, _) = stepd(&["--version"]);
    assert_eq!(code, Some(0));
    assert_eq!(out, "slurm 26.05.3\n");
    let (code, out, err) = stepd(&[]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert_eq!(err, "stepd: is started by a node's agent: stepd run FOLDER\n");
}
