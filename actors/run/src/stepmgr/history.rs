//! What a journal says about a run's steps, read once from beginning to end. The record of a step is passed on as soon as the
//! step is over, so memory holds only running and waiting steps, and the specs of batches that are not over.

use crate::stepmgr::journal::ranges;
use garrick_events::steps::{
    batch::{StoredBatch, StoredMembers},
    end::{StepEnd, StepResult},
    event::{Place, StepEvent},
};
use garrick_model::{
    ids::{StepKey, StepNum},
    messages::records::{RecordedBatch, RecordedOrigin, RecordedRun, RecordedStep, WantedRecords},
    patterns::{PatternFacts, fill, in_folder},
    spec::{StepSpec, StreamTarget},
    state::{ExitStatus, JobState, Reason, StepState},
    step_selector::WhichSteps,
    time::{TimeLimit, Timestamp},
    usage::TaskUsage,
    view::{StepCounts, StepOrigin},
};
use roaring::RoaringBitmap;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// The results, in the order of the journal.
#[allow(clippy::large_enum_variant, reason = "it is passed on at once")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A batch; its steps follow.
    Batch(Box<RecordedBatch>),
    /// A step, with what it shares with others. Equal origins of consecutive steps are the same `Arc`.
    Step(Arc<RecordedOrigin>, RecordedStep),
}

#[derive(Debug)]
struct Batch {
    stored: Arc<StoredBatch>,
    at: Timestamp,
    waiting: RoaringBitmap,
    open: u32,
    tries: BTreeMap<u32, u32>,
    origins: BTreeMap<usize, Arc<RecordedOrigin>>,
    /// Specs that were passed on.
    told: BTreeSet<usize>,
    /// The spec whose environment was passed on last.
    environment: Option<usize>,
}

#[derive(Debug)]
struct Running {
    attempt: u32,
    since: Timestamp,
    places: Vec<Place>,
    origin: Option<Arc<StepOrigin>>,
    /// The step that it is lined up behind.
    after: Option<StepKey>,
}

/// Most cancellations that are remembered, and most ranges in one of them: for further ones the user is not named.
const CANCELS: usize = 1000;

/// The history of a run's steps.
#[derive(Debug)]
pub struct History {
    run: RecordedRun,
    wanted: WantedRecords,
    /// Numbered steps that are over so far, passed on or not.
    over: StepCounts,
    batches: BTreeMap<u32, Batch>,
    running: BTreeMap<StepKey, Running>,
    /// Steps that are lined up, by the step before them.
    behind: BTreeMap<StepKey, StepKey>,
    /// Steps that were cancelled by name, and the user who did it.
    cancels: VecDeque<(WhichSteps, u32)>,
    ending: Option<(JobState, Reason)>,
}

impl History {
    /// For this run, with these selections.
    pub fn new(run: &RecordedRun, wanted: &WantedRecords) -> Self {
        Self {
            run: run.clone(),
            wanted: wanted.clone(),
            over: StepCounts::default(),
            batches: BTreeMap::new(),
            running: BTreeMap::new(),
            behind: BTreeMap::new(),
            cancels: VecDeque::new(),
            ending: None,
        }
    }

    /// Counts of steps with a number so far, selected or not. Those that are lined up behind others count as running.
    pub fn counts(&self) -> StepCounts {
        let queued = self.batches.values().map(|batch| batch.waiting.len()).sum();
        let running = self.running.keys().filter(|key| key.step.number().is_some()).count() as u64;
        StepCounts { queued, running, ..self.over }
    }

    fn count(&mut self, steps: u64, state: StepState) {
        match state {
            StepState::Completed => self.over.done += steps,
            _ => self.over.failed += steps,
        }
        self.over.cancelled += if state == StepState::Cancelled { steps } else { 0 };
    }

    /// State and reason with which the run is to end, if it is ending.
    pub fn ending(&self) -> Option<(JobState, Reason)> {
        self.ending.clone()
    }

    /// One more record of the journal.
    pub fn take(&mut self, event: StepEvent, tell: &mut impl FnMut(Told)) {
        match event {
            StepEvent::Accepted { first, batch, at, .. } => {
                let (waiting, open) = (batch.all(), batch.len());
                let (tries, origins, told) = Default::default();
                let environment = None;
                self.batches
                    .insert(first, Batch { stored: batch, at, waiting, open, tries, origins, told, environment });
            }
            StepEvent::Started { step, attempt, at, places, origin, after, .. } => {
                if let Some((batch, member)) = self.batch_of(step) {
                    batch.waiting.remove(member);
                }
                let after = after.filter(|after| self.running.contains_key(after));
                if let Some(after) = after {
                    self.behind.insert(after, step);
                }
                self.running.insert(step, Running { attempt, since: at, places, origin, after });
            }
            StepEvent::Retried { step, attempt, ended, at, .. } => self.retried(step, attempt, ended, at, tell),
            StepEvent::Ended { result, at } => self.ended(&result, at, tell),
            StepEvent::Withdrawn { first, members, state, cause, at } => {
                self.withdrawn(first, &members, state, &cause, at, tell);
            }
            StepEvent::Ending { state, reason, .. } => {
                self.ending.get_or_insert((state, reason));
            }
            StepEvent::CancelAsked { steps, by } => self.cancel_asked(steps, by),
            StepEvent::StepLimit { step, origin } => {
                if let Some(running) = self.running.get_mut(&step) {
                    running.origin = Some(origin);
                }
            }
            StepEvent::TimeLimit(_)
            | StepEvent::Moved(_)
            | StepEvent::Reported { .. }
            | StepEvent::LaunchFailed { .. }
            | StepEvent::Restarted
            | StepEvent::NodeLost { .. }
            | StepEvent::ShepherdUp { .. } => {}
        }
    }

    fn cancel_asked(&mut self, steps: WhichSteps, by: u32) {
        if steps.ranges() <= CANCELS {
            self.cancels.push_back((steps, by));
            if self.cancels.len() > CANCELS {
                self.cancels.pop_front();
            }
        }
    }

    /// The journal's end: passes on what is not over. If the run is over, how those steps ended is unknown.
    pub fn finish(mut self, tell: &mut impl FnMut(Told)) {
        let over = self.run.end;
        let state = if over.is_some() { StepState::NodeFail } else { StepState::Running };
        if self.wants(state) {
            for (key, ran) in std::mem::take(&mut self.running) {
                if !self.names(key) {
                    continue;
                }
                let attempt = ran.attempt;
                let mut step = RecordedStep { attempt, end: over, ..self.record(key, Some(&ran), state) };
                if over.is_some() {
                    step.reason = "its end is not recorded".to_owned();
                }
                self.tell_step(key, Some(&ran), step, tell);
            }
        }
        let state = if over.is_some() { StepState::Cancelled } else { StepState::Pending };
        if self.wants(state) {
            for first in self.batches.keys().copied().collect::<Vec<_>>() {
                self.tell_waiting(first, state, over, tell);
            }
        }
    }

    fn wants(&self, state: StepState) -> bool {
        self.wanted.states.is_empty() || self.wanted.states.contains(&state)
    }

    fn names(&self, key: StepKey) -> bool {
        self.wanted.which.is_empty() || self.wanted.which.iter().any(|which| which.contains(key))
    }

    fn batch_of(&mut self, step: StepKey) -> Option<(&mut Batch, u32)> {
        let StepNum::Number(number) = step.step else { return None };
        let (first, batch) = self.batches.range_mut(..=number).next_back()?;
        let member = batch.stored.member(*first, step)?;
        Some((batch, member))
    }

    /// A step no longer runs. The step lined up behind it runs from now on.
    fn stopped(&mut self, step: StepKey, at: Timestamp) -> Option<Running> {
        let ran = self.running.remove(&step)?;
        let after = ran.after.filter(|after| self.running.contains_key(after));
        if let Some(after) = after {
            self.behind.remove(&after);
        }
        if let Some(key) = self.behind.remove(&step)
            && let Some(next) = self.running.get_mut(&key)
        {
            next.after = after;
            match after {
                Some(after) => drop(self.behind.insert(after, key)),
                None => next.since = next.since.max(at),
            }
        }
        Some(ran)
    }

    fn retried(
        &mut self,
        step: StepKey,
        tries: u32,
        ended: Option<Box<StepResult>>,
        at: Option<Timestamp>,
        tell: &mut impl FnMut(Told),
    ) {
        let when = at.or_else(|| self.running.get(&step).map(|ran| ran.since));
        let Some(ran) = when.and_then(|at| self.stopped(step, at)) else { return };
        // A step that was taken back before it began was no try.
        let began = ended.is_some() || at.is_none();
        if began && self.wanted.tries && self.names(step) {
            let state = ended.as_ref().map_or(StepState::Failed, |result| result.state);
            if self.wants(state) {
                let mut told = RecordedStep { again: true, end: at, ..self.record(step, Some(&ran), state) };
                if let Some(result) = &ended {
                    self.add_result(&mut told, result);
                }
                self.tell_step(step, Some(&ran), told, tell);
            }
        }
        if let Some((batch, member)) = self.batch_of(step) {
            batch.waiting.insert(member);
            if tries > 0 {
                batch.tries.insert(member, tries);
            }
        }
    }

    fn ended(&mut self, result: &StepResult, at: Timestamp, tell: &mut impl FnMut(Told)) {
        let step = result.step.key();
        self.count(u64::from(step.step.number().is_some()), result.state);
        let ran = self.stopped(step, at);
        if self.wants(result.state) && self.names(step) {
            let mut told = RecordedStep { end: Some(at), ..self.record(step, ran.as_ref(), result.state) };
            self.add_result(&mut told, result);
            self.tell_step(step, ran.as_ref(), told, tell);
        }
        if let Some((batch, member)) = self.batch_of(step) {
            batch.open = batch.open.saturating_sub(1);
            batch.waiting.remove(member);
            batch.tries.remove(&member);
        }
        self.drop_batch_of(step);
    }

    fn drop_batch_of(&mut self, step: StepKey) {
        if let StepNum::Number(number) = step.step
            && let Some((first, batch)) = self.batches.range(..=number).next_back()
            && batch.open == 0
        {
            let first = *first;
            self.batches.remove(&first);
        }
    }

    fn withdrawn(
        &mut self,
        first: u32,
        members: &[(u32, u32)],
        state: StepState,
        cause: &StepEnd,
        at: Timestamp,
        tell: &mut impl FnMut(Told),
    ) {
        let Some(batch) = self.batches.get_mut(&first) else { return };
        let mut gone = RoaringBitmap::new();
        for (from, to) in members {
            gone.insert_range(*from..=*to);
        }
        gone &= &batch.waiting;
        batch.waiting -= &gone;
        batch.open = batch.open.saturating_sub(gone.len() as u32);
        let over = batch.open == 0;
        self.count(gone.len(), state);
        if self.wants(state) {
            let key = gone.min().and_then(|member| self.batches.get(&first).map(|b| b.stored.key(first, member)));
            let reason = key.map_or_else(String::new, |key| self.reason(key, state, Some(cause)));
            self.tell_many(
                first,
                &gone,
                |step| RecordedStep { state, end: Some(at), reason: reason.clone(), word: cause.word(), ..step },
                tell,
            );
        }
        if let Some(batch) = self.batches.get_mut(&first) {
            for member in &gone {
                batch.tries.remove(&member);
            }
        }
        if over {
            self.batches.remove(&first);
        }
    }

    fn tell_waiting(&mut self, first: u32, state: StepState, end: Option<Timestamp>, tell: &mut impl FnMut(Told)) {
        let Some(batch) = self.batches.get(&first) else { return };
        let waiting = batch.waiting.clone();
        let reason = if end.is_some() { "its job ended" } else { "" };
        self.tell_many(first, &waiting, |step| RecordedStep { state, end, reason: reason.to_owned(), ..step }, tell);
    }

    /// Passes on members that did not start, together for each spec; a member that was tried is passed on alone.
    fn tell_many(
        &mut self,
        first: u32,
        members: &RoaringBitmap,
        fill_in: impl Fn(RecordedStep) -> RecordedStep,
        tell: &mut impl FnMut(Told),
    ) {
        let Some(batch) = self.batches.get(&first) else { return };
        let stored = Arc::clone(&batch.stored);
        let tried: BTreeMap<u32, u32> = match members.min().zip(members.max()) {
            Some((from, to)) => batch.tries.range(from..=to).map(|(member, tries)| (*member, *tries)).collect(),
            None => return,
        };
        for row in stored.rows_of(members) {
            let mut left: RoaringBitmap =
                members.range(row.start..row.end).filter(|member| self.names(stored.key(first, *member))).collect();
            let own: Vec<u32> = left.iter().filter(|member| tried.contains_key(member)).collect();
            for member in own {
                left.remove(member);
                self.tell_members(first, &[(member, member)], tried.get(&member).copied(), &fill_in, tell);
            }
            if self.wanted.texts && matches!(stored.members, StoredMembers::Commands(_)) {
                // Each has a command of its own.
                for member in left {
                    self.tell_members(first, &[(member, member)], None, &fill_in, tell);
                }
            } else if !left.is_empty() {
                self.tell_members(first, &ranges(&left), None, &fill_in, tell);
            }
        }
    }

    fn tell_members(
        &mut self,
        first: u32,
        members: &[(u32, u32)],
        tries: Option<u32>,
        fill_in: &impl Fn(RecordedStep) -> RecordedStep,
        tell: &mut impl FnMut(Told),
    ) {
        let Some(stored) = self.batches.get(&first).map(|batch| Arc::clone(&batch.stored)) else { return };
        let Some(key) = members.first().map(|(member, _)| stored.key(first, *member)) else { return };
        let all_of = stored.name(first, members);
        let step = RecordedStep { all_of, attempt: tries.unwrap_or(0), ..self.record(key, None, StepState::Pending) };
        let mut step = fill_in(step);
        if step.word == Reason::DependencyNeverSatisfied
            && let Some(dependency) =
                members.first().and_then(|(member, _)| stored.spec_of(*member)?.dependency.as_ref())
        {
            step.reason = format!("{}: {dependency}", step.reason);
        }
        self.tell_step(key, None, step, tell);
    }

    /// What is known about a step, whatever its end.
    fn record(&mut self, key: StepKey, ran: Option<&Running>, state: StepState) -> RecordedStep {
        let texts = self.wanted.texts;
        let (mut queued, mut line, mut argv, mut spec) = (None, None, Vec::new(), None);
        let (mut values, mut own_name, mut environment, mut again_number) = Default::default();
        let (mut tries, batches) = (0, self.wanted.batches);
        if let Some((batch, member)) = self.batch_of(key) {
            queued = Some(batch.at);
            spec = batch.stored.spec_of(member).cloned();
            tries = batch.tries.get(&member).copied().unwrap_or(0);
            if let StoredMembers::Commands(list) = &batch.stored.members {
                let member = member as usize;
                (line, again_number) = (list.line(member), list.again(member));
                own_name = list.name(member).unwrap_or_default().to_owned();
                if texts {
                    argv = list.argv(member);
                    values = list.values(member).unwrap_or_default().to_owned();
                }
                if batches {
                    environment = list.environment(member).collect();
                }
            }
        }
        let places = ran.map_or(&[][..], |ran| &ran.places);
        let slots: Vec<u32> = places.iter().map(|place| place.slot).collect();
        let output = match spec.filter(|_| texts) {
            Some(spec) => self.output(key, &spec, &slots),
            None => String::new(),
        };
        RecordedStep {
            key,
            all_of: None,
            origin: 0,
            state,
            attempt: ran.map_or(tries, |ran| ran.attempt),
            again: false,
            cpus: places.iter().map(|place| place.cpus.len()).sum(),
            slots,
            queued,
            start: ran.map(|ran| ran.since),
            end: None,
            exit: ExitStatus::SUCCESS,
            usage: TaskUsage::default(),
            reason: String::new(),
            word: Reason::None,
            line,
            argv,
            values,
            own_name,
            environment,
            again_number,
            output,
        }
    }

    /// The file of standard output; parts that differ between tasks and nodes of the step stay as patterns.
    fn output(&self, key: StepKey, spec: &StepSpec, slots: &[u32]) -> String {
        let pattern = match &spec.stdout {
            StreamTarget::File(pattern) => pattern,
            StreamTarget::Pack => match &spec.output_pack {
                Some(pattern) => pattern,
                None => return String::new(),
            },
            _ => return String::new(),
        };
        let only = match slots {
            [one] => self.run.nodes.get(*one as usize).map(|name| (name.as_str(), 0)),
            _ => None,
        };
        let facts = PatternFacts {
            job: self.run.job,
            array_task: self.run.array,
            step: Some(key),
            node: only.map(|(name, _)| name),
            node_id: only.map(|(_, id)| id),
            task: (spec.tasks.unwrap_or(1) == 1).then_some(0),
            user: &self.run.user,
            job_name: &self.run.name,
        };
        in_folder(fill(pattern, &facts), spec.work_dir.as_ref().unwrap_or(&self.run.work_dir))
    }

    fn add_result(&self, step: &mut RecordedStep, result: &StepResult) {
        step.exit = result.exit;
        step.usage = result.usage;
        step.word = result.ended.as_ref().map_or(Reason::None, StepEnd::word);
        step.reason = match &result.detail {
            Some(detail) => detail.clone(),
            None => self.reason(step.key, result.state, result.ended.as_ref()),
        };
    }

    /// Why a step ended, in words.
    fn reason(&self, key: StepKey, state: StepState, cause: Option<&StepEnd>) -> String {
        let Some(cause) = cause else { return String::new() };
        let by = || self.cancels.iter().rev().find(|(which, _)| which.contains(key)).map(|(_, by)| *by);
        match cause {
            StepEnd::Cancelled => match by() {
                Some(uid) => format!("cancelled by {uid}"),
                None => "cancelled".to_owned(),
            },
            StepEnd::ClientGone => "its srun ended".to_owned(),
            StepEnd::TimeLimit => "its time limit".to_owned(),
            StepEnd::Job(JobState::Timeout) => "the job's time limit".to_owned(),
            StepEnd::Job(JobState::Deadline) => "the job's deadline".to_owned(),
            StepEnd::Job(_) if state == StepState::Cancelled => "cancelled with its job".to_owned(),
            StepEnd::Job(_) => "the job ended".to_owned(),
            StepEnd::BatchOver => "the batch script ended".to_owned(),
            StepEnd::NodeLost { node } => format!("node {node} was lost"),
            StepEnd::BadExit => "a task failed (-K)".to_owned(),
            StepEnd::TaskOutOfMemory => "a task ran out of memory (--oom-kill-step)".to_owned(),
            StepEnd::WaitOver => "the first task had ended (-W)".to_owned(),
            StepEnd::ManagerRestarted => "the step manager was restarted".to_owned(),
            StepEnd::InputOverrun => "too much input".to_owned(),
            StepEnd::ExitUnknown => "its launcher died: exit status unknown".to_owned(),
            StepEnd::DependencyNeverSatisfied => "its dependency can never be satisfied".to_owned(),
            StepEnd::TooManyFailed => "too many of its list or array failed".to_owned(),
        }
    }

    fn tell_step(&mut self, key: StepKey, ran: Option<&Running>, step: RecordedStep, tell: &mut impl FnMut(Told)) {
        let batches = self.wanted.batches;
        let own = match ran.and_then(|ran| ran.origin.as_ref()) {
            Some(origin) => Some(RecordedOrigin {
                name: origin.name.clone(),
                argv: Vec::new(),
                submit_line: origin.submit_line.clone(),
                tasks: origin.tasks,
                time_limit: origin.time_limit,
                srun: origin.srun.clone(),
                batch: None,
                again_of: None,
            }),
            None if key == StepKey::BATCH => Some(RecordedOrigin::named("batch")),
            None => None,
        };
        if let Some(origin) = own {
            return tell(Told::Step(Arc::new(origin), step));
        }
        let number = key.step.number().unwrap_or_default();
        let found = self.batches.range_mut(..=number).next_back().and_then(|(first, batch)| {
            let at = batch.stored.member(*first, key).and_then(|member| batch.stored.spec_index(member))?;
            Some((*first, batch, at))
        });
        let Some((first, batch, at)) = found else {
            // It was an attended step that never started: the journal has nothing more about it.
            return tell(Told::Step(Arc::new(RecordedOrigin::named("srun")), step));
        };
        if batches
            && batch.told.insert(at)
            && let Some(from) = batch.stored.environment_index(at)
            && let Some(spec) = batch.stored.specs.get(at)
        {
            let known = self.wanted.share_environments && batch.environment == Some(from);
            batch.environment = Some(from);
            let made_of = match batch.stored.specs.get(from) {
                _ if known && from != at => Arc::clone(spec),
                _ if known => Arc::new(StepSpec { environment: Vec::new(), ..spec.as_ref().clone() }),
                Some(other) if from != at => {
                    Arc::new(StepSpec { environment: other.environment.clone(), ..spec.as_ref().clone() })
                }
                _ => Arc::clone(spec),
            };
            let (array, limit) = (batch.stored.array().is_some(), batch.stored.array().and_then(|tasks| tasks.limit));
            tell(Told::Batch(Box::new(RecordedBatch { first, array, limit, spec: at as u32, made_of })));
        }
        let origin = batch.origins.entry(at).or_insert_with(|| {
            let spec = batch.stored.specs.get(at);
            Arc::new(RecordedOrigin {
                name: spec.map(|spec| spec.name.clone()).unwrap_or_default(),
                argv: spec.map(|spec| spec.argv.clone()).unwrap_or_default(),
                submit_line: spec.map(|spec| spec.submit_line.clone()).unwrap_or_default(),
                tasks: spec.and_then(|spec| spec.tasks).unwrap_or(1),
                time_limit: spec.and_then(|spec| spec.time_limit).unwrap_or(TimeLimit::Unlimited),
                srun: spec.and_then(|spec| spec.srun.clone()),
                batch: Some((first, at as u32)),
                again_of: spec.and_then(|spec| spec.again_of),
            })
        });
        tell(Told::Step(Arc::clone(origin), step));
    }
}

#[cfg(test)]
#[path = "history_test.rs"]
mod tests;
