//! Arrays and lists that are given up when too many of their steps fail (`--max-fails`). Their waiting and later steps are
//! cancelled, and with `kill` also the running ones. The ledger keeps the count: it is the same after a restart.

use crate::{
    step::StepInput,
    stepmgr::{core::StepMgrCore, messages::StepMgrEffect, rows::RowId},
};
use garrick_events::steps::end::{StepEnd, StepResult};
use garrick_model::{
    batch::FailLimit,
    ids::{RequestId, StepId, StepKey},
    state::{ExitStatus, StepState},
    time::Timestamp,
    usage::TaskUsage,
};
use roaring::RoaringBitmap;
use std::collections::BTreeSet;

/// Groups of steps that have reached their limit.
#[derive(Debug, Default)]
pub struct Failing {
    /// Groups with steps to be cancelled.
    fresh: BTreeSet<RequestId>,
    /// Groups for which the line in the error file was written.
    said: BTreeSet<RequestId>,
}

impl StepMgrCore {
    /// A step with this limit ended, or is new: if its group is given up, its steps are cancelled next.
    pub(super) fn note_limit(&mut self, limit: Option<FailLimit>) {
        if let Some(limit) = limit.filter(|limit| self.ledger.is_stopped(Some(*limit))) {
            self.failing.fresh.insert(limit.group);
        }
    }

    /// Cancels the remaining steps of groups that are given up.
    pub(super) fn stop_failing(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        while let Some(group) = self.failing.fresh.pop_first() {
            let of_group = |limit: Option<FailLimit>| limit.filter(|limit| limit.group == group);
            let rows: Vec<(RowId, FailLimit)> =
                self.rows.iter().filter_map(|(id, row)| Some((id, of_group(row.spec.fail_limit)?))).collect();
            let Some((_, limit)) = rows.first().copied() else { continue };
            let running: Vec<StepKey> = self
                .steps
                .iter()
                .filter(|(key, r)| {
                    let behind = self.lines.is_behind(**key);
                    r.row.is_some() && of_group(r.spec.fail_limit).is_some_and(|limit| limit.kill || behind)
                })
                .map(|(key, _)| *key)
                // Steps that are lined up behind others have higher numbers, and are cancelled first.
                .rev()
                .collect();
            for key in running {
                self.order_step(key, StepInput::End(StepEnd::TooManyFailed), out);
            }
            let waiting: Vec<(RowId, RoaringBitmap)> = rows
                .iter()
                .filter_map(|(id, _)| Some((*id, self.rows.get(*id)?.all_waiting())))
                .filter(|(_, members)| !members.is_empty())
                .collect();
            self.say_given_up(limit, &waiting, out);
            for (id, members) in waiting {
                self.withdraw_members(now, id, &members, &StepEnd::TooManyFailed, out);
            }
        }
    }

    fn say_given_up(&mut self, limit: FailLimit, waiting: &[(RowId, RoaringBitmap)], out: &mut Vec<StepMgrEffect>) {
        if !self.failing.said.insert(limit.group) {
            return;
        }
        let group = self.ledger.fail_groups.get(&limit.group).copied().unwrap_or_default();
        let (failed, ended, job) = (group.failed, group.ended, self.facts.job);
        let count: u64 = waiting.iter().map(|(_, members)| members.len()).sum();
        let first = waiting.first().and_then(|(id, members)| Some(self.rows.get(*id)?.named(members, None)));
        let which = match (first, waiting.len()) {
            (Some(which), 1) => format!("step {job}.{which} does not run"),
            (Some(which), _) => format!("{count} steps do not run, the first of them {job}.{which}"),
            (None, _) => "steps that come later do not run".to_owned(),
        };
        self.note_line(format!("{which}: {failed} of {ended} have failed (--max-fails={limit})"), out);
    }

    /// The end of a step of a group that is given up, if it is one and did not run.
    pub(super) fn end_of_stopped(&self, step: StepKey) -> Option<StepResult> {
        let limit = self.steps.get(&step)?.spec.fail_limit;
        self.ledger.is_stopped(limit).then(|| StepResult {
            step: StepId::of(self.facts.job, step),
            state: StepState::Cancelled,
            exit: ExitStatus::SUCCESS,
            ended: Some(StepEnd::TooManyFailed),
            usage: TaskUsage::default(),
            spread: None,
            detail: None,
        })
    }
}
