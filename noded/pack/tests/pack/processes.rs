//! Writers in processes of their own: killed, and with a disk that is full.

use crate::support::{Kept, Scratch, all, ended, length, some, task};
use garrick_pack::{PackError, PackReader, PackWriter, Presence, Stream, Tail, Watch};
use std::{
    env,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

const PACK: &str = "GARRICK_TEST_PACK";
/// In units of 512 bytes, as the shell counts them.
const LIMIT: u64 = 256;

/// This program again, to run one of the tests that are ignored otherwise, after some words of shell.
fn again(shell: &str, test: &str, path: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{shell} exec \"$0\" --exact processes::{test} --ignored --nocapture");
    command.arg("-c").arg(script).arg(env::current_exe().unwrap()).env(PACK, path);
    command
}

fn pack_path() -> PathBuf {
    PathBuf::from(env::var_os(PACK).unwrap())
}

/// Does not compress: the high bytes of a multiplicative generator.
fn noise(step: u32) -> Vec<u8> {
    let mut state = u64::from(step) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..30_000).map(|_| next()).collect()
}

/// The limit for a file's size breaks a write off as a full disk does, and needs no rights.
#[test]
fn a_full_disk_loses_nothing_that_was_taken() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let output = again(&format!("trap '' XFSZ; ulimit -f {LIMIT};"), "under_a_limit", &path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");

    let before = all(&path);
    assert!(!before.is_empty() && length(&path) <= LIMIT * 512);
    let mut pack = PackWriter::open(&path).unwrap();
    assert_eq!(pack.cut_bytes(), 0, "it was cut off when the write failed");
    pack.end(&task(99, None), &ended(0), Instant::now()).unwrap();
    pack.close().unwrap();
    assert_eq!(all(&path).len(), before.len() + 1);
}

#[test]
#[ignore = "run by a_full_disk_loses_nothing_that_was_taken"]
fn under_a_limit() {
    let path = pack_path();
    let now = Instant::now();
    let mut pack = PackWriter::open(&path).unwrap();
    let mut taken = Vec::new();
    let refused: PackError = (0..)
        .find_map(|step| {
            let record = Kept::Output(task(step, None), Stream::Stdout, noise(step));
            record.put(&mut pack, now);
            taken.push(record);
            pack.flush(now).err()
        })
        .unwrap();
    assert!(refused.is_full(), "{refused}");
    assert!(refused.to_string().starts_with(&format!("cannot write {}: ", path.display())), "{refused}");
    // What is in the file is whole; what is not waits.
    let held = taken.len() - 1;
    assert!(held > 0);
    assert_eq!(all(&path), taken[..held]);
    assert_eq!(pack.waiting(), [*taken[held].task()]);
    // Another try leaves no piece behind either, and what finds no room in the block any more is refused.
    let full = length(&path);
    assert!(pack.flush(now).unwrap_err().is_full());
    let much = vec![b'x'; 1 << 20];
    let refused = pack.output(&task(77, None), Stream::Stdout, &much, now).unwrap_err();
    assert!(refused.cause.is_full() && refused.taken < 256 << 10, "{refused:?}");
    assert_eq!(length(&path), full);
    // What is small still fits.
    drop(pack);
    let mut pack = PackWriter::open(&path).unwrap();
    assert_eq!(pack.cut_bytes(), 0);
    pack.end(&task(0, None), &ended(0), now).unwrap();
    pack.close().unwrap();
    assert_eq!(all(&path).len(), held + 1);
}

/// Killed when the test is done with it, one way or the other.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_writer_leaves_every_block_that_it_wrote() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let watch = Watch::default();
    let mut before = 0;
    for _ in 0..3 {
        let grown = path.metadata().map_or(0, |m| m.len()) + (1 << 20);
        let mut writer = Writer(again("", "until_killed", &path).spawn().unwrap());
        while !path.exists() || length(&path) < grown {
            watch.file(&path);
            watch.wait(Duration::from_millis(100));
            assert_eq!(writer.0.try_wait().unwrap(), None);
        }
        let mut reader = PackReader::open(&path).unwrap();
        assert_eq!(reader.writer().unwrap(), Presence::Present);
        drop(writer);
        assert_eq!(reader.writer().unwrap(), Presence::Absent);
        let (records, errors) = crate::support::drain(&mut reader);
        assert!(errors.is_empty(), "{errors:?}");
        assert_ne!(reader.tail(), Tail::Closed);
        for (step, record) in records.iter().enumerate() {
            let step = u32::try_from(step).unwrap();
            assert!(*record == Kept::Output(task(step, None), Stream::Stdout, noise(step)), "step {step}");
        }
        assert!(records.len() > before);
        before = records.len();
    }
    let mut pack = PackWriter::open(&path).unwrap();
    pack.end(&task(5, None), &ended(0), Instant::now()).unwrap();
    pack.close().unwrap();
    let five = [Kept::Output(task(5, None), Stream::Stdout, noise(5)), Kept::End(task(5, None), ended(0))];
    assert_eq!(some(&path, "5").0, five);
}

#[test]
#[ignore = "run by a_killed_writer_leaves_every_block_that_it_wrote"]
fn until_killed() {
    let path = pack_path();
    let mut pack = PackWriter::open(&path).unwrap();
    let there = u32::try_from(all(&path).len()).unwrap();
    // An end, should nobody kill it.
    for step in there..there + 5000 {
        pack.output(&task(step, None), Stream::Stdout, &noise(step), Instant::now()).unwrap();
    }
}
