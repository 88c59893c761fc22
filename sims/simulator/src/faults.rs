//! What users, administrators and misfortune do: submissions of many shapes, commands, broken links, dying processes.

use super::{
    machine::Machine,
    world::{Happening, Place, World},
};
use garrick_actors::{
    job::{
        core::JobCore,
        messages::{Authority, JobCommand, JobInput},
        record::Phase,
    },
    node::messages::NodeInput,
    node_agent::RunKey,
};
use garrick_model::{
    gres::GresCount,
    ids::JobId,
    messages::command::{JobChange, NodeChange, NodeStateChange},
    resources::{MemoryMib, MemoryRequest, NodeShape},
    spec::{ArraySpec, Dependencies, Dependency, DependencyKind, JobKind, JobSpec, NodeCount, Sharing},
    state::ExitStatus,
    time::TimeLimit,
};
use std::time::Duration;

const ROOT: Authority = Authority { uid: 0, admin: true };

impl World {
    /// One submission, and the next one a little later.
    pub(super) fn submit_some(&mut self) {
        if self.submitted >= self.setup().jobs {
            self.submitting = false;
            return;
        }
        let uid = self.random.between(1001, 1004);
        let answer = if self.random.one_in_thousand(60) {
            let components = self.some_components();
            self.submit_components(uid, components)
        } else {
            let spec = self.some_spec();
            self.submit(uid, spec)
        };
        match answer {
            Ok(_) => self.submitted += 1,
            Err(refusal) => self.tell(&format!("  refused: {refusal:?}")),
        }
        let pause = self.random.between(100, 6_000);
        self.after(u64::from(pause), Happening::Submit);
    }

    fn some_spec(&mut self) -> JobSpec {
        let plain = serde_json::json!({"kind": "Batch", "name": "j", "work_dir": "/", "script": b"#!/bin/sh\n"});
        let mut spec: JobSpec = serde_json::from_value(plain).expect("all other fields of a job have defaults");
        let most = self.setup().nodes.clamp(2, 64).div_ceil(2);
        spec.name = format!("name{}", self.random.between(0, 5));
        spec.tasks = Some(self.random.between(1, 3));
        spec.memory = match self.random.between(0, 3) {
            0 => MemoryRequest::PerNode(MemoryMib(u64::from(self.random.between(100, 1_500)))),
            1 => MemoryRequest::PerCpu(MemoryMib(u64::from(self.random.between(50, 200)))),
            _ => MemoryRequest::Default,
        };
        // Runs take up to five minutes.
        let minutes = if self.random.one_in_thousand(150) { (1, 3) } else { (5, 120) };
        spec.time_limit = Some(TimeLimit::Secs(u64::from(self.random.between(minutes.0, minutes.1)) * 60));
        match self.random.between(0, 21) {
            0..=2 => spec.tasks = Some(self.random.between(4, 24)),
            3..=5 => {
                let min = self.random.between(2, most.min(6));
                (spec.nodes, spec.tasks) = (Some(NodeCount { min, max: None }), None);
            }
            6 => (spec.sharing, spec.tasks) = (Sharing::Exclusive, Some(1)),
            7 => {
                spec.partitions = vec!["whole".to_owned()];
                spec.nodes = Some(NodeCount { min: 1, max: Some(2) });
            }
            8 => spec.sharing = Sharing::User,
            9 | 10 => {
                let (last, limit) = (self.random.between(1, 12), self.random.between(0, 4));
                spec.array = Some(ArraySpec { ranges: vec![(0, last, 1)], limit: (limit > 0).then_some(limit) });
            }
            11 | 12 => spec.dependencies = self.some_dependency(),
            19 => self.depend_on_tasks(&mut spec),
            13 => spec.cpus_per_task = Some(self.random.between(2, 4)),
            14 => spec.constraint = Some("big".to_owned()),
            15 => spec.begin = Some(self.now().plus(Duration::from_secs(u64::from(self.random.between(1, 300))))),
            16 => (spec.kind, spec.script) = (JobKind::Allocation, None),
            17 => spec.requeue = Some(false),
            18 => spec.nodelist = vec![format!("n{}", self.random.between(0, self.setup().nodes.max(2) - 1))],
            20 => {
                spec.dependencies.list =
                    vec![Dependency { kind: DependencyKind::Singleton, job: None, array_index: None, failed: false }]
            }
            _ => {
                spec.no_kill = true;
                (spec.nodes, spec.tasks) = (Some(NodeCount { min: 2, max: Some(most) }), None);
            }
        }
        if spec.partitions.is_empty() {
            let other = match self.random.between(0, 99) {
                0..=6 => Some("urgent"),
                7..=21 => Some("still"),
                _ => None,
            };
            spec.partitions.extend(other.map(str::to_owned));
        }
        if self.random.one_in_thousand(120) {
            let wanted = ["solver:1", "solver:2", "solver:4,viewer:1", "viewer:2"];
            spec.licenses = self.random.pick(&wanted).map(|text| (*text).to_owned());
        }
        if self.random.one_in_thousand(150) {
            let (name, kind, most) = match self.random.between(0, 3) {
                0 => ("gpu", None, 4),
                1 => ("gpu", Some("old"), 2),
                2 => ("gpu", Some("new"), 2),
                _ => ("probe", None, 2),
            };
            let count = u64::from(self.random.between(1, most));
            spec.gres.per_node = vec![GresCount { name: name.to_owned(), kind: kind.map(str::to_owned), count }];
        }
        if spec.array.is_none() && self.random.one_in_thousand(80) {
            spec.reservations = vec![format!("r{}", self.random.between(0, 7))];
        }
        spec.expedite = spec.kind == JobKind::Batch && spec.requeue.is_none() && self.random.one_in_thousand(400);
        spec
    }

    /// An array whose tasks wait for those of another.
    fn depend_on_tasks(&mut self, spec: &mut JobSpec) {
        let arrays = self.jobs.values().filter(|core| core.record().is_array_record());
        let arrays: Vec<JobId> = arrays.map(|core| core.record().id).collect();
        let job = self.random.pick(&arrays).copied();
        let last = self.random.between(1, 6);
        spec.array = Some(ArraySpec { ranges: vec![(0, last, 1)], limit: None });
        let condition =
            |job| Dependency { kind: DependencyKind::AfterCorr, job: Some(job), array_index: None, failed: false };
        spec.dependencies.list = job.map(condition).into_iter().collect();
    }

    pub(super) fn some_dependency(&mut self) -> Dependencies {
        let kinds = [
            DependencyKind::AfterAny,
            DependencyKind::AfterOk,
            DependencyKind::AfterNotOk,
            DependencyKind::After { minutes: 1 },
            DependencyKind::Singleton,
            DependencyKind::AfterCorr,
        ];
        let jobs: Vec<JobId> = self.jobs.keys().rev().take(30).copied().collect();
        let kind = self.random.pick(&kinds).copied().unwrap_or(DependencyKind::Singleton);
        let job = self.random.pick(&jobs).copied().filter(|_| kind != DependencyKind::Singleton);
        let kind = if job.is_none() { DependencyKind::Singleton } else { kind };
        Dependencies { any: false, list: vec![Dependency { kind, job, array_index: None, failed: false }] }
    }

    /// Something goes wrong, or somebody decides something.
    pub(super) fn fault(&mut self) {
        if self.is_calm() {
            return;
        }
        let pause = self.random.between(100, 3_000);
        self.after(u64::from(pause), Happening::Fault);
        let last = u32::try_from(self.machines.len() - 1).unwrap_or(0);
        let mut node = self.random.between(0, last) as usize;
        // Rather in the middle of something.
        if self.random.one_in_thousand(500) {
            let asked = self.asked_nodes();
            node = self.random.pick(&asked).copied().unwrap_or(node);
        }
        match self.random.between(0, 42) {
            0..=4 => {
                self.ledger.counts.add("link broken");
                self.break_link(node);
            }
            5 | 6 => self.restart_agent(node),
            7 => {
                self.ledger.counts.add("machine reboot");
                self.reboot(node);
                self.after(30_000, Happening::Connect(node));
            }
            8..=10 => {
                if let Some((node, run)) = self.some_stepd() {
                    self.ledger.counts.add("stepd killed");
                    self.kill_stepd(node, run);
                }
            }
            11 | 12 => self.set_node(node, NodeStateChange::Drain),
            13 => self.set_node(node, NodeStateChange::Down),
            14 => {
                if self.random.one_in_thousand(250) {
                    self.restart_controller();
                }
            }
            36 => {
                self.ledger.counts.add("partition");
                // No more than half of them: where most are together they cannot know that the controller is elsewhere.
                let most = self.setup().nodes.clamp(2, 16) / 2;
                let (count, secs) = (self.random.between(1, most), self.random.between(5, 600));
                let cut: Vec<usize> = (node..self.machines.len()).take(count as usize).collect();
                self.cut(&cut, secs);
            }
            37 => {
                self.ledger.counts.add("clock step");
                self.clock_ahead_ms = self.some_step_of_clock();
                self.clock_stepped = self.now;
            }
            38 => {
                self.ledger.counts.add("clock step");
                self.machines[node].clock_ahead_ms = self.some_step_of_clock();
            }
            35 => {
                if let Some((node, run)) = self.some_stepd() {
                    self.ledger.counts.add("stepd hangs");
                    self.hang_stepd(node, run);
                }
            }
            34 => {
                self.ledger.counts.add("slow disk");
                let ms = u64::from(self.random.between(2_000, 30_000));
                self.slow_until = self.now.plus(Duration::from_millis(ms));
                if self.random.one_in_thousand(500) {
                    // What is to be said to its agent waits behind the drain.
                    self.set_node(node, NodeStateChange::Drain);
                    let pause = self.random.between(0, 2_000);
                    self.after(u64::from(pause), Happening::AgentDies(node));
                }
                if self.random.one_in_thousand(400) {
                    let into = self.random.between(0, 100);
                    self.after(ms * u64::from(into) / 100, Happening::Crash);
                }
            }
            15..=19 => self.command_some(JobCommand::Cancel),
            20..=23 => {
                let hold = self.random.one_in_thousand(250);
                self.command_some(JobCommand::Requeue { hold });
            }
            41 | 42 => {
                let requeue = Some(self.random.one_in_thousand(700));
                self.command_some(JobCommand::Update(Box::new(JobChange { requeue, ..JobChange::default() })));
            }
            24 | 25 => self.command_some(JobCommand::Hold { admin: true }),
            26 | 27 => self.command_some(JobCommand::Release),
            28 => self.command_some(JobCommand::Suspend),
            29 => self.command_some(JobCommand::Resume),
            30 | 31 => self.cancel_some_tasks(),
            32 => {
                self.busy(node);
            }
            33 => {
                self.ledger.counts.add("machine set up anew");
                self.wipe(node);
                self.after(60_000, Happening::Connect(node));
            }
            _ => {
                let dead = self.machines.iter().filter(|machine| machine.dead).count();
                if dead < self.machines.len().div_ceil(8) && !self.machines[node].dead {
                    self.ledger.counts.add("machine gone for good");
                    for peer in self.peers_of(node) {
                        if self.random.one_in_thousand(700) {
                            self.busy(peer);
                        }
                    }
                    self.die(node);
                }
            }
        }
    }

    /// Seconds to an hour ahead or behind, in milliseconds.
    fn some_step_of_clock(&mut self) -> i64 {
        let secs = [5, 60, 600, 3_600];
        let most = self.random.pick(&secs).copied().unwrap_or(60);
        let ms = i64::from(self.random.between(1, most)) * 1_000;
        if self.random.one_in_thousand(500) { ms } else { -ms }
    }

    pub(super) fn restart_agent(&mut self, node: usize) {
        self.ledger.counts.add("agent restart");
        self.begin_agent(node);
        self.after(2_000, Happening::Connect(node));
    }

    /// The controller's link to a node takes nothing for seconds or minutes.
    fn busy(&mut self, node: usize) {
        self.ledger.counts.add("link busy");
        let secs = u64::from(self.random.between(1, 400));
        self.machines[node].busy_until = self.now.plus(Duration::from_secs(secs));
    }

    fn some_stepd(&mut self) -> Option<(usize, RunKey)> {
        let living = |(node, machine): (usize, &Machine)| {
            machine.living().into_iter().map(|run| (node, run)).collect::<Vec<_>>()
        };
        let all: Vec<(usize, RunKey)> = self.machines.iter().enumerate().flat_map(living).collect();
        self.random.pick(&all).copied()
    }

    /// Drained or set down, and resumed some minutes later.
    fn set_node(&mut self, node: usize, state: NodeStateChange) {
        self.ledger.counts.add(if state == NodeStateChange::Down { "node set down" } else { "node drained" });
        if state == NodeStateChange::Down {
            self.machines[node].set_down = Some(self.now);
        }
        self.update_node(node, state);
        let pause = self.random.between(30_000, 240_000);
        self.after(u64::from(pause), Happening::Resume(node));
    }

    pub(super) fn resume_node(&mut self, node: usize) {
        self.update_node(node, NodeStateChange::Resume);
    }

    fn update_node(&mut self, node: usize, state: NodeStateChange) {
        let change = NodeChange { state: Some(state), reason: Some("made up".to_owned()), ..NodeChange::default() };
        let update = NodeInput::Update { request: 0, by: (0, "root".to_owned()), change };
        self.send(Place::Front, Happening::Node(node, update));
    }

    fn command(&mut self, job: JobId, tasks: Option<Vec<(u32, u32, u32)>>, command: JobCommand) {
        self.requests += 1;
        let request = self.requests;
        if let (None, JobCommand::Cancel, Some(core)) = (&tasks, &command, self.jobs.get(&job)) {
            self.cancels.insert(request, core.record().sluid);
        }
        let input = JobInput::Command { request, by: ROOT, tasks, command };
        self.send(Place::Front, Happening::Job(job, input));
    }

    fn command_some(&mut self, command: JobCommand) {
        let over = self.random.one_in_thousand(100);
        let jobs: Vec<JobId> =
            self.jobs.iter().filter(|(_, core)| over || !core.is_over()).map(|(id, _)| *id).collect();
        if let Some(&job) = self.random.pick(&jobs) {
            self.ledger.counts.add("command");
            self.command(job, None, command);
        }
    }

    fn cancel_some_tasks(&mut self) {
        let arrays = self.jobs.values().filter(|core| core.record().is_array_record());
        let arrays: Vec<JobId> = arrays.map(|core| core.record().id).collect();
        if let Some(&job) = self.random.pick(&arrays) {
            let first = self.random.between(0, 6);
            self.command(job, Some(vec![(first, first + 1, 1)]), JobCommand::Cancel);
        }
    }

    pub(super) fn finish_allocation(&mut self, run: RunKey) {
        self.command(run.job, None, JobCommand::FinishAllocation { exit: ExitStatus::SUCCESS });
    }

    fn hangs_at(&self, core: &JobCore, batch_host: &str) -> bool {
        let run = RunKey { job: core.record().id, sluid: core.record().sluid };
        self.config.node(batch_host).is_some_and(|node| self.hangs(node.index.0 as usize, run))
    }

    /// It asks for generic resources on more nodes than have them and are not gone for good.
    fn too_few_are_left_for(&self, spec: &JobSpec) -> bool {
        let asked = &spec.gres.per_node;
        let has = |shape: &NodeShape, one: &GresCount| {
            let of = shape.gres.iter().filter(|e| e.name == one.name && (one.kind.is_none() || e.kind == one.kind));
            of.map(|entry| entry.count).sum::<u64>() >= one.count
        };
        let left = self.machines.iter().filter(|machine| !machine.dead);
        let fit = left.filter(|machine| asked.iter().all(|one| has(&machine.facts.shape, one))).count();
        !asked.is_empty() && fit < spec.nodes.as_ref().map_or(1, |nodes| nodes.min as usize)
    }

    /// After the faults: resumes nodes, releases jobs, continues stopped ones, and gives up on what can never start.
    pub(super) fn operate(&mut self) {
        self.after(60_000, Happening::Operator);
        for node in 0..self.nodes.len() {
            let saved = self.nodes[node].saved();
            if saved.drain || saved.down.is_some() {
                self.resume_node(node);
            }
        }
        let gone = |name: &String| self.config.node(name).is_some_and(|n| self.machines[n.index.0 as usize].dead);
        let asks_for = |core: &JobCore| core.record().spec.reservations.clone();
        let judge = |core: &JobCore| match &core.record().phase {
            Phase::Pending if core.record().spec.nodelist.iter().any(gone) => Some(JobCommand::Cancel),
            Phase::Pending if core.record().dependency_failed => Some(JobCommand::Cancel),
            // What runs there for all that is known will never be said to have ended.
            Phase::Pending if core.record().unfenced.iter().any(|left| gone(&left.node)) => Some(JobCommand::Cancel),
            Phase::Pending if self.too_few_are_left_for(&core.record().spec) => Some(JobCommand::Cancel),
            Phase::Pending if !asks_for(core).is_empty() && !self.may_be_waited_for(&asks_for(core)) => {
                Some(JobCommand::Cancel)
            }
            Phase::Pending => core.record().hold.map(|_| JobCommand::Release),
            // One that stands still for another goes on by itself.
            Phase::Suspended(run) => {
                run.suspended.as_ref().is_some_and(|stands| stands.by_admin).then_some(JobCommand::Resume)
            }
            // Seen to do nothing; its time limit is for its step manager to keep, which is what hangs.
            Phase::Running(run) | Phase::Starting(run) if self.hangs_at(core, run.batch_host()) => {
                Some(JobCommand::Cancel)
            }
            _ => None,
        };
        let decided: Vec<(JobId, JobCommand)> =
            self.jobs.iter().filter_map(|(id, core)| Some((*id, judge(core)?))).collect();
        for (job, command) in decided {
            let job = if command == JobCommand::Cancel { self.whole_for(job) } else { job };
            self.command(job, None, command);
        }
    }
}
