//! Durable files: journals (the daemons' own) and output packs (a job's user writes them, `garrick cat` reads them).

use super::choice;
use crate::target::Target;
use garrick_events::event::ControllerEvent;
use garrick_events::steps::event::StepEvent;
use garrick_journal::{Form, Reader};
use garrick_model::ids::{JobId, StepId, StepNum};
use garrick_pack::{PackReader, PackWriter, Selection, Stream, TaskRun};
use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// A journal, its bytes as they are or put into records of either version with the right checksums.
pub(super) const JOURNALS: Target = Target {
    name: "journals",
    read: |input| {
        let (kind, bytes) = choice(input);
        let file = match kind % 4 {
            1 => with_checksums(bytes, 1),
            3 => with_checksums(bytes, 2),
            _ => bytes.to_vec(),
        };
        let Ok(mut reader) = Reader::new(file.as_slice(), Path::new("journal"), file.len() as u64) else { return };
        let (mut highest, mut counted) = (0, 0);
        while let Ok(Some(record)) = reader.next_record() {
            assert!(record.epoch >= highest, "of a fenced writer");
            (highest, counted) = (record.epoch, counted + 1);
            let _ = record.decode::<ControllerEvent>();
            let _ = record.decode::<StepEvent>();
        }
        assert_eq!(counted + reader.late().records, reader.records());
        assert!(reader.position() <= reader.length(), "behind the end");
    },
    bytes_per_byte: 400,
    base_bytes: 8 << 20,
    seeds: || {
        let mut seeds = vec![vec![0], vec![1, 1, 0xc0], vec![3, 5, 1, 0xc0, 4, 1, 0xc0, 5, 1, 0xc0]];
        let saved = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../noded/journal/tests/data");
        for entry in fs::read_dir(saved).into_iter().flatten().flatten() {
            if let Ok(bytes) = fs::read(entry.path()) {
                seeds.push([vec![0], bytes[..bytes.len().min(4096)].to_vec()].concat());
            }
        }
        seeds
    },
};

/// Each record's length in a byte before it; in version 2 its epoch in one before that.
fn with_checksums(mut bytes: &[u8], version: u8) -> Vec<u8> {
    let mut file = if version == 1 { Form::Plain } else { Form::Epoch(0) }.header().to_vec();
    loop {
        let mut checked = Vec::new();
        if version > 1 {
            let Some((epoch, rest)) = bytes.split_first() else { break };
            checked.extend(u64::from(*epoch).to_be_bytes());
            bytes = rest;
        }
        let Some((length, rest)) = bytes.split_first() else { break };
        let (payload, after) = rest.split_at(rest.len().min(usize::from(*length).max(1)));
        checked.extend(payload);
        file.extend(u32::try_from(payload.len()).unwrap_or(0).to_be_bytes());
        file.extend(crc32c::crc32c(&checked).to_be_bytes());
        file.extend(checked);
        bytes = after;
    }
    file
}

thread_local! {
    static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

/// A file of this thread's own that goes with it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn in_file(bytes: &[u8], read: impl FnOnce(&Path)) {
    SCRATCH.with_borrow_mut(|scratch| {
        let path = scratch.get_or_insert_with(|| {
            let thread = format!("{:?}", std::thread::current().id());
            Scratch(std::env::temp_dir().join(format!("garrick-fuzz-{}-{thread}.pack", std::process::id())))
        });
        if fs::write(&path.0, bytes).is_ok() {
            read(&path.0);
        }
    });
}

fn records(mut reader: PackReader, most: usize) {
    let mut count = 0;
    while let Some(record) = reader.next_record() {
        match record {
            Ok(_) | Err(garrick_pack::PackError::Damaged { .. }) => {}
            Err(_) => break,
        }
        count += 1;
        assert!(count <= most, "{count} records and damages");
    }
    let _ = reader.tail();
}

/// An output pack. An even first byte leaves its checksums as they are, an odd one puts the right ones in.
pub(super) const PACKS: Target = Target {
    name: "packs",
    read: |input| {
        let (kind, bytes) = choice(input);
        let mut file = bytes.to_vec();
        if kind % 2 == 1 {
            mend_checksums(&mut file);
        }
        in_file(&file, |path| {
            // A record is two bytes at least, and one LZ4 block may hold 255 times its own size.
            let most = 16 + 256 * file.len();
            if let Ok(reader) = PackReader::open(path) {
                records(reader, most);
            }
            if let Ok(mut reader) = PackReader::open(path)
                && reader.select(Selection::one(step(3))).is_ok()
            {
                records(reader, most);
            }
        });
    },
    bytes_per_byte: 2000,
    // A block's header may say that 1 MiB is in it.
    base_bytes: 8 << 20,
    seeds: || {
        let path = std::env::temp_dir().join(format!("garrick-fuzz-seed-{}.pack", std::process::id()));
        let made = made_pack(&path);
        let _ = fs::remove_file(&path);
        made.into_iter().flat_map(|bytes| [[vec![0], bytes.clone()].concat(), [vec![1], bytes].concat()]).collect()
    },
};

fn step(number: u32) -> StepId {
    StepId { job: JobId(1), het: None, step: StepNum::Number(number), array: None }
}

fn made_pack(path: &Path) -> Option<Vec<u8>> {
    let now = Instant::now();
    let _ = fs::remove_file(path);
    let mut writer = PackWriter::open(path).ok()?;
    for number in 0..4 {
        let task = TaskRun { step: step(number), attempt: 0, rank: 0 };
        writer.output(&task, Stream::Stdout, b"one line\n", now).ok()?;
        writer.flush(now).ok()?;
    }
    writer.close().ok()?;
    fs::read(path).ok()
}

/// Follows the blocks and puts the checksums in that their bytes have, so that what is behind them is reached.
fn mend_checksums(file: &mut [u8]) {
    const FILE_HEADER: usize = 16;
    const HEADER: usize = 72;
    let put = |file: &mut [u8], at: usize, sum: u32| file[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    if file.len() >= FILE_HEADER {
        let sum = crc32c::crc32c(&file[..12]);
        put(file, 12, sum);
    }
    let mut at = FILE_HEADER;
    while file.len() >= at + HEADER {
        let stored = u32::from_le_bytes([file[at + 16], file[at + 17], file[at + 18], file[at + 19]]) as usize;
        let Some(end) = (at + HEADER).checked_add(stored).filter(|end| *end <= file.len()) else { return };
        let sum = crc32c::crc32c(&file[at + HEADER..end]);
        put(file, at + 24, sum);
        let sum = crc32c::crc32c(&file[at..at + 68]);
        put(file, at + 68, sum);
        at = end;
    }
}
