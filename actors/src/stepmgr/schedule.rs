//! The queue: which waiting step starts next, where, and what happens when a step is over. Work per step does not grow
//! with the queue: a pass looks at a bounded number of steps behind the first that does not fit, equal shapes are tried
//! once, and a step that arrives while nothing was freed is tried alone.

use crate::{
    step::{StepEffect, StepEnd, StepInput, StepResult},
    stepmgr::{
        core::StepMgrCore,
        journal::StepEvent,
        launch,
        messages::StepMgrEffect,
        placement::{Against, Placement, feasible, place},
        pool::NodeUse,
        shape::StepShape,
        state::{Blocked, RecordState, RunPhase},
        view,
    },
};
use garrick_model::{
    ids::{StepId, StepNum},
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    refusal::Refusal,
    spec::StepSharing,
    state::{ExitStatus, Reason, StepState},
    time::Timestamp,
};
use std::{collections::BTreeSet, sync::Arc};

impl StepMgrCore {
    /// Starts what fits, in order, after resources were freed or a node became ready.
    pub(super) fn schedule(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        if !self.phase.takes_steps() {
            return;
        }
        let mut after = None;
        let mut missed = 0;
        let mut failed: Vec<Arc<StepShape>> = Vec::new();
        while missed < self.config.lookahead
            && !self.pool.open().is_empty()
            && let Some((key, step)) = self.queue.next(after)
        {
            after = Some(key);
            let Some(shape) = self.shape_of_queued(step) else { continue };
            if failed.iter().any(|f| Arc::ptr_eq(f, &shape)) {
                missed += 1;
                continue;
            }
            if !self.try_start(now, step, &shape, out) {
                missed += 1;
                failed.push(shape);
            }
        }
        self.settled = true;
        self.tell_waiting(out);
    }

    /// A step just joined the queue: if nothing else could start before, only it can have changed that.
    pub(super) fn arrived(&mut self, now: Timestamp, step: u32, out: &mut Vec<StepMgrEffect>) {
        if !self.settled {
            return self.schedule(now, out);
        }
        if self.queue.len() <= self.config.lookahead
            && let Some(shape) = self.shape_of_queued(step)
        {
            self.try_start(now, step, &shape, out);
        }
        self.tell_waiting(out);
    }

    fn shape_of_queued(&self, step: u32) -> Option<Arc<StepShape>> {
        self.steps.get(&StepNum::Number(step)).map(|r| r.shape.clone())
    }

    /// Starts a waiting step if it fits and may go ahead of a blocked one. The first that does not fit becomes that.
    fn try_start(&mut self, now: Timestamp, step: u32, shape: &StepShape, out: &mut Vec<StepMgrEffect>) -> bool {
        match self.try_place(step, shape) {
            Some(placement) => {
                self.passed_by(step, shape);
                self.start(now, step, placement, out);
                true
            }
            None => {
                let first = self.queue.next(None).is_some_and(|(_, s)| s == step);
                if first && self.blocked.as_ref().is_none_or(|b| b.step != step) {
                    self.blocked = Some(Blocked { step, bypassed: 0, kept: BTreeSet::new() });
                }
                false
            }
        }
    }

    pub(super) fn try_place(&self, step: u32, shape: &StepShape) -> Option<Placement> {
        let nothing = BTreeSet::new();
        let kept = match &self.blocked {
            Some(blocked) if blocked.step != step => &blocked.kept,
            _ => &nothing,
        };
        place(shape, &self.pool, Against::Free { kept })
    }

    /// A step starts: if another was blocked and is passed by once too often, nodes are kept free for that one from now on.
    pub(super) fn passed_by(&mut self, step: u32, shape: &StepShape) {
        let Some(blocked) = &mut self.blocked else { return };
        if blocked.step == step {
            self.blocked = None;
            return;
        }
        if shape.sharing == StepSharing::Overlap {
            return;
        }
        blocked.bypassed += 1;
        if blocked.bypassed >= self.config.max_bypass && blocked.kept.is_empty() {
            let number = blocked.step;
            if let Some(record) = self.steps.get(&StepNum::Number(number))
                && let Some(placement) = place(&record.shape, &self.pool, Against::Whole)
                && let Some(blocked) = &mut self.blocked
            {
                blocked.kept = placement.nodes.iter().map(|n| n.slot).collect();
            }
        }
    }

    /// Hands a step its place. It must be waiting, or be new.
    pub(super) fn start(&mut self, now: Timestamp, step: u32, placement: Placement, out: &mut Vec<StepMgrEffect>) {
        let number = StepNum::Number(step);
        let Some(record) = self.steps.get_mut(&number) else { return };
        if let RecordState::Queued { key, .. } = record.state {
            self.queue.remove(key);
            if record.client.is_some() {
                self.attended_waiting -= 1;
            }
        }
        let plan = launch::step_plan(&self.facts, &self.pool, step, record, &placement);
        self.pool.take(&placement.claims);
        record.state = RecordState::Running { placement, since: now };
        let early = std::mem::take(&mut record.early_input);
        self.record(StepEvent::Started { step: number, at: now }, out);
        out.push(StepMgrEffect::StartStep { plan: Box::new(plan) });
        for data in early {
            let input = StepInput::Client(CommandToStepMgr::Stdin(data));
            out.push(StepMgrEffect::ToStep { step: number, input });
        }
        let first = self.reports.step_changed(number);
        self.report_later(first, out);
        self.tell_curious(now, out);
    }

    /// Commands whose steps wait although all nodes are there are told so, once.
    fn tell_waiting(&mut self, out: &mut Vec<StepMgrEffect>) {
        if self.untold.is_empty() || self.pool.nodes().iter().any(|n| n.usage == NodeUse::Awaited) {
            return;
        }
        for step in std::mem::take(&mut self.untold) {
            if let Some(record) = self.steps.get_mut(&StepNum::Number(step))
                && let RecordState::Queued { told, .. } = &mut record.state
                && let Some(client) = record.client
            {
                *told = true;
                Self::tell(client, StepMgrToCommand::Queued { reason: Reason::Resources }, out);
            }
        }
    }

    /// What a running step wants done.
    pub(super) fn on_step(
        &mut self,
        now: Timestamp,
        step: StepNum,
        effects: Vec<StepEffect>,
        out: &mut Vec<StepMgrEffect>,
    ) {
        for effect in effects {
            match effect {
                StepEffect::ToShepherd { node, message } => out.push(StepMgrEffect::ToShepherd { node, message }),
                StepEffect::ToClient(message) => {
                    if let Some(client) = self.steps.get(&step).and_then(|r| r.client) {
                        Self::tell(client, message, out);
                    }
                }
                StepEffect::Over(result) => self.step_over(now, result, out),
                // The step's actor keeps its timers.
                StepEffect::SetTimer { .. } => {}
            }
        }
    }

    /// No process of a step is left.
    pub(super) fn step_over(&mut self, now: Timestamp, result: StepResult, out: &mut Vec<StepMgrEffect>) {
        let step = result.step.step;
        let Some(record) = self.steps.get(&step) else { return };
        if let RecordState::Queued { .. } = record.state {
            return;
        }
        if let RecordState::Running { placement, .. } = &record.state {
            self.pool.give(&placement.claims);
        }
        self.settled = false;
        self.record_end(now, result.clone(), out);
        if step == StepNum::Batch {
            self.batch_over(now, &result, out);
        }
        match self.phase {
            RunPhase::Starting | RunPhase::Running => self.schedule(now, out),
            RunPhase::Ending if self.steps.is_empty() => self.sweep(now, out),
            _ => self.look_for_end(now, out),
        }
    }

    /// A step's actor died: its processes are killed, and it ends as failed.
    pub(super) fn step_crashed(&mut self, now: Timestamp, step: StepNum, out: &mut Vec<StepMgrEffect>) {
        let Some(record) = self.steps.get(&step) else { return };
        let RecordState::Running { placement, .. } = &record.state else { return };
        let id = StepId::new(self.facts.job, step);
        for node in &placement.nodes {
            let message = garrick_model::messages::shepherd::StepMgrToShepherd::Kill { step: id };
            out.push(StepMgrEffect::ToShepherd { node: crate::step::NodeSlot(node.slot), message });
        }
        out.push(StepMgrEffect::Log { text: format!("the actor of step {id} died; its tasks are killed") });
        self.step_lost_hold(now, step, out);
    }

    /// A waiting step is taken out of the queue for good.
    pub(super) fn withdraw(&mut self, now: Timestamp, step: u32, cause: StepEnd, out: &mut Vec<StepMgrEffect>) {
        let number = StepNum::Number(step);
        let Some(record) = self.steps.get(&number) else { return };
        let RecordState::Queued { key, .. } = record.state else { return };
        let attended = record.client.is_some();
        self.queue.remove(key);
        if attended {
            self.attended_waiting -= 1;
        }
        if self.blocked.as_ref().is_some_and(|b| b.step == step) {
            self.blocked = None;
            self.settled = false;
        }
        let state = cause.state().unwrap_or(StepState::Cancelled);
        let result = StepResult {
            step: StepId::new(self.facts.job, number),
            state,
            exit: ExitStatus::SUCCESS,
            ended: Some(cause),
        };
        self.record_end(now, result, out);
    }

    /// All waiting steps, because the job ends.
    pub(super) fn withdraw_all(&mut self, now: Timestamp, cause: &StepEnd, out: &mut Vec<StepMgrEffect>) {
        while let Some((_, step)) = self.queue.next(None) {
            self.withdraw(now, step, cause.clone(), out);
        }
    }

    /// After a node was lost: steps that can never run any more fail.
    pub(super) fn drop_impossible(&mut self, now: Timestamp, node: &str, out: &mut Vec<StepMgrEffect>) {
        let mut after = None;
        let mut possible: Vec<(Arc<StepShape>, bool)> = Vec::new();
        while let Some((key, step)) = self.queue.next(after) {
            after = Some(key);
            let Some(shape) = self.shape_of_queued(step) else { continue };
            let known = possible.iter().find(|(s, _)| Arc::ptr_eq(s, &shape)).map(|(_, p)| *p);
            let fits = known.unwrap_or_else(|| {
                let fits = feasible(&shape, &self.pool).is_ok();
                possible.push((shape, fits));
                fits
            });
            if !fits {
                self.withdraw(now, step, StepEnd::NodeLost { node: node.to_owned() }, out);
            }
        }
        self.blocked = None;
        self.schedule(now, out);
    }

    /// The end of a step is recorded, reported, and told to whoever waits for it.
    pub(super) fn record_end(&mut self, now: Timestamp, result: StepResult, out: &mut Vec<StepMgrEffect>) {
        let step = result.step.step;
        let record = self.steps.remove(&step);
        self.record(StepEvent::Ended { result: result.clone(), at: now }, out);
        if let Some(record) = &record {
            let first = self.reports.step_ended(view::ended(&self.facts, record, &result, now));
            self.report_later(first, out);
        }
        if let Some(client) = record.and_then(|r| r.client).filter(|c| self.clients.contains_key(c)) {
            let message = StepMgrToCommand::Finished { exit: result.exit, state: result.state };
            Self::tell(client, message, out);
            self.conversation_over(client, out);
        }
        if let StepNum::Number(n) = step {
            let minibatch = self.ledger.end_of(n).is_some_and(|e| e.minibatch);
            let counts = self.counts();
            let drained = counts.queued + counts.running == 0;
            for (client, worst) in self.waiters.step_over(n, result.exit, minibatch, drained) {
                self.tell_drained(client, worst, out);
            }
            self.tell_curious(now, out);
        }
    }

    /// Ends or signals one step for somebody who may.
    pub(super) fn signal_step(
        &mut self,
        now: Timestamp,
        step: StepId,
        signal: Option<i32>,
        out: &mut Vec<StepMgrEffect>,
    ) -> Result<(), Refusal> {
        let unknown = || Refusal::InvalidStep(step.to_string());
        if step.job != self.facts.job {
            return Err(unknown());
        }
        let Some(record) = self.steps.get(&step.step) else {
            let over = match step.step {
                StepNum::Number(n) => self.ledger.end_of(n).is_some(),
                StepNum::Batch => self.ledger.batch.is_some(),
                StepNum::Extern | StepNum::Interactive => false,
            };
            return Err(if over { Refusal::AlreadyDone } else { unknown() });
        };
        match (&record.state, signal, step.step) {
            (RecordState::Queued { .. }, None, StepNum::Number(n)) => {
                self.withdraw(now, n, StepEnd::Cancelled, out);
                if !self.settled {
                    self.schedule(now, out);
                }
                Ok(())
            }
            (RecordState::Queued { .. }, ..) => Err(Refusal::JobPending),
            (_, None, number) => {
                out.push(StepMgrEffect::ToStep { step: number, input: StepInput::End(StepEnd::Cancelled) });
                Ok(())
            }
            (_, Some(signal), number) => {
                let reach = garrick_model::messages::shepherd::SignalReach::Groups;
                out.push(StepMgrEffect::ToStep { step: number, input: StepInput::Signal { signal, reach } });
                Ok(())
            }
        }
    }
}
