//! Output files that nobody asked for.

use super::*;

fn silent(token: u64, script: &str, path: &Path) -> SpawnTask {
    let stdout = FdSource::File { path: path.to_str().unwrap().to_owned(), mode: FileMode::Truncate };
    SpawnTask { stdio: [FdSource::Null, stdout, FdSource::SameAsStdout], unasked_output: true, ..task(token, script) }
}

#[test]
fn a_file_stays_where_something_is_in_it_or_somebody_asked_for_it() {
    let dir = Scratch::new("unasked");
    let mut rig = Rig::new(None);
    for quiet in [false, true] {
        for (token, script, stays) in [(1, "true", false), (2, "echo out", true), (3, "echo err >&2", true)] {
            let path = dir.join(&format!("{token}-{quiet}.out"));
            rig.spawn(SpawnTask { quiet, ..silent(token, script, &path) }, &[]);
            if !quiet {
                rig.spawned();
            }
            assert_eq!(rig.exited(), (token, 0, None));
            assert_eq!(path.exists(), stays, "{script}");
        }
        let path = dir.join(&format!("asked-{quiet}.out"));
        rig.spawn(SpawnTask { quiet, unasked_output: false, ..silent(4, "true", &path) }, &[]);
        if !quiet {
            rig.spawned();
        }
        assert_eq!(rig.exited(), (4, 0, None));
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        // A program that is not there.
        let path = dir.join(&format!("nosuch-{quiet}.out"));
        rig.spawn(SpawnTask { quiet, argv: arguments(&["no-such-program"]), ..silent(5, "", &path) }, &[]);
        assert!(matches!(rig.answer(), FromLauncher::SpawnFailed { token: 5, .. }));
        assert!(!path.exists());
    }
    rig.finish();
}

#[test]
fn a_file_of_several_tasks_stays_until_the_last_is_over() {
    let dir = Scratch::new("unasked");
    let path = dir.join("shared.out");
    let mut rig = Rig::new(None);
    let (gate, go) = std::io::pipe().unwrap();
    let mut waits = silent(2, "read line; echo late", &path);
    waits.stdio[0] = FdSource::Passed(0);
    rig.spawn(waits, &[gate.as_fd()]);
    rig.spawned();
    let mut other = silent(1, "true", &path);
    other.stdio[1] = FdSource::File { path: path.to_str().unwrap().to_owned(), mode: FileMode::Append };
    rig.spawn(other, &[]);
    rig.spawned();
    assert_eq!(rig.exited(), (1, 0, None));
    assert!(path.exists());
    drop((gate, go));
    assert_eq!(rig.exited(), (2, 0, None));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "late\n");
    rig.finish();
}

/// A node that is cut off has a try that nobody awaits any more; the next one writes elsewhere, into a file of the same name.
#[test]
fn the_file_of_another_try_is_not_removed_and_another_try_does_not_write_into_it() {
    let dir = Scratch::new("unasked");
    let path = dir.join("step.out");
    let (mut cut_off, mut other) = (Rig::new(None), Rig::new(None));
    let (gate, go) = std::io::pipe().unwrap();
    let mut first = silent(1, "read line; true", &path);
    first.stdio[0] = FdSource::Passed(0);
    cut_off.spawn(first, &[gate.as_fd()]);
    cut_off.spawned();
    let (second_gate, second_go) = std::io::pipe().unwrap();
    let mut second = silent(1, "read line; echo second", &path);
    second.label.attempt = 1;
    second.stdio[0] = FdSource::Passed(0);
    other.spawn(second, &[second_gate.as_fd()]);
    other.spawned();
    drop((gate, go));
    assert_eq!(cut_off.exited(), (1, 0, None));
    drop((second_gate, second_go));
    assert_eq!(other.exited(), (1, 0, None));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "second\n");
    cut_off.finish();
    other.finish();
}
