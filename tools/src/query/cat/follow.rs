//! `--follow`: shows what is in the files, and what is appended, until their writers have closed them. Waits for missing files.

use super::{
    Request,
    lines::{Lines, Sink},
    pass_on,
    sources::{self, Found},
};
use crate::output::Console;
use garrick_pack::{PackError, PackReader, Presence, Tail, Watch};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long nothing is looked at when nothing is heard: on a shared file system the kernel does not see other hosts write.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// Bytes of a file that is only just being made: less than its header.
const UNBORN: u64 = 16;

struct Followed {
    reader: PackReader,
    lines: Lines,
    done: bool,
}

pub(super) fn run(
    request: &Request,
    sink: &mut dyn Sink,
    console: &Console,
    report: &mut dyn FnMut(String),
) -> io::Result<()> {
    let watch = Watch::default();
    let mut files: BTreeMap<PathBuf, Option<Followed>> = BTreeMap::new();
    // Operands of which there is no file yet.
    let mut awaited: BTreeSet<&PathBuf> = request.files.iter().collect();
    let mut told = false;
    loop {
        for operand in &request.files {
            match found(operand, &watch) {
                Ok(paths) => {
                    for path in paths {
                        awaited.remove(operand);
                        files.entry(path).or_insert_with_key(|path| {
                            watch.file(path);
                            open(request, path).map_err(|error| report(error.to_string())).ok()
                        });
                    }
                }
                Err(error) => {
                    report(error.to_string());
                    return Ok(());
                }
            }
        }
        for followed in files.values_mut().flatten().filter(|followed| !followed.done) {
            pass(request, followed, sink, report)?;
        }
        sink.flush()?;
        if awaited.is_empty() && files.values().flatten().all(|followed| followed.done) {
            return Ok(());
        }
        if !told && files.is_empty() {
            told = true;
            console.info("waiting for the output pack to be made");
        }
        watch.wait(LOOK_AFTER);
    }
}

/// The files of an operand that have begun.
fn found(operand: &Path, watch: &Watch) -> Result<Vec<PathBuf>, PackError> {
    let folder = operand.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Before looking, so that nothing comes in between.
    watch.folder(folder);
    Ok(match sources::find(operand)? {
        Found::One(path) => {
            watch.file(&path);
            let begun = path.metadata().is_ok_and(|m| !m.is_file() || m.len() >= UNBORN);
            if begun { vec![path] } else { Vec::new() }
        }
        Found::Nodes(paths) => paths.into_iter().filter(|p| p.metadata().is_ok_and(|m| m.len() >= UNBORN)).collect(),
        Found::None => Vec::new(),
    })
}

fn open(request: &Request, path: &Path) -> Result<Followed, PackError> {
    let mut reader = PackReader::open(path)?;
    if let Some(selection) = &request.selection {
        reader.select(selection.clone())?;
    }
    Ok(Followed { reader, lines: Lines::new(request.label), done: false })
}

/// Passes on what is new in a file.
fn pass(
    request: &Request,
    followed: &mut Followed,
    sink: &mut dyn Sink,
    report: &mut dyn FnMut(String),
) -> io::Result<()> {
    let Followed { reader, lines, done } = followed;
    // Asked first: when there is no writer before the end is reached, that is the end.
    let writer = reader.writer();
    while let Some(next) = reader.next_record() {
        match next {
            Ok(record) => pass_on(request, lines, sink, &record)?,
            Err(error) => {
                sink.flush()?;
                report(error.to_string());
                if !matches!(error, PackError::Damaged { .. } | PackError::Changed { .. }) {
                    *done = true;
                    return lines.finish(sink);
                }
            }
        }
    }
    *done = match (writer, reader.tail()) {
        (Err(error), _) => {
            report(error.to_string());
            true
        }
        (Ok(Presence::Absent | Presence::Unknown), Tail::Closed) => true,
        (Ok(Presence::Absent), _) => {
            sink.flush()?;
            report(format!("{}: its writer ended without closing it", reader.path().display()));
            true
        }
        (Ok(Presence::Present), _) | (Ok(Presence::Unknown), _) => false,
    };
    if *done { lines.finish(sink) } else { Ok(()) }
}
