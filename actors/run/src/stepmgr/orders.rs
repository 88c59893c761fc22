//! Orders of `scontrol` to a job's step manager: `notify`, and `update StepId=`.

use super::{core::StepMgrCore, messages::StepMgrEffect, state::RecordState};
use crate::step::StepInput;
use garrick_events::steps::event::StepEvent;
use garrick_model::{
    ids::{StepKey, StepNum},
    spec::JobKind,
    step_selector::WhichSteps,
    time::{TimeLimit, Timestamp},
    view::StepOrigin,
};
use std::sync::Arc;

impl StepMgrCore {
    /// Has a batch job's error file say it, as a line of a daemon's log; of other jobs the `srun` that made the allocation.
    pub(super) fn notify(&mut self, now: Timestamp, text: &str, out: &mut Vec<StepMgrEffect>) {
        if self.facts.spec.kind == JobKind::Batch {
            return self.note(format!("[{}] error: {text}", now.text_with_millis(&self.facts.zone)), out);
        }
        let attended = self.steps.iter().filter(|(_, record)| record.client.is_some()).map(|(key, _)| *key);
        for step in attended.collect::<Vec<_>>() {
            self.order_step(step, StepInput::Notice(text.to_owned()), out);
        }
    }

    /// Gives running steps another limit, counted from their start.
    pub(super) fn set_step_limit(
        &mut self,
        now: Timestamp,
        named: &WhichSteps,
        limit: TimeLimit,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let running =
            self.steps.iter().filter(|(key, _)| matches!(key.step, StepNum::Number(_)) && named.contains(**key));
        let running: Vec<(StepKey, Timestamp)> = running
            .filter_map(|(key, record)| match record.state {
                RecordState::Running { since, .. } | RecordState::Unsure { since, .. } => Some((*key, since)),
                RecordState::Queued { .. } => None,
            })
            .collect();
        for (step, since) in running {
            let Some(record) = self.steps.get_mut(&step) else { continue };
            let origin = Arc::new(StepOrigin { time_limit: limit, ..(*record.origin).clone() });
            record.origin = Arc::clone(&origin);
            self.record(StepEvent::StepLimit { step, origin }, out);
            let left = limit.duration().map(|limit| since.plus(limit).since(now));
            self.order_step(step, StepInput::SetLimit(left), out);
        }
    }
}

#[cfg(test)]
#[path = "orders_test.rs"]
mod tests;
