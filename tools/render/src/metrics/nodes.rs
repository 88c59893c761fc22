//! Metrics of nodes: of each, of all, and of the nodes of each partition.

use super::{
    exposition::{Exposition, Type::Gauge},
    jobs,
};
use crate::{
    amounts::members,
    node_state::{self, StateFilter},
};
use garrick_model::{
    gres::GPU,
    ids::NodeIndex,
    state::NodePower,
    view::{JobView, NodeView, PartitionView},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// What a node has, and what of it jobs have. Memory is in MiB: so is Slurm's, whatever the names of its metrics say.
#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    cpus: u64,
    job_cpus: u64,
    used_cpus: u64,
    memory: u64,
    job_memory: u64,
    used_memory: u64,
    free_memory: u64,
    gpus: u64,
    used_gpus: u64,
}

impl Amounts {
    fn of(node: &NodeView) -> Self {
        let used = node_state::usage(node);
        let shape = &node.shape;
        let gpus = shape.gres.iter().filter(|gres| gres.name == GPU).map(|gres| gres.count).sum();
        let shares = node.holds.iter().flat_map(|hold| &hold.share.gres);
        Self {
            cpus: shape.cpus.into(),
            job_cpus: shape.job_cpu_count().into(),
            used_cpus: used.cpus.into(),
            memory: shape.memory.0,
            job_memory: shape.memory.0.saturating_sub(shape.reserved_memory.0),
            used_memory: used.memory.0,
            free_memory: node.load.free_memory.map_or(0, |memory| memory.0),
            gpus,
            used_gpus: shares.filter(|share| share.name == GPU).map(|share| share.count).sum(),
        }
    }

    const fn idle_cpus(&self) -> u64 {
        self.job_cpus.saturating_sub(self.used_cpus)
    }

    fn add(&mut self, other: &Self) {
        self.cpus += other.cpus;
        self.job_cpus += other.job_cpus;
        self.used_cpus += other.used_cpus;
        self.memory += other.memory;
        self.job_memory += other.job_memory;
        self.used_memory += other.used_memory;
        self.free_memory += other.free_memory;
        self.gpus += other.gpus;
        self.used_gpus += other.used_gpus;
    }
}

/// A family of each node.
type OfNode = (&'static str, &'static str, fn(&Amounts) -> u64);

/// In Slurm's order, with its words.
const OF_NODES: &[OfNode] = &[
    ("slurm_node_cpus", "Total number of cpus in the node", |a| a.cpus),
    ("slurm_node_cpus_alloc", "Allocated cpus in the node", |a| a.used_cpus),
    ("slurm_node_cpus_effective", "CPUs allocatable to jobs not reserved for system usage", |a| a.job_cpus),
    ("slurm_node_cpus_idle", "Idle cpus in the node", Amounts::idle_cpus),
    ("slurm_node_gpus", "Total number of GPUs in the node", |a| a.gpus),
    ("slurm_node_gpus_alloc", "Number of GPUs currently allocated by jobs on the node", |a| a.used_gpus),
    ("slurm_node_memory_alloc_bytes", "Bytes allocated to jobs in the node", |a| a.used_memory),
    ("slurm_node_memory_effective_bytes", "Memory allocatable to jobs not reserved for system usage", |a| a.job_memory),
    ("slurm_node_memory_free_bytes", "Free memory in bytes of the node", |a| a.free_memory),
    ("slurm_node_memory_bytes", "Total memory in bytes of the node", |a| a.memory),
];

/// What is counted of a set of nodes: how many have each word of `scontrol show node`, and what they have together.
#[derive(Clone, Debug, Default)]
struct Counts {
    nodes: u64,
    words: BTreeMap<&'static str, u64>,
    drained: u64,
    draining: u64,
    amounts: Amounts,
}

impl Counts {
    fn add(&mut self, node: &NodeView) {
        self.nodes += 1;
        for word in node_state::record_words(node) {
            *self.words.entry(word).or_default() += 1;
        }
        self.drained += u64::from(StateFilter::Drained.takes(node));
        self.draining += u64::from(StateFilter::Draining.takes(node));
        self.amounts.add(&Amounts::of(node));
    }
}

/// What a family of a set of nodes shows.
#[derive(Clone, Copy)]
enum Shown {
    /// How many have that word.
    Word(&'static str),
    /// Something else.
    Count(fn(&Counts) -> u64),
}

impl Shown {
    fn of(self, counts: &Counts) -> u64 {
        match self {
            Self::Word(word) => counts.words.get(word).copied().unwrap_or(0),
            Self::Count(count) => count(counts),
        }
    }
}

type Family = (&'static str, &'static str, Shown);

use Shown::{Count, Word};

/// Nothing here is ever in such a state.
const NEVER: Shown = Count(|_| 0);

/// Families of all nodes.
const OF_ALL: &[Family] = &[
    ("slurm_nodes", "Total number of nodes", Count(|c| c.nodes)),
    ("slurm_nodes_alloc", "Number of nodes in Allocated state", Word("ALLOCATED")),
    ("slurm_nodes_blocked", "Number of nodes in Blocked state", NEVER),
    ("slurm_nodes_completing", "Number of nodes with Completing flag", Word("COMPLETING")),
    ("slurm_nodes_cloud", "Number of Cloud nodes", Word("CLOUD")),
    ("slurm_nodes_down", "Number of nodes in Down state", Word("DOWN")),
    ("slurm_nodes_drain", "Number of nodes with Drain flag", Word("DRAIN")),
    ("slurm_nodes_drained", "Number of drained nodes", Count(|c| c.drained)),
    (
        "slurm_nodes_draining",
        "Number of nodes in draining condition (Drain state with active jobs)",
        Count(|c| c.draining),
    ),
    ("slurm_nodes_dyn_future", "Number of future dynamic nodes", NEVER),
    ("slurm_nodes_dyn_normal", "Number of dynamic nodes", Word("DYNAMIC_NORM")),
    ("slurm_nodes_external", "Number of external nodes", NEVER),
    ("slurm_nodes_fail", "Number of nodes with Fail flag", Word("FAIL")),
    ("slurm_nodes_future", "Number of nodes in Future state", Word("FUTURE")),
    ("slurm_nodes_idle", "Number of nodes in Idle state", Word("IDLE")),
    ("slurm_nodes_invalid_reg", "Number of nodes with Invalid Registration flag", Word("INVALID_REG")),
    ("slurm_nodes_maint", "Number of nodes with Maintenance flag", Word("MAINTENANCE")),
    ("slurm_nodes_mixed", "Number of nodes in Mixed state", Word("MIXED")),
    ("slurm_nodes_noresp", "Number of nodes with Not Responding flag", Word("NOT_RESPONDING")),
    ("slurm_nodes_planned", "Number of nodes with Planned flag", NEVER),
    ("slurm_nodes_power_down", "Number of nodes marked to be powered down", Word("POWER_DOWN")),
    ("slurm_nodes_power_up", "Number of nodes marked to be powered up", Word("POWER_UP")),
    ("slurm_nodes_powered_down", "Number of nodes powered down", Word("POWERED_DOWN")),
    ("slurm_nodes_powering_up", "Number of nodes powering up", Word("POWERING_UP")),
    ("slurm_nodes_reboot_issued", "Number of nodes with Reboot Issued flag", Word("REBOOT_ISSUED")),
    ("slurm_nodes_reboot_req", "Number of nodes with Reboot Requested flag", Word("REBOOT_REQUESTED")),
    ("slurm_nodes_resv", "Number of nodes with Reserved flag", Word("RESERVED")),
    ("slurm_nodes_unknown", "Number of nodes in Unknown state", Word("UNKNOWN")),
];

/// Families of a partition's nodes.
const OF_PARTITION: &[Family] = &[
    ("slurm_partition_nodes_alloc", "Nodes allocated", Word("ALLOCATED")),
    ("slurm_partition_nodes_blocked", "Nodes blocked", NEVER),
    ("slurm_partition_nodes_cg", "Nodes in completing state", Word("COMPLETING")),
    ("slurm_partition_nodes_cloud", "Cloud nodes", Word("CLOUD")),
    (
        "slurm_partition_nodes_cpus_efctv",
        "Number of effective CPUs on all nodes, excludes CoreSpec",
        Count(|c| c.amounts.job_cpus),
    ),
    ("slurm_partition_nodes_cpus_idle", "Number of idle CPUs on all nodes", Count(|c| c.amounts.idle_cpus())),
    ("slurm_partition_nodes_cpus_alloc", "Number of allocated cpus", Count(|c| c.amounts.used_cpus)),
    ("slurm_partition_nodes_down", "Nodes in Down state", Word("DOWN")),
    ("slurm_partition_nodes_drain", "Nodes in Drain state", Word("DRAIN")),
    ("slurm_partition_nodes_drained", "Nodes in Drained state", Count(|c| c.drained)),
    (
        "slurm_partition_nodes_draining",
        "Number of nodes in draining condition (Drain state with active jobs)",
        Count(|c| c.draining),
    ),
    ("slurm_partition_nodes_dyn_future", "Dynamic nodes in Future state", NEVER),
    ("slurm_partition_nodes_dyn_normal", "Dynamic nodes", Word("DYNAMIC_NORM")),
    ("slurm_partition_nodes_external", "External nodes", NEVER),
    ("slurm_partition_nodes_fail", "Nodes in Fail state", Word("FAIL")),
    ("slurm_partition_nodes_future", "Nodes in Future state", Word("FUTURE")),
    ("slurm_partition_nodes_idle", "Nodes in Idle state", Word("IDLE")),
    ("slurm_partition_nodes_invalid_reg", "Number of nodes with Invalid Registration flag", Word("INVALID_REG")),
    ("slurm_partition_nodes_maint", "Nodes in maintenance state", Word("MAINTENANCE")),
    ("slurm_partition_nodes_mem_alloc", "Amount of allocated memory of all nodes", Count(|c| c.amounts.used_memory)),
    ("slurm_partition_nodes_mem_avail", "Amount of available memory of all nodes", Count(|c| c.amounts.job_memory)),
    ("slurm_partition_nodes_mem_free", "Amount of free memory in all nodes", Count(|c| c.amounts.free_memory)),
    ("slurm_partition_nodes_mem_tot", "Total amount of memory of all nodes", Count(|c| c.amounts.memory)),
    ("slurm_partition_nodes_mixed", "Nodes in Mixed state", Word("MIXED")),
    ("slurm_partition_nodes_no_resp", "Nodes in Not Responding state", Word("NOT_RESPONDING")),
    ("slurm_partition_nodes_planned", "Nodes in Planned state", NEVER),
    ("slurm_partition_nodes_power_down", "Nodes marked to Power Down", Word("POWER_DOWN")),
    ("slurm_partition_nodes_power_up", "Nodes marked to Power Up", Word("POWER_UP")),
    ("slurm_partition_nodes_powered_down", "Powered down nodes", Word("POWERED_DOWN")),
    ("slurm_partition_nodes_powering_down", "Powering down nodes", Word("POWERING_DOWN")),
    ("slurm_partition_nodes_powering_up", "Powering up nodes", Word("POWERING_UP")),
    ("slurm_partition_nodes_reboot_issued", "Nodes which initiated reboot", Word("REBOOT_ISSUED")),
    ("slurm_partition_nodes_reboot_requested", "Nodes with Reboot Requested flag", Word("REBOOT_REQUESTED")),
    ("slurm_partition_nodes_resv", "Nodes with Reserved flag", Word("RESERVED")),
    ("slurm_partition_nodes_unknown", "Nodes in Unknown state", Word("UNKNOWN")),
    ("slurm_partition_cpus", "Partition total cpus", Count(|c| c.amounts.cpus)),
    ("slurm_partition_gpus", "Partition total gpus", Count(|c| c.amounts.gpus)),
    ("slurm_partition_nodes", "Partition total nodes", Count(|c| c.nodes)),
];

/// Nodes that are being switched on.
pub fn powering_up(nodes: &[Arc<NodeView>]) -> HashSet<NodeIndex> {
    nodes.iter().filter(|node| node.flags.power == NodePower::PoweringUp).map(|node| node.index).collect()
}

/// `/metrics/nodes`
pub fn all(nodes: &[Arc<NodeView>]) -> String {
    let mut text = Exposition::default();
    let amounts: Vec<(&str, Amounts)> = nodes.iter().map(|node| (node.name.as_str(), Amounts::of(node))).collect();
    for (name, help, value) in OF_NODES {
        let samples = amounts.iter().map(|(node, amounts)| ([("node", *node)], value(amounts)));
        text.family(Gauge, name, help, samples);
    }
    let mut counts = Counts::default();
    nodes.iter().for_each(|node| counts.add(node));
    for (name, help, shown) in OF_ALL {
        text.value(Gauge, name, help, shown.of(&counts));
    }
    text.text()
}

/// `/metrics/partitions`
pub fn of_each_partition(
    partitions: &[Arc<PartitionView>],
    nodes: &[Arc<NodeView>],
    all_jobs: &[Arc<JobView>],
) -> String {
    let mut text = Exposition::default();
    text.value(Gauge, "slurm_partitions", "Total number of partitions", partitions.len());
    jobs::of_each_partition(&mut text, partitions, all_jobs, &powering_up(nodes));
    let counted = partitions.iter().map(|partition| {
        let mut counts = Counts::default();
        members(partition, nodes).into_iter().for_each(|node| counts.add(node));
        (partition.config.name.as_str(), counts)
    });
    let mut sets: Vec<(&str, Counts)> = counted.collect();
    sets.sort_by_key(|(name, _)| *name);
    for (name, help, shown) in OF_PARTITION {
        let samples = sets.iter().map(|(partition, counts)| ([("partition", *partition)], shown.of(counts)));
        text.family(Gauge, name, help, samples);
    }
    text.text()
}
