//! What the scheduler's verbs come to in the controller: its actor reads the boards for its [core](super::core), makes plans
//! where it stands, and holds up nobody else.

use super::{
    core::SchedulerCore,
    gather::{self, People, Shown},
    messages::{Picture, SchedulerAsk, SchedulerErrand, SchedulerInput, SchedulerShown, SchedulerTimer, Seen},
    picture::{
        bounds::Bounds,
        facts::{AllocationUnit, Backfill, ClusterView, Policy},
        preempt::PreemptRules,
    },
    plan::kept::Kept,
};
use crate::{
    controller::env::{Boards, Env},
    owner::{
        Out, Owner,
        actor::{Came, OwnerMsg, Shell},
    },
    topology::Topologies,
};
use garrick_model::{
    config::{Config, SelectUnit},
    messages::command::CommandReply,
    refusal::Refusal,
    spec::CpuOrder,
    time::{Timestamp, system_zone},
    view::JobView,
};
use garrick_runtime::TimerKey;
use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

/// Messages of the scheduler, at `/scheduler`.
pub type SchedulerMsg = OwnerMsg<SchedulerCore>;

/// Default of `sched_interval`, as in Slurm's slurm.conf(5).
const SCHED_INTERVAL: Duration = Duration::from_secs(60);

/// Default of `bf_resolution`, as in Slurm's slurm.conf(5).
const BF_RESOLUTION: Duration = Duration::from_secs(60);

/// How long a job waits at most while shorter ones are tried before it, unless `bf_patience` (minutes) says otherwise.
const BF_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// What the shell of the scheduler keeps.
pub struct SchedulerHands {
    /// When its clock began, which is never set.
    began: Instant,
    /// The last plan, where it may be repaired.
    kept: Option<Kept>,
}

impl Default for SchedulerHands {
    fn default() -> Self {
        Self { began: Instant::now(), kept: None }
    }
}

impl Shell for SchedulerCore {
    type Ask = SchedulerAsk;
    type Gift = Infallible;
    type Hands = SchedulerHands;

    const SAVES: bool = false;

    fn name(input: &SchedulerInput) -> &'static str {
        input.name()
    }

    fn ask_name(ask: &SchedulerAsk) -> &'static str {
        match ask {
            SchedulerAsk::Explain(_) => "Explain",
        }
    }

    fn key(timer: SchedulerTimer) -> TimerKey {
        timer.key().into()
    }

    fn asked(request: u64, ask: SchedulerAsk) -> SchedulerInput {
        match ask {
            SchedulerAsk::Explain(job) => SchedulerInput::Explain { request, job },
        }
    }

    fn begin(&mut self, _: &mut SchedulerHands, env: &Env, now: Timestamp, out: &mut Out<Self>) {
        self.handle(now, &mut env.ids.clone(), SchedulerInput::Started, out);
    }

    fn hand(&self, _: &mut SchedulerHands, gift: Infallible) {
        match gift {}
    }

    fn run(&self, hands: &mut SchedulerHands, env: &Env, errand: SchedulerErrand) -> Came<SchedulerInput> {
        let SchedulerHands { began, kept } = hands;
        let clock = || began.elapsed();
        match errand {
            SchedulerErrand::Look => {
                Came::Input(SchedulerInput::Picture(Box::new(picture(self.policy().clone(), env, clock()))))
            }
            SchedulerErrand::Watch(seen) => Came::Later(Box::pin(changed(env.boards.clone(), seen))),
            SchedulerErrand::Plan(planning) => {
                let made = Box::new(planning.make(kept, &clock, &|job| env.boards.jobs.get(&job)));
                Came::Input(SchedulerInput::Planned { made, reservations: env.boards.reservations.generation() })
            }
        }
    }

    fn publish(&self, _: &mut SchedulerHands, env: &Env, rules: SchedulerShown) {
        env.set_priority_rules(rules);
    }

    fn try_again(after: Duration) -> CommandReply {
        CommandReply::Refused(Refusal::RetryAfter { after })
    }

    fn label(&self) -> String {
        "scheduler".to_owned()
    }
}

async fn changed(boards: Boards, seen: Seen) -> Option<SchedulerInput> {
    tokio::select! {
        _ = boards.jobs.changed(seen.jobs) => {}
        _ = boards.nodes.changed(seen.nodes) => {}
        _ = boards.partitions.changed(seen.partitions) => {}
        _ = boards.reservations.changed(seen.reservations) => {}
    }
    Some(SchedulerInput::Changed)
}

impl People for Env {
    fn administrators(&self) -> Vec<u32> {
        self.ports.host.administrators()
    }

    fn groups(&self, uid: u32) -> Vec<String> {
        let groups = self.ports.users.user(uid).map(|user| user.groups).unwrap_or_default();
        groups.into_iter().map(|(_, name)| name).collect()
    }
}

fn picture(policy: Policy, env: &Env, began: Duration) -> Picture {
    let boards = &env.boards;
    let seen = Seen {
        jobs: boards.jobs.generation(),
        nodes: boards.nodes.generation(),
        partitions: boards.partitions.generation(),
        reservations: boards.reservations.generation(),
    };
    let jobs = boards.jobs.list();
    let view = view_of(policy, env, &jobs);
    Picture { seen, began, view, jobs, partitions: boards.partitions.list(), config: env.config() }
}

/// The boards as a plan's picture.
pub fn cluster_view(policy: Policy, env: &Env) -> ClusterView {
    view_of(policy, env, &env.boards.jobs.list())
}

fn view_of(policy: Policy, env: &Env, jobs: &[Arc<JobView>]) -> ClusterView {
    let licenses = env.licenses.lock().clone();
    let shown = Shown {
        jobs,
        job: &|job| env.boards.jobs.get(&job),
        nodes: &env.boards.nodes.list(),
        partitions: &env.boards.partitions.list(),
        licenses,
        qos: env.qos(),
        reservations: &env.boards.reservations.list(),
        zone: &system_zone(),
    };
    gather::cluster_view(policy, &shown, env, Timestamp::now())
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
        preempt: PreemptRules::of(config),
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
