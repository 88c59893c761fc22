//! Job completion (`JobCompType`): each run of a job that is over is written to a text file, given to a script, or sent to a server.
//! It follows the log under a name of its own: runs that end go into a queue, and the queue is written. While a file or a server is
//! away the queue is on disk, and nothing waits. After a crash the last runs may be written again, except to a database, which knows
//! what it has.
//!
//! | module | what it does |
//! |---|---|
//! | [`runs`] | which runs are over |
//! | [`queue`] | those that wait to be written |
//! | [`forms`] | how a run is written |
//! | [`sinks`] | where to |
//! | [`recorded`] | what a database has of them |
//! | [`scripts`], [`lua`], `kafka` | those that need a program, a script or a library at work |

pub mod forms;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod lua;
pub mod queue;
pub mod recorded;
pub mod runs;
#[cfg(test)]
mod runs_test;
pub mod scripts;
pub mod sinks;
#[cfg(test)]
mod testing;

use crate::{background::Background, log_identity};
use actix_rt::Arbiter;
use garrick_accountant::completion::Whence;
use garrick_actors::log::{AppendError, Committed, FollowError, Follower, Log, answered, committed};
use garrick_events::progress::Position;
use garrick_kernel::files::FileError;
use garrick_model::config::TrackedTres;
use queue::{Queue, QueueError};
use runs::{Runs, Wanted};
use sinks::{Sink, Unwritten};
use std::{fs, future::pending, io, path::PathBuf, pin::Pin, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, sleep_until};

/// The follower's name in the log.
pub const JOB_COMPLETION: &str = "jobcomp";
/// Folder of the state folder with runs that wait.
const FOLDER: &str = "jobcomp";
/// File in it with the identity of the log, as a database is told it.
const IDENTITY: &str = "log-id";
/// Runs that are written together, at most.
const TOGETHER: usize = queue::PART;
/// Pauses between two tries to write.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// What waits is saved so seldom, and the log is told so seldom what it need not keep, as that is written too.
const KEEP: Duration = Duration::from_secs(5);
/// While nothing can be written: jobs may be forgotten soon (`MinJobAge`).
const KEEP_AWAY: Duration = Duration::from_secs(1);

/// Why the log cannot be followed.
#[derive(Debug, thiserror::Error)]
enum CompletionError {
    #[error(transparent)]
    Log(#[from] FollowError),
    #[error("the log: {0}")]
    Append(#[from] AppendError),
    #[error("{0}")]
    State(#[from] committed::Misfits),
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(transparent)]
    File(#[from] FileError),
}

/// What it needs.
pub struct Completion {
    /// `ClusterName`.
    pub cluster: String,
    /// The state folder.
    pub state: PathBuf,
    /// The log.
    pub log: Arc<dyn Log>,
    /// `AccountingStorageTRES`.
    pub tracked: TrackedTres,
    /// Where to; `None`: the site wants none (any more).
    pub sink: Option<Sink>,
}

impl Completion {
    /// Records completions from now on, on a thread of its own, until what is returned is dropped.
    pub fn start(self) -> Option<Background> {
        if self.sink.is_none() && !self.log.followers().contains_key(JOB_COMPLETION) {
            return None;
        }
        let arbiter = Arbiter::new();
        arbiter.spawn(async move {
            let mut pause = FIRST_PAUSE;
            while let Err(error) = self.follow().await {
                tracing::error!(%error, "completions of jobs are not recorded now");
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        });
        Some(Background::new("job completion", arbiter))
    }

    async fn follow(&self) -> Result<(), CompletionError> {
        match &self.sink {
            Some(sink) => self.record(sink).await,
            None => self.unregister().await,
        }
    }

    fn folder(&self) -> PathBuf {
        self.state.join(FOLDER)
    }

    async fn unregister(&self) -> Result<(), CompletionError> {
        answered(|done| self.log.unregister(JOB_COMPLETION, done)).await?;
        match fs::remove_dir_all(self.folder()) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(QueueError::Folder { path: self.folder(), cause }.into())
            }
            _ => Ok(()),
        }
    }

    /// The last position whose runs are written or saved, and what the positions are of.
    async fn registered(&self) -> Result<(Position, Whence), CompletionError> {
        let path = self.folder().join(IDENTITY);
        let whence = |log| Whence { cluster: self.cluster.clone(), log };
        let known = self.log.followers().get(JOB_COMPLETION).copied();
        if let Some(at) = known {
            if let Some(log) = log_identity::read(&path)? {
                return Ok((at, whence(log)));
            }
            // An older version followed it, and had no use for one.
            return Ok((at, whence(log_identity::make(&path)?)));
        }
        let log = log_identity::make(&path)?;
        Ok((answered(|done| self.log.register(JOB_COMPLETION, done)).await?, whence(log)))
    }

    async fn record(&self, sink: &Sink) -> Result<(), CompletionError> {
        let mut queue = Queue::open(&self.folder())?;
        let (told, whence) = self.registered().await?;
        let wanted = Wanted { starts: sink.wants_starts(), scripts: sink.wants_scripts() };
        let mut runs = Runs::new(&self.cluster, self.log.value(), wanted)?.counting(self.tracked.clone());
        let mut follower = self.log.subscribe(told.next())?;
        let mut writer = Writer::new(sink, whence);
        let (mut told, mut when) = (told, Instant::now());
        loop {
            writer.begin(&mut queue);
            let keep = if writer.is_away() { KEEP_AWAY } else { KEEP };
            let behind = queue.is_unsaved() || told.next() < follower.position();
            tokio::select! {
                written = writer.done(&queue) => queue.written(written),
                first = follower.next(), if !queue.is_full() => gather(&mut runs, &mut follower, first?, &mut queue)?,
                () = sleep_until(when + keep), if behind => {}
            }
            if behind && when.elapsed() >= keep || queue.is_full() {
                (told, when) = (self.keep(&mut queue, &follower, told).await?, Instant::now());
            }
        }
    }

    /// Saves what waits, and tells the log up to which position it need not keep its events.
    async fn keep(&self, queue: &mut Queue, follower: &Follower, told: Position) -> Result<Position, CompletionError> {
        let upto = Position(follower.position().0.saturating_sub(1));
        if let Err(error) = queue.save(upto) {
            tracing::error!(%error, waiting = queue.waiting(), "runs that wait to be recorded cannot be saved");
            // Not at once again.
            sleep(FIRST_PAUSE).await;
            return Ok(told);
        }
        answered(|done| self.log.acknowledge(JOB_COMPLETION, upto, done)).await?;
        Ok(upto)
    }
}

/// Takes an event, and those that are there already.
fn gather(runs: &mut Runs, follower: &mut Follower, first: Committed, queue: &mut Queue) -> Result<(), FollowError> {
    let mut next = Some(first);
    while let Some(Committed { position, event }) = next {
        if let Some(run) = runs.take(&event) {
            queue.push(position, run);
        }
        next = if queue.is_full() { None } else { follower.try_next()? };
    }
    Ok(())
}

/// What is being written.
type AtWork<'s> = Pin<Box<dyn Future<Output = (usize, Result<(), Unwritten>)> + Send + 's>>;

/// Writes the first of the queue, again and again.
struct Writer<'s> {
    sink: &'s Sink,
    whence: Arc<Whence>,
    at_work: Option<AtWork<'s>>,
    /// The last try has failed.
    away: bool,
    /// Then the next one is at that time.
    again: Option<Instant>,
    pause: Duration,
}

impl<'s> Writer<'s> {
    fn new(sink: &'s Sink, whence: Whence) -> Self {
        Self { sink, whence: Arc::new(whence), at_work: None, away: false, again: None, pause: FIRST_PAUSE }
    }

    /// Begins with the first of the queue, unless something is being written, or has failed a moment ago.
    fn begin(&mut self, queue: &mut Queue) {
        if self.at_work.is_some() || self.again.is_some() {
            return;
        }
        let (sink, whence, batch) = (self.sink, Arc::clone(&self.whence), queue.first(TOGETHER));
        if !batch.is_empty() {
            self.at_work = Some(Box::pin(async move { (batch.len(), sink.write(&batch, &whence).await) }));
        }
    }

    /// The last try has failed.
    const fn is_away(&self) -> bool {
        self.away
    }

    /// How many of the first are written now; 0 when it is time to try again. It may be given up and called again.
    async fn done(&mut self, queue: &Queue) -> usize {
        if let Some(again) = self.again {
            sleep_until(again).await;
            self.again = None;
            return 0;
        }
        let Some(at_work) = &mut self.at_work else { return pending().await };
        let (count, outcome) = at_work.await;
        self.at_work = None;
        self.away = outcome.is_err();
        let Err(Unwritten { written, cause }) = outcome else {
            self.pause = FIRST_PAUSE;
            return count;
        };
        if written > 0 {
            self.pause = FIRST_PAUSE;
        }
        let waiting = queue.waiting().saturating_sub(written);
        let retry_s = self.pause.as_secs_f32();
        tracing::error!(error = %cause, waiting, retry_s, "completions of jobs are not recorded now");
        self.again = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        written
    }
}
