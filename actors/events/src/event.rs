//! The contents of the journal, and how a controller is rebuilt from it.

use crate::{
    beside::{Piece, Pieces},
    progress::{Position, Progress},
    records::{
        job::{JobRecord, Phase},
        job_event::JobEvent,
        jobs::Records,
        node::SavedNode,
        partition::SavedPartition,
    },
    usage::{Usage, UsageEvent, Using},
};
use garrick_model::{
    config::{DynamicNode, PartitionChange},
    crontab::Crontab,
    ids::{JobId, Sluid},
    packed_steps::PackedSteps,
    reservation::Reservation,
    time::Timestamp,
    trigger::Trigger,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// One durable event of the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ControllerEvent {
    /// About a job.
    Job {
        /// The job.
        job: JobId,
        /// The event.
        event: Box<JobEvent>,
    },
    /// The saved state of a node; the last one is valid.
    Node {
        /// The node.
        node: String,
        /// Its saved state.
        saved: Box<SavedNode>,
    },
    /// The saved state of a partition; the last one is valid.
    Partition {
        /// The partition.
        partition: String,
        /// Its saved state.
        saved: Box<SavedPartition>,
    },
    /// A controller started: its epoch is one more than the last.
    Started {
        /// Epoch.
        epoch: u64,
    },
    /// Highest ids used so far; in a compacted journal it stands for jobs that are forgotten.
    Used {
        /// Highest job id.
        job: JobId,
        /// Last run.
        sluid: Sluid,
        /// Number of submissions so far, for priorities.
        submissions: u64,
    },
    /// Events saved together: one record of the file, so that after a crash all of them or none are there.
    Together(Vec<ControllerEvent>),
    /// A part of events that are saved together but are too long for one record. They are valid once the last part is there:
    /// after a crash in between, none of them counts.
    Part {
        /// It is the first part.
        first: bool,
        /// It is the last part.
        last: bool,
        /// Its events.
        events: Vec<ControllerEvent>,
    },
    /// The state of a reservation; the last one is valid.
    Reservation {
        /// The reservation.
        reservation: String,
        /// Its state; `None`: it was deleted.
        #[serde(default)]
        saved: Option<Box<Reservation>>,
        /// When.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// A trigger; the last one is valid. The greatest number is kept though its trigger is gone: none is given twice.
    Trigger {
        /// Its number.
        trigger: u32,
        /// It; `None`: it was removed.
        #[serde(default)]
        saved: Option<Box<Trigger>>,
    },
    /// The crontab of a user; the last one is valid.
    Crontab {
        /// The user.
        uid: u32,
        /// It; `None`: it was removed.
        #[serde(default)]
        saved: Option<Box<Crontab>>,
    },
    /// The state of a dynamic node, which `slurm.conf` does not list; the last one is valid.
    DynamicNode {
        /// The node.
        node: String,
        /// Its state; `None`: it was deleted.
        #[serde(default)]
        saved: Option<Box<DynamicNode>>,
        /// It was deleted because `slurm.conf` lists the node now: the saved state of the node stays.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        of_file: bool,
    },
    /// An administrator created or deleted a partition; the last one is valid. Updates of an earlier partition of that name are
    /// over.
    PartitionChange {
        /// The partition.
        partition: String,
        /// What was done; `None`: nothing that is still valid.
        #[serde(default)]
        saved: Option<Box<PartitionChange>>,
    },
    /// Results of steps of a run, as their step manager reported them. They are for followers that keep accounts, and saved only
    /// if there is one. A repeated report is saved again.
    Steps {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Rows.
        steps: PackedSteps,
    },
    /// The valid version of a piece that is kept beside the log because it is secret.
    Beside {
        /// Its name: a file in the state folder.
        name: String,
        /// The version; `None`: it was removed.
        #[serde(default)]
        piece: Option<Piece>,
    },
    /// About the log itself: the position at which it begins, whatever was counted before. First in a file. It is not counted as
    /// an event and has no position.
    Base {
        /// Position of the last event before this file.
        position: Position,
        /// That many of the following events replace all earlier ones, and have no positions of their own.
        events: u64,
        /// Registered followers, and the position up to which each has processed events.
        followers: BTreeMap<String, Position>,
    },
    /// A change of what users and QOS have used that no job causes.
    Usage(Box<UsageEvent>),
    /// About a follower of the log. It is not counted as an event, has no position, and is not shown to followers.
    Follower {
        /// Its name.
        name: String,
        /// What it says.
        is: Following,
    },
}

/// What a registered follower says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Following {
    /// It exists: events that it has not processed are kept. A new follower begins after the current end of the log.
    Registered,
    /// It has processed all events up to this position.
    Acknowledged(Position),
    /// It is gone: nothing is kept for it any more.
    Gone,
}

impl ControllerEvent {
    /// `slurm.conf` lists a formerly dynamic node now.
    pub const fn node_of_file(node: String) -> Self {
        Self::DynamicNode { node, saved: None, of_file: true }
    }

    /// The records that save these events together or not at all. A record holds `most` bytes, or one event of any length; `size`
    /// returns the size of an event in bytes.
    pub fn records(events: Vec<Self>, most: usize, size: impl Fn(&Self) -> usize) -> Vec<Self> {
        let sizes: Vec<usize> = if events.len() > 1 { events.iter().map(size).collect() } else { Vec::new() };
        if sizes.iter().fold(0, |sum: usize, size| sum.saturating_add(*size)) <= most {
            return vec![events.into()];
        }
        let mut parts: Vec<Vec<Self>> = Vec::new();
        let mut room = 0;
        for (event, size) in events.into_iter().zip(sizes) {
            match parts.last_mut().filter(|_| size <= room) {
                Some(part) => part.push(event),
                None => {
                    parts.push(vec![event]);
                    room = most;
                }
            }
            room = room.saturating_sub(size);
        }
        let count = parts.len();
        let part = |(n, events)| Self::Part { first: n == 0, last: n + 1 == count, events };
        parts.into_iter().enumerate().map(part).collect()
    }
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

/// A journal that is inconsistent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// An event about a job that was never submitted, or was forgotten.
    #[error("journal event {0} about job {1}, which is not known")]
    UnknownJob(&'static str, u32),
    /// An event that does not fit the job's state.
    #[error(transparent)]
    Illegal(#[from] crate::records::job_event::IllegalMove),
}

/// The state that a journal replays to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// Jobs.
    pub jobs: Records,
    /// Nodes with saved state.
    pub nodes: BTreeMap<String, SavedNode>,
    /// Partitions with saved state.
    pub partitions: BTreeMap<String, SavedPartition>,
    /// Reservations.
    pub reservations: BTreeMap<String, Reservation>,
    /// Triggers, by number.
    pub triggers: BTreeMap<u32, Trigger>,
    /// Greatest number of a trigger so far.
    pub last_trigger: u32,
    /// Crontabs, by user.
    pub crontabs: BTreeMap<u32, Crontab>,
    /// Dynamic nodes.
    pub dynamic_nodes: BTreeMap<String, DynamicNode>,
    /// Partitions that were created or deleted at run time.
    pub partition_changes: BTreeMap<String, PartitionChange>,
    /// Pieces beside the log.
    pub beside: Pieces,
    /// What users and QOS have used.
    pub usage: Usage,
    /// Epoch of the last controller.
    pub epoch: u64,
    /// Highest job id used.
    pub last_job: u32,
    /// Newest run.
    pub last_sluid: Option<Sluid>,
    /// Number of submissions so far.
    pub submissions: u64,
    /// Position of the last event, and positions of followers.
    pub progress: Progress,
    /// Bytes of scripts, environments and arguments by user; entries of 0 are removed.
    bytes: BTreeMap<u32, u64>,
    /// Parts whose last part has not come yet.
    parts: Vec<ControllerEvent>,
}

impl Replayed {
    /// Applies one event, with the same function that live owners use.
    pub fn apply(&mut self, event: &ControllerEvent) -> Result<(), ReplayError> {
        if let ControllerEvent::Part { first, last, events } = event {
            if *first {
                self.parts.clear();
            }
            self.parts.extend_from_slice(events);
            let whole = if *last { std::mem::take(&mut self.parts) } else { Vec::new() };
            return self.apply_all(&whole);
        }
        // They belong to a write that was cut short: this event was written after the restart.
        self.parts.clear();
        if let ControllerEvent::Together(events) = event {
            return self.apply_all(events);
        }
        self.progress.note(event);
        match event {
            ControllerEvent::Job { job, event } => return self.apply_job(*job, event),
            ControllerEvent::Node { node, saved } => {
                self.nodes.insert(node.clone(), (**saved).clone());
            }
            ControllerEvent::Partition { partition, saved } => {
                self.partitions.insert(partition.clone(), (**saved).clone());
            }
            ControllerEvent::Reservation { reservation, saved: Some(saved), .. } => {
                self.reservations.insert(reservation.clone(), (**saved).clone());
            }
            ControllerEvent::Reservation { reservation, saved: None, .. } => {
                self.reservations.remove(reservation);
            }
            ControllerEvent::Trigger { trigger, saved } => {
                self.last_trigger = self.last_trigger.max(*trigger);
                match saved {
                    Some(saved) => drop(self.triggers.insert(*trigger, (**saved).clone())),
                    None => drop(self.triggers.remove(trigger)),
                }
            }
            ControllerEvent::Crontab { uid, saved: Some(saved) } => {
                self.crontabs.insert(*uid, (**saved).clone());
            }
            ControllerEvent::Crontab { uid, saved: None } => {
                self.crontabs.remove(uid);
            }
            ControllerEvent::DynamicNode { node, saved: Some(saved), .. } => {
                self.dynamic_nodes.insert(node.clone(), (**saved).clone());
            }
            ControllerEvent::DynamicNode { node, saved: None, of_file } => {
                self.dynamic_nodes.remove(node);
                // A later node of that name must not inherit DOWN or DRAIN.
                if !of_file {
                    self.nodes.remove(node);
                }
            }
            ControllerEvent::PartitionChange { partition, saved } => {
                self.partitions.remove(partition);
                match saved {
                    Some(saved) => drop(self.partition_changes.insert(partition.clone(), (**saved).clone())),
                    None => drop(self.partition_changes.remove(partition)),
                }
            }
            ControllerEvent::Beside { name, piece: Some(piece) } => {
                self.beside.insert(name.clone(), piece.clone());
            }
            ControllerEvent::Beside { name, piece: None } => {
                self.beside.remove(name);
            }
            ControllerEvent::Usage(event) => self.usage.apply(event),
            // Handled above.
            ControllerEvent::Part { .. }
            | ControllerEvent::Together(_)
            | ControllerEvent::Base { .. }
            | ControllerEvent::Follower { .. }
            | ControllerEvent::Steps { .. } => {}
            ControllerEvent::Started { epoch } => self.epoch = self.epoch.max(*epoch),
            ControllerEvent::Used { job, sluid, submissions } => {
                self.last_job = self.last_job.max(job.0);
                // 0 means none.
                if *sluid != Sluid(0) {
                    self.saw(*sluid);
                }
                self.submissions = self.submissions.max(*submissions);
            }
        }
        Ok(())
    }

    /// Applies the events of a batch. If one does not fit, the later ones still have their positions.
    fn apply_all(&mut self, events: &[ControllerEvent]) -> Result<(), ReplayError> {
        for (number, event) in events.iter().enumerate() {
            if let Err(error) = self.apply(event) {
                for event in events.iter().skip(number + 1) {
                    self.progress.note(event);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn apply_job(&mut self, job: JobId, event: &JobEvent) -> Result<(), ReplayError> {
        match event {
            JobEvent::Submitted(record) => {
                let mut record = (**record).clone();
                // Earlier versions saved the script with each task.
                let array = record.array_task.and_then(|task| self.jobs.get(&task.array_job));
                if let Some(array) = array.filter(|array| record.has_work_of(array)) {
                    record.take_work_of(array);
                }
                return self.submitted(job, record);
            }
            JobEvent::SubmittedLike { record, like } => {
                let like = self.jobs.get(like).ok_or(ReplayError::UnknownJob(event.name(), like.0))?;
                let mut record = (**record).clone();
                record.take_work_of(like);
                return self.submitted(job, record);
            }
            JobEvent::TaskSplit { index, job: task } if self.marks(job, *index, *task) => return Ok(()),
            JobEvent::Requeued { sluid, .. } => self.saw(*sluid),
            _ => {}
        }
        let record = self.jobs.get_mut(&job).ok_or(ReplayError::UnknownJob(event.name(), job.0))?;
        if moves_usage(event) {
            let before = Using::of(Some(record));
            record.apply(event)?;
            let after = Using::of(Some(record));
            if let Some(at) = moment(event, record) {
                self.usage.change(at, before, after);
            }
        } else {
            record.apply(event)?;
        }
        if matches!(event, JobEvent::Purged) {
            self.count(job, u64::saturating_sub);
            self.jobs.remove(&job);
        }
        Ok(())
    }

    /// Bytes of the scripts, environments and arguments of a user's jobs.
    pub fn bytes_of(&self, uid: u32) -> u64 {
        self.bytes.get(&uid).copied().unwrap_or(0)
    }

    fn count(&mut self, job: JobId, with: fn(u64, u64) -> u64) {
        let Some(record) = self.jobs.get(&job) else { return };
        let (uid, own) = (record.owner.uid, own_bytes(record));
        let of_user = self.bytes.entry(uid).or_default();
        *of_user = with(*of_user, own);
        if *of_user == 0 {
            self.bytes.remove(&uid);
        }
    }

    fn submitted(&mut self, job: JobId, record: JobRecord) -> Result<(), ReplayError> {
        self.last_job = self.last_job.max(job.0);
        self.saw(record.sluid);
        self.submissions += u64::from(!self.jobs.contains_key(&job));
        self.mark_split(job, &record)?;
        self.count(job, u64::saturating_sub);
        if let Some(at) = record.phase.run().map(|run| run.start) {
            self.usage.change(at, Using::of(self.jobs.get(&job)), Using::of(Some(&record)));
        }
        self.jobs.insert(job, record);
        self.count(job, u64::saturating_add);
        Ok(())
    }

    /// A task's record implies that it was split off its array, even if a crash cut off the array's event that follows.
    fn mark_split(&mut self, job: JobId, record: &JobRecord) -> Result<(), ReplayError> {
        let Some(task) = record.array_task.filter(|task| task.array_job != job) else { return Ok(()) };
        let Some(array) = self.jobs.get_mut(&task.array_job) else { return Ok(()) };
        if array.array.as_ref().is_some_and(|a| a.pending.contains(&task.index)) {
            array.apply(&JobEvent::TaskSplit { index: task.index, job })?;
        }
        Ok(())
    }

    fn marks(&self, array: JobId, index: u32, task: JobId) -> bool {
        let marks = self.jobs.get(&array).and_then(|record| record.array.as_ref()).map(|a| &a.tasks);
        marks.is_some_and(|marks| marks.get(&index).is_some_and(|mark| mark.job == task))
    }

    fn saw(&mut self, sluid: Sluid) {
        self.last_sluid = self.last_sluid.max(Some(sluid));
    }

    /// The shortest journal that replays to the same state, at the same position: for compaction. Events are made one at a time,
    /// from what is left.
    pub fn into_events(self) -> impl Iterator<Item = ControllerEvent> {
        let jobs = self.jobs.len();
        let last = self.last_trigger;
        let gone_trigger = (last > 0 && !self.triggers.contains_key(&last)).then_some(last);
        let others = self.dynamic_nodes.len()
            + self.partition_changes.len()
            + self.nodes.len()
            + self.partitions.len()
            + self.reservations.len()
            + self.crontabs.len()
            + self.triggers.len()
            + usize::from(gone_trigger.is_some())
            + self.beside.len();
        // After the jobs: what these use is in it.
        let usage = self.usage.events();
        let others = others + usage.len();
        let usage = usage.into_iter().map(|event| ControllerEvent::Usage(Box::new(event)));
        // Including the first and the last one.
        let base = self.progress.base(count(jobs + others + 2));
        let started = ControllerEvent::Started { epoch: self.epoch };
        // Last, so that the jobs above do not count beyond it.
        let used = ControllerEvent::Used {
            job: JobId(self.last_job),
            sluid: self.last_sluid.unwrap_or(Sluid(0)),
            submissions: self.submissions.max(count(jobs)),
        };
        // The script, arguments and environment of an array's tasks are saved with the first of them, or with the array.
        let mut work_of: BTreeMap<JobId, Arc<JobRecord>> = BTreeMap::new();
        let jobs = self.jobs.into_shared().map(move |record| {
            let job = record.id;
            let array = record.array_task.map(|task| task.array_job).or(record.array.is_some().then_some(job));
            let first = array.and_then(|array| work_of.get(&array)).filter(|first| record.has_work_of(first));
            let event = match (first, array) {
                (Some(first), _) => JobEvent::task_submitted(&record, first.id),
                (None, Some(array)) => {
                    work_of.entry(array).or_insert_with(|| Arc::clone(&record));
                    JobEvent::Submitted(Box::new(Arc::unwrap_or_clone(record)))
                }
                (None, None) => JobEvent::Submitted(Box::new(Arc::unwrap_or_clone(record))),
            };
            ControllerEvent::Job { job, event: Box::new(event) }
        });
        let dynamic_nodes = self.dynamic_nodes.into_iter().map(|(node, saved)| ControllerEvent::DynamicNode {
            node,
            saved: Some(Box::new(saved)),
            of_file: false,
        });
        let nodes = self.nodes.into_iter().map(|(node, saved)| ControllerEvent::Node { node, saved: Box::new(saved) });
        let partition_changes = self
            .partition_changes
            .into_iter()
            .map(|(partition, saved)| ControllerEvent::PartitionChange { partition, saved: Some(Box::new(saved)) });
        let partitions = self
            .partitions
            .into_iter()
            .map(|(partition, saved)| ControllerEvent::Partition { partition, saved: Box::new(saved) });
        let reservations = self.reservations.into_iter().map(|(reservation, saved)| ControllerEvent::Reservation {
            reservation,
            saved: Some(Box::new(saved)),
            at: None,
        });
        let crontabs = self
            .crontabs
            .into_iter()
            .map(|(uid, saved)| ControllerEvent::Crontab { uid, saved: Some(Box::new(saved)) });
        let triggers = self
            .triggers
            .into_iter()
            .map(|(trigger, saved)| ControllerEvent::Trigger { trigger, saved: Some(Box::new(saved)) });
        let gone = gone_trigger.map(|trigger| ControllerEvent::Trigger { trigger, saved: None });
        let beside = self.beside.into_iter().map(|(name, piece)| ControllerEvent::Beside { name, piece: Some(piece) });
        let all = [base, started].into_iter().chain(jobs).chain(dynamic_nodes).chain(nodes);
        all.chain(partition_changes)
            .chain(partitions)
            .chain(reservations)
            .chain(crontabs)
            .chain(triggers)
            .chain(gone)
            .chain(beside)
            .chain(usage)
            .chain([used])
    }
}

/// Events after which a run may use its allocation, or no longer.
const fn moves_usage(event: &JobEvent) -> bool {
    matches!(
        event,
        JobEvent::Allocated(_)
            | JobEvent::NodeBooted { .. }
            | JobEvent::NodesLost { .. }
            | JobEvent::Suspended
            | JobEvent::Resumed
            | JobEvent::Stopped { .. }
            | JobEvent::Continued { .. }
            | JobEvent::Ended(_)
    )
}

/// When that was. `record` is as after the event.
fn moment(event: &JobEvent, record: &JobRecord) -> Option<Timestamp> {
    match (event, &record.phase) {
        (JobEvent::NodeBooted { at, .. } | JobEvent::Stopped { at, .. } | JobEvent::Continued { at }, _) => Some(*at),
        (JobEvent::Ended(end), _) => Some(end.at),
        // Earlier versions did not save when; runs of theirs are charged to nobody.
        (_, Phase::Suspended(run) | Phase::Running(run)) => run.suspended.as_ref().map(|s| s.at).or(Some(run.start)),
        (_, phase) => phase.run().map(|run| run.start),
    }
}

/// The bytes that a record adds: a task of an array shares those of the array.
fn own_bytes(record: &JobRecord) -> u64 {
    let shares = record.array_task.is_some_and(|task| task.array_job != record.id);
    if shares { 0 } else { record.spec.work_bytes() }
}

fn count(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}
