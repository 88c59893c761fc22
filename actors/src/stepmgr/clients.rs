//! Conversations with commands at `stepd`'s door: who may, `Launch`, `Enqueue`, `Wait`, `List`, `SignalSteps`.

use crate::{
    step::{StepEnd, StepInput, StepResult, state::worse},
    stepmgr::{
        core::{Accepting, StepMgrCore},
        journal::StepEvent,
        messages::{ClientId, StepMgrEffect, StepMgrTimer},
        placement::feasible,
        shape::{StepShape, shape_of},
        state::{About, Conversation, RecordState, StepRecord},
        waiters::Progress,
    },
};
use garrick_model::{
    ids::{RequestId, StepId, StepNum},
    messages::{
        command::Caller,
        step::{CommandToStepMgr, STDIN_WINDOW, StepMgrToCommand},
    },
    refusal::Refusal,
    spec::StepSpec,
    state::{ExitStatus, StepState},
    time::Timestamp,
};
use serde_bytes::ByteBuf;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// What a full queue advises.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl StepMgrCore {
    pub(super) fn client_opened(&mut self, client: ClientId, caller: &Caller) {
        let trusted = caller.uid == 0 || self.config.trusted_uids.contains(&caller.uid);
        let allowed = trusted || caller.uid == self.facts.uid;
        self.clients.insert(client, Conversation { allowed, trusted, about: About::Nothing });
    }

    pub(super) fn on_client(
        &mut self,
        now: Timestamp,
        client: ClientId,
        message: CommandToStepMgr,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let Some(conversation) = self.clients.get_mut(&client) else {
            // Opened before this step manager took over.
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
        match (conversation.about, message) {
            (About::Nothing, CommandToStepMgr::Launch { spec, .. }) => self.launch(now, client, *spec, out),
            (About::Nothing, CommandToStepMgr::Enqueue { request, specs }) => {
                self.enqueue(now, client, request, specs, out);
            }
            (About::Nothing, CommandToStepMgr::Wait { steps, progress_ms }) => {
                self.wait(now, client, &steps, progress_ms, out);
            }
            (About::Nothing, CommandToStepMgr::List) => {
                Self::tell(client, StepMgrToCommand::Steps(self.views()), out);
            }
            (About::Nothing, CommandToStepMgr::SignalSteps { steps, signal }) => {
                let answers = steps.into_iter().map(|s| (s, self.signal_step(now, s, signal, out))).collect();
                Self::tell(client, StepMgrToCommand::PerStep(answers), out);
            }
            (About::Step(step), message) => self.pass_on_to_step(now, step, message, out),
            (About::Nothing, _) => {
                let refusal = Refusal::Internal("a conversation begins with a request".into());
                self.refuse(client, refusal, out);
            }
            // Late input of a step that is over, or chatter while an answer is under way.
            (About::Enqueue | About::Wait | About::Done, _) => {}
        }
    }

    fn pass_on_to_step(&mut self, now: Timestamp, step: u32, message: CommandToStepMgr, out: &mut Vec<StepMgrEffect>) {
        let number = StepNum::Number(step);
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
            Some(_) => out.push(StepMgrEffect::ToStep { step: number, input: StepInput::Client(message) }),
            None => {}
        }
    }

    /// Input that comes before the step runs waits with it, as much as may be under way.
    fn keep_early_input(&mut self, now: Timestamp, step: u32, data: ByteBuf, out: &mut Vec<StepMgrEffect>) {
        let Some(record) = self.steps.get_mut(&StepNum::Number(step)) else { return };
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
                let number = StepNum::Number(step);
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
            About::Nothing | About::Done => {}
        }
    }

    /// What a step needs, if its job can ever give it.
    fn admit(&mut self, spec: &StepSpec) -> Result<Arc<StepShape>, Refusal> {
        if spec.argv.is_empty() && spec.multi_prog.is_empty() && spec.script.is_none() {
            return Err(Refusal::InvalidScript("no program was named".into()));
        }
        let (shape, known) = self.shapes.get(shape_of(spec, &self.job_shape)?);
        if !known {
            feasible(&shape, &self.pool)?;
            self.shapes.keep(shape.clone());
        }
        Ok(shape)
    }

    fn launch(&mut self, now: Timestamp, client: ClientId, spec: StepSpec, out: &mut Vec<StepMgrEffect>) {
        if !self.phase.takes_steps() {
            return self.refuse(client, Refusal::AlreadyDone, out);
        }
        if self.queue.len() >= self.config.queue_limit {
            return self.refuse(client, Refusal::RetryAfter { after: RETRY_AFTER }, out);
        }
        let shape = match self.admit(&spec) {
            Ok(shape) => shape,
            Err(refusal) => return self.refuse(client, refusal, out),
        };
        let environment = self.environment_for(&spec, None);
        let immediate = spec.immediate;
        let step = self.next_step;
        // A step that finds room starts without ever being in the queue, if nothing waits or may be passed by.
        let placement = if immediate || self.queue.is_empty() { self.try_place(step, &shape) } else { None };
        if immediate && placement.is_none() {
            return self.refuse(client, Refusal::Busy, out);
        }
        self.next_step += 1;
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Step(step);
        }
        let accepted = StepMgrToCommand::Accepted {
            step: StepId::new(self.facts.job, StepNum::Number(step)),
            sluid: self.facts.sluid,
            warnings: Vec::new(),
        };
        Self::tell(client, accepted, out);
        let state = match placement {
            Some(_) => RecordState::Unsure { since: now },
            None => {
                self.attended_waiting += 1;
                self.untold.push(step);
                RecordState::Queued { key: self.enqueue_key(now, step, true), told: false }
            }
        };
        let record = StepRecord {
            spec: Arc::new(spec),
            shape: shape.clone(),
            environment,
            client: Some(client),
            early_input: Vec::new(),
            state,
        };
        self.steps.insert(StepNum::Number(step), record);
        match placement {
            Some(placement) => {
                self.passed_by(step, &shape);
                self.start(now, step, placement, out);
            }
            None => {
                let first = self.reports.step_changed(StepNum::Number(step));
                self.report_later(first, out);
                self.arrived(now, step, out);
                self.tell_curious(now, out);
            }
        }
    }

    fn enqueue(
        &mut self,
        now: Timestamp,
        client: ClientId,
        request: RequestId,
        specs: Vec<StepSpec>,
        out: &mut Vec<StepMgrEffect>,
    ) {
        if let Some((first, count)) = self.ledger.answer(&request) {
            return self.answer_enqueue(client, first, count, out);
        }
        if let Some(accepting) = self.accepting.values_mut().find(|a| a.request == request) {
            accepting.clients.push(client);
            if let Some(conversation) = self.clients.get_mut(&client) {
                conversation.about = About::Enqueue;
            }
            return;
        }
        if !self.phase.takes_steps() {
            return self.refuse(client, Refusal::AlreadyDone, out);
        }
        let on_the_way: usize = self.accepting.values().map(|a| a.count as usize).sum();
        if self.queue.len() + on_the_way + specs.len() > self.config.queue_limit {
            return self.refuse(client, Refusal::RetryAfter { after: RETRY_AFTER }, out);
        }
        for spec in &specs {
            if let Err(refusal) = self.admit(spec) {
                return self.refuse(client, refusal, out);
            }
        }
        let first = self.next_step;
        let count = specs.len() as u32;
        self.next_step += count;
        let specs = specs.into_iter().map(Arc::new).collect();
        let event = StepEvent::Accepted { request, first, specs, at: now };
        let record = self.next_record;
        self.next_record += 1;
        out.push(StepMgrEffect::Journal { event: event.clone(), durable: Some(record) });
        self.accepting.insert(record, Accepting { event, request, first, count, clients: vec![client] });
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Enqueue;
        }
    }

    /// Accepted steps are on disk: their senders are told, and they join the queue.
    pub(super) fn journaled(&mut self, now: Timestamp, upto: u64, out: &mut Vec<StepMgrEffect>) {
        while self.accepting.first_key_value().is_some_and(|(record, _)| *record <= upto) {
            let Some((_, accepting)) = self.accepting.pop_first() else { return };
            self.ledger.apply(&accepting.event);
            for client in accepting.clients {
                self.answer_enqueue(client, accepting.first, accepting.count, out);
            }
            let StepEvent::Accepted { specs, .. } = accepting.event else { continue };
            let mut environment = None;
            for (number, spec) in (accepting.first..).zip(specs) {
                let Ok(shape) = self.admit(&spec) else {
                    // A node was lost since it was accepted.
                    self.refuse_accepted(now, number, StepState::NodeFail, out);
                    continue;
                };
                if !spec.environment.is_empty() || environment.is_none() {
                    environment = Some(self.environment_for(&spec, None));
                }
                let environment = environment.clone().unwrap_or_default();
                let state = RecordState::Queued { key: self.enqueue_key(now, number, false), told: true };
                let record = StepRecord { spec, shape, environment, client: None, early_input: Vec::new(), state };
                self.steps.insert(StepNum::Number(number), record);
                let first = self.reports.step_changed(StepNum::Number(number));
                self.report_later(first, out);
                self.arrived(now, number, out);
            }
            self.tell_curious(now, out);
        }
    }

    /// A step that was accepted ends without ever having waited.
    fn refuse_accepted(&mut self, now: Timestamp, number: u32, state: StepState, out: &mut Vec<StepMgrEffect>) {
        let result = StepResult {
            step: StepId::new(self.facts.job, StepNum::Number(number)),
            state,
            exit: ExitStatus::SUCCESS,
            ended: Some(StepEnd::Cancelled),
        };
        self.record_end(now, result, out);
    }

    /// The job ends before these were on disk: nothing was promised. Their record is on its way all the same, so their
    /// ends are recorded too.
    pub(super) fn refuse_accepting(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        for accepting in std::mem::take(&mut self.accepting).into_values() {
            self.ledger.apply(&accepting.event);
            for client in accepting.clients {
                self.refuse(client, Refusal::AlreadyDone, out);
            }
            for number in accepting.first..accepting.first + accepting.count {
                self.refuse_accepted(now, number, StepState::Cancelled, out);
            }
        }
    }

    fn answer_enqueue(&mut self, client: ClientId, first: u32, count: u32, out: &mut Vec<StepMgrEffect>) {
        let steps = (first..first + count).map(|n| StepId::new(self.facts.job, StepNum::Number(n))).collect();
        Self::tell(client, StepMgrToCommand::Enqueued { steps, warnings: Vec::new() }, out);
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Nothing;
        }
    }

    fn wait(
        &mut self,
        now: Timestamp,
        client: ClientId,
        steps: &[StepId],
        progress_ms: u32,
        out: &mut Vec<StepMgrEffect>,
    ) {
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Wait;
        }
        if steps.is_empty() {
            self.waiters.wait_for_all(client, progress_ms);
            let counts = self.counts();
            if counts.queued + counts.running == 0 && self.accepting.is_empty() {
                for (client, worst) in self.waiters.drained() {
                    self.tell_drained(client, worst, out);
                }
                return;
            }
        } else {
            let mut open = BTreeSet::new();
            let mut worst = ExitStatus::SUCCESS;
            for step in steps {
                let StepNum::Number(n) = step.step else {
                    return self.refuse(client, Refusal::InvalidStep(step.to_string()), out);
                };
                let accepting = self.accepting.values().any(|a| (a.first..a.first + a.count).contains(&n));
                if step.job != self.facts.job {
                    return self.refuse(client, Refusal::InvalidStep(step.to_string()), out);
                } else if let Some(end) = self.ledger.end_of(n) {
                    worst = worse(worst, end.exit);
                } else if self.steps.contains_key(&step.step) || accepting {
                    open.insert(n);
                } else {
                    return self.refuse(client, Refusal::InvalidStep(step.to_string()), out);
                }
            }
            if open.is_empty() {
                return self.tell_drained(client, worst, out);
            }
            self.waiters.wait_for(client, open, worst, progress_ms);
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

    /// The run is over: whoever still waits for steps is answered.
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

    fn refuse(&mut self, client: ClientId, refusal: Refusal, out: &mut Vec<StepMgrEffect>) {
        Self::tell(client, StepMgrToCommand::Refused(refusal), out);
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Done;
        }
        out.push(StepMgrEffect::CloseClient { client });
    }
}
