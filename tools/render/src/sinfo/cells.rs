//! The text of a group of nodes in each field of `sinfo`.

use super::{Group, fields::Field};
use crate::{amounts, clock::Clock, node_state, words};
use garrick_model::{
    config::{OverSubscribe, PartitionConfig},
    hostlist,
    node_shape::entries_text,
    state::{NodeBase, PartitionState},
    time::TimeLimit,
    view::NodeView,
};

/// A group's value in a field.
pub fn cell(group: &Group<'_>, field: Field, clock: &Clock) -> String {
    let partition = &*group.partition.config;
    let first = group.nodes.first().copied();
    let of_first = |value: &dyn Fn(&NodeView) -> String, none: &str| first.map_or_else(|| none.to_owned(), value);
    match field {
        Field::Partition if partition.default => format!("{}*", partition.name),
        Field::Partition | Field::PartitionName => partition.name.clone(),
        Field::Available => available(group.partition.state).to_owned(),
        Field::TimeLimit => partition.max_time.sinfo_text(),
        Field::DefaultTime => partition.default_time.map_or_else(|| "n/a".to_owned(), TimeLimit::sinfo_text),
        Field::JobSize => job_size(partition),
        Field::Root => if partition.root_only { "yes" } else { "no" }.to_owned(),
        Field::OverSubscribe => partition.over_subscribe.to_string(),
        Field::Groups => partition.allow_groups.as_ref().map_or_else(|| "all".to_owned(), |g| g.join(",")),
        Field::AllocNodes => partition.alloc_nodes.clone().unwrap_or_else(|| "all".to_owned()),
        Field::PreemptMode => partition.preempt_mode.clone().unwrap_or_else(|| "OFF".to_owned()),
        Field::PriorityFactor => partition.priority_job_factor.to_string(),
        Field::PriorityTier => partition.priority_tier.to_string(),
        Field::MaxCpusPerNode => unlimited(partition.max_cpus_per_node),
        Field::Nodes => group.nodes.len().to_string(),
        Field::NodesAi => {
            let [allocated, idle, ..] = node_counts(group);
            format!("{allocated}/{idle}")
        }
        Field::NodesAiot => node_counts(group).map(|n| n.to_string()).join("/"),
        Field::CpusAiot => cpu_counts(group).map(|n| n.to_string()).join("/"),
        Field::NodeList => hostlist::fold(group.nodes.iter().map(|n| &n.name)),
        Field::HostNames => list(group, |n| &n.hostname),
        Field::Addresses => list(group, |n| &n.address),
        Field::Port => of_first(&|n| n.port.to_string(), ""),
        Field::StateCompact => of_first(&|n| node_state::word(n).compact, "n/a"),
        Field::State => of_first(&|n| node_state::word(n).long, "n/a"),
        Field::StateComplete => of_first(&|n| node_state::record_words(n).join("+").to_lowercase(), "n/a"),
        Field::Cpus => least(group, |n| n.shape.cpus.into()),
        Field::CpuLoad => range(group, &|n| n.registration.is_some().then(|| n.load.load_hundredths.into()), &|n| {
            format!("{}.{:02}", n / 100, n % 100)
        }),
        Field::Sockets => least(group, |n| n.shape.sockets.into()),
        Field::Cores => least(group, |n| n.shape.cores_per_socket.into()),
        Field::Threads => least(group, |n| n.shape.threads_per_core.into()),
        Field::Sct => [
            least(group, |n| n.shape.sockets.into()),
            least(group, |n| n.shape.cores_per_socket.into()),
            least(group, |n| n.shape.threads_per_core.into()),
        ]
        .join(":"),
        Field::Memory => least(group, |n| n.shape.memory.0),
        Field::AllocMemory => least(group, |n| node_state::usage(n).memory.0),
        Field::FreeMemory => range(group, &|n| n.load.free_memory.map(|m| m.0), &|n| n.to_string()),
        Field::Disk => least(group, |n| n.shape.tmp_disk_mib),
        Field::Weight => least(group, |n| n.weight.into()),
        Field::Features => {
            of_first(&|n| if n.features.is_empty() { "(null)".to_owned() } else { n.features.join(",") }, "")
        }
        Field::Gres => of_first(&|n| words::cell_or_null(Some(&entries_text(&n.shape))), "(null)"),
        Field::GresUsed => of_first(&|n| words::cell_or_null(Some(&amounts::gres_used(n))), "(null)"),
        Field::Reason => of_first(&|n| n.reason.as_ref().map_or_else(|| "none".to_owned(), |r| r.text.clone()), "none"),
        Field::ReasonUser => {
            of_first(&|n| n.reason.as_ref().map_or_else(|| "Unknown".to_owned(), |r| r.user.clone()), "Unknown")
        }
        Field::ReasonUserLong => of_first(
            &|n| n.reason.as_ref().map_or_else(|| "Unknown".to_owned(), |r| format!("{}({})", r.user, r.uid)),
            "Unknown",
        ),
        Field::ReasonTime => of_first(&|n| clock.at_or(n.reason.as_ref().map(|r| r.at), "Unknown"), "Unknown"),
        Field::Version => {
            of_first(&|n| n.registration.as_ref().map_or_else(|| "N/A".to_owned(), |f| f.version.clone()), "N/A")
        }
        Field::Extra => of_first(&|n| n.extra.clone().unwrap_or_else(|| "(null)".to_owned()), ""),
        Field::Comment => of_first(&|n| n.comment.clone().unwrap_or_else(|| "(null)".to_owned()), ""),
        Field::Constant(word) => word.to_owned(),
    }
}

fn available(state: PartitionState) -> &'static str {
    match state {
        PartitionState::Up => "up",
        PartitionState::Down => "down",
        PartitionState::Drain => "drain",
        PartitionState::Inactive => "inact",
    }
}

fn unlimited(limit: Option<u32>) -> String {
    limit.map_or_else(|| "UNLIMITED".to_owned(), |n| n.to_string())
}

/// `1-infinite`, `2-4`, `4`.
fn job_size(partition: &PartitionConfig) -> String {
    let min = partition.min_nodes.max(1);
    if partition.over_subscribe == OverSubscribe::Exclusive && partition.max_nodes == Some(min) {
        return min.to_string();
    }
    match partition.max_nodes {
        None => format!("{min}-infinite"),
        Some(max) if max == min => min.to_string(),
        Some(max) => format!("{min}-{max}"),
    }
}

fn list<'a>(group: &Group<'a>, of: impl Fn(&'a NodeView) -> &'a String) -> String {
    hostlist::fold_sorted(group.nodes.iter().map(|n| of(n)))
}

/// The least value, with `+` where others are larger.
fn least(group: &Group<'_>, of: impl Fn(&NodeView) -> u64) -> String {
    let values = group.nodes.iter().map(|n| of(n));
    match (values.clone().min(), values.max()) {
        (Some(min), Some(max)) if min < max => format!("{min}+"),
        (Some(min), _) => min.to_string(),
        _ => "0".to_owned(),
    }
}

/// `0.01`, or `0.01-2.50` where they differ; `N/A` where nothing is known.
fn range(group: &Group<'_>, of: &dyn Fn(&NodeView) -> Option<u64>, text: &dyn Fn(u64) -> String) -> String {
    let values = group.nodes.iter().filter_map(|n| of(n));
    match (values.clone().min(), values.max()) {
        (Some(min), Some(max)) if min < max => format!("{}-{}", text(min), text(max)),
        (Some(min), _) => text(min),
        _ => "N/A".to_owned(),
    }
}

/// Whether a node counts as idle when nothing runs on it.
fn serves(node: &NodeView) -> bool {
    node.base == NodeBase::Up && !node.flags.drain && !node.flags.not_responding && !node.flags.invalid
}

/// Nodes allocated, idle, other and in all.
pub fn node_counts(group: &Group<'_>) -> [usize; 4] {
    let used = |n: &&&NodeView| {
        let used = node_state::usage(n);
        used.active || used.completing
    };
    let allocated = group.nodes.iter().filter(used).count();
    let idle = group.nodes.iter().filter(|n| !used(n) && serves(n)).count();
    let total = group.nodes.len();
    [allocated, idle, total - allocated - idle, total]
}

/// CPUs allocated, idle, other and in all.
pub fn cpu_counts(group: &Group<'_>) -> [u32; 4] {
    let mut counts = [0; 4];
    for node in &group.nodes {
        let used = node_state::usage(node).cpus.min(node.shape.cpus);
        let rest = node.shape.cpus - used;
        counts[0] += used;
        counts[if serves(node) { 1 } else { 2 }] += rest;
        counts[3] += node.shape.cpus;
    }
    counts
}

/// Names of the group's nodes.
pub fn names(group: &Group<'_>) -> Vec<String> {
    group.nodes.iter().map(|n| n.name.clone()).collect()
}

/// Memory that jobs hold in the group, MiB.
pub fn allocated_memory(group: &Group<'_>) -> u64 {
    group.nodes.iter().map(|n| node_state::usage(n).memory.0).sum()
}
