//! The inside of a simulated run: the cores of its step manager, steps and shepherds, with simulated launchers. Users of the run
//! start blocking steps, queue minibatch steps and arrays, cancel, go away; processes end; the manager dies and is taken over
//! from its journal; nodes are lost. The run's simulated `stepd` on the batch host passes this manager's reports to its agent.

use super::{
    mutation::Mutation,
    random::Random,
    roster::machine_of,
    stepds::Launch,
    world::{Happening, World},
};
use garrick_agent::RunKey;
use garrick_events::steps::event::StepEvent;
use garrick_model::{
    batch::{BatchMembers, RetryPolicy, StepBatch},
    ids::StepKey,
    messages::{
        step::{CommandToStepMgr, StepMgrToCommand},
        stepd::{NodeToStepd, StepdReport, StepdToNode},
    },
    resources::{MemoryMib, MemoryRequest},
    signal::SIGSTOP,
    spec::{ArraySpec, StepSharing, StepSpec},
    state::{ExitStatus, JobState},
    step_selector::WhichSteps,
    time::{TimeLimit, Timestamp},
    view::StepCounts,
};
use garrick_run::stepmgr::{ClientId, Ledger, RunFacts, StepMgrConfig, StepMgrInput, harness::Harness};
use serde_bytes::ByteBuf;
use std::{collections::BTreeMap, time::Duration};

/// Most requests that users of one run make.
const REQUESTS: u32 = 25;

/// A run's people and processes.
#[derive(Debug)]
pub(super) struct StepSide {
    pub(super) harness: Harness,
    /// Index of each of the run's nodes in the cluster.
    pub(super) nodes: Vec<usize>,
    /// The step manager is not running.
    pub(super) dead: bool,
    clients: Vec<ClientId>,
    requests: u32,
    /// How many of the harness's reports went on.
    passed: usize,
    /// Number of the report that the run ended.
    pub(super) end_report: Option<u64>,
    /// When its time is over.
    limit: Option<Timestamp>,
    /// Since when this step manager is there.
    there_since: Timestamp,
    /// Its end was reported, and may be again.
    ended: bool,
}

impl StepSide {
    /// `knows_limit`: of its run's time; it may not, to see that noticed.
    pub(super) fn new(now: Timestamp, launch: &Launch, knows_limit: bool) -> Self {
        let mut facts = RunFacts::new(launch.order(), launch.credential());
        facts.start_time = now;
        let nodes = facts.nodes.iter().filter_map(|n| machine_of(&n.name)).collect();
        let limit = facts.time_limit.duration().map(|limit| now.plus(limit));
        if !knows_limit {
            facts.time_limit = TimeLimit::Unlimited;
        }
        let mut harness = Harness::new(facts, StepMgrConfig::default());
        harness.acknowledges = false;
        harness.shepherd_up(0);
        Self {
            harness,
            nodes,
            dead: false,
            clients: Vec::new(),
            requests: 0,
            passed: 0,
            end_report: None,
            limit,
            there_since: now,
            ended: false,
        }
    }

    /// Its tasks are stopped.
    pub(super) fn stands_still(&self) -> bool {
        self.harness.core.ledger().motion.signal() == Some(SIGSTOP)
    }

    /// The run's place for a node of the cluster.
    pub(super) fn slot(&self, node: usize) -> Option<usize> {
        self.nodes.iter().position(|n| *n == node)
    }

    /// Its shepherd on this node of the cluster was there once, as the journal of its step manager says.
    pub(super) fn had_shepherd(&self, node: usize) -> bool {
        let begun = &self.harness.core.ledger().begun;
        self.slot(node).is_some_and(|slot| begun.iter().any(|at| *at as usize == slot))
    }

    /// This node of the cluster is lost for it.
    pub(super) fn has_lost(&self, node: usize) -> bool {
        self.slot(node).is_some_and(|slot| self.harness.nodes[slot].lost)
    }

    /// Another `stepd` takes over. Of what the one before had said to the other nodes only so many words arrive.
    pub(super) fn take_over(&mut self, now: Timestamp, words: usize) {
        (self.dead, self.there_since) = (false, now);
        // It says again under a number of its own what was not safe; that of the one before means nothing among its own.
        self.end_report = None;
        self.clients.clear();
        // An `srun` that waits with its step loses it with its conversation: only what is in the journal lives on.
        self.harness.heard.clear();
        self.harness.restart_process(words);
    }

    /// Reports that were not passed on, and how many of them were made before the newest connection to an agent was opened,
    /// where that is news.
    pub(super) fn news(&mut self) -> (Vec<(u64, StepdReport)>, Option<usize>) {
        let (mut news, mut opened) = (Vec::new(), None);
        let from = self.harness.agent_opened.take();
        for (at, message) in self.harness.agent.iter().enumerate().skip(self.passed) {
            if from == Some(at) {
                opened = Some(news.len());
            }
            if let StepdToNode::Report { seq, report } = message {
                if matches!(report, StepdReport::Ended { .. } | StepdReport::LaunchFailed { .. }) {
                    self.end_report = Some(*seq);
                }
                news.push((*seq, report.clone()));
            }
        }
        self.passed = self.harness.agent.len();
        let opened = opened.or(from.map(|_| news.len()));
        (news, opened)
    }

    /// Some messages arrive, something happens, time passes. How many events that were.
    pub(super) fn turn(&mut self, now: Timestamp, random: &mut Random, calm: bool) -> u64 {
        if self.dead {
            // Launchers and tasks know nothing of it.
            self.harness.now = now;
            self.end_some_process(random);
            self.harness.settle_nodes();
            return 1;
        }
        self.harness.fire_due(now);
        if self.requests < REQUESTS && !calm && random.one_in_thousand(600) {
            self.requests += 1;
            self.request(random);
        }
        if random.one_in_thousand(700) {
            self.end_some_process(random);
        }
        let mut events = 1;
        for _ in 0..random.between(1, 25) {
            events += u64::from(self.harness.deliver(random.between(0, 1_000) as usize));
        }
        // A limit among it counts from when it is heard.
        if self.harness.agent_is_unheard() {
            self.there_since = now;
        }
        events
    }

    fn request(&mut self, random: &mut Random) {
        let harness = &mut self.harness;
        match random.between(0, 11) {
            0..=4 => self.clients.push(harness.srun(some_step(random))),
            5..=7 => {
                let specs = (0..random.between(1, 6)).map(|_| some_step(random)).collect();
                self.clients.push(harness.enqueue(specs));
            }
            8 => {
                let limit = random.between(0, 3);
                let tasks =
                    ArraySpec { ranges: vec![(1, random.between(1, 9), 1)], limit: (limit > 0).then_some(limit) };
                let batch = StepBatch { specs: vec![some_step(random)], members: BatchMembers::Array(tasks) };
                self.clients.push(harness.enqueue_batch(batch));
            }
            9 => {
                if let Some(client) = random.pick(&self.clients).copied() {
                    harness.say(client, CommandToStepMgr::Cancel);
                }
            }
            10 => {
                if let Some(client) = random.pick(&self.clients).copied() {
                    self.clients.retain(|c| *c != client);
                    harness.hang_up(client);
                }
            }
            _ => {
                let steps = WhichSteps::one(StepKey::number(random.between(0, 12)));
                harness.tell(NodeToStepd::SignalSteps { steps, pending_only: false, signal: None, by: None });
            }
        }
    }

    fn end_some_process(&mut self, random: &mut Random) {
        if self.stands_still() {
            return;
        }
        let running: Vec<_> = self.harness.running().into_iter().filter(|r| r.2 != StepKey::BATCH).collect();
        if let Some((node, token, ..)) = random.pick(&running) {
            let code = u8::from(random.one_in_thousand(150));
            self.harness.end_process(*node, *token, ExitStatus { code, signal: None });
        }
    }

    /// The batch script ends.
    pub(super) fn end_script(&mut self, code: u8) {
        let running = self.harness.running();
        for (node, token, ..) in running.into_iter().filter(|r| r.2 == StepKey::BATCH) {
            self.harness.end_process(node, token, ExitStatus { code, signal: None });
        }
    }

    /// Each accepted step ended once, none has more processes for a task than tries, and what the journal comes to is what
    /// lives. `over`: the run is over, and nothing may wait.
    pub(super) fn check(&self, over: bool) -> Result<(), String> {
        let job = self.harness.core.facts().job.0;
        let (mut ends, mut tries, mut batches) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for event in &self.harness.journal {
            match event {
                StepEvent::Accepted { first, batch, .. } => {
                    for member in batch.all() {
                        let retries = batch.spec_of(member).and_then(|spec| spec.retry.as_ref()).map_or(0, |r| r.count);
                        let key = batch.key(*first, member);
                        if tries.insert(key, 1 + retries).is_some() {
                            return Err(format!("job {job}: step {key} was accepted twice"));
                        }
                        ends.entry(key).or_insert(0);
                    }
                    batches.insert(*first, batch.clone());
                }
                StepEvent::Ended { result, .. } => *ends.entry(result.step.key()).or_insert(0u32) += 1,
                StepEvent::Withdrawn { first, members, .. } => {
                    let batch = batches.get(first).ok_or_else(|| format!("job {job}: no batch {first}"))?;
                    for member in members.iter().flat_map(|(from, to)| *from..=*to) {
                        *ends.entry(batch.key(*first, member)).or_insert(0) += 1;
                    }
                }
                _ => {}
            }
        }
        if let Some((key, n)) = ends.iter().find(|(_, n)| **n > 1 || (over && **n == 0)) {
            return Err(format!("job {job}: step {key} ended {n} times"));
        }
        for ((key, rank), n) in &self.harness.spawned {
            let most = tries.get(key).copied().unwrap_or(1);
            if *n > most {
                return Err(format!("job {job}: task {rank} of step {key} was started {n} times, {most} allowed"));
            }
        }
        for told in self.harness.heard.values().flatten() {
            if let StepMgrToCommand::Accepted { step, .. } = told
                && over
                && !ends.contains_key(&step.key())
            {
                return Err(format!("job {job}: step {step} was accepted and is lost"));
            }
        }
        if over && &Ledger::replay(self.harness.journal.iter().cloned()) != self.harness.core.ledger() {
            return Err(format!("job {job}: the steps' journal does not come to what lives"));
        }
        Ok(())
    }

    /// For so long its time has been over, with a step manager there that could have seen it.
    fn overdue(&self, now: Timestamp) -> Option<Duration> {
        let from = self.limit?.max(self.there_since);
        (!self.dead && now > from).then(|| now.since(from))
    }

    /// When its time is over the run is told to end, and it has processes no longer than a kill takes.
    fn check_limit(&self, now: Timestamp) -> Result<(), String> {
        let Some(overdue) = self.overdue(now) else { return Ok(()) };
        let job = self.harness.core.facts().job.0;
        if overdue > LONGEST_PAUSE && self.harness.core.phase().takes_steps() {
            return Err(format!("job {job}: its time is over for {overdue:?} and it was not told to end"));
        }
        let most = StepMgrConfig::default().kill_wait + KILL_SLACK;
        let here = self.harness.running().iter().filter(|(node, ..)| *node == 0).count();
        if overdue > most && here > 0 {
            return Err(format!(
                "job {job}: its time is over for {overdue:?} and {here} processes run on its batch host"
            ));
        }
        Ok(())
    }

    /// A run that ends by itself does so before its time is over.
    fn check_end(&mut self, now: Timestamp, state: JobState) -> Result<(), String> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let own = matches!(state, JobState::Completed | JobState::Failed);
        let overdue = self.overdue(now).filter(|overdue| *overdue > StepMgrConfig::default().kill_wait + KILL_SLACK);
        if let Some(overdue) = overdue.filter(|_| own) {
            let job = self.harness.core.facts().job.0;
            return Err(format!("job {job}: ends as {state:?}, {overdue:?} after its time was over"));
        }
        Ok(())
    }

    /// What the controller is to have in the end.
    pub(super) fn counts(&self) -> StepCounts {
        self.harness.core.ledger().counts
    }
}

fn some_step(random: &mut Random) -> StepSpec {
    let argv = if random.one_in_thousand(50) { "/nosuch/x" } else { "x" };
    let memory = random.between(0, 5);
    StepSpec {
        name: argv.to_owned(),
        tasks: Some(random.between(1, 4)),
        argv: vec![ByteBuf::from(argv.as_bytes().to_vec())],
        tell_starts: true,
        sharing: match random.between(0, 4) {
            0 => StepSharing::Overlap,
            1..=3 => StepSharing::Exact,
            _ => StepSharing::Default,
        },
        memory: if memory == 0 { MemoryRequest::PerNode(MemoryMib(50)) } else { MemoryRequest::Default },
        retry: random.one_in_thousand(200).then(|| RetryPolicy { count: 2, delay_secs: 1, on: Vec::new() }),
        ..StepSpec::default()
    }
}

impl World {
    /// A run's people and processes go on for a moment.
    pub(super) fn step_side_turn(&mut self, run: RunKey) {
        let calm = self.is_calm();
        if self.step_sides.get(&run).is_some_and(|step_side| self.hangs(step_side.nodes[0], run)) {
            return self.after(2_000, Happening::StepSide(run));
        }
        let Some(step_side) = self.step_sides.get_mut(&run) else { return };
        let events = step_side.turn(self.now, &mut self.random, calm);
        self.count_events(events);
        if self.has(Mutation::StepsEndTwice)
            && let Some(step_side) = self.step_sides.get_mut(&run)
            && let Some(end) =
                step_side.harness.journal.iter().rev().find(|event| matches!(event, StepEvent::Ended { .. }))
        {
            let again = end.clone();
            step_side.harness.journal.push(again);
        }
        let checked = step_side_check(&self.step_sides, run);
        self.note_broken(checked);
        let limited = self.step_sides.get(&run).map_or(Ok(()), |step_side| step_side.check_limit(self.now));
        self.note_overrun(limited);
        self.after_step_side(run);
        if self.step_sides.contains_key(&run) {
            let pause = self.random.between(50, 2_000);
            self.after(u64::from(pause), Happening::StepSide(run));
        }
    }

    /// Passes on what the step manager said.
    pub(super) fn after_step_side(&mut self, run: RunKey) {
        let Some(step_side) = self.step_sides.get_mut(&run).filter(|step_side| !step_side.dead) else { return };
        let (batch_host, (news, opened), exited) = (step_side.nodes[0], step_side.news(), step_side.harness.exited);
        let all = news.len();
        for (at, (seq, report)) in news.into_iter().enumerate() {
            if opened == Some(at) {
                self.open_agent(batch_host, run);
            }
            if matches!(report, StepdReport::Ended { .. } | StepdReport::LaunchFailed { .. }) {
                self.tell_shepherds_of_end(batch_host, run);
            }
            if let StepdReport::Ended { state, .. } = report {
                let checked =
                    self.step_sides.get_mut(&run).map_or(Ok(()), |step_side| step_side.check_end(self.now, state));
                self.note_overrun(checked);
                self.note_end(run, state);
            }
            self.stepd_says(batch_host, run, seq, report);
        }
        if opened == Some(all) {
            self.open_agent(batch_host, run);
        }
        if exited {
            let over = self.step_sides.remove(&run);
            let checked = over.as_ref().map_or(Ok(()), |step_side| step_side.check(true));
            self.note_broken(checked);
            if let Some(step_side) = over {
                self.ledger.counts.add("run with steps over");
                self.tallies.insert(run.sluid, step_side.counts());
            }
            self.kill_stepd(batch_host, run);
        }
    }

    /// The run's step manager tells the agent that it is connected to.
    fn open_agent(&mut self, node: usize, run: RunKey) {
        if let Some(stepd) = self.stepd(node, run) {
            stepd.open = true;
        }
    }

    fn note_broken(&mut self, checked: Result<(), String>) {
        if let Err(what) = checked {
            self.broken = Some(("an_accepted_step_ends_once_and_runs_once", what));
        }
    }

    fn note_overrun(&mut self, checked: Result<(), String>) {
        if let Err(what) = checked {
            self.broken = Some(("a_run_ends_when_its_time_is_over", what));
        }
    }

    /// A run's step manager has said how it ended.
    pub(super) fn note_end(&mut self, run: RunKey, state: JobState) {
        if state == JobState::Timeout && self.timed_out.insert(run.sluid) {
            self.ledger.counts.add("run ended by its time limit");
        }
    }

    /// A message of the agent for the run's step manager.
    pub(super) fn tell_step_side(&mut self, run: RunKey, message: NodeToStepd) {
        let Some(step_side) = self.step_sides.get_mut(&run).filter(|step_side| !step_side.dead) else { return };
        match message {
            NodeToStepd::Welcome => step_side.harness.tell_manager(StepMgrInput::AgentUp),
            NodeToStepd::Ack { upto } => {
                let ended = step_side.end_report.is_some_and(|seq| seq <= upto);
                step_side.harness.tell(NodeToStepd::Ack { upto });
                if ended {
                    self.promises.end(run.sluid);
                }
            }
            NodeToStepd::SetTimeLimit(limit) => {
                // It is to have heard of that by then.
                let began = step_side.harness.core.facts().start_time;
                (step_side.limit, step_side.there_since) = (limit.duration().map(|limit| began.plus(limit)), self.now);
                step_side.harness.tell(NodeToStepd::SetTimeLimit(limit));
            }
            other => step_side.harness.tell(other),
        }
        self.after_step_side(run);
    }

    /// Has something happen to a run's step side, as seen from one of its nodes.
    pub(super) fn with_step_side(&mut self, run: RunKey, node: usize, act: impl FnOnce(&mut Harness, usize)) {
        let Some(step_side) = self.step_sides.get_mut(&run) else { return };
        if let Some(slot) = step_side.slot(node) {
            act(&mut step_side.harness, slot);
        }
    }
}

fn step_side_check(step_sides: &BTreeMap<RunKey, StepSide>, run: RunKey) -> Result<(), String> {
    step_sides.get(&run).map_or(Ok(()), |step_side| step_side.check(false))
}

/// Most time between two turns of a step side.
const LONGEST_PAUSE: Duration = Duration::from_millis(2_000);
/// Beyond `KillWait`: the step manager's own margin, and messages that are held up here.
const KILL_SLACK: Duration = Duration::from_secs(60);
/// Time between two turns of a new step side and its first.
pub(super) const FIRST_TURN: Duration = Duration::from_millis(100);
