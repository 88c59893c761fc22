//! Records of runs: their steps, and how those ended. While a run lives, its journal is its record. When its folder is removed,
//! the journal stays below `ended/`, with a note that describes the run, until the site's limit of age or size is reached.
//! Queries are answered from these files, on a thread for which nothing else waits.
//!
//! ```text
//! SlurmdSpoolDir/ended/JOB.SLUID/run    the run's description
//!                               /steps  its step manager's journal
//! ```

use super::spool::{Spool, SpoolError};
use garrick_agent::RunKey;
use garrick_daemon::run::{
    folder::JOURNAL,
    orders::{OrdersError, StepdOrders},
};
use garrick_events::steps::event::StepEvent;
use garrick_journal::{JournalError, Reader};
use garrick_kernel::files::{self, FileError};
use garrick_model::{
    config::Config,
    ids::{ArrayTask, JobId, Sluid},
    messages::records::{RecordedOrigin, RecordedRun, RecordedStep, RecordsReply, WantedRecords},
    time::Timestamp,
};
use garrick_run::stepmgr::history::{History, Told};
use std::{
    cmp::Reverse,
    fs::File,
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The note in a folder of records.
const NOTE: &str = "run";
/// Bytes of steps in one message, about.
const PART_BYTES: usize = 256 << 10;
/// Approximate size of a step in a message, besides its texts.
const STEP_BYTES: usize = 260;

/// How long records stay: `SlurmdParameters=step_records_days=N` and `step_records_mib=N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Records of runs that ended longer ago are removed.
    pub age: Duration,
    /// Of more than so many bytes those of the runs that ended first are removed.
    pub bytes: u64,
}

/// A week, and a gibibyte.
impl Default for Retention {
    fn default() -> Self {
        Self { age: Duration::from_secs(7 * 24 * 3600), bytes: 1 << 30 }
    }
}

impl Retention {
    /// As the site says.
    pub fn of(config: &Config) -> Self {
        let number = |name| config.slurmd_parameters.value(name).and_then(|text| text.parse::<u64>().ok());
        let default = Self::default();
        Self {
            age: number("step_records_days")
                .map_or(default.age, |days| Duration::from_secs(days.saturating_mul(86_400))),
            bytes: number("step_records_mib").map_or(default.bytes, |mib| mib.saturating_mul(1 << 20)),
        }
    }

    /// Which of these go: names, ends and sizes.
    fn expired(self, mut kept: Vec<(PathBuf, SystemTime, u64)>, now: SystemTime) -> Vec<PathBuf> {
        kept.sort_by_key(|(_, ended, _)| Reverse(*ended));
        let mut bytes = 0u64;
        // What goes takes no room: one large journal does not push out all that are older.
        let mut stays = |(_, ended, size): &(PathBuf, SystemTime, u64)| {
            let fits = bytes.saturating_add(*size) <= self.bytes;
            let stays = fits && now.duration_since(*ended).unwrap_or_default() <= self.age;
            bytes += if stays { *size } else { 0 };
            stays
        };
        kept.into_iter().filter(|entry| !stays(entry)).map(|(path, ..)| path).collect()
    }
}

/// Records whose steps can be read, whatever happens to their folder.
#[derive(Debug)]
pub struct Found {
    /// Whose.
    pub run: RecordedRun,
    path: PathBuf,
    journal: File,
}

impl Found {
    /// `None`: the journal does not exist.
    fn open(run: RecordedRun, path: PathBuf) -> Result<Option<Self>, FileError> {
        match File::open(&path) {
            Ok(journal) => Ok(Some(Self { run, path, journal })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(FileError { operation: "open", path, cause }),
        }
    }
}

fn note_of(orders: &StepdOrders, end: Option<Timestamp>) -> RecordedRun {
    let (launch, credential) = (&orders.launch, &orders.credential);
    RecordedRun {
        job: credential.job,
        sluid: credential.sluid,
        node: orders.node.clone(),
        uid: credential.uid,
        user: credential.user.clone(),
        name: launch.spec.name.clone(),
        work_dir: launch.spec.work_dir.clone(),
        array: launch.spec.array_task,
        nodes: credential.nodes.iter().map(|node| node.name.clone()).collect(),
        cpus: credential.nodes.iter().map(|node| node.share.cpus.len()).sum(),
        partition: credential.partition.clone(),
        start: launch.start_time,
        end,
    }
}

impl Spool {
    fn ended(&self) -> PathBuf {
        self.root().join("ended")
    }

    /// Removes a run's folder; what its step manager wrote of its steps stays as the run's records.
    pub fn close_run(&self, run: RunKey, now: Timestamp) -> Result<(), SpoolError> {
        let kept = self.keep_records(run, now);
        self.remove_run(run)?;
        kept
    }

    fn keep_records(&self, run: RunKey, now: Timestamp) -> Result<(), SpoolError> {
        let folder = self.run(run);
        let journal = folder.join(JOURNAL);
        if !journal.exists() {
            return Ok(());
        }
        let Some(orders) = StepdOrders::begun(&folder)? else { return Ok(()) };
        let (ended, name) = (self.ended(), format!("{}.{}", run.job, run.sluid));
        let records = ended.join(name);
        let note = rmp_serde::to_vec_named(&note_of(&orders, Some(now)))
            .map_err(|e| OrdersError::Form { path: records.join(NOTE), cause: e.to_string() })?;
        // The run's folder becomes that of its records, which is less work than to make another.
        files::replace(&folder.join(NOTE), &note, 0o600)?;
        files::keep_folder(&ended, 0o755)?;
        files::keep_folder(&folder, 0o700)?;
        if std::fs::rename(&folder, &records).is_ok() {
            return Ok(files::empty_folder(&records, &[NOTE, JOURNAL])?);
        }
        // There is something of that name already.
        files::keep_folder(&records, 0o700)?;
        for name in [NOTE, JOURNAL] {
            let path = records.join(name);
            std::fs::rename(folder.join(name), &path).map_err(|cause| FileError {
                operation: "rename to",
                path,
                cause,
            })?;
        }
        Ok(())
    }

    /// Removes what a run had besides its records, where the agent before ended between the two.
    pub fn finish_records(&self) {
        for entry in std::fs::read_dir(self.ended()).into_iter().flatten().flatten() {
            if let Err(e) = files::empty_folder(&entry.path(), &[NOTE, JOURNAL]) {
                tracing::warn!(error = %e, "removing what a run had besides its records");
            }
        }
    }

    /// Removes records that are too old, or too many. Blocks.
    pub fn expire_records(&self, retention: Retention) -> Result<(), FileError> {
        let mut kept = Vec::new();
        for entry in std::fs::read_dir(self.ended()).into_iter().flatten().flatten() {
            let path = entry.path();
            // Of records that are only just being made there is no journal yet.
            if let (Ok(note), Ok(journal)) = (path.join(NOTE).metadata(), path.join(JOURNAL).metadata()) {
                kept.push((path, note.modified().unwrap_or(SystemTime::UNIX_EPOCH), note.len() + journal.len()));
            }
        }
        for path in retention.expired(kept, SystemTime::now()) {
            tracing::info!(records = %path.display(), "records of steps are removed: too old, or too many");
            files::remove_folder(&path)?;
        }
        Ok(())
    }

    /// Records of a job here, its newest run first.
    pub fn records_of(&self, sought: Sought) -> Result<Vec<Found>, SpoolError> {
        let mut found = Vec::new();
        let living: Vec<StepdOrders> = match sought {
            // One folder, instead of all with the scripts and environments of their jobs.
            Sought { job, run: Some(sluid), .. } => {
                StepdOrders::load(&self.run(RunKey { job, sluid })).into_iter().collect()
            }
            _ => self.runs()?.0.into_iter().map(|(_, orders)| orders).collect(),
        };
        for orders in living {
            let key = RunKey { job: orders.credential.job, sluid: orders.credential.sluid };
            let named = sought.names(key) && sought.is_task(orders.launch.spec.array_task);
            if orders.manager.is_none() && named {
                found.extend(Found::open(note_of(&orders, None), self.run(key).join(JOURNAL))?);
            }
        }
        for entry in std::fs::read_dir(self.ended()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let parts = name.to_str().and_then(|name| name.split_once('.'));
            let key = parts
                .and_then(|(job, sluid)| Some(RunKey { job: JobId(job.parse().ok()?), sluid: sluid.parse().ok()? }));
            if !key.is_some_and(|key| sought.names(key)) {
                continue;
            }
            let path = entry.path().join(NOTE);
            let Some(bytes) = files::read_if_there(&path)? else { continue };
            match garrick_frame::decode_body::<RecordedRun>(&bytes) {
                Ok(run) if !sought.is_task(run.array) => {}
                Ok(run) => found.extend(Found::open(run, entry.path().join(JOURNAL))?),
                Err(e) => tracing::warn!(note = %path.display(), error = %e, "records whose note cannot be read"),
            }
        }
        // A record that was closed meanwhile is found twice: as a live one, and as an ended one.
        found.sort_by_key(|found| (Reverse(found.run.sluid), found.run.end.is_none()));
        found.dedup_by_key(|found| found.run.sluid);
        Ok(found)
    }
}

/// Whose records are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// Job; [`JobId::OF_A_RUN`]: whosever run or task it is.
    pub job: JobId,
    /// This run of it.
    pub run: Option<Sluid>,
    /// The task of a job array that is meant instead of a job. Only the notes of records say which are of one.
    pub task: Option<ArrayTask>,
}

impl Sought {
    fn names(self, key: RunKey) -> bool {
        let any = self.job == JobId::OF_A_RUN;
        match (self.run, self.task) {
            (Some(run), _) => run == key.sluid && (any || self.job == key.job),
            (None, Some(_)) if any => true,
            (None, _) => self.job == key.job,
        }
    }

    fn is_task(self, of: Option<ArrayTask>) -> bool {
        self.run.is_some() || self.job != JobId::OF_A_RUN || self.task.is_none() || self.task == of
    }
}

/// Steps on their way into a message.
#[derive(Default)]
struct Part {
    origins: Vec<RecordedOrigin>,
    steps: Vec<RecordedStep>,
    last: Option<Arc<RecordedOrigin>>,
    bytes: usize,
}

impl Part {
    fn add(&mut self, origin: &Arc<RecordedOrigin>, mut step: RecordedStep) {
        if !self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, origin) || last == origin) {
            self.bytes += origin.submit_line.len() + origin.argv.iter().map(|arg| arg.len()).sum::<usize>();
            self.origins.push(origin.as_ref().clone());
            self.last = Some(Arc::clone(origin));
        }
        step.origin = self.origins.len() as u32 - 1;
        let texts = step.argv.iter().map(|arg| arg.len() + 5).sum::<usize>() + step.output.len() + step.values.len();
        self.bytes += STEP_BYTES + texts;
        self.steps.push(step);
    }

    fn take(&mut self) -> Option<RecordsReply> {
        let Self { origins, steps, .. } = std::mem::take(self);
        (!steps.is_empty()).then_some(RecordsReply::Steps { origins, steps })
    }
}

/// Steps on their way to a requester, who may have gone.
struct Telling<F> {
    pass: F,
    part: Part,
    open: bool,
}

impl<F: FnMut(RecordsReply) -> bool> Telling<F> {
    fn new(pass: F) -> Self {
        Self { pass, part: Part::default(), open: true }
    }

    fn tell(&mut self, told: Told) {
        if !self.open {
            return;
        }
        match told {
            Told::Batch(batch) => self.say(RecordsReply::Batch(batch)),
            Told::Step(origin, step) => {
                self.part.add(&origin, step);
                if self.part.bytes >= PART_BYTES {
                    self.open = self.part.take().is_none_or(&mut self.pass);
                }
            }
        }
    }

    fn say(&mut self, reply: RecordsReply) {
        self.open = self.open && self.part.take().is_none_or(&mut self.pass) && (self.pass)(reply);
    }
}

/// Reads records and passes on what is wanted of them, until `pass` returns false. Blocks.
pub fn read(found: Found, wanted: &WantedRecords, pass: impl FnMut(RecordsReply) -> bool) {
    let mut telling = Telling::new(pass);
    let mut following = Following::new(found, wanted);
    telling.say(RecordsReply::Run(following.found.run.clone()));
    if telling.open {
        let damage = following.read_on(&mut telling).err().map(|e| e.to_string());
        let ending = following.history.ending();
        following.history.finish(&mut |told| telling.tell(told));
        telling.say(RecordsReply::Over { ending, damage });
    }
}

/// Records that are read on as they grow. A step manager that takes the run over goes on with the same file, and so it stays
/// when it is moved to the records of the run.
#[derive(Debug)]
pub struct Following {
    found: Found,
    history: History,
    /// What stands before was read: whole records.
    at: u64,
    /// Version of the journal; `None`: it has no header yet.
    version: Option<u8>,
    begun: bool,
    damaged: bool,
}

impl Following {
    /// From the beginning.
    pub fn new(found: Found, wanted: &WantedRecords) -> Self {
        let history = History::new(&found.run, wanted);
        Self { found, history, at: 0, version: None, begun: false, damaged: false }
    }

    /// Passes on what was recorded since it last was called, until `pass` returns false. Blocks.
    pub fn more(&mut self, pass: impl FnMut(RecordsReply) -> bool) {
        let mut telling = Telling::new(pass);
        if !std::mem::replace(&mut self.begun, true) {
            telling.say(RecordsReply::Run(self.found.run.clone()));
        }
        // Damage is told once: nothing behind it is believed.
        let read = if self.damaged { Ok(()) } else { self.read_on(&mut telling) };
        self.damaged |= read.is_err();
        let damage = read.err().map(|e| e.to_string());
        telling.say(RecordsReply::SoFar { counts: self.history.counts(), damage });
    }

    fn read_on<F: FnMut(RecordsReply) -> bool>(&mut self, telling: &mut Telling<F>) -> Result<(), JournalError> {
        let Self { found: Found { path, journal, .. }, history, .. } = self;
        let mut reader = match self.version {
            None => Reader::whole(journal, path)?,
            Some(version) => Reader::behind_in(journal, path, self.at, version)?,
        };
        if !reader.has_header() {
            return Ok(());
        }
        self.version = Some(reader.version());
        while let Some(record) = reader.next_record()? {
            history.take(record.decode::<StepEvent>()?, &mut |told| telling.tell(told));
        }
        self.at = reader.position();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Steps that records which are read on tell, and how many are over.
    fn more(following: &mut Following) -> (Vec<String>, u64) {
        let (mut told, mut over) = (Vec::new(), 0);
        following.more(|reply| {
            match reply {
                RecordsReply::Steps { steps, .. } => told.extend(steps.iter().map(|step| step.key.to_string())),
                RecordsReply::SoFar { counts, damage } => {
                    assert_eq!(damage, None);
                    over = counts.done + counts.failed;
                }
                _ => {}
            }
            true
        });
        (told, over)
    }

    #[test]
    fn records_are_read_on_from_the_last_whole_one_and_stay_whole_when_a_torn_one_is_written_anew() {
        let folder = garrick_kernel::scratch::Scratch::new("following");
        let path = folder.path().join(JOURNAL);
        let ended = |number: u32, state| StepEvent::Ended {
            result: garrick_events::steps::end::StepResult {
                step: garrick_model::ids::StepId::of(JobId(7), garrick_model::ids::StepKey::number(number)),
                state,
                exit: garrick_model::state::ExitStatus::SUCCESS,
                ended: None,
                usage: Default::default(),
                spread: None,
                detail: None,
            },
            at: Timestamp(5),
        };
        use garrick_model::state::StepState::{Completed, Failed};
        let write = |event: &StepEvent| {
            let opened = garrick_daemon::journal::open::<StepEvent>(&path).unwrap();
            garrick_daemon::journal::Log::start(&path, opened.file).unwrap().write(event).unwrap();
        };
        std::fs::write(&path, "").unwrap();
        let run = RecordedRun {
            job: JobId(7),
            sluid: Sluid(7),
            node: "n1".to_owned(),
            uid: 1,
            user: String::new(),
            name: String::new(),
            work_dir: String::new(),
            array: None,
            nodes: vec!["n1".to_owned()],
            cpus: 1,
            partition: String::new(),
            start: Timestamp(0),
            end: None,
        };
        let found = Found::open(run, path.clone()).unwrap().unwrap();
        let wanted = WantedRecords { states: vec![Failed], ..WantedRecords::default() };
        let mut following = Following::new(found, &wanted);
        assert_eq!(more(&mut following), (vec![], 0), "not even its header is written");
        write(&ended(0, Failed));
        write(&ended(1, Completed));
        assert_eq!(more(&mut following), (vec!["0".to_owned()], 2));
        assert_eq!(more(&mut following), (vec![], 2));
        write(&ended(2, Failed));
        // Its writer is killed in the middle of the record, and the next one cuts that off.
        let length = std::fs::metadata(&path).unwrap().len();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 3).unwrap();
        assert_eq!(more(&mut following), (vec![], 2));
        write(&ended(3, Failed));
        assert_eq!(more(&mut following), (vec!["3".to_owned()], 3));
    }

    #[test]
    fn the_oldest_go_first_when_there_are_too_many_and_all_that_are_too_old() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let entry = |name: &str, age: u64, bytes| (PathBuf::from(name), now - Duration::from_secs(age), bytes);
        let retention = Retention { age: Duration::from_secs(100), bytes: 50 };
        let gone = |kept: Vec<_>| retention.expired(kept, now);
        assert!(gone(vec![entry("a", 10, 20), entry("b", 100, 20)]).is_empty());
        assert_eq!(gone(vec![entry("a", 101, 1), entry("b", 1, 1)]), [PathBuf::from("a")]);
        let many = vec![entry("a", 30, 20), entry("b", 20, 20), entry("c", 10, 20)];
        assert_eq!(gone(many), [PathBuf::from("a")]);
        // The newest alone is too large.
        assert_eq!(gone(vec![entry("a", 1, 51), entry("b", 2, 20)]), [PathBuf::from("a")]);
    }
}
