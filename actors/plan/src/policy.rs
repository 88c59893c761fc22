//! The rules of the site for the scheduler, from its configuration.

use crate::{
    snapshot::{
        bounds::Bounds,
        caps::CpuCaps,
        facts::{AllocationUnit, Backfill, PartitionFacts, PartitionSharing, Policy},
        preempt::{PreemptRules, Yielding},
    },
    topology::Topologies,
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    config::{Config, OverSubscribe, PreemptWords, SelectUnit},
    spec::CpuOrder,
    view::PartitionView,
};
use std::{sync::Arc, time::Duration};

/// Default of `sched_interval`, as in Slurm's slurm.conf(5).
const SCHED_INTERVAL: Duration = Duration::from_secs(60);

/// Default of `bf_resolution`, as in Slurm's slurm.conf(5).
const BF_RESOLUTION: Duration = Duration::from_secs(60);

/// Default of `bf_patience` (minutes): how long a job waits at most while shorter ones are tried before it.
const BF_PATIENCE: Duration = Duration::from_secs(24 * 3600);

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
        enforce: config.enforce.clone(),
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

/// A partition in the form that the scheduler uses, in a cluster of that many nodes.
pub fn partition_facts(view: &PartitionView, nodes: usize) -> PartitionFacts {
    let config = &view.config;
    let words = config.preempt_mode.as_deref().map(PreemptWords::of).unwrap_or_default();
    let mut members = FixedBitSet::with_capacity(nodes);
    for index in view.nodes.iter().map(|n| n.0 as usize).filter(|i| *i < nodes) {
        members.insert(index);
    }
    PartitionFacts {
        name: config.name.clone(),
        state: view.state,
        tier: u32::from(config.priority_tier),
        nodes: members,
        default_time: config.default_time,
        max_time: config.max_time,
        min_nodes: config.min_nodes,
        max_nodes: config.max_nodes,
        caps: CpuCaps { per_node: config.max_cpus_per_node, per_socket: config.max_cpus_per_socket },
        def_memory: config.def_memory,
        max_memory: config.max_memory,
        sharing: match config.over_subscribe {
            OverSubscribe::No => PartitionSharing::No,
            OverSubscribe::Exclusive => PartitionSharing::Exclusive,
            OverSubscribe::Yes(most) => PartitionSharing::Yes(u32::from(most)),
            OverSubscribe::Force(most) => PartitionSharing::Force(u32::from(most)),
        },
        exclusive_user: config.exclusive_user,
        least_loaded: config.least_loaded,
        topology: config.topology.clone(),
        exclusive_topo: config.exclusive_topo,
        yielding: Yielding {
            mode: words.mode,
            within: words.within,
            by_priority: words.by_priority,
            grace: Duration::from_secs(u64::from(config.grace_secs)),
        },
        qos: config.qos.clone(),
        takes: config.is_choosy().then(|| Arc::clone(config)),
    }
}
