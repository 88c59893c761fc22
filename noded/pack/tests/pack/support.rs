//! Folders for tests, and records as values.

use garrick_model::{
    ids::{JobId, StepId, StepKey, StepNum},
    state::ExitStatus,
    time::Timestamp,
    usage::TaskUsage,
};
use garrick_pack::{Content, EndRecord, PackError, PackReader, PackWriter, Selection, Stream, TaskRun};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A fresh folder, gone when the test ends.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("garrick-pack-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A record that outlives its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    Output(TaskRun, Stream, Vec<u8>),
    End(TaskRun, EndRecord),
}

impl Kept {
    pub fn task(&self) -> &TaskRun {
        match self {
            Self::Output(task, ..) | Self::End(task, _) => task,
        }
    }

    /// Puts it into a pack.
    pub fn put(&self, pack: &mut PackWriter, now: Instant) {
        match self {
            Self::Output(task, stream, bytes) => pack.output(task, *stream, bytes, now).unwrap(),
            Self::End(task, end) => pack.end(task, end, now).unwrap(),
        }
    }
}

/// Step 7 of job 5609, say, or task 3 of it.
pub fn task(step: u32, array: Option<u32>) -> TaskRun {
    run_of(StepKey { step: StepNum::Number(step), array })
}

pub fn run_of(key: StepKey) -> TaskRun {
    TaskRun { step: StepId::of(JobId(5609), key), attempt: 0, rank: 0 }
}

pub fn ended(code: u8) -> EndRecord {
    EndRecord {
        status: ExitStatus { code, signal: None },
        started: Timestamp(1_795_255_201_000),
        ended: Timestamp(1_795_255_201_250),
        usage: TaskUsage { user_us: 1500, system_us: 700, max_rss_kib: 3800, ..TaskUsage::default() },
    }
}

/// What a reader gives now: records, and what it says about damage.
pub fn drain(reader: &mut PackReader) -> (Vec<Kept>, Vec<PackError>) {
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    while let Some(next) = reader.next_record() {
        match next {
            Ok(record) => records.push(match record.content {
                Content::Output { stream, bytes } => Kept::Output(record.task, stream, bytes.to_vec()),
                Content::End(end) => Kept::End(record.task, end),
            }),
            Err(error) => errors.push(error),
        }
    }
    (records, errors)
}

/// All records of a file without damage.
pub fn all(path: &Path) -> Vec<Kept> {
    let (records, errors) = drain(&mut PackReader::open(path).unwrap());
    assert!(errors.is_empty(), "{errors:?}");
    records
}

/// The records of some steps, and what is said about damage.
pub fn some(path: &Path, which: &str) -> (Vec<Kept>, Vec<PackError>) {
    let mut reader = PackReader::open(path).unwrap();
    reader.select(picked(which)).unwrap();
    drain(&mut reader)
}

pub fn picked(which: &str) -> Selection {
    Selection { picks: vec![garrick_pack::Pick { job: None, het: None, which: which.parse().unwrap() }] }
}

pub fn length(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

/// Changes a byte of a file.
pub fn spoil(path: &Path, at: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[usize::try_from(at).unwrap()] ^= 0x55;
    std::fs::write(path, bytes).unwrap();
}
