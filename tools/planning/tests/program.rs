//! The program as `garrick` starts it.

use std::process::Command;

fn planning(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_garrick-planning")).args(words).output().expect("it can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it writes text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn it_is_known_by_the_commands_that_garrick_has_for_it() {
    let conf = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/topology/torus/slurm.conf");
    let (code, out, err) = planning(&["topology", conf, "--job", "-N8"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with("job 1: -N8: "), "{out}");
    let (code, out, _) = planning(&["sim", "--help"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("garrick sim"), "{out}");
    let (code, out, err) = planning(&["topology", "--topology", "x", "y", "z"]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert_eq!(err, "garrick: error: topology takes one file\nTry \"garrick --help\" for more information\n");
    let (code, _, err) = planning(&[]);
    assert_eq!(code, Some(1));
    assert!(err.contains("is started by garrick"), "{err}");
}
