//! Compares a pack with files: ten thousand small steps written both ways in the same run, and the time to find one of a million.
//! `cargo run --release -p garrick-pack --example pack_rate [FOLDER]`

use garrick_model::{
    ids::{JobId, StepId, StepKey},
    state::ExitStatus,
    time::Timestamp,
    usage::TaskUsage,
};
use garrick_pack::{EndRecord, PackReader, PackWriter, Selection, Stream, TaskRun};
use std::{
    env,
    error::Error,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const FEW: u32 = 10_000;
const MANY: u32 = 1_000_000;

fn run(task: u32) -> TaskRun {
    TaskRun { step: StepId::of(JobId(5609), StepKey::task(7, task)), attempt: 0, rank: 0 }
}

fn text(task: u32) -> String {
    format!(
        "input-{task:07}.dat: 1531 lines, residual {:.9}, converged after {} iterations\n",
        f64::from(task).sin(),
        task % 97
    )
}

fn end(task: u32) -> EndRecord {
    let started = Timestamp(1_795_255_201_000 + i64::from(task));
    EndRecord {
        status: ExitStatus { code: u8::from(task.is_multiple_of(50)), signal: None },
        started,
        ended: Timestamp(started.0 + i64::from(task % 40)),
        usage: TaskUsage {
            user_us: 900 + u64::from(task % 311),
            system_us: 700,
            max_rss_kib: 3600 + u64::from(task % 13),
            ..TaskUsage::default()
        },
    }
}

/// Bytes of disk that a file takes.
fn disk(path: &Path) -> io::Result<u64> {
    Ok(path.metadata()?.blocks() * 512)
}

fn say(what: &str, steps: u32, took: Duration, rest: &str) -> io::Result<()> {
    let each = took.as_secs_f64() / f64::from(steps);
    writeln!(io::stdout(), "{what:<52} {:>9.0}/s {:>7.2} us each  {rest}", 1.0 / each, each * 1e6)
}

fn as_files(folder: &Path) -> Result<(), Box<dyn Error>> {
    let folder = folder.join("files");
    fs::create_dir(&folder)?;
    let began = Instant::now();
    for task in 0..FEW {
        File::create(folder.join(format!("slurm-5609.7_{task}.out")))?.write_all(text(task).as_bytes())?;
        File::create(folder.join(format!("slurm-5609.7_{task}.err")))?;
    }
    let took = began.elapsed();
    let mut bytes = disk(&folder)?;
    for entry in fs::read_dir(&folder)? {
        bytes += disk(&entry?.path())?;
    }
    say("10,000 steps, two files each", FEW, took, &format!("{} KiB of disk, {} files", bytes >> 10, 2 * FEW))?;
    fs::remove_dir_all(folder)?;
    Ok(())
}

fn from_files(folder: &Path) -> Result<(), Box<dyn Error>> {
    let path = folder.join("few.pack");
    let mut pack = PackWriter::open(&path)?;
    let unnamed = || File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(folder);
    let (mut making, mut taking) = (Duration::ZERO, Duration::ZERO);
    for task in 0..FEW {
        let began = Instant::now();
        let (mut out, err) = (unnamed()?, unnamed()?);
        out.write_all(text(task).as_bytes())?;
        let now = Instant::now();
        making += now - began;
        pack.take_file(&run(task), Stream::Stdout, &out, 0, u64::MAX, now)?;
        pack.take_file(&run(task), Stream::Stderr, &err, 0, u64::MAX, now)?;
        pack.end(&run(task), &end(task), now)?;
        taking += now.elapsed();
        let began = Instant::now();
        drop((out, err));
        making += began.elapsed();
    }
    let began = Instant::now();
    pack.close()?;
    taking += began.elapsed();
    let rest = format!("{} KiB of disk, 1 file", disk(&path)? >> 10);
    say("10,000 steps, two unnamed files each, into a pack", FEW, making + taking, &rest)?;
    say("   of that, the pack", FEW, taking, "")?;
    fs::remove_file(path)?;
    Ok(())
}

fn from_memory(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let path = folder.join("many.pack");
    let mut pack = PackWriter::open(&path)?;
    let now = Instant::now();
    for task in 0..MANY {
        pack.output(&run(task), Stream::Stdout, text(task).as_bytes(), now)?;
        pack.end(&run(task), &end(task), now)?;
    }
    pack.close()?;
    let took = now.elapsed();
    let raw: usize = (0..MANY).map(|task| text(task).len()).sum();
    let rest = format!("{} KiB of disk for {} KiB of output", disk(&path)? >> 10, raw >> 10);
    say("1,000,000 steps, output in memory, into a pack", MANY, took, &rest)?;
    Ok(path)
}

fn reading(path: &Path) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let mut reader = PackReader::open(path)?;
    reader.select(Selection::one(run(777_777).step))?;
    let mut found = 0;
    while let Some(record) = reader.next_record() {
        record?;
        found += 1;
    }
    let took = began.elapsed();
    say("one step of 1,000,000 read by the index", 1, took, &format!("{found} records"))?;
    let began = Instant::now();
    let mut reader = PackReader::open(path)?;
    while let Some(record) = reader.next_record() {
        record?;
    }
    say("1,000,000 steps read", MANY, began.elapsed(), "")?;
    let began = Instant::now();
    PackWriter::open(path)?;
    say("1,000,000 steps opened to be continued", 1, began.elapsed(), "")?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let parent = env::args_os().nth(1).map_or_else(env::temp_dir, PathBuf::from);
    let folder = parent.join(format!("garrick-pack-rate-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    as_files(&folder)?;
    from_files(&folder)?;
    let many = from_memory(&folder)?;
    reading(&many)?;
    fs::remove_dir_all(folder)?;
    Ok(())
}
