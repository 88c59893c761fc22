//! Commands that return to their step because the step manager died, or the connection broke. A step that never began waits as
//! before; for one that began, they are told how it ended.

use crate::{
    step::{
        NodeSlot, StepInput,
        state::{state_of_exit, worse},
    },
    stepmgr::{
        core::StepMgrCore,
        findings::Findings,
        journal::RunningStep,
        messages::{ClientId, StepMgrEffect},
        placement::Placement,
        state::{About, RecordState, StepRecord},
    },
};
use garrick_events::steps::end::StepResult;
use garrick_model::{
    ids::{RequestId, Sluid, StepId, StepKey},
    messages::{
        shepherd::{StepMgrToShepherd, TaskEnd},
        step::StepMgrToCommand,
    },
    refusal::Refusal,
    state::{ExitStatus, Reason},
    time::Timestamp,
    usage::StepUsage,
};

impl StepMgrCore {
    /// The step of a request.
    pub(super) fn launched(&self, request: &RequestId) -> Option<StepKey> {
        let waiting = self.asked_for.get(request).map(|step| StepKey::number(*step));
        waiting.or_else(|| self.ledger.launched(request))
    }

    pub(super) fn rejoin_of_run(&mut self, client: ClientId, step: StepId, sluid: Sluid, out: &mut Vec<StepMgrEffect>) {
        if step.job != self.facts.job || sluid != self.facts.sluid {
            return self.refuse(client, Refusal::AlreadyDone, out);
        }
        self.rejoin(client, step.key(), out);
    }

    pub(super) fn rejoin(&mut self, client: ClientId, key: StepKey, out: &mut Vec<StepMgrEffect>) {
        let step = StepId::of(self.facts.job, key);
        let attended = self.steps.get_mut(&key).filter(|record| record.row.is_none());
        let ended = self.ledger.end_of(key);
        let (Some(number), true) = (key.step.number(), ended.is_some() || attended.is_some()) else {
            return self.refuse(client, Refusal::InvalidStep(step.to_string()), out);
        };
        let queued = attended.map(|record| {
            let before = record.client.replace(client);
            (before, matches!(record.state, RecordState::Queued { .. }))
        });
        let accepted = StepMgrToCommand::Accepted { step, sluid: self.facts.sluid, warnings: Vec::new() };
        Self::tell(client, accepted, out);
        if let Some(end) = ended {
            Self::tell(client, StepMgrToCommand::Finished { exit: end.exit, state: end.state }, out);
            return self.conversation_over(client, out);
        }
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Step(number);
        }
        let Some((before, queued)) = queued else { return };
        // Its earlier connection counts as closed.
        if let Some(conversation) = before.and_then(|before| self.clients.get_mut(&before)) {
            conversation.about = About::Done;
        }
        if queued {
            Self::tell(client, StepMgrToCommand::Queued { reason: Reason::Resources }, out);
        } else {
            // Messages that did not arrive over the earlier connection are lost.
            out.push(StepMgrEffect::ToStep { step: key, input: StepInput::ClientGone });
        }
    }

    /// A command waited with the step. The step cannot go on, but may have ended meanwhile.
    pub(super) fn look_for_attended(
        &mut self,
        now: Timestamp,
        key: StepKey,
        running: &RunningStep,
        state: RecordState,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let Some(origin) = running.origin.clone() else { return self.record_end(now, self.unheld(key), out) };
        if let Some(placement) = state.placement() {
            self.pool.take(&placement.claims);
        }
        let record = StepRecord { origin, ordered: Some(0), ..self.batch_record(state) };
        self.steps.insert(key, record);
    }

    /// All its nodes have answered.
    pub(super) fn settle_attended(
        &mut self,
        now: Timestamp,
        key: StepKey,
        placement: &Placement,
        findings: &Findings,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let step = StepId::of(self.facts.job, key);
        let tasks =
            placement.nodes.iter().zip(0_u32..).flat_map(|(n, at)| n.ranks.iter().map(move |rank| (n.slot, at, *rank)));
        let end = |(slot, at, rank): (u32, u32, u32)| Some((at, rank, (*findings.tasks().get(&(slot, rank))?)?));
        let ends: Option<Vec<(u32, u32, TaskEnd)>> = tasks.map(end).collect();
        let Some(ends) = ends.filter(|ends| !ends.is_empty()) else {
            for node in &placement.nodes {
                let message = StepMgrToShepherd::Kill { step };
                out.push(StepMgrEffect::ToShepherd { node: NodeSlot(node.slot), message });
            }
            return self.step_lost_hold(now, key, out);
        };
        let exit = ends.iter().fold(ExitStatus::SUCCESS, |so_far, (.., end)| worse(so_far, end.status));
        let state = state_of_exit(exit, ends.iter().any(|(.., end)| end.oom));
        let mut usage = StepUsage::new(ends.len());
        ends.iter().for_each(|(at, rank, end)| usage.add(*rank, *at, end.usage));
        let (usage, spread) = usage.finish();
        self.step_over(now, StepResult { step, state, exit, ended: None, usage, spread, detail: None }, out);
    }
}
