//! Which runs are over, and which have started, from the events of a log.

use super::forms::{Completed, More};
use garrick_accounts::row::JobRow;
use garrick_actors::log::committed;
use garrick_events::{
    event::ControllerEvent,
    records::{job::End, job_event::JobEvent},
};
use garrick_model::{config::TrackedTres, ids::JobId};
use std::collections::BTreeMap;

/// What is wanted besides the ends of runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Starts.
    pub starts: bool,
    /// Batch scripts.
    pub scripts: bool,
}

/// What has allocations now, and what of it is over.
pub struct Runs {
    cluster: String,
    value: committed::Committed,
    /// Runs with an allocation.
    rows: BTreeMap<JobId, JobRow>,
    wanted: Wanted,
    /// Types of generic resources that are counted by themselves.
    tracked: TrackedTres,
}

impl Runs {
    /// All that run, by the state of the log.
    pub(super) fn new(cluster: &str, value: committed::Committed, wanted: Wanted) -> Result<Self, committed::Misfits> {
        let state = value.copy()?;
        let rows = state.jobs.iter().map(|(_, record)| JobRow::of(cluster, record));
        let rows = rows.filter(|row| row.start.is_some() && !row.is_over());
        Ok(Self {
            cluster: cluster.to_owned(),
            value,
            rows: rows.map(|row| (row.job, row)).collect(),
            wanted,
            tracked: TrackedTres::default(),
        })
    }

    /// The same, with what the site counts (`AccountingStorageTRES`).
    pub(super) fn counting(self, tracked: TrackedTres) -> Self {
        Self { tracked, ..self }
    }

    /// Takes an event; gives the run that ended, or started, with it.
    pub(super) fn take(&mut self, event: &ControllerEvent) -> Option<Completed> {
        let mut completed = self.taken(event)?;
        completed.row.count_only(&self.tracked);
        Some(completed)
    }

    fn taken(&mut self, event: &ControllerEvent) -> Option<Completed> {
        let ControllerEvent::Job { job, event } = event else { return None };
        match &**event {
            JobEvent::Ended(end) => self.ended(*job, event, end),
            JobEvent::Allocated(run) => {
                // The record may be ahead of the event; what is known of it already comes again.
                let mut row = self.of_record(*job)?.of_run(run.sluid);
                row.apply(event);
                let started = self.started(&row);
                self.rows.insert(*job, row);
                started
            }
            JobEvent::NodeBooted { .. } => {
                let row = self.rows.get_mut(job)?;
                let was_booting = !row.booting.is_empty();
                row.apply(event);
                let row = row.clone();
                self.started(&row).filter(|_| was_booting)
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

    /// A run that has all of its nodes.
    fn started(&self, row: &JobRow) -> Option<Completed> {
        if !self.wanted.starts || !row.booting.is_empty() {
            return None;
        }
        Some(Completed { row: row.clone(), more: self.more(row.job), starts: true })
    }

    fn more(&self, job: JobId) -> More {
        self.value.look(job, |record| More::of(record, self.wanted.scripts)).unwrap_or_default()
    }

    fn ended(&mut self, job: JobId, event: &JobEvent, end: &End) -> Option<Completed> {
        // After a restart an earlier run's end may come again: the run that goes on is another one.
        let is_later = |row: &JobRow| row.start.is_some_and(|start| start > end.at);
        if self.rows.get(&job).is_some_and(is_later) {
            return None;
        }
        let Some(row) = self.rows.remove(&job).or_else(|| self.of_record(job)) else {
            tracing::warn!(job_id = job.0, "a job that ended is not known any more: its completion is not recorded");
            return None;
        };
        // The record may be that of the next run already.
        let mut row = row.of_run(end.sluid);
        row.apply(event);
        Some(Completed { row, more: self.more(job), starts: false })
    }
}
