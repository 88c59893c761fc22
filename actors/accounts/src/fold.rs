//! How rows follow from the events of the controller's log. An event that does not fit the row changes nothing, nor does one that
//! comes again.

use crate::row::JobRow;
use garrick_events::records::{
    job::JobRecord,
    job_event::{JobEvent, Revision},
};
use garrick_model::{
    ids::{ArrayTask, Sluid},
    messages::command::JobChange,
    spec::{ArraySpec, JobSpec},
    state::{ExitStatus, JobState, Reason},
    time::Timestamp,
};

impl JobRow {
    /// The row of a job that is submitted; `None`: the event is another one.
    pub fn submitted(cluster: &str, event: &JobEvent) -> Option<Self> {
        match event {
            JobEvent::Submitted(record) | JobEvent::SubmittedLike { record, .. } => Some(Self::of(cluster, record)),
            _ => None,
        }
    }

    /// Applies an event of its job. Returns the row of the job's next run, if one follows.
    pub fn apply(&mut self, event: &JobEvent) -> Option<Self> {
        if let Some(run) = run_of(event).filter(|run| *run != self.sluid) {
            return self.unheard_of(run, event);
        }
        match event {
            JobEvent::Submitted(record) | JobEvent::SubmittedLike { record, .. } => return self.summed_up(record),
            JobEvent::Requeued { sluid, begin, at, .. } => return self.requeued(*sluid, *begin, *at),
            JobEvent::Released { priority } => self.priority = *priority,
            JobEvent::Updated(change) => self.updated(change),
            JobEvent::Revised(revision) if self.state == JobState::Pending => self.revised(revision),
            JobEvent::Eligible { at } => self.eligible = Some(*at),
            JobEvent::NotEligible => self.eligible = None,
            JobEvent::TaskSplit { index, .. } => self.take_task(*index),
            JobEvent::BecameTask { index } => {
                self.take_task(*index);
                self.array_task = Some(ArrayTask { array_job: self.job, index: *index });
            }
            // Of a run that others followed only the end is of interest.
            JobEvent::Allocated(run) if self.state == JobState::Pending || (self.repaired && !self.requeued) => {
                self.run(run)
            }
            JobEvent::NodeBooted { node, at, .. } => self.booted(node, *at),
            JobEvent::LimitChanged(limit) if !self.is_over() => {
                (self.time_limit, self.requested_limit) = (*limit, *limit);
            }
            JobEvent::Suspended if self.works() => self.state = JobState::Suspended,
            JobEvent::Resumed if self.works() => self.state = JobState::Running,
            JobEvent::Stopped { at, .. } if self.works() => {
                self.state = JobState::Suspended;
                self.suspended_since.get_or_insert(*at);
            }
            JobEvent::Continued { at } if self.state == JobState::Suspended => self.continued(*at),
            JobEvent::Ending(ending) if self.works() => self.cancelled_by = ending.by,
            JobEvent::NodesLost { nodes } if self.works() || self.state == JobState::NodeFail => {
                self.failed_node = self.failed_node.take().or_else(|| nodes.first().cloned());
                self.booting.retain(|node| !nodes.contains(node));
            }
            JobEvent::Ended(end) if !self.is_over() || self.repaired => self.over(end),
            _ => {}
        }
        None
    }

    const fn works(&self) -> bool {
        matches!(self.state, JobState::Running | JobState::Suspended)
    }

    /// The record that sums up all that came before.
    fn summed_up(&mut self, record: &JobRecord) -> Option<Self> {
        let mut row = Self::of(&self.cluster, record);
        if row.sluid > self.sluid {
            self.followed_by(&row);
            return Some(row);
        }
        if row.sluid == self.sluid {
            row.remember(self);
            *self = row;
        }
        None
    }

    fn requeued(&mut self, sluid: Sluid, begin: Option<Timestamp>, at: Option<Timestamp>) -> Option<Self> {
        if !self.is_over() || sluid <= self.sluid {
            return None;
        }
        self.requeued = true;
        if self.state == JobState::Cancelled {
            // That its script was ended for it is no failure: 0:0, as sacct of Slurm 26.05.3 has it.
            (self.exit, self.derived) = (ExitStatus::SUCCESS, ExitStatus::SUCCESS);
        }
        // Each run has a submission of its own (sacct of Slurm 22.05 with `-D`).
        Some(Self { submit: at.unwrap_or(self.submit), ..self.next(sluid, begin) })
    }

    /// Another run than this row's began or ended. A newer one has a row of its own, though the end of this one and the requeue were
    /// not heard of (slurm.conf(5), `MaxDBDMsgs`).
    fn unheard_of(&mut self, run: Sluid, event: &JobEvent) -> Option<Self> {
        if run < self.sluid {
            return None;
        }
        let mut next = self.next(run, None);
        next.apply(event);
        if let Some(latest) = next.start.or(next.end).filter(|_| !self.is_over()) {
            self.gone_by(latest);
        }
        self.requeued = true;
        Some(next)
    }

    /// Another run of the job is known to have followed. Where the end of this one was not heard of, it was when the next one was
    /// submitted, at the latest.
    pub fn followed_by(&mut self, next: &Self) {
        if !self.is_over() {
            self.gone_by(next.submit.max(self.start.unwrap_or(next.submit)));
        }
        self.requeued = true;
    }

    /// Its end was not heard of: it was then at the latest. If it is heard of after all, that holds.
    fn gone_by(&mut self, at: Timestamp) {
        self.continued(at);
        // With a requeue, as what it is: `REQUEUED`.
        (self.state, self.end) = (JobState::Cancelled, Some(at));
        self.booting.clear();
        self.repaired = true;
    }

    /// That run's row, where this one is a later one's. Of the run itself only what its request says is known.
    #[must_use]
    pub fn of_run(self, run: Option<Sluid>) -> Self {
        match run.filter(|run| *run < self.sluid) {
            // Whether there was one before it is not known.
            Some(run) => Self { restarts: self.restarts.saturating_sub(1), first_run: None, ..self.next(run, None) },
            None => self,
        }
    }

    /// The row of the run that follows this one.
    fn next(&self, sluid: Sluid, begin: Option<Timestamp>) -> Self {
        Self {
            sluid,
            partition: None,
            reservation: None,
            state: JobState::Pending,
            requeued: false,
            reason: Reason::None,
            exit: ExitStatus::SUCCESS,
            derived: ExitStatus::SUCCESS,
            system_comment: None,
            cancelled_by: None,
            failed_node: None,
            eligible: begin,
            start: None,
            end: None,
            suspended_ms: 0,
            suspended_since: None,
            suspensions: Vec::new(),
            repaired: false,
            time_limit: self.requested_limit,
            restarts: self.restarts.saturating_add(1),
            allocated: Default::default(),
            nodes: String::new(),
            node_indices: Vec::new(),
            booting: Vec::new(),
            first_run: self.first_run.or(Some(self.sluid)),
            backfilled: false,
            waited_for: Reason::None,
            // It waits with all that it asked for again.
            qos: self.qos_asked.clone().or_else(|| self.qos.clone()),
            qos_asked: None,
            energy: Default::default(),
            ..self.clone()
        }
    }

    fn take_task(&mut self, index: u32) {
        let Some(waiting) = &mut self.waiting else { return };
        // Tasks go in order, nearly always.
        if waiting.min() == Some(index) {
            waiting.take_first();
        } else {
            waiting.remove(index);
        }
        if waiting.is_empty() {
            self.waiting = None;
        }
    }

    fn booted(&mut self, node: &str, at: Timestamp) {
        let waited = !self.booting.is_empty();
        self.booting.retain(|known| known != node);
        if waited && self.booting.is_empty() {
            self.start = Some(at);
        }
    }

    fn continued(&mut self, at: Timestamp) {
        self.state = JobState::Running;
        self.went_on(at);
    }

    fn revised(&mut self, revision: &Revision) {
        // What is not part of a revision stays.
        let begin = std::mem::take(&mut self.submit_line);
        self.ask(&revision.spec, &revision.resolved);
        if self.submit_line.is_empty() {
            self.submit_line = begin;
        }
        self.time_limit = self.requested_limit;
        self.priority = revision.priority;
        self.admin_comment.clone_from(&revision.admin_comment);
        if let Some(ArraySpec { limit, .. }) = &mut self.waiting {
            *limit = revision.array_limit;
        }
    }

    /// The form of changes for jobs that do not wait. Amounts do not change any more then.
    fn updated(&mut self, change: &JobChange) {
        let limit = change.time_limit.filter(|_| !self.is_over());
        if let Some(limit) = limit {
            self.requested_limit = limit;
            if self.state == JobState::Pending {
                self.time_limit = limit;
            }
        }
        if let Some(partitions) = &change.partitions {
            self.partitions.clone_from(partitions);
        }
        self.priority = change.priority.unwrap_or(self.priority);
        if let Some(name) = &change.name {
            self.name.clone_from(name);
        }
        let text = |own: &mut Option<String>, new: &Option<String>| {
            if let Some(new) = new {
                *own = Some(new.clone()).filter(|new| !new.is_empty());
            }
        };
        text(&mut self.extra, &change.extra);
        text(&mut self.constraint, &change.constraint);
        text(&mut self.licenses, &change.licenses);
        text(&mut self.mcs_label, &change.mcs_label);
        // These may be empty texts, as in the job's record.
        self.comment = change.comment.clone().or_else(|| self.comment.take());
        self.admin_comment = change.admin_comment.clone().or_else(|| self.admin_comment.take());
        self.account = change.account.clone().or_else(|| self.account.take());
        // The rest is known to the change only as what it makes of a request.
        let mut spec = JobSpec { qos: self.qos.take(), wckey: self.wckey.take(), ..JobSpec::default() };
        change.request.apply(&mut spec);
        self.default_qos &= change.request.qos.is_none();
        (self.qos, self.wckey) = (spec.qos, spec.wckey);
    }
}

/// The run that an event says to be about. One of an earlier run than the newest concerns that run's row: it comes again where the
/// controller's log is an older copy than what was stored.
pub fn run_of(event: &JobEvent) -> Option<Sluid> {
    match event {
        JobEvent::Allocated(run) => run.sluid,
        JobEvent::Ended(end) => end.sluid,
        _ => None,
    }
}

#[cfg(test)]
#[path = "fold_test.rs"]
mod tests;
