//! Bytes of every version of the format: they read back for ever, and are written on.

use crate::support::{Kept, Scratch, all, ended, run_of, some, task};
use garrick_model::{
    ids::{JobId, StepId, StepKey, StepNum},
    state::ExitStatus,
    time::Timestamp,
    usage::TaskUsage,
};
use garrick_pack::{EndRecord, PackReader, PackWriter, Stream, Tail, TaskRun};
use std::{path::PathBuf, time::Instant};

fn sample(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", name].iter().collect()
}

/// What is in the sample of version 1.
fn version_1() -> Vec<Kept> {
    let out = |run, text: &str| Kept::Output(run, Stream::Stdout, text.as_bytes().to_vec());
    let err = |run, text: &str| Kept::Output(run, Stream::Stderr, text.as_bytes().to_vec());
    let plain = task(3, None);
    let array = TaskRun { attempt: 1, rank: 2, ..task(7, Some(123)) };
    let batch = run_of(StepKey::BATCH);
    let part = TaskRun { step: StepId { het: Some(1), ..plain.step }, ..plain };
    let next = TaskRun { step: StepId::of(JobId(5610), StepKey { step: StepNum::Number(0), array: None }), ..plain };
    let killed = EndRecord {
        status: ExitStatus { code: 0, signal: Some(9) },
        started: Timestamp(1_795_255_201_000),
        ended: Timestamp(1_795_341_601_007),
        usage: TaskUsage { user_us: 86_400_000_000, system_us: 12, max_rss_kib: 5_000_000, ..TaskUsage::default() },
    };
    vec![
        out(plain, "plain\n"),
        err(array, "array \u{fffd}\n"),
        out(plain, &"a line that repeats itself\n".repeat(40)),
        Kept::End(plain, ended(0)),
        Kept::End(array, killed),
        Kept::End(batch, ended(255)),
        out(part, "component"),
        out(next, "another job\n"),
        Kept::End(next, ended(1)),
    ]
}

#[test]
fn version_1_reads_back() {
    let path = sample("version-1.pack");
    assert_eq!(all(&path), version_1());
    assert_eq!(some(&path, "7_123").0, [version_1()[1].clone(), version_1()[4].clone()]);
    assert_eq!(some(&path, "batch").0, [version_1()[5].clone()]);
    let mut reader = PackReader::open(&path).unwrap();
    while reader.next_record().is_some() {}
    assert_eq!(reader.tail(), Tail::Closed);
}

#[test]
fn version_1_is_written_on() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    std::fs::copy(sample("version-1.pack"), &path).unwrap();
    let last = Kept::End(task(8, None), ended(0));
    let mut pack = PackWriter::open(&path).unwrap();
    last.put(&mut pack, Instant::now());
    pack.close().unwrap();
    let mut expected = version_1();
    expected.push(last);
    assert_eq!(all(&path), expected);
}

/// Makes the sample of the version that is written now. Samples of versions that have been in use are not made again.
#[test]
#[ignore = "makes tests/data/version-N.pack, by hand when the version changes"]
fn make_sample() {
    let path = sample(&format!("version-{}.pack", garrick_pack::VERSION));
    let _ = std::fs::remove_file(&path);
    let mut pack = PackWriter::open(&path).unwrap();
    version_1().iter().for_each(|record| record.put(&mut pack, Instant::now()));
    pack.close().unwrap();
}
