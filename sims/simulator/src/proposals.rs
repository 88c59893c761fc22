//! Checks the scheduler's messages: each proposal is made once and answered, starts are proposed on nodes in service and not more
//! than allowed in an interval, and waiting jobs show the priority that the rules give.

use super::{passes::Look, rules::ensure, world::World};
use garrick_actors::{
    messages::{job::JobInput, letter::Letter},
    owner::Effect,
    scheduler::messages::SchedulerEffect,
};
use garrick_model::{
    entities::association::AssocId,
    ids::JobId,
    state::{JobState, PartitionState},
    time::Timestamp,
};
use garrick_plan::{proposals::StartProposal, rules::priority, snapshot::facts::in_service};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Answers wait for nodes, and for a disk that is slow.
const ANSWER: Duration = Duration::from_secs(300);
/// What a job shows is put right by the pass after the one that told it; messages and writes may be late.
const SHOWN: Duration = Duration::from_secs(100);
/// A turn comes when one that shares CPUs had his, or ended.
const TURN: Duration = Duration::from_secs(900);

/// What the scheduler said.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Proposals that were not answered, with when they were made.
    unanswered: BTreeMap<(JobId, u64), Timestamp>,
    /// Since when jobs show another priority than the rules give.
    differs: BTreeMap<JobId, Timestamp>,
    /// Since when more jobs of an association gain priority by age than may.
    pub(super) too_many_gain: BTreeMap<AssocId, Timestamp>,
    /// Since when starts are counted, by the controller's clock, and how many there were.
    interval: Option<(Timestamp, u32)>,
}

impl Watch {
    /// How many starts are counted in this interval.
    pub(super) fn begun(&self) -> u32 {
        self.interval.map_or(0, |(_, begun)| begun)
    }
}

/// A job, which of its tasks, and what for.
type Proposed = (JobId, Option<u32>, &'static str);

/// What is proposed, with the number of the pass.
fn proposal(effect: &SchedulerEffect) -> Option<(Proposed, u64)> {
    let Effect::Tell(Letter::Job(job, input)) = effect else { return None };
    let (kind, task, pass) = match input {
        JobInput::Start(start) => ("a start", start.array_index, start.pass),
        JobInput::Preempt(one) => ("to give way", None, one.pass),
        JobInput::GoOn(one) => ("to go on", None, one.pass),
        JobInput::Turn(one) => ("a turn", None, one.pass),
        _ => return None,
    };
    Some(((*job, task, kind), pass))
}

fn starts(out: &[SchedulerEffect]) -> impl Iterator<Item = &StartProposal> {
    out.iter().filter_map(|effect| match effect {
        Effect::Tell(Letter::Job(_, JobInput::Start(start))) => Some(&**start),
        _ => None,
    })
}

impl World {
    /// A pass is over, and this is what comes of it.
    pub(super) fn against_proposals(&mut self, look: &Look, out: &[SchedulerEffect]) {
        let mut made = BTreeSet::new();
        for (what, pass) in out.iter().filter_map(proposal) {
            let (job, _, kind) = what;
            self.watch.unanswered.insert((job, pass), self.now);
            if !made.insert(what) {
                let what = format!("{kind} is proposed to job {} twice in pass {pass}", job.0);
                self.broken = Some(("a_pass_proposes_nothing_twice", what));
            }
        }
        let serves = |index: u32| look.nodes.get(index as usize).is_some_and(|node| in_service(node));
        for start in starts(out) {
            let all = std::iter::once(start).chain(&start.others).flat_map(|start| &start.nodes);
            if let Some(node) = all.map(|node| node.index.0).find(|index| !serves(*index)) {
                let view = look.nodes.get(node as usize).map(|view| (&view.name, view.base, view.flags));
                let what = format!("job {} is to start on node {node}, which shows {view:?}", start.job.0);
                self.broken = Some(("a_start_is_proposed_where_nodes_serve", what));
            }
        }
        let down = |start: &StartProposal| {
            let states = look.partitions.iter().filter(|(name, _)| **name == start.partition);
            states.map(|(_, state)| *state).find(|state| !matches!(state, PartitionState::Up | PartitionState::Drain))
        };
        if let Some((start, state)) = starts(out).find_map(|start| Some((start, down(start)?))) {
            let what = format!("job {} is to start in {}, which is {state:?}", start.job.0, start.partition);
            self.broken = Some(("a_start_is_proposed_where_partitions_serve", what));
        }
        self.against_quota(look, out);
    }

    /// Plans of an interval start no more than may start in one.
    fn against_quota(&mut self, look: &Look, out: &[SchedulerEffect]) {
        let policy = self.scheduler.core.policy();
        let (Some(bounds), Some(interval)) = (&policy.bounds, policy.interval) else { return };
        let (Some(in_order), Some(backfilled)) = (bounds.in_order, bounds.backfilled) else { return };
        if !look.waits {
            return;
        }
        let (since, begun) = match self.watch.interval {
            Some((since, begun)) if since <= look.as_of && look.as_of < since.plus(interval) => (since, begun),
            _ => (look.as_of, 0),
        };
        let begun = begun + u32::try_from(starts(out).count()).unwrap_or(u32::MAX);
        self.watch.interval = Some((since, begun));
        if begun > in_order + backfilled {
            let what = format!("{begun} starts since {since:?}, {in_order} in order and {backfilled} behind may be");
            self.broken = Some(("no_more_start_in_an_interval_than_may", what));
        }
    }

    /// What jobs show is compared to the rules at each look, and may differ for a moment.
    pub(super) fn against_priorities(&mut self) {
        let Some(rules) = self.scheduler.rules.clone() else { return self.watch.differs.clear() };
        let mut before = std::mem::take(&mut self.watch.differs);
        for job in self.shown_jobs.values().filter(|job| job.state.waits()) {
            let Some(right) = priority::news(&rules, job, rules.standing(job)) else { continue };
            let since = before.remove(&job.id).unwrap_or(self.now);
            self.watch.differs.insert(job.id, since);
            if self.now.since(since) > SHOWN && !self.waits_for_disk(job.id) {
                let late = self.now.since(since);
                let what = format!("job {} shows {}, and should show {right} for {late:?}", job.id.0, job.priority);
                self.broken = Some(("a_job_that_waits_shows_the_priority_that_the_rules_give", what));
            }
        }
    }

    /// An owner has answered; one of a task, what its array was proposed.
    pub(super) fn note_answer(&mut self, job: JobId, pass: u64) {
        for job in self.with_array(job) {
            self.watch.unanswered.remove(&(job, pass));
        }
    }

    /// An owner has lost what it had in hand.
    pub(super) fn forget_answers(&mut self, job: JobId) {
        let jobs: Vec<JobId> = self.with_array(job).collect();
        self.watch.unanswered.retain(|(job, _), _| !jobs.contains(job));
    }

    fn with_array(&self, job: JobId) -> impl Iterator<Item = JobId> + use<> {
        let task = self.replayed.jobs.get(&job).and_then(|record| record.array_task);
        std::iter::once(job).chain(task.map(|task| task.array_job))
    }

    /// A new scheduler knows of no proposals, and starts counting anew.
    pub(super) fn forget_proposals(&mut self) {
        self.watch = Watch::default();
    }

    /// See the rule of this name.
    pub(super) fn is_answered(&self, job: JobId) -> Result<(), String> {
        let of_job = (job, 0)..=(job, u64::MAX);
        for ((_, pass), since) in self.watch.unanswered.range(of_job) {
            let late = self.now.since(*since);
            ensure(late <= ANSWER || self.waits_for_disk(job), || {
                format!("job {} has not answered for {late:?} what was proposed to it in pass {pass}", job.0)
            })?;
        }
        Ok(())
    }

    /// See the rule of this name.
    pub(super) fn has_its_turn(&self, job: JobId) -> Result<(), String> {
        let Some(view) = self.shown_jobs.get(&job).filter(|view| view.state == JobState::Suspended) else {
            return Ok(());
        };
        let Some(times) = view.suspended.filter(|t| t.waits_turn && !t.by_admin && t.yielded.is_none()) else {
            return Ok(());
        };
        let stepped = self.now.since(self.clock_stepped) <= TURN;
        let late = self.clock().since(times.at);
        ensure(late <= TURN || stepped, || format!("job {} has been waiting for its turn for {late:?}", job.0))
    }
}
