//! Which runs are over, and which have started, from the events of a log.

use super::forms::{Completed, More};
use garrick_accounts::row::JobRow;
use garrick_actors::log::committed;
use garrick_events::{event::ControllerEvent, records::job_event::JobEvent};
use garrick_model::{ids::JobId, time::Timestamp};
use std::collections::BTreeMap;

/// What has allocations now, and what of it is over.
pub struct Runs {
    cluster: String,
    value: committed::Committed,
    /// Runs with an allocation.
    rows: BTreeMap<JobId, JobRow>,
    /// Starts are told too.
    starts: bool,
}

impl Runs {
    /// All that run, by the state of the log.
    pub(super) fn new(cluster: &str, value: committed::Committed, starts: bool) -> Result<Self, committed::Misfits> {
        let state = value.copy()?;
        let rows = state.jobs.iter().map(|(_, record)| JobRow::of(cluster, record));
        let rows = rows.filter(|row| row.start.is_some() && !row.is_over());
        Ok(Self { cluster: cluster.to_owned(), value, rows: rows.map(|row| (row.job, row)).collect(), starts })
    }

    /// Takes an event; gives the run that ended, or started, with it.
    pub(super) fn take(&mut self, event: &ControllerEvent) -> Option<Completed> {
        let ControllerEvent::Job { job, event } = event else { return None };
        match &**event {
            JobEvent::Ended(end) => self.ended(*job, event, end.at),
            JobEvent::Allocated(_) => {
                // The record may be ahead of the event; what is known of it already comes again.
                let mut row = self.of_record(*job)?;
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
        if !self.starts || !row.booting.is_empty() {
            return None;
        }
        Some(Completed { row: row.clone(), more: self.more(row.job), starts: true })
    }

    fn more(&self, job: JobId) -> More {
        self.value.look(job, More::of).unwrap_or_default()
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
        Some(Completed { row, more: self.more(job), starts: false })
    }
}
