//! After a step manager that died: what waits goes on waiting, and what ran is looked for. Each node says which tasks it
//! has and which ended lately; only then does it get new ones. The same is asked of a shepherd that was out of reach.
//!
//! | a step that had started | becomes |
//! |---|---|
//! | a node has a task of it, or its end | taken up again, or ended as it did |
//! | no node has it, and all know what they started | never launched: it waits again |
//! | its only node came back, has it not, and knows all that it started | never launched: it waits again |
//! | no node has it, and one does not know | ended, exit unknown: tried again only where `--retries` says so |
//! | an `srun` was with it | ended as it did, or killed: its output had nowhere to go. The `srun` comes back and is told |

use crate::{
    step::{NodeSlot, StepEnd, StepInput, StepResult},
    stepmgr::{
        core::StepMgrCore,
        journal::{OpenBatch, Place, RunningStep, StepEvent},
        launch,
        messages::StepMgrEffect,
        placement::{PlacedNode, Placement},
        pool::{Claim, NodeUse},
        reports::Reports,
        rows::RowId,
        schedule::places,
        state::{RecordState, RunPhase, StepRecord},
    },
};
use garrick_model::{
    ids::{StepId, StepKey},
    messages::{
        launcher::TaskUsage,
        shepherd::{ShepherdToStepMgr, StepMgrToShepherd, TaskFound},
        stepd::StepdReport,
    },
    state::{ExitStatus, JobState, Reason, StepState},
    time::Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

impl StepMgrCore {
    pub(super) fn take_over(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        self.taken_over = true;
        self.record(StepEvent::Restarted, out);
        self.reports = Reports::new(self.ledger.restarts);
        let first = !self.ledger.outbox.is_empty() && self.reports.changed();
        self.report_later(first, out);
        self.next_step = self.ledger.next;
        self.waiters.begin_with(self.ledger.ends.worst_of_minibatch());
        let batches: Vec<(u32, OpenBatch)> = self.ledger.batches.iter().map(|(n, b)| (*n, b.clone())).collect();
        for (first, open) in batches {
            self.add_rows(now, first, &open, out);
        }
        let running = self.ledger.running.clone();
        for (key, running) in &running {
            self.look_for(now, *key, running, out);
        }
        self.line_up_again(&running);
        let rows: Vec<RowId> = self.rows.iter().map(|(id, _)| id).collect();
        for id in rows {
            self.hold(id);
            self.rows.settle(id, &mut self.queue);
        }
        self.delays_over(now, out);
        if self.ledger.running.contains_key(&StepKey::BATCH) || self.ledger.batch.is_some() {
            self.phase = RunPhase::Running;
            self.report(StepdReport::Started, out);
        }
        if let Some((state, reason, exit)) = self.ledger.ending.clone() {
            self.phase = RunPhase::Running;
            self.end_job(now, state, reason, exit, StepEnd::Job(state), out);
        } else if let Some(batch) = self.ledger.batch.clone() {
            self.batch_over(now, &batch, out);
        } else if self.ledger.launch_failure.is_some() {
            self.end_unlaunched(now, out);
        }
        for slot in self.ledger.lost.clone() {
            self.unsure_on(now, NodeSlot(slot), out);
        }
        self.end_for_lost_nodes(now, out);
    }

    /// That the script could not be tried is on record, and a crash kept the job's end from being.
    fn end_unlaunched(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        self.phase = RunPhase::Running;
        let (state, exit) = (JobState::Failed, ExitStatus { code: 1, signal: None });
        self.end_job(now, state, Reason::JobLaunchFailure, exit, StepEnd::Job(state), out);
    }

    /// The loss of a node is on record, and a crash kept the job's end from being: it ends now.
    fn end_for_lost_nodes(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        let over = self.ledger.ending.is_some() || self.ledger.batch.is_some();
        if self.ledger.lost.is_empty() || self.facts.spec.no_kill || over {
            return;
        }
        let (state, reason) = (JobState::NodeFail, Reason::NodeDown);
        self.end_job(now, state, reason, ExitStatus::SUCCESS, StepEnd::Job(state), out);
    }

    /// A step had started: it keeps its resources until its nodes have said what became of it.
    fn look_for(&mut self, now: Timestamp, key: StepKey, running: &RunningStep, out: &mut Vec<StepMgrEffect>) {
        let placement = placement(&running.places);
        let awaited: BTreeSet<u32> = placement.nodes.iter().map(|n| n.slot).collect();
        if key == StepKey::BATCH {
            let awaited = BTreeSet::from([0]);
            let record = self.batch_record(unsure(placement, running.since, awaited));
            self.steps.insert(key, record);
            return;
        }
        let Some((id, member)) = self.rows.find(key) else {
            let state = unsure(placement, running.since, awaited);
            return self.look_for_attended(now, key, running, state, out);
        };
        self.pool.take(&placement.claims);
        self.insert_unsure(id, member, running.attempt, unsure(placement, running.since, awaited));
    }

    fn insert_unsure(&mut self, id: RowId, member: u32, attempt: u32, state: RecordState) {
        let Some(row) = self.rows.get_mut(id) else { return };
        row.running += 1;
        if attempt > 0 {
            row.tries.insert(member, attempt);
        }
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
            ordered: Some(0),
            state,
        };
        self.steps.insert(row.step(member), record);
    }

    pub(super) fn unheld(&self, step: StepKey) -> StepResult {
        StepResult {
            step: StepId::of(self.facts.job, step),
            state: StepState::Failed,
            exit: ExitStatus { code: 0, signal: Some(9) },
            ended: Some(StepEnd::ManagerRestarted),
            usage: TaskUsage::default(),
        }
    }

    /// A step is nowhere any more.
    pub(super) fn step_lost_hold(&mut self, now: Timestamp, step: StepKey, out: &mut Vec<StepMgrEffect>) {
        let result = self.unheld(step);
        self.step_over(now, result, out);
    }

    /// A shepherd says which tasks it has and had.
    pub(super) fn tasks_found(
        &mut self,
        now: Timestamp,
        node: NodeSlot,
        tasks: &[TaskFound],
        complete: bool,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let mut by_step: BTreeMap<StepKey, Vec<TaskFound>> = BTreeMap::new();
        for task in tasks.iter().filter(|t| t.step.job == self.facts.job) {
            by_step.entry(task.step.key()).or_default().push(task.clone());
        }
        for (key, found) in &by_step {
            self.step_found(now, node, *key, found, out);
        }
        let concerned: Vec<StepKey> = self
            .steps
            .iter()
            .filter(|(key, r)| {
                let placed = r.state.placement().is_some_and(|p| p.nodes.iter().any(|n| n.slot == node.0));
                placed || (**key == StepKey::BATCH && node.0 == 0)
            })
            .map(|(key, _)| *key)
            .collect();
        let asked_at = self.asked_at.get(&node.0).copied().unwrap_or(u64::MAX);
        for key in concerned {
            // What was ordered behind the question is not in the answer.
            let running = |r: &&StepRecord| matches!(r.state, RecordState::Running { .. });
            if self.steps.get(&key).filter(running).is_some_and(|r| r.ordered.is_none_or(|at| at >= asked_at)) {
                continue;
            }
            // Ends of earlier tries say nothing of this one.
            let attempt = self.steps.get(&key).map(|r| r.attempt);
            let known = by_step.get(&key).is_some_and(|found| found.iter().any(|t| Some(t.attempt) == attempt));
            self.node_answered(now, node, key, known, complete, out);
        }
        let usage = self.pool.nodes().get(node.0 as usize).map(|n| n.usage);
        if matches!(usage, Some(NodeUse::Awaited | NodeUse::Away)) {
            self.node_ready(now, node, out);
            // What it said may have ended the job, and then the sweep passed it over.
            if matches!(self.phase, RunPhase::Sweeping | RunPhase::Ended | RunPhase::Gone) {
                out.push(StepMgrEffect::ToShepherd { node, message: StepMgrToShepherd::EndJob });
            }
        }
    }

    fn step_found(
        &mut self,
        now: Timestamp,
        node: NodeSlot,
        key: StepKey,
        found: &[TaskFound],
        out: &mut Vec<StepMgrEffect>,
    ) {
        let step = StepId::of(self.facts.job, key);
        let live = found.iter().any(|t| t.end.is_none());
        match self.steps.get_mut(&key).map(|r| (r.attempt, &mut r.state)) {
            Some((attempt, RecordState::Unsure { found: all, .. })) => {
                all.extend(found.iter().filter(|t| t.attempt == attempt).map(|t| (node, t.clone())));
            }
            Some((attempt, RecordState::Running { .. })) => {
                let ended: Vec<&TaskFound> = found.iter().filter(|t| t.attempt == attempt && t.end.is_some()).collect();
                for task in ended {
                    self.feed_end(node, task, !live, out);
                }
            }
            Some((_, RecordState::Queued { .. })) | None => {
                let waits = self.ledger.end_of(key).is_none() && key != StepKey::BATCH;
                match self.rows.find(key).filter(|_| waits) {
                    Some((id, member)) => self.adopt_unrecorded(now, node, id, member, found, out),
                    None if key == StepKey::BATCH && self.ledger.batch.is_none() => {
                        let placement = Placement { nodes: Vec::new(), claims: Vec::new() };
                        let record = self.batch_record(unsure(placement, now, BTreeSet::from([0])));
                        self.steps.insert(key, record);
                        let (step, attempt, places) = (key, 0, Vec::new());
                        self.record(
                            StepEvent::Started {
                                step,
                                attempt,
                                at: now,
                                places,
                                origin: None,
                                after: None,
                                request: None,
                            },
                            out,
                        );
                        self.phase = RunPhase::Running;
                        self.report(StepdReport::Started, out);
                        self.step_found(now, node, key, found, out);
                    }
                    None if live => {
                        out.push(StepMgrEffect::ToShepherd { node, message: StepMgrToShepherd::Kill { step } });
                    }
                    None => {}
                }
            }
        }
    }

    /// A waiting step was started after all: the record of it was lost with the step manager. Which CPUs it was given is
    /// not known any more, so it holds none.
    fn adopt_unrecorded(
        &mut self,
        now: Timestamp,
        node: NodeSlot,
        id: RowId,
        member: u32,
        found: &[TaskFound],
        out: &mut Vec<StepMgrEffect>,
    ) {
        let attempt = found.iter().map(|t| t.attempt).max().unwrap_or(0);
        // The end of an earlier try is known already.
        let tries = self.rows.get(id).and_then(|row| row.tries.get(&member)).copied().unwrap_or(0);
        if attempt < tries {
            return;
        }
        self.rows.undelay(id, member);
        let Some(row) = self.rows.get_mut(id) else { return };
        row.waiting.remove(member);
        row.corresponding.remove(member);
        let key = row.step(member);
        let pool = self.pool.node(node.0);
        let placed = PlacedNode {
            slot: node.0,
            cpus: pool.cpus.clone(),
            cpu_count: pool.cpu_count,
            memory: pool.memory,
            gres: pool.all_gres.everything(&pool.gres),
            ranks: found.iter().map(|t| t.rank).collect(),
        };
        let placement = Placement { nodes: vec![placed], claims: Vec::new() };
        let (step, places) = (key, places(&placement));
        let event = StepEvent::Started { step, attempt, at: now, places, origin: None, after: None, request: None };
        self.record(event, out);
        self.insert_unsure(id, member, attempt, unsure(placement, now, BTreeSet::from([node.0])));
        self.rows.settle(id, &mut self.queue);
        self.step_found(now, node, key, found, out);
    }

    /// A node has said all that it knows; `known`: something of this step was among it.
    fn node_answered(
        &mut self,
        now: Timestamp,
        node: NodeSlot,
        key: StepKey,
        known: bool,
        complete: bool,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let Some(record) = self.steps.get_mut(&key) else { return };
        match &mut record.state {
            RecordState::Unsure { awaited, incomplete, .. } => {
                awaited.remove(&node.0);
                *incomplete |= !complete;
                if awaited.is_empty() {
                    self.settle_unsure(now, key, out);
                }
            }
            // Its shepherd died with the order, and its launcher, which has been there all the time, never had it.
            RecordState::Running { placement, .. }
                if !known && complete && record.row.is_some() && placement.nodes.len() == 1 =>
            {
                let message = ShepherdToStepMgr::NotStarted { step: StepId::of(self.facts.job, key) };
                out.push(StepMgrEffect::ToStep { step: key, input: StepInput::Shepherd { node, message } });
            }
            // A shepherd that came back does not know of what was sent to it while it was away.
            RecordState::Running { placement, .. } if !known => {
                let step = StepId::of(self.facts.job, key);
                let ranks = placement.nodes.iter().find(|n| n.slot == node.0).map(|n| n.ranks.clone());
                let name = self.pool.node(node.0).name.clone();
                for rank in ranks.unwrap_or_default() {
                    let text = format!("task {rank}: node {name} does not know what became of it");
                    let status = ExitStatus { code: 1, signal: None };
                    let message = ShepherdToStepMgr::TaskFailed {
                        step,
                        rank,
                        message: text,
                        status,
                        unknown: true,
                        untried: false,
                    };
                    out.push(StepMgrEffect::ToStep { step: key, input: StepInput::Shepherd { node, message } });
                }
                let message = ShepherdToStepMgr::StepGone { step };
                out.push(StepMgrEffect::ToStep { step: key, input: StepInput::Shepherd { node, message } });
            }
            RecordState::Running { .. } | RecordState::Queued { .. } => {}
        }
    }

    /// All nodes of a step have answered.
    fn settle_unsure(&mut self, now: Timestamp, key: StepKey, out: &mut Vec<StepMgrEffect>) {
        let Some(record) = self.steps.get_mut(&key) else { return };
        let RecordState::Unsure { placement, since, found, incomplete, .. } = &mut record.state else { return };
        let (placement, since, incomplete) = (placement.clone(), *since, *incomplete);
        let found = std::mem::take(found);
        if record.row.is_none() && key != StepKey::BATCH {
            return self.settle_attended(now, key, &placement, &found, out);
        }
        if found.is_empty() && incomplete {
            let result = StepResult { ended: Some(StepEnd::ExitUnknown), ..self.unheld(key) };
            return self.step_over(now, result, out);
        }
        // The script of a job that is ending is not begun any more.
        if found.is_empty() && (key != StepKey::BATCH || !self.phase.takes_steps()) {
            return self.not_started(now, key, out);
        }
        let (row, attempt) = (record.row, record.attempt);
        record.ordered = Some(0);
        record.state = RecordState::Running { placement: placement.clone(), since };
        let plan = match row.and_then(|(id, member)| Some((self.rows.get_mut(id)?, member))) {
            Some((row, member)) => launch::member_plan(&self.facts, &self.pool, row, member, attempt, &placement),
            None => self.plan_of_batch(),
        };
        let plan = Box::new(plan);
        if found.is_empty() {
            out.push(StepMgrEffect::StartStep { plan });
        } else {
            let live = found.iter().map(|(_, task)| task.rank).collect();
            out.push(StepMgrEffect::ResumeStep { plan, live });
        }
        for (node, task) in &found {
            let more = found.iter().any(|(n, t)| n == node && t.end.is_none());
            self.feed_end(*node, task, !more, out);
        }
        self.tell_motion(key, out);
        if !self.phase.takes_steps() {
            let cause = self.ledger.ending.as_ref().map_or(StepEnd::BatchOver, |(state, ..)| StepEnd::Job(*state));
            out.push(StepMgrEffect::ToStep { step: key, input: StepInput::End(cause) });
        }
    }

    fn feed_end(&self, node: NodeSlot, task: &TaskFound, last: bool, out: &mut Vec<StepMgrEffect>) {
        let Some(end) = task.end else { return };
        let (step, rank) = (task.step, task.rank);
        let message = ShepherdToStepMgr::TaskExited { step, rank, end, gone: false };
        out.push(StepMgrEffect::ToStep { step: step.key(), input: StepInput::Shepherd { node, message } });
        if last {
            let message = ShepherdToStepMgr::StepGone { step };
            out.push(StepMgrEffect::ToStep { step: step.key(), input: StepInput::Shepherd { node, message } });
        }
    }

    /// A node will not answer any more.
    pub(super) fn unsure_on(&mut self, now: Timestamp, node: NodeSlot, out: &mut Vec<StepMgrEffect>) {
        let unsure: Vec<StepKey> = self
            .steps
            .iter()
            .filter(|(_, r)| matches!(&r.state, RecordState::Unsure { awaited, .. } if awaited.contains(&node.0)))
            .map(|(key, _)| *key)
            .collect();
        for key in unsure {
            self.node_answered(now, node, key, false, false, out);
        }
    }
}

const fn unsure(placement: Placement, since: Timestamp, awaited: BTreeSet<u32>) -> RecordState {
    RecordState::Unsure { placement, since, awaited, found: Vec::new(), incomplete: false }
}

fn placement(written: &[Place]) -> Placement {
    let nodes = written.iter().map(|p| PlacedNode {
        slot: p.slot,
        cpus: p.cpus.clone(),
        cpu_count: p.cpus.len(),
        memory: p.memory,
        gres: p.gres.clone(),
        ranks: p.ranks.clone(),
    });
    let claims = written.iter().filter(|p| p.held).map(|p| Claim {
        slot: p.slot,
        cpus: p.cpus.clone(),
        memory: p.memory.unwrap_or(0),
        gres: p.gres.clone(),
    });
    Placement { nodes: nodes.collect(), claims: claims.collect() }
}
