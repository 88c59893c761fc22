//! Job completion (`JobCompType`): each run of a job that is over is written to a text file, given to a script, or sent to a server.
//! It follows the log under a name of its own, and acknowledges what is written: while a file or a server is away the log keeps the
//! events, and nothing waits. After a crash the last runs may be written again; one of which the controller has nothing any more, since
//! the job was forgotten or has begun anew, is named in the log.
//!
//! | module | what it does |
//! |---|---|
//! | [`forms`] | how a run is written |
//! | [`sinks`] | where to |

pub mod forms;
#[cfg(test)]
mod runs_test;
pub mod sinks;

use crate::background::Background;
use actix_rt::Arbiter;
use forms::{Completed, More};
use garrick_accounts::row::JobRow;
use garrick_actors::log::{AppendError, Committed, FollowError, Follower, Log, answered, committed};
use garrick_events::{event::ControllerEvent, progress::Position, records::job_event::JobEvent};
use garrick_model::{ids::JobId, time::Timestamp};
use sinks::{Sink, Unwritten};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// The follower's name in the log.
pub const JOB_COMPLETION: &str = "jobcomp";
/// Runs that are written together, at most.
const TOGETHER: usize = 500;
/// Runs that wait in memory while they cannot be written; then the log is not read on.
const MOST_WAITING: usize = 50_000;
/// Pauses between two tries to write.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The log is told so seldom what is written, as that is written too.
const ACKNOWLEDGE: Duration = Duration::from_secs(5);

/// Why the log cannot be followed.
#[derive(Debug, thiserror::Error)]
enum CompletionError {
    #[error(transparent)]
    Log(#[from] FollowError),
    #[error("the log: {0}")]
    Append(#[from] AppendError),
    #[error("{0}")]
    State(#[from] committed::Misfits),
}

/// What has allocations now, and what of it is over.
pub struct Runs {
    cluster: String,
    value: committed::Committed,
    /// Runs with an allocation.
    rows: BTreeMap<JobId, JobRow>,
}

impl Runs {
    /// All that run, by the state of the log.
    fn new(cluster: &str, value: committed::Committed) -> Result<Self, committed::Misfits> {
        let state = value.copy()?;
        let rows = state.jobs.iter().map(|(_, record)| JobRow::of(cluster, record));
        let rows = rows.filter(|row| row.start.is_some() && !row.is_over());
        Ok(Self { cluster: cluster.to_owned(), value, rows: rows.map(|row| (row.job, row)).collect() })
    }

    /// Takes an event; gives the run that ended with it.
    fn take(&mut self, event: &ControllerEvent) -> Option<Completed> {
        let ControllerEvent::Job { job, event } = event else { return None };
        match &**event {
            JobEvent::Ended(end) => self.ended(*job, event, end.at),
            JobEvent::Allocated(_) => {
                // The record may be ahead of the event; what is known of it already comes again.
                let mut row = self.of_record(*job)?;
                row.apply(event);
                self.rows.insert(*job, row);
                None
            }
            event => {
                self.rows.get_mut(job)?.apply(event);
                None
            }
        }
    }

    fn of_record(&self, job: JobId) -> Option<JobRow> {
        self.value.look(job, |record| JobRow::of(&self.cluster, record))
    }

    fn ended(&mut self, job: JobId, event: &JobEvent, at: Timestamp) -> Option<Completed> {
        // After a restart an earlier run's end may come again: the run that goes on is another one.
        let is_later = |row: &JobRow| row.start.is_some_and(|start| start > at);
        if self.rows.get(&job).is_some_and(is_later) {
            return None;
        }
        let Some(mut row) = self.rows.remove(&job).or_else(|| self.of_record(job)) else {
            tracing::warn!(job_id = job.0, "a job that ended is not known any more: its completion is not recorded");
            return None;
        };
        row.apply(event);
        let more = self.value.look(job, More::of).unwrap_or_default();
        Some(Completed { row, more })
    }
}

/// What it needs.
pub struct Completion {
    /// `ClusterName`.
    pub cluster: String,
    /// The log.
    pub log: Arc<dyn Log>,
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

    async fn unregister(&self) -> Result<(), CompletionError> {
        answered(|done| self.log.unregister(JOB_COMPLETION, done)).await?;
        Ok(())
    }

    /// The last position whose runs are written.
    async fn registered(&self) -> Result<Position, CompletionError> {
        if let Some(at) = self.log.followers().get(JOB_COMPLETION) {
            return Ok(*at);
        }
        Ok(answered(|done| self.log.register(JOB_COMPLETION, done)).await?)
    }

    async fn record(&self, sink: &Sink) -> Result<(), CompletionError> {
        let mut told = self.registered().await?;
        let mut runs = Runs::new(&self.cluster, self.log.value())?;
        let mut follower = self.log.subscribe(told.next())?;
        let mut when = Instant::now();
        loop {
            let behind = told.next() < follower.position();
            tokio::select! {
                first = follower.next() => {
                    let completed = gather(&mut runs, &mut follower, first?)?;
                    write(sink, completed, &mut runs, &mut follower).await?;
                }
                // Nothing came for a while.
                () = sleep_until(when + ACKNOWLEDGE), if behind => {}
            }
            if when.elapsed() >= ACKNOWLEDGE {
                (told, when) = (self.acknowledge(&follower).await?, Instant::now());
            }
        }
    }

    /// All that the follower has given is written: up to which position.
    async fn acknowledge(&self, follower: &Follower) -> Result<Position, CompletionError> {
        let upto = Position(follower.position().0.saturating_sub(1));
        answered(|done| self.log.acknowledge(JOB_COMPLETION, upto, done)).await?;
        Ok(upto)
    }
}

/// What ended with an event and with those that are there already.
fn gather(runs: &mut Runs, follower: &mut Follower, first: Committed) -> Result<Vec<Completed>, FollowError> {
    let mut completed: Vec<Completed> = runs.take(&first.event).into_iter().collect();
    while completed.len() < TOGETHER
        && let Some(next) = follower.try_next()?
    {
        completed.extend(runs.take(&next.event));
    }
    Ok(completed)
}

/// Until all is written. Meanwhile the log is read on, so that a job is known although it is forgotten before its turn comes.
async fn write(
    sink: &Sink,
    mut completed: Vec<Completed>,
    runs: &mut Runs,
    follower: &mut Follower,
) -> Result<(), CompletionError> {
    if completed.is_empty() {
        return Ok(());
    }
    let mut pause = FIRST_PAUSE;
    while let Err(Unwritten { written, cause }) = sink.write(&completed).await {
        completed.drain(..written);
        let waiting = completed.len();
        tracing::error!(error = %cause, waiting, retry_s = pause.as_secs_f32(), "completions of jobs are not recorded now");
        let again = Instant::now() + pause;
        while completed.len() < MOST_WAITING
            && let Ok(next) = timeout_at(again, follower.next()).await
        {
            completed.extend(runs.take(&next?.event));
        }
        sleep_until(again).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}
