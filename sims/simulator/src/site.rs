//! The site's configuration file, and administrators' changes of it.

use super::{
    mix::{Mix, Priorities},
    random::Random,
    world::PATIENCE,
};
use garrick_model::config::{self, Config};
use std::path::Path;

/// What an administrator may change in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// So much of each node's memory is kept for others than jobs, MiB.
    memory: u32,
    /// Of small nodes, of which some may be kept from jobs: as many as machines have, or less.
    cores: u32,
    /// Of small and of big nodes.
    weights: (u32, u32),
    /// Big nodes have a feature more.
    feature: bool,
    /// `MaxTime` of the partition that most jobs are in, minutes.
    longest_mins: u32,
    /// So many nodes the partition of whole nodes does not have any more.
    whole_but: u32,
    /// `PriorityWeightAge`.
    age: u32,
}

impl Draw {
    /// As worlds begin.
    pub(super) const FIRST: Self =
        Self { memory: 0, cores: 4, weights: (1, 1), feature: false, longest_mins: 120, whole_but: 0, age: 1_000 };

    pub(super) fn some(random: &mut Random) -> Self {
        Self {
            memory: random.between(0, 2) * 200,
            cores: random.between(3, 4),
            weights: (random.between(1, 3), random.between(1, 3)),
            feature: random.one_in_thousand(500),
            longest_mins: random.between(1, 4) * 30,
            whole_but: random.between(0, 1),
            age: random.between(0, 2) * 1_000,
        }
    }
}

/// So many nodes may come at run time.
pub(super) const fn joiners(nodes: u32, mix: &Mix) -> u32 {
    if mix.joiners { nodes.div_ceil(2) } else { 0 }
}

/// Two kinds of nodes; partitions whose jobs are requeued, cancelled or suspended for those of another, where there is preemption;
/// short patience so that nodes are lost now and then.
pub(super) fn config(nodes: u32, mix: &Mix, draw: &Draw) -> Config {
    let (last, half) = (nodes - 1, (nodes - 1) / 2);
    let Draw { memory, cores, weights, feature, longest_mins, whole_but, age } = *draw;
    let (whole, most) = (half.saturating_sub(whole_but), nodes + joiners(nodes, mix));
    let feature = if feature { ",odd" } else { "" };
    let mode = |mode| if mix.preempts { format!("PreemptMode={mode}") } else { String::new() };
    let (requeue, cancel, suspend, gang, off) =
        (mode("REQUEUE"), mode("CANCEL"), mode("SUSPEND"), mode("SUSPEND,GANG"), mode("OFF"));
    let preempt =
        if mix.preempts { "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG" } else { "PreemptMode=GANG" };
    // Bounds within which plans are repaired.
    let bounds = |most| {
        format!(
            ",bf_max_job_start={most},sched_max_job_start={most},bf_max_job_user={},bf_max_job_part={}",
            most * 2,
            most * 3
        )
    };
    let starts = mix.starts.map(bounds).unwrap_or_default();
    let enforced = if mix.limits { "AccountingStorageEnforce=limits,qos\n" } else { "" };
    let text = format!(
        "{enforced}ClusterName=sim\nSlurmctldHost=head\nMaxNodeCount={most}\nLicenses=solver:5,viewer:2\nGresTypes=gpu,probe\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n\
         SchedulerParameters=sched_min_interval={}{starts}\nSlurmdTimeout={}\nReturnToService=1\nSlurmctldParameters=enable_expedited_requeue\nDefMemPerCPU=100\nPrologTimeout=30\nBatchStartTimeout=30\n\
         NodeName=n[0-{half}] CPUs={} Sockets=1 CoresPerSocket={cores} ThreadsPerCore=2 RealMemory={} Weight={} Gres=probe:2\n\
         NodeName=n[{}-{last}] CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory={} Weight={} Features=big{feature} Gres=gpu:old:2,gpu:new:2,probe:3\n\
         {preempt}\n{}\
         PartitionName=batch Nodes=ALL Default=YES {requeue} GraceTime=20 MaxTime={longest_mins} DefaultTime=20\n\
         PartitionName=whole Nodes=n[0-{whole}] OverSubscribe=EXCLUSIVE {cancel} MaxTime=120 DefaultTime=20\n\
         PartitionName=still Nodes=ALL {suspend} PriorityJobFactor=5 MaxTime=120 DefaultTime=20\n\
         PartitionName=turns Nodes=n[0-{half}] OverSubscribe=FORCE:2 {gang} MaxTime=120 DefaultTime=20\n\
         PartitionName=urgent Nodes=ALL PriorityTier=10 {off} MaxTime=120 DefaultTime=20\n",
        mix.pass_ms * 1_000,
        PATIENCE.as_secs(),
        cores * 2,
        1_600 - memory,
        weights.0,
        half + 1,
        3_200 - memory,
        weights.1,
        match mix.priorities {
            Priorities::Basic => String::new(),
            Priorities::Calculated => format!("{PRIORITIES}{age}\n"),
            Priorities::CalculatedOnAndOn => format!("{PRIORITIES}{age}\nPriorityFlags=CALCULATE_RUNNING\n"),
        },
    );
    let (config, report) = config::read_text(Path::new("simulated slurm.conf"), &text);
    assert!(config.is_some(), "the simulated site's configuration is refused: {report:?}");
    config.unwrap_or_default()
}

/// Who waits for an hour, is large, or is in a favoured partition, goes first.
const PRIORITIES: &str = "PriorityType=priority/multifactor\nPriorityCalcPeriod=2\nPriorityMaxAge=0-1\nPriorityWeightJobSize=1000\n\
     PriorityWeightPartition=300\nPriorityWeightAge=";
