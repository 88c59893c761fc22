//! Steps that wait for other steps of their job, `--dependency`. Conditions are counted down as steps start and end. A row whose
//! conditions can never hold is cancelled, and so are, in turn, rows that wait for it with `afterok`.

use crate::stepmgr::{
    core::StepMgrCore,
    ends::EndedStep,
    messages::StepMgrEffect,
    naming::Census,
    rows::{Row, RowId},
    watch::Lookouts,
};
use garrick_events::steps::end::StepEnd;
use garrick_model::{
    batch::{StepDependencies, StepDependency, StepDependencyKind},
    ids::{StepKey, StepNum},
    refusal::Refusal,
    step_selector::WhichSteps,
    time::Timestamp,
};
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, BTreeSet};

/// A condition that is watched.
#[derive(Clone, Debug)]
struct Condition {
    kind: StepDependencyKind,
    steps: WhichSteps,
    left: u64,
    failed: bool,
}

/// The result of a condition, or of all conditions of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Holds,
    Never,
}

#[derive(Clone, Debug)]
struct Hold {
    any: bool,
    conditions: Vec<Condition>,
}

/// Rows that wait for steps.
#[derive(Debug, Default)]
pub struct Holds {
    by_row: BTreeMap<RowId, Hold>,
    lookouts: Lookouts<RowId>,
    /// Rows by the array to whose tasks their tasks correspond (`aftercorr`).
    corresponding: BTreeMap<u32, BTreeSet<RowId>>,
    /// Rows whose conditions changed.
    touched: BTreeSet<RowId>,
    /// Members whose corresponding task ended, and whether with 0.
    answered: Vec<(RowId, u32, bool)>,
}

impl Holds {
    /// Is there something to do for `StepMgrCore::resolve_holds`?
    pub fn is_touched(&self) -> bool {
        !self.touched.is_empty() || !self.answered.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.by_row.is_empty() && self.corresponding.is_empty()
    }
}

impl Condition {
    const fn fate(&self) -> Fate {
        match (self.kind, self.failed, self.left) {
            (StepDependencyKind::AfterOk, true, _) => Fate::Never,
            (StepDependencyKind::AfterNotOk, false, 0) => Fate::Never,
            (_, _, 0) => Fate::Holds,
            _ => Fate::Open,
        }
    }
}

impl Hold {
    fn fate(&self) -> Fate {
        let mut fates = self.conditions.iter().map(Condition::fate);
        let (enough, spoiled) = if self.any { (Fate::Holds, Fate::Never) } else { (Fate::Never, Fate::Holds) };
        if fates.clone().any(|fate| fate == enough) {
            enough
        } else if fates.all(|fate| fate == spoiled) {
            spoiled
        } else {
            Fate::Open
        }
    }

    fn steps(&self) -> Vec<WhichSteps> {
        self.conditions.iter().map(|c| c.steps.clone()).collect()
    }
}

/// The array that an `aftercorr` names.
fn corresponding(dependency: &StepDependency) -> Option<u32> {
    match (dependency.kind, dependency.steps.single()) {
        (StepDependencyKind::AfterCorr, Some(StepKey { step: StepNum::Number(n), array: None })) => Some(n),
        _ => None,
    }
}

impl StepMgrCore {
    /// Can these conditions be watched? `array`: they are those of a step array.
    pub(super) fn check_dependencies(&self, wanted: &StepDependencies, array: bool) -> Result<(), Refusal> {
        for one in &wanted.on {
            self.census(&one.steps)?;
            if one.kind == StepDependencyKind::AfterCorr {
                let other = corresponding(one).filter(|n| self.ledger.arrays.contains_key(n));
                if other.is_none() || !array || wanted.any {
                    let detail = "aftercorr is for a step array that waits for another, named by its number alone";
                    return Err(Refusal::InvalidUpdate(format!("{detail} ({})", one.steps)));
                }
            }
        }
        Ok(())
    }

    /// Holds a new row until its conditions hold.
    pub(super) fn hold(&mut self, id: RowId) {
        let Some(row) = self.rows.get(id) else { return };
        let Some(wanted) = row.spec.dependency.clone() else { return };
        let mut hold = Hold { any: wanted.any, conditions: Vec::new() };
        for one in &wanted.on {
            if let Some(array) = corresponding(one) {
                self.hold_corresponding(id, array);
                continue;
            }
            // Named steps were looked up when the row was accepted.
            let census = self.census(&one.steps).unwrap_or_default();
            hold.conditions.push(condition(one, &census));
        }
        if hold.conditions.is_empty() {
            return;
        }
        self.holds.lookouts.add(id, &hold.steps());
        self.holds.by_row.insert(id, hold);
        self.holds.touched.insert(id);
        if let Some(row) = self.rows.get_mut(id) {
            row.held = true;
        }
    }

    fn hold_corresponding(&mut self, id: RowId, array: u32) {
        let Some(row) = self.rows.get_mut(id) else { return };
        self.holds.corresponding.entry(array).or_default().insert(id);
        row.corresponding = std::mem::take(&mut row.waiting);
        for task in &row.corresponding {
            if let Some(end) = self.ledger.end_of(StepKey::task(array, task)) {
                self.holds.answered.push((id, task, end.ok()));
            } else if !self.ledger.arrays.get(&array).and_then(|b| b.array()).is_some_and(|tasks| tasks.contains(task))
            {
                self.holds.answered.push((id, task, false));
            }
        }
    }

    /// A step starts for the first time.
    pub(super) fn note_start(&mut self, step: StepKey) {
        if !self.holds.is_idle() {
            self.count_down(step, |kind| kind == StepDependencyKind::After, false);
        }
    }

    /// A step is over. `began`: it had started.
    pub(super) fn note_end(&mut self, step: StepKey, end: EndedStep, began: bool) {
        if self.holds.is_idle() {
            return;
        }
        self.count_down(step, |kind| kind != StepDependencyKind::After || !began, !end.ok());
        if let (StepNum::Number(array), Some(task)) = (step.step, step.array)
            && let Some(rows) = self.holds.corresponding.get(&array)
        {
            self.holds.answered.extend(rows.iter().map(|row| (*row, task, end.ok())));
        }
    }

    fn count_down(&mut self, step: StepKey, counts: impl Fn(StepDependencyKind) -> bool, failed: bool) {
        for id in self.holds.lookouts.of(step) {
            let Some(hold) = self.holds.by_row.get_mut(&id) else { continue };
            for condition in hold.conditions.iter_mut().filter(|c| counts(c.kind) && c.steps.contains(step)) {
                condition.left = condition.left.saturating_sub(1);
                condition.failed |= failed;
                self.holds.touched.insert(id);
            }
        }
    }

    /// Releases what waited for something that has happened, and cancels what waits for something that never will.
    pub(super) fn resolve_holds(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        while self.holds.is_touched() {
            while let Some(id) = self.holds.touched.pop_first() {
                let fate = self.holds.by_row.get(&id).map_or(Fate::Open, Hold::fate);
                if fate == Fate::Open {
                    continue;
                }
                if let Some(hold) = self.holds.by_row.remove(&id) {
                    self.holds.lookouts.remove(id, &hold.steps());
                }
                match (fate, self.rows.get_mut(id)) {
                    (Fate::Holds, Some(row)) => {
                        row.held = false;
                        self.rows.settle(id, &mut self.queue);
                    }
                    (_, Some(row)) => {
                        let members = row.all_waiting();
                        self.withdraw_members(now, id, &members, &StepEnd::DependencyNeverSatisfied, out);
                    }
                    (_, None) => {}
                }
            }
            self.answer_corresponding(now, out);
        }
    }

    fn answer_corresponding(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        let mut never: BTreeMap<RowId, RoaringBitmap> = BTreeMap::new();
        for (id, task, well) in std::mem::take(&mut self.holds.answered) {
            let Some(row) = self.rows.get_mut(id) else { continue };
            if !row.corresponding.contains(task) {
                continue;
            }
            if well {
                row.corresponding.remove(task);
                row.waiting.insert(task);
                self.rows.settle(id, &mut self.queue);
            } else {
                never.entry(id).or_default().insert(task);
            }
        }
        for (id, members) in never {
            self.withdraw_members(now, id, &members, &StepEnd::DependencyNeverSatisfied, out);
        }
    }

    /// A row is gone: stops watching its conditions.
    pub(super) fn release_hold(&mut self, id: RowId, row: &Row) {
        if let Some(hold) = self.holds.by_row.remove(&id) {
            self.holds.lookouts.remove(id, &hold.steps());
        }
        for array in row.spec.dependency.iter().flat_map(|d| &d.on).filter_map(corresponding) {
            if let Some(rows) = self.holds.corresponding.get_mut(&array) {
                rows.remove(&id);
                if rows.is_empty() {
                    self.holds.corresponding.remove(&array);
                }
            }
        }
    }
}

fn condition(one: &StepDependency, census: &Census) -> Condition {
    let left = match one.kind {
        StepDependencyKind::After => census.total - census.began,
        _ => census.total - census.ended,
    };
    Condition { kind: one.kind, steps: one.steps.clone(), left, failed: census.failed > 0 }
}
