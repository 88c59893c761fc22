//! After a step manager died: waiting steps keep waiting, and running steps are searched. Each node says which tasks it has and
//! which ended recently; only then does it get new ones. A shepherd that could not be reached for a while is asked the same.
//!
//! | a step that had started | becomes |
//! |---|---|
//! | a node has a task of it, or its end | resumed, or ended with that end |
//! | no node has it, and all know what they started | never launched: it waits again |
//! | its only node came back, does not have it, and knows all that it started | never launched: it waits again |
//! | no node has it, and one does not know | ended, exit unknown: tried again only if `--retries` says so |
//! | one of its nodes is lost, before or after its answer | ended because of that, like a running step |
//! | an `srun` waited with it | ended, or killed, since its output could not be relayed. The `srun` comes back and is told |
//!
//! A step of several nodes is resumed when the last of them has answered. Until then, later messages of the other nodes are kept
//! ([`Findings`]), and so are orders for the step.

use crate::{
    step::{NodeSlot, StepInput, StepPlan},
    stepmgr::{
        core::StepMgrCore,
        findings::Findings,
        journal::{OpenBatch, RunningStep},
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
use garrick_events::steps::{
    end::{StepEnd, StepResult},
    event::{Place, StepEvent},
};
use garrick_model::{
    ids::{StepId, StepKey},
    messages::{
        shepherd::{ShepherdToStepMgr, StepMgrToShepherd, TaskEnd, TaskFound},
        stepd::StepdReport,
    },
    state::{ExitStatus, JobState, Reason, StepState},
    time::Timestamp,
    usage::TaskUsage,
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

    /// The journal says that the script could not be tried, and a crash came before the job's end: it ends now.
    fn end_unlaunched(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        self.phase = RunPhase::Running;
        let (state, exit) = (JobState::Failed, ExitStatus { code: 1, signal: None });
        self.end_job(now, state, Reason::JobLaunchFailure, exit, StepEnd::Job(state), out);
    }

    /// The journal says that a node was lost, and a crash came before the job's end: it ends now.
    fn end_for_lost_nodes(&mut self, now: Timestamp, out: &mut Vec<StepMgrEffect>) {
        let over = self.ledger.ending.is_some() || self.ledger.batch.is_some();
        if self.ledger.lost.is_empty() || self.facts.spec.no_kill || over {
            return;
        }
        let (state, reason) = (JobState::NodeFail, Reason::NodeDown);
        self.end_job(now, state, reason, ExitStatus::SUCCESS, StepEnd::Job(state), out);
    }

    /// A step had started: it keeps its resources until its nodes have answered.
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
        // It was given a limit of its own.
        if let (Some(origin), Some(record)) = (&running.origin, self.steps.get_mut(&key)) {
            record.origin = origin.clone();
        }
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
            spread: None,
            detail: None,
        }
    }

    /// No node has the step any more.
    pub(super) fn step_lost_hold(&mut self, now: Timestamp, step: StepKey, out: &mut Vec<StepMgrEffect>) {
        let result = self.unheld(step);
        self.step_over(now, result, out);
    }

    /// A shepherd lists its running and ended tasks.
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
            // What was ordered after the question is not in the answer.
            let running = |r: &&StepRecord| matches!(r.state, RecordState::Running { .. });
            if self.steps.get(&key).filter(running).is_some_and(|r| r.ordered.is_none_or(|at| at >= asked_at)) {
                continue;
            }
            let found = by_step.get(&key).map_or(&[][..], Vec::as_slice);
            self.node_answered(now, node, key, found, complete, out);
        }
        let usage = self.pool.nodes().get(node.0 as usize).map(|n| n.usage);
        if matches!(usage, Some(NodeUse::Awaited | NodeUse::Away)) {
            self.node_ready(now, node, out);
            // Its answer may have ended the job, and then it was left out of the sweep.
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
            Some((_, RecordState::Unsure { .. })) => {}
            Some((attempt, RecordState::Running { .. })) => {
                let ends = found.iter().filter(|t| t.attempt == attempt).filter_map(|t| Some((t.rank, t.end?)));
                feed_ends(step, node, ends, !live, out);
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

    /// A waiting step was started after all: its record was lost with the step manager. Its CPUs are not known any more, so it
    /// holds none.
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

    /// A node has sent all that it knows; `found`: about this step.
    fn node_answered(
        &mut self,
        now: Timestamp,
        node: NodeSlot,
        key: StepKey,
        found: &[TaskFound],
        complete: bool,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let Some(record) = self.steps.get_mut(&key) else { return };
        // Ends of earlier tries do not concern this one.
        let attempt = record.attempt;
        let mut found = found.iter().filter(|task| task.attempt == attempt).peekable();
        let known = found.peek().is_some();
        match &mut record.state {
            RecordState::Unsure { findings, .. } => {
                findings.answered(node.0, found, complete);
                self.settle_if_sure(now, key, out);
            }
            // Its shepherd died with the order, and its launcher, which never died, did not get it.
            RecordState::Running { placement, .. }
                if !known && complete && record.row.is_some() && placement.nodes.len() == 1 =>
            {
                let message = ShepherdToStepMgr::NotStarted { step: StepId::of(self.facts.job, key) };
                out.push(StepMgrEffect::ToStep { step: key, input: StepInput::Shepherd { node, message } });
            }
            // A shepherd that came back does not know what was sent to it while it was away.
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

    /// When no further answer is expected: the step is resumed, ended, or waits again.
    fn settle_if_sure(&mut self, now: Timestamp, key: StepKey, out: &mut Vec<StepMgrEffect>) {
        let Some(record) = self.steps.get_mut(&key) else { return };
        let RecordState::Unsure { placement, since, findings } = &mut record.state else { return };
        if !findings.are_all() {
            return;
        }
        let (placement, since, findings) = (placement.clone(), *since, std::mem::take(findings));
        if record.row.is_none() && key != StepKey::BATCH {
            return self.settle_attended(now, key, &placement, &findings, out);
        }
        if findings.are_none() && findings.are_incomplete() {
            let result = StepResult { ended: Some(StepEnd::ExitUnknown), ..self.unheld(key) };
            return self.step_over(now, result, out);
        }
        // The script of a job that is ending is not begun any more.
        if findings.are_none() && (key != StepKey::BATCH || !self.phase.takes_steps()) {
            return self.never_begun(now, key, &findings, out);
        }
        self.take_up(now, key, placement, since, &findings, out);
    }

    /// The step waits again, unless it was to be ended meanwhile.
    fn never_begun(&mut self, now: Timestamp, key: StepKey, findings: &Findings, out: &mut Vec<StepMgrEffect>) {
        let cause = findings.orders().iter().find_map(|order| match order {
            StepInput::End(cause) => Some(cause.clone()),
            _ => None,
        });
        let Some(cause) = cause else { return self.not_started(now, key, out) };
        let (state, exit) = (cause.state().unwrap_or(StepState::Cancelled), ExitStatus::SUCCESS);
        let result = StepResult { state, exit, ended: Some(cause), ..self.unheld(key) };
        self.step_over(now, result, out);
    }

    /// Resumes a step in the state that was found, and passes on later orders.
    fn take_up(
        &mut self,
        now: Timestamp,
        key: StepKey,
        placement: Placement,
        since: Timestamp,
        findings: &Findings,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let Some((row, attempt)) = self.steps.get(&key).map(|record| (record.row, record.attempt)) else { return };
        let limit = self.steps.get(&key).and_then(|record| record.origin.time_limit.duration());
        let mut plan = match row.and_then(|(id, member)| Some((self.rows.get_mut(id)?, member))) {
            Some((row, member)) => launch::member_plan(&self.facts, &self.pool, row, member, attempt, &placement),
            None => self.plan_of_batch(),
        };
        if let Some(record) = self.steps.get_mut(&key) {
            record.ordered = Some(0);
            record.state = RecordState::Running { placement, since };
        }
        // Its time limit counts from its start.
        plan.time_limit = limit.map(|limit| limit.saturating_sub(now.since(since)));
        let (id, live) = (plan.id, live(&plan, findings));
        let nodes: Vec<NodeSlot> = plan.nodes.iter().map(|node| node.slot).collect();
        let plan = Box::new(plan);
        out.push(if findings.are_none() {
            StepMgrEffect::StartStep { plan }
        } else {
            StepMgrEffect::ResumeStep { plan, live }
        });
        for node in nodes {
            let ends = findings.on(node.0).filter_map(|(rank, end)| Some((rank, end?)));
            feed_ends(id, node, ends, findings.is_over_on(node.0), out);
        }
        for input in findings.orders().iter().cloned() {
            out.push(StepMgrEffect::ToStep { step: key, input });
        }
        self.tell_motion(key, out);
        if !self.phase.takes_steps() {
            out.push(StepMgrEffect::ToStep { step: key, input: StepInput::End(self.end_of_job()) });
        }
        for node in findings.lost().iter().copied().map(NodeSlot) {
            out.push(StepMgrEffect::ToStep { step: key, input: StepInput::NodeLost { node } });
        }
    }

    /// A node will send nothing more.
    pub(super) fn unsure_on(&mut self, now: Timestamp, node: NodeSlot, out: &mut Vec<StepMgrEffect>) {
        let mut concerned = Vec::new();
        for (key, record) in &mut self.steps {
            if let RecordState::Unsure { placement, findings, .. } = &mut record.state
                && (placement.nodes.iter().any(|n| n.slot == node.0) || (*key == StepKey::BATCH && node.0 == 0))
            {
                findings.lose(node.0);
                concerned.push(*key);
            }
        }
        for key in concerned {
            self.settle_if_sure(now, key, out);
        }
    }
}

/// The ranks with which a step is resumed. For a lost node, all its ranks: those without a known end end with its loss.
fn live(plan: &StepPlan, findings: &Findings) -> Vec<u32> {
    let on_lost = plan.nodes.iter().filter(|node| findings.lost().contains(&node.slot.0));
    let on_lost = on_lost.flat_map(|node| node.tasks.iter().map(|task| task.rank));
    let found = findings.tasks().keys().map(|(_, rank)| *rank);
    found.chain(on_lost).collect::<BTreeSet<u32>>().into_iter().collect()
}

/// Passes on the ends of tasks that a node has sent; `over`: no process of the step is left there.
fn feed_ends(
    step: StepId,
    node: NodeSlot,
    ends: impl Iterator<Item = (u32, TaskEnd)>,
    over: bool,
    out: &mut Vec<StepMgrEffect>,
) {
    let exited = ends.map(|(rank, end)| ShepherdToStepMgr::TaskExited { step, rank, end, gone: false });
    let mut said: Vec<ShepherdToStepMgr> = exited.collect();
    if over && !said.is_empty() {
        said.push(ShepherdToStepMgr::StepGone { step });
    }
    let to_step = |message| StepMgrEffect::ToStep { step: step.key(), input: StepInput::Shepherd { node, message } };
    out.extend(said.into_iter().map(to_step));
}

fn unsure(placement: Placement, since: Timestamp, awaited: BTreeSet<u32>) -> RecordState {
    RecordState::Unsure { placement, since, findings: Findings::new(awaited) }
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
