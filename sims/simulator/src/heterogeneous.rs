//! Heterogeneous jobs: components that are accepted together, start together or not at all, are requeued together and end with
//! their leader.

use super::world::{Happening, PATIENCE, World};
use garrick_actors::job::core::JobCore;
use garrick_events::records::{
    job::{Afterwards, JobRecord, Phase},
    job_event::JobEvent,
};
use garrick_model::{
    ids::{JobId, Sluid},
    resources::{MemoryMib, MemoryRequest},
    spec::{JobKind, JobSpec, NodeCount},
    time::{TimeLimit, Timestamp},
};
use std::time::Duration;

/// Until a component hears what its leader's owner has recorded: messages that are late, and a controller that starts again
/// and waits for nodes that do not come back.
const WORD: Duration = Duration::from_secs(60 + PATIENCE.as_secs());

const TOGETHER: &str = "components_of_a_heterogeneous_job_start_together";

impl World {
    /// Two or three components, each with other wishes.
    pub(super) fn some_components(&mut self) -> Vec<JobSpec> {
        let plain = serde_json::json!({"kind": "Batch", "name": "het", "work_dir": "/", "script": b"#!/bin/sh\n"});
        let mut base: JobSpec = serde_json::from_value(plain).expect("all other fields of a job have defaults");
        let partition = match self.random.between(0, 9) {
            0 => Some("urgent"),
            1 => Some("still"),
            _ => None,
        };
        base.partitions.extend(partition.map(str::to_owned));
        let (count, licensed) = (self.random.between(2, 3), self.random.between(0, 9));
        let mut components = Vec::new();
        for offset in 0..count {
            let mut spec = JobSpec { tasks: Some(self.random.between(1, 3)), ..base.clone() };
            let minutes = self.random.between(2, 60);
            spec.time_limit = Some(TimeLimit::Secs(u64::from(minutes) * 60));
            spec.memory = MemoryRequest::PerNode(MemoryMib(u64::from(self.random.between(100, 1_000))));
            if self.random.one_in_thousand(250) {
                (spec.nodes, spec.tasks) = (Some(NodeCount { min: 2, max: None }), None);
            }
            if licensed == offset {
                spec.licenses = Some("viewer:1".to_owned());
            }
            if offset > 0 {
                (spec.kind, spec.script) = (JobKind::Allocation, None);
            } else if self.random.one_in_thousand(150) {
                spec.dependencies = self.some_dependency();
            }
            components.push(spec);
        }
        components
    }

    /// The controller dies while this is on its way to the disk, or soon after.
    pub(super) fn may_crash_soon(&mut self) {
        if !self.is_calm() && self.random.one_in_thousand(100) {
            let pause = self.random.between(0, 5);
            self.after(u64::from(pause), Happening::Crash);
        }
    }

    /// A run of a heterogeneous job is about to be launched. Its leader's is the last one: all others serve, or did.
    pub(super) fn against_early_leaders(&mut self, job: JobId) {
        let Some(record) = self.replayed.jobs.get(&job).filter(|record| record.spec.het.is_some()) else { return };
        self.ledger.counts.add("component launched");
        let Some(run) = record.phase.run() else { return };
        let serves = |other: &JobId| {
            let other = self.replayed.jobs.get(other).and_then(|other| other.phase.run());
            other.is_some_and(|run| run.started.is_some())
        };
        if let Some(other) = record.spec.het_others().find(|other| !serves(other)) {
            let parts: Vec<(JobId, Sluid)> = run.parts.iter().map(|part| (part.job, part.sluid)).collect();
            let what = format!("leader {} is launched with {parts:?}, and component {} does not serve", job.0, other.0);
            self.broken = Some((TOGETHER, what));
        }
    }

    /// What a leader records and its others are to follow.
    pub(super) fn note_leader(&mut self, job: JobId, event: &JobEvent) {
        let Some(record) = self.replayed.jobs.get(&job) else { return };
        if record.spec.het_others().next().is_none() {
            return;
        }
        match event {
            JobEvent::Allocated(_) => {
                self.ledger.counts.add("heterogeneous job started");
                let held = |other: &JobId| self.replayed.jobs.get(other).is_some_and(|other| other.hold.is_some());
                if let Some(other) = record.spec.het_others().find(held) {
                    let what = format!("leader {} is given nodes, and component {} is held", job.0, other.0);
                    self.broken = Some((TOGETHER, what));
                }
                self.leaders_moved.remove(&job);
                self.may_crash_soon();
            }
            JobEvent::Ended(_) => {
                self.ledger.counts.add("heterogeneous job ended");
                self.leaders_moved.insert(job, self.now);
            }
            JobEvent::Requeued { .. } => {
                self.ledger.counts.add("heterogeneous job queued again");
                self.leaders_moved.insert(job, self.now);
            }
            JobEvent::Purged => {
                self.leaders_moved.remove(&job);
            }
            _ => {}
        }
    }

    /// After a restart no owner is expected to have heard anything.
    pub(super) fn note_leaders_again(&mut self) {
        let leaders = self.replayed.jobs.values().filter(|record| record.spec.het_others().next().is_some());
        self.leaders_moved = leaders.map(|record| (record.id, self.now)).collect();
    }

    /// Since when the leader of this one is as it is, and all have to have heard of it by now.
    pub(super) fn leader_that_was_heard(&self, record: &JobRecord) -> Option<(&JobRecord, Timestamp)> {
        let leader = record.spec.het_leader_of_component()?;
        let since = *self.leaders_moved.get(&leader)?;
        let known = self.now.since(since) > WORD;
        Some((self.jobs.get(&leader)?.record(), since)).filter(|_| known)
    }

    /// What a component's leader has recorded for it, and it has not adopted yet.
    pub fn waits_for_its_leaders_word(&self, live: &JobRecord, replayed: &JobRecord) -> bool {
        let granted = live.sluid == replayed.sluid && matches!(replayed.phase, Phase::Starting(_));
        live.spec.het_leader_of_component().is_some() && matches!(live.phase, Phase::Pending) && granted
    }

    /// Only the whole of a heterogeneous job can be cancelled while it waits.
    pub(super) fn whole_for(&self, job: JobId) -> JobId {
        let record = self.jobs.get(&job).map(JobCore::record).filter(|record| matches!(record.phase, Phase::Pending));
        let leader = record.and_then(|record| record.spec.het_leader_of_component());
        leader.filter(|leader| self.jobs.contains_key(leader)).unwrap_or(job)
    }
}

/// No component is without the others.
pub(super) fn is_whole(world: &World, job: JobId) -> Result<(), String> {
    let Some((leader, size)) = world.ledger.jobs.get(&job).and_then(|note| note.het) else { return Ok(()) };
    let missing = (leader.0..leader.0 + size).find(|other| !world.ledger.jobs.contains_key(&JobId(*other)));
    missing.map_or(Ok(()), |other| Err(format!("component {} was accepted, and component {other} was not", job.0)))
}

/// A component has a run when its leader has recorded that with its own, and the leader has one when all others have.
pub(super) fn has_no_run_alone(world: &World, record: &JobRecord) -> Result<(), String> {
    let (Some((leader, _)), Some(run)) = (record.spec.het, record.phase.run()) else { return Ok(()) };
    let (id, ledger) = (record.id.0, &world.ledger);
    if record.id != leader {
        let granted = ledger.granted.contains(&record.sluid);
        return if granted {
            Ok(())
        } else {
            Err(format!("component {id} has nodes that its leader knows nothing of"))
        };
    }
    let all = run.parts.iter().map(|part| part.job).eq(record.spec.het_others());
    let missing = run.parts.iter().find(|part| !ledger.started.contains(&part.sluid));
    match missing {
        None if all => Ok(()),
        _ => Err(format!("leader {id} has nodes for {} others, of which {missing:?} has none", run.parts.len())),
    }
}

/// A component goes on no longer than its leader, and waits when that waits again.
pub(super) fn follows_its_leader(world: &World, record: &JobRecord) -> Result<(), String> {
    let Some((leader, since)) = world.leader_that_was_heard(record) else { return Ok(()) };
    let late = world.now().since(since);
    let goes_on = record.phase.working().is_some_and(|run| run.ending.is_none());
    let follows = match &leader.phase {
        Phase::Completing(_, end) | Phase::Over(_, end) => {
            !(goes_on || (matches!(record.phase, Phase::Pending) && end.then == Afterwards::Over))
        }
        Phase::Pending => !goes_on && !matches!(record.phase, Phase::Over(..)),
        _ => true,
    };
    let (name, state) = (leader.phase.name(), record.phase.name());
    if follows {
        return Ok(());
    }
    Err(format!("leader {} is {name} for {late:?}, and component {} is {state}", leader.id.0, record.id.0))
}
