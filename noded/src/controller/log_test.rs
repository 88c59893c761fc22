#![allow(clippy::unwrap_used)]
//! The log in files against what a log promises, and what is particular to files.

use super::{
    log::FileLog,
    start::{Saved, start_log},
};
use garrick_actors::log::{
    Log,
    contract::{self, Bench, Opened},
};
use garrick_daemon::journal::{JournalError, JournalWriter, series};
use garrick_events::{
    event::ControllerEvent,
    progress::Position,
    records::{job::JobRecord, job_event::JobEvent, node::SavedNode},
};
use garrick_journal::{Form, Reader};
use garrick_kernel::scratch::Scratch;
use garrick_model::{
    ids::{JobId, Sluid},
    messages::encoded_bytes,
    time::Timestamp,
};
use garrick_runtime::ReplyTo;
use serde_bytes::ByteBuf;
use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, mpsc::channel},
    thread::JoinHandle,
};

/// Holds the writer up before it writes.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn close(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(self.opened.wait_while(self.closed.lock().unwrap(), |closed| *closed).unwrap());
    }
}

struct InFiles {
    folder: Scratch,
    gate: Arc<Gate>,
    floor: u64,
    running: Option<(Arc<FileLog>, JoinHandle<()>)>,
    epoch: u64,
}

impl InFiles {
    fn new() -> Self {
        Self { folder: Scratch::new("log"), gate: Arc::default(), floor: u64::MAX, running: None, epoch: 0 }
    }

    fn end(&mut self) {
        if let Some((log, thread)) = self.running.take() {
            drop(log);
            thread.join().unwrap();
        }
    }

    fn log(&self) -> &FileLog {
        &self.running.as_ref().unwrap().0
    }
}

/// A log in that folder, begun.
pub(super) fn in_files(folder: &Path) -> (Arc<FileLog>, JoinHandle<()>) {
    let mut saved = Saved::default();
    let mut series = series::open(folder, &mut saved).unwrap();
    series.begin(folder, &mut saved, 0).unwrap();
    let (log, thread) = start_log(folder, series, saved.0, u64::MAX, Box::new(|| Ok(())), unexpected).unwrap();
    (Arc::new(log), thread)
}

fn unexpected(error: &JournalError) {
    panic!("{error}");
}

/// Takes up room in the journal and none in a snapshot.
fn filler(bytes: usize) -> ControllerEvent {
    ControllerEvent::Reservation { reservation: "x".repeat(bytes), saved: None, at: None }
}

fn append(log: &FileLog, events: Vec<ControllerEvent>) -> Position {
    let (tell, told) = channel();
    log.append(events, ReplyTo::calling(move |answer| tell.send(answer).unwrap()));
    told.recv().unwrap().unwrap().unwrap()
}

impl Bench for InFiles {
    fn open(&mut self) -> Opened {
        self.end();
        let folder = self.folder.path().to_owned();
        let mut saved = Saved::default();
        let mut series = series::open(&folder, &mut saved).unwrap();
        self.epoch = series.begin(&folder, &mut saved, 0).unwrap();
        if !series.says_position() {
            series.leave_behind(&folder, &saved).unwrap();
        }
        let gate = Arc::clone(&self.gate);
        let fence = Box::new(move || {
            gate.pass();
            Ok(())
        });
        let (log, thread) = start_log(&folder, series, saved.0.clone(), self.floor, fence, unexpected).unwrap();
        let log = Arc::new(log);
        self.running = Some((Arc::clone(&log), thread));
        Opened { log, replayed: saved.0 }
    }

    fn settle(&mut self) {
        self.gate.close(false);
    }

    fn hold(&mut self) -> bool {
        self.gate.close(true);
        true
    }

    /// A batch in several records, cut off behind every seventh byte.
    fn crash(&mut self, batch: Vec<ControllerEvent>, point: usize) -> bool {
        self.end();
        let path = series::path(self.folder.path());
        let mut bytes = Vec::new();
        for record in ControllerEvent::records(batch, 80, encoded_bytes) {
            assert!(matches!(record, ControllerEvent::Part { .. }));
            Form::Epoch(self.epoch).frame(&path, &record, &mut bytes).unwrap();
        }
        let cut = (7 * point).min(bytes.len());
        OpenOptions::new().append(true).open(&path).unwrap().write_all(&bytes[..cut]).unwrap();
        7 * point < bytes.len()
    }

    fn purge(&mut self) -> bool {
        self.floor = 1;
        drop(self.open());
        append(self.log(), vec![filler(100_000)]);
        self.end();
        self.floor = u64::MAX;
        true
    }

    fn busy(&mut self) -> bool {
        self.gate.close(true);
        while self.log().refuses().is_none() {
            self.log().append(Vec::new(), ReplyTo::channel().0);
        }
        true
    }

    /// Whoever is fenced ends.
    fn lose(&mut self) -> bool {
        false
    }
}

impl Drop for InFiles {
    fn drop(&mut self) {
        self.gate.close(false);
        if let Some((log, thread)) = self.running.take() {
            drop(log);
            let _ = thread.join();
        }
    }
}

#[test]
fn the_log_in_files_keeps_its_promises() {
    contract::keeps_its_promises(InFiles::new);
}

fn files(folder: &Path) -> Vec<PathBuf> {
    series::files(folder).unwrap()
}

fn first_record(path: &Path) -> ControllerEvent {
    Reader::open(path).unwrap().next_record().unwrap().unwrap().decode().unwrap()
}

#[test]
fn each_file_says_at_which_position_it_begins_and_old_files_can_be_followed_through() {
    let mut bench = InFiles::new();
    bench.floor = 1000;
    drop(bench.open());
    let (tell, told) = channel();
    bench.log().register("replay", ReplyTo::calling(move |answer| tell.send(answer).unwrap()));
    let begun = told.recv().unwrap().unwrap().unwrap();
    let node = |n: u64| ControllerEvent::Node { node: format!("n{}", n % 3), saved: Box::default() };
    for n in 0..300 {
        append(bench.log(), vec![node(n), node(n + 1)]);
    }
    for _ in 0..2 {
        // From a process that wrote them, and from one that found them.
        let log = bench.log();
        let last = log.committed();
        let mut follower = log.subscribe(begun.next()).unwrap();
        let mut nodes = Vec::new();
        while let Some(committed) = follower.try_next().unwrap() {
            if matches!(*committed.event, ControllerEvent::Node { .. }) {
                nodes.push((*committed.event).clone());
            }
        }
        assert_eq!(follower.position(), last.next());
        assert_eq!(nodes, (0..300).flat_map(|n| [node(n), node(n + 1)]).collect::<Vec<_>>());
        drop(follower);
        // While it is at work, it removes snapshots that newer ones replace.
        bench.end();
        let journals: Vec<PathBuf> = files(bench.folder.path());
        assert!(journals.len() > 5, "{journals:?}");
        for path in journals {
            assert!(matches!(first_record(&path), ControllerEvent::Base { .. }), "{}", path.display());
        }
        drop(bench.open());
    }
}

/// What an earlier version wrote is numbered from what it holds, and goes on being so.
#[test]
fn a_journal_of_an_earlier_version_opens_and_its_positions_stay() {
    let mut bench = InFiles::new();
    let folder = bench.folder.path().to_owned();
    let node = |n: u64| ControllerEvent::Node { node: format!("n{n}"), saved: Box::default() };
    // A snapshot of three events, a closed file of two, one that was written last.
    for (name, nodes) in [("snapshot.1", 1..4), ("journal.2", 4..6), ("journal", 6..7)] {
        garrick_journal::replace_as(&folder.join(name), Form::Epoch(4), nodes.map(node)).unwrap();
    }
    let Opened { log, replayed } = bench.open();
    assert_eq!(replayed.nodes.len(), 6);
    // With the beginning of this controller.
    assert_eq!((log.committed(), log.oldest()), (Position(7), Position(4)));
    let mut follower = log.subscribe(Position(4)).unwrap();
    for n in 4..7 {
        assert_eq!(*follower.try_next().unwrap().unwrap().event, node(n));
    }
    assert!(matches!(log.subscribe(Position(3)).err(), Some(garrick_actors::log::FollowError::Purged { .. })));
    append(bench.log(), vec![node(9)]);
    drop((follower, log));
    // Given up: what it stood for is in no file.
    fs::remove_file(folder.join("snapshot.3")).unwrap();
    let Opened { log, replayed } = bench.open();
    assert_eq!((log.committed(), replayed.nodes.len()), (Position(9), 7));
}

/// A number from a seed (xorshift64).
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed >> 8
}

/// A job's record, from what an earlier version saved.
fn job_record() -> JobRecord {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "journal/tests/data/version-2-controller.journal"].iter().collect();
    let mut reader = Reader::open(&path).unwrap();
    loop {
        let event: ControllerEvent = reader.next_record().unwrap().unwrap().decode().unwrap();
        if let ControllerEvent::Job { event, .. } = event
            && let JobEvent::Submitted(record) = *event
            && record.array.is_none()
        {
            return *record;
        }
    }
}

fn submitted(record: &JobRecord, job: u32) -> ControllerEvent {
    let record = JobRecord { id: JobId(job), sluid: Sluid(u64::from(job)), ..record.clone() };
    ControllerEvent::Job { job: JobId(job), event: Box::new(JobEvent::Submitted(Box::new(record))) }
}

/// Snapshots are made while others append: whatever was written, a start comes to what the log has, and to what all events come
/// to that were ever appended.
#[test]
fn a_start_from_a_snapshot_and_the_rest_comes_to_what_all_events_come_to() {
    let record = job_record();
    for seed in 1..=4 {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
        let mut bench = InFiles::new();
        bench.floor = 20_000;
        let mut all = bench.open().replayed;
        let mut snapshots = Vec::new();
        for round in 0..6 {
            for _ in 0..60 {
                let batch: Vec<ControllerEvent> = (0..next(&mut seed) % 4 + 1)
                    .map(|_| {
                        let (what, which) = (next(&mut seed) % 5, next(&mut seed) % 700);
                        match what {
                            0 | 1 => submitted(&record, u32::try_from(which).unwrap() + 1),
                            2 => ControllerEvent::Node { node: format!("n{}", which % 9), saved: Box::default() },
                            3 => ControllerEvent::Partition {
                                partition: format!("p{}", which % 5),
                                saved: Box::default(),
                            },
                            _ => filler(usize::try_from(which).unwrap()),
                        }
                    })
                    .collect();
                batch.iter().for_each(|event| all.apply(event).unwrap());
                assert_eq!(append(bench.log(), batch), all.progress.position);
            }
            let value = bench.log().value().copy().unwrap();
            assert_eq!(value, all);
            let Opened { log, replayed } = bench.open();
            // This start is an event, too.
            all.apply(&ControllerEvent::Started { epoch: bench.epoch }).unwrap();
            assert_eq!(replayed, all, "round {round}");
            drop(log);
            let is_snapshot = |path: &PathBuf| path.extension().is_some() && path.file_stem().unwrap() == "snapshot";
            snapshots.extend(files(bench.folder.path()).into_iter().filter(is_snapshot));
        }
        snapshots.dedup();
        assert!(snapshots.len() > 3, "{snapshots:?}");
    }
}

/// The files say more than what is in memory then: nothing is made of that, and nothing is removed.
#[test]
fn no_snapshot_is_made_of_what_an_event_did_not_fit() {
    let mut bench = InFiles::new();
    bench.floor = 1000;
    drop(bench.open());
    let log = Arc::clone(&bench.running.as_ref().unwrap().0);
    append(&log, vec![filler(500)]);
    assert!(log.value().copy().is_ok());
    append(&log, vec![ControllerEvent::Job { job: JobId(7), event: Box::new(JobEvent::Purged) }]);
    assert!(log.value().copy().is_err());
    for _ in 0..10 {
        append(&log, vec![filler(1000)]);
    }
    drop(log);
    bench.end();
    assert_eq!(files(bench.folder.path()), [series::path(bench.folder.path())]);
}

#[test]
#[ignore = "prints times: how long commits wait for a snapshot, and how long it takes, from the value and from the files as before"]
fn snapshots_of_many_jobs() {
    use std::time::Instant;
    let (record, jobs) = (job_record(), 100_000);
    let environment: Vec<ByteBuf> =
        (0..30).map(|n| ByteBuf::from(format!("VARIABLE_{n}={}", "x".repeat(20)))).collect();
    let mut bench = InFiles::new();
    drop(bench.open());
    for first in (1..=jobs).step_by(1000) {
        let with_own = |job: u32| {
            let mut record = record.clone();
            Arc::make_mut(&mut record.spec).environment = Arc::new(environment.clone());
            submitted(&record, job)
        };
        append(bench.log(), (first..first + 1000).map(with_own).collect());
    }
    let folder = bench.folder.path().to_owned();
    let value = bench.log().value();
    for round in 0..5 {
        // As it was made before: of what the closed files say.
        let (began, mut read) = (Instant::now(), Saved::default());
        series::open(&folder, &mut read).unwrap();
        let reading = began.elapsed();
        let bytes =
            garrick_daemon::journal::replace_as(&folder.join("before"), Form::Epoch(1), read.0.into_events()).unwrap();
        let (before, began) = (began.elapsed(), Instant::now());
        let copy = value.copy().unwrap();
        let pause = began.elapsed();
        let began = Instant::now();
        let same =
            garrick_daemon::journal::replace_as(&folder.join("now"), Form::Epoch(1), copy.into_events()).unwrap();
        let now = began.elapsed();
        assert_eq!(fs::read(folder.join("before")).unwrap().len(), fs::read(folder.join("now")).unwrap().len());
        assert_eq!((bytes, jobs as usize), (same, value.jobs().len()));
        // While a copy is there each change copies what it changes.
        let copy = value.copy().unwrap();
        let change = |job: u32| {
            let began = Instant::now();
            let event = JobEvent::Eligible { at: Timestamp(i64::from(round)) };
            value.advance(&[ControllerEvent::Job { job: JobId(job), event: Box::new(event) }]);
            began.elapsed()
        };
        let (mut first, mut second): (Vec<_>, Vec<_>) =
            (0..1000).map(|n| (change(n * 100 + 1), change(n * 100 + 1))).unzip();
        first.sort();
        second.sort();
        drop(copy);
        println!(
            "round {round}: {jobs} jobs, {bytes} bytes: before {before:?} (reading {reading:?}); now commits wait {pause:?} and \
             writing takes {now:?}; a change meanwhile {:?} (most {:?}), the next of that job {:?}",
            first[500], first[999], second[500]
        );
    }
}

/// Time of processors that this process has used, its threads together, in ticks of the kernel (100 a second).
fn ticks() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    stat.rsplit(' ').rev().collect::<Vec<_>>()[13..15].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum()
}

/// Appends so many batches as fast as they come; how many a second, and microseconds of processors for each.
fn rate(appends: u32, mut append: impl FnMut(Vec<ControllerEvent>, std::sync::mpsc::Sender<bool>)) -> (f64, f64) {
    let (tell, told) = channel();
    let (began, used) = (std::time::Instant::now(), ticks());
    for n in 0..appends {
        let saved = SavedNode { comment: Some(format!("number {n}")), ..SavedNode::default() };
        append(vec![ControllerEvent::Node { node: format!("n{}", n % 100), saved: Box::new(saved) }], tell.clone());
        // Not more at a time than may wait.
        if n >= 10_000 {
            assert!(told.recv().unwrap());
        }
    }
    assert!((0..appends.min(10_000)).all(|_| told.recv().unwrap()));
    let appends = f64::from(appends);
    (appends / began.elapsed().as_secs_f64(), (ticks() - used) * 10_000.0 / appends)
}

#[test]
#[ignore = "prints rates: of the writer alone, as before there were positions, and of the log over it"]
fn appends_per_second() {
    const APPENDS: u32 = 200_000;
    for round in 0..7 {
        let alone = {
            let mut bench = InFiles::new();
            let folder = bench.folder.path().to_owned();
            let mut saved = Saved::default();
            let mut series = series::open(&folder, &mut saved).unwrap();
            series.begin(&folder, &mut saved, 0).unwrap();
            let (path, fence) = (series::path(&folder), Box::new(|| Ok(())));
            let (writer, thread) = JournalWriter::start(&path, series.into(), None, fence).unwrap();
            let rate = rate(APPENDS, |events, tell| {
                let (done, records) = (ReplyTo::calling(move |_: Result<bool, _>| tell.send(true).unwrap()), events);
                let records = ControllerEvent::records(records, 8 << 20, encoded_bytes);
                writer.append(&records, Box::new(move |outcome| done.reply(outcome.is_ok())));
            });
            drop(writer);
            thread.join().unwrap();
            bench.end();
            rate
        };
        let [unfollowed, followed] = [false, true].map(|follow| {
            let mut bench = InFiles::new();
            let Opened { log, .. } = bench.open();
            let follower = follow.then(|| log.subscribe(Position(1)).unwrap());
            let last = Position(log.committed().0 + u64::from(APPENDS));
            let follows = follower.map(|mut follower| {
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(async { while follower.next().await.unwrap().position < last {} });
                })
            });
            let rate = rate(APPENDS, |events, tell| {
                log.append(events, ReplyTo::calling(move |answer| tell.send(matches!(answer, Ok(Ok(_)))).unwrap()));
            });
            if let Some(thread) = follows {
                thread.join().unwrap();
            }
            rate
        });
        for (what, (rate, used)) in [("writer alone", alone), ("log", unfollowed), ("log with a follower", followed)] {
            println!("round {round}: {what}: {rate:.0}/s, {used:.2} us of processors each");
        }
    }
}
