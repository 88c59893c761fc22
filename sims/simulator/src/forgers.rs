//! Nodes and users that send forged messages. A forging node has a valid certificate, and its own agent works correctly; an
//! attacker on that machine also sends the controller and other nodes what it could send there. It does not send what a node may
//! do to itself and to runs whose batch host it is: no rule is about that.

use super::{
    ledger::Ledger,
    mutation::Mutation,
    random::Random,
    world::{Happening, Place, World},
};
use garrick_actors::{
    controller::frontend::vouching::{takes_itself_out, vouched},
    job::effects::JobEffect,
    messages::{
        job::{Authority, JobAnswer, JobCommand, JobInput},
        letter::Letter,
        node::{NodeInput, Registration},
    },
};
use garrick_agent::{
    AgentEffect, AgentInput, RunKey, StartOrder,
    belief::{is_from_batch_host, is_valid},
};
use garrick_events::records::job::JobRecord;
use garrick_model::{
    ids::{JobId, Sluid},
    messages::{
        command::{Caller, CancelRequest, CommandRequest, JobChange, JobSelector, NodeChange, NodeStateChange},
        node::{AgentReport, ControllerToNode, HeldRun, NodeToController, SignalScope},
    },
    packed_steps::{PackedSteps, StepTally},
    resources::MemoryMib,
    state::{ExitStatus, JobState, Reason},
    time::Timestamp,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Forged reports have numbers from here on: an agent makes fewer.
const FORGED: u64 = 1 << 40;
/// Those of them that repeat what was acknowledged.
const REPLAYED: u64 = 1 << 41;
/// The rest of a report's number counts starts of its agent.
const NUMBER: u64 = (1 << 44) - 1;
/// Reports of a node that may be repeated later.
const RECORDED: usize = 64;

const FORGER: &str = "a_forger_changes_nobody_elses_job";
const REPEAT: &str = "a_repeated_report_changes_nothing";
const REFUSED: &str = "a_refused_request_changes_nothing";
const STRANGER: &str = "a_user_commands_only_own_jobs";
const ADMIN: &str = "a_node_speaks_for_no_administrator";
const SHEPHERD: &str = "no_shepherd_is_begun_for_a_forger";

/// Who forges, and what they have recorded.
#[derive(Debug)]
pub(super) struct Forgers {
    nodes: Vec<usize>,
    random: Random,
    /// Forged reports so far.
    reports: u64,
    recordings: BTreeMap<usize, Recording>,
    /// Runs that had not begun when a node said something of them. It may be told to end them, and then its own agent says that
    /// they are over: a node does that to itself.
    lied_of: BTreeSet<(usize, JobId, Sluid)>,
}

/// What a forging node has heard its own agent say.
#[derive(Debug, Default)]
struct Recording {
    /// The connection on which it said something last: before that a number would be taken for its agent's first.
    conn: Option<u64>,
    /// Of the agent's life, with their numbers.
    said: VecDeque<(u64, AgentReport)>,
    /// The same, when the controller has acknowledged them, of earlier lives too.
    safe: VecDeque<(u64, AgentReport)>,
}

/// What the owner of a job is about to hear, and what there was before.
pub(super) struct Judged {
    what: Heard,
    before: Box<JobRecord>,
}

enum Heard {
    /// Of this node, which has no say in it.
    Forged {
        node: String,
        rule: &'static str,
    },
    Request {
        request: u64,
        stranger: bool,
    },
}

impl Forgers {
    pub(super) fn of_seed(seed: u64, count: u32, nodes: usize) -> Self {
        // Other numbers than those that the world draws.
        let mut random = Random::new(seed.rotate_left(17) ^ 0xf0_49e4);
        let last = u32::try_from(nodes - 1).unwrap_or(0);
        let nodes = (0..count).map(|_| random.between(0, last) as usize).collect();
        Self { nodes, random, reports: 0, recordings: BTreeMap::new(), lied_of: BTreeSet::new() }
    }

    pub(super) fn are_there(&self) -> bool {
        !self.nodes.is_empty()
    }
}

impl World {
    /// Somebody says something, and somebody else a little later.
    pub(super) fn forge(&mut self) {
        if self.is_calm() {
            return;
        }
        let forgers = &mut self.forgers;
        let pause = forgers.random.between(50, 2_000);
        let Some(&node) = forgers.random.pick(&forgers.nodes) else { return };
        let choice = forgers.random.between(0, 9);
        self.after(u64::from(pause), Happening::Forge);
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        let Some(&job) = self.forgers.random.pick(&jobs) else { return };
        match choice {
            0..=3 => self.forge_report(node, job),
            4 => self.replay_report(node),
            5 => self.repeat_report(node),
            6 => self.forge_request_of_root(node, job),
            7 => self.forge_order(node),
            _ => self.command_of_user(job),
        }
    }

    /// Forgers register as what they are, once faults have stopped.
    pub(super) fn end_forging(&mut self) {
        for node in self.forgers.nodes.clone() {
            self.break_link(node);
        }
    }

    fn speaking_link(&self, node: usize) -> Option<u64> {
        let said = self.forgers.recordings.get(&node).and_then(|recording| recording.conn);
        self.machines[node].link.filter(|conn| said == Some(*conn))
    }

    fn say_report(&mut self, node: usize, kind: u64, report: AgentReport) {
        let Some(conn) = self.speaking_link(node) else { return };
        self.forgers.reports += 1;
        let seq = kind | self.forgers.reports;
        let frame = Box::new(NodeToController::Report { seq, report });
        self.send(Place::Agent(node), Happening::Node(node, NodeInput::Frame { conn, frame }));
    }

    fn forge_report(&mut self, node: usize, job: JobId) {
        let Some(core) = self.jobs.get(&job) else { return };
        let record = core.record();
        let earlier = record.earlier.first().map(|hold| hold.sluid);
        let lost = record.phase.run().iter().flat_map(|run| &run.allocation.nodes).map(|n| n.name.clone()).collect();
        let current = record.sluid;
        if record.phase.run().is_none() {
            self.forgers.lied_of.insert((node, job, current));
        }
        let random = &mut self.forgers.random;
        let sluid = if random.one_in_thousand(200) { earlier.unwrap_or(Sluid(current.0 + 1)) } else { current };
        let (exit, detail) = (ExitStatus { code: 1, signal: None }, "forged".to_owned());
        let report = match random.between(0, 6) {
            0 => AgentReport::JobStarted { job, sluid, door: detail },
            1 | 2 => {
                let states = [JobState::Completed, JobState::Failed, JobState::NodeFail, JobState::Pending];
                let state = random.pick(&states).copied().unwrap_or(JobState::Failed);
                let at = Timestamp(if random.one_in_thousand(200) { i64::MAX } else { 0 });
                AgentReport::JobEnded {
                    job,
                    sluid,
                    state,
                    reason: Reason::None,
                    exit,
                    derived: exit,
                    at,
                    lost,
                    cause: None,
                }
            }
            3 => AgentReport::NodeReleased { job, sluid, epilog_failed: None, unkillable: None },
            4 => {
                let reason = Reason::PrologFailure;
                AgentReport::JobLaunchFailed { job, sluid, reason, detail, drain_node: random.one_in_thousand(100) }
            }
            5 => {
                let tally = StepTally { number: u64::MAX, dropped: 7, ..StepTally::default() };
                let mut steps = PackedSteps::default();
                steps.tally = tally;
                AgentReport::Steps { job, sluid, steps }
            }
            _ => AgentReport::RequeueSet { job, sluid, policy: Default::default() },
        };
        self.meets_job("forged report", job);
        self.say_report(node, FORGED, report);
    }

    /// What its agent said once and the controller has acknowledged, under a new number.
    fn replay_report(&mut self, node: usize) {
        let Some(recording) = self.forgers.recordings.get(&node) else { return };
        let safe: Vec<AgentReport> = recording.safe.iter().map(|(_, report)| report.clone()).collect();
        let Some(report) = self.forgers.random.pick(&safe).cloned() else { return };
        self.meets_job("report replayed", report.job());
        self.say_report(node, REPLAYED, report);
    }

    /// The same, under the number that it had.
    fn repeat_report(&mut self, node: usize) {
        let Some(conn) = self.speaking_link(node) else { return };
        let Some(recording) = self.forgers.recordings.get(&node) else { return };
        // A number of an earlier life would be taken for one that the agent has yet to use.
        let said: Vec<_> = recording.said.iter().cloned().collect();
        let Some((seq, report)) = self.forgers.random.pick(&said).cloned() else { return };
        self.meets_job("report said again", report.job());
        let frame = Box::new(NodeToController::Report { seq, report });
        self.send(Place::Agent(node), Happening::Node(node, NodeInput::Frame { conn, frame }));
    }

    /// What a forging node's agent says is recorded; a registration is changed now and then.
    pub(super) fn overhear(&mut self, node: usize, frame: &NodeToController) {
        if !self.forgers.nodes.contains(&node) {
            return;
        }
        let link = self.machines[node].link;
        match frame {
            NodeToController::Report { report: AgentReport::NodeReleased { job, sluid, .. }, .. }
                if self.forgers.lied_of.contains(&(node, *job, *sluid)) => {}
            NodeToController::Report { seq, report } => {
                let recording = self.forgers.recordings.entry(node).or_default();
                recording.conn = link;
                if recording.said.back().is_none_or(|(last, _)| last < seq) {
                    recording.said.push_back((*seq, report.clone()));
                }
                if recording.said.len() > RECORDED {
                    recording.said.pop_front();
                }
            }
            NodeToController::Register { .. } => {
                let recording = self.forgers.recordings.entry(node).or_default();
                recording.said.clear();
                recording.conn = None;
            }
            _ => {}
        }
    }

    /// Other capacities than it has, and a run that is elsewhere.
    pub(super) fn forge_registration(&mut self, node: usize, registration: &mut Registration) {
        if self.is_calm() || !self.forgers.nodes.contains(&node) {
            return;
        }
        let works = |(job, core): (&JobId, &garrick_actors::job::core::JobCore)| {
            let run = core.record().phase.working()?;
            (!run.has_node(&self.machines[node].name)).then(|| (*job, core.record().sluid))
        };
        let elsewhere: Vec<(JobId, Sluid)> = self.jobs.iter().filter_map(works).collect();
        let random = &mut self.forgers.random;
        if random.one_in_thousand(300) {
            let shape = &mut registration.facts.shape;
            shape.memory = MemoryMib(if random.one_in_thousand(700) { u64::MAX } else { 1 });
            self.ledger.counts.add("forged registration");
        }
        if random.one_in_thousand(500)
            && let Some(&(job, sluid)) = random.pick(&elsewhere)
        {
            let held =
                HeldRun { job, sluid, batch_host: true, door: "forged".to_owned(), requeue: Some(Default::default()) };
            registration.runs.push(held);
            self.meets_job("run of others registered", job);
        }
    }

    /// The controller has acknowledged reports to a forging node.
    pub(super) fn overhear_controller(&mut self, node: usize, frame: &ControllerToNode) {
        let (ControllerToNode::AckReports { upto }, Some(recording)) = (frame, self.forgers.recordings.get_mut(&node))
        else {
            return;
        };
        while let Some((seq, report)) = recording.said.pop_front_if(|(seq, _)| *seq <= *upto) {
            recording.safe.push_back((seq, report));
        }
        while recording.safe.len() > RECORDED {
            recording.safe.pop_front();
        }
    }

    /// A node asks in root's name, as a node's daemon passes on what commands ask.
    fn forge_request_of_root(&mut self, node: usize, job: JobId) {
        let name = self.machines[node].name.clone();
        let last = u32::try_from(self.machines.len() - 1).unwrap_or(0);
        let random = &mut self.forgers.random;
        let change =
            |state| NodeChange { state: Some(state), reason: Some("forged".to_owned()), ..NodeChange::default() };
        let other = random.between(0, last) as usize;
        let request = match random.between(0, 4) {
            0 | 1 => {
                let jobs = vec![JobSelector { job, tasks: None, het: None, run: None }];
                CommandRequest::Cancel(CancelRequest { jobs, ..CancelRequest::default() })
            }
            2 => {
                CommandRequest::UpdateNode { nodes: vec![format!("n{other}")], change: change(NodeStateChange::Drain) }
            }
            3 => CommandRequest::UpdateNode { nodes: vec![name.clone()], change: change(NodeStateChange::Resume) },
            _ => CommandRequest::Shutdown { controller_only: true },
        };
        self.meets_job("root's name used by a node", job);
        let caller = Caller { uid: 0, gid: 0, pid: 1, host: "head".to_owned() };
        let mut answer = vouched(&self.config, &name, caller.clone(), true, &request);
        if self.has(Mutation::NodesSpeakForRoot) {
            answer = Ok(caller);
        }
        let Ok(caller) = answer else { return };
        if caller.host != name || (caller.uid == 0 && !takes_itself_out(&request, &name)) {
            self.broken = Some((ADMIN, format!("{name} is served as {caller:?} for {request:?}")));
        }
    }

    /// A user, from wherever, asks for something about a job that is mostly not his.
    fn command_of_user(&mut self, job: JobId) {
        let random = &mut self.forgers.random;
        let uid = random.between(1_000, 1_005);
        let ranges = [(0, u32::MAX, 1), (0, u32::MAX, 0), (u32::MAX, 0, 1), (3, 3, u32::MAX), (0, 4, 2)];
        let tasks = if random.one_in_thousand(400) { random.pick(&ranges).map(|range| vec![*range; 3]) } else { None };
        let command = match random.between(0, 10) {
            0 | 1 => JobCommand::Cancel,
            2 => JobCommand::Signal { signal: 10, to: SignalScope::Full },
            3 => JobCommand::Hold { admin: random.one_in_thousand(500) },
            4 => JobCommand::Release,
            5 => JobCommand::Requeue { hold: random.one_in_thousand(300) },
            6 => JobCommand::Update(Box::new(JobChange { requeue: Some(true), ..JobChange::default() })),
            7 => JobCommand::Suspend,
            8 => JobCommand::Resume,
            9 => JobCommand::Hold { admin: true },
            _ => JobCommand::RequeueSpecialExit,
        };
        self.meets_job("request of some user", job);
        self.command_as(Authority { uid, admin: false }, job, tasks, command);
    }

    /// A step manager's order to another node, for a run that has its step manager elsewhere, or long ago.
    fn forge_order(&mut self, node: usize) {
        let name = self.machines[node].name.clone();
        let folders = self.machines.iter().flat_map(|machine| machine.spool.iter());
        let launches: Vec<_> = folders.filter_map(|(_, folder)| Some(folder.stepd.as_ref()?.launch.clone())).collect();
        let Some(launch) = self.forgers.random.pick(&launches).cloned() else { return };
        let last = u32::try_from(self.machines.len() - 1).unwrap_or(0);
        let other = self.forgers.random.between(0, last) as usize;
        let RunKey { job, sluid } = launch.run;
        let known = self.machines[other].spool.contains_key(&launch.run);
        let mut credential = launch.credential.clone();
        let from_batch_host = credential.nodes.first().is_some_and(|first| first.name == name);
        if from_batch_host && (known || self.forgers.random.one_in_thousand(500)) {
            return;
        }
        if from_batch_host {
            credential.expires = Timestamp(self.now.0 - 1);
        }
        let clock = Timestamp(self.now.0 + self.machines[other].clock_ahead_ms);
        if from_batch_host && credential.expires >= clock {
            return;
        }
        self.meets_job("forged order to a shepherd", job);
        let valid = if known { Ok(()) } else { is_valid(&credential, &credential.cluster, clock) };
        let mut believed = valid.and_then(|()| is_from_batch_host(&credential, &name)).map(|()| credential.clone());
        if self.has(Mutation::CredentialsAreNotLookedAt) {
            believed = Ok(credential);
        }
        let order = StartOrder { launch: launch.order, credential: believed };
        self.connections += 1;
        let input = AgentInput::StartShepherd { query: self.connections, order, manager: name.clone(), again: false };
        let mut out = Vec::new();
        self.machines[other].agent.handle(clock, input, &mut out);
        let begins = |effect: &AgentEffect| {
            matches!(
                effect,
                AgentEffect::Prepare { .. } | AgentEffect::NoteManager { .. } | AgentEffect::ToStepd { .. }
            )
        };
        if out.iter().any(begins) {
            let what = format!("{name} had a shepherd of run {sluid} of job {job} begun, or changed, on n{other}");
            self.broken = Some((SHEPHERD, what));
        }
    }

    /// What the owner of a job is about to hear that must not change it, or may be refused.
    pub(super) fn judge(&self, job: JobId, input: &JobInput) -> Option<Judged> {
        let record = self.jobs.get(&job)?.record();
        let what = match input {
            JobInput::Report { node, seq, .. } if is_forged(*seq) => {
                Heard::Forged { node: node.clone(), rule: if is_replayed(*seq) { REPEAT } else { FORGER } }
            }
            JobInput::Command { request, by, .. } if !by.admin => {
                let stranger = owner(&self.ledger, job).is_some_and(|owner| owner != by.uid);
                Heard::Request { request: *request, stranger }
            }
            _ => return None,
        };
        Some(Judged { what, before: Box::new(record.clone()) })
    }

    /// What a forger would say if it lied about its own; it does not.
    pub(super) fn is_its_own_to_tell(&self, job: JobId, input: &JobInput) -> Option<(String, u64)> {
        let JobInput::Report { node, seq, report } = input else { return None };
        // A tally is not saved before the run's end: after a restart of the controller it is news.
        let lie = !is_replayed(*seq) || matches!(**report, AgentReport::Steps { .. });
        let own =
            is_forged(*seq) && lie && self.jobs.get(&job).is_some_and(|core| has_a_say(core.record(), node, report));
        own.then(|| (node.clone(), *seq))
    }

    /// Was it as it has to be?
    pub(super) fn against_forgers(&mut self, job: JobId, judged: Judged, out: &[JobEffect]) {
        let Some(after) = self.jobs.get(&job).map(|core| core.record()) else { return };
        let same = *after == *judged.before;
        let broken = match judged.what {
            Heard::Forged { node, rule } => {
                let theirs = out.iter().find(|effect| !is_about(effect, &node));
                (!same || theirs.is_some()).then(|| (rule, format!("{node} changed job {job}: {theirs:?}")))
            }
            Heard::Request { request, stranger } => {
                let answer = out.iter().find_map(|effect| match effect {
                    JobEffect::Answer { request: of, answer: JobAnswer::Done(result) } if *of == request => {
                        Some(result)
                    }
                    _ => None,
                });
                match answer {
                    Some(Ok(())) if stranger => {
                        Some((STRANGER, format!("somebody else's request for job {job} is done")))
                    }
                    Some(Err(refusal)) if !same => {
                        Some((REFUSED, format!("{refusal:?} is said, and job {job} changed")))
                    }
                    _ => None,
                }
            }
        };
        self.broken = broken.or(self.broken.take());
    }
}

fn is_forged(seq: u64) -> bool {
    seq & NUMBER >= FORGED
}

pub(super) const fn is_replayed(seq: u64) -> bool {
    seq & NUMBER >= REPLAYED
}

fn owner(ledger: &Ledger, job: JobId) -> Option<u32> {
    ledger.jobs.get(&job).map(|note| note.owner)
}

/// Does the node take such a part in the run that the job goes by its word?
fn has_a_say(record: &JobRecord, node: &str, report: &AgentReport) -> bool {
    let nodes = record.phase.run().map(|run| &run.allocation.nodes);
    let has_part = || nodes.is_some_and(|nodes| nodes.iter().any(|one| one.name == node));
    let is_batch_host = || nodes.and_then(|nodes| nodes.first()).is_some_and(|first| first.name == node);
    match report {
        AgentReport::JobStarted { sluid, .. }
        | AgentReport::JobEnded { sluid, .. }
        | AgentReport::Steps { sluid, .. } => *sluid == record.sluid && is_batch_host(),
        AgentReport::JobLaunchFailed { sluid, .. } | AgentReport::RequeueSet { sluid, .. } => {
            *sluid == record.sluid && has_part()
        }
        // Of what it has, or may still have.
        AgentReport::NodeReleased { sluid, .. } => {
            (*sluid == record.sluid && has_part())
                || record.earlier.iter().any(|hold| hold.sluid == *sluid && hold.node.name == node)
                || record.unfenced.iter().any(|left| left.sluid == *sluid && left.node == node)
        }
    }
}

fn is_about(effect: &JobEffect, forger: &str) -> bool {
    match effect {
        JobEffect::Tell(Letter::Node(node, input)) => {
            let answers = matches!(
                input,
                NodeInput::ReportSafe { .. } | NodeInput::Release { .. } | NodeInput::Keep { .. } | NodeInput::Send(_)
            );
            answers && node == forger
        }
        // The same as before: its record is looked at.
        JobEffect::Publish(_) => true,
        _ => false,
    }
}
