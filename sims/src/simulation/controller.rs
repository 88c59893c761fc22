//! The controller around its cores: what its shells do with effects, done to the queue of events instead.

use super::world::{Happening, Place, World};
use garrick_actors::{
    controller::{
        admission::{Identity, Rules, Submitter},
        event::{ControllerEvent, Replayed},
        ports::User,
        setup,
    },
    job::{
        core::{JobCore, Leftover},
        messages::{JobEffect, JobInput},
        record::{JobRecord, RecordHold},
        state::JobEvent,
    },
    node::{
        core::NodeCore,
        messages::{KeptHold, NodeEffect, NodeInput, NodeNotice, NodeSite, ReturnToService},
    },
    scheduler::{
        facts::ClusterView,
        plan::plan,
        request::NodeUse,
        shell::{partition_facts, policy},
    },
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::{
        command::Caller,
        node::{AgentReport, ControllerToNode, JobCredential, JobLaunch, SignedCredential},
    },
    refusal::Refusal,
    spec::JobSpec,
    time::Timestamp,
    view::NodeHold,
};
use std::{sync::Arc, time::Duration};

/// The scheduler's memory between two passes.
#[derive(Clone, Debug, Default)]
pub(super) struct Passes {
    number: u64,
    outstanding: usize,
    last: Timestamp,
    changed: bool,
}

impl World {
    /// Starts (again) from what was replayed.
    pub(super) fn start_controller(&mut self, replayed: Replayed) {
        self.epoch = replayed.epoch + 1;
        self.ids.resume(replayed.last_job, replayed.last_sluid, replayed.submissions);
        self.scheduler.outstanding = 0;
        self.shown_jobs.clear();
        self.jobs.clear();
        self.nodes.clear();
        let site = Arc::new(NodeSite {
            silence: Some(Duration::from_secs(u64::from(self.config.slurmd_timeout_secs))),
            return_to_service: ReturnToService::IfSilent,
            epoch: self.epoch,
            ..NodeSite::default()
        });
        for node in 0..self.config.nodes.len() {
            let settings = setup::node_settings(&self.config.nodes[node]);
            let holds: Vec<KeptHold> = replayed.jobs.values().flat_map(|r| self.kept(r, &settings.name)).collect();
            let saved = replayed.nodes.get(&settings.name).cloned();
            self.nodes.push(NodeCore::new(self.now, settings, Arc::clone(&site), saved, holds));
            let mut out = Vec::new();
            self.nodes[node].resume(self.now, &mut out);
            self.node_effects(node, out);
        }
        self.record(ControllerEvent::Started { epoch: self.epoch });
        for record in replayed.jobs.into_values() {
            self.start_job(record);
        }
    }

    /// The controller dies and starts again from its journal, which is compacted now and then.
    pub(super) fn restart_controller(&mut self) {
        self.ledger.counts.add("controller restart");
        self.lose_controller_messages();
        for node in 0..self.machines.len() {
            self.break_link(node);
        }
        // The links broke with the controller: its next life does not hear of it.
        self.lose_controller_messages();
        let mut replayed = Replayed::default();
        for event in &self.journal {
            if let Err(error) = replayed.apply(event) {
                let line = format!("  replay: {error}");
                self.tell(&line);
                break;
            }
        }
        if self.random.one_in_thousand(500) {
            self.journal = replayed.clone().into_events();
        }
        self.touched.jobs.extend(self.ledger.jobs.keys());
        self.touched.nodes.extend(0..self.machines.len());
        self.start_controller(replayed);
    }

    fn kept(&self, record: &JobRecord, node: &str) -> Vec<KeptHold> {
        let holds = record.holds();
        let here = holds.iter().filter(|held| held.node.name == node);
        let hold = |held: &RecordHold<'_>| {
            let partition = self.partitions.iter().find(|p| p.config.name == held.partition)?;
            let facts = partition_facts(partition, self.config.nodes.len());
            let usage = if held.exclusive {
                NodeUse::Whole
            } else {
                NodeUse::of(record.spec.sharing, &facts, policy(&self.config).unit)
            };
            let hold = NodeHold {
                job: record.id,
                sluid: held.sluid,
                uid: record.owner.uid,
                share: held.node.share.clone(),
                sharing: usage.sharing(),
                expected_end: held.expected_end,
                completing: held.completing,
                kept: held.kept,
            };
            Some(KeptHold { hold, most_holders: usage.most_holders() })
        };
        here.filter_map(hold).collect()
    }

    /// Submits through the same rules as the controller's front.
    pub(super) fn submit(&mut self, uid: u32, spec: JobSpec) -> Result<JobId, Refusal> {
        let name = format!("user{uid}");
        let user = User { uid, name: name.clone(), gid: uid, groups: vec![(uid, name.clone())] };
        let caller = Caller { uid, gid: uid, pid: 1, host: "login".to_owned() };
        let submitter = Submitter { caller: &caller, user: Some(user), group: Some(name), admin: false };
        let jobs = &self.jobs;
        let known_job = |job: JobId| jobs.contains_key(&job).then(Vec::new);
        let mut rules = Rules {
            config: &self.config,
            partitions: &self.partitions,
            feasibility: &mut self.feasibility,
            known_job: &known_job,
            now: self.now,
        };
        let submissions = u64::from(self.submitted);
        let identity = Identity { job: self.ids.peek(), sluid: Sluid(0), request: None, submissions };
        let mut record = rules.admit(&submitter, spec, identity)?.record;
        (record.id, record.sluid) = (self.ids.job(), self.ids.sluid(self.now));
        let job = record.id;
        self.record(submitted(&record));
        self.start_job(record);
        Ok(job)
    }

    fn start_job(&mut self, record: JobRecord) {
        let job = record.id;
        let site = Arc::new(setup::job_site(&self.config, self.epoch));
        let mut core = JobCore::new(record, site);
        let mut out = Vec::new();
        core.resume(self.now, &mut self.ids, Leftover::default(), &mut out);
        self.touched.jobs.insert(job);
        self.jobs.insert(job, core);
        self.job_effects(job, out);
    }

    pub(super) fn tell_job(&mut self, job: JobId, input: JobInput) {
        self.touched.jobs.insert(job);
        let Some(core) = self.jobs.get_mut(&job) else { return self.bounce(job, input) };
        let mut out = Vec::new();
        core.handle(self.now, &mut self.ids, input, &mut out);
        self.job_effects(job, out);
    }

    /// What the supervisor of jobs does for a job that is gone.
    fn bounce(&mut self, job: JobId, input: JobInput) {
        let release = |sluid| NodeInput::Release { job, sluid, attempt: None, drain: None };
        match input {
            JobInput::Report { node, seq, report } => {
                if let AgentReport::NodeReleased { sluid, .. } = *report {
                    self.to_node(job, &node, release(sluid));
                }
                self.to_node(job, &node, NodeInput::ReportSafe { seq });
            }
            JobInput::RunHeld { node, sluid }
            | JobInput::RunMissing { node, sluid }
            | JobInput::NodeLost { node, sluid } => self.to_node(job, &node, release(sluid)),
            JobInput::Start(proposal) => self.answered(proposal.pass),
            JobInput::Subscribe { by } => {
                self.send(Place::Job(job), Happening::Job(by, JobInput::Fact { job, fact: None }));
            }
            _ => {}
        }
    }

    fn to_node(&mut self, job: JobId, node: &str, input: NodeInput) {
        if let Some(config) = self.config.node(node) {
            let index = config.index.0 as usize;
            self.send(Place::Job(job), Happening::Node(index, input));
        }
    }

    fn job_effects(&mut self, job: JobId, out: Vec<JobEffect>) {
        let from = Place::Job(job);
        // Saved together, before anything leaves: a task and the event that splits it off are in one batch.
        for effect in &out {
            match effect {
                JobEffect::Record(event) => self.record(ControllerEvent::Job { job, event: Box::new(event.clone()) }),
                JobEffect::Split { record, .. } => self.record(submitted(record)),
                _ => {}
            }
        }
        for effect in out {
            match effect {
                JobEffect::Record(_)
                | JobEffect::Answer { .. }
                | JobEffect::Reached { .. }
                | JobEffect::ShowSteps(_) => {}
                JobEffect::Split { record, then } => {
                    let task = record.id;
                    self.start_job(*record);
                    if let Some(then) = then {
                        self.send(from, Happening::Job(task, *then));
                    }
                }
                JobEffect::Publish(view) => {
                    self.shown_jobs.insert(job, view);
                    self.scheduler.changed = true;
                }
                JobEffect::Reserve { node, ask } => self.to_node(job, &node, NodeInput::Reserve(ask)),
                JobEffect::Release { node, sluid, attempt, drain } => {
                    self.to_node(job, &node, NodeInput::Release { job, sluid, attempt, drain });
                }
                JobEffect::Keep { node, sluid } => {
                    self.to_node(job, &node, NodeInput::Keep { job, sluid });
                }
                JobEffect::MarkCompleting { node, sluid } => {
                    self.to_node(job, &node, NodeInput::Completing { job, sluid });
                }
                JobEffect::MoveEnd { node, sluid, expected_end } => {
                    self.to_node(job, &node, NodeInput::MoveEnd { job, sluid, expected_end });
                }
                JobEffect::Launch(order) => {
                    let launch = JobLaunch {
                        credential: signed(&order.credential),
                        spec: order.spec,
                        time_limit: order.time_limit,
                        start_time: order.start_time,
                        restarts: order.restarts,
                        tasks: order.tasks,
                        cpus_per_task: order.cpus_per_task,
                        array: order.array,
                    };
                    let frame = ControllerToNode::StartJob(Box::new(launch));
                    self.to_node(job, &order.node, NodeInput::Send(Box::new(frame)));
                }
                JobEffect::ToAgent { node, frame } => self.to_node(job, &node, NodeInput::Send(frame)),
                JobEffect::AckReport { node, seq } => self.to_node(job, &node, NodeInput::ReportSafe { seq }),
                JobEffect::Outcome { pass, .. } => self.answered(pass),
                JobEffect::SubscribeTo { job: on } => {
                    self.send(from, Happening::Job(on, JobInput::Subscribe { by: job }));
                }
                JobEffect::Tell { to, fact } => {
                    self.send(from, Happening::Job(to, JobInput::Fact { job, fact: Some(fact) }));
                }
                JobEffect::FindSiblings { name, uid } => {
                    let earlier = self.jobs.values().filter(|core| core.record().id < job && !core.is_over());
                    let same = earlier.filter(|c| c.record().spec.name == name && c.record().owner.uid == uid);
                    let jobs = same.map(|core| core.record().id).collect();
                    self.send(from, Happening::Job(job, JobInput::Siblings { jobs }));
                }
                JobEffect::SetTimer { timer, at } => self.set_timer(at, Happening::JobTimer(job, timer)),
                JobEffect::ClearTimer(timer) => self.clear_timer(&Happening::JobTimer(job, timer)),
                JobEffect::Purge => {
                    self.jobs.remove(&job);
                    self.shown_jobs.remove(&job);
                }
            }
        }
    }

    pub(super) fn tell_node(&mut self, node: usize, input: NodeInput) {
        self.touched.nodes.insert(node);
        let before = (self.nodes[node].saved().drain, self.nodes[node].kept());
        let mut out = Vec::new();
        self.nodes[node].handle(self.now, input, &mut out);
        self.held_at_drain[node] = match (self.nodes[node].saved().drain, self.held_at_drain[node].take()) {
            (false, _) => None,
            (true, Some(held)) => Some(held),
            (true, None) => Some(before.1.iter().map(|k| (k.hold.job, k.hold.sluid)).collect()),
        };
        self.node_effects(node, out);
    }

    fn node_effects(&mut self, node: usize, out: Vec<NodeEffect>) {
        let name = self.config.nodes[node].name.clone();
        for effect in out {
            match effect {
                NodeEffect::Record(saved) => {
                    self.record(ControllerEvent::Node { node: name.clone(), saved: Box::new(saved) });
                }
                NodeEffect::Publish(view) => {
                    self.shown_nodes[node] = view;
                    self.scheduler.changed = true;
                }
                NodeEffect::ToJob { job, notice } => {
                    let node_name = name.clone();
                    let input = match notice {
                        NodeNotice::Reserved { attempt, result } => {
                            JobInput::Reserved { attempt, node: node_name, result }
                        }
                        NodeNotice::RunHeld { sluid } => JobInput::RunHeld { node: node_name, sluid },
                        NodeNotice::RunMissing { sluid } => JobInput::RunMissing { node: node_name, sluid },
                        NodeNotice::NodeLost { sluid } => JobInput::NodeLost { node: node_name, sluid },
                        NodeNotice::Report { seq, report } => JobInput::Report { node: node_name, seq, report },
                    };
                    self.send(Place::Node(node), Happening::Job(job, input));
                }
                NodeEffect::ToAgent(frame) => {
                    if let Some(conn) = self.machines[node].link {
                        self.send(Place::Node(node), Happening::Frame(node, conn, *frame));
                    }
                }
                NodeEffect::CloseLink => self.break_link(node),
                NodeEffect::SetTimer { timer, at } => self.set_timer(at, Happening::NodeTimer(node, timer)),
                NodeEffect::Answer { .. } => {}
            }
        }
    }

    fn answered(&mut self, pass: u64) {
        if pass == self.scheduler.number {
            self.scheduler.outstanding = self.scheduler.outstanding.saturating_sub(1);
        }
    }

    /// A pass when something changed and the last one's proposals are answered, or not for too long.
    pub(super) fn pass(&mut self) {
        self.after(1_000, Happening::Pass);
        let since = self.now.since(self.scheduler.last);
        let waits = self.scheduler.outstanding > 0 && since < Duration::from_secs(5);
        if waits || !(self.scheduler.changed || since >= Duration::from_secs(30)) {
            return;
        }
        let jobs: Vec<_> = self.shown_jobs.values().cloned().collect();
        let facts = self.partitions.iter().map(|p| partition_facts(p, self.shown_nodes.len())).collect();
        let view = ClusterView::new(policy(&self.config), &jobs, &self.shown_nodes, facts);
        let made = plan(&view, self.now);
        let number = self.scheduler.number + 1;
        self.scheduler = Passes { number, outstanding: made.starts.len(), last: self.now, changed: false };
        for mut start in made.starts {
            start.pass = number;
            self.send(Place::Scheduler, Happening::Job(start.job, JobInput::Start(Box::new(start))));
        }
        for (job, reason) in made.reasons {
            if self.shown_jobs.get(&job).is_none_or(|view| view.reason != reason) {
                self.send(Place::Scheduler, Happening::Job(job, JobInput::Considered { reason, expected: None }));
            }
        }
    }
}

fn submitted(record: &JobRecord) -> ControllerEvent {
    ControllerEvent::Job { job: record.id, event: Box::new(JobEvent::Submitted(Box::new(record.clone()))) }
}

/// The simulated machines believe what they read: nobody here forges.
fn signed(credential: &JobCredential) -> SignedCredential {
    let payload = serde_json::to_vec(credential).expect("a credential has only string keys and plain numbers");
    SignedCredential { payload: payload.into(), signature: Vec::new().into(), key_id: String::new() }
}
