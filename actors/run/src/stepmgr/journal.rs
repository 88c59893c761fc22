//! The state of a step manager that survives its restart: which steps were accepted, which started where, how they ended. Only
//! [`Ledger::apply`] changes the ledger, both live and when the journal is read again, so the two cannot differ.

use crate::{
    step::state::worse,
    stepmgr::{
        ends::{EndedStep, Ends},
        groups::{Groups, Standing},
        recent::Recent,
    },
};
use garrick_events::steps::{
    batch::StoredBatch,
    end::{StepEnd, StepResult},
    event::{Motion, Place, StepEvent},
};
use garrick_model::{
    batch::{FailBound, FailLimit},
    gres::{self, GresCount},
    ids::{RequestId, StepKey, StepNum},
    resources::MemoryMib,
    spec::StepSpec,
    state::{ExitStatus, JobState, Reason, StepState},
    step_selector::WhichSteps,
    time::{TimeLimit, Timestamp},
    usage::{TaskUsage, UsageSpread},
    view::{StepCounts, StepOrigin},
};
use roaring::RoaringBitmap;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// An accepted batch whose steps are not all over.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenBatch {
    /// The steps.
    pub batch: Arc<StoredBatch>,
    /// Since when.
    pub at: Timestamp,
    /// Members that wait.
    pub waiting: RoaringBitmap,
    /// Steps that are not over.
    open: u32,
    /// Number of tries so far and earliest next start, of waiting members that were tried.
    pub tried: BTreeMap<u32, (u32, Timestamp)>,
}

/// An end that the agent has not acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct UnreportedEnd {
    /// The step.
    pub key: StepKey,
    /// How it is reported.
    pub origin: Option<Arc<StepOrigin>>,
    /// Otherwise, the spec from which its origin follows.
    pub spec: Option<Arc<StepSpec>>,
    /// Tries before the one that ended.
    pub attempt: u32,
    /// When it started, if it did.
    pub since: Option<Timestamp>,
    /// Nodes of the job that it ran on.
    pub slots: Vec<u32>,
    /// CPUs on all of them.
    pub cpus: u32,
    /// Memory on all of them.
    pub memory: MemoryMib,
    /// Generic resources on all of them.
    pub gres: Vec<GresCount>,
    /// Final state.
    pub state: StepState,
    /// Exit status.
    pub exit: ExitStatus,
    /// What its tasks used.
    pub usage: TaskUsage,
    /// How that is spread over several tasks.
    pub spread: Option<Arc<UsageSpread>>,
    /// When it ended.
    pub at: Timestamp,
    /// It stands for all of these steps.
    pub all_of: Option<WhichSteps>,
    /// Why it ended, if that is to be reported.
    pub reason: Reason,
}

/// A step with processes.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningStep {
    /// Tries before this one.
    pub attempt: u32,
    /// Since.
    pub since: Timestamp,
    /// Where.
    pub places: Vec<Place>,
    /// How reports describe it, unless it belongs to a batch.
    pub origin: Option<Arc<StepOrigin>>,
    /// The step that it is lined up behind.
    pub after: Option<StepKey>,
    /// Request id of its waiting command.
    pub request: Option<RequestId>,
}

/// Counts of steps that share a limit of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailGroup {
    /// Steps that ended, cancelled ones not counted.
    pub ended: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// The limit was reached: no more of them are started.
    pub stopped: bool,
}

impl FailGroup {
    fn note(&mut self, state: StepState, most: FailBound) {
        if state != StepState::Cancelled {
            self.ended += 1;
            self.failed += u64::from(state != StepState::Completed);
            self.stopped |= most.is_reached(self.failed, self.ended);
        }
    }
}

/// The answer to an accepted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// First number.
    pub first: u32,
    /// Steps.
    pub count: u32,
    /// It is an array.
    pub array: bool,
}

/// Most ends that are kept for an agent that does not acknowledge them, some 200 bytes each. Further ones are only counted.
pub const OUTBOX_KEPT: usize = 1_000_000;

/// Durable state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Next free step number.
    pub next: u32,
    /// Batches that are not over, by first number.
    pub batches: BTreeMap<u32, OpenBatch>,
    /// Steps with processes.
    pub running: BTreeMap<StepKey, RunningStep>,
    /// How numbered steps ended.
    pub ends: Ends,
    /// All arrays of the run, by number, for later references.
    pub arrays: BTreeMap<u32, Arc<StoredBatch>>,
    /// Counters of numbered steps; `queued` counts minibatch steps only (attended ones are not durable while they wait).
    pub counts: StepCounts,
    /// Worst exit of any numbered step.
    pub derived: ExitStatus,
    /// The batch step's end.
    pub batch: Option<StepResult>,
    /// Why the batch script could not even be tried, if so.
    pub ending: Option<(JobState, Reason, ExitStatus)>,
    /// Why the batch script could not even be tried, if so.
    pub launch_failure: Option<String>,
    /// Restarts so far.
    pub restarts: u64,
    /// Nodes of the job that were lost.
    pub lost: BTreeSet<u32>,
    /// Nodes of the job whose shepherds were up, without the batch host.
    pub begun: BTreeSet<u32>,
    /// The job's limit, once it was changed.
    pub time_limit: Option<TimeLimit>,
    /// Whether it is stopped.
    pub motion: Motion,
    /// Ends that the agent has not acknowledged, in order.
    pub outbox: VecDeque<UnreportedEnd>,
    /// Ends for which it had no room. They are in the counts and in the journal.
    pub dropped: u64,
    /// Steps that share a limit of failures, once the first of them ended.
    pub fail_groups: BTreeMap<RequestId, FailGroup>,
    /// Arrays and lists of which some steps are not over.
    pub groups: Groups,
    /// The step lined up behind each step that has one.
    lines: BTreeMap<StepKey, StepKey>,
    answers: Recent<Answer>,
    /// Running steps whose commands wait with them, by request.
    attended: BTreeMap<RequestId, StepKey>,
    /// The latest of those that are over.
    were_attended: Recent<StepKey>,
}

impl Ledger {
    /// Replays the records of a journal.
    pub fn replay(events: impl IntoIterator<Item = StepEvent>) -> Self {
        let mut ledger = Self::default();
        for event in events {
            ledger.apply(&event);
        }
        ledger
    }

    /// The step that was started for the request of a waiting command.
    pub fn launched(&self, request: &RequestId) -> Option<StepKey> {
        self.attended.get(request).copied().or_else(|| self.were_attended.of(request))
    }

    /// Applies a record; nothing else changes the ledger.
    pub fn apply(&mut self, event: &StepEvent) {
        match event {
            StepEvent::Accepted { request, first, batch, at } => self.accepted(*request, *first, batch, *at),
            StepEvent::Started { step, attempt, at, places, origin, after, request } => {
                if let Some(request) = request {
                    self.attended.insert(*request, *step);
                }
                let (places, origin) = (places.clone(), origin.clone());
                let after = after.filter(|after| self.running.contains_key(after));
                self.started(
                    *step,
                    RunningStep { attempt: *attempt, since: *at, places, origin, after, request: *request },
                );
            }
            StepEvent::Retried { step, attempt, after, .. } => self.retried(*step, *attempt, *after),
            StepEvent::Ended { result, at } => self.ended(result, *at),
            StepEvent::Withdrawn { first, members, state, cause, at } => {
                self.withdrawn(*first, members, *state, cause, *at);
            }
            StepEvent::Ending { state, reason, exit } => {
                if self.ending.is_none() {
                    self.ending = Some((*state, reason.clone(), *exit));
                }
            }
            StepEvent::TimeLimit(limit) => self.time_limit = Some(*limit),
            StepEvent::StepLimit { step, origin } => {
                if let Some(running) = self.running.get_mut(step) {
                    running.origin = Some(Arc::clone(origin));
                }
            }
            StepEvent::Moved(motion) => self.motion = *motion,
            StepEvent::Reported { ends } => {
                for _ in 0..*ends {
                    self.outbox.pop_front();
                }
            }
            StepEvent::LaunchFailed { detail } => {
                self.launch_failure.get_or_insert_with(|| detail.clone());
            }
            StepEvent::Restarted => self.restarts += 1,
            StepEvent::NodeLost { slot } => {
                self.lost.insert(*slot);
            }
            StepEvent::ShepherdUp { slot } => {
                self.begun.insert(*slot);
            }
            StepEvent::CancelAsked { .. } => {}
        }
    }

    fn accepted(&mut self, request: RequestId, first: u32, batch: &Arc<StoredBatch>, at: Timestamp) {
        let count = batch.len();
        let array = batch.array().is_some();
        if array {
            self.arrays.insert(first, batch.clone());
        }
        let open = OpenBatch { waiting: batch.all(), open: count, at, tried: BTreeMap::new(), batch: batch.clone() };
        self.next = self.next.max(first + batch.numbers());
        self.groups.accepted(first, batch);
        self.batches.insert(first, open);
        self.counts.queued += u64::from(count);
        self.answers.note(request, Answer { first, count, array });
    }

    /// The batch that a step belongs to, by its first number, and which of its members it is.
    pub fn batch_of(&self, step: StepKey) -> Option<(u32, u32)> {
        let StepNum::Number(number) = step.step else { return None };
        let (first, open) = self.batches.range(..=number).next_back()?;
        open.batch.member(*first, step).map(|member| (*first, member))
    }

    fn started(&mut self, step: StepKey, running: RunningStep) {
        if let StepNum::Number(n) = step.step {
            self.next = self.next.max(n + 1);
            if let Some((first, member)) = self.batch_of(step)
                && let Some(open) = self.batches.get_mut(&first)
                && open.waiting.remove(member)
            {
                open.tried.remove(&member);
                self.counts.queued -= 1;
                self.groups.moved(first, 1, Standing::Queued, Standing::Running);
            }
            self.counts.running += 1;
        }
        if let Some(after) = running.after {
            self.lines.insert(after, step);
        }
        self.running.insert(step, running);
    }

    /// A step runs no more: the next step in its line gets its resources.
    fn stopped(&mut self, step: StepKey) -> Option<RunningStep> {
        let running = self.running.remove(&step)?;
        if let Some(request) = running.request {
            self.attended.remove(&request);
            self.were_attended.note(request, step);
        }
        let next = self.lines.remove(&step);
        if let Some(after) = running.after {
            self.lines.remove(&after);
            self.lines.extend(next.map(|next| (after, next)));
        }
        if let Some(next) = next.and_then(|next| self.running.get_mut(&next)) {
            next.after = running.after;
            if running.after.is_none() {
                next.places.iter_mut().for_each(|place| place.held = true);
            }
        }
        Some(running)
    }

    fn retried(&mut self, step: StepKey, attempt: u32, after: Timestamp) {
        if self.stopped(step).is_none() {
            return;
        }
        self.counts.running -= 1;
        if let Some((first, member)) = self.batch_of(step)
            && let Some(open) = self.batches.get_mut(&first)
        {
            open.waiting.insert(member);
            open.tried.insert(member, (attempt, after));
            self.counts.queued += 1;
            self.groups.moved(first, 1, Standing::Running, Standing::Queued);
        }
    }

    fn ended(&mut self, result: &StepResult, at: Timestamp) {
        let step = result.step.key();
        let running = self.stopped(step);
        self.to_be_reported(step, running.as_ref(), result, at);
        let ran = running.is_some();
        match step.step {
            StepNum::Number(n) => {
                self.next = self.next.max(n + 1);
                if ran {
                    self.counts.running -= 1;
                }
                let mut over = None;
                let mut minibatch = false;
                let mut limit = None;
                if let Some((first, member)) = self.batch_of(step)
                    && let Some(open) = self.batches.get_mut(&first)
                {
                    minibatch = true;
                    limit = open.batch.spec_of(member).and_then(|spec| spec.fail_limit);
                    open.open -= 1;
                    over = (open.open == 0).then_some(first);
                    open.tried.remove(&member);
                    let waited = open.waiting.remove(member);
                    self.counts.queued -= u64::from(waited);
                    let was = if waited { Standing::Queued } else { Standing::Running };
                    self.groups.moved(first, 1, was, Standing::Over(result.state));
                }
                if let Some(first) = over {
                    self.batch_over(first);
                }
                if let Some(limit) = limit {
                    self.fail_groups.entry(limit.group).or_default().note(result.state, limit.most);
                }
                if result.state == StepState::Completed {
                    self.counts.done += 1;
                } else {
                    self.counts.failed += 1;
                    self.counts.cancelled += u64::from(result.state == StepState::Cancelled);
                }
                self.derived = worse(self.derived, result.exit);
                self.ends.note(step, EndedStep { state: result.state, exit: result.exit, minibatch });
            }
            StepNum::Batch => self.batch = Some(result.clone()),
            StepNum::Extern | StepNum::Interactive => {}
        }
    }

    fn batch_over(&mut self, first: u32) {
        self.batches.remove(&first);
        self.groups.batch_over(first);
    }

    fn to_be_reported(&mut self, key: StepKey, ran: Option<&RunningStep>, result: &StepResult, at: Timestamp) {
        let batch = self.batch_of(key).and_then(|(first, member)| Some((self.batches.get(&first)?, member)));
        self.report(UnreportedEnd {
            key,
            origin: ran.and_then(|r| r.origin.clone()),
            spec: batch.and_then(|(open, member)| open.batch.spec_of(member).cloned()),
            attempt: ran.map_or(0, |r| r.attempt),
            since: ran.map(|r| r.since),
            slots: ran.map(|r| r.places.iter().map(|p| p.slot).collect()).unwrap_or_default(),
            cpus: ran.map_or(0, |r| r.places.iter().map(|p| p.cpus.len()).sum()),
            memory: MemoryMib(ran.map_or(0, |r| r.places.iter().filter_map(|p| p.memory).sum())),
            gres: ran.map(|r| gres::counted(r.places.iter().flat_map(|p| &p.gres))).unwrap_or_default(),
            state: result.state,
            exit: result.exit,
            usage: result.usage,
            spread: result.spread.clone(),
            at,
            all_of: None,
            reason: result.ended.as_ref().map_or(Reason::None, StepEnd::word),
        });
    }

    fn report(&mut self, end: UnreportedEnd) {
        if self.outbox.len() < OUTBOX_KEPT {
            self.outbox.push_back(end);
        } else {
            self.dropped += 1;
        }
    }

    fn withdrawn(&mut self, first: u32, members: &[(u32, u32)], state: StepState, cause: &StepEnd, at: Timestamp) {
        let Some(open) = self.batches.get_mut(&first) else { return };
        let end = EndedStep { state, exit: ExitStatus::SUCCESS, minibatch: true };
        let unreported = members.first().map(|(member, _)| UnreportedEnd {
            key: open.batch.key(first, *member),
            origin: None,
            spec: open.batch.spec_of(*member).cloned(),
            attempt: 0,
            since: None,
            slots: Vec::new(),
            cpus: 0,
            memory: MemoryMib(0),
            gres: Vec::new(),
            state,
            exit: ExitStatus::SUCCESS,
            usage: TaskUsage::default(),
            spread: None,
            at,
            all_of: open.batch.name(first, members),
            reason: cause.word(),
        });
        let mut gone = 0;
        for member in members.iter().flat_map(|(from, to)| *from..=*to) {
            if open.waiting.remove(member) {
                gone += 1;
                open.tried.remove(&member);
                open.open -= 1;
                self.counts.queued -= 1;
                self.counts.failed += 1;
                self.counts.cancelled += u64::from(state == StepState::Cancelled);
                self.ends.note(open.batch.key(first, member), end);
            }
        }
        let over = open.open == 0;
        self.groups.moved(first, gone, Standing::Queued, Standing::Over(state));
        if over {
            self.batch_over(first);
        }
        if let Some(end) = unreported {
            self.report(end);
        }
    }

    /// Have too many steps of this limit's group failed?
    pub fn is_stopped(&self, limit: Option<FailLimit>) -> bool {
        limit.and_then(|limit| self.fail_groups.get(&limit.group)).is_some_and(|group| group.stopped)
    }

    /// The earlier answer to a request.
    pub fn answer(&self, request: &RequestId) -> Option<Answer> {
        self.answers.of(request)
    }

    /// How a numbered step ended, if it did.
    pub fn end_of(&self, step: StepKey) -> Option<EndedStep> {
        self.ends.of(step)
    }
}

/// Members as inclusive ranges.
pub fn ranges(members: &RoaringBitmap) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for member in members {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == member => *last = member,
            _ => ranges.push((member, member)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::{
        batch::{BatchMembers, StepBatch},
        ids::{JobId, StepId},
        spec::ArraySpec,
    };

    fn ended(key: StepKey, state: StepState, code: u8) -> StepEvent {
        let exit = ExitStatus { code, signal: None };
        let step = StepId::of(JobId(1), key);
        StepEvent::Ended {
            result: StepResult {
                step,
                state,
                exit,
                ended: None,
                usage: Default::default(),
                spread: None,
                detail: None,
            },
            at: Timestamp(1),
        }
    }

    fn started(key: StepKey) -> StepEvent {
        let (at, places) = (Timestamp(1), Vec::new());
        StepEvent::Started { step: key, attempt: 0, at, places, origin: None, after: None, request: None }
    }

    fn accepted(first: u32, batch: StepBatch) -> StepEvent {
        let batch = Arc::new(batch.into());
        StepEvent::Accepted { request: RequestId(1, u64::from(first)), first, batch, at: Timestamp(5) }
    }

    fn two() -> StepBatch {
        let step = crate::stepmgr::builders::step;
        StepBatch { specs: vec![step("a"), step("b")], members: BatchMembers::Each }
    }

    #[test]
    fn counts_follow_the_steps() {
        let key = StepKey::number;
        let ledger = Ledger::replay([
            accepted(0, two()),
            started(key(2)),
            started(key(0)),
            ended(key(0), StepState::Failed, 3),
            ended(key(2), StepState::Completed, 0),
            ended(key(1), StepState::Cancelled, 0),
        ]);
        assert_eq!(ledger.counts, StepCounts { queued: 0, running: 0, done: 1, failed: 2, cancelled: 1 });
        assert_eq!(ledger.derived.code, 3);
        assert!(ledger.end_of(key(0)).is_some_and(|e| e.minibatch));
        assert!(ledger.end_of(key(2)).is_some_and(|e| !e.minibatch));
        assert!(ledger.batches.is_empty());
        assert_eq!(ledger.answer(&RequestId(1, 0)), Some(Answer { first: 0, count: 2, array: false }));
    }

    #[test]
    fn a_retried_step_waits_again_and_ends_once() {
        let tasks = ArraySpec { ranges: vec![(0, 9, 1)], limit: None };
        let array = StepBatch { specs: vec![crate::stepmgr::builders::step("a")], members: BatchMembers::Array(tasks) };
        let key = StepKey::task(4, 7);
        let mut ledger = Ledger::replay([accepted(4, array), started(key)]);
        ledger.apply(&StepEvent::Retried { step: key, attempt: 1, after: Timestamp(9), ended: None, at: None });
        assert_eq!(ledger.batches[&4].tried[&7], (1, Timestamp(9)));
        assert_eq!(ledger.counts, StepCounts { queued: 10, running: 0, done: 0, failed: 0, cancelled: 0 });
        ledger.apply(&started(key));
        ledger.apply(&ended(key, StepState::Completed, 0));
        assert_eq!(ledger.counts, StepCounts { queued: 9, running: 0, done: 1, failed: 0, cancelled: 0 });
        let withdrawn = StepEvent::Withdrawn {
            first: 4,
            members: vec![(0, 9)],
            state: StepState::Cancelled,
            cause: StepEnd::Cancelled,
            at: Timestamp(9),
        };
        ledger.apply(&withdrawn);
        assert_eq!(ledger.counts, StepCounts { queued: 0, running: 0, done: 1, failed: 9, cancelled: 9 });
        assert!(ledger.batches.is_empty() && ledger.arrays.contains_key(&4));
        assert_eq!(ledger.next, 5);
    }

    #[test]
    fn ranges_fold_neighbours() {
        let members: RoaringBitmap = [1, 2, 3, 7, 9, 10].into_iter().collect();
        assert_eq!(ranges(&members), [(1, 3), (7, 7), (9, 10)]);
    }
}
