//! Conversations with commands at `stepd`'s door: permissions, `Launch`, `Enqueue`, `Wait`, `List`, `SignalSteps`.

use crate::{
    step::StepInput,
    stepmgr::{
        core::StepMgrCore,
        launch,
        messages::{ClientId, StepMgrEffect, StepMgrTimer},
        naming::Census,
        placement::feasible,
        queue::Urgency,
        shape::{Asker, StepShape, shape_of},
        state::{About, Conversation, RecordState, StepRecord},
        view,
        waiters::{Curiosity, Progress},
    },
};
use garrick_events::steps::end::StepEnd;
use garrick_model::{
    ids::{RequestId, StepId, StepKey},
    messages::{
        command::Caller,
        step::{CommandToStepMgr, STDIN_WINDOW, StepMgrToCommand, WholeStep},
    },
    refusal::Refusal,
    spec::StepSpec,
    state::ExitStatus,
    step_selector::WhichSteps,
    time::Timestamp,
};
use serde_bytes::ByteBuf;
use std::{sync::Arc, time::Duration};

/// When to try again after a full queue.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How many step numbers can be skipped at once. A step over several components skips as many as other components have had steps
/// of their own; chosen far above that, and far below the range of numbers.
const MOST_SKIPPED: u32 = 1 << 24;
/// Most step numbers of a run that may be reserved or skipped without being used.
const MOST_UNUSED: u32 = 1 << 24;
/// Most tasks, and nodes, before a part of a step.
const MOST_BEFORE: u32 = 1 << 24;

impl StepMgrCore {
    pub(super) fn client_opened(&mut self, client: ClientId, caller: &Caller) {
        let trusted = caller.uid == 0 || self.config.trusted_uids.contains(&caller.uid);
        let allowed = trusted || caller.uid == self.facts.uid;
        self.clients
            .insert(client, Conversation { uid: caller.uid, allowed, trusted, about: About::Nothing, reserved: None });
    }

    pub(super) fn on_client(
        &mut self,
        now: Timestamp,
        client: ClientId,
        message: CommandToStepMgr,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let Some(conversation) = self.clients.get_mut(&client) else {
            // The conversation was opened before this step manager took over.
            let refusal = Refusal::Internal("the job's step manager was restarted".into());
            return self.refuse(client, refusal, out);
        };
        if let CommandToStepMgr::OnBehalfOf(caller) = &message {
            if !conversation.trusted || conversation.about != About::Nothing {
                return self.refuse(client, Refusal::AccessDenied, out);
            }
            return self.client_opened(client, &caller.clone());
        }
        if !conversation.allowed {
            return self.refuse(client, Refusal::AccessDenied, out);
        }
        let by = conversation.uid;
        match (conversation.about, message) {
            (About::Nothing, CommandToStepMgr::Launch { request, spec, descriptors }) => {
                match self.launched(&request) {
                    Some(step) => self.rejoin(client, step, out),
                    None => self.launch(now, client, request, *spec, descriptors, out),
                }
            }
            (About::Nothing, CommandToStepMgr::Rejoin { step, sluid }) => {
                self.rejoin_of_run(client, step, sluid, out);
            }
            (About::Nothing, CommandToStepMgr::ReserveStep { at_least }) => self.reserve(client, at_least, out),
            (About::Nothing, CommandToStepMgr::Enqueue { request, batch }) => {
                self.enqueue(now, client, request, *batch, out);
            }
            (About::Nothing, CommandToStepMgr::Wait { steps, any, progress_ms, groups, stay }) => {
                let curiosity = Curiosity { progress_ms, groups };
                if stay && steps.is_empty() && self.phase.takes_steps() {
                    self.stay(now, client, curiosity, out);
                } else {
                    self.wait(now, client, steps, any, curiosity, out);
                }
            }
            (About::Nothing, CommandToStepMgr::List) => {
                Self::tell(client, StepMgrToCommand::Steps(self.listing().0), out);
            }
            (About::Nothing, CommandToStepMgr::Attach { step }) => self.attach(client, step, out),
            (About::Nothing, CommandToStepMgr::Sample { steps }) => self.sample(client, &steps, out),
            (About::Nothing, CommandToStepMgr::SignalSteps { steps, pending_only, signal }) => {
                let signal = |s| self.signal_named(now, s, pending_only, signal, Some(by), out);
                let answers = steps.iter().map(signal).collect();
                Self::tell(client, StepMgrToCommand::PerStep(answers), out);
            }
            (About::Nothing, CommandToStepMgr::SendFile(request)) => self.send_file(client, *request, out),
            (About::Watch(key), CommandToStepMgr::AttachedInput { rank, data }) => {
                if self.steps.contains_key(&key) {
                    let input = StepInput::Attached { watcher: client.0, rank, data };
                    out.push(StepMgrEffect::ToStep { step: key, input });
                }
            }
            (About::Step(step), message) => self.pass_on_to_step(now, step, message, out),
            (About::Nothing, _) => {
                let refusal = Refusal::Internal("a conversation begins with a request".into());
                self.refuse(client, refusal, out);
            }
            // Late input of a step that is over, or input while an answer is in progress.
            (
                About::Enqueue
                | About::Wait
                | About::Watch(_)
                | About::Sample
                | About::File
                | About::FileUnderWay
                | About::Done,
                _,
            ) => {}
        }
    }

    fn pass_on_to_step(&mut self, now: Timestamp, step: u32, message: CommandToStepMgr, out: &mut Vec<StepMgrEffect>) {
        let number = StepKey::number(step);
        match self.steps.get(&number).map(|r| &r.state) {
            Some(RecordState::Queued { .. }) => match message {
                // Ctrl-C while waiting withdraws the step, and so does a signal that would end it.
                CommandToStepMgr::Cancel | CommandToStepMgr::Signal(_) => {
                    self.withdraw(now, step, StepEnd::Cancelled, out);
                    if !self.settled {
                        self.schedule(now, out);
                    }
                }
                CommandToStepMgr::Stdin(data) => self.keep_early_input(now, step, data, out),
                _ => {}
            },
            Some(_) => {
                let input = match message {
                    CommandToStepMgr::StartPart(whole) => self.part_of(step, &whole),
                    message => Some(StepInput::Client(message)),
                };
                out.extend(input.map(|input| StepMgrEffect::ToStep { step: number, input }));
            }
            None => {}
        }
    }

    /// Reserves a number for a step that needs the same number in other components of its heterogeneous job. A number that is not
    /// used stays a gap, as in Slurm.
    fn reserve(&mut self, client: ClientId, at_least: u32, out: &mut Vec<StepMgrEffect>) {
        if !self.phase.takes_steps() {
            return self.refuse(client, Refusal::AlreadyDone, out);
        }
        // Whatever commands request, numbers are left for all others.
        let left = MOST_UNUSED.saturating_sub(self.unused_numbers);
        if left == 0 {
            let why = "too many step numbers of the job were reserved and not used";
            return self.refuse(client, Refusal::InvalidUpdate(why.into()), out);
        }
        let number = at_least.min(self.next_step.saturating_add(MOST_SKIPPED.min(left - 1))).max(self.next_step);
        self.unused_numbers += number - self.next_step + 1;
        self.next_step = number.saturating_add(1);
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.reserved = Some(number);
        }
        let step = StepId::of(self.facts.job, StepKey::number(number));
        Self::tell(client, StepMgrToCommand::Reserved { step }, out);
    }

    fn part_of(&self, step: u32, whole: &WholeStep) -> Option<StepInput> {
        let record = self.steps.get(&StepKey::number(step))?;
        let placement = record.state.placement()?;
        let plan = launch::part_plan(&self.facts, &self.pool, step, record, placement, whole);
        Some(StepInput::StartPart { plan: Box::new(plan) })
    }

    /// Input that comes before the step runs waits with it, up to the window.
    fn keep_early_input(&mut self, now: Timestamp, step: u32, data: ByteBuf, out: &mut Vec<StepMgrEffect>) {
        let Some(record) = self.steps.get_mut(&StepKey::number(step)) else { return };
        record.early_input.push(data);
        let held: u64 = record.early_input.iter().map(|d| d.len() as u64).sum();
        if held > STDIN_WINDOW {
            self.withdraw(now, step, StepEnd::InputOverrun, out);
        }
    }

    pub(super) fn client_closed(&mut self, now: Timestamp, client: ClientId, out: &mut Vec<StepMgrEffect>) {
        let Some(conversation) = self.clients.remove(&client) else { return };
        match conversation.about {
            About::Step(step) => {
                let number = StepKey::number(step);
                match self.steps.get_mut(&number) {
                    Some(record) if matches!(record.state, RecordState::Queued { .. }) => {
                        self.withdraw(now, step, StepEnd::ClientGone, out);
                        if !self.settled {
                            self.schedule(now, out);
                        }
                    }
                    Some(record) => {
                        record.client = None;
                        out.push(StepMgrEffect::ToStep { step: number, input: StepInput::ClientGone });
                    }
                    None => {}
                }
            }
            About::Wait => {
                self.waiters.remove(client);
                out.push(StepMgrEffect::ClearTimer(StepMgrTimer::Progress(client)));
            }
            About::Enqueue => {
                for accepting in self.accepting.values_mut() {
                    accepting.clients.retain(|c| *c != client);
                }
            }
            About::Watch(step) => {
                if let Some(record) = self.steps.get_mut(&step) {
                    record.watchers.retain(|watcher| *watcher != client);
                }
            }
            About::File => self.files.retain(|(of, _)| *of != client),
            About::Nothing | About::FileUnderWay | About::Sample | About::Done => {}
        }
    }

    /// Would so many more steps exceed what the job may have?
    pub(super) fn has_too_many(&self, more: u32) -> bool {
        self.config.max_step_count.is_some_and(|most| self.next_step.saturating_add(more) > most)
    }

    /// The shape of a step, if its job can ever provide it.
    pub(super) fn admit(
        &mut self,
        spec: &StepSpec,
        names_program: bool,
        asker: Asker,
    ) -> Result<Arc<StepShape>, Refusal> {
        if !names_program && spec.argv.is_empty() && spec.multi_prog.is_empty() && spec.script.is_none() {
            return Err(Refusal::InvalidScript("no program was named".into()));
        }
        let (shape, known) = self.shapes.get(shape_of(spec, &self.job_shape, asker)?);
        if !known {
            feasible(&shape, &self.pool)?;
            self.shapes.keep(shape.clone());
        }
        Ok(shape)
    }

    fn launch(
        &mut self,
        now: Timestamp,
        client: ClientId,
        request: RequestId,
        spec: StepSpec,
        descriptors: [bool; 3],
        out: &mut Vec<StepMgrEffect>,
    ) {
        let shape = match self.admit_attended(&spec) {
            Ok(shape) => shape,
            Err(refusal) => return self.refuse(client, refusal, out),
        };
        let environment = self.environment_for(&spec, None);
        let immediate = spec.immediate;
        let reserved = self.clients.get_mut(&client).and_then(|conversation| conversation.reserved.take());
        self.unused_numbers = self.unused_numbers.saturating_sub(u32::from(reserved.is_some()));
        let step = reserved.unwrap_or(self.next_step);
        let place = self.queue.place(now, Urgency::Blocking, self.config.minibatch_age, spec.priority);
        // A step that fits starts without being queued, if the queue is empty or the step may pass it.
        let may_start = !self.journal_behind && !self.stands_still() && (immediate || self.queue.is_empty());
        let placement = if may_start { self.try_place(place, &shape) } else { None };
        if immediate && placement.is_none() {
            return self.refuse(client, Refusal::Busy, out);
        }
        self.next_step = self.next_step.max(step + 1);
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Step(step);
        }
        let key = StepKey::number(step);
        let accepted = StepMgrToCommand::Accepted {
            step: StepId::of(self.facts.job, key),
            sluid: self.facts.sluid,
            warnings: Vec::new(),
        };
        Self::tell(client, accepted, out);
        let record = StepRecord {
            origin: Arc::new(view::origin(&self.facts, &spec, shape.tasks)),
            spec: Arc::new(spec),
            shape: shape.clone(),
            environment,
            row: None,
            attempt: 0,
            client: Some(client),
            request: Some(request),
            handed: descriptors,
            early_input: Vec::new(),
            watchers: Vec::new(),
            ordered: None,
            state: RecordState::Queued { key: place, told: false },
        };
        self.steps.insert(key, record);
        self.queue.insert(place, crate::stepmgr::queue::Waiting::Attended(step));
        self.attended_waiting += 1;
        self.asked_for.insert(request, step);
        match placement {
            Some(placement) => {
                self.passed_by(place, &shape);
                self.start_attended(now, step, placement, out);
            }
            None => {
                self.untold.push(step);
                self.arrived(now, place, step, out);
                self.tell_curious(now, out);
            }
        }
    }

    /// The shape of a step that a client stays with, unless it is refused.
    fn admit_attended(&mut self, spec: &StepSpec) -> Result<Arc<StepShape>, Refusal> {
        if !self.phase.takes_steps() {
            return Err(Refusal::AlreadyDone);
        }
        if self.attended_waiting >= self.config.attended_limit as u64 {
            return Err(Refusal::RetryAfter { after: RETRY_AFTER });
        }
        let before = spec.het.and_then(|part| part.behind).unwrap_or_default();
        if before.tasks > MOST_BEFORE || before.nodes > MOST_BEFORE {
            let why = format!("a part of a step is behind {MOST_BEFORE} tasks and nodes at most");
            return Err(Refusal::InvalidUpdate(why));
        }
        let shape = self.admit(spec, false, Asker::Attended)?;
        if self.has_too_many(1) {
            return Err(Refusal::StepLimit);
        }
        Ok(shape)
    }

    fn stay(&mut self, now: Timestamp, client: ClientId, curiosity: Curiosity, out: &mut Vec<StepMgrEffect>) {
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Wait;
        }
        self.waiters.wait_for_run(client, curiosity);
        self.tell_progress(now, client, false, out);
    }

    fn wait(
        &mut self,
        now: Timestamp,
        client: ClientId,
        steps: Vec<WhichSteps>,
        any: bool,
        curiosity: Curiosity,
        out: &mut Vec<StepMgrEffect>,
    ) {
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Wait;
        }
        let drained = self.is_drained() && self.accepting.is_empty();
        if steps.is_empty() && !any {
            self.waiters.wait_for_all(client, curiosity);
            if drained {
                for (client, worst) in self.waiters.drained() {
                    self.tell_drained(client, worst, out);
                }
                return;
            }
        } else if steps.is_empty() {
            // The next step that ends, if there is one that can end.
            if drained {
                return self.tell_drained(client, ExitStatus::SUCCESS, out);
            }
            self.waiters.wait_for(client, vec![WhichSteps::All], 1, ExitStatus::SUCCESS, curiosity);
        } else {
            let mut all = Census::default();
            for named in &steps {
                match self.census(named) {
                    Ok(census) => all.add(census),
                    Err(refusal) => return self.refuse(client, refusal, out),
                }
            }
            let left = all.total - all.ended;
            if left == 0 || (any && all.ended > 0) {
                return self.tell_drained(client, all.worst, out);
            }
            let left = if any { 1 } else { left };
            self.waiters.wait_for(client, steps, left, all.worst, curiosity);
        }
        self.tell_progress(now, client, false, out);
    }

    pub(super) fn tell_curious(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        for client in self.waiters.curious() {
            self.tell_progress(now, client, false, out);
        }
    }

    pub(super) fn tell_progress(
        &mut self,
        now: Timestamp,
        client: ClientId,
        timer: bool,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let counts = self.counts();
        match self.waiters.progress(client, now, counts, timer) {
            Progress::Quiet => {}
            Progress::Tell(counts) => Self::tell(client, StepMgrToCommand::Progress(counts), out),
            Progress::TellGroups(counts) => {
                let (groups, left_out, rest) = self.groups();
                Self::tell(client, StepMgrToCommand::Groups { counts, groups, left_out, rest }, out);
            }
            Progress::Later(after) => {
                out.push(StepMgrEffect::SetTimer { timer: StepMgrTimer::Progress(client), after });
            }
        }
    }

    pub(super) fn tell_drained(&mut self, client: ClientId, worst: ExitStatus, out: &mut Vec<StepMgrEffect>) {
        let message = StepMgrToCommand::Drained { job: self.facts.job, counts: self.counts(), worst };
        Self::tell(client, message, out);
        out.push(StepMgrEffect::ClearTimer(StepMgrTimer::Progress(client)));
        self.conversation_over(client, out);
    }

    /// The run is over: commands that still wait for steps are answered.
    pub(super) fn finish_waits(&mut self, out: &mut Vec<StepMgrEffect>) {
        for (client, worst) in self.waiters.take_all() {
            self.tell_drained(client, worst, out);
        }
    }

    pub(super) fn conversation_over(&mut self, client: ClientId, out: &mut Vec<StepMgrEffect>) {
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Done;
            out.push(StepMgrEffect::CloseClient { client });
        }
    }

    pub(super) fn refuse(&mut self, client: ClientId, refusal: Refusal, out: &mut Vec<StepMgrEffect>) {
        Self::tell(client, StepMgrToCommand::Refused(refusal), out);
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Done;
        }
        out.push(StepMgrEffect::CloseClient { client });
    }
}
