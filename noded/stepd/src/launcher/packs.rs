//! Output packs, as the launcher writes them: a task writes to files without names; their content is copied into the pack when
//! the task is over, and for longer tasks once a second before that, so that a pack can be followed. [`garrick_pack`] writes the
//! pack; this module decides when, and handles failures.
//!
//! If a pack cannot be opened, or could not be written to and still cannot, tasks that need it fail before they run. A later
//! failure loses output: the task's end is reported nevertheless, and so is the loss
//! ([`FromLauncher::PackFailed`](garrick_model::messages::launcher::FromLauncher)).

use garrick_kernel::files::nameless;
use garrick_model::{
    messages::{
        launch_failure::LaunchFailure,
        launcher::{FdSource, SpawnTask, TaskLabel},
        shepherd::Stream,
    },
    time::Timestamp,
};
use garrick_pack::{EndRecord, PackError, PackWriter, TaskRun};
use nix::fcntl::{FallocateFlags, fallocate};
use std::{
    collections::HashMap,
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

/// How long a task runs before what it wrote so far is copied, and how long until that is done again.
pub(super) const COPY_AFTER: Duration = Duration::from_secs(1);
/// Most bytes of one stream copied in one go while a task runs.
const LIVE_BYTES: u64 = 8 << 20;
/// Most bytes of one stream copied in one go once its task is over: so long does everything else wait at most.
const TURN_BYTES: u64 = 4 << 20;
/// What was copied is given back to the file system in pieces of this size at least.
const PUNCH_BYTES: u64 = 4 << 20;
/// Packs kept open although no task writes to them. A pattern may make a file for each step.
const MOST_IDLE: usize = 16;

/// A failure to tell of.
pub(super) type Told = (TaskLabel, String);

/// A task's streams on their way into a pack.
#[derive(Debug)]
pub(super) struct Capture {
    run: TaskRun,
    pack: Rc<str>,
    started: Timestamp,
    since: Instant,
    /// Standard output and error, where they go into the pack.
    streams: [Option<Captured>; 2],
}

#[derive(Debug)]
struct Captured {
    file: File,
    /// Copied up to there.
    next: u64,
    punched: u64,
}

impl Capture {
    /// What a task's descriptor 1 or 2 is.
    pub(super) fn file(&self, descriptor: usize) -> Option<BorrowedFd<'_>> {
        Some(self.streams.get(descriptor.checked_sub(1)?)?.as_ref()?.file.as_fd())
    }

    /// Whose.
    pub(super) fn label(&self) -> TaskLabel {
        label(&self.run)
    }

    /// Whether what it wrote is to be copied although it runs.
    pub(super) fn is_long(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= COPY_AFTER
    }
}

fn label(run: &TaskRun) -> TaskLabel {
    TaskLabel {
        step: run.step,
        attempt: run.attempt,
        rank: run.rank,
        own_cgroup: false,
        epilog: false,
        profiling: Default::default(),
    }
}

#[derive(Debug)]
struct Pack {
    writer: PackWriter,
    /// Tasks that write to it.
    users: usize,
    used: Instant,
    /// The last write failed.
    failing: bool,
}

/// The packs that are open.
#[derive(Debug, Default)]
pub(super) struct Packs {
    open: HashMap<Rc<str>, Pack>,
}

const STAGE: &str = "open output pack";

fn not_opened(e: &PackError) -> LaunchFailure {
    LaunchFailure::new(STAGE, e.to_string(), 0)
}

impl Packs {
    /// Before a task is started: its pack, and files for its streams. `None` for one without.
    pub(super) fn begin(&mut self, task: &SpawnTask, now: Instant) -> Result<Option<Box<Capture>>, LaunchFailure> {
        if !task.stdio.contains(&FdSource::Pack) {
            return Ok(None);
        }
        let path = task.pack.as_deref().ok_or_else(|| LaunchFailure::new(STAGE, "none is named", 0))?;
        let pack = self.pack(path, now)?;
        let mut streams = [None, None];
        for (stream, source) in streams.iter_mut().zip(&task.stdio[1..]) {
            if *source == FdSource::Pack {
                let file = capture_file(path)?;
                *stream = Some(Captured { file, next: 0, punched: 0 });
            }
        }
        let TaskLabel { step, attempt, rank, .. } = task.label;
        let run = TaskRun { step, attempt, rank };
        if let Some(open) = self.open.get_mut(&pack) {
            open.users += 1;
        }
        Ok(Some(Box::new(Capture { run, pack, started: Timestamp::now(), since: now, streams })))
    }

    /// The pack of that path, which takes records.
    fn pack(&mut self, path: &str, now: Instant) -> Result<Rc<str>, LaunchFailure> {
        if let Some((key, pack)) = self.open.get_key_value(path).map(|(key, _)| Rc::clone(key)).and_then(|key| {
            let pack = self.open.get_mut(&key)?;
            Some((key, pack))
        }) {
            if pack.failing {
                pack.writer.flush(now).map_err(|e| not_opened(&e))?;
                pack.failing = false;
            }
            pack.used = now;
            return Ok(key);
        }
        let writer = PackWriter::open(Path::new(path)).map_err(|e| not_opened(&e))?;
        let key: Rc<str> = path.into();
        self.open.insert(Rc::clone(&key), Pack { writer, users: 0, used: now, failing: false });
        Ok(key)
    }

    /// Copies what a task wrote, a bounded part of it; true when there is more.
    fn copy(&mut self, capture: &mut Capture, most: u64, now: Instant) -> Result<bool, PackError> {
        let Some(pack) = self.open.get_mut(&capture.pack) else { return Ok(false) };
        let mut more = false;
        for (captured, stream) in capture.streams.iter_mut().zip([Stream::Stdout, Stream::Stderr]) {
            let Some(captured) = captured else { continue };
            // A task that empties its output (`> /dev/stdout`) begins anew.
            if captured.next > 0 && captured.file.metadata().is_ok_and(|m| m.len() < captured.next) {
                (captured.next, captured.punched) = (0, 0);
            }
            match pack.writer.take_file(&capture.run, stream, &captured.file, captured.next, most, now) {
                Ok(taken) => {
                    captured.next = taken.next;
                    more |= taken.more;
                }
                Err(refused) => {
                    captured.next += refused.taken;
                    pack.failing = true;
                    return Err(refused.cause);
                }
            }
        }
        Ok(more)
    }

    /// Copies what a running task wrote since. A failure is not told of: it is tried again.
    pub(super) fn copy_live(&mut self, capture: &mut Capture, now: Instant) {
        let _ = self.copy(capture, LIVE_BYTES, now);
        for captured in capture.streams.iter_mut().flatten() {
            if captured.next - captured.punched >= PUNCH_BYTES {
                let (from, bytes) = (captured.punched, captured.next - captured.punched);
                let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                let range = (i64::try_from(from), i64::try_from(bytes));
                if let (Ok(from), Ok(bytes)) = range {
                    // Only saves space.
                    let _ = fallocate(&captured.file, flags, from, bytes);
                }
                captured.punched = captured.next;
            }
        }
    }

    /// Copies part of what is left of a task that is over; true when there is more, and this is to be called again.
    pub(super) fn copy_rest(&mut self, capture: &mut Capture, now: Instant) -> Result<bool, PackError> {
        self.copy(capture, TURN_BYTES, now)
    }

    /// The last record of a task.
    pub(super) fn finish(
        &mut self,
        capture: &Capture,
        status: garrick_model::state::ExitStatus,
        usage: garrick_model::usage::TaskUsage,
        now: Instant,
    ) -> Result<(), PackError> {
        let Some(pack) = self.open.get_mut(&capture.pack) else { return Ok(()) };
        pack.users -= 1;
        pack.used = now;
        let end = EndRecord { status, started: capture.started, ended: Timestamp::now(), usage };
        // With the last task that writes to it, all is in the file before the end is told: who waited for the steps may read
        // the pack at once.
        let written = pack.writer.end(&capture.run, &end, now).and_then(|()| match pack.users {
            0 => pack.writer.flush(now),
            _ => Ok(()),
        });
        pack.failing |= written.is_err();
        written
    }

    /// The records of a task that could not be started: why, on its standard error, and its end.
    pub(super) fn refuse(&mut self, capture: &Capture, failure: &LaunchFailure, now: Instant) -> Result<(), PackError> {
        if let Some(pack) = self.open.get_mut(&capture.pack) {
            let text = format!("slurmstepd: error: {}\n", failure.text());
            if let Err(refused) = pack.writer.output(&capture.run, Stream::Stderr, text.as_bytes(), now) {
                pack.failing = true;
                pack.users -= 1;
                return Err(refused.cause);
            }
        }
        self.finish(capture, failure.status(), garrick_model::usage::TaskUsage::default(), now)
    }

    /// None is open.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// When [`Packs::keep`] is to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.values().filter_map(|pack| pack.writer.due()).min()
    }

    /// Writes what is due, and closes packs that nobody has used for long when there are many. Gives back what cannot be
    /// written: it is said once, and tried again.
    pub(super) fn keep(&mut self, now: Instant) -> Vec<Told> {
        let mut told = Vec::new();
        for pack in self.open.values_mut() {
            match pack.writer.flush_if_due(now) {
                Ok(()) => pack.failing &= pack.writer.due().is_some(),
                Err(e) => {
                    if !std::mem::replace(&mut pack.failing, true) {
                        told.extend(lost(&pack.writer, &e));
                    }
                }
            }
        }
        if self.open.len() > MOST_IDLE {
            let idle = self.open.iter().filter(|(_, p)| p.users == 0);
            let mut idle: Vec<_> = idle.map(|(key, p)| (p.used, Rc::clone(key))).collect();
            idle.sort_unstable();
            idle.truncate(idle.len().saturating_sub(MOST_IDLE));
            told.extend(idle.iter().filter_map(|(_, key)| self.close(key)));
        }
        told
    }

    fn close(&mut self, key: &str) -> Option<Told> {
        let mut pack = self.open.remove(key)?;
        let e = pack.writer.close().err()?;
        lost(&pack.writer, &e)
    }

    /// Writes and closes all.
    pub(super) fn close_all(&mut self) -> Vec<Told> {
        let keys: Vec<Rc<str>> = self.open.keys().cloned().collect();
        keys.iter().filter_map(|key| self.close(key)).collect()
    }
}

/// What a pack that cannot be written holds: the first task of it, and how many there are.
fn lost(writer: &PackWriter, e: &PackError) -> Option<Told> {
    let waiting = writer.waiting();
    let others = match waiting.len() {
        0 | 1 => String::new(),
        n => format!(" (and {} more tasks)", n - 1),
    };
    waiting.first().map(|run| (label(run), format!("{e}{others}")))
}

/// A file for what a task writes: beside the pack, so that it is on a file system that can hold it; where that folder is
/// not this user's to write, in /tmp.
fn capture_file(pack: &str) -> Result<File, LaunchFailure> {
    let folder = Path::new(pack).parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = match nameless(folder) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS)) => {
            nameless(Path::new("/tmp"))
        }
        made => made,
    };
    made.map_err(|e| {
        LaunchFailure::new(STAGE, format!("a file for output beside {pack}"), e.raw_os_error().unwrap_or(libc::EIO))
    })
}
