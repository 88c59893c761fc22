//! The cluster of a replay: a number of one-CPU slots, or the nodes and partitions of a `slurm.conf`.

use fixedbitset::FixedBitSet;
use garrick_model::{
    config::{Config, PartitionConfig},
    ids::NodeIndex,
    node_shape::NodeShape,
    resources::MemoryMib,
    state::{NodeBase, NodeFlags, PartitionState},
    time::TimeLimit,
    view::{NodeLoad, NodeView, PartitionView},
};
pub use garrick_plan::snapshot::facts::ClusterView;
use garrick_plan::{
    policy::{partition_facts, policy},
    snapshot::{
        caps::CpuCaps,
        facts::{AllocationUnit, Backfill, PartitionFacts, PartitionSharing, Policy, UNLIMITED_FOR_PLANNING},
        preempt::Yielding,
    },
};
use std::{fmt, str::FromStr, sync::Arc, time::Duration};

/// Whose rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// In order of priority and submission; nothing starts behind a waiting job.
    Fcfs,
    /// EASY: the first waiting jobs, usually one, have room reserved.
    Easy(u32),
    /// The same, and jobs behind them are tried in the order of their limits.
    EasySjbf(u32),
    /// All waiting jobs have room reserved.
    Conservative,
    /// The configuration's, or Garrick's own.
    #[default]
    Default,
}

impl FromStr for Choice {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, first) = match text.split_once(':') {
            Some((name, first)) => (name, first.parse().ok().filter(|n| *n > 0)),
            None => (text, Some(1)),
        };
        match (name, first) {
            ("easy", Some(first)) => Ok(Self::Easy(first)),
            ("easy-sjbf", Some(first)) => Ok(Self::EasySjbf(first)),
            ("fcfs", _) if name == text => Ok(Self::Fcfs),
            ("conservative", _) if name == text => Ok(Self::Conservative),
            ("default", _) if name == text => Ok(Self::Default),
            _ => Err(format!(
                "\"{text}\" is none of fcfs, easy, easy-sjbf (either with :N for N jobs that have room reserved), \
                 conservative, default"
            )),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fcfs => f.write_str("fcfs"),
            Self::Easy(1) => f.write_str("easy"),
            Self::Easy(first) => write!(f, "easy:{first}"),
            Self::EasySjbf(1) => f.write_str("easy-sjbf"),
            Self::EasySjbf(first) => write!(f, "easy-sjbf:{first}"),
            Self::Conservative => f.write_str("conservative"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Choice {
    /// Jobs behind are tried in the order of their limits however long they waited.
    const ENDLESS: Option<Duration> = Some(Duration::MAX);

    fn over(self, mut policy: Policy) -> Policy {
        let (backfill, shortest_first) = match self {
            Self::Fcfs => (Backfill::Off, None),
            Self::Easy(first) => (Backfill::First(first), None),
            Self::EasySjbf(first) => (Backfill::First(first), Self::ENDLESS),
            Self::Conservative => (Backfill::Conservative, None),
            Self::Default => return policy,
        };
        (policy.backfill, policy.shortest_first) = (backfill, shortest_first);
        // Policies are compared, not what bounds their cost.
        policy.backfill_depth = usize::MAX;
        policy.backfill_window = UNLIMITED_FOR_PLANNING;
        policy.resolution = Duration::from_secs(1);
        policy
    }
}

/// So many nodes of `cpus` CPUs in one partition. Memory is not counted.
pub fn places(nodes: u32, cpus: u32, choice: Choice) -> ClusterView {
    let shape = NodeShape {
        cpus,
        boards: 1,
        sockets: 1,
        cores_per_socket: cpus,
        threads_per_core: 1,
        memory: MemoryMib(1),
        tmp_disk_mib: 0,
        gres: Vec::new(),
        reserved_cpus: Default::default(),
        gpu_cpus: Vec::new(),
        reserved_memory: Default::default(),
    };
    let mut members = FixedBitSet::with_capacity(nodes as usize);
    members.insert_range(..);
    let nodes = (0..nodes).map(|index| Arc::new(node(index, format!("n{index}"), shape.clone(), Vec::new(), 1)));
    let policy = Policy { unit: AllocationUnit::Cpu, memory: false, max_starts: usize::MAX, ..Policy::default() };
    let partition = PartitionFacts {
        qos: None,
        name: "all".to_owned(),
        state: PartitionState::Up,
        tier: 1,
        nodes: members,
        default_time: None,
        max_time: TimeLimit::Unlimited,
        min_nodes: 0,
        max_nodes: None,
        caps: CpuCaps::NONE,
        def_memory: None,
        max_memory: None,
        sharing: PartitionSharing::No,
        exclusive_user: false,
        least_loaded: false,
        topology: None,
        exclusive_topo: false,
        yielding: Yielding::default(),
        takes: None,
    };
    ClusterView::new(choice.over(policy), &[], &nodes.collect::<Vec<_>>(), vec![partition])
}

/// The nodes and partitions of a configuration, all in service, under its rules.
pub fn configured(config: &Config, choice: Choice) -> ClusterView {
    let nodes: Vec<Arc<NodeView>> = config
        .nodes
        .iter()
        .map(|n| {
            let s = &n.settings;
            Arc::new(node(n.index.0, n.name.clone(), s.shape.clone(), s.features.clone(), s.weight))
        })
        .collect();
    let partitions = partition_views(config);
    let partitions = partitions.iter().map(|view| partition_facts(view, nodes.len()));
    let policy = Policy { max_starts: usize::MAX, ..policy(config) };
    ClusterView::new(choice.over(policy), &[], &nodes, partitions.collect())
}

/// The partitions of a configuration, as priorities need them.
pub fn partition_views(config: &Config) -> Vec<Arc<PartitionView>> {
    let view = |partition: &PartitionConfig| {
        let mut settings = partition.clone();
        let nodes = config.resolve_nodes(&mut settings).unwrap_or_default();
        Arc::new(PartitionView { generation: 1, state: settings.state, config: Arc::new(settings), nodes })
    };
    config.partitions.iter().map(view).collect()
}

fn node(index: u32, name: String, shape: NodeShape, features: Vec<String>, weight: u32) -> NodeView {
    NodeView {
        index: NodeIndex(index),
        generation: 1,
        base: NodeBase::Up,
        flags: NodeFlags::default(),
        reason: None,
        shape,
        holds: Vec::new(),
        features,
        weight,
        address: name.clone(),
        hostname: name.clone(),
        port: 0,
        registration: None,
        load: NodeLoad::default(),
        last_busy: None,
        after_reboot: None,
        resume_at: None,
        instance_id: None,
        instance_type: None,
        suspend_time_secs: None,
        power_since: None,
        idle_since: None,
        comment: None,
        extra: None,
        name,
    }
}
