//! The best that the machine can do.

use super::Fallible;
use garrick_events::event::ControllerEvent;
use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

/// Long enough for a few hundred syncs of a slow disk.
const MEASURED: Duration = Duration::from_secs(1);

/// Appends of so many bytes with an `fdatasync` each, one after the other, a second.
pub fn syncs_per_second(folder: &Path, bytes: u64) -> Fallible<f64> {
    let path = folder.join("floor");
    let mut file = File::create(&path)?;
    let record = vec![7; usize::try_from(bytes)?];
    let (began, mut count) = (Instant::now(), 0_u32);
    while began.elapsed() < MEASURED {
        file.write_all(&record)?;
        file.sync_data()?;
        count += 1;
    }
    let rate = f64::from(count) / began.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(rate)
}

/// Reads and decodes every record of a controller's journal. Seconds, and bytes.
pub fn read_journal(state: &Path) -> Fallible<(f64, u64)> {
    let began = Instant::now();
    let mut bytes = 0;
    for entry in fs::read_dir(state)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "journal" || name.starts_with("snapshot.") || name.starts_with("journal.") {
            let mut reader = garrick_journal::Reader::open(&path)?;
            while let Some(record) = reader.next_record()? {
                std::hint::black_box(record.decode::<ControllerEvent>()?);
            }
            bytes += reader.length();
        }
    }
    Ok((began.elapsed().as_secs_f64(), bytes))
}
