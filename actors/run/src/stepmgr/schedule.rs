//! The queue: which waiting step starts next, and where. Work per step does not grow with the queue: equal waiting steps are one
//! row, a pass considers a bounded number of rows behind the first that does not fit, equal shapes are tried once, and an
//! attended step that arrives while nothing was freed is tried alone.

use crate::{
    step::{StepInput, StepPlan},
    stepmgr::{
        core::StepMgrCore,
        launch,
        messages::StepMgrEffect,
        placement::{Against, Placement, feasible, place},
        pool::NodeUse,
        queue::{QueueKey, Waiting},
        rows::RowId,
        shape::StepShape,
        state::{Blocked, RecordState, StepRecord},
    },
};
use garrick_events::steps::event::{Place, StepEvent};
use garrick_model::{
    ids::{StepId, StepKey, StepNum},
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    spec::StepSharing,
    state::Reason,
    time::Timestamp,
};
use std::{collections::BTreeSet, sync::Arc};

impl StepMgrCore {
    /// Starts what fits, in order, after resources were freed, a node became ready or dependencies were fulfilled.
    pub(super) fn schedule(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        if !self.phase.takes_steps() {
            return;
        }
        self.stop_failing(now, out);
        self.resolve_holds(now, out);
        self.forget_blocked();
        if self.journal_behind {
            return;
        }
        if self.stands_still() {
            return self.tell_waiting(out);
        }
        let mut after = None;
        let mut missed = 0;
        let mut failed: Vec<Arc<StepShape>> = Vec::new();
        while missed < self.config.lookahead
            && !self.pool.open().is_empty()
            && let Some((key, what)) = self.queue.next(after)
        {
            after = Some(key);
            let Some(shape) = self.shape_of_waiting(what) else { continue };
            let started = !failed.iter().any(|f| Arc::ptr_eq(f, &shape)) && self.start_all(now, key, what, &shape, out);
            if !started {
                missed += 1;
                failed.push(shape);
            }
        }
        self.settled = true;
        self.line_up(now, out);
        self.tell_waiting(out);
        // Starts may have fulfilled dependencies of other steps.
        if self.holds.is_touched() {
            self.schedule(now, out);
        }
    }

    /// Starts an entry of the queue: as many steps of a row as fit. False: some steps are left for lack of resources.
    fn start_all(
        &mut self,
        now: Timestamp,
        key: QueueKey,
        what: Waiting,
        shape: &Arc<StepShape>,
        out: &mut Vec<StepMgrEffect>,
    ) -> bool {
        loop {
            let Some(placement) = self.try_place(key, shape) else {
                let first = self.queue.next(None).is_some_and(|(k, _)| k == key);
                if first && self.blocked.as_ref().is_none_or(|b| b.key != key) {
                    self.blocked = Some(Blocked { key, shape: shape.clone(), bypassed: 0, kept: BTreeSet::new() });
                }
                return false;
            };
            self.passed_by(key, shape);
            match what {
                Waiting::Attended(step) => {
                    self.start_attended(now, step, placement, out);
                    return true;
                }
                Waiting::Row(id) => {
                    if !self.start_member(now, id, placement, None, out) {
                        return true;
                    }
                }
            }
        }
    }

    /// An attended step joined the queue: if nothing could start before, only this step can start now.
    pub(super) fn arrived(&mut self, now: Timestamp, key: QueueKey, step: u32, out: &mut Vec<StepMgrEffect>) {
        if !self.settled || self.holds.is_touched() || self.journal_behind || self.stands_still() {
            return self.schedule(now, out);
        }
        self.forget_blocked();
        if self.queue.len() <= self.config.lookahead
            && let Some(shape) = self.shape_of_waiting(Waiting::Attended(step))
        {
            self.start_all(now, key, Waiting::Attended(step), &shape, out);
        }
        self.tell_waiting(out);
    }

    /// An entry that no longer waits is not blocked, and nothing is kept for it.
    fn forget_blocked(&mut self) {
        if self.blocked.as_ref().is_some_and(|blocked| !self.queue.contains(blocked.key)) {
            self.blocked = None;
        }
    }

    fn shape_of_waiting(&self, what: Waiting) -> Option<Arc<StepShape>> {
        match what {
            Waiting::Attended(step) => self.steps.get(&StepKey::number(step)).map(|r| r.shape.clone()),
            Waiting::Row(id) => self.rows.get(id).map(|row| row.shape.clone()),
        }
    }

    /// A place for the entry at `key`, or for a new step.
    pub(super) fn try_place(&self, key: QueueKey, shape: &StepShape) -> Option<Placement> {
        let nothing = BTreeSet::new();
        let kept = match &self.blocked {
            Some(blocked) if blocked.key != key => &blocked.kept,
            _ => &nothing,
        };
        place(shape, &self.pool, Against::Free { kept })
    }

    /// A step starts: if it passes a blocked one once too often, nodes are kept free for the blocked one from now on.
    pub(super) fn passed_by(&mut self, key: QueueKey, shape: &StepShape) {
        let Some(blocked) = &mut self.blocked else { return };
        if blocked.key == key {
            self.blocked = None;
            return;
        }
        if shape.sharing == StepSharing::Overlap {
            return;
        }
        blocked.bypassed += 1;
        if !blocked.kept.is_empty() || blocked.bypassed < self.config.max_bypass {
            return;
        }
        let Some(placement) = place(&blocked.shape, &self.pool, Against::Emptiest) else { return };
        let cpus: u32 = placement.nodes.iter().map(|n| n.cpu_count).sum();
        if blocked.bypassed >= cpus.saturating_mul(self.config.bypass_per_cpu) {
            blocked.kept = placement.nodes.iter().map(|n| n.slot).collect();
        }
    }

    /// Starts an attended step at its place. It must be waiting, or be new.
    pub(super) fn start_attended(
        &mut self,
        now: Timestamp,
        step: u32,
        placement: Placement,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let key = StepKey::number(step);
        let Some(record) = self.steps.get_mut(&key) else { return };
        if let RecordState::Queued { key, .. } = record.state {
            self.queue.remove(key);
            self.attended_waiting -= 1;
        }
        if let Some(request) = record.request {
            self.asked_for.remove(&request);
        }
        let early = std::mem::take(&mut record.early_input);
        let placement = launch::behind_others(placement, record);
        let plan = launch::attended_plan(&self.facts, &self.pool, step, record, &placement);
        record.state = RecordState::Running { placement: placement.clone(), since: now };
        record.ordered = None;
        self.launch_plan(now, key, plan, &placement, out);
        self.note_start(key);
        for data in early {
            let input = StepInput::Client(CommandToStepMgr::Stdin(data));
            out.push(StepMgrEffect::ToStep { step: key, input });
        }
    }

    /// Starts the next member of a row at its place, now or when the step `after` has ended. False: none of the row may start any
    /// more for now.
    pub(super) fn start_member(
        &mut self,
        now: Timestamp,
        id: RowId,
        placement: Placement,
        after: Option<StepKey>,
        out: &mut Vec<StepMgrEffect>,
    ) -> bool {
        let Some(row) = self.rows.get_mut(id) else { return false };
        let Some(member) = row.next() else { return false };
        row.waiting.remove(member);
        row.running += 1;
        let tried = row.tries.get(&member).copied();
        let attempt = tried.unwrap_or(0);
        let mut plan = launch::member_plan(&self.facts, &self.pool, row, member, attempt, &placement);
        plan.after = after.map(|step| StepId::of(self.facts.job, step));
        let key = row.step(member);
        let record = StepRecord {
            spec: row.spec.clone(),
            shape: row.shape.clone(),
            environment: row.environment.clone(),
            origin: row.origin.clone(),
            row: Some((id, member)),
            attempt,
            client: None,
            request: None,
            handed: [false; 3],
            early_input: Vec::new(),
            watchers: Vec::new(),
            ordered: None,
            state: RecordState::Running { placement: placement.clone(), since: now },
        };
        let more = !row.waiting.is_empty() && row.limit.is_none_or(|limit| row.running < limit);
        self.rows.settle(id, &mut self.queue);
        self.steps.insert(key, record);
        if after.is_none() {
            self.lines.begin(key);
        }
        self.launch_plan(now, key, plan, &placement, out);
        // A member that was handed out before counts as begun already.
        if tried.is_none() {
            self.note_start(key);
        }
        more
    }

    fn launch_plan(
        &mut self,
        now: Timestamp,
        key: StepKey,
        plan: StepPlan,
        placement: &Placement,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let (attempt, after) = (plan.attempt, plan.after.map(|step| step.key()));
        self.pool.take(&placement.claims);
        let places = places(placement);
        let record = self.steps.get(&key);
        let attended = record.filter(|r| r.row.is_none());
        let (origin, request) = (attended.map(|r| r.origin.clone()), attended.and_then(|r| r.request));
        self.record(StepEvent::Started { step: key, attempt, at: now, places, origin, after, request }, out);
        out.push(StepMgrEffect::StartStep { plan: Box::new(plan) });
        if after.is_none() {
            let first = self.reports.step_started(key);
            self.report_later(first, out);
        }
        self.tell_curious(now, out);
    }

    /// Tells commands, once, that their steps wait although all nodes are there.
    fn tell_waiting(&mut self, out: &mut Vec<StepMgrEffect>) {
        if self.untold.is_empty() || self.pool.nodes().iter().any(|n| n.usage == NodeUse::Awaited) {
            return;
        }
        for step in std::mem::take(&mut self.untold) {
            if let Some(record) = self.steps.get_mut(&StepKey::number(step))
                && let RecordState::Queued { told, .. } = &mut record.state
                && let Some(client) = record.client
            {
                *told = true;
                Self::tell(client, StepMgrToCommand::Queued { reason: Reason::Resources }, out);
            }
        }
    }

    /// After a node was lost: steps that can never run any more fail.
    pub(super) fn drop_impossible(&mut self, now: Timestamp, node: &str, out: &mut Vec<StepMgrEffect>) {
        let mut known: Vec<(Arc<StepShape>, bool)> = Vec::new();
        let mut impossible = |shape: &Arc<StepShape>, core: &Self| {
            if let Some((_, fits)) = known.iter().find(|(s, _)| Arc::ptr_eq(s, shape)) {
                return !fits;
            }
            let fits = feasible(shape, &core.pool).is_ok();
            known.push((shape.clone(), fits));
            !fits
        };
        let rows: Vec<RowId> = self.rows.iter().filter(|(_, r)| impossible(&r.shape, self)).map(|(id, _)| id).collect();
        let waits = |r: &StepRecord| matches!(r.state, RecordState::Queued { .. });
        let attended: Vec<u32> = self
            .steps
            .iter()
            .filter(|(_, r)| waits(r) && impossible(&r.shape, self))
            .filter_map(|(key, _)| key.step.number())
            .collect();
        let cause = garrick_events::steps::end::StepEnd::NodeLost { node: node.to_owned() };
        for step in attended {
            self.withdraw(now, step, cause.clone(), out);
        }
        for id in rows {
            if let Some(members) = self.rows.get(id).map(|row| row.all_waiting()) {
                self.withdraw_members(now, id, &members, &cause, out);
            }
        }
        self.blocked = None;
        self.schedule(now, out);
    }

    /// A node was lost, and the rest of the job is too small for a step that had been placed.
    pub(super) fn is_too_large(&self, shape: &StepShape) -> bool {
        self.pool.nodes().iter().any(|n| n.usage == NodeUse::Lost) && feasible(shape, &self.pool).is_err()
    }

    /// Why a row or an attended step does not start, for queries.
    pub(super) fn reason_of(&self, what: Waiting) -> Reason {
        if let Waiting::Row(id) = what
            && let Some(row) = self.rows.get(id)
        {
            if row.held || (row.waiting.is_empty() && !row.corresponding.is_empty()) {
                return Reason::Dependency;
            }
            if row.limit.is_some_and(|limit| row.running >= limit) {
                return Reason::JobArrayTaskLimit;
            }
            if row.waiting.is_empty() && !row.delayed.is_empty() {
                return Reason::BeginTime;
            }
        }
        match self.queue.next(None) {
            Some((_, first)) if first == what => Reason::Resources,
            _ => Reason::Priority,
        }
    }
}

/// A placement in the form that is saved.
pub(super) fn places(placement: &Placement) -> Vec<Place> {
    let held = !placement.claims.is_empty();
    placement
        .nodes
        .iter()
        .map(|n| Place {
            slot: n.slot,
            cpus: n.cpus.clone(),
            memory: n.memory,
            gres: n.gres.clone(),
            ranks: n.ranks.clone(),
            held,
        })
        .collect()
}

/// Is the step counted by the run's counters?
pub(super) const fn numbered(key: StepKey) -> bool {
    matches!(key.step, StepNum::Number(_))
}
