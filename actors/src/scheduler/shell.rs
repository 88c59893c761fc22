//! The scheduler's actor: reads the boards for its [core](super::core), and does what that decides.

pub use super::picture::partition_facts;
use super::{
    bounds::Bounds,
    core::{Meanwhile, Picture, SchedulerCore, SchedulerEffect, SchedulerInput, Seen},
    facts::{AllocationUnit, Backfill, ClusterView, Policy},
    picture::{self, People, Shown},
    preempt::PreemptRules,
};
use crate::{
    controller::{env::Env, ports::ReplySink},
    topology::Topologies,
};
use garrick_model::{
    config::{Config, McsSelect, SelectUnit},
    ids::JobId,
    messages::command::CommandReply,
    spec::CpuOrder,
    time::{Timestamp, system_zone},
    view::JobView,
};
use garrick_runtime::{Actor, Context, Message};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Default of `sched_interval`, as in Slurm's slurm.conf(5).
const SCHED_INTERVAL: Duration = Duration::from_secs(60);

/// Default of `bf_resolution`, as in Slurm's slurm.conf(5).
const BF_RESOLUTION: Duration = Duration::from_secs(60);

/// How long a job waits at most while shorter ones are tried before it, unless `bf_patience` (minutes) says otherwise.
const BF_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Messages of the scheduler.
pub enum SchedulerMsg {
    /// For the core.
    Input(SchedulerInput),
    /// From the front: somebody asks what keeps a job waiting. The answer comes between passes.
    Explain {
        /// Job.
        job: JobId,
        /// Who asks.
        replies: Box<dyn ReplySink>,
    },
}

impl Message for SchedulerMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Input(input) => input.name(),
            Self::Explain { .. } => "Explain",
        }
    }
}

impl From<SchedulerInput> for SchedulerMsg {
    fn from(input: SchedulerInput) -> Self {
        Self::Input(input)
    }
}

/// The scheduler, at `/scheduler`.
pub struct SchedulerActor {
    env: Arc<Env>,
    core: SchedulerCore,
    began: Instant,
}

/// The boards by now, and the machine's clock.
struct Live<'a>(&'a Env, Instant);

impl Meanwhile for Live<'_> {
    fn job(&self, job: JobId) -> Option<Arc<JobView>> {
        self.0.boards.jobs.get(&job)
    }

    fn reservations(&self) -> u64 {
        self.0.boards.reservations.generation()
    }

    fn clock(&self) -> Duration {
        self.1.elapsed()
    }
}

impl People for Live<'_> {
    fn administrators(&self) -> Vec<u32> {
        self.0.ports.host.administrators()
    }

    fn groups(&self, uid: u32) -> Vec<String> {
        let groups = self.0.ports.users.user(uid).map(|user| user.groups).unwrap_or_default();
        groups.into_iter().map(|(_, name)| name).collect()
    }
}

impl SchedulerActor {
    /// A scheduler.
    pub fn new(env: Arc<Env>, policy: Policy) -> Self {
        Self { env, core: SchedulerCore::new(policy), began: Instant::now() }
    }

    fn run(&mut self, cx: &mut Context<Self>, input: SchedulerInput) {
        let Self { env, core, began } = self;
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let mut looks = false;
            core.handle(Timestamp::now(), &Live(env, *began), input, &mut |effect| match effect {
                SchedulerEffect::Look => looks = true,
                SchedulerEffect::Watch(seen) => watch(env, cx, seen),
                SchedulerEffect::ToJob(job, input) => env.tell_job(cx, job, input),
                SchedulerEffect::SetTimer(timer, after) => {
                    cx.set_timer(timer.key(), after, SchedulerMsg::Input(SchedulerInput::Timer(timer)));
                }
                SchedulerEffect::ClearTimer(timer) => cx.clear_timer(timer.key()),
                SchedulerEffect::Rules(rules) => env.set_priority_rules(rules),
            });
            next = looks.then(|| SchedulerInput::Picture(Box::new(picture(core.policy().clone(), env, *began))));
        }
    }
}

fn watch(env: &Env, cx: &mut Context<SchedulerActor>, seen: Seen) {
    let boards = env.boards.clone();
    let changed = async move {
        tokio::select! {
            _ = boards.jobs.changed(seen.jobs) => {}
            _ = boards.nodes.changed(seen.nodes) => {}
            _ = boards.partitions.changed(seen.partitions) => {}
            _ = boards.reservations.changed(seen.reservations) => {}
        }
    };
    cx.pipe(changed, |()| SchedulerMsg::Input(SchedulerInput::Changed));
}

impl Actor for SchedulerActor {
    type Msg = SchedulerMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        self.run(cx, SchedulerInput::Started);
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: SchedulerMsg) {
        match message {
            SchedulerMsg::Input(input) => self.run(cx, input),
            SchedulerMsg::Explain { job, mut replies } => {
                replies.send(CommandReply::Outlook(self.core.outlook(job).map(Box::new)));
            }
        }
    }
}

fn picture(policy: Policy, env: &Env, since: Instant) -> Picture {
    let began = since.elapsed();
    let boards = &env.boards;
    let seen = Seen {
        jobs: boards.jobs.generation(),
        nodes: boards.nodes.generation(),
        partitions: boards.partitions.generation(),
        reservations: boards.reservations.generation(),
    };
    let jobs = boards.jobs.list();
    let view = view_of(policy, &Live(env, since), &jobs);
    Picture { seen, began, view, jobs, partitions: boards.partitions.list(), config: env.config() }
}

/// The boards as a plan's picture.
pub fn cluster_view(policy: Policy, env: &Env) -> ClusterView {
    view_of(policy, &Live(env, Instant::now()), &env.boards.jobs.list())
}

fn view_of(policy: Policy, live: &Live<'_>, jobs: &[Arc<JobView>]) -> ClusterView {
    let env = live.0;
    let licenses = env.licenses.lock().clone();
    let shown = Shown {
        jobs,
        nodes: &env.boards.nodes.list(),
        partitions: &env.boards.partitions.list(),
        licenses,
        qos: env.qos(),
        reservations: &env.boards.reservations.list(),
        zone: &system_zone(),
    };
    picture::cluster_view(policy, &shown, live, live, Timestamp::now())
}

/// The site's rules, from its configuration.
pub fn policy(config: &Config) -> Policy {
    let number = |name: &str| config.scheduler_parameters.value(name).and_then(|text| text.parse::<usize>().ok());
    let seconds = |name: &str, unit: u64| Some(Duration::from_secs(number(name)? as u64 * unit));
    let default = Policy::default();
    let is_off = |name: &str| config.scheduler_parameters.value(name) == Some("-1");
    let backfill_off = is_off("bf_interval");
    let interval = |name: &str, unless: Duration| (!is_off(name)).then(|| seconds(name, 1).unwrap_or(unless));
    Policy {
        unit: match config.select.unit {
            SelectUnit::Cpu => AllocationUnit::Cpu,
            SelectUnit::Core => AllocationUnit::Core,
            SelectUnit::Socket => AllocationUnit::Socket,
            SelectUnit::Node => AllocationUnit::Node,
        },
        memory: config.select.memory,
        def_memory: config.def_memory,
        max_memory: config.max_memory,
        one_task_per_core: config.select.one_task_per_core,
        over_sockets: if config.select.block_cores { CpuOrder::Block } else { CpuOrder::Cyclic },
        pack_nodes: config.select.pack_nodes,
        least_loaded: config.select.least_loaded,
        backfill: match config.scheduler_parameters.value("bf_algorithm") {
            _ if !config.backfill() || backfill_off => Backfill::Off,
            Some("easy") => {
                Backfill::First(number("bf_reservations").map_or(1, |n| u32::try_from(n).unwrap_or(u32::MAX)))
            }
            _ => match number("bf_job_part_count_reserve").and_then(|n| u32::try_from(n).ok()) {
                Some(most) if most > 0 => Backfill::First(most),
                _ => Backfill::Conservative,
            },
        },
        shortest_first: (config.scheduler_parameters.value("bf_order") == Some("shortest"))
            .then(|| seconds("bf_patience", 60).unwrap_or(BF_PATIENCE)),
        resolution: seconds("bf_resolution", 1).filter(|d| !d.is_zero()).unwrap_or(BF_RESOLUTION),
        backfill_window: seconds("bf_window", 60).unwrap_or(default.backfill_window),
        backfill_depth: number("bf_max_job_test").unwrap_or(default.backfill_depth),
        max_starts: default.max_starts,
        topologies: Arc::new(Topologies::new(config)),
        switch_wait: seconds("max_switch_wait", 1).unwrap_or(default.switch_wait),
        topology_patience: seconds("topology_patience", 1),
        preempt: PreemptRules {
            kind: config.preempt.kind,
            mode: config.preempt.mode.mode.unwrap_or_default(),
            within: config.preempt.mode.within,
            by_priority: config.preempt.mode.by_priority,
            exempt_from: config.preempt.exempt_from(),
            exempt: Duration::from_secs(config.preempt.exempt_secs),
            youngest_first: config.preempt.youngest_first(),
            suspend_grace: Duration::from_secs(config.preempt.suspend_grace_secs()),
            reclaim_licenses: config.preempt.reclaims_licenses(),
            reorders: config.preempt.reorders(),
            strict_order: config.preempt.is_strict_order(),
            by_label: config.mcs.select == McsSelect::Always,
            time_slice: (config.preempt.is_gang())
                .then(|| Duration::from_secs(u64::from(config.preempt.time_slice_secs()))),
        },
        serial_at_end: config.scheduler_parameters.has("pack_serial_at_end"),
        extra_constraints: config.scheduler_parameters.has("extra_constraints"),
        bounds: Bounds::of(config),
        interval: if config.backfill() && !backfill_off {
            interval("bf_interval", default.interval.unwrap_or(SCHED_INTERVAL))
        } else {
            interval("sched_interval", SCHED_INTERVAL)
        },
        least_pause: number("sched_min_interval")
            .map_or(default.least_pause, |micros| Duration::from_micros(micros as u64).max(default.least_pause)),
    }
}
