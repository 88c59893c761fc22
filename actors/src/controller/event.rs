//! What the journal holds, and how a controller is rebuilt from it.

use crate::{
    job::{record::JobRecord, state::JobEvent},
    node::record::SavedNode,
    partition::record::SavedPartition,
};
use garrick_model::ids::{JobId, Sluid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One durable fact of the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ControllerEvent {
    /// About a job.
    Job {
        /// Which.
        job: JobId,
        /// What.
        event: Box<JobEvent>,
    },
    /// About a node; the last one counts.
    Node {
        /// Which.
        node: String,
        /// What is saved of it.
        saved: Box<SavedNode>,
    },
    /// About a partition; the last one counts.
    Partition {
        /// Which.
        partition: String,
        /// What is saved of it.
        saved: Box<SavedPartition>,
    },
    /// A controller started: its epoch is one more than the last.
    Started {
        /// Epoch.
        epoch: u64,
    },
    /// Ids up to here were used; stands in a compacted journal for jobs that are forgotten.
    Used {
        /// Highest job id.
        job: JobId,
        /// Last run.
        sluid: Sluid,
        /// Submissions so far, for priorities.
        submissions: u64,
    },
    /// Saved in one go: one record of the file, so that a crash leaves all of them or none.
    Together(Vec<ControllerEvent>),
}

impl From<Vec<Self>> for ControllerEvent {
    fn from(mut events: Vec<Self>) -> Self {
        match events.pop() {
            Some(only) if events.is_empty() => only,
            last => {
                events.extend(last);
                Self::Together(events)
            }
        }
    }
}

/// A journal that does not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// An event about a job that was never submitted, or was forgotten.
    #[error("journal event {0} about job {1}, which is not known")]
    UnknownJob(&'static str, u32),
    /// An event that does not fit the job's state.
    #[error(transparent)]
    Illegal(#[from] crate::job::state::IllegalMove),
}

/// What a journal comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// Jobs that are remembered.
    pub jobs: BTreeMap<JobId, JobRecord>,
    /// Nodes that something is saved of.
    pub nodes: BTreeMap<String, SavedNode>,
    /// Partitions that something is saved of.
    pub partitions: BTreeMap<String, SavedPartition>,
    /// Epoch of the last controller.
    pub epoch: u64,
    /// Highest job id used.
    pub last_job: u32,
    /// Newest run.
    pub last_sluid: Option<Sluid>,
    /// Submissions so far.
    pub submissions: u64,
}

impl Replayed {
    /// Applies one event, with the same function that live actors use.
    pub fn apply(&mut self, event: &ControllerEvent) -> Result<(), ReplayError> {
        match event {
            ControllerEvent::Job { job, event } => return self.apply_job(*job, event),
            ControllerEvent::Node { node, saved } => {
                self.nodes.insert(node.clone(), (**saved).clone());
            }
            ControllerEvent::Partition { partition, saved } => {
                self.partitions.insert(partition.clone(), (**saved).clone());
            }
            ControllerEvent::Together(events) => return events.iter().try_for_each(|event| self.apply(event)),
            ControllerEvent::Started { epoch } => self.epoch = self.epoch.max(*epoch),
            ControllerEvent::Used { job, sluid, submissions } => {
                self.last_job = self.last_job.max(job.0);
                self.saw(*sluid);
                self.submissions = self.submissions.max(*submissions);
            }
        }
        Ok(())
    }

    fn apply_job(&mut self, job: JobId, event: &JobEvent) -> Result<(), ReplayError> {
        match event {
            JobEvent::Submitted(record) => {
                self.last_job = self.last_job.max(job.0);
                self.saw(record.sluid);
                self.submissions += u64::from(!self.jobs.contains_key(&job));
                self.jobs.insert(job, (**record).clone());
                return Ok(());
            }
            JobEvent::Requeued { sluid, .. } => self.saw(*sluid),
            _ => {}
        }
        let record = self.jobs.get_mut(&job).ok_or(ReplayError::UnknownJob(event.name(), job.0))?;
        record.apply(event)?;
        if matches!(event, JobEvent::Purged) {
            self.jobs.remove(&job);
        }
        Ok(())
    }

    fn saw(&mut self, sluid: Sluid) {
        self.last_sluid = self.last_sluid.max(Some(sluid));
    }

    /// The shortest journal that comes to the same: for compaction.
    pub fn into_events(self) -> Vec<ControllerEvent> {
        let mut events = Vec::with_capacity(self.jobs.len() + self.nodes.len() + self.partitions.len() + 2);
        events.push(ControllerEvent::Started { epoch: self.epoch });
        let jobs = u64::try_from(self.jobs.len()).unwrap_or(u64::MAX);
        for (job, record) in self.jobs {
            events.push(ControllerEvent::Job { job, event: Box::new(JobEvent::Submitted(Box::new(record))) });
        }
        for (node, saved) in self.nodes {
            events.push(ControllerEvent::Node { node, saved: Box::new(saved) });
        }
        for (partition, saved) in self.partitions {
            events.push(ControllerEvent::Partition { partition, saved: Box::new(saved) });
        }
        // Last, so that counting the jobs above does not go beyond what is said here.
        events.push(ControllerEvent::Used {
            job: JobId(self.last_job),
            sluid: self.last_sluid.unwrap_or(Sluid(0)),
            submissions: self.submissions.max(jobs),
        });
        events
    }
}
