//! What the site says about power saving, for its nodes: when each of them is powered down, and how long that and powering up
//! may take.

use garrick_model::{
    config::{Config, NodeConfig, PowerSettings, Span},
    view::NodeView,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How often nodes are looked at if nothing happens (`power_save_interval`, slurm.conf(5)).
const INTERVAL: Duration = Duration::from_secs(10);

/// The times of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerTimes {
    /// `SuspendTime`: how long it is idle before it is powered down.
    pub suspend_time: Span,
    /// `SuspendTimeout`: how long powering down takes.
    pub suspend_timeout: Span,
    /// `ResumeTimeout`: how long it may take to come.
    pub resume_timeout: Span,
}

/// Power saving of a site that has a program which powers nodes up: without one, no node is powered down either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerPolicy {
    /// Programs, rates and exclusions.
    pub settings: PowerSettings,
    /// Times of nodes in no partition that says something else.
    times: PowerTimes,
    /// Times of others, by node.
    of_nodes: BTreeMap<String, PowerTimes>,
    /// Nodes of partitions whose nodes stay on (`SuspendExcParts`).
    stay_on: BTreeSet<String>,
    /// Partitions whose nodes are powered down when they are empty (`PowerDownOnIdle`).
    on_idle: BTreeSet<String>,
    /// `idle_on_node_suspend`: a node that is powered down is idle, whatever it was before.
    pub idle_on_suspend: bool,
    /// `cloud_dns`: addresses of cloud nodes are those of the configuration.
    pub cloud_dns: bool,
    /// `power_save_interval`.
    pub interval: Duration,
    /// `power_save_min_interval`.
    pub least_interval: Duration,
}

impl PowerPolicy {
    /// That of a configuration; `None`: it has no program.
    pub fn of(config: &Config) -> Option<Self> {
        let settings = &config.power;
        settings.resume_program.as_ref()?;
        let secs = |word| config.slurmctld_parameters.value(word).and_then(|text| text.parse().ok());
        let parameter = |word, default| secs(word).map_or(default, Duration::from_secs);
        let has = |word| config.slurmctld_parameters.has(word);
        let kept = config.partitions.iter().filter(|p| settings.kept_partitions.contains(&p.name));
        let on_idle = config.partitions.iter().filter(|p| p.power_down_on_idle);
        Some(Self {
            settings: settings.clone(),
            times: PowerTimes {
                suspend_time: settings.suspend_time,
                suspend_timeout: settings.suspend_timeout,
                resume_timeout: settings.resume_timeout,
            },
            of_nodes: times_of_nodes(config),
            stay_on: kept.flat_map(|p| p.nodes.iter()).collect(),
            on_idle: on_idle.map(|p| p.name.clone()).collect(),
            idle_on_suspend: has("idle_on_node_suspend"),
            cloud_dns: has("cloud_dns"),
            interval: parameter("power_save_interval", INTERVAL),
            least_interval: parameter("power_save_min_interval", Duration::ZERO),
        })
    }

    /// The times of a node.
    pub fn times(&self, node: &str) -> PowerTimes {
        self.of_nodes.get(node).copied().unwrap_or(self.times)
    }

    /// A node that had a job of that partition is powered down when it is empty.
    pub fn ends_with_job(&self, partition: &str) -> bool {
        self.on_idle.contains(partition)
    }

    /// The longest time that a program may run (slurm.conf(5)): `None`: any.
    pub fn program_limit(&self) -> Option<Duration> {
        let of = |times: &PowerTimes| times.suspend_timeout.max(times.resume_timeout);
        self.of_nodes.values().map(of).chain([of(&self.times)]).max().and_then(Span::duration)
    }

    /// Nodes of which none is powered down for being idle, or not so many of them: `SuspendExcNodes`, `SuspendExcParts` and
    /// `SuspendExcStates`.
    pub fn stay_on<'n>(&self, nodes: impl Iterator<Item = &'n NodeView> + Clone) -> BTreeSet<&'n str> {
        let name = |node: &'n NodeView| node.name.as_str();
        let state = |node: &&NodeView| self.keeps_state(node);
        let partition = |node: &&NodeView| self.stay_on.contains(&node.name);
        let mut kept: BTreeSet<&str> = nodes.clone().filter(|node| state(node) || partition(node)).map(name).collect();
        for part in &self.settings.kept_nodes.0 {
            let usable = |node: &&NodeView| match part.count {
                None => true,
                Some(_) => is_usable(node),
            };
            let count = part.count.map_or(usize::MAX, |count| count as usize);
            let these = nodes.clone().filter(|node| part.nodes.contains(&node.name)).filter(usable);
            kept.extend(these.take(count).map(name));
        }
        kept
    }

    fn keeps_state(&self, node: &NodeView) -> bool {
        use garrick_model::state::NodeBase;
        let flags = node.flags;
        let states = [
            (flags.cloud, "CLOUD"),
            (node.base == NodeBase::Down, "DOWN"),
            (flags.drain, "DRAIN"),
            (flags.dynamic, "DYNAMIC_NORM"),
            (flags.fail, "FAIL"),
            (flags.invalid, "INVALID_REG"),
            (flags.maint, "MAINTENANCE"),
            (flags.not_responding, "NOT_RESPONDING"),
            (flags.reserved, "RESERVED"),
        ];
        states.into_iter().any(|(is, state)| is && self.settings.kept_states.has(state))
    }
}

/// Idle, and neither DOWN, DRAINING nor powered down (`SuspendExcNodes` with a count).
fn is_usable(node: &NodeView) -> bool {
    garrick_plan::snapshot::facts::in_service(node) && node.flags.power.is_on() && node.holds.is_empty()
}

/// Times of nodes that differ from the cluster's: the node's own, else the highest of its partitions that have one.
fn times_of_nodes(config: &Config) -> BTreeMap<String, PowerTimes> {
    #[derive(Default)]
    struct Said {
        suspend_time: Option<Span>,
        suspend_timeout: Option<Span>,
        resume_timeout: Option<Span>,
    }
    let mut said: BTreeMap<String, Said> = BTreeMap::new();
    for partition in &config.partitions {
        let own = (partition.suspend_time, partition.suspend_timeout, partition.resume_timeout);
        if own == (None, None, None) {
            continue;
        }
        for node in partition.nodes.iter() {
            let times = said.entry(node).or_default();
            times.suspend_time = times.suspend_time.max(own.0);
            times.suspend_timeout = times.suspend_timeout.max(own.1);
            times.resume_timeout = times.resume_timeout.max(own.2);
        }
    }
    let own = |node: &NodeConfig| Some((node.name.clone(), node.settings.suspend_time?));
    for (node, time) in config.nodes.iter().filter_map(own) {
        said.entry(node).or_default().suspend_time = Some(time);
    }
    let all = &config.power;
    let times = |said: Said| PowerTimes {
        suspend_time: said.suspend_time.unwrap_or(all.suspend_time),
        suspend_timeout: said.suspend_timeout.unwrap_or(all.suspend_timeout),
        resume_timeout: said.resume_timeout.unwrap_or(all.resume_timeout),
    };
    said.into_iter().map(|(node, said)| (node, times(said))).collect()
}
