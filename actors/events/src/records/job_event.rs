//! The events of a job's life and the one function that applies them. Only this module decides which transition is legal from
//! which phase.

use super::job::{
    Afterwards, EarlierHold, End, Ending, HeldBy, JobRecord, Phase, PreemptMark, Resolved, Run, Suspended, TaskMark,
    TaskOutcome, Unfenced, Yielded, take_work, without_work,
};
use garrick_model::{
    gres::{GresRequest, Totals},
    ids::{ArrayTask, JobId, Sluid},
    messages::{command::JobChange, node::RequeuePolicy},
    node_sizes::NodeSizes,
    packed_steps::StepTally,
    spec::{Dependencies, JobSpec, Sharing},
    state::ExitStatus,
    time::{TimeLimit, Timestamp},
    view::{Accrual, PriorityTerms},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The new request of a waiting job: the result of an update rather than the update itself, so that it means the same however
/// later versions handle such an update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// The request, without script, arguments and environment, which do not change.
    pub spec: JobSpec,
    /// The request with defaults filled in.
    pub resolved: Resolved,
    /// Priority when not held.
    pub priority: u32,
    /// What the priority is computed from.
    #[serde(default)]
    pub terms: PriorityTerms,
    /// Earliest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Timestamp>,
    /// Dependencies that are not fulfilled yet.
    #[serde(default)]
    pub dependencies: Dependencies,
    /// Some of them never will be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dependency_failed: bool,
    /// For an array's record: most tasks at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_limit: Option<u32>,
    /// Comment set by an administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_comment: Option<String>,
}

impl Revision {
    /// From a record, unchanged.
    fn of(record: &JobRecord) -> Self {
        Self {
            spec: without_work((*record.spec).clone()),
            resolved: record.resolved.clone(),
            priority: record.priority,
            terms: record.terms,
            begin: record.begin,
            dependencies: record.dependencies.clone(),
            dependency_failed: record.dependency_failed,
            array_limit: record.array.as_ref().and_then(|array| array.limit),
            admin_comment: record.admin_comment.clone(),
        }
    }

    /// The result of a change to a record; admission made `spec` and `resolved` from it.
    pub fn new(record: &JobRecord, change: &JobChange, spec: JobSpec, resolved: Resolved) -> Self {
        let before = &record.spec;
        let mut revision = Self { resolved, ..Self::of(record) };
        let mut nice = before.nice;
        if let Some(priority) = change.priority {
            (revision.priority, revision.terms.fixed, nice) = (priority, true, 0);
        }
        if let Some(site) = change.site_factor {
            revision.terms.site = site;
        }
        revision.priority = shifted(revision.priority, nice, spec.nice);
        if change.begin.is_some() || spec.begin != before.begin {
            revision.begin = spec.begin;
        }
        if change.dependencies.is_some() || spec.dependencies != before.dependencies {
            (revision.dependencies, revision.dependency_failed) = (spec.dependencies.clone(), false);
        }
        if let (Some(limit), Some(_)) = (change.array_limit, &record.array) {
            revision.array_limit = (limit > 0).then_some(limit);
        }
        if let Some(comment) = &change.admin_comment {
            revision.admin_comment = Some(comment.clone());
        }
        // The identity of the job does not change.
        let (array_task, het, het_size) = (before.array_task, before.het, before.het_size);
        revision.spec = JobSpec { array_task, het, het_size, ..without_work(spec) };
        revision
    }
}

/// The new priority when the nice value that is part of it changes.
pub fn shifted(priority: u32, before: i32, after: i32) -> u32 {
    if before == after {
        return priority;
    }
    let raised = i64::from(priority) + i64::from(before) - i64::from(after);
    u32::try_from(raised.max(1)).unwrap_or(u32::MAX)
}

/// One durable change of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JobEvent {
    /// First event of a job. In a compacted journal it also summarises all events before it.
    Submitted(Box<JobRecord>),
    /// The same, for a job with the same script, arguments and environment as another one, which are left out here: a task of an
    /// array.
    SubmittedLike {
        /// Its record, without them.
        record: Box<JobRecord>,
        /// The job that has them.
        like: JobId,
    },
    /// Held.
    Held(HeldBy),
    /// Released, with the priority that it gets.
    Released {
        /// Priority.
        priority: u32,
    },
    /// Changed fields with their new values. Earlier versions used this for waiting jobs too: see [`Self::Revised`].
    Updated(Box<JobChange>),
    /// A waiting job has a new request.
    Revised(Box<Revision>),
    /// The remaining dependencies.
    DependenciesLeft {
        /// Still to be fulfilled.
        left: Dependencies,
        /// Never will be.
        failed: bool,
    },
    /// The job became eligible: from now on only resources keep it waiting.
    Eligible {
        /// When.
        at: Timestamp,
    },
    /// Something else than resources keeps it waiting again: it is held, or has a later begin time or another dependency. It keeps
    /// what it has gained by age.
    NotEligible,
    /// Since when it gains priority by age, where limits say how many jobs may.
    Accrues(Accrual),
    /// Somebody had it begin anew. Earlier versions saved this as [`Self::Accrues`].
    AccrualReset {
        /// When.
        at: Timestamp,
    },
    /// A task of this array became a job of its own.
    TaskSplit {
        /// Index.
        index: u32,
        /// Its job.
        job: JobId,
    },
    /// The last waiting task of an array took this record over.
    BecameTask {
        /// Index.
        index: u32,
    },
    /// A task that was split off has changed its state.
    TaskNews {
        /// Index.
        index: u32,
        /// Started.
        started: Option<Timestamp>,
        /// Over.
        over: Option<TaskOutcome>,
        /// Its exit status, if it is over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<ExitStatus>,
    },
    /// All nodes accepted the run.
    Allocated(Box<Run>),
    /// A node that was powered up for it has registered.
    NodeBooted {
        /// Node.
        node: String,
        /// QUIC address of its agent.
        address: String,
        /// When.
        at: Timestamp,
    },
    /// Its step manager is ready.
    Started {
        /// When.
        at: Timestamp,
        /// The step manager's door.
        door: String,
    },
    /// New limit of the run.
    LimitChanged(TimeLimit),
    /// Stopped.
    Suspended,
    /// Continued.
    Resumed,
    /// Its end was requested.
    Ending(Ending),
    /// The work is over.
    Ended(End),
    /// Final counts of its step manager.
    StepsCounted(StepTally),
    /// Nothing is left on that node.
    NodeReleased {
        /// Node.
        node: String,
        /// Its epilog failed.
        #[serde(default)]
        epilog_failed: bool,
    },
    /// Nothing is left on that node, which is kept for the job.
    NodeKept {
        /// Node.
        node: String,
    },
    /// These nodes are no longer waited for.
    NodesLost {
        /// Nodes.
        nodes: Vec<String>,
    },
    /// What an earlier run held on that node is released.
    EarlierReleased {
        /// That run.
        sluid: Sluid,
        /// Node.
        node: String,
    },
    /// It is no longer expedited.
    NotExpedited,
    /// Requeued as a new run.
    Requeued {
        /// Identity of the new run.
        sluid: Sluid,
        /// Held there.
        hold: Option<HeldBy>,
        /// Not before this.
        begin: Option<Timestamp>,
        /// Ahead of all others.
        #[serde(default)]
        expedited: bool,
        /// When: the new run counts as submitted then. Earlier versions did not save it, and kept the first submission.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// Forgotten.
    Purged,
    /// Another job preempts the run.
    Preempted(PreemptMark),
    /// Its reservation has ended: the run ends then at the latest.
    LeaveBy(Timestamp),
    /// The run was suspended, or the cause of its suspension changed.
    Stopped {
        /// When.
        at: Timestamp,
        /// An administrator suspended it.
        by_admin: bool,
        /// It is suspended for this job.
        yielded: Option<Yielded>,
        /// Gang scheduling: it waits for its turn on shared CPUs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits_turn: bool,
    },
    /// The run was resumed.
    Continued {
        /// When.
        at: Timestamp,
    },
    /// It does not belong to a crontab any more: no run follows because of it.
    LeftCrontab,
    /// Whether another run may follow this one has changed; its nodes are told.
    RequeueSet(RequeuePolicy),
    /// A node was given up, and the current run may still be active there.
    Unfenced {
        /// Node.
        node: String,
        /// The node ends it by itself before the controller gives the node up.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ends_when_cut_off: bool,
    },
    /// Nothing of that run is left on a node that was given up.
    Fenced {
        /// Run.
        sluid: Sluid,
        /// Node.
        node: String,
    },
    /// `PrologSlurmctld` succeeded: the run may be launched.
    Prepared,
    /// `EpilogSlurmctld` has ended, well or not.
    EpilogEnded,
}

impl JobEvent {
    /// A task of an array became a job of its own: its script, arguments and environment are saved with the array.
    pub fn task_submitted(record: &JobRecord, array: JobId) -> Self {
        Self::SubmittedLike { record: Box::new(record.without_work()), like: array }
    }

    /// Name for logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Submitted(_) => "Submitted",
            Self::SubmittedLike { .. } => "SubmittedLike",
            Self::Held(_) => "Held",
            Self::Released { .. } => "Released",
            Self::Updated(_) => "Updated",
            Self::Revised(_) => "Revised",
            Self::DependenciesLeft { .. } => "DependenciesLeft",
            Self::Eligible { .. } => "Eligible",
            Self::NotEligible => "NotEligible",
            Self::Accrues(_) => "Accrues",
            Self::AccrualReset { .. } => "AccrualReset",
            Self::TaskSplit { .. } => "TaskSplit",
            Self::BecameTask { .. } => "BecameTask",
            Self::TaskNews { .. } => "TaskNews",
            Self::Allocated(_) => "Allocated",
            Self::NodeBooted { .. } => "NodeBooted",
            Self::Started { .. } => "Started",
            Self::LimitChanged(_) => "LimitChanged",
            Self::Suspended => "Suspended",
            Self::Resumed => "Resumed",
            Self::Ending(_) => "Ending",
            Self::Ended(_) => "Ended",
            Self::StepsCounted(_) => "StepsCounted",
            Self::NodeReleased { .. } => "NodeReleased",
            Self::NodeKept { .. } => "NodeKept",
            Self::NodesLost { .. } => "NodesLost",
            Self::EarlierReleased { .. } => "EarlierReleased",
            Self::NotExpedited => "NotExpedited",
            Self::Requeued { .. } => "Requeued",
            Self::Purged => "Purged",
            Self::Preempted(_) => "Preempted",
            Self::LeaveBy(_) => "LeaveBy",
            Self::Stopped { .. } => "Stopped",
            Self::Continued { .. } => "Continued",
            Self::LeftCrontab => "LeftCrontab",
            Self::RequeueSet(_) => "RequeueSet",
            Self::Unfenced { .. } => "Unfenced",
            Self::Fenced { .. } => "Fenced",
            Self::Prepared => "Prepared",
            Self::EpilogEnded => "EpilogEnded",
        }
    }
}

/// An event that does not fit the state it was applied to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("job {job}: {event} while {phase}")]
pub struct IllegalMove {
    /// Job.
    pub job: u32,
    /// Event.
    pub event: &'static str,
    /// State.
    pub phase: &'static str,
}

impl JobRecord {
    /// Applies one event. A record changes in no other way.
    pub fn apply(&mut self, event: &JobEvent) -> Result<(), IllegalMove> {
        let illegal = IllegalMove { job: self.id.0, event: event.name(), phase: self.phase.name() };
        let done = match event {
            JobEvent::Submitted(_)
            | JobEvent::SubmittedLike { .. }
            | JobEvent::Held(_)
            | JobEvent::Released { .. }
            | JobEvent::Updated(_)
            | JobEvent::Revised(_)
            | JobEvent::DependenciesLeft { .. }
            | JobEvent::Eligible { .. }
            | JobEvent::NotEligible
            | JobEvent::Accrues(_)
            | JobEvent::AccrualReset { .. }
            | JobEvent::EarlierReleased { .. }
            | JobEvent::NotExpedited
            | JobEvent::LeftCrontab
            | JobEvent::Fenced { .. } => self.apply_to_request(event),
            JobEvent::TaskSplit { .. } | JobEvent::BecameTask { .. } | JobEvent::TaskNews { .. } => {
                self.apply_to_array(event)
            }
            JobEvent::Allocated(_)
            | JobEvent::Started { .. }
            | JobEvent::Suspended
            | JobEvent::Resumed
            | JobEvent::Stopped { .. }
            | JobEvent::Continued { .. }
            | JobEvent::Ending(_)
            | JobEvent::Ended(_)
            | JobEvent::Requeued { .. }
            | JobEvent::Purged => self.apply_to_phase(event),
            JobEvent::LimitChanged(_)
            | JobEvent::StepsCounted(_)
            | JobEvent::NodeReleased { .. }
            | JobEvent::NodeKept { .. }
            | JobEvent::NodesLost { .. }
            | JobEvent::RequeueSet(_)
            | JobEvent::NodeBooted { .. }
            | JobEvent::Unfenced { .. }
            | JobEvent::Preempted(_)
            | JobEvent::LeaveBy(_)
            | JobEvent::Prepared
            | JobEvent::EpilogEnded => self.apply_to_run(event),
        };
        done.ok_or(illegal)
    }

    /// Applies events about the request and its dependencies. `None`: illegal now.
    fn apply_to_request(&mut self, event: &JobEvent) -> Option<()> {
        match event {
            JobEvent::Submitted(record) => *self = (**record).clone(),
            JobEvent::SubmittedLike { record, .. } => {
                let mut record = (**record).clone();
                record.take_work_of(self);
                *self = record;
            }
            JobEvent::Held(by) => self.hold = Some(*by),
            JobEvent::Released { priority } => {
                self.hold = None;
                self.priority = *priority;
                self.requeues_unasked = 0;
                // As Slurm documents it, this cancels a fixed priority.
                self.terms.fixed = false;
            }
            JobEvent::Updated(change) => self.update(change),
            JobEvent::Revised(revision) if matches!(self.phase, Phase::Pending) => self.revise(revision),
            JobEvent::DependenciesLeft { left, failed } => {
                self.dependencies = left.clone();
                self.dependency_failed = *failed;
            }
            JobEvent::Eligible { at } => self.eligible_time = Some(*at),
            // As Slurm 22.05 shows `EligibleTime` and `AccrueTime` of a job that is held, and those of one that is released.
            JobEvent::NotEligible => {
                let since = self.eligible_time.take()?;
                if self.terms.accrual.is_usual() {
                    self.terms.accrual = Accrual::Since(since);
                }
            }
            JobEvent::Accrues(accrual) if matches!(self.phase, Phase::Pending) => self.terms.accrual = *accrual,
            JobEvent::AccrualReset { at } if matches!(self.phase, Phase::Pending) => {
                (self.terms.accrual, self.terms.reset) = (Accrual::Since(*at), Some(*at));
            }
            JobEvent::EarlierReleased { sluid, node } => {
                self.earlier.retain(|hold| hold.sluid != *sluid || hold.node.name != *node);
            }
            JobEvent::NotExpedited => self.expediting = None,
            JobEvent::LeftCrontab => self.left_crontab = true,
            JobEvent::Fenced { sluid, node } => {
                self.unfenced.retain(|left| left.sluid != *sluid || left.node != *node);
            }
            _ => return None,
        }
        Some(())
    }

    /// Applies events about an array's tasks.
    fn apply_to_array(&mut self, event: &JobEvent) -> Option<()> {
        let array = self.array.as_mut()?;
        match event {
            JobEvent::TaskSplit { index, job } => {
                array.pending.remove(index).then_some(())?;
                array.tasks.insert(*index, TaskMark { job: *job, started: None, over: None, exit: None });
            }
            JobEvent::BecameTask { index } => {
                array.pending.remove(index).then_some(())?;
                let task = ArrayTask { array_job: self.id, index: *index };
                self.array_task = Some(task);
                Arc::make_mut(&mut self.spec).array_task = Some(task);
            }
            JobEvent::TaskNews { index, started, over, exit } => {
                let mark = array.tasks.get_mut(index)?;
                mark.started = mark.started.or(*started);
                (mark.over, mark.exit) = (*over, *exit);
            }
            _ => return None,
        }
        Some(())
    }

    /// Applies events that change the phase, from waiting to the end and to waiting again.
    fn apply_to_phase(&mut self, event: &JobEvent) -> Option<()> {
        match (event, &mut self.phase) {
            (JobEvent::Allocated(run), Phase::Pending) => {
                // Kept nodes are part of the run now, or were released.
                self.earlier.retain(|hold| !hold.kept);
                self.expediting = None;
                if let Some(chosen) = &run.chosen_qos {
                    Arc::make_mut(&mut self.spec).qos = Some(chosen.qos.clone());
                }
                self.phase = Phase::Starting((**run).clone());
            }
            (JobEvent::Started { at, door }, Phase::Starting(run)) => {
                run.started = Some(*at);
                run.door.clone_from(door);
                self.phase = Phase::Running(run.clone());
            }
            (JobEvent::Suspended, Phase::Running(run)) => self.phase = Phase::Suspended(run.clone()),
            (JobEvent::Resumed, Phase::Suspended(run)) => {
                self.phase = Phase::Running(Run { continued: true, ..run.clone() });
            }
            (JobEvent::Stopped { at, by_admin, yielded, waits_turn }, Phase::Running(_) | Phase::Suspended(_)) => {
                let still = matches!(self.phase, Phase::Suspended(_));
                let mut run = self.phase.run()?.clone();
                let since = run.suspended.get_or_insert_with(|| Suspended { at: *at, ..Suspended::default() });
                since.at = if still { since.at } else { *at };
                (since.by_admin, since.yielded) = (*by_admin, yielded.clone());
                since.waits_turn = *waits_turn;
                self.phase = Phase::Suspended(run);
            }
            (JobEvent::Continued { at }, Phase::Suspended(run)) => {
                let suspended = Some(Suspended { at: *at, stood_ms: stood(run, *at), ..Suspended::default() });
                self.phase = Phase::Running(Run { continued: true, suspended, ..run.clone() });
            }
            (JobEvent::Ending(ending), Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run)) => {
                run.ending = Some(ending.clone());
            }
            // The run is being cleaned up already: only what follows can still change.
            (JobEvent::Ending(ending), Phase::Completing(_, end)) => {
                end.then = ending.then;
                self.settle();
            }
            (JobEvent::Ended(end), Phase::Pending) => {
                self.expediting = None;
                self.phase = Phase::Over(None, end.clone());
            }
            (JobEvent::Ended(end), Phase::Starting(_) | Phase::Running(_) | Phase::Suspended(_)) => self.end(end)?,
            (JobEvent::Requeued { sluid, hold, begin, expedited, at }, Phase::Over(..)) => {
                self.first_run.get_or_insert(self.sluid);
                self.wait_again(*sluid, *expedited);
                (self.hold, self.begin) = (*hold, *begin);
                self.submit_time = at.unwrap_or(self.submit_time);
            }
            (JobEvent::Purged, Phase::Over(..)) => {}
            _ => return None,
        }
        Some(())
    }

    /// A run has ended: cleaning its nodes begins.
    fn end(&mut self, end: &End) -> Option<()> {
        let mut run = self.phase.working()?.clone();
        let unasked = run.ending.as_ref().is_none_or(|ending| ending.unasked);
        if matches!(self.phase, Phase::Suspended(_)) {
            let stood_ms = stood(&run, end.at);
            if let Some(suspended) = &mut run.suspended {
                suspended.stood_ms = stood_ms;
            }
        }
        self.phase = Phase::Completing(run, end.clone());
        self.settle();
        match end.then {
            Afterwards::Requeue { .. } if unasked => self.requeues_unasked = self.requeues_unasked.saturating_add(1),
            // Each time that a crontab names is a new beginning.
            Afterwards::Recur => self.requeues_unasked = 0,
            _ => {}
        }
        Some(())
    }

    /// A job that is over waits for another run.
    fn wait_again(&mut self, sluid: Sluid, expedited: bool) {
        let Phase::Over(run, end) = std::mem::replace(&mut self.phase, Phase::Pending) else { return };
        self.expediting = expedited.then_some(end.at);
        self.last_exit = Some(end.exit);
        self.last_cause = end.cause;
        let chosen = run.as_ref().and_then(|run| run.chosen_qos.as_ref());
        // It may have been given another one meanwhile.
        if let Some(chosen) = chosen.filter(|chosen| self.spec.qos.as_ref() == Some(&chosen.qos)) {
            Arc::make_mut(&mut self.spec).qos = Some(chosen.of.clone());
        }
        if expedited {
            self.earlier.extend(run.map(|run| left_behind(&run, self.sluid)).unwrap_or_default());
        }
        self.sluid = sluid;
        self.eligible_time = None;
        (self.terms.accrual, self.terms.reset) = (Accrual::Eligible, None);
        self.steps = StepTally::default();
        self.restarts = self.restarts.saturating_add(1);
    }

    /// Applies events about its run and its nodes.
    fn apply_to_run(&mut self, event: &JobEvent) -> Option<()> {
        match event {
            JobEvent::LimitChanged(limit) => {
                self.working_run()?.time_limit = *limit;
                self.resolved.time_limit = *limit;
            }
            JobEvent::StepsCounted(tally) if matches!(self.phase, Phase::Completing(..) | Phase::Over(..)) => {
                self.steps = *tally;
            }
            JobEvent::NodeReleased { node, epilog_failed } => {
                let run = self.unfinished_run()?;
                run.released.insert(node.clone());
                run.kept.remove(node);
                run.epilog_failed |= epilog_failed;
                self.settle();
            }
            JobEvent::NodeKept { node } => {
                self.unfinished_run()?.kept.insert(node.clone());
                self.settle();
            }
            JobEvent::NodesLost { nodes } => {
                let run = self.unfinished_run()?;
                run.booting.retain(|node| !nodes.contains(node));
                run.lost.extend(nodes.iter().cloned());
                self.settle();
            }
            JobEvent::NodeBooted { node, address, at } => self.booted(node, address, *at)?,
            JobEvent::RequeueSet(policy) => self.working_run()?.requeue = Some(*policy),
            JobEvent::Unfenced { node, ends_when_cut_off } => {
                self.phase.run()?;
                let (sluid, node, ends_when_cut_off) = (self.sluid, node.clone(), *ends_when_cut_off);
                self.unfenced.push(Unfenced { sluid, node, ends_when_cut_off });
            }
            JobEvent::Preempted(mark) => self.working_run()?.preempted = Some(mark.clone()),
            JobEvent::LeaveBy(at) => self.working_run()?.leave_by = Some(*at),
            JobEvent::Prepared => self.working_run()?.awaits_prolog = false,
            JobEvent::EpilogEnded => {
                self.unfinished_run()?.awaits_epilog = false;
                self.settle();
            }
            _ => return None,
        }
        Some(())
    }

    /// A node has come. The time limit counts from the moment at which the last one has.
    fn booted(&mut self, node: &str, address: &str, at: Timestamp) -> Option<()> {
        let Phase::Starting(run) = &mut self.phase else { return None };
        if !run.booting.remove(node) {
            return None;
        }
        let place = run.allocation.nodes.iter().position(|held| held.name == node);
        if let Some(known) = place.and_then(|place| run.addresses.get_mut(place)) {
            address.clone_into(known);
        }
        if run.booting.is_empty() {
            run.start = at;
        }
        Some(())
    }

    /// Completing ends when no node is left to clean, except for nodes that nobody waits for, and the controller's epilog has ended.
    fn settle(&mut self) {
        if let Phase::Completing(run, end) = &self.phase {
            let leaves_lost = end.then == Afterwards::Expedite;
            if !run.awaits_epilog && run.unclean().all(|node| leaves_lost && run.lost.contains(node)) {
                self.phase = Phase::Over(Some(run.clone()), end.clone());
            }
        }
    }

    fn unfinished_run(&mut self) -> Option<&mut Run> {
        match &mut self.phase {
            Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run) | Phase::Completing(run, _) => Some(run),
            Phase::Pending | Phase::Over(..) => None,
        }
    }

    fn working_run(&mut self) -> Option<&mut Run> {
        match &mut self.phase {
            Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run) => Some(run),
            _ => None,
        }
    }

    fn revise(&mut self, revision: &Revision) {
        let before = std::mem::replace(&mut self.spec, Arc::new(revision.spec.clone()));
        take_work(Arc::make_mut(&mut self.spec), &before);
        self.resolved = revision.resolved.clone();
        (self.priority, self.terms) = (revision.priority, revision.terms);
        self.begin = revision.begin;
        self.dependencies = revision.dependencies.clone();
        self.dependency_failed = revision.dependency_failed;
        if let Some(array) = &mut self.array {
            array.limit = revision.array_limit;
        }
        self.admin_comment.clone_from(&revision.admin_comment);
    }

    /// Applies a change of the form that was used before [`JobEvent::Revised`] and that jobs which do not wait still use.
    fn update(&mut self, change: &JobChange) {
        self.update_place(change);
        self.update_amounts(change);
        self.update_wishes(change);
    }

    /// The queue position and the name.
    fn update_place(&mut self, change: &JobChange) {
        let spec = Arc::make_mut(&mut self.spec);
        if let Some(limit) = change.time_limit {
            spec.time_limit = Some(limit);
            self.resolved.time_limit = limit;
        }
        if let Some(least) = change.time_min {
            spec.time_min = Some(least);
        }
        if let Some(partitions) = &change.partitions {
            spec.partitions.clone_from(partitions);
            self.resolved.partitions.clone_from(partitions);
        }
        if let Some(priority) = change.priority {
            self.priority = priority;
            self.terms.fixed = true;
            spec.nice = 0;
        }
        if let Some(site) = change.site_factor {
            self.terms.site = site;
        }
        if let Some(nice) = change.nice {
            let raised = i64::from(self.priority) + i64::from(spec.nice) - i64::from(nice);
            self.priority = u32::try_from(raised.max(1)).unwrap_or(u32::MAX);
            spec.nice = nice;
        }
        if let Some(name) = &change.name {
            spec.name.clone_from(name);
        }
        if let Some(comment) = &change.comment {
            spec.comment = Some(comment.clone());
        }
        if let Some(extra) = &change.extra {
            spec.extra = Some(extra.clone()).filter(|extra| !extra.is_empty());
        }
        change.patch_mail(&mut spec.mail);
        if let Some(comment) = &change.admin_comment {
            self.admin_comment = Some(comment.clone());
        }
        if let Some(begin) = change.begin {
            spec.begin = Some(begin);
            self.begin = Some(begin);
        }
        if let Some(dependencies) = &change.dependencies {
            spec.dependencies = dependencies.clone();
            self.dependencies = dependencies.clone();
            self.dependency_failed = false;
        }
        if let Some(account) = &change.account {
            spec.account = Some(account.clone());
        }
        if let Some(requeue) = change.requeue {
            self.resolved.requeue = requeue;
        }
        if let Some(limit) = change.array_limit {
            let limit = (limit > 0).then_some(limit);
            // Tasks with records of their own keep what they were submitted with.
            self.array.iter_mut().for_each(|array| array.limit = limit);
            spec.array.iter_mut().for_each(|array| array.limit = limit);
        }
    }

    /// The amounts.
    fn update_amounts(&mut self, change: &JobChange) {
        let spec = Arc::make_mut(&mut self.spec);
        if let Some(nodes) = change.nodes {
            spec.nodes = Some(nodes);
            spec.node_sizes.clone_from(&change.node_sizes);
            self.resolved.min_nodes = nodes.min.max(1);
            self.resolved.max_nodes = nodes.max.unwrap_or(nodes.min).max(1);
        }
        if let Some(tasks) = change.tasks {
            spec.tasks = Some(tasks);
            self.resolved.tasks = tasks.max(1);
            if spec.nodes.is_none() {
                self.resolved.max_nodes = tasks.max(self.resolved.min_nodes);
            }
        }
        change.request.apply(spec);
        if let Some(cpus) = change.request.cpus_per_task {
            self.resolved.cpus_per_task = cpus.max(1);
        }
        if let Some(each) = change.request.tasks_per_node.filter(|_| spec.tasks.is_none()) {
            self.resolved.tasks = self.resolved.min_nodes.saturating_mul(each.max(1));
        }
        if change.request.left_to_system.is_some() {
            self.resolved.sharing = Sharing::Exclusive;
        }
        let counts = &change.request;
        if change.nodes.is_some()
            || change.tasks.is_some()
            || counts.cpus_per_task.is_some()
            || counts.tasks_per_node.is_some()
            || counts.min_cpus_per_node.is_some()
        {
            let Resolved { tasks, cpus_per_task, min_nodes, .. } = self.resolved;
            self.resolved.cpus = cpus_asked(spec, tasks.max(min_nodes), cpus_per_task, min_nodes);
        }
        // With fewer tasks than nodes there is nothing to choose.
        if spec.nodes.zip(spec.tasks).is_some_and(|(nodes, tasks)| tasks < nodes.min) {
            spec.node_sizes = NodeSizes::default();
        }
        // The list matched the earlier tasks and nodes.
        if change.nodes.is_some()
            || change.tasks.is_some()
            || change.nodelist.is_some()
            || counts.tasks_per_node.is_some()
        {
            spec.layout.task_nodes.clear();
        }
        if let Some(memory) = change.memory {
            spec.memory = memory;
            self.resolved.memory = memory;
        }
    }

    /// Conditions on nodes and sharing.
    fn update_wishes(&mut self, change: &JobChange) {
        let spec = Arc::make_mut(&mut self.spec);
        if let Some((most, wait_secs)) = change.switches {
            spec.topology.switches = Some(most).filter(|most| *most > 0);
            // `wait-for-switch` may set it too.
            spec.topology.switches_wait_secs = wait_secs.or(change.request.switches_wait_secs);
        }
        if let Some(size) = change.segment {
            spec.topology.segment = Some(size).filter(|size| *size > 0);
        }
        if let Some(names) = &change.reservations {
            spec.reservations.clone_from(names);
        }
        if let Some(constraint) = &change.constraint {
            spec.constraint = Some(constraint.clone()).filter(|c| !c.is_empty());
        }
        if let Some(prefer) = &change.prefer {
            spec.prefer = Some(prefer.clone()).filter(|p| !p.is_empty());
        }
        if let Some(licenses) = &change.licenses {
            spec.licenses = Some(licenses.clone()).filter(|l| !l.is_empty());
        }
        if let Some(nodelist) = &change.nodelist {
            spec.nodelist.clone_from(nodelist);
        }
        if let Some(exclude) = &change.exclude {
            spec.exclude.clone_from(exclude);
        }
        if let Some(label) = &change.mcs_label {
            spec.mcs_label = Some(label.clone()).filter(|label| !label.is_empty());
        }
        if let Some(sharing) = change.sharing {
            if self.resolved.sharing == spec.sharing {
                self.resolved.sharing = sharing;
            }
            spec.sharing = sharing;
        }
    }
}

/// Total CPUs of a request.
pub fn cpus_asked(spec: &JobSpec, tasks: u32, cpus_per_task: u32, nodes: u32) -> u32 {
    let gpus = GresRequest::gpus(&spec.gres.total)
        .max(GresRequest::gpus(&spec.gres.on_node(0, Totals::NONE)) * u64::from(nodes));
    let with_gpus = gpus.saturating_mul(u64::from(spec.gres.cpus_per_gpu.unwrap_or(0)));
    // As for one task on each node.
    let tasks = if spec.layout.overcommit { nodes } else { tasks };
    let by_nodes = spec.min_cpus_per_node.unwrap_or(0).saturating_mul(nodes);
    tasks.saturating_mul(cpus_per_task).max(by_nodes).max(u32::try_from(with_gpus).unwrap_or(u32::MAX))
}

/// Total suspended time of a run as of `now`, in milliseconds.
fn stood(run: &Run, now: Timestamp) -> u64 {
    let Some(suspended) = &run.suspended else { return 0 };
    let present = u64::try_from(now.since(suspended.at).as_millis()).unwrap_or(u64::MAX);
    suspended.stood_ms.saturating_add(present)
}

/// What a run that is over still holds on nodes: those kept for the job, and those given up.
fn left_behind(run: &Run, sluid: Sluid) -> Vec<EarlierHold> {
    let left = run.allocation.nodes.iter().filter(|n| !run.released.contains(&n.name));
    left.map(|node| EarlierHold {
        sluid,
        node: node.clone(),
        partition: run.allocation.partition.clone(),
        exclusive: run.allocation.exclusive,
        kept: run.kept.contains(&node.name),
        parked: run.yielded().is_some(),
    })
    .collect()
}

/// True when an end leads back to the queue.
pub fn requeues(run: Option<&Run>, end: &End) -> bool {
    match end.then {
        Afterwards::Requeue { .. } | Afterwards::Recur | Afterwards::Expedite | Afterwards::ExpediteOrHold => true,
        Afterwards::ExpediteIfEpilogFails => run.is_some_and(|run| run.epilog_failed),
        Afterwards::Over => false,
    }
}
