//! The light `srun` by itself. With a step manager: `noded/tests/clusters/light.rs`.

#![allow(clippy::unwrap_used, missing_docs)]

use std::process::{Command, Stdio};

#[test]
fn without_the_whole_command_beside_it_it_says_what_is_missing() {
    let folder = std::env::temp_dir().join(format!("garrick-light-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let alone = folder.join("srun");
    // Copied by another process: what this one has open for writing is "busy".
    assert!(
        Command::new("cp").args([env!("CARGO_BIN_EXE_srun").as_ref(), alone.as_os_str()]).status().unwrap().success()
    );
    for door in ["", "/nosuch/door", "relative"] {
        let mut srun = Command::new(&alone);
        srun.args(["-n1", "true"]).env("GARRICK_STEPD_DOOR", door).stdin(Stdio::null());
        let output = srun.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with("srun: error: cannot start the program garrick, which belongs beside this one"),
            "{said}"
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
