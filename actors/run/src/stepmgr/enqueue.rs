//! Minibatch steps: first accepted into the journal, then answered, and only then queued.

use crate::stepmgr::{
    batch::without,
    clients::RETRY_AFTER,
    core::{Accepting, StepMgrCore},
    journal::{Answer, OpenBatch},
    messages::{ClientId, StepMgrEffect},
    pool::NodeUse,
    queue::Urgency,
    rows::RowParts,
    shape::Asker,
    state::About,
    view,
};
use garrick_events::steps::{
    batch::{StoredBatch, StoredMembers},
    end::{StepEnd, StepResult},
    event::StepEvent,
};
use garrick_model::{
    batch::{BatchMembers, GivenNumbers, StepBatch},
    ids::{RequestId, StepId, StepKey},
    messages::step::StepMgrToCommand,
    refusal::Refusal,
    spec_text::array::MAX_INDEX,
    state::{ExitStatus, StepState},
    time::Timestamp,
    usage::TaskUsage,
};
use std::sync::Arc;

impl StepMgrCore {
    pub(super) fn enqueue(
        &mut self,
        now: Timestamp,
        client: ClientId,
        request: RequestId,
        batch: StepBatch,
        out: &mut Vec<StepMgrEffect>,
    ) {
        if let Some(answer) = self.ledger.answer(&request) {
            return self.answer_enqueue(client, answer, Vec::new(), out);
        }
        if let Some(accepting) = self.accepting.values_mut().find(|a| a.request == request) {
            accepting.clients.push(client);
            return self.talk_about_enqueue(client);
        }
        if !self.phase.takes_steps() {
            return self.refuse(client, Refusal::AlreadyDone, out);
        }
        if let Err(e) = batch.check(MAX_INDEX + 1) {
            return self.refuse(client, Refusal::InvalidUpdate(e.to_string()), out);
        }
        if batch.specs.iter().any(|spec| spec.het.is_some_and(|part| part.behind.is_some())) {
            let why = "part of a step over several components cannot wait in the queue by itself: launch it";
            return self.refuse(client, Refusal::InvalidUpdate(why.into()), out);
        }
        if !self.has_room(&batch) {
            // The conversation stays open: the same request may be sent again.
            return Self::tell(client, StepMgrToCommand::Refused(Refusal::RetryAfter { after: RETRY_AFTER }), out);
        }
        let (batch, declined) = self.decline(batch);
        let Some(batch) = batch else {
            let answer = StepMgrToCommand::Enqueued { given: None, declined, warnings: Vec::new() };
            return Self::tell(client, answer, out);
        };
        let batch: Arc<StoredBatch> = Arc::new(batch.into());
        if self.has_too_many(batch.numbers()) {
            return self.refuse(client, Refusal::StepLimit, out);
        }
        let first = self.next_step;
        self.next_step += batch.numbers();
        let record = self.next_record;
        self.next_record += 1;
        let event = StepEvent::Accepted { request, first, batch: batch.clone(), at: now };
        out.push(StepMgrEffect::Journal { event, durable: Some(record) });
        let accepting = Accepting { request, first, batch, at: now, declined, clients: vec![client] };
        self.accepting.insert(record, accepting);
        self.talk_about_enqueue(client);
    }

    fn talk_about_enqueue(&mut self, client: ClientId) {
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Enqueue;
        }
    }

    fn has_room(&self, batch: &StepBatch) -> bool {
        let under_way: u64 = self.accepting.values().map(|a| u64::from(a.batch.len())).sum();
        let bytes = match &batch.members {
            BatchMembers::Commands(list) => list.bytes() as u64,
            _ => 0,
        };
        // A request that is larger than the whole queue would never fit.
        let waiting = self.ledger.counts.queued + under_way;
        let held = if bytes > 0 { self.queued_bytes() } else { 0 };
        (waiting == 0 || waiting + u64::from(batch.len()) <= self.config.queue_limit)
            && (held == 0 || held + bytes <= self.config.queue_bytes)
    }

    fn queued_bytes(&self) -> u64 {
        let bytes = |batch: &StoredBatch| match &batch.members {
            StoredMembers::Commands(list) => list.bytes() as u64,
            _ => 0,
        };
        let under_way: u64 = self.accepting.values().map(|a| bytes(&a.batch)).sum();
        under_way + self.ledger.batches.values().map(|b| bytes(&b.batch)).sum::<u64>()
    }

    /// Removes steps that can never run here, with the reason.
    fn decline(&mut self, batch: StepBatch) -> (Option<StepBatch>, Vec<(u32, Refusal)>) {
        let names_program = matches!(batch.members, BatchMembers::Commands(_));
        let array = matches!(batch.members, BatchMembers::Array(_));
        let mut refusals: Vec<Option<Refusal>> = Vec::with_capacity(batch.specs.len());
        for spec in &batch.specs {
            let admitted = self.admit(spec, names_program, Asker::Queue).map(|_| ());
            let wanted = spec.dependency.as_ref();
            let checked = admitted.and_then(|()| wanted.map_or(Ok(()), |d| self.check_dependencies(d, array)));
            refusals.push(checked.err());
        }
        let declined: Vec<bool> = refusals.iter().map(Option::is_some).collect();
        let (left, gone) = without(batch, &declined);
        let why = |spec: usize| refusals.get(spec).cloned().flatten().unwrap_or(Refusal::InvalidArray);
        (left, gone.into_iter().map(|(member, spec)| (member, why(spec))).collect())
    }

    /// Accepted steps are on disk: their senders are told, and they join the queue.
    pub(super) fn journaled(&mut self, now: Timestamp, upto: u64, out: &mut Vec<StepMgrEffect>) {
        while self.accepting.first_key_value().is_some_and(|(record, _)| *record <= upto) {
            let Some((_, accepting)) = self.accepting.pop_first() else { return };
            let answer = self.now_accepted(&accepting);
            for client in accepting.clients {
                self.answer_enqueue(client, answer, accepting.declined.clone(), out);
            }
            if let Some(open) = self.ledger.batches.get(&accepting.first).cloned() {
                self.add_rows(now, accepting.first, &open, out);
            }
            self.tell_curious(now, out);
        }
        self.schedule(now, out);
    }

    /// Steps could not be written to the journal: they are not accepted.
    pub(super) fn journal_refused(&mut self, record: u64, detail: &str, out: &mut Vec<StepMgrEffect>) {
        let Some(accepting) = self.accepting.remove(&record) else { return };
        for client in accepting.clients {
            let refusal = Refusal::Internal(format!("the job's step journal cannot be written: {detail}"));
            self.refuse(client, refusal, out);
        }
    }

    fn now_accepted(&mut self, accepting: &Accepting) -> Answer {
        let Accepting { request, first, batch, at, .. } = accepting;
        self.ledger.apply(&StepEvent::Accepted { request: *request, first: *first, batch: batch.clone(), at: *at });
        Answer { first: *first, count: batch.len(), array: batch.array().is_some() }
    }

    /// Queues the waiting members of a batch.
    pub(super) fn add_rows(&mut self, now: Timestamp, first: u32, open: &OpenBatch, out: &mut Vec<StepMgrEffect>) {
        for (members, spec) in open.batch.rows() {
            let mut waiting = open.waiting.clone();
            if open.batch.array().is_none() {
                waiting.remove_range(..members.start);
                waiting.remove_range(members.end..);
            }
            // Running steps find their row by its number, so a row is kept while its last steps run.
            let runs = |key: &StepKey| open.batch.member(first, *key).is_some_and(|m| members.contains(&m));
            let empty = waiting.is_empty() && !self.ledger.running.keys().any(runs);
            let Some(wanted) = open.batch.specs.get(spec).filter(|_| !empty) else { continue };
            let Ok(shape) = self.admit(wanted, true, Asker::Queue) else {
                // A node was lost since it was accepted.
                for member in waiting {
                    let key = open.batch.key(first, member);
                    self.refuse_accepted(now, key, StepState::NodeFail, out);
                }
                continue;
            };
            self.note_limit(wanted.fail_limit);
            let before = open.batch.environment_of(spec);
            let environment = self.environment_for(wanted, before.map(|spec| spec.as_ref()));
            let origin = Arc::new(view::origin(&self.facts, wanted, shape.tasks));
            let key = self.queue.place(open.at, Urgency::Minibatch, self.config.minibatch_age, wanted.priority);
            let tried: Vec<_> = open.tried.range(members.clone()).map(|(m, t)| (*m, *t)).collect();
            for (member, _) in &tried {
                waiting.remove(*member);
            }
            let (batch, spec) = (open.batch.clone(), wanted.clone());
            let id = self.rows.add(RowParts { first, batch, members, spec, shape, environment, origin, key, waiting });
            for (member, (tries, after)) in tried {
                self.rows.delay(id, member, tries, after);
            }
            // After a takeover, steps that run have to be found again first.
            if !self.taken_over || self.pool.nodes().iter().any(|n| n.usage == NodeUse::Ready) {
                self.hold(id);
                self.rows.settle(id, &mut self.queue);
            }
        }
        self.settled = false;
    }

    /// Ends an accepted step that never waited.
    fn refuse_accepted(&mut self, now: Timestamp, key: StepKey, state: StepState, out: &mut Vec<StepMgrEffect>) {
        let step = StepId::of(self.facts.job, key);
        let (exit, usage) = (ExitStatus::SUCCESS, TaskUsage::default());
        let ended = Some(StepEnd::Cancelled);
        self.record_end(now, StepResult { step, state, exit, ended, usage, spread: None, detail: None }, out);
    }

    /// The job ends before these records were on disk: nothing was promised. The records are being written nevertheless, so the
    /// steps' ends are recorded too.
    pub(super) fn refuse_accepting(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        for accepting in std::mem::take(&mut self.accepting).into_values() {
            self.now_accepted(&accepting);
            let members = accepting.batch.all();
            let (state, cause) = (StepState::Cancelled, StepEnd::Cancelled);
            let (first, members) = (accepting.first, crate::stepmgr::journal::ranges(&members));
            self.record(StepEvent::Withdrawn { first, members, state, cause, at: now }, out);
            for client in accepting.clients {
                self.refuse(client, Refusal::AlreadyDone, out);
            }
        }
    }

    fn answer_enqueue(
        &mut self,
        client: ClientId,
        answer: Answer,
        declined: Vec<(u32, Refusal)>,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let Answer { first, count, array } = answer;
        let given = Some(GivenNumbers { first, count, array });
        Self::tell(client, StepMgrToCommand::Enqueued { given, declined, warnings: Vec::new() }, out);
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Nothing;
        }
    }
}
