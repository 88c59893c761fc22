//! Steps by name: their number, their states, and signals to them.

use crate::{
    step::{StepInput, state::worse},
    stepmgr::{
        core::StepMgrCore,
        ends::EndedStep,
        messages::StepMgrEffect,
        rows::RowId,
        state::{RecordState, StepRecord},
    },
};
use garrick_events::steps::{end::StepEnd, event::StepEvent};
use garrick_model::{
    ids::{StepKey, StepNum},
    messages::shepherd::SignalReach,
    refusal::Refusal,
    spec::ArraySpec,
    state::ExitStatus,
    step_selector::WhichSteps,
    time::Timestamp,
};
use roaring::RoaringBitmap;

/// The states of named steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// How many exist.
    pub total: u64,
    /// How many began, or ended without beginning.
    pub began: u64,
    /// How many are over.
    pub ended: u64,
    /// How many are over with a status other than 0.
    pub failed: u64,
    /// Worst exit of those that are over.
    pub worst: ExitStatus,
}

impl Census {
    /// Adds the steps of another name.
    pub fn add(&mut self, other: Self) {
        self.total += other.total;
        self.began += other.began;
        self.ended += other.ended;
        self.failed += other.failed;
        self.worst = worse(self.worst, other.worst);
    }

    fn count(&mut self, end: Option<EndedStep>) {
        self.total += 1;
        if let Some(end) = end {
            self.began += 1;
            self.ended += 1;
            self.failed += u64::from(!end.ok());
            self.worst = worse(self.worst, end.verdict());
        }
    }
}

impl StepMgrCore {
    /// Does or did a step with this number exist?
    fn number_is_known(&self, number: u32) -> bool {
        let key = StepKey::number(number);
        self.ledger.end_of(key).is_some()
            || self.steps.contains_key(&key)
            || self.ledger.batch_of(key).is_some()
            || self.accepting.values().any(|a| a.batch.array().is_none() && a.batch.member(a.first, key).is_some())
    }

    /// The tasks of a step array.
    pub(super) fn tasks_of(&self, number: u32) -> Option<std::sync::Arc<ArraySpec>> {
        let accepting = || self.accepting.values().find(|a| a.first == number).map(|a| &a.batch);
        self.ledger.arrays.get(&number).or_else(accepting)?.array().cloned()
    }

    /// The states of named steps; fails for a name without steps.
    pub(super) fn census(&self, named: &WhichSteps) -> Result<Census, Refusal> {
        let unknown = |key: StepKey| Refusal::InvalidStep(format!("{}.{key}", self.facts.job));
        let mut census = Census::default();
        match named {
            WhichSteps::All => {
                for number in 0..self.next_step {
                    match self.tasks_of(number) {
                        Some(tasks) => {
                            tasks.indices().for_each(|t| census.count(self.ledger.end_of(StepKey::task(number, t))));
                        }
                        None if self.number_is_known(number) => {
                            census.count(self.ledger.end_of(StepKey::number(number)));
                        }
                        None => {}
                    }
                }
            }
            WhichSteps::Special(step) => {
                let key = StepKey { step: *step, array: None };
                if *step != StepNum::Batch || (!self.steps.contains_key(&key) && self.ledger.batch.is_none()) {
                    return Err(unknown(key));
                }
                let end = self.ledger.batch.as_ref();
                census.count(end.map(|e| EndedStep { state: e.state, exit: e.exit, minibatch: false }));
            }
            WhichSteps::Numbers(numbers) => {
                for number in numbers.indices() {
                    if let Some(tasks) = self.tasks_of(number) {
                        tasks.indices().for_each(|t| census.count(self.ledger.end_of(StepKey::task(number, t))));
                    } else if self.number_is_known(number) {
                        census.count(self.ledger.end_of(StepKey::number(number)));
                    } else {
                        return Err(unknown(StepKey::number(number)));
                    }
                }
            }
            WhichSteps::Tasks { step, tasks } => {
                let known = self.tasks_of(*step).ok_or_else(|| unknown(StepKey::number(*step)))?;
                for task in tasks.indices() {
                    let key = StepKey::task(*step, task);
                    if !known.contains(task) {
                        return Err(unknown(key));
                    }
                    census.count(self.ledger.end_of(key));
                }
            }
        }
        let began = |(key, record): (&StepKey, &StepRecord)| {
            !matches!(record.state, RecordState::Queued { .. }) && named.contains(*key)
        };
        census.began += self.steps.iter().filter(|s| began(*s)).count() as u64;
        // Steps that wait to be tried again had begun.
        for (first, open) in &self.ledger.batches {
            let tried = open.tried.keys().filter(|member| named.contains(open.batch.key(*first, **member)));
            census.began += tried.count() as u64;
        }
        Ok(census)
    }

    /// The named members of waiting rows.
    fn waiting_named(&self, named: &WhichSteps) -> Vec<(RowId, RoaringBitmap)> {
        if let Some(key) = named.single()
            && (key.array.is_some() || key.step.number().is_none_or(|n| !self.ledger.arrays.contains_key(&n)))
        {
            let found = self
                .rows
                .find(key)
                .filter(|(id, member)| self.rows.get(*id).is_some_and(|row| row.all_waiting().contains(*member)));
            return found.into_iter().map(|(id, member)| (id, RoaringBitmap::from_iter([member]))).collect();
        }
        let mut found = Vec::new();
        for (id, row) in self.rows.iter() {
            let members: RoaringBitmap =
                row.all_waiting().into_iter().filter(|member| named.contains(row.step(*member))).collect();
            if !members.is_empty() {
                found.push((id, members));
            }
        }
        found
    }

    /// Ends or signals the named steps for a caller with the right to. Returns their number.
    pub(super) fn signal_named(
        &mut self,
        now: Timestamp,
        named: &WhichSteps,
        pending_only: bool,
        signal: Option<i32>,
        by: Option<u32>,
        out: &mut Vec<StepMgrEffect>,
    ) -> Result<u32, Refusal> {
        if let Some(by) = by.filter(|_| signal.is_none()) {
            let meant = self.steps.keys().any(|key| named.contains(*key)) || !self.waiting_named(named).is_empty();
            if meant {
                self.record(StepEvent::CancelAsked { steps: named.clone(), by }, out);
            }
        }
        let mut reached = 0;
        let mut pending = false;
        let live: Vec<(StepKey, bool)> = self
            .steps
            .iter()
            .filter(|(key, _)| named.contains(**key))
            .map(|(key, record)| (*key, matches!(record.state, RecordState::Queued { .. })))
            // Steps that are lined up behind others have higher numbers, and go first.
            .rev()
            .collect();
        for (key, waits) in live {
            match (waits, signal, key.step) {
                (true, None, StepNum::Number(n)) => self.withdraw(now, n, StepEnd::Cancelled, out),
                (true, ..) => {
                    pending = true;
                    continue;
                }
                (false, ..) if pending_only => continue,
                (false, None, _) => self.order_step(key, StepInput::End(StepEnd::Cancelled), out),
                (false, Some(signal), _) => {
                    self.order_step(key, StepInput::Signal { signal, reach: SignalReach::Groups }, out);
                }
            }
            reached += 1;
        }
        for (id, members) in self.waiting_named(named) {
            if signal.is_some() {
                pending = true;
                continue;
            }
            reached += members.len() as u32;
            self.withdraw_members(now, id, &members, &StepEnd::Cancelled, out);
        }
        if !self.settled || self.holds.is_touched() {
            self.schedule(now, out);
        }
        if reached > 0 || *named == WhichSteps::All || (pending_only && self.census(named).is_ok()) {
            return Ok(reached);
        }
        if pending {
            return Err(Refusal::JobPending);
        }
        self.census(named).and(Err(Refusal::AlreadyDone))
    }
}
