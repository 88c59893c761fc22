//! Groups nodes of partitions that share a line: those that agree in every shown field in which nodes must agree. Which fields
//! those are depends on the format and on `-e` and `-N`.

use super::options::{Request, Responding};
use garrick_model::view::{NodeView, PartitionView};
use garrick_render::{
    amounts,
    clock::Clock,
    node_state,
    sinfo::{
        Group, cells,
        fields::{Field, Grouping},
    },
};
use std::{cmp::Ordering, collections::HashSet, sync::Arc};

/// The lines to show, in order.
pub fn groups<'a>(
    partitions: &'a [Arc<PartitionView>],
    nodes: &'a [Arc<NodeView>],
    request: &Request,
    clock: &Clock,
) -> Vec<Group<'a>> {
    let shown: Vec<Field> = request.layout.columns.iter().map(|c| c.field.field).collect();
    let by_partition = request.by_node || shown.iter().any(|f| f.grouping() == Grouping::Partition);
    let agree: Vec<Field> = shown
        .iter()
        .copied()
        .filter(|f| match f.grouping() {
            Grouping::Same => true,
            Grouping::Least => request.exact,
            Grouping::Partition | Grouping::Total => false,
        })
        .collect();

    let mut groups: Vec<(Vec<String>, Group<'a>)> = Vec::new();
    // A node of several partitions counts once where partitions are not told apart.
    let mut seen = HashSet::new();
    for (place, partition) in partitions.iter().enumerate().filter(|(_, p)| takes_partition(p, request)) {
        let first = groups.len();
        let from = if by_partition { first } else { 0 };
        for node in amounts::members(partition, nodes) {
            if !takes_node(node, request) || !(by_partition || seen.insert(node.index)) {
                continue;
            }
            let one = Group { partition, place, nodes: vec![node] };
            let mut key: Vec<String> = agree.iter().map(|f| cells::cell(&one, *f, clock)).collect();
            if request.by_node {
                // Nobody else has this name: no use in looking.
                key.push(node.name.clone());
                groups.push((key, one));
                continue;
            }
            match groups[from..].iter_mut().find(|(k, _)| *k == key) {
                Some((_, group)) => group.nodes.push(node),
                None => groups.push((key, one)),
            }
        }
        let listed = request.by_node || request.reasons || !by_partition;
        if groups.len() == first && !listed {
            groups.push((Vec::new(), Group { partition, place, nodes: Vec::new() }));
        }
    }
    let mut groups: Vec<Group<'a>> = groups.into_iter().map(|(_, g)| g).collect();
    for group in &mut groups {
        group.nodes.sort_by_key(|n| n.index);
    }
    sort(&mut groups, request, clock);
    groups
}

fn takes_partition(partition: &PartitionView, request: &Request) -> bool {
    request.partitions.is_empty() || request.partitions.contains(&partition.config.name)
}

fn takes_node(node: &NodeView, request: &Request) -> bool {
    (request.nodes.is_empty() || request.nodes.contains(&node.name))
        && (request.states.is_empty() || request.states.iter().any(|s| s.takes(node)))
        && match request.responding {
            Responding::Any => true,
            Responding::Yes => !node.flags.not_responding,
            Responding::No => node.flags.not_responding,
        }
        && (!request.reasons || node.reason.is_some())
}

fn sort(groups: &mut [Group<'_>], request: &Request, clock: &Clock) {
    groups.sort_by(|a, b| {
        request
            .sort
            .iter()
            .map(|key| {
                let order = compare(a, b, key.field, key.configured, clock);
                if key.descending { order.reverse() } else { order }
            })
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    });
}

fn compare(a: &Group<'_>, b: &Group<'_>, field: Field, configured: bool, clock: &Clock) -> Ordering {
    let rank = |g: &Group<'_>| g.nodes.first().map(|n| node_state::word(n).rank);
    let least = |g: &Group<'_>, of: fn(&NodeView) -> u64| g.nodes.iter().map(|n| of(n)).min();
    match field {
        Field::Partition | Field::PartitionName if configured => a.place.cmp(&b.place),
        Field::StateCompact | Field::State | Field::StateComplete => rank(a).cmp(&rank(b)),
        Field::Nodes => a.nodes.len().cmp(&b.nodes.len()),
        Field::NodeList => a.nodes.first().map(|n| n.index).cmp(&b.nodes.first().map(|n| n.index)),
        Field::Cpus => least(a, |n| n.shape.cpus.into()).cmp(&least(b, |n| n.shape.cpus.into())),
        Field::Memory => least(a, |n| n.shape.memory.0).cmp(&least(b, |n| n.shape.memory.0)),
        Field::Disk => least(a, |n| n.shape.tmp_disk_mib).cmp(&least(b, |n| n.shape.tmp_disk_mib)),
        Field::Weight => least(a, |n| n.weight.into()).cmp(&least(b, |n| n.weight.into())),
        Field::CpuLoad => least(a, |n| n.load.load_hundredths.into()).cmp(&least(b, |n| n.load.load_hundredths.into())),
        other => cells::cell(a, other, clock).cmp(&cells::cell(b, other, clock)),
    }
}
