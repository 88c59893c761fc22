//! All cores together without actors: random commands, agents that come and go, doubled and late messages, restarts of
//! the controller. Rules are checked after every step; when the faults stop, the queue has to drain.
#![allow(clippy::unwrap_used)]

use crate::{
    job::{
        core::{JobCore, Leftover},
        effects::{JobEffect, JobErrand, JobShown},
        fixtures::{CountingIds, ROOT},
    },
    license::account::LicenseAccount,
    log::committed::Committed,
    messages::{
        het::HetMessage,
        job::{JobAnswer, JobCommand, JobInput, JobSite, JobTimer},
        letter::Letter,
        node::{NodeInput, NodeTimer},
    },
    node::{
        core::NodeCore,
        core_test::{registration, settings},
        effects::{KeptHold, NodeEffect, NodeErrand},
    },
    owner::{Stage, Turn, perform},
};
use garrick_events::{
    event::{ControllerEvent, Replayed},
    records::{
        job::{JobRecord, Phase, TaskOutcome, waits_for},
        job_event::JobEvent,
    },
    testing::record,
};
use garrick_model::{
    config::{PreemptMode, PreemptType},
    ids::{JobId, Sluid},
    messages::node::{AgentReport, ControllerToNode, HeldRun, JobCredential, NodeToController},
    refusal::Refusal,
    spec::{DependencyKind, JobKind, JobSpec, NodeCount},
    spec_text::licenses::Licenses,
    state::{ExitStatus, JobState, NodeBase, Reason},
    testing::{array, depends_on, spec},
    time::Timestamp,
    view::{NodeHold, NodeView},
};
use garrick_plan::{
    fixtures::partition,
    plan::plan,
    snapshot::{
        facts::{ClusterView, Policy},
        licenses::LicenseFacts,
        preempt::PreemptRules,
    },
};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

const NODES: u32 = 3;

#[derive(Clone, Debug)]
enum Mail {
    Job(JobId, JobInput),
    Node(String, NodeInput),
    Agent(String, u64, ControllerToNode),
}

#[derive(Clone, Debug, Default)]
struct Agent {
    conn: Option<u64>,
    /// Runs here; true on the batch host.
    runs: BTreeMap<(JobId, Sluid), bool>,
    seq: u64,
    outbox: BTreeMap<u64, AgentReport>,
    incarnation: u64,
    welcome: bool,
}

struct World {
    now: Timestamp,
    jobs: BTreeMap<JobId, JobCore>,
    nodes: BTreeMap<String, NodeCore>,
    agents: BTreeMap<String, Agent>,
    /// In order between each pair.
    mail: BTreeMap<(String, String), VecDeque<Mail>>,
    /// The pair between which nothing is delivered for now.
    late: Option<(String, String)>,
    timers: BTreeMap<(JobId, JobTimer), Timestamp>,
    node_timers: BTreeMap<(String, NodeTimer), Timestamp>,
    journal: Vec<ControllerEvent>,
    ids: CountingIds,
    next_job: u32,
    conns: u64,
    /// The next epilog fails.
    bad_epilog: bool,
    licenses: LicenseAccount,
    /// After so many letters between jobs one is lost.
    loses: Option<(usize, Loss)>,
}

struct JobStage<'w>(&'w mut World, JobId);

impl Stage<JobCore> for JobStage<'_> {
    fn tell(&mut self, letter: Letter) {
        self.0.letter(&format!("job {}", self.1.0), letter);
    }

    fn run(&mut self, errand: JobErrand) {
        let Self(world, job) = self;
        let from = format!("job {}", job.0);
        match errand {
            JobErrand::Launch(order) => {
                // The frame's content does not matter here; who and where do.
                let JobCredential { job, sluid, .. } = order.credential;
                let (state, reason) = (JobState::Configuring, Reason::None);
                let frame = ControllerToNode::EndJob { job, sluid, state, reason, lost: Vec::new() };
                world.post(&from, Mail::Node(order.node, NodeInput::Send(Box::new(frame))));
            }
            JobErrand::Script { sluid, script, .. } => {
                let (job, ended) = (*job, JobInput::ScriptEnded { sluid, script, result: Ok(()) });
                world.post(&from, Mail::Job(job, ended));
            }
            JobErrand::Mail(_) => {}
            JobErrand::FindSiblings => world.post(&from, Mail::Job(*job, JobInput::Siblings { jobs: vec![] })),
        }
    }

    fn set_timer(&mut self, timer: JobTimer, at: Timestamp) {
        self.0.timers.insert((self.1, timer), at);
    }

    fn clear_timer(&mut self, timer: JobTimer) {
        self.0.timers.remove(&(self.1, timer));
    }

    fn publish(&mut self, _: JobShown) {}

    fn answer(&mut self, _: u64, _: JobAnswer) {}

    fn stop(&mut self) {
        let Self(world, job) = self;
        world.jobs.remove(job);
        world.timers.retain(|(id, _), _| id != job);
    }
}

struct NodeStage<'w>(&'w mut World, &'w str);

impl Stage<NodeCore> for NodeStage<'_> {
    fn tell(&mut self, letter: Letter) {
        self.0.letter(&format!("node {}", self.1), letter);
    }

    fn run(&mut self, errand: NodeErrand) {
        let Self(world, node) = self;
        match errand {
            NodeErrand::Send { conn, frame } => {
                if world.agents[*node].conn == Some(conn) {
                    world.post(&format!("node {node}"), Mail::Agent((*node).to_owned(), conn, *frame));
                }
            }
            NodeErrand::Close { .. } => world.agents.get_mut(*node).unwrap().conn = None,
            NodeErrand::WarnOfConf { .. } => {}
        }
    }

    fn set_timer(&mut self, timer: NodeTimer, at: Timestamp) {
        self.0.node_timers.insert((self.1.to_owned(), timer), at);
    }

    fn clear_timer(&mut self, timer: NodeTimer) {
        self.0.node_timers.remove(&(self.1.to_owned(), timer));
    }

    fn publish(&mut self, _: Arc<NodeView>) {}

    fn answer(&mut self, _: u64, _: Result<(), Refusal>) {}

    fn stop(&mut self) {}
}

/// How a letter is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The owner that was to have it fails over it, and is built anew.
    WithOwner,
    /// Nobody notices.
    Alone,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            now: Timestamp::from_secs(1000),
            jobs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            agents: BTreeMap::new(),
            mail: BTreeMap::new(),
            late: None,
            timers: BTreeMap::new(),
            node_timers: BTreeMap::new(),
            journal: Vec::new(),
            ids: CountingIds { job: 5000, sluid: 90_000 },
            next_job: 0,
            conns: 0,
            bad_epilog: false,
            licenses: site_licenses(),
            loses: None,
        };
        for index in 0..NODES {
            world.agents.insert(format!("n{index}"), Agent { incarnation: 1, ..Agent::default() });
        }
        world.build_nodes(&Replayed::default());
        world
    }

    fn build_nodes(&mut self, replayed: &Replayed) {
        for index in 0..NODES {
            let name = format!("n{index}");
            let holds = replayed.jobs.values().flat_map(|r| kept(r, &name)).collect::<Vec<_>>();
            let saved = replayed.nodes.get(&name).cloned();
            let mut core = NodeCore::new(self.now, settings(index), Arc::default(), saved, holds);
            let mut out = Vec::new();
            core.resume(self.now, &mut out);
            self.nodes.insert(name.clone(), core);
            self.node_effects(&name, out);
        }
    }

    fn post(&mut self, from: &str, letter: Mail) {
        let to = match &letter {
            Mail::Job(job, _) => format!("job {}", job.0),
            Mail::Node(node, _) => format!("node {node}"),
            Mail::Agent(node, ..) => format!("agent {node}"),
        };
        self.mail.entry((from.to_owned(), to)).or_default().push_back(letter);
    }

    fn deliver(&mut self, pick: usize) -> bool {
        let full: Vec<(String, String)> = self
            .mail
            .iter()
            .filter(|(k, q)| !q.is_empty() && self.late.as_ref() != Some(k))
            .map(|(k, _)| k.clone())
            .collect();
        let Some(key) = full.get(pick % full.len().max(1)) else { return false };
        let letter = self.mail.get_mut(key).unwrap().pop_front().unwrap();
        if let (Mail::Job(job, _), true) = (&letter, key.0.starts_with("job ") && key.0 != key.1)
            && let Some((left, loss)) = self.loses.take()
        {
            if left == 0 {
                if loss == Loss::WithOwner && self.jobs.contains_key(job) {
                    self.build_owner(*job);
                }
                return true;
            }
            self.loses = Some((left - 1, loss));
        }
        match letter {
            Mail::Job(job, input) => self.tell_job(job, input),
            Mail::Node(node, input) => self.tell_node(&node, input),
            Mail::Agent(node, conn, frame) => self.tell_agent(&node, conn, frame),
        }
        true
    }

    fn tell_job(&mut self, job: JobId, input: JobInput) {
        let Some(core) = self.jobs.get_mut(&job) else {
            // What the jobs' supervisor does for jobs that are gone.
            let from = format!("job {}", job.0);
            Letter::Job(job, input).undeliverable().into_iter().for_each(|letter| self.letter(&from, letter));
            return;
        };
        let mut out = Vec::new();
        core.handle(self.now, &mut self.ids, input, &mut out);
        self.job_effects(job, out);
    }

    fn add_job(&mut self, record: JobRecord, fresh: bool) {
        let job = record.id;
        if fresh {
            let event = Box::new(JobEvent::Submitted(Box::new(record.clone())));
            self.journal.push(ControllerEvent::Job { job, event });
        }
        let mut core = JobCore::new(record, Arc::new(JobSite { expedite: true, ..JobSite::default() }));
        let mut out = Vec::new();
        core.resume(self.now, &mut self.ids, Leftover::default(), &mut out);
        self.jobs.insert(job, core);
        self.job_effects(job, out);
    }

    fn job_effects(&mut self, job: JobId, out: Vec<JobEffect>) {
        let turn = Turn::<JobCore>::of(out);
        self.journal.extend(turn.events);
        perform(turn.rest, &mut JobStage(self, job));
    }

    fn letter(&mut self, from: &str, letter: Letter) {
        match letter {
            Letter::Job(job, input) => self.post(from, Mail::Job(job, input)),
            Letter::Node(node, input) => self.post(from, Mail::Node(node, input)),
            Letter::Licenses(input) => {
                let letters = self.licenses.answers(self.now, &mut self.ids, input);
                letters.into_iter().for_each(|letter| self.letter(from, letter));
            }
            Letter::Outcome { .. } | Letter::Steps(_) | Letter::Crontabs(_) | Letter::News(_) => {}
            Letter::Begin { record, first } => {
                let task = record.id;
                self.add_job(*record, false);
                if let Some(first) = first {
                    self.post(from, Mail::Job(task, *first));
                }
            }
        }
    }

    fn tell_node(&mut self, node: &str, input: NodeInput) {
        let mut out = Vec::new();
        self.nodes.get_mut(node).unwrap().handle(self.now, input, &mut out);
        self.node_effects(node, out);
    }

    fn node_effects(&mut self, node: &str, out: Vec<NodeEffect>) {
        let turn = Turn::<NodeCore>::of(out);
        self.journal.extend(turn.events);
        perform(turn.rest, &mut NodeStage(self, node));
    }

    fn report(&mut self, node: &str, report: AgentReport) {
        let agent = self.agents.get_mut(node).unwrap();
        agent.seq += 1;
        let seq = agent.seq;
        agent.outbox.insert(seq, report);
        self.send_report(node, seq);
    }

    fn send_report(&mut self, node: &str, seq: u64) {
        let agent = &self.agents[node];
        if let (Some(conn), Some(report), true) = (agent.conn, agent.outbox.get(&seq).cloned(), agent.welcome) {
            let frame = Box::new(NodeToController::Report { seq, report });
            self.post(&format!("agent {node}"), Mail::Node(node.to_owned(), NodeInput::Frame { conn, frame }));
        }
    }

    fn tell_agent(&mut self, node: &str, conn: u64, frame: ControllerToNode) {
        if self.agents[node].conn != Some(conn) {
            return;
        }
        match frame {
            ControllerToNode::Welcome { runs, .. } => {
                let agent = self.agents.get_mut(node).unwrap();
                agent.welcome = true;
                let strangers: Vec<(JobId, Sluid)> = agent.runs.keys().filter(|k| !runs.contains(k)).copied().collect();
                let unacked: Vec<u64> = agent.outbox.keys().copied().collect();
                for seq in unacked {
                    self.send_report(node, seq);
                }
                for key in strangers {
                    self.finish(node, key, JobState::NodeFail);
                }
            }
            // Stands for StartJob.
            ControllerToNode::EndJob { job, sluid, state: JobState::Configuring, .. } => {
                let key = (job, sluid);
                if self.agents[node].runs.contains_key(&key) {
                    return;
                }
                let nodes: Vec<String> = self
                    .jobs
                    .get(&job)
                    .and_then(|c| c.record().phase.run())
                    .map_or_else(Vec::new, |run| run.allocation.nodes.iter().map(|n| n.name.clone()).collect());
                for other in nodes {
                    self.agents.get_mut(&other).unwrap().runs.insert(key, other == node);
                }
                self.agents.get_mut(node).unwrap().runs.insert(key, true);
                self.report(node, AgentReport::JobStarted { job, sluid, door: String::new() });
            }
            ControllerToNode::EndJob { job, sluid, state, .. } => {
                if self.agents[node].runs.contains_key(&(job, sluid)) {
                    self.finish(node, (job, sluid), state);
                } else {
                    self.report(node, AgentReport::NodeReleased { job, sluid, epilog_failed: None, unkillable: None });
                }
            }
            ControllerToNode::AckReports { upto } => {
                self.agents.get_mut(node).unwrap().outbox.retain(|seq, _| *seq > upto)
            }
            _ => {}
        }
    }

    /// A run's end as the agent on this node sees it; the batch host ends it everywhere.
    fn finish(&mut self, node: &str, key: (JobId, Sluid), state: JobState) {
        let Some(batch_host) = self.agents.get_mut(node).unwrap().runs.remove(&key) else { return };
        let (job, sluid) = key;
        if batch_host {
            let exit = ExitStatus { code: u8::from(state == JobState::Failed), signal: None };
            let at = self.now;
            self.report(
                node,
                AgentReport::JobEnded {
                    job,
                    sluid,
                    state,
                    reason: Reason::None,
                    exit,
                    derived: exit,
                    at,
                    lost: vec![],
                    cause: None,
                },
            );
            let others: Vec<String> =
                self.agents.iter().filter(|(_, a)| a.runs.contains_key(&key)).map(|(n, _)| n.clone()).collect();
            for other in others {
                self.finish(&other, key, state);
            }
        }
        let epilog_failed = std::mem::take(&mut self.bad_epilog).then(|| "exit 1".to_owned());
        self.report(node, AgentReport::NodeReleased { job, sluid, epilog_failed, unkillable: None });
    }

    fn connect(&mut self, node: &str) {
        self.disconnect(node);
        self.conns += 1;
        let conn = self.conns;
        let agent = self.agents.get_mut(node).unwrap();
        agent.conn = Some(conn);
        agent.welcome = false;
        let runs = agent
            .runs
            .iter()
            .map(|(&(job, sluid), &batch_host)| HeldRun { job, sluid, batch_host, door: String::new(), requeue: None })
            .collect();
        let mut registration = registration(conn, runs);
        registration.incarnation = agent.incarnation;
        self.post(&format!("agent {node}"), Mail::Node(node.to_owned(), NodeInput::Registered(Box::new(registration))));
    }

    fn disconnect(&mut self, node: &str) {
        if let Some(conn) = self.agents.get_mut(node).unwrap().conn.take() {
            // Frames under way on the broken connection are lost.
            self.mail.remove(&(format!("agent {node}"), format!("node {node}")));
            self.mail.remove(&(format!("node {node}"), format!("agent {node}")));
            self.post(&format!("agent {node}"), Mail::Node(node.to_owned(), NodeInput::LinkGone { conn }));
        }
    }

    /// The machine restarts: runs and reports are gone.
    fn reboot(&mut self, node: &str) {
        self.disconnect(node);
        let agent = self.agents.get_mut(node).unwrap();
        *agent = Agent { incarnation: agent.incarnation + 1, ..Agent::default() };
        self.connect(node);
    }

    fn restart_controller(&mut self) {
        let replayed = self.replayed();
        self.mail.clear();
        self.timers.clear();
        self.node_timers.clear();
        for agent in self.agents.values_mut() {
            agent.conn = None;
            agent.welcome = false;
        }
        self.build_nodes(&replayed);
        self.licenses = site_licenses();
        for (job, licenses) in replayed.jobs.values().filter_map(|r| Some((r.id, r.licenses()?))) {
            self.licenses.restore(job, licenses.clone());
        }
        self.jobs.clear();
        for record in replayed.jobs.into_values() {
            self.add_job(record, false);
        }
    }

    fn replayed(&self) -> Replayed {
        let mut replayed = Replayed::default();
        for event in &self.journal {
            replayed.apply(event).unwrap();
        }
        replayed
    }

    fn schedule(&mut self) {
        let jobs: Vec<_> = self.jobs.values().map(|core| Arc::new(core.view(self.now))).collect();
        let nodes: Vec<_> = self.nodes.values().map(|core| Arc::new(core.view())).collect();
        let (kind, mode) = (PreemptType::PartitionPrio, PreemptMode::Suspend);
        let suspend_grace = Duration::from_secs(2);
        let preempt = PreemptRules { kind, mode, suspend_grace, ..PreemptRules::default() };
        let (low, mut high) = (partition("debug", 0..NODES as usize), partition("urgent", 0..NODES as usize));
        high.tier = 2;
        let mut view = ClusterView::new(Policy { preempt, ..Policy::default() }, &jobs, &nodes, vec![low, high]);
        let end = |job| self.jobs.get(&job).and_then(|core: &JobCore| core.view(self.now).end_time);
        view.licenses = LicenseFacts {
            totals: self.licenses.totals().clone(),
            held: self.licenses.holds().map(|(job, licenses)| (job, licenses.clone(), end(job))).collect(),
            hres: Arc::clone(self.licenses.hres()),
            ..LicenseFacts::default()
        };
        let made = plan(&view, self.now);
        for one in made.preemptions {
            self.post("scheduler", Mail::Job(one.job, JobInput::Preempt(Box::new(one))));
        }
        for one in made.resumptions {
            self.post("scheduler", Mail::Job(one.job, JobInput::GoOn(Box::new(one))));
        }
        for start in made.starts {
            self.post("scheduler", Mail::Job(start.job, JobInput::Start(Box::new(start))));
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now = self.now.plus(by);
        let due: Vec<(JobId, JobTimer)> =
            self.timers.iter().filter(|(_, at)| **at <= self.now).map(|(k, _)| *k).collect();
        for (job, timer) in due {
            self.timers.remove(&(job, timer));
            self.tell_job(job, JobInput::Timer(timer));
        }
        let due: Vec<(String, NodeTimer)> =
            self.node_timers.iter().filter(|(_, at)| **at <= self.now).map(|(k, _)| k.clone()).collect();
        for (node, timer) in due {
            self.node_timers.remove(&(node.clone(), timer));
            self.tell_node(&node, NodeInput::Timer(timer));
        }
    }

    fn submit(&mut self, kind: u8) {
        self.next_job += 1;
        let wide = JobSpec { nodes: Some(NodeCount { min: 1 + u32::from(kind) % NODES, max: None }), ..spec() };
        let spec = match kind % 5 {
            0 => JobSpec { array: Some(array(1, 4, Some(2))), ..spec() },
            1 if self.next_job > 1 => depends_on(DependencyKind::AfterAny, self.next_job - 1),
            2 => JobSpec { tasks: Some(6), ..spec() },
            _ => JobSpec { expedite: kind.is_multiple_of(2), ..wide },
        };
        let wants = [
            None,
            None,
            Some("lic:1"),
            Some("lic:2"),
            Some("lic:2|other"),
            Some("lic,other"),
            Some("any:2"),
            Some("all:2,lic"),
            Some("power:3"),
        ];
        let licenses = wants[usize::from(kind / 5) % wants.len()].map(str::to_owned);
        let partitions = if kind % 4 == 3 { vec!["urgent".to_owned()] } else { Vec::new() };
        self.add_job(record(self.next_job, JobSpec { licenses, partitions, ..spec }), true);
    }

    /// A heterogeneous job of two or three components.
    fn submit_het(&mut self, kind: u8) {
        let leader = JobId(self.next_job + 1);
        let sizes: &[u32] = [&[1, 1][..], &[2, 1], &[1, 1, 1], &[1, 2], &[3, 1]][usize::from(kind) % 5];
        let size = u32::try_from(sizes.len()).unwrap();
        self.next_job += size;
        for (nodes, offset) in sizes.iter().zip(0..) {
            let licenses = (kind.is_multiple_of(7) && offset == 1).then(|| "lic:1".to_owned());
            let job_kind = if offset == 0 && kind < 200 { JobKind::Batch } else { JobKind::Allocation };
            let spec = JobSpec {
                kind: job_kind,
                nodes: Some(NodeCount { min: *nodes, max: None }),
                het: Some((leader, offset)),
                het_size: size,
                licenses,
                ..spec()
            };
            self.add_job(record(leader.0 + offset, spec), true);
        }
    }

    /// The owner of a component fails and is built anew from what it saved.
    fn rebuild_owner(&mut self, pick: usize) {
        let fails = |record: &&JobRecord| record.spec.het.is_some() || matches!(record.phase, Phase::Suspended(_));
        let jobs: Vec<JobId> = self.jobs.values().map(JobCore::record).filter(fails).map(|r| r.id).collect();
        if let Some(job) = jobs.get(pick % jobs.len().max(1)) {
            self.build_owner(*job);
        }
    }

    fn build_owner(&mut self, job: JobId) {
        let left = self.jobs[&job].leftover();
        let record = self.replayed().jobs[&job].clone();
        self.timers.retain(|(id, _), _| *id != job);
        let mut core = JobCore::new(record, Arc::new(JobSite { expedite: true, ..JobSite::default() }));
        let mut out = Vec::new();
        core.resume(self.now, &mut self.ids, left, &mut out);
        self.jobs.insert(job, core);
        self.job_effects(job, out);
        for index in 0..NODES {
            self.tell_node(&format!("n{index}"), NodeInput::OwnerIsNew { job });
        }
        // As the supervisor of jobs does.
        let of = self.jobs[&job].record().clone();
        let waiting: Vec<JobId> =
            self.jobs.values().map(JobCore::record).filter(|record| waits_for(record, &of)).map(|r| r.id).collect();
        for by in waiting {
            self.post("jobs", Mail::Job(job, JobInput::Subscribe { by }));
        }
    }

    fn command(&mut self, pick: usize, command: JobCommand) {
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        if let Some(job) = jobs.get(pick % jobs.len().max(1)) {
            self.tell_job(*job, JobInput::Command { request: 0, by: ROOT, tasks: None, command });
        }
    }

    /// Its processes do nothing, so that it does not end by itself.
    fn stands_still(&self, (job, sluid): (JobId, Sluid)) -> bool {
        let record = self.jobs.get(&job).map(JobCore::record).filter(|record| record.sluid == sluid);
        record.is_some_and(|record| matches!(&record.phase, Phase::Suspended(run) if run.ending.is_none()))
    }

    fn finish_some_run(&mut self, pick: usize) {
        let runs: Vec<(String, (JobId, Sluid))> = self
            .agents
            .iter()
            .flat_map(|(node, a)| a.runs.iter().filter(|(_, batch)| **batch).map(|(key, _)| (node.clone(), *key)))
            .filter(|(_, key)| !self.stands_still(*key))
            .collect();
        if let Some((node, key)) = runs.get(pick % runs.len().max(1)) {
            self.finish(node, *key, JobState::Completed);
        }
    }

    /// The script fails, and perhaps the epilog of the first node that is clean.
    fn fail_some_run(&mut self, pick: usize) {
        let runs: Vec<(String, (JobId, Sluid))> = self
            .agents
            .iter()
            .flat_map(|(node, a)| a.runs.iter().filter(|(_, batch)| **batch).map(|(key, _)| (node.clone(), *key)))
            .collect();
        if let Some((node, key)) = runs.get(pick % runs.len().max(1)) {
            self.bad_epilog = !pick.is_multiple_of(3);
            self.finish(node, *key, JobState::Failed);
            self.bad_epilog = false;
        }
    }

    fn step(&mut self, what: u8, pick: u8) {
        let node = format!("n{}", u32::from(pick) % NODES);
        let at = usize::from(pick);
        match what % 32 {
            0 | 1 => self.submit(pick),
            2 | 3 => self.schedule(),
            4 => self.command(at, JobCommand::Cancel),
            5 => self.command(at, JobCommand::Requeue { hold: pick.is_multiple_of(2) }),
            6 => self.command(at, JobCommand::Hold { admin: true }),
            7 => self.command(at, JobCommand::Release),
            8 => self.finish_some_run(at),
            9 => self.fail_some_run(at),
            10 | 11 => self.connect(&node),
            12 => self.disconnect(&node),
            13 if pick.is_multiple_of(4) => self.reboot(&node),
            14 if pick.is_multiple_of(4) => self.restart_controller(),
            16 => self.submit_het(pick),
            18 => self.command(at, JobCommand::Suspend),
            19 => self.command(at, JobCommand::Resume),
            17 if pick.is_multiple_of(2) => self.rebuild_owner(at),
            15 => self.advance(Duration::from_secs(u64::from(pick))),
            _ => {
                self.deliver(at);
            }
        }
    }

    fn settle(&mut self) {
        let mut left = 20_000;
        while self.deliver(0) {
            left -= 1;
            assert!(left > 0, "letters never end");
        }
    }

    /// All nodes are connected and in service.
    fn mend_nodes(&mut self) {
        for index in 0..NODES {
            let name = format!("n{index}");
            if self.agents[&name].conn.is_none() {
                self.connect(&name);
            }
            let view = self.nodes[&name].view();
            if view.base == NodeBase::Down || view.flags.drain {
                let change = garrick_model::messages::command::NodeChange {
                    state: Some(garrick_model::messages::command::NodeStateChange::Resume),
                    ..Default::default()
                };
                self.tell_node(&name, NodeInput::Update { request: 0, by: (0, "root".to_owned()), change });
            }
        }
    }

    /// No more faults: everyone is there, everything arrives, work gets done.
    fn drain(&mut self) {
        for _ in 0..60 {
            self.mend_nodes();
            for pick in 0..self.jobs.len() {
                self.command(pick, JobCommand::Release);
                self.command(pick, JobCommand::Resume);
            }
            self.settle();
            self.schedule();
            self.settle();
            for _ in 0..8 {
                self.finish_some_run(0);
            }
            self.settle();
            self.advance(Duration::from_secs(30));
            self.settle();
            self.check();
        }
    }

    /// What a drained queue comes to.
    fn all_is_over(&self) {
        for core in self.jobs.values() {
            let view = core.view(self.now);
            assert!(
                core.is_over(),
                "job {} is left: {:?} {:?} eligible {} asked {:?}, array {:?}, nodes {:?}, journal {:?}",
                view.id.0,
                view.state,
                view.reason,
                view.eligible,
                core.leftover(),
                core.record().array,
                self.nodes.values().map(|n| (n.view().base, n.view().holds.len())).collect::<Vec<_>>(),
                self.story()
            );
        }
        for core in self.nodes.values() {
            assert!(core.view().holds.is_empty());
        }
        assert_eq!(self.licenses.holds().count(), 0);
    }

    /// Names of what was saved, for failures.
    fn story(&self) -> Vec<String> {
        let told = self.journal.iter().map(|event| match event {
            ControllerEvent::Job { job, event } => format!("{} {}", job.0, event.name()),
            ControllerEvent::Node { node, saved } => format!("{node} {:?}", saved.down),
            other => format!("{other:?}"),
        });
        told.collect()
    }

    /// The rules.
    fn check(&self) {
        for core in self.nodes.values() {
            core.sanity_check().unwrap();
        }
        invariant_replay_equals_live(self);
        invariant_each_run_ends_once(self);
        invariant_holds_belong_to_jobs(self);
        invariant_licenses_belong_to_jobs(self);
        invariant_components_run_together(self);
    }
}

/// A resource of each mode on the nodes; what is always in use leaves less than all nodes could take.
fn site_hres() -> Arc<garrick_model::config::Hres> {
    let half = NODES / 2;
    garrick_model::testing::hres(
        NODES,
        &[
            ("any", "MODE_1", &[(0..half, 2, 0), (0..NODES, 1, 0)]),
            ("all", "MODE_2", &[(0..NODES, 3, 0)]),
            ("power", "MODE_3", &[(0..NODES, 12, 1), (0..half, 6, 0), (half..NODES, 8, 1)]),
        ],
    )
}

fn site_licenses() -> LicenseAccount {
    let mut account = LicenseAccount::default();
    account.configure(&"lic:2,other".parse().unwrap(), &site_hres());
    account
}

fn kept(record: &JobRecord, node: &str) -> Vec<KeptHold> {
    let holds = record.holds();
    let here = holds.iter().filter(|held| held.node.name == node);
    here.map(|held| KeptHold {
        hold: NodeHold {
            job: record.id,
            sluid: held.sluid,
            uid: record.owner.uid,
            share: held.node.share.clone(),
            sharing: Default::default(),
            mcs_label: None,
            partition: Some(held.partition.to_owned()),
            expected_end: held.expected_end,
            completing: false,
            kept: held.kept,
            parked: held.parked,
        },
        most_holders: 1,
        caps: garrick_plan::snapshot::caps::CpuCaps::NONE,
    })
    .collect()
}

fn invariant_replay_equals_live(world: &World) {
    let replayed = world.replayed();
    assert_eq!(replayed.jobs.len(), world.jobs.len());
    // A component adopts what its leader recorded when it hears of it.
    let hears = |job: &JobId| {
        world.mail.values().flatten().any(|letter| match letter {
            Mail::Job(to, JobInput::Het { message, .. }) => {
                to == job && matches!(**message, HetMessage::Granted { .. })
            }
            _ => false,
        })
    };
    for (job, core) in world.jobs.iter().filter(|(job, _)| !hears(job)) {
        assert_eq!(&replayed.jobs[job], core.record());
    }
}

/// What is written out anywhere, while the other goes on, and what came after it are all that there was.
fn invariant_a_snapshot_and_the_rest_come_to_all(world: &World) {
    let all = world.replayed();
    for part in 0..=4 {
        let (before, rest) = world.journal.split_at(world.journal.len() * part / 4);
        let value = Committed::default();
        value.advance(before);
        let (copy, then) = (value.copy().unwrap(), value.copy().unwrap());
        value.advance(rest);
        assert_eq!(value.copy().unwrap(), all);
        let mut again = Replayed::default();
        copy.into_events().for_each(|event| again.apply(&event).unwrap());
        assert_eq!(again, then, "a copy is what was there, and its shortest form comes to it");
        rest.iter().for_each(|event| again.apply(event).unwrap());
        assert_eq!(again, all);
    }
}

/// What is on disk of a heterogeneous job has all of its components' allocations or none.
fn invariant_components_run_together(world: &World) {
    let replayed = world.replayed();
    for record in replayed.jobs.values() {
        let Some(leader) = record.spec.het_leader_of_component() else { continue };
        let wanted = record.phase.working().is_some_and(|run| run.ending.is_none());
        let under_way = world.mail.values().any(|queue| !queue.is_empty());
        if wanted && !under_way {
            let leader = replayed.jobs.get(&leader);
            let goes_on = leader.is_some_and(|leader| leader.phase.working().is_some());
            assert!(goes_on, "component {} runs without its leader: {:?}", record.id.0, world.story());
        }
        for part in record.phase.working().iter().flat_map(|run| &run.parts) {
            let other = &replayed.jobs[&part.job];
            let same = other.sluid == part.sluid && other.phase.run().is_some();
            assert!(same, "leader {} runs without {}: {:?}", record.id.0, part.job.0, world.story());
        }
    }
}

fn invariant_each_run_ends_once(world: &World) {
    let mut runs: BTreeMap<JobId, Sluid> = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for event in &world.journal {
        let ControllerEvent::Job { job, event } = event else { continue };
        match &**event {
            JobEvent::Submitted(record) | JobEvent::SubmittedLike { record, .. } => {
                runs.insert(*job, record.sluid);
            }
            JobEvent::Requeued { sluid, .. } => {
                runs.insert(*job, *sluid);
            }
            JobEvent::Ended(_) => assert!(ended.insert(runs[job]), "run {:?} of job {} ended twice", runs[job], job.0),
            _ => {}
        }
    }
}

/// What a job has according to its record, its nodes hold for it (letters to a lost node's owner may be under way).
fn invariant_holds_belong_to_jobs(world: &World) {
    let under_way = world.mail.values().any(|queue| !queue.is_empty());
    if under_way {
        return;
    }
    for (name, core) in &world.nodes {
        for hold in core.view().holds {
            let record = world.jobs.get(&hold.job).map(JobCore::record);
            let has =
                record.is_some_and(|r| r.holds().iter().any(|h| (h.sluid, h.node.name.as_str()) == (hold.sluid, name)));
            assert!(has, "{name} holds for job {} what the job does not have: {record:?}", hold.job.0);
            let stands = record.is_some_and(|r| r.holds().iter().any(|h| h.sluid == hold.sluid && h.parked));
            assert!(stands || !hold.parked, "{name} gave the CPUs of job {} away: {record:?}", hold.job.0);
        }
    }
    for (job, core) in &world.jobs {
        for held in core.record().holds() {
            let name = &held.node.name;
            let same = |h: &NodeHold| (h.job, h.sluid, h.kept) == (*job, held.sluid, held.kept);
            let view = world.nodes[name].view();
            assert!(view.holds.iter().any(same), "job {} has {name}, which does not know", job.0);
        }
    }
}

/// What jobs' records say they have, the account holds for them and for nobody else, and never more than there is.
fn invariant_licenses_belong_to_jobs(world: &World) {
    let has = |core: &JobCore| Some((core.record().id, core.record().licenses()?.clone()));
    let had: BTreeMap<JobId, Licenses> = world.jobs.values().filter_map(has).collect();
    let held: BTreeMap<JobId, Licenses> = world.licenses.holds().map(|(job, held)| (job, held.clone())).collect();
    assert!(had.iter().all(|(job, licenses)| held.get(job) == Some(licenses)), "{had:?} {held:?}");
    assert!(world.licenses.view().iter().all(|l| l.used <= l.total), "{held:?}");
    for core in world.jobs.values() {
        let (Some(has), Some(run)) = (core.record().licenses(), core.record().phase.working()) else { continue };
        let nodes: Vec<usize> = run.allocation.nodes.iter().map(|node| node.index.0 as usize).collect();
        let recounted = world.licenses.hres().recount(core.record().spec.licenses.as_deref(), &nodes, has);
        assert_eq!(recounted.by_name(), has.by_name(), "what it has is what its nodes count for");
    }
    if world.mail.values().all(VecDeque::is_empty) {
        assert_eq!(had, held);
    }
}

#[test]
fn what_a_run_takes_of_layers_is_counted_again_after_a_restart() {
    let mut world = World::new();
    for index in 0..NODES {
        world.connect(&format!("n{index}"));
    }
    let nodes = Some(NodeCount { min: 2, max: Some(2) });
    let spec = JobSpec { licenses: Some("power:3,any:1,lic".to_owned()), nodes, ..spec() };
    world.add_job(record(1, spec), true);
    world.settle();
    world.schedule();
    world.settle();
    let before = world.licenses.view();
    let of = |name: &str| before.iter().filter(|l| l.name == name).map(|l| l.used).collect::<Vec<_>>();
    assert_eq!((of("power")[0], of("any").iter().sum::<u32>(), of("lic")), (2 + 2 * 3, 1, vec![1]), "{before:?}");
    world.restart_controller();
    assert_eq!(world.licenses.view(), before);
    world.check();
    world.drain();
}

/// Plays the steps, lets the faults stop, and wants every job to be over in the end.
fn play(steps: Vec<(u8, u8)>) {
    let mut world = World::new();
    for (what, pick) in steps {
        world.step(what, pick);
        for core in world.nodes.values() {
            core.sanity_check().unwrap();
        }
        invariant_licenses_belong_to_jobs(&world);
    }
    world.check();
    invariant_a_snapshot_and_the_rest_come_to_all(&world);
    world.drain();
    world.all_is_over();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_hold_whatever_happens_and_the_queue_drains(steps in prop::collection::vec((any::<u8>(), any::<u8>()), 1..250)) {
        play(steps);
    }
}

/// What the property test found: the news of a task's end was still under way when the task was forgotten, and a
/// restart lost it. The array's record then counted the task as unfinished for ever, and what depended on it waited.
#[test]
fn a_task_is_not_forgotten_before_its_array_knows_how_it_ended() {
    let mut world = World::new();
    for index in 0..NODES {
        world.connect(&format!("n{index}"));
    }
    world.submit(0);
    world.add_job(record(2, depends_on(DependencyKind::AfterOk, 1)), true);
    world.settle();
    world.schedule();
    world.late = Some(("job 5001".to_owned(), "job 1".to_owned()));
    world.settle();
    while world.agents.values().any(|agent| !agent.runs.is_empty()) {
        world.finish_some_run(0);
    }
    world.settle();
    let is_over = |world: &World| world.jobs.get(&JobId(5001)).is_some_and(JobCore::is_over);
    assert!(is_over(&world), "{:?}", world.story());
    for _ in 0..3 {
        world.advance(Duration::from_secs(300));
        world.settle();
    }
    assert!(is_over(&world), "{:?}", world.story());

    world.late = None;
    world.restart_controller();
    world.settle();
    let array = world.jobs[&JobId(1)].record().array.as_ref().unwrap();
    assert_eq!(array.tasks[&1].over, Some(TaskOutcome::Ok));
    world.drain();
    world.all_is_over();
    assert!(!world.jobs.contains_key(&JobId(5001)));
    assert!(world.story().contains(&"2 Started".to_owned()), "{:?}", world.story());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same with nothing but heterogeneous jobs.
    #[test]
    fn components_of_heterogeneous_jobs_start_and_end_together(
        steps in prop::collection::vec((any::<u8>(), any::<u8>()), 1..250)
    ) {
        play(steps.into_iter().map(|(what, pick)| (if what % 32 < 2 { 16 } else { what }, pick)).collect());
    }
}

fn connected() -> World {
    let mut world = World::new();
    for index in 0..NODES {
        world.connect(&format!("n{index}"));
    }
    world.settle();
    world
}

fn phases(world: &World) -> Vec<&'static str> {
    world.jobs.values().map(|core| core.record().phase.name()).collect()
}

/// A job of both partitions that takes all of every node.
fn wide(world: &mut World, partition: &str) -> JobId {
    world.next_job += 1;
    let nodes = Some(NodeCount { min: NODES, max: None });
    let (partitions, tasks) = (vec![partition.to_owned()], Some(8 * NODES));
    let spec = JobSpec { partitions, nodes, tasks, tasks_per_node: Some(8), ..spec() };
    world.add_job(record(world.next_job, spec), true);
    JobId(world.next_job)
}

fn pass(world: &mut World) {
    world.schedule();
    world.settle();
    world.check();
}

#[test]
fn one_that_stands_still_for_another_goes_on_after_it_over_restarts_at_every_step() {
    for restart_at in 0..6 {
        let mut world = connected();
        let mut step = 0;
        let mut restart = |world: &mut World| {
            if step == restart_at {
                world.restart_controller();
                (0..NODES).for_each(|index| world.connect(&format!("n{index}")));
                world.settle();
            }
            step += 1;
        };
        wide(&mut world, "debug");
        pass(&mut world);
        assert_eq!(phases(&world), ["running"]);
        wide(&mut world, "urgent");
        world.settle();
        world.schedule();
        restart(&mut world);
        pass(&mut world);
        assert_eq!(phases(&world), ["suspended", "pending"], "{restart_at}");
        restart(&mut world);
        world.advance(Duration::from_secs(2));
        restart(&mut world);
        pass(&mut world);
        pass(&mut world);
        assert_eq!(phases(&world), ["suspended", "running"], "{restart_at}");
        restart(&mut world);
        pass(&mut world);
        assert_eq!(phases(&world), ["suspended", "running"], "{restart_at}");
        world.finish_some_run(0);
        world.settle();
        assert_eq!(phases(&world), ["suspended", "over"], "who stands still does not end");
        world.schedule();
        world.deliver(0);
        restart(&mut world);
        pass(&mut world);
        pass(&mut world);
        assert_eq!(phases(&world), ["running", "over"], "{restart_at}");
        restart(&mut world);
        world.drain();
        world.all_is_over();
    }
}

#[test]
fn all_components_start_and_the_leader_is_launched_last() {
    let mut world = connected();
    world.submit_het(1);
    world.settle();
    world.schedule();
    world.settle();
    assert_eq!(phases(&world), ["running", "running"]);
    let story = world.story();
    let at = |what: &str| story.iter().position(|line| line == what).unwrap();
    assert!(at("2 Allocated") == at("1 Allocated") + 1, "recorded in one go: {story:?}");
    assert!(at("2 Started") < at("1 Started"), "{story:?}");
    world.drain();
    world.all_is_over();
}

#[test]
fn a_refused_component_gives_back_what_the_others_took() {
    let mut world = connected();
    world.submit_het(0);
    world.settle();
    world.schedule();
    // The plan knew nothing of it: the node of one component goes out of service before it is asked.
    let starts = world.mail.values().flatten().find_map(|letter| match letter {
        Mail::Job(_, JobInput::Start(start)) => Some(start.others[0].nodes[0].name.clone()),
        _ => None,
    });
    world.disconnect("n0");
    world.node_timers.clear();
    let drained = starts.unwrap();
    let change = garrick_model::messages::command::NodeChange {
        state: Some(garrick_model::messages::command::NodeStateChange::Drain),
        reason: Some("test".to_owned()),
        ..Default::default()
    };
    world.tell_node(&drained, NodeInput::Update { request: 0, by: (0, "root".to_owned()), change });
    world.settle();
    assert_eq!(phases(&world), ["pending", "pending"]);
    assert!(world.nodes.values().all(|node| node.view().holds.is_empty()));
    assert!(!world.story().iter().any(|line| line.contains("Allocated")));
    world.drain();
    world.all_is_over();
}

/// Stops after each letter in turn, restarts the controller there, and goes on.
#[test]
fn a_restart_in_the_middle_leaves_all_of_it_or_none() {
    for stop in 0..60 {
        let mut world = connected();
        world.submit_het(2);
        world.settle();
        world.schedule();
        for pick in 0..stop {
            world.deliver(pick);
        }
        world.restart_controller();
        for index in 0..NODES {
            world.connect(&format!("n{index}"));
        }
        world.settle();
        world.check();
        let phases = phases(&world);
        assert!(phases.iter().all(|phase| *phase == phases[0]), "after {stop}: {phases:?}");
        world.drain();
        world.all_is_over();
    }
}

/// The same where one owner fails.
#[test]
fn an_owner_that_fails_in_the_middle_leaves_all_of_it_or_none() {
    for stop in 0..60 {
        for owner in 0..3 {
            let mut world = connected();
            world.submit_het(2);
            world.settle();
            world.schedule();
            for pick in 0..stop {
                world.deliver(pick);
            }
            world.rebuild_owner(owner);
            world.settle();
            for index in 0..NODES {
                // Their links were closed, so that they say again what they know.
                world.connect(&format!("n{index}"));
            }
            world.settle();
            world.advance(Duration::from_secs(11));
            world.settle();
            world.check();
            let phases = phases(&world);
            assert!(
                phases.iter().all(|phase| *phase == phases[0]),
                "after {stop}, {owner}: {phases:?} {:?} {:?}",
                world.story(),
                world.agents
            );
            world.drain();
            world.all_is_over();
        }
    }
}

/// Loses each letter between the components in turn, from their start over being queued again to their end.
#[test]
fn no_single_letter_between_components_matters() {
    let wait = |world: &mut World| {
        world.settle();
        // What was lost is asked for again in this time.
        for _ in 0..50 {
            // A new owner has its nodes connect again.
            world.mend_nodes();
            world.settle();
            world.node_timers.clear();
            world.advance(Duration::from_secs(10));
            world.settle();
            world.schedule();
            world.settle();
        }
        world.check();
    };
    for loss in [Loss::WithOwner, Loss::Alone] {
        for lost in 0.. {
            let mut world = connected();
            world.submit_het(2);
            world.loses = Some((lost, loss));
            wait(&mut world);
            assert_eq!(phases(&world), ["running"; 3], "{loss:?} of {lost}: {:?}", world.story());
            let command = JobCommand::Requeue { hold: false };
            world.tell_job(JobId(1), JobInput::Command { request: 0, by: ROOT, tasks: None, command });
            wait(&mut world);
            assert_eq!(phases(&world), ["running"; 3], "{loss:?} of {lost}: {:?}", world.story());
            assert!(world.jobs.values().all(|core| core.record().restarts == 1), "{:?}", world.story());
            let leader = world.jobs[&JobId(1)].record();
            let (node, key) = (leader.phase.run().unwrap().batch_host().to_owned(), (leader.id, leader.sluid));
            world.finish(&node, key, JobState::Completed);
            wait(&mut world);
            world.all_is_over();
            if world.loses.is_some() {
                assert!(lost > 20, "there are more letters than {lost}");
                break;
            }
        }
    }
}

#[test]
fn the_whole_job_ends_with_its_leader_and_a_component_may_end_alone() {
    let run = || {
        let mut world = connected();
        world.submit_het(0);
        world.settle();
        world.schedule();
        world.settle();
        assert_eq!(phases(&world), ["running", "running"]);
        world
    };
    let cancel = |world: &mut World, job| {
        world
            .tell_job(JobId(job), JobInput::Command { request: 0, by: ROOT, tasks: None, command: JobCommand::Cancel });
        world.settle();
    };
    let states = |world: &World| world.jobs.values().map(|core| core.view(world.now).state).collect::<Vec<_>>();
    let mut world = run();
    cancel(&mut world, 2);
    assert_eq!(states(&world), [JobState::Running, JobState::Cancelled]);
    cancel(&mut world, 1);
    assert_eq!(states(&world), [JobState::Cancelled, JobState::Cancelled]);
    let mut world = run();
    world.finish_some_run(0);
    world.settle();
    assert_eq!(states(&world), [JobState::Completed, JobState::Completed]);
    // Requeue is of all of it.
    let mut world = run();
    let requeue = JobCommand::Requeue { hold: false };
    world.tell_job(JobId(1), JobInput::Command { request: 0, by: ROOT, tasks: None, command: requeue });
    world.settle();
    assert_eq!(phases(&world), ["pending", "pending"]);
    assert!(world.jobs.values().all(|core| core.record().restarts == 1));
    world.drain();
    world.all_is_over();
}

#[test]
fn a_node_that_fails_one_component_fails_all_and_they_go_back_to_the_queue() {
    let mut world = connected();
    world.submit_het(0);
    world.settle();
    world.schedule();
    world.settle();
    let other = world.jobs[&JobId(2)].record().phase.run().unwrap().batch_host().to_owned();
    world.tell_job(JobId(2), JobInput::NodeLost { node: other, sluid: world.jobs[&JobId(2)].record().sluid });
    world.settle();
    assert_eq!(phases(&world), ["pending", "pending"], "{:?}", world.story());
    assert!(world.jobs.values().all(|core| core.record().restarts == 1));
    world.drain();
    world.all_is_over();
}
