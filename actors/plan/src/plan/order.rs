//! The order in which jobs are tried.

use crate::{rules::whole::waits_already, snapshot::facts::ClusterView};
use garrick_model::{ids::JobId, state::JobState, view::JobView};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// A job in one of its partitions, ordered as they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// False (expedited jobs) sorts first.
    pub(super) ordinary: bool,
    /// True sorts first: the job waits for blocks that are already broken up, and would be running otherwise.
    pub(super) patient: std::cmp::Reverse<bool>,
    pub(super) tier: std::cmp::Reverse<u32>,
    pub(super) priority: std::cmp::Reverse<u32>,
    /// Among equals the job's number decides (Slurm's page on the multifactor priority): a requeued job keeps its place.
    /// Tasks that were split off an array go before those that are still part of its record.
    pub(super) id: (JobId, bool, JobId),
    /// Position of the partition in the job's own list.
    pub(super) choice: usize,
    pub partition: usize,
}

impl Key {
    /// Tier of its partition.
    pub const fn tier(&self) -> u32 {
        self.tier.0
    }
}

/// A key with the job's index in the snapshot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub key: Key,
    pub job: usize,
}

/// Makes the keys of a snapshot's jobs.
pub(crate) struct Keys<'a> {
    pub(super) view: &'a ClusterView,
    pub(super) partitions: HashMap<&'a str, usize>,
    /// Tiers and priorities of heterogeneous jobs, by their leaders.
    pub(super) groups: FxHashMap<JobId, (u32, u32)>,
}

impl Keys<'_> {
    /// The keys of a job: one for each partition in which it may start at all.
    pub fn of(&self, job: &JobView) -> Vec<Key> {
        if !job.eligible {
            return Vec::new();
        }
        let group = job.spec.het.and_then(|(leader, _)| self.groups.get(&leader).copied());
        let places = job.partitions.iter().map(|name| self.partitions.get(name.as_str()).copied());
        let chosen = places.enumerate().filter_map(|(choice, place)| Some((choice, place?)));
        let key = |(choice, partition): (usize, usize)| Key {
            ordinary: job.state != JobState::Expediting,
            patient: std::cmp::Reverse(waits_already(self.view, job)),
            tier: std::cmp::Reverse(group.map_or(self.view.partitions[partition].tier, |(tier, _)| tier)),
            priority: std::cmp::Reverse(group.map_or(job.priority, |(_, priority)| priority)),
            id: (job.array_task.map_or(job.id, |t| t.array_job), job.array_pending.is_some(), job.id),
            choice,
            partition,
        };
        chosen.map(key).collect()
    }
}
