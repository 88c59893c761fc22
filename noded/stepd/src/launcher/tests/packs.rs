//! Output packs as the launcher writes them.

use super::*;
use garrick_model::messages::shepherd::Stream;
use garrick_pack::{Content, PackReader, PackWriter};

fn packed(token: u64, script: &str, pack: &Path) -> SpawnTask {
    SpawnTask {
        stdio: [FdSource::Null, FdSource::Pack, FdSource::Pack],
        pack: Some(pack.to_str().unwrap().to_owned()),
        ..task(token, script)
    }
}

/// What a pack holds: task of the array, and its output, errors and exit code in their order.
fn read(pack: &Path) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    let mut reader = PackReader::open(pack).unwrap();
    while let Some(record) = reader.next_record() {
        let record = record.unwrap();
        let text = match record.content {
            Content::Output { stream: Stream::Stdout, bytes } => format!("out {}", String::from_utf8_lossy(bytes)),
            Content::Output { stream: Stream::Stderr, bytes } => format!("err {}", String::from_utf8_lossy(bytes)),
            Content::End(end) => format!("end {}", end.status.code),
        };
        found.push((record.task.step.array.unwrap(), text));
    }
    found
}

fn of(found: &[(u32, String)], task: u32) -> Vec<&str> {
    found.iter().filter(|(t, _)| *t == task).map(|(_, text)| text.trim_end()).collect()
}

#[test]
fn outputs_and_ends_of_tasks_go_into_one_file() {
    let dir = Scratch::new("packs");
    let pack = dir.join("out.pack");
    let mut rig = Rig::new(None);
    for token in 0..20 {
        let mut one = packed(token, &format!("echo {token}; echo problem >&2; exit {}", token % 3), &pack);
        one.quiet = true;
        rig.spawn(one, &[]);
    }
    let mut ended: Vec<u64> = (0..20).map(|_| rig.exited().0).collect();
    ended.sort_unstable();
    assert!(ended.into_iter().eq(0..20));
    rig.finish();
    let found = read(&pack);
    for task in 0..20 {
        let expected = [format!("out {task}"), "err problem".to_owned(), format!("end {}", task % 3)];
        assert_eq!(of(&found, task), expected);
    }
    // Nothing beside it, and the next launcher goes on with it.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let mut rig = Rig::new(None);
    rig.spawn(packed(20, "exit 1", &pack), &[]);
    rig.spawned();
    assert_eq!(rig.exited(), (20, 1, None));
    rig.finish();
    assert_eq!(of(&read(&pack), 20), ["end 1"]);
}

#[test]
fn both_streams_may_be_one_and_a_large_output_comes_whole() {
    let dir = Scratch::new("packs");
    let pack = dir.join("out.pack");
    let mut rig = Rig::new(None);
    // More than is copied in one go.
    let mut one = packed(1, "head -c 9000000 /dev/zero | tr '\\0' x; echo last >&2", &pack);
    one.stdio[2] = FdSource::SameAsStdout;
    rig.spawn(one, &[]);
    rig.spawned();
    // The other does not wait for it.
    rig.spawn(packed(2, "echo small", &pack), &[]);
    let mut ended = 0;
    while ended < 2 {
        ended += usize::from(matches!(rig.answer(), FromLauncher::Exited { .. }));
    }
    rig.finish();
    let found = read(&pack);
    let bytes: usize =
        found.iter().filter(|(t, text)| *t == 1 && text.starts_with("out ")).map(|(_, t)| t.len() - 4).sum();
    assert_eq!(bytes, 9_000_005);
    assert!(of(&found, 1).iter().any(|text| text.ends_with("last")));
    assert_eq!(of(&found, 2), ["out small", "end 0"]);
}

#[test]
fn what_a_long_task_writes_is_seen_while_it_runs() {
    let dir = Scratch::new("packs");
    let pack = dir.join("out.pack");
    let mut rig = Rig::new(None);
    let (held, mut go) = std::io::pipe().unwrap();
    let held = OwnedFd::from(held);
    let mut one = packed(1, "echo begun; read x; echo $x", &pack);
    one.stdio[0] = FdSource::Passed(0);
    rig.spawn(one, &[held.as_fd()]);
    rig.spawned();
    // It cannot end before it is told to.
    let watch = garrick_pack::Watch::default();
    watch.file(&pack);
    while of(&read(&pack), 1) != ["out begun"] {
        watch.wait(Duration::from_secs(1));
    }
    Write::write_all(&mut go, b"over\n").unwrap();
    assert_eq!(rig.exited(), (1, 0, None));
    rig.finish();
    assert_eq!(of(&read(&pack), 1), ["out begun", "out over", "end 0"]);
}

#[test]
fn a_task_that_empties_its_output_begins_anew() {
    let dir = Scratch::new("packs");
    let pack = dir.join("out.pack");
    let mut rig = Rig::new(None);
    rig.spawn(packed(1, "echo lost; : > /dev/stdout; echo kept", &pack), &[]);
    rig.spawned();
    assert_eq!(rig.exited(), (1, 0, None));
    rig.finish();
    assert_eq!(of(&read(&pack), 1), ["out kept", "end 0"]);
}

#[test]
fn a_task_that_cannot_be_started_says_why_in_its_pack() {
    let dir = Scratch::new("packs");
    let pack = dir.join("out.pack");
    let mut rig = Rig::new(None);
    let mut one = packed(1, "", &pack);
    one.argv = arguments(&["/no/such/program"]);
    rig.spawn(one, &[]);
    assert!(matches!(rig.answer(), FromLauncher::SpawnFailed { .. }));
    rig.finish();
    let text = "err slurmstepd: error: execve(): /no/such/program: No such file or directory";
    assert_eq!(of(&read(&pack), 1), [text, "end 2"]);
}

#[test]
fn packs_that_cannot_be_opened_fail_the_tasks_that_want_them() {
    let dir = Scratch::new("packs");
    dir.put("text", "not a pack\n");
    let locked = dir.join("locked");
    let _other = PackWriter::open(&locked).unwrap();
    let mut rig = Rig::new(None);
    for (token, (path, why)) in (0..).zip([
        (dir.join("text"), "not an output pack"),
        (locked, "another process is writing this output pack"),
        (dir.join("no/such/folder"), "No such file or directory"),
        (dir.path().to_owned(), "Is a directory"),
    ]) {
        rig.spawn(packed(token, "true", &path), &[]);
        match rig.answer() {
            FromLauncher::SpawnFailed { token: t, failure } => {
                let text = failure.text();
                assert_eq!((t, failure.status().code), (token, 1));
                assert!(text.starts_with("open output pack: ") && text.contains(why), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    let mut none = packed(9, "true", Path::new("/"));
    none.pack = None;
    rig.spawn(none, &[]);
    let failure = LaunchFailure::new("open output pack", "none is named", 0);
    assert_eq!(rig.answer(), FromLauncher::SpawnFailed { token: 9, failure });
    rig.finish();
}

#[test]
fn a_full_disk_holds_up_no_end_is_said_and_is_tried_again() {
    if !root_or_skip("a small file system") {
        return;
    }
    let dir = Scratch::new("packs");
    let small = Some("size=256k");
    let flags = nix::mount::MsFlags::empty();
    if let Err(e) = nix::mount::mount(Some("none"), dir.path(), Some("tmpfs"), flags, small) {
        eprintln!("skipped: a small file system: {e}");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let pack = dir.join("out.pack");
        std::fs::write(dir.join("filler"), vec![0; 160 << 10]).unwrap();
        let mut rig = Rig::new(None);
        // What it writes fits once: a process that got away keeps the first copy. (Random, so that it does not get smaller.)
        let away = "(setsid sh -c 'echo away >&5; read x' 5>&1 >&4 <&3 &) | head -n 1 > /dev/null";
        let script = format!("exec 3<&0 4>&1; {away}; head -c 60000 /dev/urandom");
        let (held, go) = std::io::pipe().unwrap();
        let (held, (mut left, write)) = (OwnedFd::from(held), pipe());
        let mut one = packed(1, &script, &pack);
        (one.stdio[0], one.stdio[2]) = (FdSource::Passed(0), FdSource::Passed(1));
        rig.spawn(one, &[held.as_fd(), write.as_fd()]);
        drop(write);
        rig.spawned();
        match rig.answer() {
            FromLauncher::PackFailed { label, message } => {
                assert_eq!(label.step.array, Some(1));
                assert!(message.contains("out.pack") && message.contains("No space left on device"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(rig.exited(), (1, 0, None));
        // Whoever wants it now is told before it runs.
        rig.spawn(packed(2, "true", &pack), &[]);
        assert!(matches!(rig.answer(), FromLauncher::SpawnFailed { token: 2, failure } if failure.errno == 0));
        // With room, nothing is missing.
        drop(go);
        assert_eq!(left.read(&mut [0]).unwrap(), 0);
        // The kernel takes a moment to give back what a file took. (Or it did, and the launcher tried again meanwhile.)
        let room = || nix::sys::statfs::statfs(dir.path()).unwrap().blocks_free() >= 20;
        let written = || std::fs::metadata(&pack).unwrap().len() > 60_000;
        while !room() && !written() {
            std::thread::yield_now();
        }
        rig.finish();
        let mut reader = PackReader::open(&pack).unwrap();
        let mut bytes = 0;
        while let Some(record) = reader.next_record() {
            if let Content::Output { bytes: piece, .. } = record.unwrap().content {
                bytes += piece.len();
            }
        }
        assert_eq!(bytes, 60_000);
    });
    nix::mount::umount2(dir.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
    outcome.unwrap();
}

#[test]
fn root_writes_packs_as_their_user() {
    if !root_or_skip("a user switch") {
        return;
    }
    let dir = Scratch::new("packs");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let pack = dir.join("out.pack");
    let mut rig = Rig::new(Some(nobody()));
    rig.set(2, TaskSetting { umask: 0o027, ..setting(1) });
    let mut one = packed(1, "id -u", &pack);
    one.setting = 2;
    rig.spawn(one, &[]);
    rig.spawned();
    assert_eq!(rig.exited(), (1, 0, None));
    rig.finish();
    assert_eq!(of(&read(&pack), 1), ["out 65534", "end 0"]);
    let file = std::fs::metadata(&pack).unwrap();
    assert_eq!((file.uid(), file.permissions().mode() & 0o777), (65534, 0o640));
}
