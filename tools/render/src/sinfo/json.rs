//! `sinfo --json`: the groups that the columns would show, one object each.

use super::{Group, fields};
use crate::{
    amounts,
    json::{Meta, document, number, optional, partition::partition},
    node_state,
};
use garrick_model::{
    node_shape::entries_text,
    view::{NodeView, PartitionView},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// The document of these groups; `nodes` are all nodes, for the partitions' totals.
pub fn sinfo(groups: &[Group<'_>], nodes: &[Arc<NodeView>], meta: &Meta) -> Value {
    let list = groups.iter().map(|group| object(group, nodes, meta)).collect();
    document("sinfo", list, None, meta)
}

/// Least and largest value.
fn span(group: &Group<'_>, of: impl Fn(&NodeView) -> u64) -> Value {
    let values = || group.nodes.iter().map(|n| of(n));
    json!({"minimum": values().min().unwrap_or(0), "maximum": values().max().unwrap_or(0)})
}

fn object(group: &Group<'_>, nodes: &[Arc<NodeView>], meta: &Meta) -> Value {
    let view: &PartitionView = group.partition;
    let first = group.nodes.first().copied();
    let [allocated, idle, other, total] = fields::node_counts(group);
    let [cpus_allocated, cpus_idle, cpus_other, cpus_total] = fields::cpu_counts(group);
    let each = |of: &dyn Fn(&NodeView) -> String| group.nodes.iter().map(|n| of(n)).collect::<Vec<_>>();
    let mut cpus = span(group, |n| n.shape.cpus.into());
    cpus["load"] = span(group, |n| n.load.load_hundredths.into());
    cpus["per_node"] = json!({"max": match view.config.max_cpus_per_node {
        Some(n) => number(n),
        None => json!({"set": false, "infinite": true, "number": 0}),
    }});
    for (key, value) in
        [("allocated", cpus_allocated), ("idle", cpus_idle), ("other", cpus_other), ("total", cpus_total)]
    {
        cpus[key] = json!(value);
    }
    let mut memory = span(group, |n| n.shape.memory.0);
    let free = || group.nodes.iter().filter_map(|n| n.load.free_memory).map(|m| m.0);
    memory["free"] = json!({"minimum": optional(free().min()), "maximum": optional(free().max())});
    memory["allocated"] = json!(fields::allocated_memory(group));
    let features = first.map(|n| n.features.join(",")).unwrap_or_default();
    let reason = first.and_then(|n| n.reason.as_ref());
    json!({
        "port": first.map_or(0, |n| n.port),
        "node": {"state": first.map(node_state::record_words).unwrap_or_default()},
        "nodes": {
            "allocated": allocated,
            "idle": idle,
            "other": other,
            "total": total,
            "hostnames": each(&|n| n.hostname.clone()),
            "addresses": each(&|n| n.address.clone()),
            "nodes": fields::names(group),
        },
        "cpus": cpus,
        "sockets": span(group, |n| n.shape.sockets.into()),
        "cores": span(group, |n| n.shape.cores_per_socket.into()),
        "threads": span(group, |n| n.shape.threads_per_core.into()),
        "disk": span(group, |n| n.shape.tmp_disk_mib),
        "memory": memory,
        "weight": span(group, |n| n.weight.into()),
        "features": {"total": features, "active": features},
        "gres": {
            "total": first.map_or_else(String::new, |n| entries_text(&n.shape)),
            "used": first.map_or_else(String::new, amounts::gres_used),
        },
        "reason": {
            "description": reason.map_or("", |r| r.text.as_str()),
            "time": reason.map_or(0, |r| r.at.secs()),
        },
        "reason_set_by_user": reason.map_or("", |r| r.user.as_str()),
        "resource_spec": {
            "cpus": first.filter(|n| !n.shape.reserved_cpus.is_empty()).map_or_else(String::new, |n| n.shape.reserved_cpus.to_string()),
            "memory": first.map_or(0, |n| n.shape.reserved_memory.0),
        },
        "cluster": meta.cluster,
        "comment": first.and_then(|n| n.comment.as_deref()).unwrap_or(""),
        "extra": first.and_then(|n| n.extra.as_deref()).unwrap_or(""),
        "reservation": "",
        "partition": partition(view, nodes, meta),
    })
}
