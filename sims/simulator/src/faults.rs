//! Actions of users and administrators, and faults: submissions of many shapes, commands, broken links, dying processes.

use super::{
    machine::Machine,
    mix::{Fault, Shape},
    roster::machine_of,
    world::{Happening, Place, World},
};
use garrick_actors::{
    job::core::JobCore,
    messages::{
        job::{Authority, JobCommand, JobInput},
        node::NodeInput,
    },
    node::core::NodeCore,
};
use garrick_agent::RunKey;
use garrick_events::records::job::Phase;
use garrick_model::{
    gres::GresCount,
    ids::JobId,
    messages::command::{JobChange, NodeChange, NodeStateChange},
    resources::{MemoryMib, MemoryRequest},
    spec::{ArraySpec, Dependencies, Dependency, DependencyKind, JobKind, JobSpec, NodeCount, Sharing},
    state::{ExitStatus, NodeBase, NodeFlags},
    time::TimeLimit,
    view::{JobView, NodeView},
};
use garrick_plan::{
    plan::plan,
    policy::{partition_facts, policy},
    snapshot::facts::ClusterView,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

const ROOT: Authority = Authority { uid: 0, admin: true };

impl World {
    pub(super) fn some_spec(&mut self) -> JobSpec {
        let plain = serde_json::json!({"kind": "Batch", "name": "j", "work_dir": "/", "script": b"#!/bin/sh\n"});
        let mut spec: JobSpec = serde_json::from_value(plain).expect("all other fields of a job have defaults");
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
        self.some_shape(&mut spec);
        if self.random.one_in_thousand(self.mix.memory) {
            // Fewer CPUs than a node has fill it, and jobs that share CPUs do not share memory.
            spec.memory = MemoryRequest::PerCpu(MemoryMib(u64::from(self.random.between(250, 750))));
            let anywhere = spec.partitions.is_empty() && spec.constraint.is_none() && spec.nodelist.is_empty();
            if anywhere && self.random.one_in_thousand(500) {
                spec.partitions = vec!["turns".to_owned()];
            }
        }
        if self.random.one_in_thousand(self.mix.no_requeue) {
            spec.requeue = Some(false);
        }
        self.some_wishes(&mut spec);
        spec.expedite = spec.kind == JobKind::Batch && spec.requeue.is_none() && self.random.one_in_thousand(400);
        spec
    }

    /// How many tasks and nodes, where, when, and after what.
    fn some_shape(&mut self, spec: &mut JobSpec) {
        let most = self.setup().nodes.clamp(2, 64).div_ceil(2);
        match self.mix.shapes.pick(&mut self.random).unwrap_or(Shape::Plain) {
            Shape::Plain => {}
            Shape::Tasks => spec.tasks = Some(self.random.between(4, 24)),
            Shape::Nodes => {
                let min = self.random.between(2, most.min(6));
                (spec.nodes, spec.tasks) = (Some(NodeCount { min, max: None }), None);
            }
            Shape::NoKill => {
                spec.no_kill = true;
                (spec.nodes, spec.tasks) = (Some(NodeCount { min: 2, max: Some(most) }), None);
            }
            Shape::Exclusive => (spec.sharing, spec.tasks) = (Sharing::Exclusive, Some(1)),
            Shape::Whole => {
                spec.partitions = vec!["whole".to_owned()];
                spec.nodes = Some(NodeCount { min: 1, max: Some(2) });
            }
            Shape::User => spec.sharing = Sharing::User,
            Shape::Gang => spec.partitions = vec!["turns".to_owned()],
            Shape::Array => {
                let (last, limit) = (self.random.between(1, 12), self.random.between(0, 4));
                spec.array = Some(ArraySpec { ranges: vec![(0, last, 1)], limit: (limit > 0).then_some(limit) });
            }
            Shape::Dependent => spec.dependencies = self.some_dependency(),
            Shape::TaskByTask => self.depend_on_tasks(spec),
            Shape::Singleton => {
                spec.dependencies.list =
                    vec![Dependency { kind: DependencyKind::Singleton, job: None, array_index: None, failed: false }]
            }
            Shape::Threads => spec.cpus_per_task = Some(self.random.between(2, 4)),
            Shape::Feature => spec.constraint = Some("big".to_owned()),
            Shape::Later => {
                spec.begin = Some(self.clock().plus(Duration::from_secs(u64::from(self.random.between(1, 300)))));
            }
            Shape::Allocation => (spec.kind, spec.script) = (JobKind::Allocation, None),
            Shape::NoRequeue => spec.requeue = Some(false),
            Shape::Named => spec.nodelist = vec![format!("n{}", self.random.between(0, self.setup().nodes.max(2) - 1))],
        }
    }

    /// A partition, licenses, generic resources or a reservation.
    fn some_wishes(&mut self, spec: &mut JobSpec) {
        if spec.partitions.is_empty() {
            let (urgent, still) = (self.mix.urgent, self.mix.still);
            let other = match self.random.between(0, 999) {
                n if n < urgent => Some("urgent"),
                n if n < urgent + still => Some("still"),
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
        let pause = self.random.between(100, self.mix.pause_ms);
        self.after(u64::from(pause), Happening::Fault);
        let last = u32::try_from(self.machines.len() - 1).unwrap_or(0);
        let mut node = self.random.between(0, last) as usize;
        // Rather in the middle of something.
        if self.random.one_in_thousand(500) {
            let asked = self.asked_nodes();
            node = self.random.pick(&asked).copied().unwrap_or(node);
        }
        if let Some(fault) = self.mix.faults.pick(&mut self.random) {
            self.inflict(fault, node);
        }
    }

    /// On that node, where it is one that nodes have.
    fn inflict(&mut self, fault: Fault, mut node: usize) {
        if self.machines[node].off {
            node = 0;
        }
        match fault {
            Fault::Link => {
                self.meets_node("link broken", node);
                self.break_link(node);
            }
            Fault::Agent => self.restart_agent(node),
            Fault::Reboot => {
                self.meets_node("machine reboot", node);
                self.reboot(node);
                self.after(30_000, Happening::Connect(node));
            }
            Fault::Stepd => {
                if let Some((node, run)) = self.some_stepd() {
                    self.meets_job("stepd killed", run.job);
                    self.kill_stepd(node, run);
                }
            }
            Fault::StepMgrAmidLoss => self.take_over_amid_loss(),
            Fault::Drain => self.set_node(node, NodeStateChange::Drain),
            Fault::Down => self.set_node(node, NodeStateChange::Down),
            Fault::Controller => {
                if self.random.one_in_thousand(500) {
                    self.restart_controller();
                }
            }
            Fault::Cut => self.cut_some_from(node),
            Fault::Clock => {
                self.meets_all("clock step");
                self.clock_ahead_ms = self.some_step_of_clock();
                self.clock_stepped = self.now;
            }
            Fault::NodeClock => {
                self.meets_node("clock step of a node", node);
                self.machines[node].clock_ahead_ms = self.some_step_of_clock();
            }
            Fault::Hang => {
                if let Some((node, run)) = self.some_stepd() {
                    self.meets_job("stepd hangs", run.job);
                    self.hang_stepd(node, run);
                }
            }
            Fault::Disk => self.slow_down_disk(node),
            Fault::Cancel
            | Fault::CancelTasks
            | Fault::Requeue
            | Fault::Update
            | Fault::Hold
            | Fault::Release
            | Fault::Suspend
            | Fault::Resume => self.command_some_job(fault),
            Fault::Reservation => self.change_some_reservation(),
            Fault::Partition => self.change_some_partition(),
            Fault::Delete if self.random.one_in_thousand(400) => self.create_some_node(),
            Fault::Delete => self.delete_some_node(),
            Fault::Reconfigure => self.change_file(),
            Fault::Busy => self.busy(node),
            Fault::Wipe => {
                self.meets_node("machine set up anew", node);
                self.wipe(node);
                self.after(60_000, Happening::Connect(node));
            }
            Fault::Gone => self.lose_for_good(node),
        }
    }

    /// A user or an administrator changes his mind about a job.
    fn command_some_job(&mut self, fault: Fault) {
        match fault {
            Fault::Cancel => self.command_some("cancel", JobCommand::Cancel),
            Fault::CancelTasks => self.cancel_some_tasks(),
            Fault::Requeue => {
                let hold = self.random.one_in_thousand(250);
                self.command_some("requeue", JobCommand::Requeue { hold });
            }
            Fault::Update => {
                let requeue = Some(self.random.one_in_thousand(700));
                let change = Box::new(JobChange { requeue, ..JobChange::default() });
                self.command_some("update requeue", JobCommand::Update(change));
            }
            Fault::Hold => self.command_some("hold", JobCommand::Hold { admin: true }),
            Fault::Release => self.command_some("release", JobCommand::Release),
            Fault::Suspend => self.command_some("suspend", JobCommand::Suspend),
            Fault::Resume => self.command_some("resume", JobCommand::Resume),
            _ => {}
        }
    }

    fn cut_some_from(&mut self, node: usize) {
        // No more than half of them: where most are together they cannot know that the controller is elsewhere.
        let most = self.setup().nodes.clamp(2, 16) / 2;
        let (count, secs) = (self.random.between(1, most), self.random.between(5, 600));
        let cut: Vec<usize> = (node..self.machines.len()).take(count as usize).collect();
        cut.iter().for_each(|node| self.meets_node("network cut", *node));
        self.cut(&cut, secs);
    }

    fn lose_for_good(&mut self, node: usize) {
        let dead = self.machines.iter().filter(|machine| machine.dead).count();
        if dead < self.machines.len().div_ceil(8) && !self.machines[node].dead {
            self.meets_node("machine gone for good", node);
            for peer in self.peers_of(node) {
                if self.random.one_in_thousand(700) {
                    self.busy(peer);
                }
            }
            self.die(node);
        }
    }

    /// Seconds of writes that take long, and what is worst in the middle of them.
    fn slow_down_disk(&mut self, node: usize) {
        self.meets_all("slow disk");
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

    /// A step manager dies, one of its other nodes is lost or hangs while the next one asks around, and that dies as well.
    fn take_over_amid_loss(&mut self) {
        let wide = self.step_sides.iter().filter(|(_, step_side)| step_side.nodes.len() > 1 && !step_side.dead);
        let wide: Vec<(RunKey, Vec<usize>)> = wide.map(|(run, step_side)| (*run, step_side.nodes.clone())).collect();
        let Some((run, nodes)) = self.random.pick(&wide).cloned() else { return };
        self.meets_job("step manager killed amid a loss", run.job);
        let other = self.random.pick(&nodes[1..]).copied().unwrap_or(nodes[0]);
        match self.random.between(0, 4) {
            0 => self.reboot_later(other),
            1 => {
                self.hang_stepd(other, run);
            }
            2 => {
                self.kill_stepd(other, run);
            }
            3 => {
                let secs = self.random.between(5, 200);
                self.cut(&[other], secs);
            }
            _ => {}
        }
        self.kill_stepd(nodes[0], run);
        for _ in 0..self.random.between(0, 2) {
            let pause = self.random.between(500, 40_000);
            self.after(u64::from(pause), Happening::StepdDies(nodes[0], run));
        }
    }

    fn reboot_later(&mut self, node: usize) {
        let pause = self.random.between(0, 8_000);
        self.after(u64::from(pause), Happening::Reboots(node));
    }

    pub(super) fn reboots(&mut self, node: usize) {
        if self.machines[node].off {
            return;
        }
        self.reboot(node);
        self.after(30_000, Happening::Connect(node));
    }

    /// Seconds to an hour ahead or behind, in milliseconds.
    fn some_step_of_clock(&mut self) -> i64 {
        let secs = [5, 60, 600, 3_600];
        let most = self.random.pick(&secs).copied().unwrap_or(60);
        let ms = i64::from(self.random.between(1, most)) * 1_000;
        if self.random.one_in_thousand(500) { ms } else { -ms }
    }

    pub(super) fn restart_agent(&mut self, node: usize) {
        if self.machines[node].off {
            return;
        }
        self.meets_node("agent restart", node);
        self.begin_agent(node);
        self.after(2_000, Happening::Connect(node));
    }

    /// The controller's link to a node takes nothing for seconds or minutes.
    fn busy(&mut self, node: usize) {
        self.meets_node("link busy", node);
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
        self.meets_node(if state == NodeStateChange::Down { "node set down" } else { "node drained" }, node);
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
        self.send(Place::Frontend, Happening::Node(node, update));
    }

    fn command(&mut self, job: JobId, tasks: Option<Vec<(u32, u32, u32)>>, command: JobCommand) {
        self.command_as(ROOT, job, tasks, command);
    }

    pub(super) fn command_as(
        &mut self,
        by: Authority,
        job: JobId,
        tasks: Option<Vec<(u32, u32, u32)>>,
        command: JobCommand,
    ) {
        self.requests += 1;
        let request = self.requests;
        if let (None, JobCommand::Cancel, Some(core)) = (&tasks, &command, self.jobs.get(&job)) {
            self.cancels.insert(request, core.record().sluid);
        }
        let judged = match command {
            JobCommand::Update(change) => self.judged(by, job, *change),
            command => Ok(command),
        };
        let Ok(command) = judged else { return };
        let input = JobInput::Command { request, by, tasks, command };
        self.send(Place::Frontend, Happening::Job(job, input));
    }

    fn command_some(&mut self, name: &'static str, command: JobCommand) {
        let over = self.random.one_in_thousand(100);
        let jobs: Vec<JobId> =
            self.jobs.iter().filter(|(_, core)| over || !core.is_over()).map(|(id, _)| *id).collect();
        if let Some(&job) = self.random.pick(&jobs) {
            self.ledger.counts.add("command");
            self.meets_job(name, job);
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
        machine_of(batch_host).is_some_and(|node| self.hangs(node, run))
    }

    /// The jobs that wait for more than all machines could give that are not gone for good, if nobody else had anything of
    /// them: as the scheduler judges it. No machine goes any more when this is asked: one that fits will.
    fn never_fit(&mut self) -> BTreeSet<JobId> {
        let waiting = self.jobs.values().filter(|core| matches!(core.record().phase, Phase::Pending));
        let views = waiting.map(|core| Arc::new(core.view(self.clock())));
        let mut together: BTreeMap<JobId, Vec<Arc<JobView>>> = BTreeMap::new();
        for view in views.filter(|view| view.eligible) {
            let leader = view.spec.het.map_or(view.id, |(leader, _)| leader);
            if !self.fit.contains(&leader) {
                together.entry(leader).or_default().push(view);
            }
        }
        together.retain(|_, jobs| jobs.len() as u32 >= jobs[0].spec.het_size);
        let idle = self.idle_machines_that_are_left();
        let (fit, never): (Vec<_>, Vec<_>) = together.into_iter().partition(|(_, jobs)| self.would_start(jobs, &idle));
        self.fit.extend(fit.into_iter().map(|(leader, _)| leader));
        never.into_iter().flat_map(|(_, jobs)| jobs).map(|view| view.id).collect()
    }

    /// All nodes, idle; those that are gone for good are DOWN.
    fn idle_machines_that_are_left(&self) -> Vec<Arc<NodeView>> {
        let idle = |view: &Arc<NodeView>| {
            let machine = machine_of(&view.name).and_then(|node| self.machines.get(node));
            let gone = machine.is_none_or(|machine| machine.dead || machine.off);
            let base = if gone { NodeBase::Down } else { NodeBase::Up };
            Arc::new(NodeView { base, flags: NodeFlags::default(), holds: Vec::new(), ..(**view).clone() })
        };
        self.shown_nodes.values().map(idle).collect()
    }

    fn would_start(&self, jobs: &[Arc<JobView>], nodes: &[Arc<NodeView>]) -> bool {
        let facts = self.partitions.iter().map(|p| partition_facts(p, self.config.node_places())).collect();
        let mut view = ClusterView::new(policy(&self.config), jobs, nodes, facts);
        view.licenses.totals.clone_from(self.licenses.totals());
        !plan(&view, self.clock()).starts.is_empty()
    }

    /// After the faults: resumes nodes, releases jobs, continues stopped ones, and gives up on what can never start.
    pub(super) fn operate(&mut self) {
        self.after(60_000, Happening::Operator);
        let stands = |core: &NodeCore| core.saved().is_held_back() || core.saved().down.is_some();
        let stand: Vec<usize> = self.nodes.iter().filter(|(_, core)| stands(core)).map(|(node, _)| *node).collect();
        stand.into_iter().for_each(|node| self.resume_node(node));
        self.raise_partitions();
        let never = self.never_fit();
        let gone = |name: &String| {
            machine_of(name).is_none_or(|node| self.machines[node].dead || !self.nodes.contains_key(&node))
        };
        let asks_for = |core: &JobCore| core.record().spec.reservations.clone();
        let judge = |core: &JobCore| match &core.record().phase {
            Phase::Pending if core.record().spec.nodelist.iter().any(gone) => Some(JobCommand::Cancel),
            Phase::Pending if core.record().dependency_failed => Some(JobCommand::Cancel),
            // What runs there for all that is known will never be said to have ended.
            Phase::Pending if core.record().unfenced.iter().any(|left| gone(&left.node)) => Some(JobCommand::Cancel),
            Phase::Pending if never.contains(&core.record().id) => Some(JobCommand::Cancel),
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
